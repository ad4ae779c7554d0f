//! Tokens: signed by all algorithms, and wrong in all ways.

use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_engine::Config;
use ringmain_gateway::model::{ClaimHeader, ClaimPath, ClaimRule, Jwt, JwtAlgorithm, JwtProvider};
use serde_json::{Value, json};

use crate::identity_provider::{
    ISSUER, Secret, Signer, claims, encode, from_now, guarded, inline, jwt, provider, set, shown,
};
use crate::origin::Origin;
use crate::policies::{ask, header};

on_every_backend! {
    every_algorithm_lets_in,
    tokens_that_are_not_good,
    tokens_that_are_missing_or_good_after_all,
    scopes_claims_and_headers,
    tokens_without_required_claims,
    a_provider_is_selected_by_issuer,
}

fn every_algorithm_lets_in(engine: Config) {
    let origin = Origin::echo();
    let signers: Vec<Signer> = JwtAlgorithm::ALL
        .into_iter()
        .map(|algorithm| Signer::new(algorithm, algorithm.name()))
        .collect();
    let keys = inline(&signers.iter().collect::<Vec<_>>());
    let edge = guarded(engine, &origin, jwt(provider(keys, &JwtAlgorithm::ALL)));
    for signer in &signers {
        let token = signer.sign(&claims(json!({})));
        // The second time it is known.
        for _ in 0..2 {
            let answer = shown(&edge, &token);
            assert_eq!(answer.status, 200, "{}: {}", signer.id, answer.text());
        }
        // A known one with another end, and one whose end is cut off.
        let mut other = token.clone();
        let last = if other.pop() == Some('A') { 'Q' } else { 'A' };
        for wrong in [other.clone(), format!("{other}{last}")] {
            let answer = shown(&edge, &wrong);
            assert_eq!(answer.status, 401, "{}: {}", signer.id, answer.text());
        }
        // Another payload under the same signature.
        let parts: Vec<&str> = token.split('.').collect();
        let forged = encode(claims(json!({ "sub": "root" })).to_string());
        let answer = shown(&edge, &format!("{}.{forged}.{}", parts[0], parts[2]));
        assert_eq!(answer.status, 401, "{}", signer.id);
    }
    edge.server.shut_down();
}

/// Tokens that are not good, and why.
fn bad_tokens(signer: &Signer) -> Vec<(String, &'static str)> {
    let good = claims(json!({}));
    let unsigned = |name: &str| {
        let head = json!({ "alg": name, "kid": "one" });
        format!("{}.{}.", encode(head.to_string()), encode(good.to_string()))
    };
    // The public key, as everybody knows it, for a secret.
    let confused = |secret: Vec<u8>| {
        let signer = Signer {
            algorithm: JwtAlgorithm::Hs256,
            id: "one".to_owned(),
            secret: Secret::Shared(hmac::HMAC_SHA256, secret),
        };
        signer.sign(&good)
    };
    let jwk = signer.jwk();
    let modulus = URL_SAFE_NO_PAD
        .decode(jwk["n"].as_str().expect("a text"))
        .expect("base64");
    let other = Signer::new(JwtAlgorithm::Rs256, "one");
    let headed = |head: Value| signer.sign_as(&head, &good);
    vec![
        (unsigned("none"), "the token's algorithm is not allowed"),
        (unsigned("None"), "the token's algorithm is not allowed"),
        (unsigned("RS256"), "the token's signature is wrong"),
        (confused(modulus), "the token's algorithm is not allowed"),
        (
            confused(set(&[signer]).into_bytes()),
            "the token's algorithm is not allowed",
        ),
        (other.sign(&good), "the token's signature is wrong"),
        (
            headed(json!({ "alg": "RS384", "kid": "one" })),
            "the token's signature is wrong",
        ),
        (
            headed(json!({ "alg": "RS256", "kid": "../../one" })),
            "the token's key is not known",
        ),
        (
            headed(json!({ "alg": "RS256", "kid": "two", "jwk": other.jwk(), "jku": "http://127.0.0.1:1/" })),
            "the token's key is not known",
        ),
        (
            headed(json!({ "alg": "RS256", "crit": ["b64"], "b64": false })),
            "the token has critical extensions",
        ),
        (
            headed(json!({ "kid": "one" })),
            "the token's algorithm is not allowed",
        ),
    ]
}

/// Tokens with valid signatures and invalid claims.
fn bad_claims(signer: &Signer) -> Vec<(String, &'static str)> {
    let signed = |changes: Value| signer.sign(&claims(changes));
    vec![
        (
            signed(json!({ "iss": "https://evil.example" })),
            "the token is of another issuer",
        ),
        (signed(json!({ "iss": null })), "the token is of another issuer"),
        (
            signed(json!({ "aud": "other" })),
            "the token is for another audience",
        ),
        (
            signed(json!({ "aud": ["other", "shop-ap"] })),
            "the token is for another audience",
        ),
        (
            signed(json!({ "aud": null })),
            "the token is for another audience",
        ),
        (signed(json!({ "exp": from_now(-3600) })), "the token has expired"),
        (
            signed(json!({ "nbf": from_now(3600) })),
            "the token does not hold yet",
        ),
        (
            signed(json!({ "exp": null })),
            "the token does not say when it expires",
        ),
        (
            signed(json!({ "exp": "soon" })),
            "a time claim of the token is not a number",
        ),
        (
            signed(json!({ "more": "x".repeat(9000) })),
            "the token is too long",
        ),
        ("abc".to_owned(), "the token does not have three parts"),
        ("a.b.c.d".to_owned(), "the token does not have three parts"),
        ("!.!.!".to_owned(), "a part of the token is not in base64url"),
        (
            format!("{}.{}.", encode("[]"), encode("{}")),
            "a part of the token is not a JSON object",
        ),
    ]
}

fn tokens_that_are_not_good(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::Rs256, "one");
    let ours = || {
        let algorithms = JwtAlgorithm::ALL
            .into_iter()
            .filter(|known| known.is_asymmetric());
        provider(inline(&[&signer]), &algorithms.collect::<Vec<_>>())
    };
    let strict = guarded(engine, &origin, jwt(ours()));
    for (token, why) in bad_tokens(&signer).iter().chain(&bad_claims(&signer)) {
        let answer = shown(&strict, token);
        let expected =
            format!("Bearer realm=\"{ISSUER}\", error=\"invalid_token\", error_description=\"{why}\"");
        assert_eq!(
            (answer.status, answer.field("www-authenticate")),
            (401, Some(&*expected)),
            "{token}"
        );
    }
    strict.server.shut_down();
}

fn tokens_that_are_missing_or_good_after_all(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::Rs256, "one");
    let keys = inline(&[&signer]);
    let strict = guarded(engine, &origin, jwt(provider(keys, &[JwtAlgorithm::Rs256])));
    let good = claims(json!({}));
    let signed = |changes: Value| signer.sign(&claims(changes));
    let headed = |head: Value| signer.sign_as(&head, &good);
    // A request without a token receives no error code.
    for fields in ["", "Authorization: Basic YTpi\r\n", "Authorization: Bearer\r\n"] {
        let answer = ask(&strict, "GET", fields);
        answer.expect(401, "token required\n");
        assert_eq!(
            answer.field("www-authenticate"),
            Some(&*format!("Bearer realm=\"{ISSUER}\""))
        );
    }
    let token = signer.sign(&good);
    let twice = format!("Authorization: Bearer {token}\r\n").repeat(2);
    assert_eq!(ask(&strict, "GET", &twice).status, 401);
    // Tokens that are valid all the same.
    for good in [
        signed(json!({ "aud": ["other", "shop"] })),
        signed(json!({ "exp": from_now(-10), "nbf": from_now(10) })),
        signed(json!({ "exp": from_now(60) as f64 + 0.5 })),
        headed(json!({ "alg": "RS256" })),
    ] {
        assert_eq!(shown(&strict, &good).status, 200, "{good}");
    }
    strict.server.shut_down();
}

/// Builds a policy with requirements: scopes, claims, and headers for the upstream.
fn demanding(signer: &Signer) -> Jwt {
    let path = |text: &str| ClaimPath(text.into());
    Jwt {
        scopes: vec!["read".into(), "write".into()],
        claims: vec![
            ClaimRule {
                claim: path("realm_access.roles"),
                any_of: vec!["admin".into(), "staff".into()],
            },
            ClaimRule {
                claim: path("https://shop.example/level"),
                any_of: vec!["3".into()],
            },
        ],
        headers: vec![
            ClaimHeader {
                name: header("X-User"),
                claim: path("sub"),
            },
            ClaimHeader {
                name: header("X-Roles"),
                claim: path("realm_access.roles"),
            },
            ClaimHeader {
                name: header("X-Mail"),
                claim: path("email"),
            },
        ],
        hide: true,
        ..jwt(provider(inline(&[signer]), &[JwtAlgorithm::EdDsa]))
    }
}

/// A token that has all of that, with changes.
fn token(signer: &Signer, changes: Value) -> String {
    let mut all = json!({
        "scope": "openid read write", "realm_access": { "roles": ["buyer", "staff"] }, "https://shop.example/level": 3,
    });
    let members = changes.as_object().expect("changes").clone();
    all.as_object_mut().expect("claims").extend(members);
    signer.sign(&claims(all))
}

fn scopes_claims_and_headers(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let policy = demanding(&signer);
    let edge = guarded(engine, &origin, policy);
    let forged = "X-User: root\r\nx_roles: root\r\nX-Mail: root\r\n";
    let asked = |token: &str| {
        ask(
            &edge,
            "GET",
            &format!("Authorization: Bearer {token}\r\n{forged}"),
        )
    };
    for changes in [
        json!({}),
        json!({ "scope": ["read", "write"] }),
        json!({ "scope": null, "scp": "write read" }),
        json!({ "scope": null, "scp": ["write", "read"] }),
        json!({ "scope": "read", "scp": ["write"] }),
    ] {
        assert_eq!(asked(&token(&signer, changes.clone())).status, 200, "{changes}");
        let seen = origin.seen();
        assert_eq!(seen.field("x-user").as_deref(), Some("ada"));
        assert_eq!(seen.field("x-roles").as_deref(), Some("buyer,staff"));
        for name in ["x-mail", "x_roles", "authorization"] {
            assert_eq!(seen.field(name), None, "{name}");
        }
    }
    // A claim that would split the head, or become a different list, is not sent.
    let split = token(
        &signer,
        json!({ "sub": "ada\r\nX-Admin: yes", "realm_access": { "roles": ["staff", "a,admin"] } }),
    );
    assert_eq!(asked(&split).status, 200);
    let seen = origin.seen();
    assert_eq!(
        (seen.field("x-user"), seen.field("x-admin"), seen.field("x-roles")),
        (None, None, None)
    );
    edge.server.shut_down();
}

fn tokens_without_required_claims(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let edge = guarded(engine, &origin, demanding(&signer));
    let asked = |token: &str| shown(&edge, token);
    for changes in [
        json!({ "scope": "read" }),
        json!({ "scope": "read writes" }),
        json!({ "scope": { "read": 1, "write": 1 } }),
        json!({ "scope": null }),
    ] {
        let answer = asked(&token(&signer, changes.clone()));
        let expected =
            format!("Bearer realm=\"{ISSUER}\", error=\"insufficient_scope\", scope=\"read write\"");
        assert_eq!(
            (answer.status, answer.field("www-authenticate")),
            (403, Some(&*expected)),
            "{changes}"
        );
    }
    for changes in [
        json!({ "realm_access": { "roles": ["buyer"] } }),
        json!({ "realm_access": { "roles": [] } }),
        json!({ "realm_access": null }),
        json!({ "https://shop.example/level": 4 }),
        json!({ "https://shop.example/level": "3.0" }),
    ] {
        let answer = asked(&token(&signer, changes.clone()));
        answer.expect(403, "token claims do not permit access\n");
    }
    edge.server.shut_down();
}

fn a_provider_is_selected_by_issuer(engine: Config) {
    let origin = Origin::echo();
    let (one, two) = (
        Signer::new(JwtAlgorithm::Es256, "k"),
        Signer::new(JwtAlgorithm::Es256, "k"),
    );
    let other = JwtProvider {
        name: "other".into(),
        issuer: "https://other.example".into(),
        audiences: Vec::new(),
        ..provider(inline(&[&two]), &[JwtAlgorithm::Es256])
    };
    let mut policy = jwt(provider(inline(&[&one]), &[JwtAlgorithm::Es256]));
    policy.providers.push(Arc::new(other));
    let edge = guarded(engine, &origin, policy);
    let as_other = claims(json!({ "iss": "https://other.example", "aud": null }));
    assert_eq!(shown(&edge, &one.sign(&claims(json!({})))).status, 200);
    assert_eq!(shown(&edge, &two.sign(&as_other)).status, 200);
    // A provider cannot sign for another one.
    assert_eq!(shown(&edge, &two.sign(&claims(json!({})))).status, 401);
    assert_eq!(shown(&edge, &one.sign(&as_other)).status, 401);
    edge.server.shut_down();
}
