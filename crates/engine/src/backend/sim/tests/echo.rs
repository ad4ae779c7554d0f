//! A tiny echo server on the raw contract, its simulated clients, and the run of both.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_sys::addr::Addr;

use super::super::random::split_mix;
use super::super::{Fault, Peer, PeerDatagrams, PeerListener, Plan, Sim, Step, World};
use crate::backend::{Backend, Completion, Op, RecvEnd, Slot, Socket, Time};

const LISTENER: u32 = 0;
const UPSTREAM: u32 = 1;
const DATAGRAM: u32 = 2;
const FIRST: u32 = 16;
const BACK_OFF: Duration = Duration::from_micros(700);
const JOBS: usize = 3;

/// Steps after which a run counts as stuck.
const STEP_LIMIT: usize = 200_000;

fn fixed(index: u32) -> Slot {
    Slot {
        index,
        generation: 1,
    }
}

/// One echoed connection.
struct Conn {
    slot: Slot,
    socket: Socket,
    waiting: VecDeque<u8>,
    /// Boxed, so that it stays where it is while it is sent.
    sending: Option<Box<[u8]>>,
    receiving: bool,
    ended: bool,
    failed: bool,
    closing: bool,
}

/// One worker's echo loop.
struct Echo {
    backend: Sim,
    me: usize,
    workers: usize,
    listener: Option<Socket>,
    accepting: bool,
    accept_at: Option<Time>,
    conns: BTreeMap<u32, Conn>,
    generations: BTreeMap<u32, u32>,
    /// Just accepted, being given away.
    leaving: BTreeMap<u32, (Slot, Socket)>,
    closing: usize,
    datagram: Option<Socket>,
    datagram_sends: usize,
    receiving_datagrams: bool,
    upstream: Option<(Addr, usize)>,
    connecting: Option<Socket>,
    jobs_left: usize,
    jobs_done: Arc<AtomicUsize>,
    stopping: bool,
}

impl Echo {
    fn new(world: &World, me: usize, workers: usize, addr: &Addr, upstream: Addr) -> Echo {
        let mut backend = world.backend(me);
        let listener = world.listen(me, addr);
        backend.accept(fixed(LISTENER), listener);
        Echo {
            backend,
            me,
            workers,
            listener: Some(listener),
            accepting: true,
            accept_at: None,
            conns: BTreeMap::new(),
            generations: BTreeMap::new(),
            leaving: BTreeMap::new(),
            closing: 0,
            datagram: None,
            datagram_sends: 0,
            receiving_datagrams: false,
            upstream: Some((upstream, 4)),
            connecting: None,
            jobs_left: JOBS,
            jobs_done: Arc::default(),
            stopping: false,
        }
    }

    fn turn(&mut self) {
        let due = self.accept_at.map(|at| at.since(self.backend.now()));
        self.backend.wait(due).expect("the simulation goes on");
        while let Some(completion) = self.backend.next() {
            self.handle(completion);
        }
        self.open_things();
        if !self.stopping && self.accept_at.is_some_and(|at| at <= self.backend.now()) {
            self.accept_at = None;
            self.accepting = true;
            self.backend
                .accept(fixed(LISTENER), self.listener.expect("it is open"));
        }
        let indexes: Vec<u32> = self.conns.keys().copied().collect();
        for index in indexes {
            self.push_on(index);
        }
        if self.stopping {
            self.stop_more();
        }
    }

    /// Retries what the storm refuses now and then.
    fn open_things(&mut self) {
        if self.stopping {
            return;
        }
        if self.datagram.is_none() {
            let local = SocketAddr::from(([0, 0, 0, 0], 5353));
            self.datagram = self.backend.open_datagram(local).ok();
        }
        if let Some(socket) = self.datagram
            && !self.receiving_datagrams
        {
            self.receiving_datagrams = true;
            self.backend.recv_from(fixed(DATAGRAM), socket);
        }
        if self.connecting.is_none()
            && let Some((to, tries)) = &mut self.upstream
            && *tries > 0
        {
            *tries -= 1;
            if let Ok(socket) = self.backend.open_stream(to, None) {
                self.connecting = Some(socket);
                self.backend.connect(fixed(UPSTREAM), socket, to);
            }
        }
        if self.jobs_left > 0 {
            let (waker, done) = (self.backend.waker(), Arc::clone(&self.jobs_done));
            let job = Box::new(move || {
                done.fetch_add(1, Ordering::Relaxed);
                waker.wake();
            });
            if self.backend.run_blocking(job).is_ok() {
                self.jobs_left -= 1;
            }
            self.backend.wake_peer((self.me + 1) % self.workers);
        }
    }

    fn new_slot(&mut self) -> Slot {
        let used = |index: &u32| self.conns.contains_key(index) || self.leaving.contains_key(index);
        let index = (FIRST..)
            .find(|index| !used(index))
            .expect("few connections");
        let generation = self.generations.entry(index).or_default();
        *generation += 1;
        Slot {
            index,
            generation: *generation,
        }
    }

    fn add(&mut self, socket: Socket) {
        let slot = self.new_slot();
        let poll_first = self.backend.random() & 1 == 0;
        self.backend.recv(slot, socket, poll_first);
        let conn = Conn {
            slot,
            socket,
            waiting: VecDeque::new(),
            sending: None,
            receiving: true,
            ended: false,
            failed: false,
            closing: false,
        };
        self.conns.insert(slot.index, conn);
    }

    fn conn(&mut self, slot: Slot) -> &mut Conn {
        let conn = self
            .conns
            .get_mut(&slot.index)
            .expect("completions come for live slots only");
        assert_eq!(conn.slot, slot, "a completion of a former life");
        conn
    }

    fn handle(&mut self, completion: Completion) {
        match completion {
            Completion::Accepted { slot, socket } => {
                assert_eq!(slot, fixed(LISTENER));
                self.arrived(socket);
            }
            Completion::AcceptEnded { error, .. } => {
                self.accepting = false;
                assert!(error.is_some() || self.stopping, "accept ended by itself");
                self.accept_at = Some(self.backend.now().after(BACK_OFF));
            }
            Completion::Adopted { tag, socket } => {
                assert_eq!(tag, 77);
                self.add(socket);
            }
            Completion::Given { slot, result } => {
                let (_, socket) = self
                    .leaving
                    .remove(&slot.index)
                    .expect("it was being given");
                if result.is_err() {
                    self.add(socket);
                }
            }
            Completion::Received {
                slot,
                mut data,
                more,
            } => {
                let bytes = data.bytes_mut().to_vec();
                assert_eq!(bytes.len(), data.len());
                self.backend.give_back(data);
                let conn = self.conn(slot);
                conn.receiving = more;
                conn.waiting.extend(bytes);
            }
            Completion::RecvEnded { slot, end } => self.receive_ended(slot, end),
            Completion::Sent { slot, result, held } => {
                let conn = self.conn(slot);
                let sent = conn
                    .sending
                    .as_ref()
                    .expect("a send was in flight")
                    .to_vec();
                let count = match result {
                    Ok(count) => count,
                    Err(error) => {
                        conn.failed |= error.raw_os_error() != Some(libc::ECANCELED);
                        0
                    }
                };
                for byte in sent[count..].iter().rev() {
                    conn.waiting.push_front(*byte);
                }
                if !held {
                    conn.sending = None;
                }
            }
            Completion::Released { slot } => self.conn(slot).sending = None,
            Completion::Closed { slot } => {
                self.closing -= 1;
                self.conns.remove(&slot.index);
            }
            Completion::Connected { slot, result } => {
                assert_eq!(slot, fixed(UPSTREAM));
                let socket = self.connecting.take().expect("a connect was in flight");
                match result {
                    Ok(()) => {
                        self.upstream = None;
                        self.add(socket);
                    }
                    Err(_) => self.close(fixed(UPSTREAM), socket),
                }
            }
            Completion::Datagram {
                mut data,
                from,
                more,
                ..
            } => {
                self.receiving_datagrams = more;
                let bytes = data.bytes_mut().to_vec();
                self.backend.give_back(data);
                if let (Some(socket), Some(from), false) = (self.datagram, from, self.stopping) {
                    self.datagram_sends += 1;
                    self.backend.send_to(fixed(DATAGRAM), socket, from, &bytes);
                }
            }
            Completion::DatagramsEnded { .. } => self.receiving_datagrams = false,
            Completion::DatagramSent { .. } => self.datagram_sends -= 1,
        }
    }

    fn arrived(&mut self, socket: Socket) {
        assert!(
            self.backend
                .peer_addr(socket)
                .expect("it was accepted")
                .is_some()
        );
        if self.workers > 1 && self.backend.random().is_multiple_of(3) {
            let slot = self.new_slot();
            self.leaving.insert(slot.index, (slot, socket));
            self.backend
                .give(slot, socket, (self.me + 1) % self.workers, 77);
        } else {
            self.add(socket);
        }
    }

    fn receive_ended(&mut self, slot: Slot, end: RecvEnd) {
        let conn = self.conn(slot);
        conn.receiving = false;
        match end {
            RecvEnd::Eof => conn.ended = true,
            RecvEnd::Failed(_) => conn.failed = true,
            RecvEnd::NoBuffers | RecvEnd::Cancelled => {}
        }
    }

    fn close(&mut self, slot: Slot, socket: Socket) {
        self.closing += 1;
        self.backend.close(slot, socket);
    }

    /// Starts what a connection can do next.
    fn push_on(&mut self, index: u32) {
        let random = self.backend.random();
        let free = self.backend.buffers_free() > 0;
        let conn = self
            .conns
            .get_mut(&index)
            .expect("the caller has listed it");
        let (slot, socket) = (conn.slot, conn.socket);
        if conn.closing {
            return;
        }
        if conn.failed {
            if conn.receiving || conn.sending.is_some() {
                self.backend.shutdown_both(socket);
            } else {
                conn.closing = true;
                self.close(slot, socket);
            }
            return;
        }
        if conn.receiving && random.is_multiple_of(16) {
            self.backend.cancel(Op::Recv, slot);
        } else if !conn.receiving && !conn.ended && free && conn.waiting.len() < 4096 {
            conn.receiving = true;
            self.backend.recv(slot, socket, random & 1 == 0);
        }
        if conn.sending.is_none() && !conn.waiting.is_empty() {
            let bytes: Box<[u8]> = conn.waiting.drain(..).collect();
            let middle = (random >> 8) as usize % (bytes.len() + 1);
            let (first, second) = bytes.split_at(middle);
            // SAFETY: the box is kept in `sending` until the send's final completion.
            unsafe {
                self.backend
                    .send(slot, socket, &[IoSlice::new(first), IoSlice::new(second)])
            };
            conn.sending = Some(bytes);
        } else if conn.sending.is_some() && random.is_multiple_of(32) {
            // What was not sent goes on with the next send.
            if random >> 40 & 7 == 0 {
                self.backend.cancel(Op::Send, slot);
            }
        } else if conn.ended && conn.sending.is_none() && !conn.receiving {
            conn.closing = true;
            self.close(slot, socket);
        }
    }

    fn stop_more(&mut self) {
        if self.accepting {
            self.backend.cancel(Op::Accept, fixed(LISTENER));
        } else if let Some(listener) = self.listener.take() {
            self.close(fixed(LISTENER), listener);
        }
        self.accept_at = None;
        self.upstream = None;
        if self.connecting.is_some() {
            self.backend.cancel(Op::Connect, fixed(UPSTREAM));
        }
        if self.receiving_datagrams {
            self.backend.cancel(Op::RecvFrom, fixed(DATAGRAM));
        } else if self.datagram_sends == 0
            && let Some(socket) = self.datagram.take()
        {
            self.close(fixed(DATAGRAM), socket);
        }
        for conn in self.conns.values_mut() {
            conn.failed = true;
        }
    }

    fn is_empty(&self) -> bool {
        self.listener.is_none()
            && self.conns.is_empty()
            && self.leaving.is_empty()
            && self.datagram.is_none()
            && self.connecting.is_none()
            && self.closing == 0
    }
}

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
                assert_eq!(
                    byte,
                    self.byte(self.checked),
                    "{label}: byte {}",
                    self.checked
                );
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
        let broken = self
            .clients
            .iter()
            .filter(|client| !client.is_whole())
            .count();
        let causes = [Fault::Reset, Fault::AcceptAborted].map(|fault| self.world.count(fault));
        if causes == [0, 0] && broken > 0 {
            let trace = self.world.trace_text();
            panic!(
                "{}: {broken} streams broke without a cause\n{trace}",
                self.label
            );
        }
        for echo in &mut self.echoes {
            echo.stopping = true;
            echo.backend.waker().wake();
        }
        self.drive(|run| run.echoes.iter().all(Echo::is_empty), "stopping");
        self.drive(|run| run.world.next_event_time().is_none(), "settling");
        assert_eq!(self.world.leaks(), Vec::<String>::new(), "{}", self.label);
        self.check_jobs();
        let whole = self
            .clients
            .iter()
            .filter(|client| client.is_whole())
            .count();
        (self.world, whole)
    }

    fn clients_done(run: &Run) -> bool {
        run.clients.iter().all(|client| client.done)
    }

    fn check_jobs(&self) {
        for echo in &self.echoes {
            let done = echo.jobs_done.load(Ordering::Relaxed);
            assert_eq!(
                done + echo.jobs_left,
                JOBS,
                "{}: every job runs once",
                self.label
            );
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
            let to = SocketAddr::from(([127, 0, 0, 1], 5353));
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
