//! Several nodes that read the same logs, and clients that rely on their replies, while a seed decides the events.
//!
//! ```text
//! reference logs ─▶ readers of each node ─▶ inboxes of its shards ─▶ shards ─ mail ─▶ clients ─▶ checked against the reference logs
//! ```
//!
//! A client that moves between nodes may combine their positions. `SIM_SEEDS=10000` runs the long suite (`cargo xtask suite sim`),
//! `SIM_SEED=n` one seed.

mod clients;
mod nodes;
mod reference_logs;
mod reports;

use std::io::Write;
use std::ops::Range;
use std::time::Duration;

use clients::Client;
use nodes::Node;
use reference_logs::ReferenceLogs;

/// Steps of one seed.
const STEPS: usize = 1000;

/// Returns the seeds of this run.
fn seeds() -> Range<u64> {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    match number("SIM_SEED") {
        Some(seed) => seed..seed + 1,
        None => number("SIM_FIRST").unwrap_or(0)..number("SIM_SEEDS").unwrap_or(100),
    }
}

/// The number of occurrences of each tested situation.
#[derive(Debug, Default)]
struct Occurred {
    /// Clients recovered records that they had missed.
    recovered: u64,
    /// Clients recovered at a node on which they had not been before.
    moved: u64,
    /// Clients were not recovered.
    gaps: u64,
    /// Clients had to retry.
    behind: u64,
    /// Subscribers were notified of missing records.
    notified: u64,
    duplicates: u64,
    holes: u64,
    rollbacks: u64,
    restarts: u64,
    restored: u64,
    removed: u64,
}

/// A step of a seed.
#[derive(Clone, Copy, Debug)]
struct Step {
    seed: u64,
    now: Duration,
    /// The number of processed items.
    clock: u64,
}

struct World {
    seed: u64,
    random: fastrand::Rng,
    reference: ReferenceLogs,
    nodes: Vec<Node>,
    clients: Vec<Client>,
    now: Duration,
    /// Counts the items that shards process, on all nodes.
    clock: u64,
    occurred: Occurred,
}

#[test]
fn clients_recover_exactly_what_the_log_has_or_are_notified() {
    let mut all = Occurred::default();
    for seed in seeds() {
        let mut world = World::new(seed);
        let reported = Reported(seed);
        for _ in 0..STEPS {
            world.step();
        }
        world.finish();
        drop(reported);
        all.add(&world.occurred);
    }
    println!("{all:?}");
    if seeds().count() >= 100 {
        let least = [
            all.recovered,
            all.moved,
            all.gaps,
            all.behind,
            all.notified,
            all.duplicates,
        ];
        assert!(least.iter().all(|count| *count > 100), "{all:?}");
        let least = [all.holes, all.rollbacks, all.restarts, all.restored, all.removed];
        assert!(least.iter().all(|count| *count > 20), "{all:?}");
    }
}

/// Reports its seed if it is dropped by a panic.
struct Reported(u64);

impl Drop for Reported {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = format!(
                "again: SIM_SEED={} cargo test -p ringmain-hub --test it logs::simulation\n",
                self.0
            );
            // The panic itself was reported.
            let _ = std::io::stderr().write_all(text.as_bytes());
        }
    }
}

impl Occurred {
    fn add(&mut self, other: &Occurred) {
        for (count, more) in [
            (&mut self.recovered, other.recovered),
            (&mut self.moved, other.moved),
            (&mut self.gaps, other.gaps),
            (&mut self.behind, other.behind),
            (&mut self.notified, other.notified),
            (&mut self.duplicates, other.duplicates),
            (&mut self.holes, other.holes),
            (&mut self.rollbacks, other.rollbacks),
            (&mut self.restarts, other.restarts),
            (&mut self.restored, other.restored),
            (&mut self.removed, other.removed),
        ] {
            *count += more;
        }
    }
}

impl World {
    fn new(seed: u64) -> World {
        let mut random = fastrand::Rng::with_seed(seed);
        let reference = ReferenceLogs::new(random.usize(1..=2));
        let nodes = (0..random.u64(2..=3)).map(|number| Node::new(number, &reference, &mut random));
        let nodes: Vec<Node> = nodes.collect();
        let clients = (0..5)
            .map(|_| Client::new(random.usize(0..nodes.len())))
            .collect();
        World {
            seed,
            random,
            reference,
            nodes,
            clients,
            now: Duration::ZERO,
            clock: 0,
            occurred: Occurred::default(),
        }
    }

    fn current_step(&self) -> Step {
        Step {
            seed: self.seed,
            now: self.now,
            clock: self.clock,
        }
    }

    fn step(&mut self) {
        let node = self.random.usize(0..self.nodes.len());
        let client = self.random.usize(0..self.clients.len());
        match self.random.u32(0..2000) {
            0..300 => self.reference.append(&mut self.random),
            300..650 => self.nodes[node].read(&self.reference, &mut self.random, &mut self.occurred),
            650..1050 => self.process(node, 4),
            1050..1400 => self.mail(node, 8),
            1400..1650 => self.subscribe(client),
            1650..1730 => self.disconnect(client),
            1730..1740 => self.unsubscribe(client),
            1740..1748 => self.publish_beside(node),
            1748..1751 => self.interrupt(node),
            1751..1780 => self.nodes[node].repeat(&self.reference, &mut self.random),
            1780..1800 => self.nodes[node].stall(&mut self.random),
            1800..1804 => {
                if self.reference.truncate(&mut self.random) {
                    self.occurred.rollbacks += 1;
                }
            }
            1804..1805 => {
                self.reference.recreate(&mut self.random);
                self.occurred.rollbacks += 1;
            }
            1805..1811 => self.reference.retain(&mut self.random),
            1811..1814 => self.restart(node, false),
            1814..1818 => self.restart(node, true),
            1818..1824 => {
                let seconds = self.random.u64(1..40);
                self.pass(Duration::from_secs(seconds));
            }
            1824..1850 => self.pass(Duration::from_secs(1)),
            _ => self.mail(node, 2),
        }
    }

    /// Advances the time and removes expired channels.
    fn pass(&mut self, time: Duration) {
        self.now += time;
        for node in &mut self.nodes {
            self.occurred.removed += node.sweep(self.now);
        }
    }

    /// Processes items in the inboxes of a node's shards.
    fn process(&mut self, node: usize, limit: usize) {
        let shard = self.random.usize(0..nodes::WORKERS);
        for _ in 0..limit {
            self.process_next(node, shard);
        }
    }

    fn process_next(&mut self, node: usize, shard: usize) {
        self.clock += 1;
        let step = self.current_step();
        let gap = self.nodes[node].process(shard, step, &self.reference, &mut self.occurred);
        let clients = self.clients.iter_mut().filter(|client| client.node == node);
        for client in clients {
            if let Some(gap) = &gap {
                client.must_notice(shard, gap, &self.reference, &self.nodes[node]);
            }
        }
    }

    fn process_all(&mut self, node: usize) {
        for shard in 0..nodes::WORKERS {
            while self.nodes[node].has_arriving(shard) {
                self.process_next(node, shard);
            }
        }
    }

    /// Delivers some mail between the workers of a node, and what clients receive.
    fn mail(&mut self, node: usize, limit: usize) {
        for _ in 0..3 {
            let (worker, shard) = (
                self.random.usize(0..nodes::WORKERS),
                self.random.usize(0..nodes::WORKERS),
            );
            let (up, down) = (self.random.usize(0..=limit), self.random.usize(0..=limit));
            self.nodes[node].up(worker, shard, up, self.now);
            let step = self.current_step();
            self.nodes[node].down(shard, worker, down, step);
        }
        self.receive(node);
    }

    fn receive(&mut self, node: usize) {
        for worker in 0..nodes::WORKERS {
            let received = self.nodes[node].received(worker);
            for (conn, received) in received {
                let mut clients = self.clients.iter_mut();
                let client = clients
                    .find(|client| (client.node, client.worker, client.conn) == (node, worker, Some(conn)));
                // Clients that have disconnected receive nothing.
                if let Some(client) = client {
                    let context = clients::Context {
                        seed: self.seed,
                        clock: self.clock,
                        reference: &mut self.reference,
                        node: &self.nodes[node],
                        occurred: &mut self.occurred,
                    };
                    client.receive(received, context);
                }
            }
        }
    }

    fn subscribe(&mut self, client: usize) {
        let channel = self.random.choice(reference_logs::CHANNELS).expect("one");
        let forgets = self.random.u8(0..12) == 0;
        let node = self.clients[client].node;
        self.clients[client].subscribe(channel, forgets, &mut self.nodes[node], &mut self.random);
    }

    fn unsubscribe(&mut self, client: usize) {
        let channel = self.random.choice(reference_logs::CHANNELS).expect("one");
        let node = self.clients[client].node;
        self.clients[client].unsubscribe(channel, &mut self.nodes[node]);
    }

    /// A client disconnects, and connects to the same node or to another one.
    fn disconnect(&mut self, client: usize) {
        let (from, to) = (self.clients[client].node, self.random.usize(0..self.nodes.len()));
        self.clients[client].disconnect(&mut self.nodes[from]);
        self.clients[client].node = to;
    }

    /// Publishes in a channel that a log feeds, as another program does.
    fn publish_beside(&mut self, node: usize) {
        if !self.nodes[node].is_shared {
            return;
        }
        let channel = self.random.choice(reference_logs::CHANNELS).expect("one");
        let id = self.reference.next_id();
        self.nodes[node].publish(channel, id);
    }

    fn interrupt(&mut self, node: usize) {
        if self.nodes[node].is_shared {
            let channel = self.random.choice(reference_logs::CHANNELS).expect("one");
            self.nodes[node].interrupt(channel);
        }
    }

    fn restart(&mut self, node: usize, with_state: bool) {
        for client in self.clients.iter_mut().filter(|client| client.node == node) {
            client.connection_lost();
        }
        if with_state {
            self.process_all(node);
            self.occurred.restored += 1;
        }
        self.occurred.restarts += 1;
        self.nodes[node].restart(with_state, self.now, &self.reference, &mut self.random);
    }

    /// Delivers everything, and subscribes clients that were rejected or notified again, until every client has every publication.
    fn finish(&mut self) {
        for node in &mut self.nodes {
            node.make_room();
        }
        // Logs of earlier processes that have no reader any more are removed.
        self.pass(Duration::from_secs(600));
        for _ in 0..8 {
            for node in 0..self.nodes.len() {
                self.nodes[node].read_all(&self.reference, &mut self.occurred);
                self.process_all(node);
            }
            for client in 0..self.clients.len() {
                for channel in reference_logs::CHANNELS {
                    let node = self.clients[client].node;
                    self.clients[client].subscribe(channel, false, &mut self.nodes[node], &mut self.random);
                }
            }
            for node in 0..self.nodes.len() {
                for _ in 0..6 {
                    for worker in 0..nodes::WORKERS {
                        for shard in 0..nodes::WORKERS {
                            self.nodes[node].up(worker, shard, usize::MAX, self.now);
                            let step = self.current_step();
                            self.nodes[node].down(shard, worker, usize::MAX, step);
                        }
                    }
                    self.receive(node);
                }
            }
        }
        for client in &self.clients {
            client.has_all(&self.reference, &self.nodes[client.node], self.seed);
        }
    }
}
