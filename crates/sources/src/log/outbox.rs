//! The events of an adapter that the node has not received yet, and its state of health.

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

/// Events in the order in which they are sent.
#[derive(Debug)]
pub(super) struct Outbox {
    sender: mpsc::Sender<Vec<LogEvent>>,
    events: Vec<LogEvent>,
    engine: &'static str,
    health: Health,
    /// The time of the last append that the broker did not accept, until it accepts one.
    failed: Option<Duration>,
    /// The time of the last log line about the reason.
    logged: Option<Duration>,
    /// The last warning, and its time.
    warned: Option<(Box<str>, Duration)>,
    /// The last settings that differ.
    differences: String,
}

impl Outbox {
    pub(super) fn new(sender: mpsc::Sender<Vec<LogEvent>>, engine: &'static str) -> Outbox {
        Outbox {
            sender,
            events: Vec::new(),
            engine,
            health: Health {
                is_connected: false,
                reason: "not connected yet".into(),
            },
            failed: None,
            logged: None,
            warned: None,
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

    /// Notes that the broker can be reached. An append that it did not accept a short time ago counts more.
    pub(super) fn reachable(&mut self) {
        let now = clock::monotonic();
        if self
            .failed
            .is_none_or(|at| now.saturating_sub(at) >= limits::LOG_FAILED_TIME)
        {
            self.accepted();
        }
    }

    /// Notes that the broker has accepted an append.
    pub(super) fn accepted(&mut self) {
        self.failed = None;
        if !self.health.is_connected {
            log::info!("push log ({}): connected", self.engine);
            self.logged = None;
            self.set_health(true, "");
        }
    }

    /// Notes that the broker did not accept an append for this reason.
    pub(super) fn refused(&mut self, reason: &str) {
        self.failed = Some(clock::monotonic());
        self.disconnected(reason);
    }

    /// Notes that the broker cannot be reached for this reason, and logs it unless it did so a short time ago.
    pub(super) fn disconnected(&mut self, reason: &str) {
        let is_new = self.health.is_connected || *self.health.reason != *reason;
        let now = clock::monotonic();
        if is_new || self.logged.is_none_or(|at| now - at >= limits::LOG_INTERVAL) {
            log::warn!("push log ({}): {reason}; retrying", self.engine);
            self.logged = Some(now);
        }
        if is_new {
            self.set_health(false, reason);
        }
    }

    /// Logs a failure that does not concern appends, unless it did so a short time ago.
    pub(super) fn warn(&mut self, reason: &str) {
        let now = clock::monotonic();
        let is_known = self.warned.as_ref().is_some_and(|(warned, at)| {
            **warned == *reason && now.saturating_sub(*at) < limits::LOG_INTERVAL
        });
        if !is_known {
            log::warn!("push log ({}): {reason}; retrying", self.engine);
            self.warned = Some((reason.into(), now));
        }
    }

    /// Logs the settings of a stream or topic that are not the configured ones, once.
    pub(super) fn warn_settings(&mut self, name: &str, differences: &str) {
        if differences != self.differences {
            self.differences = differences.to_owned();
            if !differences.is_empty() {
                log::warn!(
                    "push log ({}): {name} has other settings than configured, and keeps them: {differences}",
                    self.engine
                );
            }
        }
    }

    fn set_health(&mut self, is_connected: bool, reason: &str) {
        self.health = Health {
            is_connected,
            reason: Arc::from(reason),
        };
        self.events.push(LogEvent::Health(self.health.clone()));
    }

    /// Sends all events. Waits while the node has too many.
    pub(super) async fn flush(&mut self) -> Result<(), NodeEnded> {
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

#[cfg(test)]
mod tests {
    use ringmain_cluster::log::LogEvent;
    use ringmain_sys::clock;
    use tokio::sync::mpsc;

    use super::Outbox;
    use crate::limits;

    /// Returns the states that the node has received.
    fn states(outbox: &mut Outbox) -> Vec<bool> {
        let events = std::mem::take(&mut outbox.events);
        let states = events.into_iter().filter_map(|event| match event {
            LogEvent::Health(health) => Some(health.is_connected),
            _ => None,
        });
        states.collect()
    }

    #[test]
    fn a_broker_that_is_reached_and_refuses_appends_is_not_healthy() {
        let (sender, _receiver) = mpsc::channel(1);
        let mut outbox = Outbox::new(sender, "redis");
        outbox.reachable();
        assert_eq!(states(&mut outbox), [true]);
        outbox.refused("NOREPLICAS");
        outbox.reachable();
        outbox.refused("NOREPLICAS");
        outbox.reachable();
        assert_eq!(states(&mut outbox), [false], "it does not flap");
        outbox.accepted();
        assert_eq!(states(&mut outbox), [true]);
        outbox.disconnected("closed");
        outbox.reachable();
        assert_eq!(states(&mut outbox), [false, true]);
        // A node without partitions appends nothing more.
        outbox.refused("NOREPLICAS");
        outbox.failed = Some(clock::monotonic() - limits::LOG_FAILED_TIME);
        outbox.reachable();
        assert_eq!(states(&mut outbox), [false, true]);
    }
}
