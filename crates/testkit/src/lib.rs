//! For tests only: code that the tests of several crates share. Development dependencies alone may name it.
//!
//! Owns every wait of the tests, so that none of them sleeps or chooses a port. Knows no crate of ours, so that each of them can use it.
#![forbid(unsafe_code)]
#![allow(
    clippy::disallowed_methods,
    reason = "tests of real programs and sockets have real threads and real time"
)]

#[cfg(test)]
mod tests;

pub mod cases;
pub mod folder;
pub mod kafka;
pub mod port;
pub mod program;
pub mod redis;
pub mod servers;
pub mod subscriber;
pub mod wait;

use std::io::Write;
use std::time::Duration;

/// The time after which a test that waits for an event fails: a guard against hanging, never a measurement. Generous for busy machines.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Reports that something was not tested here, past the test harness, which shows no output of a test that passes.
pub fn skipped(what: &str) {
    let line = format!("SKIPPED: {what}\n");
    // Without a standard error there is no reader of the report either.
    let _ = std::io::stderr().write_all(line.as_bytes());
}
