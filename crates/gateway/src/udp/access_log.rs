//! The traffic of a session, and its line in the access log.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use ringmain_web::{LogField, StreamLog, StreamLogRecord};

use crate::fault::Fault;
use crate::model::Name;
use crate::stats::SessionEnd;

/// Datagrams and bytes of one session.
#[derive(Debug, Default)]
pub(super) struct SessionTraffic {
    received_datagrams: Cell<u64>,
    received: Cell<u64>,
    sent_datagrams: Cell<u64>,
    sent: Cell<u64>,
}

/// A session that has ended.
pub(super) struct SessionRecord<'a> {
    pub(super) route: &'a Name,
    pub(super) upstream: &'a Name,
    /// `None`: no endpoint was selected.
    pub(super) endpoint: Option<String>,
    pub(super) traffic: &'a SessionTraffic,
    pub(super) span: Duration,
    pub(super) ended: SessionEnd,
    pub(super) fault: Option<Fault>,
}

impl SessionTraffic {
    /// Counts datagrams from the client.
    pub(super) fn count_received(&self, datagrams: usize, bytes: usize) {
        add(&self.received_datagrams, datagrams);
        add(&self.received, bytes);
    }

    /// Counts datagrams to the client.
    pub(super) fn count_sent(&self, datagrams: usize, bytes: usize) {
        add(&self.sent_datagrams, datagrams);
        add(&self.sent, bytes);
    }
}

fn add(counter: &Cell<u64>, count: usize) {
    counter.set(counter.get().saturating_add(count as u64));
}

impl SessionRecord<'_> {
    /// Writes the line.
    pub(super) fn log(&self, log: &StreamLog) {
        log.record(&StreamLogRecord {
            protocol: "UDP",
            target: "-",
            status: self.fault.map_or(200, Fault::status),
            sent: self.traffic.sent.get(),
            span: self.span,
            log_fields: &self.log_fields(),
        });
    }

    fn log_fields(&self) -> Vec<(&'static str, LogField)> {
        let text = |name: &Name| LogField::Text(Arc::clone(name));
        let number = |count: &Cell<u64>| LogField::Number(count.get());
        let mut fields = vec![("route", text(self.route)), ("upstream", text(self.upstream))];
        let endpoint = self.endpoint.as_deref();
        fields.extend(endpoint.map(|addr| ("endpoint", LogField::Text(addr.into()))));
        fields.push(("received", number(&self.traffic.received)));
        fields.push(("received_datagrams", number(&self.traffic.received_datagrams)));
        fields.push(("sent_datagrams", number(&self.traffic.sent_datagrams)));
        fields.push(("ended", LogField::Word(self.ended.label())));
        fields.extend(self.fault.map(|fault| ("fault", LogField::Word(fault.label()))));
        fields
    }
}
