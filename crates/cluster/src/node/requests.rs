//! Publications and queries that wait for the owner of their channel, and calls that wait for other nodes.
//!
//! The requests of a channel form a lane. A lane has requests in flight to one node at a time, so that they stay in order when the channel
//! moves. A refused request was not executed: it is sent again until [`limits::REQUEST_TIMEOUT`], before those that follow.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::mail::ChannelQuery;

use super::handover::Admission;
use super::{Event, Node};
use crate::frame::{Answer, ChannelSettings, Frame, Publish, PublishOutcome, cost};
use crate::limits;
use crate::member::Uid;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    pending: BTreeMap<u64, PendingRequest>,
    lanes: BTreeMap<Arc<str>, Lane>,
    /// The bytes of publications that wait in lanes.
    queued_bytes: u64,
    calls: BTreeMap<u64, PendingCall>,
    /// The deadlines in order, also of requests that are finished.
    deadlines: VecDeque<(Duration, u64)>,
}

#[derive(Debug)]
struct Lane {
    /// The node that has the requests in flight.
    target: Uid,
    in_flight: usize,
    /// Requests that are not in flight, in order.
    queue: BTreeSet<u64>,
}

#[derive(Debug)]
struct PendingRequest {
    origin: Origin,
    operation: Operation,
    sent_to: Option<Uid>,
    retry_at: Duration,
}

/// The source of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// The workers of this node.
    Workers(u64),
    /// Another node, for which this one relays it.
    Node {
        uid: Uid,
        request: u64,
        /// The nodes that have relayed it, this one included.
        hops: u8,
    },
}

/// A request for the owner of a channel.
#[derive(Clone, Debug)]
pub(super) enum Operation {
    Publish(Publish),
    Query(Arc<str>, ChannelSettings, ChannelQuery),
}

/// The reply to a request.
#[derive(Clone, Debug)]
pub(super) enum Reply {
    Published(PublishOutcome),
    Answer(Answer),
}

#[derive(Debug)]
struct PendingCall {
    local: u64,
    /// The results by node; `None`: it has not responded.
    results: BTreeMap<Uid, Option<Bytes>>,
    /// The nodes that may respond.
    waiting: BTreeSet<Uid>,
}

impl Requests {
    pub(super) fn len(&self) -> usize {
        self.pending.len() + self.calls.len()
    }

    fn draw(&mut self, now: Duration) -> u64 {
        self.last += 1;
        self.deadlines
            .push_back((now + limits::REQUEST_TIMEOUT, self.last));
        self.last
    }

    /// Adds a request to its lane. `false`: there is no room.
    fn enqueue(&mut self, request: u64) -> bool {
        let Some(pending) = self.pending.get(&request) else {
            return true;
        };
        let cost = pending.operation.cost();
        if self.queued_bytes + cost > limits::QUEUED_BYTES {
            return false;
        }
        self.queued_bytes += cost;
        let channel = Arc::clone(pending.operation.channel());
        let lane = self.lanes.entry(channel).or_insert_with(|| Lane {
            target: Uid(0),
            in_flight: 0,
            queue: BTreeSet::new(),
        });
        lane.queue.insert(request);
        true
    }

    /// Removes a request, whether it is in flight or not.
    fn remove(&mut self, request: u64) -> Option<PendingRequest> {
        let pending = self.pending.remove(&request)?;
        let channel = pending.operation.channel();
        if let Some(lane) = self.lanes.get_mut(channel) {
            if pending.sent_to.is_some() {
                lane.in_flight -= 1;
            } else if lane.queue.remove(&request) {
                self.queued_bytes -= pending.operation.cost();
            }
            if lane.in_flight == 0 && lane.queue.is_empty() {
                self.lanes.remove(channel);
            }
        }
        Some(pending)
    }
}

impl Operation {
    fn channel(&self) -> &Arc<str> {
        match self {
            Operation::Publish(publish) => &publish.channel,
            Operation::Query(channel, ..) => channel,
        }
    }

    fn settings(&self) -> &ChannelSettings {
        match self {
            Operation::Publish(publish) => &publish.settings,
            Operation::Query(_, settings, _) => settings,
        }
    }

    fn cost(&self) -> u64 {
        match self {
            Operation::Publish(publish) => cost(&publish.published),
            Operation::Query(..) => limits::PUBLICATION_OVERHEAD,
        }
    }

    /// Returns the reply that the request was not executed.
    fn refused(&self) -> Reply {
        match self {
            Operation::Publish(_) => Reply::Published(PublishOutcome::Refused),
            Operation::Query(..) => Reply::Answer(Answer::Unreachable),
        }
    }

    /// Returns the reply that the request may have been executed.
    fn unknown(&self) -> Reply {
        match self {
            Operation::Publish(_) => Reply::Published(PublishOutcome::Unknown),
            Operation::Query(..) => Reply::Answer(Answer::Unreachable),
        }
    }

    fn into_frame(self, request: u64, hops: Option<u8>) -> Frame {
        match (self, hops) {
            (Operation::Publish(publish), None) => Frame::Publish { request, publish },
            (Operation::Publish(publish), Some(hops)) => Frame::RelayedPublish {
                hops,
                request,
                publish,
            },
            (Operation::Query(channel, settings, query), None) => Frame::Query {
                request,
                channel,
                settings,
                query,
            },
            (Operation::Query(channel, settings, query), Some(hops)) => Frame::RelayedQuery {
                hops,
                request,
                channel,
                settings,
                query,
            },
        }
    }
}

impl Reply {
    fn is_refused(&self) -> bool {
        matches!(
            self,
            Reply::Published(PublishOutcome::Refused) | Reply::Answer(Answer::Unreachable)
        )
    }
}

impl Node {
    /// Handles a request of the workers.
    pub(super) fn request_local(&mut self, local: u64, operation: Operation, now: Duration) {
        let channel = operation.channel();
        // Most requests of an owner's own workers.
        if !self.requests.lanes.contains_key(channel) && self.executes_at_once(&operation) {
            return self.execute(Origin::Workers(local), operation, now);
        }
        self.submit(Origin::Workers(local), operation, now);
    }

    /// Handles a request of another node, or of this one.
    pub(super) fn request_from(
        &mut self,
        from: Uid,
        request: u64,
        hops: u8,
        operation: Operation,
        now: Duration,
    ) {
        if from != self.member.uid {
            self.asked_at = now;
        }
        let origin = Origin::Node {
            uid: from,
            request,
            hops: hops.saturating_add(1),
        };
        let needs_log = self
            .logged_partition(operation.channel(), operation.settings())
            .is_some();
        match self.admit(operation.channel(), needs_log, now) {
            Admission::Acting | Admission::Create => self.execute(origin, operation, now),
            Admission::Elsewhere
                if from != self.member.uid && hops < limits::RELAY_HOPS && self.version >= 2 =>
            {
                self.submit(origin, operation, now);
            }
            Admission::Elsewhere | Admission::Hold | Admission::Unready => {
                self.reply(origin, operation.refused());
            }
        }
    }

    /// Executes a request in a channel of this node. The outcome of a publication in a log follows later.
    fn execute(&mut self, origin: Origin, operation: Operation, now: Duration) {
        let reply = match operation {
            Operation::Publish(publish) => {
                let logged = self.logged_partition(&publish.channel, &publish.settings);
                match logged.filter(|_| !publish.options.transient) {
                    Some(partition) => return self.publish_logged(origin, partition, publish, now),
                    None => Reply::Published(self.publish_owned(publish, now)),
                }
            }
            Operation::Query(channel, settings, query) => {
                Reply::Answer(self.query_owned(&channel, settings, query, now))
            }
        };
        self.reply(origin, reply);
    }

    /// Returns whether a request of this node's workers is executed without a detour.
    fn executes_at_once(&self, operation: &Operation) -> bool {
        let channel = operation.channel();
        match self.logged_partition(channel, operation.settings()) {
            // Otherwise it waits in its lane.
            Some(partition) => {
                let is_ready = match operation {
                    Operation::Publish(publish) => self.can_append(partition, publish),
                    Operation::Query(..) => true,
                };
                is_ready && self.owned.contains(channel)
            }
            None => self.owned.contains(channel),
        }
    }

    fn submit(&mut self, origin: Origin, operation: Operation, now: Duration) {
        if self.requests.pending.len() >= limits::REQUESTS {
            return self.reply(origin, operation.refused());
        }
        let request = self.requests.draw(now);
        let lane = self.requests.lanes.get(operation.channel());
        let must_wait = lane.is_some_and(|lane| !lane.queue.is_empty());
        let pending = PendingRequest {
            origin,
            operation,
            sent_to: None,
            retry_at: now,
        };
        self.requests.pending.insert(request, pending);
        if must_wait {
            self.enqueue(request);
        } else {
            self.send_request(request, now);
        }
    }

    /// Lets a request wait in its lane. Those of other nodes wait there.
    fn enqueue(&mut self, request: u64) {
        let pending = self.requests.pending.get(&request);
        let is_local = pending.is_some_and(|pending| matches!(pending.origin, Origin::Workers(_)));
        if (!is_local || !self.requests.enqueue(request))
            && let Some(pending) = self.requests.remove(request)
        {
            self.reply(pending.origin, pending.operation.refused());
        }
    }

    /// Sends a request, or lets it wait. Returns whether it was sent or finished.
    fn send_request(&mut self, request: u64, now: Duration) -> bool {
        let Some(pending) = self.requests.pending.get(&request) else {
            return true;
        };
        let (origin, channel) = (pending.origin, Arc::clone(pending.operation.channel()));
        let Some(target) = self.route(&channel, origin) else {
            // No node owns channels.
            if let Some(pending) = self.requests.remove(request) {
                self.reply(pending.origin, pending.operation.refused());
            }
            return true;
        };
        let lane = self.requests.lanes.get(&channel);
        let is_blocked = lane.is_some_and(|lane| lane.in_flight > 0 && lane.target != target);
        let hops = match origin {
            Origin::Node { hops, .. } if self.peers.get(&target).is_some_and(|peer| peer.version >= 2) => {
                Some(hops)
            }
            _ => None,
        };
        let frame = pending.operation.clone().into_frame(request, hops);
        if is_blocked || !self.send(target, frame) {
            if let Some(pending) = self.requests.pending.get_mut(&request)
                && !is_blocked
            {
                pending.retry_at = now + limits::REQUEST_RETRY;
            }
            self.enqueue(request);
            return false;
        }
        let lane = self.requests.lanes.entry(channel).or_insert_with(|| Lane {
            target,
            in_flight: 0,
            queue: BTreeSet::new(),
        });
        lane.target = target;
        lane.in_flight += 1;
        if let Some(pending) = self.requests.pending.get_mut(&request) {
            pending.sent_to = Some(target);
        }
        true
    }

    /// Returns the node for the requests of a channel: the one that this node's mirror hears, as it is the owner until the channel moves.
    fn route(&self, channel: &str, origin: Origin) -> Option<Uid> {
        if self.owned.contains(channel) {
            return Some(self.member.uid);
        }
        let from = match origin {
            Origin::Workers(_) => None,
            Origin::Node { uid, .. } => Some(uid),
        };
        let live = self.mirrors.live_owner(channel);
        let live = live.filter(|uid| *uid != self.member.uid && Some(*uid) != from && self.is_linked(*uid));
        self.handovers
            .sent_to(channel)
            .or(live)
            .or_else(|| self.owner_of(channel))
    }

    /// Sends the waiting requests of each lane, as far as possible.
    pub(super) fn flush_requests(&mut self, now: Duration) {
        if self.requests.queued_bytes == 0 {
            return;
        }
        let lanes = self.requests.lanes.iter();
        let names: Vec<_> = lanes
            .filter(|(_, lane)| !lane.queue.is_empty())
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in names {
            self.flush_lane(&name, now);
        }
    }

    fn flush_lane(&mut self, channel: &str, now: Duration) {
        while let Some(lane) = self.requests.lanes.get_mut(channel)
            && let Some(request) = lane.queue.first().copied()
            && let Some(pending) = self.requests.pending.get(&request)
            && pending.retry_at <= now
        {
            let cost = pending.operation.cost();
            lane.queue.remove(&request);
            self.requests.queued_bytes -= cost;
            if !self.send_request(request, now) {
                return;
            }
        }
        let lane = self.requests.lanes.get(channel);
        if lane.is_some_and(|lane| lane.in_flight == 0 && lane.queue.is_empty()) {
            self.requests.lanes.remove(channel);
        }
    }

    /// Handles the reply of a node.
    pub(super) fn finish_request(&mut self, from: Uid, request: u64, reply: Reply, now: Duration) {
        let Some(pending) = self.requests.pending.get_mut(&request) else {
            return;
        };
        let is_publish = matches!(pending.operation, Operation::Publish(_));
        if pending.sent_to != Some(from) || is_publish != matches!(reply, Reply::Published(_)) {
            return;
        }
        let channel = Arc::clone(pending.operation.channel());
        if reply.is_refused() && matches!(pending.origin, Origin::Workers(_)) {
            self.retry_request(request, now);
        } else if let Some(pending) = self.requests.remove(request) {
            self.reply(pending.origin, reply);
        }
        self.flush_lane(&channel, now);
    }

    /// Lets a request that was not executed wait in its lane.
    fn retry_request(&mut self, request: u64, now: Duration) {
        let Some(pending) = self.requests.pending.get_mut(&request) else {
            return;
        };
        pending.sent_to = None;
        pending.retry_at = now + limits::REQUEST_RETRY;
        if let Some(lane) = self.requests.lanes.get_mut(pending.operation.channel()) {
            lane.in_flight -= 1;
        }
        self.enqueue(request);
    }

    pub(super) fn reply(&mut self, origin: Origin, reply: Reply) {
        match (origin, reply) {
            (Origin::Workers(request), Reply::Published(outcome)) => {
                self.emit(Event::Published { request, outcome });
            }
            (Origin::Workers(request), Reply::Answer(answer)) => {
                self.emit(Event::Answer { request, answer });
            }
            (Origin::Node { uid, request, .. }, Reply::Published(outcome)) => {
                self.send(uid, Frame::Published { request, outcome });
            }
            (Origin::Node { uid, request, .. }, Reply::Answer(answer)) => {
                self.send(uid, Frame::Answer { request, answer });
            }
        }
    }

    /// The link to a node is lost: the outcomes of its publications are unknown. Queries are sent again.
    pub(super) fn fail_requests(&mut self, node: Uid, now: Duration) {
        let pending = self.requests.pending.iter();
        let failed = pending.filter(|(_, pending)| pending.sent_to == Some(node));
        let failed: Vec<(u64, bool)> = failed
            .map(|(request, pending)| {
                let is_local = matches!(pending.origin, Origin::Workers(_));
                (
                    *request,
                    is_local && matches!(pending.operation, Operation::Query(..)),
                )
            })
            .collect();
        for (request, can_retry) in failed {
            match can_retry {
                true => self.retry_request(request, now),
                false => self.fail_request(request),
            }
        }
    }

    fn fail_request(&mut self, request: u64) {
        let Some(pending) = self.requests.remove(request) else {
            return;
        };
        let reply = match pending.sent_to {
            Some(_) => pending.operation.unknown(),
            None => pending.operation.refused(),
        };
        self.reply(pending.origin, reply);
    }

    /// Sends a call to all other nodes.
    pub(super) fn start_call(&mut self, local: u64, payload: Bytes, now: Duration) {
        let nodes: Vec<Uid> = self.peers.keys().copied().collect();
        let is_allowed = self.requests.calls.len() < limits::CALLS && payload.len() <= limits::CALL_BYTES;
        let mut call = PendingCall {
            local,
            results: nodes.iter().map(|uid| (*uid, None)).collect(),
            waiting: BTreeSet::new(),
        };
        if is_allowed {
            let request = self.requests.draw(now);
            for uid in nodes {
                let payload = payload.clone();
                if self.send(uid, Frame::Call { request, payload }) {
                    call.waiting.insert(uid);
                }
            }
            if !call.waiting.is_empty() {
                self.requests.calls.insert(request, call);
                return;
            }
        }
        self.finish_call(call);
    }

    pub(super) fn add_call_result(&mut self, from: Uid, request: u64, payload: Bytes) {
        self.settle_call(from, request, Some(payload));
    }

    fn settle_call(&mut self, node: Uid, request: u64, payload: Option<Bytes>) {
        let Some(call) = self.requests.calls.get_mut(&request) else {
            return;
        };
        if !call.waiting.remove(&node) {
            return;
        }
        call.results.insert(node, payload);
        if call.waiting.is_empty()
            && let Some(call) = self.requests.calls.remove(&request)
        {
            self.finish_call(call);
        }
    }

    /// The link to a node is lost: it responds no more.
    pub(super) fn finish_calls_of(&mut self, node: Uid) {
        let requests: Vec<u64> = self.requests.calls.keys().copied().collect();
        for request in requests {
            self.settle_call(node, request, None);
        }
    }

    fn finish_call(&mut self, call: PendingCall) {
        self.emit(Event::CallFinished {
            request: call.local,
            results: call.results.into_iter().collect(),
        });
    }

    pub(super) fn expire_requests(&mut self, now: Duration) {
        while let Some((deadline, request)) = self.requests.deadlines.front().copied()
            && deadline <= now
        {
            self.requests.deadlines.pop_front();
            self.fail_request(request);
            if let Some(call) = self.requests.calls.remove(&request) {
                self.finish_call(call);
            }
        }
        self.flush_requests(now);
    }
}
