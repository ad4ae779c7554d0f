//! A session: the datagrams of one client to one endpoint, and the endpoint's answers.
//!
//! ```text
//! Opening ── connected, pending datagrams sent ──▶ Open ── ICMP error ──▶ Refused
//!    ▲                                                                       │
//!    └───────────── the client's next datagram, another endpoint ◀───────────┘
//! ```
//!
//! Its task owns the connected socket and ends it: when idle, after the last expected response, or as told by [`Session::end`].

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_engine::udp::{DatagramOptions, OutgoingDatagram, Udp};
use ringmain_engine::{Addr, Cx, Sleep};

use super::access_log::{SessionRecord, SessionTraffic};
use super::table::SessionKey;
use super::{ClientSocket, SegmentSupport, count_datagrams};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::health::RequestOutcome;
use crate::l4::hash_source;
use crate::limits;
use crate::model::{DatagramSessions, Name};
use crate::stats::{DatagramCounts, DatagramDrop, SessionEnd};
use crate::upstream::pool::{PoolEndpoint, SelectedEndpoint, UpstreamPool};
use crate::upstream::{AffinityHint, UpstreamState};

/// The route and the upstream of a new session.
pub(super) struct SessionRoute {
    pub(super) name: Name,
    /// The number of the route, for metrics.
    pub(super) number: u32,
    pub(super) sessions: DatagramSessions,
    pub(super) upstream: Arc<UpstreamState>,
}

/// A session.
#[derive(Debug)]
pub(super) struct Session {
    key: SessionKey,
    socket: Rc<ClientSocket>,
    pool: Rc<UpstreamPool>,
    rules: DatagramSessions,
    counts: Arc<DatagramCounts>,
    /// The name of the route.
    route: Name,
    traffic: SessionTraffic,
    opened_at: Time,
    state: RefCell<UpstreamSide>,
    endpoint: RefCell<Option<Rc<PoolEndpoint>>>,
    last_used: Cell<Time>,
    /// Responses that are still expected, if the route has a number of these.
    expected: Cell<u64>,
    end: Cell<Option<SessionEnd>>,
    /// The reason of an end by a fault.
    fault: Cell<Option<Fault>>,
    /// The session's task, while it waits.
    waker: RefCell<Option<Waker>>,
}

#[derive(Debug)]
enum UpstreamSide {
    /// The socket is being opened; the client's datagrams wait.
    Opening(PendingDatagrams),
    Open(Rc<EndpointSocket>),
    /// The endpoint does not receive datagrams. The next one of the client goes to another endpoint.
    Refused,
}

#[derive(Debug, Default)]
struct PendingDatagrams {
    all: Vec<(Vec<u8>, Option<u16>)>,
    bytes: usize,
}

/// A socket whose peer is the endpoint.
#[derive(Debug)]
struct EndpointSocket {
    udp: Udp,
    peer: SocketAddr,
    segments: SegmentSupport,
}

/// The end of one endpoint's part of a session.
enum RelayEnd {
    Session(SessionEnd),
    /// The endpoint does not receive datagrams.
    Refused(io::Error),
}

impl Session {
    pub(super) fn new(
        worker: &Worker,
        socket: Rc<ClientSocket>,
        key: SessionKey,
        route: &SessionRoute,
    ) -> Session {
        let counts = worker.counters.datagrams(route.number);
        counts.count_open();
        Session {
            key,
            socket,
            pool: worker.pool(&route.upstream),
            rules: route.sessions,
            counts,
            route: Arc::clone(&route.name),
            traffic: SessionTraffic::default(),
            opened_at: worker.cx.now(),
            state: RefCell::new(UpstreamSide::Opening(PendingDatagrams::default())),
            endpoint: RefCell::default(),
            last_used: Cell::new(worker.cx.now()),
            expected: Cell::new(0),
            end: Cell::new(None),
            fault: Cell::new(None),
            waker: RefCell::default(),
        }
    }

    pub(super) fn key(&self) -> SessionKey {
        self.key
    }

    pub(super) fn socket_number(&self) -> u64 {
        self.socket.number
    }

    /// Records the end of a session without a task.
    pub(super) fn record_unserved(&self, worker: &Worker, fault: Fault) {
        worker.counters.count_fault(fault);
        self.fault.set(Some(fault));
        self.record_end(worker, SessionEnd::Fault);
    }

    /// Counts the end of the session, and writes its line to the access log.
    fn record_end(&self, worker: &Worker, ended: SessionEnd) {
        self.counts.count_end(ended);
        let Some(log) = worker.stream_log(self.key.client.ip()) else {
            return;
        };
        let endpoint = self.endpoint.borrow();
        let record = SessionRecord {
            route: &self.route,
            upstream: &self.pool.upstream.name,
            endpoint: endpoint
                .as_ref()
                .map(|endpoint| endpoint.endpoint.addr.to_string()),
            traffic: &self.traffic,
            span: worker.cx.now().since(self.opened_at),
            ended,
            fault: self.fault.get(),
        };
        record.log(&log);
    }

    /// Has the session's task end it.
    pub(super) fn end(&self, end: SessionEnd) {
        if self.end.get().is_none() {
            self.end.set(Some(end));
            self.wake();
        }
    }

    /// Ends the session if its endpoint is no longer configured. A draining endpoint is.
    pub(super) fn end_if_removed(&self) {
        let endpoint = self.endpoint.borrow();
        let is_removed = |endpoint: &Rc<PoolEndpoint>| self.pool.current_endpoint(endpoint).is_removed();
        if self.pool.upstream.is_removed() || endpoint.as_ref().is_some_and(is_removed) {
            self.end(SessionEnd::Removed);
        }
    }

    fn wake(&self) {
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Sends datagrams of the client to the endpoint; while there is none they wait, within limits.
    pub(super) fn forward(&self, now: Time, data: &[u8], segment: Option<u16>) {
        let count = count_datagrams(data.len(), segment);
        self.counts.count_received(count, data.len());
        self.traffic.count_received(count, data.len());
        self.last_used.set(now);
        let responses = self.rules.responses.unwrap_or_default();
        self.expected
            .set(self.expected.get() + u64::from(responses) * count as u64);
        let mut state = self.state.borrow_mut();
        match &mut *state {
            UpstreamSide::Open(socket) => {
                let failed = socket.send(data, segment);
                self.counts.count_dropped(DatagramDrop::QueueFull, failed);
            }
            UpstreamSide::Opening(pending) => {
                if !pending.push(data, segment) {
                    self.counts.count_dropped(DatagramDrop::QueueFull, count);
                }
            }
            UpstreamSide::Refused => {
                let mut pending = PendingDatagrams::default();
                pending.push(data, segment);
                *state = UpstreamSide::Opening(pending);
                drop(state);
                self.wake();
            }
        }
    }

    /// Sends an answer of the endpoint to the client, from the address that the client has sent to.
    fn answer(&self, now: Time, data: &[u8], segment: Option<u16>) {
        let count = count_datagrams(data.len(), segment);
        self.last_used.set(now);
        self.expected
            .set(self.expected.get().saturating_sub(count as u64));
        let datagram = OutgoingDatagram {
            to: self.key.client,
            source: self.key.local,
            segment,
            data,
        };
        let failed = self.socket.segments.send(&self.socket.udp, &datagram);
        self.counts.count_dropped(DatagramDrop::QueueFull, failed);
        if failed < count {
            self.counts.count_sent(count - failed, data.len());
            self.traffic.count_sent(count - failed, data.len());
        }
    }

    /// Drops the datagrams that wait.
    fn drop_pending(&self) {
        let last = std::mem::replace(&mut *self.state.borrow_mut(), UpstreamSide::Refused);
        if let UpstreamSide::Opening(pending) = last {
            let counts = pending.all.iter();
            let count = counts
                .map(|(data, segment)| count_datagrams(data.len(), *segment))
                .sum();
            self.counts.count_dropped(DatagramDrop::Unavailable, count);
        }
    }
}

impl PendingDatagrams {
    /// Returns whether there was room.
    fn push(&mut self, data: &[u8], segment: Option<u16>) -> bool {
        let has_room = self.all.len() < limits::DATAGRAMS_PENDING
            && (self.all.is_empty() || self.bytes + data.len() <= limits::DATAGRAMS_PENDING_BYTES);
        if has_room {
            self.bytes += data.len();
            self.all.push((data.to_vec(), segment));
        }
        has_room
    }
}

impl EndpointSocket {
    /// Returns the number of datagrams that could not be queued.
    fn send(&self, data: &[u8], segment: Option<u16>) -> usize {
        let datagram = OutgoingDatagram {
            segment,
            ..OutgoingDatagram::new(self.peer, data)
        };
        self.segments.send(&self.udp, &datagram)
    }
}

/// Records the end of a session and removes it, however its task ends.
struct SessionGuard {
    worker: Rc<Worker>,
    session: Rc<Session>,
}

impl Drop for SessionGuard {
    fn drop(&mut self) {
        self.session.drop_pending();
        self.worker.datagrams.remove(&self.session);
        // Unless another end is set, the task was dropped with the worker's others.
        let end = self.session.end.get().unwrap_or(SessionEnd::Shutdown);
        self.session.record_end(&self.worker, end);
    }
}

/// Runs a session until it ends. A graceful shutdown waits for it.
pub(super) async fn run(worker: Rc<Worker>, session: Rc<Session>, upstream: Arc<UpstreamState>) {
    let _hold = worker.cx.hold_drain();
    let guard = SessionGuard {
        worker: Rc::clone(&worker),
        session: Rc::clone(&session),
    };
    let end = match serve(&worker, &session).await {
        Ok(end) => end,
        Err(fault) => {
            log::debug!(
                "upstream `{}`: UDP session of {}: {fault}",
                upstream.name,
                session.key.client
            );
            worker.counters.count_fault(fault);
            session.fault.set(Some(fault));
            SessionEnd::Fault
        }
    };
    session.end.set(Some(session.end.get().unwrap_or(end)));
    drop(guard);
}

async fn serve(worker: &Rc<Worker>, session: &Rc<Session>) -> Result<SessionEnd, Fault> {
    let pool = &session.pool;
    if !pool.is_plain() {
        // Data that must be encrypted is never sent in the clear.
        return Err(Fault::BrokenBackend);
    }
    let _permit = pool.admit_request()?;
    pool.wait_until_resolved(pool.connect_timeout()).await;
    let mut tried: Vec<Rc<PoolEndpoint>> = Vec::new();
    loop {
        let key = pool
            .with_hash_key(|key| hash_source(key, Some(session.key.client)))
            .flatten();
        let selected = pool.select(&tried, key, AffinityHint::None)?;
        let endpoint = Rc::clone(&selected.endpoint);
        *session.endpoint.borrow_mut() = Some(Rc::clone(&endpoint));
        pool.count_attempt();
        let opened = connect(worker, session, &selected).await;
        let is_open = opened.is_ok();
        let error = match opened {
            Ok(socket) => match relay(&worker.cx, session, &socket, &endpoint, &mut tried).await {
                RelayEnd::Session(end) => return Ok(end),
                RelayEnd::Refused(error) => error,
            },
            Err(error) => error,
        };
        let fault = connect_fault(&error);
        if fault == Fault::NoResources {
            worker.datagrams.evict_oldest_but(session);
            return Err(fault);
        }
        log::debug!(
            "upstream `{}`: {}: {error}",
            pool.upstream.name,
            endpoint.endpoint.addr
        );
        pool.record_connect_failure(&endpoint, fault, pool.connect_timeout());
        pool.record_outcome(&endpoint, RequestOutcome::Failure);
        worker.counters.count_fault(fault);
        pool.count_fault(fault);
        drop(selected);
        let is_tried = |other: &Rc<PoolEndpoint>| other.endpoint.addr == endpoint.endpoint.addr;
        if !is_open && tried.iter().any(is_tried) {
            // No socket can be opened to any endpoint.
            return Err(fault);
        }
        if tried.len() >= limits::DATAGRAM_TRIES {
            tried.clear();
        }
        tried.push(endpoint);
        if let Some(end) = await_datagram(&worker.cx, session).await {
            return Ok(end);
        }
    }
}

/// Opens a socket whose peer is the endpoint, and sends the datagrams that wait.
async fn connect(
    worker: &Worker,
    session: &Session,
    selected: &SelectedEndpoint,
) -> io::Result<Rc<EndpointSocket>> {
    let Addr::Inet(peer) = selected.endpoint.endpoint.addr else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let local: IpAddr = match peer {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let options = DatagramOptions {
        coalesce: true,
        ..DatagramOptions::default()
    };
    let udp = worker.cx.bind_udp_with(SocketAddr::new(local, 0), options)?;
    // With a peer no other host can answer, and ICMP errors are reported.
    udp.connect(peer).await?;
    let socket = Rc::new(EndpointSocket {
        udp,
        peer,
        segments: SegmentSupport::default(),
    });
    let opened = UpstreamSide::Open(Rc::clone(&socket));
    let last = std::mem::replace(&mut *session.state.borrow_mut(), opened);
    if let UpstreamSide::Opening(pending) = last {
        for (data, segment) in &pending.all {
            let failed = socket.send(data, *segment);
            session.counts.count_dropped(DatagramDrop::QueueFull, failed);
        }
    }
    Ok(socket)
}

fn connect_fault(error: &io::Error) -> Fault {
    match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::ConnectionRefused, _) => Fault::ConnectRefused,
        (io::ErrorKind::AddrNotAvailable | io::ErrorKind::OutOfMemory, _) => Fault::NoResources,
        // ENFILE, EMFILE
        (_, Some(23 | 24)) => Fault::NoResources,
        _ => Fault::ConnectFailed,
    }
}

/// Returns whether an error says that the endpoint does not receive datagrams, rather than that one datagram was not sent.
fn is_unreachable(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
    )
}

/// Sends the endpoint's answers to the client until the session ends, or the endpoint turns out to be unreachable.
async fn relay(
    cx: &Cx,
    session: &Session,
    socket: &EndpointSocket,
    endpoint: &PoolEndpoint,
    tried: &mut Vec<Rc<PoolEndpoint>>,
) -> RelayEnd {
    let mut idle = IdleTimer::new(cx, session);
    let mut has_answered = false;
    poll_fn(|context| {
        loop {
            if let Some(end) = session.end.get() {
                return Poll::Ready(RelayEnd::Session(end));
            }
            let received = socket.udp.poll_datagram(context, |data, _, info| {
                session.answer(cx.now(), data, info.segment);
            });
            match received {
                Poll::Ready(Ok(())) => {
                    if !has_answered {
                        has_answered = true;
                        tried.clear();
                        endpoint.endpoint.state.health().record_connect_success();
                        session.pool.record_outcome(endpoint, RequestOutcome::Success);
                    }
                    if session.rules.responses.is_some() && session.expected.get() == 0 {
                        return Poll::Ready(RelayEnd::Session(SessionEnd::Complete));
                    }
                }
                Poll::Ready(Err(error)) if is_unreachable(&error) => {
                    return Poll::Ready(RelayEnd::Refused(error));
                }
                Poll::Ready(Err(error)) => {
                    log::debug!("UDP session of {}: {error}", session.key.client);
                    socket.segments.note_error(&error);
                    session.counts.count_dropped(DatagramDrop::SendFailed, 1);
                }
                Poll::Pending => break,
            }
        }
        *session.waker.borrow_mut() = Some(context.waker().clone());
        idle.poll(session, context)
            .map(|()| RelayEnd::Session(SessionEnd::Idle))
    })
    .await
}

/// Waits for a datagram of the client, after an endpoint was unreachable. Returns the end of the session, if that happens first.
async fn await_datagram(cx: &Cx, session: &Session) -> Option<SessionEnd> {
    {
        let mut state = session.state.borrow_mut();
        match &*state {
            // Datagrams wait already: the socket was not opened.
            UpstreamSide::Opening(pending) if !pending.all.is_empty() => return None,
            _ => *state = UpstreamSide::Refused,
        }
    }
    session.expected.set(0);
    let mut idle = IdleTimer::new(cx, session);
    poll_fn(|context| {
        if let Some(end) = session.end.get() {
            return Poll::Ready(Some(end));
        }
        if matches!(&*session.state.borrow(), UpstreamSide::Opening(_)) {
            return Poll::Ready(None);
        }
        *session.waker.borrow_mut() = Some(context.waker().clone());
        idle.poll(session, context).map(|()| Some(SessionEnd::Idle))
    })
    .await
}

/// The idle timeout of a session. Datagrams do not reset it; it checks when it fires.
struct IdleTimer {
    cx: Cx,
    /// `None`: no timeout.
    sleep: Option<(Duration, Sleep)>,
}

impl IdleTimer {
    fn new(cx: &Cx, session: &Session) -> IdleTimer {
        IdleTimer {
            cx: cx.clone(),
            sleep: session.rules.idle.map(|idle| (idle, cx.sleep(idle))),
        }
    }

    fn poll(&mut self, session: &Session, context: &mut Context<'_>) -> Poll<()> {
        let Some((idle, sleep)) = &mut self.sleep else {
            return Poll::Pending;
        };
        loop {
            std::task::ready!(Future::poll(Pin::new(&mut *sleep), context));
            let remaining = idle.saturating_sub(self.cx.now().since(session.last_used.get()));
            if remaining.is_zero() {
                return Poll::Ready(());
            }
            *sleep = self.cx.sleep(remaining);
        }
    }
}
