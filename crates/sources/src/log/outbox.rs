//! The events of an adapter that the node has not received yet, its state of health, and its lines in the log of the program.
//!
//! The state is *connected* while the broker can be reached, unless every partition whose append or check was answered within
//! [`limits::LOG_FAILED_TIME`] has failed. One partition of many that fails is logged; its owner is not ready, as its beats do not arrive.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ringmain_cluster::limits::LOG_BATCH_RECORDS;
use ringmain_cluster::log::{AppendOutcome, Health, LogEvent, LogPort, LogRequest, Partition, Record};
use ringmain_sys::clock;
use tokio::sync::mpsc;

use crate::limits;

/// The node has ended.
#[derive(Debug)]
pub(super) struct NodeEnded;

/// The outcome of an append, for its partition's health.
#[derive(Debug)]
#[cfg_attr(not(any(feature = "jetstream", feature = "kafka")), allow(dead_code))]
pub(super) struct Acknowledgement {
    pub(super) id: u64,
    pub(super) partition: Partition,
    pub(super) outcome: AppendOutcome,
    pub(super) failure: Option<AppendFailure>,
}

/// The reason for which an append was not acknowledged.
#[derive(Debug)]
#[cfg_attr(not(any(feature = "jetstream", feature = "kafka")), allow(dead_code))]
pub(super) enum AppendFailure {
    /// The entry is not accepted, and others are.
    OfEntry(String),
    /// The partition accepts nothing at the moment.
    OfPartition(String),
}

/// The last answer of a partition.
#[derive(Debug)]
struct Answer {
    /// The reason of a failure.
    failure: Option<Arc<str>>,
    at: Duration,
}

/// Events in the order in which they are sent.
#[derive(Debug)]
pub(super) struct Outbox {
    sender: mpsc::Sender<Vec<LogEvent>>,
    events: Vec<LogEvent>,
    engine: &'static str,
    /// The state that the node knows.
    health: Health,
    /// The reason why the broker cannot be reached. `None`: it can.
    unreachable: Option<Arc<str>>,
    /// The partitions whose append or check was answered a short time ago.
    answers: BTreeMap<Partition, Answer>,
    lines: Lines,
    /// The last settings that differ.
    differences: String,
}

impl Outbox {
    pub(super) fn new(sender: mpsc::Sender<Vec<LogEvent>>, engine: &'static str) -> Outbox {
        let reason: Arc<str> = "not connected yet".into();
        Outbox {
            sender,
            events: Vec::new(),
            engine,
            health: Health {
                is_connected: false,
                reason: Arc::clone(&reason),
            },
            unreachable: Some(reason),
            answers: BTreeMap::new(),
            lines: Lines::default(),
            differences: String::new(),
        }
    }

    /// Adds an event.
    pub(super) fn push(&mut self, event: LogEvent) {
        self.events.push(event);
    }

    /// Adds the outcome of an append.
    pub(super) fn appended(&mut self, id: u64, outcome: AppendOutcome) {
        self.events.push(LogEvent::Appended { id, outcome });
    }

    /// Adds the outcome of an append, and notes it for the health of its partition.
    #[cfg(any(feature = "jetstream", feature = "kafka"))]
    pub(super) fn acknowledged(&mut self, acknowledgement: Acknowledgement) {
        let Acknowledgement {
            id,
            partition,
            outcome,
            failure,
        } = acknowledgement;
        self.appended(id, outcome);
        match failure {
            Some(AppendFailure::OfEntry(reason)) => {
                self.warn(&format!("partition {}: {reason}", partition.0));
            }
            Some(AppendFailure::OfPartition(reason)) => self.refused(partition, &reason),
            None if matches!(outcome, AppendOutcome::Appended(_) | AppendOutcome::Repeated(_)) => {
                self.accepted(partition);
            }
            None => {}
        }
    }

    /// Adds records, in parts of the size that a node accepts.
    pub(super) fn records(&mut self, partition: Partition, mut records: Vec<Record>, now_ms: i64) {
        while !records.is_empty() {
            let rest = records.split_off(records.len().min(LOG_BATCH_RECORDS));
            self.events.push(LogEvent::Records {
                partition,
                records,
                now_ms,
            });
            records = rest;
        }
    }

    /// Notes that the broker can be reached.
    pub(super) fn reachable(&mut self) {
        self.unreachable = None;
    }

    /// Notes that the broker cannot be reached for this reason.
    pub(super) fn disconnected(&mut self, reason: &str) {
        self.unreachable = Some(reason.into());
        self.warn(&format!("{reason}; retrying"));
    }

    /// Notes that a partition has accepted an append, or has passed a check.
    pub(super) fn accepted(&mut self, partition: Partition) {
        self.note(partition, None);
    }

    /// Notes that a partition did not accept an append, or has failed a check, for this reason.
    pub(super) fn refused(&mut self, partition: Partition, reason: &str) {
        self.note(partition, Some(reason.into()));
        self.warn(&format!("partition {}: {reason}; retrying", partition.0));
    }

    fn note(&mut self, partition: Partition, failure: Option<Arc<str>>) {
        let at = clock::monotonic();
        self.answers.insert(partition, Answer { failure, at });
    }

    /// Logs a warning; see [`Lines`].
    pub(super) fn warn(&mut self, text: &str) {
        if self.lines.admit(text, clock::monotonic()) {
            log::warn!("push log ({}): {text}", self.engine);
        }
    }

    /// Logs the settings of a stream or topic that are not the configured ones, once.
    pub(super) fn warn_settings(&mut self, name: &str, differences: &str) {
        if differences != self.differences {
            self.differences = differences.to_owned();
            if !differences.is_empty() {
                self.warn(&format!(
                    "{name} has other settings than configured, and keeps them: {differences}"
                ));
            }
        }
    }

    /// Drops answers that are too old to count. Called at an interval.
    pub(super) fn expire(&mut self) {
        let now = clock::monotonic();
        self.answers
            .retain(|_, answer| now.saturating_sub(answer.at) < limits::LOG_FAILED_TIME);
        if let Some(suppressed) = self.lines.expire(now) {
            log::warn!(
                "push log ({}): {suppressed} further lines were left out, above {} within {:?}",
                self.engine,
                limits::LOG_LINES,
                limits::LOG_INTERVAL
            );
        }
    }

    /// Returns the reason why the log is not connected.
    fn failure(&self) -> Option<Arc<str>> {
        if self.unreachable.is_some() {
            return self.unreachable.clone();
        }
        let mut failures = self.answers.values().map(|answer| &answer.failure);
        let first = failures.next()?.clone()?;
        failures.all(Option::is_some).then_some(first)
    }

    /// Adds the state of health, if it is another one.
    fn update_health(&mut self) {
        let failure = self.failure();
        let health = Health {
            is_connected: failure.is_none(),
            reason: failure.unwrap_or_default(),
        };
        if health == self.health {
            return;
        }
        if health.is_connected && self.lines.admit("connected", clock::monotonic()) {
            log::info!("push log ({}): connected", self.engine);
        }
        self.health = health.clone();
        self.events.push(LogEvent::Health(health));
    }

    /// Sends all events. Waits while the node has too many.
    pub(super) async fn flush(&mut self) -> Result<(), NodeEnded> {
        self.update_health();
        if self.events.is_empty() {
            return Ok(());
        }
        let events = std::mem::take(&mut self.events);
        self.sender.send(events).await.map_err(|_| NodeEnded)
    }

    /// Refuses all appends of a node: for a build without the client of the broker.
    pub(super) async fn refuse_all(port: LogPort, engine: &'static str) {
        let LogPort { mut requests, events } = port;
        let mut outbox = Outbox::new(events, engine);
        outbox.disconnected("this build has no client for it");
        loop {
            if outbox.flush().await.is_err() {
                return;
            }
            let Some(batch) = requests.recv().await else {
                return;
            };
            for request in batch {
                if let LogRequest::Append(append) = request {
                    outbox.appended(append.id, AppendOutcome::Refused);
                }
            }
        }
    }
}

/// The texts that were logged within an interval: each once, and at most [`limits::LOG_LINES`]. Further ones are counted, and their number is
/// logged at the end of the interval.
#[derive(Debug, Default)]
struct Lines {
    since: Duration,
    texts: Vec<Box<str>>,
    suppressed: u64,
}

impl Lines {
    /// Returns whether a text is to be logged.
    fn admit(&mut self, text: &str, now: Duration) -> bool {
        if self.texts.is_empty() {
            self.since = now;
        }
        if self.texts.iter().any(|known| **known == *text) {
            return false;
        }
        if self.texts.len() == limits::LOG_LINES {
            self.suppressed += 1;
            return false;
        }
        self.texts.push(text.into());
        true
    }

    /// Begins the next interval if this one has ended. Returns the number of texts that were left out, if there were any.
    fn expire(&mut self, now: Duration) -> Option<u64> {
        if now.saturating_sub(self.since) < limits::LOG_INTERVAL {
            return None;
        }
        self.texts.clear();
        Some(std::mem::take(&mut self.suppressed)).filter(|suppressed| *suppressed > 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_cluster::log::{LogEvent, Partition};
    use ringmain_sys::clock;
    use tokio::sync::mpsc;

    use super::{Lines, Outbox};
    use crate::limits;

    const ONE: Partition = Partition(1);
    const OTHER: Partition = Partition(2);

    fn outbox() -> Outbox {
        let (sender, _receiver) = mpsc::channel(1);
        Outbox::new(sender, "redis")
    }

    /// Returns the states that the node receives.
    fn states(outbox: &mut Outbox) -> Vec<bool> {
        outbox.update_health();
        let events = std::mem::take(&mut outbox.events);
        let states = events.into_iter().filter_map(|event| match event {
            LogEvent::Health(health) => Some(health.is_connected),
            _ => None,
        });
        states.collect()
    }

    /// Lets the time pass after which an answer does not count.
    fn age(outbox: &mut Outbox, partition: Partition) {
        let answer = outbox.answers.get_mut(&partition).expect("an answer");
        answer.at = clock::monotonic() - limits::LOG_FAILED_TIME;
        outbox.expire();
    }

    #[test]
    fn a_broker_that_is_reached_and_refuses_appends_is_not_healthy() {
        let mut outbox = outbox();
        outbox.reachable();
        assert_eq!(states(&mut outbox), [true]);
        outbox.refused(ONE, "NOREPLICAS");
        assert_eq!(states(&mut outbox), [false]);
        for _ in 0..2 {
            outbox.disconnected("closed");
            outbox.reachable();
            outbox.refused(ONE, "NOREPLICAS");
            assert_eq!(states(&mut outbox), [true; 0], "it does not flap");
        }
        outbox.accepted(ONE);
        assert_eq!(states(&mut outbox), [true]);
        outbox.disconnected("closed");
        assert_eq!(states(&mut outbox), [false]);
        outbox.reachable();
        assert_eq!(states(&mut outbox), [true]);
        // A node without partitions appends nothing more.
        outbox.refused(ONE, "NOREPLICAS");
        assert_eq!(states(&mut outbox), [false]);
        age(&mut outbox, ONE);
        assert_eq!(states(&mut outbox), [true]);
    }

    #[test]
    fn one_partition_that_fails_does_not_change_the_state() {
        let mut outbox = outbox();
        outbox.reachable();
        outbox.accepted(OTHER);
        assert_eq!(states(&mut outbox), [true]);
        for _ in 0..3 {
            outbox.refused(ONE, "WRONGTYPE");
            outbox.accepted(OTHER);
            assert_eq!(states(&mut outbox), [true; 0]);
        }
        outbox.refused(OTHER, "OOM");
        assert_eq!(states(&mut outbox), [false], "all fail");
        outbox.accepted(ONE);
        assert_eq!(states(&mut outbox), [true]);
        // The other one is appended to by another node now.
        outbox.accepted(OTHER);
        outbox.refused(ONE, "WRONGTYPE");
        age(&mut outbox, OTHER);
        assert_eq!(states(&mut outbox), [false]);
    }

    #[test]
    fn lines_of_the_log_are_limited() {
        let mut lines = Lines::default();
        let at = |seconds| limits::LOG_INTERVAL * seconds;
        for text in 0..limits::LOG_LINES {
            let text = text.to_string();
            assert!(lines.admit(&text, at(1)), "the first time");
            assert!(!lines.admit(&text, at(1)), "a repetition");
        }
        for _ in 0..3 {
            assert!(!lines.admit("one more", at(1)));
        }
        let end = at(2) - Duration::from_millis(1);
        assert_eq!(lines.expire(end), None);
        assert_eq!(lines.expire(at(2)), Some(3));
        assert!(lines.admit("one more", at(2)));
        assert_eq!(lines.expire(at(9)), None);
    }
}
