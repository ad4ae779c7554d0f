//! Tests of key sets and their replacement, without sockets and with explicit time.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use serde_json::{Value, json};

use super::provider::{KeyLookup, KeyProvider, WaitPermission};
use crate::limits;
use crate::model::{JwtAlgorithm, JwtKeys, JwtProvider, KeySet as Written, RemoteKeys, Target};

/// The public key of RFC 8037 §A.2.
const EDWARDS: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn set(keys: Value) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn edwards(id: &str) -> Value {
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": EDWARDS })
}

#[test]
fn written_keys_are_redacted() {
    let hidden = Written::parse(&set(
        json!([{ "kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" }]),
    ));
    assert!(!format!("{hidden:?}").contains("c2VjcmV0"));
}

/// Builds a provider whose keys the test supplies.
fn remote() -> KeyProvider {
    let remote = RemoteKeys {
        upstream: Target::Upstream("id".into()),
        host: None,
        path: "/keys".into(),
        refresh: Duration::from_mins(10),
        stale: Duration::from_hours(1),
    };
    let config = JwtProvider {
        name: "id".into(),
        issuer: "https://id.example".into(),
        audiences: Vec::new(),
        algorithms: JwtAlgorithm::ALL.to_vec(),
        keys: JwtKeys::Remote(remote),
        leeway: Duration::ZERO,
        from: Vec::new(),
    };
    KeyProvider::new(1, &Arc::new(config), None, None).expect("no keys yet")
}

fn at(seconds: u64) -> Time {
    Time(0).after(Duration::from_secs(seconds))
}

/// Returns the result of a lookup for a token with this key, before or after a wait.
fn look(provider: &KeyProvider, id: &str, seconds: u64, patience: WaitPermission) -> &'static str {
    match provider.find_keys(JwtAlgorithm::EdDsa, Some(id), at(seconds), patience) {
        KeyLookup::Keys(..) => "keys",
        KeyLookup::Wait => "wait",
        KeyLookup::Unknown => "unknown",
        KeyLookup::Unavailable => "unavailable",
    }
}

fn first(provider: &KeyProvider, id: &str, seconds: u64) -> &'static str {
    look(provider, id, seconds, WaitPermission::Allowed)
}

fn waited(provider: &KeyProvider, id: &str, seconds: u64) -> &'static str {
    look(provider, id, seconds, WaitPermission::Waited)
}

fn fetch(provider: &KeyProvider, seconds: u64, keys: Option<&[&str]>) {
    provider.start_attempt(at(seconds));
    let fetched = keys.map(|ids| provider.store_keys(set(ids.iter().map(|id| edwards(id)).collect())));
    provider.finish_attempt(!matches!(fetched, Some(Ok(()))));
}

#[test]
fn without_keys_tokens_are_refused() {
    let provider = remote();
    // The first attempt is about to begin.
    assert_eq!(first(&provider, "one", 0), "wait");
    assert_eq!(waited(&provider, "one", 0), "unavailable");
    fetch(&provider, 0, None);
    // After a failure requests neither wait nor start an attempt.
    assert_eq!(first(&provider, "one", 1), "unavailable");
    assert_eq!(waited(&provider, "one", 1), "unavailable");
    assert_eq!(first(&provider, "one", 1000), "unavailable");
    assert_eq!(waited(&provider, "one", 1000), "unavailable");
    provider.start_attempt(at(1001));
    assert_eq!(first(&provider, "one", 1001), "wait");
    assert_eq!(waited(&provider, "one", 1001), "unavailable");
    fetch(&provider, 1001, Some(&["one"]));
    assert_eq!(first(&provider, "one", 1001), "keys");
    assert_eq!(waited(&provider, "one", 1001), "keys");
}

#[test]
fn an_unknown_key_causes_a_fetch_within_limits() {
    let least = limits::KEYS_LEAST.as_secs();
    let provider = remote();
    fetch(&provider, 0, Some(&["one"]));
    let generation = provider.generation();
    // Soon after a fetch an unknown key is an invalid key.
    assert_eq!(first(&provider, "two", least - 1), "unknown");
    // That is not cached beyond the next possible fetch: the provider may have just created the key.
    assert_eq!(
        look(&provider, "two", least - 1, WaitPermission::Denied),
        "unknown"
    );
    assert_eq!(first(&provider, "two", least), "wait");
    // A known key never waits.
    assert_eq!(first(&provider, "one", least), "keys");
    fetch(&provider, least, Some(&["one"]));
    // The set is unchanged: verified tokens remain valid.
    assert_eq!(provider.generation(), generation);
    // The key does not exist, which is cached for a while, even if the set could be fetched again.
    assert_eq!(waited(&provider, "two", least), "unknown");
    assert_eq!(first(&provider, "two", 2 * least), "unknown");
    assert_eq!(waited(&provider, "two", 2 * least), "unknown");
    // Other keys are not affected.
    assert_eq!(first(&provider, "three", 2 * least), "wait");
    let over = least + limits::KEY_UNKNOWN.as_secs();
    assert_eq!(first(&provider, "two", over), "wait");
    // The set has changed: the old key is invalid, and so are tokens verified by it.
    fetch(&provider, over, Some(&["two"]));
    assert_ne!(provider.generation(), generation);
    assert_eq!(first(&provider, "two", over), "keys");
    assert_eq!(waited(&provider, "two", over), "keys");
    assert_eq!(first(&provider, "one", over), "unknown");
}

#[test]
fn old_keys_are_used_while_there_are_no_new_ones() {
    let provider = remote();
    fetch(&provider, 0, Some(&["one"]));
    let generation = provider.generation();
    fetch(&provider, 600, None);
    provider.start_attempt(at(610));
    assert!(provider.store_keys(b"<html>".to_vec()).is_err());
    provider.finish_attempt(true);
    assert_eq!(provider.generation(), generation);
    assert_eq!(first(&provider, "one", 611), "keys");
    assert_eq!(waited(&provider, "one", 611), "keys");
    // It is unknown whether the key exists.
    assert_eq!(first(&provider, "two", 611), "unavailable");
    assert_eq!(waited(&provider, "two", 611), "unavailable");
    assert_eq!(first(&provider, "two", 620), "wait");
    provider.discard_keys();
    assert_ne!(provider.generation(), generation);
    assert_eq!(first(&provider, "one", 630), "unavailable");
    assert_eq!(waited(&provider, "one", 630), "unavailable");
}

#[test]
fn cached_unknown_keys_are_limited() {
    let provider = remote();
    fetch(&provider, 0, Some(&["one"]));
    for number in 0..2 * limits::KEYS_UNKNOWN {
        assert_eq!(waited(&provider, &format!("strange {number}"), 1), "unknown");
    }
    assert_eq!(first(&provider, "strange 0", 100), "wait");
    // Expired entries make room.
    assert_eq!(waited(&provider, "last", 1), "unknown");
    assert_eq!(first(&provider, "last", 20), "wait");
    let remembered = |number: usize| first(&provider, &format!("strange {number}"), 20) == "unknown";
    let count = (0..2 * limits::KEYS_UNKNOWN)
        .filter(|number| remembered(*number))
        .count();
    assert_eq!(count, limits::KEYS_UNKNOWN);
    fetch(&provider, 100, Some(&["one"]));
    assert_eq!(waited(&provider, "last", 100), "unknown");
    assert_eq!(first(&provider, "last", 120), "unknown");
}
