//! The messages between workers: from subscribers to shards and back.
//!
//! Messages from one worker to another are delivered in order. A reply to a subscriber and the publications after it are therefore in the
//! same queue, and none is lost or duplicated between them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::history::{Epoch, HistoryOptions, HistoryQuery, StreamPosition};
use crate::protocol::{ClientInfo, Published, PushMessage, Variant};
use crate::tag_filter::TagFilter;

/// The number of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct WorkerId(pub u16);

/// Identifies a channel at the worker of its subscribers. Other workers must not interpret it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicKey {
    pub(crate) index: u32,
    pub(crate) generation: u32,
}

/// Identifies a request. The reply returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(pub u64);

/// The options of a channel, as set by its namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelOptions {
    /// The history. `None`: publications have no offsets.
    pub history: Option<HistoryOptions>,
    /// The time for which offsets and epoch are retained after the last publication, or after the last subscriber has left, if the channel
    /// has publications. A channel that never published is retained as long as publications are ([`HistoryOptions::ttl`]), but no longer
    /// than this. At the limit of channels the longest unused is removed earlier
    /// ([`CHANNELS_PER_WORKER`](crate::limits::CHANNELS_PER_WORKER)).
    pub position_ttl: Duration,
    /// True if the members of the channel can be queried.
    pub presence: bool,
    /// True if subscribers receive join and leave pushes.
    pub join_leave: bool,
    /// The outcome for publications that do not fit into a client's queue.
    pub slow_consumer: SlowConsumerPolicy,
    /// True if a client that subscribes receives only the last retained publication, instead of those that it missed. For channels whose
    /// publications are complete states.
    pub cache_recovery: bool,
    /// The shortest time between two updates of a client; each update is the newest publication. A client receives the updates of its
    /// channels with the same interval at one tick, and the first update after an idle interval at once. `None`: all publications are sent.
    /// The history retains all publications in either case. Implies `cache_recovery`.
    ///
    /// A tick may be later by up to a sixteenth of the interval, which spreads the ticks of many clients over it. A tick that is late by no
    /// more than that does not delay the next one.
    pub conflation_interval: Option<Duration>,
    /// Permits subscriptions that receive publications as deltas.
    pub delta: bool,
    /// Permits subscriptions with a filter of publications by their tags.
    pub tags_filter: bool,
    /// Permits subscriptions whose pushes have a number instead of the channel's name.
    pub compaction: bool,
}

impl ChannelOptions {
    /// Returns whether subscriptions may have [features](crate::subscribers::SubscriptionFeatures).
    #[must_use]
    pub const fn has_features(&self) -> bool {
        self.delta || self.tags_filter || self.compaction
    }
}

/// The outcome for publications that do not fit into a client's queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SlowConsumerPolicy {
    /// The client is disconnected ([`Disconnect::SLOW`](crate::protocol::Disconnect::SLOW)). It reconnects and recovers.
    #[default]
    Disconnect,
    /// The oldest queued pushes of channels with this policy are dropped.
    DropOld,
    /// The new publication is dropped.
    DropNew,
    /// The new publication replaces the last queued one of its channel. If there is none, the oldest are dropped as with `DropOld`.
    Conflate,
    /// The queued pushes of the channel are dropped, and the client is unsubscribed
    /// ([`Unsubscribed::INSUFFICIENT`](crate::protocol::Unsubscribed::INSUFFICIENT)). It subscribes again and recovers.
    Resync,
}

impl SlowConsumerPolicy {
    /// All policies.
    pub const ALL: [SlowConsumerPolicy; 5] = [
        SlowConsumerPolicy::Disconnect,
        SlowConsumerPolicy::DropOld,
        SlowConsumerPolicy::DropNew,
        SlowConsumerPolicy::Conflate,
        SlowConsumerPolicy::Resync,
    ];

    /// Returns the index in [`SlowConsumerPolicy::ALL`].
    #[must_use]
    pub const fn number(self) -> usize {
        self as usize
    }
}

/// A message to the shard of a channel.
#[derive(Debug)]
pub enum ShardRequest {
    /// Adds a subscriber. The reply is [`ShardEvent::Subscribed`], [`ShardEvent::Rejected`] or [`ShardEvent::Behind`].
    Subscribe(Box<ShardSubscribe>),
    /// Removes a subscriber.
    Unsubscribe {
        /// The channel.
        channel: Arc<str>,
        /// The variant of its pushes.
        variant: Variant,
        /// The client ID, if the channel was given one.
        client: Option<Arc<str>>,
    },
    /// Publishes. If there is a request, the reply is [`ShardEvent::Published`], [`ShardEvent::Rejected`] or [`ShardEvent::QueryResult`]
    /// with [`QueryResult::Draining`].
    Publish {
        /// The channel.
        channel: Arc<str>,
        /// The options, which are also applied to an existing channel.
        options: ChannelOptions,
        /// The publication.
        published: Arc<Published>,
        /// Unusual options.
        publish_options: Option<Box<PublishOptions>>,
        /// The publisher.
        origin: Origin,
        /// The request, if a reply is expected.
        request: Option<RequestId>,
    },
    /// Queries a channel. The reply is [`ShardEvent::QueryResult`].
    Query {
        /// The channel.
        channel: Arc<str>,
        /// The options, which are also applied to an existing channel.
        options: ChannelOptions,
        /// The query.
        query: ChannelQuery,
        /// The request.
        request: RequestId,
    },
}

/// The publisher of a publication. A channel records its publishers, since an interruption of a source affects the channels that it feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Origin(u8);

impl Origin {
    /// Clients and callers of the API.
    pub const PROGRAM: Origin = Origin(63);
    /// Sources whose records have the offsets of a log.
    pub const LOG: Origin = Origin(62);

    /// Returns the origin of a source without a log. Sources whose numbers are equal modulo 62 share one: an interruption of one also
    /// affects the channels of the other.
    #[must_use]
    pub const fn source(number: u32) -> Origin {
        Origin((number % 62) as u8)
    }

    pub(crate) const fn bit(self) -> u64 {
        1 << self.0
    }
}

impl Default for Origin {
    fn default() -> Origin {
        Origin::PROGRAM
    }
}

/// Unusual options of a publication.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PublishOptions {
    /// Sends the publication without an offset and without retaining it. It is not conflated, and is dropped if a worker's queue is full.
    pub transient: bool,
    /// Publishes only once for each idempotency key.
    pub idempotency: Option<Idempotency>,
}

/// The identity of a publication within its channel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Idempotency {
    /// The idempotency key, set by the publisher.
    pub key: Box<str>,
    /// The time for which keys are remembered. The last value applies to all channels of a shard.
    pub window: Duration,
}

/// A query about a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelQuery {
    /// Returns retained publications.
    History {
        /// The selection.
        query: HistoryQuery,
        /// The epoch of `query.since`.
        epoch: EpochFilter,
    },
    /// Returns the members.
    Presence,
    /// Returns the number of members.
    PresenceStats,
    /// Drops the retained publications. Offsets continue.
    ClearHistory,
}

/// The result of a query, or the reason why nothing was published.
#[derive(Debug)]
pub enum QueryResult {
    /// The selected publications, with their offsets, in the requested order.
    History {
        /// The publications.
        publications: Vec<(u64, Arc<Published>)>,
        /// The current position of the channel.
        position: StreamPosition,
    },
    /// The requested position is of another epoch.
    Unrecoverable,
    /// The members, in the order of their client IDs.
    Presence(Vec<Arc<ClientInfo>>),
    /// The number of members.
    PresenceStats {
        /// The number of connections.
        clients: u32,
        /// The number of distinct users.
        users: u32,
    },
    /// The retained publications were dropped.
    HistoryCleared,
    /// The channel's options do not allow the query, or the limit of channels is reached.
    NotAvailable,
    /// The publication was rejected: the limit of channels is reached.
    ChannelLimit,
    /// The publication was rejected: a successor assigns offsets from now on.
    Draining,
    /// The node that owns the channel has not responded: a publication may be published or not.
    Unreachable,
}

/// A new subscriber.
#[derive(Debug)]
pub struct ShardSubscribe {
    /// The channel.
    pub channel: Arc<str>,
    /// The options, which are also applied to an existing channel.
    pub options: ChannelOptions,
    /// The key of the channel at the subscriber's worker.
    pub key: TopicKey,
    /// The request.
    pub request: RequestId,
    /// The variant of its pushes.
    pub variant: Variant,
    /// The position to recover from.
    pub recover_from: Option<RecoverFrom>,
    /// The filter of recovered publications.
    pub filter: Option<Arc<TagFilter>>,
    /// The member's info, for presence and join pushes.
    pub info: Option<Arc<ClientInfo>>,
}

/// The position of a client that reconnects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoverFrom {
    /// The offset of the last publication that the client received.
    pub offset: u64,
    /// The epoch of the offset.
    pub epoch: EpochFilter,
}

impl RecoverFrom {
    /// The position before all publications, in any epoch.
    pub const BEGINNING: RecoverFrom = RecoverFrom {
        offset: 0,
        epoch: EpochFilter::Any,
    };
}

/// The epoch of a client's position, as the client reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EpochFilter {
    /// Any epoch: the client reported none.
    Any,
    /// Exactly this epoch.
    Exact(Epoch),
    /// An epoch of another server.
    Foreign,
}

impl EpochFilter {
    /// Parses the epoch of a client's message.
    #[must_use]
    pub fn parse(text: &str) -> EpochFilter {
        match text {
            "" => EpochFilter::Any,
            text => Epoch::parse(text).map_or(EpochFilter::Foreign, EpochFilter::Exact),
        }
    }
}

/// A message to the worker of subscribers.
#[derive(Debug)]
pub enum ShardEvent {
    /// The subscriber was added. Pushes that follow are newer than its position.
    Subscribed(Box<ShardSubscribed>),
    /// The limit of channels is reached: the subscriber was not added, or the publication was rejected.
    Rejected {
        /// The request.
        request: RequestId,
    },
    /// The subscriber was not added: its position is of another node, which has read more of the channel's log, or of a log that is not
    /// read yet. The client must retry.
    Behind {
        /// The request.
        request: RequestId,
    },
    /// A push to all subscribers of a channel.
    Push {
        /// The channel.
        key: TopicKey,
        /// The encoded push.
        encoded: Arc<EncodedPush>,
        /// The delivery mode.
        mode: DeliveryMode,
    },
    /// Pushes did not reach this worker and cannot be sent again. Subscribers that rely on positions must be notified.
    Lost {
        /// The channel.
        key: TopicKey,
    },
    /// The publication was accepted.
    Published {
        /// The request.
        request: RequestId,
        /// The position after the publication. `None`: the channel or the publication has no offset.
        position: Option<StreamPosition>,
    },
    /// The result of a query.
    QueryResult {
        /// The request.
        request: RequestId,
        /// The result.
        result: Box<QueryResult>,
    },
}

/// The time at which subscribers receive a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveryMode {
    /// Immediately, as a publication of a channel that is not conflated.
    Immediate,
    /// At each subscriber's next tick, unless a newer publication replaces it ([`ChannelOptions::conflation_interval`]).
    Conflated(Duration),
    /// Immediately and independently of publications: the push is no publication, or one that is not retained.
    OutOfBand,
}

/// The initial state of a subscription.
#[derive(Debug)]
pub struct ShardSubscribed {
    /// The request.
    pub request: RequestId,
    /// The position of the channel. `None`: it has no offsets.
    pub position: Option<StreamPosition>,
    /// The missed publications, if all are available. `None`: they are not, or recovery was not requested.
    pub missed: Option<Vec<(u64, Arc<Published>)>>,
}

/// A push, encoded once for each variant that has subscribers.
#[derive(Debug, Default)]
pub struct EncodedPush {
    variants: [Bytes; Variant::ALL.len()],
    source: Option<PushSource>,
}

/// The content of a push before it is encoded, for subscriptions with features, whose pushes are encoded at their worker.
#[derive(Clone, Debug)]
pub enum PushSource {
    /// A publication, with its offset; 0 for none.
    Publication(u64, Arc<Published>),
    /// Another push.
    Message(Box<PushMessage>),
}

impl PushSource {
    pub(crate) fn from_push(push: &PushMessage) -> PushSource {
        PushSource::Message(Box::new(push.clone()))
    }
}

impl EncodedPush {
    /// Sets the encoded push of a variant.
    pub(crate) fn set(&mut self, variant: Variant, encoded: Bytes) {
        self.variants[variant.number()] = encoded;
    }

    pub(crate) fn set_source(&mut self, source: Option<PushSource>) {
        self.source = source;
    }

    /// Returns the content, in a channel whose options permit [features](ChannelOptions::has_features), or have permitted them to a current
    /// subscriber.
    #[must_use]
    pub fn source(&self) -> Option<&PushSource> {
        self.source.as_ref()
    }

    /// Returns the encoded push, or `None` if this variant cannot represent it.
    #[must_use]
    pub fn get(&self, variant: Variant) -> Option<&Bytes> {
        let bytes = &self.variants[variant.number()];
        (!bytes.is_empty()).then_some(bytes)
    }
}
