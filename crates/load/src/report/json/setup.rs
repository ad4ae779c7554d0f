//! What was asked for, as it stands in a document.

use ringmain_engine::Choice;
use ringmain_tls::Trust;
use schemars::JsonSchema;
use serde::Serialize;

use crate::plan::{self, Pace, Plan, Protocol};

/// The plan of a run.
#[derive(JsonSchema, Serialize)]
pub(super) struct Setup {
    /// Where to: an IP address with a port, or `unix:` with a path.
    target: String,
    /// Further addresses of the target's name; connections take all of them in turn.
    other_targets: Vec<String>,
    /// The addresses of this host to connect from; empty if the kernel chose.
    sources: Vec<String>,
    /// `http1`, `http2`, `grpc`, `echo` or `websocket`.
    protocol: &'static str,
    /// Bytes of an echoed message, where they differ of the longest; `null` for HTTP.
    message_bytes: Option<u32>,
    /// `text` or `binary`; `null` but for WebSocket.
    message_kind: Option<&'static str>,
    /// Whether permessage-deflate was offered; `null` but for WebSocket.
    deflate: Option<bool>,
    /// How connections were to be secured; `null` if not.
    tls: Option<Tls>,
    /// Connections of all workers.
    connections: u32,
    /// Requests in flight on a connection at most.
    pipeline: u32,
    /// Answers after which a connection is closed and another one opened; `null` if it is kept.
    reconnect_after: Option<u64>,
    /// `closed` (the next request after the answer), `constant` (evenly spaced) or `poisson` (independent moments).
    pace: &'static str,
    /// Requests a second asked for; `null` in a closed loop.
    rate_per_s: Option<f64>,
    /// How long a round was to be measured; `null` if it was to be `requests`.
    duration_s: Option<f64>,
    /// How many requests a round was to have; `null` if it was to last `duration_s`.
    requests: Option<u64>,
    /// Load before each round, not counted.
    warmup_s: f64,
    /// Rounds asked for; fewer were run if it was cut short.
    rounds: u32,
    /// After so long without an answer a request counts as timed out.
    timeout_s: f64,
    /// How long all connections may take to stand.
    connect_timeout_s: f64,
    /// The length of one entry of a `series`.
    interval_s: f64,
    /// Worker threads of the client.
    threads: usize,
    /// The CPUs that they are pinned to, in turn; empty if the kernel chose.
    cpus: Vec<usize>,
    /// The engine asked for: `auto`, `uring` or `epoll`.
    engine: &'static str,
    /// From which arrivals, mixes and random tokens follow. A text, because many readers of JSON cut numbers of 64 bits.
    seed: String,
}

/// What was asked of TLS. What was agreed on is in the counts of each round.
#[derive(JsonSchema, Serialize)]
pub(crate) struct Tls {
    /// Whom certificates had to be for.
    name: String,
    /// Whose certificates were taken: `host` (the host's authorities), `given` (those in a file) or `anybody`.
    trust: &'static str,
    /// Whether the client had a certificate to show.
    client_certificate: bool,
    /// The lowest version that was offered.
    minimum_version: &'static str,
    /// Whether sessions were resumed where the server gave tickets.
    resume: bool,
}

impl Tls {
    pub(crate) fn of(tls: &plan::Tls) -> Tls {
        let settings = &tls.settings;
        Tls {
            name: tls.name.clone(),
            trust: match settings.trust {
                Trust::Roots(_) => "host",
                Trust::Authorities(_) => "given",
                Trust::AnybodyInsecure => "anybody",
            },
            client_certificate: settings.certificate.is_some(),
            minimum_version: settings.minimum_version.name(),
            resume: settings.resume,
        }
    }
}

impl Setup {
    pub(super) fn of(plan: &Plan) -> Setup {
        let (duration, requests) = (plan.extent.time(), plan.extent.count());
        let (protocol, message_bytes) = match plan.protocol {
            Protocol::Http1 => ("http1", None),
            Protocol::Http2 => ("http2", None),
            Protocol::Grpc(_) => ("grpc", None),
            Protocol::Echo { bytes } => ("echo", Some(bytes)),
            Protocol::WebSocket(messages) => ("websocket", Some(messages.bytes)),
        };
        let messages = match plan.protocol {
            Protocol::WebSocket(messages) => Some(messages),
            _ => None,
        };
        Setup {
            target: plan.target.to_string(),
            other_targets: plan.others.iter().map(ToString::to_string).collect(),
            sources: plan.sources.iter().map(ToString::to_string).collect(),
            protocol,
            message_bytes,
            message_kind: messages.map(|messages| if messages.text { "text" } else { "binary" }),
            deflate: messages.map(|messages| messages.deflate),
            tls: plan.tls.as_ref().map(Tls::of),
            connections: plan.connections,
            pipeline: plan.pipeline,
            reconnect_after: plan.reconnect_after,
            pace: match plan.pace {
                Pace::Closed => "closed",
                Pace::Constant(_) => "constant",
                Pace::Poisson(_) => "poisson",
            },
            rate_per_s: plan.pace.rate(),
            duration_s: duration.map(|duration| duration.as_secs_f64()),
            requests,
            warmup_s: plan.warmup.as_secs_f64(),
            rounds: plan.rounds,
            timeout_s: plan.timeout.as_secs_f64(),
            connect_timeout_s: plan.connect_timeout.as_secs_f64(),
            interval_s: plan.interval.as_secs_f64(),
            threads: plan.threads,
            cpus: plan.cpus.clone(),
            engine: match plan.engine {
                Choice::Auto => "auto",
                Choice::Uring => "uring",
                Choice::Epoll => "epoll",
            },
            seed: plan.seed.to_string(),
        }
    }
}
