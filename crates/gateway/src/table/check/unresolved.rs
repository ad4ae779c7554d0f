//! Parts that a translator could not resolve and left in their place as broken. Objects of many owners are served with them, since
//! the translator has reported each; a configuration that is applied as a whole must have none.

use crate::model::{Action, Config, Target};
use crate::table::problem::{Outcome, Place, Problem};

use super::{Problems, rules::policy_targets};

/// Returns a problem for each broken rule, backend, mirror, upstream of a policy and upstream of push.
pub(crate) fn unresolved_parts(config: &Config) -> Vec<Problem> {
    let mut problems = Problems::default();
    for route in &config.routes {
        for (number, rule) in route.rules.iter().enumerate() {
            let place = || Place::Route(route.name.clone(), Some(number));
            if let Action::Broken { reason } = &rule.action {
                let expected = "an action that can be carried out";
                problems.tell(place(), "action", expected, &**reason, Outcome::Answers500);
            }
            let (backends, mirrors) = match &rule.action {
                Action::Forward(forward) => (&forward.backends[..], &forward.mirrors[..]),
                _ => (&[][..], &[][..]),
            };
            let backends = backends.iter().map(|backend| ("backends", &backend.target));
            let mirrors = mirrors.iter().map(|mirror| ("mirrors", &mirror.target));
            let policies = rule.policies.iter().flat_map(policy_targets);
            for (part, target) in backends.chain(mirrors).chain(policies) {
                check(target, part, place, &mut problems);
            }
        }
    }
    for stream in &config.streams {
        for backend in &stream.backends {
            let place = || Place::Stream(stream.name.clone());
            check(&backend.target, "backends", place, &mut problems);
        }
    }
    for ask in config.push.iter().flat_map(|push| push.proxy.events.values()) {
        check(&ask.upstream, "proxy", || Place::Push, &mut problems);
    }
    problems.0
}

fn check(target: &Target, part: &'static str, place: impl Fn() -> Place, problems: &mut Problems) {
    if let Target::Broken { reason } = target {
        let expected = "an upstream that can be used";
        problems.tell(place(), part, expected, &**reason, Outcome::ShareAnswers500);
    }
}
