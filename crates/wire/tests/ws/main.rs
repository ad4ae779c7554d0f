//! The WebSocket codec against its rules and laws.
#![forbid(unsafe_code)]

mod close_rules;
mod frame_rules;
mod support;
mod text_rules;
