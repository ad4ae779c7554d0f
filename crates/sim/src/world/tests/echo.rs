//! A tiny echo server on the raw contract, with a bit of everything that a worker does.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{
    Backend, Completion, DatagramOptions, Op, OutgoingDatagram, RecvEnd, Slot, Socket, Time,
};

use super::super::{Sim, World};

const LISTENER: u32 = 0;
const DATAGRAM: u32 = 1;
/// The first of the slots for connection attempts: each has its own.
const UPSTREAM: u32 = 2;
const ATTEMPTS: u32 = 4;
const FIRST: u32 = 16;
const BACK_OFF: Duration = Duration::from_micros(700);
pub(super) const JOBS: usize = 3;
pub(super) const DATAGRAM_PORT: u16 = 5353;

fn fixed(index: u32) -> Slot {
    Slot { index, generation: 1 }
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
pub(super) struct Echo {
    pub(super) backend: Sim,
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
    upstream: Option<(Addr, u32)>,
    connecting: Option<(Slot, Socket)>,
    pub(super) jobs_left: usize,
    pub(super) jobs_done: Arc<AtomicUsize>,
    pub(super) stopping: bool,
}

impl Echo {
    pub(super) fn new(world: &World, me: usize, workers: usize, addr: &Addr, upstream: Addr) -> Echo {
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
            upstream: Some((upstream, ATTEMPTS)),
            connecting: None,
            jobs_left: JOBS,
            jobs_done: Arc::default(),
            stopping: false,
        }
    }

    pub(super) fn turn(&mut self) {
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
            let local = SocketAddr::from(([0, 0, 0, 0], DATAGRAM_PORT));
            self.datagram = self.backend.open_datagram(local, DatagramOptions::default()).ok();
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
                let slot = fixed(UPSTREAM + *tries);
                self.connecting = Some((slot, socket));
                self.backend.connect(slot, socket, to);
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
        let index = (FIRST..).find(|index| !used(index)).expect("few connections");
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
                let (_, socket) = self.leaving.remove(&slot.index).expect("it was being given");
                if result.is_err() {
                    self.add(socket);
                }
            }
            Completion::Received { slot, mut data, more } => {
                let bytes = data.bytes_mut().to_vec();
                assert_eq!(bytes.len(), data.len());
                self.backend.give_back(data);
                let conn = self.conn(slot);
                conn.receiving = more;
                conn.waiting.extend(bytes);
            }
            Completion::RecvEnded { slot, end } => self.receive_ended(slot, end),
            Completion::Sent { slot, result, held } => self.sent(slot, result, held),
            Completion::Released { slot } => self.conn(slot).sending = None,
            Completion::Closed { slot } => {
                self.closing -= 1;
                self.conns.remove(&slot.index);
            }
            Completion::Connected { slot, result } => {
                let (of, socket) = self.connecting.take().expect("a connect was in flight");
                assert_eq!(slot, of);
                match result {
                    Ok(()) => {
                        self.upstream = None;
                        self.add(socket);
                    }
                    Err(_) => self.close(slot, socket),
                }
            }
            Completion::Datagram {
                mut data, from, more, ..
            } => {
                self.receiving_datagrams = more;
                let bytes = data.bytes_mut().to_vec();
                self.backend.give_back(data);
                if let (Some(socket), Some(from), false) = (self.datagram, from, self.stopping) {
                    self.datagram_sends += 1;
                    let reply = OutgoingDatagram::new(from, &bytes);
                    self.backend.send_to(fixed(DATAGRAM), socket, &reply);
                }
            }
            Completion::DatagramsEnded { .. } => self.receiving_datagrams = false,
            Completion::DatagramSent { .. } => self.datagram_sends -= 1,
        }
    }

    fn arrived(&mut self, socket: Socket) {
        assert!(self.backend.peer_addr(socket).expect("it was accepted").is_some());
        if self.workers > 1 && self.backend.random().is_multiple_of(3) {
            let slot = self.new_slot();
            self.leaving.insert(slot.index, (slot, socket));
            self.backend.give(slot, socket, (self.me + 1) % self.workers, 77);
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

    fn sent(&mut self, slot: Slot, result: std::io::Result<usize>, held: bool) {
        let conn = self.conn(slot);
        let sent = conn.sending.as_ref().expect("a send was in flight").to_vec();
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

    fn close(&mut self, slot: Slot, socket: Socket) {
        self.closing += 1;
        self.backend.close(slot, socket);
    }

    /// Starts what a connection can do next.
    fn push_on(&mut self, index: u32) {
        let random = self.backend.random();
        let free = self.backend.buffers_free() > 0;
        let conn = self.conns.get_mut(&index).expect("the caller has listed it");
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
        if let Some((slot, _)) = self.connecting {
            self.backend.cancel(Op::Connect, slot);
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

    pub(super) fn is_empty(&self) -> bool {
        self.listener.is_none()
            && self.conns.is_empty()
            && self.leaving.is_empty()
            && self.datagram.is_none()
            && self.connecting.is_none()
            && self.closing == 0
    }
}
