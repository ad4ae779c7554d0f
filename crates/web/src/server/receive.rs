//! Received bytes: parses heads, collects, discards or streams bodies, and answers plain requests in place.
//!
//! The responses to all plain requests of one receipt are sent by one write, in order.

use std::fmt::{self, Display};
use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_engine::limits::WRITE_MARK;
use ringmain_wire::h1::{
    self, BodyDecoder, BodyEvent, FaultKind, FieldTable, Found, Framing, HeadScanner, Parsed, PeerFault,
    RequestHead, Target, parse_request,
};

use super::connection::{Connection, Phase, Sending};
use super::exchange::{CONTINUE, Exchange, Job};
use super::rejected::Refused;
use super::task_pool::{Launch, Launched};
use super::{Desk, Machine, Scratch, Then, http2, response};
use crate::app::compiled::{Action, Route, Site, Verdict};
use crate::http::error::Error;
use crate::http::path;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits;
use crate::router::Params;
use crate::stats::SAMPLE;

/// The outcome of processing some bytes.
pub(super) struct Step {
    pub(super) consumed: usize,
    pub(super) then: Then,
}

pub(super) fn step(consumed: usize, then: Then) -> Step {
    Step { consumed, then }
}

/// The way in which a request's body is received.
enum Body<'a> {
    /// The whole body was received: these bytes, and the number of input bytes that it used.
    There(&'a [u8], usize),
    /// It arrives in parts and is collected for the handler.
    Collect(BodyDecoder),
    /// It arrives in parts and is streamed to the handler.
    Stream(BodyDecoder),
    /// It is not needed, and is read and dropped.
    Discard(BodyDecoder),
    /// It is not needed, and too long to be read and dropped.
    Abandon,
}

/// A request with the received part of its body.
pub(super) struct Arrived<'a> {
    pub(super) head: &'a RequestHead<'a>,
    /// The head as received.
    pub(super) bytes: &'a [u8],
    pub(super) content: &'a [u8],
    /// The decoder of a streamed body.
    pub(super) decoder: Option<BodyDecoder>,
    /// Bytes that no handler will read may have arrived or be in flight.
    pub(super) unread: bool,
}

/// The route match of a request, and the path that led to it.
pub(super) struct Chosen<'a> {
    pub(super) path: &'a str,
    pub(super) params: Params,
    pub(super) verdict: Verdict<'a>,
}

impl Machine {
    /// Processes `bytes` as far as possible and returns the number of consumed bytes.
    pub(super) fn receive(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        bytes: &[u8],
        scratch: &mut Scratch,
    ) -> usize {
        self.local.follow_the_clock();
        self.look_at_the_clock();
        let now = self.local.cx.now();
        let mut consumed = 0;
        let mut then = Then::Next;
        while then == Then::Next && consumed < bytes.len() {
            let input = &bytes[consumed..];
            let step = match &mut state.phase {
                Phase::Head => self.head(conn, state, now, input, scratch),
                Phase::Collecting(_) => self.collect(conn, state, input, scratch),
                Phase::Discarding(decoder) => match discard(decoder, input) {
                    // The rest is part of a line: more must arrive.
                    Ok((used, false)) => step(used, Then::Wait),
                    Ok((used, true)) => {
                        state.phase = Phase::Head;
                        // A shutdown may have begun meanwhile, and it closes idle connections.
                        let idle = used == input.len();
                        let ends = idle && state.last;
                        step(used, if ends { Then::Close } else { Then::Next })
                    }
                    // The request was answered already; the next one cannot be found.
                    Err(_) => step(input.len(), Then::Linger),
                },
                Phase::Running { exchange, .. } => {
                    let used = exchange.feed(conn, input);
                    exchange.wake();
                    step(used, Then::Wait)
                }
                // The bytes belong to another owner.
                Phase::Proxied(_)
                | Phase::Choosing(_)
                | Phase::Taken
                | Phase::Sending(_)
                | Phase::Socket(_)
                | Phase::Http2(_) => step(0, Then::Wait),
                Phase::Lingering { left } => {
                    *left = left.saturating_sub(input.len() as u64);
                    let then = if *left == 0 { Then::Close } else { Then::Wait };
                    step(input.len(), then)
                }
            };
            consumed += step.consumed;
            then = step.then;
            if scratch.desk.out.len() > WRITE_MARK && then == Then::Next {
                // The engine offers the rest when the client has taken this.
                then = Then::Wait;
            }
            if then == Then::Next && consumed < bytes.len() && self.local.cx.step_is_long() {
                // Sends the pending responses, then lets other connections have their turn.
                conn.yield_turn();
                then = Then::Wait;
            }
        }
        self.flush(conn, state, &mut scratch.desk.out, then);
        if matches!(then, Then::Next | Then::Wait) {
            self.arm(conn, state);
        }
        if matches!(state.phase, Phase::Http2(_)) {
            consumed += self.receive_http2(conn, state, &bytes[consumed..], scratch);
        }
        consumed
    }

    /// Checks whether the current requests are late in an overloaded worker. Reads the clock every [`limits::RECEIPTS_UNTIMED`]
    /// receipts, and at each one while requests are late.
    pub(super) fn look_at_the_clock(&self) {
        let until = self.until_timed.get();
        if until > 0 {
            return self.until_timed.set(until - 1);
        }
        if let Some(patience) = self.site.limits.patience {
            let cx = &self.local.cx;
            let late = cx.queued() > patience;
            self.late.set(self.overload.refuses(cx.clock(), late, patience));
            self.until_timed
                .set(if late { 0 } else { limits::RECEIPTS_UNTIMED });
        }
    }

    fn head(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        now: Time,
        input: &[u8],
        scratch: &mut Scratch,
    ) -> Step {
        let (table, desk) = (&mut scratch.table, &mut scratch.desk);
        match http2::preface(state, input) {
            Some(true) => {
                self.begin_http2(conn, state, &mut desk.out);
                return step(0, Then::Wait);
            }
            Some(false) => return self.partial_head(conn, state),
            None => {}
        }
        let mut scanner = HeadScanner::resume(state.progress);
        let parsed = parse_request(input, &self.site.limits.http1, &mut scanner, table);
        state.progress = scanner.progress();
        match parsed {
            Ok(Parsed::Complete { head, bytes }) => {
                state.begun = false;
                state.ticking = false;
                state.requests = state.requests.saturating_add(1);
                state.began = now;
                state.base = 0;
                self.request(conn, state, &head, input.split_at(bytes), desk)
            }
            Ok(Parsed::Partial) => match begins_no_request(input) {
                None => self.partial_head(conn, state),
                Some(fault) => {
                    self.note_tls(state, input);
                    let refused = Refused::of_bytes(&self.local, input);
                    let about = (h1::Exchange::REFUSED, &refused);
                    let then = self.refuse_fault(state.client(), &fault, about, &mut desk.out);
                    step(input.len(), then)
                }
            },
            Err(fault) => {
                self.note_tls(state, input);
                let refused = Refused::of_bytes(&self.local, input);
                let about = (h1::Exchange::REFUSED, &refused);
                let then = self.refuse_fault(state.client(), &fault, about, &mut desk.out);
                step(input.len(), then)
            }
        }
    }

    /// Logs a client that speaks TLS to a plain HTTP listener: it only sees a failed handshake, and does not show the reason.
    fn note_tls(&self, state: &Connection, input: &[u8]) {
        if input.first() == Some(&TLS_HANDSHAKE)
            && !state.origin.secure
            && let Some(left_out) = self.local.tls_in_the_clear.admit(self.local.cx.now())
        {
            let remote = fmt::from_fn(|f| match state.origin.remote {
                Some(address) => address.fmt(f),
                None => f.write_str("unix"),
            });
            log::info!(
                "{remote}: TLS where plain HTTP is expected; answered 400: this port speaks no TLS{left_out}"
            );
        }
    }

    /// Waits for the rest of a head, within its deadline.
    fn partial_head(&self, conn: Conn<'_>, state: &mut Connection) -> Step {
        if !state.begun {
            state.begun = true;
            // The first head's deadline started when the connection was opened.
            if state.requests > 0 {
                conn.set_deadline(Some(self.site.limits.header_timeout));
            }
        }
        step(0, Then::Wait)
    }

    /// Processes a complete head: matches a route and finds the received part of the body.
    fn request(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        head: &RequestHead<'_>,
        (bytes, behind): (&[u8], &[u8]),
        desk: &mut Desk,
    ) -> Step {
        if let Some(error) = self.outdated(conn, state) {
            let refused = Refused::of_head(&self.local, head);
            let then = self.refuse(state.client(), &error, (head.exchange(), &refused), &mut desk.out);
            return step(bytes.len() + behind.len(), then);
        }
        let most = self.site.limits.requests_per_connection;
        state.last |= most.is_some_and(|most| state.requests >= most);
        let mut arrived = Arrived {
            head,
            bytes,
            content: &[],
            decoder: None,
            unread: false,
        };
        // The most common case.
        if head.framing == Framing::None {
            arrived.unread = !behind.is_empty();
            return step(bytes.len(), self.serve(conn, state, &arrived, desk));
        }
        let chosen = choose(&self.site, head, &mut desk.path);
        let body = match self.wanted(&chosen.verdict, head, behind) {
            Ok(body) => body,
            Err(fault) => {
                let refused = Refused::of_head(&self.local, head);
                let about = (head.exchange(), &refused);
                let then = self.refuse_fault(state.client(), &fault, about, &mut desk.out);
                return step(bytes.len() + behind.len(), then);
            }
        };
        match body {
            Body::There(content, framed) => {
                arrived.content = content;
                arrived.unread = framed < behind.len();
                step(bytes.len() + framed, self.serve(conn, state, &arrived, desk))
            }
            Body::Stream(decoder) => {
                arrived.decoder = Some(decoder);
                arrived.unread = true;
                step(bytes.len(), self.serve(conn, state, &arrived, desk))
            }
            Body::Collect(decoder) => {
                if head.expect_continue {
                    desk.out.extend_from_slice(CONTINUE);
                }
                state.phase = Phase::Collecting(self.collector(bytes, decoder, head.exchange()));
                step(bytes.len(), Then::Next)
            }
            Body::Discard(decoder) => {
                arrived.unread = true;
                state.phase = Phase::Discarding(Box::new(decoder));
                step(bytes.len(), self.serve(conn, state, &arrived, desk))
            }
            Body::Abandon => {
                arrived.unread = true;
                state.last = true;
                step(
                    bytes.len() + behind.len(),
                    self.serve(conn, state, &arrived, desk),
                )
            }
        }
    }

    /// Returns the way in which the body is received for this route.
    fn wanted<'a>(
        &self,
        verdict: &Verdict<'_>,
        head: &RequestHead<'_>,
        behind: &'a [u8],
    ) -> Result<Body<'a>, PeerFault> {
        let limits = &self.site.limits;
        let Verdict::Route(route) = verdict else {
            let small = matches!(head.framing, Framing::Length(length) if length <= limits.discard_bytes);
            // A client that waits for `100 Continue` does not send the body now that the response is final, or sends it all the
            // same.
            if !small || head.expect_continue {
                return Ok(Body::Abandon);
            }
            if head.framing == Framing::Length(0) {
                return Ok(Body::There(&[], 0));
            }
            let http1 = h1::Limits {
                body_bytes: None,
                ..self.http1
            };
            return Ok(Body::Discard(BodyDecoder::new(head.framing, &http1)?));
        };
        let streamed = matches!(route.action, Action::Task { streamed: true, .. });
        let http1 = match (streamed, route.body_bytes) {
            (false, None) => self.http1,
            (true, None) => h1::Limits {
                body_bytes: limits.streamed_body_bytes,
                ..self.http1
            },
            (_, Some(bytes)) => h1::Limits {
                body_bytes: Some(bytes),
                ..self.http1
            },
        };
        let decoder = BodyDecoder::new(head.framing, &http1)?;
        if streamed {
            return Ok(Body::Stream(decoder));
        }
        if let Framing::Length(length) = head.framing
            && let Ok(length) = usize::try_from(length)
            && let Some(content) = behind.get(..length)
        {
            return Ok(Body::There(content, length));
        }
        Ok(Body::Collect(decoder))
    }

    /// Answers a request, with its task or in place.
    pub(super) fn serve(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        arrived: &Arrived<'_>,
        desk: &mut Desk,
    ) -> Then {
        let head = arrived.head;
        let mut chosen = self.choose_in_time(state, arrived, &mut desk.path);
        if let Verdict::Route(Route {
            action: Action::Task { launch, .. },
            index,
            ..
        }) = &chosen.verdict
        {
            if let Some(phase) = self.look(state, arrived, &chosen, *index) {
                state.phase = phase;
                return Then::Next;
            }
            if let Some((exchange, serial)) = self.launch(state, arrived, (&**launch, *index)) {
                state.phase = Phase::Running { exchange, serial };
                return Then::Next;
            }
            let busy = Error::new(503, "the server runs as many requests as it may");
            chosen.verdict = Verdict::Refused(Box::new(busy.with_header("Retry-After", "1")));
            // The body that would have been streamed is not read.
            state.last |= arrived.decoder.is_some_and(|body| !body.is_over());
        }
        let Chosen {
            path,
            params,
            verdict,
        } = chosen;
        let request = Request::new(
            head,
            path,
            params,
            arrived.content,
            &self.site,
            &self.local,
            &verdict,
            state.origin,
            None,
        );
        let mut reply = Reply::new(&request, &mut desk.fields, &mut desk.body);
        response::run(&verdict, &request, &mut reply);
        if let Some(upgrade) = reply.upgrade.take() {
            return self.switch(conn, state, *upgrade, &mut reply, &mut desk.out);
        }
        let mut exchange = head.exchange();
        exchange.keep_alive &= !state.last && !reply.closes;
        let rest = response::encode(&mut reply, exchange, &mut desk.out);
        self.count(reply.status, state);
        self.local.log(&request, reply.status, reply.sent, state.began);
        // A client that did not ask for `close` may have sent its next request already: with bytes unread the kernel would reset
        // the connection, and the response could be lost. Over TLS every client may still send its close_notify.
        let comes = arrived.unread || head.keep_alive || state.origin.secure;
        let then = match (exchange.keep_alive, comes) {
            (true, _) => Then::Next,
            (false, true) => Then::Linger,
            (false, false) => Then::Close,
        };
        match rest {
            None => then,
            Some(rest) => self.begin_rest(conn, state, rest, then, &mut desk.out),
        }
    }

    /// Matches a route, unless the request has waited too long in an overloaded worker.
    fn choose_in_time<'a>(
        &'a self,
        state: &mut Connection,
        arrived: &Arrived<'a>,
        scratch: &'a mut String,
    ) -> Chosen<'a> {
        let mut chosen = choose(&self.site, arrived.head, scratch);
        if self.late.get() && matches!(chosen.verdict, Verdict::Route(Route { urgent: false, .. })) {
            chosen.verdict = Verdict::TooLate;
            // The body that the handler would have read is not read.
            state.last |= arrived.decoder.is_some();
        }
        chosen
    }

    /// Hands a request to its task. `None`: the worker runs the maximum number of requests.
    fn launch(
        &self,
        state: &Connection,
        arrived: &Arrived<'_>,
        (launch, route): (&dyn Launch, usize),
    ) -> Option<(Rc<Exchange>, u64)> {
        let launched = Launched {
            job: Job {
                origin: state.origin,
                began: state.began,
                last: state.last,
            },
            head: arrived.bytes,
            body: arrived.content,
            decoder: arrived.decoder,
            expects: arrived.head.expect_continue,
            http2: None,
        };
        launch.launch(route, &self.site, &self.local, launched)
    }

    /// Counts a response.
    pub(super) fn count(&self, status: u16, state: &Connection) {
        self.count_since(status, state.began);
    }

    /// Counts the response to a request that began at `began`.
    pub(super) fn count_since(&self, status: u16, began: Time) {
        self.local.stats.answered(status);
        let until = self.until_sample.get();
        self.until_sample.set(until.checked_sub(1).unwrap_or(SAMPLE - 1));
        if until == 0 {
            self.local.stats.took(self.local.cx.clock().since(began));
        }
    }

    /// Sends the rest of a response that was encoded without it, after the encoded part.
    fn begin_rest(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        rest: Bytes,
        then: Then,
        out: &mut Vec<u8>,
    ) -> Then {
        self.flush(conn, state, out, Then::Wait);
        if conn.unsent() + rest.len() <= limits::SEND_SHARE {
            // Fails only when the connection is closed.
            let _ = conn.write_frame(rest);
            return then;
        }
        let unwanted = match std::mem::replace(&mut state.phase, Phase::Head) {
            Phase::Discarding(decoder) => Some(decoder),
            _ => None,
        };
        state.phase = Phase::Sending(Box::new(Sending { rest, then, unwanted }));
        self.send_rest(conn, state);
        Then::Wait
    }

    /// Parses the head of a request with a collected body again.
    pub(super) fn reread<'a>(&self, bytes: &'a [u8], table: &'a mut FieldTable) -> RequestHead<'a> {
        let parsed = parse_request(bytes, &self.site.limits.http1, &mut HeadScanner::new(), table);
        let Ok(Parsed::Complete { head, .. }) = parsed else {
            unreachable!("these bytes were parsed on arrival");
        };
        head
    }
}

/// Matches a route. The path is normalized into `scratch` if necessary.
pub(super) fn choose<'a>(site: &'a Site, head: &RequestHead<'a>, scratch: &'a mut String) -> Chosen<'a> {
    let mut params = Params::new();
    if head.target == Target::Asterisk || head.target.path() == "*" {
        // RFC 9110 §9.3.7: a request about the server, not about one of its resources.
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        return Chosen {
            path: "*",
            params,
            verdict: Verdict::Options { allow },
        };
    }
    match path::normalise(head.target.path(), scratch) {
        Ok(path) => {
            let verdict = site.find(head.method, path, &mut params);
            Chosen {
                path,
                params,
                verdict,
            }
        }
        Err(fault) => Chosen {
            path: head.target.path(),
            params,
            verdict: Verdict::Refused(Box::new(fault.into())),
        },
    }
}

/// Drops the unwanted body's part of `input`; returns its length and whether the body is complete.
fn discard(decoder: &mut BodyDecoder, input: &[u8]) -> Result<(usize, bool), PeerFault> {
    let mut consumed = 0;
    loop {
        let step = decoder.decode(&input[consumed..])?;
        consumed += step.consumed;
        match step.event {
            BodyEvent::Data(_) | BodyEvent::Trailers(_) => {}
            BodyEvent::NeedMore => return Ok((consumed, decoder.is_over())),
            BodyEvent::End => return Ok((consumed, true)),
        }
    }
}

/// The first byte of a TLS record that starts a handshake (RFC 8446 §5.1).
const TLS_HANDSHAKE: u8 = 0x16;

/// Returns the fault of a partial head that cannot start a request, so that its rest need not be awaited: TLS and other binary
/// protocols. An empty line may precede a request (RFC 9112 §2.2).
fn begins_no_request(input: &[u8]) -> Option<PeerFault> {
    let first = *input.first()?;
    let is_garbage = (first.is_ascii_control() && !matches!(first, b'\r' | b'\n')) || !first.is_ascii();
    is_garbage.then_some(PeerFault {
        kind: FaultKind::Method,
        at: 0,
        found: Found::Byte(first),
    })
}
