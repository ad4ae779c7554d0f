//! One connection: its subscriptions and what waits for it. Knows no other connection and no topic.

use std::sync::Arc;

use bytes::Bytes;

use super::conflation_schedule::NONE;
use super::push_queue::{List, Table, Waiting};
use super::subscriptions::{Stage, Subscription, Subscriptions};
use crate::mail::Slow;
use crate::protocol::{ClientInfo, Variant};

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) variant: Variant,
    /// Who it is, if some channel is or may be told.
    pub(super) info: Option<Arc<ClientInfo>>,
    subscriptions: Subscriptions,
    waiting: List,
    waiting_bytes: usize,
    /// Pushes that it did not get.
    pub(super) dropped: u64,
    /// It is among those that something waits for.
    pub(super) is_ready: bool,
    /// The first of its watches.
    pub(super) watch: u32,
}

/// Whether there was room for a push, by the rule of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// It is there; so many have gone for it.
    Made(u64),
    /// So many have gone, and it is one of them.
    Without(u64),
    None,
}

impl Conn {
    pub(super) fn new(variant: Variant, info: Option<Arc<ClientInfo>>) -> Conn {
        Conn {
            variant,
            info,
            subscriptions: Subscriptions::None,
            waiting: List::EMPTY,
            waiting_bytes: 0,
            dropped: 0,
            is_ready: false,
            watch: NONE,
        }
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions.all().len()
    }

    pub(super) fn last_subscription(&mut self) -> Option<u32> {
        self.subscriptions.all().last().map(|own| own.topic)
    }

    pub(super) fn has(&self, topic: u32) -> bool {
        self.subscriptions.all().iter().any(|own| own.topic == topic)
    }

    pub(super) fn stage(&mut self, topic: u32) -> Option<&mut Stage> {
        self.subscriptions.stage(topic)
    }

    pub(super) fn add(&mut self, topic: u32) {
        let stage = Stage::Waiting;
        self.subscriptions.add(Subscription { topic, stage });
    }

    /// With what waits of it.
    pub(super) fn remove(&mut self, topic: u32, table: &mut Table) -> Option<Stage> {
        let stage = self.subscriptions.remove(topic)?;
        let waiting_bytes = &mut self.waiting_bytes;
        table.retain(&mut self.waiting, |waiting| {
            let stays = waiting.topic != topic;
            if !stays {
                *waiting_bytes -= waiting.frame.len();
            }
            stays
        });
        Some(stage)
    }

    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes
    }

    /// Whether one of the oldest pushes that wait is such a one; so many are looked at.
    pub(super) fn waits(&self, table: &Table, most: usize, is_such: impl FnMut(&Waiting) -> bool) -> bool {
        table.any(&self.waiting, most, is_such)
    }

    pub(super) fn take(&mut self, table: &mut Table) -> Option<Bytes> {
        let next = table.pop(&mut self.waiting)?;
        self.waiting_bytes -= next.frame.len();
        Some(next.frame)
    }

    /// A push, as far as the budget allows; else as the channel's rule says. A first one has room whatever it is.
    pub(super) fn add_push(&mut self, push: Waiting, budget: usize, table: &mut Table) -> Room {
        let Waiting {
            topic, slow, frame, ..
        } = &push;
        let fits = |waiting: usize| waiting == 0 || waiting + frame.len() <= budget;
        let mut room = Room::Enough;
        if !fits(self.waiting_bytes) {
            match *slow {
                Slow::Disconnect | Slow::Resync => return Room::None,
                Slow::DropNew => {}
                Slow::Conflate if self.replace(*topic, frame, table) => return Room::Made(1),
                Slow::Conflate | Slow::DropOld => {
                    let before = self.dropped;
                    self.drop_old(*slow, fits, table);
                    room = Room::Made(self.dropped - before);
                }
            }
            if !fits(self.waiting_bytes) {
                self.dropped += 1;
                return match room {
                    Room::Made(dropped) => Room::Without(dropped + 1),
                    _ => Room::Without(1),
                };
            }
        }
        self.waiting_bytes += frame.len();
        table.push(&mut self.waiting, push);
        room
    }

    /// Puts a push in the place of the last of its channel that waits.
    fn replace(&mut self, topic: u32, frame: &Bytes, table: &mut Table) -> bool {
        let Some(waiting) = table.last_of(&self.waiting, topic) else {
            return false;
        };
        self.waiting_bytes = self.waiting_bytes - waiting.frame.len() + frame.len();
        waiting.frame = frame.clone();
        self.dropped += 1;
        true
    }

    /// The oldest go, of channels by the same rule, until it fits. States stay: the connection has them for given, and they are
    /// no more than there was room for at one moment.
    fn drop_old(&mut self, slow: Slow, fits: impl Fn(usize) -> bool, table: &mut Table) {
        let (waiting_bytes, dropped) = (&mut self.waiting_bytes, &mut self.dropped);
        table.retain(&mut self.waiting, |waiting| {
            let stays = waiting.slow != slow || waiting.is_state || fits(*waiting_bytes);
            if !stays {
                *waiting_bytes -= waiting.frame.len();
                *dropped += 1;
            }
            stays
        });
    }
}
