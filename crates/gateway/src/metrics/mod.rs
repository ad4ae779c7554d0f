//! What is counted of requests: by route, status and duration, and of faults by kind. Each worker counts for itself, read at
//! any time.
//!
//! Routes are known by numbers, which belong to their names and survive a change of configuration. How many there can be is
//! bounded: what comes later is counted together.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_engine::Cx;
use ringmain_engine::backend::Time;

use crate::fault::Fault;
use crate::limits;
use crate::model::Name;
pub(crate) use streams::StreamCounts;
pub use streams::{Ended, StreamReport};

mod streams;

#[cfg(test)]
mod tests;

/// Where the buckets of durations end, in seconds; one more is for what took longer.
pub const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The same in microseconds.
const BUCKETS_US: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// Of requests that no route took.
pub(crate) const NO_ROUTE: u32 = 0;
/// Of routes beyond [`limits::COUNTED_ROUTES`].
const OTHERS: u32 = 1;

/// The label of requests that no route took.
pub const NO_ROUTE_LABEL: &str = "";
/// The label of all routes that are counted together.
pub const OTHERS_LABEL: &str = "(others)";

/// Counts of all workers.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    numbers: Mutex<Numbers>,
    /// Of stream routes.
    streams: Mutex<Numbers>,
    workers: Mutex<Vec<Arc<WorkerCounts>>>,
}

#[derive(Debug)]
struct Numbers {
    by_name: BTreeMap<Name, u32>,
    names: Vec<Name>,
}

/// One worker's.
#[derive(Debug)]
struct WorkerCounts {
    /// By number.
    routes: Mutex<Vec<Option<Arc<RouteCounts>>>>,
    /// By the numbers of stream routes.
    streams: Mutex<Vec<Option<Arc<StreamCounts>>>>,
    /// In the order of [`Fault::ALL`].
    faults: Box<[AtomicU64]>,
}

/// One worker's counts of one route. Only the worker writes them.
#[derive(Debug, Default)]
struct RouteCounts {
    /// By the first digit of the status, from 1.
    classes: [AtomicU64; 5],
    buckets: [AtomicU64; BUCKETS.len() + 1],
    micros: AtomicU64,
}

/// What was counted of a route, all workers together. Workers go on meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReport {
    /// Its name, or one of the labels of this module.
    pub name: Name,
    /// Answers with status 1xx to 5xx. Tunnels are 1xx; clients that left before the answer count as 4xx.
    pub classes: [u64; 5],
    /// How many answers took as long as a bucket says, the last one longer than all; tunnels are in none.
    pub buckets: [u64; BUCKETS.len() + 1],
    /// All of them together, in microseconds.
    pub micros: u64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        Numbers {
            by_name: BTreeMap::new(),
            names: vec![NO_ROUTE_LABEL.into(), OTHERS_LABEL.into()],
        }
    }
}

impl Numbers {
    fn of(&mut self, name: &Name) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        if self.by_name.len() >= limits::COUNTED_ROUTES {
            return OTHERS;
        }
        let number = self.names.len() as u32;
        self.names.push(Arc::clone(name));
        self.by_name.insert(Arc::clone(name), number);
        number
    }
}

impl Metrics {
    /// The number of a route.
    pub(crate) fn number(&self, name: &Name) -> u32 {
        lock(&self.numbers).of(name)
    }

    /// The number of a stream route.
    pub(crate) fn stream_number(&self, name: &Name) -> u32 {
        lock(&self.streams).of(name)
    }

    /// A worker's own way in.
    pub(crate) fn worker(&self) -> Counting {
        let counts = Arc::new(WorkerCounts {
            routes: Mutex::default(),
            streams: Mutex::default(),
            faults: Fault::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        lock(&self.workers).push(Arc::clone(&counts));
        Counting {
            counts,
            routes: RefCell::default(),
            streams: RefCell::default(),
        }
    }

    /// What was counted of routes that were asked for, in the order of their first configuration.
    pub(crate) fn routes(&self) -> Vec<RouteReport> {
        let names = lock(&self.numbers).names.clone();
        let mut reports: Vec<RouteReport> = names.into_iter().map(RouteReport::new).collect();
        for worker in lock(&self.workers).iter() {
            for (report, counts) in reports.iter_mut().zip(lock(&worker.routes).iter()) {
                if let Some(counts) = counts {
                    report.add(counts);
                }
            }
        }
        reports.retain(|report| report.classes.iter().any(|count| *count > 0));
        reports
    }

    /// How often there was a fault of each kind, in the order of [`Fault::ALL`].
    pub(crate) fn faults(&self) -> Vec<(Fault, u64)> {
        let mut sums: Vec<(Fault, u64)> = Fault::ALL.iter().map(|fault| (*fault, 0)).collect();
        for worker in lock(&self.workers).iter() {
            for ((_, sum), count) in sums.iter_mut().zip(&worker.faults) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        sums
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RouteReport {
    fn new(name: Name) -> RouteReport {
        RouteReport {
            name,
            classes: [0; 5],
            buckets: [0; BUCKETS.len() + 1],
            micros: 0,
        }
    }

    fn add(&mut self, counts: &RouteCounts) {
        let load = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.classes
            .iter_mut()
            .zip(&counts.classes)
            .for_each(|(sum, count)| *sum += load(count));
        self.buckets
            .iter_mut()
            .zip(&counts.buckets)
            .for_each(|(sum, count)| *sum += load(count));
        self.micros += load(&counts.micros);
    }
}

/// What a worker counts with.
#[derive(Debug)]
pub(crate) struct Counting {
    counts: Arc<WorkerCounts>,
    /// By number: what `counts` has, without its lock.
    routes: RefCell<Vec<Option<Arc<RouteCounts>>>>,
    streams: RefCell<Vec<Option<Arc<StreamCounts>>>>,
}

impl Counting {
    fn route(&self, number: u32) -> Arc<RouteCounts> {
        own(number, &self.routes, &self.counts.routes)
    }

    /// This worker's counts of a stream route.
    pub(crate) fn stream(&self, number: u32) -> Arc<StreamCounts> {
        own(number, &self.streams, &self.counts.streams)
    }

    /// A request of a route was answered with that status after such a time; 499: its client has left.
    pub(crate) fn answered(&self, route: u32, status: u16, span: Duration) {
        let counts = self.route(route);
        bump(&counts.classes[usize::from(status / 100).clamp(1, 5) - 1], 1);
        // How long a tunnel was open says nothing of how fast anybody is.
        if status != 101 {
            counts.took(span);
        }
    }

    /// A request ended by this, or a try of it.
    pub(crate) fn fault(&self, fault: Fault) {
        bump(&self.counts.faults[fault as usize], 1);
    }
}

/// Counts by their number.
type Numbered<T> = Vec<Option<Arc<T>>>;

/// A worker's own counts of that number.
fn own<T: Default>(number: u32, own: &RefCell<Numbered<T>>, shared: &Mutex<Numbered<T>>) -> Arc<T> {
    let index = number as usize;
    let mut own = own.borrow_mut();
    if let Some(Some(counts)) = own.get(index) {
        return Arc::clone(counts);
    }
    let counts = Arc::new(T::default());
    // The first of a route: the lock is free but for a moment at a scrape.
    let mut shared = lock(shared);
    for list in [&mut *shared, &mut *own] {
        if list.len() <= index {
            list.resize(index + 1, None);
        }
        list[index] = Some(Arc::clone(&counts));
    }
    counts
}

/// Only one thread writes: no read-modify-write.
fn bump(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// A request that is counted however it ends.
pub(crate) struct Count<'w> {
    counting: &'w Counting,
    cx: &'w Cx,
    began: Time,
    route: Cell<u32>,
    /// What it ended with; `None`: its client has left.
    ended: Cell<Option<u16>>,
}

impl<'w> Count<'w> {
    pub(crate) fn begin(counting: &'w Counting, cx: &'w Cx, began: Time) -> Count<'w> {
        Count {
            counting,
            cx,
            began,
            route: Cell::new(NO_ROUTE),
            ended: Cell::new(None),
        }
    }

    /// A route took it.
    pub(crate) fn route(&self, number: u32) {
        self.route.set(number);
    }

    /// It was answered.
    pub(crate) fn end(&self, status: u16) {
        self.ended.set(Some(status));
    }
}

impl Drop for Count<'_> {
    fn drop(&mut self) {
        let status = self.ended.get().unwrap_or(499);
        let span = self.cx.now().since(self.began);
        self.counting.answered(self.route.get(), status, span);
    }
}

impl RouteCounts {
    fn took(&self, span: Duration) {
        let micros = u64::try_from(span.as_micros()).unwrap_or(u64::MAX);
        let bucket = BUCKETS_US.partition_point(|end| *end < micros);
        bump(&self.buckets[bucket], 1);
        bump(&self.micros, micros);
    }
}
