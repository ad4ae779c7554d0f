//! Counters of an application: requests, responses by class, latencies. Each is written by one worker and read by any thread.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::limits;

/// The counters of every worker.
#[derive(Debug, Default)]
pub struct Stats {
    workers: Mutex<Vec<Arc<WorkerStats>>>,
}

/// One worker's counters, on cache lines of their own: only the worker writes them.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct WorkerStats {
    /// Responses by the first digit of their status.
    classes: [AtomicU64; 6],
    /// Requests that could not be parsed.
    refused: AtomicU64,
    /// Requests that a limit rejected.
    rejected: [AtomicU64; Rejection::ALL.len()],
    /// Open WebSockets, and messages received and sent on them.
    sockets: AtomicU64,
    messages_in: AtomicU64,
    messages_out: AtomicU64,
    latencies: [AtomicU64; BUCKETS],
    /// Open connections by the number of their listener; a chunk exists once one of its listeners has had a connection.
    listeners: [OnceLock<Box<ListenerChunk>>; LISTENER_CHUNKS],
}

type ListenerChunk = [AtomicU64; LISTENERS_PER_CHUNK];
const LISTENERS_PER_CHUNK: usize = 64;
const LISTENER_CHUNKS: usize = limits::COUNTED_LISTENERS as usize / LISTENERS_PER_CHUNK;

/// Eight buckets for each power of two of nanoseconds: a bucket is at most 12.5 % wide.
const BUCKETS: usize = 8 * 64;

/// A sum over all workers at one time.
#[derive(Clone, Debug)]
pub struct Totals {
    /// Responses with status 1xx to 5xx, indexed by that digit.
    pub classes: [u64; 6],
    /// Requests that violated the protocol and were refused before routing; their responses count too.
    pub refused: u64,
    /// Requests that a limit of the server rejected with 503; their responses count too.
    pub rejected: [(Rejection, u64); Rejection::ALL.len()],
    /// Open WebSockets.
    pub sockets: u64,
    /// Complete messages received on WebSockets.
    pub messages_in: u64,
    /// Messages queued for WebSockets, counted once per receiver.
    pub messages_out: u64,
    latencies: Box<[u64; BUCKETS]>,
}

/// A limit of the server that rejects requests with 503, whatever their route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rejection {
    /// [`Limits::max_queue_delay`](crate::Limits::max_queue_delay) in an overloaded worker.
    QueueDelay,
    /// [`Limits::running_requests`](crate::Limits::running_requests).
    RunningRequests,
    /// The limit of buffered request bodies.
    BufferedBodies,
    /// The limit of connections from one address; counted for HTTP without TLS, where a response is sent.
    AddressConnections,
}

impl Rejection {
    /// All, in the order of [`Totals::rejected`].
    pub const ALL: [Rejection; 4] = [
        Rejection::QueueDelay,
        Rejection::RunningRequests,
        Rejection::BufferedBodies,
        Rejection::AddressConnections,
    ];

    /// Returns the name in metrics.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Rejection::QueueDelay => "max_queue_delay",
            Rejection::RunningRequests => "running_requests",
            Rejection::BufferedBodies => "buffered_bodies",
            Rejection::AddressConnections => "connections_per_address",
        }
    }
}

impl Stats {
    /// Returns the counters of a worker, created at the first call.
    pub(crate) fn worker(&self, index: usize) -> Arc<WorkerStats> {
        let mut workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        while workers.len() <= index {
            workers.push(Arc::new(WorkerStats::new()));
        }
        Arc::clone(&workers[index])
    }

    /// Returns the open connections of a listener. `None`: its number is too high to be counted
    /// ([`COUNTED_LISTENERS`](crate::limits::COUNTED_LISTENERS)).
    #[must_use]
    pub fn listener_connections(&self, number: u32) -> Option<u64> {
        if number >= limits::COUNTED_LISTENERS {
            return None;
        }
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        let open = workers.iter().filter_map(|worker| worker.listener(number, false));
        Some(open.map(|open| open.load(Ordering::Relaxed)).sum())
    }

    /// Returns the sum over all workers. It is not a snapshot of one instant, because workers continue to count.
    #[must_use]
    pub fn totals(&self) -> Totals {
        let mut totals = Totals {
            classes: [0; 6],
            refused: 0,
            rejected: Rejection::ALL.map(|rejection| (rejection, 0)),
            sockets: 0,
            messages_in: 0,
            messages_out: 0,
            latencies: Box::new([0; BUCKETS]),
        };
        let workers = self.workers.lock().unwrap_or_else(PoisonError::into_inner);
        for worker in workers.iter() {
            add(&mut totals.classes, &worker.classes);
            add(totals.latencies.as_mut(), &worker.latencies);
            totals.refused += worker.refused.load(Ordering::Relaxed);
            for ((_, sum), count) in totals.rejected.iter_mut().zip(&worker.rejected) {
                *sum += count.load(Ordering::Relaxed);
            }
            totals.sockets += worker.sockets.load(Ordering::Relaxed);
            totals.messages_in += worker.messages_in.load(Ordering::Relaxed);
            totals.messages_out += worker.messages_out.load(Ordering::Relaxed);
        }
        totals
    }
}

fn add(sums: &mut [u64], counts: &[AtomicU64]) {
    for (sum, count) in sums.iter_mut().zip(counts) {
        *sum += count.load(Ordering::Relaxed);
    }
}

impl WorkerStats {
    fn new() -> WorkerStats {
        WorkerStats {
            classes: std::array::from_fn(|_| AtomicU64::new(0)),
            refused: AtomicU64::new(0),
            rejected: Rejection::ALL.map(|_| AtomicU64::new(0)),
            sockets: AtomicU64::new(0),
            messages_in: AtomicU64::new(0),
            messages_out: AtomicU64::new(0),
            latencies: std::array::from_fn(|_| AtomicU64::new(0)),
            listeners: std::array::from_fn(|_| OnceLock::new()),
        }
    }

    /// Returns the counter of a listener's open connections; `None`: it does not exist yet, or the number is too high.
    fn listener(&self, number: u32, create: bool) -> Option<&AtomicU64> {
        let number = number as usize;
        let chunk = self.listeners.get(number / LISTENERS_PER_CHUNK)?;
        let counters = if create {
            chunk.get_or_init(|| Box::new(std::array::from_fn(|_| AtomicU64::new(0))))
        } else {
            chunk.get()?
        };
        counters.get(number % LISTENERS_PER_CHUNK)
    }

    /// Counts a connection that a listener has accepted.
    pub(crate) fn connection_opened(&self, listener: u32) {
        if let Some(open) = self.listener(listener, true) {
            bump(open);
        }
    }

    /// Removes a connection from the count of its listener.
    pub(crate) fn connection_closed(&self, listener: u32) {
        if let Some(open) = self.listener(listener, false) {
            open.store(open.load(Ordering::Relaxed).saturating_sub(1), Ordering::Relaxed);
        }
    }

    /// Counts a response with `status`.
    pub(crate) fn answered(&self, status: u16) {
        bump(&self.classes[usize::from(status / 100).min(5)]);
    }

    pub(crate) fn refused(&self) {
        bump(&self.refused);
    }

    /// Counts a request that a limit has rejected.
    pub(crate) fn rejected(&self, rejection: Rejection) {
        bump(&self.rejected[rejection as usize]);
    }

    pub(crate) fn socket_opened(&self) {
        bump(&self.sockets);
    }

    pub(crate) fn socket_closed(&self) {
        let open = self.sockets.load(Ordering::Relaxed);
        self.sockets.store(open - 1, Ordering::Relaxed);
    }

    pub(crate) fn message_in(&self) {
        bump(&self.messages_in);
    }

    pub(crate) fn message_out(&self) {
        bump(&self.messages_out);
    }

    /// Records the latency of a request.
    pub(crate) fn took(&self, span: Duration) {
        bump(&self.latencies[bucket(span)]);
    }
}

/// Increments a counter without read-modify-write, because only the worker writes it.
fn bump(count: &AtomicU64) {
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

/// Returns the bucket of a duration: its highest bit and the three below.
fn bucket(span: Duration) -> usize {
    let nanos = u64::try_from(span.as_nanos()).unwrap_or(u64::MAX).max(8);
    let power = nanos.ilog2();
    let eighth = (nanos >> (power - 3)) & 7;
    8 * power as usize + eighth as usize
}

/// Returns the largest duration in a bucket.
fn upper(bucket: usize) -> Duration {
    let (power, eighth) = (bucket / 8, (bucket % 8) as u128);
    let next = (9 + eighth) << power >> 3;
    Duration::from_nanos(u64::try_from(next - 1).unwrap_or(u64::MAX))
}

impl Totals {
    /// Returns the total number of responses.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.classes.iter().sum()
    }

    /// Returns the difference from `earlier`; [`Totals::sockets`] remains the number of sockets open now.
    #[must_use]
    pub fn since(&self, earlier: &Totals) -> Totals {
        let mut difference = self.clone();
        let pairs = difference.classes.iter_mut().zip(&earlier.classes);
        pairs.for_each(|(now, then)| *now = now.saturating_sub(*then));
        let pairs = difference.latencies.iter_mut().zip(earlier.latencies.iter());
        pairs.for_each(|(now, then)| *now = now.saturating_sub(*then));
        difference.refused = difference.refused.saturating_sub(earlier.refused);
        difference.messages_in = difference.messages_in.saturating_sub(earlier.messages_in);
        difference.messages_out = difference.messages_out.saturating_sub(earlier.messages_out);
        difference
    }

    /// Returns the latency that `quantile` (0 to 1) of the sampled requests did not exceed, to within 12.5 %; `None` without samples.
    /// Measured from the loop turn in which a head was complete to its encoded response (the head of a streamed one), without the
    /// kernel's queues before and after. Samples one plain request in [`LATENCY_SAMPLE_INTERVAL`], and each asynchronous one.
    #[must_use]
    pub fn latency(&self, quantile: f64) -> Option<Duration> {
        let samples: u64 = self.latencies.iter().sum();
        let rank = ((samples as f64 * quantile).ceil() as u64).clamp(1, samples.max(1));
        let mut counted = 0;
        let bucket = self.latencies.iter().position(|count| {
            counted += count;
            counted >= rank
        });
        bucket.filter(|_| samples > 0).map(upper)
    }
}

/// One plain request in this number has its latency measured: reading the clock costs a few per mille of a request.
pub const LATENCY_SAMPLE_INTERVAL: u32 = 16;
