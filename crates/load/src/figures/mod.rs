//! What was counted and timed: of one worker in one interval, and merged of all.
//!
//! Knows nothing of schedules or sockets; the caller that records here has decided what counts.

mod latency;
mod unanswered;

use std::collections::BTreeMap;
use std::time::Duration;

pub use latency::{Latency, Percentiles};
pub(crate) use unanswered::Population;
pub use unanswered::{Bounds, Waits};

/// Counts and latencies. Merging those of intervals or workers gives those of the whole, without loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// What was counted.
    pub counts: Counts,
    /// From the moment a request was sent to the last byte of its answer. Right answers and HTTP errors alike; not what
    /// was never answered.
    pub service: Latency,
    /// From the moment the schedule meant a request to be sent to the last byte of its answer; empty in a closed loop, which
    /// has no schedule.
    pub response: Latency,
    /// From asking for a connection to having it, without handshakes.
    pub connect: Latency,
    /// From having a connection to having it secured; empty without TLS.
    pub handshake: Latency,
    /// From asking for a WebSocket on a connection to having it, or from beginning HTTP/2 to the server's settings; empty for
    /// other protocols.
    pub opening: Latency,
    /// From the scheduled moment to the sending, where a connection was free: what this program was late by itself.
    pub lag: Latency,
    /// Of answers that are streams of messages; `None` without a message of such.
    pub streamed: Option<Box<Streamed>>,
    /// How long requests that failed without a response had waited: timeouts, broken connections, and arrivals that were never
    /// sent. `None` if there are none.
    pub failed: Option<Box<Waits>>,
    /// How long requests had waited that were still in flight when the measured time ended. `None` if there are none.
    pub unfinished: Option<Box<Waits>>,
}

/// When messages of streams came.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Streamed {
    /// From the sending of a request to the first message of its answer.
    pub first: Latency,
    /// From each message to the next one.
    pub between: Latency,
}

/// Counts. Every request that was sent ends in exactly one of `answered`, `timeouts`, `broken` and `unfinished`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Requests sent.
    pub sent: u64,
    /// Whole answers, of whatever status; echoed messages.
    pub answered: u64,
    /// Of those, by HTTP status; empty for other protocols.
    pub statuses: BTreeMap<u16, u64>,
    /// Of calls of gRPC, by how they ended (`OK`, `UNAVAILABLE`, …); empty for other protocols.
    pub codes: BTreeMap<&'static str, u64>,
    /// Messages of their answers.
    pub messages: u64,
    /// Answers that failed a check: of the scenario, the expected status, an echoed byte.
    pub unexpected: u64,
    /// Requests without an answer in time.
    pub timeouts: u64,
    /// Requests whose connection failed or whose answer broke the protocol, by what happened (`reset`, `closed early`, …).
    pub broken: BTreeMap<&'static str, u64>,
    /// Requests without an answer at the end of the measured time.
    pub unfinished: u64,
    /// Attempts to connect that failed, handshakes included, by what happened (`refused`, `timed out`, …).
    pub connect_errors: BTreeMap<&'static str, u64>,
    /// In a closed loop, the time in which connections could not be established, summed over connections: no request was sent by
    /// these then. An open loop counts its arrivals instead ([`Counts::dropped`]).
    pub unconnected: Duration,
    /// Of failed handshakes and of TLS that failed later the first of each kind, in the words of who found the fault.
    pub first_errors: BTreeMap<&'static str, String>,
    /// Connections that came about, handshakes included: those that the round began with, and those opened while it was
    /// measured.
    pub connects: u64,
    /// Of those, WebSockets with permessage-deflate.
    pub deflated: u64,
    /// How many streams servers let be open at once on a connection (HTTP/2): the fewest that were said.
    pub streams_allowed: Option<u32>,
    /// TLS handshakes that came to their end, by the version that was agreed on (`TLSv1.3`, …).
    pub tls_versions: BTreeMap<&'static str, u64>,
    /// The same, by the IANA name of the cipher suite.
    pub tls_suites: BTreeMap<&'static str, u64>,
    /// Of them, those that resumed an earlier session.
    pub tls_resumed: u64,
    /// Requests that left more than [`crate::limits::LATE`] after their scheduled time.
    pub late: u64,
    /// Arrivals for which no connection became free in time, and requests of a number that was given up since no connection could
    /// be established; never sent.
    pub dropped: u64,
    /// Times that a server declared a request unprocessed (HTTP/2: a stream above the last one of GOAWAY, or REFUSED_STREAM) and
    /// it was sent again (RFC 9113 §8.7). The request itself counts once in `sent`.
    pub unprocessed: u64,
    /// Bytes sent and received, heads and bodies.
    pub bytes_sent: u64,
    /// As received.
    pub bytes_received: u64,
}

/// Beyond, a share of missing requests cannot be told from all of them.
const MOST_MISSING: f64 = 1e15;

impl Figures {
    /// Adds what another worker or interval has seen.
    pub fn merge(&mut self, other: &Figures) {
        self.counts.merge(&other.counts);
        self.service.merge(&other.service);
        self.response.merge(&other.response);
        self.connect.merge(&other.connect);
        self.handshake.merge(&other.handshake);
        self.opening.merge(&other.opening);
        self.lag.merge(&other.lag);
        if let Some(other) = &other.streamed {
            let streamed = self.streamed.get_or_insert_default();
            streamed.first.merge(&other.first);
            streamed.between.merge(&other.between);
        }
        merge_waits(&mut self.failed, other.failed.as_deref());
        merge_waits(&mut self.unfinished, other.unfinished.as_deref());
    }

    /// Returns how many of the requests in flight at the end had waited longer than every response took: no normal end of a run
    /// explains these.
    #[must_use]
    pub fn overdue(&self) -> u64 {
        let longest = self.service.max();
        self.unfinished
            .as_deref()
            .map_or(0, |waits| waits.service.count_above(longest))
    }

    /// Returns how many more requests the round would have had if its connections had carried as many in the time in which they
    /// could not be established as they did in the rest; `time` is that of all connections together.
    #[must_use]
    pub fn missing(&self, time: Duration) -> u64 {
        let down = self.counts.unconnected.min(time);
        let up = time.saturating_sub(down).max(Duration::from_nanos(1));
        (self.counts.answered as f64 * down.as_secs_f64() / up.as_secs_f64()).min(MOST_MISSING) as u64
    }

    /// As new, but for the memory.
    pub fn clear(&mut self) {
        self.counts = Counts::default();
        self.service.clear();
        self.response.clear();
        self.connect.clear();
        self.handshake.clear();
        self.opening.clear();
        self.lag.clear();
        self.streamed = None;
        self.failed = None;
        self.unfinished = None;
    }
}

impl Counts {
    /// Adds what another worker or interval has counted.
    pub fn merge(&mut self, other: &Counts) {
        self.sent += other.sent;
        self.answered += other.answered;
        merge_map(&mut self.statuses, &other.statuses);
        merge_map(&mut self.codes, &other.codes);
        self.messages += other.messages;
        self.unexpected += other.unexpected;
        self.timeouts += other.timeouts;
        merge_map(&mut self.broken, &other.broken);
        self.unfinished += other.unfinished;
        merge_map(&mut self.connect_errors, &other.connect_errors);
        self.unconnected += other.unconnected;
        for (what, said) in &other.first_errors {
            self.first_errors.entry(what).or_insert_with(|| said.clone());
        }
        self.connects += other.connects;
        self.deflated += other.deflated;
        let allowed = [self.streams_allowed, other.streams_allowed];
        self.streams_allowed = allowed.into_iter().flatten().min();
        merge_map(&mut self.tls_versions, &other.tls_versions);
        merge_map(&mut self.tls_suites, &other.tls_suites);
        self.tls_resumed += other.tls_resumed;
        self.late += other.late;
        self.dropped += other.dropped;
        self.unprocessed += other.unprocessed;
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
    }

    /// TLS handshakes that came to their end.
    #[must_use]
    pub fn tls_handshakes(&self) -> u64 {
        self.tls_versions.values().sum()
    }

    /// Answers with a status from 400 on.
    #[must_use]
    pub fn http_errors(&self) -> u64 {
        self.statuses.range(400..).map(|(_, n)| n).sum()
    }

    /// Requests that ended without an answer, but for those that the end of the run cut off.
    #[must_use]
    pub fn failed(&self) -> u64 {
        self.timeouts + self.broken.values().sum::<u64>()
    }
}

fn merge_waits(into: &mut Option<Box<Waits>>, from: Option<&Waits>) {
    if let Some(from) = from {
        into.get_or_insert_default().merge(from);
    }
}

fn merge_map<K: Ord + Copy>(into: &mut BTreeMap<K, u64>, from: &BTreeMap<K, u64>) {
    for (key, count) in from {
        *into.entry(*key).or_default() += count;
    }
}
