//! Forwarding of a request to an upstream: its attempts, one after the other.

mod admission;
mod attempt;
mod hedge;
mod response_head;
mod retry;
mod timeouts;

use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_web::{Reply, Request};
use ringmain_wire::h1::Framing;
use ringmain_wire::ws::Challenge;

use self::admission::Worth;
use self::attempt::Got;
use self::retry::{Tries, is_idempotent};
use super::affinity::Session;
use super::backend::{addresses, hash_key, pages, pick_backend, sending};
use super::cors::Cross;
use super::fast_path::Started;
use super::filter_chain::Chain;
use super::grpc::{self, Unwrapping};
use super::mirror;
use super::replay_buffer::ReplayBuffer;
use super::request::{self, Sending};
use super::request_body::Unsent;
use super::response::Reading;
use super::response_body::{Clock, Download};
use super::tunnel::Tunnel;
use super::{Failure, Found, Rest, client_scheme, local_response, log_fields};
use crate::compile::plan::{Backend, Plan};
use crate::fault::{Detail, Fault, Side};
use crate::gateway::Worker;
use crate::health::Meeting;
use crate::model::{Affinity, AffinityBy, ErrorPage, Forward, HashKey};
use crate::policy::Cleared;
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamConn, UpstreamPool};
use crate::upstream::{AffinityHint, RequestPermit, UpstreamState};

/// The parts of a request that are the same for all attempts.
struct Job<'a, 'r> {
    worker: &'a Rc<Worker>,
    local: &'a Rc<UpstreamPool>,
    forward: &'a Forward,
    backend: &'a Backend,
    sending: Sending<'a>,
    req: &'a Request<'r>,
    clock: Clock,
    /// The hash of its balancing key.
    key: Option<u64>,
    prefer: AffinityHint,
    affinity: Option<&'a Affinity>,
    session: Session,
    /// The part of the body that is buffered for another attempt.
    kept: ReplayBuffer,
    worth: Worth,
    web: Unwrapping,
    /// The CORS fields of the response.
    cross: Option<&'a Cross>,
    /// Error pages that replace the upstream's error responses.
    pages: &'a [ErrorPage],
    /// The filters of bodies and response.
    chain: Option<&'a Chain>,
    tries: Tries,
}

/// A started attempt: its endpoint, the connection that carries its head, and its start.
pub(super) type Begun = (SelectedEndpoint, Option<UpstreamConn>, Time);

/// A failed attempt.
struct Broken {
    why: Why,
    /// It was sent on a pooled connection, and no byte of a response arrived: the upstream may have closed the connection just then.
    stale: bool,
    /// The endpoint has reported that it did not process the request.
    unseen: bool,
    /// The rule that the endpoint violated, if any.
    detail: Option<Box<Detail>>,
}

impl Broken {
    /// Creates one from a failure; `before`: the connection has served other requests.
    fn by(failure: Failure, before: bool) -> Broken {
        Broken {
            stale: before && is_stale(&failure),
            unseen: matches!(failure, Failure::Fault(Fault::StreamRefused)),
            detail: None,
            why: Why::Failure(failure),
        }
    }
}

/// The cause of a failed attempt.
enum Why {
    Failure(Failure),
    /// The response has a status after which the request is retried.
    Status(u16),
}

impl<F: Into<Failure>> From<F> for Broken {
    fn from(failure: F) -> Broken {
        Broken::by(failure.into(), false)
    }
}

/// Forwards a request, and retries it if that is allowed. `started`: its first attempt, if the fast path has started it.
pub(super) async fn forward(
    worker: &Rc<Worker>,
    found: &Found<'_>,
    (cleared, started, chain): (&Cleared, Option<Started>, Option<&Chain>),
    plan: &Plan,
    forward: &Forward,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Failure> {
    let (number, backend) = backend(worker, plan, started.as_ref())?;
    if let (Some(count), Some(series)) = (found.count, backend.series.get()) {
        count.series(*series);
    }
    let shared = backend.upstream.as_ref().ok_or(Fault::BrokenBackend)?;
    if is_too_large(forward, req) {
        return Err(Fault::RequestTooLarge.into());
    }
    if is_live(req) {
        req.wait_patiently();
    }
    let is_new = started.is_none();
    let (local, admitted, clock, first) = begin(worker, shared, started, forward);
    let affinity = forward.affinity_of(number);
    let session = match affinity {
        Some(affinity) => Session::of(affinity, req, worker.cx.wall().as_secs()),
        None => Session::default(),
    };
    let prefer = preference(found, affinity, &session, req);
    let kept = ReplayBuffer::of(forward, local.may_multiplex());
    // The body was received completely, including its end.
    if let Some(body) = cleared.body() {
        kept.buffer_unsent(body);
    }
    let job = Job {
        worker,
        local: &local,
        forward,
        backend,
        sending: sending(found, forward, backend, number, (req, cleared)),
        req,
        clock,
        key: local
            .with_hash_key(|key| hash_key(key, found.listener, req))
            .flatten(),
        affinity,
        session,
        prefer,
        worth: Worth::default(),
        kept,
        web: Unwrapping::of(grpc::web(forward, req)),
        cross: found.cross.as_ref(),
        pages: pages(found, forward),
        chain,
        tries: Tries::default(),
    };
    if is_new {
        job.become_worthy().await?;
    }
    // A request that is not entitled to a slot yet is not counted.
    let admitted = admitted.map_or_else(|| local.admit_request(), Ok)?;
    let again = forward.retry.as_ref().is_some_and(|retry| retry.attempts > 0);
    if is_new && (again || forward.hedge.is_some()) {
        local.deposit_retry_budget();
    }
    let rest = job.run(first, reply).await;
    drop(admitted);
    if !plan.mirrors.is_empty() && !matches!(rest, Err(Failure::Web(_))) {
        mirror::send(worker, found, cleared, plan, forward, req, &job.kept);
    }
    rest
}

/// The start of a request: this worker's pool of its upstream, its slot there if it has one, its clock, and its first attempt if that was
/// started before.
type Beginning = (Rc<UpstreamPool>, Option<RequestPermit>, Clock, Option<Begun>);

fn begin(
    worker: &Rc<Worker>,
    shared: &Arc<UpstreamState>,
    started: Option<Started>,
    forward: &Forward,
) -> Beginning {
    match started.map(Started::into_parts) {
        Some((local, admitted, clock, first)) => (local, Some(admitted), clock, first),
        None => {
            let clock = Clock::of(&forward.timeouts, worker.cx.now());
            (worker.local(shared), None, clock, None)
        }
    }
}

/// Returns the backend of a request and its index: that of the attempt that was started before, or a random one.
fn backend<'p>(
    worker: &Worker,
    plan: &'p Plan,
    started: Option<&Started>,
) -> Result<(usize, &'p Backend), Failure> {
    match started {
        Some(started) => {
            let backend = plan.backends.get(started.number).ok_or(Fault::NoBackend)?;
            Ok((started.number, backend))
        }
        None => Ok(pick_backend(worker, plan)?),
    }
}

/// Returns whether the declared length of the request body exceeds the rule's limit.
fn is_too_large(forward: &Forward, req: &Request<'_>) -> bool {
    match (req.head().framing, forward.body.request) {
        (Framing::Length(length), Some(most)) => length > most,
        _ => false,
    }
}

/// Returns whether a request body is a live stream rather than an upload: its length is not declared (RFC 9112 §6.3, RFC 9113 §8.1.1).
///
/// A client that declares a length has the whole body: only the network, or malice, makes it slow, and its listener's minimum rate applies.
/// A client that does not produces the body as it sends it (gRPC calls, message streams, logs) and may have nothing to send for a while:
/// only silence in both directions ends the exchange, after `timeouts.idle`.
fn is_live(req: &Request<'_>) -> bool {
    req.head().framing == Framing::Chunked
}

/// Returns the endpoint that affinity prefers for the client.
fn preference(
    found: &Found<'_>,
    affinity: Option<&Affinity>,
    session: &Session,
    req: &Request<'_>,
) -> AffinityHint {
    match affinity {
        Some(affinity) if affinity.by == AffinityBy::Source => {
            hash_key(&HashKey::Source, found.listener, req).map_or(AffinityHint::None, AffinityHint::KeyHash)
        }
        _ => session.prefers(),
    }
}

impl Job<'_, '_> {
    /// Runs the attempts. `first`: the first one, if it was started before.
    async fn run(&self, mut first: Option<Begun>, reply: &mut Reply<'_>) -> Result<Rest, Failure> {
        let mut tried: Vec<Rc<PoolEndpoint>> = Vec::new();
        let mut fresh = false;
        let hedge = self.hedge().await?;
        if first.is_none() {
            self.local.wait_until_resolved(self.time_to_open()).await;
            self.check_total()?;
        }
        let pending = log_fields::Pending::new(self.worker, self.req, &self.local.upstream.name);
        loop {
            self.tries.before.set(tried.len());
            let (chosen, link, begun) = match first.take() {
                Some(begun) => begun,
                None => {
                    let unreachable = self.tries.unreachable.borrow();
                    let avoided = (&*tried, &**unreachable);
                    let chosen = self.local.select_for_retry(avoided, self.key, self.prefer)?;
                    (chosen, None, self.worker.cx.now())
                }
            };
            pending.begin(&chosen.endpoint, begun, tried.len());
            let (attempted, end, begun) = self
                .first_or_next((chosen, link, begun), hedge, (&mut tried, fresh), reply)
                .await;
            pending.end();
            self.note_attempt(&end, begun, tried.len());
            let broken = match attempted {
                Ok(rest) => return Ok(rest),
                Err(broken) => broken,
            };
            let fault = match broken.why {
                Why::Failure(Failure::Fault(fault)) => Some(fault),
                Why::Failure(failure) => return Err(failure),
                Why::Status(_) => None,
            };
            if let Some(fault) = fault.filter(|fault| fault.side() != Side::Client) {
                self.count_fault(fault, &broken, &end);
            }
            let can = !reply.is_streaming() && self.can_replay();
            // RFC 9112 §9.3.1: once, without a retry policy, on a new connection. RFC 9113 §8.7: whatever the method.
            let stale = broken.stale && is_idempotent(self.req.method());
            if can && !fresh && (stale || broken.unseen) {
                fresh = true;
                continue;
            }
            if fault.is_none_or(|fault| fault.side() == Side::Upstream) {
                let bad = !matches!(broken.why, Why::Status(..500));
                self.local
                    .record_outcome(&end, if bad { Meeting::Bad } else { Meeting::Good });
            }
            fresh = false;
            let fails_over = can && fault.is_some_and(|fault| self.fails_over(fault, begun, &end));
            tried.push(end);
            // After a status the decision was made when the head was read.
            if let Some(fault) = fault {
                if !(fails_over || can && self.should_retry(fault)) {
                    return Err(fault.into());
                }
                self.worker.counting.fault(fault);
            }
            if !fails_over {
                self.pause(tried.len()).await;
            }
            self.check_total()?;
        }
    }

    fn note_attempt(&self, end: &PoolEndpoint, begun: Time, before: usize) {
        let upstream = &self.local.upstream.name;
        log_fields::attempt(self.worker, self.req, upstream, end, begun, before);
    }

    /// Counts a fault that is not the client's, and records the violated rule if it is known.
    fn count_fault(&self, fault: Fault, broken: &Broken, end: &PoolEndpoint) {
        self.local.upstream.counters.0.count_fault(fault);
        let trouble = || end.endpoint.state.connect_violation(fault);
        if let Some(detail) = broken.detail.as_deref().cloned().or_else(trouble) {
            let whose = (&self.local.upstream.name, &end.endpoint.addr);
            log_fields::detail(self.worker, self.req, whose, &detail);
        }
    }

    /// Runs one attempt, or the first one with a hedge. Returns its result, its endpoint and its start.
    async fn first_or_next(
        &self,
        (chosen, link, begun): Begun,
        hedge: Option<Duration>,
        (tried, fresh): (&mut Vec<Rc<PoolEndpoint>>, bool),
        reply: &mut Reply<'_>,
    ) -> (Result<Rest, Broken>, Rc<PoolEndpoint>, Time) {
        let (mut end, mut begun) = (Rc::clone(&chosen.endpoint), begun);
        let mut try_of = (chosen, link);
        if let Some(after) = hedge.filter(|_| tried.is_empty() && !fresh) {
            // Boxed, so that the future of requests without a hedge has no room for it.
            match Box::pin(self.race((try_of.0, try_of.1, begun), after)).await {
                Ok(won) => {
                    tried.extend(won.beside);
                    self.tries.before.set(tried.len());
                    (try_of, begun) = ((won.begun.0, won.begun.1), won.begun.2);
                    end = Rc::clone(&try_of.0.endpoint);
                }
                Err((broken, mut asked)) => {
                    let last = asked.pop().unwrap_or(end);
                    tried.extend(asked);
                    self.tries.before.set(tried.len());
                    return (Err(broken), last, begun);
                }
            }
        }
        let attempted = self.attempt(try_of.0, (try_of.1, begun), fresh, reply).await;
        (attempted, end, begun)
    }

    /// Runs one attempt. `sent`: the connection that already carries the request's head, if there is one, and the time when it was sent.
    async fn attempt(
        &self,
        chosen: SelectedEndpoint,
        sent: (Option<UpstreamConn>, Time),
        fresh: bool,
        reply: &mut Reply<'_>,
    ) -> Result<Rest, Broken> {
        let cx = &self.worker.cx;
        let is_sent = sent.0.is_some();
        let (link, begun) = match sent {
            (Some(link), begun) => (link, begun),
            (None, _) => {
                let link = self.open(&chosen, fresh).await?;
                (self.switchable(link, &chosen).await?, cx.now())
            }
        };
        let mut clock = self.clock;
        clock.head = self.forward.timeouts.per_try.map(|span| begun.after(span));
        let mut reading = self.reading(&chosen)?;
        if let UpstreamConn::H2(channel) = &link {
            reading.connects = request::connects(self.req, &self.sending, channel);
            // A client on a stream has no key.
            reading.key = reading.connects.then(|| Challenge::of(self.req.head())).flatten();
        }
        let got = self
            .converse(&chosen, (&link, is_sent), &mut clock, &mut reading, reply)
            .await;
        let got = got.map_err(|failure| Broken {
            detail: reading.detail.take(),
            ..Broken::by(failure, link.requests_before() > 0 && !reading.begun)
        })?;
        let download = match got {
            Got::Switch => {
                return Ok(Rest::Tunnel(Tunnel {
                    link,
                    _held: self.worth.held.take(),
                    _chosen: chosen,
                    idle: clock.idle,
                }));
            }
            // The rest of the response is not read, so the connection is closed.
            Got::Again(status) => {
                link.discard();
                return Err(Broken {
                    why: Why::Status(status),
                    stale: false,
                    unseen: false,
                    detail: None,
                });
            }
            // The same for a replaced response.
            Got::Replaced(status) => {
                link.discard();
                return Ok(self.replace(status, reply)?);
            }
            Got::Body(down) => Download {
                local: Rc::clone(self.local),
                chosen,
                link,
                down,
                clock,
                client_rate: self.sending.listener.limits.rate_bytes,
            },
        };
        if download.down.is_over {
            download.keep(self.worker);
            return Ok(Rest::Nothing);
        }
        Ok(Rest::Body(download))
    }

    /// Prepares reading the response head, with the fields to add to it.
    fn reading(&self, chosen: &SelectedEndpoint) -> Result<Reading<'_, '_>, Fault> {
        let mut reading = Reading::new(
            self.req.method(),
            (self.sending.upgrade, self.sending.challenge),
            self.sending.trailers,
        );
        if let Some(affinity) = self.affinity {
            let secure = client_scheme(self.sending.listener, self.req) == "https";
            let token = chosen.endpoint.endpoint.token;
            if let Some((name, value)) =
                self.session
                    .field(affinity, token, secure, self.worker.cx.wall().as_secs())
            {
                let pushed = reading.extra.push(name, value.as_bytes());
                pushed.map_err(|_misuse| Fault::BrokenRule)?;
            }
        }
        if let Some(cross) = self.cross {
            reading.extra.append(&cross.fields);
            reading.cross = true;
        }
        if let Some(retry) = self.retry_left()
            && is_idempotent(self.req.method())
        {
            reading.again = &retry.on.statuses;
        }
        reading.extra.append(self.sending.cleared.answer());
        reading.pages = self.pages;
        reading.filtered = self.chain.is_some();
        reading.web = self.sending.web.map(|kind| kind.dialect);
        Ok(reading)
    }

    /// Sends the rule's error page in place of the upstream's response.
    fn replace(&self, status: u16, reply: &mut Reply<'_>) -> Result<Rest, Failure> {
        local_response::page(reply, self.pages, status)?;
        local_response::changes(reply, &self.backend.response)?;
        Ok(Rest::Nothing)
    }

    /// Sends the head. Returns the unsent part of the request.
    fn send_head(&self, chosen: &SelectedEndpoint, link: &UpstreamConn) -> Result<Unsent, Fault> {
        let desk = &mut *self.worker.desk.borrow_mut();
        let endpoint = &chosen.endpoint.endpoint;
        match link {
            UpstreamConn::Http1(sole) => {
                desk.out.clear();
                let encoder = request::write(desk, self.req, endpoint, &self.sending)?;
                // Fails if the connection has just closed; reading reports the precise fault.
                let _ = sole.stream.write_now(&desk.out);
                desk.out.clear();
                Ok(Unsent::Encoded(encoder))
            }
            UpstreamConn::H2(channel) => {
                let follows = request::ask(desk, self.req, endpoint, &self.sending, channel)?;
                Ok(if follows { Unsent::Framed } else { Unsent::Nothing })
            }
        }
    }

    /// Records the response of an endpoint.
    fn answered(&self, chosen: &SelectedEndpoint, begun: Time, status: u16) {
        let span = self.worker.cx.now().since(begun);
        self.local.record_response(&chosen.endpoint, span, status);
    }
}

/// Returns whether a failure is that of a pooled connection that was closed in the meantime.
fn is_stale(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Fault(Fault::ClosedBeforeHead | Fault::ResetBeforeHead)
    )
}
