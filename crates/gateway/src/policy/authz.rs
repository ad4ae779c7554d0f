//! A service that decides over HTTP whether a request is allowed (Envoy's `ext_authz`, nginx's `auth_request`, `forwardAuth`).
//!
//! The decision of one request says nothing about another one, and neither does its failure: there is no state between
//! requests that a client could change for others. A 5xx, a broken response and a timeout fail only the request whose query caused them. A
//! service that accepts no connections is the business of its upstream's health, as with any upstream.
//!
//! `on_failure: allow` applies to the failures of the service alone. It never applies to the gateway's own limits (a full
//! pool, no descriptors), which clients can fill, to an endpoint that is ejected or fails its health check, which is queried
//! all the same, or to a refusal whose body cannot be read.

use std::sync::Arc;
use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Method};

use super::http_client::{ServiceError, ServiceRequest, ServiceResponse, send_request};
use super::{Cleared, ExternalResponse, PolicyInput, Refusal, StepResult, UsedHeaders, body_buffer};
use crate::fault::{Fault, FaultSide};
use crate::limits;
use crate::model::{AuthzRequest, ExternalAuth, HeaderName, Target};
use crate::proxy::{client_address, client_scheme, eq_folded, forwarded_uri};
use crate::resolve::with_timeout;
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

/// Request headers that are always sent to the service.
const DEFAULT_REQUEST_HEADERS: [&str; 2] = ["Authorization", "Cookie"];

/// Headers of refusals that are always returned to the client.
const DEFAULT_CLIENT_HEADERS: [&str; 4] = ["Content-Type", "Location", "Set-Cookie", "WWW-Authenticate"];

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
        // The call ends by itself in time; this is a safeguard.
        let guard = self.policy.timeout + GRACE;
        if self.policy.body > 0 {
            body_buffer::collect_body(at, cleared, self.policy.body).await?;
        }
        let called = with_timeout(&at.worker.cx, guard, self.query_service(at, cleared)).await;
        match called.unwrap_or_else(|| Err(Fault::HeadTimeout.into())) {
            Ok(response) if self.policy.allowed.contains(response.status) => self.admit(&response, cleared),
            // A client would take a refusal with this status for a success.
            Ok(response) if response.status < 300 => Err(Fault::AuthzDenied.into()),
            Ok(response) if response.status < 500 => Err(self.refusal(response)),
            Ok(response) => {
                log::debug!(
                    "`{}` failed a request: its status is {}",
                    self.upstream.name,
                    response.status
                );
                self.handle_failure(at, true)
            }
            // The head has refused the request: an incomplete body does not allow it.
            Err(ServiceError { head: Some(head), .. }) if (300..500).contains(&head.status) => Err(self
                .refusal(ServiceResponse {
                    body: Vec::new(),
                    ..head
                })),
            Err(ServiceError { fault, .. }) => {
                log::debug!("`{}` failed a request: {fault}", self.upstream.name);
                self.handle_failure(at, fault.side() == FaultSide::Upstream)
            }
        }
    }

    async fn query_service(
        &self,
        at: &PolicyInput<'_, '_>,
        cleared: &Cleared,
    ) -> Result<ServiceResponse, ServiceError> {
        let uri = forwarded_uri(at.route, at.req);
        let (method, target) = match &self.policy.ask {
            AuthzRequest::Prefix(prefix) => (at.req.method(), format!("{prefix}{uri}")),
            AuthzRequest::Path(path) => (Method::Get, path.to_string()),
        };
        let fields = self.request_fields(at, cleared, &uri)?;
        let request = ServiceRequest {
            method,
            target: &target,
            host: match &self.policy.host {
                Some(host) => Some(host.as_str()),
                None => at.req.host().filter(|_| self.policy.client_host),
            },
            fields: &fields,
            body: cleared
                .body()
                .filter(|_| self.policy.body > 0)
                .unwrap_or_default(),
            may_retry: true,
            response_limit: limits::AUTHZ_BODY_BYTES,
            until: at.worker.cx.now().after(self.policy.timeout),
            ignore_health: self.policy.fail_open,
        };
        send_request(at.worker, &self.upstream, &request).await
    }

    /// Returns the headers of the request to the service.
    fn request_fields(
        &self,
        at: &PolicyInput<'_, '_>,
        cleared: &Cleared,
        uri: &str,
    ) -> Result<FieldBlock, Fault> {
        let mut fields = FieldBlock::new();
        let mut add_header = |name: &str, value: &[u8]| {
            fields.push(name, value).map_err(|misuse| {
                log::error!("the header `{name}` cannot be sent to the authorization service: {misuse}");
                Fault::BrokenRule
            })
        };
        add_header("X-Forwarded-Method", at.req.method().as_str().as_bytes())?;
        add_header(
            "X-Forwarded-Proto",
            client_scheme(at.route.listener, at.req).as_bytes(),
        )?;
        add_header("X-Forwarded-Uri", uri.as_bytes())?;
        if let Some(host) = at.req.host() {
            add_header("X-Forwarded-Host", host.as_bytes())?;
        }
        if let Some(client) = client_address(at.route.listener, at.req) {
            add_header("X-Forwarded-For", client.to_string().as_bytes())?;
        }
        let names = self.policy.request_headers.iter().map(HeaderName::as_str);
        let mut sent: Vec<&str> = Vec::new();
        let always = DEFAULT_REQUEST_HEADERS
            .iter()
            .filter(|name| self.policy.cookies || **name != "Cookie");
        for name in always.copied().chain(names) {
            let is_repeated = |other: &&str| other.eq_ignore_ascii_case(name);
            let is_ours = |written: &HeaderName| eq_folded(name.as_bytes(), written.as_str());
            let is_forged = name
                .get(..12)
                .is_some_and(|start| eq_folded(start.as_bytes(), "x-forwarded-"));
            if is_forged || sent.iter().any(is_repeated) || self.written.iter().any(is_ours) {
                continue;
            }
            sent.push(name);
            for value in at.req.head().fields.all(name) {
                add_header(name, value)?;
            }
        }
        fields.append(cleared.upstream_headers());
        Ok(fields)
    }

    /// Admits the request, and adds the headers of the service's response.
    fn admit(&self, response: &ServiceResponse, cleared: &mut Cleared) -> StepResult {
        for (name, value) in response.fields.iter() {
            if self
                .policy
                .upstream_headers
                .iter()
                .any(|header| eq_ignore_case(header, name))
            {
                cleared.add_upstream_header(name, value);
            } else if self.policy.all_upstream_headers && !belongs_to_response(name) {
                cleared.set_upstream_header(name, value);
            }
            let identity = self
                .policy
                .identity
                .as_ref()
                .filter(|header| eq_ignore_case(header, name));
            if let Some(Ok(identity)) = identity.map(|_| str::from_utf8(value)) {
                cleared.set_identity(&identity.into());
            }
        }
        Ok(())
    }

    /// Builds the refusal from the response of the service.
    fn refusal(&self, response: ServiceResponse) -> Box<Refusal> {
        let mut refusal: Box<Refusal> = Fault::AuthzDenied.into();
        for (name, value) in response.fields.iter() {
            let is_returned = DEFAULT_CLIENT_HEADERS
                .iter()
                .any(|header| header.eq_ignore_ascii_case(name))
                || self
                    .policy
                    .client_headers
                    .iter()
                    .any(|header| eq_ignore_case(header, name));
            if is_returned && let Err(misuse) = refusal.fields.push(name, value) {
                log::debug!("the header `{name}` of the authorization service cannot be sent: {misuse}");
            }
        }
        refusal.response = Some(ExternalResponse {
            status: response.status,
            body: response.body,
        });
        refusal
    }

    /// Handles a failed query. `by_service`: the fault is of the service, not of a limit of the gateway.
    fn handle_failure(&self, at: &PolicyInput<'_, '_>, by_service: bool) -> StepResult {
        if self.policy.fail_open && by_service {
            at.worker.counters.count_fault(Fault::AuthzUnavailable);
            return Ok(());
        }
        Err(Fault::AuthzUnavailable.into())
    }
}

/// The time after the timeout of its call at which a query is aborted.
const GRACE: Duration = Duration::from_millis(50);

/// Response headers that do not concern the request: they describe the response's content, its server or the connection, or are written
/// by the gateway itself.
const OF_RESPONSE: [&str; 19] = [
    "Accept-Ranges",
    "Age",
    "Alt-Svc",
    "Connection",
    "Date",
    "ETag",
    "Expect",
    "Expires",
    "Forwarded",
    "Host",
    "Keep-Alive",
    "Last-Modified",
    "Proxy-Connection",
    "Server",
    "Set-Cookie",
    "TE",
    "Trailer",
    "Upgrade",
    "Via",
];

fn belongs_to_response(name: &str) -> bool {
    let starts = |prefix: &str| {
        let start = name.as_bytes().get(..prefix.len());
        start.is_some_and(|start| eq_folded(start, prefix))
    };
    starts("content-")
        || starts("x-forwarded-")
        || starts("client-cert")
        || OF_RESPONSE.iter().any(|own| eq_folded(name.as_bytes(), own))
}

fn eq_ignore_case(name: &HeaderName, other: &str) -> bool {
    name.as_str().eq_ignore_ascii_case(other)
}
