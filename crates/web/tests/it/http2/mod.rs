//! HTTP/2 over real sockets, on every real back-end, with and without TLS: the client's view.
//!
//! Deadlines are tested in virtual time, elsewhere; here no test waits by the clock.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

mod bodies;
mod client;
mod grpc;
mod rejected;
mod requests;
mod sockets;
mod termination;
