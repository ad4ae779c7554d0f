//! Operations in flight: how they begin, how their completions become visible, how they end.
//!
//! Owns the table of operations and the checks that catch a worker that breaks the contract.
//! What each operation does when it gets its turn is in `attempts`.
//!
//! ```text
//! begin → (attempt)* → effect → outbox → (deliver) → ready → next() → gone
//!              ↑ stirred by network, cancel, time
//! ```
//! One operation's completions keep their order; those of different operations mix freely.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Completion, Op, RecvEnd, Slot};

use super::plan::Fault;
use super::state::{Event, Kind, State};

/// The code of a give among a slot's operations, beyond every [`Op`].
const GIVING: u8 = 5;

/// One operation, from its submission until its final completion has been taken.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) worker: usize,
    pub(super) slot: Slot,
    pub(super) socket: u32,
    pub(super) work: Work,
    /// Its final completion is in the outbox or visible: nothing can change its outcome.
    pub(super) ended: bool,
    outbox: VecDeque<(Completion, bool)>,
    attempt_planned: bool,
}

/// What an operation is to do.
#[derive(Debug)]
pub(super) enum Work {
    Accept {
        /// It ends with the next connection.
        one: bool,
    },
    /// `eager`: the next look may report a lack of buffers although there is no data. `missed`: it reports nothing any more, since a
    /// reset came right behind bytes.
    Recv {
        eager: bool,
        missed: bool,
    },
    Send(Sending),
    /// `doomed`: it hangs and will time out.
    Connect {
        to: Addr,
        doomed: bool,
    },
    RecvFrom,
    SendTo {
        from: SocketAddr,
        to: SocketAddr,
        /// The data are several datagrams of this size.
        segment: Option<u16>,
        data: Vec<u8>,
    },
    Close,
    Give {
        to: usize,
        tag: u32,
    },
    /// Not asked for by the worker that sees it: the other half of a give.
    Adopted,
}

impl Work {
    /// The operation's name in [`ringmain_engine::backend::Backend::cancel`], if it has one.
    fn op(&self) -> Option<Op> {
        match self {
            Work::Accept { .. } => Some(Op::Accept),
            Work::Recv { .. } => Some(Op::Recv),
            Work::Send(_) => Some(Op::Send),
            Work::Connect { .. } => Some(Op::Connect),
            Work::RecvFrom => Some(Op::RecvFrom),
            Work::SendTo { .. } | Work::Close | Work::Give { .. } | Work::Adopted => None,
        }
    }

    /// Tells the operations of a slot apart. Several datagrams may be in flight, and several closes: a
    /// worker closes what never got a slot of its own under one spare name.
    fn code(&self) -> Option<u8> {
        match self {
            Work::Give { .. } => Some(GIVING),
            other => other.op().map(|op| op as u8),
        }
    }

    fn is_datagram(&self) -> bool {
        matches!(self, Work::SendTo { .. })
    }

    fn name(&self) -> &'static str {
        match self {
            Work::Accept { .. } => "accept",
            Work::Recv { .. } => "recv",
            Work::Send(_) => "send",
            Work::Connect { .. } => "connect",
            Work::RecvFrom => "recv_from",
            Work::SendTo { .. } => "send_to",
            Work::Close => "close",
            Work::Give { .. } => "give",
            Work::Adopted => "adopted",
        }
    }

    fn suits(&self, kind: &Kind) -> bool {
        match self {
            Work::Accept { .. } => matches!(kind, Kind::Listener(_)),
            Work::Recv { .. } | Work::Send(_) => {
                matches!(kind, Kind::Stream(_) | Kind::Unconnected(_))
            }
            Work::Connect { .. } => matches!(kind, Kind::Unconnected(_) | Kind::Datagram { .. }),
            Work::RecvFrom | Work::SendTo { .. } => matches!(kind, Kind::Datagram { .. }),
            Work::Give { .. } => matches!(kind, Kind::Stream(_)),
            Work::Close | Work::Adopted => true,
        }
    }
}

/// A send's memory and how far it has come.
#[derive(Debug)]
pub(super) struct Sending {
    pieces: Vec<(*const u8, usize)>,
    pub(super) total: usize,
    pub(super) done: usize,
    checksum: u64,
    /// As `MSG_WAITALL`: it goes on until everything is taken over.
    pub(super) wait_all: bool,
    /// The outcome has been told; only the memory is still in use.
    pub(super) reported: bool,
}

impl Sending {
    /// # Safety
    /// The memory of the pieces must stay valid until the send's final completion is taken.
    pub(super) unsafe fn new(pieces: &[io::IoSlice<'_>], wait_all: bool) -> Sending {
        let pieces: Vec<_> = pieces.iter().map(|piece| (piece.as_ptr(), piece.len())).collect();
        let total = pieces.iter().map(|(_, len)| len).sum();
        let mut sending = Sending {
            pieces,
            total,
            done: 0,
            checksum: 0,
            wait_all,
            reported: false,
        };
        sending.checksum = sending.sum();
        sending
    }

    /// The next `count` bytes, read from the worker's memory now.
    pub(super) fn gather(&self, count: usize) -> Vec<u8> {
        let (mut skipped, mut bytes) = (self.done, Vec::with_capacity(count));
        for piece in self.slices() {
            let rest = &piece[skipped.min(piece.len())..];
            skipped -= piece.len() - rest.len();
            bytes.extend_from_slice(&rest[..rest.len().min(count - bytes.len())]);
        }
        bytes
    }

    /// Whether the memory is as it was when the send was submitted.
    fn is_intact(&self) -> bool {
        self.sum() == self.checksum
    }

    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        self.pieces.iter().map(|(start, len)| {
            // SAFETY: whoever called `new` promised that the memory stays valid, and a `Sending`
            // is dropped when its final completion is taken. Empty slices have dangling, aligned,
            // non-null starts, which is what `from_raw_parts` asks of them.
            unsafe { std::slice::from_raw_parts(*start, *len) }
        })
    }

    fn sum(&self) -> u64 {
        let add = |sum: u64, word: u64| (sum ^ word).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23);
        self.slices().fold(0xcbf2_9ce4_8422_2325, |sum, piece| {
            let (words, tail) = piece.as_chunks::<8>();
            let sum = words
                .iter()
                .fold(sum, |sum, word| add(sum, u64::from_le_bytes(*word)));
            tail.iter().fold(sum, |sum, byte| add(sum, u64::from(*byte)))
        })
    }
}

impl State {
    /// Puts an operation in flight, after checking that the contract allows it.
    pub(super) fn begin(&mut self, worker: usize, slot: Slot, socket: u32, work: Work) {
        let name = work.name();
        self.check_begin(worker, slot, socket, &work);
        self.note(name, worker as u64, u64::from(slot.index), u64::from(socket));
        let id = self.fresh_operation();
        let state = &mut self.workers[worker];
        let entry = state.sockets.get_mut(&socket).expect("the check has seen it");
        entry.slot = Some(slot);
        entry.in_flight += usize::from(!work.is_datagram());
        entry.leaving |= matches!(work, Work::Close | Work::Give { .. });
        if let Some(op) = work.op() {
            entry.operations[op as usize] = Some(id);
        }
        if let Some(code) = work.code() {
            state.slots.insert((slot.index, code), (slot.generation, id));
        }
        self.insert(id, worker, slot, socket, work);
        if self.strikes(Fault::AtOnce) {
            self.attempt(id);
            while self.deliver_one(id) {}
        } else {
            self.plan_attempt(id);
        }
    }

    fn insert(&mut self, id: u64, worker: usize, slot: Slot, socket: u32, work: Work) {
        let operation = Operation {
            worker,
            slot,
            socket,
            work,
            ended: false,
            outbox: VecDeque::new(),
            attempt_planned: false,
        };
        self.operations.insert(id, operation);
    }

    fn check_begin(&self, worker: usize, slot: Slot, socket: u32, work: &Work) {
        let name = work.name();
        let state = &self.workers[worker];
        if slot.index >= Slot::LIMIT {
            self.misuse(
                worker,
                &format!("{name}() for {slot:?}, beyond the largest index"),
            );
        }
        let Some(entry) = state.sockets.get(&socket) else {
            self.misuse(
                worker,
                &format!("{name}() on socket {socket}, which is not open here"),
            );
        };
        if entry.leaving {
            self.misuse(
                worker,
                &format!("{name}() on socket {socket} after close() or give()"),
            );
        }
        if !work.suits(&entry.kind) {
            self.misuse(
                worker,
                &format!("{name}() on socket {socket}, a {:?}", entry.kind),
            );
        }
        if matches!(work, Work::Close | Work::Give { .. }) && entry.in_flight > 0 {
            let ops: Vec<&str> = self
                .operations
                .values()
                .filter(|other| other.worker == worker && other.socket == socket)
                .map(|other| other.work.name())
                .collect();
            self.misuse(
                worker,
                &format!("{name}() of socket {socket} with {ops:?} in flight"),
            );
        }
        self.check_slot(worker, slot, socket, work);
        if let Some(other) = entry.slot
            && entry.in_flight > 0
            && other != slot
        {
            let what = format!("{name}() for {slot:?} on socket {socket}, in use by {other:?}");
            self.misuse(worker, &what);
        }
    }

    /// A slot has one socket and one life at a time, and one operation of each kind.
    fn check_slot(&self, worker: usize, slot: Slot, socket: u32, work: &Work) {
        let name = work.name();
        let closing = |other: &&Operation| {
            let same = other.worker == worker && other.slot.index == slot.index;
            same && matches!(other.work, Work::Close)
        };
        if !matches!(work, Work::Close) && self.operations.values().any(|other| closing(&other)) {
            self.misuse(
                worker,
                &format!("{name}() for {slot:?}, whose close is in flight"),
            );
        }
        let slots = &self.workers[worker].slots;
        for (key, (generation, id)) in slots.range((slot.index, 0)..=(slot.index, u8::MAX)) {
            if *generation != slot.generation {
                let what = format!(
                    "{name}() for {slot:?} while an operation of generation {generation} is in flight"
                );
                self.misuse(worker, &what);
            }
            if Some(key.1) == work.code() {
                self.misuse(worker, &format!("a second {name}() in flight for {slot:?}"));
            }
            let other = self.operations[id].socket;
            if other != socket {
                let what = format!("{name}() for {slot:?} on socket {socket}, not its {other}");
                self.misuse(worker, &what);
            }
        }
    }

    /// Lets an operation look, soon, whether it can go on.
    pub(super) fn plan_attempt(&mut self, id: u64) {
        let Some(operation) = self.operations.get_mut(&id) else {
            return;
        };
        if !operation.ended && !std::mem::replace(&mut operation.attempt_planned, true) {
            self.later(Event::Attempt(id), false);
        }
    }

    /// An operation looks whether it can go on.
    pub(super) fn attempt(&mut self, id: u64) {
        let Some(operation) = self.operations.get_mut(&id) else {
            return;
        };
        operation.attempt_planned = false;
        if operation.ended {
            return;
        }
        match &operation.work {
            Work::Accept { .. } => self.attempt_accept(id),
            Work::Recv { .. } => self.attempt_recv(id),
            Work::Send(_) => self.attempt_send(id),
            Work::Connect { .. } => self.attempt_connect(id),
            Work::RecvFrom => self.attempt_recv_from(id),
            Work::SendTo { .. } => self.attempt_send_to(id),
            Work::Close => self.attempt_close(id),
            Work::Give { .. } => self.attempt_give(id),
            Work::Adopted => {}
        }
    }

    /// Adds a completion behind the operation's earlier ones; it becomes visible later.
    pub(super) fn push(&mut self, id: u64, completion: Completion, last: bool) {
        let operation = self
            .operations
            .get_mut(&id)
            .expect("only a live operation completes");
        operation.ended |= last;
        operation.outbox.push_back((completion, last));
        let late = self.strikes(Fault::LateCompletion);
        self.later(Event::Deliver(id), late);
    }

    /// Tells a worker of a socket that another one has given it.
    pub(super) fn push_adopted(&mut self, worker: usize, socket: u32, completion: Completion) {
        let id = self.fresh_operation();
        let nobody = Slot {
            index: 0,
            generation: 0,
        };
        self.insert(id, worker, nobody, socket, Work::Adopted);
        self.push(id, completion, true);
    }

    /// An operation's oldest completion becomes visible.
    pub(super) fn deliver(&mut self, id: u64) {
        self.deliver_one(id);
    }

    fn deliver_one(&mut self, id: u64) -> bool {
        self.check_memory(id);
        let Some(operation) = self.operations.get_mut(&id) else {
            return false;
        };
        let Some((completion, last)) = operation.outbox.pop_front() else {
            return false;
        };
        let worker = operation.worker;
        self.show(worker, id, completion, last);
        true
    }

    /// Catches a worker that touched a send's memory too early.
    pub(super) fn check_memory(&self, id: u64) {
        let Some(operation) = self.operations.get(&id) else {
            return;
        };
        if let Work::Send(sending) = &operation.work
            && !sending.is_intact()
        {
            let slot = operation.slot;
            let what = format!("the memory of the send for {slot:?} changed before its final completion");
            self.misuse(operation.worker, &what);
        }
    }

    /// The worker takes its next completion.
    pub(super) fn take(&mut self, worker: usize) -> Option<Completion> {
        self.check_nothing_lent(worker, "next");
        let (id, completion, last) = self.workers[worker].ready.pop_front()?;
        if let Completion::Received { data, .. } | Completion::Datagram { data, .. } = &completion {
            self.workers[worker].buffers.hand_over(data);
        }
        self.check_memory(id);
        let (what, number) = describe(&completion);
        let index = self
            .operations
            .get(&id)
            .map_or(0, |operation| operation.slot.index);
        self.note(what, worker as u64, u64::from(index), number);
        if last {
            self.forget(id);
        }
        Some(completion)
    }

    /// An operation's final completion has been taken.
    fn forget(&mut self, id: u64) {
        let operation = self.operations.remove(&id).expect("it ends once");
        if matches!(operation.work, Work::Adopted) || operation.work.is_datagram() {
            return;
        }
        let state = &mut self.workers[operation.worker];
        let entry = state.sockets.get_mut(&operation.socket);
        let entry = entry.expect("it outlives its operations");
        entry.in_flight -= 1;
        if let Some(code) = operation.work.code() {
            state.slots.remove(&(operation.slot.index, code));
        }
        if let Some(op) = operation.work.op() {
            entry.operations[op as usize] = None;
        } else if matches!(entry.kind, Kind::Gone) {
            state.sockets.remove(&operation.socket);
            state.free_numbers.push(operation.socket);
        } else {
            entry.leaving = false;
        }
    }

    /// A worker has ended: what was given to it and not seen is closed, as its descriptors would be.
    pub(super) fn worker_ends(&mut self, worker: usize) {
        self.workers[worker].gone = true;
        let is_unseen =
            |operation: &Operation| operation.worker == worker && matches!(operation.work, Work::Adopted);
        let unseen: Vec<(u64, u32)> = self
            .operations
            .iter()
            .filter(|(_, operation)| is_unseen(operation))
            .map(|(id, operation)| (*id, operation.socket))
            .collect();
        for (id, socket) in unseen {
            self.leave(worker, socket);
            self.operations.remove(&id);
            self.workers[worker].sockets.remove(&socket);
            self.workers[worker].ready.retain(|(of, ..)| *of != id);
        }
    }

    /// The worker asks for an operation's early end.
    pub(super) fn cancel(&mut self, worker: usize, op: Op, slot: Slot) {
        self.note("cancel", worker as u64, u64::from(slot.index), op as u64);
        match self.workers[worker].slots.get(&(slot.index, op as u8)) {
            Some((generation, id)) if *generation == slot.generation => {
                let id = *id;
                if self.strikes(Fault::AtOnce) {
                    self.cancel_arrives(id);
                } else {
                    self.later(Event::Cancel(id), false);
                }
            }
            _ => {}
        }
    }

    /// A cancel reaches its operation, which may have ended by itself.
    pub(super) fn cancel_arrives(&mut self, id: u64) {
        // What has arrived may overtake the cancel.
        if self.random.coin() {
            self.attempt(id);
        }
        let Some(operation) = self.operations.get(&id) else {
            return;
        };
        if operation.ended {
            return;
        }
        let slot = operation.slot;
        let cancelled = || io::Error::from_raw_os_error(libc::ECANCELED);
        let completion = match &operation.work {
            Work::Accept { .. } => Completion::AcceptEnded { slot, error: None },
            Work::Recv { .. } => Completion::RecvEnded {
                slot,
                end: RecvEnd::Cancelled,
            },
            Work::RecvFrom => Completion::DatagramsEnded {
                slot,
                end: RecvEnd::Cancelled,
            },
            Work::Connect { .. } => Completion::Connected {
                slot,
                result: Err(cancelled()),
            },
            Work::Send(sending) if sending.reported => return,
            Work::Send(sending) => {
                let result = if sending.done > 0 {
                    Ok(sending.done)
                } else {
                    Err(cancelled())
                };
                Completion::Sent {
                    slot,
                    result,
                    held: false,
                }
            }
            Work::SendTo { .. } | Work::Close | Work::Give { .. } | Work::Adopted => return,
        };
        self.push(id, completion, true);
    }

    /// What is still open: in words, for a test that expects nothing.
    pub(super) fn leaks(&self) -> Vec<String> {
        let mut leaks = Vec::new();
        for (index, worker) in self.workers.iter().enumerate() {
            for (number, entry) in &worker.sockets {
                leaks.push(format!(
                    "worker {index}: socket {number} is open: {:?}",
                    entry.kind
                ));
            }
            if worker.buffers.out() > 0 {
                leaks.push(format!(
                    "worker {index}: {} buffers are out",
                    worker.buffers.out()
                ));
            }
            if !worker.ready.is_empty() {
                leaks.push(format!(
                    "worker {index}: {} completions not taken",
                    worker.ready.len()
                ));
            }
        }
        for operation in self.operations.values() {
            let Operation {
                worker,
                slot,
                socket,
                work,
                ..
            } = operation;
            let name = work.name();
            leaks.push(format!(
                "worker {worker}: {name} on socket {socket} for {slot:?} in flight"
            ));
        }
        if !self.jobs.is_empty() {
            leaks.push(format!("{} jobs have not run", self.jobs.len()));
        }
        leaks
    }
}

/// A completion's name and most telling number, for the trace.
fn describe(completion: &Completion) -> (&'static str, u64) {
    let count = |result: &io::Result<usize>| match result {
        Ok(count) => *count as u64,
        Err(error) => u64::MAX - error.raw_os_error().unwrap_or(0) as u64,
    };
    let flag = |result: &io::Result<()>| u64::from(result.is_ok());
    match completion {
        Completion::Accepted { socket, .. } => ("+accepted", u64::from(socket.number())),
        Completion::AcceptEnded { error, .. } => ("+accept ended", u64::from(error.is_some())),
        Completion::Adopted { socket, .. } => ("+adopted", u64::from(socket.number())),
        Completion::Given { result, .. } => ("+given", flag(result)),
        Completion::Received { data, .. } => ("+received", data.len() as u64),
        Completion::RecvEnded { end, .. } => match end {
            RecvEnd::Eof => ("+recv eof", 0),
            RecvEnd::NoBuffers => ("+recv no buffers", 0),
            RecvEnd::Cancelled => ("+recv cancelled", 0),
            RecvEnd::Failed(_) => ("+recv failed", 0),
        },
        Completion::Sent { result, .. } => ("+sent", count(result)),
        Completion::Released { .. } => ("+released", 0),
        Completion::Connected { result, .. } => ("+connected", flag(result)),
        Completion::Closed { .. } => ("+closed", 0),
        Completion::Datagram { data, .. } => ("+datagram", data.len() as u64),
        Completion::DatagramsEnded { .. } => ("+datagrams ended", 0),
        Completion::DatagramSent { result, .. } => ("+datagram sent", count(result)),
    }
}
