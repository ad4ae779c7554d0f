//! The example with custom filters, as a user runs it: the program, a file, and an upstream in a thread of the test.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of a real program have real threads and real time"
)]

pub(crate) mod program;
mod upstream;

use aws_lc_rs::hmac;
use rustix::process::Signal;
use serde_json::Value;

use program::Directory;
use upstream::{HttpMessage, PATIENCE, ask, upstream};

const EXAMPLE: &str = include_str!("../../../../examples/edge/edge.yaml");
const KEY: &str = "0123456789abcdef0123456789abcdef";

/// The example's file, for a test.
fn file(upstream: &std::net::SocketAddr) -> String {
    EXAMPLE
        .replace("127.0.0.1:8080", "127.0.0.1:0")
        .replace("127.0.0.1:3000", &upstream.to_string())
}

/// Returns whether a request is signed with the key.
fn is_signed(request: &HttpMessage) -> bool {
    let value = request
        .field("x-signature")
        .and_then(|value| value.strip_prefix("t="));
    let Some((time, tag)) = value.and_then(|value| value.split_once(",v1=")) else {
        return false;
    };
    let signed = [time.as_bytes(), b".", &request.body].concat();
    let key = hmac::Key::new(hmac::HMAC_SHA256, KEY.as_bytes());
    let expected = hmac::sign(&key, &signed);
    let hex: String = expected
        .as_ref()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    tag == hex && time.parse::<u64>().is_ok_and(|time| time > 1_600_000_000)
}

fn json(answer: &HttpMessage) -> Value {
    serde_json::from_slice(&answer.body).expect("JSON")
}

#[test]
fn requests_are_signed_and_answers_tell_no_secrets() {
    let answer =
        r#"{"user":{"name":"ada","password":"hunter2"},"cards":[{"card_number":"4111"},{"kind":"x"}]}"#;
    let (origin, seen) = upstream(answer);
    let seen = || seen.recv_timeout(PATIENCE).expect("the upstream is asked");
    let directory = Directory::new();
    let text = file(&origin);
    let mut program = program::start(&directory.file(&text), KEY);
    let addr = program.listening();

    let got = ask(&addr, "GET", "/api/me", "");
    assert_eq!((&*got.first, got.field("etag")), ("HTTP/1.1 200 OK", None));
    let body = json(&got);
    assert_eq!(
        (&body["user"]["name"], &body["user"]["password"]),
        (&"ada".into(), &"(redacted)".into())
    );
    assert_eq!(body["cards"][0]["card_number"], "(redacted)");
    let request = seen();
    assert!(is_signed(&request), "{request:?}");
    assert_eq!(request.field("accept-encoding"), None);
    program.wait_for("2 values redacted");

    // Long enough to be read off the worker.
    let long = format!(r#"{{"password":"x","rest":"{}"}}"#, "y".repeat(200_000));
    let body = json(&ask(&addr, "POST", "/api/me", &long));
    assert_eq!(body["password"], "(redacted)");
    assert_eq!(body["rest"].as_str().map(str::len), Some(200_000));
    let request = seen();
    assert!(is_signed(&request) && request.body == long.as_bytes());

    // A response that is not JSON does not pass.
    let got = ask(&addr, "POST", "/api/me", r#"{"password": "hunter2""#);
    assert_eq!(got.first, "HTTP/1.1 502 Bad Gateway");
    assert!(!String::from_utf8_lossy(&got.body).contains("hunter2"));
    seen();

    // Without filters no request is signed, and a client's header passes.
    assert_eq!(ask(&addr, "GET", "/pictures/1", "").body, answer.as_bytes());
    assert_eq!(seen().field("x-signature"), Some("forged"));

    // Other options hold from the next request on.
    directory.file(
        &text
            .replace("header: X-Signature", "header: X-Proof")
            .replace("[password, card_number]", "[name]"),
    );
    program.signal(Signal::HUP);
    program.wait_for("configuration reloaded in");
    let body = json(&ask(&addr, "GET", "/api/me", ""));
    assert_eq!(
        (&body["user"]["name"], &body["user"]["password"]),
        (&"(redacted)".into(), &"hunter2".into())
    );
    assert!(seen().field("x-proof").is_some());
    program.terminate();
}

#[test]
fn invalid_names_and_options_are_reported() {
    let (origin, _seen) = upstream("{}");
    let directory = Directory::new();
    let text = file(&origin)
        .replace("name: redact", "name: redcat")
        .replace("key: ${env:SIGNING_KEY}", "kye: x");
    let right = text
        .replace("kye: x", "key: ${env:SIGNING_KEY}")
        .replace("redcat", "redact");
    // At the start nothing is served.
    let mut program = program::start(&directory.file(&text), KEY);
    program.wait_for("`kye`");
    program.wait_for("`redcat`");
    program.wait_for("error: ");
    assert_ne!(program.finish().0.code(), Some(0));
    // While it serves nothing changes.
    let mut program = program::start(&directory.file(&right), KEY);
    let addr = program.listening();
    assert_eq!(ask(&addr, "GET", "/api/me", "").first, "HTTP/1.1 200 OK");
    directory.file(&text);
    let line = program.wait_for("`kye`");
    assert!(line.contains("`key`"), "{line}");
    let line = program.wait_for("`redcat`");
    assert!(line.contains("registered filters: `redact`, `sign`"), "{line}");
    program.wait_for("keeping the previous configuration");
    for path in ["/api/me", "/pictures/1"] {
        assert_eq!(ask(&addr, "GET", path, "").first, "HTTP/1.1 200 OK");
    }
    directory.file(&right.replace("header: X-Signature", "header: X-Proof"));
    program.wait_for("configuration reloaded in");
    assert_eq!(ask(&addr, "GET", "/api/me", "").first, "HTTP/1.1 200 OK");
    program.terminate();
}
