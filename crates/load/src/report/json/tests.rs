//! Whole documents, compared with the files in `golden/`.
//!
//! After a wanted change run the tests with `UPDATE_GOLDEN=1` in the environment and read the difference; a changed name
//! or meaning raises the version.

use std::sync::Arc;
use std::time::Duration;

use ringmain_tls::{ClientSettings, Trust};

use serde_json::Value;

use super::schema::tests::assert_valid;
use super::{Judged, comparison, merged, run, search};
use crate::compare::compare;
use crate::doubts::{Context, doubts};
use crate::fixtures;
use crate::knee::{Break, Found};
use crate::plan::{Extent, Grpc, Messages, Pace, Protocol, Tls};
use crate::record::{Recorded, Tagged};
use crate::report::Run;
use crate::threshold::Judgement;

/// One round in an open loop of which something went wrong.
fn doubtful() -> Run {
    let mut run = fixtures::open();
    run.name = "http://127.0.0.1:8080/".to_owned();
    run.plan.pace = Pace::Poisson(2_000.0);
    run.plan.seed = u64::MAX;
    run.rounds.truncate(1);
    let counts = &mut run.rounds[0].figures.counts;
    counts.statuses = [(200, 19_990), (503, 10)].into();
    counts.unexpected = 10;
    counts.broken = [("reset", 2)].into();
    counts.connect_errors = [("refused", 3)].into();
    run
}

fn judge(run: &Run, thresholds: &[&str]) -> Vec<Judgement> {
    thresholds
        .iter()
        .map(|text| text.parse::<crate::threshold::Threshold>().unwrap().judge(run))
        .collect()
}

fn plain(run: &Run) -> Judged<'_> {
    Judged {
        run,
        doubts: &[],
        thresholds: &[],
    }
}

fn parsed(text: &str) -> Value {
    assert!(text.ends_with("}\n"));
    assert_valid(text);
    serde_json::from_str(text).unwrap()
}

#[track_caller]
fn golden(text: &str, file: &str, expect: &str) {
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/report/json/golden");
        std::fs::write(
            format!("{folder}/{file}"),
            text.replace(env!("CARGO_PKG_VERSION"), "VERSION"),
        )
        .unwrap();
        return;
    }
    let expect = expect.replace("VERSION", env!("CARGO_PKG_VERSION"));
    assert!(text == expect, "{file} differs; the text is now:\n{text}");
}

#[test]
fn a_run() {
    let target = doubtful();
    let doubts = doubts(&target, &Context::default());
    let thresholds = judge(&target, &["p99<5ms", "errors<1%", "cpu<1ms"]);
    let text = run(&Judged {
        run: &target,
        doubts: &doubts,
        thresholds: &thresholds,
    });
    assert_valid(&text);
    golden(&text, "run.json", include_str!("golden/run.json"));
}

#[test]
fn compared_targets() {
    let target = |name: &str, answers: [u64; 5]| {
        let mut rounds: Vec<_> = answers.iter().map(|answers| fixtures::round(*answers)).collect();
        rounds.iter_mut().for_each(|round| round.series.clear());
        Run {
            name: name.to_owned(),
            rounds,
            ..fixtures::run()
        }
    };
    let runs = [
        target("a", [1_000, 1_010, 990, 1_000, 1_005]),
        target("b", [1_210, 1_190, 1_200, 1_205, 1_195]),
    ];
    let document = parsed(&comparison(&runs.each_ref().map(plain), &compare(&runs, 1)));
    assert_eq!(document["kind"], "comparison");
    assert_eq!(document["runs"][1]["name"], "b");
    assert_eq!(document["runs"][1]["rounds"].as_array().unwrap().len(), 5);
    let text = serde_json::to_string_pretty(&document["comparisons"]).unwrap() + "\n";
    golden(&text, "comparisons.json", include_str!("golden/comparisons.json"));
}

#[test]
fn a_closed_loop_has_no_rate_and_no_response_times() {
    let mut target = fixtures::run();
    target.plan.protocol = Protocol::Echo { bytes: 64 };
    target.plan.extent = Extent::Count(20_000);
    target.rounds[1].server = None;
    let document = parsed(&run(&plain(&target)));
    let target = &document["run"];
    for (place, expect) in [
        ("/plan/pace", Value::from("closed")),
        ("/plan/rate_per_s", Value::Null),
        ("/plan/duration_s", Value::Null),
        ("/plan/requests", 20_000.into()),
        ("/plan/protocol", "echo".into()),
        ("/plan/message_bytes", 64.into()),
        ("/summary/response", Value::Null),
        ("/summary/server_cpu_us_per_answer", Value::Null),
        ("/summary/throughput_per_s/median", 2_000.0.into()),
        ("/rounds/0/response", Value::Null),
        ("/rounds/0/series/0/response", Value::Null),
        ("/rounds/0/server/cpu_us_per_answer", 500.0.into()),
        ("/rounds/1/server", Value::Null),
    ] {
        assert_eq!(target.pointer(place), Some(&expect), "{place}");
    }
}

#[test]
fn websockets_say_what_their_messages_are() {
    let mut target = fixtures::run();
    let (text, bytes, deflate) = (true, 512, true);
    target.plan.protocol = Protocol::WebSocket(Messages { text, bytes, deflate });
    let figures = &mut target.rounds[0].figures;
    figures.opening.record(5_000);
    figures.counts.deflated = 10;
    figures
        .counts
        .first_errors
        .insert("WebSocket: answered 503", "busy".into());
    let document = parsed(&run(&plain(&target)));
    let target = &document["run"];
    for (place, expect) in [
        ("/plan/protocol", Value::from("websocket")),
        ("/plan/message_bytes", 512.into()),
        ("/plan/message_kind", "text".into()),
        ("/plan/deflate", true.into()),
        ("/rounds/0/opening/count", 1.into()),
        ("/rounds/0/counts/deflated", 10.into()),
        (
            "/rounds/0/counts/first_errors/WebSocket: answered 503",
            "busy".into(),
        ),
        ("/rounds/1/opening", Value::Null),
    ] {
        assert_eq!(target.pointer(place), Some(&expect), "{place}");
    }
}

#[test]
fn calls_and_their_messages_are_told_of() {
    let mut target = fixtures::run();
    target.plan.protocol = Protocol::Grpc(Grpc::ServerStreaming);
    let figures = &mut target.rounds[0].figures;
    figures.counts.streams_allowed = Some(128);
    figures.counts.codes.insert("OK", 7);
    figures.counts.messages = 21;
    let streamed = figures.streamed.get_or_insert_default();
    streamed.first.record(2_000);
    streamed.between.record(1_000);
    streamed.between.record(1_000);
    let document = parsed(&run(&plain(&target)));
    let target = &document["run"];
    for (place, expect) in [
        ("/plan/protocol", Value::from("grpc")),
        ("/rounds/0/counts/streams_allowed", 128.into()),
        ("/rounds/0/counts/codes/OK", 7.into()),
        ("/rounds/0/counts/messages", 21.into()),
        ("/rounds/0/first_message/count", 1.into()),
        ("/rounds/0/between_messages/count", 2.into()),
        ("/rounds/1/first_message", Value::Null),
    ] {
        assert_eq!(target.pointer(place), Some(&expect), "{place}");
    }
}

#[test]
fn tls_is_told_of() {
    let mut target = fixtures::run();
    target.plan.tls = Some(Tls {
        settings: Arc::new(ClientSettings::new(Trust::AnybodyInsecure)),
        name: "a.example".into(),
    });
    let figures = &mut target.rounds[0].figures;
    figures.handshake.record(5_000);
    figures.counts.tls_versions.insert("TLSv1.3", 1);
    figures.counts.tls_suites.insert("TLS_AES_128_GCM_SHA256", 1);
    figures.counts.tls_resumed = 1;
    let document = parsed(&run(&plain(&target)));
    let target = &document["run"];
    for (place, expect) in [
        ("/plan/tls/name", Value::from("a.example")),
        ("/plan/tls/trust", "anybody".into()),
        ("/plan/tls/client_certificate", false.into()),
        ("/plan/tls/minimum_version", "TLSv1.2".into()),
        ("/plan/tls/resume", true.into()),
        ("/rounds/0/handshake/count", 1.into()),
        ("/rounds/0/counts/tls_versions/TLSv1.3", 1.into()),
        ("/rounds/0/counts/tls_suites/TLS_AES_128_GCM_SHA256", 1.into()),
        ("/rounds/0/counts/tls_resumed", 1.into()),
    ] {
        assert_eq!(target.pointer(place), Some(&expect), "{place}");
    }
}

#[test]
fn a_run_without_an_answer_has_nulls() {
    let mut target = fixtures::run();
    target.rounds[0].figures.clear();
    target.rounds[0].elapsed = Duration::ZERO;
    let document = parsed(&run(&plain(&target)));
    assert_eq!(document.pointer("/run/summary/service"), Some(&Value::Null));
    assert_eq!(document.pointer("/run/rounds/0/service"), Some(&Value::Null));
    assert_eq!(
        document.pointer("/run/rounds/0/throughput_per_s"),
        Some(&Value::from(0.0))
    );
    target.rounds.clear();
    let document = parsed(&run(&plain(&target)));
    assert_eq!(
        document.pointer("/run/summary/throughput_per_s"),
        Some(&Value::Null)
    );
}

#[test]
fn a_search() {
    let mut found = Found {
        held: Some(9_800.0),
        broke: Some((10_000.0, vec![Break::Rate(0.95)])),
        steps: 12,
    };
    let confirmed = fixtures::open();
    let document = parsed(&search(&found, Some(&plain(&confirmed))));
    assert_eq!(document["kind"], "search");
    let expect = serde_json::json!({
        "held_per_s": 9_800.0,
        "broke_per_s": 10_000.0,
        "why": ["only 95.0% of the target rate was reached"],
        "steps": 12,
    });
    assert_eq!(document["search"], expect);
    assert_eq!(document["run"]["name"], "target");

    (found.held, found.broke) = (None, None);
    let document = parsed(&search(&found, None));
    assert_eq!(document["search"]["held_per_s"], Value::Null);
    assert_eq!(document["search"]["broke_per_s"], Value::Null);
    assert_eq!(document["run"], Value::Null);
}

#[test]
fn merged_histograms() {
    let latency = fixtures::latency(1_000, Duration::from_millis(5));
    let tagged = Tagged {
        histogram: latency.histogram().clone(),
        lines: 3,
        from: Duration::from_secs(10),
        until: Duration::from_millis(13_500),
    };
    let document = parsed(&merged(&Recorded {
        tags: [("service".to_owned(), tagged)].into(),
    }));
    let part = &document["tags"]["service"];
    assert_eq!(
        (&part["lines"], &part["from_s"], &part["until_s"]),
        (&3.into(), &10.0.into(), &13.5.into())
    );
    assert_eq!(part["latency"]["count"], 1_000);
    let p50 = part["latency"]["p50_us"].as_f64().unwrap();
    assert!((4_990.0..5_010.0).contains(&p50), "{p50}");
}
