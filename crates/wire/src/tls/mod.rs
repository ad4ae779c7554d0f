//! TLS 1.2 and 1.3, both roles, over `rustls`: the one place that knows it.
//!
//! ```text
//! ServerSettings ─▶ build ─▶ Server ─▶ session ─┐
//! ClientSettings ─▶ build ─▶ Client ─▶ session ─┴─▶ Session
//!
//! bytes ─▶ Session::receive ─▶ Established … Plain … End
//!                    └──▶ wire: what is sent in answer
//! plain ─▶ Session::send ─▶ wire
//! ```
//!
//! rustls does the handshake, a record at a time. When it is over, its keys are taken out and records are sealed and opened
//! here, in place: a record costs no allocation, and an idle session holds its keys and facts alone.
//!
//! *Laws*, each with a test: any cut of the input gives the same events; what was sent is received; after a fault nothing
//! is read any more; no input panics; a peer makes a session hold no more than [`limits`] say, and do no more work than its
//! bytes pay for.
//!
//! This module reads no file, no clock and no socket. The caller sets the [`Clock`], keeps what [`Event::NeedMore`] left, bounds
//! how long a handshake lasts, and sends what is in `wire`, also when a session has failed. Early data is off, compression of
//! TLS does not exist here, and nothing is renegotiated.

mod certificate;
mod client;
mod clients;
mod clock;
mod facts;
mod fault;
mod finding;
mod handshake;
mod hello;
mod identity;
mod key_log;
pub mod limits;
mod names;
mod peek;
mod pem;
mod pinned;
pub mod plain;
mod protection;
mod server;
mod session;
mod suites;
mod tickets;
mod traffic;
mod version;

pub use certificate::Certificate;
pub use client::{BadName, Client, ClientSettings, PeerName, RESUMABLE_SERVERS, Trust};
pub use clock::Clock;
pub use facts::Facts;
pub use fault::{Blame, Fault, FaultKind};
pub use finding::{Finding, Severity};
pub use identity::Identity;
pub use key_log::KeyLog;
pub use peek::{Hello, HelloScanner, Looked, NoHello};
pub use pem::{KeyPair, Pem};
pub use server::{ClientCertificates, Server, ServerSettings, TICKETS_SENT};
pub use session::{CannotSend, Event, Session, Step};
pub use suites::suite_names;
pub use tickets::{NoKeys, TICKET_KEY_PERIOD, Tickets};
pub use version::Version;
