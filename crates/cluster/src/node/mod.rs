//! The state machine of one node.
//!
//! ```text
//! mirror:  Asking ── State ──▶ Live ── link lost, other owner ──▶ Asking (keeps its position)
//!            │ STALE_AFTER              │ no subscribers for MIRROR_IDLE
//!            └▶ Lost (reported once)    └▶ removed, the owner is notified
//! ```
//!
//! A node sends frames to itself where it is the owner, so an owner's own subscribers are one more mirror. Inputs are [`NodeRequest`] requests of
//! the workers, frames and changes of links, and the time; outputs are [`Event`]s for the workers, and frames by link. After each input the
//! caller polls both.

mod handover;
pub(crate) mod idempotency;
mod logged;
mod mirrors;
mod owned;
mod peers;
mod rebalance;
mod requests;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::Epoch;
use ringmain_hub::mail::ChannelQuery;
use ringmain_hub::protocol::ClientInfo;

use crate::frame::{self, Answer, ChannelSettings, ChannelState, Frame, Publish, PublishOutcome};
use crate::limits;
use crate::log::partition_of;
use crate::member::{Member, Phase, Status, Uid, mix, owner, partition_owner};
use handover::Handovers;
use idempotency::IdempotencyKeys;
use logged::NodeLog;
pub use logged::{LogCounts, LogOptions, LogReport};
use mirrors::Mirrors;
use owned::OwnedChannels;
pub use peers::Hello;
use peers::Peer;
use rebalance::Rebalancing;
pub use rebalance::{Load, Rebalance};
use requests::{Operation, Reply, Requests};

/// A connection to another node, as the caller numbers it. Numbers are not reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LinkId(pub u64);

/// A request of the workers of this node.
#[derive(Debug)]
pub enum NodeRequest {
    /// The first subscriber of a channel. [`Event::Synced`] follows once the owner has replied, at once if the mirror is live.
    Interested {
        /// The channel.
        channel: Arc<str>,
        /// The options of the channel.
        settings: ChannelSettings,
        /// The workers do not have the state of an earlier [`Event::Synced`] any more.
        needs_state: bool,
    },
    /// The last subscriber has left.
    Uninterested {
        /// The channel.
        channel: Arc<str>,
    },
    /// A member has joined.
    Joined {
        /// The channel.
        channel: Arc<str>,
        /// The member.
        info: Arc<ClientInfo>,
    },
    /// A member has left.
    Left {
        /// The channel.
        channel: Arc<str>,
        /// Its client ID.
        client: Arc<str>,
    },
    /// Publishes. [`Event::Published`] follows.
    Publish {
        /// The request, returned with the outcome.
        request: u64,
        /// The publication.
        publish: Publish,
    },
    /// Queries a channel. [`Event::Answer`] follows.
    Query {
        /// The request, returned with the answer.
        request: u64,
        /// The channel.
        channel: Arc<str>,
        /// The options of the channel.
        settings: ChannelSettings,
        /// The query.
        query: ChannelQuery,
    },
    /// Runs a request on all other nodes. [`Event::CallFinished`] follows.
    Call {
        /// The request, returned with the results.
        request: u64,
        /// Its content, up to [`limits::CALL_BYTES`].
        payload: Bytes,
    },
    /// The result of an [`Event::Call`].
    CallResult {
        /// The node that has sent the request.
        from: Uid,
        /// Its request.
        call: u64,
        /// The result, up to [`limits::CALL_BYTES`].
        payload: Bytes,
    },
}

/// An output for the workers of this node.
#[derive(Debug, PartialEq)]
pub enum Event {
    /// A mirror is live. Publications that follow are newer.
    Synced {
        /// The channel.
        channel: Arc<str>,
        /// Its state.
        state: ChannelState,
        /// The relation to the previous state.
        kind: SyncKind,
    },
    /// A publication of a live mirror.
    Publication {
        /// The channel.
        channel: Arc<str>,
        /// The offset; 0 for none.
        offset: u64,
        /// The publication.
        published: Arc<ringmain_hub::protocol::Published>,
    },
    /// A member has joined or left at another node.
    Presence {
        /// The channel.
        channel: Arc<str>,
        /// The member.
        info: Arc<ClientInfo>,
        /// True if it has joined.
        is_join: bool,
    },
    /// A mirror is without an owner: publications may be missing until [`Event::Synced`] follows.
    Lost {
        /// The channel.
        channel: Arc<str>,
    },
    /// The outcome of a publication.
    Published {
        /// The request.
        request: u64,
        /// The outcome.
        outcome: PublishOutcome,
    },
    /// The answer to a query.
    Answer {
        /// The request.
        request: u64,
        /// The answer.
        answer: Answer,
    },
    /// A request of another node. [`NodeRequest::CallResult`] must follow.
    Call {
        /// The node.
        from: Uid,
        /// Its request.
        call: u64,
        /// Its content.
        payload: Bytes,
    },
    /// The results of a call. Nodes without a result have not responded; they may have run it.
    CallFinished {
        /// The request.
        request: u64,
        /// The results by node.
        results: Vec<(Uid, Option<Bytes>)>,
    },
    /// A link must be closed. The caller reports nothing about it afterwards.
    Close(LinkId),
}

/// The relation of a state to the one that the workers had before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncKind {
    /// There was none.
    Initial,
    /// The publications continue at its position.
    Continued,
    /// Publications are missing: subscribers that rely on positions must be notified.
    Gap,
}

/// A fault that the simulation plants. Without the feature `mutations` none has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mutation {
    /// An owner forgets which publications it no longer retains.
    DroppedFloor,
    /// A mirror delivers publications that it has received before.
    DeliveredDoubles,
    /// A node does not grant credit.
    ForgottenCredit,
    /// A channel moves with another epoch.
    ForgottenEpoch,
    /// A partition of a log whose last records are gone continues in the same life.
    ReusedLife,
    /// An owner takes the oldest publication that it has of a log for the first of its life.
    AssumedStart,
}

/// Counters of a node since its start, and its current state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeCounts {
    /// Other nodes, without those that are gone.
    pub nodes: usize,
    /// Channels that this node owns.
    pub owned: usize,
    /// Channels that this node mirrors, its own included.
    pub mirrors: usize,
    /// Publications and queries that wait for an outcome.
    pub requests: usize,
    /// Publications that were sent to other nodes.
    pub crossed: u64,
    /// Gaps that were reported to this node's mirrors.
    pub gaps: u64,
    /// Nodes that were removed because they were silent.
    pub removed: u64,
    /// Channels that were sent to new owners.
    pub moved: u64,
}

/// One node. See the module.
#[derive(Debug)]
pub struct Node {
    member: Member,
    status: Status,
    /// The version of the frames that it sends at most.
    version: u16,
    rebalancing: Rebalancing,
    peers: BTreeMap<Uid, Peer>,
    links: BTreeMap<LinkId, Uid>,
    owned: OwnedChannels,
    keys: IdempotencyKeys,
    mirrors: Mirrors,
    requests: Requests,
    handovers: Handovers,
    log: Option<Box<NodeLog>>,
    joining_since: Duration,
    /// The time of the last request of another node.
    asked_at: Duration,
    /// Frames of this node to itself.
    loopback: VecDeque<Frame>,
    /// Events, with the link whose peer is granted credit once they are taken.
    events: VecDeque<(Event, Option<(LinkId, u64)>)>,
    seed: u64,
    epochs_drawn: u64,
    last_tick: Duration,
    mutation: Option<Mutation>,
    counts: NodeCounts,
}

impl Node {
    /// Creates a node without links. `seed` must be random.
    #[must_use]
    pub fn new(member: Member, seed: u64, now: Duration) -> Node {
        Node {
            member,
            status: Status {
                serial: 1,
                phase: Phase::Joining,
                clients: 0,
            },
            version: frame::VERSION,
            rebalancing: Rebalancing::default(),
            peers: BTreeMap::new(),
            links: BTreeMap::new(),
            owned: OwnedChannels::default(),
            keys: IdempotencyKeys::default(),
            mirrors: Mirrors::default(),
            requests: Requests::default(),
            handovers: Handovers::default(),
            log: None,
            joining_since: now,
            asked_at: now,
            loopback: VecDeque::new(),
            events: VecDeque::new(),
            seed,
            epochs_drawn: 0,
            last_tick: now,
            mutation: None,
            counts: NodeCounts::default(),
        }
    }

    /// Lets the node work as one of an older version, before it has links. For tests of rolling upgrades.
    pub fn limit_version(&mut self, version: u16) {
        self.version = version;
        if version < 2 {
            self.status.phase = Phase::Active;
        }
    }

    /// Plants a fault. For tests only.
    pub fn plant(&mut self, mutation: Mutation) {
        self.mutation = Some(mutation);
    }

    fn has_planted(&self, mutation: Mutation) -> bool {
        cfg!(feature = "mutations") && self.mutation == Some(mutation)
    }

    /// Returns this node.
    #[must_use]
    pub fn member(&self) -> &Member {
        &self.member
    }

    /// Returns the first frame of a link.
    #[must_use]
    pub fn hello(&self) -> Frame {
        Frame::Hello {
            version: self.version,
            oldest: frame::OLDEST_VERSION,
            member: self.member.clone(),
        }
    }

    /// Returns the other nodes, without those that are gone.
    pub fn peers(&self) -> impl Iterator<Item = (&Member, Status)> {
        self.peers.values().map(|peer| (&peer.member, peer.status))
    }

    /// Returns the state of this node.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// Starts the planned end of this node: it hands its channels over.
    pub fn leave(&mut self, now: Duration) {
        if self.status.phase != Phase::Leaving {
            self.asked_at = now;
            self.set_phase(Phase::Leaving, now);
            self.run_loopback(now);
        }
    }

    /// Returns whether other nodes have taken all channels of this node since [`leave`](Node::leave), or no node can.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let servers = self.peers.values();
        let servers = servers.filter(|peer| peer.member.role.owns_channels() && peer.link.is_some());
        let phases: Vec<Phase> = servers.map(|peer| peer.status.phase).collect();
        // A node that joins will take the channels if there is no other.
        let is_joining = phases.contains(&Phase::Joining) && !phases.contains(&Phase::Active);
        let has_plan = self.peers.values().any(|peer| !peer.plan.is_empty());
        let has_moved = !has_plan && !is_joining && self.handovers.is_idle();
        // Requests of other nodes may be on their way.
        let is_quiet =
            self.last_tick.saturating_sub(self.asked_at) >= limits::LEAVE_QUIET && self.requests.len() == 0;
        let is_quiet = is_quiet && !self.awaits_appends();
        self.status.phase == Phase::Leaving && has_moved && is_quiet && self.has_sent_all()
    }

    /// Returns whether the workers' requests may be handled: there is an owner for channels, or there will be none soon.
    #[must_use]
    pub fn can_serve(&self) -> bool {
        let servers = self
            .peers
            .values()
            .filter(|peer| peer.member.role.owns_channels());
        let mut phases = servers.map(|peer| peer.status.phase);
        self.status.phase != Phase::Joining || phases.any(|phase| phase == Phase::Active)
    }

    /// Returns the counters.
    #[must_use]
    pub fn counts(&self) -> NodeCounts {
        NodeCounts {
            nodes: self.peers.len(),
            owned: self.owned.len(),
            mirrors: self.mirrors.len(),
            requests: self.requests.len(),
            ..self.counts
        }
    }

    /// Handles a request of the workers.
    pub fn handle(&mut self, local: NodeRequest, now: Duration) {
        match local {
            NodeRequest::Interested {
                channel,
                settings,
                needs_state,
            } => self.add_interest(channel, settings, needs_state, now),
            NodeRequest::Uninterested { channel } => self.mirrors.set_idle(&channel, now),
            NodeRequest::Joined { channel, info } => self.join_local(&channel, info),
            NodeRequest::Left { channel, client } => self.leave_local(&channel, &client),
            NodeRequest::Publish { request, publish } => {
                self.request_local(request, Operation::Publish(publish), now);
            }
            NodeRequest::Query {
                request,
                channel,
                settings,
                query,
            } => self.request_local(request, Operation::Query(channel, settings, query), now),
            NodeRequest::Call { request, payload } => self.start_call(request, payload, now),
            NodeRequest::CallResult { from, call, payload } => {
                self.send(
                    from,
                    Frame::CallResult {
                        request: call,
                        payload,
                    },
                );
            }
        }
        self.run_loopback(now);
    }

    /// Handles a frame of a link that is up, except its first one.
    pub fn receive(&mut self, link: LinkId, frame: Frame, now: Duration) {
        let Some(&from) = self.links.get(&link) else {
            // The link was replaced or closed.
            return;
        };
        self.heard(from, now);
        self.handle_frame(from, Some(link), frame, now);
        self.run_loopback(now);
    }

    /// Returns the next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        let (event, cost) = self.events.pop_front()?;
        if let Some((link, cost)) = cost {
            self.grant(link, cost);
        }
        Some(event)
    }

    fn emit(&mut self, event: Event) {
        self.events.push_back((event, None));
    }

    fn run_loopback(&mut self, now: Duration) {
        while let Some(frame) = self.loopback.pop_front() {
            self.handle_frame(self.member.uid, None, frame, now);
        }
    }

    fn handle_frame(&mut self, from: Uid, link: Option<LinkId>, frame: Frame, now: Duration) {
        let mut frame = Some(frame);
        if self.hold(from, link, &mut frame, now) {
            return;
        }
        let Some(frame) = frame else { return };
        match frame {
            // The first frame is handled by `link_up`; a second one changes nothing.
            Frame::Hello { .. } | Frame::LogSettings(_) | Frame::Beat => {}
            Frame::Credit(bytes) => self.receive_credit(from, bytes, now),
            Frame::Subscribe {
                number,
                channel,
                settings,
                position,
            } => self.subscribe_mirror(from, number, channel, settings, position, now),
            Frame::Resumed => self.remove_unconfirmed(from),
            Frame::Unsubscribe { channel, .. } => self.unsubscribe_mirror(from, &channel, now),
            Frame::State { number, state } => self.sync_mirror(from, link, number, state),
            Frame::NotOwner { number } => self.reject_mirror(from, number, now),
            Frame::Publication {
                number,
                offset,
                published,
            } => self.publication_for_mirror(from, link, number, offset, published),
            Frame::Publish { request, publish } => {
                self.request_from(from, request, 0, Operation::Publish(publish), now);
            }
            Frame::Published { request, outcome } => {
                self.finish_request(from, request, Reply::Published(outcome), now);
            }
            Frame::Members {
                channel,
                members,
                has_more,
            } => self.announce_members(from, link, &channel, members, has_more),
            Frame::Member {
                channel,
                info,
                is_join,
            } => self.change_member(from, &channel, info, is_join),
            Frame::Presence {
                number,
                info,
                is_join,
            } => self.presence_for_mirror(from, number, info, is_join),
            Frame::Query {
                request,
                channel,
                settings,
                query,
            } => self.request_from(from, request, 0, Operation::Query(channel, settings, query), now),
            Frame::Answer { request, answer } => {
                self.finish_request(from, request, Reply::Answer(answer), now);
            }
            Frame::Call { request, payload } => self.emit(Event::Call {
                from,
                call: request,
                payload,
            }),
            Frame::CallResult { request, payload } => self.add_call_result(from, request, payload),
            Frame::Ended { channel, epoch } => self.end_epoch(&channel, epoch),
            Frame::Status(status) => self.change_status(from, status, now),
            frame => self.handle_move(from, link, frame, now),
        }
    }

    /// Sends a frame to a node, or to this one. Without a link it is dropped: mirrors ask again when there is one, requests time out.
    fn send(&mut self, to: Uid, frame: Frame) -> bool {
        if to == self.member.uid {
            self.loopback.push_back(frame);
            return true;
        }
        let Some(peer) = self
            .peers
            .get_mut(&to)
            .filter(|peer| frame.version() <= peer.version)
        else {
            return false;
        };
        peer.link
            .as_mut()
            .map(|link| link.queue.push_back(frame))
            .is_some()
    }

    /// Returns the owner of a channel as this node sees it.
    #[must_use]
    pub fn owner_of(&self, channel: &str) -> Option<Uid> {
        let nodes = || {
            let others = self.peers.values().map(|peer| (&peer.member, peer.status.phase));
            others.chain([(&self.member, self.status.phase)])
        };
        let in_phase = |phase| {
            let selected = nodes().filter(move |(_, other)| *other == phase);
            let members = selected.map(|(member, _)| member);
            match &self.log {
                Some(log) => partition_owner(partition_of(channel, log.partitions()).0, members),
                None => owner(channel, members),
            }
        };
        in_phase(Phase::Active).or_else(|| in_phase(Phase::Leaving))
    }

    /// Returns an epoch. Epochs differ from each other and cannot be predicted without the seed.
    fn draw_epoch(&mut self) -> Epoch {
        self.epochs_drawn += 1;
        let number = self.epochs_drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        Epoch::new(mix(self.seed.wrapping_add(number)))
    }

    /// Handles the passing of time. Called at least each [`limits::BEAT_INTERVAL`].
    pub fn tick(&mut self, now: Duration) {
        let paused = now.saturating_sub(self.last_tick);
        self.last_tick = now;
        if paused > limits::GONE_AFTER {
            // Other nodes have removed this one, and its channels may have had other owners.
            self.join_again(now);
        }
        self.tick_phase(now);
        self.tick_peers(now, paused);
        self.tick_handovers(now);
        self.tick_rebalancing(paused);
        self.tick_mirrors(now);
        self.expire_requests(now);
        self.keys.expire(now);
        for (name, mut owned) in self.owned.expire(now) {
            self.put_back_history(&name, &mut owned, now);
        }
        self.tick_log(now);
        self.run_loopback(now);
    }
}
