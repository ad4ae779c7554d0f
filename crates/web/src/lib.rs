//! HTTP applications on the engine: an [`App`] of routes and hooks, requests in, replies out.
//!
//! Owns connections as HTTP sees them (deadlines, keep-alive, bodies with back-pressure), routing and what a
//! handler touches. Knows no system call and no byte of framing: those are the engine's and the codec's.
#![forbid(unsafe_code)]

mod error;
#[cfg(feature = "fuzzing")]
#[doc(hidden)]
pub mod fuzzing;
mod limits;
#[cfg_attr(
    not(any(test, feature = "fuzzing")),
    expect(dead_code, reason = "the connection will use it")
)]
mod path;
#[cfg_attr(
    not(test),
    expect(dead_code, unused_imports, reason = "the application's builder will use it")
)]
mod router;
mod word;

pub use error::{Error, Result};
