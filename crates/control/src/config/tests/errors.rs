//! All errors are reported at once, and no part of an invalid file is served.

use std::sync::Arc;

use ringmain_gateway::model::{Action, LogDestination, Origin, Policy};

use super::{all_errors_of, loaded, valid_config};

#[track_caller]
pub(super) fn check_errors(text: &str, expected: &[&str]) {
    let wrong = all_errors_of(text);
    let wrong: Vec<_> = wrong
        .iter()
        .map(|line| line.strip_prefix("c.yaml:").unwrap_or(line))
        .collect();
    assert_eq!(wrong, expected);
}

#[test]
fn all_errors_at_once_with_their_places() {
    let text = "\
listen: 0.0.0.0:80800
lisners: {}
upstreams:
  cart:
    endpoints: [127.0.0.1:3000, here]
    conect_timeout: 5
    pool: {connections: -1}
    balance: least_requests
routes:
  shop:
    hosts: [shop.example, 'a b']
    to: crat
  other:
    rules:
      - match: {path: cart, method: get, headers: {'a b': 1}}
        to: cart
      - match: /x
        to: crat
        timeouts: {request: 5, idle: never}
        body: {request: 1M}
      - to: http://127.0.0.1:1/path
        redirect: {status: 301}
";
    check_errors(
        text,
        &[
            "1:9: expected an IP address and port, such as 127.0.0.1:8080, [::1]:8080 or :8080, or a Unix socket, such as \
             unix:/run/app.sock or unix:@name, found `0.0.0.0:80800`; the port must be a number from 0 to 65535",
            "2:1: expected one of the keys `listen`, `to`, `listeners`, `routes`, `streams`, `upstreams`, `jwt_providers`, `push`, `certificates`, \
             `authorities`, `zone`, `kubernetes`, `admin`, `access_log`, `log`, `limits`, found `lisners`; did you mean `listeners`?",
            "5:33: expected an address and port, a host and port, or unix:/path, found `here`",
            "6:5: expected one of the keys `endpoints`, `protocol`, `tls`, `proxy_protocol`, `balance`, `hash_balance_factor`, `zones`, `pool`, \
             `connect_timeout`, `slow_start`, `health`, `retry_budget`, found `conect_timeout`; did you mean `connect_timeout`?",
            "7:25: expected a whole number from 0 to 4294967295, found `-1`",
            "8:14: expected one of `round_robin`, `least_request`, `random`, `peak_ewma`, `ring_hash`, `maglev`, `push`, found \
             `least_requests`; did you mean `least_request`?",
            "11:27: expected a hostname such as shop.example, or *.shop.example, found `a b`",
            "15:23: expected a path that begins with `/`, without `?` and `#`, found `cart`",
            "15:37: expected a method in capital letters, such as GET, found `get`",
            "15:52: expected a header's name: letters, digits and hyphens, found `a b`",
            "18:13: expected the name of an upstream (or a URL such as http://127.0.0.1:3000) of this file, found `crat`; did \
             you mean `cart`?",
            "19:29: expected `off`, or a time with its unit (us, ms, s, m, h, d), such as 500ms, 10s or 2m, found `5`",
            "19:38: expected `off`, or a time with its unit (us, ms, s, m, h, d), such as 500ms, 10s or 2m, found `never`",
            "20:25: expected `off`, or a size with its unit (B, KiB, MiB, GiB), such as 64KiB or 1MiB, found `1M`",
            "21:9: expected one of the keys `to`, `redirect`, `respond`, `files` and `push`, found several",
            "21:13: expected a URL without a path (`rewrite` changes paths), found `http://127.0.0.1:1/path`",
        ],
    );
}

#[test]
fn other_origins_and_tries() {
    let config = valid_config(
        "listen: :80\nupstreams:\n  shop: {endpoints: 127.0.0.1:1, retry_budget: {percent: 5, least: 0}}\n\
         routes:\n  all:\n    rules:\n      - to: shop\n        timeouts: {minimum_rate: 1KiB}\n        retry: {on: [503, reset]}\n        \
         cors: {origins: ['https://shop.example', 'http://*.dev.example:3000'], methods: ['*'], headers: X-One, \
         credentials: true, max_age: 10m}\n",
    );
    let rule = &config.routes[0].rules[0];
    let [Policy::Cors(cors)] = &rule.policies[..] else {
        panic!("{:?}", rule.policies);
    };
    let origins = ["https://shop.example", "http://*.dev.example:3000"];
    assert_eq!(cors.origins, origins.map(|origin| Origin::parse(origin).unwrap()));
    assert!(cors.any_method && cors.methods.is_empty() && !cors.any_request_header && cors.credentials);
    let Action::Forward(forward) = &rule.action else {
        panic!("{:?}", rule.action);
    };
    assert_eq!(forward.timeouts.minimum_rate, 1024);
    let budget = config.upstreams[0].retry_budget;
    assert_eq!((budget.percent, budget.least), (5, 0));
    let wrong = all_errors_of(
        "listen: :80\nupstreams:\n  shop: {endpoints: 127.0.0.1:1, retry_budget: {percent: 101}}\n\
         routes:\n  all:\n    rules:\n      - {to: shop, cors: {methods: PUT}}\n      \
         - {to: shop, cors: {origins: shop.example}}\n      - {to: shop, cors: {origins: 'https://a.example/b'}}\n      \
         - {to: shop, cors: {origins: 'https://a.example:0'}}\n",
    );
    let told = [
        "the key `origins` with at least one, found none",
        "`*`, or an origin without a path such as https://shop.example or http://localhost:*, found `shop.example`",
        "such as https://shop.example or http://localhost:*, found `https://a.example/b`",
        "such as https://shop.example or http://localhost:*, found `https://a.example:0`",
        "at most 100 percent",
    ];
    for told in told {
        assert!(wrong.iter().any(|text| text.contains(told)), "{told}: {wrong:#?}");
    }
}

#[test]
fn all_headers_are_not_exposed_with_credentials() {
    let warned = |cors: &str| {
        let loaded = loaded(&format!(
            "listen: :80\nroutes:\n  all:\n    rules:\n      - to: http://127.0.0.1:1\n        cors: {{origins: '*', {cors}}}\n"
        ));
        let warnings = loaded.warnings.iter().map(ToString::to_string);
        warnings.collect::<Vec<_>>()
    };
    assert_eq!(warned("expose: '*'"), [""; 0]);
    assert_eq!(warned("expose: X-Total, credentials: true"), [""; 0]);
    let both = warned("expose: '*', credentials: true");
    assert!(
        both.len() == 1 && both[0].starts_with("c.yaml:6:15: warning: `expose: '*'` has no effect"),
        "{both:?}"
    );
}

/// An invalid file is not served. `ringmain explain` and configurations of many owners never show more access than intended.
#[test]
fn an_invalid_rule_keeps_its_place() {
    let text = "\
listen: :80
upstreams:
  good: http://127.0.0.1:1
routes:
  a:
    rules:
      - {match: /admin, to: good, polices: []}
      - {match: /good, to: good}
  b: {hosts: 'a b', to: good}
  c: {to: good, strange: 1}
  d:
    rules:
      - {match: admin, to: good}
      - {match: /good, to: good}
to: good
";
    let mut loaded = loaded(text);
    let config = Arc::new(loaded.config.clone().unwrap());
    let names: Vec<_> = config.routes.iter().map(|route| &*route.name).collect();
    assert_eq!(names, ["a", "c", "d", "default"]);
    let broken = |route: usize| -> Vec<bool> {
        let rules = config.routes[route].rules.iter();
        rules
            .map(|rule| matches!(rule.action, Action::Broken { .. }))
            .collect()
    };
    assert_eq!(broken(0), [true, false]);
    assert_eq!(broken(1), [true]);
    // The matches of the first rule are unknown: no other rule of the route may get its requests.
    assert_eq!(broken(2), [true, true]);
    assert!(config.routes[2].rules[0].matches.is_empty());
    assert_eq!(broken(3), [false]);
    assert!(loaded.take_valid(None).is_none(), "nothing of it is to be served");
}

#[test]
fn derived_errors_are_not_reported() {
    check_errors(
        "listen: :80\nupstreams: {a: {endpoints: here}}\nto: a\n",
        &["2:28: expected an address and port, a host and port, or unix:/path, found `here`"],
    );
}

#[test]
fn compile_problems_have_positions() {
    check_errors(
        "listen: :80\nlisteners:\n  b: {address: ':80'}\nto: http://a:1\n",
        &[
            "3:3: listener `b`: hostnames: expected hosts that distinguish it from other listeners, found none, as at listener `default` of \
           the same address",
        ],
    );
    check_errors(
        "listen: :80\nroutes:\n  r:\n    rules:\n      - {match: /, to: http://a:1}\n      - {match: {path: {exact: /x}}, to: \
         http://a:1, rewrite: {prefix: /}}\n",
        &[
            "6:9: route `r`, rule 2: rewrite.path: expected only prefix matches, since the prefix is replaced, found a \
             match of another kind",
        ],
    );
}

#[test]
fn missing_and_invalid_secrets() {
    let rule = |value: &str| {
        format!(
            "listen: :80\nroutes:\n  r: {{rules: [{{to: http://a:1, request_headers: {{set: {{a: '{value}'}}}}}}]}}\n"
        )
    };
    check_errors(
        &rule("${env:NONE}"),
        &["3:59: expected the variable `NONE` in the environment, found none of that name in UTF-8"],
    );
    check_errors(
        &rule("${file:none}"),
        &["3:59: expected a file that can be read, found `none`: entity not found"],
    );
    check_errors(
        &rule("${file:binary}"),
        &["3:59: expected a file of text (UTF-8), found `binary`"],
    );
    check_errors(
        &rule("${envNAME}"),
        &["3:59: expected `${env:NAME}` or `${file:PATH}` (`$${` is a literal `${`), found `${envNAME}`"],
    );
    check_errors(
        &rule("${env:NAME"),
        &["3:59: expected `}` after `${` (`$${` is a literal `${`), found `${env:NAME`"],
    );
    // The secret itself is not quoted.
    check_errors(
        &rule("${env:SECRET}"),
        &[
            "3:59: expected a header's value: no control characters, no space at either end, found the value of `${env:SECRET}`",
        ],
    );
}

#[test]
fn invalid_yaml_is_reported() {
    let check = |text: &str, expected: &str| {
        let loaded = loaded(text);
        assert!(loaded.config.is_none());
        assert_eq!(loaded.errors[0].to_string(), format!("c.yaml:{expected}"));
    };
    check("a: [\n", "1:4: expected valid YAML, found unclosed bracket '['");
    check(
        "to: a\nto: b\n",
        "2:1: expected each key once, found `to` a second time",
    );
    check(
        "to: a\n---\nto: b\n",
        "2:1: expected one YAML document, found a second one",
    );
    check(
        "to: *a\n",
        "1:5: expected an alias of an anchor further up, found another one",
    );
    check("- a\n", "1:1: expected a map, found a list");
}

#[test]
fn many_errors_are_counted() {
    let text: String = (0..500).map(|number| format!("key{number}: 1\n")).collect();
    let loaded = loaded(&text);
    assert_eq!((loaded.errors.len(), loaded.omitted), (100, 401));
}

#[test]
fn short_forms_and_switches() {
    check_errors(
        "listen: :80\nto: []\n",
        &["2:5: expected at least one element, or no such key, for its default, found an empty list"],
    );
    check_errors(
        "listen: :80\nto: 127.0.0.1:3000\n",
        &[
            "2:5: expected the name of an upstream or a URL (write http://127.0.0.1:3000), found `127.0.0.1:3000`",
        ],
    );
    check_errors(
        "to: http://a:1\n",
        &["1:1: expected a listener: the key `listen`, `listeners` or `kubernetes`, found none"],
    );
    check_errors("listen: :80\nto:\n", &["2:3: expected a string, found nothing"]);
    check_errors(
        "listen: :80\nroutes: {r: {rules: [{respond: 404, timeouts: {idle: off}}]}}\n",
        &["2:47: expected the key `timeouts` only beside `to`, found it beside another action"],
    );
    check_errors(
        "listen: :80\nto: https://127.0.0.1\n",
        &[
            "2:5: expected a host name in an https URL, for the verification of its certificate (for an IP address, write an \
           upstream with `tls: {server_name: …}`), found `https://127.0.0.1`",
        ],
    );
}

/// Returns a text with one typing error.
fn mutated(text: &str, random: &mut fastrand::Rng) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = random.usize(..lines.len());
    match random.u32(..5) {
        0 => drop(lines.remove(at)),
        1 => lines.swap(at, random.usize(..text.lines().count())),
        2 => {
            let odd = [
                ": ", "{", "}", "[", "]", "'", "*a", "&a ", "${", "- ", "? ", "| ", "~", "!!int ",
            ];
            let middle = lines[at].len() / 2;
            if lines[at].is_char_boundary(middle) {
                lines[at].insert_str(middle, odd[random.usize(..odd.len())]);
            }
        }
        3 => lines[at] = lines[at].chars().rev().collect(),
        _ => lines[at].insert_str(0, "  "),
    }
    lines.join("\n")
}

#[test]
fn no_slip_of_the_hand_panics_and_every_error_has_a_place() {
    for seed in 0..300 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut text = include_str!("../../../../../examples/shop.yaml").to_owned();
        for _ in 0..random.u32(1..4) {
            text = mutated(&text, &mut random);
        }
        println!("seed {seed}");
        let loaded = loaded(&text);
        let lines = text.lines().count().max(1) as u64 + 1;
        for error in &loaded.errors {
            assert!(
                (1..=lines).contains(&error.position.line) && error.position.column >= 1,
                "{error}"
            );
            assert!(!error.to_string().contains('\n'), "{error}");
        }
        assert!(loaded.config.is_some() || !loaded.errors.is_empty());
        all_errors_of(&text);
    }
}

/// Returns the names of the keys in the schema.
fn keys() -> std::collections::BTreeSet<String> {
    fn collect(value: &serde_json::Value, keys: &mut std::collections::BTreeSet<String>) {
        match value {
            serde_json::Value::Object(map) => {
                if let Some(serde_json::Value::Object(properties)) = map.get("properties") {
                    keys.extend(properties.keys().cloned());
                }
                map.values().for_each(|value| collect(value, keys));
            }
            serde_json::Value::Array(list) => list.iter().for_each(|value| collect(value, keys)),
            _ => {}
        }
    }
    let mut keys = std::collections::BTreeSet::new();
    collect(&super::super::schema(), &mut keys);
    keys
}

/// Misspells every key of an example and changes the type of every value, one at a time: no part of the file is taken.
#[test]
fn no_misspelt_key_and_no_value_of_another_type_is_taken() {
    let keys = keys();
    for text in [
        include_str!("../../../../../examples/shop.yaml"),
        include_str!("../../../../../examples/policies.yaml"),
        include_str!("../../../../../examples/push.yaml"),
        include_str!("../../../../../examples/proxy.yaml"),
    ] {
        let lines: Vec<&str> = text.lines().collect();
        let mut changed = 0;
        for (number, line) in lines.iter().enumerate() {
            let start = line.len() - line.trim_start_matches([' ', '-']).len();
            let Some((key, rest)) = line[start..].split_once(':') else {
                continue;
            };
            if !keys.contains(key) || line.trim_start().starts_with('#') {
                continue;
            }
            // The names of parts may be those of keys.
            let is_name = |path: &str| {
                matches!(
                    path,
                    "listeners" | "routes" | "streams" | "upstreams" | "certificates" | "authorities"
                )
            };
            let parent = lines[..number].iter().rev().find(|before| {
                let indent = before.len() - before.trim_start_matches([' ', '-']).len();
                !before.trim().is_empty() && indent < start && !before.trim_start().starts_with('#')
            });
            if parent.is_some_and(|parent| is_name(parent.trim().trim_end_matches(':'))) {
                continue;
            }
            let indent = &line[..start];
            for slip in [format!("{indent}{key}x:{rest}"), format!("{indent}{key}: [[[]]]")] {
                let mut lines = lines.clone();
                lines[number] = &slip;
                let mut loaded = loaded(&lines.join("\n"));
                assert!(loaded.take_valid(None).is_none(), "line {}: {slip}", number + 1);
                changed += 1;
            }
        }
        assert!(changed > 6, "few keys of this example were changed: {changed}");
    }
}

#[test]
fn paths_with_patterns_of_other_programs_are_refused() {
    for (path, meant) in [
        ("/api/*", "write `/api`"),
        ("/api/**", "write `/api`"),
        ("/*", "write `/`"),
        ("/users/{id}", "write `{path: {regex: '/users/[^/]+'}}`"),
        (
            "/users/:id/posts",
            "write `{path: {regex: '/users/[^/]+/posts'}}`",
        ),
        ("/a.b/{x}/*", "write `{path: {regex: '/a\\.b/[^/]+/[^/]*'}}`"),
        ("/*.php", "write `{path: {regex: '/[^/]*\\.php'}}`"),
        ("/users/<id>", "write `{path: {regex: '/users/[^/]+'}}`"),
        ("/admin$", "write `{path: {regex: '/admin'}}`"),
        ("/v[0-9]/x", "write `{path: {regex: '/v[0-9]/x'}}`"),
    ] {
        let of = |text: String| {
            let wrong = all_errors_of(&format!(
                "listen: :80\nroutes: {{r: {{rules: [{{match: {text}, respond: 200}}]}}}}\n"
            ));
            assert_eq!(wrong.len(), 1, "{path}: {wrong:?}");
            assert!(wrong[0].contains(meant), "{path}: {wrong:?}");
        };
        of(format!("'{path}'"));
        of(format!("{{path: {{exact: '{path}'}}}}"));
        of(format!("{{path: '{path}', method: GET}}"));
    }
    for path in [
        "/v1/projects:batch",
        "/Products(1)",
        "/odata/$metadata",
        "/a.b",
        "/c++",
    ] {
        valid_config(&format!(
            "listen: :80\nroutes: {{r: {{rules: [{{match: {path}, respond: 200}}]}}}}\n"
        ));
    }
}

#[test]
fn invalid_secrets_are_not_quoted() {
    for text in [
        "push: {api_key: 'hunter two'}",
        "push: {api_key: [hunter, two]}",
        "push: {tokens: {secret: hunter}}",
        "push: {proxy: {own_headers: {a: \"hunter\\n\"}}}",
        "push: {nats: {n: {servers: 'nats://a', subjects: a, password: [hunter]}}}",
        "routes: {r: {to: 'http://a:1', policies: {basic: {users: {ada: hunter}}}}}",
        "routes: {r: {to: 'http://a:1', policies: {api_keys: {keys: {ada: hunter}}}}}",
        "routes: {r: {rules: [{to: 'http://a:1', request_headers: {set: {a: \"hunter\\n\"}}}]}}",
        "admin: {address: '127.0.0.1:1', token: 'hunter two'}",
    ] {
        let wrong = all_errors_of(&format!("listen: :80\n{text}\n"));
        assert!(!wrong.is_empty(), "{text}");
        assert!(wrong.iter().all(|line| !line.contains("hunter")), "{wrong:?}");
    }
    for text in [
        "push: {api_key: $API_KEY}",
        "push: {nats: {n: {servers: 'nats://a', subjects: a, token: $TOKEN}}}",
        "routes: {r: {rules: [{to: 'http://a:1', request_headers: {set: {authorization: Bearer $TOKEN}}}]}}",
    ] {
        let wrong = all_errors_of(&format!("listen: :80\n{text}\n"));
        assert!(wrong.iter().any(|line| line.contains("`${env:")), "{wrong:?}");
    }
}

#[test]
fn unreachable_parts_are_warnings() {
    let warned = |text: &str| -> Vec<String> {
        let loaded = loaded(text);
        assert_eq!(loaded.errors, [], "{text}");
        loaded.warnings.iter().map(ToString::to_string).collect()
    };
    let listeners = "listeners:\n  plain: {address: ':80', redirect_to_https: true}\n  secure: {address: ':443', hosts: [shop.example, '*.a.example'], tls: {certificates: c}}\ncertificates: {c: {chain: a.crt, key: a.key}}\n";
    let one = |rest: &str, words: &[&str]| {
        let all = warned(&format!("{listeners}{rest}"));
        assert_eq!(all.len(), 1, "{rest}: {all:?}");
        assert!(words.iter().all(|word| all[0].contains(word)), "{all:?}");
    };
    let none = |text: &str| assert_eq!(warned(text), Vec::<String>::new());
    one(
        "routes: {acme: {listeners: plain, rules: [{match: /.well-known/acme-challenge, respond: 200}]}}\n",
        &["c.yaml:5:10: warning: route `acme`", "listener `plain`"],
    );
    one(
        "routes: {acme: {rules: [{match: /.well-known/acme-challenge/, respond: 200}]}}\n",
        &["route `acme`, rule 1", "over HTTP"],
    );
    one(
        "routes: {r: {hosts: [shop.example, other.example, x.a.example], listeners: secure, to: 'http://a:1'}}\n",
        &["no request for `other.example`", "`secure`"],
    );
    none(&format!(
        "{listeners}routes: {{r: {{hosts: '*.x.a.example', listeners: secure, to: 'http://a:1'}}}}\n"
    ));
    assert!(warned("listen: :80\n")[0].contains("no routes"));
    none("listen: :80\nto: http://a:1\n");
    let twice = warned(
        "listen: :80\nroutes:\n  r:\n    rules:\n      - {match: /a, respond: 200}\n      - {match: /a, respond: 201}\n      - {match: {path: /a, method: GET}, respond: 202}\n",
    );
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert!(
        twice[0].starts_with("c.yaml:6:9: warning: route `r`, rule 2"),
        "{twice:?}"
    );
}

#[test]
fn where_an_access_log_goes() {
    let to = |text: &str| {
        let config = valid_config(&format!(
            "listen: :80\nto: http://127.0.0.1:1\naccess_log: {text}\n"
        ));
        config.access_log.map(|log| log.to)
    };
    let file = |path: &str| Some(LogDestination::File(path.into()));
    assert_eq!(to("stdout"), Some(LogDestination::Stdout));
    assert_eq!(to("{to: stderr}"), Some(LogDestination::Stderr));
    assert_eq!(to("access.log"), file("/etc/ringmain/access.log"));
    assert_eq!(to("{to: access}"), file("/etc/ringmain/access"));
    assert_eq!(to("logs/access.log"), file("/etc/ringmain/logs/access.log"));
    assert_eq!(to("./stdout"), file("/etc/ringmain/./stdout"));
    assert_eq!(to("/var/log/a.log"), file("/var/log/a.log"));
    const EXPECTED: &str = "expected `stdout`, `stderr`, or the path of a file";
    for (text, told) in [
        ("''", ", found ``"),
        ("logs/", ", found `logs/`"),
        ("..", ", found `..`"),
        ("'off'", " (without the key there is no log), found `off`"),
        (
            "stdot",
            " (`stdout`, or ./stdot if a file is meant), found `stdot`",
        ),
        (
            "STDERR",
            " (`stderr`, or ./STDERR if a file is meant), found `STDERR`",
        ),
        (
            "'syslog:server=unix:/dev/log'",
            "; whoever sends lines to syslog reads them from there, found `syslog:server=unix:/dev/log`",
        ),
    ] {
        check_errors(
            &format!("listen: :80\nto: http://127.0.0.1:1\naccess_log: {{to: {text}}}\n"),
            &[&format!("3:18: {EXPECTED}{told}")],
        );
    }
}

#[test]
fn words_of_other_programs_are_explained() {
    let check = |text: &str, expected: &str| {
        let errors = all_errors_of(text);
        assert!(
            errors.len() == 1 && errors[0].ends_with(expected),
            "expected {expected}, found {errors:?}"
        );
    };
    let rule = |keys: &str| format!("listen: ':80'\nroutes: {{r: {{rules: [{{respond: 200, {keys}}}]}}}}\n");
    check(
        "listen: localhost:80\nto: http://127.0.0.1:1\n",
        "found `localhost:80`; write 127.0.0.1:80 or [::1]:80",
    );
    check(
        &rule("path: /x"),
        "found `path`; it is a condition, and belongs into `match`",
    );
    check(
        &rule("proxy_pass: x"),
        "found `proxy_pass`; the upstream of a rule is its key `to`",
    );
    check(
        &rule("policies: {rate_limit: {requests: 1, by: ip}}"),
        "found `ip`; the client's address is `source`",
    );
    check(
        &rule("policies: {rate_limit: {requests: 1, redis: 'redis://10.0.0.5:6379'}}"),
        "found `redis://10.0.0.5:6379`; a Redis is written http://10.0.0.5:6379",
    );
    check(
        "listen: ':80'\nto: http://127.0.0.1:1\nlimits: {body: 10MB}\n",
        "found `10MB`; write 10MiB",
    );
}
