//! Invalid tokens and keys, in tables, and the examples of the RFCs.

use std::time::Duration;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::{Value, json};

use crate::{Algorithm, KeySet, ParsedToken, TokenError, limits};

/// The keys of RFC 8037 §A.2 and, on P-256, RFC 7517 §A.1.
const EDWARDS: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";
const X: &str = "MKBCTNIcKUSDii11ySs3526iDZ8AiTo7Tu6KPAqv7D4";
const Y: &str = "4Etl6SRW2YiLUrN5vfvVHuhp7x8PxltmWWlbbM4IFyM";

fn set(keys: Value) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn edwards(id: &str) -> Value {
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": EDWARDS })
}

const SECRET: &[u8; 32] = b"a secret of two and thirty bytes";

/// Returns a token with this header and these claims, signed by HMAC with SHA-256.
fn token(header: &str, claims: &str) -> String {
    let encode = |text: &[u8]| URL_SAFE_NO_PAD.encode(text);
    let message = format!("{}.{}", encode(header.as_bytes()), encode(claims.as_bytes()));
    let key = hmac::Key::new(hmac::HMAC_SHA256, SECRET);
    let signature = encode(hmac::sign(&key, message.as_bytes()).as_ref());
    format!("{message}.{signature}")
}

const HS256: &str = r#"{"alg":"HS256"}"#;

#[test]
fn the_signature_of_the_rfc_8037_example_is_verified() {
    // RFC 8037 §A.4.
    let message = b"eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
    let signature = "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
    let signature = URL_SAFE_NO_PAD.decode(signature).expect("base64url");
    let keys = KeySet::parse(&set(json!([edwards("one")]))).expect("a set");
    let good = |algorithm, id, message: &[u8]| keys.verify(algorithm, id, message, &signature);
    assert!(good(Algorithm::EdDsa, None, message) && good(Algorithm::EdDsa, Some("one"), message));
    assert!(!good(Algorithm::EdDsa, Some("two"), message));
    assert!(!good(Algorithm::Es256, None, message) && !good(Algorithm::Hs256, None, message));
    assert!(!good(Algorithm::EdDsa, None, &message[1..]));
}

#[test]
fn keys_match_only_their_own_algorithms() {
    let secret = "AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow";
    let keys = json!([
        { "kty": "EC", "crv": "P-256", "kid": "curve", "x": X, "y": Y, "use": "sig" },
        { "kty": "oct", "kid": "secret", "k": secret, "alg": "HS384" },
        { "kty": "oct", "kid": "short", "k": "c2hvcnQ" },
        edwards("edwards"),
        // Skipped: for other uses or algorithms, not on the curve, or of unknown types.
        { "kty": "EC", "crv": "P-256", "kid": "enc", "x": X, "y": Y, "use": "enc" },
        { "kty": "EC", "crv": "P-256", "kid": "ops", "x": X, "y": Y, "key_ops": ["sign"] },
        { "kty": "EC", "crv": "P-256", "kid": "alg", "x": X, "y": Y, "alg": "ES384" },
        { "kty": "EC", "crv": "P-256", "kid": "ecdh", "x": X, "y": Y, "alg": "ECDH-ES" },
        { "kty": "EC", "crv": "P-256", "kid": "point", "x": X, "y": X },
        { "kty": "EC", "crv": "secp256k1", "kid": "other", "x": X, "y": Y },
        { "kty": "RSA", "kid": "small", "n": "AQAB", "e": "AQAB" },
        { "kty": "new", "kid": "new" },
        "text",
    ]);
    let keys = KeySet::parse(&set(keys)).expect("a set");
    for algorithm in Algorithm::ALL {
        let fits = |id| keys.has_candidate(algorithm, Some(id));
        assert_eq!(fits("curve"), algorithm == Algorithm::Es256, "{algorithm:?}");
        assert_eq!(fits("secret"), algorithm == Algorithm::Hs384, "{algorithm:?}");
        assert_eq!(fits("edwards"), algorithm == Algorithm::EdDsa, "{algorithm:?}");
        for id in [
            "short", "enc", "ops", "alg", "ecdh", "point", "other", "small", "new",
        ] {
            assert!(!fits(id), "{algorithm:?} {id}");
        }
    }
}

#[test]
fn invalid_key_sets_are_reported() {
    for (json, expected_text) in [
        ("", "a set of keys (JWKS) in JSON, found none"),
        ("[]", "the member `keys`, found none"),
        (r#"{"keys": {}}"#, "the member `keys`, found none"),
        (r#"{"keys": []}"#, "found none among 0"),
        (
            r#"{"keys": [{"kty": "RSA", "n": "AQAB", "e": "AQAB"}, 1]}"#,
            "found none among 2",
        ),
    ] {
        let why = KeySet::parse(json.as_bytes()).expect_err("it is none");
        assert!(why.contains(expected_text), "{json}: {why}");
    }
    let long = vec![b' '; limits::KEY_SET_BYTES + 1];
    assert!(KeySet::parse(&long).is_err_and(|why| why.contains("at most")));
}

#[test]
fn a_secret_is_at_least_as_long_as_the_hash() {
    let keys = KeySet::from_secret(SECRET).expect("long enough");
    assert!(keys.has_candidate(Algorithm::Hs256, None) && keys.has_candidate(Algorithm::Hs256, Some("any")));
    for other in Algorithm::ALL
        .into_iter()
        .filter(|other| *other != Algorithm::Hs256)
    {
        assert!(!keys.has_candidate(other, None), "{other:?}");
    }
    let why = KeySet::from_secret(&SECRET[1..]).expect_err("it is too short");
    assert!(
        why.contains("at least 32 bytes") && why.contains("found 31"),
        "{why}"
    );
    assert!(!format!("{keys:?}").contains("secret of"), "no dump shows it");
}

#[test]
fn a_token_is_parsed_and_its_signature_verified() {
    let text = token(
        r#"{"alg":"HS256","kid":"one"}"#,
        r#"{"sub":"7","exp":10, "x":[1]}"#,
    );
    let parsed = ParsedToken::parse(text.as_bytes()).expect("a token");
    assert_eq!(
        (parsed.algorithm, parsed.key_id.as_deref()),
        (Algorithm::Hs256, Some("one"))
    );
    assert_eq!(
        parsed.payload, br#"{"sub":"7","exp":10, "x":[1]}"#,
        "as it is written"
    );
    assert_eq!(parsed.claims.subject().map(|subject| &**subject), Some("7"));
    let keys = KeySet::from_secret(SECRET).expect("a key");
    let verify = |message: &[u8], signature: &[u8]| keys.verify(Algorithm::Hs256, None, message, signature);
    assert!(verify(parsed.signing_input, &parsed.signature));
    assert!(!verify(&parsed.signing_input[1..], &parsed.signature));
    assert!(!verify(parsed.signing_input, &parsed.signature[1..]) && !verify(parsed.signing_input, b""));
}

#[test]
fn invalid_tokens_are_reported() {
    let good = token(HS256, "{}");
    // A truncated token is either invalid or has another signature.
    for length in 0..good.len() {
        if let Ok(parsed) = ParsedToken::parse(&good.as_bytes()[..length]) {
            let keys = KeySet::from_secret(SECRET).expect("a key");
            assert!(
                !keys.verify(parsed.algorithm, None, parsed.signing_input, &parsed.signature),
                "{length}"
            );
        }
    }
    for (text, expected_text) in [
        (String::new(), "three parts"),
        ("a.b".to_owned(), "three parts"),
        (format!("{good}.x"), "three parts"),
        (good.replace('.', ".="), "base64url"),
        (token("[]", "{}"), "not a JSON object"),
        (token(HS256, "7"), "not a JSON object"),
        (token(HS256, r#"{"a":1,"a":1}"#), "occurs twice"),
        (token(r#"{"alg":"HS256","alg":"none"}"#, "{}"), "occurs twice"),
        (token(r#"{"alg":"none"}"#, "{}"), "not allowed"),
        (token(r#"{"alg":"hs256"}"#, "{}"), "not allowed"),
        (token("{}", "{}"), "not allowed"),
        (token(r#"{"alg":"HS256","crit":[]}"#, "{}"), "critical"),
        (token(r#"{"alg":"HS256","kid":1}"#, "{}"), "not a string"),
        (token(HS256, r#"{"exp":"1"}"#), "not a number"),
        (token(HS256, r#"{"nbf":null}"#), "not a number"),
        (
            token(
                HS256,
                &format!("{{\"a\":\"{}\"}}", "x".repeat(limits::TOKEN_BYTES)),
            ),
            "too long",
        ),
    ] {
        match ParsedToken::parse(text.as_bytes()) {
            Err(TokenError::Invalid(why)) => assert!(why.contains(expected_text), "{text}: {why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn claims_are_valid_between_nbf_and_exp() {
    let check_validity = |claims: &str, now: u64, leeway: u64| {
        let text = token(HS256, claims);
        let claims = ParsedToken::parse(text.as_bytes()).expect("a token").claims;
        claims.check_validity(Duration::from_secs(now), Duration::from_secs(leeway))
    };
    for (claims, now, leeway, expected) in [
        ("{}", u64::MAX >> 12, 0, Ok(())),
        (r#"{"exp":100}"#, 99, 0, Ok(())),
        (r#"{"exp":100}"#, 100, 0, Err(TokenError::Expired)),
        (r#"{"exp":100}"#, 109, 10, Ok(())),
        (r#"{"exp":100}"#, 110, 10, Err(TokenError::Expired)),
        (r#"{"exp":-1}"#, 0, 0, Err(TokenError::Expired)),
        (r#"{"exp":1e300}"#, u64::MAX >> 12, 0, Ok(())),
        (r#"{"nbf":100}"#, 99, 0, Err(TokenError::NotYetValid)),
        (r#"{"nbf":100}"#, 90, 10, Ok(())),
        (r#"{"nbf":100,"exp":200}"#, 100, 0, Ok(())),
    ] {
        assert_eq!(check_validity(claims, now, leeway), expected, "{claims} at {now}");
    }
}

#[test]
fn the_audience_is_checked() {
    for (claims, wanted, expected) in [
        ("{}", &[][..], true),
        ("{}", &["a"][..], false),
        (r#"{"aud":"a"}"#, &["b", "a"], true),
        (r#"{"aud":"a"}"#, &["b"], false),
        (r#"{"aud":["x","a"]}"#, &["a"], true),
        (r#"{"aud":["x",{"a":1}]}"#, &["a"], false),
        (r#"{"aud":7}"#, &["7"], false),
    ] {
        let text = token(HS256, claims);
        let claims = ParsedToken::parse(text.as_bytes()).expect("a token").claims;
        assert_eq!(claims.has_audience(wanted), expected, "{text}");
    }
}
