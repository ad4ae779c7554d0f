//! The counters of a request, and its access log fields besides the general ones.

use std::cell::RefCell;
use std::net::IpAddr;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Addr;
use ringmain_engine::backend::Time;
use ringmain_web::{LogField, Request};

use super::evaluation::PolicyResult;
use super::{RequestRoute, client};
use crate::fault::{Fault, Violation};
use crate::gateway::Worker;
use crate::model::{Name, Route};
use crate::policy::PolicyRecord;
use crate::stats::RequestCounter;
use crate::upstream::pool::PoolEndpoint;

/// Access log fields of a gateway's requests besides the general ones; templates may name them.
///
/// `route` and `rule` (its name, or its index from 0) matched the request; `identity` is the client's, as far as a policy has established
/// it; `upstream`, `endpoint`, `upstream_us` (from the choice of the endpoint to the response head, microseconds) and `tries` belong to the
/// last attempt; `fault` is the kind of the failure, `fault_rule` the rule that the upstream violated (docs/http1-rules.md, HTTP/2,
/// docs/tls-rules.md), `over_limit` the name of a rate limit that admitted a request over the limit, `authz` the metadata of the authorization
/// service as JSON. For relayed connections `upstream_us`
/// ends when the upstream is connected, `received` counts the bytes of the client and `ended` is the kind of termination
/// ([`ConnectionEnd`](crate::stats::ConnectionEnd)). For UDP sessions the last two are the same ([`SessionEnd`](crate::stats::SessionEnd)),
/// with the numbers of datagrams from and to the client.
pub const FIELDS: [&str; 15] = [
    "route",
    "rule",
    "identity",
    "upstream",
    "endpoint",
    "upstream_us",
    "tries",
    "fault",
    "fault_rule",
    "over_limit",
    "authz",
    "received",
    "received_datagrams",
    "sent_datagrams",
    "ended",
];

/// Records the route of a request.
pub(super) fn log_route(
    worker: &Worker,
    count: &RequestCounter<'_>,
    request_route: &RequestRoute<'_>,
    req: &Request<'_>,
) {
    let route = request_route.matched.route().route();
    match request_route.matched.plan().map(|plan| plan.number.get()) {
        Ok(Some(number)) => count.series(*number),
        // A broken rule has no plan.
        _ => count.series(worker.route_number(&route.name)),
    }
    if !req.is_logged() {
        return;
    }
    let client = client::address(&request_route.listener.client_address, req);
    log_rule(route, request_route.matched.rule_number(), client, req);
}

/// Logs the route and rule of a request, and its client's address. A rule without a name is a number from 1.
pub(super) fn log_rule(route: &Route, index: usize, client: Option<IpAddr>, req: &Request<'_>) {
    let rule = match &route.rules[index].name {
        Some(name) => LogField::Text(Arc::clone(name)),
        None => LogField::Number(index as u64 + 1),
    };
    req.log_field("route", LogField::Text(Arc::clone(&route.name)));
    req.log_field("rule", rule);
    if let Some(client) = client {
        req.log_client(client);
    }
}

/// Logs the client's identity, and the limit that a request exceeds, of its policies' result.
pub(super) fn log_policies(result: &PolicyResult, req: &Request<'_>) {
    let record = match result {
        Ok(cleared) => cleared.record(),
        Err(refusal) => Some(&refusal.record),
    };
    let Some(record) = record.filter(|_| req.is_logged()) else {
        return;
    };
    let PolicyRecord {
        identity,
        over_limit,
        authz,
    } = record;
    for (name, value) in [
        ("identity", identity),
        ("over_limit", over_limit),
        ("authz", authz),
    ] {
        if let Some(value) = value {
            req.log_field(name, LogField::Text(Arc::clone(value)));
        }
    }
}

/// Logs an attempt that has received a response head or has failed.
pub(super) fn log_attempt(
    worker: &Worker,
    req: &Request<'_>,
    upstream: &Name,
    end: &PoolEndpoint,
    started_at: Time,
    tried: usize,
) {
    if !req.is_logged() {
        return;
    }
    let span = worker.cx.now().since(started_at);
    req.log_field("upstream", LogField::Text(Arc::clone(upstream)));
    req.log_field("endpoint", LogField::Text(end.endpoint.addr.to_string().into()));
    req.log_field(
        "upstream_us",
        LogField::Number(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)),
    );
    req.log_field("tries", LogField::Number(tried as u64 + 1));
}

/// An attempt in progress. If it is dropped with its task, because the client has disconnected, it is logged like a finished one.
pub(super) struct PendingAttempt<'a, 'r> {
    worker: &'a Worker,
    req: &'a Request<'r>,
    upstream: &'a Name,
    attempt: RefCell<Option<(Rc<PoolEndpoint>, Time, usize)>>,
}

impl<'a, 'r> PendingAttempt<'a, 'r> {
    pub(super) fn new(
        worker: &'a Worker,
        req: &'a Request<'r>,
        upstream: &'a Name,
    ) -> PendingAttempt<'a, 'r> {
        PendingAttempt {
            worker,
            req,
            upstream,
            attempt: RefCell::new(None),
        }
    }

    /// Records the start of an attempt at this endpoint.
    pub(super) fn start(&self, end: &Rc<PoolEndpoint>, started_at: Time, tried: usize) {
        if self.req.is_logged() {
            self.attempt.replace(Some((Rc::clone(end), started_at, tried)));
        }
    }

    /// Records the end of the attempt.
    pub(super) fn finish(&self) {
        self.attempt.take();
    }
}

impl Drop for PendingAttempt<'_, '_> {
    fn drop(&mut self) {
        if let Some((end, started_at, tried)) = self.attempt.take() {
            log_attempt(self.worker, self.req, self.upstream, &end, started_at, tried);
        }
    }
}

/// Counts and logs a fault.
pub(super) fn log_fault(worker: &Worker, req: &Request<'_>, fault: Fault) {
    worker.counters.count_fault(fault);
    if req.is_logged() {
        req.log_field("fault", LogField::Word(fault.label()));
    }
}

/// Logs the rule that an endpoint violated, unless too many were logged within [`FAULT_LOG_SPAN`](crate::limits::FAULT_LOG_SPAN), and adds it to the access log.
#[cold]
pub(super) fn log_violation(
    worker: &Worker,
    req: &Request<'_>,
    upstream: &Name,
    addr: &Addr,
    detail: &Violation,
) {
    let now = worker.cx.now();
    if let Some(skipped) = worker.scratch.borrow_mut().fault_log.admit(now) {
        let suffix = match skipped {
            0 => String::new(),
            count => format!(" ({count} similar lines were not logged)"),
        };
        let Violation { rule, text } = detail;
        log::warn!("upstream `{upstream}`: {addr}: {rule}: {text}{suffix}");
    }
    if req.is_logged() {
        req.log_field("fault_rule", LogField::Text(detail.rule.as_str().into()));
    }
}
