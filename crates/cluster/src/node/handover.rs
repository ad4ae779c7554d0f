//! The planned move of channels to another owner, after a node has joined, or before it leaves.
//!
//! ```text
//! old owner:  acting ── plan, window ──▶ sent (a copy is retained) ── HandoverTaken ──▶ gone
//! new owner:  Handover parts ──▶ acting;  requests before: held ── Wanted, Absent, HandedOver, HOLD_TIME ──▶ new channel
//! mirror:     Live ── Moved ──▶ Asking at the new owner, with its position ──▶ Live
//! ```
//!
//! Until its turn, a channel is served by the old owner, and mirrors stay there. A channel moves with its epoch, offset, floor,
//! retained publications, members and idempotency keys, so nothing is missed. Frames of a link are in order: an old owner relays requests
//! behind the channel. A copy that was sent is sent again on another link to the same node; to another node only with a new epoch, since
//! the first one may have published.

mod receive;
mod send;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::protocol::{ClientInfo, Published};

use super::idempotency::KeyEntry;
use super::owned::Owned;
use super::{LinkId, Node, Operation};
use crate::frame::{Answer, Frame, HandoverHead, PublishOutcome, cost};
use crate::limits;
use crate::member::{Phase, Uid};

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Handovers {
    sent: BTreeMap<Arc<str>, SentChannel>,
    /// Complete channels whose log is not read yet.
    unready: BTreeMap<(Uid, Arc<str>), Incoming>,
    incoming: BTreeMap<(Uid, Arc<str>), Incoming>,
    held: BTreeMap<Arc<str>, Held>,
    held_frames: usize,
    held_bytes: u64,
    /// The channels that were sent, with their new owners, for [`limits::HOLD_TIME`].
    passed: BTreeMap<Arc<str>, (Uid, Duration)>,
    /// The channels that other nodes will send: a third one has sent them there.
    expected: BTreeMap<Arc<str>, (Uid, Duration)>,
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
    /// Other nodes that need it.
    wanted_by: BTreeSet<Uid>,
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

/// The permission to serve a request for a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It has the channel.
    Acting,
    /// It may create the channel.
    Create,
    /// Another node may have the channel: the request is held.
    Hold,
    /// The log of the channel is not read yet: the request must be sent again.
    Unready,
    /// Another node owns it.
    Elsewhere,
}

impl Handovers {
    pub(super) fn is_idle(&self) -> bool {
        self.sent.is_empty() && self.incoming.is_empty() && self.unready.is_empty() && self.held.is_empty()
    }

    /// Returns the node to which a channel was sent.
    pub(super) fn sent_to(&self, channel: &str) -> Option<Uid> {
        self.sent.get(channel).map(|sent| sent.to)
    }

    /// Returns the node that has received a channel from this one a short time ago.
    pub(super) fn passed_to(&self, channel: &str) -> Option<Uid> {
        let passed = self.passed.get(channel).map(|(uid, _)| *uid);
        self.sent_to(channel).or(passed)
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
    /// Returns whether this node may serve a request for a channel.
    pub(super) fn admit(&self, channel: &str, needs_log: bool, now: Duration) -> Admission {
        if self.owned.contains(channel) {
            Admission::Acting
        } else if self.owner_of(channel) != Some(self.member.uid) {
            Admission::Elsewhere
        } else if needs_log && !self.has_history(channel) {
            Admission::Unready
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
        if self.handovers.sent_to(channel).is_some() {
            // Its new owner does not own it any more, and returns it.
            return true;
        }
        let expected = self.handovers.expected.get(channel);
        if expected.is_some_and(|(_, since)| now.saturating_sub(*since) < limits::HOLD_TIME) {
            return true;
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
        let needs_log = frame.as_ref().is_some_and(|frame| self.needs_log(frame));
        if !is_held && (!starts || self.admit(&channel, needs_log, now) != Admission::Hold) {
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
            if self.admit(&name, false, now) != Admission::Hold {
                self.release(&name, now);
            }
        }
    }

    /// Installs the channels that have waited for their log, as far as it is read, and passes on those that another node owns by now.
    pub(super) fn install_ready(&mut self, now: Duration) {
        let keys = self.handovers.unready.keys();
        let ready: Vec<_> = keys
            .filter(|(_, channel)| {
                self.has_history(channel) || self.owner_of(channel) != Some(self.member.uid)
            })
            .cloned()
            .collect();
        for key in ready {
            if let Some(incoming) = self.handovers.unready.remove(&key) {
                let (from, channel) = key;
                self.take_channel(from, &channel, incoming, now);
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

    pub(super) fn set_absent(
        &mut self,
        from: Uid,
        channel: &Arc<str>,
        passed_to: Option<Uid>,
        now: Duration,
    ) {
        let passed_to = passed_to.filter(|uid| *uid != self.member.uid && self.is_linked(*uid));
        if let Some(uid) = passed_to
            && !self.owned.contains(channel)
        {
            self.handovers.expected.insert(Arc::clone(channel), (uid, now));
            let channel = Arc::clone(channel);
            self.send(uid, Frame::Wanted { channel });
        } else if self
            .handovers
            .expected
            .get(channel)
            .is_some_and(|(uid, _)| *uid == from)
        {
            self.handovers.expected.remove(channel);
        }
        if let Some(held) = self.handovers.held.get_mut(channel) {
            held.absent.insert(from);
            if self.admit(channel, false, now) != Admission::Hold {
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

    /// Handles a frame about channels that move.
    pub(super) fn handle_move(&mut self, from: Uid, link: Option<LinkId>, frame: Frame, now: Duration) {
        match frame {
            Frame::Peers(uids) => self.set_known(from, uids),
            Frame::Handover {
                channel,
                part,
                is_last,
            } => self.take_part(from, link, channel, part, is_last, now),
            Frame::HandoverTaken { channel } => self.taken(from, &channel, now),
            Frame::HandedOver { sender, receiver } => self.settle_peer(from, (sender, receiver), now),
            Frame::Wanted { channel } => self.hand_over_wanted(from, channel, now),
            Frame::Absent { channel, passed_to } => self.set_absent(from, &channel, passed_to, now),
            Frame::Moved { number, to } => self.move_mirror(from, number, to, now),
            Frame::RelayedPublish {
                hops,
                request,
                publish,
            } => self.request_from(from, request, hops, Operation::Publish(publish), now),
            Frame::RelayedQuery {
                hops,
                request,
                channel,
                settings,
                query,
            } => {
                let operation = Operation::Query(channel, settings, query);
                self.request_from(from, request, hops, operation, now);
            }
            Frame::Progress {
                partition,
                epoch,
                number,
            } => self.mirrors.note_progress(from, partition, epoch, number),
            // The others are handled by the caller.
            _ => {}
        }
    }
}
