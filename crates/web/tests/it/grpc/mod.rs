//! Services of gRPC against the protocol: each dialect, statuses, deadlines, limits, hooks. In virtual time.
#![forbid(unsafe_code)]

mod calls;
mod failures;
mod health;
mod hooks;
mod reflection;
mod streams;
mod support;
