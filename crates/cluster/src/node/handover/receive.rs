//! Receives channels as their new owner.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{History, StreamPosition};

use super::Incoming;
use crate::frame::{Frame, HandoverHead, HandoverPart};
use crate::limits;
use crate::member::Uid;
use crate::node::idempotency::KeyEntry;
use crate::node::owned::{Owned, OwnedMember, Transition};
use crate::node::{Event, LinkId, Node};

impl Node {
    /// The link to a node is lost: parts of channels are incomplete, and its requests are not answered.
    pub(in crate::node) fn drop_incoming(&mut self, from: Uid) {
        self.handovers.incoming.retain(|(uid, _), _| *uid != from);
        self.handovers.unready.retain(|(uid, _), _| *uid != from);
    }

    /// Receives a part of a channel.
    pub(in crate::node) fn take_part(
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
        let is_allowed = incoming.cost <= limits::HANDOVER_RECEIVED_BYTES
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
                self.emit(Event::Close(link));
            }
            return;
        }
        if is_last && let Some(incoming) = self.handovers.incoming.remove(&key) {
            let settings = incoming.head.as_ref().map(|head| head.settings);
            let is_logged = settings.is_some_and(|it| self.logged_partition(&channel, &it).is_some());
            if is_logged && !self.has_history(&channel) {
                self.handovers.unready.insert(key, incoming);
            } else {
                self.take_channel(from, &channel, incoming, now);
            }
        }
    }

    /// Takes a channel, all parts of which have arrived.
    pub(super) fn take_channel(&mut self, from: Uid, channel: &Arc<str>, incoming: Incoming, now: Duration) {
        self.install(channel, incoming, now);
        let taken = Arc::clone(channel);
        self.send(from, Frame::HandoverTaken { channel: taken });
        self.release(channel, now);
        self.pass_on(channel, now);
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

    pub(super) fn install(&mut self, channel: &Arc<str>, incoming: Incoming, now: Duration) {
        let Some(head) = incoming.head.clone() else { return };
        if !self.owned.contains(channel) && self.owned.len() >= limits::CHANNELS {
            return;
        }
        self.handovers.expected.remove(channel);
        self.handovers.passed.remove(channel);
        let mut received = incoming.into_owned(&head, now);
        let keys = std::mem::take(&mut received.keys);
        let received = received.owned;
        self.keys.restore(channel, keys);
        let Some(local) = self.owned.get_mut(channel) else {
            if let Some(transition) = &received.transition {
                let end = (transition.until(), Arc::clone(channel));
                self.handovers.transitions.insert(end);
            }
            let settings = received.settings;
            self.owned.insert(channel, received);
            self.join_history(channel, settings, now);
            return;
        };
        let is_logged = local.log.is_some();
        let is_same = local.epoch == received.epoch;
        let has_both = local.has_published() && received.has_published() && !local.is_superseded;
        let prefers_received = local.is_superseded || !local.has_published();
        let members = received.members.clone();
        if is_logged {
            // The log has both.
        } else if !is_same && has_both {
            // Both have published: two nodes were owners.
            received.replaced.iter().for_each(|epoch| local.remember(*epoch));
            let other = received.epoch;
            self.replace_epoch(channel, other, now);
        } else if !is_same && prefers_received && received.has_published() {
            let before = std::mem::replace(local, received);
            local.interests = before.interests;
            local.members = before.members;
            local.remember(before.epoch);
            if let Some(transition) = &local.transition {
                let end = (transition.until(), Arc::clone(channel));
                self.handovers.transitions.insert(end);
            }
            self.send_state_to_all(channel, now);
        }
        let mut unconfirmed = Vec::new();
        for (client, member) in members {
            let is_confirmed = self.owned.has_interest(channel, member.node);
            if member.node != self.member.uid && !is_confirmed {
                unconfirmed.push((member.node, 0));
                self.add_member(channel, client, member);
            }
        }
        self.await_mirrors(channel, unconfirmed, now);
    }

    /// Lets the members of nodes leave unless these subscribe in time.
    fn await_mirrors(&mut self, channel: &Arc<str>, mirrors: Vec<(Uid, u32)>, now: Duration) {
        let Some(owned) = self.owned.get_mut(channel) else {
            return;
        };
        if mirrors.is_empty() {
            return;
        }
        let (before, missed) = match owned.transition.take() {
            Some(before) => (
                before.awaited().collect(),
                before.publications().cloned().collect(),
            ),
            None => (Vec::new(), Vec::new()),
        };
        let transition = Transition::new(before.into_iter().chain(mirrors), missed, now);
        let end = (transition.until(), Arc::clone(channel));
        owned.transition = Some(transition);
        self.handovers.transitions.insert(end);
    }
}

/// A channel that has arrived.
struct Received {
    owned: Owned,
    keys: Vec<KeyEntry>,
}

impl Incoming {
    fn into_owned(self, head: &HandoverHead, now: Duration) -> Received {
        let (missed, retained): (Vec<_>, Vec<_>) = self
            .publications
            .into_iter()
            .partition(|(offset, ..)| *offset == 0);
        let missed = missed.into_iter().map(|(.., published)| published).collect();
        let history = match (head.settings.history, head.offsets) {
            (Some(options), Some((offset, floor))) => {
                let position = StreamPosition {
                    offset,
                    epoch: head.epoch,
                };
                let mut history = History::restored(position, floor, options);
                for (offset, age, published) in retained {
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
        let nodes = members.values().map(|member| (member.node, 0));
        let transition = Transition::new(head.mirrors.iter().copied().chain(nodes), missed, now);
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
                transition: (!transition.is_empty()).then_some(transition),
                log: None,
            },
            keys: self.keys,
        }
    }
}
