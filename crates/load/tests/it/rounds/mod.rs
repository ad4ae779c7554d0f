//! Whole rounds over real sockets, on each back-end, against servers that do what the test says: every request is counted
//! once, by what became of it.
#![allow(
    clippy::disallowed_methods,
    reason = "servers in a test are real threads and sockets"
)]

#[macro_use]
mod support;

mod closed_loop;
mod failures;
mod flows;
mod http2;
mod open_loop;
mod secured;
mod sessions;
mod tls;
mod websocket;
