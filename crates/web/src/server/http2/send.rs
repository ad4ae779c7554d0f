//! What tasks send, and what waits for windows: bounded by them, and by what the engine has not sent yet.

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};

use super::answer::Length;
use super::{Core, Lane, Session, Work};
use crate::error::{Error, Result};
use crate::limits;
use crate::local::Local;
use crate::server::answer::Parts;

impl Core {
    /// Sends what waits in a stream's lane, as far as it may be sent.
    pub(super) fn transmit(&mut self, conn: Conn<'_>, stream: Stream, out: &mut Vec<u8>) {
        loop {
            let Core { wire, lanes, .. } = self;
            let Some(lane) = lanes
                .get_mut(stream.slot())
                .filter(|lane| lane.stream == Some(stream))
            else {
                return;
            };
            let ends = lane.end && lane.trailers.is_none();
            let Some(front) = lane.pending.front_mut() else {
                if !lane.end {
                    return;
                }
                let ended = match lane.trailers.take() {
                    Some(fields) => wire.trailers(stream, &fields, out),
                    None => wire.begin_data(stream, 0, true, out).map(drop),
                };
                // A stream that is over needs no end.
                let _ = ended;
                return self.finish(stream, out);
            };
            if !conn.has_room(out.len()) {
                return;
            }
            let length = front.len();
            let last = ends && lane.pending.len() == 1;
            let taken = match wire.begin_data(stream, length, last, out) {
                Ok(0) => return,
                Ok(taken) => taken,
                Err(_) => return self.finish(stream, out),
            };
            lane.sent += taken as u64;
            let whole = taken == length;
            let Some(front) = lane.pending.front_mut() else {
                return;
            };
            let piece = front.split_to(taken);
            lane.pulled(taken);
            if whole {
                lane.pending.pop_front();
            }
            if taken <= limits::GATHERED_PIECE {
                out.extend_from_slice(&piece);
            } else {
                // Refused only when the connection is over.
                let _ = conn.write(out);
                out.clear();
                let _ = conn.write_frame(piece);
            }
            if whole && last {
                return self.finish(stream, out);
            }
        }
    }

    /// All of an answer was sent. Its task may still run, and then has the lane.
    fn finish(&mut self, stream: Stream, out: &mut Vec<u8>) {
        let is_open = self.wire.is_open(stream);
        let Some(lane) = self.lane(stream) else { return };
        lane.forget_pending();
        lane.end = false;
        match lane.work {
            Work::Answered => self.ended(stream, out),
            // The client had ended it before.
            Work::Leaving(_) if !is_open => drop(self.drop_lane(stream)),
            _ => {}
        }
    }

    /// Sends what waits on all streams, in turn.
    pub(super) fn pump(&mut self, conn: Conn<'_>, out: &mut Vec<u8>) {
        let count = self.lanes.len();
        let first = self.turn;
        for step in 0..count {
            let slot = (first + step) % count;
            let Some(lane) = self.lanes.get(slot) else { return };
            let Some(stream) = lane.stream.filter(|_| !lane.pending.is_empty()) else {
                continue;
            };
            if !conn.has_room(out.len()) {
                return;
            }
            // The next has the first turn the next time.
            self.turn = slot + 1;
            self.transmit(conn, stream, out);
        }
    }
}

impl Core {
    /// Wakes a stream's task if it may send more.
    pub(super) fn wake(&mut self, stream: Stream) {
        if let Some(lane) = self.lane(stream) {
            lane.wake();
        }
    }

    /// The same for all streams.
    pub(super) fn wake_all(&self) {
        self.lanes.iter().for_each(Lane::wake);
    }
}

impl Lane {
    fn wake(&self) {
        if let Work::Running(exchange, _) = &self.work
            && self.pending.is_empty()
        {
            exchange.wake();
        }
    }
}

impl Session {
    /// Has something written to the connection.
    pub(super) fn write<T>(&self, call: impl FnOnce(&mut Core, Conn<'_>, &mut Vec<u8>) -> T) -> T {
        let conn = self.conn();
        let mut out = std::mem::take(&mut *self.local.framed.borrow_mut());
        let done = call(&mut self.core.borrow_mut(), conn, &mut out);
        if !out.is_empty() {
            // Refused only when the connection is over, which is told.
            let _ = conn.write(&out);
        }
        out.clear();
        out.shrink_to(limits::SCRATCH_BYTES);
        *self.local.framed.borrow_mut() = out;
        done
    }

    /// Whether a stream is open still.
    pub(crate) fn is_open(&self, stream: Stream) -> bool {
        !self.over.get() && self.conn().is_open() && self.core.borrow().wire.is_open(stream)
    }

    /// Writes the head of a streamed answer.
    pub(crate) fn head(
        &self,
        local: &Local,
        parts: &Parts<'_>,
        stream: Stream,
        length: Length,
        end: bool,
    ) -> Result {
        let now = self.now();
        self.write(|core, _, out| {
            core.lane_or_new(stream, now);
            core.head(local, parts, stream, (length, end), out)
        })
        .map_err(|_| Error::disconnected())
    }

    /// Writes an interim answer.
    pub(crate) fn interim(&self, stream: Stream, status: u16, fields: &FieldBlock) -> Result {
        let written = self.write(|core, _, out| {
            let mut head = core.wire.respond(stream, status, out)?;
            head.block(fields);
            head.finish(false);
            Ok(())
        });
        written.map_err(|_: ringmain_wire::h2::Misuse| Error::disconnected())
    }

    /// Sends part of an answer's body, or has it wait.
    pub(crate) fn data(&self, stream: Stream, bytes: Bytes) -> Result {
        if !self.is_open(stream) {
            return Err(Error::disconnected());
        }
        let now = self.now();
        self.write(|core, conn, out| {
            let lane = core.lane_or_new(stream, now);
            if lane.pending.is_empty() {
                lane.going.begin(&self.local.site.limits, now, lane.sent);
            }
            lane.push(conn.cx(), bytes);
            core.transmit(conn, stream, out);
        });
        Ok(())
    }

    /// The same for bytes that have to be copied in any case.
    pub(crate) fn data_copied(&self, stream: Stream, bytes: &[u8]) -> Result {
        let sent = self.write(|core, conn, out| {
            let busy = core.lane(stream).is_some_and(|lane| !lane.pending.is_empty());
            if busy || !conn.has_room(0) {
                return Ok(0);
            }
            let sent = core.wire.data(stream, bytes, false, out)?;
            if let Some(lane) = core.lane(stream) {
                lane.sent += sent as u64;
            }
            Ok(sent)
        });
        let sent = sent.map_err(|_: ringmain_wire::h2::Misuse| Error::disconnected())?;
        if sent == bytes.len() {
            return Ok(());
        }
        self.data(stream, Bytes::copy_from_slice(&bytes[sent..]))
    }

    /// Ends an answer behind what waits.
    pub(crate) fn end(&self, stream: Stream, trailers: Option<FieldBlock>) {
        let now = self.now();
        self.write(|core, conn, out| {
            let lane = core.lane_or_new(stream, now);
            lane.end = true;
            lane.trailers = trailers;
            core.transmit(conn, stream, out);
        });
    }

    /// Whether a task may send more on its stream.
    pub(crate) fn is_clear(&self, stream: Stream) -> bool {
        let mut core = self.core.borrow_mut();
        let waits = core.lane(stream).is_some_and(|lane| !lane.pending.is_empty());
        !waits && self.conn().has_room(0)
    }

    /// Gives a stream up: its client sees that the answer is not whole.
    pub(crate) fn reset(&self, stream: Stream, code: ErrorCode) {
        self.write(|core, _, out| core.wire.reset(stream, code, out));
    }

    /// So many bytes of a body were taken by its handler.
    pub(crate) fn consume(&self, stream: Stream, bytes: usize) {
        self.write(|core, _, out| core.wire.consume(stream, bytes, out));
    }

    /// A stream's task is done with it.
    pub(crate) fn finished(&self, stream: Stream) {
        self.write(|core, _, out| {
            let Some(lane) = core.lane(stream) else { return };
            if matches!(lane.work, Work::Socket(_) | Work::Leaving(_)) {
                // It goes on without a task.
                return;
            }
            lane.work = Work::Answered;
            if lane.pending.is_empty() && !lane.end {
                core.ended(stream, out);
            }
        });
        self.settle();
    }
}
