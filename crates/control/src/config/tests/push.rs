//! The keys of push.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{Action, Path, Push, Secret};
use ringmain_push::{Keep, Slow};

use super::{all_wrong, right};

#[test]
fn what_is_pushed_is_read_with_its_defaults() {
    let config = right(
        "\
listen: :80
push:
  anonymous: true
  origins: [https://app.example, '*.shop.example']
  api_key: owner
  channels: {publish: true}
  namespaces:
    prices:
      keep: {}
      cache: true
      every: 200ms
      slow: conflate
    rooms:
      keep: {publications: 100, size: 64KiB, time: 1h}
      recovery: true
      history: true
      presence: true
      join_leave: true
  limits: {subscriptions: 10, waiting: 64KiB, channels: 1000}
routes:
  live:
    rules:
      - {match: /connection, push: true}
      - {match: /live, push: {below: /live}}
",
    );
    let actions: Vec<_> = config.routes[0].rules.iter().map(|rule| &rule.action).collect();
    assert!(matches!(actions[0], Action::Push(at) if at.below.is_none()));
    assert!(matches!(actions[1], Action::Push(at) if at.below.as_ref().map(Path::as_str) == Some("/live")));
    let push = config.push.as_deref().expect("what is pushed");
    assert!(push.anonymous);
    assert_eq!(
        push.origins,
        [Arc::from("https://app.example"), Arc::from("*.shop.example")]
    );
    assert_eq!(push.api_key, Some(Secret::new(b"owner".as_slice())));
    assert_eq!(
        (
            push.limits.subscriptions,
            push.limits.waiting_bytes,
            push.channels
        ),
        (10, 64 << 10, 1000)
    );
    assert!(push.plain.publish && push.plain.rules.keep.is_none());
    let prices = push.namespaces["prices"];
    let rules = prices.rules;
    assert_eq!(
        (rules.cache, rules.every, rules.slow),
        (true, Some(Duration::from_millis(200)), Slow::Conflate)
    );
    let kept = Keep {
        publications: 1,
        bytes: 1 << 20,
        time: Duration::from_mins(5),
    };
    assert_eq!(rules.keep, Some(kept));
    assert!(!prices.publish && !prices.presence);
    let rooms = push.namespaces["rooms"];
    assert!(
        rooms.recovery && rooms.history && rooms.presence && rooms.rules.presence && rooms.rules.join_leave
    );
    assert_eq!(
        rooms.rules.keep.map(|keep| keep.time),
        Some(Duration::from_hours(1))
    );
    assert_eq!(
        right("{listen: ':80', push: {}, to: http://127.0.0.1:1}")
            .push
            .as_deref(),
        Some(&Push::default())
    );
}

#[test]
fn what_is_wrong_about_push_is_told() {
    let text = "\
listen: :80
push:
  origins: ['https://a b']
  api_key: ''
  channels: {history: true}
  namespaces:
    'a:b': {}
    prices: {every: 1s, keep: {publications: 0}}
    fast: {keep: {}, every: 0s}
routes:
  live:
    rules:
      - {match: /a, push: false}
      - {match: /b, push: true, respond: 200}
      - {match: /c, push: true, retry: true}
";
    let wrong = all_wrong(text);
    let wrong: Vec<_> = wrong
        .iter()
        .map(|line| line.strip_prefix("c.yaml:").unwrap_or(line))
        .collect();
    assert_eq!(
        wrong,
        [
            "3:13: expected `https://app.example.com`, `*.example.com` or `https://*.example.com`, found `https://a b`",
            "4:12: expected a key of visible ASCII characters, at least one, found none",
            "5:13: expected the key `keep` beside `history`: it is of what is kept, found none",
            "7:5: expected a namespace: the part of a channel's name before `:`, without `:`, `#`, `$` and `,`, found `a:b`",
            "8:13: expected the key `keep` beside `every`: it is of what is kept, found none",
            "8:31: expected `publications`, `size` and `time` of more than nothing, or no `keep`, found 0",
            "9:11: expected a time of more than nothing at `every`, found 0",
            "13:27: expected `true`, or the path that clients connect below, found `false`",
            "14:9: expected one of the keys `to`, `redirect`, `respond`, `files` and `push`, found several",
            "15:40: expected the key `retry` only beside `to`, found it beside another action",
        ]
    );
    let without = all_wrong("{listen: ':80', routes: {live: {rules: [{match: /a, push: true}]}}}");
    assert_eq!(without.len(), 1);
    assert!(
        without[0].ends_with("expected the key `push` of the file as well: what is pushed, found none"),
        "{without:?}"
    );
}
