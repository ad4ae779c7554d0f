//! Thread-per-core network engine: one completion contract, three back-ends.
//!
//! Owns workers, connections, buffers, timers and mail. Knows nothing of HTTP or any other protocol.

pub mod backend;
pub mod blocking;
pub mod limits;
pub mod mail;
pub mod timer;
pub mod wake;
pub mod watchdog;
