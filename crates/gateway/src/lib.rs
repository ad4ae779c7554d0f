//! The gateway: from a request to its route, its policies and its upstream.
//!
//! Owns the one intermediate form for all configuration ([`model`]) and its compiled form. Knows no file format, no orchestrator
//! and no asynchronous runtime: those belong to the control thread.
#![forbid(unsafe_code)]

mod balance;
mod compile;
mod ext_proc;
pub mod fault;
pub mod filter;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
mod grpc;
pub mod health;
mod l4;
pub mod limits;
mod listeners;
pub mod model;
mod policy;
mod proxy;
mod rate;
mod resolve;
pub mod stats;
pub mod table;
mod udp;
mod upstream;

pub use balance::{LOAD_HEADER, LoadReport};
pub use compile::plan::Plan;
pub use gateway::Gateway;
pub use listeners::{ListenerReport, connection_limits};
pub use proxy::log_fields::FIELDS as LOG_FIELDS;
pub use stats::upstreams::UpstreamStatus;
pub use upstream::MirrorOutcome;
