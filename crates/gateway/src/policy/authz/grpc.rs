//! The query over gRPC, and the effect of its decision on the request.

use ringmain_wire::grpc::Code;
use ringmain_wire::h1::FieldBlock;

use super::super::header_change::{HeaderAction, HeaderChange};
use super::super::{Cleared, PolicyInput, Refusal};
use super::decision::{Changes, Decision, Denial, Metadata, decide};
use super::messages::{CHECK, CheckResponse};
use super::query::change_query;
use super::{Admission, CheckResult, ExternalAuthz, GRACE, attributes, refusal};
use crate::fault::Fault;
use crate::grpc::{self, GrpcCall, GrpcError};
use crate::limits;
use crate::model::{GrpcCheck, HeaderName};
use crate::proxy::eq_folded;
use crate::resolve::with_timeout;

/// Queries the service over gRPC.
pub(super) async fn check(
    authz: &ExternalAuthz,
    check: &GrpcCheck,
    at: &PolicyInput<'_, '_>,
    cleared: &mut Cleared,
) -> CheckResult {
    let request = attributes::check_request(authz, check, at, cleared)?;
    let call = GrpcCall {
        path: CHECK,
        host: authz.policy.host.as_ref().map(|host| host.as_str()),
        metadata: &FieldBlock::new(),
        until: at.worker.cx.now().after(authz.policy.timeout),
        is_stream: false,
        message_limit: limits::AUTHZ_MESSAGE_BYTES,
        ignore_health: authz.policy.fail_open,
    };
    let call = grpc::call::<_, CheckResponse>(at.worker, &authz.upstream, &call, &request);
    // The call ends by itself in time; this is a safeguard.
    let called = with_timeout(&at.worker.cx, authz.policy.timeout + GRACE, Box::pin(call)).await;
    match called.unwrap_or_else(|| Err(Fault::HeadTimeout.into())) {
        Ok(response) => authz.apply(decide(response), check, at, cleared),
        // The service itself denies: not a failure that may admit the request.
        Err(GrpcError::Status(status))
            if matches!(status.code, Code::PermissionDenied | Code::Unauthenticated) =>
        {
            Err(Fault::AuthzDenied.into())
        }
        Err(error) => {
            log::debug!("`{}` failed a request: {error}", authz.upstream.name);
            authz.handle_failure(at, error.is_of_service())
        }
    }
}

impl ExternalAuthz {
    fn apply(
        &self,
        decision: Decision,
        check: &GrpcCheck,
        at: &PolicyInput<'_, '_>,
        cleared: &mut Cleared,
    ) -> CheckResult {
        match decision {
            Decision::Allowed(changes) => {
                self.apply_changes(*changes, check, at, cleared);
                Ok(Admission::ByService)
            }
            Decision::Denied(denial, metadata) => {
                log_metadata(&metadata, at, cleared);
                Err(refusal(Fault::AuthzDenied, denial))
            }
            Decision::Failed(reason, response) => {
                log::debug!("`{}` failed a request: {reason}", self.upstream.name);
                self.handle_failure(at, true)
                    .map_err(|failed| self.with_response(failed, response))
            }
        }
    }

    /// Returns a refusal with the response that the service has for its own failure.
    fn with_response(&self, failed: Box<Refusal>, response: Option<Denial>) -> Box<Refusal> {
        let Some(response) = response else { return failed };
        let status = match response.status {
            0 => self.policy.failure_status.unwrap_or(failed.fault.status()),
            status => status,
        };
        refusal(failed.fault, Denial { status, ..response })
    }

    fn apply_changes(
        &self,
        changes: Changes,
        check: &GrpcCheck,
        at: &PolicyInput<'_, '_>,
        cleared: &mut Cleared,
    ) {
        for change in &changes.headers {
            self.change_header(change, at, cleared);
            let is_identity = |name: &HeaderName| name.as_str().eq_ignore_ascii_case(&change.name);
            if self.policy.identity.as_ref().is_some_and(is_identity)
                && let Ok(identity) = str::from_utf8(&change.value)
            {
                cleared.set_identity(&identity.into());
            }
        }
        for name in &changes.removed {
            cleared.remove_upstream_header(name);
        }
        if !(changes.query_set.is_empty() && changes.query_removed.is_empty()) {
            let query = at.req.head().target.query().unwrap_or_default();
            cleared.set_query(change_query(query, &changes.query_set, &changes.query_removed));
        }
        cleared.add_response_changes(changes.response);
        if let Some(identity) = check.identity_metadata.as_ref()
            && let Some(identity) = changes.metadata.text(identity)
        {
            cleared.set_identity(&identity.into());
        }
        log_metadata(&changes.metadata, at, cleared);
    }

    /// Applies a change to the fields of the client and of earlier policies.
    fn change_header(&self, change: &HeaderChange, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) {
        let exists = || {
            let is_name = |name: &str| name.eq_ignore_ascii_case(&change.name);
            let by_policy = cleared.upstream_headers().iter().any(|(name, _)| is_name(name));
            let name = change.name.as_bytes();
            let is_consumed = self.written.iter().any(|own| eq_folded(name, own.as_str()));
            let by_client = || at.req.head().fields.get(&change.name).is_some();
            by_policy || !is_consumed && !cleared.has_replaced(name) && by_client()
        };
        let applies = match change.action {
            HeaderAction::Append | HeaderAction::Overwrite => true,
            HeaderAction::AddIfAbsent => !exists(),
            HeaderAction::OverwriteIfExists => exists(),
        };
        match change.action {
            _ if !applies => {}
            HeaderAction::Overwrite | HeaderAction::OverwriteIfExists => {
                cleared.set_upstream_header(&change.name, &change.value);
            }
            HeaderAction::Append | HeaderAction::AddIfAbsent => {
                cleared.add_upstream_header(&change.name, &change.value);
            }
        }
    }
}

/// Records metadata for the access log.
fn log_metadata(metadata: &Metadata, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) {
    if at.req.is_logged()
        && let Some(text) = metadata.log_text()
    {
        cleared.set_authz_metadata(text.into());
    }
}
