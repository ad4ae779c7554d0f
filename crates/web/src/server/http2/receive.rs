//! Receiving on an HTTP/2 connection: requests are answered in place or handed to tasks, bodies collected or streamed.
//!
//! All frames that result from one receipt are sent by one write, in order.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::{FieldTable, Framing, RequestHead, Version};
use ringmain_wire::h2::{ErrorCode, Event, PeerFault, Stream, store_request};

use super::{H2Session, HeadScratch, SessionHandle, StreamPhase, StreamRef, elapsed};
use crate::app::compiled::{Action, RouteMatch};
use crate::http::client_text;
use crate::http::error::Error;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::server::connection::{ConnPhase, Connection};
use crate::server::dispatch::{MatchedRequest, match_route};
use crate::server::exchange::{Exchange, TaskRequest};
use crate::server::fast_path::{self, RequestView};
use crate::server::rejected::RejectedRequest;
use crate::server::task_pool::PendingTask;
use crate::server::{HttpServer, NextAction, ReplyBuffers, WorkerScratch, response};
use crate::stats::Rejection;
use crate::ws::Upgrade;

/// The buffers for an event of the codec.
pub(super) struct StreamScratch<'a> {
    /// For stored heads.
    pub(super) table: &'a mut FieldTable,
    /// A head in the form of `h2::store_request`.
    pub(super) stored: &'a mut Vec<u8>,
    pub(super) buffers: &'a mut ReplyBuffers,
}

/// A request and the stream that its response takes.
#[derive(Clone, Copy)]
pub(super) struct StreamRequest<'a> {
    pub(super) conn: Conn<'a>,
    pub(super) session: &'a Rc<H2Session>,
    pub(super) stream: Stream,
    pub(super) head: &'a RequestHead<'a>,
    /// The body, if it was collected.
    pub(super) content: &'a [u8],
    /// The body is streamed, with this limit in bytes.
    pub(super) body_limit: Option<Option<u64>>,
    pub(super) started_at: Time,
}

impl HttpServer {
    /// Starts HTTP/2 from the connection's first byte.
    pub(in crate::server) fn begin_http2(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        let session = H2Session::new(&self.worker, conn, &self.http2, out);
        state.phase = ConnPhase::Http2(SessionHandle(session));
        self.flush(conn, state, out, NextAction::Wait);
        conn.set_deadline(Some(self.app.limits.header_timeout));
    }

    /// Processes `bytes` as far as possible and returns the number of consumed bytes.
    pub(in crate::server) fn receive_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        scratch: &mut WorkerScratch,
    ) -> usize {
        let ConnPhase::Http2(session) = &state.phase else {
            return 0;
        };
        let session = session.share();
        self.worker.refresh_date();
        self.update_lateness();
        let now = self.worker.cx.now();
        session.last_received.set(now);
        let mut consumed = 0;
        let (heads, buffers) = (&mut scratch.heads, &mut scratch.buffers);
        loop {
            let HeadScratch {
                buffer,
                table,
                stored,
            } = heads;
            let step = {
                let wire = &mut session.core.borrow_mut().wire;
                wire.receive(&bytes[consumed..], elapsed(now), buffer, &mut buffers.out)
            };
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    self.fail_http2(conn, state, &session, fault, &mut buffers.out);
                    return bytes.len();
                }
            };
            consumed += step.consumed;
            if matches!(step.event, Event::NeedMore) {
                break;
            }
            self.on_event(
                conn,
                state,
                &session,
                step.event,
                StreamScratch {
                    table,
                    stored,
                    buffers,
                },
            );
            if buffers.out.len() > WRITE_MARK {
                // The engine offers the rest when the client has taken this.
                break;
            }
            if consumed < bytes.len() && self.worker.cx.step_is_long() {
                // Sends the pending responses, then lets other connections have their turn.
                conn.yield_turn();
                break;
            }
        }
        self.flush(conn, state, &mut buffers.out, NextAction::Wait);
        session.record_unread(&bytes[consumed..], now);
        session.rearm_deadline();
        consumed
    }

    /// Handles an event of the codec.
    fn on_event(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &Rc<H2Session>,
        event: Event<'_>,
        scratch: StreamScratch<'_>,
    ) {
        match event {
            Event::Request { stream, head, end } => {
                let stream_request = StreamRequest {
                    conn,
                    session,
                    stream,
                    head: &head,
                    content: &[],
                    body_limit: None,
                    started_at: self.worker.cx.now(),
                };
                self.on_request(state, stream_request, end, scratch);
            }
            Event::Data { stream, data, end } => {
                let fed = session.feed_socket(conn, stream, data, end, &mut scratch.buffers.out);
                if !fed && self.data_http2(state, session, stream, data, end, scratch.buffers) {
                    self.collected(conn, state, session, stream, scratch);
                }
                if end {
                    session.on_client_end(stream);
                }
            }
            Event::Trailers { stream, fields } => {
                if session.feed_socket(conn, stream, &[], true, &mut scratch.buffers.out) {
                    return;
                }
                match session.running(stream) {
                    Some((exchange, _)) => exchange.end_body(fields.iter()),
                    None => self.collected(conn, state, session, stream, scratch),
                }
                session.on_client_end(stream);
            }
            Event::TooLarge { stream, .. } => {
                self.head_too_large(state, session, stream, &mut scratch.buffers.out);
            }
            Event::Reset { stream, code } => {
                self.on_reset(conn, state, session, stream, code, &mut scratch.buffers.out);
            }
            Event::Broken { stream, fault } => {
                log::debug!("{:?}: {fault}", state.peer.remote);
                session.flush_frames(conn, &mut scratch.buffers.out);
                self.on_stream_error(session, stream);
            }
            Event::Window { stream } => session.on_window_update(conn, stream, &mut scratch.buffers.out),
            Event::Settings => session.on_window_update(conn, None, &mut scratch.buffers.out),
            Event::Pong { .. } => session.ping_sent_at.set(None),
            Event::NeedMore | Event::GoAway { .. } | Event::Response { .. } => {}
        }
    }

    /// Handles a request's head; `end`: it has no body.
    fn on_request(
        &self,
        state: &mut Connection,
        stream_request: StreamRequest<'_>,
        end: bool,
        scratch: StreamScratch<'_>,
    ) {
        let StreamRequest {
            conn,
            session,
            stream,
            head,
            ..
        } = stream_request;
        let (stored, buffers) = (scratch.stored, scratch.buffers);
        if !self.admit_request(conn, state, session, stream, head, &mut buffers.out) {
            return;
        }
        let upgrade = head.as_upgrade();
        let rejected = upgrade
            .as_ref()
            .and_then(|upgrade| check_upgrade(upgrade, end).err());
        if let Some(error) = rejected {
            let rejected = RejectedRequest::from_head(&self.worker, head);
            return self.reject_http2(state, session, stream, &error, &rejected, &mut buffers.out);
        }
        let stream_request = StreamRequest {
            head: upgrade.as_ref().unwrap_or(head),
            ..stream_request
        };
        self.request_http2(state, stream_request, end, stored, buffers);
    }

    /// Counts a request. `false`: it is refused, because the current settings would not accept its connection; the connection takes
    /// no more streams.
    fn admit_request(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &H2Session,
        stream: Stream,
        head: &RequestHead<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.count_request(state, session, out);
        let Some(error) = self.check_current_settings(conn, state) else {
            return true;
        };
        let rejected = RejectedRequest::from_head(&self.worker, head);
        self.reject_http2(state, session, stream, &error, &rejected, out);
        session.core.borrow_mut().wire.go_away(out);
        false
    }

    /// Handles a stream that the client has reset.
    fn on_reset(
        &self,
        conn: Conn<'_>,
        state: &Connection,
        session: &Rc<H2Session>,
        stream: Stream,
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) {
        log::debug!(
            "{:?}: stream {}: reset by the client: {code}",
            state.peer.remote,
            stream.id()
        );
        session.flush_frames(conn, out);
        self.drop_stream(session, stream);
    }

    fn head_too_large(
        &self,
        state: &mut Connection,
        session: &Rc<H2Session>,
        stream: Stream,
        out: &mut Vec<u8>,
    ) {
        self.count_request(state, session, out);
        let error = Error::new(431, "request head too large");
        let rejected = RejectedRequest::unknown(&self.worker, Version::Http2);
        self.reject_http2(state, session, stream, &error, &rejected, out);
    }

    /// Handles a protocol violation of the client that affects at most one stream, which is then closed.
    fn on_stream_error(&self, session: &H2Session, stream: Option<Stream>) {
        self.worker.stats.refused();
        if let Some(stream) = stream {
            self.drop_stream(session, stream);
        }
    }

    fn count_request(&self, state: &mut Connection, session: &H2Session, out: &mut Vec<u8>) {
        state.requests = state.requests.saturating_add(1);
        session.idle_until.set(None);
        let most = self.app.limits.requests_per_connection;
        if most.is_some_and(|most| state.requests >= most) {
            session.core.borrow_mut().wire.go_away(out);
        } else if self.worker.cx.is_drain_pending() {
            session.core.borrow_mut().wire.announce_end(out);
        }
    }

    /// Processes a complete head: matches a route and decides how the body is received.
    fn request_http2(
        &self,
        state: &Connection,
        stream_request: StreamRequest<'_>,
        end: bool,
        stored: &mut Vec<u8>,
        buffers: &mut ReplyBuffers,
    ) {
        let head = stream_request.head;
        if head.protocol.is_some() {
            // The data on this stream is not a body; a task receives it as one until the stream becomes a socket or a tunnel.
            let stream_request = StreamRequest {
                body_limit: Some(None),
                ..stream_request
            };
            return self.serve_http2(state, stream_request, stored, buffers);
        }
        if end {
            return self.serve_http2(state, stream_request, stored, buffers);
        }
        let matched = match_route(&self.app, head, &mut buffers.path);
        let RouteMatch::Route(route) = matched.route_match else {
            // Regardless of the body.
            return self.serve_http2(state, stream_request, stored, buffers);
        };
        let limits = &self.app.limits;
        let streamed = matches!(route.action, Action::Task { streamed: true, .. });
        let most = match route.body_bytes {
            Some(bytes) => Some(bytes),
            None if streamed => limits.streamed_body_bytes,
            None => Some(limits.body_bytes),
        };
        if let (Framing::Length(length), Some(most)) = (head.framing, most)
            && length > most
        {
            let message = format!("expected a body of at most {most} bytes, found one of {length}");
            let rejected = RejectedRequest::from_head(&self.worker, head);
            return self.reject_http2(
                state,
                stream_request.session,
                stream_request.stream,
                &Error::new(413, message),
                &rejected,
                &mut buffers.out,
            );
        }
        if streamed {
            let stream_request = StreamRequest {
                body_limit: Some(most),
                ..stream_request
            };
            return self.serve_http2(state, stream_request, stored, buffers);
        }
        let mut core = stream_request.session.core.borrow_mut();
        let entry = core.open(stream_request.stream, stream_request.started_at);
        entry.phase = StreamPhase::Aggregating;
        entry.most = most.unwrap_or(u64::MAX);
        store_request(head, &mut entry.head);
        if head.expect_continue
            && let Ok(head) = core.wire.respond(stream_request.stream, 100, &mut buffers.out)
        {
            head.finish(false);
        }
    }

    /// Answers a request, with its task or in place.
    pub(super) fn serve_http2(
        &self,
        state: &Connection,
        stream_request: StreamRequest<'_>,
        stored: &mut Vec<u8>,
        buffers: &mut ReplyBuffers,
    ) {
        let StreamRequest {
            session,
            stream,
            head,
            ..
        } = stream_request;
        let mut matched = match_route(&self.app, head, &mut buffers.path);
        self.reject_if_late(&mut matched.route_match);
        if matched.route_match.task().is_some() {
            if self.start_task_http2(state, &stream_request, &matched, stored, &mut buffers.out) {
                return;
            }
            self.worker.stats.rejected(Rejection::RunningRequests);
            let busy = Error::new(503, "too many concurrent requests");
            matched.route_match = RouteMatch::Invalid(Box::new(busy.with_header("Retry-After", "1")));
        }
        let request = Request::new(
            head,
            matched.path,
            matched.params,
            stream_request.content,
            &self.app,
            &self.worker,
            &matched.route_match,
            state.peer,
            None,
        );
        let mut reply = Reply::new(&request, &mut buffers.fields, &mut buffers.body);
        response::run(&matched.route_match, &request, &mut reply);
        if let Some(upgrade) = reply.upgrade.take() {
            session.flush_frames(stream_request.conn, &mut buffers.out);
            return self.open_socket(&stream_request, *upgrade, &mut reply);
        }
        session
            .core
            .borrow_mut()
            .reply(stream_request.conn, &mut reply, stream, &mut buffers.out);
        let (status, sent) = (reply.status, reply.sent);
        self.count_response_since(status, stream_request.started_at);
        self.worker.log(&request, status, sent, stream_request.started_at);
    }

    /// Offers a request to the fast path, else hands it to a task. `false`: the worker runs the maximum number of
    /// requests.
    fn start_task_http2(
        &self,
        state: &Connection,
        stream_request: &StreamRequest<'_>,
        matched: &MatchedRequest<'_>,
        stored: &mut Vec<u8>,
        out: &mut Vec<u8>,
    ) -> bool {
        let Some((factory, route)) = matched.route_match.task() else {
            return false;
        };
        let StreamRequest {
            session,
            stream,
            head,
            ..
        } = *stream_request;
        stored.clear();
        store_request(head, stored);
        let task_request = TaskRequest {
            peer: state.peer,
            started_at: stream_request.started_at,
            last: false,
        };
        let stream_ref = StreamRef {
            session: Rc::clone(session),
            stream,
        };
        let mut taken = None;
        if stream_request.body_limit.is_none() && stream_request.content.is_empty() {
            // A response written before the encoded frames would corrupt the client's HPACK table.
            session.flush_frames(stream_request.conn, out);
            let view = RequestView {
                task_request,
                head,
                bytes: stored,
                stream_ref: Some(stream_ref.clone()),
            };
            taken = self.offer_request(view, matched, route);
        }
        if taken.is_none() {
            let pending_task = PendingTask {
                task_request,
                head: stored,
                body: stream_request.content,
                decoder: None,
                expects: head.expect_continue,
                http2: Some((stream_ref, stream_request.body_limit)),
            };
            taken = factory.start(route, &self.app, &self.worker, pending_task);
        }
        let Some((exchange, serial)) = taken else {
            return false;
        };
        if exchange.is_running(serial) {
            let mut core = session.core.borrow_mut();
            core.entry_or_new(stream, stream_request.started_at).phase =
                StreamPhase::Running(exchange, serial);
        }
        true
    }

    /// Switches a stream to WebSocket.
    fn open_socket(&self, stream_request: &StreamRequest<'_>, upgrade: Upgrade, reply: &mut Reply<'_>) {
        let switched = stream_request.session.switch_to_websocket(
            reply,
            upgrade,
            stream_request.stream,
            (Vec::new(), false),
        );
        if let Err(error) = switched {
            return log::debug!("{:?}: no WebSocket was opened: {error}", reply.request);
        }
        self.count_response_since(200, stream_request.started_at);
        self.worker.log(reply.request, 200, 0, stream_request.started_at);
    }

    /// Answers a request that no handler sees.
    fn reject_http2(
        &self,
        state: &Connection,
        session: &H2Session,
        stream: Stream,
        error: &Error,
        rejected: &RejectedRequest<'_>,
        out: &mut Vec<u8>,
    ) {
        let now = self.worker.cx.now();
        self.log_rejected_request(state.client_since(now), error.status(), rejected);
        let mut core = session.core.borrow_mut();
        core.reject(&self.worker, error, stream, rejected.id.as_ref(), out);
    }

    /// Handles a protocol violation of the connection: nothing that follows can be parsed.
    fn fail_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &H2Session,
        fault: PeerFault,
        out: &mut Vec<u8>,
    ) {
        log::debug!("{:?}: {fault}", state.peer.remote);
        self.worker.stats.refused();
        session.closed.set(true);
        session.flush_frames(conn, out);
        self.drop_all_streams(session);
        self.flush(conn, state, out, NextAction::Linger);
    }

    /// Ends the work on a closed stream.
    pub(super) fn drop_stream(&self, session: &H2Session, stream: Stream) {
        let phase = session.core.borrow_mut().remove_entry(stream);
        self.release_phase(phase);
    }

    /// Ends the work on all streams.
    pub(in crate::server) fn drop_all_streams(&self, session: &H2Session) {
        let streams = {
            let mut core = session.core.borrow_mut();
            core.sockets = 0;
            std::mem::take(&mut core.streams)
        };
        for entry in streams {
            self.release_phase(entry.phase);
        }
    }

    fn release_phase(&self, phase: StreamPhase) {
        match phase {
            StreamPhase::Running(exchange, serial) => self.cancel(&exchange, serial),
            StreamPhase::Socket(socket) => socket.notify_lost(),
            StreamPhase::Done | StreamPhase::Aggregating | StreamPhase::AwaitingEnd(_) => {}
        }
    }

    fn cancel(&self, exchange: &Rc<Exchange>, serial: u64) {
        if exchange.is_running(serial) {
            fast_path::cancel(exchange, &self.worker);
        }
    }

    /// Handles the client's last byte: complete requests are answered, incomplete ones are not.
    pub(in crate::server) fn on_end_http2(&self, session: &Rc<H2Session>) {
        session.client_ended.set(true);
        for stream in session.all_aggregating() {
            session.reset(stream, ErrorCode::CANCEL);
            self.drop_stream(session, stream);
        }
        session.end_sockets();
        self.end_unbounded(session);
        for (_, exchange, _) in session.all_running() {
            exchange.end_of_input();
            exchange.wake();
        }
        session.rearm_deadline();
    }

    /// Sends more after the client has taken bytes or its windows have grown.
    pub(in crate::server) fn drained_http2(&self, session: &Rc<H2Session>) {
        session.write(|core, conn, out| {
            core.pump(conn, out);
            core.wake_all();
        });
        session.notify_all_sockets();
        session.rearm_deadline();
    }
}

/// Returns an error unless an extended CONNECT requests WebSocket on a stream that stays open (RFC 8441 §5).
fn check_upgrade(head: &RequestHead<'_>, end: bool) -> Result<(), Error> {
    let protocol = head.protocol.unwrap_or_default();
    if !protocol.eq_ignore_ascii_case("websocket") {
        let found = client_text::truncate(protocol);
        let message = format!("expected `websocket` as the protocol of an extended CONNECT, found `{found}`");
        return Err(Error::new(501, message));
    }
    if end {
        return Err(Error::bad_request(
            "expected a stream for a WebSocket, found one that was ended with its request",
        ));
    }
    Ok(())
}
