//! Keys that come and go, without sockets and in times that a test says.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::backend::Time;
use serde_json::{Value, json};

use super::provider::{Look, Patience, Provider};
use crate::limits;
use crate::model::{JwtAlgorithm, JwtKeys, JwtProvider, KeySet as Written, RemoteKeys, Target};

/// Of RFC 8037 §A.2.
const EDWARDS: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn set(keys: Value) -> Vec<u8> {
    json!({ "keys": keys }).to_string().into_bytes()
}

fn edwards(id: &str) -> Value {
    json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": EDWARDS })
}

#[test]
fn what_is_written_is_not_shown() {
    let hidden = Written::parse(&set(
        json!([{ "kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0" }]),
    ));
    assert!(!format!("{hidden:?}").contains("c2VjcmV0"));
}

/// A provider whose keys somebody else fetches: the test.
fn remote() -> Provider {
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
    Provider::new(1, &Arc::new(config), None, None).expect("no keys yet")
}

fn at(seconds: u64) -> Time {
    Time(0).after(Duration::from_secs(seconds))
}

/// What a request learns that shows a token of this key, after it has waited or before.
fn look(provider: &Provider, id: &str, seconds: u64, patience: Patience) -> &'static str {
    match provider.look(JwtAlgorithm::EdDsa, Some(id), at(seconds), patience) {
        Look::Keys(..) => "keys",
        Look::Wait => "wait",
        Look::Unknown => "unknown",
        Look::Unavailable => "unavailable",
    }
}

fn first(provider: &Provider, id: &str, seconds: u64) -> &'static str {
    look(provider, id, seconds, Patience::May)
}

fn waited(provider: &Provider, id: &str, seconds: u64) -> &'static str {
    look(provider, id, seconds, Patience::Has)
}

fn fetch(provider: &Provider, seconds: u64, keys: Option<&[&str]>) {
    provider.begin(at(seconds));
    let fetched = keys.map(|ids| provider.fetched(set(ids.iter().map(|id| edwards(id)).collect())));
    provider.end(!matches!(fetched, Some(Ok(()))));
}

#[test]
fn without_keys_nobody_passes() {
    let provider = remote();
    // The first attempt is about to begin.
    assert_eq!(first(&provider, "one", 0), "wait");
    assert_eq!(waited(&provider, "one", 0), "unavailable");
    fetch(&provider, 0, None);
    // Nobody waits for what has just failed, and nobody asks for it.
    assert_eq!(first(&provider, "one", 1), "unavailable");
    assert_eq!(waited(&provider, "one", 1), "unavailable");
    assert_eq!(first(&provider, "one", 1000), "unavailable");
    assert_eq!(waited(&provider, "one", 1000), "unavailable");
    provider.begin(at(1001));
    assert_eq!(first(&provider, "one", 1001), "wait");
    assert_eq!(waited(&provider, "one", 1001), "unavailable");
    fetch(&provider, 1001, Some(&["one"]));
    assert_eq!(first(&provider, "one", 1001), "keys");
    assert_eq!(waited(&provider, "one", 1001), "keys");
}

#[test]
fn a_new_key_is_asked_for_and_not_too_often() {
    let least = limits::KEYS_LEAST.as_secs();
    let provider = remote();
    fetch(&provider, 0, Some(&["one"]));
    let generation = provider.generation();
    // Soon after a fetch a strange key is a wrong key.
    assert_eq!(first(&provider, "two", least - 1), "unknown");
    // Which says nothing of what is there when it may be fetched again: its provider may just have made it.
    assert_eq!(look(&provider, "two", least - 1, Patience::MayNot), "unknown");
    assert_eq!(first(&provider, "two", least), "wait");
    // The known one never waits.
    assert_eq!(first(&provider, "one", least), "keys");
    fetch(&provider, least, Some(&["one"]));
    // Nothing has changed: what is known of tokens stays.
    assert_eq!(provider.generation(), generation);
    // It is not there, and that is remembered for a while, also when the set could be fetched again.
    assert_eq!(waited(&provider, "two", least), "unknown");
    assert_eq!(first(&provider, "two", 2 * least), "unknown");
    assert_eq!(waited(&provider, "two", 2 * least), "unknown");
    // Not of the others.
    assert_eq!(first(&provider, "three", 2 * least), "wait");
    let over = least + limits::KEY_UNKNOWN.as_secs();
    assert_eq!(first(&provider, "two", over), "wait");
    // The keys are changed: the old one is good no more, nor what was found good by it.
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
    provider.begin(at(610));
    assert!(provider.fetched(b"<html>".to_vec()).is_err());
    provider.end(true);
    assert_eq!(provider.generation(), generation);
    assert_eq!(first(&provider, "one", 611), "keys");
    assert_eq!(waited(&provider, "one", 611), "keys");
    // Whether there is another one nobody knows.
    assert_eq!(first(&provider, "two", 611), "unavailable");
    assert_eq!(waited(&provider, "two", 611), "unavailable");
    assert_eq!(first(&provider, "two", 620), "wait");
    provider.forget();
    assert_ne!(provider.generation(), generation);
    assert_eq!(first(&provider, "one", 630), "unavailable");
    assert_eq!(waited(&provider, "one", 630), "unavailable");
}

#[test]
fn names_of_keys_that_are_remembered_are_bounded() {
    let provider = remote();
    fetch(&provider, 0, Some(&["one"]));
    for number in 0..2 * limits::KEYS_UNKNOWN {
        assert_eq!(waited(&provider, &format!("strange {number}"), 1), "unknown");
    }
    assert_eq!(first(&provider, "strange 0", 100), "wait");
    // Those whose time is over make room.
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
