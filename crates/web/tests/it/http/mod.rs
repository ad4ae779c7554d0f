//! Applications over real sockets, on every real back-end: the client's view, byte by byte where it matters.
//!
//! Deadlines are tested in virtual time, elsewhere; here no test waits by the clock.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

mod bad_requests;
mod bodies;
mod expect;
mod fast_path;
mod forwarding;
mod framework;
mod hooks;
mod keep_alive;
mod listener_protocols;
mod mount;
mod overload;
mod proxy_protocol;
mod routing;
mod sockets;
mod termination;
mod tls;
mod tls_close;
mod tls_reload;
