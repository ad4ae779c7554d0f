//! WebSockets on HTTP/2 streams (RFC 8441): how they open, receive and end.
//!
//! ```text
//! 200 ─▶ Socket ─┬─ closing handshake ─▶ END_STREAM ─▶ Leaving ─ the client's END_STREAM, or time ─▶ over
//!                ├─ the client's END_STREAM ─▶ END_STREAM ─▶ over
//!                └─ either gives up ─▶ RST_STREAM ─▶ over
//! ```
//!
//! Bytes that a socket consumes are credited to the client's window. A socket that is paused, or whose client reads nothing, blocks
//! its stream through the window; bytes received meanwhile are buffered here. No socket is called while the session is borrowed: it may
//! send at once, also through other sockets of the same connection.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};

use super::response::Length;
use super::{H2Session, SessionState, StreamPhase, StreamRef};
use crate::http::error::{Error, Result};
use crate::http::reply::{ContentKind, Reply};
use crate::limits;
use crate::server::drain::LongLived;
use crate::server::preamble::Omitted;
use crate::server::response::ResponseParts;
use crate::ws::{Upgrade, WsSession, WsTransport};

/// A socket on a stream.
#[derive(Default)]
pub(super) struct StreamSocket {
    /// `None` while one of its methods runs.
    ws_session: Option<Box<WsSession>>,
    /// Bytes received and not consumed: part of a header or of a control frame, or bytes for a paused socket. At most the stream's
    /// window ([`limits::STREAM_WINDOW`]).
    unread: Vec<u8>,
    /// The deadline of its next check.
    deadline: Time,
    /// The check is due now.
    check_due: bool,
    /// The client has sent its END_STREAM.
    ended: bool,
    /// Set if the stream is to be reset.
    given_up: bool,
}

impl SessionState {
    fn socket(&mut self, stream: Stream) -> Option<&mut StreamSocket> {
        match &mut self.entry(stream)?.phase {
            StreamPhase::Socket(socket) => Some(socket),
            _ => None,
        }
    }

    /// Returns all streams whose socket satisfies `predicate`.
    fn streams_with_socket(&self, predicate: impl Fn(&StreamSocket) -> bool) -> Vec<Stream> {
        if self.sockets == 0 {
            return Vec::new();
        }
        let streams = self.streams.iter();
        streams
            .filter(|entry| matches!(&entry.phase, StreamPhase::Socket(socket) if predicate(socket)))
            .filter_map(|entry| entry.stream)
            .collect()
    }

    /// Returns the earliest deadline of the sockets.
    pub(super) fn first_socket_deadline(&self) -> Time {
        if self.sockets == 0 {
            return Time::NEVER;
        }
        let streams = self.streams.iter();
        let dues = streams.filter_map(|entry| match &entry.phase {
            StreamPhase::Socket(socket) => Some(socket.deadline),
            _ => None,
        });
        dues.min().unwrap_or(Time::NEVER)
    }
}

impl H2Session {
    /// Responds with 200: from here on the stream carries WebSocket frames. `buffered`: the bytes received before, and whether the
    /// client has ended the stream.
    ///
    /// # Errors
    /// The client has reset the stream.
    pub(crate) fn switch_to_websocket(
        self: &std::rc::Rc<H2Session>,
        reply: &mut Reply<'_>,
        upgrade: Upgrade,
        stream: Stream,
        buffered: (Vec<u8>, bool),
    ) -> Result {
        // Over HTTP/2 only 200 accepts an extended CONNECT (RFC 8441 §5).
        reply.status = 200;
        let added = upgrade.acceptance.add_fields(reply.fields);
        added.map_err(Error::internal)?;
        let parts = ResponseParts {
            status: 200,
            kind: ContentKind::None,
            omitted: reply.omitted,
            fields: reply.fields,
            id: reply.request.id(),
            forwarded: false,
            handshake: None,
        };
        let worker = reply.request.worker;
        self.head(worker, &parts, stream, Length::None, false)?;
        let stream_ref = StreamRef {
            session: std::rc::Rc::clone(self),
            stream,
        };
        let mut ws_session = upgrade.into_session(&worker.sockets, WsTransport::Stream(stream_ref));
        {
            let mut core = self.core.borrow_mut();
            let Some(entry) = core.entry(stream) else {
                return Err(Error::disconnected());
            };
            entry.phase = StreamPhase::Socket(Box::new(StreamSocket {
                deadline: Time::NEVER,
                ..StreamSocket::default()
            }));
            core.sockets += 1;
        }
        ws_session.open();
        self.store_or_end_socket(stream, ws_session);
        self.feed(stream, &buffered.0, buffered.1);
        Ok(())
    }

    /// Calls a stream's socket, then ends the stream if the socket has closed.
    fn on_socket(&self, stream: Stream, call: impl FnOnce(&mut WsSession)) {
        let taken = self
            .core
            .borrow_mut()
            .socket(stream)
            .and_then(|socket| socket.ws_session.take());
        if let Some(mut ws_session) = taken {
            call(&mut ws_session);
            self.store_or_end_socket(stream, ws_session);
        }
    }

    /// Stores a socket again, or ends its stream.
    fn store_or_end_socket(&self, stream: Stream, mut ws_session: Box<WsSession>) {
        let given_up = {
            let mut core = self.core.borrow_mut();
            match core.socket(stream) {
                Some(socket) if !socket.given_up && !ws_session.is_closed() => {
                    socket.ws_session = Some(ws_session);
                    return;
                }
                Some(socket) => socket.given_up,
                None => true,
            }
        };
        if !given_up {
            return self.end_after_close(stream);
        }
        ws_session.lost();
        self.reset(stream, ErrorCode::CANCEL);
        drop(self.core.borrow_mut().remove_entry(stream));
    }

    /// Ends the stream after the closing handshake, behind the queued bytes, and waits for the client to end it, too.
    fn end_after_close(&self, stream: Stream) {
        let by = self.now().after(self.worker.app.limits.linger);
        let client_ended = self.client_ended.get();
        self.write(|core, conn, out| {
            let Some(socket) = core.socket(stream) else { return };
            let ended = socket.ended || client_ended;
            core.sockets -= 1;
            let Some(entry) = core.entry(stream) else { return };
            entry.phase = if ended {
                StreamPhase::Done
            } else {
                StreamPhase::AwaitingEnd(by)
            };
            entry.end = true;
            core.send_queued(conn, stream, out);
        });
    }

    /// Passes bytes to a stream's socket; `end`: the client has ended the stream.
    fn feed(&self, stream: Stream, data: &[u8], end: bool) {
        let unread = {
            let mut core = self.core.borrow_mut();
            let Some(socket) = core.socket(stream) else { return };
            socket.ended |= end;
            std::mem::take(&mut socket.unread)
        };
        let sockets = &self.worker.sockets;
        let mut input = if unread.is_empty() {
            sockets.acquire_buffer()
        } else {
            unread
        };
        input.extend_from_slice(data);
        let (mut taken, mut waits) = (0, false);
        if !input.is_empty() {
            self.on_socket(stream, |ws_session| {
                if !ws_session.is_blocked() {
                    taken = ws_session.receive(&mut input);
                }
                waits = ws_session.is_blocked();
            });
            self.consume(stream, taken);
        }
        let mut core = self.core.borrow_mut();
        let Some(socket) = core.socket(stream) else {
            drop(core);
            return sockets.release_buffer(input);
        };
        let ended = socket.ended;
        if taken < input.len() {
            socket.unread = input[taken..].to_vec();
        }
        drop(core);
        sockets.release_buffer(input);
        if ended && !waits {
            // The rest of a frame can no longer arrive.
            self.on_socket(stream, WsSession::end);
        }
    }

    /// Passes received bytes to the stream's socket if it has one; `end` marks the last. Returns true if it has.
    pub(super) fn feed_socket(
        &self,
        conn: Conn<'_>,
        stream: Stream,
        data: &[u8],
        end: bool,
        out: &mut Vec<u8>,
    ) -> bool {
        let is_socket = self.core.borrow_mut().socket(stream).is_some();
        if is_socket {
            self.flush_frames(conn, out);
            self.feed(stream, data, end);
        }
        is_socket
    }

    /// Sends more on a stream (`None`: on every stream) whose window has grown.
    pub(super) fn on_window_update(&self, conn: Conn<'_>, stream: Option<Stream>, out: &mut Vec<u8>) {
        let mut full = match stream {
            None => self.core.borrow().streams_with_socket(|_| true),
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
                    core.send_queued(conn, stream, out);
                    core.wake(stream);
                }
            }
        }
        // Frames that handlers send next, on any socket, must follow these bytes.
        if self.core.borrow().sockets > 0 {
            self.flush_frames(conn, out);
        }
        self.notify_drained_sockets(full);
    }

    /// Drops a stream in `Leaving` once the client has ended it.
    pub(super) fn on_client_end(&self, stream: Stream) {
        let mut core = self.core.borrow_mut();
        let is_open = core.wire.is_open(stream);
        if let Some(entry) = core.entry(stream)
            && matches!(entry.phase, StreamPhase::AwaitingEnd(_))
            && !is_open
        {
            drop(core.remove_entry(stream));
        }
    }

    /// Writes the encoded frames before a socket may send, so that frames stay in order.
    pub(super) fn flush_frames(&self, conn: Conn<'_>, out: &mut Vec<u8>) {
        if !out.is_empty() {
            // Fails only when the connection is closed, which is reported elsewhere.
            let _ = conn.write(out);
            out.clear();
        }
    }

    /// Notifies the sockets among `full` that are no longer full.
    pub(super) fn notify_drained_sockets(&self, full: Vec<Stream>) {
        for stream in full {
            if self.unsent(stream) <= WRITE_MARK {
                self.on_socket(stream, WsSession::drained);
                self.feed(stream, &[], false);
            }
        }
    }

    /// Notifies all sockets: the connection takes more, for which each may have waited.
    pub(super) fn notify_all_sockets(&self) {
        let all = self.core.borrow().streams_with_socket(|_| true);
        self.notify_drained_sockets(all);
    }

    /// Has the sockets close in their turn when the process shuts down.
    pub(crate) fn drain_sockets(&self) {
        let all = self.core.borrow().streams_with_socket(|_| true);
        for stream in all {
            self.drain_socket(stream);
        }
    }

    /// Does the same with a stream's socket.
    pub(crate) fn drain_socket(&self, stream: Stream) {
        let mut due = None;
        self.on_socket(stream, |ws_session| due = ws_session.drain());
        if let Some(ws) = due {
            self.worker.drain_queue.push(LongLived::Socket(ws));
        }
    }

    /// Notifies the sockets that the client sends nothing more on any stream.
    pub(super) fn end_sockets(&self) {
        let all = self.core.borrow().streams_with_socket(|_| true);
        for stream in all {
            self.on_socket(stream, WsSession::end);
        }
    }

    /// Checks the sockets that are due.
    pub(super) fn check_due_sockets(&self) {
        let now = self.now();
        let deadline = self
            .core
            .borrow()
            .streams_with_socket(|socket| socket.check_due || socket.deadline <= now);
        for stream in deadline {
            let late = {
                let mut core = self.core.borrow_mut();
                let Some(socket) = core.socket(stream) else {
                    continue;
                };
                socket.check_due = false;
                let late = socket.deadline <= now;
                if late {
                    socket.deadline = Time::NEVER;
                }
                late
            };
            self.on_socket(stream, |ws_session| {
                if late {
                    ws_session.on_deadline();
                }
            });
            self.feed(stream, &[], false);
        }
        let remaining: Vec<Stream> = {
            let core = self.core.borrow();
            let streams = core.streams.iter();
            streams
                .filter(|entry| matches!(entry.phase, StreamPhase::AwaitingEnd(by) if by <= now && entry.pending.is_empty()))
                .filter_map(|entry| entry.stream)
                .collect()
        };
        for stream in remaining {
            self.reset(stream, ErrorCode::NO_ERROR);
            drop(self.core.borrow_mut().remove_entry(stream));
        }
    }

    /// Returns true if the connection has only sockets, none of which needs a check before its deadline.
    pub(super) fn needs_only_socket_deadlines(&self) -> bool {
        let core = self.core.borrow();
        core.sockets > 0
            && core.sockets == core.wire.open_streams()
            && self.ping_sent_at.get().is_none()
            && !self.worker.cx.is_draining()
    }

    /// Brings the connection's deadline forward to `by` at the latest.
    fn bring_deadline_forward(&self, by: Time) {
        if by < self.deadline.get() {
            self.deadline.set(by);
            self.conn().set_deadline(Some(by.since(self.now())));
        }
    }

    /// Sets the connection's deadline to the first socket's.
    pub(super) fn sleep_until_socket_deadline(&self) {
        let deadline = self.core.borrow().first_socket_deadline();
        self.deadline.set(deadline);
        let span = (deadline != Time::NEVER).then(|| deadline.since(self.now()));
        self.conn().set_deadline(span);
    }

    /// Sets the connection's deadline to the next tick, or to the first socket's.
    pub(super) fn tick(&self) {
        let next = self.now().after(limits::RATE_TICK);
        let by = next.min(self.core.borrow().first_socket_deadline());
        self.deadline.set(by);
        self.conn().set_deadline(Some(by.since(self.now())));
    }

    // Called by sockets through their transport.

    /// Returns the bytes queued for the client, on this stream and on the connection.
    pub(crate) fn unsent(&self, stream: Stream) -> usize {
        let waiting = self
            .core
            .borrow_mut()
            .entry(stream)
            .map_or(0, |entry| entry.waiting);
        self.conn().unsent() + waiting
    }

    /// Returns the bytes of this stream that were handed to the connection.
    pub(crate) fn sent(&self, stream: Stream) -> u64 {
        self.core.borrow_mut().entry(stream).map_or(0, |entry| entry.sent)
    }

    /// Sets the deadline of a socket's next check; zero: at once, for a notification that cannot be delivered now.
    pub(crate) fn set_due(&self, stream: Stream, span: Option<Duration>) {
        let now = self.now();
        let deadline = span.map_or(Time::NEVER, |span| now.after(span));
        if let Some(socket) = self.core.borrow_mut().socket(stream) {
            if span == Some(Duration::ZERO) {
                socket.check_due = true;
            } else {
                socket.deadline = deadline;
            }
        }
        self.bring_deadline_forward(deadline);
    }

    /// Abandons a socket: its stream is reset once the socket was notified.
    pub(crate) fn give_up(&self, stream: Stream) {
        {
            let mut core = self.core.borrow_mut();
            let Some(socket) = core.socket(stream) else { return };
            socket.given_up = true;
            if let Some(entry) = core.entry(stream) {
                entry.clear_pending();
            }
        }
        self.set_due(stream, Some(Duration::ZERO));
    }

    /// Responds to a request that opens a tunnel: bytes sent from here on leave unchanged, in DATA frames.
    pub(in crate::server) fn start_tunnel(&self, reply: &Reply<'_>, stream: Stream) -> Result {
        let mut fields = FieldBlock::new();
        for (name, value) in reply.fields.iter() {
            // The reply to a key that the client has not sent.
            if !name.eq_ignore_ascii_case("sec-websocket-accept") {
                // Validated when it was set.
                let _ = fields.push(name, value);
            }
        }
        let parts = ResponseParts {
            status: 200,
            kind: ContentKind::None,
            omitted: Omitted::default(),
            fields: &fields,
            id: None,
            forwarded: true,
            handshake: None,
        };
        self.head(reply.request.worker, &parts, stream, Length::None, false)
    }
}

impl StreamSocket {
    /// Notifies the socket that its stream is closed.
    pub(super) fn notify_lost(self) {
        if let Some(mut ws_session) = self.ws_session {
            ws_session.lost();
        }
    }
}
