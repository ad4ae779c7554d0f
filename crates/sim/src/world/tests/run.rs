//! The echo servers' clients, and a whole run of both.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use ringmain_engine::Addr;
use ringmain_engine::backend::Backend;

use super::super::random::split_mix;
use super::super::{Fault, Peer, PeerDatagrams, PeerListener, Plan, Step, World};
use super::echo::{DATAGRAM_PORT, Echo, JOBS};

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 200_000;

/// A client that sends a pattern of its own and checks what comes back.
pub(super) struct Client {
    peer: Peer,
    key: u64,
    written: usize,
    total: usize,
    checked: usize,
    ended: bool,
    done: bool,
}

impl Client {
    fn new(peer: Peer, key: u64, total: usize) -> Client {
        Client {
            peer,
            key,
            written: 0,
            total,
            checked: 0,
            ended: false,
            done: false,
        }
    }

    /// Byte `position` of this client's stream, like no other client's.
    fn byte(&self, position: usize) -> u8 {
        let mut mix = self.key << 32 | position as u64;
        split_mix(&mut mix) as u8
    }

    fn act(&mut self, world: &World, label: &str) {
        if self.done {
            return;
        }
        if self.written < self.total && world.below(2) == 0 {
            let count = 1 + world.below((self.total - self.written).min(700));
            let bytes: Vec<u8> = (self.written..self.written + count)
                .map(|at| self.byte(at))
                .collect();
            self.written += self.peer.write(&bytes).unwrap_or(0);
        }
        if world.below(3) == 0 {
            for byte in self.peer.read(1 + world.below(900)) {
                assert!(
                    self.checked < self.written,
                    "{label}: more came back than was sent"
                );
                assert_eq!(byte, self.byte(self.checked), "{label}: byte {}", self.checked);
                self.checked += 1;
            }
        }
        if self.written == self.total && !self.ended {
            self.ended = true;
            self.peer.shutdown_write();
        }
        if self.peer.eof() || self.peer.failed() && self.peer.readable() == 0 {
            self.done = true;
            self.peer.close();
        }
    }

    fn is_whole(&self) -> bool {
        self.checked == self.total
    }
}

/// A whole run: workers, clients, one upstream server and one datagram client.
pub(super) struct Run {
    world: World,
    addr: Addr,
    label: String,
    echoes: Vec<Echo>,
    pub(super) clients: Vec<Client>,
    upstream: PeerListener,
    datagrams: PeerDatagrams,
    sent: u64,
}

impl Run {
    pub(super) fn new(seed: u64, plan: Plan, workers: usize) -> Run {
        let world = World::new(seed, plan, workers);
        let local = |port| Addr::Inet(SocketAddr::from(([127, 0, 0, 1], port)));
        let addr = local(7);
        let upstream = world.peer_listen(&local(0));
        let echo = |me| Echo::new(&world, me, workers, &addr, upstream.addr());
        let echoes = (0..workers).map(echo).collect();
        let datagrams = world.peer_datagrams(SocketAddr::from(([127, 0, 0, 1], 0)));
        let mut run = Run {
            label: format!("seed {seed}"),
            world,
            addr,
            echoes,
            clients: Vec::new(),
            upstream,
            datagrams,
            sent: 0,
        };
        for _ in 0..6 {
            run.connect();
        }
        run
    }

    fn connect(&mut self) {
        if let Ok(peer) = self.world.connect(&self.addr) {
            let total = self.world.below(5000);
            self.clients
                .push(Client::new(peer, self.clients.len() as u64 + 1, total));
        }
    }

    pub(super) fn finish(self) -> World {
        self.finish_counting().0
    }

    /// Runs to the end. Returns the world and how many clients got every byte back.
    pub(super) fn finish_counting(mut self) -> (World, usize) {
        self.drive(Run::clients_done, "serving");
        let broken = self.clients.iter().filter(|client| !client.is_whole()).count();
        let causes = [Fault::Reset, Fault::AcceptAborted].map(|fault| self.world.count(fault));
        if causes == [0, 0] && broken > 0 {
            let trace = self.world.trace_text();
            panic!("{}: {broken} streams broke without a cause\n{trace}", self.label);
        }
        for echo in &mut self.echoes {
            echo.stopping = true;
            echo.backend.waker().wake();
        }
        self.drive(|run| run.echoes.iter().all(Echo::is_empty), "stopping");
        self.drive(|run| run.world.next_event_time().is_none(), "settling");
        assert_eq!(self.world.leaks(), Vec::<String>::new(), "{}", self.label);
        self.check_jobs();
        let whole = self.clients.iter().filter(|client| client.is_whole()).count();
        (self.world, whole)
    }

    fn clients_done(run: &Run) -> bool {
        run.clients.iter().all(|client| client.done)
    }

    fn check_jobs(&self) {
        for echo in &self.echoes {
            let done = echo.jobs_done.load(Ordering::Relaxed);
            assert_eq!(done + echo.jobs_left, JOBS, "{}: every job runs once", self.label);
        }
    }

    fn drive(&mut self, until: impl Fn(&Run) -> bool, phase: &str) {
        for _ in 0..STEP_LIMIT {
            if until(self) {
                return;
            }
            let step = self.world.step();
            if let Step::Turn(worker) = step {
                self.echoes[worker].turn();
            }
            for client in &mut self.clients {
                client.act(&self.world, &self.label);
            }
            self.outside();
        }
        let trace = self.world.trace_text();
        panic!("{}: stuck while {phase}; last of it:\n{trace}", self.label);
    }

    /// The upstream server's and the datagram client's part.
    fn outside(&mut self) {
        if let Some(peer) = self.upstream.accept() {
            let total = self.world.below(2000);
            self.clients
                .push(Client::new(peer, self.clients.len() as u64 + 1, total));
        }
        if self.sent < 20 {
            self.sent += 1;
            let to = SocketAddr::from(([127, 0, 0, 1], DATAGRAM_PORT));
            self.datagrams.send_to(to, &self.sent.to_be_bytes());
        }
        if let Some((_, data)) = self.datagrams.recv_from() {
            let number = u64::from_be_bytes(data.try_into().expect("datagrams stay whole"));
            assert!(
                (1..=self.sent).contains(&number),
                "{}: a datagram nobody sent",
                self.label
            );
        }
    }
}
