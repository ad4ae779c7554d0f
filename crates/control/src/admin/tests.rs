//! Redaction of configurations, and the format of metrics.

use ringmain_push::SlowConsumerPolicy;
use ringmain_push::metrics::{Refusal, Report};

use super::metrics::MetricsPage;
use super::push_metrics;
use crate::config::redacted;

#[test]
fn secrets_are_not_shown() {
    let text = "
listen: 127.0.0.1:8080
push:
  api_key: abc
  tokens: {secret: abc}
  proxy: {own_headers: {X-Sender: abc}}
routes:
  all:
    policies: {basic: {users: {ada: abc}}}
    rules:
      - to: http://127.0.0.1:3000
        match: {path: /a, headers: {x-shared: abc}}
        request_headers:
          set: {Authorization: Bearer abc, x-api-key: '${env:KEY}', x-plain: abc, x-both: '${env:A} abc'}
          add: {x-auth-token: '${file:two}'}
";
    let shown = redacted(text).expect("YAML");
    assert!(!shown.to_string().contains("abc"), "{shown}");
    let headers = &shown["routes"]["all"]["rules"][0]["request_headers"];
    assert_eq!(headers["set"]["Authorization"], "(not shown)");
    assert_eq!(headers["set"]["x-api-key"], "${env:KEY}");
    assert_eq!(headers["add"]["x-auth-token"], "${file:two}");
    assert_eq!(shown["routes"]["all"]["rules"][0]["to"], "http://127.0.0.1:3000");
    assert_eq!(shown["listen"], "127.0.0.1:8080");
}

#[test]
fn labels_are_escaped() {
    let mut page = MetricsPage::default();
    page.metric("a_total", "counter", "As.");
    page.sample("a_total", &[("route", "a\"b\\c\nd"), ("class", "2xx")], 5);
    page.sample("a_total", &[], 0.5);
    assert_eq!(
        page.0,
        "# HELP a_total As.\n# TYPE a_total counter\na_total{route=\"a\\\"b\\\\c\\nd\",class=\"2xx\"} 5\na_total 0.5\n"
    );
}

#[test]
fn push_metrics_have_bounded_labels() {
    let mut page = MetricsPage::default();
    let report = Report {
        clients: 3,
        refused: Refusal::ALL.map(|why| (why, why as u64)),
        disconnects: vec![(Some(3008), 5), (None, 1)],
        slow: SlowConsumerPolicy::ALL.map(|slow| (slow, 7)),
        recovered: 2,
        ..Report::default()
    };
    push_metrics::write_push(&mut page, &report);
    for line in [
        "ringmain_push_clients 3",
        "# TYPE ringmain_push_refused_total counter",
        "ringmain_push_refused_total{reason=\"rate\"} 1",
        "ringmain_push_refused_total{reason=\"user\"} 3",
        "ringmain_push_disconnects_total{code=\"3008\"} 5",
        "ringmain_push_disconnects_total{code=\"other\"} 1",
        "ringmain_push_slow_total{rule=\"conflate\"} 7",
        "ringmain_push_recoveries_total{outcome=\"complete\"} 2",
        "ringmain_push_recoveries_total{outcome=\"gap\"} 0",
    ] {
        assert!(page.0.lines().any(|it| it == line), "{line}: {}", page.0);
    }
    let names = page.0.lines().filter(|line| line.starts_with("# TYPE")).count();
    let samples = page.0.lines().filter(|line| !line.starts_with('#')).count();
    assert_eq!((names, samples), (16, 11 + 5 + 2 + 5 + 2 + 1));
}
