//! Headers that policies write for upstreams, by upstream: what such a header says is believed there, so no client may say it by any
//! rule that leads to the same upstream.
//!
//! Pure. Worked out with the table, so that requests only find more names among those that their rule drops.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use super::authz::Authz;
use super::basic::Basic;
use super::certificate::Certificate;
use super::jwt::Jwt;
use super::keys::Keys;
use crate::model::{Action, Config, HeaderName, Name, Policy, Route, Rule, Target};

/// See the module.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Guards(BTreeMap<Name, Vec<HeaderName>>);

impl Guards {
    /// Those of a configuration.
    pub(crate) fn of(config: &Config) -> Guards {
        let mut guards = Guards::default();
        for rule in config.routes.iter().flat_map(|route| &route.rules) {
            let written: Vec<HeaderName> = rule.policies.iter().flat_map(written).collect();
            // Most rules have none.
            if written.is_empty() {
                continue;
            }
            for upstream in targets(rule).chain(asked(rule, config)) {
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

    /// Headers that no client may send to an upstream.
    pub(crate) fn names(&self, target: &Target) -> &[HeaderName] {
        match target {
            Target::Upstream(name) => self.0.get(name).map_or(&[], Vec::as_slice),
            Target::Broken { .. } => &[],
        }
    }

    /// Upstreams that have others than before.
    pub(crate) fn changed(&self, last: &Guards) -> BTreeSet<Name> {
        let all = self.0.keys().chain(last.0.keys());
        let changed = all.filter(|name| self.0.get(*name) != last.0.get(*name));
        changed.cloned().collect()
    }
}

/// Whether a route leads to any of these upstreams.
pub(crate) fn leads_to(route: &Route, upstreams: &BTreeSet<Name>) -> bool {
    !upstreams.is_empty()
        && route
            .rules
            .iter()
            .flat_map(targets)
            .any(|name| upstreams.contains(name))
}

/// Upstreams that a rule sends requests to, or copies of them.
fn targets(rule: &Rule) -> impl Iterator<Item = &Name> {
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

/// Upstreams that are asked about the clients that come by a rule.
fn asked<'c>(rule: &Rule, config: &'c Config) -> impl Iterator<Item = &'c Name> {
    let push = config
        .push
        .as_ref()
        .filter(|_| matches!(rule.action, Action::Push(_)));
    let asks = push.into_iter().flat_map(|push| push.proxy.events.values());
    asks.filter_map(|ask| match &ask.upstream {
        Target::Upstream(name) => Some(name),
        Target::Broken { .. } => None,
    })
}

/// Headers that a policy writes for upstreams.
fn written(policy: &Policy) -> Vec<HeaderName> {
    match policy {
        Policy::ClientCertificate(policy) => Certificate::written(policy).collect(),
        Policy::Basic(policy) => Basic::written(policy).collect(),
        Policy::ApiKeys(policy) => Keys::written(policy).collect(),
        Policy::Jwt(policy) => Jwt::written(policy).collect(),
        Policy::ExternalAuth(policy) => Authz::written(policy).collect(),
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
