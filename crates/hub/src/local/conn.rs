//! One connection: its subscriptions and what waits for it. Knows no other connection and no topic.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;

use crate::mail::Slow;
use crate::protocol::{ClientInfo, Unsubscribed, Variant};

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) variant: Variant,
    pub(super) info: Option<Arc<ClientInfo>>,
    subscriptions: Vec<(u32, Stage)>,
    waiting: VecDeque<Waiting>,
    waiting_bytes: usize,
    /// Pushes that it did not get.
    pub(super) dropped: u64,
    /// It is among those that something waits for.
    pub(super) is_ready: bool,
}

/// How far a subscription is.
#[derive(Debug)]
pub(super) enum Stage {
    /// For its answer; then it may have to end.
    Waiting { ends: Option<Unsubscribed> },
    /// Its place among the topic's subscribers.
    Listens { at: u32 },
}

/// A push that waits.
#[derive(Debug)]
struct Waiting {
    topic: u32,
    slow: Slow,
    frame: Bytes,
}

/// Whether there was room for a push, by the rule of its channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Room {
    Enough,
    /// So many have gone for it, or it has gone itself.
    Without(u64),
    None,
}

impl Conn {
    pub(super) fn new(variant: Variant, info: Option<Arc<ClientInfo>>) -> Conn {
        Conn {
            variant,
            info,
            subscriptions: Vec::new(),
            waiting: VecDeque::new(),
            waiting_bytes: 0,
            dropped: 0,
            is_ready: false,
        }
    }

    pub(super) fn subscriptions(&self) -> usize {
        self.subscriptions.len()
    }

    pub(super) fn last_subscription(&mut self) -> Option<u32> {
        self.subscriptions.last().map(|(topic, _)| *topic)
    }

    pub(super) fn has(&self, topic: u32) -> bool {
        self.subscriptions.iter().any(|(own, _)| *own == topic)
    }

    pub(super) fn stage(&mut self, topic: u32) -> Option<&mut Stage> {
        let mut own = self.subscriptions.iter_mut();
        own.find(|(own, _)| *own == topic).map(|(_, stage)| stage)
    }

    pub(super) fn add(&mut self, topic: u32) {
        self.subscriptions.push((topic, Stage::Waiting { ends: None }));
    }

    /// With what waits of it.
    pub(super) fn remove(&mut self, topic: u32) -> Option<Stage> {
        let at = self.subscriptions.iter().position(|(own, _)| *own == topic)?;
        let (_, stage) = self.subscriptions.swap_remove(at);
        let waiting_bytes = &mut self.waiting_bytes;
        self.waiting.retain(|waiting| {
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

    pub(super) fn take(&mut self) -> Option<Bytes> {
        let next = self.waiting.pop_front()?;
        self.waiting_bytes -= next.frame.len();
        if self.waiting.is_empty() {
            // Who waits for nothing holds nothing.
            self.waiting = VecDeque::new();
        }
        Some(next.frame)
    }

    /// A push, as far as the budget allows; else as the channel's rule says. A first one has room whatever it is.
    pub(super) fn add_push(&mut self, topic: u32, slow: Slow, frame: &Bytes, budget: usize) -> Room {
        let fits = |waiting: usize| waiting == 0 || waiting + frame.len() <= budget;
        let mut room = Room::Enough;
        if !fits(self.waiting_bytes) {
            match slow {
                Slow::Disconnect | Slow::Resync => return Room::None,
                Slow::DropNew => {}
                Slow::Conflate if self.replace(topic, frame) => return Room::Without(1),
                Slow::Conflate | Slow::DropOld => {
                    let before = self.dropped;
                    self.drop_old(slow, fits);
                    room = Room::Without(self.dropped - before);
                }
            }
            if !fits(self.waiting_bytes) {
                self.dropped += 1;
                return match room {
                    Room::Without(dropped) => Room::Without(dropped + 1),
                    _ => Room::Without(1),
                };
            }
        }
        self.waiting_bytes += frame.len();
        self.waiting.push_back(Waiting {
            topic,
            slow,
            frame: frame.clone(),
        });
        room
    }

    /// Puts a push in the place of the last of its channel that waits.
    fn replace(&mut self, topic: u32, frame: &Bytes) -> bool {
        let found = self.waiting.iter_mut().rfind(|waiting| waiting.topic == topic);
        let Some(waiting) = found else {
            return false;
        };
        self.waiting_bytes = self.waiting_bytes - waiting.frame.len() + frame.len();
        waiting.frame = frame.clone();
        self.dropped += 1;
        true
    }

    /// The oldest go, of channels by the same rule, until it fits.
    fn drop_old(&mut self, slow: Slow, fits: impl Fn(usize) -> bool) {
        let (waiting_bytes, dropped) = (&mut self.waiting_bytes, &mut self.dropped);
        self.waiting.retain(|waiting| {
            let stays = waiting.slow != slow || fits(*waiting_bytes);
            if !stays {
                *waiting_bytes -= waiting.frame.len();
                *dropped += 1;
            }
            stays
        });
    }
}
