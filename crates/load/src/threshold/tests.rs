//! Every form, every error, and judgements of made-up runs.

use std::time::Duration;

use super::{Clock, Measure, Point, Relation, Threshold};
use crate::fixtures;
use crate::report::Run;

fn threshold(text: &str) -> Threshold {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn all_forms_are_read() {
    let p99 = |clock| Measure::Latency(clock, Point::Percent(99.0));
    for (text, measure, relation, limit) in [
        ("p99<5ms", p99(Clock::Felt), Relation::Less, 5e6),
        (
            "p99.9<=20ms",
            Measure::Latency(Clock::Felt, Point::Percent(99.9)),
            Relation::AtMost,
            20e6,
        ),
        ("response.p99<10ms", p99(Clock::Response), Relation::Less, 10e6),
        ("service.p99<1.5s", p99(Clock::Service), Relation::Less, 1.5e9),
        (
            "service.max<800us",
            Measure::Latency(Clock::Service, Point::Max),
            Relation::Less,
            800e3,
        ),
        (
            "mean<800µs",
            Measure::Latency(Clock::Felt, Point::Mean),
            Relation::Less,
            800e3,
        ),
        (
            "p100<1ns",
            Measure::Latency(Clock::Felt, Point::Percent(100.0)),
            Relation::Less,
            1.0,
        ),
        ("errors<0.1%", Measure::Errors, Relation::Less, 0.001),
        ("errors<=0%", Measure::Errors, Relation::AtMost, 0.0),
        ("rps>50000", Measure::Throughput, Relation::Greater, 50_000.0),
        ("rps >= 50000/s", Measure::Throughput, Relation::AtLeast, 50_000.0),
        (" cpu < 12 us ", Measure::ServerCpu, Relation::Less, 12e3),
    ] {
        let threshold = threshold(text);
        assert_eq!(
            (threshold.measure, threshold.relation),
            (measure, relation),
            "{text}"
        );
        assert!(
            (threshold.limit - limit).abs() <= limit * 1e-12,
            "{text}: {}",
            threshold.limit
        );
        assert_eq!(threshold.to_string(), text.trim());
    }
}

#[test]
fn an_error_names_place_and_choice() {
    let names = "p50, p99.9 or another percentile, mean, max (each also after \"service.\" or \"response.\"), errors, rps or cpu";
    let latencies = "p50, p99.9 or another percentile, mean or max";
    let time = "a unit: ns, us, ms or s";
    for (text, position, expected, found) in [
        ("", 1, names, "the end"),
        ("latency<5ms", 1, names, "\"latency<5ms\""),
        ("p<5ms", 1, names, "\"p<5ms\""),
        ("P99<5ms", 1, names, "\"P99<5ms\""),
        ("service.rps>1", 9, latencies, "\"rps>1\""),
        ("p0<5ms", 2, "a percentile above 0, at most 100", "\"0<5ms\""),
        ("p101<5ms", 2, "a percentile above 0, at most 100", "\"101<5ms\""),
        (
            "p9.9.9<5ms",
            2,
            "a percentile above 0, at most 100",
            "\"9.9.9<5ms\"",
        ),
        ("p99", 4, "<, <=, > or >=", "the end"),
        ("p99=5ms", 4, "<, <=, > or >=", "\"=5ms\""),
        ("p99<", 5, "a number, not negative", "the end"),
        ("p99<-5ms", 5, "a number, not negative", "\"-5ms\""),
        ("p99<5..1ms", 5, "a number, not negative", "\"5..1ms\""),
        ("p99<5", 6, time, "the end"),
        ("p99<5min", 6, time, "\"min\""),
        ("errors<1", 9, "%", "the end"),
        ("rps>5k", 6, "nothing or /s", "\"k\""),
        ("p99<5ms,", 8, "the end", "\",\""),
        ("p99<5µs!", 8, "the end", "\"!\""),
    ] {
        let error = text.parse::<Threshold>().unwrap_err();
        assert_eq!(
            (error.position, error.expected, &*error.found),
            (position, expected, found),
            "{text:?}"
        );
    }
    assert_eq!(
        "p99<5".parse::<Threshold>().unwrap_err().to_string(),
        "threshold \"p99<5\": expected a unit: ns, us, ms or s at character 6, found the end"
    );
}

#[test]
fn no_text_makes_it_panic() {
    let seed = 6;
    let mut rng = fastrand::Rng::with_seed(seed);
    let pieces = [
        "p", "99", ".", "<", "=", ">", " ", "ms", "µ", "s", "%", "errors", "service.", "cpu", "-", "1e999",
        "\u{2003}",
    ];
    for _ in 0..20_000 {
        let text: String = (0..rng.usize(..7))
            .map(|_| pieces[rng.usize(..pieces.len())])
            .collect();
        if let Err(error) = text.parse::<Threshold>() {
            assert!(
                error.position <= text.chars().count() + 1,
                "seed {seed}: {text:?}"
            );
        }
    }
}

fn check(text: &str, run: &Run, held: bool, says: &str) {
    let judgement = threshold(text).judge(run);
    assert_eq!((judgement.held(), judgement.to_string().as_str()), (held, says));
}

#[test]
fn a_run_is_judged_by_the_median_of_its_rounds() {
    let mut run = fixtures::run();
    run.rounds[0] = fixtures::round(10_000);
    run.rounds[1] = fixtures::round(40_000);
    check("rps>1999", &run, true, "rps>1999 met: 2000/s");
    check("rps>2000", &run, false, "rps>2000 missed: 2000/s");
    check("rps>=2000", &run, true, "rps>=2000 met: 2000/s");
    check("p99<6ms", &run, true, "p99<6ms met: 5.98ms");
    check("service.p50<5ms", &run, false, "service.p50<5ms missed: 5.00ms");
    check("cpu<=500us", &run, true, "cpu<=500us met: 500.00µs");
    check("cpu<500us", &run, false, "cpu<500us missed: 500.00µs");
}

#[test]
fn an_open_loop_is_judged_by_what_its_users_feel() {
    check("p50<5.1ms", &fixtures::open(), false, "p50<5.1ms missed: 5.50ms");
    check(
        "response.p50<5.1ms",
        &fixtures::open(),
        false,
        "response.p50<5.1ms missed: 5.50ms",
    );
    check(
        "service.p50<5.1ms",
        &fixtures::open(),
        true,
        "service.p50<5.1ms met: 5.00ms",
    );
    check("p50<5.1ms", &fixtures::run(), true, "p50<5.1ms met: 5.00ms");
}

#[test]
fn errors_of_all_rounds_count_together() {
    let mut run = fixtures::run();
    check("errors<=0%", &run, true, "errors<=0% met: 0.000%");
    let counts = &mut run.rounds[0].figures.counts;
    counts.sent += 10;
    counts.timeouts = 4;
    counts.broken = [("reset", 6)].into();
    counts.dropped = 20;
    counts.unexpected = 20;
    counts.statuses = [(200, 19_980), (404, 20)].into();
    check("errors<0.1%", &run, true, "errors<0.1% met: 0.083%");
    check("errors<0.08%", &run, false, "errors<0.08% missed: 0.083%");
    run.rounds[2].figures.counts.statuses = [(404, 20_000)].into();
    check("errors<0.1%", &run, true, "errors<0.1% met: 0.083%");
    run.rounds[2].figures.counts.unexpected = 20_000;
    check("errors<10%", &run, false, "errors<10% missed: 33.400%");
}

#[test]
fn what_was_not_measured_does_not_hold() {
    let mut run = fixtures::run();
    check(
        "response.p99<1s",
        &run,
        false,
        "response.p99<1s cannot be judged: a closed loop has no response times; give a rate",
    );
    run.rounds[1].server = None;
    check(
        "cpu<1s",
        &run,
        false,
        "cpu<1s cannot be judged: the server's CPU was not measured",
    );
    run.rounds[1].figures.clear();
    check(
        "p99<1s",
        &run,
        false,
        "p99<1s cannot be judged: a round had no response",
    );
    run.rounds[1].elapsed = Duration::ZERO;
    check("rps>1000", &run, true, "rps>1000 met: 2000/s");
    run.rounds.truncate(2);
    run.rounds.remove(0);
    check(
        "errors<1%",
        &run,
        false,
        "errors<1% cannot be judged: nothing was sent",
    );
    run.rounds.clear();
    check("rps<1", &run, false, "rps<1 cannot be judged: no round was run");
}

/// A round of 1,000 requests of 4 to 6 ms, of which `failed` have no response: each was given up after a second.
fn with_failures(failed: u64, unfinished: &[u64]) -> Run {
    let mut run = fixtures::run();
    run.rounds.truncate(1);
    let figures = &mut run.rounds[0].figures;
    figures.service = fixtures::latency(1000, Duration::from_millis(5));
    figures.counts.sent = 1000 + failed + unfinished.len() as u64;
    figures.counts.answered = 1000;
    figures.counts.timeouts = failed;
    figures.counts.unfinished = unfinished.len() as u64;
    let mut waits = crate::figures::Waits::default();
    waits.service.record_n(1_000_000_000, failed);
    figures.failed = Some(Box::new(waits));
    let mut waits = crate::figures::Waits::default();
    for nanoseconds in unfinished {
        waits.service.record(*nanoseconds);
    }
    figures.unfinished = Some(Box::new(waits));
    run
}

#[test]
fn requests_without_a_response_count_with_the_time_they_waited() {
    // 50 of 1,050: the p99 is one of them.
    let run = with_failures(50, &[]);
    check("p99<500ms", &run, false, "p99<500ms missed: at least 1.00s");
    check("mean<10ms", &run, false, "mean<10ms missed: at least 52.38ms");
    check("max<500ms", &run, false, "max<500ms missed: at least 1.00s");
    // The p90 is a response whatever the others would have taken.
    assert!(threshold("p90<10ms").judge(&run).held());
    // 1 of 1,001 is above the p99 and decides the p99.99.
    let run = with_failures(1, &[]);
    assert!(threshold("p99<10ms").judge(&run).held());
    assert!(!threshold("p99.99<10ms").judge(&run).held());
}

#[test]
fn a_limit_above_the_waits_cannot_be_judged_and_is_missed() {
    let run = with_failures(50, &[]);
    check(
        "p99<5s",
        &run,
        false,
        "p99<5s cannot be judged: at least 1.00s, but requests without a response could make it any longer",
    );
    assert!(
        !threshold("max<1h".replace('h', "000000s").as_str())
            .judge(&run)
            .held()
    );
    // The other way round, at least a second is more than half of one.
    assert!(threshold("p99>500ms").judge(&run).held());
}

#[test]
fn requests_in_flight_at_the_end_are_errors_only_where_they_waited_longer_than_any_response() {
    let run = with_failures(0, &[2_000_000, 5_000_000]);
    assert!(threshold("errors<0.1%").judge(&run).held());
    assert!(threshold("p99<10ms").judge(&run).held());
    let run = with_failures(0, &[2_000_000, 3_000_000_000, 3_500_000_000]);
    assert!(!threshold("errors<0.1%").judge(&run).held());
    assert!(!threshold("max<1s").judge(&run).held());
}

/// A closed loop sends nothing while its connections cannot be established: it must not look as good as before.
#[test]
fn time_without_connections_counts_by_the_pace_of_the_rest() {
    let whole = fixtures::run();
    let total = whole.rounds[0].elapsed * whole.plan.connections;
    let judged = |share: u32, text: &str| {
        let mut run = whole.clone();
        for round in &mut run.rounds {
            round.figures.counts.unconnected = total * share / 100;
        }
        threshold(text).judge(&run)
    };
    for text in ["p50<3600s", "p99<3600s", "errors<1%"] {
        assert!(judged(0, text).held(), "{text}");
    }
    // Half of the time: as many requests again, of which nothing is known.
    for text in ["p99<3600s", "max<3600s", "mean<3600s", "errors<49%"] {
        let judgement = judged(50, text);
        assert!(!judgement.held(), "{judgement}");
    }
    assert!(judged(50, "errors<51%").held());
    // An hour bounds nine of ten whatever the one would have taken.
    assert!(judged(5, "p90<3600s").held());
    assert!(!judged(5, "p99<3600s").held());
    assert!(!judged(100, "errors<99%").held());
}
