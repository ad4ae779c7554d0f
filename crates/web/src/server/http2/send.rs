//! Sending for tasks: data queued until windows open, bounded by them and by the engine's unsent bytes.

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};

use super::response::Length;
use super::{H2Session, SessionState, StreamPhase, StreamState};
use crate::http::error::{Error, Result};
use crate::limits;
use crate::server::response::ResponseParts;
use crate::server::worker_context::WorkerContext;

impl SessionState {
    /// Sends a stream's queued data, as far as windows and the engine allow.
    pub(super) fn send_queued(&mut self, conn: Conn<'_>, stream: Stream, out: &mut Vec<u8>) {
        loop {
            let SessionState { wire, streams, .. } = self;
            let Some(entry) = streams
                .get_mut(stream.slot())
                .filter(|entry| entry.stream == Some(stream))
            else {
                return;
            };
            let is_last = entry.end && entry.trailers.is_none();
            let Some(front) = entry.pending.front_mut() else {
                if !entry.end {
                    return;
                }
                let result = match entry.trailers.take() {
                    Some(fields) => wire.trailers(stream, &fields, out),
                    None => wire.begin_data(stream, 0, true, out).map(drop),
                };
                // A closed stream needs no end.
                let _ = result;
                return self.finish(stream, out);
            };
            if !conn.has_room(out.len()) {
                return;
            }
            let length = front.len();
            let last = is_last && entry.pending.len() == 1;
            let taken = match wire.begin_data(stream, length, last, out) {
                Ok(0) => return,
                Ok(taken) => taken,
                Err(_) => return self.finish(stream, out),
            };
            entry.sent += taken as u64;
            let is_complete = taken == length;
            let Some(front) = entry.pending.front_mut() else {
                return;
            };
            let piece = front.split_to(taken);
            entry.remove_queued(taken);
            if is_complete {
                entry.pending.pop_front();
            }
            if taken <= limits::COPIED_CHUNK_BYTES {
                out.extend_from_slice(&piece);
            } else {
                // Fails only when the connection is closed.
                let _ = conn.write(out);
                out.clear();
                let _ = conn.write_frame(piece);
            }
            if is_complete && last {
                return self.finish(stream, out);
            }
        }
    }

    /// Completes a response. Its task may still run, and then owns the entry.
    fn finish(&mut self, stream: Stream, out: &mut Vec<u8>) {
        let is_open = self.wire.is_open(stream);
        let Some(entry) = self.entry(stream) else { return };
        entry.clear_pending();
        entry.end = false;
        match entry.phase {
            StreamPhase::Done => self.end_stream(stream, out),
            // The client had ended it before.
            StreamPhase::AwaitingEnd(_) if !is_open => drop(self.remove_entry(stream)),
            _ => {}
        }
    }

    /// Sends the queued data of each stream, in turn.
    pub(super) fn pump(&mut self, conn: Conn<'_>, out: &mut Vec<u8>) {
        let count = self.streams.len();
        let first = self.next_served;
        for step in 0..count {
            let slot = (first + step) % count;
            let Some(entry) = self.streams.get(slot) else {
                return;
            };
            let Some(stream) = entry.stream.filter(|_| !entry.pending.is_empty()) else {
                continue;
            };
            if !conn.has_room(out.len()) {
                return;
            }
            // The next stream is served first the next time.
            self.next_served = slot + 1;
            self.send_queued(conn, stream, out);
        }
    }
}

impl SessionState {
    /// Wakes a stream's task if it may send more.
    pub(super) fn wake(&mut self, stream: Stream) {
        if let Some(entry) = self.entry(stream) {
            entry.wake();
        }
    }

    /// Wakes the task of each stream.
    pub(super) fn wake_all(&self) {
        self.streams.iter().for_each(StreamState::wake);
    }
}

impl StreamState {
    fn wake(&self) {
        if let StreamPhase::Running(exchange, _) = &self.phase
            && self.pending.is_empty()
        {
            exchange.wake();
        }
    }
}

impl H2Session {
    /// Encodes with `call` and writes the frames to the connection.
    pub(super) fn write<T>(&self, call: impl FnOnce(&mut SessionState, Conn<'_>, &mut Vec<u8>) -> T) -> T {
        let conn = self.conn();
        let mut out = std::mem::take(&mut *self.worker.frame_out.borrow_mut());
        let result = call(&mut self.core.borrow_mut(), conn, &mut out);
        if !out.is_empty() {
            // Fails only when the connection is closed, which is reported elsewhere.
            let _ = conn.write(&out);
        }
        out.clear();
        out.shrink_to(limits::SCRATCH_BYTES);
        *self.worker.frame_out.borrow_mut() = out;
        result
    }

    /// Returns true if the stream is open.
    pub(crate) fn is_open(&self, stream: Stream) -> bool {
        !self.closed.get() && self.conn().is_open() && self.core.borrow().wire.is_open(stream)
    }

    /// Writes the head of a streamed response.
    pub(crate) fn head(
        &self,
        worker: &WorkerContext,
        parts: &ResponseParts<'_>,
        stream: Stream,
        length: Length,
        end: bool,
    ) -> Result {
        let now = self.now();
        self.write(|core, _, out| {
            core.entry_or_new(stream, now);
            core.head(worker, parts, stream, length, end, out)
        })
        .map_err(|_| Error::disconnected())
    }

    /// Writes an interim response.
    pub(crate) fn interim(&self, stream: Stream, status: u16, fields: &FieldBlock) -> Result {
        let written = self.write(|core, _, out| {
            let mut head = core.wire.respond(stream, status, out)?;
            head.block(fields);
            head.finish(false);
            Ok(())
        });
        written.map_err(|_: ringmain_wire::h2::Misuse| Error::disconnected())
    }

    /// Sends part of a response body, or queues it.
    pub(crate) fn data(&self, stream: Stream, bytes: Bytes) -> Result {
        if !self.is_open(stream) {
            return Err(Error::disconnected());
        }
        let now = self.now();
        self.write(|core, conn, out| {
            let entry = core.entry_or_new(stream, now);
            if entry.pending.is_empty() {
                entry
                    .send_allowance
                    .begin(&self.worker.app.limits, now, entry.sent);
            }
            entry.push(conn.cx(), bytes);
            core.send_queued(conn, stream, out);
        });
        Ok(())
    }

    /// Sends part of a response body that has to be copied in any case.
    pub(crate) fn data_copied(&self, stream: Stream, bytes: &[u8]) -> Result {
        let sent = self.write(|core, conn, out| {
            let busy = core.entry(stream).is_some_and(|entry| !entry.pending.is_empty());
            if busy || !conn.has_room(0) {
                return Ok(0);
            }
            let sent = core.wire.data(stream, bytes, false, out)?;
            if let Some(entry) = core.entry(stream) {
                entry.sent += sent as u64;
            }
            Ok(sent)
        });
        let sent = sent.map_err(|_: ringmain_wire::h2::Misuse| Error::disconnected())?;
        if sent == bytes.len() {
            return Ok(());
        }
        self.data(stream, Bytes::copy_from_slice(&bytes[sent..]))
    }

    /// Ends a response behind its queued data.
    pub(crate) fn end(&self, stream: Stream, trailers: Option<FieldBlock>) {
        let now = self.now();
        self.write(|core, conn, out| {
            let entry = core.entry_or_new(stream, now);
            entry.end = true;
            entry.trailers = trailers;
            core.send_queued(conn, stream, out);
        });
    }

    /// Returns true if a task may send more on its stream.
    pub(crate) fn may_send(&self, stream: Stream) -> bool {
        let mut core = self.core.borrow_mut();
        let is_queued = core.entry(stream).is_some_and(|entry| !entry.pending.is_empty());
        !is_queued && self.conn().has_room(0)
    }

    /// Resets a stream: its client detects that the response is incomplete.
    pub(crate) fn reset(&self, stream: Stream, code: ErrorCode) {
        self.write(|core, _, out| core.wire.reset(stream, code, out));
    }

    /// Credits body bytes that the handler took to the client's window.
    pub(crate) fn consume(&self, stream: Stream, bytes: usize) {
        self.write(|core, _, out| core.wire.consume(stream, bytes, out));
    }

    /// Releases a stream that its task is done with.
    pub(crate) fn release_stream(&self, stream: Stream) {
        self.write(|core, _, out| {
            let Some(entry) = core.entry(stream) else { return };
            if matches!(entry.phase, StreamPhase::Socket(_) | StreamPhase::AwaitingEnd(_)) {
                // The socket continues without a task.
                return;
            }
            entry.phase = StreamPhase::Done;
            if entry.pending.is_empty() && !entry.end {
                core.end_stream(stream, out);
            }
        });
        self.rearm_deadline();
    }
}
