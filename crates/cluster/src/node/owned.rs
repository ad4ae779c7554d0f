//! The channels that this node owns: offsets, history, members, and the nodes with mirrors.

mod deliver;
mod members;
mod queries;
mod transition;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, History, Recovery, StreamPosition};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::handover::Admission;
use super::{Mutation, Node};
use crate::frame::{ChannelSettings, ChannelState, Frame, Publish, PublishOutcome, cost};
use crate::limits;
use crate::log::reader::FloorMark;
use crate::member::Uid;
pub(super) use transition::Transition;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct OwnedChannels {
    channels: BTreeMap<Arc<str>, Owned>,
    /// The channel at which the last expiry stopped.
    expired_to: Option<Arc<str>>,
}

#[derive(Debug)]
pub(super) struct Owned {
    pub(super) settings: ChannelSettings,
    pub(super) epoch: Epoch,
    /// `None`: publications have no offsets.
    pub(super) history: Option<History<Arc<Published>>>,
    pub(super) interests: Vec<Interest>,
    pub(super) members: BTreeMap<Arc<str>, OwnedMember>,
    /// Members that a node has announced in parts, before the last one.
    pub(super) announced: BTreeMap<Uid, Vec<Arc<ClientInfo>>>,
    /// Earlier epochs of the channel, the newest last.
    pub(super) replaced: Vec<Epoch>,
    pub(super) last_used: Duration,
    /// The node was paused: another one may be the owner, whose state is the newer one.
    pub(super) is_superseded: bool,
    /// The channel has moved here, and mirrors have not subscribed yet.
    pub(super) transition: Option<Transition>,
    /// The history is that of a log, which gives the offsets and the epoch.
    pub(super) log: Option<FloorMark>,
}

/// A node with a mirror.
#[derive(Debug)]
pub(super) struct Interest {
    pub(super) node: Uid,
    /// The number of the channel on the link.
    pub(super) number: u32,
    /// The first offset that was not sent for want of credit; 0 if publications have no offsets.
    pub(super) marked: Option<u64>,
}

#[derive(Clone, Debug)]
pub(super) struct OwnedMember {
    pub(super) node: Uid,
    pub(super) info: Arc<ClientInfo>,
}

impl OwnedChannels {
    pub(super) fn len(&self) -> usize {
        self.channels.len()
    }

    pub(super) fn contains(&self, channel: &str) -> bool {
        self.channels.contains_key(channel)
    }

    pub(super) fn get_mut(&mut self, channel: &str) -> Option<&mut Owned> {
        self.channels.get_mut(channel)
    }

    pub(super) fn insert(&mut self, channel: &Arc<str>, owned: Owned) {
        self.channels.insert(Arc::clone(channel), owned);
    }

    pub(super) fn remove(&mut self, channel: &str) -> Option<Owned> {
        self.channels.remove(channel)
    }

    pub(super) fn is_superseded(&self, channel: &str) -> bool {
        let owned = self.channels.get(channel);
        owned.is_some_and(|owned| owned.is_superseded)
    }

    pub(super) fn has_interest(&self, channel: &str, node: Uid) -> bool {
        let owned = self.channels.get(channel);
        owned.is_some_and(|owned| owned.interests.iter().any(|interest| interest.node == node))
    }

    /// Marks all channels as superseded, after a pause, except those in a log: the log has their state.
    pub(super) fn supersede(&mut self) {
        let without_log = self.channels.values_mut().filter(|owned| owned.log.is_none());
        without_log.for_each(|owned| owned.is_superseded = true);
    }

    pub(super) fn names(&self) -> Vec<Arc<str>> {
        self.channels.keys().cloned().collect()
    }

    /// Removes the mirrors of a node.
    pub(super) fn remove_interests(&mut self, node: Uid) {
        for owned in self.channels.values_mut() {
            owned.interests.retain(|interest| interest.node != node);
            owned.announced.remove(&node);
        }
    }

    /// Removes expired channels, of up to [`limits::CHANNELS_PER_TICK`] that are checked, and returns them.
    pub(super) fn expire(&mut self, now: Duration) -> Vec<(Arc<str>, Owned)> {
        use std::ops::Bound::{Excluded, Unbounded};
        let from = self.expired_to.take();
        let from = from.as_deref().map_or(Unbounded, Excluded);
        let mut expired = Vec::new();
        let mut checked = 0;
        for (name, owned) in self.channels.range_mut::<str, _>((from, Unbounded)) {
            if owned.is_expired(now) {
                expired.push(Arc::clone(name));
            }
            checked += 1;
            if checked == limits::CHANNELS_PER_TICK {
                self.expired_to = Some(Arc::clone(name));
                break;
            }
        }
        let removed = expired.into_iter();
        removed
            .filter_map(|name| self.channels.remove(&name).map(|owned| (name, owned)))
            .collect()
    }
}

impl Owned {
    fn position(&self) -> Option<StreamPosition> {
        self.history.as_ref().map(History::position)
    }

    pub(super) fn has_published(&self) -> bool {
        self.position().is_some_and(|position| position.offset > 0)
    }

    fn is_expired(&mut self, now: Duration) -> bool {
        if let Some(history) = &mut self.history {
            history.expire(now);
        }
        let retained = match (&self.history, self.settings.history) {
            (Some(history), Some(options)) if !history.is_empty() => options.ttl,
            _ => Duration::ZERO,
        };
        let retained = match self.has_published() {
            true => retained.max(self.settings.position_ttl),
            false => retained,
        };
        let is_unused = self.interests.is_empty() && self.members.is_empty() && self.transition.is_none();
        // The reader of a log retains histories itself.
        let retained = match self.log {
            Some(_) => Duration::ZERO,
            None => retained,
        };
        is_unused && now >= self.last_used + retained
    }

    fn apply_settings(&mut self, settings: ChannelSettings, now: Duration) {
        if self.settings == settings {
            return;
        }
        self.settings = settings;
        match (&mut self.history, settings.history) {
            (Some(history), Some(options)) => history.set_options(options, now),
            (history, Some(options)) => *history = Some(History::new(self.epoch, options)),
            (history, None) => *history = None,
        }
        if !settings.members {
            self.members.clear();
        }
    }

    /// Starts a new epoch, in which no position of the one before recovers.
    pub(super) fn start_epoch(&mut self, epoch: Epoch) {
        self.remember(self.epoch);
        self.epoch = epoch;
        if let Some(history) = &mut self.history {
            history.start_epoch(epoch);
        }
    }

    /// Raises the floor to that of the log's reader.
    pub(super) fn raise_log_floor(&mut self, floor: u64) {
        if let (Some(history), Some(mark)) = (&mut self.history, &mut self.log) {
            mark.raise(history, floor);
        }
    }

    pub(super) fn remember(&mut self, epoch: Epoch) {
        self.replaced.retain(|replaced| *replaced != epoch);
        self.replaced.push(epoch);
        if self.replaced.len() > limits::REPLACED_EPOCHS {
            self.replaced.remove(0);
        }
    }

    /// Returns the state for a mirror at a position: the publications that it has missed, or those that are retained.
    fn state(&mut self, from: Option<StreamPosition>, now: Duration) -> ChannelState {
        let Some(history) = &mut self.history else {
            return ChannelState {
                position: None,
                floor: 0,
                publications: Vec::new(),
            };
        };
        let copy = |items: Vec<(u64, &Arc<Published>)>| -> Vec<(u64, Arc<Published>)> {
            items
                .into_iter()
                .map(|(offset, item)| (offset, Arc::clone(item)))
                .collect()
        };
        let position = history.position();
        if let Some(from) = from
            && let Recovery::All(missed) =
                history.recover(from.offset, Some(from.epoch), limits::CATCH_UP_PUBLICATIONS, now)
            && missed.iter().map(|(_, item)| item.data.len()).sum::<usize>() <= limits::CATCH_UP_BYTES
        {
            let publications = copy(missed);
            return ChannelState {
                position: Some(position),
                // A mirror behind it has missed nothing if nothing was published between.
                floor: history.covered_from(from.offset),
                publications,
            };
        }
        history.expire(now);
        let (mut floor, mut bytes, mut publications) = (history.lowest_recoverable(), 0, Vec::new());
        // Those at or below the floor are of an earlier epoch.
        let retained = history
            .retained()
            .filter(|(offset, ..)| *offset > history.floor());
        let mut retained: Vec<_> = retained.map(|(offset, item, _)| (offset, item)).collect();
        while let Some((offset, item)) = retained.pop() {
            bytes += item.data.len();
            if bytes > limits::CATCH_UP_BYTES || publications.len() >= limits::CATCH_UP_PUBLICATIONS {
                floor = offset;
                break;
            }
            publications.push((offset, Arc::clone(item)));
        }
        publications.reverse();
        ChannelState {
            position: Some(position),
            floor,
            publications,
        }
    }
}

impl Node {
    /// Returns a channel of this node, which is created if there is room. `Err`: the outcome for a publication.
    fn owned_channel(
        &mut self,
        channel: &Arc<str>,
        settings: ChannelSettings,
        now: Duration,
    ) -> Result<&mut Owned, PublishOutcome> {
        let logged = self.logged_partition(channel, &settings);
        if logged.is_some_and(|partition| !self.can_serve_history(channel, partition)) {
            return Err(PublishOutcome::Refused);
        }
        if !self.owned.channels.contains_key(channel) {
            if self.owned.channels.len() >= limits::CHANNELS {
                return Err(PublishOutcome::ChannelLimit);
            }
            let epoch = self.draw_epoch();
            let owned = Owned {
                settings,
                epoch,
                history: settings
                    .history
                    .filter(|_| logged.is_none())
                    .map(|options| History::new(epoch, options)),
                interests: Vec::new(),
                members: BTreeMap::new(),
                announced: BTreeMap::new(),
                replaced: Vec::new(),
                last_used: now,
                is_superseded: false,
                transition: None,
                log: None,
            };
            self.owned.channels.insert(Arc::clone(channel), owned);
        }
        self.join_history(channel, settings, now);
        let owned = self
            .owned
            .channels
            .get_mut(channel)
            .ok_or(PublishOutcome::Refused)?;
        owned.apply_settings(settings, now);
        Ok(owned)
    }

    pub(super) fn publish_owned(&mut self, publish: Publish, now: Duration) -> PublishOutcome {
        let Publish {
            channel,
            settings,
            published,
            options,
        } = publish;
        if let Some(idempotency) = &options.idempotency
            && let Some(position) = self.keys.find(&channel, idempotency, now)
        {
            return PublishOutcome::Published(position);
        }
        let drops_floor = self.has_planted(Mutation::DroppedFloor);
        let owned = match self.owned_channel(&channel, settings, now) {
            Ok(owned) => owned,
            Err(outcome) => return outcome,
        };
        owned.last_used = now;
        let offset = match &mut owned.history {
            Some(history) if !options.transient => {
                let bytes = published.data.len();
                history.publish(Arc::clone(&published), bytes, now)
            }
            _ => 0,
        };
        if drops_floor && let Some(history) = &mut owned.history {
            forget_floor(history);
        }
        if offset == 0
            && let Some(transition) = &mut owned.transition
        {
            transition.retain(&published);
        }
        let position = owned.position().filter(|_| offset > 0);
        self.fan_out(&channel, offset, &published, options.transient, now);
        if let Some(idempotency) = options.idempotency {
            self.keys.add(&channel, idempotency, position, now);
        }
        PublishOutcome::Published(position)
    }

    pub(super) fn subscribe_mirror(
        &mut self,
        from: Uid,
        number: u32,
        channel: Arc<str>,
        settings: ChannelSettings,
        position: Option<StreamPosition>,
        now: Duration,
    ) {
        let logged = self.logged_partition(&channel, &settings);
        let admission = self.admit(&channel, logged.is_some(), now);
        if matches!(admission, Admission::Elsewhere | Admission::Hold) {
            return self.reject_subscription(from, number, &channel);
        }
        if admission == Admission::Unready
            || logged.is_some_and(|partition| self.must_wait_for_log(partition, position, now))
        {
            // It subscribes again.
            self.send(from, Frame::NotOwner { number });
            return;
        }
        let is_known = self.owned.channels.contains_key(&channel);
        let Ok(owned) = self.owned_channel(&channel, settings, now) else {
            self.send(from, Frame::NotOwner { number });
            return;
        };
        owned.last_used = now;
        owned.interests.retain(|interest| interest.node != from);
        self.note_foreign_epoch(&channel, position, is_known, now);
        self.refresh_history(&channel);
        let Some(owned) = self.owned.channels.get_mut(&channel) else {
            return;
        };
        owned.interests.push(Interest {
            node: from,
            number,
            marked: None,
        });
        // The state waits for credit like publications: states of many channels would otherwise fill a slow link.
        let first = match position {
            Some(position) if position.epoch == owned.epoch => position.offset + 1,
            _ => 0,
        };
        let can_wait = owned.history.is_some() && owned.transition.is_none();
        if can_wait && !self.has_credit(from) {
            return self.mark_interest(from, &channel, first, now);
        }
        let Some(owned) = self.owned.channels.get_mut(&channel) else {
            return;
        };
        let state = owned.state(position, now);
        let mut missed = Vec::new();
        if let Some(transition) = &mut owned.transition {
            missed = transition.take_missed(from);
            if transition.is_empty() {
                owned.transition = None;
            }
        }
        self.charge(from, state.cost());
        self.send(from, Frame::State { number, state });
        self.send_without_offsets(from, number, missed);
    }

    /// Notes the epoch of a mirror that is not one of the channel: another node has been its owner.
    fn note_foreign_epoch(
        &mut self,
        channel: &Arc<str>,
        position: Option<StreamPosition>,
        is_known: bool,
        now: Duration,
    ) {
        let owned = self.owned.channels.get_mut(channel);
        // The epoch of a log is that of its readers.
        let owned = owned.filter(|owned| owned.log.is_none());
        let before = position.filter(|position| position.offset > 0);
        let (Some(owned), Some(before)) = (owned, before) else {
            return;
        };
        let is_foreign = before.epoch != owned.epoch && !owned.replaced.contains(&before.epoch);
        if is_foreign && is_known && owned.history.is_some() {
            // Another node has published in the channel meanwhile.
            self.replace_epoch(channel, before.epoch, now);
        } else if is_foreign {
            owned.remember(before.epoch);
        }
    }

    fn send_without_offsets(&mut self, to: Uid, number: u32, missed: Vec<Arc<Published>>) {
        for published in missed {
            self.charge(to, cost(&published));
            let offset = 0;
            self.send(
                to,
                Frame::Publication {
                    number,
                    offset,
                    published,
                },
            );
        }
    }

    /// Notifies a mirror that this node does not own its channel. It follows the channel only to a node that has it.
    fn reject_subscription(&mut self, from: Uid, number: u32, channel: &str) {
        match self.handovers.passed_to(channel) {
            Some(owner) => self.send_moved(from, number, owner),
            None => drop(self.send(from, Frame::NotOwner { number })),
        }
    }

    /// Ends the wait for mirrors that have not subscribed in time: their members leave.
    pub(super) fn end_transitions(&mut self, now: Duration) {
        while let Some((until, _)) = self.handovers.transitions.first()
            && *until <= now
            && let Some((_, channel)) = self.handovers.transitions.pop_first()
        {
            let Some(owned) = self.owned.channels.get_mut(&channel) else {
                continue;
            };
            let is_over = |transition: &mut Transition| transition.until <= now;
            let Some(transition) = owned.transition.take_if(is_over) else {
                continue;
            };
            for node in transition.awaited.into_keys() {
                if !self.owned.has_interest(&channel, node) {
                    self.replace_members(node, &channel, Vec::new());
                }
            }
        }
    }

    pub(super) fn unsubscribe_mirror(&mut self, from: Uid, channel: &str, now: Duration) {
        if let Some(owned) = self.owned.channels.get_mut(channel) {
            owned.interests.retain(|interest| interest.node != from);
            owned.last_used = now;
            if let Some(transition) = &mut owned.transition {
                transition.awaited.remove(&from);
            }
        }
        self.replace_members(from, channel, Vec::new());
    }

    /// Starts a new epoch and sends all mirrors the gap.
    pub(super) fn replace_epoch(&mut self, channel: &Arc<str>, other: Epoch, now: Duration) {
        let epoch = self.draw_epoch();
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        owned.remember(other);
        owned.start_epoch(epoch);
        self.send_state_to_all(channel, now);
    }

    /// A former owner has published in another epoch.
    pub(super) fn end_epoch(&mut self, channel: &Arc<str>, epoch: Epoch) {
        let now = self.last_tick;
        let owned = self
            .owned
            .channels
            .get(channel)
            .filter(|owned| owned.log.is_none());
        if owned.is_some_and(|owned| owned.epoch != epoch && !owned.replaced.contains(&epoch)) {
            self.replace_epoch(channel, epoch, now);
        }
    }

    /// Starts new epochs in all channels after a pause of this node.
    pub(super) fn restart_epochs(&mut self) {
        let now = self.last_tick;
        for name in self.owned.names() {
            let owned = self.owned.channels.get(&name).filter(|owned| owned.log.is_none());
            if let Some(epoch) = owned.map(|owned| owned.epoch) {
                self.replace_epoch(&name, epoch, now);
            }
        }
    }

    /// Ends a channel that another node owns now, and its epoch.
    pub(super) fn end_channel(&mut self, channel: &Arc<str>) {
        let Some(mut owned) = self.owned.channels.remove(channel) else {
            return;
        };
        let is_logged = owned.log.is_some();
        let now = self.last_tick;
        self.put_back_history(channel, &mut owned, now);
        self.keys.take(channel);
        for interest in &owned.interests {
            let number = interest.number;
            self.send(interest.node, Frame::NotOwner { number });
        }
        if owned.is_superseded {
            // Its mirrors have missed publications of the other owner, which need no new epoch for that.
            return self.mirrors.forget_position(channel);
        }
        if !is_logged
            && owned.has_published()
            && let Some(owner) = self.owner_of(channel)
        {
            let (channel, epoch) = (Arc::clone(channel), owned.epoch);
            self.send(owner, Frame::Ended { channel, epoch });
        }
    }
}

/// The planted fault: rebuilds the history with a floor of zero.
pub(super) fn forget_floor(history: &mut History<Arc<Published>>) {
    let position = history.position();
    let retained: Vec<_> = history
        .retained()
        .map(|(offset, item, at)| (offset, Arc::clone(item), at))
        .collect();
    let mut without = History::restored(position, 0, history.options());
    for (offset, item, at) in retained {
        let bytes = item.data.len();
        without.push_retained(offset, item, bytes, at);
    }
    *history = without;
}
