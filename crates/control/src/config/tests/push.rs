//! The keys of push.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    Action, ChannelBound, Path, Push, PushDataFormat, PushEvent, PushKeys, PushListen, Secret, Target,
};
use ringmain_push::{HistoryOptions, SlowConsumerPolicy};

use super::{all_errors_of, valid_config};

#[test]
fn push_is_built_with_defaults() {
    let config = valid_config(
        "\
listen: :80
push:
  anonymous: true
  origins: [https://app.example, '*.shop.example']
  api_key: owner
  channels: {publish: true}
  limits: {subscriptions: 10, connections_per_user: 3, waiting: 64KiB, channels: 1000,
           handshakes: 7, connects_per_second: 9, idempotency: 30s}
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
    assert!(push.anonymous && push.tokens.is_none());
    assert_eq!(
        push.origins,
        [Arc::from("https://app.example"), Arc::from("*.shop.example")]
    );
    assert_eq!(push.api_key, Some(Secret::new(b"owner".as_slice())));
    assert_eq!(
        (push.limits.subscriptions, push.limits.queued_bytes),
        (10, 64 << 10)
    );
    assert_eq!((push.connections_per_user, push.channels), (3, 1000));
    assert_eq!((push.handshakes, push.connects_per_second), (7, Some(9)));
    assert_eq!(push.keys_remembered, Duration::from_secs(30));
    assert!(push.plain.publish && push.plain.channel_options.history.is_none());
    let nothing = valid_config("{listen: ':80', push: {}, to: http://127.0.0.1:1}");
    assert_eq!(nothing.push.as_deref(), Some(&Push::default()));
}

#[test]
fn namespaces_are_read_with_their_defaults() {
    let config = valid_config(
        "\
listen: :80
to: http://127.0.0.1:1
push:
  namespaces:
    prices:
      retention: {}
      cache: true
      update_interval: 200ms
      slow: conflate
      delta: fossil
    rooms:
      listen: users
      retention: {publications: 100, size: 64KiB, time: 1h, meta_time: 2h}
      data_format: json_object
      recovery: true
      history: true
      presence: true
      join_leave: true
      delta: [fossil]
      tags_filter: true
      compaction: true
",
    );
    let push = config.push.as_deref().expect("what is pushed");
    let prices = push.namespaces["prices"];
    let rules = prices.channel_options;
    assert_eq!(
        (rules.cache_recovery, rules.slow_consumer),
        (true, SlowConsumerPolicy::Conflate)
    );
    assert_eq!(rules.conflation_interval, Some(Duration::from_millis(200)));
    assert_eq!(
        (rules.delta, rules.tags_filter, rules.compaction),
        (true, false, false)
    );
    let kept = HistoryOptions {
        publications: 1,
        bytes: 1 << 20,
        ttl: Duration::from_mins(5),
    };
    assert_eq!(rules.history, Some(kept));
    assert_eq!(rules.position_ttl, Duration::from_hours(30 * 24));
    assert_eq!(prices.data_format, PushDataFormat::Json);
    assert!(!prices.publish && !prices.presence && prices.subscribe_access == PushListen::Everyone);
    let rooms = push.namespaces["rooms"];
    assert!(
        rooms.recovery
            && rooms.history
            && rooms.presence
            && rooms.channel_options.presence
            && rooms.channel_options.join_leave
    );
    assert_eq!(rooms.subscribe_access, PushListen::Users);
    let rules = rooms.channel_options;
    assert_eq!(
        (rules.delta, rules.tags_filter, rules.compaction),
        (true, true, true)
    );
    let kept = HistoryOptions {
        publications: 100,
        bytes: 64 << 10,
        ttl: Duration::from_hours(1),
    };
    assert_eq!(rooms.channel_options.history, Some(kept));
    assert_eq!(rooms.channel_options.position_ttl, Duration::from_hours(2));
    assert_eq!(rooms.data_format, PushDataFormat::JsonObject);
}

#[test]
fn sizes_pings_and_the_folder_of_state_are_read() {
    let config = valid_config(
        "\
listen: :80
to: http://127.0.0.1:1
push:
  state_dir: state
  ping_interval: 4s
  pong_timeout: 2s
  limits: {message: 100KiB, api_body: 2MiB}
  namespaces:
    many: {retention: {publications: 100}}
    few: {retention: {publications: 2}}
  nats:
    feed: {servers: 'nats://127.0.0.1', subjects: a.>, channel: 'many:{2}', readiness: false}
",
    );
    let push = config.push.as_deref().expect("what is pushed");
    assert!(
        push.state_dir
            .as_ref()
            .is_some_and(|path| path.ends_with("state"))
    );
    assert_eq!((push.message_bytes, push.api_body_bytes), (100 << 10, 2 << 20));
    let pings = (push.ping_interval, push.pong_timeout);
    assert_eq!(pings, (Duration::from_secs(4), Duration::from_secs(2)));
    let kept = |name: &str| {
        push.namespaces[name]
            .channel_options
            .history
            .expect("it keeps")
            .bytes
    };
    // As many as are wanted are not fewer for a size that is not written.
    assert_eq!((kept("many"), kept("few")), (100 * (64 << 10), 1 << 20));
    let feed = &push.nats["feed"];
    assert!(!feed.readiness);
    let bounds = feed.bounds();
    let prefixes: Vec<&str> = bounds.iter().map(ChannelBound::prefix).collect();
    assert_eq!(prefixes, ["many:"]);
}

/// Returns the name and the text of each page of push.
fn pages() -> Vec<(String, String)> {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
    let mut pages = Vec::new();
    for folder in ["how-to", "reference"] {
        for entry in std::fs::read_dir(format!("{docs}/{folder}")).expect("a folder of pages") {
            let path = entry.expect("an entry").path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with("push-") && name.ends_with(".md") {
                pages.push((name, std::fs::read_to_string(&path).expect("a page")));
            }
        }
    }
    pages
}

#[test]
fn keys_of_the_guide_exist() {
    let schema = super::super::schema().to_string();
    let mut named = 0;
    for (name, page) in pages() {
        for code in page.split('`').skip(1).step_by(2) {
            let Some((part, key)) = code.split_once('.') else {
                continue;
            };
            let is_word =
                |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
            if ["limits", "retention", "rules", "tokens", "namespaces", "nats"].contains(&part)
                && is_word(key)
            {
                assert_ne!(part, "rules", "{name}: `{code}` is no key of push");
                assert!(
                    schema.contains(&format!("\"{key}\":{{")),
                    "{name}: `{code}` does not exist"
                );
                named += 1;
            }
        }
    }
    assert!(named > 20, "{named}");
}

/// Configurations on the pages are valid; objects of Kubernetes are none. An excerpt receives the keys that it lacks. Indented blocks are parts of the files in
/// `examples`, with which `tests/sources/tutorials.py` compares them.
#[test]
fn configurations_on_pages_are_valid() {
    let has_brokers = cfg!(feature = "kafka");
    let mut count = 0;
    for (name, page) in pages() {
        for block in page.split("\n```yaml").skip(1) {
            let (_, block) = block.split_once('\n').expect("a block");
            let (block, _) = block.split_once("\n```").expect("the end of the block");
            let is_object = block.starts_with("apiVersion:");
            if is_object || block.starts_with(' ') || (block.contains("kafka:") && !has_brokers) {
                continue;
            }
            let mut text = format!("{block}\n");
            let has = |key: &str| block.lines().any(|line| line.starts_with(key));
            for (key, line) in [
                ("listen:", "listen: 127.0.0.1:8080\n"),
                ("push:", "push: {anonymous: true}\n"),
                ("routes:", "routes: {live: {rules: [{match: /, push: true}]}}\n"),
            ] {
                if !has(key) {
                    text.push_str(line);
                }
            }
            assert_eq!(all_errors_of(&text), Vec::<String>::new(), "{name}:\n{text}");
            count += 1;
        }
    }
    assert!(count > 10, "{count}");
}

#[test]
fn push_tokens_are_built() {
    let secret = "0123456789abcdef0123456789abcdef";
    let config = valid_config(&format!(
        "\
listen: :80
to: http://127.0.0.1:1
push:
  tokens: {{secret: {secret}, algorithms: HS256, issuer: shop, audience: [web, app], leeway: 5s}}
  user_channel: personal
  namespaces:
    personal: {{listen: nobody}}
"
    ));
    let push = config.push.as_deref().expect("what is pushed");
    let tokens = push.tokens.as_ref().expect("tokens");
    assert_eq!(tokens.keys, PushKeys::Secret(Secret::new(secret.as_bytes())));
    assert_eq!(
        (tokens.issuer.as_deref(), tokens.audiences.len()),
        (Some("shop"), 2)
    );
    assert_eq!(tokens.leeway, Duration::from_secs(5));
    assert_eq!(push.user_channel.as_deref(), Some("personal"));
    let config = valid_config("{listen: ':80', push: {tokens: {keys: jwks.json}}, to: http://127.0.0.1:1}");
    let tokens = config.push.as_ref().and_then(|push| push.tokens.as_ref());
    assert!(matches!(
        tokens.map(|tokens| &tokens.keys),
        Some(PushKeys::Set(_))
    ));
}

#[test]
fn tokens_may_be_those_of_a_provider() {
    let config = valid_config(
        "\
listen: :80
to: http://127.0.0.1:1
jwt_providers:
  id: {issuer: https://id.example, jwks: http://10.0.0.9:81/keys, audience: shop, algorithms: ES256, leeway: 7s}
push: {tokens: {provider: id}}
",
    );
    let push = config.push.as_deref().expect("what is pushed");
    let Some(PushKeys::Provider(provider)) = push.tokens.as_ref().map(|tokens| &tokens.keys) else {
        panic!("{:?}", push.tokens);
    };
    assert_eq!(&*provider.issuer, "https://id.example");
    let options = push.options(None).expect("they can be");
    let tokens = options.tokens.expect("tokens");
    assert_eq!(tokens.issuer.as_deref(), Some("https://id.example"));
    assert_eq!(
        (&*tokens.audiences, tokens.leeway),
        (&["shop".to_owned()][..], Duration::from_secs(7))
    );
    assert_eq!(tokens.algorithms, [ringmain_push::Algorithm::Es256]);
}

#[test]
fn the_example_is_valid() {
    let config = valid_config(include_str!("../../../../../examples/push.yaml"));
    let push = config.push.as_deref().expect("what is pushed");
    assert_eq!(push.user_channel.as_deref(), Some("personal"));
    assert_eq!(config.routes[0].rules.len(), 2);
}

#[test]
fn invalid_push_settings_are_reported() {
    let text = "\
listen: :80
push:
  origins: ['https://a b']
  api_key: ''
  channels: {history: true}
  namespaces:
    'a:b': {}
    prices: {update_interval: 1s, retention: {publications: 0}}
    fast: {retention: {}, update_interval: 0s}
    short: {retention: {time: 1h, meta_time: 30m}}
routes:
  live:
    rules:
      - {match: /a, push: false}
      - {match: /b, push: true, respond: 200}
      - {match: /c, push: true, retry: true}
";
    let wrong = all_errors_of(text);
    let wrong: Vec<_> = wrong
        .iter()
        .map(|line| line.strip_prefix("c.yaml:").unwrap_or(line))
        .collect();
    assert_eq!(
        wrong,
        [
            "3:13: expected `https://app.example.com`, `*.example.com` or `https://*.example.com`, found `https://a b`",
            "4:12: expected a key of visible ASCII characters, at least one, found none",
            "5:13: expected the key `retention` beside `history`, found none",
            "7:5: expected a namespace: the part of a channel's name before `:`, without `:`, `#`, `$` and `,`, found `a:b`",
            "8:13: expected the key `retention` beside `update_interval`, found none",
            "8:46: expected `publications`, `size` and `time` above 0, or no `retention`, found 0",
            "9:11: expected a time above 0 at `update_interval`, found 0",
            "10:24: expected `meta_time` of at least `time`, which is 3600s, found 1800s",
            "14:27: expected `true`, or the path that clients connect below, found `false`",
            "15:9: expected one of the keys `to`, `redirect`, `respond`, `files` and `push`, found several",
            "16:40: expected the key `retry` only beside `to`, found it beside another action",
        ]
    );
}

#[test]
fn invalid_tokens_are_reported() {
    let tokens = [
        (
            "{}",
            "expected one of `secret`, `keys` and `provider`, found none",
        ),
        (
            "{secret: a, keys: b}",
            "expected one of `secret`, `keys` and `provider`, found several",
        ),
        (
            "{keys: jwks.json, provider: id}",
            "expected one of `secret`, `keys` and `provider`, found several",
        ),
        (
            "{provider: nobody}",
            "expected the name of one of `jwt_providers` of this file, found `nobody`",
        ),
        (
            "{provider: id, issuer: me}",
            "expected `issuer` at the provider, found it beside `provider`",
        ),
        ("{secret: short}", "found 5"),
        ("{keys: missing.json}", "missing.json"),
        (
            "{keys: jwks.json, algorithms: HS256}",
            "expected a key for the algorithm HS256, found none of that kind",
        ),
    ];
    for (tokens, said) in tokens {
        let wrong = all_errors_of(&format!(
            "{{listen: ':80', jwt_providers: {{id: {{issuer: 'https://id', jwks: 'http://127.0.0.1:1/jwks'}}}}, \
             push: {{tokens: {tokens}}}, to: http://127.0.0.1:1}}"
        ));
        assert!(wrong.len() == 1 && wrong[0].contains(said), "{tokens}: {wrong:?}");
    }
    let wrong = all_errors_of(
        "{listen: ':80', jwt_providers: {id: {issuer: 'https://id'}}, push: {tokens: {provider: id}}, to: http://127.0.0.1:1}",
    );
    assert!(
        wrong.len() == 2
            && wrong[1].contains("expected a valid provider of tokens, found `id`, which is invalid"),
        "{wrong:?}"
    );
}

#[test]
fn push_rules_need_the_key_push() {
    let personal = all_errors_of("{listen: ':80', push: {user_channel: personal}, to: http://127.0.0.1:1}");
    assert!(
        personal.len() == 1 && personal[0].contains("personal"),
        "{personal:?}"
    );
    let without = all_errors_of("{listen: ':80', routes: {live: {rules: [{match: /a, push: true}]}}}");
    assert_eq!(without.len(), 1);
    assert!(
        without[0].ends_with("expected the key `push` of the file as well, found none"),
        "{without:?}"
    );
}

#[test]
fn proxy_is_built_with_defaults() {
    let config = valid_config(
        "\
listen: :80
upstreams: {app: http://10.0.0.1:80}
to: http://127.0.0.1:1
push:
  proxy:
    connect: http://10.0.0.2:81/centrifugo/connect?by=edge
    rpc: {to: app, path: /rpc, host: app.example, timeout: 5s}
    publish: {url: http://10.0.0.2:81/publish}
    timeout: 3s
    headers: [Cookie, X-Forwarded-For]
    emulated_headers: Authorization
    own_headers: {X-Key: secret}
    binary: true
  namespaces:
    rooms: {publish_proxy: true}
",
    );
    let push = config.push.as_deref().expect("what is pushed");
    let proxy = &push.proxy;
    let asked: Vec<_> = proxy
        .events
        .iter()
        .map(|(event, ask)| (*event, &*ask.path, ask.timeout.as_secs()))
        .collect();
    assert_eq!(
        asked,
        [
            (PushEvent::Connect, "/centrifugo/connect?by=edge", 3),
            (PushEvent::Rpc, "/rpc", 5),
            (PushEvent::Publish, "/publish", 3),
        ]
    );
    assert_eq!(
        proxy.events[&PushEvent::Rpc].upstream,
        Target::Upstream("app".into())
    );
    let host = proxy.events[&PushEvent::Rpc].host.as_ref();
    assert_eq!(host.map(|host| host.as_str()), Some("app.example"));
    let names = |names: &[ringmain_gateway::model::HeaderName]| {
        let names = names.iter().map(|name| name.as_str().to_ascii_lowercase());
        names.collect::<Vec<_>>()
    };
    assert_eq!(names(&proxy.headers), ["cookie", "x-forwarded-for"]);
    assert_eq!(names(&proxy.emulated_headers), ["authorization"]);
    assert_eq!((proxy.own_headers.len(), proxy.binary), (1, true));
    let rooms = push.namespaces["rooms"];
    assert_eq!((rooms.publish_proxy, rooms.subscribe_proxy), (true, false));
    let least =
        valid_config("{listen: ':80', push: {proxy: {rpc: 'http://127.0.0.1:1/'}}, to: http://127.0.0.1:1}");
    let proxy = &least.push.as_deref().expect("what is pushed").proxy;
    assert_eq!(proxy.events[&PushEvent::Rpc].timeout, Duration::from_secs(1));
}

#[test]
fn invalid_proxy_settings_are_reported() {
    let text = "\
listen: :80
to: http://127.0.0.1:1
push:
  proxy:
    refresh: {to: nobody, path: /refresh}
    rpc: {to: http://10.0.0.2:81}
    publish: {to: http://10.0.0.2:81, path: publish, timeout: 21s}
    timeout: 0s
    headers: [Cookie, Content-Length]
    emulated_headers: Host
    own_headers: {Content-Type: text/plain}
  channels: {subscribe_proxy: true}
  namespaces:
    rooms: {publish_proxy: true, sub_refresh_proxy: true}
";
    let wrong = all_errors_of(text);
    let told = [
        ("5:", "nobody"),
        (
            "6:",
            "expected either `url`, or `to` and `path`, found something else",
        ),
        (
            "7:",
            "expected a path that begins with `/`, escaped where it needs to be, found `publish`",
        ),
        ("7:", "expected a time above 0 and at most 20s, found 21s"),
        ("8:", "expected a time above 0 and at most 20s, found 0ns"),
        (
            "9:",
            "not `Content-Type`, and none of the connection or the message, found `content-length`",
        ),
        ("10:", "found `host`"),
        ("11:", "found `content-type`"),
        (
            "12:",
            "expected the key `proxy.subscribe` of push beside `subscribe_proxy`, found none",
        ),
        (
            "14:",
            "expected the key `proxy.sub_refresh` of push beside `sub_refresh_proxy`, found none",
        ),
    ];
    assert_eq!(wrong.len(), told.len(), "{wrong:?}");
    for (line, (place, said)) in wrong.iter().zip(told) {
        let line = line.strip_prefix("c.yaml:").unwrap_or(line);
        let line = line.to_ascii_lowercase();
        assert!(line.starts_with(place), "{place} {line}");
        assert!(line.contains(&said.to_ascii_lowercase()), "{said} {line}");
    }
    for (proxy, said) in [
        ("{}", "at least one of `connect`"),
        ("{connect: 'http://10.0.0.2:81'}", "expected a URL with a path"),
        ("{send: 'http://10.0.0.2:81/'}", "send"),
    ] {
        let wrong = all_errors_of(&format!(
            "{{listen: ':80', push: {{proxy: {proxy}}}, to: http://127.0.0.1:1}}"
        ));
        assert!(wrong.len() == 1 && wrong[0].contains(said), "{proxy}: {wrong:?}");
    }
}
