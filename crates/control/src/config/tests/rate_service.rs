//! A rate limit service: its keys, and errors.

use std::time::Duration;

use ringmain_gateway::model::{
    Action, HeaderName, Policy, RateEntryValue, RateKey, RateService, Target, ValueMatch,
};

use super::{all_errors_of, loaded, valid_config};

fn document(policies: &str) -> String {
    format!("listen: :80\nroutes:\n  shop:\n    rules:\n      - respond: 200\n        policies: {policies}\n")
}

fn service(keys: &str) -> RateService {
    let text = document(&format!(
        "{{rate_limit_service: {{to: 'h2c://127.0.0.1:8081', domain: shop, {keys}}}}}"
    ));
    let config = valid_config(&text);
    match &config.routes[0].rules[0].policies[..] {
        [Policy::RateService(policy)] => (**policy).clone(),
        found => panic!("{found:?}"),
    }
}

#[test]
fn every_key() {
    let policy = service(
        "descriptors: [{entries: {value: free}, hits: 3}, {entries: [{by: source, optional: true}]}], host: limits.example, \
         upstream_headers: x-plan, limit_headers: true, status: 503, timeout: 20ms, on_failure: allow",
    );
    assert_eq!(policy.upstream, Target::Upstream("h2c://127.0.0.1:8081".into()));
    assert_eq!(&*policy.domain, "shop");
    assert_eq!(
        policy.host.as_ref().map(|host| host.as_str()),
        Some("limits.example")
    );
    assert_eq!(
        policy.upstream_headers,
        [HeaderName::parse("x-plan").expect("a name")]
    );
    assert_eq!(
        (policy.limit_headers, policy.status, policy.fail_open),
        (true, 503, true)
    );
    assert_eq!(policy.timeout, Duration::from_millis(20));
    let hits: Vec<_> = policy
        .descriptors
        .iter()
        .map(|descriptor| descriptor.hits)
        .collect();
    assert_eq!(hits, [Some(3), None]);
    assert!(policy.descriptors[1].entries[0].optional);
}

#[test]
fn defaults() {
    let policy = service("descriptors: {entries: {by: path}}");
    assert_eq!(
        (policy.limit_headers, policy.status, policy.fail_open),
        (false, 429, false)
    );
    assert_eq!(policy.timeout, Duration::from_millis(100));
    assert_eq!(policy.host, None);
}

#[test]
fn entries_have_default_keys() {
    for (entry, key) in [
        ("value: free", "generic_key"),
        ("value: beta, headers: {X-Beta: {present: true}}", "header_match"),
        ("by: source", "remote_address"),
        ("by: source, ipv4_prefix: 24", "masked_remote_address"),
        ("by: {header: X-Tenant}", "x-tenant"),
        ("by: {cookie: Id}", "id"),
        ("by: host", "host"),
        ("by: path", "path"),
        ("by: method", "method"),
        ("by: identity", "identity"),
        ("by: route", "route"),
        ("by: path, key: p", "p"),
    ] {
        let policy = service(&format!("descriptors: {{entries: {{{entry}}}}}"));
        assert_eq!(&*policy.descriptors[0].entries[0].key, key, "{entry}");
    }
}

#[test]
fn values_of_entries() {
    let value = |entry: &str| {
        let policy = service(&format!("descriptors: {{entries: {{{entry}}}}}"));
        policy.descriptors[0].entries[0].value.clone()
    };
    let source = |v4, v6| RateEntryValue::Request(RateKey::Source { v4, v6 });
    assert_eq!(value("by: source"), source(32, 128));
    assert_eq!(value("by: source, ipv6_prefix: 64"), source(32, 64));
    assert_eq!(value("by: route"), RateEntryValue::Route);
    let RateEntryValue::Match {
        text,
        headers,
        expect,
    } = value("value: beta, headers: {X-Beta: 'on'}, invert: true")
    else {
        panic!("expected a match");
    };
    assert_eq!((&*text, expect), ("beta", false));
    assert_eq!(headers[0].value, ValueMatch::Exact("on".to_owned()));
}

const WRONG: &[(&str, &str)] = &[
    ("{domain: a, descriptors: {entries: {by: path}}}", "the key `to`"),
    (
        "{to: 'http://a', domain: a, descriptors: {entries: {by: path}}}",
        "an upstream with HTTP/2, which gRPC requires",
    ),
    (
        "{to: 'h2c://a', descriptors: {entries: {by: path}}}",
        "the key `domain`",
    ),
    ("{to: 'h2c://a', domain: a}", "from 1 to 16 descriptors, found 0"),
    (
        "{to: 'h2c://a', domain: a, descriptors: {hits: 2}}",
        "from 1 to 16 entries, found 0",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {by: path, value: a}}}",
        "either `by` or `value`, found both",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {key: a}}}",
        "either `by` or `value`, found neither",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {value: ''}}}",
        "a `value` of 1 character or more",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {by: path, key: ''}}}",
        "a `key` of 1 character or more",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {by: path, ipv4_prefix: 8}}}",
        "`ipv4_prefix` only beside `by: source`",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {by: source, ipv4_prefix: 33}}}",
        "a whole number from 0 to 32",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {by: path, headers: {a: b}}}}",
        "`headers` only beside `value`",
    ),
    (
        "{to: 'h2c://a', domain: a, descriptors: {entries: {value: a, invert: true}}}",
        "`invert` only beside `headers`",
    ),
    (
        "{to: 'h2c://a', domain: a, status: 200, descriptors: {entries: {by: path}}}",
        "a whole number from 400 to 599",
    ),
    (
        "{to: 'h2c://a', domain: a, timeout: 0s, descriptors: {entries: {by: path}}}",
        "`timeout` of at least 1ms",
    ),
    (
        "{to: 'h2c://a', domain: a, stage: 1, descriptors: {entries: {by: path}}}",
        "stage",
    ),
];

#[test]
fn errors_break_the_rule() {
    for (keys, expected) in WRONG {
        let text = document(&format!("{{rate_limit_service: {keys}}}"));
        let found = all_errors_of(&text);
        assert!(
            found.iter().any(|line| line.contains(expected)),
            "{expected}: {found:#?}"
        );
        let config = loaded(&text).config.expect("it is served");
        let action = &config.routes[0].rules[0].action;
        assert!(matches!(action, Action::Broken { .. }), "{text}: {action:?}");
    }
}

#[test]
fn a_claim_needs_a_token() {
    let text = document(
        "{rate_limit_service: {to: 'h2c://a', domain: a, descriptors: {entries: {by: {claim: sub}}}}}",
    );
    let found = all_errors_of(&text);
    let expected = "claims only together with the policy `jwt`";
    assert!(found.iter().any(|line| line.contains(expected)), "{found:#?}");
}
