//! A worker's state and what happens to connections: reading, writing, marks.
//!
//! Owns the slab, the output queues and the back-end. Knows nothing of handlers and tasks; what they have to
//! be told is queued in `told` and delivered by the worker when no borrow is held.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use super::pool::Pool;
use super::record::{Connection, Phase, Reason, Record};
use super::shared::{Counters, Shared};
use super::sleep::Sleepers;
use crate::backend::{Backend, Op, RecvEnd, Slot, Time};
use crate::limits;
use crate::slab::Slab;
use crate::timer::Wheel;

/// What the handler of a connection is still to be told.
pub(crate) enum Told {
    Opened(Slot, Via),
    Drained(Slot),
    Ended(Slot, Reason),
    /// A stream has taken it: its state is not needed any more.
    Taken(Slot),
    NotConnected(Slot, Reason),
    EndOfData(Slot),
    Deadline(Slot),
    /// Unconsumed bytes may be looked at again.
    Unread(Slot),
    /// The receiver of a stream has something to look at.
    News(Slot),
    Timer(u64),
    /// The alarm was due when this turn began.
    Alarm,
}

/// How a connection came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// Accepted from the listener of this number, in the order in which they were added.
    Listener(u32),
    /// Opened by [`crate::Cx::connect`].
    Connect,
}

/// Why a write was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// More than [`limits::WRITE_LIMIT`] bytes would wait; the connection is closed for it.
    #[error(
        "more than {} bytes wait to be sent: the connection is closed",
        limits::WRITE_LIMIT
    )]
    Full,
    /// The connection is closed, closing, or its end was announced by `shutdown`.
    #[error("the connection is closed for writing")]
    Closed,
}

pub(crate) struct Core {
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) records: Slab<Record>,
    pub(crate) wheel: Wheel,
    pub(crate) sleepers: Sleepers,
    /// When the handler's `alarm` is called; [`Time::NEVER`] for none.
    pub(crate) alarm: Time,
    /// The back-end was told that timeouts have to be exact.
    pub(crate) exact: bool,
    pub(crate) pool: Pool,
    pub(crate) dirty: Vec<Slot>,
    pub(crate) parked: VecDeque<Slot>,
    pub(crate) sated: Vec<Slot>,
    /// Streams that hear of their peer's end in the next turn.
    pub(crate) ending: Vec<Slot>,
    /// Connections with a failed send, and how they end once what had come before is received.
    pub(crate) breaking: Vec<(Slot, Reason)>,
    pub(crate) told: VecDeque<Told>,
    /// What a layer wants sent, before it is queued: one buffer for all.
    pub(crate) wire_out: Vec<u8>,
    /// Connections whose layer waits for a costly step.
    pub(crate) costly: VecDeque<Slot>,
    /// Costly steps that this turn may still do.
    pub(crate) costly_left: usize,
    pub(crate) listeners: Vec<Slot>,
    pub(crate) connections: u32,
    /// Of them, those on their way to another worker.
    pub(crate) giving: u32,
    pub(crate) datagram_sockets: u32,
    pub(crate) turn: u32,
    /// When the completions that are handled now were taken from the kernel.
    pub(crate) batch_at: Time,
    /// When the bytes at hand were to be had, at the latest.
    pub(crate) ready_at: Time,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: usize,
    pub(crate) capacity: u32,
    /// Connections that the listen queues may hold together.
    pub(crate) queue_limit: u32,
    /// How long a closed connection may take to hand over its last bytes.
    pub(crate) flush: Duration,
    /// Accepting paused because the worker or the process is full.
    pub(crate) full: bool,
    pub(crate) draining: bool,
    /// Futures that wait for that; they take themselves out.
    pub(crate) drain_waiters: Slab<Waker>,
    /// No connection is taken any more.
    pub(crate) stopping: bool,
    /// When a pause of accepting may be logged again.
    pub(crate) warn_again: Time,
    /// A timer is set to look at the listeners again.
    pub(crate) looks_again: bool,
    /// Closes in flight of sockets that never got a record.
    pub(crate) unnamed_closes: u32,
}

/// Names the closes of sockets without a record: an index that no record can have.
pub(crate) const UNNAMED: Slot = Slot {
    index: Slot::LIMIT - 1,
    generation: u32::MAX,
};

impl Core {
    /// A worker without connections, room for any, or listeners.
    pub(crate) fn new(backend: Box<dyn Backend>, shared: Arc<Shared>, index: usize) -> Core {
        Core {
            wheel: Wheel::new(backend.now()),
            backend,
            records: Slab::new(limits::CONNECTIONS_PER_WORKER),
            sleepers: Sleepers::new(),
            alarm: Time::NEVER,
            exact: false,
            pool: Default::default(),
            dirty: Vec::new(),
            parked: Default::default(),
            sated: Vec::new(),
            ending: Vec::new(),
            breaking: Vec::new(),
            told: Default::default(),
            wire_out: Vec::new(),
            costly: VecDeque::new(),
            costly_left: limits::HANDSHAKE_STEPS_PER_TURN,
            listeners: Vec::new(),
            connections: 0,
            giving: 0,
            datagram_sockets: 0,
            turn: 0,
            batch_at: Time(0),
            ready_at: Time(0),
            shared,
            index,
            capacity: 0,
            queue_limit: 0,
            flush: Duration::ZERO,
            full: false,
            draining: false,
            drain_waiters: Slab::new(limits::TASKS_PER_WORKER),
            stopping: false,
            warn_again: Time(0),
            looks_again: false,
            unnamed_closes: 0,
        }
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.shared.workers[self.index].counters
    }

    pub(crate) fn connection(&mut self, slot: Slot) -> Option<&mut Connection> {
        match self.records.get_mut(slot) {
            Some(Record::Connection(connection)) => Some(connection),
            _ => None,
        }
    }

    /// Appends bytes to the connection's output; they leave at the end of the turn.
    pub(crate) fn write(&mut self, slot: Slot, bytes: &[u8]) -> Result<(), WriteError> {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return Err(WriteError::Closed);
        };
        if !connection.writable() {
            return Err(WriteError::Closed);
        }
        if connection.layer.is_some() {
            return self.write_layered(slot, bytes);
        }
        if connection.output.len() + bytes.len() > limits::WRITE_LIMIT {
            self.fail(slot, Reason::WriteLimit);
            return Err(WriteError::Full);
        }
        connection.output.write(bytes, &mut self.pool);
        self.wrote(slot);
        Ok(())
    }

    /// As [`Core::write`], without copying, unless it is one of many small ones in this turn.
    pub(crate) fn write_frame(&mut self, slot: Slot, frame: Bytes) -> Result<(), WriteError> {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return Err(WriteError::Closed);
        };
        if !connection.writable() {
            return Err(WriteError::Closed);
        }
        if connection.layer.is_some() {
            return self.write_layered(slot, &frame);
        }
        if connection.output.len() + frame.len() > limits::WRITE_LIMIT {
            self.fail(slot, Reason::WriteLimit);
            return Err(WriteError::Full);
        }
        // One that comes alone in its turn stays shared, however slow the reader is.
        let may_join = connection.flags.dirty;
        connection.output.write_frame(frame, may_join, &mut self.pool);
        self.wrote(slot);
        Ok(())
    }

    pub(crate) fn wrote(&mut self, slot: Slot) {
        let connection = self.connection(slot).expect("the caller has just written to it");
        if connection.output.len() > limits::WRITE_MARK && !connection.flags.blocked {
            connection.flags.blocked = true;
            self.update_recv(slot);
        }
        self.mark_dirty(slot);
    }

    pub(crate) fn mark_dirty(&mut self, slot: Slot) {
        if let Some(connection) = self.connection(slot)
            && !connection.flags.dirty
        {
            connection.flags.dirty = true;
            self.dirty.push(slot);
        }
    }

    /// Starts a send for every connection that was written to and has none in flight.
    pub(crate) fn flush_dirty(&mut self) {
        while let Some(slot) = self.dirty.pop() {
            self.flush(slot);
        }
    }

    fn flush(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.dirty = false;
        if connection.flags.send_in_flight || connection.flags.send_held {
            return;
        }
        if !matches!(connection.phase, Phase::Open | Phase::Flushing) || connection.flags.broken {
            return;
        }
        if connection.output.is_empty() {
            return self.all_sent(slot);
        }
        let mut slices = [IoSlice::new(&[]); limits::SEND_PIECES];
        let count = connection.output.freeze(&mut slices);
        connection.flags.send_in_flight = true;
        // SAFETY: the queue keeps frozen pieces in place and unchanged until `advance` or `clear`, which are
        // called only when the final completion is in; the slot is not freed before (`busy`).
        unsafe { self.backend.send(slot, connection.socket, &slices[..count]) };
    }

    /// Takes back a send that waits for room: its completion says how much was taken, and the rest is sent anew.
    pub(crate) fn count_sent(&mut self, slot: Slot) {
        if let Some(connection) = self.connection(slot)
            && connection.phase == Phase::Open
            && connection.flags.send_in_flight
        {
            self.backend.cancel(Op::Send, slot);
        }
    }

    /// A send has ended; with `held` the kernel still reads the memory.
    pub(crate) fn on_sent(&mut self, slot: Slot, result: io::Result<usize>, held: bool) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.send_in_flight = false;
        connection.flags.send_held = held;
        let sent = match &result {
            Ok(count) => *count,
            Err(_) => 0,
        };
        connection.sent += sent as u64;
        if held {
            connection.output.held = sent as u32;
        } else {
            connection.output.advance(sent, &mut self.pool);
        }
        Counters::add(&self.shared.workers[self.index].counters.bytes_sent, sent as u64);
        match result {
            Ok(0) => self.fail(slot, Reason::Failed(io::ErrorKind::WriteZero)),
            // Nothing was taken before `count_sent` took it back: it is sent again.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => self.sent_some(slot),
            Err(error) => self.send_failed(slot, Reason::Failed(error.kind())),
            Ok(_) if !held => self.sent_some(slot),
            Ok(_) => {}
        }
        self.close_if_quiet(slot);
    }

    /// Who resets a connection has often said why: a server that refuses an upload answers, and closes with bytes unread. That
    /// answer is there by now, and the send's failure comes before it. So the connection ends in the next turn, behind what is
    /// received in it.
    fn send_failed(&mut self, slot: Slot, reason: Reason) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let flags = &mut connection.flags;
        if connection.phase == Phase::Open && flags.recv_armed && !flags.recv_cancelled {
            flags.broken = true;
            self.breaking.push((slot, reason));
        } else {
            self.fail(slot, reason);
        }
    }

    pub(crate) fn on_released(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.send_held = false;
        let sent = std::mem::take(&mut connection.output.held) as usize;
        connection.output.advance(sent, &mut self.pool);
        self.sent_some(slot);
        self.close_if_quiet(slot);
    }

    fn sent_some(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let left = connection.output.len();
        let was_blocked = connection.flags.blocked;
        if was_blocked && left <= limits::WRITE_MARK / 2 {
            connection.flags.blocked = false;
        }
        let unblocked = was_blocked && !connection.flags.blocked;
        if let Some(writer) = connection.stream.as_mut().and_then(|s| s.writer.take()) {
            writer.wake();
        } else if unblocked && connection.phase == Phase::Open && !connection.flags.streamed {
            self.told.push_back(Told::Drained(slot));
        }
        if unblocked {
            self.update_recv(slot);
            self.offer_unread(slot);
        }
        if left > 0 {
            self.mark_dirty(slot);
        } else {
            self.all_sent(slot);
        }
    }

    /// The output is empty: the moment for FIN, or for closing.
    fn all_sent(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.phase == Phase::Flushing {
            let reason = connection.reason.unwrap_or(Reason::Closed);
            return self.begin_close(slot, reason);
        }
        let waits = connection.unsent() > 0;
        let fin = connection.flags.fin_wanted && !connection.flags.fin_sent && !waits;
        if fin && connection.phase == Phase::Open {
            connection.flags.fin_sent = true;
            self.backend.shutdown_write(connection.socket);
            self.close_if_over(slot);
        }
    }

    /// Arms or cancels the receive, as the connection's state asks.
    pub(crate) fn update_recv(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let flags = &mut connection.flags;
        if flags.recv_armed {
            let flags = *flags;
            if !connection.wants_data() && !flags.recv_cancelled {
                connection.flags.recv_cancelled = true;
                self.backend.cancel(Op::Recv, slot);
            }
        } else if connection.wants_data() {
            connection.flags.recv_armed = true;
            connection.flags.recv_cancelled = false;
            self.backend.recv(slot, connection.socket, true);
        }
    }

    /// The first receive of a new connection: its first request is often there already.
    pub(crate) fn first_recv(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.wants_data() && !connection.flags.recv_armed {
            connection.flags.recv_armed = true;
            connection.flags.recv_cancelled = false;
            self.backend.recv(slot, connection.socket, false);
        }
    }

    /// Keeps received bytes until somebody looks at them.
    pub(crate) fn keep_unread(&mut self, slot: Slot, bytes: &[u8]) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.phase != Phase::Open {
            return;
        }
        if connection.unread.capacity() == 0 {
            connection.unread = self.pool.take(bytes.len());
        }
        connection.unread.extend_from_slice(bytes);
        self.tell_reader(slot);
    }

    /// Whoever reads a stream has something to look at: bytes that are kept, the end, or what ended it.
    pub(crate) fn tell_reader(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let Some(stream) = &mut connection.stream else {
            return;
        };
        if stream.receiver.is_some() {
            self.told.push_back(Told::News(slot));
        }
        if let Some(reader) = stream.reader.take() {
            reader.wake();
        }
    }

    /// Asks that the handler or stream looks at unconsumed bytes again.
    pub(crate) fn offer_unread(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let has_news = !connection.unread.is_empty() || (connection.flags.eof && !connection.flags.eof_told);
        if has_news && !connection.flags.streamed && !connection.flags.paused {
            self.told.push_back(Told::Unread(slot));
        }
    }

    /// Ends a connection whose handler leaves a full buffer and wants more.
    pub(crate) fn end_if_stuck(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot).filter(|c| c.phase == Phase::Open) else {
            return;
        };
        let flags = &connection.flags;
        let wants = !(flags.paused || flags.blocked || flags.streamed);
        if wants && connection.unread.len() >= limits::READ_MARK {
            self.fail(slot, Reason::ReadLimit);
        }
    }

    /// The receive operation has ended without bytes.
    pub(crate) fn on_recv_ended(&mut self, slot: Slot, end: RecvEnd) {
        let now = self.now();
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.recv_armed = false;
        match end {
            RecvEnd::Cancelled => {}
            RecvEnd::Eof if connection.flags.broken => {
                // The failed send took the error along.
                let found = self.breaking.iter().find(|(breaking, _)| *breaking == slot);
                let reason = found.map_or(Reason::Failed(io::ErrorKind::ConnectionReset), |(_, reason)| {
                    *reason
                });
                self.fail(slot, reason);
            }
            // A layer may have told it before.
            RecvEnd::Eof if connection.flags.eof => {}
            RecvEnd::Eof => {
                connection.flags.eof = true;
                self.tell_eof_in_order(slot);
            }
            RecvEnd::NoBuffers => {
                Counters::add(&self.shared.workers[self.index].counters.no_buffers, 1);
                if connection.wants_data() {
                    connection.flags.parked = true;
                    if connection.parked_at == Time(0) {
                        connection.parked_at = now;
                    }
                    self.parked.push_back(slot);
                }
            }
            RecvEnd::Failed(error) => self.fail_with(slot, &error),
        }
        self.update_recv(slot);
        self.close_if_quiet(slot);
    }

    /// A send that a reset has cut short takes the error along, and receiving then sees an end. The next send knows better,
    /// so a stream with unsent bytes hears of it a turn later.
    ///
    /// What waits for a costly step of a layer came before the end: [`Worker::costly_steps`](super::Worker) tells it behind that.
    pub(crate) fn tell_eof_in_order(&mut self, slot: Slot) {
        if self.connection(slot).is_some_and(|c| c.layer_waits()) {
            return;
        }
        let late = self
            .connection(slot)
            .is_some_and(|c| c.stream.is_some() && !c.output.is_empty());
        if late {
            self.ending.push(slot);
        } else {
            self.tell_eof(slot);
        }
    }

    pub(crate) fn tell_eof(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.stream.is_some() {
            connection.flags.eof_told = true;
            self.tell_reader(slot);
        } else if connection.phase == Phase::Open && !connection.flags.paused && !connection.flags.blocked {
            connection.flags.eof_told = true;
            self.told.push_back(Told::EndOfData(slot));
        }
    }

    /// Arms connections that wait for a receive buffer: first in, first out, one for each free one.
    pub(crate) fn rearm_parked(&mut self) {
        if self.parked.is_empty() {
            return;
        }
        let mut free = self.backend.buffers_free();
        while free > 0
            && let Some(slot) = self.parked.pop_front()
        {
            match self.records.get_mut(slot) {
                Some(Record::Connection(connection)) => {
                    connection.flags.parked = false;
                    self.update_recv(slot);
                }
                Some(Record::Datagrams(_)) => self.rearm_datagrams(slot),
                _ => continue,
            }
            free -= 1;
        }
    }

    /// Connections that took their share of the last turn may receive again.
    pub(crate) fn rearm_sated(&mut self) {
        for slot in std::mem::take(&mut self.sated) {
            if let Some(connection) = self.connection(slot) {
                connection.flags.sated = false;
                self.update_recv(slot);
            }
        }
    }

    /// Counts what a connection takes in this turn; above its share it pauses until the next.
    pub(crate) fn count_received(&mut self, slot: Slot, bytes: usize) {
        let turn = self.turn;
        Counters::add(&self.counters().bytes_received, bytes as u64);
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.turn != turn {
            connection.turn = turn;
            connection.turn_bytes = 0;
        }
        connection.turn_bytes = connection.turn_bytes.saturating_add(bytes as u32);
        if connection.turn_bytes as usize > limits::READ_PER_TURN && !connection.flags.sated {
            connection.flags.sated = true;
            self.sated.push(slot);
            self.update_recv(slot);
        }
    }

    pub(crate) fn now(&self) -> Time {
        self.backend.now()
    }
}
