//! Policies that limit traffic: their keys, and errors.

use std::time::Duration;

use ringmain_gateway::model::{ClaimPath, Fraction, Policy, RateHeaders, RateKey, Target};

use super::{all_errors_of, valid_config};

/// The policies of the only rule of a route with these policies.
fn policies(route: &str, rule: &str) -> Vec<Policy> {
    let config = valid_config(&format!(
        "listen: :80\nroutes:\n  shop:\n    policies: {route}\n    rules:\n      - respond: 200\n        policies: {rule}\n"
    ));
    config.routes[0].rules[0].policies.clone()
}

#[test]
fn rates() {
    let all = policies(
        "{}",
        "{rate_limit: [{requests: 100, per: 1m, burst: 20, by: [source, {header: X-Key}, identity], ipv6_prefix: 56, \
         name: clients, keys: 1000, log_only: true, headers: both}, {requests: 5}]}",
    );
    let [Policy::RateLimit(one), Policy::RateLimit(two)] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(
        (one.requests, one.per, one.burst),
        (100, Duration::from_mins(1), 20)
    );
    assert_eq!(one.by[0], RateKey::Source { v4: 32, v6: 56 });
    assert_eq!((one.by.len(), &*one.name, one.keys), (3, "clients", 1000));
    assert!(one.log_only && one.headers == RateHeaders::Both);
    assert_eq!((two.requests, two.per, two.burst), (5, Duration::from_secs(1), 5));
    assert_eq!(
        (&*two.name, two.by.len(), two.headers),
        ("shop/0/1", 0, RateHeaders::Standard)
    );
}

#[test]
fn a_rate_of_several_gateways() {
    let all = policies(
        "{}",
        "{rate_limit: {requests: 9, name: all, redis: {to: 'http://127.0.0.1:6379', prefix: 'shop:', user: edge, \
         password: '${env:NAME}', timeout: 5ms, on_failure: deny}}}",
    );
    let [Policy::RateLimit(limit)] = &all[..] else {
        panic!("{all:?}");
    };
    let redis = limit.redis.as_ref().expect("one");
    assert_eq!(redis.upstream, Target::Upstream("http://127.0.0.1:6379".into()));
    assert_eq!((&*redis.prefix, redis.user.as_deref()), ("shop:", Some("edge")));
    assert_eq!(
        redis.password.as_ref().map(|secret| secret.expose()),
        Some(&b"the-value"[..])
    );
    assert!(redis.denies && redis.timeout == Duration::from_millis(5));
}

#[test]
fn counters_by_claims() {
    let text = |jwt: &str| {
        format!(
            "listen: :80\njwt_providers: {{id: {{issuer: 'https://id', jwks: 'http://127.0.0.1:1/jwks'}}}}\nroutes:\n  shop:\n    rules:\n      \
             - respond: 200\n        policies:\n          rate_limit: {{requests: 1, by: {{claim: sub}}}}\n          \
             concurrency: {{requests: 2, by: [source, {{claim: org.tenant}}]}}\n{jwt}"
        )
    };
    let config = valid_config(&text("          jwt: {provider: id}\n"));
    let (mut rates, mut caps) = (Vec::new(), Vec::new());
    for policy in &config.routes[0].rules[0].policies {
        match policy {
            Policy::RateLimit(limit) => rates.extend(limit.by.clone()),
            Policy::Concurrency(cap) => caps.extend(cap.by.clone()),
            _ => {}
        }
    }
    let claim = |path: &str| RateKey::Claim(ClaimPath(path.into()));
    assert_eq!(rates, [claim("sub")]);
    assert_eq!(caps, [RateKey::SOURCE, claim("org.tenant")]);
    // No policy has verified the claim.
    let told = all_errors_of(&text(""));
    assert_eq!(told.len(), 2, "{told:?}");
    for (line, part) in told.iter().zip(["rate_limit", "concurrency"]) {
        let expected = format!("policies.{part}.by: expected claims only together with the policy `jwt`");
        assert!(line.contains(&expected), "{line}");
    }
}

#[test]
fn limits_of_a_rule_replace_those_of_its_route() {
    let names = |all: Vec<Policy>| {
        let names = all.into_iter().filter_map(|policy| match policy {
            Policy::RateLimit(limit) => Some(limit.name.to_string()),
            Policy::Concurrency(cap) => Some(cap.name.to_string()),
            _ => None,
        });
        names.collect::<Vec<_>>()
    };
    // Limits of a route count all of its rules together.
    let route = "{rate_limit: {requests: 5}, concurrency: {requests: 3}}";
    assert_eq!(names(policies(route, "{}")), ["shop/0", "shop"]);
    assert_eq!(names(policies(route, "{rate_limit: false}")), ["shop"]);
    assert_eq!(
        names(policies(
            route,
            "{rate_limit: {requests: 1}, concurrency: {requests: 1, name: all}}"
        )),
        ["shop/0/0", "all"]
    );
}

#[test]
fn load_shedding_and_fault_injection() {
    let all = policies(
        "{}",
        "{shed: {late: 20ms}, inject: {delay: {time: 1s, share: 10%}, abort: {status: 500}, header: X-Try}}",
    );
    let [Policy::Shed(shed), Policy::Inject(inject)] = &all[..] else {
        panic!("{all:?}");
    };
    assert_eq!(shed.max_delay, Duration::from_millis(20));
    let tenth = Fraction {
        part: 100_000,
        of: 1_000_000,
    };
    assert_eq!(inject.delay, Some((Duration::from_secs(1), tenth)));
    assert_eq!(inject.abort, Some((500, Fraction::ALL)));
    assert!(inject.header.is_some());
    let [Policy::Shed(shed)] = policies("{}", "{shed: true}")[..] else {
        panic!("{all:?}");
    };
    assert_eq!(shed.max_delay, Duration::from_millis(50));
}

/// Policies, each with its error.
#[track_caller]
fn check_errors(all: &[(&str, &str)]) {
    for (policies, told) in all {
        let wrong = all_errors_of(&format!(
            "listen: :80\nroutes:\n  all:\n    rules:\n      - {{respond: 200, policies: {{{policies}}}}}\n"
        ));
        let right_place = |line: &String| line.starts_with("c.yaml:5:") && line.contains(*told);
        assert!(wrong.iter().any(right_place), "{policies}: {told}: {wrong:#?}");
    }
}

#[test]
fn invalid_rate_limits() {
    check_errors(&[
        ("rate_limit: {per: 1s}", "the key `requests`, found none"),
        (
            "rate_limit: {requests: 0}",
            "a whole number from 1 to 4294967295, found `0`",
        ),
        (
            "rate_limit: {requests: 1, per: 10us}",
            "`per` of at least 1ms, found 10µs",
        ),
        (
            "rate_limit: {requests: 1, burst: 0}",
            "a whole number from 1 to 4294967295, found `0`",
        ),
        (
            "rate_limit: {requests: 1, by: adress}",
            "expected one of `source`, `header`, `cookie`, `identity`, `claim`, `host`, `path`, `method`, found `adress`",
        ),
        (
            "rate_limit: {requests: 1, by: source, ipv6_prefix: 129}",
            "a whole number from 0 to 128, found `129`",
        ),
        (
            "rate_limit: {requests: 1, ipv4_prefix: 24}",
            "`ipv4_prefix` only beside `by: source`",
        ),
        (
            "rate_limit: {requests: 1, keys: 99999999}",
            "a whole number from 1 to 16777216",
        ),
        (
            "rate_limit: {requests: 1, name: 'a \"b'}",
            "visible ASCII characters without quotes",
        ),
        (
            "rate_limit: {requests: 1, headers: x}",
            "expected one of `standard`, `legacy`, `both`, `none`",
        ),
        (
            "rate_limit: {requests: 1, redis: {timeout: 1s}}",
            "the key `to`, found none",
        ),
        (
            "rate_limit: {requests: 1, redis: here}",
            "expected the name of an upstream",
        ),
        (
            "rate_limit: {requests: 1, redis: {to: 'http://127.0.0.1:1', on_failure: pass}}",
            "expected one of `allow`, `deny`, found `pass`",
        ),
        (
            "rate_limit: {requests: 1, redis: {to: 'http://127.0.0.1:1', user: a}}",
            "the key `password` beside `user`, found none",
        ),
    ]);
}

#[test]
fn invalid_traffic_policies() {
    check_errors(&[
        (
            "rate_limit: []",
            "at least one element, or no such key, for its default, found an empty list",
        ),
        ("rate_limit: true", "from 1 to 8 limits, found 0"),
        ("concurrency: {name: x}", "the key `requests`, found none"),
        ("concurrency: {requests: 0}", "a whole number from 1"),
        (
            "concurrency: {requests: 1, by: {claim: ''}}",
            "the name of a claim, found none",
        ),
        ("shed: {late: 0s}", "`late` of at least 1ms"),
        (
            "inject: {}",
            "at least one of the keys `delay` and `abort`, found neither",
        ),
        ("inject: {delay: {share: 1%}}", "the key `time`, found none"),
        ("inject: {delay: {time: 2m}}", "`time` of at most 60s"),
        (
            "inject: {abort: {status: 200}}",
            "a whole number from 400 to 599, found `200`",
        ),
        ("inject: {abort: {share: 101%}}", "a share of at most the whole"),
    ]);
}
