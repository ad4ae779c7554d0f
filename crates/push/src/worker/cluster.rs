//! The channels of this worker's shard in a cluster: their owners, which may be other nodes, publish in them and answer queries.
//!
//! ```text
//! first subscriber ─ Interested ─▶ … ◀─ Synced ─ live ─ last subscriber left ─ Uninterested ─▶ removed
//!                    requests of subscribers wait     ◀─ Lost ─ not live
//! ```

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::{
    ChannelOptions, Origin, QueryResult, RequestId, ShardEvent, ShardRequest, WorkerId,
};
use ringmain_hub::protocol::Published;
use ringmain_hub::shard::ChannelShard;

use super::PushWorker;
use super::pending_replies::ReplyGroup;
use crate::cluster::queue::request_id;
use crate::cluster::{ClusterEvent, ClusterPublishOutcome, ClusterRequest, MirrorSync, MirroredState};
use crate::limits;

/// See the module.
#[derive(Default)]
pub(super) struct ClusterChannels {
    channels: BTreeMap<Arc<str>, MirroredChannel>,
    /// The workers' requests that the cluster answers, by number; those without a request of a worker need no reply.
    pending: BTreeMap<u64, Option<(WorkerId, RequestId)>>,
    /// The calls in flight.
    pub(super) calls: BTreeMap<u64, Rc<ReplyGroup<CallResults>>>,
    last_request: u64,
    /// Requests that wait for room in the queue.
    outbox: VecDeque<ClusterRequest>,
}

struct MirroredChannel {
    options: ChannelOptions,
    is_live: bool,
    /// Requests of subscribers that wait for the state, or for publications that they have received at another node, in order.
    held: VecDeque<(WorkerId, ShardRequest)>,
    held_since: Duration,
    /// The state was requested since then.
    is_requested: bool,
}

/// The results of a call by node. `None`: the node has not responded.
pub(super) type CallResults = Vec<(u64, Option<Bytes>)>;

impl ClusterChannels {
    pub(super) fn draw_request(&mut self, worker: usize) -> crate::cluster::ClusterRequestId {
        self.last_request += 1;
        request_id(worker, self.last_request)
    }

    /// Returns the channel, for a subscriber.
    fn channel(
        &mut self,
        channel: &Arc<str>,
        options: ChannelOptions,
        now: Duration,
    ) -> &mut MirroredChannel {
        let ClusterChannels { channels, outbox, .. } = self;
        channels.entry(Arc::clone(channel)).or_insert_with(|| {
            outbox.push_back(ClusterRequest::Interested {
                channel: Arc::clone(channel),
                options,
                needs_state: false,
            });
            MirroredChannel {
                options,
                is_live: false,
                held: VecDeque::new(),
                held_since: now,
                is_requested: false,
            }
        })
    }

    /// Handles a request of a subscriber at the shard, and notifies the cluster.
    fn pass_on(&mut self, shard: &mut ChannelShard, from: WorkerId, message: ShardRequest, now: Duration) {
        let (channel, member) = match &message {
            ShardRequest::Subscribe(subscribing) => {
                let joined = subscribing.info.clone().map(|info| ClusterRequest::Joined {
                    channel: Arc::clone(&subscribing.channel),
                    info,
                });
                (Arc::clone(&subscribing.channel), joined)
            }
            ShardRequest::Unsubscribe { channel, client, .. } => {
                let left = client.clone().map(|client| ClusterRequest::Left {
                    channel: Arc::clone(channel),
                    client,
                });
                (Arc::clone(channel), left)
            }
            ShardRequest::Publish { .. } | ShardRequest::Query { .. } => return,
        };
        shard.handle(from, message, now);
        self.outbox.extend(member);
        let is_waiting = self
            .channels
            .get(&channel)
            .is_some_and(|channel| !channel.held.is_empty());
        if !is_waiting && !shard.has_subscribers(&channel) && self.channels.remove(&channel).is_some() {
            self.outbox.push_back(ClusterRequest::Uninterested { channel });
        }
    }

    /// Passes a publication or a query to the owner of its channel.
    fn forward(&mut self, worker: usize, from: WorkerId, message: ShardRequest) {
        let number = self.draw_request(worker);
        let (request, forwarded) = match message {
            ShardRequest::Publish {
                channel,
                options,
                published,
                publish_options,
                request,
                ..
            } => {
                let publish = ClusterRequest::Publish {
                    request: number,
                    channel,
                    options,
                    published,
                    publish_options: publish_options.map(|options| *options).unwrap_or_default(),
                };
                (request, publish)
            }
            ShardRequest::Query {
                channel,
                options,
                query,
                request,
            } => {
                let query = ClusterRequest::Query {
                    request: number,
                    channel,
                    options,
                    query,
                };
                (Some(request), query)
            }
            ShardRequest::Subscribe(_) | ShardRequest::Unsubscribe { .. } => return,
        };
        self.pending
            .insert(number.0, request.map(|request| (from, request)));
        self.outbox.push_back(forwarded);
    }

    /// Applies the state of a channel, and handles the requests that have waited for it.
    fn sync(
        &mut self,
        shard: &mut ChannelShard,
        channel: Arc<str>,
        state: MirroredState,
        kind: MirrorSync,
        now: Duration,
    ) {
        let options = self.channels.get(&channel).map(|mirrored| mirrored.options);
        // Without subscribers here the state is not needed; the next subscriber requests it.
        let Some(options) = options.or_else(|| shard.options(&channel)) else {
            return;
        };
        let is_applied = match kind {
            MirrorSync::Continued => shard.continue_mirror(&channel, options, state, now),
            MirrorSync::Initial if !shard.has_subscribers(&channel) => {
                shard.restore_mirror(&channel, options, state, false, now);
                true
            }
            // Subscribers that are already here miss nothing without a notice.
            MirrorSync::Initial if shard.continue_mirror(&channel, options, state.clone(), now) => true,
            MirrorSync::Initial | MirrorSync::Gap => {
                shard.restore_mirror(&channel, options, state, true, now);
                true
            }
        };
        if is_applied {
            self.release(shard, &channel, now);
        } else if self.channels.contains_key(&channel) {
            self.outbox.push_back(ClusterRequest::Interested {
                channel,
                options,
                needs_state: true,
            });
        }
    }

    /// Makes a channel live, and handles the requests that have waited, but for subscribers that must wait for publications. Requests of one
    /// worker stay in order.
    fn release(&mut self, shard: &mut ChannelShard, channel: &str, now: Duration) {
        let Some(mirrored) = self.channels.get_mut(channel) else {
            return;
        };
        mirrored.is_live = true;
        let mut waiting = Vec::new();
        // Requests are taken one by one: the channel is not removed while one is left.
        for _ in 0..mirrored.held.len() {
            let mirrored = self.channels.get_mut(channel);
            let Some((from, message)) = mirrored.and_then(|mirrored| mirrored.held.pop_front()) else {
                return;
            };
            if !is_ahead(shard, &message) && !waiting.contains(&from) {
                self.pass_on(shard, from, message, now);
            } else if let Some(mirrored) = self.channels.get_mut(channel) {
                waiting.push(from);
                mirrored.held.push_back((from, message));
            }
        }
    }

    /// Applies a publication of a channel's owner, and handles the requests that have waited for it.
    fn publish(
        &mut self,
        shard: &mut ChannelShard,
        channel: &str,
        offset: u64,
        published: Arc<Published>,
        now: Duration,
    ) {
        shard.publish_mirrored(channel, offset, published, now);
        let mirrored = self.channels.get(channel);
        if mirrored.is_some_and(|mirrored| mirrored.is_live && !mirrored.held.is_empty()) {
            self.release(shard, channel, now);
        }
    }

    /// Ends the wait of subscribers that have waited too long: their clients must retry, or, if the channel is live, recover from a position that
    /// its owner does not have.
    fn expire(&mut self, shard: &mut ChannelShard, now: Duration) {
        self.request_positions(now);
        let is_late = |channel: &MirroredChannel| {
            !channel.held.is_empty() && now >= channel.held_since + limits::CLUSTER_STATE_TIMEOUT
        };
        let late = self.channels.iter().filter(|(_, channel)| is_late(channel));
        let late: Vec<Arc<str>> = late.map(|(name, _)| Arc::clone(name)).collect();
        for name in late {
            let is_live = self.channels.get(&name).is_some_and(|channel| channel.is_live);
            while let Some(channel) = self.channels.get_mut(&name)
                && let Some((from, message)) = channel.held.pop_front()
            {
                match message {
                    ShardRequest::Subscribe(subscribing) if !is_live => {
                        let request = subscribing.request;
                        shard.reply_to(from, ShardEvent::Behind { request });
                    }
                    other => self.pass_on(shard, from, other, now),
                }
            }
            if !shard.has_subscribers(&name) && self.channels.remove(&name).is_some() {
                self.outbox
                    .push_back(ClusterRequest::Uninterested { channel: name });
            }
        }
    }

    /// Requests the state of channels that are behind their subscribers: with a log, the position of a quiet channel grows without publications.
    fn request_positions(&mut self, now: Duration) {
        for (name, channel) in &mut self.channels {
            let is_ahead = channel.is_live && !channel.held.is_empty();
            if is_ahead && !channel.is_requested && now >= channel.held_since + limits::CLUSTER_AHEAD_AFTER {
                channel.is_requested = true;
                self.outbox.push_back(ClusterRequest::Interested {
                    channel: Arc::clone(name),
                    options: channel.options,
                    needs_state: true,
                });
            }
        }
    }

    fn reply(&mut self, shard: &mut ChannelShard, number: u64, reply: impl FnOnce(RequestId) -> ShardEvent) {
        if let Some(Some((worker, request))) = self.pending.remove(&number) {
            shard.reply_to(worker, reply(request));
        }
    }
}

/// Returns whether a subscriber must wait for publications that its client has received at another node.
fn is_ahead(shard: &ChannelShard, message: &ShardRequest) -> bool {
    match message {
        ShardRequest::Subscribe(subscribing) => {
            shard.is_ahead(&subscribing.channel, subscribing.recover_from)
        }
        _ => false,
    }
}

/// Returns whether requests of a worker wait.
fn is_held(held: &VecDeque<(WorkerId, ShardRequest)>, worker: WorkerId) -> bool {
    held.iter().any(|(from, _)| *from == worker)
}

fn unreachable_reply(request: RequestId) -> ShardEvent {
    let result = Box::new(QueryResult::Unreachable);
    ShardEvent::QueryResult { request, result }
}

impl PushWorker {
    /// Handles a request at the shard, or at the channel's owner if there is a cluster.
    pub(super) fn handle_request(
        &self,
        shard: &mut ChannelShard,
        from: WorkerId,
        message: ShardRequest,
        now: Duration,
    ) {
        let Some(cluster) = &self.0.cluster else {
            return shard.handle(from, message, now);
        };
        let cluster = &mut *cluster.borrow_mut();
        let is_full = cluster.pending.len() >= limits::CLUSTER_REQUESTS;
        match message {
            ShardRequest::Subscribe(subscribing) if cluster.outbox.len() >= limits::CLUSTER_WAITING => {
                let request = subscribing.request;
                shard.reply_to(from, ShardEvent::Behind { request });
            }
            ShardRequest::Subscribe(subscribing) => {
                let channel = cluster.channel(&subscribing.channel, subscribing.options, now);
                let message = ShardRequest::Subscribe(subscribing);
                if channel.is_live && !is_ahead(shard, &message) {
                    cluster.pass_on(shard, from, message, now);
                } else {
                    if channel.held.is_empty() {
                        (channel.held_since, channel.is_requested) = (now, false);
                    }
                    channel.held.push_back((from, message));
                }
            }
            ShardRequest::Unsubscribe { ref channel, .. } => match cluster.channels.get_mut(channel) {
                Some(mirrored) if is_held(&mirrored.held, from) => mirrored.held.push_back((from, message)),
                _ => cluster.pass_on(shard, from, message, now),
            },
            ShardRequest::Publish { origin, .. } if origin != Origin::PROGRAM => {
                shard.handle(from, message, now);
            }
            ShardRequest::Publish { request, .. } if is_full => {
                if let Some(request) = request {
                    shard.reply_to(from, unreachable_reply(request));
                }
            }
            ShardRequest::Query { request, .. } if is_full => {
                shard.reply_to(from, unreachable_reply(request));
            }
            ShardRequest::Publish { .. } | ShardRequest::Query { .. } => {
                cluster.forward(self.0.cx.worker(), from, message);
            }
        }
    }

    /// Applies an event of the cluster.
    pub(super) fn apply_cluster_event(&self, shard: &mut ChannelShard, event: ClusterEvent, now: Duration) {
        let Some(cluster) = &self.0.cluster else { return };
        let cluster = &mut *cluster.borrow_mut();
        match event {
            ClusterEvent::Synced { channel, state, kind } => {
                cluster.sync(shard, channel, state, kind, now);
            }
            ClusterEvent::Publication {
                channel,
                offset,
                published,
            } => cluster.publish(shard, &channel, offset, published, now),
            ClusterEvent::Member {
                channel,
                info,
                is_join,
            } => {
                let is_enabled = shard.options(&channel).is_some_and(|options| options.join_leave);
                shard.notify_member(&channel, &info, is_join, is_enabled);
            }
            ClusterEvent::Lost { channel } => {
                if let Some(mirrored) = cluster.channels.get_mut(&channel) {
                    mirrored.is_live = false;
                    shard.lose_mirror(&channel);
                }
            }
            ClusterEvent::Published { request, outcome } => {
                cluster.reply(shard, request.0, |request| match outcome {
                    ClusterPublishOutcome::Published(position) => ShardEvent::Published { request, position },
                    ClusterPublishOutcome::ChannelLimit => ShardEvent::Rejected { request },
                    ClusterPublishOutcome::Unreachable => unreachable_reply(request),
                });
            }
            ClusterEvent::QueryResult { request, result } => {
                cluster.reply(shard, request.0, |request| ShardEvent::QueryResult {
                    request,
                    result,
                });
            }
            ClusterEvent::Call { from, call, payload } => self.run_call(from, call, &payload),
            ClusterEvent::CallFinished { request, results } => {
                if let Some(group) = cluster.calls.remove(&request.0) {
                    group.set_reply(0, results);
                }
            }
        }
    }

    pub(super) fn send_to_cluster(&self, request: ClusterRequest) {
        if let Some(cluster) = &self.0.cluster {
            cluster.borrow_mut().outbox.push_back(request);
            self.wake();
        }
    }

    /// Passes queued requests to the cluster, as far as there is room.
    pub(super) fn flush_cluster(&self) {
        let (Some(cluster), Some(queue)) = (&self.0.cluster, self.0.settings.cluster.get()) else {
            return;
        };
        let outbox = &mut cluster.borrow_mut().outbox;
        let is_any = !outbox.is_empty();
        while let Some(request) = outbox.pop_front() {
            if let Some(request) = queue.push(request) {
                outbox.push_front(request);
                break;
            }
        }
        if is_any {
            queue.wake();
        }
    }

    /// Rejects subscribers that wait too long for the state of their channel. Called each second.
    pub(super) fn expire_cluster_subscribers(&self) {
        if let Some(cluster) = &self.0.cluster {
            let now = self.0.cx.now().since(Time(0));
            cluster.borrow_mut().expire(&mut self.0.shard.borrow_mut(), now);
        }
    }
}
