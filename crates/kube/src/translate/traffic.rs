//! XBackendTrafficPolicies: the budget of retries and the sessions of a Service, and the policies' conditions at each Gateway.
//!
//! As with all policies that are attached directly, the oldest one of a Service counts.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{Affinity, RetryBudget};

use super::backend::Usage;
use super::condition::Fault;
use super::matches::Faults;
use super::policy::PolicyUses;
use super::{Ancestor, Condition, Context, persistence, text};
use crate::objects::{Id, Kind, RetryConstraint, ServicePort, XBackendTrafficPolicy};
use crate::store::Store;

/// The policies of each Service, in the order of precedence.
pub(super) struct TrafficIndex<'a> {
    by_service: BTreeMap<Id, Vec<&'a Arc<XBackendTrafficPolicy>>>,
    /// Policies and Gateways of the calls of `find` since the last `take_found`.
    found: BTreeSet<(Id, Id)>,
}

impl<'a> TrafficIndex<'a> {
    pub(super) fn new(store: &'a Store) -> TrafficIndex<'a> {
        let mut by_service: BTreeMap<Id, Vec<&'a Arc<XBackendTrafficPolicy>>> = BTreeMap::new();
        for policy in store.by_precedence::<XBackendTrafficPolicy>() {
            for service in services(policy) {
                by_service.entry(service).or_default().push(policy);
            }
        }
        TrafficIndex {
            by_service,
            found: BTreeSet::new(),
        }
    }

    /// Returns the policy of a Service. Every policy of the Service counts as used by the Gateway, so that those that lose report
    /// their conflict. `None`: no policy is used by these requests, which the upstream shares with those of HTTP.
    fn find(&mut self, service: &Id, gateway: Option<&Id>) -> Option<&'a Arc<XBackendTrafficPolicy>> {
        let policies = self.by_service.get(service)?;
        if let Some(gateway) = gateway {
            let found = policies
                .iter()
                .map(|policy| (policy.metadata.id(), gateway.clone()));
            self.found.extend(found);
        }
        policies.first().copied()
    }

    /// Returns the policies and Gateways of one route.
    pub(super) fn take_found(&mut self) -> BTreeSet<(Id, Id)> {
        std::mem::take(&mut self.found)
    }

    /// Returns an older policy of one of the same Services.
    fn conflict(&self, policy: &Arc<XBackendTrafficPolicy>) -> Option<&'a Arc<XBackendTrafficPolicy>> {
        let mut firsts =
            services(policy).filter_map(|service| self.by_service.get(&service)?.first().copied());
        firsts.find(|first| !Arc::ptr_eq(first, policy))
    }
}

/// The Services of a policy, each once.
fn services(policy: &XBackendTrafficPolicy) -> impl Iterator<Item = Id> {
    let namespace = &policy.metadata.namespace;
    let targets = policy.spec.target_refs.iter();
    let services: BTreeSet<Id> = targets
        .filter(|target| target.group.is_empty() && target.kind == "Service")
        .map(|target| Id::new(Arc::clone(namespace), &*target.name))
        .collect();
    services.into_iter()
}

/// The settings of a policy, translated.
type Resolved = (Option<RetryBudget>, Option<Affinity>);

/// Resolves a policy for a port of a Service, which generated names of sessions are made of.
fn resolve(policy: &XBackendTrafficPolicy, scope: &str) -> Result<Resolved, Fault> {
    let mut faults = Faults::default();
    let constraint = policy.spec.retry_constraint.as_ref();
    let budget = constraint.map(|constraint| retry_budget(constraint, &mut faults));
    let sessions = policy.spec.session_persistence.as_ref();
    let affinity = sessions.and_then(|sessions| persistence::translate(sessions, scope, &mut faults));
    match faults.0 {
        None => Ok((budget, affinity)),
        Some(fault) => Err(Fault::new("Invalid", fault.message)),
    }
}

fn retry_budget(spec: &RetryConstraint, faults: &mut Faults) -> RetryBudget {
    let mut read = |text: Option<&str>, default: u64| {
        let Some(text) = text else {
            return Duration::from_secs(default);
        };
        let found = text::duration(text).filter(|found| !found.is_zero());
        found.unwrap_or_else(|| {
            faults.add(format!("retryConstraint: `{text}` is not a duration above 0"));
            Duration::from_secs(default)
        })
    };
    let budget = spec.budget.clone().unwrap_or_default();
    let rate = spec.min_retry_rate.clone().unwrap_or_default();
    let interval = read(budget.interval.as_deref(), 10);
    let least_interval = read(rate.interval.as_deref(), 1);
    let percent = budget.percent.unwrap_or(20);
    if percent > 100 {
        faults.add(format!("retryConstraint: {percent} percent"));
    }
    RetryBudget {
        percent: u8::try_from(percent).unwrap_or(100),
        least: rate.count.unwrap_or(10),
        least_interval,
        interval: Some(interval),
    }
}

impl Context<'_> {
    /// Returns the budget of retries and the sessions that the policy of a Service sets. A policy that is not valid sets none.
    pub(super) fn traffic(&mut self, usage: &Usage<'_>, service: &Id, port: &ServicePort) -> Resolved {
        let is_http = matches!(usage.from.kind, Kind::HttpRoute | Kind::GrpcRoute);
        let policy = self.traffic.find(service, is_http.then_some(usage.gateway));
        let scope = format!("Service/{service}:{}", port.port);
        policy
            .and_then(|policy| resolve(policy, &scope).ok())
            .unwrap_or_default()
    }
}

/// Reports every policy at the Gateways that use it.
pub(super) fn report(context: &mut Context<'_>, uses: &PolicyUses) {
    for policy in context.store.all::<XBackendTrafficPolicy>() {
        let id = policy.metadata.id();
        let conflict = context.traffic.conflict(policy).map(|older| {
            let message = format!(
                "XBackendTrafficPolicy {} has the same target and is older",
                older.metadata.id()
            );
            Fault::new("Conflicted", message)
        });
        let fault = conflict.or_else(|| resolve(policy, "").err());
        let conditions = vec![Condition::unless("Accepted", "Accepted", fault.as_ref())];
        let gateways = uses.gateways(&id);
        let ancestor = |gateway| Ancestor {
            gateway,
            conditions: conditions.clone(),
        };
        let ancestors = gateways.into_iter().map(ancestor).collect();
        context.findings.traffic_policies.insert(id, ancestors);
    }
}
