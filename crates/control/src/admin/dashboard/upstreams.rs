//! Rows of upstreams and their endpoints: states, reasons, and the times since which they hold.

use std::time::Duration;

use ringmain_gateway::fault::{Fault, FaultSide};
use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::stats::upstreams::EndpointStatus;
use ringmain_gateway::{MirrorOutcome, UpstreamStatus};
use serde::Serialize;

use crate::admin::status::fault_reason;
use crate::limits::DASHBOARD_ENDPOINTS;

#[derive(Serialize)]
pub(super) struct UpstreamRow<'a> {
    name: &'a str,
    /// Attempts, retried, hedged and mirrored requests included; for TCP and TLS routes connections.
    total: u64,
    /// The rate of attempts since the previous snapshot.
    per_s: f64,
    /// Rates of the upstream's responses with a status 1xx to 5xx.
    classes_per_s: [f64; 5],
    /// The rate of attempts without a connection.
    connect_errors_per_s: f64,
    /// The rate of other faults of the upstream: resets, timeouts, invalid and incomplete responses.
    broken_per_s: f64,
    requests: u32,
    connections: u32,
    waiting: u32,
    retries: u64,
    retries_refused: u64,
    copies: u64,
    copies_lost: u64,
    /// Failed attempts by fault, most frequent first.
    faults: Vec<(&'static str, u64)>,
    endpoints: Vec<EndpointRow>,
    more_endpoints: usize,
    /// The reason why there is no endpoint.
    no_endpoint: Option<&'static str>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(super) struct EndpointRow {
    address: String,
    /// `healthy`, `unhealthy`, `unknown`, `ejected`, `unreachable` or `draining`.
    state: &'static str,
    /// The reason for the state, if known.
    why: Option<String>,
    /// The time of the first failure, in seconds since the Unix epoch.
    since: Option<u64>,
    /// The remaining time without requests to the endpoint.
    seconds_left: Option<u64>,
    requests: u32,
}

/// Returns the number of attempts without a connection, and of those with another fault of the upstream.
fn failed_attempts(status: &UpstreamStatus) -> (u64, u64) {
    let (mut unconnected, mut broken) = (0, 0);
    for (fault, count) in &status.faults {
        match fault {
            Fault::TlsCertificate => unconnected += count,
            fault if fault.is_connect_failure() => unconnected += count,
            // An attempt that used up the time of its request.
            Fault::RequestTimeout => broken += count,
            fault if fault.side() == FaultSide::Upstream => broken += count,
            _ => {}
        }
    }
    (unconnected, broken)
}

impl<'a> UpstreamRow<'a> {
    /// `before` is the status of the same upstream in the previous snapshot; `per_s` returns the rate of a count and its previous value.
    pub(super) fn of(
        status: &'a UpstreamStatus,
        before: Option<&UpstreamStatus>,
        per_s: impl Fn(u64, u64) -> f64,
        wall: Duration,
    ) -> UpstreamRow<'a> {
        let (attempts_before, responses_before) =
            before.map_or((0, [0; 5]), |it| (it.attempts, it.responses));
        let (unconnected, broken) = failed_attempts(status);
        let (unconnected_before, broken_before) = before.map_or((0, 0), failed_attempts);
        let sent = status.mirrors[MirrorOutcome::Sent as usize];
        let mut faults: Vec<_> = status
            .faults
            .iter()
            .map(|(fault, count)| (fault.label(), *count))
            .collect();
        faults.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        UpstreamRow {
            name: &status.name,
            total: status.attempts,
            per_s: per_s(status.attempts, attempts_before),
            classes_per_s: std::array::from_fn(|class| {
                per_s(status.responses[class], responses_before[class])
            }),
            connect_errors_per_s: per_s(unconnected, unconnected_before),
            broken_per_s: per_s(broken, broken_before),
            requests: status.requests,
            connections: status.connections,
            waiting: status.waiting,
            retries: status.retries,
            retries_refused: status.retries_refused,
            copies: sent,
            copies_lost: status.mirrors.iter().sum::<u64>() - sent,
            faults,
            endpoints: endpoint_rows(&status.endpoints, wall),
            more_endpoints: status.endpoints.len().saturating_sub(DASHBOARD_ENDPOINTS),
            no_endpoint: status.no_endpoint.map(fault_reason),
        }
    }
}

/// Unhealthy, ejected, unreachable and draining endpoints first.
fn endpoint_rows(endpoints: &[EndpointStatus], wall: Duration) -> Vec<EndpointRow> {
    let mut endpoint_rows: Vec<EndpointRow> = endpoints
        .iter()
        .map(|endpoint| EndpointRow::of(endpoint, wall))
        .collect();
    endpoint_rows.sort_by_key(|end| matches!(end.state, "healthy" | "unknown"));
    endpoint_rows.truncate(DASHBOARD_ENDPOINTS);
    endpoint_rows
}

impl EndpointRow {
    pub(super) fn of(endpoint: &EndpointStatus, wall: Duration) -> EndpointRow {
        let left = |until: Duration| until.checked_sub(wall).filter(|left| !left.is_zero());
        let ejected = endpoint
            .ejection
            .and_then(|it| Some((it.reason, left(it.until)?)));
        let unreachable = endpoint.unreachable_until.and_then(left);
        // A later health check that connects to the same address has removed it.
        let failing = endpoint.connect_failure;
        let check = endpoint.check_error.as_ref();
        let mut row = EndpointRow {
            address: endpoint.addr.to_string(),
            state: "unknown",
            why: None,
            since: None,
            seconds_left: None,
            requests: endpoint.requests,
        };
        let mut until = None;
        match (endpoint.verdict, ejected, failing) {
            (CheckVerdict::Unhealthy, ..) => {
                row.state = "unhealthy";
                row.why =
                    Some(check.map_or_else(|| "health check failed".to_owned(), |it| it.reason.to_string()));
                row.since = check.map(|it| it.since.as_secs());
            }
            (_, Some((why, left)), failing) => {
                row.state = "ejected";
                row.why = Some(match failing {
                    Some(failure) => format!("{why}: {}", fault_reason(failure.fault)),
                    None => why.to_string(),
                });
                row.since = failing.map(|failure| failure.since.as_secs());
                until = Some(left);
            }
            (.., Some(failure)) => {
                row.state = "unreachable";
                row.why = Some(fault_reason(failure.fault).to_owned());
                row.since = Some(failure.since.as_secs());
                until = unreachable;
            }
            _ if endpoint.draining => row.state = "draining",
            (CheckVerdict::Healthy, ..) => {
                row.state = "healthy";
                // Failures below the threshold.
                row.why = check.map(|it| format!("last health check failed: {}", it.reason));
                row.since = check.map(|it| it.since.as_secs());
            }
            (CheckVerdict::Unknown, ..) => {}
        }
        row.seconds_left = until.map(|left| left.as_secs() + u64::from(left.subsec_nanos() > 0));
        row
    }
}
