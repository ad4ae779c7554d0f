//! A gateway in virtual time with one attacker in front and an origin behind: counts the bytes that each receives and sends, and the
//! cost to the gateway. Every count is the same in each run.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::Config;
use ringmain_sim::{ClusterConfig, Peer, PeerListener, Plan, SimCluster, Step, World};
use ringmain_web::Server;

use crate::ALLOCATOR;
use crate::cost::message::message;

/// The virtual time after which an attack counts as endless.
const ENDLESS: Duration = Duration::from_mins(10);

/// The actions of an attacker.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    /// At once, as far as there is room.
    pub(crate) first: Vec<u8>,
    /// Then these bytes, so often, that many times.
    pub(crate) drip: Option<(Vec<u8>, Duration, usize)>,
    /// Then it ends its side.
    pub(crate) ends: bool,
    pub(crate) reads: Reads,
}

/// The way an attacker reads its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reads {
    All,
    Nothing,
    /// A byte each time.
    Byte(Duration),
}

impl Script {
    /// All at once and then the end.
    pub(crate) fn all(first: impl Into<Vec<u8>>) -> Script {
        Script {
            first: first.into(),
            drip: None,
            ends: true,
            reads: Reads::All,
        }
    }

    /// Sends `first`, then `piece` periodically without end.
    pub(crate) fn drip(first: &str, piece: &str, every: Duration) -> Script {
        Script {
            first: first.into(),
            drip: Some((piece.into(), every, usize::MAX)),
            ends: false,
            reads: Reads::All,
        }
    }
}

/// The measured cost of an attack.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Bytes that the attackers sent.
    pub(crate) sent: usize,
    /// Bytes that they were sent.
    pub(crate) answered: usize,
    /// Bytes that the origin was sent.
    pub(crate) passed: usize,
    /// Turns of the worker.
    pub(crate) turns: usize,
    /// Pieces of memory that these asked for, and those that they had grow.
    pub(crate) allocations: usize,
    /// The most bytes held at the end of a step, in excess of those before; includes those held by the network.
    pub(crate) held: usize,
    /// Bytes held after the end, without the test's own.
    pub(crate) left: isize,
    /// Tasks that exist then.
    pub(crate) tasks: u32,
    /// From the first byte to the end of the last connection, in virtual time.
    pub(crate) took: Duration,
}

struct Attacker {
    peer: Peer,
    script: Script,
    written: usize,
    /// The instants of the next write and of the next read.
    due: Time,
    read_at: Time,
    answers: Vec<u8>,
    ended: bool,
    done: bool,
}

struct Guest {
    peer: Peer,
    heard: Vec<u8>,
    /// Bytes of whole messages, which are answered.
    whole: usize,
    /// Bytes of answers that are due, and that were written.
    due: usize,
    written: usize,
    done: bool,
}

/// See the module.
pub(crate) struct Stand {
    cluster: SimCluster<Server>,
    world: World,
    listener: PeerListener,
    guests: Vec<Guest>,
    /// The response of the origin, which then closes if `closes` is set.
    answer: Vec<u8>,
    closes: bool,
    steps: usize,
    _gateway: Gateway,
}

/// The attackers that act in every step, and the origin with them. Others act once in [`CROWD_EVERY`] steps, and whenever the worker has
/// nothing to do.
const ALWAYS: usize = 16;

/// See [`ALWAYS`].
const CROWD_EVERY: usize = 32;

/// Returns the address of the origin.
pub(crate) fn origin() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 8000))
}

fn front() -> Addr {
    Addr::Inet(SocketAddr::from(([127, 0, 0, 1], 80)))
}

impl Stand {
    pub(crate) fn new(config: Config, answer: impl Into<Vec<u8>>, closes: bool) -> Stand {
        let mut plan = Plan::calm();
        plan.trace = 0;
        plan.whole = true;
        plan.buffer_bytes = 16 * 1024;
        let world = World::new(7, plan, 1);
        let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
        assert_eq!(gateway.problems(), []);
        let site = gateway.app().build().expect("an application");
        let cluster_config = ClusterConfig {
            workers: 1,
            ..ClusterConfig::default()
        };
        let listener = world.peer_listen(&Addr::Inet(origin()));
        let cluster = SimCluster::new(&world, cluster_config, &[(0, front(), 0)], |start| {
            site.server(start)
        });
        Stand {
            cluster,
            world,
            listener,
            guests: Vec::with_capacity(64),
            answer: answer.into(),
            closes,
            steps: 0,
            _gateway: gateway,
        }
    }

    /// Runs concurrent attackers until the last connection has closed. Returns the cost, and the response to the last attacker.
    pub(crate) fn attacked(&mut self, script: &Script, attackers: usize) -> (Cost, String) {
        let mut all: Vec<Attacker> = (0..attackers).map(|_| self.attacker(script)).collect();
        let mut cost = Cost::default();
        let begun = self.world.now();
        let (before, own) = (bytes_held(), self.own(&all));
        while !all.iter().all(|attacker| attacker.done) {
            assert!(self.world.now().since(begun) < ENDLESS, "an end of {script:?}");
            self.step(&mut all, &mut cost);
            let held = bytes_held() - before - (self.own(&all) - own);
            cost.held = cost.held.max(usize::try_from(held).unwrap_or(0));
        }
        cost.took = self.world.now().since(begun);
        // Time for the gateway's last bytes to the origin, and for lingering connections.
        let until = self.world.now().after(Duration::from_secs(10));
        while self.world.now() < until {
            if !self.leap(&all, until) {
                self.step(&mut all, &mut cost);
            }
        }
        cost.tasks = self.cluster.tasks(0);
        cost.left = bytes_held() - self.own(&all);
        for attacker in &all {
            cost.sent += attacker.written;
            cost.answered += attacker.answers.len();
        }
        let last = all.last().expect("there is one");
        (cost, String::from_utf8_lossy(&last.answers).into_owned())
    }

    fn attacker(&self, script: &Script) -> Attacker {
        let now = self.world.now();
        let every = script
            .drip
            .as_ref()
            .map_or(Duration::ZERO, |(_, every, _)| *every);
        Attacker {
            peer: self.world.connect(&front()).expect("it listens"),
            script: script.clone(),
            written: 0,
            due: now.after(every),
            read_at: now,
            answers: Vec::new(),
            ended: false,
            done: false,
        }
    }

    /// Bytes of the test's own.
    fn own(&self, attackers: &[Attacker]) -> isize {
        let guests = self.guests.iter().map(|guest| guest.heard.capacity());
        let attackers = attackers.iter().map(|attacker| attacker.answers.capacity());
        guests.chain(attackers).sum::<usize>() as isize
    }

    fn step(&mut self, attackers: &mut [Attacker], cost: &mut Cost) {
        let is_turn_of_peers = attackers.len() <= ALWAYS || self.steps.is_multiple_of(CROWD_EVERY);
        self.steps += 1;
        if is_turn_of_peers {
            let now = self.world.now();
            attackers.iter_mut().for_each(|attacker| attacker.act(now));
            self.serve(cost);
            let due = attackers.iter().filter_map(Attacker::due).min();
            if due.is_some_and(|due| self.leap(attackers, due)) {
                return self.hurry();
            }
        }
        let before = ALLOCATOR.stats();
        let step = self.cluster.step();
        if let Step::Turn(_) = step {
            let change = ALLOCATOR.stats() - before;
            cost.turns += 1;
            cost.allocations += change.allocations + change.reallocations;
        }
        if step == Step::Quiet && !is_turn_of_peers {
            self.hurry();
        } else if step == Step::Quiet && attackers.iter().all(|attacker| attacker.due().is_none()) {
            self.world.jump(Duration::from_secs(1));
        }
    }

    /// The peers act in the next step.
    fn hurry(&mut self) {
        self.steps = self.steps.next_multiple_of(CROWD_EVERY);
    }

    /// To this moment, unless something happens before; whether it does not.
    fn leap(&self, attackers: &[Attacker], until: Time) -> bool {
        let busy = attackers
            .iter()
            .any(|attacker| !attacker.done && attacker.may_write());
        let now = self.world.now();
        let quiet = self.world.next_event_time().is_none_or(|at| at > until);
        let leaps = until > now && quiet && !busy && self.world.worker_idle(0);
        if leaps {
            self.world.jump(until.since(now));
        }
        leaps
    }

    /// The origin: it answers each whole message.
    fn serve(&mut self, cost: &mut Cost) {
        while let Some(peer) = self.listener.accept() {
            self.guests.push(Guest {
                peer,
                heard: Vec::new(),
                whole: 0,
                due: 0,
                written: 0,
                done: false,
            });
        }
        for guest in &mut self.guests {
            let bytes = guest.peer.read(usize::MAX);
            cost.passed += bytes.len();
            guest.heard.extend_from_slice(&bytes);
            while let Some(length) = message(&guest.heard[guest.whole..]) {
                guest.whole += length;
                guest.due += self.answer.len();
            }
            while guest.written < guest.due {
                let from = guest.written % self.answer.len();
                match guest.peer.write(&self.answer[from..]) {
                    Ok(count @ 1..) => guest.written += count,
                    Ok(_) => break,
                    Err(_) => guest.due = guest.written,
                }
            }
            let said_all = self.closes && guest.due > 0 && guest.written == guest.due;
            if guest.peer.eof() || guest.peer.failed() || said_all {
                guest.peer.close();
                guest.done = true;
            }
        }
        self.guests.retain(|guest| !guest.done);
    }
}

impl Attacker {
    /// Returns whether bytes of the first write are left and the connection may accept them.
    fn may_write(&self) -> bool {
        self.written < self.script.first.len() && self.peer.unsent() == 0
    }

    /// Returns the instant of its next action.
    fn due(&self) -> Option<Time> {
        if self.done || self.written < self.script.first.len() {
            return None;
        }
        let drips = self.script.drip.as_ref().filter(|(.., times)| *times > 0);
        let reads = matches!(self.script.reads, Reads::Byte(_)) && self.peer.readable() > 0;
        let reads = reads.then_some(self.read_at);
        drips.map(|_| self.due).into_iter().chain(reads).min()
    }

    fn act(&mut self, now: Time) {
        if self.done {
            return;
        }
        let mut failed = false;
        if self.written < self.script.first.len() {
            match self.peer.write(&self.script.first[self.written..]) {
                Ok(count) => self.written += count,
                Err(_) => failed = true,
            }
        } else if let Some((piece, every, times)) = &mut self.script.drip
            && *times > 0
            && self.due <= now
        {
            match self.peer.write(piece) {
                Ok(count) => self.written += count,
                Err(_) => failed = true,
            }
            *times -= 1;
            self.due = now.after(*every);
        }
        let over = self.written >= self.script.first.len();
        let drips = self.script.drip.as_ref().is_some_and(|(.., times)| *times > 0);
        if over && !drips && self.script.ends && !self.ended {
            self.ended = true;
            self.peer.shutdown_write();
        }
        self.read(now);
        // A client that does not read only notices that it cannot write, or that the connection was reset.
        if self.peer.eof() || self.peer.failed() || failed {
            self.peer.close();
            self.done = true;
        }
    }

    fn read(&mut self, now: Time) {
        let most = match self.script.reads {
            Reads::All => usize::MAX,
            Reads::Nothing => 0,
            Reads::Byte(every) if self.read_at <= now && self.peer.readable() > 0 => {
                self.read_at = now.after(every);
                1
            }
            Reads::Byte(_) => 0,
        };
        if most > 0 {
            self.answers.extend_from_slice(&self.peer.read(most));
        }
    }
}

/// Statuses of answers.
pub(crate) fn statuses(answers: &str) -> String {
    let all: Vec<&str> = answers
        .split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|line| line.get(..3))
        .collect();
    all.join(" ")
}

fn bytes_held() -> isize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated as isize - stats.bytes_deallocated as isize
}
