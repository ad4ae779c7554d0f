//! The other nodes: links, credit, beats, and the view of the membership.
//!
//! ```text
//! link up ─▶ Alive ── silent 2 s ──▶ Suspected ── silent 3 s ──▶ removed: members leave, channels have other owners
//!              ▲───────── heard ─────────┘
//! ```
//!
//! A lost link alone removes no node: it may connect again, and its mirrors then catch up. A node whose address refuses connections as well
//! is removed earlier ([`limits::REFUSED_AFTER`]).

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::{Event, LinkId, Mutation, Node};
use crate::frame::Frame;
use crate::limits;
use crate::member::{Member, Phase, Status, Uid};

/// Another node.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) member: Member,
    pub(super) status: Status,
    /// The version of the frames in both directions.
    pub(super) version: u16,
    /// The channels that move to it, in order, and the time since which there are some.
    pub(super) plan: VecDeque<Arc<str>>,
    pub(super) planned_since: Option<Duration>,
    /// The cost of channels that it has not taken yet.
    pub(super) handing: u64,
    /// Its last [`Frame::HandedOver`].
    pub(super) settled: Option<(u32, u32)>,
    /// The nodes that are linked to it.
    known: Vec<Uid>,
    pub(super) link: Option<Link>,
    heard: Duration,
    is_suspected: bool,
}

/// The connection to another node.
#[derive(Debug)]
pub(super) struct Link {
    id: LinkId,
    /// True if this node has opened it.
    is_dialed: bool,
    pub(super) queue: VecDeque<Frame>,
    /// The bytes of publications that may be sent. May be negative: a catch-up is not divided.
    credit: i64,
    /// The time at which the credit was used up while publications wait.
    stalled_since: Option<Duration>,
    /// The bytes that were processed and not granted again yet.
    processed: u64,
    last_beat: Duration,
    /// The time of the last [`Frame::Credit`] for bytes alone.
    last_progress: Duration,
    /// The state of this node that the peer has received.
    sent_status: Option<Status>,
    /// The nodes that the peer has received.
    sent_peers: Vec<Uid>,
    /// The last [`Frame::HandedOver`] that was sent.
    pub(super) sent_marker: Option<(u32, u32)>,
    /// Channels that wait for credit, in order.
    marked: VecDeque<Arc<str>>,
}

/// The first frame of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello {
    /// The node.
    pub member: Member,
    /// The version of its frames.
    pub version: u16,
}

impl Link {
    fn new(id: LinkId, is_dialed: bool, now: Duration) -> Link {
        Link {
            id,
            is_dialed,
            queue: VecDeque::new(),
            credit: limits::WINDOW_BYTES as i64,
            stalled_since: None,
            processed: 0,
            last_beat: now,
            last_progress: now,
            sent_status: None,
            sent_peers: Vec::new(),
            sent_marker: None,
            marked: VecDeque::new(),
        }
    }

    fn send_status(&mut self, status: Status, version: u16) {
        let frame = Frame::Status(status);
        if self.sent_status != Some(status) && frame.version() <= version {
            self.sent_status = Some(status);
            self.queue.push_back(frame);
        }
    }
}

impl Node {
    /// Adds a link after its `Hello` was received. Returns `false` if it must be closed: another link to the node is preferred, the node is
    /// this one, or there are too many.
    pub fn link_up(&mut self, id: LinkId, hello: Hello, is_dialed: bool, now: Duration) -> bool {
        let Hello { member, version } = hello;
        let version = version.min(self.version);
        let uid = member.uid;
        if uid == self.member.uid || (!self.peers.contains_key(&uid) && self.peers.len() + 1 >= limits::NODES)
        {
            return false;
        }
        let link = Link::new(id, is_dialed, now);
        let dials = self.member.uid < uid;
        let mut is_new = false;
        let peer = self.peers.entry(uid).or_insert_with(|| {
            is_new = true;
            Peer {
                member: member.clone(),
                // A node of version 1 has no phases; another one sends its own first.
                status: Status {
                    phase: if version < 2 {
                        Phase::Active
                    } else {
                        Phase::Joining
                    },
                    ..Status::default()
                },
                version,
                plan: VecDeque::new(),
                planned_since: None,
                handing: 0,
                settled: None,
                known: Vec::new(),
                link: None,
                heard: now,
                is_suspected: false,
            }
        });
        if let Some(current) = &peer.link {
            // Both have opened one: the one that the node with the smaller identity has opened is kept, by both. Of two by the same node the
            // older one is broken.
            if current.is_dialed != is_dialed && current.is_dialed == dials {
                return false;
            }
            let current = current.id;
            self.drop_link(current, now);
            self.emit(Event::Close(current));
        }
        if let Some(peer) = self.peers.get_mut(&uid) {
            (peer.member, peer.link, peer.version) = (member, Some(link), version);
            (peer.heard, peer.is_suspected) = (now, false);
        }
        self.links.insert(id, uid);
        self.send_status();
        self.send_peers();
        self.resend_channels(uid, now);
        if is_new {
            self.apply_view(now);
        }
        self.ask_owner_again(uid, now);
        self.send_planned(now);
        self.flush_requests(now);
        self.run_loopback(now);
        true
    }

    /// Notes that a link was closed by its peer or has failed.
    pub fn link_down(&mut self, id: LinkId, now: Duration) {
        self.drop_link(id, now);
        self.run_loopback(now);
    }

    fn drop_link(&mut self, id: LinkId, now: Duration) {
        let Some(uid) = self.links.remove(&id) else {
            return;
        };
        if let Some(peer) = self.peers.get_mut(&uid) {
            peer.link = None;
        }
        // Its mirrors subscribe again with their positions, and its members are announced again.
        self.owned.remove_interests(uid);
        self.drop_incoming(uid);
        self.fail_requests(uid, now);
        self.finish_calls_of(uid);
        self.suspend_mirrors(uid, now);
    }

    /// Returns the next frame for a link.
    pub fn poll_send(&mut self, id: LinkId) -> Option<Frame> {
        let uid = self.links.get(&id)?;
        self.peers.get_mut(uid)?.link.as_mut()?.queue.pop_front()
    }

    /// Appends the frames for a link, encoded.
    pub fn encode_frames(&mut self, id: LinkId, out: &mut Vec<u8>) {
        while let Some(frame) = self.poll_send(id) {
            frame.encode(out);
        }
    }

    /// Returns whether a node sends its channels to new owners.
    pub(super) fn sends_channels(&self, uid: Uid) -> bool {
        let peer = self.peers.get(&uid);
        uid == self.member.uid || peer.is_some_and(|peer| peer.version >= 2 && peer.link.is_some())
    }

    /// Returns whether a node is linked.
    #[must_use]
    pub fn is_linked(&self, uid: Uid) -> bool {
        self.peers.get(&uid).is_some_and(|peer| peer.link.is_some())
    }

    pub(super) fn heard(&mut self, uid: Uid, now: Duration) {
        if let Some(peer) = self.peers.get_mut(&uid) {
            peer.heard = now;
            if std::mem::take(&mut peer.is_suspected) {
                self.send_marked(uid, now);
            }
        }
    }

    /// Notes that bytes have arrived on a link, whether or not they complete a frame. Its sender is notified, at most once each
    /// [`limits::BEAT_INTERVAL`].
    pub fn note_bytes(&mut self, link: LinkId, now: Duration) {
        let Some(&uid) = self.links.get(&link) else {
            return;
        };
        self.heard(uid, now);
        if let Some(link) = self.peers.get_mut(&uid).and_then(|peer| peer.link.as_mut())
            && now.saturating_sub(link.last_progress) >= limits::BEAT_INTERVAL
        {
            link.last_progress = now;
            link.queue.push_back(Frame::Credit(0));
        }
    }

    /// Notes that the address of a node has refused all connections for [`limits::REFUSED_AFTER`]. If the node has no link and was silent for as
    /// long, its process has ended.
    pub fn note_refused(&mut self, uid: Uid, now: Duration) {
        let has_ended = self.peers.get(&uid).is_some_and(|peer| {
            peer.link.is_none() && now.saturating_sub(peer.heard) >= limits::REFUSED_AFTER
        });
        if has_ended {
            self.remove_peer(uid, now);
            self.run_loopback(now);
        }
    }

    /// Grants a peer the bytes of an event that was taken.
    pub(super) fn grant(&mut self, id: LinkId, cost: u64) {
        if self.has_planted(Mutation::ForgottenCredit) {
            return;
        }
        let Some(peer) = self.links.get(&id).and_then(|uid| self.peers.get_mut(uid)) else {
            return;
        };
        if let Some(link) = peer.link.as_mut().filter(|link| link.id == id) {
            link.processed += cost;
            if link.processed >= limits::GRANT_BYTES {
                let bytes = std::mem::take(&mut link.processed);
                link.queue.push_back(Frame::Credit(bytes));
            }
        }
    }

    pub(super) fn receive_credit(&mut self, from: Uid, bytes: u64, now: Duration) {
        let link = self.peers.get_mut(&from).and_then(|peer| peer.link.as_mut());
        if let Some(link) = link {
            // A peer cannot grant more than the window.
            let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
            link.credit = link.credit.saturating_add(bytes).min(limits::WINDOW_BYTES as i64);
            // The peer still receives, if slowly.
            link.stalled_since = link.stalled_since.map(|_| now);
            self.send_marked(from, now);
        }
    }

    /// Takes credit for publications of a channel. `false`: there is none, and the channel waits for it.
    pub(super) fn take_credit(&mut self, to: Uid, cost: u64) -> bool {
        if to == self.member.uid {
            return true;
        }
        let Some(peer) = self.peers.get_mut(&to) else {
            return false;
        };
        let is_suspected = peer.is_suspected;
        let Some(link) = &mut peer.link else { return false };
        if is_suspected || link.credit <= 0 {
            return false;
        }
        link.credit -= cost as i64;
        self.counts.crossed += 1;
        true
    }

    /// Returns whether publications may be sent to a node now.
    pub(super) fn has_credit(&self, to: Uid) -> bool {
        let peer = self.peers.get(&to);
        to == self.member.uid
            || peer.is_some_and(|peer| {
                let has_credit = peer.link.as_ref().is_some_and(|link| link.credit > 0);
                has_credit && !peer.is_suspected
            })
    }

    /// Takes credit for a reply, which is sent in any case.
    pub(super) fn charge(&mut self, to: Uid, cost: u64) {
        if let Some(link) = self.peers.get_mut(&to).and_then(|peer| peer.link.as_mut()) {
            link.credit = link.credit.saturating_sub(cost as i64);
        }
    }

    /// Adds a channel to those that wait for credit.
    pub(super) fn mark(&mut self, to: Uid, channel: Arc<str>, now: Duration) {
        if let Some(link) = self.peers.get_mut(&to).and_then(|peer| peer.link.as_mut()) {
            link.stalled_since.get_or_insert(now);
            link.marked.push_back(channel);
        }
    }

    /// Sends the publications of channels that wait for credit, as far as there is some.
    fn send_marked(&mut self, to: Uid, now: Duration) {
        loop {
            let Some(peer) = self.peers.get_mut(&to) else {
                return;
            };
            let Some(link) = &mut peer.link else { return };
            if peer.is_suspected || link.credit <= 0 {
                return;
            }
            let Some(channel) = link.marked.pop_front() else {
                link.stalled_since = None;
                return;
            };
            link.stalled_since = Some(now);
            self.send_missed(to, &channel, now);
        }
    }

    pub(super) fn tick_peers(&mut self, now: Duration, paused: Duration) {
        let mut silent = Vec::new();
        let mut stalled = Vec::new();
        for (uid, peer) in &mut self.peers {
            if paused > limits::SUSPECT_AFTER {
                // Frames of the pause have not been read yet.
                peer.heard = peer.heard.max(now.saturating_sub(limits::BEAT_INTERVAL));
            }
            let silence = now.saturating_sub(peer.heard);
            peer.is_suspected = silence >= limits::SUSPECT_AFTER;
            if silence >= limits::GONE_AFTER {
                silent.push(*uid);
            }
            let Some(link) = &mut peer.link else { continue };
            if now.saturating_sub(link.last_beat) >= limits::BEAT_INTERVAL {
                link.last_beat = now;
                link.queue.push_back(Frame::Beat);
                link.send_status(self.status, peer.version);
            }
            let is_stalled = |since| now.saturating_sub(since) >= limits::STALLED_AFTER;
            if !link.marked.is_empty() && link.stalled_since.is_some_and(is_stalled) {
                stalled.push(link.id);
            }
        }
        self.send_peers();
        for id in stalled {
            self.drop_link(id, now);
            self.emit(Event::Close(id));
        }
        for uid in silent {
            self.remove_peer(uid, now);
        }
    }

    fn remove_peer(&mut self, uid: Uid, now: Duration) {
        if let Some(id) = self
            .peers
            .get(&uid)
            .and_then(|peer| peer.link.as_ref())
            .map(|link| link.id)
        {
            self.drop_link(id, now);
            self.emit(Event::Close(id));
        }
        // A node that has left is not missing.
        let removed = self.peers.remove(&uid);
        let has_left = removed.is_some_and(|peer| peer.status.phase == Phase::Leaving);
        self.counts.removed += u64::from(!has_left);
        self.remove_members_of(uid);
        self.mirrors.forget_progress(uid);
        self.reclaim_channels(uid, now);
        self.apply_view(now);
    }

    /// Sends the state of this node to all nodes that have not received it.
    pub(super) fn send_status(&mut self) {
        for peer in self.peers.values_mut() {
            if let Some(link) = &mut peer.link {
                link.send_status(self.status, peer.version);
            }
        }
    }

    /// Applies the state of another node.
    pub(super) fn change_status(&mut self, from: Uid, status: Status, now: Duration) {
        let Some(peer) = self.peers.get_mut(&from) else {
            return;
        };
        let before = std::mem::replace(&mut peer.status, status);
        if before.phase != status.phase {
            self.apply_view(now);
        } else if before.serial != status.serial {
            self.send_planned(now);
        }
    }

    pub(super) fn set_known(&mut self, from: Uid, known: Vec<Uid>) {
        if let Some(peer) = self.peers.get_mut(&from) {
            peer.known = known;
        }
    }

    /// Reports to all mirrors how far a partition of the log is read, where they have received all publications.
    pub(super) fn send_progress(&mut self, progress: &Frame) {
        self.loopback.push_back(progress.clone());
        for peer in self.peers.values_mut() {
            if progress.version() <= peer.version
                && let Some(link) = &mut peer.link
                && link.marked.is_empty()
            {
                link.queue.push_back(progress.clone());
            }
        }
    }

    /// Sends the nodes that are linked to this one to all nodes that have not received them.
    fn send_peers(&mut self) {
        let linked = self.peers.iter().filter(|(_, peer)| peer.link.is_some());
        let linked: Vec<Uid> = linked.map(|(uid, _)| *uid).collect();
        for peer in self.peers.values_mut() {
            if peer.version >= 2
                && let Some(link) = &mut peer.link
                && link.sent_peers != linked
            {
                link.sent_peers.clone_from(&linked);
                link.queue.push_back(Frame::Peers(linked.clone()));
            }
        }
    }

    /// Lets this node own channels once it is linked to all nodes that others know.
    pub(super) fn tick_phase(&mut self, now: Duration) {
        if self.status.phase != Phase::Joining {
            return;
        }
        let waited = now.saturating_sub(self.joining_since);
        let linked = self.peers.iter().filter(|(_, peer)| peer.link.is_some());
        let known = linked.flat_map(|(_, peer)| &peer.known);
        let mut unlinked = known.filter(|uid| **uid != self.member.uid && !self.is_linked(**uid));
        let is_linked = unlinked.next().is_none();
        if waited >= limits::STARTUP_GRACE && (is_linked || waited >= limits::JOIN_TIME) {
            self.set_phase(Phase::Active, now);
        }
    }

    pub(super) fn set_phase(&mut self, phase: Phase, now: Duration) {
        self.status.phase = phase;
        self.status.serial += 1;
        self.send_status();
        self.apply_view(now);
    }

    /// Leaves the channels to other nodes after a pause in which they have removed this one.
    pub(super) fn join_again(&mut self, now: Duration) {
        self.forget_sent();
        self.owned.supersede();
        self.peers.values_mut().for_each(|peer| peer.settled = None);
        if self.status.phase == Phase::Active && self.version >= 2 {
            self.joining_since = now;
            self.set_phase(Phase::Joining, now);
        } else {
            self.apply_view(now);
        }
        // Those that no other node owns.
        self.restart_epochs();
    }

    /// Returns whether no frame waits to be taken.
    pub(super) fn has_sent_all(&self) -> bool {
        let mut links = self.peers.values().filter_map(|peer| peer.link.as_ref());
        links.all(|link| link.queue.is_empty())
    }

    /// Applies a change of the membership: channels whose owner has changed.
    pub(super) fn apply_view(&mut self, now: Duration) {
        self.review_partitions(now);
        self.plan_moves(now);
        self.move_mirrors(now);
        self.release_held(now);
        self.flush_requests(now);
    }
}
