//! Who answers: upstreams as all workers share them, with what is counted of them.
//!
//! An upstream's [`Shared`] part lives as long as its name is configured; what it is at present ([`Current`]: configuration,
//! endpoints) is replaced as a whole, by a new configuration or a new answer of DNS. What is said of an endpoint (requests
//! under way, health) belongs to its address and survives both. Knows no requests.

pub(crate) mod breaker;
pub(crate) mod budget;
mod choose;
pub(crate) mod connect;
mod counts;
pub(crate) mod h2;
pub(crate) mod local;
pub(crate) mod registry;
pub(crate) mod room;
pub(crate) mod share;
pub(crate) mod transport;
pub(crate) mod waiting;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_tls::PeerName;

use self::breaker::Breaker;
use self::budget::Budget;
pub(crate) use self::choose::{Picker, Prefer};
pub use self::counts::Copied;
use self::counts::Counts;
use self::room::Room;
use self::share::Shares;
use self::transport::Transport;
use self::waiting::Waiting;
use crate::balance::Ewma;
use crate::fault::{Detail, Fault};
use crate::health::Health;
use crate::model::{Name, Upstream};

/// An upstream as all workers share it.
#[derive(Debug)]
pub(crate) struct Shared {
    /// Its place in each worker's list.
    pub(crate) id: usize,
    pub(crate) name: Name,
    current: Mutex<Arc<Current>>,
    /// Of `current`: workers look at this first.
    generation: Line<AtomicU64>,
    /// Of who is well: workers look at endpoints only when it has changed.
    health: Line<AtomicU64>,
    /// Connections, process-wide.
    connections: Line<AtomicU32>,
    /// Requests under way, process-wide.
    requests: Line<AtomicU32>,
    /// A connection that requests share takes no more of them, for the sake of those who wait for another one.
    leaving: AtomicBool,
    /// The configuration has it no more.
    removed: AtomicBool,
    pub(crate) waiting: Waiting,
    /// Places that are held on account of clients.
    shares: Shares,
    /// Turns in `waiting` that are.
    turns: Shares,
    /// That of all upstreams.
    pub(crate) room: Arc<Room>,
    /// For requests that are tried again.
    pub(crate) budget: Budget,
    pub(crate) breaker: Breaker,
    pub(crate) counts: Line<Counts>,
}

/// Which endpoint somebody waits for, or a connection leads to: the same for all workers and configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Toward(usize);

/// Why there is no new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    /// The upstream has as many as it may.
    Upstream,
    /// All upstreams together have as many as they may.
    Process,
}

/// A number that several workers write, on cache lines of its own.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Line<T>(pub(crate) T);

/// What an upstream is at present.
#[derive(Debug)]
pub(crate) struct Current {
    pub(crate) config: Arc<Upstream>,
    /// How bytes get there. Kept connections outlive a change as long as this stays the same one.
    pub(crate) transport: Arc<Transport>,
    pub(crate) picker: Picker,
    pub(crate) endpoints: Box<[Arc<Endpoint>]>,
    /// Why there is no endpoint, if there is none.
    pub(crate) absence: Fault,
    /// There is none yet: names are being looked up for the first time.
    pub(crate) is_pending: bool,
}

/// One address that answers, and what is known of it.
#[derive(Debug)]
pub(crate) struct Endpoint {
    pub(crate) addr: Addr,
    /// What `Host` says where the client has said none.
    pub(crate) authority: Box<str>,
    /// Whom its certificate has to be for. Without it no TLS endpoint is connected to: nothing would tell who it is.
    pub(crate) peer: Option<PeerName>,
    /// What clients are told of it.
    pub(crate) token: u64,
    pub(crate) weight: u32,
    /// It finishes what it has and gets nothing new, but if all others are gone.
    pub(crate) draining: bool,
    pub(crate) state: Arc<EndpointState>,
}

/// What is known of an endpoint, by its address. Times are nanoseconds of the engine's clock.
#[derive(Debug, Default)]
pub(crate) struct EndpointState {
    /// Requests under way, all workers'.
    active: Line<AtomicU32>,
    /// Written now and then, read with each choice.
    health: Line<Health>,
    latency: Line<Latency>,
    /// Of the last connection that failed by a broken rule.
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

    /// Replaces what it is.
    pub(crate) fn publish(&self, current: Arc<Current>) {
        let mut place = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, current);
        self.generation.0.fetch_add(1, Ordering::Release);
        drop(place);
        drop(old);
    }

    /// Has workers drop its connections, once they look at the next configuration.
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

    /// Of who is well.
    pub(crate) fn health_generation(&self) -> u64 {
        self.health.0.load(Ordering::Acquire)
    }

    /// Has workers look who is well.
    pub(crate) fn health_changed(&self) {
        self.health.0.fetch_add(1, Ordering::Release);
    }

    /// Counts a request, unless there are as many as may be.
    pub(crate) fn begin_request(self: &Arc<Self>, most: u32) -> Option<Admitted> {
        take(&self.requests.0, most).then(|| Admitted(Arc::clone(self)))
    }

    /// Counts a connection, unless there are as many as may be: `most` here, or those of all upstreams.
    pub(crate) fn begin_connection(self: &Arc<Self>, most: u32) -> Result<Permit, Full> {
        // So that whoever waits for this upstream alone does not touch what all share.
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

    /// Whether no connection that requests share is being given up: one at a time, for it takes as long as the longest of them.
    pub(crate) fn may_leave(&self) -> bool {
        !self.leaving.load(Ordering::SeqCst)
    }

    /// One is given up; `false`: another one is.
    pub(crate) fn begin_leaving(&self) -> bool {
        !self.leaving.swap(true, Ordering::SeqCst)
    }

    /// It is closed.
    pub(crate) fn left(&self) {
        self.leaving.store(false, Ordering::SeqCst);
    }

    /// Requests under way.
    pub(crate) fn requests(&self) -> u32 {
        self.requests.0.load(Ordering::Relaxed)
    }

    /// Connections that stand or are being made.
    pub(crate) fn connections(&self) -> u32 {
        self.connections.0.load(Ordering::SeqCst)
    }
}

/// Takes one of `most`. Never one too many for a moment: whoever looked just then would wait for nothing.
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
    /// Whose connection it is.
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
    /// Which one it is.
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

    /// Requests under way.
    pub(crate) fn active(&self) -> u32 {
        self.active.0.load(Ordering::Relaxed)
    }

    /// Whether it is well.
    pub(crate) fn health(&self) -> &Health {
        &self.health.0
    }

    /// Notes the rule that the endpoint broke when it was connected to.
    pub(crate) fn note_trouble(&self, fault: Fault, detail: Option<Box<Detail>>) {
        if let Some(detail) = detail {
            let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
            *trouble = Some((fault, detail));
        }
    }

    /// Returns the rule that the endpoint broke when it was last connected to, if that led to this fault.
    pub(crate) fn trouble(&self, fault: Fault) -> Option<Detail> {
        if !matches!(fault, Fault::TlsFailed | Fault::TlsCertificate) {
            return None;
        }
        let trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        let (of, detail) = trouble.as_ref()?;
        (*of == fault).then(|| Detail::clone(detail))
    }

    /// How long its answers take.
    pub(crate) fn latency(&self) -> Ewma {
        // The two may be of different answers: it is an estimate.
        Ewma {
            value: self.latency.0.value.load(Ordering::Relaxed),
            at: self.latency.0.at.load(Ordering::Relaxed),
        }
    }

    /// An answer took so long.
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
