//! Rates of snapshots by tables, and the content security policy of the page.

use std::io::Write;
use std::process::{Command, Stdio};

use ringmain_gateway::fault::Fault;
use ringmain_gateway::health::{CheckError, CheckVerdict, ConnectFailure};
use ringmain_gateway::stats::upstreams::{EndpointStatus, UpstreamLimit};
use ringmain_gateway::stats::{DatagramReport, LatencyHistogram, RouteReport, StreamReport};
use ringmain_gateway::{MirrorOutcome, UpstreamStatus};
use serde_json::{Value, json};

use super::listeners::CertificateFacts;
use super::upstreams::EndpointRow;
use super::*;
use crate::limits::{DASHBOARD_HISTORY, DASHBOARD_ROUTES};

fn route(name: &str, classes: [u64; 5]) -> RouteReport {
    RouteReport {
        name: name.into(),
        classes,
        latencies: LatencyHistogram::default(),
    }
}

fn second(at: u64, cpu_ms: u64, routes: Vec<RouteReport>) -> Sample {
    let mut responses = [0; 6];
    for route in &routes {
        for (sum, count) in responses[1..].iter_mut().zip(route.classes) {
            *sum += count;
        }
    }
    Sample {
        responses,
        at: Duration::from_secs(1000 + at),
        wall: Duration::from_secs(1_700_000_000 + at),
        cpu: Duration::from_millis(cpu_ms),
        routes,
        ..Sample::default()
    }
}

fn parsed(document: &str) -> Value {
    assert!(!document.contains('\n'), "an event's data is one line");
    serde_json::from_str(document).unwrap()
}

#[test]
fn counts_become_rates() {
    let mut snapshots = SnapshotBuilder::default();
    let first = vec![route("quiet", [0, 5, 0, 0, 0]), route("busy", [0, 100, 0, 0, 0])];
    let document = parsed(&snapshots.document("1.2.3", second(0, 100, first)));
    assert_eq!(
        document["requests_per_s"],
        Value::Null,
        "there is nothing before it"
    );
    assert_eq!(
        (&document["version"], &document["cpu_percent"]),
        (&json!("1.2.3"), &Value::Null)
    );
    assert_eq!(document["routes"][0]["name"], "busy", "the most frequent first");
    let next = vec![
        route("quiet", [0, 5, 0, 0, 0]),
        route("busy", [0, 110, 0, 4, 6]),
        route("new", [0, 50, 0, 0, 0]),
    ];
    let mut next = second(2, 200, next);
    next.faults = Fault::ALL
        .iter()
        .map(|fault| (*fault, u64::from(*fault == Fault::NoRoute) * 7))
        .collect();
    let document = parsed(&snapshots.document("1.2.3", next));
    assert_eq!(document["requests_per_s"], 35.0);
    assert_eq!(
        (&document["errors_per_s"], &document["cpu_percent"]),
        (&json!(3.0), &json!(5.0))
    );
    let names: Vec<_> = document["routes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|route| &route["name"])
        .collect();
    assert_eq!(names, ["new", "busy", "quiet"]);
    assert_eq!(
        document["routes"][1]["classes_per_s"],
        json!([0.0, 5.0, 0.0, 2.0, 3.0])
    );
    assert_eq!(
        document["faults"],
        json!([{"fault": "no_route", "side": "client", "total": 7, "per_s": 3.5}])
    );
    // Without elapsed time no rate is infinite.
    let again = second(2, 200, vec![route("busy", [0, 500, 0, 0, 0])]);
    let document = parsed(&snapshots.document("1.2.3", again));
    assert_eq!(
        (&document["requests_per_s"], &document["cpu_percent"]),
        (&json!(0.0), &json!(0.0))
    );
}

fn source(name: &str, is_connected: bool, records: u64) -> BrokerStatus {
    BrokerStatus {
        name: name.to_owned(),
        kind: "kafka",
        is_connected,
        records,
        lag: Some(3),
        ..BrokerStatus::default()
    }
}

#[test]
fn sources_have_rates_and_those_that_do_not_deliver_are_first() {
    let mut snapshots = SnapshotBuilder::default();
    let mut at = |seconds, brokers| {
        let sample = Sample {
            brokers,
            ..second(seconds, 0, Vec::new())
        };
        parsed(&snapshots.document("1.2.3", sample))
    };
    at(0, vec![source("orders", true, 100), source("prices", true, 500)]);
    let document = at(2, vec![source("orders", true, 130), source("prices", false, 2)]);
    let sources = &document["brokers"];
    assert_eq!(
        (&sources[0]["name"], &sources[0]["per_s"]),
        (&json!("prices"), &json!(0.0))
    );
    assert_eq!(
        sources[1],
        json!({
            "name": "orders", "kind": "kafka", "is_connected": true, "is_degraded": false, "failures": 0, "last_failure": null, "records": 130, "dead": 0, "gaps": null, "lag": 3,
            "lag_us": null, "per_s": 15.0
        })
    );
    let many = (0..DASHBOARD_ROUTES + 2).map(|number| source(&number.to_string(), true, 0));
    let document = at(3, many.collect());
    assert_eq!(document["brokers"].as_array().unwrap().len(), DASHBOARD_ROUTES);
    assert_eq!(document["more_brokers"], 2);
}

fn upstream(name: &str, attempts: u64, responses: [u64; 5], faults: &[(Fault, u64)]) -> UpstreamStatus {
    UpstreamStatus {
        name: name.into(),
        requests: 0,
        connections: 0,
        waiting: 0,
        retrying: 0,
        hedged: 0,
        refused: UpstreamLimit::ALL.map(|limit| (limit, 0)),
        retries: 0,
        retries_refused: 0,
        mirrors: [0; MirrorOutcome::ALL.len()],
        distances: None,
        attempts,
        responses,
        faults: faults.to_vec(),
        endpoints: Vec::new(),
        no_endpoint: None,
    }
}

#[test]
fn streams_are_connections_and_udp_sessions() {
    let mut snapshots = SnapshotBuilder::default();
    let mut at = |seconds, scale: u64| {
        let datagrams = DatagramReport {
            name: "dns".into(),
            opened: 10 * scale,
            ended: [8 * scale, 0, 0, 0, 0, 0],
            received_datagrams: 20 * scale,
            received: 1000 * scale,
            sent_datagrams: 10 * scale,
            sent: 3000 * scale,
            dropped: [4 * scale, 0, 0, 0, 2 * scale],
        };
        let stream = StreamReport {
            name: "vpn".into(),
            opened: 5 * scale,
            ended: [0; 7],
            received: 100 * scale,
            sent: 100 * scale,
        };
        let sample = Sample {
            streams: vec![stream],
            datagrams: vec![datagrams],
            ..second(seconds, 0, Vec::new())
        };
        parsed(&snapshots.document("1.2.3", sample))["streams"].clone()
    };
    let first = at(0, 1);
    assert_eq!(
        first[1]["dropped_per_s"],
        json!(0.0),
        "its counts may be hours old"
    );
    let next = at(2, 3);
    assert_eq!(
        next,
        json!([
            {"name": "vpn", "protocol": "tcp", "open": 15, "total": 15, "per_s": 5.0, "bytes_per_s": 200.0,
             "datagrams_per_s": null, "dropped_per_s": null},
            {"name": "dns", "protocol": "udp", "open": 6, "total": 30, "per_s": 10.0, "bytes_per_s": 4000.0,
             "datagrams_per_s": 30.0, "dropped_per_s": 6.0},
        ])
    );
}

#[test]
fn upstreams_have_rates_of_responses_and_of_failures() {
    let mut snapshots = SnapshotBuilder::default();
    let mut at = |seconds, upstreams| {
        let sample = Sample {
            upstreams,
            ..second(seconds, 0, Vec::new())
        };
        parsed(&snapshots.document("1.2.3", sample))["upstreams"].clone()
    };
    let refused = [(Fault::ConnectRefused, 10)];
    let first = at(0, vec![upstream("shop", 1000, [0, 900, 0, 0, 90], &refused)]);
    let rates = |row: &Value| {
        json!([
            row["per_s"],
            row["classes_per_s"],
            row["connect_errors_per_s"],
            row["broken_per_s"]
        ])
    };
    let none = [0.0; 5];
    // Its counts may be hours old.
    assert_eq!(rates(&first[0]), json!([0.0, none, 0.0, 0.0]));
    let faults = [
        (Fault::ConnectRefused, 14),
        (Fault::ConnectTimeout, 2),
        (Fault::TlsCertificate, 2),
        (Fault::ResetBeforeHead, 3),
        (Fault::HeadTimeout, 5),
        (Fault::RequestTimeout, 2),
        // A limit of the gateway, not a failure of the upstream.
        (Fault::PendingFull, 100),
    ];
    let absent = UpstreamStatus {
        no_endpoint: Some(Fault::DnsNotFound),
        ..upstream("none", 0, [0; 5], &[])
    };
    let next = at(
        2,
        vec![
            upstream("shop", 1050, [1, 920, 2, 4, 96], &faults),
            upstream("new", 7, [0, 7, 0, 0, 0], &[]),
            absent,
        ],
    );
    assert_eq!(
        rates(&next[0]),
        json!([25.0, [0.5, 10.0, 1.0, 2.0, 3.0], 4.0, 5.0])
    );
    assert_eq!(
        (&next[0]["total"], &next[0]["no_endpoint"]),
        (&json!(1050), &Value::Null)
    );
    assert_eq!(rates(&next[1]), json!([3.5, [0.0, 3.5, 0.0, 0.0, 0.0], 0.0, 0.0]));
    assert_eq!(next[2]["no_endpoint"], "hostname does not exist");
    // The name was removed and configured again.
    let again = at(3, vec![upstream("shop", 3, [0, 3, 0, 0, 0], &[])]);
    assert_eq!(rates(&again[0]), json!([0.0, none, 0.0, 0.0]));
}

#[test]
fn the_page_is_bounded() {
    let routes = (0..DASHBOARD_ROUTES + 5).map(|number| route(&number.to_string(), [0, 1, 0, 0, 0]));
    let document = SnapshotBuilder::default().document("1.2.3", second(0, 0, routes.collect()));
    let document = parsed(&document);
    assert_eq!(document["routes"].as_array().unwrap().len(), DASHBOARD_ROUTES);
    assert_eq!(document["more_routes"], 5);
}

#[test]
fn a_followed_cluster_is_shown_and_bounded() {
    use crate::admin::cluster_status::{ClusterStatus, FailingWatch};
    use crate::limits::DASHBOARD_PROBLEMS;
    let watch = |number: usize| FailingWatch {
        objects: format!("Secret n/{number}"),
        error: "no right".to_owned(),
        since: 7,
    };
    let mut followed = ClusterStatus {
        synced: true,
        holder: Some("other".to_owned()),
        failing: (0..DASHBOARD_PROBLEMS + 3).map(watch).collect(),
        problems: vec!["one".to_owned()],
        ..ClusterStatus::default()
    };
    followed.truncate(DASHBOARD_PROBLEMS);
    let sample = Sample {
        kubernetes: Some(followed),
        ..second(0, 0, Vec::new())
    };
    let document = parsed(&SnapshotBuilder::default().document("1.2.3", sample));
    let shown = &document["kubernetes"];
    assert_eq!(
        (&shown["synced"], &shown["holder"]),
        (&json!(true), &json!("other"))
    );
    assert_eq!(shown["failing"].as_array().unwrap().len(), DASHBOARD_PROBLEMS);
    assert_eq!(
        (&shown["more_failing"], &shown["more_problems"]),
        (&json!(3), &Value::Null)
    );
    let without = parsed(&SnapshotBuilder::default().document("1.2.3", second(0, 0, Vec::new())));
    assert_eq!(without["kubernetes"], Value::Null);
}

#[test]
fn the_history_is_bounded_and_has_a_gap_where_nothing_was_recorded() {
    let mut history = RateHistory::default();
    let totals = |second: u64, responses| Totals {
        at: Duration::from_secs(second),
        wall: Duration::from_secs(1_700_000_000 + second),
        responses,
        server_errors: responses / 10,
        connections: second,
        push: (second > 2).then_some((7, 50 * second)),
        ..Totals::default()
    };
    assert!(history.is_due(totals(1, 0).wall));
    history.record(totals(1, 100));
    assert!(!history.is_due(totals(1, 0).wall + Duration::from_millis(900)));
    for (second, responses) in [(2, 130), (3, 140), (7, 180)] {
        history.record(totals(second, responses));
    }
    let found = parsed(&history.document());
    let expect = json!({
        "seconds": [1_700_000_002_u64, 1_700_000_003_u64, 1_700_000_007_u64],
        "requests_per_s": [30.0, 10.0, 10.0],
        "errors_per_s": [3.0, 1.0, 1.0],
        "connections": [2, 3, 7],
        "cpu_percent": [0.0, 0.0, 0.0],
        "clients": [null, 7, 7],
        "deliveries_per_s": [null, 0.0, 50.0],
    });
    assert_eq!(found, expect);
    for second in 8..2000 {
        history.record(totals(second, 200));
    }
    let found = parsed(&history.document());
    let seconds = found["seconds"].as_array().unwrap();
    assert_eq!(seconds.len(), DASHBOARD_HISTORY);
    assert_eq!(seconds[DASHBOARD_HISTORY - 1], 1_700_001_999_u64);
}

#[test]
fn push_has_rates_and_counts_slow_clients() {
    use ringmain_push::SlowConsumerPolicy;
    use ringmain_push::metrics::{Refusal, Report};
    let mut snapshots = SnapshotBuilder::default();
    let mut at = |seconds, push: Option<Report>| {
        let sample = Sample {
            push,
            ..second(seconds, 0, Vec::new())
        };
        parsed(&snapshots.document("1.2.3", sample))
    };
    assert_eq!(at(0, None)["push"], Value::Null);
    let report = |deliveries| Report {
        clients: 3,
        subscribed_channels: 2,
        deliveries,
        refused: Refusal::ALL.map(|why| (why, u64::from(why == Refusal::Rate))),
        disconnects: vec![(None, 1), (Some(3008), 5)],
        slow: SlowConsumerPolicy::ALL.map(|slow| (slow, 0)),
        ..Report::default()
    };
    // The first report is no rate: its counts may be hours old.
    assert_eq!(at(1, Some(report(1000)))["push"]["deliveries_per_s"], 0.0);
    let document = at(3, Some(report(1100)));
    let push = &document["push"];
    assert_eq!(push["deliveries_per_s"], 50.0);
    assert_eq!(
        (&push["clients"], &push["slow_disconnects"], &push["slow"]),
        (&json!(3), &json!(5), &json!([]))
    );
    assert_eq!(push["refused"], json!([["rate", 1]]));
    assert_eq!(push["disconnects"], json!([["3008", 5], ["other", 1]]));
}

#[test]
fn certificates_are_sorted_by_expiry_and_have_states() {
    const DAY: u64 = 86_400;
    let now = 1_700_000_000;
    let certificate = |name: &str, not_before, not_after| CertificateFacts {
        name: name.to_owned(),
        hosts: vec!["shop.example".to_owned()],
        not_before,
        not_after,
    };
    let sample = Sample {
        certificates: [
            certificate("valid", 0, now + 14 * DAY),
            certificate("expiring", 0, now + 14 * DAY - 1),
            certificate("expired", 0, now - 1),
            certificate("early", now + 5, now + 90 * DAY),
        ]
        .into(),
        ..second(0, 0, Vec::new())
    };
    let document = parsed(&SnapshotBuilder::default().document("1.2.3", sample));
    let found = document["certificates"].as_array().unwrap().iter();
    let found: Vec<_> = found
        .map(|it| {
            (
                it["name"].as_str().unwrap(),
                it["state"].as_str().unwrap(),
                it["days_left"].as_i64(),
            )
        })
        .collect();
    let expect = [
        ("expired", "expired", Some(-1)),
        ("expiring", "expiring", Some(13)),
        ("valid", "valid", Some(14)),
        ("early", "not_yet_valid", Some(90)),
    ];
    assert_eq!(found, expect);
}

fn endpoint() -> EndpointStatus {
    EndpointStatus {
        addr: "127.0.0.1:3000".parse().unwrap(),
        weight: 1,
        draining: false,
        requests: 0,
        load: None,
        failures: 0,
        verdict: CheckVerdict::Unknown,
        check_error: None,
        ejection: None,
        unreachable_until: None,
        connect_failure: None,
    }
}

#[test]
fn endpoints_have_a_state_with_its_reason_and_its_time() {
    let wall = Duration::from_secs(1000);
    let failure = Some(ConnectFailure {
        fault: Fault::ConnectRefused,
        since: Duration::from_secs(900),
    });
    let check = Some(CheckError {
        reason: "expected a status from 200 to 399, found 503".into(),
        since: Duration::from_secs(950),
    });
    let until = |seconds| Some(Duration::from_secs(seconds));
    let unreachable = EndpointStatus {
        unreachable_until: until(1003),
        connect_failure: failure,
        ..endpoint()
    };
    // Without a connection since, the last attempt is the last known state.
    let retried = EndpointStatus {
        unreachable_until: until(990),
        ..unreachable.clone()
    };
    let unhealthy = EndpointStatus {
        verdict: CheckVerdict::Unhealthy,
        check_error: check.clone(),
        ..endpoint()
    };
    let failed_once = EndpointStatus {
        verdict: CheckVerdict::Healthy,
        check_error: check,
        ..endpoint()
    };
    let status = "expected a status from 200 to 399, found 503";
    let once = format!("last health check failed: {status}");
    for (endpoint, state, why, since, left) in [
        (endpoint(), "unknown", None, None, None),
        (
            unreachable,
            "unreachable",
            Some("connection refused"),
            Some(900),
            Some(3),
        ),
        (
            retried,
            "unreachable",
            Some("connection refused"),
            Some(900),
            None,
        ),
        (unhealthy, "unhealthy", Some(status), Some(950), None),
        (failed_once, "healthy", Some(&*once), Some(950), None),
    ] {
        let found = serde_json::to_value(EndpointRow::of(&endpoint, wall)).unwrap();
        let expect = json!({
            "address": "127.0.0.1:3000", "state": state, "why": why, "since": since, "seconds_left": left, "requests": 0,
        });
        assert_eq!(found, expect);
    }
}

#[test]
fn a_connection_that_failed_is_newer_than_the_verdict_of_checks() {
    let failed = EndpointStatus {
        verdict: CheckVerdict::Healthy,
        connect_failure: Some(ConnectFailure {
            fault: Fault::ConnectTimeout,
            since: Duration::from_secs(900),
        }),
        ..endpoint()
    };
    // The next check that connects removes the failure.
    let checked = EndpointStatus {
        connect_failure: None,
        ..failed.clone()
    };
    for (endpoint, state, since) in [(failed, "unreachable", Some(900)), (checked, "healthy", None)] {
        let found = serde_json::to_value(EndpointRow::of(&endpoint, Duration::from_secs(1000))).unwrap();
        assert_eq!((&found["state"], &found["since"]), (&json!(state), &json!(since)));
    }
}

/// The base64 text of the SHA-256 digest, as a policy names it; computed by coreutils.
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

fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
    let (_, rest) = text.split_once(start).unwrap();
    rest.split_once(end).unwrap().0
}

#[test]
fn the_policy_allows_this_style_and_this_script_and_nothing_else() {
    for (tag, directive) in [("style", "style-src"), ("script", "script-src")] {
        let content = between(PAGE, &format!("<{tag}>"), &format!("</{tag}>"));
        let expect = format!("{directive} 'sha256-{}'", digest(content));
        assert!(POLICY.contains(&expect), "expected {expect} in: {POLICY}");
        assert_eq!(PAGE.matches(&format!("<{tag}")).count(), 1);
    }
    assert!(POLICY.starts_with("default-src 'none'; "));
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    for place in ["src=", "@import", "url(", "style=", "onclick", "innerHTML"] {
        assert!(!PAGE.contains(place), "{place}");
    }
    let outside = PAGE.matches("http").count();
    assert_eq!(
        outside,
        PAGE.matches("http://www.w3.org/2000/svg").count(),
        "a link to elsewhere"
    );
}
