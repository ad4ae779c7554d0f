//! Why a fan-out came to nothing, and what to do about it.

use std::io;
use std::time::Duration;

use ringmain_engine::EngineError;
use ringmain_tls::ConfigError;

use crate::client::Unsecured;
use crate::server::ServerError;

/// The reason for which a push benchmark has no result. Faults that were measured are figures of the report, not errors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// An invalid setting.
    #[error("{setting}: expected {expected}, found {found}")]
    Plan {
        /// The setting.
        setting: &'static str,
        /// The allowed values.
        expected: String,
        /// The value.
        found: String,
    },
    /// Authorities, certificate or key.
    #[error(transparent)]
    Tls(#[from] ConfigError),
    /// The client's own engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Not all clients were connected and subscribed in time.
    #[error("{standing} of {clients} clients connected after {:.1}s{}", waited.as_secs_f64(), reason(last.as_ref()))]
    NotConnected {
        /// Clients that are connected and subscribed.
        standing: u32,
        /// Clients of the plan.
        clients: u32,
        /// The time that the attempts took.
        waited: Duration,
        /// The last failure.
        last: Option<io::Error>,
    },
    /// The server has refused the clients.
    #[error("{0}")]
    Refused(String),
    /// `Plan::kill_server` could not be carried out.
    #[error(
        "--kill-server: expected process {pid} to run until it is killed, found {found}; the run measured no failover"
    )]
    NotKilled {
        /// The process.
        pid: u32,
        /// The state of the process at that time.
        found: String,
    },
    /// A worker of the client ended.
    #[error("a worker of the load generator has ended before its run did; this is a bug, please report it")]
    Worker,
    /// The run was interrupted.
    #[error("interrupted before the measurement was complete")]
    Stopped,
    /// The thread of a broker's client.
    #[error("cannot start the thread that writes to the broker: {0}")]
    Broker(io::Error),
    /// The server under test.
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl From<Unsecured> for PushError {
    fn from(unsecured: Unsecured) -> PushError {
        match unsecured {
            Unsecured::Settings(refused) => PushError::Tls(refused),
            Unsecured::Name(found) => PushError::Plan {
                setting: "sni",
                expected: "a host name or an address".into(),
                found,
            },
        }
    }
}

/// The last failure, and what to do about it.
fn reason(last: Option<&io::Error>) -> String {
    let Some(error) = last else {
        return String::new();
    };
    let hint = match (error.kind(), error.raw_os_error()) {
        (io::ErrorKind::AddrNotAvailable | io::ErrorKind::AddrInUse, _) => {
            "; all ports of an address are in use: connect from more addresses (--source)"
        }
        // No file descriptor is left, of this process or of all.
        (_, Some(23 | 24)) => "; no descriptor is left: use more --threads on io_uring, or raise `ulimit -n`",
        _ => "",
    };
    format!(": {error}{hint}")
}
