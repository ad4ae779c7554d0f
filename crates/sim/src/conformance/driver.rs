//! Drives two raw back-ends: keeps sent memory alive, copies and scribbles over lent bytes, logs.
//!
//! Owns the log of [`Event`]s and the slots; judges nothing itself, that is the monitor's part.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{
    Backend, Completion, DatagramInfo, Lent, Op, OutgoingDatagram, RecvEnd, Slot, Socket, Time,
};
use ringmain_engine::limits::SEND_BYTES;

use super::{FarState, Harness, Monitor};

/// How long a case waits for what must come. Generous: only a failing test waits that long.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long nothing may come before "nothing comes" counts as shown.
const QUIET: Duration = Duration::from_millis(30);
/// The time in flight after which a send counts as stalled. Longer than the kernel's persist timer (200 ms): room of less than a
/// segment is not used before that.
const STALLED: Duration = Duration::from_millis(400);
/// One turn's wait.
const STEP: Duration = Duration::from_millis(2);
/// More completions than this in one turn of a case is a back-end that never lets go.
const TURN_LIMIT: usize = 100_000;

/// A [`Completion`] with its bytes copied out. Fields as there.
#[derive(Debug)]
#[allow(missing_docs)]
pub enum Event {
    Accepted {
        slot: Slot,
        socket: Socket,
    },
    AcceptEnded {
        slot: Slot,
        error: Option<io::Error>,
    },
    Adopted {
        tag: u32,
        socket: Socket,
    },
    Given {
        slot: Slot,
        result: io::Result<()>,
    },
    Received {
        slot: Slot,
        bytes: Vec<u8>,
        more: bool,
    },
    RecvEnded {
        slot: Slot,
        end: RecvEnd,
    },
    Sent {
        slot: Slot,
        result: io::Result<usize>,
        held: bool,
    },
    Released {
        slot: Slot,
    },
    Connected {
        slot: Slot,
        result: io::Result<()>,
    },
    Closed {
        slot: Slot,
    },
    Datagram {
        slot: Slot,
        bytes: Vec<u8>,
        from: Option<SocketAddr>,
        info: DatagramInfo,
        more: bool,
    },
    DatagramsEnded {
        slot: Slot,
        end: RecvEnd,
    },
    DatagramSent {
        slot: Slot,
        result: io::Result<usize>,
    },
}

/// Two workers under test, worked by hand. Every call of a [`Backend`] operation goes through here.
pub struct Driver<H: Harness> {
    /// The world around the workers.
    pub harness: H,
    monitors: [Monitor; 2],
    logs: [VecDeque<Event>; 2],
    sending: BTreeMap<(usize, u32), Vec<Vec<u8>>>,
    next_slot: u32,
}

impl<H: Harness> Driver<H> {
    /// Starts with nothing in flight.
    pub fn new(harness: H) -> Driver<H> {
        Driver {
            harness,
            monitors: [Monitor::default(), Monitor::default()],
            logs: [VecDeque::new(), VecDeque::new()],
            sending: BTreeMap::new(),
            next_slot: 0,
        }
    }

    /// A slot never used before, in its first life.
    pub fn slot(&mut self) -> Slot {
        self.next_slot += 1;
        Slot {
            index: self.next_slot,
            generation: 1,
        }
    }

    /// The time of worker 0.
    pub fn now(&mut self) -> Time {
        self.harness.worker(0).now()
    }

    /// See [`Backend::accept`].
    pub fn accept(&mut self, worker: usize, slot: Slot, listener: Socket) {
        self.monitors[worker].start(Op::Accept, slot);
        self.harness.worker(worker).accept(slot, listener);
    }

    /// See [`Backend::recv`].
    pub fn recv(&mut self, worker: usize, slot: Slot, socket: Socket) {
        self.recv_how(worker, slot, socket, false);
    }

    /// See [`Backend::recv`], with `poll_first`.
    pub fn recv_how(&mut self, worker: usize, slot: Slot, socket: Socket, poll_first: bool) {
        self.monitors[worker].start(Op::Recv, slot);
        self.harness.worker(worker).recv(slot, socket, poll_first);
    }

    /// See [`Backend::send`]; the pieces are kept alive until the final completion.
    pub fn send(&mut self, worker: usize, slot: Slot, socket: Socket, pieces: Vec<Vec<u8>>) {
        self.monitors[worker].start(Op::Send, slot);
        let kept = self
            .sending
            .entry((worker, slot.index))
            .insert_entry(pieces)
            .into_mut();
        let slices: Vec<io::IoSlice<'_>> = kept.iter().map(|piece| io::IoSlice::new(piece)).collect();
        // SAFETY: the pieces' heap memory stays in `sending`, unchanged, until the final completion.
        unsafe { self.harness.worker(worker).send(slot, socket, &slices) };
    }

    /// See [`Backend::connect`].
    pub fn connect(&mut self, worker: usize, slot: Slot, socket: Socket, to: &Addr) {
        self.monitors[worker].start(Op::Connect, slot);
        self.harness.worker(worker).connect(slot, socket, to);
    }

    /// See [`Backend::recv_from`].
    pub fn recv_from(&mut self, worker: usize, slot: Slot, socket: Socket) {
        self.monitors[worker].start(Op::RecvFrom, slot);
        self.harness.worker(worker).recv_from(slot, socket);
    }

    /// See [`Backend::send_to`].
    pub fn send_to(&mut self, worker: usize, slot: Slot, socket: Socket, to: SocketAddr, data: &[u8]) {
        self.send_datagram(worker, slot, socket, &OutgoingDatagram::new(to, data));
    }

    /// As [`Driver::send_to`], with a source or segments.
    pub fn send_datagram(
        &mut self,
        worker: usize,
        slot: Slot,
        socket: Socket,
        datagram: &OutgoingDatagram<'_>,
    ) {
        self.monitors[worker].start_datagram(slot);
        self.harness.worker(worker).send_to(slot, socket, datagram);
    }

    /// See [`Backend::give`].
    pub fn give(&mut self, worker: usize, slot: Slot, socket: Socket, to: usize, tag: u32) {
        self.monitors[worker].start_give(slot);
        self.harness.worker(worker).give(slot, socket, to, tag);
    }

    /// See [`Backend::close`].
    pub fn close(&mut self, worker: usize, slot: Slot, socket: Socket) {
        self.monitors[worker].start_close(slot);
        self.harness.worker(worker).close(slot, socket);
    }

    /// See [`Backend::cancel`].
    pub fn cancel(&mut self, worker: usize, op: Op, slot: Slot) {
        self.harness.worker(worker).cancel(op, slot);
    }

    /// One wait of at most `timeout`, and everything that it brought.
    pub fn turn_for(&mut self, worker: usize, timeout: Option<Duration>) {
        self.harness.wait(worker, timeout);
        for _ in 0..TURN_LIMIT {
            let Some(completion) = self.harness.worker(worker).next() else {
                return;
            };
            self.note(worker, completion);
        }
        panic!("worker {worker}: next() gave {TURN_LIMIT} completions without an end");
    }

    /// As [`Driver::turn_for`], with [`Backend::submit`] behind each completion.
    pub fn turn_submitting(&mut self, worker: usize, timeout: Option<Duration>) {
        self.harness.wait(worker, timeout);
        for _ in 0..TURN_LIMIT {
            let Some(completion) = self.harness.worker(worker).next() else {
                return;
            };
            self.note(worker, completion);
            self.harness.worker(worker).submit();
        }
        panic!("worker {worker}: next() gave {TURN_LIMIT} completions without an end");
    }

    /// One short turn of each worker.
    pub fn turn(&mut self) {
        self.turn_for(0, Some(STEP));
        self.turn_for(1, Some(Duration::ZERO));
    }

    /// Turns until `done` says so.
    pub fn until(&mut self, what: &str, mut done: impl FnMut(&mut Driver<H>) -> bool) {
        let start = self.now();
        while !done(self) {
            let waited = self.now().since(start);
            assert!(
                waited < PATIENCE,
                "still waiting for {what}; log: {:?}",
                self.logs
            );
            self.turn();
        }
    }

    /// Waits for the first event of `worker` that `pick` accepts, and takes it out of the log.
    pub fn take(&mut self, worker: usize, what: &str, pick: impl Fn(&Event) -> bool) -> Event {
        let mut found = None;
        self.until(what, |driver| {
            let at = driver.logs[worker].iter().position(&pick);
            found = at.and_then(|at| driver.logs[worker].remove(at));
            found.is_some()
        });
        found.expect("until() ended, so it was found")
    }

    /// Shows that nothing more comes from either worker.
    pub fn quiet(&mut self) {
        let start = self.now();
        while self.now().since(start) < QUIET {
            self.turn();
        }
        assert!(
            self.logs.iter().all(VecDeque::is_empty),
            "unexpected: {:?}",
            self.logs
        );
    }

    /// Shows that waits of `worker` wait: not one that returns at once, over and over (rule W1).
    pub fn sleeps(&mut self, worker: usize) {
        let span = Duration::from_millis(20);
        let start = self.harness.worker(worker).now();
        let mut waits = 0;
        loop {
            let passed = self.harness.worker(worker).now().since(start);
            let Some(left) = span.checked_sub(passed).filter(|left| !left.is_zero()) else {
                break;
            };
            self.turn_for(worker, Some(left));
            waits += 1;
            assert!(waits <= 5, "{waits} waits in {passed:?} of {span:?}: a busy loop");
        }
    }

    /// The next connection on the listener of `slot`.
    pub fn accepted(&mut self, worker: usize, slot: Slot) -> Socket {
        let is = |event: &Event| matches!(event, Event::Accepted { slot: of, .. } if *of == slot);
        match self.take(worker, "Accepted", is) {
            Event::Accepted { socket, .. } => socket,
            other => unreachable!("{other:?}"),
        }
    }

    /// How the receive of `slot` ended; bytes that came before are dropped from the log.
    pub fn recv_ended(&mut self, worker: usize, slot: Slot) -> RecvEnd {
        let is = |event: &Event| matches!(event, Event::RecvEnded { slot: of, .. } if *of == slot);
        match self.take(worker, "RecvEnded", is) {
            Event::RecvEnded { end, .. } => end,
            other => unreachable!("{other:?}"),
        }
    }

    /// The outcome of the send of `slot`, once the memory is free.
    pub fn sent(&mut self, worker: usize, slot: Slot) -> io::Result<usize> {
        let is = |event: &Event| matches!(event, Event::Sent { slot: of, .. } if *of == slot);
        let Event::Sent { result, held, .. } = self.take(worker, "Sent", is) else {
            unreachable!()
        };
        if held {
            let is = |event: &Event| matches!(event, Event::Released { slot: of } if *of == slot);
            self.take(worker, "Released", is);
        }
        result
    }

    /// As [`Driver::sent`], but `None` if it is stalled.
    pub fn sent_unless_stalled(&mut self, worker: usize, slot: Slot) -> Option<io::Result<usize>> {
        let start = self.now();
        while self.now().since(start) < STALLED {
            let is = |event: &Event| matches!(event, Event::Sent { slot: of, .. } if *of == slot);
            if self.logs[worker].iter().any(is) {
                return Some(self.sent(worker, slot));
            }
            self.turn();
        }
        None
    }

    /// The bytes of `slot` that are in the log, if any; does not wait, re-arms after a final receipt.
    pub fn received_so_far(&mut self, worker: usize, slot: Slot, socket: Socket) -> Vec<u8> {
        let is = |event: &Event| match event {
            Event::Received { slot: of, .. } => *of == slot,
            Event::RecvEnded {
                slot: of,
                end: RecvEnd::NoBuffers,
            } => *of == slot,
            _ => false,
        };
        let mut got = Vec::new();
        while let Some(at) = self.logs[worker].iter().position(is) {
            match self.logs[worker].remove(at) {
                Some(Event::Received { bytes, more, .. }) => {
                    got.extend_from_slice(&bytes);
                    if !more {
                        self.recv(worker, slot, socket);
                    }
                }
                _ => self.recv(worker, slot, socket),
            }
        }
        got
    }

    /// The outcome of the connect of `slot`.
    pub fn connected(&mut self, worker: usize, slot: Slot) -> io::Result<()> {
        let is = |event: &Event| matches!(event, Event::Connected { slot: of, .. } if *of == slot);
        match self.take(worker, "Connected", is) {
            Event::Connected { result, .. } => result,
            other => unreachable!("{other:?}"),
        }
    }

    /// Closes and waits for `Closed`.
    pub fn closed(&mut self, worker: usize, slot: Slot, socket: Socket) {
        self.close(worker, slot, socket);
        self.take(
            worker,
            "Closed",
            |event| matches!(event, Event::Closed { slot: of } if *of == slot),
        );
    }

    /// Receives until `count` bytes are there, re-arming after final receipts. The operation is in
    /// flight before and (unless it ended otherwise, which fails the case) after.
    pub fn received(&mut self, worker: usize, slot: Slot, socket: Socket, count: usize) -> Vec<u8> {
        let mut got = Vec::new();
        let is = |event: &Event| match event {
            Event::Received { slot: of, .. } | Event::RecvEnded { slot: of, .. } => *of == slot,
            _ => false,
        };
        while got.len() < count {
            match self.take(worker, "Received", is) {
                Event::Received { bytes, more, .. } => {
                    got.extend_from_slice(&bytes);
                    if !more {
                        self.recv(worker, slot, socket);
                    }
                }
                Event::RecvEnded {
                    end: RecvEnd::NoBuffers,
                    ..
                } => self.recv(worker, slot, socket),
                other => panic!("after {} of {count} bytes: {other:?}", got.len()),
            }
        }
        got
    }

    /// Sends all of `data`, repeating after short sends.
    pub fn send_all(&mut self, worker: usize, slot: Slot, socket: Socket, data: &[u8]) {
        let mut at = 0;
        while at < data.len() {
            let end = data.len().min(at + SEND_BYTES);
            self.send(worker, slot, socket, vec![data[at..end].to_vec()]);
            at += self.sent(worker, slot).expect("the peer is there");
        }
    }

    /// Reads at the far side until `count` bytes or its end.
    pub fn peer_read(&mut self, peer: &mut H::Peer, count: usize) -> (Vec<u8>, FarState) {
        let mut got = Vec::new();
        let mut state = FarState::Open;
        self.until("the far side's bytes", |driver| {
            state = driver.harness.peer_read(peer, &mut got);
            got.len() >= count || state != FarState::Open
        });
        (got, state)
    }

    /// Writes all of `data` at the far side.
    pub fn peer_write(&mut self, peer: &mut H::Peer, data: &[u8]) {
        let mut at = 0;
        self.until("the far side to write", |driver| {
            at += driver.harness.peer_write(peer, &data[at..]);
            at == data.len()
        });
    }

    /// Fails unless nothing is in flight and the log is empty: the end of every case.
    pub fn finish(mut self) {
        self.quiet();
        for (worker, monitor) in self.monitors.iter().enumerate() {
            assert!(monitor.idle(), "worker {worker}: still in flight: {monitor:?}");
        }
    }

    fn note(&mut self, worker: usize, completion: Completion) {
        let ended_send = self.monitors[worker].check(&completion);
        let backend = self.harness.worker(worker);
        let event = own(backend, completion);
        if let Some(slot) = ended_send {
            self.sending.remove(&(worker, slot.index));
        }
        self.logs[worker].push_back(event);
    }
}

/// Copies lent bytes, then scribbles over them: the borrower may change them, and no later
/// completion may show it.
fn own(backend: &mut impl Backend, completion: Completion) -> Event {
    let mut keep = |mut data: Lent| {
        let bytes = data.bytes_mut().to_vec();
        data.bytes_mut().fill(0xA5);
        backend.give_back(data);
        assert!(backend.buffers_free() > 0, "a buffer was just given back");
        bytes
    };
    match completion {
        Completion::Accepted { slot, socket } => Event::Accepted { slot, socket },
        Completion::AcceptEnded { slot, error } => Event::AcceptEnded { slot, error },
        Completion::Adopted { tag, socket } => Event::Adopted { tag, socket },
        Completion::Given { slot, result } => Event::Given { slot, result },
        Completion::Received { slot, data, more } => Event::Received {
            slot,
            bytes: keep(data),
            more,
        },
        Completion::RecvEnded { slot, end } => Event::RecvEnded { slot, end },
        Completion::Sent { slot, result, held } => Event::Sent { slot, result, held },
        Completion::Released { slot } => Event::Released { slot },
        Completion::Connected { slot, result } => Event::Connected { slot, result },
        Completion::Closed { slot } => Event::Closed { slot },
        Completion::Datagram {
            slot,
            data,
            from,
            info,
            more,
        } => Event::Datagram {
            slot,
            bytes: keep(data),
            from,
            info,
            more,
        },
        Completion::DatagramsEnded { slot, end } => Event::DatagramsEnded { slot, end },
        Completion::DatagramSent { slot, result } => Event::DatagramSent { slot, result },
    }
}
