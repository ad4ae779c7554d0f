//! A worker's state and what is written to connections. Reading is in `reading.rs`, the marks are in `holding.rs`.
//!
//! Owns the slab, the output queues and the back-end. Knows nothing of handlers and tasks; what they have to
//! be told is queued in `told` and delivered by the worker when no borrow is held.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use bytes::Bytes;

use super::drain::DrainProgress;
use super::holding::Holding;
use super::pool::Pool;
use super::record::{Connection, Phase, Reason, Record};
use super::resets::Resets;
use super::shared::{Counters, Shared};
use super::sleep::Sleepers;
use super::steps::Steps;
use crate::backend::{Backend, Op, Slot, Time};
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
    /// Connections that wait for a receive buffer and had none in their last turn, first in, first out.
    pub(crate) parked: VecDeque<Slot>,
    /// The same that had some: they wait behind those.
    pub(crate) parked_fed: VecDeque<Slot>,
    pub(crate) sated: Vec<Slot>,
    pub(crate) resets: Resets,
    /// Connections that yielded, and since when their bytes have waited: they are offered them again in the next turn.
    pub(crate) yielded: Vec<(Slot, Time)>,
    pub(crate) holding: Holding,
    pub(crate) steps: Steps,
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
    /// Buffers of datagrams that were read, up to [`limits::DATAGRAMS_POOLED`].
    pub(crate) datagram_buffers: Vec<Vec<u8>>,
    /// Tasks that a graceful shutdown waits for, up to its grace time.
    pub(crate) drain_holds: usize,
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
    /// The announcement of that, and the order in which connections end.
    pub(crate) drain: DrainProgress,
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
            resets: Resets::new(backend.may_miss_resets()),
            backend,
            records: Slab::new(limits::CONNECTIONS_PER_WORKER),
            sleepers: Sleepers::new(),
            alarm: Time::NEVER,
            exact: false,
            pool: Default::default(),
            dirty: Vec::new(),
            parked: Default::default(),
            parked_fed: Default::default(),
            yielded: Vec::new(),
            holding: Holding::new(limits::HELD_BYTES / shared.workers.len().max(1)),
            steps: Steps::default(),
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
            datagram_buffers: Vec::new(),
            drain_holds: 0,
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
            drain: DrainProgress::default(),
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
        let mark = self.holding.mark();
        let connection = self.connection(slot).expect("the caller has just written to it");
        if connection.output.len() > mark && !connection.flags.blocked {
            connection.flags.blocked = true;
            self.update_recv(slot);
        }
        self.count_unsent(slot);
        self.mark_dirty(slot);
    }

    pub(crate) fn mark_dirty(&mut self, slot: Slot) {
        if let Some(connection) = self.connection(slot)
            && !connection.flags.dirty
        {
            connection.flags.dirty = true;
            self.dirty.push(slot);
            if self.dirty.len().is_multiple_of(limits::FLUSH_CHECK) {
                self.within_step();
            }
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

    /// Takes back a send that waits for room: its completion says how much was taken, and the rest is sent again.
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
            self.count_unsent(slot);
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

    /// A peer that resets a connection has often sent the cause before: a server that refuses an upload responds, and closes with
    /// bytes unread. That response is in the kernel's queue by now, and the send's failure is reported first. So a stream continues to
    /// receive until the kernel reports the end, however long its receive has to wait for its turn or for a buffer. A handler's connection
    /// ends in the next turn, after the bytes received in it.
    fn send_failed(&mut self, slot: Slot, reason: Reason) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let flags = &mut connection.flags;
        let receives = flags.recv_armed && !flags.recv_cancelled;
        if connection.phase != Phase::Open || flags.eof || !(flags.streamed || receives) {
            return self.fail(slot, reason);
        }
        flags.broken = true;
        if !flags.streamed {
            return self.breaking.push((slot, reason));
        }
        connection.reason = Some(reason);
        if let Some(writer) = connection.stream.as_mut().and_then(|stream| stream.writer.take()) {
            writer.wake();
        }
        self.update_recv(slot);
    }

    pub(crate) fn on_released(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.send_held = false;
        let sent = std::mem::take(&mut connection.output.held) as usize;
        connection.output.advance(sent, &mut self.pool);
        self.count_unsent(slot);
        self.sent_some(slot);
        self.close_if_quiet(slot);
    }

    fn sent_some(&mut self, slot: Slot) {
        let mark = self.holding.mark();
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let left = connection.output.len();
        let was_blocked = connection.flags.blocked;
        if was_blocked && left <= mark / 2 {
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

    pub(crate) fn now(&self) -> Time {
        self.backend.now()
    }
}
