//! HTTP applications on the engine: an [`App`] of routes and hooks, requests in, replies out.
//!
//! Owns connections as HTTP sees them (deadlines, keep-alive, bodies with back-pressure), routing and what a
//! handler touches. Knows no system call and no byte of framing: those are the engine's and the codec's.
#![forbid(unsafe_code)]

pub mod access_log;
#[cfg_attr(not(test), expect(dead_code, reason = "requests will give their cookies"))]
mod cookie;
mod date;
mod error;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "requests and replies will read and write JSON by it")
)]
mod json;
pub mod limits;
#[cfg_attr(not(test), expect(dead_code, reason = "replies will redirect by it"))]
mod location;
pub mod media_type;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the connection machine will begin answers with it")
)]
mod preamble;
mod query;
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "the connection machine will name requests by it")
)]
mod request_id;
mod text;

pub use access_log::AccessLog;
pub use cookie::{CookieFault, Cookies, SameSite, SetCookie};
pub use date::http_date;
pub use error::{Error, Result};
pub use query::Query;
pub use request_id::RequestId;
pub use ringmain_wire::sse::Event;
