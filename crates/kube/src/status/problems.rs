//! The data plane's problems, mapped to the objects whose parts have them.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::Name;
use ringmain_gateway::table::{ConfigPart, Consequence, Problem};

use crate::objects::Key;
use crate::translate::{Condition, Findings, GatewayFinding, ListenerFinding, Parent};

/// Adds the problems that the data plane reported for the parts of a translation: a listener that is left out is not
/// programmed, a certificate that is not valid is not resolved, and a route is invalid as a whole or in part. Problems that
/// the translation knows already change nothing, and those of upstreams concern no single object.
pub fn apply_problems(findings: &mut Findings, problems: &[Problem]) {
    let has_route = |problem: &Problem| matches!(problem.part, ConfigPart::Route(..) | ConfigPart::Stream(_));
    let of_part = if problems.iter().any(has_route) {
        routes_of_parts(findings)
    } else {
        BTreeMap::new()
    };
    for problem in problems {
        match &problem.part {
            ConfigPart::Listener(name) => each_listener(findings, |listener| {
                if listener.part == *name {
                    fail(&mut listener.conditions, "Programmed", "Invalid", problem);
                }
            }),
            ConfigPart::Certificate(name) => each_listener(findings, |listener| {
                if listener.certificates.contains(name) {
                    fail(
                        &mut listener.conditions,
                        "ResolvedRefs",
                        "InvalidCertificateRef",
                        problem,
                    );
                }
            }),
            ConfigPart::Route(name, rule) => {
                add_to_parents(findings, &of_part, name, |parent| {
                    add_to_route(parent, problem, rule.is_some());
                });
            }
            ConfigPart::Stream(name) => {
                add_to_parents(findings, &of_part, name, |parent| {
                    add_to_route(parent, problem, false)
                });
            }
            ConfigPart::Upstream(_) | ConfigPart::Authorities(_) | ConfigPart::Push => {}
        }
    }
    for gateway in findings.gateways.values_mut() {
        check_gateway(gateway);
    }
}

/// The route of each part.
fn routes_of_parts(findings: &Findings) -> BTreeMap<Name, Key> {
    let routes = findings.routes.iter();
    let parts = routes.flat_map(|(key, parents)| {
        let parts = parents.iter().flat_map(|parent| &parent.parts);
        parts.map(|part| (Name::clone(part), key.clone()))
    });
    parts.collect()
}

fn each_listener(findings: &mut Findings, mut change: impl FnMut(&mut ListenerFinding)) {
    let gateways = findings
        .gateways
        .values_mut()
        .flat_map(|found| &mut found.listeners);
    let sets = findings
        .listener_sets
        .values_mut()
        .flat_map(|found| &mut found.listeners);
    gateways.chain(sets).for_each(&mut change);
}

fn add_to_parents(
    findings: &mut Findings,
    of_part: &BTreeMap<Name, Key>,
    part: &Name,
    mut change: impl FnMut(&mut Parent),
) {
    let route = of_part.get(part).and_then(|key| findings.routes.get_mut(key));
    let parents = route
        .into_iter()
        .flat_map(|parents| Arc::make_mut(parents).iter_mut());
    parents
        .filter(|parent| parent.parts.contains(part))
        .for_each(&mut change);
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
