//! Every limit of a cluster, with its unit and the outcome when it is reached.

use std::time::Duration;

/// The length of a frame, in bytes. A longer one closes the link; an answer that would be longer is [`Answer::TooLarge`].
///
/// [`Answer::TooLarge`]: crate::frame::Answer::TooLarge
pub const FRAME_BYTES: usize = 16 << 20;

/// The length of a node's name or zone, in bytes. A longer one closes the link.
pub const NAME_BYTES: usize = 255;

/// The nodes of a cluster. Further links are closed.
pub const NODES: usize = 100;

/// The largest weight of a node.
pub const WEIGHT_MAX: u16 = 64;

/// The interval of beats. A node that is silent for [`SUSPECT_AFTER`] is suspected.
pub const BEAT_INTERVAL: Duration = Duration::from_millis(500);

/// The time of silence after which a node is suspected: it remains a member, and publications for it are held back.
pub const SUSPECT_AFTER: Duration = Duration::from_secs(2);

/// The time of silence after which a node is removed: its members leave, and its channels have other owners.
pub const GONE_AFTER: Duration = Duration::from_secs(3);

/// The time of silence after which a node is removed if its address refuses each connection meanwhile: its process has ended.
pub const REFUSED_AFTER: Duration = Duration::from_millis(1500);

/// The bytes of publications that a node may have in flight to another one. At the limit the channel is marked: its publications are sent
/// again from the history once there is credit, or reported as a gap.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// The part of [`WINDOW_BYTES`] that is granted at once.
pub const GRANT_BYTES: u64 = WINDOW_BYTES / 4;

/// The bytes that a publication costs in addition to its data.
pub const PUBLICATION_OVERHEAD: u64 = 64;

/// The time for which a link may have no credit while publications wait. Then it is closed, and its mirrors catch up or have a gap.
pub const STALLED_AFTER: Duration = Duration::from_secs(10);

/// The time for which a mirror without subscribers is retained.
pub const MIRROR_IDLE: Duration = Duration::from_secs(30);

/// The time after which a mirror without an owner is reported as lost, and after which a mirror asks again.
pub const STALE_AFTER: Duration = Duration::from_secs(5);

/// The interval at which a mirror repeats a subscription that was not accepted.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(100);

/// The time to wait for the outcome of a publication, a query or a call.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// The publications and queries in flight. Further ones are refused.
pub const REQUESTS: usize = 1 << 16;

/// The calls in flight. Further ones report that no node has run them.
pub const CALLS: usize = 256;

/// The size of a call or of its result, in bytes.
pub const CALL_BYTES: usize = 1 << 20;

/// The members in one frame.
pub const MEMBERS_PER_FRAME: usize = 1024;

/// The members that a node may announce in parts before the last one. A node with more closes the link.
pub const ANNOUNCED_MEMBERS: usize = 1 << 20;

/// The publications that a mirror receives when it subscribes. Older ones are a gap.
pub const CATCH_UP_PUBLICATIONS: usize = 1000;

/// The size of these, in bytes of data.
pub const CATCH_UP_BYTES: usize = 8 << 20;

/// The channels that a node owns, and the channels that it mirrors. Subscriptions to further ones and publications in them are refused.
pub const CHANNELS: usize = 1 << 20;

/// The earlier epochs that an owner remembers for a channel. A mirror with another epoch starts a new one.
pub const REPLACED_EPOCHS: usize = 8;

/// The idempotency keys that an owner remembers. At the limit the oldest are dropped before their window has passed.
pub const IDEMPOTENCY_KEYS: usize = 1 << 18;

/// The bytes that a channel which moves costs in addition to its contents.
pub const HANDOVER_OVERHEAD: u64 = 256;

/// The bytes of channels that may be on their way to a new owner. Further channels move when it has taken these, or asks for them.
pub const HANDOVER_WINDOW_BYTES: u64 = WINDOW_BYTES;

/// The bytes in one part of a channel that moves, unless it is a single publication or member.
pub const HANDOVER_PART_BYTES: u64 = 1 << 20;

/// The bytes of publications with which a channel moves. Older ones are not retained by the new owner.
pub const HANDOVER_CHANNEL_BYTES: u64 = 32 << 20;

/// The mirrors with which a channel moves: those of the nodes, and of nodes that have ended a short time ago.
pub const HANDOVER_MIRRORS: usize = 4 * NODES;

/// The bytes of a channel that is received from its old owner, members and keys included. With more the link is closed.
pub const HANDOVER_RECEIVED_BYTES: u64 = 16 * HANDOVER_CHANNEL_BYTES;

/// The time for the move of channels to one node. Those that remain then end with their epoch, and mirrors report a gap.
pub const HANDOVER_TIME: Duration = Duration::from_secs(10);

/// The time for which a new owner holds requests for a channel that another node may have. Then the channel starts a new epoch.
pub const HOLD_TIME: Duration = Duration::from_secs(2);

/// The frames and their bytes of publications that a node holds for channels that move. Further ones are refused, and sent again.
pub const HELD_FRAMES: usize = 1 << 16;

/// See [`HELD_FRAMES`].
pub const HELD_BYTES: u64 = 16 << 20;

/// The time for which the new owner waits for the mirrors of a channel. Then members of the nodes without a mirror leave.
pub const TRANSITION_TIME: Duration = Duration::from_secs(3);

/// The bytes of publications without offsets that a new owner retains for mirrors that have not subscribed yet. Older ones are dropped.
pub const TRANSITION_BYTES: u64 = 1 << 20;

/// The nodes that relay a request. Then it is refused, and sent again by the first one.
pub const RELAY_HOPS: u8 = 4;

/// The interval at which a refused request is sent again, until [`REQUEST_TIMEOUT`].
pub const REQUEST_RETRY: Duration = Duration::from_millis(50);

/// The time without requests of other nodes after which a leaving node has left.
pub const LEAVE_QUIET: Duration = Duration::from_millis(500);

/// The bytes of publications that wait to be sent again. Further ones are refused.
pub const QUEUED_BYTES: u64 = 16 << 20;

/// The time for a joining node to have links to all nodes that others know. Then it owns channels in any case.
pub const JOIN_TIME: Duration = Duration::from_secs(5);

/// The owned channels that one tick checks for expiry.
pub const CHANNELS_PER_TICK: usize = 1024;

/// The appends to a log that are in flight. Further publications are refused.
pub const LOG_APPENDS: usize = 1 << 16;

/// The bytes of these. Further publications are refused.
pub const LOG_APPEND_BYTES: usize = 64 << 20;

/// The time within which an adapter reports the outcome of an append: refused if it was not sent, unknown if it was.
pub const LOG_APPEND_TIMEOUT: Duration = Duration::from_millis(3500);

/// The records in one event of an adapter.
pub const LOG_BATCH_RECORDS: usize = 1024;

/// The batches of events that wait for the node. Then the adapter stops reading its broker.
pub const LOG_EVENT_BATCHES: usize = 64;

/// The bytes of older records that are read at once.
pub const LOG_TAIL_BYTES: usize = 1 << 20;

/// The interval at which the owner of a partition appends a beat.
pub const LOG_BEAT_INTERVAL: Duration = Duration::from_secs(1);

/// The time without an own beat from the log after which an owner is not ready.
pub const LOG_SILENT_AFTER: Duration = Duration::from_secs(5);

/// The time for which a partition is read that the node does not need any more.
pub const LOG_LINGER: Duration = Duration::from_secs(10);

/// The interval at which a closed partition is requested again.
pub const LOG_FOLLOW_INTERVAL: Duration = Duration::from_millis(100);

/// The time after which a life is appended again that was not read.
pub const LOG_LIFE_INTERVAL: Duration = Duration::from_secs(2);

/// The time for which a position of a mirror may be ahead of the log. If own beats are read meanwhile, records are gone: a new life begins.
pub const LOG_AHEAD_AFTER: Duration = Duration::from_secs(3);

/// The time for which a node with other settings of the log counts after it was last met.
pub const OTHER_LOG_TIME: Duration = Duration::from_secs(5);

const _: () = {
    assert!(
        CATCH_UP_BYTES < FRAME_BYTES / 2 + 1,
        "a catch-up fits a frame with its overhead"
    );
    assert!(BEAT_INTERVAL.as_millis() * 3 < SUSPECT_AFTER.as_millis());
    assert!(LOG_APPEND_TIMEOUT.as_millis() < REQUEST_TIMEOUT.as_millis());
    assert!(SUSPECT_AFTER.as_millis() < GONE_AFTER.as_millis());
    assert!(BEAT_INTERVAL.as_millis() * 3 <= REFUSED_AFTER.as_millis());
    assert!(REFUSED_AFTER.as_millis() < GONE_AFTER.as_millis());
};

/// The time after its start for which a node owns no channels, so that it has links before.
pub const STARTUP_GRACE: Duration = Duration::from_secs(1);

/// The time to connect to a node, with TLS and its first frame. Then the attempt is repeated.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// The time between attempts to connect to a node.
pub const RECONNECT_INTERVAL: Duration = Duration::from_millis(250);

/// The interval at which the names of nodes are resolved.
pub const RESOLVE_INTERVAL: Duration = Duration::from_secs(2);

/// The interval of [`Node::tick`](crate::node::Node::tick).
pub const TICK_INTERVAL: Duration = Duration::from_millis(50);

/// The connections from other nodes that have not sent their first frame. Further ones are closed.
pub const PENDING_LINKS: usize = 2 * NODES;

/// The batches of received frames that wait for the node. Then links are not read.
pub const RECEIVED_BATCHES: usize = 256;

/// The bytes that are read from a link at once.
pub const READ_BYTES: usize = 64 << 10;

/// The requests of workers that are handled in one turn, before their frames are sent. Further ones wait for the next turn.
pub const REQUESTS_PER_TURN: usize = 1024;

/// The writes of turns that are joined into one on a link.
pub const JOINED_WRITES: usize = 64;

/// The bytes that wait to be sent on a link. With more it is closed: publications have credit, so the other node reads nothing.
pub const UNSENT_BYTES: usize = 64 << 20;

/// The interval at which an event is delivered again to a worker whose queue was full.
pub const REDELIVER_INTERVAL: Duration = Duration::from_millis(2);
