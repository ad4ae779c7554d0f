//! Results of requests at endpoints: counts of the upstream, response times, and the ejection of endpoints that fail.

use std::time::Duration;

use super::{PoolEndpoint, UpstreamPool};
use crate::fault::Fault;
use crate::health::{RequestOutcome, may_eject};

impl UpstreamPool {
    /// Records the result of a request at an endpoint, which may be ejected for it.
    pub(crate) fn record_outcome(&self, endpoint: &PoolEndpoint, outcome: RequestOutcome) {
        if outcome == RequestOutcome::Failure {
            endpoint.endpoint.state.health().outliers.count_failure();
        }
        let snapshot = self.refresh_snapshot();
        let Some(rules) = &snapshot.upstream.config.health.outliers else {
            return;
        };
        let now = self.cx.now().0;
        let record = &endpoint.endpoint.state.health().outliers;
        let Some(reason) = record.record_outcome(outcome, now, rules) else {
            return;
        };
        let endpoints = &snapshot.upstream.endpoints;
        let ejected = endpoints
            .iter()
            .filter(|endpoint| endpoint.state.health().ejected_until() > now);
        if may_eject(ejected.count(), endpoints.len(), rules)
            && record.eject(now, self.cx.wall(), rules, reason)
        {
            self.upstream.bump_health_version();
            let (name, addr) = (&self.upstream.name, &endpoint.endpoint.addr);
            log::warn!(
                event = "endpoint_ejected", upstream:% = name, endpoint:% = addr, reason:% = reason;
                "upstream `{name}`: {addr} is ejected: {reason}"
            );
        }
    }

    /// Returns whether connections to the upstream have nothing of their own before or around the bytes that are forwarded.
    pub(crate) fn is_plain(&self) -> bool {
        let config = &self.refresh_snapshot().upstream.config;
        config.tls.is_none() && config.proxy_protocol.is_none()
    }

    /// Records the response time of an endpoint.
    pub(crate) fn record_latency(&self, endpoint: &PoolEndpoint, span: Duration) {
        if let Some(half_life) = self.refresh_snapshot().upstream.balancer.half_life() {
            endpoint
                .endpoint
                .state
                .record_latency(self.cx.now().0, span, half_life);
        }
    }

    /// Counts an attempt: a request, or a forwarded connection, is about to use an endpoint.
    pub(crate) fn count_attempt(&self) {
        self.counts.count_attempt();
    }

    /// Counts a response of the upstream whose status is not recorded by [`UpstreamPool::record_response`]; a tunnel has status 101.
    pub(crate) fn count_response(&self, status: u16) {
        self.counts.count_response(status);
    }

    /// Counts an attempt that ended with a fault.
    pub(crate) fn count_fault(&self, fault: Fault) {
        self.upstream.counters.0.count_fault(fault);
    }

    /// Records the status and the response time of an endpoint.
    pub(crate) fn record_response(&self, endpoint: &PoolEndpoint, span: Duration, status: u16) {
        self.count_response(status);
        self.record_latency(endpoint, span);
        self.record_outcome(endpoint, RequestOutcome::from_failed(status >= 500));
    }
}
