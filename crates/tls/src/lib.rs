//! TLS of connections: the sessions of `wire` as a layer of the engine, created from settings that can be reloaded.
//!
//! ```text
//! files ─▶ ServerSettings ─▶ Acceptor ─▶ handle() for each worker ─▶ accept ─▶ Tls: conn.secure(…)
//!                              ▲ reload
//! ClientSettings ─▶ Connector ─▶ handle() for each worker ─▶ connect ─▶ Tls: conn.secure(…)
//! ```
//!
//! Must not know which protocol a connection carries. Files are read at the start and at a reload, never for a connection. The caller
//! supplies the time.
#![forbid(unsafe_code)]

mod acceptor;
mod connector;
mod counters;
mod dev_certificate;
mod error;
mod files;
mod layer;
pub mod limits;

pub use acceptor::{AcceptHandle, Acceptor, PreparedSettings, ReloadSummary};
pub use connector::{ConnectHandle, Connector};
pub use counters::HandshakeCounts;
pub use dev_certificate::{DevCertificate, DevCertificateError};
pub use error::ConfigError;
pub use files::{key_log_file, pem_file, system_roots};
pub use layer::Tls;

/// Returns the ALPN protocols of an HTTP server in order of preference: HTTP/2, HTTP/1.1.
#[must_use]
pub fn http_protocols() -> Vec<Vec<u8>> {
    vec![b"h2".to_vec(), b"http/1.1".to_vec()]
}

pub use ringmain_wire::tls::{
    BadName, Blame, Certificate, ClientCertificates, ClientSettings, Facts, Fault, FaultKind, Finding,
    Identity, KeyLog, KeyPair, PeerName, Pem, ServerSettings, Session, Severity, Trust, Version, suite_names,
};
