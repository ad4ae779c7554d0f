//! Applications over real sockets, on every real back-end: the client's view, byte by byte where it matters.
//!
//! Deadlines are tested in virtual time, elsewhere; here no test waits by the clock.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

mod bad_requests;
mod bodies;
mod early;
mod ending;
mod entrances;
mod expect;
mod framework;
mod hooks;
mod inner;
mod keep_alive;
mod overload;
mod proxied;
mod relaying;
mod routing;
mod sockets;
mod tls;
mod tls_ends;
mod tls_reload;
