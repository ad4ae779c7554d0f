//! The codecs' rules, their cuts at every byte, and the peers that they are compared with.
#![forbid(unsafe_code)]

#[path = "shared/rng.rs"]
mod shared_rng;
#[path = "shared/rules.rs"]
mod shared_rules;

mod grpc;
mod h1;
mod h2;
mod sse;
mod tls;
mod ws;
