//! What a run is: where to, how much at once, at what pace, for how long, how often.
//!
//! Plain data. Knows neither how it was written down nor how it is carried out.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_tls::{ClientSettings, Version};

/// One target and what is done to it.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Where to connect to.
    pub target: Addr,
    /// Further addresses of the same target; connections take all of them in turn.
    pub others: Vec<Addr>,
    /// The addresses of this host to connect from, taken in turn; empty lets the kernel choose.
    pub sources: Vec<Addr>,
    /// What is spoken.
    pub protocol: Protocol,
    /// How connections are secured; `None`: not at all.
    pub tls: Option<Tls>,
    /// Connections, all workers together; at least one a worker, at most [`crate::limits::CONNECTIONS`].
    pub connections: u32,
    /// Requests in flight on a connection at most, over HTTP/2 each on a stream of its own; see [`crate::limits::PIPELINE`].
    pub pipeline: u32,
    /// Close a connection after so many answers and open another one.
    pub reconnect_after: Option<u64>,
    /// When requests are sent.
    pub pace: Pace,
    /// How long it is measured.
    pub extent: Extent,
    /// Load before that, not counted.
    pub warmup: Duration,
    /// How often all this is done.
    pub rounds: u32,
    /// After so long without an answer a request counts as timed out, and its connection is closed.
    pub timeout: Duration,
    /// How long all connections may take to stand, before the run fails.
    pub connect_timeout: Duration,
    /// Length of one entry of the series over time, and of the time between two live figures.
    pub interval: Duration,
    /// Worker threads.
    pub threads: usize,
    /// The CPU of each worker, in turn; empty leaves it to the kernel.
    pub cpus: Vec<usize>,
    /// The engine.
    pub engine: Choice,
    /// From which arrivals, mixes and random tokens follow.
    pub seed: u64,
}

/// TLS of a run's connections. Each round begins without sessions that could be resumed, so that rounds are alike.
#[derive(Clone)]
pub struct Tls {
    /// What is trusted, shown and spoken.
    pub settings: Arc<ClientSettings>,
    /// The name or address that certificates have to be for, as it was written.
    pub name: String,
}

impl Tls {
    /// Has no other version spoken than this one.
    pub fn only(settings: &mut ClientSettings, version: Version) {
        settings.minimum_version = version;
        if version == Version::Tls12 {
            // Suites of TLS 1.3 leave the key exchange open.
            let older = ringmain_tls::suite_names().filter(|name| name.contains("_ECDHE_"));
            settings.suites = older.map(str::to_owned).collect();
        }
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The host's authorities would fill pages.
        f.debug_struct("Tls")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// What is spoken over a connection. The seam where later protocols come in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1.
    Http1,
    /// HTTP/2, known beforehand to be spoken there, or agreed on over TLS.
    Http2,
    /// Calls of gRPC over HTTP/2.
    Grpc(Grpc),
    /// Messages of so many bytes over TCP, each of which must come back as it was.
    Echo {
        /// Bytes of a message, at most [`crate::limits::ECHO_BYTES`].
        bytes: u32,
    },
    /// Messages over WebSocket, each of which must come back as it was. What they are is in
    /// [`Traffic::socket`](crate::traffic::Traffic::socket).
    WebSocket(Messages),
}

impl Protocol {
    /// Whether requests and answers have a method and a status.
    #[must_use]
    pub fn is_http(self) -> bool {
        self == Protocol::Http1 || self.is_http2()
    }

    /// Whether requests have streams of their own.
    #[must_use]
    pub fn is_http2(self) -> bool {
        matches!(self, Protocol::Http2 | Protocol::Grpc(_))
    }
}

/// The kinds of calls of gRPC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grpc {
    /// One message, answered by one.
    Unary,
    /// One message, answered by any number of them.
    ServerStreaming,
}

/// What is known of messages before they are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Messages {
    /// Text, else binary.
    pub text: bool,
    /// Bytes of a message, at most [`crate::limits::ECHO_BYTES`]; where they differ, of the longest.
    pub bytes: u32,
    /// Whether permessage-deflate is offered.
    pub deflate: bool,
}

/// When requests are sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// Closed loop: each connection sends as soon as it has its answer.
    Closed,
    /// Open loop: so many a second, evenly spaced, whether or not answers come.
    Constant(f64),
    /// Open loop: so many a second on average, at independent moments.
    Poisson(f64),
}

/// How long is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// For so long.
    Time(Duration),
    /// Until so many requests are answered or have failed.
    Count(u64),
    /// Until so many requests are answered or have failed, or for so long: whichever is first.
    Either {
        /// Requests.
        count: u64,
        /// The longest time.
        time: Duration,
    },
}

impl Plan {
    /// Returns the address that connection `number` goes to.
    pub(crate) fn address(&self, number: u64) -> &Addr {
        let turn = number % (self.others.len() as u64 + 1);
        match turn.checked_sub(1) {
            None => &self.target,
            Some(other) => &self.others[other as usize],
        }
    }
}

impl Extent {
    /// Returns the time after which measuring ends at the latest; `None` without one.
    #[must_use]
    pub fn time(self) -> Option<Duration> {
        match self {
            Extent::Time(time) | Extent::Either { time, .. } => Some(time),
            Extent::Count(_) => None,
        }
    }

    /// Returns the number of requests with which measuring ends; `None` without one.
    #[must_use]
    pub fn count(self) -> Option<u64> {
        match self {
            Extent::Count(count) | Extent::Either { count, .. } => Some(count),
            Extent::Time(_) => None,
        }
    }
}

impl Pace {
    /// Requests a second asked for; `None` in a closed loop.
    #[must_use]
    pub fn rate(self) -> Option<f64> {
        match self {
            Pace::Closed => None,
            Pace::Constant(rate) | Pace::Poisson(rate) => Some(rate),
        }
    }

    /// The fewest answers in `span` that still keep up with the rate asked for: 99 % of it, and of random arrivals three
    /// standard deviations less, so that chance alone does not count as falling behind. `None` in a closed loop.
    #[must_use]
    pub fn least_answers(self, span: Duration) -> Option<f64> {
        let asked = self.rate()? * span.as_secs_f64();
        let chance = if matches!(self, Pace::Poisson(_)) {
            3.0 * asked.sqrt()
        } else {
            0.0
        };
        Some((0.99 * asked - chance).max(0.0))
    }
}
