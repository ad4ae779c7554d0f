//! What rounds have shown, as it stands in a document.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::figures::{self, Percentiles};
use crate::report::{self, ServerUse, per_second};
use crate::stats;

/// Medians over the rounds, each with the least and the greatest.
#[derive(JsonSchema, Serialize)]
pub(super) struct Summary {
    /// Whole answers a second.
    throughput_per_s: Option<Spread>,
    /// CPU time of the server for an answer; `null` if it was not watched.
    server_cpu_us_per_answer: Option<Spread>,
    /// CPU time of the client for an answer.
    client_cpu_us_per_answer: Option<Spread>,
    /// From the sending of a request to its answer.
    service: Option<Tail>,
    /// From the scheduled moment of a request to its answer; `null` in a closed loop.
    response: Option<Tail>,
}

/// A figure of several rounds.
#[derive(JsonSchema, Serialize)]
struct Spread {
    median: f64,
    min: f64,
    max: f64,
}

/// Latencies that so many percent do not exceed, over the rounds.
#[derive(JsonSchema, Serialize)]
struct Tail {
    p50_us: Option<Spread>,
    p90_us: Option<Spread>,
    p99_us: Option<Spread>,
    p99_9_us: Option<Spread>,
    p99_99_us: Option<Spread>,
    max_us: Option<Spread>,
}

/// One round, the measured part.
#[derive(JsonSchema, Serialize)]
pub(super) struct Round<'a> {
    /// When measuring began, since the Unix epoch.
    began_s: f64,
    /// How long it was measured.
    elapsed_s: f64,
    /// Whole answers a second.
    throughput_per_s: f64,
    counts: Counts<'a>,
    /// From the sending of a request to its answer; `null` without answers.
    service: Option<Latency>,
    /// From the scheduled moment of a request to its answer; `null` in a closed loop.
    response: Option<Latency>,
    /// From asking for a connection to having it, without handshakes.
    connect: Option<Latency>,
    /// From having a connection to having it secured; `null` without TLS.
    handshake: Option<Latency>,
    /// From asking for a WebSocket on a connection to having it, or from beginning HTTP/2 to the server's settings; `null` for
    /// other protocols.
    opening: Option<Latency>,
    /// From the scheduled moment to the sending where a connection was free: the client's own lateness.
    lag: Option<Latency>,
    /// From the sending of a request to the first message of its answer; `null` unless answers are streams of messages.
    first_message: Option<Latency>,
    /// From each message of an answer to the next one; `null` as well.
    between_messages: Option<Latency>,
    client: Client,
    /// `null` if it was not watched.
    server: Option<Server>,
    /// The same over time.
    series: Vec<Interval<'a>>,
}

/// What was counted. Each request that was sent is in one of `answered`, `timeouts`, `broken` and `unfinished`.
#[derive(JsonSchema, Serialize)]
struct Counts<'a> {
    sent: u64,
    /// Whole answers of whatever status.
    answered: u64,
    /// Answers by HTTP status.
    statuses: &'a BTreeMap<u16, u64>,
    /// Calls of gRPC by how they ended; empty for other protocols.
    codes: &'a BTreeMap<&'static str, u64>,
    /// Messages of their answers.
    messages: u64,
    /// Answers that failed a check.
    unexpected: u64,
    /// Requests without an answer in time.
    timeouts: u64,
    /// Requests whose connection failed or whose answer broke the protocol, by what happened.
    broken: &'a BTreeMap<&'static str, u64>,
    /// Requests without an answer at the end.
    unfinished: u64,
    /// Times that the server declared a request unprocessed (GOAWAY, REFUSED_STREAM) and it was sent again.
    unprocessed: u64,
    /// Attempts to connect that failed, handshakes included, by what happened.
    connect_errors: &'a BTreeMap<&'static str, u64>,
    /// In a closed loop, the time in which connections could not be established, summed over connections.
    unconnected_s: f64,
    /// Of failed handshakes the first of each kind, in the words of who found the fault.
    first_errors: &'a BTreeMap<&'static str, String>,
    /// Connections that came about.
    connects: u64,
    /// Of those, WebSockets with permessage-deflate.
    deflated: u64,
    /// How many streams the server let be open at once on a connection (HTTP/2); `null` if it set no limit.
    streams_allowed: Option<u32>,
    /// TLS handshakes that came to their end, by version.
    tls_versions: &'a BTreeMap<&'static str, u64>,
    /// The same, by the IANA name of the cipher suite.
    tls_suites: &'a BTreeMap<&'static str, u64>,
    /// Of them, those that resumed an earlier session.
    tls_resumed: u64,
    /// Requests that left more than a millisecond after their scheduled time.
    late: u64,
    /// Arrivals, or requests of a number of them, that were never sent for want of a connection.
    dropped: u64,
    sent_bytes: u64,
    received_bytes: u64,
}

/// A distribution of latencies.
#[derive(JsonSchema, Serialize)]
pub(super) struct Latency {
    count: u64,
    mean_us: f64,
    deviation_us: f64,
    min_us: f64,
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    p99_99_us: f64,
    max_us: f64,
}

/// What the client itself used.
#[derive(JsonSchema, Serialize)]
struct Client {
    cpu_s: f64,
    cpu_us_per_answer: Option<f64>,
    workers: Vec<Worker>,
}

#[derive(JsonSchema, Serialize)]
struct Worker {
    cpu_s: f64,
    /// Ready, without a CPU.
    waited_s: Option<f64>,
    /// The CPU that it was pinned to.
    pinned: Option<usize>,
}

/// What the server's process and all its descendants used.
#[derive(JsonSchema, Serialize)]
struct Server {
    cpu_s: f64,
    cpu_us_per_answer: Option<f64>,
    peak_memory_bytes: u64,
    /// Processes at the end.
    processes: u32,
}

/// A part of a round.
#[derive(JsonSchema, Serialize)]
struct Interval<'a> {
    /// Its end, since the beginning of the round.
    until_s: f64,
    length_s: f64,
    throughput_per_s: f64,
    counts: Counts<'a>,
    /// `null` without answers.
    service: Option<Short>,
    /// `null` in a closed loop or without answers.
    response: Option<Short>,
}

/// A distribution of latencies in short.
#[derive(JsonSchema, Serialize)]
struct Short {
    p50_us: f64,
    p90_us: f64,
    p99_us: f64,
    p99_9_us: f64,
    p99_99_us: f64,
    max_us: f64,
}

impl Summary {
    pub(super) fn of(run: &report::Run) -> Summary {
        let spread = |of: &dyn Fn(&report::Round) -> Option<f64>| Spread::of(run.rounds.iter().map(of));
        Summary {
            throughput_per_s: spread(&|round| Some(round.throughput())),
            server_cpu_us_per_answer: spread(&|round| round.cpu_per_answer_us(round.server?.cpu)),
            client_cpu_us_per_answer: spread(&|round| round.cpu_per_answer_us(round.client_cpu())),
            service: Tail::of(run, |figures| &figures.service),
            response: Tail::of(run, |figures| &figures.response),
        }
    }
}

impl Spread {
    /// Of all rounds, or none: rounds that lack it would make the others look like the whole.
    fn of(values: impl Iterator<Item = Option<f64>>) -> Option<Spread> {
        let stats::Spread { median, min, max } = stats::Spread::of(&values.collect::<Option<Vec<f64>>>()?)?;
        Some(Spread { median, min, max })
    }
}

impl Tail {
    fn of(run: &report::Run, kind: impl Fn(&figures::Figures) -> &figures::Latency) -> Option<Tail> {
        let latencies: Vec<&figures::Latency> = run.rounds.iter().map(|round| kind(&round.figures)).collect();
        if latencies.is_empty() || latencies.iter().any(|latency| latency.count() == 0) {
            return None;
        }
        let tails: Vec<Percentiles> = latencies.into_iter().map(figures::Latency::percentiles).collect();
        let spread = |of: fn(&Percentiles) -> Duration| {
            Spread::of(tails.iter().map(|tail| Some(microseconds(of(tail)))))
        };
        Some(Tail {
            p50_us: spread(|tail| tail.p50),
            p90_us: spread(|tail| tail.p90),
            p99_us: spread(|tail| tail.p99),
            p99_9_us: spread(|tail| tail.p999),
            p99_99_us: spread(|tail| tail.p9999),
            max_us: spread(|tail| tail.max),
        })
    }
}

impl<'a> Round<'a> {
    pub(super) fn of(round: &'a report::Round) -> Round<'a> {
        let figures = &round.figures;
        let streamed = figures.streamed.as_deref();
        let worker = |worker: &report::Effort| Worker {
            cpu_s: worker.cpu.as_secs_f64(),
            waited_s: worker.waited.map(|waited| waited.as_secs_f64()),
            pinned: worker.pinned,
        };
        let server = |server: ServerUse| Server {
            cpu_s: server.cpu.as_secs_f64(),
            cpu_us_per_answer: round.cpu_per_answer_us(server.cpu),
            peak_memory_bytes: server.peak_memory_bytes,
            processes: server.processes,
        };
        Round {
            began_s: round.began.as_secs_f64(),
            elapsed_s: round.elapsed.as_secs_f64(),
            throughput_per_s: round.throughput(),
            counts: Counts::of(&figures.counts),
            service: Latency::of(&figures.service),
            response: Latency::of(&figures.response),
            connect: Latency::of(&figures.connect),
            handshake: Latency::of(&figures.handshake),
            opening: Latency::of(&figures.opening),
            lag: Latency::of(&figures.lag),
            first_message: streamed.and_then(|streamed| Latency::of(&streamed.first)),
            between_messages: streamed.and_then(|streamed| Latency::of(&streamed.between)),
            client: Client {
                cpu_s: round.client_cpu().as_secs_f64(),
                cpu_us_per_answer: round.cpu_per_answer_us(round.client_cpu()),
                workers: round.workers.iter().map(worker).collect(),
            },
            server: round.server.map(server),
            series: round.series.iter().map(Interval::of).collect(),
        }
    }
}

impl<'a> Counts<'a> {
    fn of(counts: &'a figures::Counts) -> Counts<'a> {
        Counts {
            sent: counts.sent,
            answered: counts.answered,
            statuses: &counts.statuses,
            codes: &counts.codes,
            messages: counts.messages,
            unexpected: counts.unexpected,
            timeouts: counts.timeouts,
            broken: &counts.broken,
            unfinished: counts.unfinished,
            unprocessed: counts.unprocessed,
            connect_errors: &counts.connect_errors,
            unconnected_s: counts.unconnected.as_secs_f64(),
            first_errors: &counts.first_errors,
            connects: counts.connects,
            deflated: counts.deflated,
            streams_allowed: counts.streams_allowed,
            tls_versions: &counts.tls_versions,
            tls_suites: &counts.tls_suites,
            tls_resumed: counts.tls_resumed,
            late: counts.late,
            dropped: counts.dropped,
            sent_bytes: counts.bytes_sent,
            received_bytes: counts.bytes_received,
        }
    }
}

impl Latency {
    pub(super) fn of(latency: &figures::Latency) -> Option<Latency> {
        let percentiles = latency.percentiles();
        (latency.count() > 0).then(|| Latency {
            count: latency.count(),
            mean_us: microseconds(latency.mean()),
            deviation_us: microseconds(latency.deviation()),
            min_us: microseconds(latency.min()),
            p50_us: microseconds(percentiles.p50),
            p90_us: microseconds(percentiles.p90),
            p99_us: microseconds(percentiles.p99),
            p99_9_us: microseconds(percentiles.p999),
            p99_99_us: microseconds(percentiles.p9999),
            max_us: microseconds(percentiles.max),
        })
    }
}

impl<'a> Interval<'a> {
    fn of(interval: &'a report::Interval) -> Interval<'a> {
        Interval {
            until_s: interval.until.as_secs_f64(),
            length_s: interval.length.as_secs_f64(),
            throughput_per_s: per_second(interval.counts.answered, interval.length),
            counts: Counts::of(&interval.counts),
            service: Short::of(interval.service),
            response: Short::of(interval.response),
        }
    }
}

impl Short {
    /// A latency takes some time, so that a longest one of zero means that there is none.
    fn of(percentiles: Percentiles) -> Option<Short> {
        (!percentiles.max.is_zero()).then(|| Short {
            p50_us: microseconds(percentiles.p50),
            p90_us: microseconds(percentiles.p90),
            p99_us: microseconds(percentiles.p99),
            p99_9_us: microseconds(percentiles.p999),
            p99_99_us: microseconds(percentiles.p9999),
            max_us: microseconds(percentiles.max),
        })
    }
}

/// Exact to the nanosecond, and written as such.
fn microseconds(duration: Duration) -> f64 {
    duration.as_nanos() as f64 / 1e3
}
