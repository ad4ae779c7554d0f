//! The subscribers of one worker: which connections are subscribed to which channels, and the queue of each connection.
//!
//! ```text
//! push ─▶ topic ─▶ each of its subscribers ─▶ queue of the connection (limited) ─▶ popped when the connection can write
//! ```
//!
//! A connection with an empty queue holds no buffer. Notifications other than pushes ([`SubscriberEvent`]) do not wait in the queue, so the queued
//! pushes of a channel are dropped with its subscription. Must not know transports, time or permissions.

mod conflated;
mod conflation_schedule;
mod conn;
mod delivery;
mod event;
mod features;
mod push_queue;
mod requests;
mod subscriptions;

use std::collections::{BTreeMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;

use bytes::Bytes;

use crate::mail::{
    ChannelOptions, RecoverFrom, ShardEvent, ShardRequest, ShardSubscribe, ShardSubscribed,
    SlowConsumerPolicy, TopicKey, WorkerId,
};
use crate::protocol::{ClientInfo, Fault, Unsubscribed, Variant};
use crate::shard::mix;
use conflated::ConflationState;
use conflation_schedule::ConflationSchedule;
use conn::Conn;
use delivery::SlowConsumer;
pub use event::{ConnId, ProgramReply, SubscriberEvent};
pub use features::SubscriptionFeatures;
use features::{FeatureEntries, TopicFeatures};
use push_queue::QueueArena;
use requests::PendingRequest;
use subscriptions::SubState;

/// The connections of one worker and their subscriptions.
#[derive(Debug)]
pub struct SubscriberTable {
    workers: u16,
    limits: SubscriberLimits,
    conns: Vec<Slot>,
    free_conns: Vec<u32>,
    topics: Vec<Topic>,
    free_topics: Vec<u32>,
    names: BTreeMap<Arc<str>, u32>,
    pending_requests: Vec<Option<PendingRequest>>,
    free_requests: Vec<u32>,
    /// The requests for each shard.
    shard_requests: Vec<VecDeque<ShardRequest>>,
    events: VecDeque<SubscriberEvent>,
    replies: VecDeque<(u64, ProgramReply)>,
    ready: VecDeque<ConnId>,
    queues: QueueArena,
    feature_entries: FeatureEntries,
    schedule: ConflationSchedule,
    /// The reasons of subscriptions that end once the shard has replied ([`SubState::Ending`]).
    pending_ends: BTreeMap<(ConnId, u32), Unsubscribed>,
    /// Empty between calls; retained for its memory.
    slow_consumers: Vec<(u32, SlowConsumer)>,
    counts: SubscriberCounts,
}

/// Counters of a worker's subscribers since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SubscriberCounts {
    /// Current subscriptions.
    pub subscriptions: usize,
    /// Publications, joins and leaves that were queued for connections, each connection counted.
    pub deliveries: u64,
    /// Pushes that did not fit into queues, by policy, in the order of [`SlowConsumerPolicy::ALL`]. A conflated update that a connection
    /// skipped at its tick is one, even if it receives the same update later.
    pub slow: [u64; SlowConsumerPolicy::ALL.len()],
    /// Subscriptions with a gap: a queue between workers was full, or the source or the owner of the channel was interrupted.
    pub lost: u64,
}

/// The limits of one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubscriberLimits {
    /// The number of subscriptions. Further ones are rejected.
    pub subscriptions: usize,
    /// The size of its queue, in bytes. See [`SlowConsumerPolicy`].
    pub queued_bytes: usize,
}

/// Fits a cache line, since a fan-out reads one for each subscriber.
#[derive(Debug)]
#[repr(align(64))]
struct Slot {
    generation: NonZeroU32,
    conn: Option<Conn>,
}

const _: () = assert!(
    size_of::<Slot>() == 64,
    "the size of an idle client, apart from its state in push and web"
);

/// A channel with subscribers at this worker, or with pending subscriptions.
#[derive(Debug)]
struct Topic {
    name: Arc<str>,
    generation: u32,
    options: ChannelOptions,
    subscribers: Vec<u32>,
    pending: u32,
    conflation: ConflationState,
    /// `None`: no subscriber has features.
    features: Option<Box<TopicFeatures>>,
}

impl SubscriberTable {
    /// Replaces the limits, also for open connections. Existing subscriptions and queued pushes remain.
    pub fn set_limits(&mut self, limits: SubscriberLimits) {
        self.limits = limits;
    }

    /// Creates a table without connections, for one of `workers` workers.
    #[must_use]
    pub fn new(workers: u16, limits: SubscriberLimits) -> SubscriberTable {
        SubscriberTable {
            workers,
            limits,
            conns: Vec::new(),
            free_conns: Vec::new(),
            topics: Vec::new(),
            free_topics: Vec::new(),
            names: BTreeMap::new(),
            pending_requests: Vec::new(),
            free_requests: Vec::new(),
            shard_requests: (0..workers).map(|_| VecDeque::new()).collect(),
            events: VecDeque::new(),
            replies: VecDeque::new(),
            ready: VecDeque::new(),
            queues: QueueArena::new(),
            feature_entries: FeatureEntries::default(),
            schedule: ConflationSchedule::default(),
            pending_ends: BTreeMap::new(),
            slow_consumers: Vec::new(),
            counts: SubscriberCounts::default(),
        }
    }

    /// Adds a connection. `info` describes the client to channels with presence or join pushes.
    pub fn open(&mut self, variant: Variant, info: Option<Arc<ClientInfo>>) -> ConnId {
        let conn = Some(Conn::new(variant, info));
        let index = self.free_conns.pop().unwrap_or_else(|| {
            let (generation, conn) = (NonZeroU32::MIN, None);
            self.conns.push(Slot { generation, conn });
            (self.conns.len() - 1) as u32
        });
        let slot = &mut self.conns[index as usize];
        slot.conn = conn;
        let generation = slot.generation;
        ConnId { index, generation }
    }

    /// Removes a connection and its subscriptions. Does nothing if it is already removed.
    pub fn close(&mut self, id: ConnId) {
        while let Some(subscription) = self.conn(id).and_then(Conn::last_subscription) {
            self.end_subscription(id, subscription);
        }
        let Some(slot) = self.conns.get_mut(id.index as usize) else {
            return;
        };
        if slot.generation == id.generation && slot.conn.take().is_some() {
            slot.generation = slot.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
            self.free_conns.push(id.index);
        }
    }

    /// Subscribes a connection to a channel. [`SubscriberEvent::Subscribed`] or [`SubscriberEvent::Rejected`] follows.
    ///
    /// # Errors
    /// [`Fault::ALREADY_SUBSCRIBED`] also if the subscription is pending, [`Fault::LIMIT_EXCEEDED`] at the limit of subscriptions,
    /// [`Fault::BAD_REQUEST`] if the connection is removed.
    pub fn subscribe(
        &mut self,
        id: ConnId,
        channel: &Arc<str>,
        options: ChannelOptions,
        recover_from: Option<RecoverFrom>,
    ) -> Result<(), Fault> {
        let info = self.slot(id).and_then(|conn| conn.info.clone());
        self.subscribe_as(id, channel, options, recover_from, info)
    }

    /// Subscribes as [`SubscriberTable::subscribe`] does, with another info of the same client for this channel. Without an `info` it is no
    /// member.
    ///
    /// # Errors
    /// As [`SubscriberTable::subscribe`].
    pub fn subscribe_as(
        &mut self,
        id: ConnId,
        channel: &Arc<str>,
        options: ChannelOptions,
        recover_from: Option<RecoverFrom>,
        info: Option<Arc<ClientInfo>>,
    ) -> Result<(), Fault> {
        let features = SubscriptionFeatures::default();
        self.subscribe_with(id, channel, options, recover_from, info, features)
    }

    /// Subscribes as [`SubscriberTable::subscribe_as`] does, with features, which the options must permit.
    ///
    /// # Errors
    /// As [`SubscriberTable::subscribe`].
    pub fn subscribe_with(
        &mut self,
        id: ConnId,
        channel: &Arc<str>,
        options: ChannelOptions,
        recover_from: Option<RecoverFrom>,
        info: Option<Arc<ClientInfo>>,
        features: SubscriptionFeatures,
    ) -> Result<(), Fault> {
        let limit = self.limits.subscriptions;
        let known = self.names.get(channel).copied();
        let Some(conn) = self.conn(id) else {
            return Err(Fault::BAD_REQUEST);
        };
        if known.is_some_and(|topic| conn.has(topic)) {
            return Err(Fault::ALREADY_SUBSCRIBED);
        }
        if conn.subscriptions() >= limit {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let variant = conn.variant;
        let topic = known.unwrap_or_else(|| self.find_or_add_topic(channel, options));
        self.topics[topic as usize].options = options;
        self.topics[topic as usize].pending += 1;
        let info = info.filter(|_| options.presence || options.join_leave);
        if let Some(conn) = self.conn(id) {
            conn.add(topic);
            if conn.info.is_none() {
                conn.info.clone_from(&info);
            }
        }
        let request = self.register_request(PendingRequest::Subscribe {
            conn: id,
            topic,
            variant,
            client: info.as_ref().map(|info| Arc::from(&*info.client)),
            features: (!features.is_plain()).then(|| Box::new(features.clone())),
        });
        let (index, generation) = (topic, self.topics[topic as usize].generation);
        let subscribing = ShardSubscribe {
            channel: Arc::clone(channel),
            options,
            key: TopicKey { index, generation },
            request,
            variant,
            recover_from,
            filter: features.filter,
            info,
        };
        self.send_request(channel, ShardRequest::Subscribe(Box::new(subscribing)));
        Ok(())
    }

    /// Ends a subscription and notifies the connection. Returns whether there was one, established or pending. A pending one is first
    /// reported as subscribed.
    pub fn unsubscribe(&mut self, id: ConnId, channel: &str, reason: Unsubscribed) -> bool {
        let Some(&topic) = self.names.get(channel) else {
            return false;
        };
        match self.conn(id).and_then(|conn| conn.state(topic)) {
            None => false,
            Some(SubState::Subscribed { .. }) => {
                self.unsubscribe_and_notify(id, topic, reason);
                true
            }
            Some(state) => {
                *state = SubState::Ending;
                self.pending_ends.insert((id, topic), reason);
                true
            }
        }
    }

    /// Ends a subscription at the client's request, without notifying it.
    pub fn unsubscribe_silently(&mut self, id: ConnId, channel: &str) {
        let Some(&topic) = self.names.get(channel) else {
            return;
        };
        match self.conn(id).and_then(|conn| conn.state(topic)) {
            None => {}
            Some(SubState::Subscribed { .. }) => self.end_subscription(id, topic),
            Some(state) => {
                *state = SubState::Ending;
                self.pending_ends.insert((id, topic), Unsubscribed::SERVER);
            }
        }
    }

    /// Returns whether a connection is subscribed to a channel, or its subscription is pending.
    #[must_use]
    pub fn is_subscribed(&self, id: ConnId, channel: &str) -> bool {
        let topic = self.names.get(channel);
        topic.is_some_and(|topic| self.slot(id).is_some_and(|conn| conn.has(*topic)))
    }

    /// Handles a message of a shard.
    pub fn handle(&mut self, message: ShardEvent) {
        match message {
            ShardEvent::Push { key, encoded, mode } => self.deliver(key, &encoded, mode),
            ShardEvent::Lost { key } => self.handle_lost(key),
            ShardEvent::Subscribed(subscribed) => self.handle_subscribed(*subscribed),
            ShardEvent::Rejected { request } => self.handle_rejected(request, Fault::LIMIT_EXCEEDED),
            ShardEvent::Behind { request } => self.handle_rejected(request, Fault::INTERNAL),
            ShardEvent::Published { request, position } => self.handle_published(request, position),
            ShardEvent::QueryResult { request, result } => self.handle_query_result(request, result),
        }
    }

    /// Returns the next request for a shard, in order.
    pub fn poll_request(&mut self, home: WorkerId) -> Option<ShardRequest> {
        self.shard_requests[usize::from(home.0)].pop_front()
    }

    /// Returns whether there are requests for a shard.
    #[must_use]
    pub fn has_mail(&self, home: WorkerId) -> bool {
        !self.shard_requests[usize::from(home.0)].is_empty()
    }

    /// Returns the number of requests for all shards.
    #[must_use]
    pub fn backlog(&self) -> usize {
        self.shard_requests.iter().map(VecDeque::len).sum()
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<SubscriberEvent> {
        self.events.pop_front()
    }

    /// Returns a connection whose queue is no longer empty. Each is returned once until it is reported again.
    pub fn poll_ready(&mut self) -> Option<ConnId> {
        while let Some(id) = self.ready.pop_front() {
            if let Some(conn) = self.conn(id) {
                conn.is_ready = false;
                return Some(id);
            }
        }
        None
    }

    /// Returns the next queued push of a connection.
    pub fn pop_push(&mut self, id: ConnId) -> Option<Bytes> {
        let (queues, slot) = (&mut self.queues, self.conns.get_mut(id.index as usize)?);
        let conn = slot.conn.as_mut().filter(|_| slot.generation == id.generation);
        let push = conn?.pop_push(queues)?;
        Some(self.feature_entries.resolve(push.frame))
    }

    /// Returns the size of a connection's queue, in bytes.
    #[must_use]
    pub fn queued_bytes(&self, id: ConnId) -> usize {
        self.slot(id).map_or(0, Conn::queued_bytes)
    }

    /// Returns the number of pushes that a connection did not receive because it was too slow.
    #[must_use]
    pub fn dropped(&self, id: ConnId) -> u64 {
        self.slot(id).map_or(0, |conn| conn.dropped)
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> SubscriberCounts {
        self.counts
    }

    /// Returns the number of channels with subscribers at this worker.
    #[must_use]
    pub fn channels(&self) -> usize {
        self.names.len()
    }

    fn slot(&self, id: ConnId) -> Option<&Conn> {
        let slot = self.conns.get(id.index as usize)?;
        slot.conn.as_ref().filter(|_| slot.generation == id.generation)
    }

    fn conn(&mut self, id: ConnId) -> Option<&mut Conn> {
        let slot = self.conns.get_mut(id.index as usize)?;
        slot.conn.as_mut().filter(|_| slot.generation == id.generation)
    }

    /// Removes a subscription of a connection and its queued pushes.
    fn remove_subscription(&mut self, id: ConnId, topic: u32) -> Option<SubState> {
        let (queues, slot) = (&mut self.queues, self.conns.get_mut(id.index as usize)?);
        let conn = slot.conn.as_mut().filter(|_| slot.generation == id.generation);
        let state = conn?.remove(topic, queues)?;
        if state == SubState::Ending {
            self.pending_ends.remove(&(id, topic));
        }
        Some(state)
    }

    fn id(&self, index: u32) -> ConnId {
        let generation = self.conns[index as usize].generation;
        ConnId { index, generation }
    }

    fn find_or_add_topic(&mut self, channel: &Arc<str>, options: ChannelOptions) -> u32 {
        let index = self.free_topics.pop().unwrap_or_else(|| {
            self.topics.push(Topic {
                name: Arc::clone(channel),
                generation: 0,
                options,
                subscribers: Vec::new(),
                pending: 0,
                conflation: ConflationState::default(),
                features: None,
            });
            (self.topics.len() - 1) as u32
        });
        self.topics[index as usize].name = Arc::clone(channel);
        self.names.insert(Arc::clone(channel), index);
        index
    }

    /// Frees a topic that has neither subscribers nor pending subscriptions.
    fn free_unused_topic(&mut self, index: u32) {
        let topic = &mut self.topics[index as usize];
        if topic.subscribers.is_empty() && topic.pending == 0 {
            // Messages in flight for the old topic have another generation.
            topic.generation = topic.generation.wrapping_add(1);
            topic.subscribers = Vec::new();
            topic.conflation = ConflationState::default();
            topic.features = None;
            self.names.remove(&topic.name);
            self.free_topics.push(index);
        }
    }

    fn send_request(&mut self, channel: &str, message: ShardRequest) {
        let home = shard_of(channel, self.workers);
        self.shard_requests[usize::from(home.0)].push_back(message);
    }

    fn handle_subscribed(&mut self, subscribed: ShardSubscribed) {
        let Some(PendingRequest::Subscribe {
            conn: id,
            topic,
            variant,
            client,
            features,
        }) = self.take_request(subscribed.request)
        else {
            return;
        };
        self.topics[topic as usize].pending -= 1;
        let at = self.topics[topic as usize].subscribers.len() as u32;
        let is_pending = |state: &&mut SubState| !matches!(state, SubState::Subscribed { .. });
        let is_last = match self
            .conn(id)
            .and_then(|conn| conn.state(topic))
            .filter(is_pending)
        {
            Some(state) => match std::mem::replace(state, SubState::Subscribed { at }) {
                SubState::Ending => self.pending_ends.remove(&(id, topic)),
                SubState::Pending | SubState::Subscribed { .. } => None,
            },
            // The connection was removed in the meantime.
            None => {
                let channel = Arc::clone(&self.topics[topic as usize].name);
                self.send_unsubscribe(&channel, variant, client);
                return self.free_unused_topic(topic);
            }
        };
        let topic_state = &mut self.topics[topic as usize];
        topic_state.subscribers.push(id.index);
        match (features, &mut topic_state.features) {
            (Some(features), state) => {
                let missed = subscribed.missed.as_ref().and_then(|missed| missed.last());
                let (entries, subscribers) = (&mut self.feature_entries, topic_state.subscribers.len());
                let recovered = missed.map(|(_, published)| published);
                let state = state.get_or_insert_default();
                state.add(entries, subscribers, &features, recovered);
            }
            (None, Some(state)) => state.add_plain(),
            (None, None) => {}
        }
        self.add_to_schedule(id.index, topic, at as usize);
        self.counts.subscriptions += 1;
        self.events.push_back(SubscriberEvent::Subscribed {
            conn: id,
            channel: Arc::clone(&self.topics[topic as usize].name),
            position: subscribed.position,
            missed: subscribed.missed,
        });
        if let Some(reason) = is_last {
            self.unsubscribe_and_notify(id, topic, reason);
        }
    }

    fn unsubscribe_and_notify(&mut self, id: ConnId, topic: u32, reason: Unsubscribed) {
        let channel = Arc::clone(&self.topics[topic as usize].name);
        self.end_subscription(id, topic);
        self.events.push_back(SubscriberEvent::Unsubscribed {
            conn: id,
            channel,
            reason,
        });
    }

    /// Ends a subscription. The shard of a pending one is notified once it has replied: it may reject the subscription, and then there is
    /// nothing to end.
    fn end_subscription(&mut self, id: ConnId, topic: u32) {
        let Some(conn) = self.conn(id) else {
            return;
        };
        let (variant, info) = (conn.variant, conn.info.clone());
        let Some(state) = self.remove_subscription(id, topic) else {
            return;
        };
        let SubState::Subscribed { at } = state else {
            return;
        };
        self.remove_from_schedule(id.index, topic);
        let topic_state = &mut self.topics[topic as usize];
        let channel = Arc::clone(&topic_state.name);
        let options = topic_state.options;
        topic_state.subscribers.swap_remove(at as usize);
        if let Some(features) = &mut topic_state.features
            && !features.swap_remove(&mut self.feature_entries, at as usize)
        {
            topic_state.features = None;
        }
        self.counts.subscriptions -= 1;
        if let Some(&moved_conn) = topic_state.subscribers.get(at as usize) {
            let moved_conn = self.id(moved_conn);
            if let Some(SubState::Subscribed { at: stored }) =
                self.conn(moved_conn).and_then(|conn| conn.state(topic))
            {
                *stored = at;
            }
        }
        let client = info.filter(|_| options.presence || options.join_leave);
        let client = client.map(|info| Arc::from(&*info.client));
        self.send_unsubscribe(&channel, variant, client);
        self.free_unused_topic(topic);
    }

    fn send_unsubscribe(&mut self, channel: &Arc<str>, variant: Variant, client: Option<Arc<str>>) {
        let message = ShardRequest::Unsubscribe {
            channel: Arc::clone(channel),
            variant,
            client,
        };
        self.send_request(channel, message);
    }

    /// Returns whether a key is of the topic's current generation.
    fn is_current(&self, key: TopicKey) -> bool {
        let topic = self.topics.get(key.index as usize);
        topic.is_some_and(|topic| topic.generation == key.generation)
    }
}

/// Returns the worker whose shard has a channel.
#[must_use]
pub fn shard_of(channel: &str, workers: u16) -> WorkerId {
    // FNV-1a: the result need not be secret, and all workers must agree.
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in channel.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    let workers = u64::from(workers.max(1));
    WorkerId((((mix(hash) >> 32) * workers) >> 32) as u16)
}
