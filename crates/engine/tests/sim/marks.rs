//! Peers that do not read, handlers that write too much, and buffers that run out.

use std::cell::RefCell;
use std::rc::Rc;

use ringmain_engine::{Conn, Cx, Handler, Reason, Start, Via, WriteError, limits};
use ringmain_sim::{ClusterConfig, Fault, Peer, Plan, SimCluster, World};

use crate::clients::{Client, Manner};
use crate::courier::{HANDLER, Way};
use crate::run::{Run, addr};
use ringmain_sim::seeds::{self, Named};

const STEPS: usize = 200_000;

/// What a connection gets and how it ended.
#[derive(Default)]
struct Seen {
    refused: Vec<WriteError>,
    reasons: Vec<Reason>,
    unsent: usize,
}

/// Answers each receipt with many bytes; the last byte received says whether to close behind them.
struct Flood {
    bytes: usize,
    seen: Rc<RefCell<Seen>>,
}

impl Handler for Flood {
    type Conn = ();
    type Mail = ();

    fn open(&mut self, _conn: Conn<'_>, _via: Via) -> Option<()> {
        Some(())
    }

    fn data(&mut self, conn: Conn<'_>, _state: &mut (), bytes: &mut [u8]) -> usize {
        let outcome = conn.write(&vec![b'x'; self.bytes]);
        let mut seen = self.seen.borrow_mut();
        seen.refused.extend(outcome.err());
        seen.unsent = seen.unsent.max(conn.unsent());
        if bytes.last() == Some(&b'.') {
            conn.close();
        }
        bytes.len()
    }

    fn closed(&mut self, _cx: &Cx, _state: (), reason: Reason) {
        self.seen.borrow_mut().reasons.push(reason);
    }
}

/// One worker that floods, and one client of it.
struct Flooded {
    _named: Named,
    world: World,
    cluster: SimCluster<Flood>,
    peer: Peer,
    seen: Rc<RefCell<Seen>>,
}

impl Flooded {
    fn new(seed: u64, test: &'static str, bytes: usize) -> Flooded {
        let world = World::new(seed, Plan::calm(), 1);
        let named = crate::named(seed, test, &world);
        let seen: Rc<RefCell<Seen>> = Rc::default();
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let listeners = [(0, addr(HANDLER), HANDLER)];
        let cluster = SimCluster::new(&world, config, &listeners, |_: Start<()>| Flood {
            bytes,
            seen: Rc::clone(&seen),
        });
        let peer = world.connect(&addr(HANDLER)).expect("it listens");
        Flooded {
            _named: named,
            world,
            cluster,
            peer,
            seen,
        }
    }

    fn until(&mut self, what: &str, done: impl Fn(&Flooded) -> bool) {
        for _ in 0..STEPS {
            if done(self) {
                return;
            }
            self.cluster.step();
        }
        panic!("never: {what}");
    }

    fn end(mut self) {
        self.cluster.stop();
        self.until("every worker ends", |all| all.cluster.is_done());
        assert_eq!(self.world.leaks(), Vec::<String>::new());
    }
}

#[test]
fn beyond_the_write_limit_the_connection_closes() {
    for seed in seeds::some(20) {
        let name = "beyond_the_write_limit_the_connection_closes";
        let mut all = Flooded::new(seed, name, limits::WRITE_LIMIT + 1);
        all.peer.write(b"!").expect("it is open");
        all.until("it closes", |all| !all.seen.borrow().reasons.is_empty());
        all.until("the peer sees the end", |all| all.peer.eof() || all.peer.failed());
        let seen = all.seen.borrow();
        assert_eq!(seen.refused, [WriteError::Full]);
        assert_eq!(seen.reasons, [Reason::WriteLimit]);
        assert_eq!(seen.unsent, 0, "a refused write is refused as a whole");
        drop(seen);
        all.end();
    }
}

#[test]
fn a_closed_connection_flushes_for_a_while_only() {
    for seed in seeds::some(20) {
        let name = "a_closed_connection_flushes_for_a_while_only";
        let mut all = Flooded::new(seed, name, limits::WRITE_LIMIT);
        all.peer.write(b".").expect("it is open");
        let start = all.world.now();
        all.until("it closes", |all| !all.seen.borrow().reasons.is_empty());
        assert_eq!(all.seen.borrow().reasons, [Reason::FlushTimeout]);
        let span = all.world.now().since(start);
        let patience = limits::FLUSH;
        assert!(span >= patience && span < patience * 2, "{span:?}");
        all.end();
    }
}

#[test]
fn what_was_written_before_a_close_arrives() {
    for seed in seeds::some(20) {
        let name = "what_was_written_before_a_close_arrives";
        let mut all = Flooded::new(seed, name, limits::WRITE_LIMIT);
        all.peer.write(b".").expect("it is open");
        let mut got = 0;
        for _ in 0..STEPS {
            all.cluster.step();
            got += all.peer.read(5000).len();
            if all.peer.eof() {
                break;
            }
        }
        assert_eq!(got, limits::WRITE_LIMIT);
        assert_eq!(all.seen.borrow().reasons, [Reason::Closed]);
        all.end();
    }
}

/// A peer that never reads: its connection stops reading, and what waits stays bounded.
#[test]
fn a_deaf_peer_is_not_read_from() {
    for seed in seeds::some(20) {
        let plan = Plan::calm();
        let bound = limits::WRITE_MARK + plan.buffers * plan.buffer_bytes;
        let kernel = 2 * (plan.send_bytes + plan.receive_bytes) + limits::READ_MARK;
        let listeners = [(0, addr(HANDLER), HANDLER)];
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let world = World::new(seed, plan, 1);
        let name = "a_deaf_peer_is_not_read_from";
        let mut run = Run::with(seed, name, world, config, &listeners);
        let world = run.world();
        let peer = world.connect(&addr(HANDLER)).expect("it listens");
        let client = Client::new(&world, peer, 1, HANDLER, Way::Write, 4_000_000);
        run.clients.push(client.patient(Manner::Deaf, 20_000));
        run.drive("writing", |run| run.clients[0].done);
        let (unsent, written) = (run.seen.borrow().unsent, run.clients[0].written());
        assert!(unsent <= bound, "{unsent} bytes unsent, at most {bound}");
        assert!(
            unsent > limits::WRITE_MARK / 2,
            "the mark was never near: {unsent}"
        );
        assert!(written <= bound + kernel, "{written} bytes were taken");
        run.end();
    }
}

/// With one buffer for all, those who found none get their turns: nobody waits for the last of another.
#[test]
fn connections_without_a_buffer_take_turns() {
    const CLIENTS: usize = 32;
    const EACH: usize = 20_000;
    for seed in seeds::some(20) {
        let mut plan = Plan::calm();
        plan.buffers = 1;
        plan.buffer_bytes = 512;
        let listeners = [(0, addr(HANDLER), HANDLER)];
        let config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let world = World::new(seed, plan, 1);
        let name = "connections_without_a_buffer_take_turns";
        let mut run = Run::with(seed, name, world, config, &listeners);
        let world = run.world();
        for key in 1..=CLIENTS as u64 {
            let peer = world.connect(&addr(HANDLER)).expect("it listens");
            let client = Client::new(&world, peer, key, HANDLER, Way::Write, EACH);
            run.clients.push(client.patient(Manner::Steady, 0));
        }
        run.drive("the first is done", |run| {
            run.clients.iter().any(|client| client.done)
        });
        let least = run.clients.iter().map(Client::checked).min();
        let least = least.expect("there are clients");
        assert!(
            least > EACH / 4,
            "the last had {least} bytes when the first had all"
        );
        run.drive("all are done", |run| run.clients.iter().all(|client| client.done));
        assert!(run.clients.iter().all(Client::is_whole));
        assert!(world.count(Fault::NoBuffers) > 0, "buffers never ran out");
        run.end();
    }
}
