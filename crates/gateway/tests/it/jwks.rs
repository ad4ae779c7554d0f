//! Keys of tokens that arrive late, never, or wrong.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{JwtAlgorithm, JwtKeys, Policy, RemoteKeys, Target};
use ringmain_testkit::wait::until;
use serde_json::json;

use crate::identity_provider::{Signer, claims, jwt, provider, set, shown};
use crate::origin::{Edge, Origin, edge, refusing_addr, to, upstream};
use crate::policies::{ask, with};
use crate::support::PATIENCE;

on_every_backend! {
    late_keys_are_awaited,
    without_keys_all_tokens_are_refused,
    keys_that_are_none_are_no_keys,
    keys_that_change,
}

/// A guarded gateway whose keys are at this address.
fn remote(engine: Config, origin: &Origin, keys: std::net::SocketAddr) -> Edge {
    let keys_at = JwtKeys::Remote(RemoteKeys {
        upstream: Target::Upstream("id".into()),
        host: None,
        path: "/keys?all=1".into(),
        refresh: Duration::from_mins(10),
        stale: Duration::from_hours(1),
    });
    let policy = jwt(provider(keys_at, &[JwtAlgorithm::Es256]));
    let mut config = with(to(&[origin.addr], |_, _| {}), vec![Policy::Jwt(Arc::new(policy))]);
    config.upstreams.push(Arc::new(upstream("id", &[keys])));
    edge(engine, config)
}

fn answer_with(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// Holds a thread until it is opened.
#[derive(Default)]
pub(crate) struct Gate(Mutex<bool>, Condvar);

impl Gate {
    pub(crate) fn open(&self) {
        *self.0.lock().expect("one test") = true;
        self.1.notify_all();
    }

    pub(crate) fn wait(&self) {
        let open = self.0.lock().expect("one test");
        let waited = self.1.wait_timeout_while(open, PATIENCE, |open| !*open);
        assert!(*waited.expect("one test").0, "the gate is opened");
    }
}

/// Gateways that are tried before a request counts as not having waited.
const ATTEMPTS: usize = 5;

/// On a machine that is stopped for longer than a request may wait, the request is refused, as it should be: then another gateway is
/// tried. How long a request waits is shown in virtual time (`tests/sim/policy_services`).
fn late_keys_are_awaited(engine: Config) {
    let waited = (0..ATTEMPTS).any(|_| waits_for_late_keys(engine.clone()));
    assert!(waited, "{ATTEMPTS} requests were refused");
}

/// Returns false if the request that waited was refused.
fn waits_for_late_keys(engine: Config) -> bool {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::Es256, "one");
    let gate = Arc::new(Gate::default());
    let (held, body) = (Arc::clone(&gate), answer_with(&set(&[&signer])));
    let keys = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            held.wait();
            peer.send(&body);
        }
    });
    let edge = remote(engine, &origin, keys.addr);
    let mut client = edge.server.client();
    let good = signer.sign(&claims(json!({})));
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {good}\r\n\r\n"
    ));
    // The fetch is under way, whoever asked for it. What needs no keys is answered meanwhile.
    let seen = keys.seen();
    assert_eq!(seen.line(), "GET /keys?all=1 HTTP/1.1");
    assert_eq!(ask(&edge, "GET", "").status, 401);
    assert_eq!(
        shown(&edge, &signer.sign(&claims(json!({ "exp": 1 })))).status,
        401
    );
    gate.open();
    let status = client.answer().status;
    if status == 503 {
        edge.server.shut_down();
        return false;
    }
    assert_eq!(status, 200);
    until_let_in(&edge, &good);
    // From now on the keys are available.
    let other = signer.sign(&claims(json!({ "sub": "eva" })));
    assert_eq!(shown(&edge, &other).status, 200);
    // An unknown key: the set was just fetched, so the request does not wait.
    let stranger = Signer::new(JwtAlgorithm::Es256, "two");
    assert_eq!(shown(&edge, &stranger.sign(&claims(json!({})))).status, 401);
    edge.server.shut_down();
    true
}

fn without_keys_all_tokens_are_refused(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::Es256, "one");
    let edge = remote(engine, &origin, refusing_addr());
    let answer = shown(&edge, &signer.sign(&claims(json!({}))));
    answer.expect(503, "token verification keys unavailable\n");
    assert_eq!(answer.field("retry-after"), Some("1"));
    edge.server.shut_down();
}

fn keys_that_are_none_are_no_keys(engine: Config) {
    let origin = Origin::echo();
    let signer = Signer::new(JwtAlgorithm::Es256, "one");
    let good = answer_with(&set(&[&signer]));
    let lies = [
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 2\r\n\r\n{}".to_owned(),
        answer_with("<html>"),
    ];
    let answers = Mutex::new(lies.into_iter());
    let keys = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let next = answers.lock().expect("one test").next();
            peer.send(next.unwrap_or_else(|| good.clone()));
        }
    });
    let edge = remote(engine, &origin, keys.addr);
    let token = signer.sign(&claims(json!({})));
    until_let_in(&edge, &token);
    edge.server.shut_down();
}

/// Repeats requests until the keys are fetched; none is admitted before.
fn until_let_in(edge: &Edge, token: &str) {
    until("the keys are fetched", || match shown(edge, token).status {
        200 => true,
        status => {
            assert_eq!(status, 503);
            false
        }
    });
}

/// The provider changes its key: a token by the new key is admitted after one more fetch, which its request waits for, and cached
/// verdicts on tokens by the old key are discarded.
fn keys_that_change(engine: Config) {
    let origin = Origin::echo();
    let old = Signer::new(JwtAlgorithm::Es256, "old");
    let new = Signer::new(JwtAlgorithm::Es256, "new");
    let served = Arc::new((Mutex::new(answer_with(&set(&[&old]))), AtomicU32::new(0)));
    let told = Arc::clone(&served);
    let keys = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            told.1.fetch_add(1, Ordering::SeqCst);
            let answer = told.0.lock().expect("no panic").clone();
            peer.send(&answer);
        }
    });
    let edge = remote(engine, &origin, keys.addr);
    let before = old.sign(&claims(json!({})));
    let after = new.sign(&claims(json!({})));
    until_let_in(&edge, &before);
    let begun = served.1.load(Ordering::SeqCst);
    *served.0.lock().expect("no panic") = answer_with(&set(&[&new]));
    // The verdict is cached: no keys are fetched, and the change of keys is unknown.
    assert_eq!(shown(&edge, &before).status, 200);
    until("they are fetched again", || match shown(&edge, &after).status {
        200 => true,
        // Until keys may be fetched again.
        status => {
            assert_eq!(status, 401);
            false
        }
    });
    assert_eq!(served.1.load(Ordering::SeqCst), begun + 1, "once");
    // On every connection, so by each worker.
    for _ in 0..8 {
        let answer = shown(&edge, &before);
        assert_eq!(answer.status, 401, "{}", answer.text());
        assert_eq!(shown(&edge, &after).status, 200);
    }
    assert_eq!(
        served.1.load(Ordering::SeqCst),
        begun + 1,
        "no request has it fetched for a removed key"
    );
    edge.server.shut_down();
}
