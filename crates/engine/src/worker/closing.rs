//! The end of a connection: flushing, cancelling, closing, and freeing the slot when the last
//! completion is in.

use std::io;

use super::core::{Core, Told, UNNAMED};
use super::record::{Phase, Reason, Record};
use super::shared::Counters;
use crate::backend::{Op, Slot};

impl Core {
    /// Closes once all that was written is sent. Reading stops at once.
    pub(crate) fn close(&mut self, slot: Slot, reason: Reason) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        match connection.phase {
            Phase::Connecting => return self.fail(slot, reason),
            Phase::Open => {}
            _ => return,
        }
        connection.reason = Some(reason);
        self.end_layer(slot);
        let Some(connection) = self.connection(slot) else {
            return;
        };
        let flags = &connection.flags;
        if (connection.output.is_empty() || flags.broken) && !flags.send_held {
            return self.begin_close(slot, reason);
        }
        connection.phase = Phase::Flushing;
        self.update_recv(slot);
        self.mark_dirty(slot);
        self.set_deadline(slot, Some(self.flush));
    }

    /// Announces our last byte; the peer's bytes are still received.
    pub(crate) fn shutdown(&mut self, slot: Slot) {
        self.end_layer(slot);
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if matches!(connection.phase, Phase::Open | Phase::Connecting) {
            connection.flags.fin_wanted = true;
            self.mark_dirty(slot);
        }
    }

    /// Ends the connection at once and drops what is unsent; the peer sees a reset.
    pub(crate) fn abort(&mut self, slot: Slot, reason: Reason) {
        if let Some(Record::Connection(connection)) = self.records.get_mut(slot)
            && !(connection.phase.has_ended() || connection.phase == Phase::Giving)
        {
            // Without the option the kernel would go on sending what it holds; if it fails, that happens.
            let _ = self
                .backend
                .set_option(connection.socket, crate::backend::SocketOption::ResetOnClose);
            self.fail(slot, reason);
        }
    }

    /// Ends the connection at once; what the kernel holds is still sent.
    pub(crate) fn fail(&mut self, slot: Slot, reason: Reason) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        match connection.phase {
            Phase::Connecting => {
                connection.phase = Phase::Closing;
                connection.reason = Some(reason);
                self.backend.cancel(Op::Connect, slot);
                self.told_not_connected(slot, reason);
            }
            Phase::Open | Phase::Flushing => self.begin_close(slot, reason),
            Phase::Giving | Phase::Closing | Phase::Closed | Phase::Released => {}
        }
    }

    /// As [`Core::fail`]; a stream is told the error itself.
    pub(crate) fn fail_with(&mut self, slot: Slot, error: &io::Error) {
        if let Some(connection) = self.connection(slot)
            && let Some(stream) = &mut connection.stream
            && stream.error.is_none()
        {
            stream.error = Some(copy_error(error));
        }
        self.fail(slot, Reason::Failed(error.kind()));
    }

    /// From here on the application hears no more of it; the slot lives until the kernel is done.
    pub(crate) fn begin_close(&mut self, slot: Slot, reason: Reason) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.phase.has_ended() {
            return;
        }
        connection.phase = Phase::Closing;
        connection.reason = Some(reason);
        if connection.flags.recv_armed && !connection.flags.recv_cancelled {
            connection.flags.recv_cancelled = true;
            self.backend.cancel(Op::Recv, slot);
        }
        if connection.flags.send_in_flight {
            self.backend.cancel(Op::Send, slot);
        }
        connection.deadline = crate::backend::Time(0);
        if let Some(timer) = connection.timer.take() {
            self.wheel.cancel(timer);
        }
        // A stream still reads what came before the end; it gives the buffer back when it is dropped.
        if connection.stream.is_none() {
            let unread = std::mem::take(&mut connection.unread);
            self.pool.put(unread);
            self.count_unread(slot);
        }
        self.clear_layer(slot);
        self.told_end(slot, reason);
        self.close_if_quiet(slot);
    }

    /// A connection without a handler's state so far: a stream's owner or `not_connected` hears of it.
    fn told_not_connected(&mut self, slot: Slot, reason: Reason) {
        match self.connection(slot) {
            Some(connection) if connection.stream.is_some() => self.told_end(slot, reason),
            _ => self.told.push_back(Told::NotConnected(slot, reason)),
        }
    }

    fn told_end(&mut self, slot: Slot, reason: Reason) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        match &mut connection.stream {
            Some(stream) => {
                if stream.error.is_none() {
                    stream.error = stream_error(reason);
                }
                if let Some(writer) = stream.writer.take() {
                    writer.wake();
                }
                self.tell_reader(slot);
            }
            None if matches!(reason, Reason::NotConnected(_)) => self.told_not_connected(slot, reason),
            None => self.told.push_back(Told::Ended(slot, reason)),
        }
    }

    /// Both directions have ended and the application knows: nothing can come any more.
    pub(crate) fn close_if_over(&mut self, slot: Slot) {
        if let Some(connection) = self.connection(slot)
            && connection.phase == Phase::Open
            && !connection.flags.streamed
            && connection.flags.fin_sent
            && connection.flags.eof_told
        {
            self.begin_close(slot, Reason::Closed);
        }
    }

    /// Closes the socket when no operation names the slot any more.
    pub(crate) fn close_if_quiet(&mut self, slot: Slot) {
        let Some(Record::Connection(connection)) = self.records.get_mut(slot) else {
            return;
        };
        if connection.phase == Phase::Closing && !connection.busy() && !connection.flags.connecting {
            connection.phase = Phase::Closed;
            connection.output.clear(&mut self.pool);
            self.backend.close(slot, connection.socket);
            self.count_unsent(slot);
        }
    }

    /// The kernel has let go of the socket. The record of a stream stays until the stream is dropped.
    pub(crate) fn on_closed(&mut self, slot: Slot) {
        if slot == UNNAMED {
            self.unnamed_closes -= 1;
            return;
        }
        match self.records.get_mut(slot) {
            Some(Record::Connection(connection)) => {
                connection.phase = Phase::Released;
                self.free_if_done(slot);
            }
            Some(Record::Listener(_)) => {
                self.records.remove(slot);
                self.listeners.retain(|listener| *listener != slot);
            }
            Some(Record::Datagrams(_)) => {
                self.records.remove(slot);
                self.datagram_sockets -= 1;
            }
            None => {}
        }
    }

    /// Frees the slot when neither the kernel nor a stream names it.
    pub(crate) fn free_if_done(&mut self, slot: Slot) {
        let Some(connection) = self.connection(slot) else {
            return;
        };
        if connection.phase != Phase::Released || connection.stream.is_some() {
            return;
        }
        if let Some(Record::Connection(connection)) = self.records.remove(slot) {
            self.uncount(&connection);
        }
        self.connections -= 1;
        Counters::add(&self.counters().closed, 1);
        self.publish_load();
        self.accept_again();
    }
}

/// What a stream's calls report after this end; an orderly one is no error.
pub(crate) fn stream_error(reason: Reason) -> Option<io::Error> {
    let text = match reason {
        Reason::Closed => return None,
        Reason::Aborted => "the connection was aborted by the application",
        Reason::Deadline => return Some(io::ErrorKind::TimedOut.into()),
        Reason::WriteLimit => "too many unsent bytes",
        Reason::ReadLimit => "too many unconsumed bytes",
        Reason::FlushTimeout => "the peer did not take the last bytes in time",
        Reason::Shutdown => "the worker shut down",
        Reason::Panicked => "the handler panicked",
        Reason::Layer => "what the peer sent cannot be decrypted or trusted",
        Reason::Failed(kind) | Reason::NotConnected(kind) => return Some(kind.into()),
    };
    Some(io::Error::new(io::ErrorKind::ConnectionAborted, text))
}

fn copy_error(error: &io::Error) -> io::Error {
    error
        .raw_os_error()
        .map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
