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

use super::Found;
use super::backend::addresses;
use super::grpc;
use super::replay_buffer::ReplayBuffer;
use super::request::{self, Sending};
use crate::compile::plan::{Mirrored, Plan};
use crate::gateway::Worker;
use crate::limits;
use crate::model::{Forward, Mirror, Rewrite};
use crate::policy::Cleared;
use crate::upstream::h2::{H2Request, H2ResponsePart, H2Stream, send_request};
use crate::upstream::pool::{PooledConnection, SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, MirrorOutcome, RequestPermit};

/// A mirrored request in flight.
struct Copy {
    worker: Rc<Worker>,
    local: Rc<UpstreamPool>,
    chosen: SelectedEndpoint,
    greeting: Vec<u8>,
    message: Message,
    is_head: bool,
    until: Time,
    became: Became,
    _admitted: RequestPermit,
    _counted: Counted,
}

/// The message, head and body.
enum Message {
    /// Encoded for HTTP/1.1.
    Bytes(Vec<u8>),
    /// In parts, since the protocol is known only after connecting.
    Parts(Box<Parts>),
}

struct Parts {
    method: String,
    target: String,
    authority: String,
    fields: FieldBlock,
    body: Option<Vec<u8>>,
}

/// The outcome of a mirrored request, counted when this is dropped.
struct Became {
    local: Rc<UpstreamPool>,
    what: Cell<MirrorOutcome>,
}

impl Drop for Became {
    fn drop(&mut self) {
        self.local.upstream.counters.0.count_mirror(self.what.get());
    }
}

/// A slot in the worker's limit of mirrored requests.
struct Counted(Rc<Worker>);

impl Counted {
    fn new(worker: &Rc<Worker>) -> Option<Counted> {
        let count: &Cell<u32> = &worker.mirroring;
        (count.get() < limits::MIRRORS).then(|| {
            count.set(count.get() + 1);
            Counted(Rc::clone(worker))
        })
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.mirroring.set(self.0.mirroring.get() - 1);
    }
}

/// Sends the mirrored requests of a rule, if the original is complete.
pub(super) fn send(
    worker: &Rc<Worker>,
    found: &Found<'_>,
    cleared: &Cleared,
    plan: &Plan,
    forward: &Forward,
    req: &Request<'_>,
    kept: &ReplayBuffer,
) {
    for (mirror, mirrored) in forward.mirrors.iter().zip(&plan.mirrors) {
        let drawn = worker.cx.random() % u64::from(mirror.share.of.max(1));
        if drawn >= u64::from(mirror.share.part) {
            continue;
        }
        if let Some(copy) = prepare(worker, found, cleared, (mirror, mirrored), forward, req, kept)
            && worker.cx.spawn(copy.run_until_draining()).is_err()
        {
            log::debug!("{req:?}: no task is available for the mirrored request");
        }
    }
}

/// Prepares a mirrored request. `None`: a limit is reached, or there is no endpoint, and that is counted.
fn prepare(
    worker: &Rc<Worker>,
    found: &Found<'_>,
    cleared: &Cleared,
    (mirror, mirrored): (&Mirror, &Mirrored),
    forward: &Forward,
    req: &Request<'_>,
    kept: &ReplayBuffer,
) -> Option<Copy> {
    // Without an upstream nothing is sent, which was reported for the configuration.
    let local = worker.local(mirrored.upstream.as_ref()?);
    let became = Became {
        local: Rc::clone(&local),
        what: Cell::new(MirrorOutcome::Overloaded),
    };
    let body = match req.head().framing {
        Framing::None => None,
        _ => {
            became.what.set(MirrorOutcome::BodyTooLarge);
            let whole = kept.whole(mirror.body_bytes)?;
            became.what.set(MirrorOutcome::Overloaded);
            Some(whole)
        }
    };
    let counted = Counted::new(worker)?;
    let admitted = local.admit_request().ok()?;
    became.what.set(MirrorOutcome::NoEndpoint);
    let chosen = local.select(&[], None, AffinityHint::None).ok()?;
    became.what.set(MirrorOutcome::Failed);
    let sending = Sending {
        listener: found.listener,
        changes: &mirrored.request,
        cleared,
        rule: &forward.rewrite,
        backend: &Rewrite::default(),
        prefix: found.matched.prefix(),
        decoded: found.decoded.clone(),
        upgrade: None,
        challenge: None,
        trailers: false,
        web: grpc::web(forward, req),
    };
    let body = body.as_deref();
    let message = match local.can_acquire_now() && !local.may_multiplex() {
        true => bytes(worker, req, &chosen, &sending, body),
        false => parts(worker, req, &chosen, &sending, body),
    }?;
    // Counted if no task is available, which drops it.
    became.what.set(MirrorOutcome::Overloaded);
    Some(Copy {
        greeting: local.proxy_header(|| addresses(req)),
        worker: Rc::clone(worker),
        local,
        chosen,
        became,
        message,
        is_head: req.method() == Method::Head,
        until: worker.cx.now().after(limits::MIRROR_TIME),
        _admitted: admitted,
        _counted: counted,
    })
}

fn bytes(
    worker: &Worker,
    req: &Request<'_>,
    chosen: &SelectedEndpoint,
    sending: &Sending<'_>,
    body: Option<&[u8]>,
) -> Option<Message> {
    let desk = &mut *worker.desk.borrow_mut();
    desk.out.clear();
    let written = request::write(desk, req, &chosen.endpoint.endpoint, sending);
    let mut bytes = std::mem::take(&mut desk.out);
    let mut encoder = written.ok()?;
    if let Some(body) = body {
        encoder.data(&mut bytes, body).ok()?;
    }
    encoder.finish(&mut bytes).ok()?;
    Some(Message::Bytes(bytes))
}

fn parts(
    worker: &Worker,
    req: &Request<'_>,
    chosen: &SelectedEndpoint,
    sending: &Sending<'_>,
    body: Option<&[u8]>,
) -> Option<Message> {
    let desk = &mut *worker.desk.borrow_mut();
    let (framing, authority) = request::compose(desk, req, &chosen.endpoint.endpoint, sending).ok()?;
    let target = if desk.host.is_empty() {
        req.target()
    } else {
        &desk.host
    };
    let body = match framing {
        Framing::None => None,
        _ => Some(body.unwrap_or_default().to_vec()),
    };
    Some(Message::Parts(Box::new(Parts {
        method: req.method().as_str().to_owned(),
        target: target.to_owned(),
        authority: authority.to_owned(),
        fields: std::mem::take(&mut desk.fields),
        body,
    })))
}

impl Parts {
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

impl Copy {
    /// Sends the request; a shutdown does not wait for it.
    async fn run_until_draining(self) {
        let cx = self.worker.cx.clone();
        let mut draining = pin!(cx.draining());
        let mut run = pin!(self.run());
        poll_fn(|context| {
            if draining.as_mut().poll(context).is_ready() {
                return Poll::Ready(());
            }
            run.as_mut().poll(context)
        })
        .await;
    }

    /// Sends the request and discards the response.
    async fn run(self) {
        self.became.what.set(MirrorOutcome::Failed);
        let span = self.local.connect_timeout().min(limits::MIRROR_TIME);
        let link = self
            .worker
            .link(&self.local, &self.chosen.endpoint, (false, &self.greeting), span)
            .await;
        match (link, &self.message) {
            (Ok(UpstreamConn::Http1(sole)), Message::Bytes(bytes)) => self.by(sole, bytes).await,
            (Ok(UpstreamConn::Http1(sole)), Message::Parts(parts)) => {
                if let Some(bytes) = parts.encode() {
                    self.by(sole, &bytes).await;
                }
            }
            (Ok(UpstreamConn::H2(channel)), Message::Parts(parts)) => self.by_stream(&channel, parts).await,
            // The upstream's protocol has changed since.
            (Ok(UpstreamConn::H2(_)), Message::Bytes(_)) | (Err(_), _) => {}
        }
    }

    async fn by_stream(&self, channel: &H2Stream, parts: &Parts) {
        channel.set_deadline(Some(self.until.since(self.worker.cx.now())));
        let asked = H2Request {
            method: Method::new(&parts.method),
            target: &parts.target,
            authority: &parts.authority,
            fields: &parts.fields,
            body: parts.body.as_deref(),
        };
        let mut table = FieldTable::new(&self.worker.desk.borrow().limits);
        let mut left = limits::MIRROR_ANSWER_BYTES;
        let heard = send_request(channel, &asked, &mut table, |heard| {
            self.became.what.set(MirrorOutcome::Sent);
            if let H2ResponsePart::Body(bytes) = heard {
                left = left.saturating_sub(bytes.len() as u64);
            }
            left > 0
        });
        if let Err((lost, _)) = heard.await {
            log::debug!("the response to a mirrored request was aborted: {lost:?}");
        }
    }

    async fn by(&self, link: PooledConnection, bytes: &[u8]) {
        let stream = &link.stream;
        stream.set_deadline(Some(self.until.since(self.worker.cx.now())));
        if stream.write_all(bytes).await.is_err() {
            return;
        }
        self.became.what.set(MirrorOutcome::Sent);
        let mut answer = Answer::new(self.is_head);
        while !answer.is_over {
            let received =
                poll_fn(|context| stream.poll_received(context, |bytes| answer.feed(bytes, &self.worker)));
            if !matches!(received.await, Ok(count) if count > 0) || answer.is_broken {
                return;
            }
        }
        if answer.keep_alive {
            self.local.release(&self.chosen.endpoint, link);
            self.worker.sweep_later();
        }
    }
}

/// A discarded response, read so that its connection can be pooled.
struct Answer {
    scanner: HeadScanner,
    method: Method<'static>,
    body: Option<BodyDecoder>,
    keep_alive: bool,
    is_over: bool,
    is_broken: bool,
}

impl Answer {
    fn new(is_head: bool) -> Answer {
        Answer {
            scanner: HeadScanner::new(),
            method: if is_head { Method::Head } else { Method::Get },
            body: None,
            keep_alive: false,
            is_over: false,
            is_broken: false,
        }
    }

    /// Processes received bytes. Returns the number consumed.
    fn feed(&mut self, bytes: &[u8], worker: &Worker) -> usize {
        let mut consumed = 0;
        while self.body.is_none() && !self.is_broken {
            let desk = &mut *worker.desk.borrow_mut();
            let limits = Limits {
                body_bytes: Some(limits::MIRROR_ANSWER_BYTES),
                ..desk.limits
            };
            let rest = &bytes[consumed..];
            match parse_response(rest, self.method, &limits, &mut self.scanner, &mut desk.table) {
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
                    self.is_over = decoder.is_over();
                    let more = matches!(step.event, BodyEvent::Data(_) | BodyEvent::Trailers(_));
                    if more && !self.is_over {
                        continue;
                    }
                }
            }
            self.keep_alive &= consumed == bytes.len();
            return if self.is_broken || self.is_over {
                bytes.len()
            } else {
                consumed
            };
        }
    }
}
