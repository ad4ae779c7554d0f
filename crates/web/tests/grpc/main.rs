//! Services of gRPC against the protocol: each dialect, statuses, deadlines, limits, hooks. In virtual time.
#![forbid(unsafe_code)]

mod calls;
mod endings;
mod hooks;
mod streams;
mod support;
