//! A service that decides whether a request is within its limits (`envoy.service.ratelimit.v3.RateLimitService`).
//!
//! ```text
//! request ─▶ descriptors ─┬─ none ─────────────────────────────────────▶ Cleared
//!                         └─▶ ShouldRateLimit ─▶ decision ─┬─ admitted: headers ─▶ Cleared
//!                                                          ├─ over limit: 429 ───▶ Refusal
//!                                                          └─ failed ─▶ 503, or admitted if configured
//! ```
//!
//! As with external authorization there is no state between requests that a client could change for others: a failure concerns the
//! request whose call failed. `on_failure: allow` never applies to limits of the gateway, nor to a call that the service rejects for its
//! content: a client could cause both.

mod decision;
mod descriptors;
mod messages;

use std::sync::Arc;
use std::time::Duration;

use ringmain_wire::h1::FieldBlock;

use self::decision::{OverLimit, RateChanges, RateDecision, decide};
use self::messages::{RateLimitRequest, RateLimitResponse, SHOULD_RATE_LIMIT};
use super::{Cleared, ExternalResponse, PolicyInput, Refusal, StepResult, UsedHeaders};
use crate::fault::Fault;
use crate::grpc::{self, GrpcCall, GrpcError};
use crate::limits;
use crate::model::{self, Target};
use crate::resolve::with_timeout;
use crate::stats::{ExtensionKind, ExtensionOutcome};
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// The time after the timeout of its call at which it is aborted.
const GRACE: Duration = Duration::from_millis(50);

/// The rate limit service of a rule.
#[derive(Debug)]
pub(super) struct RateService {
    policy: Arc<model::RateService>,
    upstream: Arc<UpstreamState>,
}

impl RateService {
    pub(super) fn compile(
        policy: &Arc<model::RateService>,
        names: &mut UsedHeaders,
        upstreams: &UpstreamRegistry,
    ) -> Result<RateService, String> {
        let upstream = match &policy.upstream {
            Target::Upstream(name) => upstreams.find(name).cloned().ok_or_else(|| {
                format!("the rate limit service's upstream `{name}`, which is not configured")
            })?,
            Target::Broken { reason } => return Err(reason.to_string()),
        };
        names.written.extend(policy.upstream_headers.iter().cloned());
        Ok(RateService {
            policy: Arc::clone(policy),
            upstream,
        })
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let descriptors = descriptors::descriptors(&self.policy.descriptors, at, cleared);
        if descriptors.is_empty() {
            return Ok(());
        }
        let request = RateLimitRequest {
            domain: self.policy.domain.to_string(),
            descriptors,
        };
        let started_at = at.worker.cx.now();
        let (outcome, result) = match self.call(at, &request).await {
            Ok(response) => self.apply(decide(response, self.policy.limit_headers), at, cleared),
            Err(error) => {
                log::debug!("`{}` failed a request: {error}", self.upstream.name);
                (
                    ExtensionOutcome::Failed,
                    self.handle_failure(at, error.is_of_service()),
                )
            }
        };
        let span = at.worker.cx.now().since(started_at);
        let extension = (ExtensionKind::RateLimit, &self.upstream.name);
        at.worker.counters.count_extension(extension, outcome, span);
        result
    }

    async fn call(
        &self,
        at: &PolicyInput<'_, '_>,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, GrpcError> {
        let call = GrpcCall {
            path: SHOULD_RATE_LIMIT,
            host: self.policy.host.as_ref().map(|host| host.as_str()),
            metadata: &FieldBlock::new(),
            until: at.worker.cx.now().after(self.policy.timeout),
            is_stream: false,
            message_limit: limits::RATE_MESSAGE_BYTES,
            ignore_health: self.policy.fail_open,
        };
        let call = grpc::call(at.worker, &self.upstream, &call, request);
        // The call ends by itself in time; this is a safeguard.
        let called = with_timeout(&at.worker.cx, self.policy.timeout + GRACE, Box::pin(call)).await;
        called.unwrap_or_else(|| Err(Fault::HeadTimeout.into()))
    }

    fn apply(
        &self,
        decision: RateDecision,
        at: &PolicyInput<'_, '_>,
        cleared: &mut Cleared,
    ) -> (ExtensionOutcome, StepResult) {
        match decision {
            RateDecision::Admitted(RateChanges { headers, response }) => {
                for change in &headers {
                    cleared.set_upstream_header(&change.name, &change.value);
                }
                cleared.add_response_changes(response);
                (ExtensionOutcome::Allowed, Ok(()))
            }
            RateDecision::OverLimit(response) => (ExtensionOutcome::Denied, Err(self.refusal(response))),
            RateDecision::Failed(reason) => {
                log::debug!("`{}` failed a request: {reason}", self.upstream.name);
                (ExtensionOutcome::Failed, self.handle_failure(at, true))
            }
        }
    }

    /// Builds the refusal of a request over the limit; without a body of the service it has the gateway's own.
    fn refusal(&self, response: OverLimit) -> Box<Refusal> {
        if response.body.is_empty() {
            let mut refusal: Box<Refusal> = Fault::RateLimited.into();
            refusal.status = Some(self.policy.status);
            refusal.fields = response.fields;
            return refusal;
        }
        let external = ExternalResponse {
            status: self.policy.status,
            body: response.body,
        };
        Refusal::with_response(Fault::RateLimited, external, response.fields)
    }

    /// Handles a failed call. `by_service`: the fault is of the service, not of a limit of the gateway or of the request.
    fn handle_failure(&self, at: &PolicyInput<'_, '_>, by_service: bool) -> StepResult {
        if self.policy.fail_open && by_service {
            at.worker.counters.count_fault(Fault::LimiterDown);
            return Ok(());
        }
        Err(Fault::LimiterDown.into())
    }
}
