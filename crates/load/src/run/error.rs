//! Why a run came to nothing.

use std::io;
use std::time::Duration;

use ringmain_engine::EngineError;
use ringmain_tls::ConfigError;

use crate::client::Unsecured;
use crate::server::ServerError;

/// Why a run came to nothing. What went wrong while it measured is no error but a figure.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// A setting makes no sense.
    #[error("{setting}: expected {expected}, found {found}")]
    Plan {
        /// Which.
        setting: &'static str,
        /// What it may be.
        expected: String,
        /// What it is.
        found: String,
    },
    /// Authorities, certificate or key.
    #[error(transparent)]
    Tls(#[from] ConfigError),
    /// The client's own engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The connections do not stand.
    #[error("cannot connect to {target}: {}", reason(*connections, *waited, last.as_ref()))]
    NotConnected {
        /// Where to.
        target: String,
        /// How many were asked for.
        connections: u32,
        /// For how long was tried.
        waited: Duration,
        /// The last failure.
        last: Option<io::Error>,
    },
    /// A worker of the client ended.
    #[error("a worker of the load generator has ended before its round did; this is a bug, please report it")]
    Worker,
    /// It was cut short before anything was measured.
    #[error("stopped before anything was measured")]
    Stopped,
    /// The server under test.
    #[error(transparent)]
    Server(#[from] ServerError),
}

impl From<Unsecured> for RunError {
    fn from(unsecured: Unsecured) -> RunError {
        match unsecured {
            Unsecured::Settings(refused) => RunError::Tls(refused),
            Unsecured::Name(found) => RunError::Plan {
                setting: "sni",
                expected: "a host name or an address".into(),
                found,
            },
        }
    }
}

fn reason(connections: u32, waited: Duration, last: Option<&io::Error>) -> String {
    match last {
        // However many connections there were to be, none would be taken.
        Some(error) if error.kind() == io::ErrorKind::InvalidData => error.to_string(),
        Some(error) => format!("{error}; expected {connections} connections, gave up after {waited:.1?}"),
        None => format!("no response; expected {connections} connections, gave up after {waited:.1?}"),
    }
}
