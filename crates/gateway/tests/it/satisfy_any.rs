//! Several policies of which one is enough.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Config;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{
    Addresses, ApiKey, ApiKeys, BasicAuth, ClaimHeader, ClaimPath, ClientCertificate, CredentialSource,
    JwtAlgorithm, Network, PasswordHash, Policy, User,
};
use ringmain_gateway::table::describe_steps;
use serde_json::json;

use crate::identity_provider::{ISSUER, Signer, claims, inline, jwt, provider};
use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::policies::{ask, header, with};

on_every_backend! {
    one_is_enough,
    the_first_that_admits_sets_the_identity,
    a_refusal_by_all_has_every_challenge,
    denied_addresses_and_all_of_all,
    fewer_than_two_are_a_problem,
}

fn addresses(allow: &[&str], deny: &[&str]) -> Policy {
    let networks = |texts: &[&str]| {
        let networks = texts.iter().map(|text| Network::parse(text).expect("a network"));
        networks.collect()
    };
    Policy::Addresses(Arc::new(Addresses {
        allow: networks(allow),
        deny: networks(deny),
    }))
}

fn basic() -> Policy {
    let hash = bcrypt::hash("engine", 4).expect("a hash");
    Policy::Basic(Arc::new(BasicAuth {
        realm: "shop".into(),
        users: [User {
            name: "ada".into(),
            password: PasswordHash::parse(&hash).expect("a hash"),
        }]
        .into(),
        user_header: Some(header("X-User")),
        hide: true,
    }))
}

fn api_keys() -> Policy {
    let mut sum = [0; 32];
    sum.copy_from_slice(digest(&SHA256, b"key").as_ref());
    Policy::ApiKeys(Arc::new(ApiKeys {
        from: vec![CredentialSource::Header(header("X-API-Key"))],
        keys: [ApiKey {
            consumer: "till".into(),
            digest: sum,
        }]
        .into(),
        consumer_header: Some(header("X-Consumer")),
        hide: true,
    }))
}

fn token(signer: &Signer) -> Policy {
    let mut policy = jwt(provider(inline(&[signer]), &[signer.algorithm]));
    policy.scopes = vec!["orders".into()];
    policy.headers = vec![ClaimHeader {
        name: header("X-Subject"),
        claim: ClaimPath("sub".into()),
    }];
    Policy::Jwt(Arc::new(policy))
}

fn guarded(engine: Config, origin: &Origin, policies: Vec<Policy>) -> Edge {
    edge(engine, with(to(&[origin.addr], |_, _| {}), policies))
}

fn from(address: &str, fields: &str) -> String {
    format!("X-Forwarded-For: {address}\r\n{fields}")
}

fn password(pair: &str) -> String {
    format!("Authorization: Basic {}\r\n", STANDARD.encode(pair))
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

const KEY: &str = "X-API-Key: key\r\n";
const OUTSIDE: &str = "203.0.113.7";

fn one_is_enough(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let policies = vec![
        token(&signer),
        api_keys(),
        basic(),
        addresses(&["10.0.0.0/8"], &[]),
        Policy::SatisfyAny,
    ];
    let edge = guarded(engine, &origin, policies);
    let good = signer.sign(&claims(json!({ "scope": "orders", "sub": "eva" })));
    // Twice: the second time the password and the token are known.
    for _ in 0..2 {
        for (fields, user, consumer, subject) in [
            (from("10.1.2.3", ""), None, None, None),
            (from(OUTSIDE, &password("ada:engine")), Some("ada"), None, None),
            (from(OUTSIDE, KEY), None, Some("till"), None),
            (from(OUTSIDE, &bearer(&good)), None, None, Some("eva")),
            // An invalid credential of one policy does not matter to another.
            (
                from(OUTSIDE, &(password("ada:wrong") + KEY)),
                None,
                Some("till"),
                None,
            ),
            (from(OUTSIDE, &(bearer("a.b.c") + KEY)), None, Some("till"), None),
            (
                from(OUTSIDE, &(bearer(&good) + "X-API-Key: wrong\r\n")),
                None,
                None,
                Some("eva"),
            ),
        ] {
            // Clients cannot send the headers that the other policies would write.
            let forged = "X-User: root\r\nX-Consumer: root\r\nX-Subject: root\r\n";
            assert_eq!(
                ask(&edge, "GET", &(fields.clone() + forged)).status,
                200,
                "{fields}"
            );
            let seen = origin.seen();
            let told = ["x-user", "x-consumer", "x-subject"].map(|name| seen.field(name));
            assert_eq!(
                told.each_ref().map(Option::as_deref),
                [user, consumer, subject],
                "{fields}"
            );
        }
    }
    edge.server.shut_down();
}

fn the_first_that_admits_sets_the_identity(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let good = signer.sign(&claims(json!({ "scope": "orders", "sub": "eva" })));
    let told = |policies: Vec<Policy>, fields: &str| {
        let edge = guarded(engine.clone(), &origin, policies);
        assert_eq!(ask(&edge, "GET", &from(OUTSIDE, fields)).status, 200, "{fields}");
        let seen = origin.seen();
        edge.server.shut_down();
        ["x-user", "x-consumer", "x-subject"].map(|name| seen.field(name).is_some())
    };
    let both = bearer(&good) + KEY;
    let keys_first = vec![Policy::SatisfyAny, api_keys(), token(&signer)];
    assert_eq!(told(keys_first, &both), [false, true, false]);
    let token_first = vec![Policy::SatisfyAny, token(&signer), api_keys()];
    assert_eq!(told(token_first, &both), [false, false, true]);
    // A password that was not checked yet has to wait: who need not goes first.
    let waits = vec![Policy::SatisfyAny, basic(), api_keys()];
    assert_eq!(told(waits, &(password("ada:engine") + KEY)), [false, true, false]);
    // All who let in say so where all must.
    let all = vec![api_keys(), basic()];
    assert_eq!(told(all, &(password("ada:engine") + KEY)), [true, true, false]);
}

fn a_refusal_by_all_has_every_challenge(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let policies = vec![
        Policy::SatisfyAny,
        addresses(&["10.0.0.0/8"], &[]),
        basic(),
        api_keys(),
        token(&signer),
    ];
    let edge = guarded(engine, &origin, policies);
    let (by_password, by_key) = ("Basic realm=\"shop\", charset=\"UTF-8\"", "ApiKey");
    let plain = format!("Bearer realm=\"{ISSUER}\"");
    let invalid =
        format!("{plain}, error=\"invalid_token\", error_description=\"the token's signature is wrong\"");
    let scope = format!("{plain}, error=\"insufficient_scope\", scope=\"orders\"");
    let stranger = Signer::new(JwtAlgorithm::EdDsa, "one").sign(&claims(json!({ "scope": "orders" })));
    let poor = signer.sign(&claims(json!({ "scope": "read" })));
    for (fields, status, text, bearer_says) in [
        (String::new(), 401, "authentication required\n", &plain),
        (password("ada:wrong"), 401, "invalid credentials\n", &plain),
        (
            "X-API-Key: wrong\r\n".to_owned(),
            401,
            "invalid credentials\n",
            &plain,
        ),
        (bearer(&stranger), 401, "invalid token\n", &invalid),
        (bearer(&poor), 403, "insufficient scope\n", &scope),
    ] {
        let refused = ask(&edge, "GET", &from(OUTSIDE, &fields));
        refused.expect(status, text);
        let named = refused
            .fields
            .iter()
            .filter(|(name, _)| name == "www-authenticate");
        let challenges: Vec<&str> = named.map(|(_, value)| value.as_str()).collect();
        assert_eq!(challenges, [by_password, by_key, bearer_says], "{fields}");
    }
    edge.server.shut_down();
}

fn denied_addresses_and_all_of_all(engine: Config) {
    let origin = Origin::echo();
    // A client on the deny list is refused whatever its credentials.
    let policies = vec![
        Policy::SatisfyAny,
        addresses(&["10.0.0.0/8"], &["10.6.0.0/16", "203.0.113.9/32"]),
        api_keys(),
    ];
    let edge = guarded(engine, &origin, policies);
    for (address, fields, status) in [
        ("10.1.2.3", "", 200),
        ("10.6.2.3", "", 403),
        ("10.6.2.3", KEY, 403),
        ("203.0.113.9", KEY, 403),
        (OUTSIDE, KEY, 200),
        (OUTSIDE, "", 401),
    ] {
        let answer = ask(&edge, "GET", &from(address, fields));
        assert_eq!(answer.status, status, "{address} {fields}");
    }
    edge.server.shut_down();
}

fn fewer_than_two_are_a_problem(_: Config) {
    let told = |policies: Vec<Policy>| -> (Vec<String>, Vec<String>) {
        let config = with(to(&[refusing_addr()], |_, _| {}), policies);
        let said = describe_steps(&config.routes[0].rules[0]);
        let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
        let problems = gateway.problems().iter().map(ToString::to_string).collect();
        (problems, said)
    };
    // A deny list alone admits no client.
    let (problems, _) = told(vec![Policy::SatisfyAny, addresses(&[], &["10.0.0.0/8"]), basic()]);
    let [problem] = &problems[..] else {
        panic!("{problems:?}");
    };
    let expected = "policies.satisfy: expected `any` only with at least two of";
    assert!(
        problem.contains(expected) && problem.contains("found 1"),
        "{problem}"
    );
    let certificate = Policy::ClientCertificate(Arc::new(ClientCertificate::default()));
    let (problems, said) = told(vec![
        basic(),
        certificate,
        Policy::SatisfyAny,
        addresses(&["10.0.0.0/8"], &["10.6.0.0/16"]),
    ]);
    assert_eq!(problems, Vec::<String>::new());
    assert_eq!(
        said[..5],
        [
            "deny 1 networks",
            "satisfy any of:",
            "- allow 1 networks",
            "- basic auth: 1 users, realm `shop`",
            "- require a client certificate and forward it",
        ]
    );
}
