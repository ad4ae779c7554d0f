//! Metrics and the access log line of a connection, however it ends.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_web::{LogField, StreamConnection, StreamLog, StreamLogRecord};
use ringmain_wire::tls::Hello;

use super::StreamPlan;
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::model::{Name, StreamRoute};
use crate::stats::{ConnectionEnd, StreamCounts};
use crate::upstream::pool::PoolEndpoint;

/// A connection in progress.
pub(super) struct ConnectionLog {
    worker: Rc<Worker>,
    logging: StreamLog,
    started: Time,
    /// Those of connections without a route, until a route has matched.
    counts: Arc<StreamCounts>,
    /// The client has sent a ClientHello.
    is_tls: bool,
    /// The TLS session is between the client and another server.
    is_passthrough: bool,
    name: Option<String>,
    route: Option<Name>,
    upstream: Option<Name>,
    endpoint: Option<String>,
    connect: Duration,
    tries: u64,
    received: Cell<u64>,
    sent: Cell<u64>,
    ended: Cell<ConnectionEnd>,
    fault: Cell<Option<Fault>>,
}

impl ConnectionLog {
    pub(super) fn start(worker: &Rc<Worker>, incoming: &StreamConnection) -> ConnectionLog {
        ConnectionLog {
            worker: Rc::clone(worker),
            logging: incoming.stream_log(),
            started: worker.cx.now(),
            counts: worker.counters.stream(crate::stats::NO_ROUTE),
            is_tls: false,
            is_passthrough: false,
            name: None,
            route: None,
            upstream: None,
            endpoint: None,
            connect: Duration::ZERO,
            tries: 0,
            received: Cell::new(0),
            sent: Cell::new(0),
            // Unless another end is set, the connection was dropped with the worker's others.
            ended: Cell::new(ConnectionEnd::Shutdown),
            fault: Cell::new(None),
        }
    }

    /// Records the SNI of a client that speaks TLS.
    pub(super) fn record_hello(&mut self, hello: Option<&Hello>) {
        self.is_tls = hello.is_some();
        self.name = hello.and_then(|hello| hello.server_name.clone());
    }

    /// Records that the TLS session is between the client and another server.
    pub(super) fn set_passthrough(&mut self) {
        self.is_passthrough = true;
    }

    /// Returns whether a rejection is sent as a TLS alert.
    pub(super) fn sends_alerts(&self) -> bool {
        self.is_tls && !self.is_passthrough
    }

    /// Sets the route.
    pub(super) fn set_route(&mut self, route: &StreamRoute, plan: &StreamPlan) {
        self.route = Some(Arc::clone(&route.name));
        self.counts = self.worker.counters.stream(plan.number);
        self.counts.count_open();
    }

    /// Records a finished connection attempt.
    pub(super) fn record_attempt(&mut self, upstream: &Name, end: &PoolEndpoint, span: Duration) {
        self.tries += 1;
        self.connect = span;
        self.upstream = Some(Arc::clone(upstream));
        self.endpoint = self.logging.is_enabled().then(|| end.endpoint.addr.to_string());
    }

    /// Counts bytes from the client.
    pub(super) fn count_received(&self, count: usize) {
        self.received.set(self.received.get() + count as u64);
        self.counts.count_received(count);
    }

    /// Counts bytes to the client.
    pub(super) fn count_sent(&self, count: usize) {
        self.sent.set(self.sent.get() + count as u64);
        self.counts.count_sent(count);
    }

    /// Returns the bytes so far, in both directions.
    pub(super) fn bytes_moved(&self) -> u64 {
        self.received.get() + self.sent.get()
    }

    /// Records the end of a forwarded connection.
    pub(super) fn record_end(&self, ended: ConnectionEnd) {
        self.ended.set(ended);
    }

    /// Records the fault of a connection that was not forwarded.
    pub(super) fn record_fault(&self, fault: Fault) {
        self.fault.set(Some(fault));
        self.ended.set(ConnectionEnd::Fault);
        self.worker.counters.count_fault(fault);
    }

    fn log_fields(&self) -> Vec<(&'static str, LogField)> {
        let number = |span: Duration| LogField::Number(u64::try_from(span.as_micros()).unwrap_or(u64::MAX));
        let text = |name: &Name| LogField::Text(Arc::clone(name));
        let mut notes = Vec::new();
        notes.extend(self.route.as_ref().map(|name| ("route", text(name))));
        notes.extend(self.upstream.as_ref().map(|name| ("upstream", text(name))));
        let endpoint = self.endpoint.as_deref();
        notes.extend(endpoint.map(|addr| ("endpoint", LogField::Text(addr.into()))));
        if self.tries > 0 {
            notes.push(("upstream_us", number(self.connect)));
            notes.push(("tries", LogField::Number(self.tries)));
        }
        notes.push(("received", LogField::Number(self.received.get())));
        notes.push(("ended", LogField::Word(self.ended.get().label())));
        let fault = self.fault.get();
        notes.extend(fault.map(|fault| ("fault", LogField::Word(fault.label()))));
        notes
    }
}

impl Drop for ConnectionLog {
    fn drop(&mut self) {
        if self.route.is_none() {
            self.counts.count_open();
        }
        self.counts.count_end(self.ended.get());
        if !self.logging.is_enabled() {
            return;
        }
        self.logging.record(&StreamLogRecord {
            protocol: if self.is_tls { "TLS" } else { "TCP" },
            target: self.name.as_deref().unwrap_or("-"),
            status: self.fault.get().map_or(200, Fault::status),
            sent: self.sent.get(),
            span: self.worker.cx.now().since(self.started),
            log_fields: &self.log_fields(),
        });
    }
}
