//! Tests of guarded headers, and of the upstreams whose guards change.

use std::sync::Arc;

use super::{ReservedHeaders, targets_any};
use crate::model::{
    Action, ApiKeys, ClientCertificate, Config, Forward, HeaderName, Mirror, Policy, Route, Rule, Target,
    WeightedBackend,
};

fn names(guards: &ReservedHeaders, upstream: &str) -> Vec<String> {
    let names = guards.reserved_for(&Target::Upstream(upstream.into()));
    names
        .iter()
        .map(|name| name.as_str().to_ascii_lowercase())
        .collect()
}

/// Builds a rule for this upstream and these mirrors, with these policies.
fn rule(to: &[&str], mirrors: &[&str], policies: Vec<Policy>) -> Rule {
    let mut forward = Forward::to(to[0]);
    forward.backends = to.iter().map(|name| WeightedBackend::new(*name)).collect();
    forward.mirrors = mirrors.iter().map(|name| Mirror::to(*name)).collect();
    let mut rule = Rule::new(Action::Forward(Box::new(forward)));
    rule.policies = policies;
    rule
}

fn keys(header: &str) -> Policy {
    Policy::ApiKeys(Arc::new(ApiKeys {
        from: Vec::new(),
        keys: Vec::new().into(),
        consumer_header: HeaderName::parse(header).ok(),
        hide: true,
    }))
}

fn config(rules: Vec<Rule>) -> Config {
    let route = |(number, rule)| {
        let name = format!("r{number}").as_str().into();
        let (listeners, hostnames) = (Vec::new(), Vec::new());
        let rules = vec![rule];
        Arc::new(Route {
            name,
            listeners,
            hostnames,
            rules,
        })
    };
    Config {
        routes: rules.into_iter().enumerate().map(route).collect(),
        ..Config::default()
    }
}

#[test]
fn written_headers_guard_each_upstream_of_a_rule() {
    let certificate = Policy::ClientCertificate(Arc::new(ClientCertificate::default()));
    let all = config(vec![
        rule(&["a", "b"], &["copies"], vec![keys("X-User")]),
        rule(&["b"], &[], vec![keys("x-user"), certificate, Policy::SatisfyAny]),
        rule(&["c"], &[], vec![]),
    ]);
    let guards = ReservedHeaders::from_config(&all);
    assert_eq!(names(&guards, "a"), ["x-user"]);
    assert_eq!(
        names(&guards, "b"),
        ["x-user", "client-cert", "client-cert-chain"]
    );
    assert_eq!(names(&guards, "copies"), ["x-user"]);
    assert!(names(&guards, "c").is_empty());
}

#[test]
fn a_change_affects_only_routes_to_the_upstream() {
    let with = |header: &str| {
        config(vec![
            rule(&["a"], &[], vec![keys(header)]),
            rule(&["b"], &["a"], vec![]),
            rule(&["b"], &[], vec![]),
        ])
    };
    let (first, second) = (with("X-User"), with("X-Consumer"));
    let changed =
        ReservedHeaders::from_config(&second).changed_upstreams(&ReservedHeaders::from_config(&first));
    let felt: Vec<bool> = second
        .routes
        .iter()
        .map(|route| targets_any(route, &changed))
        .collect();
    assert_eq!(felt, [true, true, false]);
    let same = ReservedHeaders::from_config(&with("x-user"))
        .changed_upstreams(&ReservedHeaders::from_config(&first));
    assert!(!second.routes.iter().any(|route| targets_any(route, &same)));
    // Without a rule that writes the header, it is not guarded.
    let none = ReservedHeaders::from_config(&Config::default())
        .changed_upstreams(&ReservedHeaders::from_config(&first));
    assert!(none.contains("a"));
}
