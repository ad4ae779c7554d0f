//! The WebSocket codec against its rules and laws.
#![forbid(unsafe_code)]

mod autobahn;
mod close_rules;
mod cuts;
mod deflate_rules;
mod encoding;
mod frame_rules;
mod handshake_rules;
mod rules;
#[path = "../shared/rng.rs"]
mod shared_rng;
#[path = "../shared/rules.rs"]
mod shared_rules;
mod support;
mod text_rules;
