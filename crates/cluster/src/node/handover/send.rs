//! Sends channels to their new owners.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::protocol::{ClientInfo, Published};

use super::SentChannel;
use crate::frame::{Frame, HandoverHead, HandoverPart, cost};
use crate::limits;
use crate::member::Uid;
use crate::node::idempotency::KeyEntry;
use crate::node::owned::{Owned, Transition};
use crate::node::{Mutation, Node};

impl Node {
    /// Plans the moves of each channel that another node owns.
    pub(in crate::node) fn plan_moves(&mut self, now: Duration) {
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
    pub(in crate::node) fn send_planned(&mut self, now: Duration) {
        // Channels on their way to another node belong to these: that node sends them on.
        let sent = self.handovers.sent.iter();
        let awaiting: BTreeSet<Uid> = sent
            .filter_map(|(name, sent)| self.owner_of(name).filter(|owner| *owner != sent.to))
            .collect();
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
            if !peer.plan.is_empty() || awaiting.contains(&uid) {
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
    pub(in crate::node) fn tick_handovers(&mut self, now: Duration) {
        let is_late = |since: Duration| now.saturating_sub(since) >= limits::HANDOVER_TIME;
        let late = self
            .peers
            .values_mut()
            .filter(|peer| peer.planned_since.is_some_and(is_late));
        let late: Vec<_> = late.flat_map(|peer| std::mem::take(&mut peer.plan)).collect();
        for name in late {
            self.end_channel(&name);
        }
        let is_recent =
            |_: &Arc<str>, (_, at): &mut (Uid, Duration)| now.saturating_sub(*at) < limits::HOLD_TIME;
        self.handovers.passed.retain(is_recent);
        self.handovers.expected.retain(is_recent);
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
        // The new owner has the history from the log.
        self.put_back_history(channel, &mut owned, now);
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
            wanted_by: BTreeSet::new(),
        };
        self.handovers.passed.insert(Arc::clone(channel), (to, now));
        self.handovers.sent.insert(Arc::clone(channel), sent);
        self.counts.moved += 1;
    }

    /// Notifies a mirror of the new owner.
    pub(in crate::node) fn send_moved(&mut self, mirror: Uid, number: u32, to: Uid) {
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
    pub(in crate::node) fn resend_channels(&mut self, to: Uid, now: Duration) {
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
    pub(in crate::node) fn reclaim_channels(&mut self, from: Uid, now: Duration) {
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
            let settings = sent.owned.settings;
            let logged = self.logged_partition(&name, &settings);
            if logged.is_none() {
                sent.owned.start_epoch(self.draw_epoch());
            } else if !self.has_history(&name) {
                continue;
            }
            let nodes = sent.owned.members.values().map(|member| (member.node, 0));
            let transition = Transition::new(nodes, Vec::new(), now);
            self.handovers
                .transitions
                .insert((transition.until(), Arc::clone(&name)));
            sent.owned.transition = Some(transition);
            self.keys.restore(&name, sent.keys);
            self.owned.insert(&name, sent.owned);
            self.join_history(&name, settings, now);
        }
    }

    /// Forgets all channels that are on their way, after a pause of this node.
    pub(in crate::node) fn forget_sent(&mut self) {
        self.handovers.sent.clear();
        self.handovers.passed.clear();
        self.handovers.expected.clear();
        self.peers.values_mut().for_each(|peer| peer.handing = 0);
    }

    pub(in crate::node) fn taken(&mut self, from: Uid, channel: &Arc<str>, now: Duration) {
        let is_sent = self.handovers.sent_to(channel) == Some(from);
        if is_sent && let Some(mut sent) = self.handovers.sent.remove(channel) {
            sent.wanted_by.extend(self.owner_of(channel));
            if self.owner_of(channel) == Some(self.member.uid) {
                self.handovers.expected.insert(Arc::clone(channel), (from, now));
                let channel = Arc::clone(channel);
                self.send(from, Frame::Wanted { channel });
            }
            for uid in sent.wanted_by {
                if uid != from && uid != self.member.uid {
                    let (channel, passed_to) = (Arc::clone(channel), Some(from));
                    self.send(uid, Frame::Absent { channel, passed_to });
                }
            }
            if let Some(peer) = self.peers.get_mut(&from) {
                peer.handing = peer.handing.saturating_sub(sent.cost);
            }
            self.send_planned(now);
        }
    }

    /// A new owner needs a channel at once.
    pub(in crate::node) fn hand_over_wanted(&mut self, from: Uid, channel: Arc<str>, now: Duration) {
        if let Some(sent) = self.handovers.sent.get_mut(&channel) {
            sent.wanted_by.insert(from);
            return;
        }
        if self.owned.contains(&channel) && !self.owned.is_superseded(&channel) {
            self.move_channel(&channel, from, now);
        } else {
            let passed_to = self.handovers.passed_to(&channel).filter(|uid| *uid != from);
            self.send(from, Frame::Absent { channel, passed_to });
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
    let mut mirrors: BTreeMap<Uid, u32> = owned
        .interests
        .iter()
        .map(|interest| (interest.node, 0))
        .collect();
    if let Some(transition) = &owned.transition {
        mirrors.extend(transition.awaited());
        let missed = transition.publications();
        publications.extend(missed.map(|published| (0, Duration::ZERO, Arc::clone(published))));
    }
    let mirrors = mirrors.into_iter().take(limits::HANDOVER_MIRRORS);
    let head = HandoverHead {
        settings: owned.settings,
        epoch: owned.epoch,
        replaced: owned.replaced.clone(),
        offsets: offsets.map(|(offset, _)| (offset, floor)),
        idle: now.saturating_sub(owned.last_used),
        mirrors: mirrors.collect(),
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
