//! Many slow readers: what a worker holds for them stays within its share and little more, and is counted to the last byte.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::stream::Stream;
use ringmain_engine::{Conn, Cx, Handler, Reason, Start, Via, limits};
use ringmain_sim::{ClusterConfig, Peer, Plan, SimCluster, World};

use crate::courier::HANDLER;
use crate::run::addr;
use ringmain_sim::seeds::{self, Named};

const STEPS: usize = 400_000;
const READERS: usize = 48;
const SHARE: usize = 1024 * 1024;
const PIECE: usize = 4096;

/// Writes as long as there is room, for ever; with `reads` it is a stream that nobody reads instead.
struct Source {
    reads: bool,
    streams: Rc<RefCell<Vec<Stream>>>,
    marks: Rc<RefCell<Vec<usize>>>,
}

fn fill(conn: Conn<'_>) {
    while conn.has_room(0) {
        if conn.write(&[b'x'; PIECE]).is_err() {
            return;
        }
    }
}

impl Handler for Source {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, conn: Conn<'_>, _via: Via) -> Option<()> {
        if self.reads {
            self.streams.borrow_mut().push(conn.into_stream());
            return None;
        }
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        self.marks.borrow_mut().push(conn.cx().write_mark());
        fill(conn);
        bytes.len()
    }

    fn drained(&mut self, conn: Conn<'_>, _state: &mut ()) {
        fill(conn);
    }

    fn closed(&mut self, _cx: &Cx, _state: (), _reason: Reason) {}
}

struct Scene {
    _named: Named,
    world: World,
    cluster: SimCluster<Source>,
    streams: Rc<RefCell<Vec<Stream>>>,
    marks: Rc<RefCell<Vec<usize>>>,
    /// What the worker may hold.
    bound: usize,
}

impl Scene {
    fn new(seed: u64, test: &'static str, reads: bool) -> Scene {
        let plan = Plan::calm();
        // What one of them may hold beyond its mark: a piece, or the receipts that were under way.
        let beyond = limits::FRUGAL_MARK + PIECE + plan.buffers * plan.buffer_bytes + limits::READ_MARK;
        let world = World::new(seed, plan, 1);
        let named = crate::named(seed, test, &world);
        let (streams, marks): (Rc<RefCell<_>>, Rc<RefCell<_>>) = (Rc::default(), Rc::default());
        let config = ClusterConfig {
            workers: 1,
            held_bytes: SHARE,
            ..ClusterConfig::default()
        };
        let listeners = [(0, addr(HANDLER), HANDLER)];
        let cluster = SimCluster::new(&world, config, &listeners, |_: Start<()>| Source {
            reads,
            streams: Rc::clone(&streams),
            marks: Rc::clone(&marks),
        });
        let each = if reads {
            beyond
        } else {
            limits::FRUGAL_MARK + PIECE
        };
        Scene {
            _named: named,
            world,
            cluster,
            streams,
            marks,
            bound: SHARE / 2 + limits::WRITE_MARK + PIECE + READERS * each,
        }
    }

    fn step(&mut self) {
        self.cluster.step();
        let held = self.cluster.held(0);
        assert!(held <= self.bound, "{held} bytes held, at most {}", self.bound);
    }

    /// Lets the world come to rest.
    fn rest(&mut self) {
        let until = self.world.now().after(Duration::from_secs(1));
        for _ in 0..STEPS {
            if self.world.worker_idle(0) && self.world.next_event_time().is_none_or(|at| at > until) {
                return;
            }
            self.step();
        }
        panic!("it never comes to rest");
    }

    fn end(mut self) {
        self.streams.borrow_mut().clear();
        self.cluster.stop();
        for _ in 0..STEPS {
            if self.cluster.is_done() {
                assert_eq!(self.world.leaks(), Vec::<String>::new());
                return;
            }
            self.cluster.step();
        }
        panic!("the worker never ends");
    }
}

#[test]
fn slow_readers_hold_a_share_and_little_beyond_it() {
    for seed in seeds::some(20) {
        let mut all = Scene::new(seed, "slow_readers_hold_a_share_and_little_beyond_it", false);
        let peers: Vec<Peer> = (0..READERS)
            .map(|_| all.world.connect(&addr(HANDLER)).expect("it listens"))
            .collect();
        for peer in &peers {
            peer.write(b"go").expect("it is open");
            all.rest();
        }
        assert!(all.cluster.held(0) > SHARE / 2, "the share was never near");
        assert_eq!(all.marks.borrow().first(), Some(&limits::WRITE_MARK));
        assert_eq!(all.marks.borrow().last(), Some(&limits::FRUGAL_MARK));
        // Who reads is served on, and no faster reader pays for the others.
        let before = peers[READERS - 1].read(usize::MAX).len();
        all.rest();
        let after = peers[READERS - 1].read(usize::MAX).len();
        assert!(before > 0 && after > 0, "{before} and {after} bytes");
        // They leave: all is free, and the next has its whole mark.
        peers.iter().for_each(Peer::reset);
        all.rest();
        assert_eq!(all.cluster.held(0), 0);
        let peer = all.world.connect(&addr(HANDLER)).expect("it listens");
        peer.write(b"go").expect("it is open");
        all.rest();
        assert_eq!(all.marks.borrow().last(), Some(&limits::WRITE_MARK));
        all.end();
    }
}

#[test]
fn streams_that_nobody_reads_hold_no_more() {
    for seed in seeds::some(20) {
        let mut all = Scene::new(seed, "streams_that_nobody_reads_hold_no_more", true);
        let peers: Vec<Peer> = (0..READERS)
            .map(|_| all.world.connect(&addr(HANDLER)).expect("it listens"))
            .collect();
        for _ in 0..40 {
            for peer in &peers {
                // As much as the network takes.
                let _ = peer.write(&[b'x'; 16 * 1024]);
                all.step();
            }
            all.rest();
        }
        assert!(all.cluster.held(0) > SHARE / 2, "the share was never near");
        all.streams.borrow_mut().clear();
        all.rest();
        assert_eq!(all.cluster.held(0), 0);
        all.end();
    }
}
