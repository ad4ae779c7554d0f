//! The filter `ExternalAuth`: a service that decides over HTTP or gRPC whether requests are allowed.
//!
//! Nothing fails open: a filter that cannot be translated is a fault of its rule, which then responds 500, and so is a service that
//! cannot be resolved.

use std::sync::Arc;

use ringmain_gateway::limits::AUTHZ_REQUEST_BYTES;
use ringmain_gateway::model::{self, AuthzRequest, GrpcCheck, HeaderName, Path, Policy, StatusRange, Target};

use super::Context;
use super::backend::Usage;
use super::filters::Filters;
use super::matches::Faults;
use crate::objects::{ExternalAuth, GrpcAuth, HttpAuth};

impl Filters {
    pub(super) fn add_external_auth(
        &mut self,
        context: &mut Context<'_>,
        usage: &Usage<'_>,
        spec: Option<&ExternalAuth>,
    ) {
        let Some(spec) = spec else {
            return self.faults.add("ExternalAuth without externalAuth");
        };
        let is_grpc = spec.protocol == "GRPC";
        if !is_grpc && spec.protocol != "HTTP" {
            let protocol = &spec.protocol;
            return self
                .faults
                .add(format!("ExternalAuth by protocol {protocol} is not supported"));
        }
        let usage = Usage {
            grpc: is_grpc,
            ..*usage
        };
        let backend = context.backend(&usage, &spec.backend_ref);
        if let Some(fault) = backend.fault {
            self.unresolved.get_or_insert(fault);
        }
        let policy = if is_grpc {
            Some(self.grpc_auth(backend.target, spec))
        } else {
            self.http_auth(backend.target, spec)
        };
        let Some(mut policy) = policy else { return };
        policy.body = spec.forward_body.as_ref().map_or(0, |body| body.max_size);
        if policy.body > AUTHZ_REQUEST_BYTES {
            self.faults.add(format!(
                "ExternalAuth: forwardBody.maxSize is at most {AUTHZ_REQUEST_BYTES} bytes"
            ));
        }
        self.policies.push(Policy::ExternalAuth(Arc::new(policy)));
    }

    fn http_auth(&mut self, target: Target, spec: &ExternalAuth) -> Option<model::ExternalAuth> {
        let none = HttpAuth::default();
        let http = spec.http.as_ref().unwrap_or(&none);
        let prefix = prefix(&http.path, &mut self.faults)?;
        let mut policy = model::ExternalAuth::new(target, AuthzRequest::Prefix(prefix.into()));
        policy.client_host = true;
        policy.cookies = false;
        policy.allowed = StatusRange::one(200);
        policy.request_headers = headers(&http.allowed_headers, &mut self.faults);
        policy.upstream_headers = headers(&http.allowed_response_headers, &mut self.faults);
        policy.all_upstream_headers = http.allowed_response_headers.is_empty();
        Some(policy)
    }

    fn grpc_auth(&mut self, target: Target, spec: &ExternalAuth) -> model::ExternalAuth {
        let none = GrpcAuth::default();
        let grpc = spec.grpc.as_ref().unwrap_or(&none);
        let check = GrpcCheck {
            // The API defines that the body is truncated.
            partial_body: true,
            ..GrpcCheck::default()
        };
        let mut policy = model::ExternalAuth::new(target, AuthzRequest::Grpc(Arc::new(check)));
        policy.request_headers = headers(&grpc.allowed_headers, &mut self.faults);
        policy
    }
}

/// Returns the prefix of paths as it is sent. `None`: it cannot be one.
fn prefix(path: &str, faults: &mut Faults) -> Option<String> {
    // The API does not demand the first slash.
    let path = format!("/{}", path.trim_start_matches('/'));
    faults.read(Path::parse(&path))?;
    let is_dots = |segment: &str| matches!(segment.to_lowercase().replace("%2e", ".").as_str(), "." | "..");
    if !path.bytes().all(|byte| byte.is_ascii_graphic()) || path.split('/').any(is_dots) {
        faults.add(format!(
            "ExternalAuth: expected an escaped path without dot segments, found `{}`",
            path.escape_debug()
        ));
        return None;
    }
    Some(path.trim_end_matches('/').to_owned())
}

fn headers(names: &[String], faults: &mut Faults) -> Vec<HeaderName> {
    names
        .iter()
        .filter_map(|name| faults.read(HeaderName::parse(name)))
        .collect()
}
