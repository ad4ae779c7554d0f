//! The planned move of channels to another owner, after a node has joined, or before it leaves.
//!
//! ```text
//! old owner:  acting ── plan, window ──▶ sent (a copy is retained) ── HandoverTaken ──▶ gone
//! new owner:  Handover parts ──▶ acting;  requests before: held ── Wanted, Absent, HandedOver, HOLD_TIME ──▶ new channel
//! mirror:     Live ── Moved ──▶ Asking at the new owner, with its position ──▶ Live
//! ```
//!
//! Until its turn comes, a channel is served by the old owner, and mirrors stay there. A channel moves with its epoch, offset, floor,
//! retained publications, members and idempotency keys, so nothing is missed. Frames of a link are in order: an old owner relays requests
//! behind the channel. A copy that was sent is sent again on another link to the same node; to another node only with a new epoch, since
//! the first one may have published.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{History, StreamPosition};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::idempotency::KeyEntry;
use super::owned::{Owned, OwnedMember, Transition};
use super::{LinkId, Mutation, Node};
use crate::frame::{Answer, Frame, HandoverHead, HandoverPart, PublishOutcome, cost};
use crate::limits;
use crate::member::{Phase, Uid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    sent: BTreeMap<Arc<str>, SentChannel>,
    incoming: BTreeMap<(Uid, Arc<str>), Incoming>,
    held: BTreeMap<Arc<str>, Held>,
    held_frames: usize,
    held_bytes: u64,
    /// The ends of transitions in order, also of those that are complete.
    pub(super) transitions: BTreeSet<(Duration, Arc<str>)>,
}

/// A channel that a new owner has not acknowledged.
#[derive(Debug)]
struct SentChannel {
    to: Uid,
    /// Its part of the window.
    cost: u64,
    owned: Owned,
    keys: Vec<KeyEntry>,
}

/// The parts of a channel that have arrived.
#[derive(Debug, Default)]
struct Incoming {
    head: Option<HandoverHead>,
    publications: Vec<(u64, Duration, Arc<Published>)>,
    members: Vec<(Uid, Arc<ClientInfo>)>,
    keys: Vec<KeyEntry>,
    cost: u64,
}

/// The requests for a channel that another node may have.
#[derive(Debug)]
struct Held {
    since: Duration,
    frames: VecDeque<(Uid, Option<LinkId>, Frame)>,
    /// The nodes that do not have it.
    absent: BTreeSet<Uid>,
}

/// What a node may do with a request for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has the channel.
    Acting,
    /// It may create the channel.
    Create,
    /// Another node may have the channel: the request is held.
    Hold,
    /// Another node owns it.
    Elsewhere,
}

impl Handovers {
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.incoming.is_empty() && self.held.is_empty()
    }

    /// Returns the node to which a channel was sent.
    pub(super) fn sent_to(&self, channel: &str) -> Option<Uid> {
        self.sent.get(channel).map(|sent| sent.to)
    }

    pub(super) fn is_held(&self, channel: &str) -> bool {
        !self.held.is_empty() && self.held.contains_key(channel)
    }
}

/// Returns the channel of a frame that a new owner holds.
fn channel_of(frame: &Frame) -> Option<&Arc<str>> {
    match frame {
        Frame::Subscribe { channel, .. }
        | Frame::Unsubscribe { channel, .. }
        | Frame::Members { channel, .. }
        | Frame::Member { channel, .. }
        | Frame::Query { channel, .. }
        | Frame::RelayedQuery { channel, .. } => Some(channel),
        Frame::Publish { publish, .. } | Frame::RelayedPublish { publish, .. } => Some(&publish.channel),
        _ => None,
    }
}

fn held_cost(frame: &Frame) -> u64 {
    match frame {
        Frame::Publish { publish, .. } | Frame::RelayedPublish { publish, .. } => cost(&publish.published),
        Frame::Members { members, .. } => members.len() as u64 * limits::PUBLICATION_OVERHEAD,
        _ => limits::PUBLICATION_OVERHEAD,
    }
}

impl Node {
    /// Returns what this node may do with a request for a channel.
    pub(super) fn admit(&self, channel: &str, now: Duration) -> Admission {
        if self.owned.contains(channel) {
            Admission::Acting
        } else if self.owner_of(channel) != Some(self.member.uid) {
            Admission::Elsewhere
        } else if self.is_awaited(channel, now) {
            Admission::Hold
        } else {
            Admission::Create
        }
    }

    /// Returns whether another node may have this channel, which belongs to this node.
    fn is_awaited(&self, channel: &str, now: Duration) -> bool {
        let held = self.handovers.held.get(channel);
        if held.is_some_and(|held| now.saturating_sub(held.since) >= limits::HOLD_TIME) {
            return false;
        }
        let is_absent = |uid: &Uid| held.is_some_and(|held| held.absent.contains(uid));
        let mut awaited = self.awaited_peers();
        awaited.any(|uid| !is_absent(&uid))
    }

    /// Returns the nodes that may have channels of this one.
    fn awaited_peers(&self) -> impl Iterator<Item = Uid> {
        let serial = self.status.serial;
        let is_awaited = move |peer: &super::Peer| {
            peer.version >= 2
                && peer.member.role.owns_channels()
                && peer.status.phase != Phase::Joining
                && peer.settled != Some((peer.status.serial, serial))
        };
        let peers = self.peers.iter();
        peers
            .filter(move |(_, peer)| is_awaited(peer))
            .map(|(uid, _)| *uid)
    }

    /// Holds a frame for a channel. `false`: it is none for a channel that moves, and must be handled.
    pub(super) fn hold(
        &mut self,
        from: Uid,
        link: Option<LinkId>,
        frame: &mut Option<Frame>,
        now: Duration,
    ) -> bool {
        let Some(channel) = frame.as_ref().and_then(channel_of).cloned() else {
            return false;
        };
        let is_held = self.handovers.is_held(&channel);
        let starts = matches!(
            frame,
            Some(
                Frame::Subscribe { .. }
                    | Frame::Publish { .. }
                    | Frame::RelayedPublish { .. }
                    | Frame::Query { .. }
                    | Frame::RelayedQuery { .. }
            )
        );
        if !is_held && (!starts || self.admit(&channel, now) != Admission::Hold) {
            return false;
        }
        let Some(frame) = frame.take() else { return false };
        let cost = held_cost(&frame);
        let handovers = &mut self.handovers;
        if handovers.held_frames >= limits::HELD_FRAMES || handovers.held_bytes + cost > limits::HELD_BYTES {
            self.refuse(from, frame);
            return true;
        }
        handovers.held_frames += 1;
        handovers.held_bytes += cost;
        let held = handovers
            .held
            .entry(Arc::clone(&channel))
            .or_insert_with(|| Held {
                since: now,
                frames: VecDeque::new(),
                absent: BTreeSet::new(),
            });
        held.frames.push_back((from, link, frame));
        if !is_held {
            let awaited: Vec<Uid> = self.awaited_peers().collect();
            for uid in awaited {
                let channel = Arc::clone(&channel);
                self.send(uid, Frame::Wanted { channel });
            }
        }
        true
    }

    /// Refuses a request, which its node sends again.
    pub(super) fn refuse(&mut self, from: Uid, frame: Frame) {
        let reply = match frame {
            Frame::Publish { request, .. } | Frame::RelayedPublish { request, .. } => Frame::Published {
                request,
                outcome: PublishOutcome::Refused,
            },
            Frame::Query { request, .. } | Frame::RelayedQuery { request, .. } => Frame::Answer {
                request,
                answer: Answer::Unreachable,
            },
            Frame::Subscribe { number, .. } => Frame::NotOwner { number },
            // The members are announced again with the next subscription.
            _ => return,
        };
        self.send(from, reply);
    }

    /// Handles the requests of channels that are not awaited any more.
    pub(super) fn release_held(&mut self, now: Duration) {
        if self.handovers.held.is_empty() {
            return;
        }
        let names: Vec<_> = self.handovers.held.keys().cloned().collect();
        for name in names {
            if self.admit(&name, now) != Admission::Hold {
                self.release(&name, now);
            }
        }
    }

    fn release(&mut self, channel: &Arc<str>, now: Duration) {
        let Some(held) = self.handovers.held.remove(channel) else {
            return;
        };
        self.handovers.held_frames -= held.frames.len();
        let bytes: u64 = held.frames.iter().map(|(.., frame)| held_cost(frame)).sum();
        self.handovers.held_bytes -= bytes;
        for (from, link, frame) in held.frames {
            // A node that is linked again has subscribed again.
            if link.is_none_or(|link| self.links.contains_key(&link)) {
                self.handle_frame(from, link, frame, now);
            }
        }
    }

    /// Plans the moves of all channels that other nodes own.
    pub(super) fn plan_moves(&mut self, now: Duration) {
        let mut plans: BTreeMap<Uid, VecDeque<Arc<str>>> = BTreeMap::new();
        for name in self.owned.names() {
            let Some(owner) = self.owner_of(&name).filter(|owner| *owner != self.member.uid) else {
                continue;
            };
            let peer = self.peers.get(&owner);
            if self.owned.is_superseded(&name) || peer.is_none_or(|peer| peer.version < 2) {
                self.end_channel(&name);
            } else {
                plans.entry(owner).or_default().push_back(name);
            }
        }
        for (uid, peer) in &mut self.peers {
            peer.plan = plans.remove(uid).unwrap_or_default();
            peer.planned_since = match peer.plan.is_empty() {
                true => None,
                false => Some(peer.planned_since.unwrap_or(now)),
            };
        }
        self.send_planned(now);
    }

    /// Sends planned channels, as far as the windows of their new owners allow, and notifies nodes for which there are no more.
    pub(super) fn send_planned(&mut self, now: Duration) {
        let uids: Vec<Uid> = self.peers.keys().copied().collect();
        for uid in uids {
            while let Some(peer) = self.peers.get_mut(&uid)
                && peer.link.is_some()
                && peer.handing < limits::HANDOVER_WINDOW_BYTES
                && let Some(name) = peer.plan.pop_front()
            {
                self.move_channel(&name, uid, now);
            }
            let serial = self.status.serial;
            let Some(peer) = self.peers.get_mut(&uid).filter(|peer| peer.version >= 2) else {
                continue;
            };
            if !peer.plan.is_empty() {
                continue;
            }
            peer.planned_since = None;
            let marker = (serial, peer.status.serial);
            if let Some(link) = &mut peer.link
                && link.sent_marker != Some(marker)
            {
                link.sent_marker = Some(marker);
                let (sender, receiver) = marker;
                link.queue.push_back(Frame::HandedOver { sender, receiver });
            }
        }
    }

    /// Ends the channels whose new owner has not taken them in time.
    pub(super) fn tick_handovers(&mut self, now: Duration) {
        let is_late = |since: Duration| now.saturating_sub(since) >= limits::HANDOVER_TIME;
        let late = self
            .peers
            .values_mut()
            .filter(|peer| peer.planned_since.is_some_and(is_late));
        let late: Vec<_> = late.flat_map(|peer| std::mem::take(&mut peer.plan)).collect();
        for name in late {
            self.end_channel(&name);
        }
        self.send_planned(now);
        self.release_held(now);
        self.end_transitions(now);
    }

    /// Moves a channel to its new owner.
    fn move_channel(&mut self, channel: &Arc<str>, to: Uid, now: Duration) {
        let Some(mut owned) = self.owned.remove(channel) else {
            return;
        };
        let keys = self.keys.take(channel);
        let cost = self.send_channel(channel, to, &mut owned, &keys, now);
        for interest in std::mem::take(&mut owned.interests) {
            self.send_moved(interest.node, interest.number, to);
        }
        if let Some(peer) = self.peers.get_mut(&to) {
            peer.handing += cost;
        }
        let sent = SentChannel {
            to,
            cost,
            owned,
            keys,
        };
        self.handovers.sent.insert(Arc::clone(channel), sent);
        self.counts.moved += 1;
    }

    /// Notifies a mirror of the new owner.
    pub(super) fn send_moved(&mut self, mirror: Uid, number: u32, to: Uid) {
        if !self.send(mirror, Frame::Moved { number, to }) {
            self.send(mirror, Frame::NotOwner { number });
        }
    }

    /// Sends all parts of a channel. Returns their cost.
    fn send_channel(
        &mut self,
        channel: &Arc<str>,
        to: Uid,
        owned: &mut Owned,
        keys: &[KeyEntry],
        now: Duration,
    ) -> u64 {
        let forgets_epoch = self.has_planted(Mutation::ForgottenEpoch);
        let epoch = if forgets_epoch {
            self.draw_epoch()
        } else {
            owned.epoch
        };
        let mut parts = parts_of(owned, keys, now);
        if let Some(HandoverPart::Head(head)) = parts.first_mut() {
            head.epoch = epoch;
        }
        let count = parts.len();
        let mut total = 0;
        for (index, part) in parts.into_iter().enumerate() {
            total += part.cost();
            self.send(
                to,
                Frame::Handover {
                    channel: Arc::clone(channel),
                    part,
                    is_last: index + 1 == count,
                },
            );
        }
        total
    }

    /// Sends channels again that a node has not acknowledged on an earlier link.
    pub(super) fn resend_channels(&mut self, to: Uid, now: Duration) {
        let sent = self.handovers.sent.iter();
        let names: Vec<_> = sent
            .filter(|(_, sent)| sent.to == to)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in names {
            let Some(mut sent) = self.handovers.sent.remove(&name) else {
                continue;
            };
            self.send_channel(&name, to, &mut sent.owned, &sent.keys, now);
            self.handovers.sent.insert(name, sent);
        }
    }

    /// Takes channels back that were sent to a node which is gone. It may have published: they have new epochs.
    pub(super) fn reclaim_channels(&mut self, from: Uid, now: Duration) {
        let sent = self.handovers.sent.iter();
        let names: Vec<_> = sent
            .filter(|(_, sent)| sent.to == from)
            .map(|(name, _)| Arc::clone(name))
            .collect();
        for name in names {
            let Some(mut sent) = self.handovers.sent.remove(&name) else {
                continue;
            };
            if self.owned.contains(&name) {
                continue;
            }
            sent.owned.start_epoch(self.draw_epoch());
            let nodes = sent.owned.members.values().map(|member| member.node);
            let transition = Transition::new(nodes.collect(), now);
            self.handovers
                .transitions
                .insert((transition.until(), Arc::clone(&name)));
            sent.owned.transition = Some(transition);
            self.keys.restore(&name, sent.keys);
            self.owned.insert(&name, sent.owned);
        }
    }

    /// Forgets all channels that are on their way, after a pause of this node.
    pub(super) fn forget_sent(&mut self) {
        self.handovers.sent.clear();
        self.peers.values_mut().for_each(|peer| peer.handing = 0);
    }

    /// The link to a node is lost: parts of channels are incomplete, and its requests are not answered.
    pub(super) fn drop_incoming(&mut self, from: Uid) {
        self.handovers.incoming.retain(|(uid, _), _| *uid != from);
    }

    pub(super) fn taken(&mut self, from: Uid, channel: &Arc<str>, now: Duration) {
        let is_sent = self.handovers.sent_to(channel) == Some(from);
        if is_sent && let Some(sent) = self.handovers.sent.remove(channel) {
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.handing = peer.handing.saturating_sub(sent.cost);
            }
            self.send_planned(now);
        }
    }

    /// A new owner needs a channel at once.
    pub(super) fn hand_over_wanted(&mut self, from: Uid, channel: Arc<str>, now: Duration) {
        if self.handovers.sent_to(&channel) == Some(from) {
            return;
        }
        if self.owned.contains(&channel) && !self.owned.is_superseded(&channel) {
            self.move_channel(&channel, from, now);
        } else {
            self.send(from, Frame::Absent { channel });
        }
    }

    pub(super) fn set_absent(&mut self, from: Uid, channel: &Arc<str>, now: Duration) {
        if let Some(held) = self.handovers.held.get_mut(channel) {
            held.absent.insert(from);
            if self.admit(channel, now) != Admission::Hold {
                self.release(channel, now);
            }
        }
    }

    pub(super) fn settle_peer(&mut self, from: Uid, marker: (u32, u32), now: Duration) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.settled = Some(marker);
        }
        self.release_held(now);
    }

    /// Receives a part of a channel.
    pub(super) fn take_part(
        &mut self,
        from: Uid,
        link: Option<LinkId>,
        channel: Arc<str>,
        part: HandoverPart,
        is_last: bool,
        now: Duration,
    ) {
        let key = (from, Arc::clone(&channel));
        let incoming = self.handovers.incoming.entry(key.clone()).or_default();
        incoming.cost += part.cost();
        // The owner limits publications, not members and keys, whose limits are larger than these.
        let is_allowed = incoming.publications.len() <= limits::CHANNELS
            && incoming.members.len() <= limits::ANNOUNCED_MEMBERS
            && incoming.keys.len() <= limits::IDEMPOTENCY_KEYS;
        match part {
            HandoverPart::Head(head) => {
                *incoming = Incoming {
                    head: Some(head),
                    ..Incoming::default()
                };
            }
            HandoverPart::Publications(publications) => incoming.publications.extend(publications),
            HandoverPart::Members(members) => incoming.members.extend(members),
            HandoverPart::Keys(keys) => {
                incoming
                    .keys
                    .extend(keys.into_iter().map(|(key, remaining, position)| KeyEntry {
                        key,
                        expiry: now + remaining,
                        position,
                    }))
            }
        }
        if !is_allowed {
            if let Some(link) = link {
                self.link_down(link, now);
                self.emit(super::Event::Close(link));
            }
            return;
        }
        if is_last && let Some(incoming) = self.handovers.incoming.remove(&key) {
            self.install(&channel, incoming, now);
            let taken = Arc::clone(&channel);
            self.send(from, Frame::HandoverTaken { channel: taken });
            self.release(&channel, now);
            self.pass_on(&channel, now);
        }
    }

    /// Moves a channel on that belongs to a third node in this node's view.
    fn pass_on(&mut self, channel: &Arc<str>, now: Duration) {
        let Some(owner) = self.owner_of(channel).filter(|owner| *owner != self.member.uid) else {
            return;
        };
        let Some(peer) = self.peers.get_mut(&owner) else {
            return;
        };
        if peer.version < 2 {
            self.end_channel(channel);
        } else {
            peer.plan.push_back(Arc::clone(channel));
            peer.planned_since.get_or_insert(now);
            self.send_planned(now);
        }
    }

    fn install(&mut self, channel: &Arc<str>, incoming: Incoming, now: Duration) {
        let Some(head) = incoming.head.clone() else { return };
        if !self.owned.contains(channel) && self.owned.len() >= limits::CHANNELS {
            return;
        }
        let mut received = incoming.into_owned(&head, now);
        let keys = std::mem::take(&mut received.keys);
        let received = received.owned;
        self.keys.restore(channel, keys);
        let Some(local) = self.owned.get_mut(channel) else {
            if let Some(transition) = &received.transition {
                let end = (transition.until(), Arc::clone(channel));
                self.handovers.transitions.insert(end);
            }
            self.owned.insert(channel, received);
            return;
        };
        let is_same = local.epoch == received.epoch;
        let has_both = local.has_published() && received.has_published() && !local.is_superseded;
        let prefers_received = local.is_superseded || !local.has_published();
        let members = received.members.clone();
        if !is_same && has_both {
            // Both have published: two nodes were owners.
            received.replaced.iter().for_each(|epoch| local.remember(*epoch));
            let other = received.epoch;
            self.replace_epoch(channel, other, now);
        } else if !is_same && prefers_received && received.has_published() {
            let before = std::mem::replace(local, received);
            local.interests = before.interests;
            local.members = before.members;
            local.remember(before.epoch);
            self.send_state_to_all(channel, now);
        }
        for (client, member) in members {
            let is_confirmed = self.owned.has_interest(channel, member.node);
            if member.node != self.member.uid && !is_confirmed {
                self.add_member(channel, client, member);
            }
        }
    }
}

/// A channel that has arrived.
struct Received {
    owned: Owned,
    keys: Vec<KeyEntry>,
}

impl Incoming {
    fn into_owned(self, head: &HandoverHead, now: Duration) -> Received {
        let history = match (head.settings.history, head.offsets) {
            (Some(options), Some((offset, floor))) => {
                let position = StreamPosition {
                    offset,
                    epoch: head.epoch,
                };
                let mut history = History::restored(position, floor, options);
                for (offset, age, published) in self.publications {
                    let bytes = published.data.len();
                    history.push_retained(offset, published, bytes, now.saturating_sub(age));
                }
                Some(history)
            }
            (Some(options), None) => Some(History::new(head.epoch, options)),
            (None, _) => None,
        };
        let members: BTreeMap<_, _> = self
            .members
            .into_iter()
            .map(|(node, info)| (Arc::from(&*info.client), OwnedMember { node, info }))
            .collect();
        let mut awaited: BTreeSet<Uid> = head.mirrors.iter().copied().collect();
        awaited.extend(members.values().map(|member| member.node));
        Received {
            owned: Owned {
                settings: head.settings,
                epoch: head.epoch,
                history,
                interests: Vec::new(),
                members,
                announced: BTreeMap::new(),
                replaced: head.replaced.clone(),
                last_used: now.saturating_sub(head.idle),
                is_superseded: false,
                transition: (!awaited.is_empty()).then(|| Transition::new(awaited, now)),
            },
            keys: self.keys,
        }
    }
}

/// Returns the parts of a channel, of which the last one completes it.
fn parts_of(owned: &mut Owned, keys: &[KeyEntry], now: Duration) -> Vec<HandoverPart> {
    let offsets = owned.history.as_mut().map(|history| {
        history.expire(now);
        (history.position().offset, history.floor())
    });
    let mut publications: VecDeque<(u64, Duration, Arc<Published>)> = VecDeque::new();
    let mut floor = offsets.map_or(0, |(_, floor)| floor);
    if let Some(history) = &owned.history {
        let mut bytes = 0;
        let retained: Vec<_> = history.retained().collect();
        for (offset, published, at) in retained.into_iter().rev() {
            bytes += cost(published);
            if bytes > limits::HANDOVER_CHANNEL_BYTES {
                floor = floor.max(offset);
                break;
            }
            publications.push_front((offset, now.saturating_sub(at), Arc::clone(published)));
        }
    }
    let mut mirrors: BTreeSet<Uid> = owned.interests.iter().map(|interest| interest.node).collect();
    if let Some(transition) = &owned.transition {
        mirrors.extend(transition.awaited());
    }
    let head = HandoverHead {
        settings: owned.settings,
        epoch: owned.epoch,
        replaced: owned.replaced.clone(),
        offsets: offsets.map(|(offset, _)| (offset, floor)),
        idle: now.saturating_sub(owned.last_used),
        mirrors: mirrors.into_iter().collect(),
    };
    let mut parts = vec![HandoverPart::Head(head)];
    parts.extend(divided(publications, |(.., item)| cost(item)).map(HandoverPart::Publications));
    let members = owned.members.values();
    let members = members.map(|member| (member.node, Arc::clone(&member.info)));
    parts.extend(members_in_parts(members));
    let keys = keys.iter();
    let keys = keys.map(|entry| {
        let remaining = entry.expiry.saturating_sub(now);
        (entry.key.clone(), remaining, entry.position)
    });
    let keys = divided(keys, |(key, ..)| key.len() as u64 + limits::PUBLICATION_OVERHEAD);
    parts.extend(keys.map(HandoverPart::Keys));
    parts
}

fn members_in_parts(
    members: impl Iterator<Item = (Uid, Arc<ClientInfo>)>,
) -> impl Iterator<Item = HandoverPart> {
    let cost = |(_, info): &(Uid, Arc<ClientInfo>)| {
        (info.conn_info.len() + info.chan_info.len()) as u64 + limits::PUBLICATION_OVERHEAD
    };
    divided(members, cost).map(HandoverPart::Members)
}

/// Divides items into parts of up to [`limits::HANDOVER_PART_BYTES`].
fn divided<T>(items: impl IntoIterator<Item = T>, cost: impl Fn(&T) -> u64) -> impl Iterator<Item = Vec<T>> {
    let mut items = items.into_iter().peekable();
    std::iter::from_fn(move || {
        let mut part = vec![items.next()?];
        let mut bytes = cost(&part[0]);
        while let Some(item) = items.peek()
            && bytes + cost(item) <= limits::HANDOVER_PART_BYTES
        {
            bytes += cost(item);
            part.extend(items.next());
        }
        Some(part)
    })
}
