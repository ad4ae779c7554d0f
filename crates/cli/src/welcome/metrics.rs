//! The metrics of the welcome page: counters and rates, as one JSON document per second.
//!
//! Plain functions over plain data; time is a parameter.

use std::collections::VecDeque;
use std::time::Duration;

use serde::Serialize;

use crate::limits::RATES;

/// Properties of the server that do not change.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct ServerInfo {
    pub(crate) version: &'static str,
    /// `uring` or `epoll`.
    pub(crate) engine: &'static str,
    pub(crate) features: Vec<String>,
    /// Features that are missing on this host, or disabled.
    pub(crate) missing: Vec<String>,
    /// The reason why io_uring is not used, if so.
    pub(crate) why_not: Option<String>,
    pub(crate) workers: usize,
    pub(crate) cpus: usize,
}

/// The counters at one instant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sample {
    /// Monotonic time.
    pub(crate) at: Duration,
    /// CPU time of the process.
    pub(crate) cpu: Duration,
    /// Responses since startup.
    pub(crate) requests: u64,
    pub(crate) connections: u64,
    pub(crate) accepted: u64,
    pub(crate) memory_bytes: Option<u64>,
    /// Latencies of the last seconds.
    pub(crate) latency: Option<Latency<Duration>>,
}

/// Percentiles of the latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Latency<T> {
    pub(crate) p50: T,
    pub(crate) p90: T,
    pub(crate) p99: T,
    pub(crate) p999: T,
}

impl<T> Latency<T> {
    pub(crate) fn map_values<U>(self, change: impl Fn(T) -> U) -> Latency<U> {
        Latency {
            p50: change(self.p50),
            p90: change(self.p90),
            p99: change(self.p99),
            p999: change(self.p999),
        }
    }
}

/// Converts samples into documents.
pub(crate) struct MetricsBuilder {
    server_info: ServerInfo,
    first: Sample,
    last: Sample,
    /// Requests per second, the newest last.
    rates: VecDeque<u64>,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    server_info: &'a ServerInfo,
    uptime_s: u64,
    requests: u64,
    rate: u64,
    rates: &'a VecDeque<u64>,
    latency_us: Option<Latency<f64>>,
    connections: u64,
    accepted: u64,
    cpu_percent: f64,
    memory_bytes: Option<u64>,
}

impl MetricsBuilder {
    /// Returns a builder whose first interval begins at `first`.
    pub(crate) fn new(server_info: ServerInfo, first: Sample) -> MetricsBuilder {
        MetricsBuilder {
            server_info,
            first,
            last: first,
            rates: VecDeque::with_capacity(RATES),
        }
    }

    /// Returns the document at `now`, on one line; its rates cover the time since the last call.
    pub(crate) fn next_document(&mut self, now: Sample) -> String {
        let span = now.at.saturating_sub(self.last.at).as_secs_f64();
        let per_second = |amount: f64| if span > 0.0 { amount / span } else { 0.0 };
        let rate = per_second(now.requests.saturating_sub(self.last.requests) as f64).round() as u64;
        let cpu = per_second(now.cpu.saturating_sub(self.last.cpu).as_secs_f64());
        if self.rates.len() == RATES {
            self.rates.pop_front();
        }
        self.rates.push_back(rate);
        self.last = now;
        let document = Document {
            server_info: &self.server_info,
            uptime_s: now.at.saturating_sub(self.first.at).as_secs(),
            requests: now.requests,
            rate,
            rates: &self.rates,
            latency_us: now
                .latency
                .map(|latency| latency.map_values(|span| round_to_tenth(span.as_nanos() as f64 / 1000.0))),
            connections: now.connections,
            accepted: now.accepted,
            cpu_percent: round_to_tenth(100.0 * cpu),
            memory_bytes: now.memory_bytes,
        };
        serde_json::to_string(&document).expect("text and finite numbers under text names")
    }
}

/// Rounds to one decimal.
fn round_to_tenth(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}
