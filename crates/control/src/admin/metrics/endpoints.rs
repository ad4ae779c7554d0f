//! Endpoints: health, failures and requests in flight of each, up to a limit.

use std::time::Duration;

use ringmain_gateway::UpstreamStatus;
use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::stats::upstreams::EndpointStatus;
use ringmain_sys::clock;

use super::MetricsPage;
use crate::limits;

/// Name, kind, help, and the value at a time since the Unix epoch.
type EndpointColumn = (
    &'static str,
    &'static str,
    &'static str,
    fn(&EndpointStatus, Duration) -> u64,
);

const COLUMNS: [EndpointColumn; 3] = [
    (
        "ringmain_endpoint_healthy",
        "gauge",
        "1 while requests go to an endpoint as usual; 0 while its health check fails, it is ejected, or connections to it failed a moment ago.",
        |endpoint, wall| u64::from(is_healthy(endpoint, wall)),
    ),
    (
        "ringmain_endpoint_failures_total",
        "counter",
        "Attempts at an endpoint that failed: no connection, no response, or one with a status from 500 on.",
        |endpoint, _| endpoint.failures,
    ),
    (
        "ringmain_endpoint_requests",
        "gauge",
        "Requests in flight to an endpoint.",
        |endpoint, _| u64::from(endpoint.requests),
    ),
];

fn is_healthy(endpoint: &EndpointStatus, wall: Duration) -> bool {
    let ejected = endpoint.ejection.is_some_and(|it| it.until > wall);
    let unreachable = endpoint.unreachable_until.is_some_and(|until| until > wall);
    endpoint.verdict != CheckVerdict::Unhealthy && !ejected && !unreachable
}

pub(super) fn write_endpoints(page: &mut MetricsPage, upstreams: &[UpstreamStatus]) {
    let wall = clock::realtime();
    let all = || {
        let pairs = upstreams
            .iter()
            .flat_map(|upstream| upstream.endpoints.iter().map(move |it| (&upstream.name, it)));
        pairs.take(limits::METRIC_ENDPOINTS)
    };
    for (name, kind, help, pick) in COLUMNS {
        page.metric(name, kind, help);
        for (upstream, endpoint) in all() {
            let address = endpoint.addr.to_string();
            page.sample(
                name,
                &[("upstream", upstream), ("endpoint", &address)],
                pick(endpoint, wall),
            );
        }
    }
}
