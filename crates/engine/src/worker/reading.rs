//! Receiving: when it is armed, what is kept unread, how the end of data is passed on.

use std::io;

use super::core::{Core, Told};
use super::record::{Phase, Reason, Record, TURN_UNIT};
use super::shared::Counters;
use crate::backend::{Op, RecvEnd, Slot, Time};
use crate::limits;

impl Core {
    /// Arms or cancels the receive, as the connection's state asks.
    pub(crate) fn update_recv(&mut self, slot: Slot) {
        let mark = self.holding.mark();
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        let flags = &mut connection.flags;
        if flags.recv_armed {
            let flags = *flags;
            if !connection.wants_data(mark) && !flags.recv_cancelled {
                connection.flags.recv_cancelled = true;
                self.backend.cancel(Op::Recv, slot);
            }
        } else if connection.wants_data(mark) {
            connection.flags.recv_armed = true;
            connection.flags.recv_cancelled = false;
            self.backend.recv(slot, connection.socket, true);
        }
    }

    /// The first receive of a new connection: its first request is often there already.
    pub(crate) fn first_recv(&mut self, slot: Slot) {
        let mark = self.holding.mark();
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.wants_data(mark) && !connection.flags.recv_armed {
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
        let whole = connection.unread.len() + bytes.len();
        if whole > connection.unread.capacity() {
            // Doubled up to the mark, then in steps of it: what waits beyond is bounded, and so is its memory.
            let capacity = if whole <= limits::READ_MARK {
                whole.next_power_of_two()
            } else {
                whole.next_multiple_of(limits::READ_MARK)
            };
            connection
                .unread
                .reserve_exact(capacity - connection.unread.len());
        }
        connection.unread.extend_from_slice(bytes);
        self.count_unread(slot);
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
        let wants = !(flags.paused || flags.blocked || flags.streamed || flags.yielded);
        if wants && connection.unread.len() >= limits::READ_MARK {
            self.fail(slot, Reason::ReadLimit);
        }
    }

    /// The receive operation has ended without bytes.
    pub(crate) fn on_recv_ended(&mut self, slot: Slot, end: RecvEnd) {
        let (now, turn, mark) = (self.now(), self.turn as u16, self.holding.mark());
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        connection.flags.recv_armed = false;
        match end {
            RecvEnd::Cancelled => {}
            RecvEnd::Eof if connection.flags.broken => {
                // The failed send took the error along.
                let found = self.breaking.iter().find(|(breaking, _)| *breaking == slot);
                let reason = connection.reason.or(found.map(|(_, reason)| *reason));
                self.fail(
                    slot,
                    reason.unwrap_or(Reason::Failed(io::ErrorKind::ConnectionReset)),
                );
            }
            // A layer may have told it before.
            RecvEnd::Eof if connection.flags.eof => {}
            RecvEnd::Eof => {
                connection.flags.eof = true;
                self.tell_eof_in_order(slot);
            }
            RecvEnd::NoBuffers => {
                Counters::add(&self.shared.workers[self.index].counters.no_buffers, 1);
                if connection.wants_data(mark) {
                    connection.flags.parked = true;
                    if connection.parked_at == Time(0) {
                        connection.parked_at = now;
                    }
                    if connection.turn == turn && connection.turn_units > 0 {
                        self.parked_fed.push_back(slot);
                    } else {
                        self.parked.push_back(slot);
                    }
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
        } else if connection.phase == Phase::Open
            && !(connection.flags.paused || connection.flags.blocked || connection.flags.yielded)
        {
            connection.flags.eof_told = true;
            self.told.push_back(Told::EndOfData(slot));
        }
    }

    /// Arms connections that wait for a receive buffer: first in, first out, one for each free one; those behind that had some
    /// in this turn, so that one that takes all there is cannot keep the others waiting.
    pub(crate) fn rearm_parked(&mut self) {
        if self.parked.is_empty() && self.parked_fed.is_empty() {
            return;
        }
        let mut free = self.backend.buffers_free();
        while free > 0
            && let Some(slot) = self.parked.pop_front().or_else(|| self.parked_fed.pop_front())
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
        // Only once: from here on they wait for their turn as all others.
        self.parked.append(&mut self.parked_fed);
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
        let turn = self.turn as u16;
        Counters::add(&self.counters().bytes_received, bytes as u64);
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.turn != turn {
            connection.turn = turn;
            connection.turn_units = 0;
        }
        let units = u16::try_from(bytes.div_ceil(TURN_UNIT)).unwrap_or(u16::MAX);
        connection.turn_units = connection.turn_units.saturating_add(units);
        if usize::from(connection.turn_units) > limits::READ_PER_TURN / TURN_UNIT && !connection.flags.sated {
            connection.flags.sated = true;
            self.sated.push(slot);
            self.update_recv(slot);
        }
        self.check_later(slot);
    }
}
