//! Mirrored requests. They never affect the original request: they start after its response has started, wait for none of its resources,
//! and are limited in number.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use ringmain_engine::backend::Time;
use ringmain_web::{Method, Request};
use ringmain_wire::h1::{
    BodyDecoder, BodyEvent, FieldBlock, FieldTable, Framing, HeadScanner, Limits, Parsed, RequestEncoder,
    parse_response,
};

use super::RequestRoute;
use super::backend::{ClearedRequest, client_addresses};
use super::grpc;
use super::replay_buffer::ReplayBuffer;
use super::request::{self, UpstreamRequest};
use crate::compile::plan::MirrorTarget;
use crate::gateway::Worker;
use crate::limits;
use crate::model::{Mirror, Rewrite};
use crate::upstream::h2::{H2Request, H2ResponsePart, H2Stream, send_request};
use crate::upstream::pool::{PooledConnection, SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, MirrorOutcome, RequestPermit};

/// A mirrored request in flight.
struct MirrorRequest {
    worker: Rc<Worker>,
    pool: Rc<UpstreamPool>,
    endpoint: SelectedEndpoint,
    preamble: Vec<u8>,
    message: MirrorMessage,
    is_head: bool,
    until: Time,
    outcome: MirrorResult,
    _permit: RequestPermit,
    _slot: MirrorSlot,
}

/// The message, head and body.
enum MirrorMessage {
    /// Encoded for HTTP/1.1.
    Encoded(Vec<u8>),
    /// In parts, since the protocol is known only after connecting.
    Parts(Box<MessageParts>),
}

struct MessageParts {
    method: String,
    target: String,
    authority: String,
    fields: FieldBlock,
    body: Option<Vec<u8>>,
}

/// The outcome of a mirrored request, counted when this is dropped.
struct MirrorResult {
    pool: Rc<UpstreamPool>,
    outcome: Cell<MirrorOutcome>,
}

impl Drop for MirrorResult {
    fn drop(&mut self) {
        self.pool.upstream.counters.0.count_mirror(self.outcome.get());
    }
}

/// A slot in the worker's limit of mirrored requests.
struct MirrorSlot(Rc<Worker>);

impl MirrorSlot {
    fn new(worker: &Rc<Worker>) -> Option<MirrorSlot> {
        let count: &Cell<u32> = &worker.mirrors_in_flight;
        (count.get() < limits::MIRRORS).then(|| {
            count.set(count.get() + 1);
            MirrorSlot(Rc::clone(worker))
        })
    }
}

impl Drop for MirrorSlot {
    fn drop(&mut self) {
        self.0.mirrors_in_flight.set(self.0.mirrors_in_flight.get() - 1);
    }
}

/// Sends the mirrored requests of a rule, if the original is complete.
pub(super) fn send_mirrors(
    worker: &Rc<Worker>,
    route: &RequestRoute<'_>,
    request: ClearedRequest<'_, '_>,
    replay: &ReplayBuffer,
) {
    for (mirror, mirrored) in request.rule.mirrors.iter().zip(&request.plan.mirrors) {
        let random = worker.cx.random() % u64::from(mirror.share.of.max(1));
        if random >= u64::from(mirror.share.part) {
            continue;
        }
        if let Some(copy) = prepare_mirror(worker, route, request, mirror, mirrored, replay)
            && worker.cx.spawn(copy.run_until_draining()).is_err()
        {
            log::debug!("{:?}: no task is available for the mirrored request", request.req);
        }
    }
}

/// Prepares a mirrored request. `None`: a limit is reached, or there is no endpoint, and that is counted.
fn prepare_mirror(
    worker: &Rc<Worker>,
    route: &RequestRoute<'_>,
    request: ClearedRequest<'_, '_>,
    mirror: &Mirror,
    mirrored: &MirrorTarget,
    replay: &ReplayBuffer,
) -> Option<MirrorRequest> {
    let req = request.req;
    // Without an upstream nothing is sent, which was reported for the configuration.
    let pool = worker.pool(mirrored.upstream.as_ref()?);
    let result = MirrorResult {
        pool: Rc::clone(&pool),
        outcome: Cell::new(MirrorOutcome::Overloaded),
    };
    let body = match req.head().framing {
        Framing::None => None,
        _ => {
            result.outcome.set(MirrorOutcome::BodyTooLarge);
            let complete_body = replay.complete_body(mirror.body_bytes)?;
            result.outcome.set(MirrorOutcome::Overloaded);
            Some(complete_body)
        }
    };
    let counted = MirrorSlot::new(worker)?;
    let admitted = pool.admit_request().ok()?;
    result.outcome.set(MirrorOutcome::NoEndpoint);
    let selected = pool.select(&[], None, AffinityHint::None).ok()?;
    pool.count_attempt();
    result.outcome.set(MirrorOutcome::Failed);
    let sending = UpstreamRequest {
        listener: route.listener,
        changes: &mirrored.request,
        cleared: request.cleared,
        rule: &request.rule.rewrite,
        backend: &Rewrite::default(),
        prefix: route.matched.prefix(),
        decoded: route.decoded_path.clone(),
        upgrade: None,
        challenge: None,
        trailers: false,
        grpc_web: grpc::grpc_web_type(request.rule, req),
    };
    let body = body.as_deref();
    let message = if pool.can_acquire_now() && !pool.may_multiplex() {
        encode_http1(worker, req, &selected, &sending, body)
    } else {
        build_parts(worker, req, &selected, &sending, body)
    }?;
    // Counted if no task is available, which drops it.
    result.outcome.set(MirrorOutcome::Overloaded);
    Some(MirrorRequest {
        preamble: pool.proxy_header(|| client_addresses(req)),
        worker: Rc::clone(worker),
        pool,
        endpoint: selected,
        outcome: result,
        message,
        is_head: req.method() == Method::Head,
        until: worker.cx.now().after(limits::MIRROR_TIME),
        _permit: admitted,
        _slot: counted,
    })
}

fn encode_http1(
    worker: &Worker,
    req: &Request<'_>,
    selected: &SelectedEndpoint,
    sending: &UpstreamRequest<'_>,
    body: Option<&[u8]>,
) -> Option<MirrorMessage> {
    let scratch = &mut *worker.scratch.borrow_mut();
    scratch.out.clear();
    let written = request::write_head(scratch, req, &selected.endpoint.endpoint, sending);
    let mut bytes = std::mem::take(&mut scratch.out);
    let mut encoder = written.ok()?;
    if let Some(body) = body {
        encoder.data(&mut bytes, body).ok()?;
    }
    encoder.finish(&mut bytes).ok()?;
    Some(MirrorMessage::Encoded(bytes))
}

fn build_parts(
    worker: &Worker,
    req: &Request<'_>,
    selected: &SelectedEndpoint,
    sending: &UpstreamRequest<'_>,
    body: Option<&[u8]>,
) -> Option<MirrorMessage> {
    let scratch = &mut *worker.scratch.borrow_mut();
    let (framing, authority) =
        request::compose_head(scratch, req, &selected.endpoint.endpoint, sending).ok()?;
    let target = if scratch.host.is_empty() {
        req.target()
    } else {
        &scratch.host
    };
    let body = match framing {
        Framing::None => None,
        _ => Some(body.unwrap_or_default().to_vec()),
    };
    Some(MirrorMessage::Parts(Box::new(MessageParts {
        method: req.method().as_str().to_owned(),
        target: target.to_owned(),
        authority: authority.to_owned(),
        fields: std::mem::take(&mut scratch.fields),
        body,
    })))
}

impl MessageParts {
    /// Encodes the parts for HTTP/1.1.
    fn encode(&self) -> Option<Vec<u8>> {
        let mut out = Vec::new();
        let method = Method::new(&self.method);
        let mut head = RequestEncoder::new(&mut out, method, &self.target, &self.authority).ok()?;
        head.block(&self.fields);
        let framing = match &self.body {
            None => Framing::None,
            Some(body) => Framing::Length(body.len() as u64),
        };
        let mut encoder = head.finish(framing, true).ok()?;
        if let Some(body) = &self.body {
            encoder.data(&mut out, body).ok()?;
        }
        encoder.finish(&mut out).ok()?;
        Some(out)
    }
}

impl MirrorRequest {
    /// Sends the request; a shutdown does not wait for it.
    async fn run_until_draining(self) {
        let cx = self.worker.cx.clone();
        let mut draining = pin!(cx.draining());
        let mut run = pin!(self.send());
        poll_fn(|context| {
            if draining.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            run.as_mut().poll(context)
        })
        .await;
    }

    /// Sends the request and discards the response.
    async fn send(self) {
        self.outcome.outcome.set(MirrorOutcome::Failed);
        let span = self.pool.connect_timeout().min(limits::MIRROR_TIME);
        let conn = self
            .worker
            .acquire_conn(&self.pool, &self.endpoint.endpoint, false, &self.preamble, span)
            .await;
        match (conn, &self.message) {
            (Ok(UpstreamConn::Http1(pooled)), MirrorMessage::Encoded(bytes)) => {
                self.send_over_http1(pooled, bytes).await
            }
            (Ok(UpstreamConn::Http1(pooled)), MirrorMessage::Parts(message)) => {
                if let Some(bytes) = message.encode() {
                    self.send_over_http1(pooled, &bytes).await;
                }
            }
            (Ok(UpstreamConn::H2(channel)), MirrorMessage::Parts(message)) => {
                self.send_over_h2(&channel, message).await
            }
            // The upstream's protocol has changed since.
            (Ok(UpstreamConn::H2(_)), MirrorMessage::Encoded(_)) | (Err(_), _) => {}
        }
    }

    async fn send_over_h2(&self, channel: &H2Stream, message: &MessageParts) {
        channel.set_deadline(Some(self.until.since(self.worker.cx.now())));
        let request = H2Request {
            method: Method::new(&message.method),
            target: &message.target,
            authority: &message.authority,
            fields: &message.fields,
            body: message.body.as_deref(),
        };
        let mut table = FieldTable::new(&self.worker.scratch.borrow().limits);
        let mut remaining = limits::MIRROR_ANSWER_BYTES;
        let heard = send_request(channel, &request, &mut table, |heard| {
            self.outcome.outcome.set(MirrorOutcome::Sent);
            if let H2ResponsePart::Body(bytes) = heard {
                remaining = remaining.saturating_sub(bytes.len() as u64);
            }
            remaining > 0
        });
        if let Err((error, _)) = heard.await {
            log::debug!("the response to a mirrored request was aborted: {error:?}");
        }
    }

    async fn send_over_http1(&self, conn: PooledConnection, bytes: &[u8]) {
        let stream = &conn.stream;
        stream.set_deadline(Some(self.until.since(self.worker.cx.now())));
        if stream.write_all(bytes).await.is_err() {
            return;
        }
        self.outcome.outcome.set(MirrorOutcome::Sent);
        let mut response = DiscardedResponse::new(self.is_head);
        while !response.is_finished {
            let received =
                poll_fn(|context| stream.poll_received(context, |bytes| response.feed(bytes, &self.worker)));
            if !matches!(received.await, Ok(count) if count > 0) || response.is_broken {
                return;
            }
        }
        if response.keep_alive {
            self.pool.release(&self.endpoint.endpoint, conn);
            self.worker.start_sweeping();
        }
    }
}

/// A discarded response, read so that its connection can be pooled.
struct DiscardedResponse {
    scanner: HeadScanner,
    method: Method<'static>,
    body: Option<BodyDecoder>,
    keep_alive: bool,
    is_finished: bool,
    is_broken: bool,
}

impl DiscardedResponse {
    fn new(is_head: bool) -> DiscardedResponse {
        DiscardedResponse {
            scanner: HeadScanner::new(),
            method: if is_head { Method::Head } else { Method::Get },
            body: None,
            keep_alive: false,
            is_finished: false,
            is_broken: false,
        }
    }

    /// Processes received bytes. Returns the number consumed.
    fn feed(&mut self, bytes: &[u8], worker: &Worker) -> usize {
        let mut consumed = 0;
        while self.body.is_none() && !self.is_broken {
            let scratch = &mut *worker.scratch.borrow_mut();
            let limits = Limits {
                body_bytes: Some(limits::MIRROR_ANSWER_BYTES),
                ..scratch.limits
            };
            let rest = &bytes[consumed..];
            match parse_response(rest, self.method, &limits, &mut self.scanner, &mut scratch.table) {
                Ok(Parsed::Complete { head, bytes }) => {
                    consumed += bytes;
                    self.is_broken = head.switches;
                    if !head.is_interim() {
                        self.keep_alive = head.keep_alive;
                        self.body = BodyDecoder::new(head.framing, &limits).ok();
                        self.is_broken |= self.body.is_none();
                    }
                }
                Ok(Parsed::Partial) => return consumed,
                Err(_) => self.is_broken = true,
            }
        }
        let Some(decoder) = self.body.as_mut().filter(|_| !self.is_broken) else {
            return bytes.len();
        };
        loop {
            match decoder.decode(&bytes[consumed..]) {
                Err(_) => self.is_broken = true,
                Ok(step) => {
                    consumed += step.consumed;
                    self.is_finished = decoder.is_over();
                    let more = matches!(step.event, BodyEvent::Data(_) | BodyEvent::Trailers(_));
                    if more && !self.is_finished {
                        continue;
                    }
                }
            }
            self.keep_alive &= consumed == bytes.len();
            return if self.is_broken || self.is_finished {
                bytes.len()
            } else {
                consumed
            };
        }
    }
}
