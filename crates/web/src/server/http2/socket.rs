//! WebSockets on streams (RFC 8441): how they come about, what comes on them, and how they end.
//!
//! ```text
//! 200 ─▶ Socket ─┬─ closing handshake ─▶ END_STREAM ─▶ Leaving ─ the client's END_STREAM, or time ─▶ over
//!                ├─ the client's END_STREAM ─▶ END_STREAM ─▶ over
//!                └─ either gives up ─▶ RST_STREAM ─▶ over
//! ```
//!
//! What a socket takes the client may send again: one that is paused, or whose client takes nothing, holds up its stream by the
//! window, and what came meanwhile waits here. A socket is told nothing while the session is borrowed: it may send at once, also
//! by other sockets of the same connection.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};

use super::answer::Length;
use super::{Core, Line, Session, Work};
use crate::error::{Error, Result};
use crate::limits;
use crate::preamble::Omitted;
use crate::reply::{Kind, Reply};
use crate::server::answer::Parts;
use crate::ws::{Carrier, Live, Upgrade};

/// A socket of a stream.
#[derive(Default)]
pub(super) struct OpenSocket {
    /// `None` while something happens on it.
    live: Option<Box<Live>>,
    /// What came and was not taken: part of a header or a control frame, or what is not asked for yet. At most as much as the
    /// stream's window ([`limits::STREAM_WINDOW`]).
    kept: Vec<u8>,
    /// When it is to be looked at.
    due: Time,
    /// It is to be looked at now.
    kicked: bool,
    /// The client has sent its END_STREAM.
    ended: bool,
    /// Given up: the client is told by a reset.
    given_up: bool,
}

impl Core {
    fn socket(&mut self, stream: Stream) -> Option<&mut OpenSocket> {
        match &mut self.lane(stream)?.work {
            Work::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// All streams with sockets of which `which` is so.
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

    /// When the first of the sockets is to be looked at.
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
    /// Answers with 200: from here on the stream speaks WebSocket. `early`: what came on it before, and whether it was ended.
    ///
    /// # Errors
    /// The client has given the stream up.
    pub(crate) fn switch(
        self: &std::rc::Rc<Session>,
        reply: &mut Reply<'_>,
        upgrade: Upgrade,
        stream: Stream,
        early: (Vec<u8>, bool),
    ) -> Result {
        // Over HTTP/2 there is no other status that says so.
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

    /// Has a stream's socket do something, then follows it if it is over.
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

    /// Keeps a socket, or ends its stream.
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

    /// The closing handshake is done: ends the stream behind what waits, and has the client end it, too.
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

    /// Bytes for a stream's socket; `end`: the client has ended it.
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
            // No rest of a frame can come any more.
            self.on_socket(stream, Live::end);
        }
    }

    /// Bytes that have come, and whether they are the last, if the stream is a socket: then it has them.
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

    /// More may be sent on a stream, or on all of them.
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
        // What handlers send that follow, by whichever socket, is behind this.
        if self.core.borrow().sockets > 0 {
            self.hand_over(conn, out);
        }
        self.drained_sockets(full);
    }

    /// The client has ended a stream: one that was left is over.
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

    /// What was encoded is on its way before a socket may send: its frames stay in their order.
    pub(super) fn hand_over(&self, conn: Conn<'_>, out: &mut Vec<u8>) {
        if !out.is_empty() {
            // Refused only when the connection is over, which is told.
            let _ = conn.write(out);
            out.clear();
        }
    }

    /// The client takes more: tells the sockets that were full and are so no longer.
    pub(super) fn drained_sockets(&self, full: Vec<Stream>) {
        for stream in full {
            if self.unsent(stream) <= WRITE_MARK {
                self.on_socket(stream, Live::drained);
                self.feed(stream, &[], false);
            }
        }
    }

    /// The connection takes more, which they may all have waited for.
    pub(super) fn drained_all_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        self.drained_sockets(all);
    }

    /// The process is about to end: the client is told to go away.
    pub(crate) fn drain_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        for stream in all {
            self.on_socket(stream, Live::drain);
        }
    }

    /// The client sends nothing more on any stream.
    pub(super) fn end_sockets(&self) {
        let all = self.core.borrow().sockets_that(|_| true);
        for stream in all {
            self.on_socket(stream, Live::end);
        }
    }

    /// Looks at the sockets whose time has come.
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

    /// Whether nothing is there but sockets, none of which needs to be looked at before its time.
    pub(super) fn is_quiet(&self) -> bool {
        let core = self.core.borrow();
        core.sockets > 0
            && core.sockets == core.wire.open_streams()
            && self.pinged.get().is_none()
            && !self.local.cx.is_draining()
    }

    /// Has the connection looked at no later than then.
    fn look_by(&self, by: Time) {
        if by < self.armed.get() {
            self.armed.set(by);
            self.conn().set_deadline(Some(by.since(self.now())));
        }
    }

    /// Has the connection looked at when the first socket is due.
    pub(super) fn rest_until_due(&self) {
        let due = self.core.borrow().first_due();
        self.armed.set(due);
        let span = (due != Time::NEVER).then(|| due.since(self.now()));
        self.conn().set_deadline(span);
    }

    /// Has the connection looked at in a while, or when the first socket is due.
    pub(super) fn tick(&self) {
        let next = self.now().after(limits::RATE_TICK);
        let by = next.min(self.core.borrow().first_due());
        self.armed.set(by);
        self.conn().set_deadline(Some(by.since(self.now())));
    }

    // What sockets call, by their carrier.

    /// Bytes that wait for the client, on this stream or on the connection.
    pub(crate) fn unsent(&self, stream: Stream) -> usize {
        let waiting = self.core.borrow_mut().lane(stream).map_or(0, |lane| lane.waiting);
        self.conn().unsent() + waiting
    }

    /// Bytes of this stream that were handed to the connection.
    pub(crate) fn sent(&self, stream: Stream) -> u64 {
        self.core.borrow_mut().lane(stream).map_or(0, |lane| lane.sent)
    }

    /// When a socket is to be looked at; at once, if it is to be told something that it cannot be told now.
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

    /// Gives a socket up: its stream is reset once it was told.
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

    /// Answers a request that opens a tunnel: what is sent from here on goes out as it is, in DATA.
    pub(in crate::server) fn begin_tunnel(&self, reply: &Reply<'_>, stream: Stream) -> Result {
        let mut fields = FieldBlock::new();
        for (name, value) in reply.fields.iter() {
            // The answer to a key that the client has not sent.
            if !name.eq_ignore_ascii_case("sec-websocket-accept") {
                // Checked when it was set.
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
    /// Its stream is gone.
    pub(super) fn lost(self) {
        if let Some(mut live) = self.live {
            live.lost();
        }
    }
}
