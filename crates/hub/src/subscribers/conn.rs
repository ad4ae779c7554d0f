//! One connection: its subscriptions and its queue. Must not know other connections or topics.

use std::sync::Arc;

use super::conflation_schedule::NONE;
use super::push_queue::{PushQueue, QueueArena, QueuedPush};
use super::subscriptions::{SubState, Subscription, Subscriptions};
use crate::mail::SlowConsumerPolicy;
use crate::protocol::{ClientInfo, Variant};

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) variant: Variant,
    /// The client's info, if a channel has it or may have it.
    pub(super) info: Option<Arc<ClientInfo>>,
    subscriptions: Subscriptions,
    queue: PushQueue,
    queued_bytes: usize,
    /// The pushes that the connection did not receive.
    pub(super) dropped: u64,
    /// True if it is among the connections that [`poll_ready`](super::SubscriberTable::poll_ready) returns.
    pub(super) is_ready: bool,
    /// Its first entry in the conflation schedule.
    pub(super) schedule_entry: u32,
}

/// The outcome of queuing a push.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOutcome {
    Queued,
    /// It is queued, after this many pushes were dropped.
    QueuedAfterDrops(u64),
    /// This many pushes were dropped, and it is one of these.
    Dropped(u64),
    Rejected,
}

impl Conn {
    pub(super) fn new(variant: Variant, info: Option<Arc<ClientInfo>>) -> Conn {
        Conn {
            variant,
            info,
            subscriptions: Subscriptions::None,
            queue: PushQueue::EMPTY,
            queued_bytes: 0,
            dropped: 0,
            is_ready: false,
            schedule_entry: NONE,
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

    pub(super) fn state(&mut self, topic: u32) -> Option<&mut SubState> {
        self.subscriptions.state(topic)
    }

    pub(super) fn add(&mut self, topic: u32) {
        let state = SubState::Pending;
        self.subscriptions.add(Subscription { topic, state });
    }

    /// Removes a subscription and its queued pushes.
    pub(super) fn remove(&mut self, topic: u32, queues: &mut QueueArena) -> Option<SubState> {
        let state = self.subscriptions.remove(topic)?;
        let queued_bytes = &mut self.queued_bytes;
        queues.retain(&mut self.queue, |queued| {
            let is_other = queued.topic != topic;
            if !is_other {
                *queued_bytes -= queued.frame.len();
            }
            is_other
        });
        Some(state)
    }

    pub(super) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    /// Returns whether one of the `limit` oldest queued pushes matches.
    pub(super) fn has_queued(
        &self,
        queues: &QueueArena,
        limit: usize,
        is_match: impl FnMut(&QueuedPush) -> bool,
    ) -> bool {
        queues.any(&self.queue, limit, is_match)
    }

    /// Returns the index of the connection among the subscribers of a topic.
    pub(super) fn index_in(&self, topic: u32) -> Option<usize> {
        let mut all = self.subscriptions.all().iter();
        match all.find(|own| own.topic == topic)?.state {
            SubState::Subscribed { at } => Some(at as usize),
            SubState::Pending | SubState::Ending => None,
        }
    }

    pub(super) fn pop_push(&mut self, queues: &mut QueueArena) -> Option<QueuedPush> {
        let next = queues.pop(&mut self.queue)?;
        self.queued_bytes -= next.frame.len();
        Some(next)
    }

    /// Queues a push if it fits into the budget; otherwise applies the policy of its channel. A push always fits into an empty queue.
    pub(super) fn add_push(
        &mut self,
        push: QueuedPush,
        budget: usize,
        queues: &mut QueueArena,
    ) -> QueueOutcome {
        let QueuedPush {
            topic, slow, frame, ..
        } = &push;
        let fits_budget = |queued: usize| queued == 0 || queued + frame.len() <= budget;
        let mut outcome = QueueOutcome::Queued;
        if !fits_budget(self.queued_bytes) {
            match *slow {
                SlowConsumerPolicy::Disconnect | SlowConsumerPolicy::Resync => return QueueOutcome::Rejected,
                SlowConsumerPolicy::DropNew => {}
                SlowConsumerPolicy::Conflate if self.replace(*topic, &push, queues) => {
                    return QueueOutcome::QueuedAfterDrops(1);
                }
                SlowConsumerPolicy::Conflate | SlowConsumerPolicy::DropOld => {
                    let before = self.dropped;
                    self.drop_old(*slow, fits_budget, queues);
                    outcome = QueueOutcome::QueuedAfterDrops(self.dropped - before);
                }
            }
            if !fits_budget(self.queued_bytes) {
                self.dropped += 1;
                return match outcome {
                    QueueOutcome::QueuedAfterDrops(dropped) => QueueOutcome::Dropped(dropped + 1),
                    _ => QueueOutcome::Dropped(1),
                };
            }
        }
        self.queued_bytes += frame.len();
        queues.push(&mut self.queue, push);
        outcome
    }

    /// Replaces the last queued push of a topic.
    fn replace(&mut self, topic: u32, push: &QueuedPush, queues: &mut QueueArena) -> bool {
        let Some(queued) = queues.last_of(&self.queue, topic) else {
            return false;
        };
        self.queued_bytes = self.queued_bytes - queued.frame.len() + push.frame.len();
        queued.frame.clone_from(&push.frame);
        self.dropped += 1;
        true
    }

    /// Drops the oldest pushes of channels with this policy until the new one fits. Conflated updates are kept: they count as received, and
    /// there are no more than fit at one tick.
    fn drop_old(
        &mut self,
        slow: SlowConsumerPolicy,
        fits_budget: impl Fn(usize) -> bool,
        queues: &mut QueueArena,
    ) {
        let (queued_bytes, dropped) = (&mut self.queued_bytes, &mut self.dropped);
        queues.retain(&mut self.queue, |queued| {
            let is_other = queued.slow != slow || queued.is_state || fits_budget(*queued_bytes);
            if !is_other {
                *queued_bytes -= queued.frame.len();
                *dropped += 1;
            }
            is_other
        });
    }
}
