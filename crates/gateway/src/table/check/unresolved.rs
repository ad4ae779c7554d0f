//! Parts that a translator could not resolve and left in their place as broken. Objects of many owners are served with them, since
//! the translator has reported each; a configuration that is applied as a whole must have none.

use crate::model::{Action, Config, Target};
use crate::table::problem::{ConfigPart, Consequence, Problem};

use super::{ProblemList, rules::policy_targets};

/// Returns a problem for each broken rule, backend, mirror, upstream of a policy and upstream of push.
pub(crate) fn unresolved_parts(config: &Config) -> Vec<Problem> {
    let mut problems = ProblemList::default();
    for route in &config.routes {
        for (number, rule) in route.rules.iter().enumerate() {
            let place = || ConfigPart::Route(route.name.clone(), Some(number));
            if let Action::Broken { reason } = &rule.action {
                let expected = "a valid action";
                problems.report(place(), "action", expected, &**reason, Consequence::Responds500);
            }
            let (backends, mirrors) = match &rule.action {
                Action::Forward(forward) => (&forward.backends[..], &forward.mirrors[..]),
                _ => (&[][..], &[][..]),
            };
            let backends = backends.iter().map(|backend| ("backends", &backend.target));
            let mirrors = mirrors.iter().map(|mirror| ("mirrors", &mirror.target));
            let policies = rule.policies.iter().flat_map(policy_targets);
            for (part, target) in backends.chain(mirrors).chain(policies) {
                check_target(target, part, place, &mut problems);
            }
        }
    }
    for stream in &config.streams {
        for backend in &stream.backends {
            let place = || ConfigPart::Stream(stream.name.clone());
            check_target(&backend.target, "backends", place, &mut problems);
        }
    }
    for endpoint in config.push.iter().flat_map(|push| push.proxy.events.values()) {
        check_target(&endpoint.upstream, "proxy", || ConfigPart::Push, &mut problems);
    }
    problems.0
}

fn check_target(
    target: &Target,
    part: &'static str,
    place: impl Fn() -> ConfigPart,
    problems: &mut ProblemList,
) {
    if let Target::Broken { reason } = target {
        let expected = "a valid upstream";
        problems.report(place(), part, expected, &**reason, Consequence::ShareResponds500);
    }
}
