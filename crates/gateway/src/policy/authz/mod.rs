//! A service that decides whether a request is allowed: over HTTP (nginx's `auth_request`, `forwardAuth`, Envoy's `ext_authz` with an HTTP
//! service) or over gRPC (`envoy.service.auth.v3.Authorization`).
//!
//! ```text
//! request ─▶ attributes ─▶ Check ─▶ decision ─┬─ allowed: headers, query, metadata ─▶ Cleared
//!         ─▶ X-Forwarded-* ─▶ status ─────────┼─ denied: the service's response ─▶ Refusal
//!                                             └─ failed ─▶ 503, or allowed if configured
//! ```
//!
//! The decision of one request says nothing about another one, and neither does its failure: there is no state between
//! requests that a client could change for others. A 5xx, a broken response and a timeout fail only the request whose query caused them. A
//! service that accepts no connections is the business of its upstream's health, as with any upstream.
//!
//! `on_failure: allow` applies to the failures of the service alone. It never applies to the gateway's own limits (a full
//! pool, no descriptors), which clients can fill, to an endpoint that is ejected or fails its health check, which is queried
//! all the same, or to a refusal whose body cannot be read.

mod attributes;
mod decision;
#[cfg(feature = "fuzzing")]
mod fuzzing;
mod grpc;
mod http;
mod messages;
mod query;

use std::sync::Arc;
use std::time::Duration;

use self::decision::Denial;
#[cfg(feature = "fuzzing")]
pub(crate) use self::fuzzing::authz_outcome;
use super::{Cleared, ExternalResponse, PolicyInput, Refusal, StepResult, UsedHeaders, body_buffer};
use crate::fault::Fault;
use crate::model::{AuthzRequest, ExternalAuth, HeaderName, Target};
use crate::stats::{ExtensionKind, ExtensionOutcome};
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// External authorization for a rule.
#[derive(Debug)]
pub(super) struct ExternalAuthz {
    policy: Arc<ExternalAuth>,
    upstream: Arc<UpstreamState>,
    /// Headers that earlier policies write: the client's values of these are not sent to the service.
    written: Box<[HeaderName]>,
}

/// The reason that a request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Admission {
    ByService,
    /// The service has failed, which the policy permits.
    WithoutDecision,
}

type CheckResult = Result<Admission, Box<Refusal>>;

/// The time after the timeout of its call at which a query is aborted.
const GRACE: Duration = Duration::from_millis(50);

impl ExternalAuthz {
    pub(super) fn compile(
        policy: &Arc<ExternalAuth>,
        names: &mut UsedHeaders,
        upstreams: &UpstreamRegistry,
    ) -> Result<ExternalAuthz, String> {
        let upstream = match &policy.upstream {
            Target::Upstream(name) => upstreams.find(name).cloned().ok_or_else(|| {
                format!("the authorization service's upstream `{name}`, which is not configured")
            })?,
            Target::Broken { reason } => return Err(reason.to_string()),
        };
        names.written.extend(ExternalAuthz::written_headers(policy));
        Ok(ExternalAuthz {
            policy: Arc::clone(policy),
            upstream,
            written: names.written.clone().into(),
        })
    }

    /// Returns the headers that it writes for upstreams.
    pub(super) fn written_headers(policy: &ExternalAuth) -> impl Iterator<Item = HeaderName> {
        policy.upstream_headers.iter().cloned()
    }

    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        if self.policy.body > 0 {
            let partial = self.policy.grpc().is_some_and(|grpc| grpc.partial_body);
            body_buffer::collect_body(at, cleared, self.policy.body, partial).await?;
        }
        let started_at = at.worker.cx.now();
        let (kind, result) = match &self.policy.ask {
            AuthzRequest::Grpc(check) => {
                let result = grpc::check(self, check, at, cleared).await;
                (ExtensionKind::AuthzGrpc, result)
            }
            AuthzRequest::Prefix(_) | AuthzRequest::Path(_) => {
                let result = http::check(self, at, cleared).await;
                (ExtensionKind::AuthzHttp, result)
            }
        };
        let outcome = match &result {
            Ok(Admission::ByService) => ExtensionOutcome::Allowed,
            Ok(Admission::WithoutDecision) => ExtensionOutcome::Failed,
            Err(refusal) if refusal.fault == Fault::AuthzDenied => ExtensionOutcome::Denied,
            Err(_) => ExtensionOutcome::Failed,
        };
        let span = at.worker.cx.now().since(started_at);
        let extension = (kind, &self.upstream.name);
        at.worker.counters.count_extension(extension, outcome, span);
        result.map(|_admission| ())
    }

    /// Returns the body that is sent to the service; empty: none.
    fn body<'c>(&self, cleared: &'c Cleared) -> &'c [u8] {
        let body = cleared.body().filter(|_| self.policy.body > 0);
        body.unwrap_or_default()
    }

    /// Handles a failed query. `by_service`: the fault is of the service, not of a limit of the gateway.
    fn handle_failure(&self, at: &PolicyInput<'_, '_>, by_service: bool) -> CheckResult {
        if self.policy.fail_open && by_service {
            at.worker.counters.count_fault(Fault::AuthzUnavailable);
            return Ok(Admission::WithoutDecision);
        }
        let mut refusal: Box<Refusal> = Fault::AuthzUnavailable.into();
        refusal.status = self.policy.failure_status;
        Err(refusal)
    }
}

/// Builds the refusal from the response of the service.
fn refusal(fault: Fault, denial: Denial) -> Box<Refusal> {
    let response = ExternalResponse {
        status: denial.status,
        body: denial.body,
    };
    Refusal::with_response(fault, response, denial.fields)
}
