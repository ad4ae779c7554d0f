//! The beliefs of clients about their channels, and the faults that contradict them.
//!
//! A publication with an offset that is not the next one, without a `recovered: false` before it, is a fault. The numbers of a publisher
//! count from 1 in each channel, so that gaps and repetitions are noticed whatever the offsets are.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// The faults that a report describes; further ones are counted.
const FAULTS_KEPT: usize = 50;
/// The gaps and repetitions that a report lists.
const GAPS_KEPT: usize = 20_000;
/// The buckets of delays, of a millisecond each. The last one has all longer delays.
const LATENCY_BUCKETS: usize = 10_000;

/// A publication, as clients receive it.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(crate) struct Publication<'a> {
    #[serde(borrow)]
    data: Data<'a>,
    #[serde(default)]
    offset: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
struct Data<'a> {
    /// The publisher.
    p: &'a str,
    /// The number in the channel.
    s: u64,
    /// The time at which it was due, in seconds on the host's monotonic clock.
    t: f64,
}

/// The result of a subscription.
#[derive(Debug, Default, Deserialize)]
pub(crate) struct Subscribed<'a> {
    #[serde(borrow, default)]
    publications: Vec<Publication<'a>>,
    #[serde(default)]
    epoch: &'a str,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    recovered: bool,
}

/// A channel of a client: its position, and the newest number of each publisher with the notices up to then.
#[derive(Debug)]
pub(crate) struct Subscription {
    pub(crate) channel: u32,
    pub(crate) epoch: Option<u32>,
    pub(crate) offset: u64,
    pub(crate) is_live: bool,
    notices: u32,
    seen: Vec<(u32, u64, u32)>,
}

impl Subscription {
    pub(crate) fn new(channel: u32) -> Subscription {
        Subscription {
            channel,
            epoch: None,
            offset: 0,
            is_live: false,
            notices: 0,
            seen: Vec::new(),
        }
    }

    fn seen(&self, publisher: u32) -> (u64, u32) {
        let entry = self.seen.iter().find(|(name, ..)| *name == publisher);
        entry.map_or((0, 0), |(_, number, notices)| (*number, *notices))
    }
}

/// Numbers for texts.
#[derive(Debug, Default)]
pub(crate) struct Names {
    texts: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Names {
    pub(crate) fn number(&mut self, text: &str) -> u32 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = u32::try_from(self.texts.len()).unwrap_or(u32::MAX);
        self.texts.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    pub(crate) fn find(&self, text: &str) -> Option<u32> {
        self.numbers.get(text).copied()
    }

    pub(crate) fn text(&self, number: u32) -> &str {
        self.texts.get(number as usize).map_or("", String::as_str)
    }
}

/// Events that are counted. The names are those of `crowd.py`.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) delivered: u64,
    pub(crate) recovered_publications: u64,
    pub(crate) recovered: u64,
    pub(crate) unrecovered: u64,
    pub(crate) notified: u64,
    pub(crate) connects: u64,
    pub(crate) refused: u64,
    pub(crate) errors: u64,
    pub(crate) missed_with_notice: u64,
    pub(crate) repeated_with_notice: u64,
    pub(crate) fault_count: u64,
    pub(crate) gap_count: u64,
    pub(crate) repeat_count: u64,
}

/// Numbers from one to another of a publisher in a channel.
type Range = (String, String, u64, u64);

/// The experience of the clients.
#[derive(Debug)]
pub(crate) struct Beliefs {
    pub(crate) channels: Names,
    pub(crate) epochs: Names,
    publishers: Names,
    pub(crate) counts: Counts,
    pub(crate) closes: BTreeMap<String, u64>,
    faults: Vec<String>,
    gaps: Vec<Range>,
    repeats: Vec<Range>,
    by_position: BTreeMap<(u32, u32, u64), (u32, u64)>,
    latency: Vec<u64>,
    latency_max: f64,
    slowest: Option<(usize, u32, u64)>,
}

/// The figures for the parent process.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'a> {
    #[serde(flatten)]
    counts: &'a Counts,
    closes: &'a BTreeMap<String, u64>,
    faults: &'a [String],
    gaps: &'a [Range],
    repeats: &'a [Range],
    max_ms: f64,
    slowest: Option<(usize, String, u64)>,
    by_port: BTreeMap<String, u64>,
    p50_ms: usize,
    p99_ms: usize,
}

impl Default for Beliefs {
    fn default() -> Beliefs {
        Beliefs {
            channels: Names::default(),
            epochs: Names::default(),
            publishers: Names::default(),
            counts: Counts::default(),
            closes: BTreeMap::new(),
            faults: Vec::new(),
            gaps: Vec::new(),
            repeats: Vec::new(),
            by_position: BTreeMap::new(),
            latency: vec![0; LATENCY_BUCKETS],
            latency_max: 0.0,
            slowest: None,
        }
    }
}

impl Beliefs {
    pub(crate) fn fault(&mut self, client: usize, channel: u32, text: &str) {
        self.counts.fault_count += 1;
        if self.faults.len() < FAULTS_KEPT {
            self.faults.push(format!(
                "client {client}, {}: {text}",
                self.channels.text(channel)
            ));
        }
    }

    /// Applies the result of a subscription.
    pub(crate) fn subscribed(
        &mut self,
        client: usize,
        subscription: &mut Subscription,
        result: &Subscribed<'_>,
        now: Duration,
    ) {
        let epoch = self.epochs.number(result.epoch);
        let first = result.publications.first();
        let start = first.map_or(result.offset, |first| first.offset.saturating_sub(1));
        match subscription.epoch {
            Some(before) if result.recovered => {
                self.counts.recovered += 1;
                self.counts.recovered_publications += result.publications.len() as u64;
                if epoch != before {
                    let before = self.epochs.text(before);
                    let text = format!("recovered, but in the epoch {} instead of {before}", result.epoch);
                    self.fault(client, subscription.channel, &text);
                }
            }
            Some(_) => {
                self.counts.unrecovered += 1;
                subscription.notices += 1;
                subscription.offset = start;
            }
            None => subscription.offset = start,
        }
        (subscription.epoch, subscription.is_live) = (Some(epoch), true);
        for publication in &result.publications {
            self.publication(client, subscription, publication, now);
        }
        if result.publications.is_empty() && result.offset > subscription.offset {
            let text = format!(
                "recovered at {} without the publications after {}",
                result.offset, subscription.offset
            );
            self.fault(client, subscription.channel, &text);
            subscription.offset = result.offset;
        }
    }

    /// Applies a publication.
    pub(crate) fn publication(
        &mut self,
        client: usize,
        subscription: &mut Subscription,
        publication: &Publication<'_>,
        now: Duration,
    ) {
        let Publication { data, offset } = *publication;
        let publisher = self.publishers.number(data.p);
        let channel = subscription.channel;
        self.counts.delivered += 1;
        if offset > 0 {
            if offset != subscription.offset + 1 {
                let text = format!(
                    "the offset {offset} after {}, number {} of {}",
                    subscription.offset, data.s, data.p
                );
                self.fault(client, channel, &text);
            }
            subscription.offset = offset;
            let position = (channel, subscription.epoch.unwrap_or(u32::MAX), offset);
            let before = *self.by_position.entry(position).or_insert((publisher, data.s));
            if before != (publisher, data.s) {
                let text = format!(
                    "two publications at the offset {offset}: number {} of {} and number {} of {}",
                    before.1,
                    self.publishers.text(before.0),
                    data.s,
                    data.p
                );
                self.fault(client, channel, &text);
            }
        }
        self.count_number(subscription, publisher, data.s);
        self.record_delay(client, channel, data.s, now.as_secs_f64() - data.t);
    }

    fn count_number(&mut self, subscription: &mut Subscription, publisher: u32, number: u64) {
        let (last, notices) = subscription.seen(publisher);
        let is_noticed = notices != subscription.notices;
        let range = |beliefs: &Beliefs, from, to| -> Range {
            let channel = beliefs.channels.text(subscription.channel).to_owned();
            (channel, beliefs.publishers.text(publisher).to_owned(), from, to)
        };
        if number <= last {
            // A fault, unless the publisher does not know the outcome: it has sent the next one meanwhile.
            if is_noticed {
                self.counts.repeated_with_notice += 1;
            } else {
                self.counts.repeat_count += 1;
                if self.repeats.len() < GAPS_KEPT {
                    self.repeats.push(range(self, number, number));
                }
            }
        } else if number > last + 1 {
            if is_noticed {
                self.counts.missed_with_notice += number - last - 1;
            } else {
                self.counts.gap_count += 1;
                if self.gaps.len() < GAPS_KEPT {
                    self.gaps.push(range(self, last + 1, number - 1));
                }
            }
        }
        // Behind a notice, repetitions are counted as such until something newer arrives.
        let notices = match number <= last {
            true => notices,
            false => subscription.notices,
        };
        let entry = (publisher, number.max(last), notices);
        match subscription.seen.iter_mut().find(|(name, ..)| *name == publisher) {
            Some(seen) => *seen = entry,
            None => subscription.seen.push(entry),
        }
    }

    fn record_delay(&mut self, client: usize, channel: u32, number: u64, delay: f64) {
        let milliseconds = (delay.max(0.0) * 1000.0) as usize;
        self.latency[milliseconds.min(LATENCY_BUCKETS - 1)] += 1;
        if delay > self.latency_max {
            (self.latency_max, self.slowest) = (delay, Some((client, channel, number)));
        }
    }

    /// Starts the delays again.
    pub(crate) fn mark(&mut self) {
        self.latency.fill(0);
        (self.latency_max, self.slowest) = (0.0, None);
    }

    /// Returns the last number of a subscription, and the one that it should have, if it lacks some. `is_end`: nothing follows, so
    /// subscriptions that were notified since lack none.
    pub(crate) fn lacks(
        &self,
        subscription: &Subscription,
        publisher: &str,
        wanted: u64,
        is_end: bool,
    ) -> Option<u64> {
        let (number, notices) = match self.publishers.find(publisher) {
            Some(publisher) => subscription.seen(publisher),
            None => (0, 0),
        };
        let is_excused = is_end && subscription.is_live && notices != subscription.notices;
        (number < wanted && !is_excused).then_some(number)
    }

    pub(crate) fn report(&self, by_port: BTreeMap<String, u64>) -> Report<'_> {
        let total: u64 = self.latency.iter().sum();
        let percentile = |percent: u64| {
            let mut seen = 0;
            let reached = self.latency.iter().position(|count| {
                seen += count;
                seen * 100 >= total * percent
            });
            reached.unwrap_or_default()
        };
        let slowest = self.slowest;
        Report {
            counts: &self.counts,
            closes: &self.closes,
            faults: &self.faults,
            gaps: &self.gaps,
            repeats: &self.repeats,
            max_ms: (self.latency_max * 10_000.0).round() / 10.0,
            slowest: slowest
                .map(|(client, channel, number)| (client, self.channels.text(channel).to_owned(), number)),
            by_port,
            p50_ms: percentile(50),
            p99_ms: percentile(99),
        }
    }
}

#[cfg(test)]
mod tests;
