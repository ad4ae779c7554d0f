//! The gateway: from a request to its route, its policies and its upstream.
//!
//! Owns the one intermediate form for all configuration ([`model`]) and its compiled form. Knows no file format, no orchestrator
//! and no asynchronous runtime: those belong to the control thread.
#![forbid(unsafe_code)]

mod balance;
mod care;
mod changes;
mod compiling;
mod desk;
mod exchange;
pub mod fault;
pub mod filter;
mod front;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
pub mod gateway;
pub mod health;
pub mod limits;
pub mod metrics;
pub mod model;
mod passage;
mod plan;
mod policy;
mod rate;
mod resolve;
pub mod status;
pub mod table;
mod upstream;

pub use exchange::note::FIELDS as LOG_FIELDS;
pub use front::limits as connection_limits;
pub use gateway::Gateway;
pub use plan::Plan;
pub use status::UpstreamStatus;
pub use upstream::Copied;
