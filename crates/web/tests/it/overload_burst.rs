//! Bursts in virtual time: requests that were queued while a worker computed are answered if the worker catches up within its allowance.
//! Each handler takes a known time, so each count below follows from arithmetic.

use std::cell::RefCell;
use std::time::Duration;

use ringmain_sim::{ClusterConfig, Peer, Plan, SimCluster, World};
use ringmain_web::{App, Limits, Server, limits};

/// Of each request.
const WORK: Duration = Duration::from_millis(4);
const PATIENCE: Duration = Duration::from_millis(60);
/// Requests that a worker answers until it counts as overloaded: those that have not waited for too long, and those within the time
/// for which others must have been late.
const ANSWERED: usize =
    ((PATIENCE.as_millis() * (1 + limits::OVERLOAD_FACTOR as u128)) / WORK.as_millis()) as usize;
/// Receipts between two looks at the clock, at the most.
const SLACK: usize = limits::RECEIPTS_PER_CLOCK_READ as usize + 1;
const STEPS: usize = 200_000;

mod world {
    use super::{RefCell, World};
    std::thread_local! {
        pub(super) static WORLD: RefCell<Option<World>> = const { RefCell::new(None) };
    }
}

fn compute(span: Duration) {
    world::WORLD.with_borrow(|world| world.as_ref().expect("a world").jump(span));
}

struct Scene {
    world: World,
    cluster: SimCluster<Server>,
}

impl Scene {
    fn new(seed: u64) -> Scene {
        let world = World::new(seed, Plan::calm(), 1);
        world::WORLD.set(Some(world.clone()));
        let app = App::new()
            .limits(Limits {
                max_queue_delay: Some(PATIENCE),
                connections_per_address: None,
                ..Limits::default()
            })
            .get("/work", |_, reply| {
                compute(WORK);
                reply.text("done")
            })
            .get("/quick", |_, reply| reply.text("done"))
            .get("/long", |_, reply| {
                compute(10 * PATIENCE);
                reply.text("done")
            })
            .build()
            .expect("an application");
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let address = "127.0.0.1:1".parse().expect("an address");
        let cluster = SimCluster::new(&world, config, &[(0, address, 0)], |start| app.server(start));
        Scene { world, cluster }
    }

    /// Opens connections, so that requests on them are all that is left to do.
    fn connect(&mut self, count: usize) -> Vec<Peer> {
        let address = "127.0.0.1:1".parse().expect("an address");
        let peers: Vec<Peer> = (0..count)
            .map(|_| self.world.connect(&address).expect("it listens"))
            .collect();
        for _ in 0..STEPS {
            if self.cluster.connections(0) as usize == count {
                return peers;
            }
            self.cluster.step();
        }
        panic!(
            "expected {count} connections, found {}",
            self.cluster.connections(0)
        );
    }

    /// Sends a request on each connection at the same instant. Returns the statuses, in the order of the connections.
    fn burst(&mut self, peers: &[Peer], targets: &[&str]) -> Vec<u16> {
        for (peer, target) in peers.iter().zip(targets) {
            peer.write(format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes())
                .expect("it is open");
        }
        let mut texts = vec![Vec::new(); peers.len()];
        for _ in 0..STEPS {
            for (peer, text) in peers.iter().zip(&mut texts) {
                text.extend(peer.read(10_000));
            }
            let is_refused =
                |text: &Vec<u8>| text.starts_with(b"HTTP/1.1 503") && !text.ends_with(b"\r\n\r\n");
            let is_whole = |text: &Vec<u8>| text.ends_with(b"done") || is_refused(text);
            if texts.iter().all(is_whole) {
                return texts.iter().map(|text| status(text)).collect();
            }
            self.cluster.step();
        }
        panic!(
            "not all are answered: {:?}",
            texts.iter().map(Vec::len).collect::<Vec<_>>()
        );
    }
}

fn status(text: &[u8]) -> u16 {
    let line = std::str::from_utf8(&text[9..12]).expect("a status line");
    line.parse().expect("a status")
}

#[test]
fn a_burst_is_answered() {
    for seed in 0..5 {
        // Twice the number that is answered within patience, and the number that is answered before a worker counts as overloaded.
        for count in [ANSWERED / 2, ANSWERED - SLACK] {
            let mut scene = Scene::new(seed);
            let peers = scene.connect(count);
            let targets = vec!["/work"; count];
            let found = scene.burst(&peers, &targets);
            let expected = vec![200; count];
            assert_eq!(found, expected, "seed {seed}, {count} requests");
            // And another burst after the first.
            scene.world.jump(4 * PATIENCE);
            assert_eq!(
                scene.burst(&peers, &targets),
                expected,
                "seed {seed}, {count} requests again"
            );
        }
    }
}

/// Between quick ones, three that compute for ten times what patience allows.
#[test]
fn requests_delayed_by_a_long_computation_are_answered() {
    let quick = ["/quick"; 10];
    let part = [&quick[..], &["/long"]].concat();
    let targets = [part.repeat(3), quick.to_vec()].concat();
    for seed in 0..5 {
        let mut scene = Scene::new(seed);
        let peers = scene.connect(targets.len());
        let found = scene.burst(&peers, &targets);
        assert_eq!(found, vec![200; targets.len()], "seed {seed}");
    }
}
