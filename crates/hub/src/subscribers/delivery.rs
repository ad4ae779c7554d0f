//! The fan-out of a push to the queues of its subscribers, and the treatment of slow consumers.

use std::collections::VecDeque;
use std::sync::Arc;

use super::conn::QueueOutcome;
use super::features::{DeltaBase, FormOutcome, PLAIN, TopicName, subscriber_form};
use super::push_queue::{QueueArena, QueuedPush};
use super::{ConnId, Slot, SubscriberCounts, SubscriberEvent, SubscriberTable};
use crate::limits::PREFETCH_BATCH;
use crate::mail::{DeliveryMode, EncodedPush, SlowConsumerPolicy, TopicKey};
use crate::protocol::{Disconnect, Unsubscribed};

/// The action for a connection, applied after the fan-out.
#[derive(Clone, Copy, Debug)]
pub(super) enum SlowConsumer {
    Disconnect(Disconnect),
    /// Unsubscribes it from this topic.
    Resync(u32),
}

/// The destination of queued pushes.
pub(super) struct FanOut<'a> {
    pub(super) budget: usize,
    pub(super) queues: &'a mut QueueArena,
    pub(super) counts: &'a mut SubscriberCounts,
    pub(super) slow_consumers: &'a mut Vec<(u32, SlowConsumer)>,
    pub(super) ready: &'a mut VecDeque<ConnId>,
}

impl FanOut<'_> {
    /// Queues a push. Returns `false` if the connection stays open and did not get it.
    pub(super) fn push(&mut self, index: u32, slot: &mut Slot, push: QueuedPush) -> bool {
        let Some(conn) = &mut slot.conn else { return true };
        let (topic, slow) = (push.topic, push.slow);
        let mut is_queued = true;
        match conn.add_push(push, self.budget, self.queues) {
            QueueOutcome::Queued => {}
            QueueOutcome::QueuedAfterDrops(dropped) => self.counts.slow[slow.number()] += dropped,
            QueueOutcome::Dropped(dropped) => {
                self.counts.slow[slow.number()] += dropped;
                is_queued = false;
            }
            QueueOutcome::Rejected => {
                self.counts.slow[slow.number()] += 1;
                let slow_consumer = match slow {
                    SlowConsumerPolicy::Resync => SlowConsumer::Resync(topic),
                    _ => SlowConsumer::Disconnect(Disconnect::SLOW),
                };
                self.slow_consumers.push((index, slow_consumer));
            }
        }
        if !conn.is_ready && conn.queued_bytes() > 0 {
            conn.is_ready = true;
            let generation = slot.generation;
            self.ready.push_back(ConnId { index, generation });
        }
        is_queued
    }
}

impl SubscriberTable {
    /// Delivers a push by its mode.
    pub(super) fn deliver(&mut self, key: TopicKey, encoded: &Arc<EncodedPush>, mode: DeliveryMode) {
        if !self.is_current(key) {
            return;
        }
        match mode {
            DeliveryMode::Conflated(interval) => return self.store_conflated(key.index, interval, encoded),
            DeliveryMode::Immediate => self.set_conflation_interval(key.index, None),
            DeliveryMode::OutOfBand => {}
        }
        let mut features = self.topics[key.index as usize].features.take();
        if let Some(features) = &mut features {
            features.start_push(encoded.source(), 1);
        }
        let topic = &self.topics[key.index as usize];
        let name = TopicName {
            channel: &topic.name,
            topic: key.index,
        };
        let slow = topic.options.slow_consumer;
        self.counts.deliveries += topic.subscribers.len() as u64;
        let mut fan_out = FanOut {
            budget: self.limits.queued_bytes,
            queues: &mut self.queues,
            counts: &mut self.counts,
            slow_consumers: &mut self.slow_consumers,
            ready: &mut self.ready,
        };
        for (number, batch) in topic.subscribers.chunks(PREFETCH_BATCH).enumerate() {
            // Most of this memory is not in the processor's caches: all loads are issued before the first result is needed.
            let loaded = batch
                .iter()
                .filter(|index| self.conns[**index as usize].conn.is_some());
            fan_out.ready.reserve(loaded.count());
            for (at, &index) in (number * PREFETCH_BATCH..).zip(batch) {
                let slot = &mut self.conns[index as usize];
                let Some(conn) = &slot.conn else { continue };
                let entry = features.as_ref().map_or(PLAIN, |features| features.entry(at));
                let outcome = subscriber_form(
                    features.as_deref_mut(),
                    (&self.feature_entries, entry),
                    conn.variant,
                    name,
                    Some(encoded),
                    DeltaBase::Previous,
                );
                let frame = match outcome {
                    FormOutcome::Send(frame) => frame,
                    FormOutcome::Filtered => {
                        fan_out.counts.deliveries -= 1;
                        continue;
                    }
                    FormOutcome::Reject(action) => {
                        fan_out.slow_consumers.push((index, action));
                        continue;
                    }
                };
                let push = QueuedPush {
                    topic: key.index,
                    slow,
                    is_state: false,
                    frame,
                };
                fan_out.push(index, slot, push);
            }
        }
        features.iter_mut().for_each(|features| features.end_push());
        self.topics[key.index as usize].features = features;
        self.handle_slow_consumers();
    }

    /// Applies the actions for slow consumers.
    pub(super) fn handle_slow_consumers(&mut self) {
        let mut slow_consumers = std::mem::take(&mut self.slow_consumers);
        for (index, slow_consumer) in slow_consumers.drain(..) {
            let id = self.id(index);
            match slow_consumer {
                SlowConsumer::Resync(topic) => {
                    self.unsubscribe_and_notify(id, topic, Unsubscribed::INSUFFICIENT)
                }
                SlowConsumer::Disconnect(reason) => {
                    self.close(id);
                    self.events
                        .push_back(SubscriberEvent::Disconnected { conn: id, reason });
                }
            }
        }
        self.slow_consumers = slow_consumers;
    }

    /// Handles lost pushes. Subscribers that rely on offsets are unsubscribed, subscribe again and recover. Others have
    /// no guarantee of delivery.
    pub(super) fn handle_lost(&mut self, key: TopicKey) {
        if !self.is_current(key) {
            return;
        }
        let topic = &self.topics[key.index as usize];
        self.counts.lost += topic.subscribers.len() as u64;
        if topic.options.history.is_none() {
            for &index in &topic.subscribers {
                if let Some(conn) = &mut self.conns[index as usize].conn {
                    conn.dropped += 1;
                }
            }
            return;
        }
        let subscribers: Vec<u32> = topic.subscribers.clone();
        for index in subscribers {
            self.unsubscribe_and_notify(self.id(index), key.index, Unsubscribed::INSUFFICIENT);
        }
    }
}
