//! BackendTLSPolicies: which policy a port of a Service has, its TLS, and its conditions at each Gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Hostname, SubjectName, Trust, UpstreamTls};

use super::condition::Fault;
use super::{Ancestor, Condition, Context};
use crate::objects::{BackendTlsPolicy, Id, Kind, SubjectAltName};
use crate::store::{Referrer, Store};

/// A target: a Service and a name of one port.
type Target = (Id, Option<String>);

/// The policies of each target, in the order of precedence.
pub(super) struct PolicyIndex<'a> {
    by_target: BTreeMap<Target, Vec<&'a Arc<BackendTlsPolicy>>>,
    /// Policies and Gateways of the calls of `find` since the last `take_found`.
    found: BTreeSet<(Id, Id)>,
}

impl<'a> PolicyIndex<'a> {
    pub(super) fn new(store: &'a Store) -> PolicyIndex<'a> {
        let mut by_target: BTreeMap<Target, Vec<&'a Arc<BackendTlsPolicy>>> = BTreeMap::new();
        for policy in store.by_precedence::<BackendTlsPolicy>() {
            for target in targets(policy) {
                let policies = by_target.entry(target).or_default();
                if policies.last().is_none_or(|last| !Arc::ptr_eq(last, policy)) {
                    policies.push(policy);
                }
            }
        }
        PolicyIndex {
            by_target,
            found: BTreeSet::new(),
        }
    }

    /// Returns the policy of a port: one for the port takes precedence over one for the Service. Every policy of the port counts
    /// as used by the Gateway, so that those that lose report their conflict.
    pub(super) fn find(
        &mut self,
        service: &Id,
        port: &str,
        gateway: &Id,
    ) -> Option<&'a Arc<BackendTlsPolicy>> {
        let named = (service.clone(), Some(port.to_owned()));
        let targets = [named, (service.clone(), None)];
        let mut policies = targets
            .iter()
            .filter_map(|target| self.by_target.get(target))
            .flatten()
            .peekable();
        let first = policies.peek().map(|policy| **policy);
        let ids: Vec<Id> = policies.map(|policy| policy.metadata.id()).collect();
        for id in ids {
            self.found.insert((id, gateway.clone()));
        }
        first
    }

    /// Returns the policies and Gateways of one route.
    pub(super) fn take_found(&mut self) -> BTreeSet<(Id, Id)> {
        std::mem::take(&mut self.found)
    }

    /// Returns an older policy with one of the same targets.
    fn conflict(&self, policy: &Arc<BackendTlsPolicy>) -> Option<&'a Arc<BackendTlsPolicy>> {
        let mut firsts = targets(policy).filter_map(|target| self.by_target.get(&target)?.first().copied());
        firsts.find(|first| !Arc::ptr_eq(first, policy))
    }
}

fn targets(policy: &BackendTlsPolicy) -> impl Iterator<Item = Target> {
    let namespace = &policy.metadata.namespace;
    let services = policy.spec.target_refs.iter();
    services
        .filter(|target| target.group.is_empty() && target.kind == "Service")
        .map(|target| {
            let section = target.section_name.clone().filter(|name| !name.is_empty());
            (Id::new(Arc::clone(namespace), &*target.name), section)
        })
}

/// The TLS of a policy, or why it is not accepted; and a reference that is not resolved.
pub(super) struct Resolution {
    pub(super) tls: Result<UpstreamTls, Fault>,
    unresolved: Option<Fault>,
}

/// Resolves the validation of a policy.
pub(super) fn resolve(context: &mut Context<'_>, policy: &BackendTlsPolicy) -> Resolution {
    let validation = &policy.spec.validation;
    let from = Referrer {
        kind: Kind::BackendTlsPolicy,
        namespace: &policy.metadata.namespace,
    };
    let mut unresolved = None;
    let mut authorities = Vec::new();
    for reference in &validation.authorities {
        // References of policies are local.
        let mut reference = reference.clone();
        reference.namespace = None;
        match context.authority(from, &reference, "InvalidKind") {
            Ok(name) => authorities.push(name),
            Err(fault) => unresolved = Some(fault),
        }
    }
    let trust = match (authorities.is_empty(), validation.well_known.as_deref()) {
        (false, None) => Ok(Trust::Authorities(authorities)),
        (true, Some("System")) if validation.authorities.is_empty() => Ok(Trust::System),
        (_, Some(other)) if other != "System" => Err(Fault::new(
            "Invalid",
            format!("wellKnownCACertificates {other} is not supported"),
        )),
        _ => Err(Fault::new("NoValidCACertificate", "no caCertificateRef is valid")),
    };
    let tls = trust.and_then(|trust| {
        let invalid = |error: ringmain_gateway::model::TextError| Fault::new("Invalid", error.to_string());
        let names = validation.subject_alt_names.iter().map(subject_name);
        Ok(UpstreamTls {
            server_name: Some(Hostname::parse(&validation.hostname).map_err(invalid)?),
            subject_names: names.collect::<Result<_, Fault>>()?,
            trust,
            ..UpstreamTls::default()
        })
    });
    Resolution { tls, unresolved }
}

fn subject_name(name: &SubjectAltName) -> Result<SubjectName, Fault> {
    match name.kind.as_str() {
        "Hostname" => Hostname::parse(&name.hostname)
            .map(SubjectName::Host)
            .map_err(|error| Fault::new("Invalid", error.to_string())),
        "URI" if !name.uri.is_empty() => Ok(SubjectName::Uri(name.uri.as_str().into())),
        kind => Err(Fault::new(
            "Invalid",
            format!("subjectAltName of type {kind} is not supported"),
        )),
    }
}

/// The routes that use policies, by the policy and the Gateway.
#[derive(Debug, Default)]
pub(super) struct PolicyUses {
    counts: BTreeMap<Id, BTreeMap<Id, usize>>,
    /// A policy is used by other Gateways than when this was last reset.
    pub(super) is_changed: bool,
}

impl PolicyUses {
    /// Adds a route that uses these policies at these Gateways.
    pub(super) fn add(&mut self, found: &[(Id, Id)]) {
        for (policy, gateway) in found {
            let gateways = self.counts.entry(policy.clone()).or_default();
            let count = gateways.entry(gateway.clone()).or_default();
            *count += 1;
            self.is_changed |= *count == 1;
        }
    }

    /// Removes such a route.
    pub(super) fn remove(&mut self, found: &[(Id, Id)]) {
        for (policy, gateway) in found {
            let Some(gateways) = self.counts.get_mut(policy) else {
                continue;
            };
            if let Some(count) = gateways.get_mut(gateway) {
                *count -= 1;
                if *count == 0 {
                    gateways.remove(gateway);
                    self.is_changed = true;
                }
            }
            if gateways.is_empty() {
                self.counts.remove(policy);
            }
        }
    }

    /// Returns the Gateways that use a policy.
    pub(super) fn gateways(&self, policy: &Id) -> Vec<Id> {
        let gateways = self.counts.get(policy);
        gateways.map_or(Vec::new(), |gateways| gateways.keys().cloned().collect())
    }
}

/// Reports every policy at the Gateways that use it.
pub(super) fn report(context: &mut Context<'_>, uses: &PolicyUses) {
    for policy in context.store.all::<BackendTlsPolicy>() {
        let id = policy.metadata.id();
        let gateways = uses.gateways(&id);
        if gateways.is_empty() {
            context.findings.policies.insert(id, Vec::new());
            continue;
        }
        let resolution = resolve(context, policy);
        let conflict = context.policies.conflict(policy).map(|older| {
            let message = format!(
                "BackendTLSPolicy {} has the same target and is older",
                older.metadata.id()
            );
            Fault::new("Conflicted", message)
        });
        let accepted = conflict.as_ref().or(resolution.tls.as_ref().err());
        let resolved = resolution.unresolved.as_ref().filter(|_| conflict.is_none());
        let conditions = vec![
            Condition::unless("Accepted", "Accepted", accepted),
            Condition::unless("ResolvedRefs", "ResolvedRefs", resolved),
        ];
        let ancestor = |gateway| Ancestor {
            gateway,
            conditions: conditions.clone(),
        };
        context
            .findings
            .policies
            .insert(id, gateways.into_iter().map(ancestor).collect());
    }
}
