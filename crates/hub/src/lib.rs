//! Channels and their subscribers, without sockets, clocks, threads or futures.
//!
//! ```text
//! command ─▶ protocol ─▶ (caller: permissions) ─▶ shard of the channel: offset, history ─▶ frame ─▶ subscribers
//! ```
//!
//! Each channel belongs to one worker's shard, which numbers and retains its publications ([`shard`]). Subscribers may be connected to any
//! worker ([`subscribers`]). Shards and subscribers exchange [`mail`].
//!
//! Time and randomness are parameters. Must not know transports or permissions.
#![forbid(unsafe_code)]

pub mod delta;
pub mod history;
pub mod limits;
pub mod mail;
pub mod pool;
pub mod protocol;
pub mod shard;
pub mod subscribers;
pub mod tag_filter;
