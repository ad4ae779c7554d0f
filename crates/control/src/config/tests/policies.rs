//! Policies: their keys, and rules with invalid policies.

use std::time::Duration;

use ringmain_gateway::model::{Action, GrpcCheck, JwtAlgorithm, JwtKeys, Policy, Target};

const EXAMPLE: &str = include_str!("../../../../../examples/policies.yaml");

use super::{all_errors_of, loaded, valid_config};

/// The kinds of policies of a rule.
fn kinds(policies: &[Policy]) -> Vec<String> {
    let name = |policy: &Policy| {
        format!("{policy:?}")
            .split('(')
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    policies.iter().map(name).collect()
}

#[test]
fn rules_inherit_policies_of_their_route() {
    let config = valid_config(
        "listen: :80\nroutes:\n  all:\n    policies: {addresses: {allow: 10.0.0.0/8}}\n    rules:\n      \
         - {match: /a, respond: 200}\n      \
         - {match: /b, respond: 200, policies: {addresses: false, client_certificate: true}}\n      \
         - {match: /c, respond: 200, policies: {addresses: {deny: [10.1.0.0/16, '::1']}}}\n",
    );
    let rules = &config.routes[0].rules;
    assert_eq!(kinds(&rules[0].policies), ["Addresses"]);
    assert_eq!(kinds(&rules[1].policies), ["ClientCertificate"]);
    let [Policy::Addresses(addresses)] = &rules[2].policies[..] else {
        panic!("{:?}", rules[2].policies);
    };
    assert_eq!((addresses.allow.len(), addresses.deny.len()), (0, 2));
}

#[test]
fn one_of_several_may_be_enough() {
    let key =
        "api_keys: {keys: {a: 'sha256:531854cef641648c7817441c3a04ae025e91d882aa1ac318057cba7e979b2140'}}";
    let config = valid_config(&format!(
        "listen: :80\nroutes:\n  all:\n    policies: {{satisfy: any, addresses: {{allow: 10.0.0.0/8}}, {key}}}\n    rules:\n      \
         - {{match: /a, respond: 200}}\n      \
         - {{match: /b, respond: 200, policies: {{satisfy: all}}}}\n      \
         - {{match: /c, respond: 200, policies: {{satisfy: any}}}}\n",
    ));
    let rules = &config.routes[0].rules;
    assert_eq!(kinds(&rules[0].policies), ["Addresses", "ApiKeys", "SatisfyAny"]);
    assert_eq!(kinds(&rules[1].policies), ["Addresses", "ApiKeys"]);
    assert_eq!(kinds(&rules[2].policies), ["Addresses", "ApiKeys", "SatisfyAny"]);
}

/// Policies of route and rule, and their errors.
const WRONG: &[(&str, &str, &str)] = &[
    (
        "",
        ", policies: {addresses: {allow: 10.0.0.1/8}}",
        "a network whose other bits are zero",
    ),
    (
        "",
        ", policies: {addresses: {}}",
        "at least one network to `allow` or to `deny`, found none",
    ),
    ("", ", policies: {adresses: {allow: 10.0.0.0/8}}", "`adresses`"),
    (
        "policies: {addresses: {allow: here}}",
        "",
        "a network such as 10.0.0.0/8",
    ),
    (
        "policies: {addresses: true}",
        "",
        "at least one network to `allow` or to `deny`, found none",
    ),
    (
        "policies: {adresses: {allow: 10.0.0.0/8}}",
        ", strange: true",
        "`adresses`",
    ),
    ("policies: []", "", "expected"),
    (
        "policies: {basic: true}",
        "",
        "at least one of the `users`, or of a `file`, found none",
    ),
    (
        "policies: {basic: {users: {a: hunter2}}}",
        "",
        "a hash by bcrypt, argon2 or SHA-crypt, such as `htpasswd -B` makes, found something else",
    ),
    (
        "policies: {basic: {users: {a: '$2y$31$abcdefghijklmnopqrstuuo3bKCQEYKTtjhAsNnFEEeBDEDr2BJ6.'}}}",
        "",
        "a hash that costs at most 2^14 rounds of bcrypt",
    ),
    (
        "policies: {basic: {file: none.htpasswd}}",
        "",
        "a file that can be read",
    ),
    (
        "policies: {basic: {file: users.htpasswd, users: {ada: $5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5}}}",
        "",
        "users that are all different, found 1 repeated",
    ),
    (
        "policies: {basic: {file: token}}",
        "",
        "lines `NAME:HASH`, found line 1 of the file: no colon",
    ),
    (
        "policies: {basic: {file: users.htpasswd, realm: 'a\"b'}}",
        "",
        "a text without quotes",
    ),
    (
        "policies: {api_keys: {keys: {a: hunter2}}}",
        "",
        "`sha256:` and 64 hexadecimal digits",
    ),
    (
        "policies: {api_keys: {file: users.htpasswd}}",
        "",
        "line 2 of the file: something else",
    ),
    (
        "policies: {api_keys: {}}",
        "",
        "at least one of the `keys`, or of a `file`, found none",
    ),
    ("policies: {authz: true}", "", "the key `to`, found none"),
    ("policies: {authz: {to: nobody}}", "", "the name of an upstream"),
    ("policies: {satisfy: one}", "", "one of `all`, `any`, found `one`"),
    (
        "policies: {authz: {to: 'http://a', path: /a, prefix: /b}}",
        "",
        "either `path` or `prefix`, found both",
    ),
    (
        "policies: {authz: {to: 'http://a', path: a}}",
        "",
        "a path that begins with `/`",
    ),
    (
        "policies: {authz: {to: 'http://a', prefix: '/a?b'}}",
        "",
        "a `prefix` without a query",
    ),
    (
        "policies: {authz: {to: 'http://a', timeout: 0s}}",
        "",
        "a `timeout` above 0, found 0",
    ),
    (
        "policies: {authz: {to: 'http://a', grpc: true}}",
        "",
        "an upstream with HTTP/2, which gRPC requires",
    ),
    (
        "policies: {authz: {to: 'h2c://a', grpc: true, path: /a}}",
        "",
        "a service over gRPC, which decides on paths and headers by itself",
    ),
    (
        "policies: {authz: {to: 'http://a', failure_status: 200}}",
        "",
        "a `failure_status` from 400 to 599",
    ),
    (
        "policies: {authz: {to: 'http://a', on_failure: open}}",
        "",
        "one of `allow`, `deny`, found `open`",
    ),
];

#[test]
fn rules_with_invalid_policies_respond_500() {
    for (route, rule, told) in WRONG {
        let text = format!(
            "listen: :80\nroutes:\n  all:\n    rules:\n      - {{respond: 200{rule}}}\n    {route}\n"
        );
        let wrong = all_errors_of(&text);
        assert!(
            !wrong.iter().any(|line| line.contains("hunter2")),
            "secrets are not repeated: {wrong:#?}"
        );
        assert!(wrong.iter().any(|line| line.contains(told)), "{told}: {wrong:#?}");
        let config = loaded(&text).config.expect("it is served");
        let action = &config.routes[0].rules[0].action;
        assert!(matches!(action, Action::Broken { .. }), "{text}: {action:?}");
    }
}

#[test]
fn credentials_are_read_from_files_and_from_the_file() {
    let config = valid_config(
        "listen: :80\nroutes:\n  all:\n    rules:\n      - respond: 200\n        policies:\n          \
         basic: {file: users.htpasswd, realm: shop, user_header: X-User}\n          \
         api_keys: {file: keys.txt, query: key, header: [X-Key, Authorization], hide: false,\n            \
         keys: {phone: ['sha256:0000000000000000000000000000000000000000000000000000000000000001']}}\n",
    );
    let [Policy::Basic(basic), Policy::ApiKeys(keys)] = &config.routes[0].rules[0].policies[..] else {
        panic!("{:?}", config.routes[0].rules[0].policies);
    };
    let names: Vec<&str> = basic.users.iter().map(|user| &*user.name).collect();
    assert_eq!((names, &*basic.realm, basic.hide), (vec!["ada"], "shop", true));
    assert!(basic.users[0].password.verify(b"Hello world!"));
    assert!(!basic.users[0].password.verify(b"Hello world"));
    assert_eq!((keys.from.len(), keys.hide), (3, false));
    let consumers: Vec<_> = keys
        .keys
        .iter()
        .map(|key| (&*key.consumer, key.digest[31]))
        .collect();
    assert_eq!(consumers, [("phone", 1), ("till", 0xff)]);
    // No secret may be in a log.
    assert!(!format!("{config:?}").contains("5B8vYYiY"));
}

#[test]
fn an_authorization_service_over_grpc() {
    let config = valid_config(
        "listen: :80\nupstreams: {opa: {endpoints: '127.0.0.1:9000', protocol: http2}}\nroutes:\n  all:\n    rules:\n      \
         - respond: 200\n        policies: {authz: {to: opa, body: 1KiB, failure_status: 403, upstream_headers: x-user,\n          \
         grpc: {context: {site: shop, tier: '1'}, partial_body: true, identity_metadata: user}}}\n      \
         - {match: /a, respond: 200, policies: {authz: {to: 'h2c://127.0.0.1:9001', grpc: true}}}\n      \
         - {match: /b, respond: 200, policies: {authz: {to: 'h2c://127.0.0.1:9001', grpc: false}}}\n",
    );
    let rules = &config.routes[0].rules;
    let all: Vec<_> = rules
        .iter()
        .map(|rule| match &rule.policies[..] {
            [Policy::ExternalAuth(policy)] => policy,
            found => panic!("{found:?}"),
        })
        .collect();
    let texts = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let expect = GrpcCheck {
        context: vec![texts("site", "shop"), texts("tier", "1")],
        partial_body: true,
        identity_metadata: Some("user".into()),
        ..GrpcCheck::default()
    };
    assert_eq!(all[0].grpc(), Some(&expect));
    assert_eq!((all[0].failure_status, all[0].body), (Some(403), 1024));
    assert_eq!(all[1].grpc(), Some(&GrpcCheck::default()));
    assert_eq!(all[2].grpc(), None);
}

#[test]
fn the_example_is_valid() {
    let config = valid_config(EXAMPLE);
    let rules = &config.routes[0].rules;
    let all: Vec<_> = rules.iter().map(|rule| kinds(&rule.policies)).collect();
    assert_eq!(all[0], ["Jwt"]);
    assert_eq!(all[2], ["Addresses", "Jwt"]);
    assert_eq!(all[3], ["ApiKeys"]);
    assert_eq!(all[4], ["ExternalAuth"]);
    assert!(all[5].is_empty());
    let [Policy::Jwt(jwt)] = &rules[0].policies[..] else {
        panic!("{:?}", rules[0].policies);
    };
    let [keycloak, auth0] = &jwt.providers[..] else {
        panic!("{:?}", jwt.providers);
    };
    assert!(!keycloak.algorithms.contains(&JwtAlgorithm::Hs256));
    assert_eq!(
        (keycloak.algorithms.len(), &auth0.algorithms[..]),
        (10, &[JwtAlgorithm::Rs256][..])
    );
    let JwtKeys::Remote(remote) = &keycloak.keys else {
        panic!("{:?}", keycloak.keys);
    };
    assert_eq!(&*remote.path, "/realms/shop/protocol/openid-connect/certs");
    assert_eq!(remote.refresh, Duration::from_secs(600));
    let Target::Upstream(name) = &remote.upstream else {
        panic!("{:?}", remote.upstream);
    };
    let upstream = config.upstreams.iter().find(|upstream| upstream.name == *name);
    assert!(
        upstream.is_some_and(|upstream| upstream.tls.is_some()),
        "it is asked by TLS"
    );
}

/// A provider and a policy, with their errors.
const WRONG_TOKENS: &[(&str, &str, &str)] = &[
    (
        "{keys: jwks.json}",
        "{provider: keycloak}",
        "the key `issuer`: the `iss` of its tokens, found none",
    ),
    (
        "{issuer: a}",
        "{provider: keycloak}",
        "either `jwks` or `keys`, found neither",
    ),
    (
        "{issuer: a, keys: jwks.json, jwks: 'http://a/b'}",
        "{provider: keycloak}",
        "either `jwks` or `keys`, found both",
    ),
    (
        "{issuer: a, keys: token}",
        "{provider: keycloak}",
        "a set of keys (JWKS) in JSON, found none",
    ),
    (
        "{issuer: a, keys: nothing.json}",
        "{provider: keycloak}",
        "a file that can be read",
    ),
    (
        "{issuer: a, jwks: 'http://a'}",
        "{provider: keycloak}",
        "a URL with a path, such as https://id.example/keys",
    ),
    (
        "{issuer: a, jwks: {to: api}}",
        "{provider: keycloak}",
        "either `url`, or `to` and `path`",
    ),
    (
        "{issuer: a, jwks: {to: ape, path: /k}}",
        "{provider: keycloak}",
        "did you mean `api`?",
    ),
    (
        "{issuer: a, jwks: {to: api, path: k}}",
        "{provider: keycloak}",
        "a path that begins with `/`",
    ),
    (
        "{issuer: a, jwks: {url: 'http://a/b', refresh: 1s}}",
        "{provider: keycloak}",
        "a time of at least 10s, found 1s",
    ),
    (
        "{issuer: a, jwks: {url: 'http://a/b', refresh: 1h, stale: 30m}}",
        "{provider: keycloak}",
        "`stale` of at least `refresh`, 3600s: tokens are rejected while the keys are older, found 1800s",
    ),
    (
        "{issuer: a, jwks: {url: 'http://a/b', refresh: 48h}}",
        "{provider: keycloak}",
        "`stale` of at least `refresh`, 172800s",
    ),
    (
        "{issuer: a, keys: jwks.json, algorithms: none}",
        "{provider: keycloak}",
        "(never `none`), found `none`",
    ),
    (
        "{issuer: a, keys: jwks.json}",
        "{provider: keyclok}",
        "did you mean `keycloak`?",
    ),
    ("{issuer: a, keys: jwks.json}", "{}", "the key `provider`"),
    ("{issuer: a, keys: jwks.json}", "true", "the key `provider`"),
    (
        "{issuer: a, keys: jwks.json}",
        "{provider: [keycloak, keycloak]}",
        "providers with different issuers",
    ),
    (
        "{issuer: a, keys: jwks.json}",
        "{provider: keycloak, scopes: 'read write'}",
        "a scope, without spaces and quotes",
    ),
    (
        "{issuer: a, keys: jwks.json}",
        "{provider: keycloak, headers: {a b: sub}}",
        "a header's name",
    ),
    (
        "{issuer: a, keys: jwks.json, issues: b}",
        "{provider: keycloak}",
        "`issues`",
    ),
];

#[test]
fn rules_with_an_invalid_provider_respond_500() {
    for (provider, policy, told) in WRONG_TOKENS {
        let text = format!(
            "listen: :80\nupstreams: {{api: 'http://127.0.0.1:1'}}\njwt_providers:\n  keycloak: {provider}\nroutes:\n  all:\n    \
             rules:\n      - {{respond: 200, policies: {{jwt: {policy}}}}}\n"
        );
        let wrong = all_errors_of(&text);
        assert!(wrong.iter().any(|line| line.contains(told)), "{told}: {wrong:#?}");
        let config = loaded(&text).config.expect("it is served");
        let action = &config.routes[0].rules[0].action;
        assert!(matches!(action, Action::Broken { .. }), "{text}: {action:?}");
    }
}
