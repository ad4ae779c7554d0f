//! Services of gRPC against the protocol: each dialect, statuses, deadlines, limits, hooks. In virtual time.
#![forbid(unsafe_code)]

mod calls;
mod endings;
mod health;
mod hooks;
mod reflection;
mod streams;
mod support;
