//! What may be shown, and how metrics are written.

use super::metrics::Page;
use crate::config::shown;

#[test]
fn secrets_are_not_shown() {
    let text = "
listen: 127.0.0.1:8080
routes:
  all:
    rules:
      - to: http://127.0.0.1:3000
        request_headers:
          set: {Authorization: Bearer abc, x-api-key: '${env:KEY}', x-plain: '1', x-both: '${env:A} abc'}
          add: {x-auth-token: [one, '${file:two}']}
";
    let shown = shown(text).expect("YAML");
    let headers = &shown["routes"]["all"]["rules"][0]["request_headers"];
    assert_eq!(headers["set"]["Authorization"], "(not shown)");
    assert_eq!(headers["set"]["x-api-key"], "${env:KEY}");
    assert_eq!(headers["set"]["x-plain"], "1");
    assert_eq!(headers["set"]["x-both"], "${env:A} abc");
    assert_eq!(headers["add"]["x-auth-token"][0], "(not shown)");
    assert_eq!(headers["add"]["x-auth-token"][1], "${file:two}");
    assert_eq!(shown["listen"], "127.0.0.1:8080");
}

#[test]
fn labels_are_escaped() {
    let mut page = Page::default();
    page.metric("a_total", "counter", "As.");
    page.sample("a_total", &[("route", "a\"b\\c\nd"), ("class", "2xx")], 5);
    page.sample("a_total", &[], 0.5);
    assert_eq!(
        page.0,
        "# HELP a_total As.\n# TYPE a_total counter\na_total{route=\"a\\\"b\\\\c\\nd\",class=\"2xx\"} 5\na_total 0.5\n"
    );
}
