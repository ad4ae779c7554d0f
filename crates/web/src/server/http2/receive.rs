//! Receiving on an HTTP/2 connection: requests are answered in place or handed to tasks, bodies collected or streamed.
//!
//! All frames that result from one receipt are sent by one write, in order.

use std::rc::Rc;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::{FieldTable, Framing, RequestHead, Version};
use ringmain_wire::h2::{ErrorCode, Event, PeerFault, Stream, store_request};

use super::{Heads, Line, Session, Speaking, Work, elapsed};
use crate::app::compiled::{Action, Route, Verdict};
use crate::http::client_text;
use crate::http::error::Error;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::server::connection::{Connection, Phase};
use crate::server::exchange::{Exchange, Job};
use crate::server::fast_path::{self, Shown};
use crate::server::receive::{Chosen, choose};
use crate::server::rejected::Refused;
use crate::server::task_pool::{Launch, Launched};
use crate::server::{Desk, Machine, Scratch, Then, answer};
use crate::ws::Upgrade;

/// A request and the stream that its response takes.
#[derive(Clone, Copy)]
pub(super) struct StreamRequest<'a> {
    pub(super) conn: Conn<'a>,
    pub(super) session: &'a Rc<Session>,
    pub(super) stream: Stream,
    pub(super) head: &'a RequestHead<'a>,
    /// The body, if it was collected.
    pub(super) content: &'a [u8],
    /// The body is streamed, with this limit in bytes.
    pub(super) streams: Option<Option<u64>>,
    pub(super) began: Time,
}

impl Machine {
    /// Starts HTTP/2 from the connection's first byte.
    pub(in crate::server) fn begin_http2(&self, conn: Conn<'_>, state: &mut Connection, out: &mut Vec<u8>) {
        let session = Session::new(&self.local, conn, &self.http2, out);
        state.phase = Phase::Http2(Speaking(session));
        self.flush(conn, state, out, Then::Wait);
        conn.set_deadline(Some(self.site.limits.header_timeout));
    }

    /// Processes `bytes` as far as possible and returns the number of consumed bytes.
    pub(in crate::server) fn receive_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> usize {
        let Phase::Http2(session) = &state.phase else {
            return 0;
        };
        let session = session.share();
        self.local.follow_the_clock();
        self.look_at_the_clock();
        let now = self.local.cx.now();
        session.heard.set(now);
        let mut consumed = 0;
        let (heads, desk) = (&mut scratch.heads, &mut scratch.desk);
        loop {
            let Heads {
                buffer,
                table,
                stored,
            } = heads;
            let step = {
                let wire = &mut session.core.borrow_mut().wire;
                wire.receive(&bytes[consumed..], elapsed(now), buffer, &mut desk.out)
            };
            let step = match step {
                Ok(step) => step,
                Err(fault) => {
                    self.fail_http2(conn, state, &session, fault, &mut desk.out);
                    return bytes.len();
                }
            };
            consumed += step.consumed;
            if matches!(step.event, Event::NeedMore) {
                break;
            }
            self.on_event(conn, state, &session, step.event, (table, stored, desk));
            if desk.out.len() > WRITE_MARK {
                // The engine offers the rest when the client has taken this.
                break;
            }
            if consumed < bytes.len() && self.local.cx.step_is_long() {
                // Sends the pending responses, then lets other connections have their turn.
                conn.yield_turn();
                break;
            }
        }
        self.flush(conn, state, &mut desk.out, Then::Wait);
        session.note_rest(&bytes[consumed..], now);
        session.settle();
        consumed
    }

    /// Handles an event of the codec.
    fn on_event(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &Rc<Session>,
        event: Event<'_>,
        (table, stored, desk): (&mut FieldTable, &mut Vec<u8>, &mut Desk),
    ) {
        match event {
            Event::Request { stream, head, end } => {
                if !self.admit_request(conn, state, (session, stream), &head, &mut desk.out) {
                    return;
                }
                let upgrade = head.as_upgrade();
                let refused = upgrade
                    .as_ref()
                    .and_then(|upgrade| check_upgrade(upgrade, end).err());
                if let Some(error) = refused {
                    let refused = Refused::of_head(&self.local, &head);
                    return self.refuse_http2(state, (session, stream), &error, &refused, &mut desk.out);
                }
                let asked = StreamRequest {
                    conn,
                    session,
                    stream,
                    head: upgrade.as_ref().unwrap_or(&head),
                    content: &[],
                    streams: None,
                    began: self.local.cx.now(),
                };
                self.request_http2(state, asked, end, (stored, desk));
            }
            Event::Data { stream, data, end } => {
                let fed = session.feed_socket(conn, stream, (data, end), &mut desk.out);
                if !fed && self.data_http2(state, (session, stream), (data, end), desk) {
                    self.collected(conn, state, session, stream, (table, stored, desk));
                }
                if end {
                    session.ended_by_client(stream);
                }
            }
            Event::Trailers { stream, fields } => {
                if session.feed_socket(conn, stream, (&[], true), &mut desk.out) {
                    return;
                }
                match session.running(stream) {
                    Some((exchange, _)) => exchange.end_body(fields.iter()),
                    None => self.collected(conn, state, session, stream, (table, stored, desk)),
                }
                session.ended_by_client(stream);
            }
            Event::TooLarge { stream, .. } => {
                self.head_too_large(state, session, stream, &mut desk.out);
            }
            Event::Reset { stream, code } => {
                self.on_reset(conn, state, (session, stream), code, &mut desk.out);
            }
            Event::Broken { stream, fault } => {
                log::debug!("{:?}: {fault}", state.origin.remote);
                session.hand_over(conn, &mut desk.out);
                self.broken(session, stream);
            }
            Event::Window { stream } => session.has_room(conn, stream, &mut desk.out),
            Event::Settings => session.has_room(conn, None, &mut desk.out),
            Event::Pong { .. } => session.pinged.set(None),
            Event::NeedMore | Event::GoAway { .. } | Event::Response { .. } => {}
        }
    }

    /// Counts a request. `false`: it is refused, because the current settings would not accept its connection; the connection takes
    /// no more streams.
    fn admit_request(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        (session, stream): (&Session, Stream),
        head: &RequestHead<'_>,
        out: &mut Vec<u8>,
    ) -> bool {
        self.count_request(state, session, out);
        let Some(error) = self.outdated(conn, state) else {
            return true;
        };
        let refused = Refused::of_head(&self.local, head);
        self.refuse_http2(state, (session, stream), &error, &refused, out);
        session.core.borrow_mut().wire.go_away(out);
        false
    }

    /// Handles a stream that the client has reset.
    fn on_reset(
        &self,
        conn: Conn<'_>,
        state: &Connection,
        (session, stream): (&Rc<Session>, Stream),
        code: ErrorCode,
        out: &mut Vec<u8>,
    ) {
        let (remote, id) = (state.origin.remote, stream.id());
        log::debug!("{remote:?}: stream {id}: given up: {code}");
        session.hand_over(conn, out);
        self.drop_stream(session, stream);
    }

    fn head_too_large(
        &self,
        state: &mut Connection,
        session: &Rc<Session>,
        stream: Stream,
        out: &mut Vec<u8>,
    ) {
        self.count_request(state, session, out);
        let error = Error::new(431, "expected a head within its limits, found a larger one");
        let refused = Refused::unknown(&self.local, Version::Http2);
        self.refuse_http2(state, (session, stream), &error, &refused, out);
    }

    /// Handles a protocol violation of the client that affects at most one stream, which is then closed.
    fn broken(&self, session: &Session, stream: Option<Stream>) {
        self.local.stats.refused();
        if let Some(stream) = stream {
            self.drop_stream(session, stream);
        }
    }

    fn count_request(&self, state: &mut Connection, session: &Session, out: &mut Vec<u8>) {
        state.requests = state.requests.saturating_add(1);
        session.rest_until.set(None);
        let most = self.site.limits.requests_per_connection;
        if most.is_some_and(|most| state.requests >= most) {
            session.core.borrow_mut().wire.go_away(out);
        }
    }

    /// Processes a complete head: matches a route and decides how the body is received.
    fn request_http2(
        &self,
        state: &Connection,
        asked: StreamRequest<'_>,
        end: bool,
        (stored, desk): (&mut Vec<u8>, &mut Desk),
    ) {
        let head = asked.head;
        if head.protocol.is_some() {
            // The data on this stream is not a body; a task receives it as one until the stream becomes a socket or a tunnel.
            let asked = StreamRequest {
                streams: Some(None),
                ..asked
            };
            return self.serve_http2(state, asked, (stored, desk));
        }
        if end {
            return self.serve_http2(state, asked, (stored, desk));
        }
        let chosen = choose(&self.site, head, &mut desk.path);
        let Verdict::Route(route) = chosen.verdict else {
            // Regardless of the body.
            return self.serve_http2(state, asked, (stored, desk));
        };
        let limits = &self.site.limits;
        let streamed = matches!(route.action, Action::Task { streamed: true, .. });
        let most = match route.body_bytes {
            Some(bytes) => Some(bytes),
            None if streamed => limits.streamed_body_bytes,
            None => Some(limits.body_bytes),
        };
        if let (Framing::Length(length), Some(most)) = (head.framing, most)
            && length > most
        {
            let what = format!("expected a body of at most {most} bytes, found one of {length}");
            let refused = Refused::of_head(&self.local, head);
            let to = (&**asked.session, asked.stream);
            return self.refuse_http2(state, to, &Error::new(413, what), &refused, &mut desk.out);
        }
        if streamed {
            let asked = StreamRequest {
                streams: Some(most),
                ..asked
            };
            return self.serve_http2(state, asked, (stored, desk));
        }
        let mut core = asked.session.core.borrow_mut();
        let lane = core.open(asked.stream, asked.began);
        lane.work = Work::Collecting;
        lane.most = most.unwrap_or(u64::MAX);
        store_request(head, &mut lane.head);
        if head.expect_continue
            && let Ok(head) = core.wire.respond(asked.stream, 100, &mut desk.out)
        {
            head.finish(false);
        }
    }

    /// Answers a request, with its task or in place.
    pub(super) fn serve_http2(
        &self,
        state: &Connection,
        asked: StreamRequest<'_>,
        (stored, desk): (&mut Vec<u8>, &mut Desk),
    ) {
        let StreamRequest {
            session,
            stream,
            head,
            ..
        } = asked;
        let mut chosen = choose(&self.site, head, &mut desk.path);
        if self.late.get() && matches!(chosen.verdict, Verdict::Route(Route { urgent: false, .. })) {
            chosen.verdict = Verdict::TooLate;
        }
        if let Verdict::Route(Route {
            action: Action::Task { launch, .. },
            index,
            ..
        }) = &chosen.verdict
        {
            let task = (&**launch, *index);
            if self.launch_http2(state, &asked, &chosen, task, (stored, &mut desk.out)) {
                return;
            }
            let busy = Error::new(503, "the server runs as many requests as it may");
            chosen.verdict = Verdict::Refused(Box::new(busy.with_header("Retry-After", "1")));
        }
        let request = Request::new(
            head,
            chosen.path,
            chosen.params,
            asked.content,
            &self.site,
            &self.local,
            &chosen.verdict,
            state.origin,
            None,
        );
        let mut reply = Reply::new(&request, &mut desk.fields, &mut desk.body);
        response::run(&chosen.verdict, &request, &mut reply);
        if let Some(upgrade) = reply.upgrade.take() {
            session.hand_over(asked.conn, &mut desk.out);
            return self.open_socket(&asked, *upgrade, &mut reply);
        }
        session
            .core
            .borrow_mut()
            .reply(asked.conn, &mut reply, stream, &mut desk.out);
        let (status, sent) = (reply.status, reply.sent);
        self.count_since(status, asked.began);
        self.local.log(&request, status, sent, asked.began);
    }

    /// Offers a request to the early callback, else hands it to a task. `false`: the worker runs the maximum number of
    /// requests.
    fn launch_http2(
        &self,
        state: &Connection,
        asked: &StreamRequest<'_>,
        chosen: &Chosen<'_>,
        (launch, route): (&dyn Launch, usize),
        (stored, out): (&mut Vec<u8>, &mut Vec<u8>),
    ) -> bool {
        let StreamRequest {
            session,
            stream,
            head,
            ..
        } = *asked;
        stored.clear();
        store_request(head, stored);
        let job = Job {
            origin: state.origin,
            began: asked.began,
            last: false,
        };
        let line = Line {
            session: Rc::clone(session),
            stream,
        };
        let mut taken = None;
        if asked.streams.is_none() && asked.content.is_empty() {
            // A response written before the encoded frames would corrupt the client's HPACK table.
            session.hand_over(asked.conn, out);
            let shown = Shown {
                job,
                head,
                bytes: stored,
                line: Some(line.clone()),
            };
            taken = self.show(shown, chosen, route);
        }
        if taken.is_none() {
            let launched = Launched {
                job,
                head: stored,
                body: asked.content,
                decoder: None,
                expects: head.expect_continue,
                http2: Some((line, asked.streams)),
            };
            taken = launch.launch(route, &self.site, &self.local, launched);
        }
        let Some((exchange, serial)) = taken else {
            return false;
        };
        if exchange.runs(serial) {
            let mut core = session.core.borrow_mut();
            core.lane_or_new(stream, asked.began).work = Work::Running(exchange, serial);
        }
        true
    }

    /// Switches a stream to WebSocket.
    fn open_socket(&self, asked: &StreamRequest<'_>, upgrade: Upgrade, reply: &mut Reply<'_>) {
        let switched = asked
            .session
            .switch(reply, upgrade, asked.stream, (Vec::new(), false));
        if let Err(error) = switched {
            return log::debug!("{:?}: no WebSocket was opened: {error}", reply.request);
        }
        self.count_since(200, asked.began);
        self.local.log(reply.request, 200, 0, asked.began);
    }

    /// Answers a request that no handler sees.
    fn refuse_http2(
        &self,
        state: &Connection,
        (session, stream): (&Session, Stream),
        error: &Error,
        refused: &Refused<'_>,
        out: &mut Vec<u8>,
    ) {
        let now = self.local.cx.now();
        self.note_refused((state.origin.remote, now), error.status(), refused);
        let mut core = session.core.borrow_mut();
        core.refuse(&self.local, error, (stream, refused.id.as_ref()), out);
    }

    /// Handles a protocol violation of the connection: nothing that follows can be parsed.
    fn fail_http2(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        session: &Session,
        fault: PeerFault,
        out: &mut Vec<u8>,
    ) {
        log::debug!("{:?}: {fault}", state.origin.remote);
        self.local.stats.refused();
        session.over.set(true);
        session.hand_over(conn, out);
        self.drop_all(session);
        self.flush(conn, state, out, Then::Linger);
    }

    /// Ends the work on a closed stream.
    pub(super) fn drop_stream(&self, session: &Session, stream: Stream) {
        let work = session.core.borrow_mut().drop_lane(stream);
        self.let_go(work);
    }

    /// Ends the work on all streams.
    pub(in crate::server) fn drop_all(&self, session: &Session) {
        let lanes = {
            let mut core = session.core.borrow_mut();
            core.sockets = 0;
            std::mem::take(&mut core.lanes)
        };
        for lane in lanes {
            self.let_go(lane.work);
        }
    }

    fn let_go(&self, work: Work) {
        match work {
            Work::Running(exchange, serial) => self.cancel(&exchange, serial),
            Work::Socket(socket) => socket.lost(),
            Work::Answered | Work::Collecting | Work::Leaving(_) => {}
        }
    }

    fn cancel(&self, exchange: &Rc<Exchange>, serial: u64) {
        if exchange.runs(serial) {
            fast_path::cancel(exchange, &self.local);
        }
    }

    /// Handles the client's last byte: complete requests are answered, incomplete ones are not.
    pub(in crate::server) fn end_http2(&self, session: &Rc<Session>) {
        session.half.set(true);
        let collecting: Vec<Stream> = {
            let core = session.core.borrow();
            let lanes = core.lanes.iter();
            lanes
                .filter(|lane| matches!(lane.work, Work::Collecting))
                .filter_map(|lane| lane.stream)
                .collect()
        };
        for stream in collecting {
            session.reset(stream, ErrorCode::CANCEL);
            self.drop_stream(session, stream);
        }
        session.end_sockets();
        self.end_lasting(session);
        for (_, exchange, _) in session.all_running() {
            exchange.end_of_input();
            exchange.wake();
        }
        session.settle();
    }

    /// Sends more after the client has taken bytes or its windows have grown.
    pub(in crate::server) fn drained_http2(&self, session: &Rc<Session>) {
        session.write(|core, conn, out| {
            core.pump(conn, out);
            core.wake_all();
        });
        session.drained_all_sockets();
        session.settle();
    }
}

/// Returns an error unless an extended CONNECT requests WebSocket on a stream that stays open (RFC 8441 §5).
fn check_upgrade(head: &RequestHead<'_>, end: bool) -> Result<(), Error> {
    let protocol = head.protocol.unwrap_or_default();
    if !protocol.eq_ignore_ascii_case("websocket") {
        let found = client_text::cut(protocol);
        let what = format!("expected `websocket` as the protocol of an extended CONNECT, found `{found}`");
        return Err(Error::new(501, what));
    }
    if end {
        return Err(Error::bad_request(
            "expected a stream for a WebSocket, found one that was ended with its request",
        ));
    }
    Ok(())
}
