//! What is said once for the whole process: administration, logs, caps.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Addr;
use crate::limits;

/// The administration's own listener: state, metrics, drain. Whoever reaches it may do all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Admin {
    /// At least one; on the loopback interface or a Unix socket unless somebody else guards it.
    pub addresses: Vec<Addr>,
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

/// Caps of the whole process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections of clients. Beyond it accepting pauses and clients wait in the backlog. Default `None`: as the
    /// descriptor limit allows.
    pub connections: Option<u32>,
    /// Connections to all upstreams together. Beyond it requests wait as they do at an upstream's own cap. Default `None`:
    /// those caps alone.
    pub upstream_connections: Option<u32>,
    /// How long requests may go on once the process was told to end. Default 30 s; then they are cut.
    pub drain: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: limits::CONNECTIONS,
            upstream_connections: None,
            drain: Duration::from_secs(30),
        }
    }
}
