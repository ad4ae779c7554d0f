//! The query over HTTP: the request's head, and its body, in the form of a request; the decision is the status of the response.

use ringmain_wire::h1::{FieldBlock, Method};

use super::super::http_client::{ServiceError, ServiceRequest, ServiceResponse, send_request};
use super::super::{Cleared, PolicyInput, Refusal};
use super::decision::Denial;
use super::{Admission, CheckResult, ExternalAuthz, GRACE};
use crate::fault::{Fault, FaultSide};
use crate::limits;
use crate::model::{AuthzRequest, HeaderName};
use crate::proxy::{client_address, client_scheme, eq_folded, forwarded_uri};
use crate::resolve::with_timeout;

/// Request headers that are always sent to the service.
const DEFAULT_REQUEST_HEADERS: [&str; 2] = ["Authorization", "Cookie"];

/// Headers of refusals that are always returned to the client.
const DEFAULT_CLIENT_HEADERS: [&str; 4] = ["Content-Type", "Location", "Set-Cookie", "WWW-Authenticate"];

/// Queries the service over HTTP.
pub(super) async fn check(
    authz: &ExternalAuthz,
    at: &PolicyInput<'_, '_>,
    cleared: &mut Cleared,
) -> CheckResult {
    // The call ends by itself in time; this is a safeguard.
    let guard = authz.policy.timeout + GRACE;
    let called = with_timeout(&at.worker.cx, guard, authz.query_service(at, cleared)).await;
    match called.unwrap_or_else(|| Err(Fault::HeadTimeout.into())) {
        Ok(response) if authz.policy.allowed.contains(response.status) => authz.admit(&response, cleared),
        // A client would take a refusal with this status for a success.
        Ok(response) if response.status < 300 => Err(Fault::AuthzDenied.into()),
        Ok(response) if response.status < 500 => Err(authz.http_refusal(response)),
        Ok(response) => {
            log::debug!(
                "`{}` failed a request: its status is {}",
                authz.upstream.name,
                response.status
            );
            authz.handle_failure(at, true)
        }
        // The head has refused the request: an incomplete body does not allow it.
        Err(ServiceError { head: Some(head), .. }) if (300..500).contains(&head.status) => Err(authz
            .http_refusal(ServiceResponse {
                body: Vec::new(),
                ..head
            })),
        Err(ServiceError { fault, .. }) => {
            log::debug!("`{}` failed a request: {fault}", authz.upstream.name);
            authz.handle_failure(at, fault.side() == FaultSide::Upstream)
        }
    }
}

impl ExternalAuthz {
    async fn query_service(
        &self,
        at: &PolicyInput<'_, '_>,
        cleared: &Cleared,
    ) -> Result<ServiceResponse, ServiceError> {
        let uri = forwarded_uri(at.route, at.req);
        let (method, target) = match &self.policy.ask {
            AuthzRequest::Prefix(prefix) => (at.req.method(), format!("{prefix}{uri}")),
            AuthzRequest::Path(path) => (Method::Get, path.to_string()),
            // Not queried over HTTP.
            AuthzRequest::Grpc(_) => return Err(Fault::BrokenRule.into()),
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
            body: self.body(cleared),
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
    fn admit(&self, response: &ServiceResponse, cleared: &mut Cleared) -> CheckResult {
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
        Ok(Admission::ByService)
    }

    /// Builds the refusal from the response of the service.
    fn http_refusal(&self, response: ServiceResponse) -> Box<Refusal> {
        let mut fields = FieldBlock::new();
        for (name, value) in response.fields.iter() {
            let is_returned = DEFAULT_CLIENT_HEADERS
                .iter()
                .any(|header| header.eq_ignore_ascii_case(name))
                || self
                    .policy
                    .client_headers
                    .iter()
                    .any(|header| eq_ignore_case(header, name));
            if is_returned && let Err(misuse) = fields.push(name, value) {
                log::debug!("the header `{name}` of the authorization service cannot be sent: {misuse}");
            }
        }
        let denial = Denial {
            status: response.status,
            fields,
            body: response.body,
        };
        super::refusal(Fault::AuthzDenied, denial)
    }
}

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
