//! Redis streams and Redis pub/sub: the files of this folder, and those of `log/redis`, alone know the `redis` crate.
//!
//! Publications have no offsets of Redis: an identifier of a stream's entry is larger than 2^53, and a Redis that lost data (a restart
//! without AOF, a failover to a replica that lags) gives the identifiers that it lost to other entries, without a sign of it. Channels
//! count, and repeats are recognized by the identifier as the key.

mod access;
mod entries;
mod group;
mod lease;
mod pubsub;
mod streams;

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::failure::Failure;

pub(crate) use self::access::{Access, watch_master};
pub(crate) use self::entries::EntryId;
pub(crate) use self::lease::new_owner;
pub(crate) use self::{pubsub::run as run_pubsub, streams::run as run_streams};

/// State of the streams of a source that outlives a connection, by name.
pub(crate) type Memory = BTreeMap<Arc<str>, StreamMemory>;

/// State of a stream that outlives a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct StreamMemory {
    /// The newest entry that was read. `None`: the group was not joined yet.
    newest: Option<EntryId>,
    /// Counts how often the stream lost entries, or was created again: its identifiers may name other entries since.
    life: u64,
    /// Entries that were deleted before they were read, as far as they were reported.
    lost: u64,
    lease: lease::LeaseMemory,
}

impl From<redis::RedisError> for Failure {
    fn from(error: redis::RedisError) -> Failure {
        Failure::Client(Box::new(error))
    }
}
