//! Invalid and misleading tokens: the outcome of each, and the requests that an origin receives.
//!
//! The provider has an RSA key and a secret, and all algorithms are allowed that these are for: as much room for confusion as there is.

use std::fmt::Write as _;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ringmain_engine::Config;
use ringmain_gateway::model::{ClaimHeader, ClaimPath, Jwt, JwtAlgorithm};
use serde_json::{Value, json};

use super::{Wiretap, answers, compare};
use crate::identity_provider::{Secret, Signer, claims, encode, from_now, inline, jwt, provider, set};
use crate::origin::{edge, to};
use crate::policies::{header, with};

on_every_backend! {
    each_token_has_its_expected_outcome,
}

const EXPECTED: &str = include_str!("tokens.txt");

/// The attacker's means: the provider's public keys, keys of its own, and tokens that the provider has signed for it.
struct Means {
    rsa: Signer,
    shared: Signer,
    curve: Signer,
    /// The attacker's key, under the name of the provider's.
    own: Signer,
    good: Value,
}

/// The provider's public key by itself (RFC 8017 §A.1.1), and as certificates have it (RFC 5280 §4.1).
fn public(signer: &Signer) -> [Vec<u8>; 2] {
    let jwk = signer.jwk();
    let text = jwk["n"].as_str().expect("a text");
    let modulus = base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text);
    let modulus = modulus.expect("base64url");
    let mut own = vec![0x30, 0x82, 0x01, 0x0a, 0x02, 0x82, 0x01, 0x01, 0x00];
    own.extend_from_slice(&modulus);
    own.extend_from_slice(&[2, 3, 1, 0, 1]);
    let mut named = vec![
        0x30, 0x82, 0x01, 0x22, 0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01,
        0x05, 0x00, 0x03, 0x82, 0x01, 0x0f, 0x00,
    ];
    named.extend_from_slice(&own);
    [own, named]
}

fn pem(kind: &str, der: &[u8]) -> Vec<u8> {
    let text = STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| str::from_utf8(line).expect("ASCII"))
        .collect();
    format!(
        "-----BEGIN {kind}-----\n{}\n-----END {kind}-----\n",
        lines.join("\n")
    )
    .into_bytes()
}

/// A token signed by something that is no secret.
fn confused(secret: &[u8], key: &str, good: &Value) -> String {
    let signer = Signer {
        algorithm: JwtAlgorithm::Hs256,
        id: key.to_owned(),
        secret: Secret::Shared(hmac::HMAC_SHA256, secret.to_vec()),
    };
    signer.sign(good)
}

type Attack = (&'static str, String);

/// Tokens by signer and algorithm.
fn algorithms(means: &Means) -> Vec<Attack> {
    let Means { rsa, good, .. } = means;
    let unsigned = |name: Value| {
        let head = json!({ "alg": name, "kid": "rsa" });
        format!("{}.{}.", encode(head.to_string()), encode(good.to_string()))
    };
    let headed = |head: Value| rsa.sign_as(&head, good);
    let [own, named] = public(rsa);
    let keys = set(&[rsa, &means.shared, &means.curve]);
    let signed_none = headed(json!({ "alg": "none", "kid": "rsa" }));
    vec![
        ("none", unsigned(json!("none"))),
        ("none in capitals", unsigned(json!("NONE"))),
        ("none mixed", unsigned(json!("nOnE"))),
        ("none with a signature", signed_none),
        ("no algorithm", headed(json!({ "kid": "rsa" }))),
        ("empty algorithm", unsigned(json!(""))),
        ("algorithm a number", unsigned(json!(256))),
        (
            "algorithm a list",
            headed(json!({ "alg": ["RS256"], "kid": "rsa" })),
        ),
        (
            "algorithm in small letters",
            headed(json!({ "alg": "rs256", "kid": "rsa" })),
        ),
        (
            "algorithm with a blank",
            headed(json!({ "alg": "RS256 ", "kid": "rsa" })),
        ),
        (
            "another algorithm of the key's",
            headed(json!({ "alg": "PS256", "kid": "rsa" })),
        ),
        (
            "algorithm of a curve",
            headed(json!({ "alg": "ES256", "kid": "rsa" })),
        ),
        ("no signature", unsigned(json!("RS256"))),
        ("rs to hs: modulus", confused(&own[9..265], "rsa", good)),
        ("rs to hs: der", confused(&own, "rsa", good)),
        ("rs to hs: spki", confused(&named, "rsa", good)),
        (
            "rs to hs: pem",
            confused(&pem("RSA PUBLIC KEY", &own), "rsa", good),
        ),
        (
            "rs to hs: spki pem",
            confused(&pem("PUBLIC KEY", &named), "rsa", good),
        ),
        ("rs to hs: set", confused(keys.as_bytes(), "rsa", good)),
        (
            "rs to hs: under the secret's name",
            confused(&named, "shared", good),
        ),
        ("hs with an empty secret", confused(b"", "shared", good)),
        ("hs with a zero secret", confused(&[0; 64], "shared", good)),
        ("curve: zeros for a signature", {
            let head = json!({ "alg": "ES256", "kid": "curve" });
            let message = format!("{}.{}", encode(head.to_string()), encode(good.to_string()));
            format!("{message}.{}", encode([0; 64]))
        }),
        ("curve: signature in der", {
            let head = json!({ "alg": "ES256", "kid": "curve" });
            let message = format!("{}.{}", encode(head.to_string()), encode(good.to_string()));
            format!("{message}.{}", encode([0x30, 6, 2, 1, 1, 2, 1, 1]))
        }),
        ("a key of one's own", means.own.sign(good)),
    ]
}

/// Key parameters in the token's header (RFC 7515 §4.1), which must not be used as a source of keys.
fn headers(means: &Means) -> Vec<Attack> {
    let Means { rsa, own, good, .. } = means;
    let mine = |more: Value| {
        let mut head = json!({ "alg": "RS256", "typ": "JWT" });
        let members = more.as_object().expect("members").clone();
        head.as_object_mut().expect("a head").extend(members);
        own.sign_as(&head, good)
    };
    let named = |kid: Value| rsa.sign_as(&json!({ "alg": "RS256", "kid": kid }), good);
    vec![
        (
            "jwk: key in the token",
            mine(json!({ "kid": "own", "jwk": own.jwk() })),
        ),
        (
            "jwk: under a known name",
            mine(json!({ "kid": "rsa", "jwk": own.jwk() })),
        ),
        (
            "jku",
            mine(json!({ "kid": "rsa", "jku": "http://127.0.0.1:1/keys" })),
        ),
        (
            "x5u",
            mine(json!({ "kid": "rsa", "x5u": "http://127.0.0.1:1/chain" })),
        ),
        ("x5c", mine(json!({ "kid": "rsa", "x5c": ["MIIB"] }))),
        ("kid: path", named(json!("../../../../dev/null"))),
        ("kid: query", named(json!("rsa' UNION SELECT 'secret"))),
        ("kid: command", named(json!("rsa|id"))),
        ("kid: nul behind it", named(json!("rsa\0"))),
        ("kid: other capitals", named(json!("RSA"))),
        ("kid: empty", named(json!(""))),
        ("kid: long", named(json!("k".repeat(3000)))),
        ("kid: number", named(json!(1))),
        ("kid: null", named(Value::Null)),
        ("kid: list", named(json!(["rsa"]))),
        (
            "crit: known",
            rsa.sign_as(&json!({ "alg": "RS256", "crit": ["exp"], "exp": 1 }), good),
        ),
        (
            "crit: empty",
            rsa.sign_as(&json!({ "alg": "RS256", "crit": [] }), good),
        ),
        (
            "crit: null",
            rsa.sign_as(&json!({ "alg": "RS256", "crit": null }), good),
        ),
        (
            "b64: without crit",
            rsa.sign_as(&json!({ "alg": "RS256", "b64": false }), good),
        ),
        ("zip", rsa.sign_as(&json!({ "alg": "RS256", "zip": "DEF" }), good)),
        (
            "twice alg, none last",
            rsa.sign_text(r#"{"alg":"RS256","kid":"rsa","alg":"none"}"#, &good.to_string()),
        ),
        (
            "twice alg, none first",
            rsa.sign_text(r#"{"alg":"none","kid":"rsa","alg":"RS256"}"#, &good.to_string()),
        ),
        (
            "twice kid",
            rsa.sign_text(r#"{"alg":"RS256","kid":"own","kid":"rsa"}"#, &good.to_string()),
        ),
    ]
}

/// Claims that two parsers read differently, or that are invalid; each is signed by the provider.
fn payloads(means: &Means) -> Vec<Attack> {
    let Means { rsa, good, .. } = means;
    let signed = |changes: Value| rsa.sign(&claims(changes));
    let text = |claims: &str| rsa.sign_text(r#"{"alg":"RS256","kid":"rsa"}"#, claims);
    // Appended to a valid object.
    let more = |more: &str| {
        let text = good.to_string();
        self::insert(&text, more)
    };
    let deep = |depth: usize| format!("\"deep\":{}{}", "[".repeat(depth), "]".repeat(depth));
    vec![
        ("twice sub", text(&more(r#""sub":"root""#))),
        ("twice aud", text(&more(r#""aud":"other""#))),
        ("twice exp, the past last", text(&more(r#""exp":1"#))),
        ("exp beyond all numbers", text(&more(r#""exp":1e400"#))),
        ("exp at the end of all numbers", text(&more(r#""exp":1e308"#))),
        (
            "exp of twenty digits",
            text(&more(r#""exp":99999999999999999999"#)),
        ),
        ("exp negative", text(&more(r#""exp":-1"#))),
        ("exp a text", text(&more(r#""exp":"4102444800""#))),
        ("exp true", text(&more(r#""exp":true"#))),
        ("exp null", text(&more(r#""exp":null"#))),
        ("exp not a number", text(&more(r#""exp":NaN"#))),
        ("nbf at the end of all numbers", text(&more(r#""nbf":1e308"#))),
        ("nbf a text", text(&more(r#""nbf":"0""#))),
        ("iat in the future", signed(json!({ "iat": from_now(3600) }))),
        ("nested 100 deep", text(&more(&deep(100)))),
        ("nested 1000 deep", text(&more(&deep(1000)))),
        (
            "iss with a slash",
            signed(json!({ "iss": "https://id.example/realms/shop/" })),
        ),
        (
            "iss in capitals",
            signed(json!({ "iss": "HTTPS://ID.EXAMPLE/realms/shop" })),
        ),
        (
            "iss a list",
            signed(json!({ "iss": ["https://id.example/realms/shop"] })),
        ),
        ("aud an object", signed(json!({ "aud": { "shop-api": true } }))),
        (
            "aud in a list in a list",
            signed(json!({ "aud": [["shop-api"]] })),
        ),
        ("aud with blanks", signed(json!({ "aud": "shop-api shop" }))),
        ("aud empty", signed(json!({ "aud": [] }))),
        (
            "sub with a line end",
            signed(json!({ "sub": "ada\r\nX-Admin: yes" })),
        ),
        ("sub with a nul", signed(json!({ "sub": "ada\0" }))),
        ("sub an object", signed(json!({ "sub": { "name": "root" } }))),
        ("sub not ascii", signed(json!({ "sub": "ådå" }))),
        ("claims a list", text("[]")),
        ("claims a text", text("\"ada\"")),
        ("claims nothing", text("")),
        ("claims with a comment", text(&format!("{good}/**/"))),
        ("claims twice", text(&format!("{good}{good}"))),
        ("claims behind a mark", text(&format!("\u{feff}{good}"))),
    ]
}

/// One more member for an object.
fn insert(object: &str, member: &str) -> String {
    format!("{},{member}}}", object.strip_suffix('}').expect("an object"))
}

/// Another form of a token that is good.
fn forms(means: &Means) -> Vec<Attack> {
    let token = means.rsa.sign(&means.good);
    let parts: Vec<&str> = token.split('.').collect();
    let [head, body, signature] = parts[..] else {
        panic!("three parts")
    };
    vec![
        ("good", token.clone()),
        ("two parts", format!("{head}.{body}")),
        ("four parts", format!("{token}.{signature}")),
        (
            "five parts, as if encrypted",
            format!("{head}..{body}.{signature}.AA"),
        ),
        ("dots alone", "..".to_owned()),
        ("dot behind", format!("{token}.")),
        ("padded", format!("{head}=.{body}.{signature}")),
        ("signature padded", format!("{token}==")),
        ("of the other alphabet", token.replace('_', "/").replace('-', "+")),
        ("with a blank", format!("{head}.{body} .{signature}")),
        ("with more behind it", format!("{token} {token}")),
        ("quoted", format!("\"{token}\"")),
        ("not ascii", format!("{token}\u{e9}")),
        // Whole groups of base64: of a part the last bits must be zero, which they are now and then.
        ("signature cut", token[..token.len() - 6].to_owned()),
        ("signature of another", {
            let other = means.rsa.sign(&claims(json!({ "sub": "eva" })));
            let other = other.rsplit_once('.').expect("three parts").1.to_owned();
            format!("{head}.{body}.{other}")
        }),
        ("too long", format!("{head}.{}.{signature}", "A".repeat(9000))),
    ]
}

fn each_token_has_its_expected_outcome(engine: Config) {
    let means = Means {
        rsa: Signer::new(JwtAlgorithm::Rs256, "rsa"),
        shared: Signer::new(JwtAlgorithm::Hs256, "shared"),
        curve: Signer::new(JwtAlgorithm::Es256, "curve"),
        own: Signer::new(JwtAlgorithm::Rs256, "rsa"),
        good: claims(json!({})),
    };
    let keys = inline(&[&means.rsa, &means.shared, &means.curve]);
    let policy = Jwt {
        hide: true,
        headers: vec![ClaimHeader {
            name: header("X-User"),
            claim: ClaimPath("sub".into()),
        }],
        ..jwt(provider(keys, &JwtAlgorithm::ALL))
    };
    let policy = ringmain_gateway::model::Policy::Jwt(policy.into());
    let all = [
        algorithms(&means),
        headers(&means),
        payloads(&means),
        forms(&means),
    ]
    .concat();
    let mut found = String::new();
    for (name, token) in all {
        let tap = Wiretap::new();
        let config = with(to(&[tap.addr], |_, _| {}), vec![policy.clone()]);
        let edge = edge(engine.clone(), config);
        let fields = format!("Authorization: Bearer {token}\r\nX-User: root\r\nx_user: root\r\n");
        let request = format!("GET /x HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
        let (text, end) = answers(edge.server.addr, request.as_bytes());
        let _ = writeln!(found, "== {name}");
        for answer in text.split("HTTP/1.1 ").skip(1) {
            let why = answer.split("error_description=\"").nth(1);
            let why = why.and_then(|rest| rest.split('"').next());
            let _ = writeln!(found, "{} {}", &answer[..3], why.unwrap_or("-"));
        }
        let _ = writeln!(found, "{end}");
        edge.server.shut_down();
        for heard in tap.heard() {
            let _ = writeln!(found, "origin: {}", heard.escape_ascii());
        }
    }
    compare(&found, EXPECTED, "tokens.txt");
}
