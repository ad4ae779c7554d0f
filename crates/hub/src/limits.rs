//! Every limit of channels and of their protocol, with its unit and what happens there.

use std::time::Duration;

/// Bytes of a message from a client; a longer one ends its connection ([`Disconnect::BAD_REQUEST`]).
///
/// [`Disconnect::BAD_REQUEST`]: crate::protocol::Disconnect::BAD_REQUEST
pub const MESSAGE_BYTES: usize = 64 << 10;

/// Commands of one message; a message with more ends the connection.
pub const COMMANDS_A_MESSAGE: usize = 256;

/// Bytes of a channel's name.
pub const CHANNEL_BYTES: usize = 255;

/// Bytes that a client may give as its name.
pub const CLIENT_NAME_BYTES: usize = 16;

/// Bytes that a client may give as its version.
pub const CLIENT_VERSION_BYTES: usize = 64;

/// Publications that one recovery brings; a client that has missed more is told that it is not recovered.
pub const RECOVERED_PUBLICATIONS: usize = 1000;

/// Channels that are at home at one worker. For one more the longest unused is removed, of those without subscribers and without
/// retained publications. Without such a one subscriptions to more are refused ([`Fault::LIMIT_EXCEEDED`]), and publications in more
/// reach nobody.
///
/// [`Fault::LIMIT_EXCEEDED`]: crate::protocol::Fault::LIMIT_EXCEEDED
pub const CHANNELS_A_WORKER: usize = 1 << 20;

/// Pushes that wait for one other worker. Beyond, channels are marked: what they published since is sent again from their
/// history when there is room, or is told to be lost.
pub const PUSHES_WAITING: usize = 4096;

/// Pushes that are sent again for one channel; if more did not reach a worker they are lost to it.
pub const PUSHES_AGAIN: usize = 256;

/// Members of a predecessor's channels that one sweep removes; more of them are present until the next one.
pub const MEMBERS_A_SWEEP: usize = 4096;

/// Channels that one sweep looks at.
pub const CHANNELS_A_SWEEP: usize = 1024;

/// Unused channels that are checked to make room for one more, at most: those that were used since the last check are put back. If
/// none of them can be removed the new one is refused, and the next attempt checks the following ones.
pub const CHANNELS_AN_EVICTION: usize = 1024;

/// Bytes that wait for one client, its budget: what becomes of more says [`Slow`].
///
/// [`Slow`]: crate::mail::Slow
pub const WAITING_BYTES: usize = 1 << 20;

/// Pushes that wait at one worker, for all of its clients: room for so many is kept when none waits any more. What each may have
/// waiting is bounded by its budget.
pub const PLACES_KEPT: usize = 1 << 16;

/// Places of each kind, and of each size, that are kept for what is published next; with more of them in use the oldest are let go
/// of. See [`pool`](crate::pool).
pub const POOLED: usize = 256;

/// Bytes of the smallest of them.
pub const POOLED_LEAST_BYTES: usize = 256;

/// Bytes of the largest of them: what is longer has memory of its own.
pub const POOLED_BYTES: usize = 4096;

/// Places that are tried before another one is made.
pub(crate) const POOLED_TRIES: usize = 4;

/// Bytes of memory that is kept for what is written next.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

/// Subscribers of one publication that are looked up together.
pub(crate) const TOUCHED_TOGETHER: usize = 32;

/// Bytes of the key by which a publication is known to be the same as another one; whoever takes such keys refuses longer ones.
pub const KEY_BYTES: usize = 255;

/// Logs that assign the offsets of one worker's channels: each partition of a topic is one. With more, one is forgotten: its channels
/// do not recover positions of other nodes.
pub const LOGS: usize = 4096;

/// The time for which a log of a predecessor is kept without a reader. Until then, clients with higher positions retry.
pub const LOG_RESTORED: Duration = Duration::from_secs(60);

/// The time for which records that were published before are awaited ([`LogEvent::Live`](crate::home::LogEvent::Live)). Until then, clients
/// that subscribe to their channels retry.
pub const LOG_REPLAY: Duration = Duration::from_secs(20);

/// Keys of publications that one worker remembers. With more the oldest are forgotten before their time is over: the time that
/// keys are remembered gets shorter, and nothing is refused.
pub const KEYS: usize = 1 << 18;

/// Bytes of these keys, with the names of their channels and [`KEY_OVERHEAD_BYTES`] for each. With more, the same.
pub const KEYS_BYTES: usize = 64 << 20;

/// What a key is counted with besides its text.
pub const KEY_OVERHEAD_BYTES: usize = 144;

/// Of the interval of a channel that shows states ([`Rules::every`]): as often its home hands workers the last publication, so that
/// what a client gets at its moment is no older. Mail between workers is bounded by it, whatever a feed brings.
///
/// [`Rules::every`]: crate::mail::Rules::every
pub const PASSED_AN_INTERVAL: u32 = 8;

/// And at least so long after the one before, unless the interval itself is shorter.
pub const PASSED_AT_LEAST: Duration = Duration::from_millis(10);

/// How far a client's moments are apart at least; connections whose moments are in the same one get theirs together.
pub(crate) const MOMENT: Duration = Duration::from_millis(1);

/// Part of its interval by which a connection's moment may come later than it could, until it is at its own place in the
/// interval; and by which one may have been late without those behind it being later, too.
pub(crate) const MOMENT_MOVES: u64 = 16;

/// Moments that come at once, before what they brought is sent.
pub const MOMENTS_TOGETHER: usize = 128;

/// Pushes that are looked at, of those that wait for a connection, before it is given the states that it is behind with: with one
/// of these among them it is too slow, and gets the newest at a later moment.
pub(crate) const LOOKED_AT: usize = 256;

/// Bytes of the state that one home writes for the process after it. Channels beyond it are left out and start a new epoch there.
pub const STATE_BYTES: usize = 512 << 20;
