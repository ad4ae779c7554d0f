//! A load generator: it sends by a schedule, measures response times from the scheduled times, counts failures apart from slow responses,
//! and reports when it was itself the limit.
//!
//! ```text
//! plan + traffic ─▶ run: rounds ─▶ client: one handler a worker ─▶ figures ─▶ round ─▶ report ─▶ text, JSON, page
//!                      └── server: CPU and memory of the process tree under test ──┘
//! ```
//!
//! ```text
//! timer: arrivals due ─▶ idle connection ─▶ traffic: bytes ─▶ conn.write ··· Handler::data ─▶ h1::parse_response ─▶ check
//!                          ▲                                                                                         │
//!   metrics of the interval ◀── measurement: is it counted? ◀──────────── response ◀─────────────────────────────────┘
//! ```
//!
//! The arrivals of an open loop follow from rate and seed alone. A request that finds no idle connection keeps its scheduled time, so that
//! response times include the wait. It is measured from the loop iteration that wrote it to the one that received its last byte: the time
//! that the client itself takes is included. Workers count into metrics of their own, which they hand over once per interval.
//!
//! Owns schedules, requests, metrics and their evaluation. Must not know flags, terminals or colours.
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
