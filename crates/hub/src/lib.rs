//! Channels and who listens to them, without a socket, a clock, a thread or a future.
//!
//! ```text
//! command ─▶ protocol ─▶ (who asks decides) ─▶ home of the channel: number, history ─▶ frame ─▶ subscribers
//! ```
//!
//! A channel is at home at one worker, which numbers its publications and keeps them ([`home`]); its subscribers are at any
//! ([`local`]). What they tell each other is [`mail`].
//!
//! Time is a parameter, randomness too. Nothing here knows how bytes come and go, or who may do what.
#![forbid(unsafe_code)]

pub mod history;
pub mod limits;
pub mod mail;
pub mod pool;
pub mod protocol;
pub mod shard;
pub mod subscribers;
