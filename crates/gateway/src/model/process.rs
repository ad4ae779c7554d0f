//! Settings of the whole process: admin interface, logs, limits.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Addr, Hostname, Secret};
use crate::limits;

/// The listener of the admin interface: status, metrics, drain. Every client that reaches it has full access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// At least one; on the loopback interface or a Unix socket unless access is restricted otherwise.
    pub addresses: Vec<Addr>,
    /// Names that requests may have in `Host`, besides `localhost` and IP addresses. Default: none.
    pub hosts: Vec<Hostname>,
    /// The token that requests with side effects must present. Default: `None`, none is required.
    pub token: Option<Secret>,
    /// Addresses of a listener with metrics and probes only. Default: none.
    pub metrics: Vec<Addr>,
}

/// The access log, one line per request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// The destination.
    pub to: LogDestination,
    /// The format of a line.
    pub format: AccessLogFormat,
}

/// The destination of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// A file with an absolute path, which is appended to.
    File(PathBuf),
}

/// The format of a line of the access log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// A JSON object with every field.
    #[default]
    Json,
    /// The combined format of Apache and nginx.
    Combined,
    /// A text with fields as `{name}`; `{{` is a literal brace. The data plane defines the fields.
    Template(Arc<str>),
}

/// The process log: start, reloads, errors, health of upstreams. Written to standard error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessLog {
    /// The format of a line. Default: text. The program's command line and environment take precedence.
    pub format: ProcessLogFormat,
}

/// The format of a line of the process log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessLogFormat {
    /// Time, level and text.
    #[default]
    Text,
    /// A JSON object.
    Json,
}

/// The limit of concurrent connections from one client address. Further ones are closed when they are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerAddressLimit {
    /// 1024; unlimited where a listener trusts proxies, behind which many clients share an address.
    #[default]
    Automatic,
    /// Unlimited.
    Off,
    /// This number.
    AtMost(u32),
}

/// Limits of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessLimits {
    /// Client connections. At the limit accepting pauses and clients wait in the backlog. Default: `None`, as many as the descriptor limit
    /// allows.
    pub connections: Option<u32>,
    /// Connections to all upstreams together. At the limit requests wait as they do at the limit of one upstream. Default: `None`, only the
    /// limits of the upstreams apply.
    pub upstream_connections: Option<u32>,
    /// UDP sessions; each worker has an equal share, rounded up. At the limit the least recently used session of the worker is ended.
    /// Default: [`limits::DATAGRAM_SESSIONS`].
    pub datagram_sessions: u32,
    /// UDP sessions of one client address (IPv6: of a /64); each worker has an equal share, rounded up. At the limit the least recently used
    /// session of the address is ended. Default: [`limits::DATAGRAM_SESSIONS_PER_ADDRESS`]; `None`: only [`ProcessLimits::datagram_sessions`] applies.
    pub datagram_sessions_per_address: Option<u32>,
    /// Connections from one client address. Default: [`PerAddressLimit::Automatic`].
    pub per_address: PerAddressLimit,
    /// Time for requests to finish in a graceful shutdown. Default: 30 s; then they are aborted.
    pub drain: Duration,
    /// Time between the termination signal and that shutdown, in which connections are still accepted while readiness is 503 and clients are
    /// asked to use other connections. Default: 0.
    pub drain_delay: Duration,
    /// Time of the shutdown over which the ends of push clients, WebSockets and event streams are spread, and the length of its last
    /// part, in which TCP connections are closed; at most [`ProcessLimits::drain`]. Default:
    /// `None`, half of `drain`, at most 10 s.
    pub drain_spread: Option<Duration>,
}

impl Default for ProcessLimits {
    fn default() -> ProcessLimits {
        ProcessLimits {
            connections: limits::CONNECTIONS,
            upstream_connections: None,
            datagram_sessions: limits::DATAGRAM_SESSIONS,
            datagram_sessions_per_address: Some(limits::DATAGRAM_SESSIONS_PER_ADDRESS),
            per_address: PerAddressLimit::default(),
            drain: Duration::from_secs(30),
            drain_delay: Duration::ZERO,
            drain_spread: None,
        }
    }
}
