//! HTTP/2 over real sockets, on every real back-end, in the clear and by TLS: what a client sees.
//!
//! Deadlines are tested in virtual time, elsewhere; here no test waits by the clock.
#![allow(
    clippy::disallowed_methods,
    reason = "clients in a test are real threads and sockets"
)]

mod bodies;
mod client;
mod ending;
mod grpc;
mod refused;
mod requests;
mod sockets;
