//! Conflated channels: the newest publication of each is retained, and connections that have an older one receive it at their ticks,
//! together with the updates of their other channels.
//!
//! A publication in a channel whose subscribers are all scheduled costs the same for one subscriber and for thousands: each compares
//! versions at its own tick.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use super::conflation_schedule::SentVersion;
use super::delivery::{FanOut, SlowConsumer};
use super::features::{DeltaBase, FeatureEntries, FormOutcome, PLAIN, TopicName, subscriber_form};
use super::push_queue::QueuedPush;
use super::{SubscriberTable, Topic};
use crate::limits::{CONFLATION_BATCH, DELTA_BASES, QUEUE_SCAN_LIMIT};
use crate::mail::EncodedPush;
use crate::protocol::Variant;

/// The conflation state of a topic.
#[derive(Debug, Default)]
pub(super) struct ConflationState {
    /// The interval. `None`: all publications are sent at once.
    pub(super) interval: Option<Duration>,
    newest: Option<Arc<EncodedPush>>,
    /// The version of the newest publication. Wraps around.
    version: u32,
    /// True if none of its subscribers is idle.
    has_no_idle_subscriber: bool,
}

impl SubscriberTable {
    /// Returns the time at which [`SubscriberTable::release`] must be called to send updates.
    #[must_use]
    pub fn next_release(&self) -> Option<Duration> {
        self.schedule.next_due()
    }

    /// Queues updates for the connections that are due, up to [`CONFLATION_BATCH`] at once. Must also be called after messages were
    /// [handled](SubscriberTable::handle). `now` must not decrease.
    pub fn release(&mut self, now: Duration) {
        for _ in 0..CONFLATION_BATCH {
            let Some((entry, due)) = self.schedule.pop_due(now) else {
                break;
            };
            if self.queue_updates(entry) {
                // An entry that was scheduled when idle has no due time.
                let due = if due == 0 { now.as_nanos() as u64 } else { due };
                self.schedule.reschedule(entry, due, now);
            }
            self.handle_slow_consumers();
        }
    }

    /// Stores a publication of a topic with this interval, and schedules its idle subscribers.
    pub(super) fn store_conflated(&mut self, topic: u32, interval: Duration, encoded: &Arc<EncodedPush>) {
        self.set_conflation_interval(topic, Some(interval));
        let topic_state = &mut self.topics[topic as usize];
        if let Some(features) = &mut topic_state.features {
            features.start_push(encoded.source(), DELTA_BASES);
        }
        topic_state.conflation.newest = Some(Arc::clone(encoded));
        topic_state.conflation.version = topic_state.conflation.version.wrapping_add(1);
        if std::mem::replace(&mut topic_state.conflation.has_no_idle_subscriber, true) {
            return;
        }
        for &conn in &topic_state.subscribers {
            let first = self.conns[conn as usize]
                .conn
                .as_ref()
                .map(|conn| conn.schedule_entry);
            if let Some(entry) = first.and_then(|first| self.schedule.find(first, interval)) {
                self.schedule.schedule_if_idle(entry);
            }
        }
    }

    /// Replaces the interval of a topic. Subscribers that have not received the last update do not receive it later: the next publication
    /// is newer.
    pub(super) fn set_conflation_interval(&mut self, topic: u32, interval: Option<Duration>) {
        let topic_state = &mut self.topics[topic as usize];
        if topic_state.conflation.interval == interval {
            return;
        }
        let subscribers = std::mem::take(&mut topic_state.subscribers);
        for &conn in &subscribers {
            self.remove_from_schedule(conn, topic);
        }
        self.topics[topic as usize].conflation = ConflationState {
            interval,
            ..ConflationState::default()
        };
        for (at, &conn) in subscribers.iter().enumerate() {
            self.add_to_schedule(conn, topic, at);
        }
        self.topics[topic as usize].subscribers = subscribers;
    }

    /// Schedules a connection that has subscribed to a topic, in which it has the index `at`, and has its newest publication.
    pub(super) fn add_to_schedule(&mut self, index: u32, topic: u32, at: usize) {
        let topic_state = &mut self.topics[topic as usize];
        let features = topic_state.features.as_ref();
        let feature_entry = features.map_or(PLAIN, |features| features.entry(at));
        let conflation = &mut topic_state.conflation;
        let (Some(interval), Some(conn)) = (conflation.interval, &mut self.conns[index as usize].conn) else {
            return;
        };
        let entry = match self.schedule.find(conn.schedule_entry, interval) {
            Some(entry) => entry,
            None => self.schedule.add(&mut conn.schedule_entry, index, interval),
        };
        let version = conflation.version;
        self.schedule.get(entry).sent.push(SentVersion {
            topic,
            version,
            feature_entry,
        });
        // The connection may be idle.
        conflation.has_no_idle_subscriber = false;
    }

    /// Removes a connection that is no longer subscribed to a topic from the schedule.
    pub(super) fn remove_from_schedule(&mut self, conn: u32, topic: u32) {
        let interval = self.topics[topic as usize].conflation.interval;
        let (Some(interval), Some(conn)) = (interval, &mut self.conns[conn as usize].conn) else {
            return;
        };
        let Some(at) = self.schedule.find(conn.schedule_entry, interval) else {
            return;
        };
        let entry = self.schedule.get(at);
        if let Some(index) = entry.sent.iter().position(|sent| sent.topic == topic) {
            entry.sent.swap_remove(index);
        }
        if entry.sent.is_empty() {
            self.schedule.remove(&mut conn.schedule_entry, at);
        }
    }

    /// Queues the updates of an entry. Returns whether there were any, queued or skipped; if not, the entry becomes idle.
    fn queue_updates(&mut self, entry: u32) -> bool {
        let entry = self.schedule.get(entry);
        let slot = &mut self.conns[entry.conn as usize];
        let Some(conn) = &slot.conn else { return false };
        let (topics, feature_entries) = (&mut self.topics, &self.feature_entries);
        let is_slow = conn.has_queued(&self.queues, QUEUE_SCAN_LIMIT, |queued| {
            queued.is_state && topics[queued.topic as usize].conflation.interval == Some(entry.interval)
        });
        let variant = conn.variant;
        load_newest(topics, &entry.sent, variant);
        let mut fan_out = FanOut {
            budget: self.limits.queued_bytes,
            queues: &mut self.queues,
            counts: &mut self.counts,
            slow_consumers: &mut self.slow_consumers,
            ready: &mut self.ready,
        };
        let (mut is_behind, mut skipped) = (false, None);
        for (at, sent) in entry.sent.iter_mut().enumerate() {
            let topic = &mut topics[sent.topic as usize];
            if sent.version == topic.conflation.version {
                continue;
            }
            is_behind = true;
            let slow = topic.options.slow_consumer;
            if is_slow {
                fan_out.counts.slow[slow.number()] += 1;
                continue;
            }
            let outcome = update_form(topic, *sent, feature_entries, variant);
            let frame = match outcome {
                FormOutcome::Send(frame) => frame,
                FormOutcome::Filtered => {
                    sent.version = topic.conflation.version;
                    continue;
                }
                FormOutcome::Reject(action) => {
                    fan_out.slow_consumers.push((entry.conn, action));
                    break;
                }
            };
            let push = QueuedPush {
                topic: sent.topic,
                slow,
                is_state: true,
                frame,
            };
            fan_out.counts.deliveries += 1;
            if fan_out.push(entry.conn, slot, push) {
                sent.version = topic.conflation.version;
            } else {
                skipped.get_or_insert(at);
            }
            if let Some((_, SlowConsumer::Disconnect(_))) = fan_out.slow_consumers.last() {
                break;
            }
        }
        if let Some(at) = skipped {
            // The queue had no room for this channel: it is the first to be queued at the next tick.
            entry.sent.rotate_left(at);
        }
        if !is_behind {
            for sent in &entry.sent {
                topics[sent.topic as usize].conflation.has_no_idle_subscriber = false;
            }
        }
        is_behind
    }
}

/// Loads the newest pushes of topics. Most of this memory is not in the processor's caches: all loads are issued before the first result is
/// needed.
fn load_newest(topics: &[Topic], sent: &[SentVersion], variant: Variant) {
    let loaded = sent.iter().filter(|sent| {
        let newest = topics[sent.topic as usize].conflation.newest.as_ref();
        newest
            .and_then(|newest| newest.get(variant))
            .is_some_and(|frame| frame[0] != 0)
    });
    black_box(loaded.count());
}

/// Returns the form of a topic's newest push for a connection.
fn update_form(
    topic: &mut Topic,
    sent: SentVersion,
    entries: &FeatureEntries,
    variant: Variant,
) -> FormOutcome {
    subscriber_form(
        topic.features.as_deref_mut(),
        (entries, sent.feature_entry),
        variant,
        TopicName {
            channel: &topic.name,
            topic: sent.topic,
        },
        topic.conflation.newest.as_deref(),
        DeltaBase::Sent,
    )
}
