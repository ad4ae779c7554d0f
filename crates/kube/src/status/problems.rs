//! The data plane's problems, mapped to the objects whose parts have them.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_gateway::model::Name;
use ringmain_gateway::table::{ConfigPart, Consequence, Problem};

use crate::objects::{Id, Key, Kind};
use crate::translate::{Condition, Findings, GatewayFinding, ListenerFinding, Parent};

/// Adds the problems that the data plane reported for the parts of a translation: a listener that is left out is not
/// programmed, a certificate that is not valid is not resolved, and a route is invalid as a whole or in part. Problems that
/// the translation knows already change nothing, and those of upstreams concern no single object.
///
/// `changed` are the objects whose results are those of the translation; the others have been through this call before. Returns the objects
/// that have problems.
pub fn apply_problems(
    findings: &mut Findings,
    problems: &[Problem],
    changed: &BTreeSet<Key>,
) -> BTreeSet<Key> {
    let mut found = BTreeSet::new();
    for problem in problems {
        match &problem.part {
            ConfigPart::Listener(name) => {
                for owner in owners_of(findings, name) {
                    for listener in listeners_mut(findings, &owner) {
                        if listener.part == *name {
                            fail(&mut listener.conditions, "Programmed", "Invalid", problem);
                        }
                    }
                    found.insert(owner);
                }
            }
            ConfigPart::Certificate(name) => {
                for owner in owners_with_certificate(findings, name) {
                    for listener in listeners_mut(findings, &owner) {
                        if listener.certificates.contains(name) {
                            let reason = "InvalidCertificateRef";
                            fail(&mut listener.conditions, "ResolvedRefs", reason, problem);
                        }
                    }
                    found.insert(owner);
                }
            }
            ConfigPart::Route(name, rule) => {
                found.extend(add_to_parents(findings, name, |parent| {
                    add_to_route(parent, problem, rule.is_some());
                }));
            }
            ConfigPart::Stream(name) => {
                found.extend(add_to_parents(findings, name, |parent| {
                    add_to_route(parent, problem, false);
                }));
            }
            ConfigPart::Upstream(_) | ConfigPart::Authorities(_) | ConfigPart::Push => {}
        }
    }
    for key in changed.iter().chain(&found) {
        if key.kind == Kind::Gateway
            && let Some(gateway) = findings.gateways.get_mut(&key.id())
        {
            check_gateway(gateway);
        }
    }
    found
}

/// Returns the object at the start of a part's name, which has `count` texts between slashes.
fn object_of(part: &str, count: usize) -> Option<Key> {
    let texts: Vec<&str> = part.split('/').collect();
    match texts[..] {
        [kind, namespace, name, ..] if texts.len() == count => {
            Some(Key::new(Kind::parse(kind)?, namespace, name))
        }
        _ => None,
    }
}

/// Returns the Gateways and ListenerSets that have a listener with this name in the model.
fn owners_of(findings: &Findings, part: &Name) -> Vec<Key> {
    let has_part = |listener: &ListenerFinding| listener.part == *part;
    let owner = object_of(part, 4).filter(|owner| listeners(findings, owner).any(has_part));
    owner.map_or_else(|| owners_with(findings, has_part), |owner| vec![owner])
}

fn owners_with_certificate(findings: &Findings, certificate: &Name) -> Vec<Key> {
    owners_with(findings, |listener| listener.certificates.contains(certificate))
}

fn owners_with(findings: &Findings, is_wanted: impl Fn(&ListenerFinding) -> bool) -> Vec<Key> {
    let key = |kind, id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
    let gateways = findings.gateways.iter();
    let gateways = gateways.filter(|(_, found)| found.listeners.iter().any(&is_wanted));
    let sets = findings.listener_sets.iter();
    let sets = sets.filter(|(_, found)| found.listeners.iter().any(&is_wanted));
    let sets = sets.map(|(id, _)| key(Kind::ListenerSet, id));
    gateways
        .map(|(id, _)| key(Kind::Gateway, id))
        .chain(sets)
        .collect()
}

fn listeners<'f>(findings: &'f Findings, owner: &Key) -> impl Iterator<Item = &'f ListenerFinding> {
    let listeners = match owner.kind {
        Kind::Gateway => findings.gateways.get(&owner.id()).map(|found| &found.listeners),
        Kind::ListenerSet => findings
            .listener_sets
            .get(&owner.id())
            .map(|found| &found.listeners),
        _ => None,
    };
    listeners.into_iter().flatten()
}

fn listeners_mut<'f>(
    findings: &'f mut Findings,
    owner: &Key,
) -> impl Iterator<Item = &'f mut ListenerFinding> {
    let id = owner.id();
    let listeners = match owner.kind {
        Kind::Gateway => findings.gateways.get_mut(&id).map(|found| &mut found.listeners),
        Kind::ListenerSet => findings
            .listener_sets
            .get_mut(&id)
            .map(|found| &mut found.listeners),
        _ => None,
    };
    listeners.into_iter().flatten()
}

/// Changes the results of the route that has a part, at the parents that have it. Returns the route.
fn add_to_parents(findings: &mut Findings, part: &Name, mut change: impl FnMut(&mut Parent)) -> Option<Key> {
    let has_part = |parents: &Vec<Parent>| parents.iter().any(|parent| parent.parts.contains(part));
    // A suffix is for parts that differ between Gateways.
    let name = part.split_once('+').map_or(&**part, |(name, _)| name);
    let key = object_of(name, 3);
    let key = key.filter(|key| findings.routes.get(key).is_some_and(|parents| has_part(parents)));
    let key = key.or_else(|| {
        let mut routes = findings.routes.iter();
        let found = routes.find(|(_, parents)| has_part(parents));
        found.map(|(key, _)| key.clone())
    })?;
    let parents = Arc::make_mut(findings.routes.get_mut(&key)?).iter_mut();
    parents
        .filter(|parent| parent.parts.contains(part))
        .for_each(&mut change);
    Some(key)
}

/// Sets a condition to false, unless it is false already.
fn fail(conditions: &mut [Condition], kind: &'static str, reason: &'static str, problem: &Problem) {
    let condition = conditions.iter_mut().find(|condition| condition.kind == kind);
    if let Some(condition) = condition.filter(|condition| condition.is_true) {
        condition.is_true = false;
        condition.reason = reason;
        condition.message = problem.to_string();
    }
}

fn add_to_route(parent: &mut Parent, problem: &Problem, is_rule: bool) {
    // Listeners that are left out have their own condition, and shares of backends are references that are not resolved.
    if problem.field == "listeners" || problem.consequence == Consequence::ShareResponds500 {
        return;
    }
    if !is_rule {
        return fail(&mut parent.conditions, "Accepted", "UnsupportedValue", problem);
    }
    if parent
        .conditions
        .iter()
        .all(|condition| condition.kind != "PartiallyInvalid")
    {
        let is_accepted = parent
            .conditions
            .iter()
            .any(|found| found.kind == "Accepted" && found.is_true);
        if is_accepted {
            parent.conditions.push(Condition {
                kind: "PartiallyInvalid",
                is_true: true,
                reason: "UnsupportedValue",
                message: problem.to_string(),
            });
        }
    }
}

/// A Gateway of which no listener serves is not programmed.
fn check_gateway(gateway: &mut GatewayFinding) {
    let is_programmed = |listener: &ListenerFinding| {
        let mut conditions = listener.conditions.iter();
        conditions.any(|condition| condition.kind == "Programmed" && condition.is_true)
    };
    let is_accepted = |listener: &ListenerFinding| {
        let mut conditions = listener.conditions.iter();
        conditions.any(|condition| condition.kind == "Accepted" && condition.is_true)
    };
    // Of listeners that are not accepted the translation has reported the consequence.
    let mut accepted = gateway
        .listeners
        .iter()
        .filter(|listener| is_accepted(listener))
        .peekable();
    let is_served = accepted.peek().is_none() || accepted.any(is_programmed);
    let condition = gateway
        .conditions
        .iter_mut()
        .find(|condition| condition.kind == "Programmed");
    if let Some(condition) = condition.filter(|condition| condition.is_true && !is_served) {
        condition.is_true = false;
        condition.reason = "Invalid";
        condition.message = "no listener is programmed".to_owned();
    }
}
