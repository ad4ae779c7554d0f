//! An upstream as one worker sees it: its pool of connections, and the selection of endpoints.
//!
//! Owns the life of a connection: opened under the process-wide cap, lent to a request, pooled, used again or closed. Connections
//! that many requests share are in `h2`.

mod connection;
pub(crate) mod dedicated;
mod endpoints;
mod idle;
mod select;

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;
use ringmain_engine::stream::Stream;
use ringmain_tls::ConnectHandle;
use ringmain_wire::proxy::Addresses;

pub(crate) use self::connection::Link;
use self::endpoints::{ends, is_same};
use super::circuit_breaker::{Cap, Retrying};
use super::connect::ConnectError;
use super::h2::{Channel, Common, Sessions};
use super::selection::Wellness;
use super::transport::Handles;
use super::wait_queue::{Waiter, Waiting};
use super::{Active, Admitted, Current, Endpoint, Full, Permit, Shared, Toward, connect, transport};
use crate::balance::Turns;
use crate::fault::Fault;
use crate::health::{Meeting, may_eject};
use crate::limits;
use crate::model::{HashKey, UpstreamProtocol};

/// An upstream as one worker sees it.
#[derive(Debug)]
pub(crate) struct Local {
    pub(super) cx: Cx,
    pub(crate) shared: Arc<Shared>,
    seen: RefCell<PoolSnapshot>,
    /// Idle connections of every endpoint, without those that are shared.
    kept: Cell<usize>,
    pub(super) common: Rc<Common>,
}

#[derive(Debug)]
struct PoolSnapshot {
    generation: u64,
    current: Arc<Current>,
    /// The handles that TLS sessions are created from.
    tls: Handles,
    ends: Vec<Rc<End>>,
    wellness: Wellness,
    turns: Turns,
}

/// An endpoint as one worker sees it.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) endpoint: Arc<Endpoint>,
    idle: RefCell<Vec<Idle>>,
    pub(super) sessions: Sessions,
    /// The endpoint is no longer configured: its connections are closed after use.
    gone: Cell<bool>,
}

#[derive(Debug)]
struct Idle {
    stream: Stream,
    permit: Permit,
    requests: u32,
    since: Time,
}

/// A connection that a request has for itself. Closed when dropped.
#[derive(Debug)]
pub(crate) struct Sole {
    pub(crate) stream: Stream,
    permit: Permit,
    /// Requests on the connection before this one.
    pub(crate) requests: u32,
    /// The connection began with the PROXY header of one client: no other client's request may use it.
    is_greeted: bool,
}

/// A request's endpoint. The request is counted there until this is dropped.
#[derive(Debug)]
pub(crate) struct Chosen {
    pub(crate) end: Rc<End>,
    _active: Active,
}

impl Local {
    pub(crate) fn new(cx: &Cx, shared: Arc<Shared>) -> Local {
        let generation = shared.generation();
        let current = shared.current();
        let ends = ends(&current, &[], true);
        Local {
            cx: cx.clone(),
            shared,
            seen: RefCell::new(PoolSnapshot {
                generation,
                tls: Handles::of(&current.transport),
                current,
                ends,
                wellness: Wellness::default(),
                turns: Turns::default(),
            }),
            kept: Cell::new(0),
            common: Common::new(),
        }
    }

    /// Returns the protocol of the upstream.
    pub(super) fn protocol(&self) -> UpstreamProtocol {
        self.follow().current.config.protocol
    }

    /// Returns the limit of concurrent requests on a shared connection.
    pub(super) fn streams(&self) -> u32 {
        self.follow().current.config.pool.streams_per_connection
    }

    /// Returns the number of requests that a connection serves; `None`: no limit.
    pub(super) fn lifetime(&self) -> Option<u32> {
        self.follow().current.config.pool.requests_per_connection
    }

    pub(super) fn most_connections(&self) -> u32 {
        self.follow().current.config.pool.connections
    }

    /// Returns the limit of requests on the upstream's connections, and the percentage of these that one client may hold.
    pub(crate) fn places(&self) -> (u32, u8) {
        let seen = self.follow();
        let pool = &seen.current.config.pool;
        let each = match seen.current.config.protocol {
            UpstreamProtocol::Http1 | UpstreamProtocol::Auto => 1,
            UpstreamProtocol::Http2 => pool.streams_per_connection,
        };
        (pool.connections.saturating_mul(each), pool.client_share)
    }

    /// Returns the limit of requests that wait for a connection.
    pub(crate) fn pending(&self) -> u32 {
        self.follow().current.config.pool.pending
    }

    /// Returns the handle that TLS sessions for HTTP are created from.
    pub(super) fn tls(&self) -> Option<Rc<ConnectHandle>> {
        self.follow().tls.http.clone()
    }

    /// Returns whether there are pooled or shared connections, or may be soon.
    pub(crate) fn holds_any(&self) -> bool {
        self.kept.get() > 0 || self.common.is_any()
    }

    /// Returns whether the upstream's connections are shared, as far as that is known.
    pub(crate) fn may_share(&self) -> bool {
        self.protocol() != UpstreamProtocol::Http1
    }

    /// Returns the timeout for connecting.
    pub(crate) fn connect_timeout(&self) -> Duration {
        self.follow().current.config.connect_timeout
    }

    fn follow(&self) -> std::cell::RefMut<'_, PoolSnapshot> {
        let mut seen = self.seen.borrow_mut();
        if seen.generation != self.shared.generation() {
            seen.generation = self.shared.generation();
            let last = std::mem::replace(&mut seen.current, self.shared.current());
            let same = Arc::ptr_eq(&last.transport, &seen.current.transport);
            if !same {
                seen.tls = Handles::of(&seen.current.transport);
            }
            seen.wellness.reset();
            seen.turns.reset();
            let ends = ends(&seen.current, &seen.ends, same);
            for old in std::mem::replace(&mut seen.ends, ends) {
                if !seen.ends.iter().any(|end| Rc::ptr_eq(end, &old)) {
                    old.gone.set(true);
                    let closed = std::mem::take(&mut *old.idle.borrow_mut());
                    self.kept.set(self.kept.get() - closed.len());
                    old.sessions.retire();
                }
            }
        }
        seen
    }

    /// Returns an endpoint as it is configured now, which owns its connections. One that is no longer configured is returned unchanged.
    pub(super) fn present(&self, end: &Rc<End>) -> Rc<End> {
        let seen = self.follow();
        if !end.gone.get() {
            return Rc::clone(end);
        }
        let same = |other: &&Rc<End>| is_same(&other.endpoint, &end.endpoint);
        Rc::clone(seen.ends.iter().find(same).unwrap_or(end))
    }

    /// Counts a request at the upstream.
    ///
    /// # Errors
    /// [`Fault::RequestsFull`]: the limit of requests in flight is reached.
    pub(crate) fn admit(&self) -> Result<Admitted, Fault> {
        self.try_admit().ok_or_else(|| {
            self.shared.breaker.tripped(Cap::Requests);
            Fault::RequestsFull
        })
    }

    /// Does the same, but does not count a refusal, since the caller asks again.
    pub(crate) fn try_admit(&self) -> Option<Admitted> {
        let most = self.follow().current.config.pool.requests;
        self.shared.begin_request(most)
    }

    /// Deposits the share of a new request in the retry budget.
    pub(crate) fn bring_budget(&self) {
        let rules = self.follow().current.config.retry_budget;
        self.shared.budget.bring(&rules, self.cx.now().0);
    }

    /// Counts a retry if it is allowed; `again` is the count of the request's previous retry.
    pub(crate) fn begin_retry(&self, again: Option<Retrying>) -> Option<Retrying> {
        let (rules, most) = {
            let seen = self.follow();
            (seen.current.config.retry_budget, seen.current.config.pool.retries)
        };
        let Some(retrying) = again.or_else(|| self.shared.begin_retry(most)) else {
            self.shared.breaker.tripped(Cap::Retries);
            return None;
        };
        let granted = self.shared.budget.take(&rules, self.cx.now().0);
        self.shared.counts.0.asked(granted);
        if granted {
            return Some(retrying);
        }
        self.shared.breaker.tripped(Cap::Budget);
        None
    }

    /// Passes the part of a request that is hashed for balancing to `look`.
    pub(crate) fn key<T>(&self, look: impl FnOnce(&HashKey) -> T) -> Option<T> {
        self.follow().current.picker.key().map(look)
    }

    /// Records the result of a request at an endpoint, which may be ejected for it.
    pub(crate) fn met(&self, end: &End, meeting: Meeting) {
        if meeting == Meeting::Bad {
            end.endpoint.state.health().record.failed();
        }
        let seen = self.follow();
        let Some(rules) = &seen.current.config.health.outliers else {
            return;
        };
        let now = self.cx.now().0;
        let record = &end.endpoint.state.health().record;
        let Some(why) = record.note(meeting, now, rules) else {
            return;
        };
        let endpoints = &seen.current.endpoints;
        let out = endpoints
            .iter()
            .filter(|endpoint| endpoint.state.health().ejected_until() > now);
        if may_eject(out.count(), endpoints.len(), rules) && record.eject(now, self.cx.wall(), rules, why) {
            self.shared.health_changed();
            log::warn!(
                "upstream `{}`: {} is passed over: {why}",
                self.shared.name,
                end.endpoint.addr
            );
        }
    }

    /// Applies changes of the upstream, also without a request.
    pub(crate) fn look(&self) {
        drop(self.follow());
    }

    /// Waits until names that are being resolved for the first time have addresses.
    pub(crate) async fn settle(&self, span: Duration) {
        let until = self.cx.now().after(span);
        while self.follow().current.is_pending && self.cx.now() < until {
            self.cx.sleep(limits::PENDING_LOOK).await;
        }
    }

    /// Records the response time of an endpoint.
    pub(crate) fn took(&self, end: &End, span: Duration) {
        if let Some(half_life) = self.follow().current.picker.half_life() {
            end.endpoint.state.took(self.cx.now().0, span, half_life);
        }
    }

    /// Records the status and the response time of an endpoint.
    pub(crate) fn answered(&self, end: &End, span: Duration, status: u16) {
        self.took(end, span);
        let bad = status >= 500;
        self.met(end, if bad { Meeting::Bad } else { Meeting::Good });
    }

    /// Returns the PROXY protocol header that a connection begins with; empty if the upstream does not use it.
    pub(crate) fn greeting(&self, addresses: impl FnOnce() -> Option<Addresses>) -> Vec<u8> {
        let version = self.follow().current.transport.proxy_protocol();
        version.map_or_else(Vec::new, |version| transport::greeting(version, addresses()))
    }

    /// Returns a connection to an endpoint, or a stream of one, within `span`. With a greeting it is a new connection for this request
    /// alone; with `fresh` it is not a pooled one.
    ///
    /// # Errors
    /// The fault of the attempt, or of a limit that was reached for as long as `span`.
    pub(crate) async fn link(
        &self,
        end: &Rc<End>,
        fresh: bool,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Link, Fault> {
        if self.may_share() {
            // Boxed, so that requests over HTTP/1.1 do not reserve space for it.
            return Box::pin(self.link_shared(end, fresh, greeting, span)).await;
        }
        self.link_whole(end, fresh, greeting, span).await
    }

    /// Does the same where the protocol has whole connections only.
    ///
    /// # Errors
    /// Those of [`link`](Self::link); [`Fault::NoHttp2`] if the endpoint has become one of HTTP/2 meanwhile.
    pub(crate) async fn link_alone(&self, end: &Rc<End>, fresh: bool, span: Duration) -> Result<Sole, Fault> {
        match self.link_whole(end, fresh, &[], span).await? {
            Link::Sole(sole) => Ok(sole),
            Link::Shared(_) => Err(Fault::NoHttp2),
        }
    }

    /// Returns an HTTP/1.1 connection to an endpoint, unless the endpoint has become one of HTTP/2 meanwhile.
    pub(super) async fn link_whole(
        &self,
        end: &Rc<End>,
        fresh: bool,
        greeting: &[u8],
        span: Duration,
    ) -> Result<Link, Fault> {
        let fresh = fresh || !greeting.is_empty();
        if !fresh && let Some(link) = self.take_kept(end) {
            return Ok(Link::Sole(link));
        }
        let most = self.follow().current.config.pool.connections;
        let permit = match self.shared.begin_connection(most) {
            Ok(permit) => permit,
            Err(_) => match self.wait(end, fresh, most, span).await? {
                Waited::Permit(permit) => permit,
                Waited::Kept(link) => return Ok(link),
            },
        };
        if self.protocol() != UpstreamProtocol::Http1 {
            // The protocol has changed during the wait.
            return Box::pin(self.begin_session(end, permit, greeting, span)).await;
        }
        let tls = self.tls();
        let dialled = self.dial(end, permit, greeting, tls, span).await;
        dialled.map(Link::Sole)
    }

    /// Opens a connection.
    pub(super) async fn dial(
        &self,
        end: &Rc<End>,
        permit: Permit,
        greeting: &[u8],
        tls: Option<Rc<ConnectHandle>>,
        span: Duration,
    ) -> Result<Sole, Fault> {
        let transport = Arc::clone(&self.follow().current.transport);
        // Its TLS cannot be built, or not for bytes since no stream route leads here any more: never fall back to plain text.
        if transport.connector.is_some() && tls.is_none() {
            return Err(Fault::TlsFailed);
        }
        let way = connect::Way {
            addr: &end.endpoint.addr,
            peer: end.endpoint.peer.as_ref(),
            tls: tls.as_deref(),
            first: greeting,
        };
        match connect::connect(&self.cx, &way, span).await {
            Ok(stream) => Ok(Sole {
                stream,
                permit,
                requests: 0,
                is_greeted: !greeting.is_empty(),
            }),
            Err(ConnectError { fault, detail }) => {
                end.endpoint.state.note_trouble(fault, detail);
                self.connect_failed(end, fault, span);
                Err(fault)
            }
        }
    }

    /// Records that no connection to an endpoint could be established within `span`: others are preferred for a while, unless the failure
    /// is more likely caused by this process or by the caller's deadline.
    pub(super) fn connect_failed(&self, end: &End, fault: Fault, span: Duration) {
        let too_short = fault == Fault::ConnectTimeout
            && span < limits::CONNECT_TIMEOUT_LEAST.min(self.connect_timeout());
        if fault == Fault::NoResources || too_short {
            return;
        }
        let health = end.endpoint.state.health();
        health.shun(self.cx.now(), self.cx.wall());
        self.shared.health_changed();
    }

    /// Returns whether a connection need not wait for addresses and does not begin with the header of one client.
    pub(crate) fn is_ready(&self) -> bool {
        let seen = self.follow();
        !seen.current.is_pending && seen.current.transport.proxy_protocol().is_none()
    }

    /// Returns a stream of an open shared connection, if one has room.
    pub(crate) fn take_shared(&self, end: &End) -> Option<Channel> {
        end.sessions.take(false)
    }

    /// Returns a pooled connection, if there is one.
    pub(crate) fn take_kept(&self, end: &End) -> Option<Sole> {
        loop {
            let idle = end.idle.borrow_mut().pop()?;
            self.kept.set(self.kept.get() - 1);
            if idle.stream.is_quiet() {
                return Some(Sole {
                    stream: idle.stream,
                    permit: idle.permit,
                    requests: idle.requests,
                    is_greeted: false,
                });
            }
        }
    }

    /// Waits until a connection of this worker is free or a new one may be opened: in the upstream's queue, and in that of the process
    /// if its limit is the one reached.
    pub(super) async fn wait(
        &self,
        end: &Rc<End>,
        fresh: bool,
        most: u32,
        span: Duration,
    ) -> Result<Waited, Fault> {
        let pending = self.follow().current.config.pool.pending;
        let worker = self.cx.worker();
        let room = &self.shared.room;
        let who = (worker, end.endpoint.toward());
        let mut place = None;
        let mut outer = None;
        let mut sleep = std::pin::pin!(self.cx.sleep(span));
        poll_fn(|context| {
            if !queue(&self.shared.waiting, &mut place, who, pending, context.waker()) {
                self.shared.breaker.tripped(Cap::Pending);
                return Poll::Ready(Err(Fault::PendingFull));
            }
            let mut found = self.look_for(end, fresh, most);
            if matches!(found, Err(Full::Process)) {
                let most_waiting = limits::PROCESS_PENDING;
                if !queue(&room.waiting, &mut outer, who, most_waiting, context.waker()) {
                    return Poll::Ready(Err(Fault::ProcessPendingFull));
                }
                // Connections that became free before the registration sent no call.
                found = self.look_for(end, fresh, most);
            }
            let full = match found {
                Ok(found) => {
                    place.take().into_iter().for_each(Waiter::leave);
                    // With a pooled connection, the process-wide slot of this call goes to the next waiter.
                    let outer = outer.take().filter(|_| matches!(found, Waited::Permit(_)));
                    outer.into_iter().for_each(Waiter::leave);
                    // A connection that was reserved for this waiter and not used may serve another.
                    if self.shared.waiting.wants() || room.waiting.wants() {
                        room.calls.tell();
                    }
                    return Poll::Ready(Ok(found));
                }
                Err(full) => full,
            };
            if full == Full::Upstream {
                outer = None;
            }
            room.calls.tell();
            let late = std::future::Future::poll(sleep.as_mut(), context);
            late.map(|()| {
                Err(match full {
                    Full::Upstream => {
                        self.shared.breaker.tripped(Cap::Connections);
                        Fault::PendingTimeout
                    }
                    Full::Process => Fault::ProcessPendingTimeout,
                })
            })
        })
        .await
    }

    /// Tries to get a connection without waiting.
    fn look_for(&self, end: &Rc<End>, fresh: bool, most: u32) -> Result<Waited, Full> {
        if !fresh {
            let end = &self.present(end);
            let kept = match self.shares(end) {
                true => end.sessions.take(false).map(Link::Shared),
                false => self.take_kept(end).map(Link::Sole),
            };
            if let Some(link) = kept {
                return Ok(Waited::Kept(link));
            }
        }
        match self.shared.begin_connection(most) {
            Ok(permit) => Ok(Waited::Permit(permit)),
            Err(full) => self.close_one().map(Waited::Permit).ok_or(full),
        }
    }
}

impl End {
    /// Returns whether the endpoint is no longer configured.
    pub(super) fn is_gone(&self) -> bool {
        self.gone.get()
    }
}

impl Sole {
    pub(super) fn into_parts(self) -> (Stream, Permit) {
        (self.stream, self.permit)
    }
}

/// Joins a queue, or waits there for the next call. Returns whether there was room.
fn queue<'w>(
    waiting: &'w Waiting,
    place: &mut Option<Waiter<'w>>,
    who: (usize, Toward),
    most: u32,
    waker: &Waker,
) -> bool {
    match place {
        Some(place) => place.again(waker),
        None => *place = waiting.join(who, most, waker),
    }
    place.is_some()
}

/// The result of waiting for a connection.
pub(super) enum Waited {
    Permit(Permit),
    Kept(Link),
}
