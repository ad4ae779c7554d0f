//! Upstreams as all workers share them, with their counters.
//!
//! An upstream's [`Shared`] part lives while its name is configured; its present state ([`Current`]: configuration, endpoints)
//! is replaced as a whole, by a new configuration or a new result of DNS. State of an endpoint (requests in flight, health) belongs
//! to its address and survives both. Knows no requests.

pub(crate) mod circuit_breaker;
pub(crate) mod client_share;
pub(crate) mod connect;
pub(crate) mod connection_budget;
mod counters;
pub(crate) mod h2;
pub(crate) mod pool;
pub(crate) mod registry;
pub(crate) mod retry_budget;
mod selection;
pub(crate) mod transport;
pub(crate) mod wait_queue;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::PeerName;

use self::circuit_breaker::Breaker;
use self::client_share::Shares;
use self::connection_budget::Room;
pub use self::counters::Copied;
use self::counters::Counts;
use self::retry_budget::Budget;
pub(crate) use self::selection::{Picker, Prefer};
use self::transport::Transport;
use self::wait_queue::Waiting;
use crate::balance::Ewma;
use crate::fault::{Detail, Fault};
use crate::health::Health;
use crate::model::{Name, Upstream};

/// An upstream as all workers share it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Index in each worker's list.
    pub(crate) id: usize,
    pub(crate) name: Name,
    current: Mutex<Arc<Current>>,
    /// The version of `current`: workers check it first.
    generation: Line<AtomicU64>,
    /// The version of endpoints' health: workers check endpoints only when it has changed.
    health: Line<AtomicU64>,
    /// Connections, process-wide.
    connections: Line<AtomicU32>,
    /// Requests in flight, process-wide.
    requests: Line<AtomicU32>,
    /// A shared connection is retiring in favor of requests that wait for another one.
    leaving: AtomicBool,
    /// The upstream is no longer configured.
    removed: AtomicBool,
    pub(crate) waiting: Waiting,
    /// Slots of the pool that are held by clients.
    shares: Shares,
    /// Positions in `waiting` that are held by clients.
    turns: Shares,
    /// The limit that all upstreams share.
    pub(crate) room: Arc<Room>,
    /// The budget for retries.
    pub(crate) budget: Budget,
    pub(crate) breaker: Breaker,
    pub(crate) counts: Line<Counts>,
}

/// The identity of an endpoint that a request waits for or a connection leads to: the same for all workers and configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toward(usize);

/// The cap that prevents a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The upstream's cap is reached.
    Upstream,
    /// The cap for all upstreams together is reached.
    Process,
}

/// A value that several workers write, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// The present state of an upstream.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) config: Arc<Upstream>,
    /// The transport. Pooled connections survive a change of configuration while it remains the same.
    pub(crate) transport: Arc<Transport>,
    pub(crate) picker: Picker,
    pub(crate) endpoints: Box<[Arc<Endpoint>]>,
    /// The fault of requests while there is no endpoint.
    pub(crate) absence: Fault,
    /// There is no endpoint yet: names are being resolved for the first time.
    pub(crate) is_pending: bool,
}

/// An endpoint: an address with its state.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) addr: Addr,
    /// The `Host` of requests without one of the client.
    pub(crate) authority: Box<str>,
    /// The name that the certificate has to match. Without it no TLS connection is made: the peer could not be identified.
    pub(crate) peer: Option<PeerName>,
    /// The name that clients receive for affinity.
    pub(crate) token: u64,
    pub(crate) weight: u32,
    /// The endpoint is draining: it finishes its requests and receives new ones only if all others are gone.
    pub(crate) draining: bool,
    pub(crate) state: Arc<EndpointState>,
}

/// State of an endpoint, by its address. Instants are nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub(crate) struct EndpointState {
    /// Requests in flight over all workers.
    active: Line<AtomicU32>,
    /// Rarely written, read by each selection.
    health: Line<Health>,
    latency: Line<Latency>,
    /// The rule that the endpoint violated at the last failed connection, if any.
    trouble: Mutex<Option<(Fault, Box<Detail>)>>,
}

#[derive(Debug, Default)]
struct Latency {
    value: AtomicU64,
    at: AtomicU64,
}

impl Shared {
    pub(crate) fn new(id: usize, name: Name, current: Arc<Current>, room: Arc<Room>) -> Shared {
        Shared {
            id,
            name,
            current: Mutex::new(current),
            generation: Line::default(),
            health: Line(AtomicU64::new(1)),
            connections: Line::default(),
            requests: Line::default(),
            leaving: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            waiting: Waiting::default(),
            shares: Shares::default(),
            turns: Shares::default(),
            room,
            budget: Budget::default(),
            breaker: Breaker::default(),
            counts: Line::default(),
        }
    }

    /// Replaces the present state.
    pub(crate) fn publish(&self, current: Arc<Current>) {
        let mut place = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, current);
        self.generation.0.fetch_add(1, Ordering::Release);
        drop(place);
        drop(old);
    }

    /// Marks the upstream as removed: workers close its connections when they follow the configuration.
    pub(crate) fn remove(&self) {
        self.removed.store(true, Ordering::Release);
    }

    pub(crate) fn is_removed(&self) -> bool {
        self.removed.load(Ordering::Acquire)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.generation.0.load(Ordering::Acquire)
    }

    pub(crate) fn current(&self) -> Arc<Current> {
        Arc::clone(&self.current.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the version of endpoints' health.
    pub(crate) fn health_generation(&self) -> u64 {
        self.health.0.load(Ordering::Acquire)
    }

    /// Makes workers check endpoints' health again.
    pub(crate) fn health_changed(&self) {
        self.health.0.fetch_add(1, Ordering::Release);
    }

    /// Counts a request, unless the limit is reached.
    pub(crate) fn begin_request(self: &Arc<Self>, most: u32) -> Option<Admitted> {
        take(&self.requests.0, most).then(|| Admitted(Arc::clone(self)))
    }

    /// Counts a connection, unless a limit is reached: `most` for this upstream, or that for all upstreams.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn begin_connection(self: &Arc<Self>, most: u32) -> Result<Permit, Full> {
        // Checked first, so that a request for this upstream does not touch the shared count in vain.
        if self.connections() >= most {
            return Err(Full::Upstream);
        }
        if !self.room.take() {
            return Err(Full::Process);
        }
        if !take(&self.connections.0, most) {
            self.room.give_back();
            return Err(Full::Upstream);
        }
        Ok(Permit(Arc::clone(self)))
    }

    /// Returns whether no shared connection is retiring in favor of waiters: one at a time, since its longest request delays it.
    pub(crate) fn may_leave(&self) -> bool {
        !self.leaving.load(Ordering::SeqCst)
    }

    /// Marks a shared connection as retiring; `false`: another one is.
    pub(crate) fn begin_leaving(&self) -> bool {
        !self.leaving.swap(true, Ordering::SeqCst)
    }

    /// Marks it as closed.
    pub(crate) fn left(&self) {
        self.leaving.store(false, Ordering::SeqCst);
    }

    /// Returns the number of requests in flight.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.0.load(Ordering::Relaxed)
    }

    /// Returns the number of connections and connection attempts.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.0.load(Ordering::SeqCst)
    }
}

/// Increments a count unless it has reached `most`. Never exceeds it, even briefly: a concurrent caller would be refused in vain.
fn take(count: &AtomicU32, most: u32) -> bool {
    let next = |count: u32| (count < most).then(|| count + 1);
    count
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
        .is_ok()
}

/// A request that is counted at its upstream.
#[derive(Debug)]
pub(crate) struct Admitted(Arc<Shared>);

impl Drop for Admitted {
    fn drop(&mut self) {
        self.0.requests.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection that is counted at its upstream.
#[derive(Debug)]
pub(crate) struct Permit(Arc<Shared>);

impl Permit {
    /// Returns the upstream of the connection.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        Arc::clone(&self.0)
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.connections.0.fetch_sub(1, Ordering::SeqCst);
        self.0.waiting.wake_one();
        self.0.room.give_back();
    }
}

impl Endpoint {
    /// Returns the identity of the endpoint.
    pub(crate) fn toward(&self) -> Toward {
        Toward(Arc::as_ptr(&self.state).addr())
    }
}

impl EndpointState {
    /// Counts a request.
    pub(crate) fn begin(self: &Arc<Self>) -> Active {
        self.active.0.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    /// Returns the number of requests in flight.
    pub(crate) fn active(&self) -> u32 {
        self.active.0.load(Ordering::Relaxed)
    }

    /// Returns the health of the endpoint.
    pub(crate) fn health(&self) -> &Health {
        &self.health.0
    }

    /// Records the rule that the endpoint violated in a connection attempt.
    pub(crate) fn note_trouble(&self, fault: Fault, detail: Option<Box<Detail>>) {
        if let Some(detail) = detail {
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            *trouble = Some((fault, detail));
        }
    }

    /// Returns the rule that the endpoint violated in the last connection attempt, if that led to this fault.
    pub(crate) fn trouble(&self, fault: Fault) -> Option<Detail> {
        if !matches!(fault, Fault::TlsFailed | Fault::TlsCertificate) {
            return None;
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, detail) = trouble.as_ref()?;
        (*of == fault).then(|| Detail::clone(detail))
    }

    /// Returns the average response time.
    pub(crate) fn latency(&self) -> Ewma {
        // The two may be from different responses: it is an estimate.
        Ewma {
            value: self.latency.0.value.load(Ordering::Relaxed),
            at: self.latency.0.at.load(Ordering::Relaxed),
        }
    }

    /// Records a response time.
    pub(crate) fn took(&self, now: u64, span: Duration, half_life: Duration) {
        let span = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        let next = self.latency().observe(now, span, half_life);
        self.latency.0.value.store(next.value, Ordering::Relaxed);
        self.latency.0.at.store(next.at, Ordering::Relaxed);
    }
}

/// A request that is counted at its endpoint.
#[derive(Debug)]
pub(crate) struct Active(Arc<EndpointState>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.0.fetch_sub(1, Ordering::Relaxed);
    }
}
