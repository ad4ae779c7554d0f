//! The administration of `ringmain run FILE`, and its access log.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;

use crate::common::{self, engines, try_connect};
use crate::proxy::{Answer, Origin, Proxy, ask, get, until};
use ringmain_testkit::wait;
use rustix::process::Signal;
use serde_json::Value;

fn file(origin: &Origin, more: &str) -> String {
    format!(
        "
listen: 127.0.0.1:0
admin: {{address: 127.0.0.1:0}}
upstreams: {{backend: http://{}}}
routes:
  shop:
    rules:
      - {{match: /cart, name: cart, to: backend, request_headers: {{set: {{x-token: abc}}}}}}
{more}
",
        origin.addr()
    )
}

/// Returns the address of the admin server.
fn admin(proxy: &Proxy) -> String {
    let line = proxy
        .server
        .said
        .iter()
        .find(|line| line.contains("administration at "));
    let line = line.unwrap_or_else(|| panic!("not said: {:#?}", proxy.server.said));
    line.split_once("administration at ")
        .expect("an address")
        .1
        .to_owned()
}

fn json(addr: &str, path: &str) -> Value {
    let answer = get(addr, "localhost", path);
    assert_eq!(answer.status, 200, "{answer:?}");
    serde_json::from_str(&answer.body).expect("JSON")
}

/// The value of a sample.
fn sample(text: &str, name: &str) -> Option<f64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    line.parse().ok()
}

/// Checks the views of the configuration, its routes and its endpoints.
fn shows_configuration_and_endpoints(admin: &str, origin: &Origin) {
    let config = json(admin, "/config");
    assert_eq!(config["is_current"], true);
    let rules = &config["config"]["routes"]["shop"]["rules"];
    assert_eq!(rules[0]["request_headers"]["set"]["x-token"], "(not shown)");
    assert_eq!(config["wrong"], Value::Array(Vec::new()));
    assert_eq!(config["last_reload"]["successful"], true);
    let routes = json(admin, "/routes");
    assert_eq!(routes["routes"][0]["rules"][0]["name"], "cart");
    let upstreams = json(admin, "/upstreams");
    let endpoint = &upstreams["upstreams"][0]["endpoints"][0];
    assert_eq!(endpoint["address"], origin.addr());
    assert_eq!(endpoint["ejected"], Value::Null);
    assert_eq!(upstreams["upstreams"][0]["retries"]["refused"], 0);
}

/// Deprecated names are served for one release.
fn deprecated_metrics_have_equal_values(text: &str) {
    for (name, deprecated) in [
        (
            "ringmain_loop_iterations_total{worker=\"0\"}",
            "ringmain_turns_total{worker=\"0\"}",
        ),
        (
            "ringmain_responses_total{class=\"4xx\"}",
            "ringmain_answers_total{class=\"4xx\"}",
        ),
    ] {
        let value = sample(text, name);
        assert!(value.is_some(), "no {name} in {text}");
        assert_eq!(value, sample(text, deprecated), "{name}");
    }
}

#[test]
fn the_admin_server_shows_configuration_and_counters() {
    for engine in engines() {
        let origin = Origin::named("origin");
        let proxy = Proxy::start(&file(&origin, ""), &["--engine", engine]);
        let admin = admin(&proxy);
        assert_eq!(get(proxy.addr(), "a", "/cart").status, 200);
        assert_eq!(get(proxy.addr(), "a", "/none").status, 404);

        shows_configuration_and_endpoints(&admin, &origin);
        let ready = until(&admin, "localhost", "/readyz", |answer| answer.status == 200);
        assert_eq!(ready.body, "ok\n");
        assert_eq!(get(&admin, "localhost", "/healthz").status, 200);
        // Counters of the engine are read four times a second.
        let has_turned = |answer: &Answer| {
            sample(&answer.body, "ringmain_loop_iterations_total{worker=\"0\"}") > Some(0.0)
        };
        let metrics = until(&admin, "localhost", "/metrics", has_turned);
        assert_eq!(
            metrics.field("content-type"),
            Some("text/plain; version=0.0.4; charset=utf-8")
        );
        let text = &metrics.body;
        let count = |name: &str| sample(text, name).unwrap_or_else(|| panic!("no {name} in {text}"));
        deprecated_metrics_have_equal_values(text);
        assert_eq!(
            count("ringmain_requests_total{route=\"shop\",upstream=\"backend\",code=\"200\"}"),
            1.0
        );
        assert_eq!(
            count("ringmain_requests_total{route=\"\",upstream=\"\",code=\"404\"}"),
            1.0
        );
        assert_eq!(
            count(
                "ringmain_request_duration_seconds_count{route=\"shop\",upstream=\"backend\",class=\"2xx\"}"
            ),
            1.0
        );
        let endpoint = format!("{{upstream=\"backend\",endpoint=\"{}\"}}", origin.addr());
        assert_eq!(count(&format!("ringmain_endpoint_healthy{endpoint}")), 1.0);
        assert_eq!(count(&format!("ringmain_endpoint_failures_total{endpoint}")), 0.0);
        let begun = count("process_start_time_seconds");
        assert!(begun > 1.6e9, "{begun}");
        assert!(count("process_open_fds") > 3.0 && count("process_max_fds") > 3.0);
        assert_eq!(
            count("ringmain_faults_total{fault=\"no_route\",side=\"client\"}"),
            1.0
        );
        assert_eq!(count("ringmain_config_last_reload_successful"), 1.0);
        assert!(count("ringmain_config_last_reload_timestamp_seconds") > 1.6e9);
        assert!(count("ringmain_config_last_reload_success_timestamp_seconds") > 1.6e9);
        assert_eq!(
            count("ringmain_upstream_retries_total{upstream=\"backend\",outcome=\"done\"}"),
            0.0
        );
        assert_eq!(
            count("ringmain_upstream_ejected_endpoints{upstream=\"backend\"}"),
            0.0
        );
        proxy.server.terminate();
    }
}

#[test]
fn the_admin_server_has_a_dashboard_with_metrics() {
    let origin = Origin::named("origin");
    let proxy = Proxy::start(&file(&origin, ""), &[]);
    let admin = admin(&proxy);
    let text = get(&admin, "localhost", "/");
    assert!(text.body.contains("/metrics  "), "{text:?}");
    assert_eq!(text.field("content-security-policy"), None);
    let read = |path: &str, end: &str| {
        let mut browser = common::connect(&admin);
        let ask = format!(
            "GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: text/html, */*\r\nConnection: close\r\n\r\n"
        );
        browser.write_all(ask.as_bytes()).expect("it is read");
        let mut all = Vec::new();
        let mut part = [0; 4096];
        while !String::from_utf8_lossy(&all).contains(end) {
            let count = browser.read(&mut part).expect("bytes");
            assert!(count > 0, "{end} in {}", String::from_utf8_lossy(&all));
            all.extend_from_slice(&part[..count]);
        }
        String::from_utf8(all).expect("text")
    };
    let page = read("/", "</html>");
    assert!(
        page.contains("Content-Security-Policy: default-src 'none'; style-src 'sha256-"),
        "{page}"
    );
    assert_eq!(get(proxy.addr(), "a", "/cart").status, 200);
    // The history, then the first snapshot, whose last field this is.
    let live = read("/live", "\"kubernetes\":null}\n\n");
    let mut events = live.split("data: ").skip(1).map(|data| {
        let (data, _) = data.split_once("\n\n").expect("its end");
        serde_json::from_str::<Value>(data).expect("JSON")
    });
    let history = events.next().expect("the history");
    assert!(
        live.contains("event: history\n") && history["seconds"].is_array(),
        "{live}"
    );
    let figures = events.next().expect("a snapshot");
    let listener = &figures["listeners"][0];
    assert_eq!(
        (&listener["is_open"], &listener["protocols"][0]),
        (&Value::Bool(true), &Value::from("http"))
    );
    assert_eq!(figures["upstreams"][0]["endpoints"][0]["address"], origin.addr());
    assert_eq!(figures["config"]["is_current"], true);
    proxy.server.terminate();
}

/// Returns the address of the listener that has metrics only.
fn metrics_listener(proxy: &Proxy) -> String {
    let mut lines = proxy.server.said.iter();
    let line = lines.find_map(|line| line.split_once("metrics at "));
    line.unwrap_or_else(|| panic!("not logged: {:#?}", proxy.server.said))
        .1
        .to_owned()
}

#[test]
fn the_listener_of_metrics_has_nothing_else() {
    let origin = Origin::named("origin");
    let text = file(&origin, "").replace(
        "admin: {address: 127.0.0.1:0}",
        "admin: {address: 127.0.0.1:0, metrics: 127.0.0.1:0}",
    );
    let proxy = Proxy::start(&text, &[]);
    let metrics = metrics_listener(&proxy);
    assert_ne!(metrics, admin(&proxy));
    until(&metrics, "gateway.internal", "/readyz", |answer| {
        answer.status == 200
    });
    assert_eq!(get(&metrics, "gateway.internal", "/healthz").body, "ok\n");
    let held = common::connect(proxy.addr());
    wait::until("a connection of a client at its listener", || {
        let text = get(&metrics, "gateway.internal", "/metrics").body;
        sample(&text, "ringmain_listener_connections{address=\"127.0.0.1:0\"}") == Some(1.0)
    });
    drop(held);
    wait::until("no connection", || {
        let text = get(&metrics, "gateway.internal", "/metrics").body;
        sample(&text, "ringmain_listener_connections{address=\"127.0.0.1:0\"}") == Some(0.0)
    });
    for (method, path) in [
        ("GET", "/"),
        ("GET", "/live"),
        ("GET", "/config"),
        ("GET", "/routes"),
        ("GET", "/upstreams"),
        ("GET", "/log"),
        ("POST", "/drain"),
    ] {
        let answer = ask(&metrics, method, "gateway.internal", path, "");
        assert_eq!(answer.status, 404, "{method} {path}");
    }
    proxy.server.terminate();
}

#[test]
fn forwarded_connections_are_counted_at_their_listener() {
    let origin = Origin::named("origin");
    let text = format!(
        "
listeners: {{raw: {{address: 127.0.0.1:0, protocol: tcp}}}}
admin: {{address: 127.0.0.1:0}}
upstreams: {{backend: {{endpoints: '{}'}}}}
streams: {{raw: {{listeners: raw, to: backend}}}}
",
        origin.addr()
    );
    let proxy = Proxy::start(&text, &[]);
    let admin = admin(&proxy);
    let open = || {
        let text = get(&admin, "localhost", "/metrics").body;
        sample(&text, "ringmain_listener_connections{address=\"127.0.0.1:0\"}")
    };
    let held = [common::connect(proxy.addr()), common::connect(proxy.addr())];
    wait::until("two connections", || open() == Some(2.0));
    drop(held);
    wait::until("no connection", || open() == Some(0.0));
    proxy.server.terminate();
}

const ALERTS: &str = include_str!("../../../../contrib/prometheus/ringmain.rules.yml");
const GRAFANA: &str = include_str!("../../../../contrib/grafana/ringmain.json");

/// Returns the names of metrics in a text, without the suffixes of histograms.
fn metric_names(text: &str) -> std::collections::BTreeSet<&str> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let names = words.filter(|word| word.starts_with("ringmain_") || word.starts_with("process_"));
    names
        .map(|name| name.strip_suffix("_bucket").unwrap_or(name))
        .collect()
}

/// The dashboard for Grafana and the alerts for Prometheus use metrics that exist.
#[test]
fn metrics_of_contrib_exist() {
    let origin = Origin::named("origin");
    let more = "
access_log: stderr
push:
  anonymous: true
  nats: {prices: {servers: 'nats://127.0.0.1:1', subjects: prices.*}}
SOURCES
";
    // Sources other than core NATS are a feature.
    let has_sources = cfg!(feature = "brokers");
    let sources = if has_sources {
        "  redis_pubsub: {orders: {servers: '127.0.0.1:1', channels: orders}}"
    } else {
        ""
    };
    let proxy = Proxy::start(&file(&origin, &more.replace("SOURCES", sources)), &[]);
    let admin = admin(&proxy);
    assert_eq!(get(proxy.addr(), "a", "/cart").status, 200);
    let has_turned = |answer: &Answer| answer.body.contains("ringmain_panics_total{");
    let text = until(&admin, "localhost", "/metrics", has_turned).body;
    let exists = |name: &str| {
        text.contains(&format!("\n# TYPE {name} ")) || text.starts_with(&format!("# TYPE {name} "))
    };
    for (file, names) in [
        ("alerts", metric_names(ALERTS)),
        ("Grafana", metric_names(GRAFANA)),
    ] {
        assert!(names.len() > 15, "{file}: {names:?}");
        for name in names {
            let is_source = name.starts_with("ringmain_push_source_");
            assert!(
                exists(name) || (is_source && !has_sources),
                "{file}: {name} in {text}"
            );
        }
    }
    let dashboard: Value = serde_json::from_str(GRAFANA).expect("JSON");
    assert_eq!(dashboard["title"], "Ringmain");
    proxy.server.terminate();
}

#[test]
fn ejected_endpoints_are_shown_with_the_reason() {
    let origin = Origin::named("origin");
    let nobody = "unix:/nowhere/nobody.sock";
    let text = format!(
        "
listen: 127.0.0.1:0
admin: {{address: 127.0.0.1:0}}
upstreams:
  backend:
    endpoints: ['{}', '{nobody}']
    balance: round_robin
    health: {{outliers: {{consecutive: 1, ejected: 1h}}}}
routes:
  shop: {{rules: [{{to: backend, retry: {{on: [connect]}}}}]}}
",
        origin.addr()
    );
    let proxy = Proxy::start(&text, &[]);
    let admin = admin(&proxy);
    let upstreams = wait::until_ok("an ejected endpoint", || {
        assert_eq!(get(proxy.addr(), "a", "/").status, 200);
        let upstreams = json(&admin, "/upstreams");
        if upstreams["upstreams"][0]["endpoints"][1]["ejected"].is_null() {
            Err(upstreams)
        } else {
            Ok(upstreams)
        }
    });
    let upstream = &upstreams["upstreams"][0];
    assert_eq!(upstream["endpoints"][0]["ejected"], Value::Null);
    let ejected = &upstream["endpoints"][1]["ejected"];
    assert_eq!(ejected["why"], "a failure", "{upstream}");
    let left = ejected["seconds_left"].as_f64().expect("a number");
    assert!(left > 0.0 && left <= 3600.0, "{ejected}");
    assert!(
        ejected["until"]
            .as_u64()
            .is_some_and(|until| until > 1_600_000_000),
        "{ejected}"
    );
    // Another endpoint answered instead, which is no retry.
    assert!(
        upstream["endpoints"][1]["failures"].as_u64() > Some(0),
        "{upstream}"
    );
    let text = get(&admin, "localhost", "/metrics").body;
    assert_eq!(
        sample(&text, "ringmain_upstream_ejected_endpoints{upstream=\"backend\"}"),
        Some(1.0)
    );
    proxy.server.terminate();
}

#[test]
fn reloads_are_counted_and_failed_ones_are_shown() {
    let origin = Origin::named("origin");
    let proxy = Proxy::start(&file(&origin, ""), &[]);
    let admin = admin(&proxy);
    let is_current = |wanted: bool| {
        wait::until(&format!("is_current: {wanted}"), || {
            json(&admin, "/config")["is_current"] == wanted
        });
    };
    let metric = |name: &str| sample(&get(&admin, "localhost", "/metrics").body, name);
    let served_since = metric("ringmain_config_last_reload_success_timestamp_seconds");
    fs::write(&proxy.file, "listen: [").expect("written");
    is_current(false);
    assert_eq!(get(proxy.addr(), "a", "/cart").status, 200);
    assert_eq!(metric("ringmain_config_last_reload_successful"), Some(0.0));
    assert_eq!(metric("ringmain_config_errors"), Some(1.0));
    assert_eq!(
        metric("ringmain_config_last_reload_success_timestamp_seconds"),
        served_since
    );
    assert!(metric("ringmain_config_last_reload_timestamp_seconds") > served_since);
    fs::write(
        &proxy.file,
        file(&origin, "  more: {rules: [{match: /more, respond: 204}]}"),
    )
    .expect("written");
    is_current(true);
    assert_eq!(get(proxy.addr(), "a", "/more").status, 204);
    let text = get(&admin, "localhost", "/metrics").body;
    assert_eq!(
        sample(&text, "ringmain_config_reloads_total{outcome=\"good\"}"),
        Some(1.0)
    );
    assert_eq!(
        sample(&text, "ringmain_config_reloads_total{outcome=\"bad\"}"),
        Some(1.0)
    );
    proxy.server.terminate();
}

#[test]
fn the_admin_server_drains_and_sets_the_log_level() {
    let origin = Origin::named("origin");
    let proxy = Proxy::start(&file(&origin, ""), &[]);
    let admin = admin(&proxy);
    assert_eq!(get(&admin, "localhost", "/log").body, "info\n");
    assert_eq!(ask(&admin, "PUT", "localhost", "/log", "debug\n").body, "debug\n");
    assert_eq!(ask(&admin, "PUT", "localhost", "/log", "loud").status, 400);
    assert_eq!(get(&admin, "localhost", "/log").body, "debug\n");
    assert_eq!(get(&admin, "localhost", "/drain").status, 405);

    let mut held = common::connect(proxy.addr());
    held.write_all(b"GET /cart/../hold HTTP/1.1\r\nHost: a\r\n\r\nGET")
        .expect("it is read");
    let mut first = [0; 12];
    held.read_exact(&mut first).expect("an answer");
    // The second request has begun: its connection keeps the gateway from ending at once.
    assert_eq!(ask(&admin, "POST", "localhost", "/drain", "").status, 202);
    until(&admin, "localhost", "/readyz", |answer| answer.status == 503);
    wait::until("no listener", || try_connect(proxy.addr()).is_err());
    drop(held);
    let (status, said) = proxy.server.finish();
    assert_eq!(status.code(), Some(0), "{said:#?}");
}

#[test]
fn the_access_log_has_route_endpoint_and_fault_and_is_reopened() {
    let origin = Origin::named("origin");
    let more = "
access_log: {to: ./access.log, format: '{method} {target} {status} {route}/{rule} {upstream} {endpoint} {fault}'}
";
    let proxy = Proxy::start(&file(&origin, more), &[]);
    let log = proxy.folder.join("access.log");
    let lines = |path: &std::path::Path, count: usize| {
        wait::until_ok(&format!("{count} lines"), || {
            let text = fs::read_to_string(path).unwrap_or_default();
            if text.lines().count() >= count {
                Ok(text)
            } else {
                Err(text)
            }
        })
    };
    assert_eq!(get(proxy.addr(), "a", "/cart?b=c").status, 200);
    assert_eq!(get(proxy.addr(), "a", "/none").status, 404);
    let expect = format!(
        "GET /cart?b=c 200 shop/cart backend {} -\nGET /none 404 -/- - - no_route\n",
        origin.addr()
    );
    let mut text = lines(&log, 2);
    if text.starts_with("GET /none") {
        // Two workers write when it suits them.
        let (first, second) = text.split_once('\n').expect("two lines");
        text = format!("{second}{first}\n");
    }
    assert_eq!(text, expect);

    let old = proxy.folder.join("access.log.1");
    fs::rename(&log, &old).expect("renamed");
    proxy.server.signal(Signal::USR1);
    wait::until("the log is reopened", || log.exists());
    assert_eq!(get(proxy.addr(), "a", "/none").status, 404);
    assert!(lines(&log, 1).ends_with(" no_route\n"));
    proxy.server.terminate();
}
