//! The channels of one worker: their offsets, histories, members, and the workers that have subscribers.
//!
//! A reply to a subscriber uses the same queue as publications, so none is lost or duplicated between the reply and the first push. If the
//! queue of a worker is full, the channel is marked with the first offset that was not sent, and sends it again from its history later.
//! Must not know connections, time or permissions.

mod channel;
mod eviction;
mod expected_logs;
mod idempotency;
mod interruption;
mod log;
mod mirror;
mod predecessor_members;
mod send;
mod state;
mod writer;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;
use std::time::Duration;

use crate::history::{Epoch, StreamPosition};
use crate::limits;
use crate::mail::{
    ChannelOptions, Origin, PublishOptions, QueryResult, ShardEvent, ShardRequest, ShardSubscribe,
    ShardSubscribed, WorkerId,
};
use crate::protocol::{Published, Variant};
use channel::{Channel, SendDecision};
use eviction::UnusedChannels;
use expected_logs::ExpectedLogs;
use idempotency::{ChannelKey, IdempotencyKeys};
use log::Logs;
pub use log::{LogEvent, LogId, LogPublishOutcome};
pub use mirror::MirroredState;
use predecessor_members::PredecessorMembers;
pub use state::{InvalidState, SavedState, StateRecord};
use writer::PushWriter;

/// The channels that belong to one worker.
#[derive(Debug)]
pub struct ChannelShard {
    names: BTreeMap<Arc<str>, u32>,
    channels: Vec<Option<Channel>>,
    free: Vec<u32>,
    channel_limit: usize,
    outboxes: Vec<Outbox>,
    /// The channels that hold a publication, by the time at which it is sent: one entry for each.
    held_channels: BTreeSet<(Duration, u32)>,
    /// The seed of the channels' epochs.
    seed: u64,
    epochs_drawn: u64,
    /// The channel at which the last sweep stopped.
    sweep_index: usize,
    /// The channels without subscribers, by the time from which on they may be evicted.
    unused: UnusedChannels,
    keys: IdempotencyKeys,
    logs: Logs,
    expected_logs: ExpectedLogs,
    predecessor_members: PredecessorMembers,
    writer: PushWriter,
    counts: ShardCounts,
    /// True if publications are no longer assigned offsets ([`ChannelShard::freeze`]).
    is_frozen: bool,
}

/// Counters of a shard since the start of its worker, and its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShardCounts {
    /// Publications, including those without subscribers.
    pub publications: u64,
    /// Publications that were rejected as duplicates.
    pub duplicates: u64,
    /// Idempotency keys that were dropped before their window had passed ([`limits::IDEMPOTENCY_KEYS`]).
    pub dropped_keys: u64,
    /// Encoded pushes, one for each variant that has subscribers.
    pub encoded_pushes: u64,
    /// Channels that have subscribers now.
    pub subscribed_channels: usize,
    /// Channels that were removed early to make room for others ([`limits::CHANNELS_PER_WORKER`]).
    pub evicted: u64,
}

/// The messages queued for one worker.
#[derive(Debug, Default)]
struct Outbox {
    queue: VecDeque<ShardEvent>,
    /// The number of pushes in `queue`.
    pushes: usize,
    /// The channels with pushes that did not fit into the queue.
    marked: VecDeque<u32>,
}

impl ChannelShard {
    /// Creates a shard without channels. `channel_limit` is at most [`limits::CHANNELS_PER_WORKER`]; `seed` must be random.
    #[must_use]
    pub fn new(workers: u16, channel_limit: usize, seed: u64) -> ChannelShard {
        ChannelShard {
            names: BTreeMap::new(),
            channels: Vec::new(),
            free: Vec::new(),
            channel_limit,
            outboxes: (0..workers).map(|_| Outbox::default()).collect(),
            held_channels: BTreeSet::new(),
            seed,
            epochs_drawn: 0,
            sweep_index: 0,
            unused: UnusedChannels::default(),
            keys: IdempotencyKeys::default(),
            logs: Logs::default(),
            expected_logs: ExpectedLogs::default(),
            predecessor_members: PredecessorMembers::default(),
            writer: PushWriter::default(),
            counts: ShardCounts::default(),
            is_frozen: false,
        }
    }

    /// Replaces the limit of channels. Existing channels remain.
    pub fn set_channel_limit(&mut self, channel_limit: usize) {
        self.channel_limit = channel_limit;
    }

    /// Handles a message of a worker.
    pub fn handle(&mut self, from: WorkerId, message: ShardRequest, now: Duration) {
        match message {
            ShardRequest::Subscribe(subscribing) => self.subscribe(from, *subscribing, now),
            ShardRequest::Unsubscribe {
                channel,
                variant,
                client,
            } => self.unsubscribe(from, &channel, variant, client.as_deref(), now),
            ShardRequest::Publish {
                options,
                publish_options,
                request,
                ..
            } if self.is_frozen && (options.history.is_some() || publish_options.is_some()) => {
                if let Some(request) = request {
                    let result = Box::new(QueryResult::Draining);
                    self.reply(from, ShardEvent::QueryResult { request, result });
                }
            }
            ShardRequest::Publish {
                channel,
                options,
                published,
                publish_options,
                origin,
                request,
            } => {
                let outcome = self.publish_once(&channel, options, published, publish_options, origin, now);
                if let Some(request) = request {
                    let reply = match outcome {
                        Some(position) => ShardEvent::Published { request, position },
                        None => ShardEvent::Rejected { request },
                    };
                    self.reply(from, reply);
                }
            }
            ShardRequest::Query {
                channel,
                options,
                query,
                request,
            } => {
                let index = self.channel(&channel, options, now);
                let channel = index.and_then(|index| self.channels[index as usize].as_mut());
                let result = channel.map_or(QueryResult::NotAvailable, |channel| channel.query(query, now));
                let result = Box::new(result);
                self.reply(from, ShardEvent::QueryResult { request, result });
            }
        }
    }

    /// Returns the next message for a worker, in order.
    pub fn poll(&mut self, worker: WorkerId, now: Duration) -> Option<ShardEvent> {
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        if outbox.queue.is_empty() {
            let marked = outbox.marked.pop_front()?;
            self.resend(marked, worker, now);
        }
        let outbox = &mut self.outboxes[usize::from(worker.0)];
        let next = outbox.queue.pop_front()?;
        if matches!(next, ShardEvent::Push { .. }) {
            outbox.pushes -= 1;
        }
        Some(next)
    }

    /// Returns whether messages are queued for a worker.
    #[must_use]
    pub fn has_mail(&self, worker: WorkerId) -> bool {
        let outbox = &self.outboxes[usize::from(worker.0)];
        !outbox.queue.is_empty() || !outbox.marked.is_empty()
    }

    /// Returns the time at which [`ChannelShard::release`] must be called to send held publications.
    #[must_use]
    pub fn next_release(&self) -> Option<Duration> {
        self.held_channels.first().map(|(at, _)| *at)
    }

    /// Sends the publications that were held until now ([`limits::FORWARDS_PER_INTERVAL`]).
    pub fn release(&mut self, now: Duration) {
        while let Some(&(at, index)) = self.held_channels.first()
            && at <= now
        {
            self.held_channels.pop_first();
            let position = self.channels[index as usize]
                .as_mut()
                .and_then(|channel| channel.release(now));
            if let Some((offset, published)) = position {
                self.send(index, offset, &published);
            }
        }
    }

    /// Removes expired channels, of up to [`limits::CHANNELS_PER_SWEEP`] that are checked, and releases unused memory. Called periodically.
    pub fn sweep(&mut self, now: Duration) {
        self.keys.expire(now);
        self.logs.expire(now);
        self.expire_predecessor_members(now);
        self.writer.shrink();
        for _ in 0..limits::CHANNELS_PER_SWEEP.min(self.channels.len()) {
            self.sweep_index = (self.sweep_index + 1) % self.channels.len();
            let index = self.sweep_index as u32;
            let Some(channel) = &mut self.channels[self.sweep_index] else {
                continue;
            };
            if channel.is_expired(now) {
                self.remove(index);
            } else if channel.unused.is_some() {
                // The entry may be older than the channel's last use.
                self.unused.put(index, channel);
            }
        }
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> ShardCounts {
        ShardCounts {
            dropped_keys: self.keys.dropped,
            encoded_pushes: self.writer.encoded_pushes,
            ..self.counts
        }
    }

    /// Visits the next `limit` channels after a name, in order, and calls `visit` for those with subscribers, with their number. Returns
    /// the name to continue after, or `None` if there are no more.
    pub fn visit_subscribed(
        &self,
        after: Option<&str>,
        limit: usize,
        mut visit: impl FnMut(&Arc<str>, u32),
    ) -> Option<Arc<str>> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut names = self.names.range::<str, _>((from, Bound::Unbounded));
        let mut last = None;
        for (name, &index) in names.by_ref().take(limit) {
            let channel = self.channels[index as usize].as_ref();
            let subscribers = channel.map_or(0, Channel::subscribers);
            if subscribers > 0 {
                visit(name, subscribers);
            }
            last = Some(name);
        }
        names.next().and(last).map(Arc::clone)
    }

    /// Returns the number of channels.
    #[must_use]
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there is no channel.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the channel of this name, which is created if there is room.
    fn channel(&mut self, name: &Arc<str>, options: ChannelOptions, now: Duration) -> Option<u32> {
        if let Some(&index) = self.names.get(name) {
            let channel = self.channels[index as usize].as_mut();
            if channel.is_some_and(|channel| channel.apply_options(options, now)) {
                self.start_epoch(index);
            }
            return Some(index);
        }
        if self.names.len() >= self.channel_limit && !self.evict(now) {
            return None;
        }
        let epoch = self.draw_epoch();
        let channel = Channel::new(Arc::clone(name), options, epoch, now);
        Some(self.add(Arc::clone(name), channel))
    }

    fn add(&mut self, name: Arc<str>, channel: Channel) -> u32 {
        let index = match self.free.pop() {
            Some(index) => {
                self.channels[index as usize] = Some(channel);
                index
            }
            None => {
                self.channels.push(Some(channel));
                (self.channels.len() - 1) as u32
            }
        };
        if let Some(channel) = &mut self.channels[index as usize] {
            self.unused.put(index, channel);
        }
        self.names.insert(name, index);
        index
    }

    fn subscribe(&mut self, from: WorkerId, subscribing: ShardSubscribe, now: Duration) {
        let request = subscribing.request;
        let (channel, recover_from) = (&subscribing.channel, subscribing.recover_from);
        let must_retry = || self.is_behind(channel, recover_from) || self.expects_log(channel, recover_from);
        if subscribing.options.history.is_some() && must_retry() {
            return self.reply(from, ShardEvent::Behind { request });
        }
        let Some(index) = self.channel(&subscribing.channel, subscribing.options, now) else {
            return self.reply(from, ShardEvent::Rejected { request });
        };
        // The worker's missing pushes must precede the reply.
        self.resend(index, from, now);
        self.adopt_position(index, subscribing.recover_from);
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let (position, missed) = channel.recover(subscribing.recover_from, now);
        let missed = match &subscribing.filter {
            Some(filter) => channel.filter_missed(missed, filter),
            None => missed,
        };
        self.counts.subscribed_channels += usize::from(!channel.has_subscribers());
        self.unused.take(index, channel);
        channel.add_subscriber(from, subscribing.key, subscribing.variant);
        self.reply(
            from,
            ShardEvent::Subscribed(Box::new(ShardSubscribed {
                request,
                position,
                missed,
            })),
        );
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let Some(info) = subscribing.info else {
            return;
        };
        let replaced = channel.replace_predecessor_member(&info.user);
        let is_new = channel.add_member(info);
        if let Some((info, is_enabled)) = replaced {
            self.send_out_of_band(index, channel::leaving(info), is_enabled);
        }
        if let Some((info, is_enabled)) = is_new {
            self.send_out_of_band(index, channel::joining(info), is_enabled);
        }
    }

    fn unsubscribe(
        &mut self,
        from: WorkerId,
        channel: &str,
        variant: Variant,
        client: Option<&str>,
        now: Duration,
    ) {
        let Some(&index) = self.names.get(channel) else {
            return;
        };
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let had_subscribers = channel.has_subscribers();
        channel.remove_subscriber(from, variant, now);
        self.counts.subscribed_channels -= usize::from(had_subscribers && !channel.has_subscribers());
        if !channel.has_subscribers() {
            self.unused.put(index, channel);
        }
        if let Some((info, is_enabled)) = client.and_then(|client| channel.remove_member(client)) {
            self.send_out_of_band(index, channel::leaving(info), is_enabled);
        }
    }

    /// Publishes, unless the idempotency key was used before. Returns the position after the original publication, or `None` if there is no
    /// room for the channel.
    fn publish_once(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        published: Arc<Published>,
        publish_options: Option<Box<PublishOptions>>,
        origin: Origin,
        now: Duration,
    ) -> Option<Option<StreamPosition>> {
        let PublishOptions {
            transient,
            idempotency,
        } = publish_options
            .map(|publish_options| *publish_options)
            .unwrap_or_default();
        let key = idempotency.map(|idempotency| {
            (
                ChannelKey::new(Arc::clone(channel), idempotency.key),
                idempotency.window,
            )
        });
        if let Some((key, window)) = &key
            && let Some(position) = self.keys.first(key, *window, now)
        {
            self.counts.duplicates += 1;
            return Some(position);
        }
        let index = self.channel(channel, options, now)?;
        self.counts.publications += 1;
        if let Some(channel) = &mut self.channels[index as usize] {
            channel.record_origin(origin);
        }
        let position = match self.channels[index as usize].as_ref() {
            Some(channel) if transient && channel.has_history() => {
                self.send_transient(index, &published);
                None
            }
            _ => {
                self.publish(index, published, now);
                self.channels[index as usize].as_ref().and_then(Channel::position)
            }
        };
        if let Some((key, _)) = key {
            self.keys.position_ttl(key, position, now);
        }
        Some(position)
    }

    fn publish(&mut self, index: u32, published: Arc<Published>, now: Duration) {
        self.leave_log(index);
        self.publish_record(index, published, None, true, now);
    }

    /// Publishes with the offset of a log, or with the channel's next one. A record that is not live is retained for recovery only.
    fn publish_record(
        &mut self,
        index: u32,
        published: Arc<Published>,
        offset: Option<u64>,
        is_live: bool,
        now: Duration,
    ) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let offset = match offset {
            Some(offset) => channel.publish_at(offset, Arc::clone(&published), now),
            None => channel.publish(Arc::clone(&published), now),
        };
        // Each subscriber receives the newest state, and positions do not exceed that of the last state sent.
        if is_live || channel.has_history() && !channel.relies_on_positions() {
            self.forward(index, offset, &published, now);
        } else if channel.withhold() {
            self.notify_lost(index);
        }
    }

    /// Sends a publication now, or holds it if the channel is conflated.
    fn forward(&mut self, index: u32, offset: u64, published: &Arc<Published>, now: Duration) {
        let Some(channel) = &mut self.channels[index as usize] else {
            return;
        };
        let due = channel.due();
        match channel.decide(offset, published, now) {
            SendDecision::Now => {
                // A publication that was held is outdated.
                if let Some(due) = due {
                    self.held_channels.remove(&(due, index));
                }
                self.send(index, offset, published);
            }
            SendDecision::At(at) => drop(self.held_channels.insert((at, index))),
            SendDecision::Replaced => {}
        }
    }

    /// Queues a reply. Replies are not limited here: there is one for each request, and callers bound these.
    fn reply(&mut self, to: WorkerId, reply: ShardEvent) {
        self.outboxes[usize::from(to.0)].queue.push_back(reply);
    }
}

/// Returns the epoch with this number. Epochs differ from each other and cannot be predicted without the seed.
fn epoch(seed: u64, number: u64) -> Epoch {
    Epoch::new(mix(seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15))))
}

/// Applies the finalizer of SplitMix64 (Steele, Lea and Flood, 2014), a bijection in which each bit of the input affects all of the output.
pub(crate) fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
