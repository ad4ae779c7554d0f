//! Budgets and pauses of retries, sessions of backends, and bodies for authorization services.

use std::time::Duration;

use ringmain_gateway::model::{Action, Policy};

use super::{all_errors_of, valid_config};

#[test]
fn retries_sessions_and_bodies_for_authorization() {
    let config = valid_config(
        "listen: :80\nupstreams:\n  shop: {endpoints: 127.0.0.1:1, retry_budget: {least: 3, least_interval: 1m, interval: 30s}}\n\
         routes:\n  all:\n    rules:\n      - to: [{to: shop, affinity: {cookie: one}}]\n        \
         retry: {backoff_min: 5ms}\n        policies: {authz: {to: shop, body: 64KiB}}\n",
    );
    let budget = config.upstreams[0].retry_budget;
    assert_eq!(
        (budget.least_interval, budget.interval),
        (Duration::from_mins(1), Some(Duration::from_secs(30)))
    );
    let rule = &config.routes[0].rules[0];
    let Action::Forward(forward) = &rule.action else {
        panic!("{:?}", rule.action);
    };
    assert_eq!(
        forward.retry.as_ref().unwrap().backoff_min,
        Duration::from_millis(5)
    );
    assert!(forward.affinity.is_none() && forward.backends[0].affinity.is_some());
    let [Policy::ExternalAuth(authz)] = &rule.policies[..] else {
        panic!("{:?}", rule.policies);
    };
    assert_eq!(
        (authz.body, authz.cookies, authz.all_upstream_headers),
        (65_536, true, false)
    );
    let wrong = all_errors_of(
        "listen: :80\nupstreams:\n  shop: {endpoints: 127.0.0.1:1, retry_budget: {interval: 0s, least_interval: 0s}}\n\
         routes:\n  all:\n    rules:\n      - {to: shop, retry: {backoff_min: 30ms}}\n      \
         - {to: shop, grpc_web: true, policies: {authz: {to: shop, body: 1KiB}}}\n      \
         - {to: shop, policies: {authz: {to: shop, body: 2MiB}}}\n      \
         - {to: shop, policies: {authz: {to: shop, path: /a, body: 1KiB}}}\n      \
         - {to: [{to: shop, affinity: {cookie: 'a b'}}]}\n",
    );
    let expected = [
        "a time above 0",
        "at most `retry.backoff`, found at least 30ms, at most 25ms",
        "no body for the service beside `grpc_web`",
        "at most 1048576 bytes, found 2097152",
        "no body for the service beside a fixed `path`",
        "a token, found `a b`",
    ];
    for text in expected {
        assert!(
            wrong.iter().any(|found| found.contains(text)),
            "{text}: {wrong:#?}"
        );
    }
    assert_eq!(
        wrong
            .iter()
            .filter(|found| found.contains("a time above 0"))
            .count(),
        2,
        "{wrong:#?}"
    );
}
