//! Applications over real sockets and without any: HTTP/1.1, HTTP/2, WebSocket, gRPC, limits, the access log.
#![expect(
    clippy::disallowed_macros,
    reason = "handlers and filters are `Send`, and the simulated world of a thread is not"
)]

mod drain_delay;
mod drain_spread;
#[macro_use]
mod support;

mod access_log;
mod body_budget;
mod count_limits;
mod grpc;
mod http;
mod http2;
mod http2_limits;
mod limits;
mod overload_burst;
mod protocol;
mod ws;
