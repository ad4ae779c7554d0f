//! Headers that policies write for upstreams, by upstream: the upstream trusts such a header, so clients must not send it through any
//! rule that leads to the same upstream.
//!
//! Pure. Computed with the table: for a request this only adds names to those that its rule drops.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::api_keys::ApiKeyAuth;
use super::authz::ExternalAuthz;
use super::basic_auth::PasswordAuth;
use super::client_certificate::CertificateAuth;
use super::jwt::JwtAuth;
use crate::model::{Action, Config, HeaderName, Name, Policy, Route, Rule, Target};
use crate::table::ListDiff;

/// Guarded headers by upstream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ReservedHeaders(BTreeMap<Name, Vec<HeaderName>>);

impl ReservedHeaders {
    /// Returns the guards of a configuration. These are the guards of `last`, which are returned if nothing that they depend on differs.
    pub(crate) fn follow(&self, last: Option<&Config>, config: &Config) -> ReservedHeaders {
        let Some(last) = last.filter(|last| last.push == config.push) else {
            return ReservedHeaders::from_config(config);
        };
        let diff = ListDiff::of(&last.routes, &config.routes);
        let changed = last.routes[diff.old].iter().chain(&config.routes[diff.new]);
        let mut policies = changed
            .flat_map(|route| &route.rules)
            .flat_map(|rule| &rule.policies);
        if policies.any(|policy| !written_headers(policy).is_empty()) {
            return ReservedHeaders::from_config(config);
        }
        self.clone()
    }

    /// Returns the guards of a configuration.
    fn from_config(config: &Config) -> ReservedHeaders {
        let mut guards = ReservedHeaders::default();
        for rule in config.routes.iter().flat_map(|route| &route.rules) {
            let written: Vec<HeaderName> = rule.policies.iter().flat_map(written_headers).collect();
            // Most rules write none.
            if written.is_empty() {
                continue;
            }
            for upstream in forward_targets(rule).chain(push_targets(rule, config)) {
                let names = guards.0.entry(upstream.clone()).or_default();
                for name in &written {
                    if !names.contains(name) {
                        names.push(name.clone());
                    }
                }
            }
        }
        guards
    }

    /// Returns the headers that clients must not send to an upstream.
    pub(crate) fn reserved_for(&self, target: &Target) -> &[HeaderName] {
        match target {
            Target::Upstream(name) => self.0.get(name).map_or(&[], Vec::as_slice),
            Target::Broken { .. } => &[],
        }
    }

    /// Returns the upstreams whose guarded headers have changed.
    pub(crate) fn changed_upstreams(&self, last: &ReservedHeaders) -> BTreeSet<Name> {
        let all = self.0.keys().chain(last.0.keys());
        let changed = all.filter(|name| self.0.get(*name) != last.0.get(*name));
        changed.cloned().collect()
    }
}

/// Returns whether a route leads to any of these upstreams.
pub(crate) fn targets_any(route: &Route, upstreams: &BTreeSet<Name>) -> bool {
    !upstreams.is_empty()
        && route
            .rules
            .iter()
            .flat_map(forward_targets)
            .any(|name| upstreams.contains(name))
}

/// Returns the upstreams that a rule forwards or mirrors requests to.
fn forward_targets(rule: &Rule) -> impl Iterator<Item = &Name> {
    let forward = match &rule.action {
        Action::Forward(forward) => Some(forward),
        _ => None,
    };
    let all = forward.into_iter().flat_map(|forward| {
        let backends = forward.backends.iter().map(|backend| &backend.target);
        backends.chain(forward.mirrors.iter().map(|mirror| &mirror.target))
    });
    all.filter_map(|target| match target {
        Target::Upstream(name) => Some(name),
        Target::Broken { .. } => None,
    })
}

/// Returns the upstreams that receive requests about the push clients of a rule.
fn push_targets<'c>(rule: &Rule, config: &'c Config) -> impl Iterator<Item = &'c Name> {
    let push = config
        .push
        .as_ref()
        .filter(|_| matches!(rule.action, Action::Push(_)));
    let endpoints = push.into_iter().flat_map(|push| push.proxy.events.values());
    endpoints.filter_map(|endpoint| match &endpoint.upstream {
        Target::Upstream(name) => Some(name),
        Target::Broken { .. } => None,
    })
}

/// Returns the headers that a policy writes for upstreams.
fn written_headers(policy: &Policy) -> Vec<HeaderName> {
    match policy {
        Policy::ClientCertificate(policy) => CertificateAuth::written_headers(policy).collect(),
        Policy::Basic(policy) => PasswordAuth::written_headers(policy).collect(),
        Policy::ApiKeys(policy) => ApiKeyAuth::written_headers(policy).collect(),
        Policy::Jwt(policy) => JwtAuth::written_headers(policy).collect(),
        Policy::ExternalAuth(policy) => ExternalAuthz::written_headers(policy).collect(),
        Policy::RateService(policy) => policy.upstream_headers.clone(),
        Policy::Processor(policy) => policy.upstream_headers.clone(),
        Policy::Addresses(_)
        | Policy::Cors(_)
        | Policy::RateLimit(_)
        | Policy::Concurrency(_)
        | Policy::Shed(_)
        | Policy::Inject(_)
        | Policy::Filter(_)
        | Policy::SatisfyAny => Vec::new(),
    }
}
