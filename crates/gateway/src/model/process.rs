//! What is said once for the whole process: administration, logs, caps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{Addr, Hostname, Secret};
use crate::limits;

/// The administration's own listener: state, metrics, drain. Whoever reaches it may do all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// At least one; on the loopback interface or a Unix socket unless somebody else guards it.
    pub addresses: Vec<Addr>,
    /// Names that requests may carry in `Host`, besides `localhost` and IP addresses. Default: none.
    pub hosts: Vec<Hostname>,
    /// What requests that change something must show. Default: `None`, nothing.
    pub token: Option<Secret>,
    /// Addresses of a listener that shows metrics and probes, and nothing else. Default: none.
    pub metrics: Vec<Addr>,
}

/// One line a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessLog {
    /// Where it goes.
    pub to: LogDestination,
    /// How it looks.
    pub format: AccessLogFormat,
}

/// Where a log goes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum LogDestination {
    /// Standard output.
    #[default]
    Stdout,
    /// Standard error.
    Stderr,
    /// The end of a file, absolute.
    File(PathBuf),
}

/// How a line of the access log looks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum AccessLogFormat {
    /// A JSON object of all fields.
    #[default]
    Json,
    /// The combined format of Apache and nginx.
    Combined,
    /// A text with fields in it as `{name}`; `{{` stands for a brace. Which fields there are is the data plane's to say.
    Template(Arc<str>),
}

/// How many connections one address of a client may hold at once; more are closed as they are accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PerAddress {
    /// 1024, or any number where a listener trusts proxies, behind which many clients have one address.
    #[default]
    Automatic,
    /// Any number.
    Off,
    /// So many.
    AtMost(u32),
}

/// Caps of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients. Beyond it accepting pauses and clients wait in the backlog. Default `None`: as the
    /// descriptor limit allows.
    pub connections: Option<u32>,
    /// Connections to all upstreams together. Beyond it requests wait as they do at an upstream's own cap. Default `None`:
    /// those caps alone.
    pub upstream_connections: Option<u32>,
    /// Connections of clients with one address. Default [`PerAddress::Automatic`].
    pub per_address: PerAddress,
    /// How long requests may go on once the process was told to end. Default 30 s; then they are cut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: limits::CONNECTIONS,
            upstream_connections: None,
            per_address: PerAddress::default(),
            drain: Duration::from_secs(30),
        }
    }
}
