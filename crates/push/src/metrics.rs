//! What is counted of clients and channels. Each worker counts for itself, and all are read at any time.
//!
//! Labels are of bounded sets: codes of the protocol, what becomes of publications for slow clients, reasons to refuse somebody.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ringmain_hub::mail::SlowConsumerPolicy;
use ringmain_hub::protocol::Disconnect;
use ringmain_hub::shard;
use ringmain_hub::subscribers;

/// What was counted, of all workers together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Clients that are connected now.
    pub clients: u64,
    /// Those of them that have said who they are, each user once.
    pub users: u64,
    /// Their subscriptions.
    pub subscriptions: u64,
    /// Channels that there are: with subscribers, or with something that is remembered.
    pub channels: u64,
    /// Channels with subscribers.
    pub subscribed_channels: u64,
    /// Clients that were let in.
    pub connects: u64,
    /// Those that were not, by why.
    pub refused: [(Refusal, u64); Refusal::ALL.len()],
    /// Clients that were sent away, by code; `None`: codes that are not the protocol's. Only those that there were.
    pub disconnects: Vec<(Option<u32>, u64)>,
    /// Publications, whether or not anybody listened.
    pub publications: u64,
    /// Publications that were not done again, since one of the same key was.
    pub duplicates: u64,
    /// Keys of publications that were forgotten before their time was over.
    pub dropped_keys: u64,
    /// Channels that were removed before their time, to make room for others at the limit of channels.
    pub evicted_channels: u64,
    /// What was put among what waits for a client, each client counted.
    pub deliveries: u64,
    /// What clients were too slow for, by what became of it.
    pub slow: [(SlowConsumerPolicy, u64); SlowConsumerPolicy::ALL.len()],
    /// How often a subscriber missed something since a queue between workers was full.
    pub lost: u64,
    /// Clients that came back to a channel and got all that they had missed.
    pub recovered: u64,
    /// Those that did not.
    pub unrecovered: u64,
}

/// Why somebody was not let in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Refusal {
    /// As many as may are about to say who they are.
    #[default]
    Handshakes,
    /// More have come within a second than may.
    Rate,
    /// It was sent away before it was known who it is: by a token that is wrong, for saying nothing, or something else.
    Unknown,
    /// Its user has as many connections as it may.
    User,
}

impl Refusal {
    /// All that there are.
    pub const ALL: [Refusal; 4] = [
        Refusal::Handshakes,
        Refusal::Rate,
        Refusal::Unknown,
        Refusal::User,
    ];

    /// In one word, for labels.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Refusal::Handshakes => "handshakes",
            Refusal::Rate => "rate",
            Refusal::Unknown => "unknown",
            Refusal::User => "user",
        }
    }
}

/// In one word, for labels.
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

/// Of all workers.
#[derive(Debug, Default)]
pub(crate) struct Metrics(Mutex<Vec<Arc<WorkerMetrics>>>);

/// One worker's; only that writes them.
#[derive(Debug, Default)]
pub(crate) struct WorkerMetrics {
    clients: AtomicU64,
    connects: AtomicU64,
    refused: [AtomicU64; Refusal::ALL.len()],
    disconnects: [AtomicU64; CODES + 1],
    recovered: AtomicU64,
    unrecovered: AtomicU64,
    /// As they are told of by the worker's own parts.
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

fn add(count: &AtomicU64, more: u64) {
    // Nobody else writes it.
    count.store(
        count.load(Ordering::Relaxed).wrapping_add(more),
        Ordering::Relaxed,
    );
}

impl Metrics {
    /// A worker begins.
    pub(crate) fn add_worker(&self) -> Arc<WorkerMetrics> {
        let counts: Arc<WorkerMetrics> = Arc::default();
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.push(Arc::clone(&counts));
        counts
    }

    /// What was counted; users are counted elsewhere.
    pub(crate) fn report(&self) -> Report {
        let mut report = Report {
            refused: Refusal::ALL.map(|why| (why, 0)),
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

    pub(crate) fn count_refused(&self, why: Refusal) {
        add(&self.refused[why as usize], 1);
    }

    pub(crate) fn count_disconnect(&self, why: Disconnect) {
        add(&self.disconnects[code_index(why.code)], 1);
    }

    pub(crate) fn count_recovery(&self, has_all: bool) {
        match has_all {
            true => add(&self.recovered, 1),
            false => add(&self.unrecovered, 1),
        }
    }

    /// What the worker's parts have counted.
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
    fn each_code_of_the_protocol_has_its_place_and_all_others_one() {
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
    fn workers_are_added_up() {
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
