//! The channels with subscribers at this node.

mod progress;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::{Epoch, StreamPosition};
use ringmain_hub::protocol::{ClientInfo, Published};

use super::{Event, LinkId, Mutation, Node, SyncKind};
use crate::frame::{ChannelSettings, ChannelState, Frame, cost};
use crate::limits;
use crate::member::Uid;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Mirrors {
    by_name: BTreeMap<Arc<str>, Mirror>,
    /// The channels by the numbers of their subscriptions.
    numbers: BTreeMap<u32, Arc<str>>,
    last_number: u32,
    /// The records up to which owners have read the partitions of the log, for mirrors that are live there.
    progress: BTreeMap<(Uid, u16), (Epoch, u64)>,
    /// The partitions of the log; 0 without one.
    pub(super) partitions: u16,
}

#[derive(Debug)]
struct Mirror {
    /// The number of the last subscription; frames of earlier ones are dropped.
    number: u32,
    settings: ChannelSettings,
    /// The position after the last publication that the workers have received. `None`: there was no state yet, or no offsets.
    position: Option<StreamPosition>,
    /// The offset of the last publication or state that the workers have received. Progress of a log raises `position` alone.
    delivered: u64,
    /// The workers have received a state.
    was_synced: bool,
    /// The last state was reported as lost.
    is_lost: bool,
    state: MirrorState,
    /// The members at this node.
    members: BTreeMap<Arc<str>, Arc<ClientInfo>>,
    /// The time since which there are no subscribers.
    idle_since: Option<Duration>,
    /// The nodes that have named another owner since the last state.
    moves: u8,
    /// The new owner, by the word of the one that has sent it the channel.
    confirmed: Option<Confirmed>,
    /// Another node owns the channel in this node's view: until then the current owner should send the channel there.
    stays_until: Option<Duration>,
}

/// A new owner, which may not have received the channel yet.
#[derive(Clone, Copy, Debug)]
struct Confirmed {
    owner: Uid,
    /// The time until which the new owner is asked.
    until: Duration,
}

/// The nodes that a mirror asks one after the other before it waits for [`limits::RETRY_INTERVAL`].
const MOVES: u8 = 3;

/// See the parent module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MirrorState {
    /// Subscribed at this node, which has not replied.
    Asking {
        owner: Option<Uid>,
        since: Duration,
        /// The node does not own the channel: it is asked again, unless the view changes before.
        retry_at: Option<Duration>,
    },
    /// Receives publications of this node.
    Live { owner: Uid },
}

impl Mirrors {
    pub(super) fn len(&self) -> usize {
        self.by_name.len()
    }

    pub(super) fn set_idle(&mut self, channel: &str, now: Duration) {
        if let Some(mirror) = self.by_name.get_mut(channel) {
            mirror.idle_since = Some(now);
        }
    }

    fn by_number(&mut self, number: u32) -> Option<(Arc<str>, &mut Mirror)> {
        let name = Arc::clone(self.numbers.get(&number)?);
        let mirror = self.by_name.get_mut(&name)?;
        Some((name, mirror))
    }

    /// Returns the node whose publications the mirror of a channel receives.
    pub(super) fn live_owner(&self, channel: &str) -> Option<Uid> {
        match self.by_name.get(channel)?.state {
            MirrorState::Live { owner } => Some(owner),
            MirrorState::Asking { .. } => None,
        }
    }

    fn names_where(&self, is_selected: impl Fn(&Mirror) -> bool) -> Vec<Arc<str>> {
        let selected = self.by_name.iter().filter(|(_, mirror)| is_selected(mirror));
        selected.map(|(name, _)| Arc::clone(name)).collect()
    }

    fn add(&mut self, channel: &Arc<str>, settings: ChannelSettings, now: Duration) {
        let mirror = Mirror {
            number: 0,
            settings,
            position: None,
            delivered: 0,
            was_synced: false,
            is_lost: false,
            state: MirrorState::Asking {
                owner: None,
                since: now,
                retry_at: None,
            },
            members: BTreeMap::new(),
            idle_since: None,
            moves: 0,
            confirmed: None,
            stays_until: None,
        };
        self.by_name.insert(Arc::clone(channel), mirror);
    }
}

impl Mirror {
    fn owner(&self) -> Option<Uid> {
        match self.state {
            MirrorState::Asking { owner, .. } => owner,
            MirrorState::Live { owner } => Some(owner),
        }
    }

    fn asking_since(&self, now: Duration) -> Duration {
        match self.state {
            MirrorState::Asking { since, .. } => since,
            MirrorState::Live { .. } => now,
        }
    }

    /// Returns the relation of a state to the last one.
    fn relate(&self, state: &ChannelState) -> SyncKind {
        match (self.position, state.position) {
            _ if !self.was_synced => SyncKind::Initial,
            (Some(before), Some(now)) => {
                let is_covered = before.offset >= state.floor && before.offset <= now.offset;
                if before.epoch == now.epoch && is_covered {
                    SyncKind::Continued
                } else {
                    SyncKind::Gap
                }
            }
            // Without offsets nothing can be compared.
            (None, None) => SyncKind::Continued,
            (None, Some(_)) | (Some(_), None) => SyncKind::Gap,
        }
    }

    /// Returns whether a node is the new owner by the word of the one before.
    fn is_confirmed(&self, uid: Uid, now: Duration) -> bool {
        self.confirmed
            .is_some_and(|confirmed| confirmed.owner == uid && now < confirmed.until)
    }

    fn is_live(&self) -> bool {
        matches!(self.state, MirrorState::Live { .. })
    }
}

impl Node {
    pub(super) fn add_interest(
        &mut self,
        channel: Arc<str>,
        settings: ChannelSettings,
        needs_state: bool,
        now: Duration,
    ) {
        let has_room = self.mirrors.len() < limits::CHANNELS;
        match self.mirrors.by_name.get_mut(&channel) {
            Some(mirror) => {
                mirror.idle_since = None;
                let is_changed = std::mem::replace(&mut mirror.settings, settings) != settings;
                if is_changed || needs_state {
                    mirror.position = None;
                    mirror.was_synced = false;
                    self.ask_owner(&channel, now);
                } else if mirror.is_live() {
                    let state = ChannelState {
                        position: mirror.position,
                        floor: mirror.position.map_or(0, |position| position.offset),
                        publications: Vec::new(),
                    };
                    let kind = SyncKind::Continued;
                    self.emit(Event::Synced { channel, state, kind });
                }
            }
            None if has_room => {
                self.mirrors.add(&channel, settings, now);
                self.ask_owner(&channel, now);
            }
            // The caller's subscribers wait, and are rejected in the end.
            None => {}
        }
    }

    /// Subscribes at the owner, with the position of the mirror and its members.
    fn ask_owner(&mut self, channel: &Arc<str>, now: Duration) {
        self.ask_node(channel, self.owner_of(channel), now);
    }

    fn ask_node(&mut self, channel: &Arc<str>, owner: Option<Uid>, now: Duration) {
        // A node that is not linked is asked when it is, unless the channel has another owner before.
        let is_linked = owner.is_none_or(|uid| uid == self.member.uid || self.is_linked(uid));
        let retry_at = (!is_linked).then(|| now + limits::RETRY_INTERVAL);
        let Mirrors {
            by_name,
            numbers,
            last_number,
            progress,
            partitions,
        } = &mut self.mirrors;
        let Some(mirror) = by_name.get_mut(channel) else {
            return;
        };
        Mirrors::settle(progress, *partitions, channel, mirror);
        let previous = mirror.owner();
        mirror.state = MirrorState::Asking {
            owner,
            since: mirror.asking_since(now),
            retry_at,
        };
        mirror.stays_until = None;
        numbers.remove(&mirror.number);
        *last_number = last_number.wrapping_add(1);
        let number = *last_number;
        mirror.number = number;
        numbers.insert(number, Arc::clone(channel));
        let subscribe = Frame::Subscribe {
            number,
            channel: Arc::clone(channel),
            settings: mirror.settings,
            position: mirror.position,
        };
        let members: Vec<_> = mirror.members.values().cloned().collect();
        let has_members = mirror.settings.members;
        if let Some(previous) = previous.filter(|previous| Some(*previous) != owner) {
            let channel = Arc::clone(channel);
            self.send(previous, Frame::Unsubscribe { number, channel });
        }
        let Some(owner) = owner else { return };
        self.send(owner, subscribe);
        if !has_members {
            return;
        }
        let mut chunks = members.chunks(limits::MEMBERS_PER_FRAME).peekable();
        if chunks.peek().is_none() {
            self.send_members(owner, channel, &[], false);
        }
        while let Some(chunk) = chunks.next() {
            self.send_members(owner, channel, chunk, chunks.peek().is_some());
        }
    }

    fn send_members(&mut self, owner: Uid, channel: &Arc<str>, members: &[Arc<ClientInfo>], has_more: bool) {
        self.send(
            owner,
            Frame::Members {
                channel: Arc::clone(channel),
                members: members.to_vec(),
                has_more,
            },
        );
    }

    pub(super) fn join_local(&mut self, channel: &Arc<str>, info: Arc<ClientInfo>) {
        self.change_local(channel, Arc::from(&*info.client), Some(info));
    }

    pub(super) fn leave_local(&mut self, channel: &Arc<str>, client: &Arc<str>) {
        self.change_local(channel, Arc::clone(client), None);
    }

    fn change_local(&mut self, channel: &Arc<str>, client: Arc<str>, joined: Option<Arc<ClientInfo>>) {
        let Some(mirror) = self.mirrors.by_name.get_mut(channel) else {
            return;
        };
        let is_join = joined.is_some();
        let info = match joined {
            Some(info) => {
                mirror.members.insert(client, Arc::clone(&info));
                info
            }
            None => match mirror.members.remove(&client) {
                Some(info) => info,
                None => return,
            },
        };
        if !mirror.settings.members {
            return;
        }
        if let Some(owner) = mirror.owner() {
            let channel = Arc::clone(channel);
            self.send(
                owner,
                Frame::Member {
                    channel,
                    info,
                    is_join,
                },
            );
        }
    }

    pub(super) fn sync_mirror(
        &mut self,
        from: Uid,
        link: Option<LinkId>,
        number: u32,
        mut state: ChannelState,
    ) {
        let granted = link.map(|link| (link, state.cost()));
        let mirror = self.mirrors.by_number(number);
        let Some((channel, mirror)) = mirror.filter(|(_, mirror)| mirror.owner() == Some(from)) else {
            return self.grant_unused(granted);
        };
        mirror.state = MirrorState::Live { owner: from };
        (mirror.moves, mirror.confirmed) = (0, None);
        let kind = mirror.relate(&state);
        if kind == SyncKind::Continued
            && let Some(position) = mirror.position
        {
            state.publications.retain(|(offset, _)| *offset > position.offset);
            // The workers have the others, and nothing was published between their position and this one.
            state.floor = mirror.delivered.min(position.offset);
        }
        mirror.position = state.position;
        mirror.delivered = state.position.map_or(0, |position| position.offset);
        mirror.was_synced = true;
        mirror.is_lost = false;
        self.counts.gaps += u64::from(kind == SyncKind::Gap);
        let event = Event::Synced { channel, state, kind };
        self.events.push_back((event, granted));
    }

    /// Grants the cost of a frame that was dropped.
    fn grant_unused(&mut self, granted: Option<(LinkId, u64)>) {
        if let Some((link, cost)) = granted {
            self.grant(link, cost);
        }
    }

    pub(super) fn publication_for_mirror(
        &mut self,
        from: Uid,
        link: Option<LinkId>,
        number: u32,
        offset: u64,
        published: Arc<Published>,
    ) {
        let granted = link.map(|link| (link, cost(&published)));
        let delivers_doubles = self.has_planted(Mutation::DeliveredDoubles);
        let mirror = self.mirrors.by_number(number);
        let mirror = mirror.filter(|(_, mirror)| mirror.state == MirrorState::Live { owner: from });
        let Some((channel, mirror)) = mirror else {
            return self.grant_unused(granted);
        };
        if let Some(position) = &mut mirror.position
            && offset > 0
        {
            if offset <= position.offset {
                // The same publication again.
                return self.grant_unused(granted);
            }
            position.offset = offset;
            mirror.delivered = offset;
        }
        let event = Event::Publication {
            channel,
            offset,
            published,
        };
        if delivers_doubles
            && let Event::Publication {
                channel,
                offset,
                published,
            } = &event
            && offset % 8 == 1
        {
            let (channel, published) = (Arc::clone(channel), Arc::clone(published));
            let offset = *offset;
            self.emit(Event::Publication {
                channel,
                offset,
                published,
            });
        }
        self.events.push_back((event, granted));
    }

    pub(super) fn presence_for_mirror(
        &mut self,
        from: Uid,
        number: u32,
        info: Arc<ClientInfo>,
        is_join: bool,
    ) {
        let mirror = self.mirrors.by_number(number);
        if let Some((channel, _)) = mirror.filter(|(_, mirror)| mirror.owner() == Some(from)) {
            self.emit(Event::Presence {
                channel,
                info,
                is_join,
            });
        }
    }

    /// The node that was asked does not own the channel.
    pub(super) fn reject_mirror(&mut self, from: Uid, number: u32, now: Duration) {
        let Some((channel, mirror)) = self.mirrors.by_number(number) else {
            return;
        };
        if mirror.owner() != Some(from) {
            return;
        }
        if mirror.is_confirmed(from, now) {
            // It has not received the channel yet.
            return self.retry_mirror(number, now + limits::REQUEST_RETRY);
        }
        let owner = self.owner_of(&channel);
        if owner.is_some_and(|owner| owner != from) {
            return self.follow_owner(number, owner, now);
        }
        self.retry_mirror(number, now + limits::RETRY_INTERVAL);
    }

    /// The owner of a mirror's channel has sent it to another node.
    pub(super) fn move_mirror(&mut self, from: Uid, number: u32, to: Uid, now: Duration) {
        let mirror = self.mirrors.by_number(number);
        if let Some((_, mirror)) = mirror.filter(|(_, mirror)| mirror.owner() == Some(from)) {
            mirror.confirmed = Some(Confirmed {
                owner: to,
                until: now + limits::HOLD_TIME,
            });
            self.follow_owner(number, Some(to), now);
        }
    }

    fn follow_owner(&mut self, number: u32, to: Option<Uid>, now: Duration) {
        let is_reachable = to.is_some_and(|to| to == self.member.uid || self.is_linked(to));
        let Some((channel, mirror)) = self.mirrors.by_number(number) else {
            return;
        };
        if is_reachable && mirror.moves < MOVES {
            mirror.moves += 1;
            self.mirrors.settle_name(&channel);
            let Some((_, mirror)) = self.mirrors.by_number(number) else {
                return;
            };
            // The node that has named it has no subscription to end.
            mirror.state = MirrorState::Asking {
                owner: None,
                since: mirror.asking_since(now),
                retry_at: None,
            };
            self.ask_node(&channel, to, now);
        } else {
            mirror.moves = 0;
            self.retry_mirror(number, now + limits::RETRY_INTERVAL);
        }
    }

    fn retry_mirror(&mut self, number: u32, at: Duration) {
        let now = self.last_tick;
        if let Some((name, _)) = self.mirrors.by_number(number) {
            self.mirrors.settle_name(&name);
        }
        if let Some((_, mirror)) = self.mirrors.by_number(number) {
            mirror.state = MirrorState::Asking {
                owner: mirror.owner(),
                since: mirror.asking_since(now),
                retry_at: Some(at),
            };
        }
    }

    /// The link to an owner is lost.
    pub(super) fn suspend_mirrors(&mut self, owner: Uid, now: Duration) {
        let Mirrors {
            by_name,
            progress,
            partitions,
            ..
        } = &mut self.mirrors;
        for (name, mirror) in by_name {
            if mirror.state == (MirrorState::Live { owner }) {
                Mirrors::settle(progress, *partitions, name, mirror);
                mirror.state = MirrorState::Asking {
                    owner: Some(owner),
                    since: now,
                    retry_at: None,
                };
            }
        }
    }

    /// A link to a node is up.
    pub(super) fn ask_owner_again(&mut self, uid: Uid, now: Duration) {
        for name in self.mirrors.names_where(|mirror| mirror.owner() == Some(uid)) {
            self.ask_owner(&name, now);
        }
        self.send(uid, Frame::Resumed);
    }

    /// Subscribes mirrors whose owner has changed at the new one. Those that receive publications, or wait for a reply, stay until
    /// their owner has sent the channel to the new one.
    pub(super) fn move_mirrors(&mut self, now: Duration) {
        for name in self.mirrors.names_where(|_| true) {
            let owner = self.owner_of(&name);
            let asked = self.mirrors.by_name.get(&name).and_then(Mirror::owner);
            // It replies with the state, or with the new owner.
            let stays = asked.is_some_and(|asked| self.sends_channels(asked));
            // One that is gone does not reply, though another node has named it.
            let responds = asked.is_some_and(|asked| asked == self.member.uid || self.is_linked(asked));
            let Some(mirror) = self.mirrors.by_name.get_mut(&name) else {
                continue;
            };
            let is_confirmed = responds && asked.is_some_and(|uid| mirror.is_confirmed(uid, now));
            if asked == owner || is_confirmed {
                mirror.stays_until = None;
            } else if stays {
                mirror.stays_until.get_or_insert(now + limits::HANDOVER_TIME);
            } else {
                self.ask_owner(&name, now);
            }
        }
    }

    pub(super) fn tick_mirrors(&mut self, now: Duration) {
        let (mut late, mut lost, mut idle) = (Vec::new(), Vec::new(), Vec::new());
        for (name, mirror) in &mut self.mirrors.by_name {
            let is_idle = |since| now.saturating_sub(since) >= limits::MIRROR_IDLE;
            if mirror.idle_since.is_some_and(is_idle) {
                idle.push(Arc::clone(name));
                continue;
            }
            let MirrorState::Asking { since, retry_at, .. } = mirror.state else {
                if mirror.stays_until.is_some_and(|until| now >= until) {
                    late.push(Arc::clone(name));
                }
                continue;
            };
            if now.saturating_sub(since) >= limits::STALE_AFTER && mirror.was_synced && !mirror.is_lost {
                mirror.is_lost = true;
                lost.push(Arc::clone(name));
            }
            if retry_at.is_some_and(|retry_at| now >= retry_at) {
                late.push(Arc::clone(name));
            }
        }
        for channel in lost {
            self.emit(Event::Lost { channel });
        }
        for name in late {
            let confirmed = self
                .mirrors
                .by_name
                .get(&name)
                .and_then(|mirror| mirror.confirmed);
            match confirmed.filter(|confirmed| now < confirmed.until) {
                Some(confirmed) => self.ask_node(&name, Some(confirmed.owner), now),
                None => self.ask_owner(&name, now),
            }
        }
        for channel in idle {
            self.remove_mirror(&channel);
        }
    }

    fn remove_mirror(&mut self, channel: &Arc<str>) {
        let Some(mirror) = self.mirrors.by_name.remove(channel) else {
            return;
        };
        self.mirrors.numbers.remove(&mirror.number);
        if let Some(owner) = mirror.owner() {
            let (number, channel) = (mirror.number, Arc::clone(channel));
            self.send(owner, Frame::Unsubscribe { number, channel });
        }
    }
}
