//! Metrics, and the content security policy of the page.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

use super::metrics::{Latency, MetricsBuilder, Sample, ServerInfo};
use super::*;
use crate::limits::RATES;

fn server_info() -> ServerInfo {
    ServerInfo {
        version: "1.2.3",
        engine: "uring",
        features: vec!["message-ring".into()],
        missing: Vec::new(),
        why_not: None,
        workers: 2,
        cpus: 4,
    }
}

fn sample(second: u64, requests: u64, cpu_ms: u64) -> Sample {
    Sample {
        at: Duration::from_secs(1000 + second),
        cpu: Duration::from_millis(cpu_ms),
        requests,
        ..Sample::default()
    }
}

fn parsed(document: &str) -> Value {
    assert!(!document.contains('\n'), "an event's data is one line");
    serde_json::from_str(document).unwrap()
}

#[test]
fn rates_are_derived_from_counters() {
    let mut metrics = MetricsBuilder::new(server_info(), sample(0, 0, 0));
    let found = parsed(&metrics.next_document(Sample {
        connections: 7,
        accepted: 9,
        memory_bytes: Some(1 << 20),
        latency: Some(Latency {
            p50: Duration::from_nanos(3_149),
            p90: Duration::from_micros(8),
            p99: Duration::from_micros(34),
            p999: Duration::from_millis(1),
        }),
        ..sample(2, 1000, 500)
    }));
    let expect = json!({
        "version": "1.2.3", "engine": "uring", "features": ["message-ring"], "missing": [], "why_not": null,
        "workers": 2, "cpus": 4, "uptime_s": 2, "requests": 1000, "rate": 500, "rates": [500],
        "latency_us": {"p50": 3.1, "p90": 8.0, "p99": 34.0, "p999": 1000.0},
        "connections": 7, "accepted": 9, "cpu_percent": 25.0, "memory_bytes": 1_048_576,
    });
    assert_eq!(found, expect);
    let next = parsed(&metrics.next_document(sample(3, 1000, 2500)));
    assert_eq!((&next["rate"], &next["rates"]), (&json!(0), &json!([500, 0])));
    assert_eq!(
        (&next["cpu_percent"], &next["latency_us"]),
        (&json!(200.0), &Value::Null)
    );
}

#[test]
fn the_first_sample_has_no_rate() {
    let mut metrics = MetricsBuilder::new(server_info(), sample(0, 5, 100));
    let found = parsed(&metrics.next_document(sample(0, 5, 100)));
    assert_eq!((&found["rate"], &found["cpu_percent"]), (&json!(0), &json!(0.0)));
}

#[test]
fn rates_cover_one_minute() {
    let mut metrics = MetricsBuilder::new(server_info(), sample(0, 0, 0));
    let mut last = Value::Null;
    for second in 1..=100 {
        last = parsed(&metrics.next_document(sample(second, second * second, 0)));
    }
    let rates = last["rates"].as_array().unwrap();
    assert_eq!(rates.len(), RATES);
    assert_eq!(rates[RATES - 1], json!(100 * 100 - 99 * 99));
}

/// Returns the SHA-256 digest in base64, as in a content security policy; computed with coreutils.
fn digest(text: &str) -> String {
    let script = "sha256sum | head -c 64 | tr a-f A-F | basenc --base16 -d | base64";
    let mut child = Command::new("sh")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

pub(crate) fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

/// Checks that a policy allows only the style and the script of a page.
pub(crate) fn allows_its_own(policy: &str, page: &str) {
    for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
        let content = between(page, &format!("<{tag}>"), &format!("</{tag}>"));
        let expect = format!("{directive} 'sha256-{}'", digest(content));
        assert!(policy.contains(&expect), "expected {expect} in: {policy}");
        assert_eq!(page.matches(&format!("<{tag}")).count(), 1);
    }
    assert!(policy.starts_with("default-src 'none'; "));
}

#[test]
fn the_policy_allows_only_the_style_and_script_of_the_page() {
    allows_its_own(POLICY, PAGE);
}

#[test]
fn the_page_has_no_external_resources() {
    for place in ["src=", "@import", "url(", "style=", "onclick"] {
        assert!(!PAGE.contains(place), "{place}");
    }
    let outside = PAGE.matches("http").count();
    let known = PAGE.matches("http://www.w3.org/2000/svg").count()
        + PAGE.matches("https://github.com/ringmain/").count();
    assert_eq!(outside, known, "a link to elsewhere");
}

/// Links to guides lead to files of this repository.
#[test]
fn guides_exist() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let links = PAGE
        .split("https://github.com/ringmain/ringmain/blob/main/")
        .skip(1);
    let paths: Vec<&str> = links.map(|rest| rest.split('"').next().unwrap()).collect();
    assert!(paths.len() > 5, "{paths:?}");
    for path in paths {
        assert!(root.join(path).is_file(), "{path}");
    }
}

#[test]
fn commands_have_the_address_that_was_requested() {
    for (scheme, host, expect) in [
        ("http", Some("127.0.0.1:9000"), "http://127.0.0.1:9000"),
        ("https", Some("[::1]:8443"), "https://[::1]:8443"),
        ("http", None, "http://127.0.0.1:8080"),
        ("http", Some("a;rm<script>"), "http://127.0.0.1:8080"),
    ] {
        assert_eq!(origin(scheme, host), expect);
    }
    assert!(PAGE.matches(ORIGIN).count() > 5 && !PAGE.contains("ORIGIN"));
    for tag in ["style", "script"] {
        let content = between(PAGE, &format!("<{tag}>"), &format!("</{tag}>"));
        assert!(!content.contains(ORIGIN), "its digest would change");
    }
}

#[test]
fn the_text_for_curl_lists_the_paths_of_the_help() {
    let text = plain_text(&server_info());
    for path in [
        "/json",
        "/plaintext",
        "/echo",
        "/ws",
        "/ticker",
        "/healthz",
        "/readyz",
        "/live",
    ] {
        assert!(text.contains(&format!("  {path} ")), "{path} is missing: {text}");
    }
    assert!(
        text.starts_with("ringmain 1.2.3, io_uring, 2 workers\n"),
        "{text}"
    );
}
