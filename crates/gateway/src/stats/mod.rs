//! Counts of requests by route, upstream, status and duration, and of faults by kind. Each worker has its own counters; they can
//! be read at any time.
//!
//! A series is a route with an upstream. Series have numbers, which belong to their names and survive a change of configuration.
//! Their number is limited: further ones are counted together.

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
pub(crate) use datagrams::DatagramCounts;
pub use datagrams::{DatagramDrop, DatagramReport, SessionEnd};
pub use extensions::{ExtensionKind, ExtensionOutcome, ExtensionReport};
use extensions::{OwnExtensions, SharedExtensions};
pub use histogram::LatencyHistogram;
use series::SeriesCounts;
pub use series::{Durations, SeriesReport};
pub(crate) use streams::StreamCounts;
pub use streams::{ConnectionEnd, StreamReport};

mod datagrams;
mod extensions;
mod histogram;
mod series;
mod streams;
pub mod upstreams;

#[cfg(test)]
mod tests;

/// Upper bounds of the buckets of durations, in seconds; one more bucket is for longer durations.
pub const BUCKETS: [f64; 13] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// The same in microseconds.
const BUCKETS_US: [u64; 13] = [
    1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000, 2_500_000, 5_000_000,
    10_000_000,
];

/// The series of requests without a route, and the number of connections without a stream route.
pub(crate) const NO_ROUTE: u32 = 0;
/// The series beyond [`limits::COUNTED_SERIES`], and the stream routes beyond [`limits::COUNTED_ROUTES`].
const OTHERS: u32 = 1;

/// The label of requests without a route.
pub const NO_ROUTE_LABEL: &str = "";
/// The label of the routes that are counted together because the limit is reached.
pub const OTHERS_LABEL: &str = "(others)";

/// The counters of every worker.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    /// Numbers of series, by the names of route and upstream.
    series: Mutex<SeriesNumbers<(Name, Name)>>,
    /// Numbers of stream routes.
    streams: Mutex<SeriesNumbers<Name>>,
    workers: Mutex<Vec<Arc<WorkerCounts>>>,
}

#[derive(Debug)]
struct SeriesNumbers<K> {
    by_name: BTreeMap<K, u32>,
    names: Vec<K>,
    most: usize,
}

/// The counters of one worker.
#[derive(Debug)]
struct WorkerCounts {
    /// By number.
    series: Mutex<ByNumber<SeriesCounts>>,
    /// By the numbers of stream routes.
    streams: Mutex<ByNumber<StreamCounts>>,
    /// The same of UDP sessions.
    datagrams: Mutex<ByNumber<DatagramCounts>>,
    extensions: SharedExtensions,
    /// In the order of [`Fault::ALL`].
    faults: Box<[AtomicU64]>,
}

/// Counts of a route with all of its upstreams, summed over all workers, which continue meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteReport {
    /// The route's name, or one of the labels of this module.
    pub name: Name,
    /// Responses with status 1xx to 5xx. Tunnels are 1xx; clients that left before the response count as 4xx.
    pub classes: [u64; 5],
    /// Durations in fine buckets, for percentiles.
    pub latencies: LatencyHistogram,
}

impl Default for SeriesNumbers<Name> {
    fn default() -> SeriesNumbers<Name> {
        SeriesNumbers {
            by_name: BTreeMap::new(),
            names: vec![NO_ROUTE_LABEL.into(), OTHERS_LABEL.into()],
            most: limits::COUNTED_ROUTES,
        }
    }
}

impl Default for SeriesNumbers<(Name, Name)> {
    fn default() -> SeriesNumbers<(Name, Name)> {
        let route_only = |route: &str| (Name::from(route), Name::from(""));
        SeriesNumbers {
            by_name: BTreeMap::new(),
            names: vec![route_only(NO_ROUTE_LABEL), route_only(OTHERS_LABEL)],
            most: limits::COUNTED_SERIES,
        }
    }
}

impl<K: Ord + Clone> SeriesNumbers<K> {
    fn number_of(&mut self, name: &K) -> u32 {
        if let Some(number) = self.by_name.get(name) {
            return *number;
        }
        if self.by_name.len() >= self.most {
            return OTHERS;
        }
        let number = self.names.len() as u32;
        self.names.push(name.clone());
        self.by_name.insert(name.clone(), number);
        number
    }
}

impl Metrics {
    /// Returns the number of a route's requests to an upstream. `None`: those that are not forwarded.
    pub(crate) fn series_number(&self, route: &Name, upstream: Option<&Name>) -> u32 {
        let upstream = upstream.map_or_else(|| Name::from(""), Arc::clone);
        lock(&self.series).number_of(&(Arc::clone(route), upstream))
    }

    /// Returns the number of a stream route.
    pub(crate) fn stream_number(&self, name: &Name) -> u32 {
        lock(&self.streams).number_of(name)
    }

    /// Adds the counters of a worker.
    pub(crate) fn add_worker(&self) -> WorkerCounters {
        let counts = Arc::new(WorkerCounts {
            series: Mutex::default(),
            streams: Mutex::default(),
            datagrams: Mutex::default(),
            extensions: SharedExtensions::default(),
            faults: Fault::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
        });
        lock(&self.workers).push(Arc::clone(&counts));
        WorkerCounters {
            counts,
            series: RefCell::default(),
            streams: RefCell::default(),
            datagrams: RefCell::default(),
            extensions: OwnExtensions::default(),
        }
    }

    /// Returns the counts of series that had requests, in the order of their first configuration.
    pub(crate) fn series(&self) -> Vec<SeriesReport> {
        let names = lock(&self.series).names.clone();
        let report = |(route, upstream)| SeriesReport::new(route, upstream);
        let mut reports: Vec<SeriesReport> = names.into_iter().map(report).collect();
        for worker in lock(&self.workers).iter() {
            for (report, counts) in reports.iter_mut().zip(lock(&worker.series).iter()) {
                if let Some(counts) = counts {
                    report.add(counts);
                }
            }
        }
        reports.retain(|report| !report.is_empty());
        reports
    }

    /// Returns the counts of routes that had requests.
    pub(crate) fn routes(&self) -> Vec<RouteReport> {
        let mut reports: Vec<RouteReport> = Vec::new();
        let mut indices: BTreeMap<Name, usize> = BTreeMap::new();
        for series in self.series() {
            let index = *indices.entry(Arc::clone(&series.route)).or_insert(reports.len());
            if index == reports.len() {
                reports.push(RouteReport {
                    name: Arc::clone(&series.route),
                    classes: [0; 5],
                    latencies: LatencyHistogram::default(),
                });
            }
            let report = &mut reports[index];
            for (sum, count) in report.classes.iter_mut().zip(series.classes()) {
                *sum += count;
            }
            report.latencies.add(&series.latencies);
        }
        reports
    }

    /// Returns the counts of calls to external services, by extension and upstream.
    pub(crate) fn extensions(&self) -> Vec<ExtensionReport> {
        extensions::sum(lock(&self.workers).iter().map(|worker| &worker.extensions))
    }

    /// Returns the count of each fault, in the order of [`Fault::ALL`].
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

/// A worker's handle to its counters.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    counts: Arc<WorkerCounts>,
    /// By number: the same counters as in `counts`, without its lock.
    series: RefCell<ByNumber<SeriesCounts>>,
    streams: RefCell<ByNumber<StreamCounts>>,
    datagrams: RefCell<ByNumber<DatagramCounts>>,
    extensions: OwnExtensions,
}

impl WorkerCounters {
    fn series(&self, number: u32) -> Arc<SeriesCounts> {
        worker_counts(number, &self.series, &self.counts.series)
    }

    /// Returns this worker's counters of a stream route.
    pub(crate) fn stream(&self, number: u32) -> Arc<StreamCounts> {
        worker_counts(number, &self.streams, &self.counts.streams)
    }

    /// Returns this worker's counters of the UDP sessions of a stream route.
    pub(crate) fn datagrams(&self, number: u32) -> Arc<DatagramCounts> {
        worker_counts(number, &self.datagrams, &self.counts.datagrams)
    }

    /// Counts a response to a request of a series, with its status and duration; 499: the client has left.
    pub(crate) fn count_response(&self, series: u32, status: u16, span: Duration) {
        self.series(series).count_response(status, span);
    }

    /// Counts a call to an external service.
    pub(crate) fn count_extension(
        &self,
        extension: (ExtensionKind, &Name),
        outcome: ExtensionOutcome,
        span: Duration,
    ) {
        self.extensions
            .count(&self.counts.extensions, extension, outcome, span);
    }

    /// Counts a request, or an attempt of one, that failed with this fault.
    pub(crate) fn count_fault(&self, fault: Fault) {
        add_relaxed(&self.counts.faults[fault as usize], 1);
    }
}

/// Counters by their number.
type ByNumber<T> = Vec<Option<Arc<T>>>;

/// Returns a worker's own counters of that number; creates them on first use.
fn worker_counts<T: Default>(number: u32, own: &RefCell<ByNumber<T>>, shared: &Mutex<ByNumber<T>>) -> Arc<T> {
    let index = number as usize;
    let mut own = own.borrow_mut();
    if let Some(Some(counts)) = own.get(index) {
        return Arc::clone(counts);
    }
    let counts = Arc::new(T::default());
    // First use by this worker: the lock is free except during a scrape.
    let mut shared = lock(shared);
    for list in [&mut *shared, &mut *own] {
        if list.len() <= index {
            list.resize(index + 1, None);
        }
        list[index] = Some(Arc::clone(&counts));
    }
    counts
}

/// Increments without read-modify-write: only one thread writes.
fn add_relaxed(count: &AtomicU64, by: u64) {
    count.store(count.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// A request that is counted when this is dropped, however it ends.
pub(crate) struct RequestCounter<'w> {
    counting: &'w WorkerCounters,
    cx: &'w Cx,
    started: Time,
    series: Cell<u32>,
    /// The status; `None`: the client has left.
    status: Cell<Option<u16>>,
}

impl<'w> RequestCounter<'w> {
    pub(crate) fn start(counting: &'w WorkerCounters, cx: &'w Cx, started_at: Time) -> RequestCounter<'w> {
        RequestCounter {
            counting,
            cx,
            started: started_at,
            series: Cell::new(NO_ROUTE),
            status: Cell::new(None),
        }
    }

    /// Sets the series.
    pub(crate) fn series(&self, number: u32) {
        self.series.set(number);
    }

    /// Sets the status of the response.
    pub(crate) fn set_status(&self, status: u16) {
        self.status.set(Some(status));
    }
}

impl Drop for RequestCounter<'_> {
    fn drop(&mut self) {
        let status = self.status.get().unwrap_or(499);
        let span = self.cx.now().since(self.started);
        self.counting.count_response(self.series.get(), status, span);
    }
}
