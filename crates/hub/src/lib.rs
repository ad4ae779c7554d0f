//! Channels and who listens to them, without a socket, a clock, a thread or a future.
//!
//! ```text
//! command ─▶ protocol ─▶ (who asks decides) ─▶ home of the channel: number, history ─▶ frame ─▶ subscribers
//! ```
//!
//! Time is a parameter, randomness too. Nothing here knows how bytes come and go, or who may do what.
#![forbid(unsafe_code)]

pub mod history;
pub mod limits;
pub mod protocol;
