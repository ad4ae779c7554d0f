//! WebSockets on HTTP/2 streams (RFC 8441): how they open, receive and end.
//!
//! ```text
//! 200 ─▶ Socket ─┬─ closing handshake ─▶ END_STREAM ─▶ Leaving ─ the client's END_STREAM, or time ─▶ over
//!                ├─ the client's END_STREAM ─▶ END_STREAM ─▶ over
//!                └─ either gives up ─▶ RST_STREAM ─▶ over
//! ```
//!
//! Bytes that a socket consumes are credited to the client's window. A socket that is paused, or whose client reads nothing, blocks
//! its stream through the window; bytes received meanwhile wait here. No socket is called while the session is borrowed: it may
//! send at once, also through other sockets of the same connection.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};

use super::response::Length;
use super::{Core, Line, Session, Work};
use crate::http::error::{Error, Result};
use crate::http::reply::{Kind, Reply};
use crate::limits;
use crate::server::preamble::Omitted;
use crate::server::response::Parts;
use crate::ws::{Carrier, Live, Upgrade};

/// A socket on a stream.
#[derive(Default)]
pub(super) struct OpenSocket {
    /// `None` while one of its methods runs.
    live: Option<Box<Live>>,
    /// Bytes received and not consumed: part of a header or of a control frame, or bytes for a paused socket. At most the stream's
    /// window ([`limits::STREAM_WINDOW`]).
    kept: Vec<u8>,
    /// The deadline of its next check.
    due: Time,
    /// The check is due now.
    kicked: bool,
    /// The client has sent its END_STREAM.
    ended: bool,
    /// Given up: the stream is reset.
    given_up: bool,
}

impl Core {
    fn socket(&mut self, stream: Stream) -> Option<&mut OpenSocket> {
        match &mut self.lane(stream)?.work {
            Work::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// Returns all streams whose socket satisfies `which`.
    fn sockets_that(&self, which: impl Fn(&OpenSocket) -> bool) -> Vec<Stream> {
        if self.sockets == 0 {
            return Vec::new();
        }
        let lanes = self.lanes.iter();
        lanes
            .filter(|lane| matches!(&lane.work, Work::Socket(socket) if which(socket)))
            .filter_map(|lane| lane.stream)
            .collect()
    }

    /// Returns the earliest deadline of the sockets.
    pub(super) fn first_due(&self) -> Time {
        if self.sockets == 0 {
            return Time::NEVER;
        }
        let lanes = self.lanes.iter();
        let dues = lanes.filter_map(|lane| match &lane.work {
            Work::Socket(socket) => Some(socket.due),
            _ => None,
        });
        dues.min().unwrap_or(Time::NEVER)
    }
}

impl Session {
    /// Responds with 200: from here on the stream carries WebSocket frames. `early`: the bytes received before, and whether the
    /// client has ended the stream.
    ///
    /// # Errors
    /// The client has reset the stream.
    pub(crate) fn switch(
        self: &std::rc::Rc<Session>,
        reply: &mut Reply<'_>,
        upgrade: Upgrade,
        stream: Stream,
        early: (Vec<u8>, bool),
    ) -> Result {
        // Over HTTP/2 only 200 accepts an extended CONNECT (RFC 8441 §5).
        reply.status = 200;
        let added = upgrade.acceptance.add_fields(reply.fields);
        added.map_err(Error::internal)?;
        let parts = Parts {
            status: 200,
            kind: Kind::None,
            omitted: reply.omitted,
            fields: reply.fields,
            id: reply.request.id(),
            forwarded: false,
            handshake: None,
        };
        let local = reply.request.local;
        self.head(local, &parts, stream, Length::None, false)?;
        let line = Line {
            session: std::rc::Rc::clone(self),
            stream,
        };
        let mut live = upgrade.into_live(&local.sockets, Carrier::Stream(line));
        {
            let mut core = self.core.borrow_mut();
            let Some(lane) = core.lane(stream) else {
                return Err(Error::disconnected());
            };
            lane.work = Work::Socket(Box::new(OpenSocket {
                due: Time::NEVER,
                ..OpenSocket::default()
            }));
            core.sockets += 1;
        }
        live.open();
        self.follow(stream, live);
        self.feed(stream, &early.0, early.1);
        Ok(())
    }

    /// Calls a stream's socket, then ends the stream if the socket has closed.
    fn on_socket(&self, stream: Stream, call: impl FnOnce(&mut Live)) {
        let taken = self
            .core
            .borrow_mut()
            .socket(stream)
            .and_then(|socket| socket.live.take());
        if let Some(mut live) = taken {
            call(&mut live);
            self.follow(stream, live);
        }
    }

    /// Stores a socket again, or ends its stream.
    fn follow(&self, stream: Stream, mut live: Box<Live>) {
        let given_up = {
            let mut core = self.core.borrow_mut();
            match core.socket(stream) {
                Some(socket) if !socket.given_up && !live.is_over() => {
                    socket.live = Some(live);
                    return;
                }
                Some(socket) => socket.given_up,
                None => true,
            }
        };
        if !given_up {
            return self.leave(stream);
        }
        live.lost();
        self.reset(stream, ErrorCode::CANCEL);
        drop(self.core.borrow_mut().drop_lane(stream));
    }

    /// Ends the stream after the closing handshake, behind the queued bytes, and waits for the client to end it, too.
    fn leave(&self, stream: Stream) {
        let by = self.now().after(self.local.site.limits.linger);
        let half = self.half.get();
        self.write(|core, conn, out| {
            let Some(socket) = core.socket(stream) else { return };
            let ended = socket.ended || half;
            core.sockets -= 1;
            let Some(lane) = core.lane(stream) else { return };
            lane.work = if ended { Work::Answered } else { Work::Leaving(by) };
            lane.end = true;
            core.transmit(conn, stream, out);
        });
    }

    /// Passes bytes to a stream's socket; `end`: the client has ended the stream.
    fn feed(&self, stream: Stream, data: &[u8], end: bool) {
        let kept = {
            let mut core = self.core.borrow_mut();
            let Some(socket) = core.socket(stream) else { return };
            socket.ended |= end;
            std::mem::take(&mut socket.kept)
        };
        let sockets = &self.local.sockets;
        let mut input = if kept.is_empty() {
            sockets.take_buffer()
        } else {
            kept
        };
        input.extend_from_slice(data);
        let (mut taken, mut waits) = (0, false);
        if !input.is_empty() {
            self.on_socket(stream, |live| {
                if !live.must_wait() {
                    taken = live.receive(&mut input);
                }
                waits = live.must_wait();
            });
            self.consume(stream, taken);
        }
        let mut core = self.core.borrow_mut();
        let Some(socket) = core.socket(stream) else {
            drop(core);
            return sockets.put_buffer(input);
        };
        let ended = socket.ended;
        if taken < input.len() {
            socket.kept = input[taken..].to_vec();
        }
        drop(core);
        sockets.put_buffer(input);
        if ended && !waits {
            // The rest of a frame can no longer arrive.
            self.on_socket(stream, Live::end);
        }
    }

    /// Passes received bytes to the stream's socket if it has one; `end` marks the last. Returns true if it has.
    pub(super) fn feed_socket(
        &self,
        conn: Conn<'_>,
        stream: Stream,
        (data, end): (&[u8], bool),
        out: &mut Vec<u8>,
    ) -> bool {
        let is_socket = self.core.borrow_mut().socket(stream).is_some();
        if is_socket {
            self.hand_over(conn, out);
            self.feed(stream, data, end);
        }
        is_socket
    }

    /// Sends more on a stream (`None`: on every stream) whose window has grown.
    pub(super) fn has_room(&self, conn: Conn<'_>, stream: Option<Stream>, out: &mut Vec<u8>) {
        let mut full = match stream {
            None => self.core.borrow().sockets_that(|_| true),
            Some(stream) => Vec::from_iter(self.core.borrow_mut().socket(stream).map(|_| stream)),
        };
        full.retain(|&stream| self.unsent(stream) > WRITE_MARK);
        {
            let mut core = self.core.borrow_mut();
            match stream {
                None => {
                    core.pump(conn, out);
                    core.wake_all();
                }
                Some(stream) => {
                    core.transmit(conn, stream, out);
                    core.wake(stream);
                }
            }
        }
        // Frames that handlers send next, on any socket, must follow these bytes.
        if self.core.borrow().sockets > 0 {
            self.hand_over(conn, out);
        }
        self.drained_sockets(full);
    }

    /// Drops a stream in `Leaving` once the client has ended it.
    pub(super) fn ended_by_client(&self, stream: Stream) {
        let mut core = self.core.borrow_mut();
        let is_open = core.wire.is_open(stream);
        if let Some(lane) = core.lane(stream)
            && matches!(lane.work, Work::Leaving(_))
            && !is_open
        {
            drop(core.drop_lane(stream));
        }
    }

    /// Writes the encoded frames before a socket may send, so that frames stay in order.
    pub(super) fn hand_over(&self, conn: Conn<'_>, out: &mut Vec<u8>) {
        if !out.is_empty() {
            // Fails only when the connection is closed, which is reported elsewhere.
            let _ = conn.write(out);
            out.clear();
        }
    }

    /// Notifies the sockets among `full` that are no longer full.
    pub(super) fn drained_sockets(&self, full: Vec<Stream>) {
        for stream in full {
            if self.unsent(stream) <= WRITE_MARK {
                self.on_socket(stream, Live::drained);
                self.feed(stream, &[], false);
            }
        }
    }

    /// Notifies all sockets: the connection takes more, for which each may have waited.
    pub(super) fn drained_all_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        self.drained_sockets(all);
    }

    /// Sends the sockets' clients a going-away Close when the process shuts down.
    pub(crate) fn drain_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        for stream in all {
            self.on_socket(stream, Live::drain);
        }
    }

    /// Notifies the sockets that the client sends nothing more on any stream.
    pub(super) fn end_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        for stream in all {
            self.on_socket(stream, Live::end);
        }
    }

    /// Checks the sockets that are due.
    pub(super) fn look_at_sockets(&self) {
        let now = self.now();
        let due = self
            .core
            .borrow()
            .sockets_that(|socket| socket.kicked || socket.due <= now);
        for stream in due {
            let late = {
                let mut core = self.core.borrow_mut();
                let Some(socket) = core.socket(stream) else {
                    continue;
                };
                socket.kicked = false;
                let late = socket.due <= now;
                if late {
                    socket.due = Time::NEVER;
                }
                late
            };
            self.on_socket(stream, |live| {
                if late {
                    live.on_deadline();
                }
            });
            self.feed(stream, &[], false);
        }
        let left: Vec<Stream> = {
            let core = self.core.borrow();
            let lanes = core.lanes.iter();
            lanes
                .filter(|lane| matches!(lane.work, Work::Leaving(by) if by <= now && lane.pending.is_empty()))
                .filter_map(|lane| lane.stream)
                .collect()
        };
        for stream in left {
            self.reset(stream, ErrorCode::NO_ERROR);
            drop(self.core.borrow_mut().drop_lane(stream));
        }
    }

    /// Returns true if the connection has only sockets, none of which needs a check before its deadline.
    pub(super) fn is_quiet(&self) -> bool {
        let core = self.core.borrow();
        core.sockets > 0
            && core.sockets == core.wire.open_streams()
            && self.pinged.get().is_none()
            && !self.local.cx.is_draining()
    }

    /// Brings the connection's deadline forward to `by` at the latest.
    fn look_by(&self, by: Time) {
        if by < self.armed.get() {
            self.armed.set(by);
            self.conn().set_deadline(Some(by.since(self.now())));
        }
    }

    /// Sets the connection's deadline to the first socket's.
    pub(super) fn rest_until_due(&self) {
        let due = self.core.borrow().first_due();
        self.armed.set(due);
        let span = (due != Time::NEVER).then(|| due.since(self.now()));
        self.conn().set_deadline(span);
    }

    /// Sets the connection's deadline to the next tick, or to the first socket's.
    pub(super) fn tick(&self) {
        let next = self.now().after(limits::RATE_TICK);
        let by = next.min(self.core.borrow().first_due());
        self.armed.set(by);
        self.conn().set_deadline(Some(by.since(self.now())));
    }

    // Called by sockets through their carrier.

    /// Returns the bytes queued for the client, on this stream and on the connection.
    pub(crate) fn unsent(&self, stream: Stream) -> usize {
        let waiting = self.core.borrow_mut().lane(stream).map_or(0, |lane| lane.waiting);
        self.conn().unsent() + waiting
    }

    /// Returns the bytes of this stream that were handed to the connection.
    pub(crate) fn sent(&self, stream: Stream) -> u64 {
        self.core.borrow_mut().lane(stream).map_or(0, |lane| lane.sent)
    }

    /// Sets the deadline of a socket's next check; zero: at once, for a notification that cannot be delivered now.
    pub(crate) fn set_due(&self, stream: Stream, span: Option<Duration>) {
        let now = self.now();
        let due = span.map_or(Time::NEVER, |span| now.after(span));
        if let Some(socket) = self.core.borrow_mut().socket(stream) {
            if span == Some(Duration::ZERO) {
                socket.kicked = true;
            } else {
                socket.due = due;
            }
        }
        self.look_by(due);
    }

    /// Gives a socket up: its stream is reset once the socket was notified.
    pub(crate) fn give_up(&self, stream: Stream) {
        {
            let mut core = self.core.borrow_mut();
            let Some(socket) = core.socket(stream) else { return };
            socket.given_up = true;
            if let Some(lane) = core.lane(stream) {
                lane.forget_pending();
            }
        }
        self.set_due(stream, Some(Duration::ZERO));
    }

    /// Responds to a request that opens a tunnel: bytes sent from here on leave unchanged, in DATA frames.
    pub(in crate::server) fn begin_tunnel(&self, reply: &Reply<'_>, stream: Stream) -> Result {
        let mut fields = FieldBlock::new();
        for (name, value) in reply.fields.iter() {
            // The reply to a key that the client has not sent.
            if !name.eq_ignore_ascii_case("sec-websocket-accept") {
                // Validated when it was set.
                let _ = fields.push(name, value);
            }
        }
        let parts = Parts {
            status: 200,
            kind: Kind::None,
            omitted: Omitted::default(),
            fields: &fields,
            id: None,
            forwarded: true,
            handshake: None,
        };
        self.head(reply.request.local, &parts, stream, Length::None, false)
    }
}

impl OpenSocket {
    /// Notifies the socket that its stream is closed.
    pub(super) fn lost(self) {
        if let Some(mut live) = self.live {
            live.lost();
        }
    }
}
