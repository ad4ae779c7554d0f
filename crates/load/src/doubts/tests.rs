//! Each doubt both ways: just short of it there is none, from there on just this one.

use std::sync::Arc;
use std::time::Duration;

use ringmain_tls::{ClientSettings, Trust};

use super::{Context, Doubt, Kind, Severity, doubts};
use crate::figures::Latency;
use crate::fixtures;
use crate::limits;
use crate::plan::{Extent, Messages, Pace, Protocol, Tls};
use crate::report::{Effort, Round, Run};

/// The warnings and notes of a run, but for the note that it is short for its higher percentiles: that all are.
fn of(run: &Run) -> Vec<Doubt> {
    let mut doubts = doubts(run, &Context::default());
    doubts.retain(|doubt| doubt.kind != Kind::FewAnswers);
    doubts
}

/// After a change of the second of three rounds there is just this doubt, about that round.
#[track_caller]
fn one(mut run: Run, change: impl Fn(&mut Round), kind: Kind, severity: Severity, says: &str) {
    change(&mut run.rounds[1]);
    let [doubt] = &*of(&run) else {
        panic!("expected {kind:?} only: {:?}", of(&run))
    };
    assert_eq!(
        (doubt.kind, doubt.severity, doubt.round),
        (kind, severity, Some(1)),
        "{}",
        doubt.message
    );
    assert!(doubt.message.starts_with(says), "{}", doubt.message);
}

/// After it there is none.
#[track_caller]
fn none(mut run: Run, change: impl Fn(&mut Round)) {
    change(&mut run.rounds[1]);
    assert_eq!(of(&run), []);
}

use Severity::{Note, Warning};
use fixtures::{open, run};

#[test]
fn a_good_run_is_believed() {
    none(run(), |_| ());
    none(open(), |_| ());
    assert_eq!(
        of(&Run {
            rounds: Vec::new(),
            ..run()
        }),
        []
    );
}

#[test]
fn a_busy_client() {
    let worker = |percent| move |round: &mut Round| round.workers[1].cpu = fixtures::SPAN * percent / 100;
    none(run(), worker(89));
    one(
        run(),
        worker(90),
        Kind::ClientBusy,
        Warning,
        "1 of the client's 2 workers used up to 90% of a CPU: the client",
    );
}

#[test]
fn a_client_that_others_keep_waiting() {
    let waited =
        |percent| move |round: &mut Round| round.workers[1].waited = Some(fixtures::SPAN * percent / 100);
    none(run(), waited(5));
    one(
        run(),
        waited(6),
        Kind::ClientStarved,
        Warning,
        "a worker of the client waited for a CPU 6.00% of the time",
    );
    none(run(), |round: &mut Round| round.workers[1].waited = None);
}

#[test]
fn a_client_that_sends_late() {
    let lag = |micros| {
        move |round: &mut Round| round.figures.lag = fixtures::latency(100, Duration::from_micros(micros))
    };
    none(open(), lag(820));
    one(
        open(),
        lag(900),
        Kind::SendLag,
        Warning,
        "one in a hundred requests was sent 1.07 ms or more late",
    );
    none(run(), lag(900));
}

#[test]
fn requests_that_waited() {
    let late = |late| move |round: &mut Round| round.figures.counts.late = late;
    none(open(), late(200));
    one(
        open(),
        late(201),
        Kind::Late,
        Warning,
        "1.00% of the requests were sent more than 1 ms late",
    );
    none(run(), late(201));
    // As many were late with a connection free: the client's own doing, which is another doubt.
    none(open(), |round: &mut Round| {
        round.figures.counts.late = 201;
        for _ in 0..201 {
            round.figures.lag.record(2_000_000);
        }
    });
}

#[test]
fn a_rate_beyond_the_knee() {
    let lost = |lost| {
        move |round: &mut Round| {
            round.figures.counts.answered -= lost;
            round.figures.counts.dropped = lost / 2;
            round.figures.counts.unfinished = lost / 2;
        }
    };
    none(open(), lost(200));
    let says = "1979 of the 2000 scheduled requests/s completed (99%), 105 scheduled requests were never sent and 105";
    one(open(), lost(210), Kind::RateMissed, Warning, says);
    let poisson = || Run {
        plan: crate::plan::Plan {
            pace: Pace::Poisson(2_000.0),
            ..open().plan
        },
        ..open()
    };
    none(poisson(), lost(210));
    one(
        poisson(),
        lost(700),
        Kind::RateMissed,
        Warning,
        "1930 of the 2000 scheduled requests/s",
    );
}

#[test]
fn figures_that_contradict_each_other() {
    let mean = |micros| {
        move |round: &mut Round| {
            round.figures.service = fixtures::latency(20_000, Duration::from_micros(micros))
        }
    };
    none(run(), mean(4_600));
    none(run(), mean(5_400));
    let says = "throughput times mean service time implies that 8.8 requests were in flight where 10 were requested: connections";
    one(run(), mean(4_400), Kind::Concurrency, Warning, says);
    one(
        run(),
        mean(5_600),
        Kind::Concurrency,
        Warning,
        "throughput times mean service time implies that 11.2 requests",
    );
    none(open(), mean(4_400));

    // Pipelined, and with half of the time spent on connecting.
    let mut piped = run();
    piped.plan.pipeline = 4;
    piped.rounds.iter_mut().for_each(mean(20_000));
    none(piped, |_| ());
    let mut reconnecting = run();
    reconnecting.rounds.iter_mut().for_each(|round| {
        mean(2_500)(round);
        round.figures.connect = fixtures::latency(20_000, Duration::from_micros(2_500));
    });
    assert_eq!(of(&reconnecting)[0].kind, Kind::Concurrency);
    reconnecting.plan.reconnect_after = Some(1);
    none(reconnecting, |_| ());
}

#[test]
fn a_round_unlike_the_others() {
    let answers = |answers| move |round: &mut Round| *round = fixtures::round(answers);
    none(run(), answers(21_900));
    none(run(), answers(18_100));
    one(
        run(),
        answers(22_100),
        Kind::RoundDeviates,
        Warning,
        "the round's 2210 responses/s are 10% off the median of",
    );
    one(
        run(),
        answers(17_900),
        Kind::RoundDeviates,
        Warning,
        "the round's 1790 responses/s",
    );
}

#[test]
fn a_round_of_another_length() {
    // The figures fit the time.
    let took = |seconds: u32| {
        move |round: &mut Round| {
            *round = fixtures::round(2_000 * u64::from(seconds));
            round.figures.service =
                fixtures::latency(round.figures.counts.answered, Duration::from_millis(5));
            round.elapsed = Duration::from_secs(seconds.into());
            round.workers.clear();
        }
    };
    none(run(), took(11));
    none(run(), took(9));
    one(
        run(),
        took(12),
        Kind::Elapsed,
        Warning,
        "the round took 12.0 s where 10 s were requested",
    );
    one(
        run(),
        took(8),
        Kind::Elapsed,
        Warning,
        "the round took 8.00 s where 10 s were requested",
    );
    let mut counted = run();
    counted.plan.extent = Extent::Count(20_000);
    none(counted, took(12));
}

#[test]
fn a_short_round() {
    let took = |millis: u64| {
        move |round: &mut Round| {
            *round = fixtures::round(2 * millis);
            round.figures.service = fixtures::latency(2 * millis, Duration::from_millis(5));
            round.elapsed = Duration::from_millis(millis);
            round.workers.clear();
        }
    };
    let mut counted = run();
    counted.plan.extent = Extent::Count(1_998);
    none(counted.clone(), took(1_000));
    one(counted, took(999), Kind::Short, Note, "only 999 ms were measured");
}

#[test]
fn percentiles_of_few_answers() {
    let few = |answers| {
        let run = Run {
            rounds: vec![fixtures::round(answers)],
            ..run()
        };
        let doubts = doubts(&run, &Context::default());
        doubts.into_iter().find(|doubt| doubt.kind == Kind::FewAnswers)
    };
    let says = |answers, says: &str| {
        let doubt = few(answers).unwrap();
        assert_eq!((doubt.severity, doubt.round), (Note, Some(0)));
        assert!(doubt.message.starts_with(says), "{}", doubt.message);
    };
    says(
        150,
        "of 150 responses 75 lie beyond p50: it and all higher percentiles are noise; 200 responses are needed",
    );
    says(9_900, "of 9900 responses 99 lie beyond p99: it and all");
    says(
        10_000,
        "of 10000 responses 10 lie beyond p99.9: it and all higher percentiles are noise; 100000 responses",
    );
    says(100_000, "of 100000 responses 10 lie beyond p99.99");
    assert_eq!(few(1_000_000), None);
}

#[test]
fn a_latency_beyond_the_histogram() {
    let record = |latency: Duration| {
        move |round: &mut Round| {
            let mut one = Latency::default();
            one.record(latency.as_nanos() as u64);
            round.figures.response = one;
        }
    };
    none(open(), record(limits::LATENCY - Duration::from_secs(10)));
    one(
        open(),
        record(limits::LATENCY * 2),
        Kind::LongestLatency,
        Warning,
        "latencies of 3600 s or more occurred",
    );
}

#[test]
fn rounds_without_an_answer() {
    let mut run = run();
    run.rounds.iter_mut().for_each(|round| round.figures.clear());
    let [doubt] = &*of(&run) else {
        panic!("{:?}", of(&run))
    };
    assert_eq!((doubt.kind, doubt.round), (Kind::NoAnswer, None));
    assert!(
        doubt
            .message
            .starts_with("In all 3 rounds, at worst: none of 0 requests received a response"),
        "{}",
        doubt.message
    );
}

#[test]
fn answers_of_other_statuses() {
    let statuses = |status| {
        move |round: &mut Round| {
            round.figures.counts.statuses = [(200, 19_990), (status, 10)].into();
            round.figures.counts.unexpected = if (200..400).contains(&status) { 0 } else { 10 };
        }
    };
    for fine in [200, 204, 301, 399] {
        none(run(), statuses(fine));
    }
    for wrong in [101, 199, 400, 503] {
        let says = format!(
            "responses with a status other than 2xx or 3xx: 10 (0.05% of all; {wrong}: 10): errors are"
        );
        one(run(), statuses(wrong), Kind::Statuses, Warning, &says);
    }
    let many = |round: &mut Round| {
        round.figures.counts.statuses = [(404, 1), (500, 15_000), (200, 4_999)].into();
        round.figures.counts.unexpected = 15_001;
    };
    one(
        run(),
        many,
        Kind::Statuses,
        Warning,
        "responses with a status other than 2xx or 3xx: 15001 (75% of all; 500: 15000, 404: 1)",
    );
}

#[test]
fn a_status_that_was_asked_for_is_right() {
    none(run(), |round| {
        round.figures.counts.statuses = [(404, 20_000)].into()
    });
    // But something else is not.
    let wrong = |round: &mut Round| {
        round.figures.counts.statuses = [(200, 19_000), (404, 1_000)].into();
        round.figures.counts.unexpected = 1_500;
    };
    let mut run = run();
    wrong(&mut run.rounds[1]);
    let kinds: Vec<Kind> = of(&run).iter().map(|doubt| doubt.kind).collect();
    assert_eq!(kinds, [Kind::Statuses, Kind::Unexpected]);
}

#[test]
fn requests_that_came_to_nothing() {
    let unexpected = |n| move |round: &mut Round| round.figures.counts.unexpected = n;
    none(run(), unexpected(0));
    one(
        run(),
        unexpected(1),
        Kind::Unexpected,
        Warning,
        "responses that failed a check: 1 (0.01% of all): the",
    );

    let timeouts = |n| move |round: &mut Round| round.figures.counts.timeouts = n;
    one(
        run(),
        timeouts(2),
        Kind::Timeouts,
        Warning,
        "requests without a response within 2 s: 2 (0.01% of all): they are missing",
    );

    let broken = |round: &mut Round| round.figures.counts.broken = [("reset", 3), ("closed early", 4)].into();
    let says =
        "requests with a lost connection or an invalid response: 7 (0.03% of all; closed early: 4, reset: 3)";
    one(run(), broken, Kind::Broken, Warning, says);

    let refused = |round: &mut Round| round.figures.counts.connect_errors = [("refused", 30)].into();
    one(
        run(),
        refused,
        Kind::ConnectErrors,
        Warning,
        "attempts to connect that failed: 30 (75% of all; refused: 30): fewer",
    );
}

#[test]
fn messages_over_websockets() {
    let echo = |deflate| {
        let mut run = run();
        let (text, bytes) = (false, 64);
        run.plan.protocol = Protocol::WebSocket(Messages { text, bytes, deflate });
        run
    };
    let changed = |round: &mut Round| round.figures.counts.unexpected = 2;
    let says = "messages that were not echoed unchanged: 2 (0.01% of all): the figures";
    one(echo(false), changed, Kind::Unexpected, Warning, says);
    none(echo(false), |_| ());
    let deflated = |count| move |round: &mut Round| round.figures.counts.deflated = count;
    let mut run = echo(true);
    run.rounds.iter_mut().for_each(deflated(10));
    let says = "WebSockets whose server did not agree to permessage-deflate: 4 (40% of all): their messages";
    none(run.clone(), deflated(10));
    one(run, deflated(6), Kind::NotDeflated, Warning, says);
    let refused = |round: &mut Round| {
        round.figures.counts.connect_errors = [("WebSocket: answered 503", 10)].into();
        round.figures.counts.first_errors = [("WebSocket: answered 503", "busy".into())].into();
    };
    let says = "attempts to connect that failed: 10 (50% of all; WebSocket: answered 503: 10): fewer connections carried \
                load than requested; check the errors";
    one(echo(false), refused, Kind::ConnectErrors, Warning, says);
}

#[test]
fn servers_that_take_fewer_streams() {
    let mut run = run();
    run.plan.protocol = Protocol::Http2;
    let allowed = |streams| move |round: &mut Round| round.figures.counts.streams_allowed = streams;
    none(run.clone(), allowed(None));
    none(run.clone(), allowed(Some(1)));
    run.plan.pipeline = 10;
    // As much is in flight as the server takes: there is nothing else to doubt.
    for round in &mut run.rounds {
        round.figures.counts.streams_allowed = Some(1);
    }
    let [doubt] = &*of(&run) else {
        panic!("expected one: {:?}", of(&run))
    };
    assert_eq!((doubt.kind, doubt.severity), (Kind::FewerStreams, Note));
    assert!(
        doubt.message.contains("10 streams were requested"),
        "{}",
        doubt.message
    );
}

#[test]
fn sessions_that_nobody_resumes() {
    let mut run = run();
    let settings = ClientSettings::new(Trust::AnybodyInsecure);
    run.plan.tls = Some(Tls {
        settings: Arc::new(settings),
        name: "a.example".into(),
    });
    let handshakes = |count, resumed| {
        move |round: &mut Round| {
            round.figures.counts.tls_versions = [("TLSv1.3", count)].into();
            round.figures.counts.tls_resumed = resumed;
        }
    };
    none(run.clone(), handshakes(10, 0));
    none(run.clone(), handshakes(30, 1));
    let says = "none of 20 later handshakes with a.example resumed a session";
    one(run, handshakes(30, 0), Kind::NotResumed, Note, says);
}

#[test]
fn shared_cpus() {
    let seen = |server: Option<&[usize]>, client: &[usize]| {
        let context = Context {
            server_cpus: server.map(<[usize]>::to_vec),
            client_cpus: client.to_vec(),
        };
        let mut doubts = doubts(&run(), &context);
        doubts.retain(|doubt| doubt.kind == Kind::SharedCpu);
        doubts
    };
    assert_eq!(seen(None, &[0, 1]), []);
    assert_eq!(seen(Some(&[2, 3]), &[0, 1]), []);
    let [doubt] = &*seen(Some(&[3, 2, 1]), &[0, 2, 1, 1]) else {
        panic!()
    };
    assert_eq!((doubt.severity, doubt.round), (Warning, None));
    assert!(
        doubt
            .message
            .starts_with("client and server may both run on CPU 1, 2: they compete"),
        "{}",
        doubt.message
    );
}

#[test]
fn what_all_rounds_share_is_one_doubt_about_the_worst() {
    let mut run = run();
    for (round, percent) in run.rounds.iter_mut().zip([91, 97, 95]) {
        round.workers = vec![Effort {
            cpu: fixtures::SPAN * percent / 100,
            waited: None,
            pinned: None,
        }];
    }
    let [doubt] = &*of(&run) else { panic!() };
    assert_eq!((doubt.kind, doubt.round), (Kind::ClientBusy, None));
    assert!(
        doubt
            .message
            .starts_with("In all 3 rounds, at worst: 1 of the client's 1 workers used up to 97%"),
        "{}",
        doubt.message
    );

    // Of two in three, each is told; of a single round there is no "all".
    run.rounds[0].workers.clear();
    assert_eq!(
        of(&run).iter().map(|doubt| doubt.round).collect::<Vec<_>>(),
        [Some(1), Some(2)]
    );
    run.rounds.drain(..2);
    assert_eq!(
        of(&run).iter().map(|doubt| doubt.round).collect::<Vec<_>>(),
        [Some(0)]
    );
}

#[test]
fn warnings_come_before_notes() {
    let mut run = run();
    run.rounds[2].figures.counts.timeouts = 1;
    let severities: Vec<Severity> = doubts(&run, &Context::default())
        .iter()
        .map(|doubt| doubt.severity)
        .collect();
    assert_eq!(severities, [Warning, Note]);
}
