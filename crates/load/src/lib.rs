//! A load generator that can be believed: it keeps a schedule, times from it, counts what went wrong apart from what
//! was slow, and says when it was itself the limit.
//!
//! ```text
//! plan + traffic ─▶ run: rounds ─▶ client: one handler a worker ─▶ figures ─▶ round ─▶ report ─▶ text, JSON, page
//!                      └── server: CPU and memory of the process tree under test ──┘
//! ```
//!
//! Owns schedules, requests, figures and judgement of them. Knows no flag, no terminal and no colour.
#![forbid(unsafe_code)]

mod client;
pub mod compare;
pub mod doubts;
pub mod figures;
#[cfg(test)]
mod fixtures;
pub mod knee;
pub mod limits;
pub mod plan;
pub mod push;
pub mod record;
pub mod report;
pub mod run;
pub mod scenario;
pub mod server;
pub mod stats;
pub mod target;
pub mod threshold;
pub mod traffic;
