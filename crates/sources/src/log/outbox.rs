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
    /// The time of the last log line about the reason.
    logged: Option<Duration>,
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
            logged: None,
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

    /// Notes that appends are accepted.
    pub(super) fn connected(&mut self) {
        if !self.health.is_connected {
            log::info!("push log ({}): connected", self.engine);
            self.logged = None;
            self.set_health(true, "");
        }
    }

    /// Notes that appends are not accepted for this reason, and logs it unless it did so a short time ago.
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
