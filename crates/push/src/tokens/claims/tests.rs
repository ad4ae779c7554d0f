//! Claims by tables, and patterns against a naive twin.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ringmain_jwt::{ParsedToken, TokenError};

use super::{ConnectClaims, Expiry, SubscribeClaims, matches_wildcard};

/// Returns a token with these claims, whose signature is not checked here.
fn token(claims: &str) -> String {
    let encode = |text: &str| URL_SAFE_NO_PAD.encode(text);
    format!("{}.{}.", encode(r#"{"alg":"HS256"}"#), encode(claims))
}

fn connecting(claims: &str) -> Result<ConnectClaims, TokenError> {
    ConnectClaims::from_token(
        &ParsedToken::parse(token(claims).as_bytes())?,
        Duration::from_millis(1500),
    )
}

fn lasts(claims: &str) -> Expiry {
    connecting(claims).expect("a token").expiry
}

#[test]
fn expiry_follows_the_claims() {
    for (claims, until) in [
        ("{}", None),
        (r#"{"exp":100}"#, Some(100)),
        (r#"{"exp":100.5}"#, Some(101)),
        (r#"{"exp":-5}"#, Some(0)),
        (r#"{"exp":1e300}"#, Some(u64::MAX)),
        (r#"{"exp":100,"expire_at":0}"#, None),
        (r#"{"exp":100,"expire_at":200}"#, Some(200)),
        (r#"{"exp":100,"expire_at":-1}"#, Some(0)),
        (r#"{"exp":100,"expire_at":null}"#, Some(100)),
    ] {
        assert_eq!(lasts(claims), Expiry { until, leeway: 2 }, "{claims}");
    }
    let at = Duration::from_secs;
    let (bounded, endless, long) = (lasts(r#"{"exp":100}"#), lasts("{}"), lasts(r#"{"exp":1e300}"#));
    assert_eq!(
        (bounded.client_ttl(at(40)), bounded.client_ttl(at(101))),
        ((true, 60), (true, 1))
    );
    assert_eq!(
        (endless.client_ttl(at(40)), long.client_ttl(at(40))),
        ((false, 0), (true, u32::MAX))
    );
    assert_eq!(
        (bounded.is_expired(at(101)), bounded.is_expired(at(102))),
        (false, true)
    );
    assert!(!endless.is_expired(at(u64::MAX)) && !long.is_expired(at(100)));
    assert_eq!(
        (bounded.deadline(at(25)), endless.deadline(at(25))),
        (Some(127), None)
    );
    assert_eq!(long.deadline(at(25)), Some(u64::MAX));
}

#[test]
fn info_for_other_clients_is_unchanged() {
    let info = |claims: &str| connecting(claims).expect("a token").info;
    assert_eq!(
        info(r#"{"info":{"z":1,"a":12345678901234567890123}}"#),
        r#"{"z":1,"a":12345678901234567890123}"#
    );
    // A line break would separate two messages.
    assert_eq!(info("{\"info\":[1,\n2]}"), "[1,2]");
    assert_eq!(info(r#"{"info":null}"#), "");
    assert_eq!(info(r#"{"b64info":"/wA="}"#), &[255, 0][..]);
    assert_eq!(info(r#"{"info":1,"b64info":"Mg=="}"#), "2");
    assert_eq!(info(r#"{"info":1,"b64info":""}"#), "1");
    assert!(connecting(r#"{"b64info":"/wA"}"#).is_err(), "not padded");
}

#[test]
fn truncated_claims_are_invalid() {
    let whole = r#"{"sub":"7","info":{"a":[1]},"channels":["a"],"subs":{"b":{"data":"x","override":{"presence":{"value":true}}}},"caps":[{"channels":["c*"],"match":"wildcard","allow":["sub","hst"]}],"expire_at":9}"#;
    let all = connecting(whole).expect("it is whole");
    assert_eq!((all.channels.len(), all.capabilities.len()), (2, 1));
    for length in 0..whole.len() {
        assert!(connecting(&whole[..length]).is_err(), "{}", &whole[..length]);
    }
}

#[test]
fn a_token_of_a_subscription_names_its_channel() {
    let of = |claims: &str| {
        let text = token(claims);
        let parsed = ParsedToken::parse(text.as_bytes()).expect("a token");
        SubscribeClaims::from_token(&parsed, Duration::ZERO)
            .map(|claims| (claims.user, claims.channel, claims.client))
    };
    let named = |user: &str, channel: &str, client: &str| Ok((user.into(), channel.into(), client.into()));
    assert_eq!(of(r#"{"sub":"7","channel":"a"}"#), named("7", "a", ""));
    assert_eq!(of(r#"{"channel":"a","client":"c"}"#), named("", "a", "c"));
    for claims in [
        "{}",
        r#"{"channel":""}"#,
        r#"{"channel":7}"#,
        r#"{"channel":["a"]}"#,
        r#"{"channel":"a","client":7}"#,
        r#"{"channel":"a","sub":7}"#,
    ] {
        assert!(of(claims).is_err(), "{claims}");
    }
}

/// Matches by definition.
fn naive(text: &[u8], pattern: &[u8]) -> bool {
    match pattern.split_first() {
        None => text.is_empty(),
        Some((b'*', rest)) => (0..=text.len()).any(|from| naive(&text[from..], rest)),
        Some((byte, rest)) => text
            .split_first()
            .is_some_and(|(first, text)| first == byte && naive(text, rest)),
    }
}

#[test]
fn a_star_matches_any_text() {
    // All patterns of up to five of three bytes, and all texts of two.
    let words = |bytes: &[u8], most: u32| -> Vec<Vec<u8>> {
        let count = bytes.len();
        let of = |length: u32| {
            (0..count.pow(length)).map(move |number| {
                let digit = |place: u32| number / count.pow(place) % count;
                (0..length).map(digit).collect::<Vec<_>>()
            })
        };
        let all = (0..=most).flat_map(of);
        all.map(|word| word.into_iter().map(|digit| bytes[digit]).collect())
            .collect()
    };
    for pattern in words(b"ab*", 5) {
        for text in words(b"ab", 5) {
            let expected = naive(&text, &pattern);
            assert_eq!(
                matches_wildcard(&text, &pattern),
                expected,
                "{pattern:?} {text:?}"
            );
        }
    }
    let (text, pattern) = ("a".repeat(255), "*a".repeat(2000) + "b");
    assert!(
        !matches_wildcard(text.as_bytes(), pattern.as_bytes()),
        "and it does not take for ever"
    );
}
