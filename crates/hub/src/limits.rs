//! Every limit of channels and of their protocol, with its unit and the outcome when it is reached.

use std::time::Duration;

/// The length of a client's message, in bytes. A longer message closes the connection ([`Disconnect::BAD_REQUEST`]).
///
/// [`Disconnect::BAD_REQUEST`]: crate::protocol::Disconnect::BAD_REQUEST
pub const MESSAGE_BYTES: usize = 64 << 10;

/// The commands in one message. A message with more closes the connection.
pub const COMMANDS_PER_MESSAGE: usize = 256;

/// The length of a channel name, in bytes.
pub const CHANNEL_BYTES: usize = 255;

/// The length of a client's name, in bytes.
pub const CLIENT_NAME_BYTES: usize = 16;

/// The length of a client's version, in bytes.
pub const CLIENT_VERSION_BYTES: usize = 64;

/// The publications that one recovery returns. A client that missed more is reported as not recovered.
pub const RECOVERED_PUBLICATIONS: usize = 1000;

/// The channels of one worker's shard. To create one more, the longest unused channel without subscribers and without retained publications
/// is removed. If there is none, subscriptions to new channels are rejected ([`Fault::LIMIT_EXCEEDED`]) and publications in them are not
/// delivered.
///
/// [`Fault::LIMIT_EXCEEDED`]: crate::protocol::Fault::LIMIT_EXCEEDED
pub const CHANNELS_PER_WORKER: usize = 1 << 20;

/// The pushes queued for one other worker. At the limit, channels are marked: their publications are sent again from the history once there
/// is room, or reported as lost.
pub const QUEUED_PUSHES_PER_WORKER: usize = 4096;

/// The pushes that are sent again for one channel. If more did not reach a worker, they are reported as lost.
pub const RESENT_PUSHES: usize = 256;

/// The members of a predecessor's channels that one sweep removes. Further members are present until the next sweep.
pub const MEMBERS_PER_SWEEP: usize = 4096;

/// The channels that one sweep checks.
pub const CHANNELS_PER_SWEEP: usize = 1024;

/// The unused channels that are checked to evict one. Channels that were used since the last check are requeued. If none can be removed,
/// the new channel is rejected, and the next attempt continues with the following ones.
pub const CHANNELS_PER_EVICTION: usize = 1024;

/// The queue of one client, in bytes. The outcome for further pushes is set by [`SlowConsumerPolicy`].
///
/// [`SlowConsumerPolicy`]: crate::mail::SlowConsumerPolicy
pub const QUEUE_BYTES: usize = 1 << 20;

/// The queued pushes of one worker's clients whose memory is retained while the queues are empty. Each queue is bounded by its
/// budget in bytes.
pub const QUEUE_NODES_RETAINED: usize = 1 << 16;

/// The buffers of each kind and size that are pooled. If more are in use, the oldest are released from the pool. See [`pool`](crate::pool).
pub const POOLED_BUFFERS: usize = 256;

/// The size of the smallest pooled buffer, in bytes.
pub const POOLED_MIN_BYTES: usize = 256;

/// The size of the largest pooled buffer, in bytes. Longer data is allocated.
pub const POOLED_MAX_BYTES: usize = 4096;

/// The pooled buffers that are tried before a new one is allocated.
pub(crate) const POOL_ATTEMPTS: usize = 4;

/// The capacity of a scratch buffer that is retained between pushes, in bytes.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

/// The subscribers whose memory is prefetched together during a fan-out.
pub(crate) const PREFETCH_BATCH: usize = 32;

/// The length of an idempotency key, in bytes. Callers must reject longer keys.
pub const KEY_BYTES: usize = 255;

/// The logs that assign the offsets of one worker's channels; each partition of a topic is one. At the limit one is removed: its channels
/// do not recover positions of other nodes.
pub const LOGS: usize = 4096;

/// The time for which a predecessor's log is retained without a reader. Until then, clients with higher positions retry.
pub const LOG_READER_TIMEOUT: Duration = Duration::from_secs(60);

/// The time to wait for records that were published earlier ([`LogEvent::Live`](crate::shard::LogEvent::Live)). Until then, clients that
/// subscribe to the log's channels retry.
pub const LOG_REPLAY_TIMEOUT: Duration = Duration::from_secs(20);

/// The idempotency keys that one worker remembers. At the limit the oldest are dropped before their window has passed; no publication is
/// rejected.
pub const IDEMPOTENCY_KEYS: usize = 1 << 18;

/// The size of these keys and the names of their channels, with [`KEY_OVERHEAD_BYTES`] for each, in bytes. The outcome is the same.
pub const IDEMPOTENCY_KEYS_BYTES: usize = 64 << 20;

/// The bytes that are counted for a key in addition to its text.
pub const KEY_OVERHEAD_BYTES: usize = 144;

/// The updates per interval of a conflated channel ([`ChannelOptions::conflation_interval`]) that its shard sends to each worker. A
/// client's update is therefore at most this fraction of the interval old, and mail between workers is bounded at any publication rate.
///
/// [`ChannelOptions::conflation_interval`]: crate::mail::ChannelOptions::conflation_interval
pub const FORWARDS_PER_INTERVAL: u32 = 8;

/// The shortest time between two such updates, unless the interval itself is shorter.
pub const MIN_FORWARD_INTERVAL: Duration = Duration::from_millis(10);

/// The resolution of the conflation schedule: connections that are due within the same tick are served together.
pub(crate) const CONFLATION_TICK: Duration = Duration::from_millis(1);

/// The part of its interval, as a divisor, by which a connection's tick may be moved towards its own phase, and by which a tick may be late
/// without delaying the next one.
pub(crate) const CONFLATION_SHIFT_DIVISOR: u64 = 16;

/// The connections that one call serves before their updates are sent.
pub const CONFLATION_BATCH: usize = 128;

/// The queued pushes of a connection that are checked before it receives updates. If an update is still among them, the connection is a
/// slow consumer and skips this tick.
pub(crate) const QUEUE_SCAN_LIMIT: usize = 256;

/// The length of publications between which deltas are made, in bytes. Longer ones are sent whole.
pub const DELTA_BYTES: usize = 128 << 10;

/// The blocks of the previous publication that are compared with one position of the new one. A delta may be longer than possible if more
/// blocks have the same hash.
pub(crate) const DELTA_PROBES: usize = 8;

/// The publications of a conflated channel that one worker retains while there are subscribers with deltas. A subscriber that has an older
/// one receives the next one whole.
pub const DELTA_BASES: usize = 2 * FORWARDS_PER_INTERVAL as usize;

/// The size of a filter by tags, in bytes of its Protobuf encoding. A subscription with a larger one is rejected ([`Fault::BAD_REQUEST`]).
///
/// [`Fault::BAD_REQUEST`]: crate::protocol::Fault::BAD_REQUEST
pub const FILTER_BYTES: usize = 4096;

/// The comparisons and operators of a filter by tags. The outcome is the same.
pub const FILTER_NODES: usize = 128;

/// The values in the lists (`vals`) of a filter by tags, all together: a publication's tag is compared with each. The outcome is the same.
pub const FILTER_VALUES: usize = 256;

/// The nesting depth of a filter by tags. The outcome is the same.
pub const FILTER_DEPTH: usize = 16;

/// The size of the state that one shard writes for its successor, in bytes. Further channels are omitted and start a new epoch there.
pub const STATE_BYTES: usize = 512 << 20;
