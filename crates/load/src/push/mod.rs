//! Fan-out: what a few publish and very many receive, over channels of the Centrifuge client protocol.
//!
//! ```text
//! plan ─▶ layout: who hears which channel     calendar: what is published when
//!            │                                   │
//!            ▼                                   ▼
//! listen: clients, on all workers but one    publish: an open loop of POSTs, on the last worker
//!            │                                   or records in a broker that the server reads (broker)
//!            └── stamp ─┬▶ order: lost, doubled, reordered ─▶ figures ─▶ report ─▶ text, JSON
//!                       └▶ audit: falsely recovered, conflicting ──┘
//! ```
//!
//! Publisher and clients are one process with one clock, so that a publication's stamp says how long it took. What was lost
//! follows from what was accepted and who was to hear it, not from gaps alone.
//!
//! Owns how a fan-out is put on a server and counted. Knows no flag, no terminal, and no code of a server.

mod audit;
pub mod broker;
mod calendar;
mod doubts;
mod error;
mod figures;
#[cfg(test)]
mod fixtures;
mod kill_server;
pub mod knee;
mod layout;
mod listen;
mod order;
mod outages;
mod plan;
mod position;
mod publish;
pub mod report;
mod run;
mod speak;
mod stamp;
mod worker;

pub use self::error::PushError;
pub use self::figures::{Counts, Disconnects, Heard, NodeCounts, Outage, Published};
pub use self::plan::{BrokerPlan, Form, Format, Kill, KillServer, Node, Plan, Publishing, Transport};
pub use self::publish::exchange;
pub use self::run::{Progress, Session};
