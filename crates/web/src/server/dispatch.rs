//! Dispatch of HTTP/1 requests: matches a route, decides how the body is received, and answers in place or starts a task.
//!
//! Knows no bytes beyond the head and the body of one request.

use std::rc::Rc;

use bytes::Bytes;
use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, BodyDecoder, Framing, PeerFault, RequestHead, Target};

use super::connection::{ConnPhase, Connection, PendingResponse};
use super::exchange::{CONTINUE, Exchange, TaskRequest};
use super::receive::{ReceiveStep, step};
use super::rejected::RejectedRequest;
use super::task_pool::{PendingTask, TaskFactory};
use super::{HttpServer, NextAction, ReplyBuffers, response};
use crate::app::compiled::{Action, CompiledApp, CompiledRoute, RouteMatch};
use crate::http::error::Error;
use crate::http::path;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits;
use crate::router::Params;
use crate::stats::{LATENCY_SAMPLE_INTERVAL, Rejection};

/// The way in which a request's body is received.
enum BodyHandling<'a> {
    /// The whole body was received: these bytes, and the number of input bytes that it used.
    Complete(&'a [u8], usize),
    /// It arrives in parts and is collected for the handler.
    Aggregate(BodyDecoder),
    /// It arrives in parts and is streamed to the handler.
    Stream(BodyDecoder),
    /// It is not needed, and is read and dropped.
    Discard(BodyDecoder),
    /// It is not needed, and too long to be read and dropped.
    Abandon,
}

/// A request with the received part of its body.
pub(super) struct IncomingRequest<'a> {
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
pub(super) struct MatchedRequest<'a> {
    pub(super) path: &'a str,
    pub(super) params: Params,
    pub(super) route_match: RouteMatch<'a>,
}

impl HttpServer {
    /// Processes a complete head: matches a route and finds the received part of the body.
    pub(super) fn process_request(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        head: &RequestHead<'_>,
        bytes: &[u8],
        rest: &[u8],
        buffers: &mut ReplyBuffers,
    ) -> ReceiveStep {
        if let Some(error) = self.check_current_settings(conn, state) {
            let next = self.reject_parsed(state, head, &error, &mut buffers.out);
            return step(bytes.len() + rest.len(), next);
        }
        let max = self.app.limits.requests_per_connection;
        // A client that is notified before the listeners close opens its next connection elsewhere.
        state.last |= max.is_some_and(|max| state.requests >= max) || self.worker.cx.is_drain_pending();
        let mut incoming = IncomingRequest {
            head,
            bytes,
            content: &[],
            decoder: None,
            unread: false,
        };
        // The most common case.
        if head.framing == Framing::None {
            incoming.unread = !rest.is_empty();
            return step(bytes.len(), self.serve(conn, state, &incoming, buffers));
        }
        let matched = match_route(&self.app, head, &mut buffers.path);
        let body = match self.body_handling(&matched.route_match, head, rest) {
            Ok(body) => body,
            Err(fault) => {
                let error = Error::from_fault(&fault);
                let next = self.reject_parsed(state, head, &error, &mut buffers.out);
                return step(bytes.len() + rest.len(), next);
            }
        };
        match body {
            BodyHandling::Complete(content, framed) => {
                incoming.content = content;
                incoming.unread = framed < rest.len();
                step(bytes.len() + framed, self.serve(conn, state, &incoming, buffers))
            }
            BodyHandling::Stream(decoder) => {
                incoming.decoder = Some(decoder);
                incoming.unread = true;
                step(bytes.len(), self.serve(conn, state, &incoming, buffers))
            }
            BodyHandling::Aggregate(decoder) => {
                if head.expect_continue {
                    buffers.out.extend_from_slice(CONTINUE);
                }
                state.phase = ConnPhase::Aggregating(self.new_aggregator(bytes, decoder, head.exchange()));
                step(bytes.len(), NextAction::Continue)
            }
            BodyHandling::Discard(decoder) => {
                incoming.unread = true;
                state.phase = ConnPhase::Discarding(Box::new(decoder));
                step(bytes.len(), self.serve(conn, state, &incoming, buffers))
            }
            BodyHandling::Abandon => {
                incoming.unread = true;
                state.last = true;
                step(
                    bytes.len() + rest.len(),
                    self.serve(conn, state, &incoming, buffers),
                )
            }
        }
    }

    /// Rejects a request whose head was parsed; the connection closes after the response.
    fn reject_parsed(
        &self,
        state: &Connection,
        head: &RequestHead<'_>,
        error: &Error,
        out: &mut Vec<u8>,
    ) -> NextAction {
        let rejected = RejectedRequest::from_head(&self.worker, head);
        self.reject(state.client(), error, head.exchange(), &rejected, out)
    }

    /// Returns the way in which the body is received for this route.
    fn body_handling<'a>(
        &self,
        route_match: &RouteMatch<'_>,
        head: &RequestHead<'_>,
        rest: &'a [u8],
    ) -> Result<BodyHandling<'a>, PeerFault> {
        let limits = &self.app.limits;
        let RouteMatch::Route(route) = route_match else {
            let small = matches!(head.framing, Framing::Length(length) if length <= limits.discard_bytes);
            // A client that waits for `100 Continue` does not send the body now that the response is final, or sends it all the
            // same.
            if !small || head.expect_continue {
                return Ok(BodyHandling::Abandon);
            }
            if head.framing == Framing::Length(0) {
                return Ok(BodyHandling::Complete(&[], 0));
            }
            let http1 = h1::Limits {
                body_bytes: None,
                ..self.http1
            };
            return Ok(BodyHandling::Discard(BodyDecoder::new(head.framing, &http1)?));
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
            return Ok(BodyHandling::Stream(decoder));
        }
        if let Framing::Length(length) = head.framing
            && let Ok(length) = usize::try_from(length)
            && let Some(content) = rest.get(..length)
        {
            return Ok(BodyHandling::Complete(content, length));
        }
        Ok(BodyHandling::Aggregate(decoder))
    }

    /// Answers a request, with its task or in place.
    pub(super) fn serve(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        incoming: &IncomingRequest<'_>,
        buffers: &mut ReplyBuffers,
    ) -> NextAction {
        let head = incoming.head;
        let mut matched = self.match_route_in_time(state, incoming, &mut buffers.path);
        if let Some((factory, index)) = matched.route_match.task() {
            if let Some(phase) = self.try_fast_path(state, incoming, &matched, index) {
                state.phase = phase;
                return NextAction::Continue;
            }
            if let Some((exchange, serial)) = self.start_task(state, incoming, factory, index) {
                state.phase = ConnPhase::Running { exchange, serial };
                return NextAction::Continue;
            }
            self.worker.stats.rejected(Rejection::RunningRequests);
            let busy = Error::new(503, "too many concurrent requests");
            matched.route_match = RouteMatch::Invalid(Box::new(busy.with_header("Retry-After", "1")));
            // The body that would have been streamed is not read.
            state.last |= incoming.decoder.is_some_and(|body| !body.is_over());
        }
        let MatchedRequest {
            path,
            params,
            route_match,
        } = matched;
        let request = Request::new(
            head,
            path,
            params,
            incoming.content,
            &self.app,
            &self.worker,
            &route_match,
            state.peer,
            None,
        );
        let mut reply = Reply::new(&request, &mut buffers.fields, &mut buffers.body);
        response::run(&route_match, &request, &mut reply);
        if let Some(upgrade) = reply.upgrade.take() {
            return self.switch_to_websocket(conn, state, *upgrade, &mut reply, &mut buffers.out);
        }
        let mut exchange = head.exchange();
        exchange.keep_alive &= !state.last && !reply.closes_after;
        let rest = response::encode(&mut reply, exchange, &mut buffers.out);
        self.count_response(reply.status, state);
        self.worker
            .log(&request, reply.status, reply.sent, state.started_at);
        // A client that did not ask for `close` may have sent its next request already: with bytes unread the kernel would reset
        // the connection, and the response could be lost. Over TLS every client may still send its close_notify.
        let more_expected = incoming.unread || head.keep_alive || state.peer.secure;
        let next = match (exchange.keep_alive, more_expected) {
            (true, _) => NextAction::Continue,
            (false, true) => NextAction::Linger,
            (false, false) => NextAction::Close,
        };
        match rest {
            None => next,
            Some(rest) => self.start_sending_rest(conn, state, rest, next, &mut buffers.out),
        }
    }

    /// Matches a route, unless the request has waited too long in an overloaded worker.
    fn match_route_in_time<'a>(
        &'a self,
        state: &mut Connection,
        incoming: &IncomingRequest<'a>,
        scratch: &'a mut String,
    ) -> MatchedRequest<'a> {
        let mut matched = match_route(&self.app, incoming.head, scratch);
        if self.reject_if_late(&mut matched.route_match) {
            // The body that the handler would have read is not read.
            state.last |= incoming.decoder.is_some();
        }
        matched
    }

    /// Rejects a request that has waited too long in an overloaded worker, unless its route is urgent. Returns whether it is rejected.
    pub(super) fn reject_if_late(&self, route_match: &mut RouteMatch<'_>) -> bool {
        let is_rejected = self.is_late.get()
            && matches!(
                route_match,
                RouteMatch::Route(CompiledRoute { urgent: false, .. })
            );
        if is_rejected {
            *route_match = RouteMatch::Overloaded;
            self.worker.stats.rejected(Rejection::QueueDelay);
        }
        is_rejected
    }

    /// Hands a request to its task. `None`: the worker runs the maximum number of requests.
    fn start_task(
        &self,
        state: &Connection,
        incoming: &IncomingRequest<'_>,
        factory: &dyn TaskFactory,
        route: usize,
    ) -> Option<(Rc<Exchange>, u64)> {
        let pending_task = PendingTask {
            task_request: TaskRequest {
                peer: state.peer,
                started_at: state.started_at,
                last: state.last,
            },
            head: incoming.bytes,
            body: incoming.content,
            decoder: incoming.decoder,
            expects: incoming.head.expect_continue,
            http2: None,
        };
        factory.start(route, &self.app, &self.worker, pending_task)
    }

    /// Counts a response.
    pub(super) fn count_response(&self, status: u16, state: &Connection) {
        self.count_response_since(status, state.started_at);
    }

    /// Counts the response to a request that began at `started_at`.
    pub(super) fn count_response_since(&self, status: u16, started_at: Time) {
        self.worker.stats.answered(status);
        let until = self.until_sample.get();
        self.until_sample
            .set(until.checked_sub(1).unwrap_or(LATENCY_SAMPLE_INTERVAL - 1));
        if until == 0 {
            self.worker.stats.took(self.worker.cx.clock().since(started_at));
        }
    }

    /// Sends the rest of a response that was encoded without it, after the encoded part.
    fn start_sending_rest(
        &self,
        conn: Conn<'_>,
        state: &mut Connection,
        rest: Bytes,
        next: NextAction,
        out: &mut Vec<u8>,
    ) -> NextAction {
        self.flush(conn, state, out, NextAction::Wait);
        if conn.unsent() + rest.len() <= limits::SEND_CHUNK_BYTES {
            // Fails only when the connection is closed.
            let _ = conn.write_frame(rest);
            return next;
        }
        let unwanted = match std::mem::replace(&mut state.phase, ConnPhase::Head) {
            ConnPhase::Discarding(decoder) => Some(decoder),
            _ => None,
        };
        state.phase = ConnPhase::PendingResponse(Box::new(PendingResponse { rest, next, unwanted }));
        self.send_rest(conn, state);
        NextAction::Wait
    }
}

/// Matches a route. The path is normalized into `scratch` if necessary.
pub(super) fn match_route<'a>(
    app: &'a CompiledApp,
    head: &RequestHead<'a>,
    scratch: &'a mut String,
) -> MatchedRequest<'a> {
    let mut params = Params::new();
    if head.target == Target::Asterisk || head.target.path() == "*" {
        // RFC 9110 §9.3.7: a request about the server, not about one of its resources.
        let allow = "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS";
        return MatchedRequest {
            path: "*",
            params,
            route_match: RouteMatch::Options { allow },
        };
    }
    match path::normalise(head.target.path(), scratch) {
        Ok(path) => {
            let route_match = app.find(head.method, path, &mut params);
            MatchedRequest {
                path,
                params,
                route_match,
            }
        }
        Err(fault) => MatchedRequest {
            path: head.target.path(),
            params,
            route_match: RouteMatch::Invalid(Box::new(fault.into())),
        },
    }
}
