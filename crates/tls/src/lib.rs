//! TLS of connections: `wire`'s sessions as a layer of the engine, begun from settings that may change while serving.
//!
//! ```text
//! files ─▶ ServerSettings ─▶ Acceptor ─▶ handle() for each worker ─▶ accept ─▶ Tls: conn.secure(…)
//!                              ▲ reload
//! ClientSettings ─▶ Connector ─▶ handle() for each worker ─▶ connect ─▶ Tls: conn.secure(…)
//! ```
//!
//! Knows nothing of what is said over a connection. Files are read here, at the start and at a reload, never for a connection;
//! time is the caller's.
#![forbid(unsafe_code)]

mod acceptor;
mod connector;
mod counters;
mod dev_certificate;
mod error;
mod files;
mod layer;
pub mod limits;

pub use acceptor::{AcceptHandle, Acceptor, Prepared, Reload};
pub use connector::{ConnectHandle, Connector};
pub use counters::Counts;
pub use dev_certificate::{Development, NoCertificate};
pub use error::Refused;
pub use files::{key_log_file, pem_file, system_roots};
pub use layer::Tls;

/// What servers of HTTP offer by ALPN: HTTP/2, else HTTP/1.1.
#[must_use]
pub fn http_protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

pub use ringmain_wire::tls::{
    BadName, Blame, Certificate, ClientCertificates, ClientSettings, Facts, Fault, FaultKind, Finding,
    Identity, KeyLog, KeyPair, PeerName, Pem, ServerSettings, Session, Severity, Trust, Version, suite_names,
};
