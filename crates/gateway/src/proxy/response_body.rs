//! The relay of a response body to the client, with back-pressure, and the timeouts of an exchange.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{BodyEvent, FieldBlock, Framing};

use super::body_decoder::ResponseDecoder;
use super::client_watch::ClientWatch;
use super::event_stream::{EventPosition, EventStreamDrain};
use super::filter_chain::FilterChain;
use super::grpc::GrpcWebEncoder;
use super::min_rate::MinRateCheck;
use super::trailers::TrailerFilter;
use super::{Failure, abort_response, filter_chain, log_fields};
use crate::fault::{Fault, Violation};
use crate::gateway::Worker;
use crate::limits;
use crate::model::Timeouts;
use crate::upstream::h2::H2Stream;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn, UpstreamPool};

/// The remaining time of an exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExchangeTimeouts {
    /// The deadline of the exchange.
    pub(super) total: Option<Time>,
    /// The deadline of this attempt's response head.
    pub(super) head: Option<Time>,
    /// The limit of time without a byte.
    pub(super) idle: Option<Duration>,
    /// Minimum rate of a response, bytes per second; 0: none.
    pub(super) rate: u32,
}

/// The rate of a response, over the time spent waiting for it: time in which the client causes back-pressure does not count.
#[derive(Debug, Default)]
pub(super) struct ResponseRate {
    waited: Duration,
    /// Bytes received in this time.
    received: u64,
}

impl ResponseRate {
    /// Returns how long to wait for the next bytes.
    fn wait_left(&self, rate: u32) -> Duration {
        let due = Duration::from_secs_f64(self.received as f64 / f64::from(rate));
        (limits::ANSWER_RATE_GRACE + due).saturating_sub(self.waited)
    }

    /// Records bytes received after such a wait. A window that met the rate is followed by a new one: a fast start does not compensate for
    /// a slow remainder.
    fn record(&mut self, waited: Duration, bytes: u64) {
        self.waited += waited;
        self.received += bytes;
        if self.waited > limits::ANSWER_RATE_GRACE + limits::ANSWER_RATE_WINDOW {
            *self = ResponseRate::default();
        }
    }
}

impl ExchangeTimeouts {
    /// Starts the clock of a request.
    pub(super) fn start(timeouts: &Timeouts, now: Time) -> ExchangeTimeouts {
        ExchangeTimeouts {
            total: timeouts.request.map(|span| now.after(span)),
            head: None,
            idle: timeouts.idle,
            rate: timeouts.minimum_rate,
        }
    }

    /// Returns the time limits of an attempt that starts at `now`.
    pub(super) fn for_attempt(&self, timeouts: &Timeouts, now: Time) -> ExchangeTimeouts {
        ExchangeTimeouts {
            head: timeouts.per_try.map(|span| now.after(span)),
            ..*self
        }
    }

    /// Returns how long to wait for the upstream.
    pub(super) fn wait_limit(&self, now: Time) -> Option<Duration> {
        let remaining = |at: Time| at.since(now).max(Duration::from_millis(1));
        [self.total.map(remaining), self.head.map(remaining), self.idle]
            .into_iter()
            .flatten()
            .min()
    }

    /// Extends the deadline of an attempt by a time spent waiting for the client.
    pub(super) fn extend_attempt(&mut self, span: Duration) {
        self.head = self.head.map(|at| at.after(span));
    }

    /// Returns the fault for an expired wait.
    pub(super) fn expiry_fault(&self, now: Time, fault: Fault) -> Fault {
        if self.total.is_some_and(|at| now >= at) {
            Fault::RequestTimeout
        } else {
            fault
        }
    }
}

/// A response body that is relayed to the client.
pub(super) struct ResponseRelay {
    pub(super) pool: Rc<UpstreamPool>,
    pub(super) endpoint: SelectedEndpoint,
    pub(super) conn: UpstreamConn,
    pub(super) body: ResponseBody,
    pub(super) timeouts: ExchangeTimeouts,
    /// The listener's minimum rate of the client, bytes per second.
    pub(super) client_rate: u32,
}

/// The state of a response body.
pub(super) struct ResponseBody {
    decoder: ResponseDecoder,
    /// The filter of the trailers, if the client accepts any.
    trailer_filter: Option<TrailerFilter>,
    /// Set if the client speaks gRPC-Web.
    grpc_web: Option<GrpcWebEncoder>,
    /// Set if it is an event stream.
    events: Option<EventPosition>,
    /// Bytes received, framing included.
    received: u64,
    /// The trailers to forward.
    trailers: Option<FieldBlock>,
    /// The parts that filters have not processed yet, if there are filters.
    unfiltered: Option<Box<UnfilteredParts>>,
    /// Set if the connection may be pooled.
    pub(super) keep_alive: bool,
    pub(super) is_finished: bool,
    /// Set if the rest of the request body is not sent, or of the response not received: the connection is closed then.
    pub(super) is_request_aborted: bool,
    /// The rule that the upstream violated, after a fault.
    pub(super) detail: Option<Box<Violation>>,
}

/// The parts of a response that filters have not processed yet.
#[derive(Default)]
pub(super) struct UnfilteredParts {
    /// The framing of its head.
    pub(super) framing: Option<Framing>,
    /// Bytes of its body.
    pub(super) bytes: Vec<u8>,
    /// The trailers to forward.
    pub(super) trailers: Option<FieldBlock>,
}

impl ResponseBody {
    pub(super) fn new(
        decoding: ResponseDecoder,
        keep_alive: bool,
        trailer_filter: Option<TrailerFilter>,
        web: Option<GrpcWebEncoder>,
        events: Option<EventPosition>,
    ) -> ResponseBody {
        ResponseBody {
            events,
            grpc_web: web,
            is_finished: decoding.is_finished(),
            decoder: decoding,
            trailer_filter,
            received: 0,
            trailers: None,
            unfiltered: None,
            keep_alive,
            is_request_aborted: false,
            detail: None,
        }
    }

    /// Passes head and body to filters, instead of putting the body into the reply.
    pub(super) fn enable_filters(&mut self, framing: Framing) {
        self.unfiltered = Some(Box::new(UnfilteredParts {
            framing: Some(framing),
            ..UnfilteredParts::default()
        }));
    }

    /// Takes the parts that filters have not processed yet.
    pub(super) fn take_unfiltered(&mut self) -> UnfilteredParts {
        self.unfiltered
            .as_deref_mut()
            .map(std::mem::take)
            .unwrap_or_default()
    }

    /// Relays bytes of the body, up to [`limits::RELAY_SHARE`]. Returns the number consumed.
    pub(super) fn feed(&mut self, bytes: &[u8], reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        self.feed_share(bytes, limits::RELAY_SHARE, reply)
    }

    /// Relays bytes of the body, up to a share that is smaller while many clients are slow.
    fn feed_limited(&mut self, bytes: &[u8], cx: &Cx, reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        let share = cx.write_mark().min(limits::RELAY_SHARE);
        match self.feed_share(bytes, share, reply) {
            // A line that is longer than the share is consumed as a whole.
            (0, Ok(())) if bytes.len() > share && !self.is_finished => self.feed(bytes, reply),
            fed => fed,
        }
    }

    fn feed_share(
        &mut self,
        bytes: &[u8],
        share: usize,
        reply: &mut Reply<'_>,
    ) -> (usize, Result<(), Failure>) {
        let all = bytes.len();
        let bytes = &bytes[..all.min(share)];
        let mut consumed = 0;
        loop {
            let ResponseDecoder::Http1(decoder) = &mut self.decoder else {
                return self.feed_h2(bytes, reply);
            };
            let step = match decoder.decode(&bytes[consumed..]) {
                Ok(step) => step,
                Err(fault) => {
                    self.detail = Some(Violation::from_http1(&fault));
                    let fault = if fault.status() == 413 {
                        Fault::ResponseTooLarge
                    } else {
                        Fault::GarbageBody
                    };
                    return (consumed, Err(fault.into()));
                }
            };
            consumed += step.consumed;
            self.received += step.consumed as u64;
            match step.event {
                BodyEvent::Data(data) => {
                    if let Some(events) = &mut self.events {
                        events.advance(data);
                    }
                    if let Err(failure) = put_piece(&mut self.unfiltered, self.grpc_web, data, reply) {
                        return (consumed, Err(failure));
                    }
                }
                BodyEvent::Trailers(trailers) => {
                    self.trailers = self
                        .trailer_filter
                        .as_ref()
                        .map(|trailer_filter| trailer_filter.filter_response(&trailers));
                }
                BodyEvent::NeedMore if !self.decoder.is_finished() => return (consumed, Ok(())),
                BodyEvent::NeedMore | BodyEvent::End => {
                    // Bytes after a whole response belong to no request.
                    self.keep_alive &= consumed == all;
                    self.is_finished = true;
                    return (consumed, self.relay_trailers(reply));
                }
            }
        }
    }

    /// Completes the response for the client, whatever the upstream would still send.
    fn end_early(&mut self) {
        self.is_finished = true;
        self.is_request_aborted = true;
    }

    /// Relays bytes of a framed body.
    fn feed_h2(&mut self, bytes: &[u8], reply: &mut Reply<'_>) -> (usize, Result<(), Failure>) {
        if let ResponseDecoder::H2 {
            remaining: Some(remaining),
            ..
        } = &mut self.decoder
        {
            let Some(reduced) = remaining.checked_sub(bytes.len() as u64) else {
                return (0, Err(Fault::ResponseTooLarge.into()));
            };
            *remaining = reduced;
        }
        self.received += bytes.len() as u64;
        if let Some(events) = &mut self.events {
            events.advance(bytes);
        }
        let result = put_piece(&mut self.unfiltered, self.grpc_web, bytes, reply);
        (bytes.len(), result)
    }

    /// Relays received bytes, or waits for some.
    pub(super) fn poll_relay(
        &mut self,
        conn: &UpstreamConn,
        clock: &ExchangeTimeouts,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        match conn {
            UpstreamConn::Http1(pooled) => self.poll_http1(&pooled.stream, clock, reply, context),
            UpstreamConn::H2(channel) => self.poll_h2(channel, clock, reply, context),
        }
    }

    /// Relays bytes of the upstream, or waits for some; not longer than `limit`.
    async fn relay_some(
        &mut self,
        (conn, clock): (&UpstreamConn, &ExchangeTimeouts),
        limit: Option<Duration>,
        client: &mut ClientWatch<'_, '_>,
        drain: &mut Option<EventStreamDrain>,
        reply: &mut Reply<'_>,
    ) -> Result<(), Failure> {
        conn.set_deadline(limit);
        client.has_ended = false;
        poll_fn(|context| {
            if let (Some(drain), Some(position)) = (&mut *drain, self.events)
                && drain.poll_end(position, context).is_ready()
            {
                self.end_early();
                return Poll::Ready(Ok(()));
            }
            match self.poll_relay(conn, clock, reply, context) {
                Poll::Pending if client.poll_end(context) => {}
                polled => return polled,
            }
            if self.events.is_some() {
                return Poll::Ready(Err(Fault::BodyTimeout.into()));
            }
            let silence = limits::HALF_CLOSED_SILENCE;
            conn.set_deadline(Some(limit.map_or(silence, |limit| limit.min(silence))));
            // So that the deadline is observed.
            self.poll_relay(conn, clock, reply, context)
        })
        .await
    }

    fn poll_h2(
        &mut self,
        channel: &H2Stream,
        clock: &ExchangeTimeouts,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let mut outcome = Ok(());
        let polled = channel.poll_body(context, |bytes| {
            let (consumed, fed) = self.feed_limited(bytes, channel.cx(), reply);
            outcome = fed;
            consumed
        });
        let error = match polled {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(Some(_))) if outcome.is_err() || !channel.is_finished() => {
                return Poll::Ready(outcome);
            }
            Poll::Ready(Ok(_)) => {
                self.is_finished = true;
                let trailers = channel.take_trailers();
                self.trailers = match (&self.trailer_filter, trailers) {
                    (Some(trailer_filter), Some(trailers)) => Some(trailer_filter.filter_request(&trailers)),
                    _ => None,
                };
                return Poll::Ready(self.relay_trailers(reply));
            }
            Poll::Ready(Err(error)) => error,
        };
        self.detail = error.detail();
        let fault = error.fault_in_body(|| clock.expiry_fault(channel.cx().now(), Fault::BodyTimeout));
        Poll::Ready(Err(fault.into()))
    }

    /// Relays the trailers after the end of the body.
    fn relay_trailers(&mut self, reply: &mut Reply<'_>) -> Result<(), Failure> {
        let trailers = self.trailers.take();
        if let Some(web) = self.grpc_web {
            let end = web.encode_trailers(trailers.as_ref());
            return put_piece(&mut self.unfiltered, None, &end, reply);
        }
        match (&mut self.unfiltered, trailers) {
            (Some(filtered), trailers) => filtered.trailers = trailers,
            (None, Some(trailers)) => reply.set_trailers(trailers),
            (None, None) => {}
        }
        Ok(())
    }

    fn poll_http1(
        &mut self,
        stream: &Stream,
        clock: &ExchangeTimeouts,
        reply: &mut Reply<'_>,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), Failure>> {
        let mut outcome = Ok(());
        let received = stream.poll_received(context, |bytes| {
            let (consumed, fed) = self.feed_limited(bytes, stream.cx(), reply);
            outcome = fed;
            consumed
        });
        match (received, outcome) {
            (_, Err(failure)) => Poll::Ready(Err(failure)),
            _ if self.is_finished => Poll::Ready(Ok(())),
            (Poll::Ready(Ok(0)), _) => {
                self.keep_alive = false;
                self.is_finished = true;
                // TLS signals the end (close_notify): without it an attacker may have truncated the body.
                if stream.was_cut() {
                    return Poll::Ready(Err(Fault::BodyCut.into()));
                }
                let end = match &mut self.decoder {
                    ResponseDecoder::Http1(decoder) => decoder.end_of_input().is_ok(),
                    ResponseDecoder::H2 { .. } => false,
                };
                Poll::Ready(end.then_some(()).ok_or(Fault::BodyCut.into()))
            }
            (Poll::Ready(Ok(_)), _) => Poll::Ready(Ok(())),
            (Poll::Ready(Err(error)), _) => Poll::Ready(Err(body_fault(&error, clock, stream.cx()).into())),
            (Poll::Pending, _) => Poll::Pending,
        }
    }
}

/// Passes a piece of a body to the filters if there are any, else to the client.
fn put_piece(
    filtered: &mut Option<Box<UnfilteredParts>>,
    web: Option<GrpcWebEncoder>,
    bytes: &[u8],
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let wrapped = web.map(|web| web.piece(bytes));
    let bytes = wrapped.as_deref().unwrap_or(bytes);
    match filtered {
        Some(filtered) => filtered.bytes.extend_from_slice(bytes),
        None => reply.write_buffered(bytes)?,
    }
    Ok(())
}

fn body_fault(error: &io::Error, clock: &ExchangeTimeouts, cx: &Cx) -> Fault {
    match error.kind() {
        io::ErrorKind::TimedOut => clock.expiry_fault(cx.now(), Fault::BodyTimeout),
        _ => Fault::BodyCut,
    }
}

/// Waits until the client has received enough of the response. While other requests wait for the upstream, its rate must rise.
async fn flush_client(
    worker: &Worker,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
    contention: &mut MinRateCheck<'_>,
) -> Result<(), Failure> {
    let mut flush = pin!(reply.flush());
    let mut sleep = None;
    poll_fn(|context| {
        if let Poll::Ready(flushed) = flush.as_mut().poll(context) {
            return Poll::Ready(flushed.map_err(Failure::from));
        }
        loop {
            let timer = sleep.get_or_insert_with(|| worker.cx.sleep(limits::CONTENDED_LOOK));
            ready!(Pin::new(timer).poll(context));
            sleep = None;
            if contention.is_too_slow(req.response_bytes_sent()) {
                return Poll::Ready(Err(Fault::ClientTooSlow.into()));
            }
        }
    })
    .await
}

impl ResponseRelay {
    /// Relays the rest of the body. A fault is logged, and aborts the response.
    pub(super) async fn run(
        self,
        worker: &Rc<Worker>,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
        chain: Option<&FilterChain>,
    ) -> Result<(), Error> {
        match self.relay_rest(worker, req, reply, chain).await {
            Ok(()) => Ok(()),
            Err(Failure::Fault(fault)) => {
                log_fields::log_fault(worker, req, fault);
                abort_response(req, reply, fault)
            }
            Err(Failure::Web(error)) => Err(error),
            Err(Failure::FilterResponse(_)) => Err(filter_chain::late_response_error()),
        }
    }

    /// Relays the rest of the body. The caller handles faults.
    pub(super) async fn relay_rest(
        mut self,
        worker: &Rc<Worker>,
        req: &Request<'_>,
        reply: &mut Reply<'_>,
        chain: Option<&FilterChain>,
    ) -> Result<(), Failure> {
        let mut contention = MinRateCheck::new(&self.pool.upstream, self.client_rate);
        let mut response_rate = ResponseRate::default();
        let rate = self.timeouts.rate;
        // Set if the rate's time had expired when the last bytes arrived, which were consumed first.
        let mut was_late = false;
        let mut drain = self.body.events.map(|_| EventStreamDrain::new(&worker.cx));
        let mut client = ClientWatch::new(req);
        loop {
            // The server enforces the client's own rate.
            self.conn.set_deadline(None);
            flush_client(worker, req, reply, &mut contention).await?;
            let (started_at, came) = (worker.cx.now(), self.body.received);
            let span = self.timeouts.wait_limit(started_at);
            let remaining = (rate > 0).then(|| response_rate.wait_left(rate).max(Duration::from_millis(1)));
            let limit = [span, remaining].into_iter().flatten().min();
            let upstream = (&self.conn, &self.timeouts);
            let relaying = self
                .body
                .relay_some(upstream, limit, &mut client, &mut drain, reply);
            let step = relaying.await;
            let waited = worker.cx.now().since(started_at);
            response_rate.record(waited, self.body.received - came);
            let is_late = remaining
                .is_some_and(|remaining| waited >= remaining && span.is_none_or(|span| remaining < span));
            match step {
                Err(Failure::Fault(Fault::BodyTimeout)) if client.has_ended => {
                    client.abort();
                    // Fails: the client has left.
                    return flush_client(worker, req, reply, &mut contention).await;
                }
                Err(Failure::Fault(Fault::BodyTimeout)) if is_late || was_late => {
                    return Err(self.record_fault(worker, req, Fault::BodyTooSlow));
                }
                Ok(()) => {}
                Err(Failure::Fault(fault)) => return Err(self.record_fault(worker, req, fault)),
                Err(failure) => return Err(failure),
            }
            if let Some(chain) = chain {
                self.conn.set_deadline(None);
                Box::pin(chain.filter_received(req, &mut self.body, reply)).await?;
            }
            if self.body.is_finished {
                self.finish(worker);
                return Ok(());
            }
            was_late = is_late;
        }
    }

    /// Records a fault within the body.
    fn record_fault(&mut self, worker: &Worker, req: &Request<'_>, fault: Fault) -> Failure {
        let (upstream, addr) = (&self.pool.upstream, &self.endpoint.endpoint.endpoint.addr);
        self.pool.count_fault(fault);
        if let Some(detail) = self.body.detail.take() {
            log_fields::log_violation(worker, req, &upstream.name, addr, &detail);
        }
        fault.into()
    }

    /// Finishes a response. Its connection is pooled if the whole request was sent.
    pub(super) fn finish(self, worker: &Rc<Worker>) {
        if self.body.is_request_aborted {
            return self.conn.discard();
        }
        worker.pool_conn(
            &self.pool,
            &self.endpoint.endpoint,
            self.conn,
            self.body.keep_alive,
        );
    }
}

impl Worker {
    /// Finishes the use of a connection after a whole response. It is pooled if the response allows that and the whole request was sent.
    pub(super) fn pool_conn(
        self: &Rc<Self>,
        pool: &UpstreamPool,
        endpoint: &Rc<PoolEndpoint>,
        conn: UpstreamConn,
        keep_alive: bool,
    ) {
        match conn {
            UpstreamConn::Http1(conn) if keep_alive && conn.stream.unsent() == 0 => {
                pool.release(endpoint, conn);
                self.start_sweeping();
            }
            _ => {}
        }
    }
}
