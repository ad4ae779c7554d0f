//! Empty lists, zeros and duplicate addresses: settings that would pass `check` and serve no client, or every client.

use super::{all_errors_of, valid_config};

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let wrong = all_errors_of(text);
    assert!(
        wrong.iter().any(|line| line.contains(expected)),
        "{text}: {wrong:#?}"
    );
}

/// `audience: []`, as written by a template without values, must not mean "any audience".
#[test]
fn empty_lists_are_errors() {
    let rule = |keys: &str| format!("listen: :80\nroutes: {{r: {{rules: [{{respond: 200, {keys}}}]}}}}\n");
    let forward =
        |keys: &str| format!("listen: :80\nroutes: {{r: {{rules: [{{to: 'http://a:1', {keys}}}]}}}}\n");
    let provider = |keys: &str| {
        format!("listen: :80\nto: http://a:1\njwt_providers: {{p: {{issuer: i, keys: jwks.json, {keys}}}}}\n")
    };
    let route = |keys: &str| format!("listen: :80\nroutes: {{r: {{{keys}, to: 'http://a:1'}}}}\n");
    for text in [
        rule("match: []"),
        rule("policies: {addresses: {allow: [], deny: 10.0.0.0/8}}"),
        rule("policies: {addresses: {allow: 10.0.0.0/8, deny: []}}"),
        rule("policies: {rate_limit: {requests: 1, by: []}}"),
        rule("policies: {api_keys: {header: [], file: keys.txt}}"),
        rule("cors: {origins: []}"),
        rule("error_pages: {status: [], body: x}"),
        forward("retry: {on: []}"),
        forward("mirror: []"),
        forward("request_headers: {remove: []}"),
        provider("audience: []"),
        provider("algorithms: []"),
        provider("header: []"),
        provider(
            "algorithms: EdDSA}}\nroutes: {r: {policies: {jwt: {provider: p, scopes: []}}, to: 'http://a:1'",
        ),
        provider(
            "algorithms: EdDSA}}\nroutes: {r: {policies: {jwt: {provider: p, claims: {role: []}}}, to: 'http://a:1'",
        ),
        route("hosts: []"),
        route("listeners: []"),
        "listen: []\nto: http://a:1\n".to_owned(),
        "listen: :80\nto: []\n".to_owned(),
        "listeners: {a: {address: ':80', hosts: []}}\nto: http://a:1\n".to_owned(),
        "listeners: {a: {address: ':80', client_address: {trusted: []}}}\nto: http://a:1\n".to_owned(),
        "listen: :80\nto: a\nupstreams: {a: {endpoints: []}}\n".to_owned(),
        "listen: :80\nto: a\nupstreams: {a: {endpoints: '127.0.0.1:1', tls: {subject_names: []}}}\n"
            .to_owned(),
        "listen: :80\nto: http://a:1\npush: {origins: []}\n".to_owned(),
    ] {
        check_error(
            &text,
            "expected at least one element, or no such key, for its default, found an empty list",
        );
    }
    check_error(
        "listen: :80\nroutes: {r: {hosts: a.example, rules: []}}\n",
        "expected at least one rule, found an empty list",
    );
    valid_config(&forward("upgrades: []"));
}

#[test]
fn limits_of_zero_are_rejected() {
    let listener = |keys: &str| format!("listeners: {{a: {{address: ':80', {keys}}}}}\nto: http://a:1\n");
    let upstream =
        |keys: &str| format!("listen: :80\nto: a\nupstreams: {{a: {{endpoints: '127.0.0.1:1', {keys}}}}}\n");
    let process = |keys: &str| format!("listen: :80\nto: http://a:1\n{keys}\n");
    for (text, expected) in [
        (listener("limits: {headers: 0}"), "at least 1 header"),
        (listener("limits: {head_timeout: 0s}"), "a time above 0"),
        (
            listener("limits: {requests_per_connection: 0}"),
            "at least 1 request",
        ),
        (
            listener("proxy_protocol: {from: 10.0.0.0/8, timeout: 0s}"),
            "a time above 0",
        ),
        (listener("redirect_to_https: {port: 0}"), "a port from 1 to 65535"),
        (
            upstream("pool: {requests_per_connection: 0}"),
            "at least 1 request",
        ),
        (upstream("health: {active: {port: 0}}"), "a port from 1 to 65535"),
        (upstream("health: {outliers: {interval: 0s}}"), "times above 0"),
        (upstream("health: {outliers: {ejected: 0s}}"), "times above 0"),
        (upstream("slow_start: {window: 0s}"), "a time above 0"),
        (
            upstream("balance: {peak_ewma: {half_life: 0s}}"),
            "a time above 0",
        ),
        (
            process("limits: {connections: 0}"),
            "a whole number from 1 to 4294967295, found `0`",
        ),
        (
            process("limits: {upstream_connections: 0}"),
            "a whole number from 1 to 4294967295, found `0`",
        ),
    ] {
        check_error(&text, expected);
    }
}

#[test]
fn addresses_that_are_taken_twice_are_refused() {
    for (text, expected) in [
        (
            "listen: [127.0.0.1:80, 127.0.0.1:80]\nto: http://a:1\n",
            "expected distinct addresses, found `127.0.0.1:80` twice",
        ),
        (
            "listen: 127.0.0.1:80\nto: http://a:1\nadmin: {address: 127.0.0.1:80}\n",
            "expected addresses that nothing else listens at, found `127.0.0.1:80`, as listener `default` has",
        ),
        (
            "listen: 127.0.0.1:80\nto: http://a:1\nadmin: {address: 127.0.0.1:81, metrics: 127.0.0.1:80}\n",
            "found `127.0.0.1:80`, as listener `default` has",
        ),
        (
            "listen: 127.0.0.1:80\nto: http://a:1\nadmin: {address: 127.0.0.1:81, metrics: 127.0.0.1:81}\n",
            "found `127.0.0.1:81` twice",
        ),
    ] {
        check_error(text, expected);
    }
    valid_config(
        "listen: [127.0.0.1:0, 127.0.0.1:0]\nto: http://a:1\nadmin: {address: 127.0.0.1:0, metrics: 127.0.0.1:0}\n",
    );
}
