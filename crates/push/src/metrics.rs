//! Counters of clients and channels. Each worker has its own, and all can be read at any time.
//!
//! Labels are bounded sets: disconnect codes, policies for slow consumers, reasons of refusals.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_hub::protocol::Disconnect;
use ringmain_hub::shard;
use ringmain_hub::subscribers;

/// The counters, summed over all workers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Connected clients.
    pub clients: u64,
    /// Users with a connected client.
    pub users: u64,
    /// Subscriptions of connected clients.
    pub subscriptions: u64,
    /// Channels with subscribers, or with retained state.
    pub channels: u64,
    /// Channels with subscribers.
    pub subscribed_channels: u64,
    /// Accepted clients.
    pub connects: u64,
    /// Refused clients, by reason.
    pub refused: [(Refusal, u64); Refusal::ALL.len()],
    /// Disconnected clients, by code; `None`: codes that are not the protocol's. Only codes that have occurred.
    pub disconnects: Vec<(Option<u32>, u64)>,
    /// Publications, with or without subscribers.
    pub publications: u64,
    /// Publications that were dropped as duplicates of one with the same key.
    pub duplicates: u64,
    /// Keys of publications that were dropped before their time.
    pub dropped_keys: u64,
    /// Channels that were removed before their time, at the limit of channels.
    pub evicted_channels: u64,
    /// Pushes that were queued for a client, counted for each client.
    pub deliveries: u64,
    /// Publications that slow consumers did not receive, by policy.
    pub slow: [(SlowConsumerPolicy, u64); SlowConsumerPolicy::ALL.len()],
    /// Gaps of subscriptions: a queue between workers was full, or the source or the owner of the channel was interrupted.
    pub lost: u64,
    /// Subscriptions that recovered all missed publications.
    pub recovered: u64,
    /// Subscriptions that could not recover.
    pub unrecovered: u64,
}

/// The reason why a client was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// The limit of connections that are not identified ([`Options::pending_connects`](crate::Options::pending_connects)).
    #[default]
    Handshakes,
    /// The limit of connections per second ([`Options::connects_per_second`](crate::Options::connects_per_second)).
    Rate,
    /// The client was disconnected before it was identified: an invalid token, no `connect`, or another reason.
    Unknown,
    /// The limit of connections of its user ([`Options::connections_per_user`](crate::Options::connections_per_user)).
    User,
    /// The node is a push server of a cluster, which has no clients.
    Role,
}

impl Refusal {
    /// All reasons.
    pub const ALL: [Refusal; 5] = [
        Refusal::Handshakes,
        Refusal::Rate,
        Refusal::Unknown,
        Refusal::User,
        Refusal::Role,
    ];

    /// Returns the value for labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Refusal::Handshakes => "handshakes",
            Refusal::Rate => "rate",
            Refusal::Unknown => "unknown",
            Refusal::User => "user",
            Refusal::Role => "role",
        }
    }
}

/// Returns the value for labels.
#[must_use]
pub const fn slow_label(slow: SlowConsumerPolicy) -> &'static str {
    match slow {
        SlowConsumerPolicy::Disconnect => "disconnect",
        SlowConsumerPolicy::DropOld => "drop_old",
        SlowConsumerPolicy::DropNew => "drop_new",
        SlowConsumerPolicy::Conflate => "conflate",
        SlowConsumerPolicy::Resync => "resync",
    }
}

/// The counters across all workers.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Vec<Arc<WorkerMetrics>>>);

/// The counters of one worker, its only writer.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    clients: AtomicU64,
    connects: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    disconnects: [AtomicU64; CODES + 1],
    recovered: AtomicU64,
    unrecovered: AtomicU64,
    /// Copies of the hub's counters.
    channels: AtomicU64,
    subscribed_channels: AtomicU64,
    publications: AtomicU64,
    duplicates: AtomicU64,
    dropped_keys: AtomicU64,
    evicted_channels: AtomicU64,
    subscriptions: AtomicU64,
    deliveries: AtomicU64,
    slow: [AtomicU64; SlowConsumerPolicy::ALL.len()],
    lost: AtomicU64,
}

/// The protocol's own codes: 3000 to 3013, and as many from 3500.
const CODES: usize = 2 * SPAN as usize;
const SPAN: u32 = 14;

fn code_index(code: u32) -> usize {
    match code {
        3000..=3013 => (code - 3000) as usize,
        3500..=3513 => (code - 3500 + SPAN) as usize,
        _ => CODES,
    }
}

fn index_code(index: usize) -> Option<u32> {
    match u32::try_from(index).ok()? {
        index if index < SPAN => Some(3000 + index),
        index if index < 2 * SPAN => Some(3500 + index - SPAN),
        _ => None,
    }
}

fn add(count: &AtomicU64, amount: u64) {
    // There is one writer.
    count.store(
        count.load(Ordering::Relaxed).wrapping_add(amount),
        Ordering::Relaxed,
    );
}

impl Metrics {
    /// Adds a worker that starts.
    pub(crate) fn add_worker(&self) -> Arc<WorkerMetrics> {
        let counts: Arc<WorkerMetrics> = Arc::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counts));
        counts
    }

    /// Returns the sums, except for users, which are counted elsewhere.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report {
            refused: Refusal::ALL.map(|refusal| (refusal, 0)),
            slow: SlowConsumerPolicy::ALL.map(|slow| (slow, 0)),
            ..Report::default()
        };
        let mut disconnects = [0; CODES + 1];
        for counts in &*self.0.lock().unwrap_or_else(PoisonError::into_inner) {
            counts.add_to(&mut report);
            for (sum, count) in disconnects.iter_mut().zip(&counts.disconnects) {
                *sum += count.load(Ordering::Relaxed);
            }
        }
        let counted = disconnects
            .into_iter()
            .enumerate()
            .filter(|(_, count)| *count > 0);
        report.disconnects = counted.map(|(index, count)| (index_code(index), count)).collect();
        report
    }
}

impl WorkerMetrics {
    pub(crate) fn client_joined(&self) {
        add(&self.connects, 1);
        add(&self.clients, 1);
    }

    pub(crate) fn client_left(&self) {
        add(&self.clients, u64::MAX);
    }

    pub(crate) fn count_refused(&self, refusal: Refusal) {
        add(&self.refused[refusal as usize], 1);
    }

    pub(crate) fn count_disconnect(&self, refusal: Disconnect) {
        add(&self.disconnects[code_index(refusal.code)], 1);
    }

    pub(crate) fn count_recovery(&self, has_all: bool) {
        if has_all {
            add(&self.recovered, 1)
        } else {
            add(&self.unrecovered, 1)
        }
    }

    /// Copies the counters of the worker's parts.
    pub(crate) fn update_totals(
        &self,
        local: subscribers::SubscriberCounts,
        home: shard::ShardCounts,
        channels: usize,
    ) {
        for (count, now) in [
            (&self.channels, channels as u64),
            (&self.subscribed_channels, home.subscribed_channels as u64),
            (&self.publications, home.publications),
            (&self.duplicates, home.duplicates),
            (&self.dropped_keys, home.dropped_keys),
            (&self.evicted_channels, home.evicted),
            (&self.subscriptions, local.subscriptions as u64),
            (&self.deliveries, local.deliveries),
            (&self.lost, local.lost),
        ] {
            count.store(now, Ordering::Relaxed);
        }
        for (count, now) in self.slow.iter().zip(local.slow) {
            count.store(now, Ordering::Relaxed);
        }
    }

    fn add_to(&self, report: &mut Report) {
        for (sum, count) in [
            (&mut report.clients, &self.clients),
            (&mut report.connects, &self.connects),
            (&mut report.recovered, &self.recovered),
            (&mut report.unrecovered, &self.unrecovered),
            (&mut report.channels, &self.channels),
            (&mut report.subscribed_channels, &self.subscribed_channels),
            (&mut report.publications, &self.publications),
            (&mut report.duplicates, &self.duplicates),
            (&mut report.dropped_keys, &self.dropped_keys),
            (&mut report.evicted_channels, &self.evicted_channels),
            (&mut report.subscriptions, &self.subscriptions),
            (&mut report.deliveries, &self.deliveries),
            (&mut report.lost, &self.lost),
        ] {
            *sum += count.load(Ordering::Relaxed);
        }
        let sums = report.refused.iter_mut().map(|(_, sum)| sum);
        let sums = sums.chain(report.slow.iter_mut().map(|(_, sum)| sum));
        for (sum, count) in sums.zip(self.refused.iter().chain(&self.slow)) {
            *sum += count.load(Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use ringmain_hub::protocol::Disconnect;

    use super::{CODES, Metrics, Refusal, code_index, index_code};

    #[test]
    fn each_protocol_code_has_an_index_and_all_others_share_one() {
        for index in 0..CODES {
            assert_eq!(index_code(index).map(code_index), Some(index));
        }
        for code in [0, 2999, 3014, 3499, 3514, 4000, u32::MAX] {
            assert_eq!(
                (code_index(code), index_code(code_index(code))),
                (CODES, None),
                "{code}"
            );
        }
    }

    #[test]
    fn counters_of_workers_are_summed() {
        let metrics = Metrics::default();
        let workers = [metrics.add_worker(), metrics.add_worker()];
        for counts in &workers {
            counts.client_joined();
            counts.client_joined();
            counts.client_left();
            counts.count_refused(Refusal::Rate);
            counts.count_disconnect(Disconnect::SLOW);
            counts.count_recovery(true);
            counts.count_recovery(false);
        }
        let report = metrics.report();
        assert_eq!((report.clients, report.connects), (2, 4));
        assert_eq!((report.recovered, report.unrecovered), (2, 2));
        assert_eq!(report.refused[1], (Refusal::Rate, 2));
        assert_eq!(report.disconnects, [(Some(3008), 2)]);
    }
}
