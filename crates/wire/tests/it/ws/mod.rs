//! The WebSocket codec against its rules and laws.

mod autobahn;
mod close_rules;
mod cuts;
mod deflate_rules;
mod encoding;
mod frame_rules;
mod handshake_rules;
mod rules;
mod support;
mod text_rules;
