//! Sessions: several rounds, cut short, from chosen addresses; plans that make no sense.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_load::limits;
use ringmain_load::plan::{Extent, Pace, Plan, Protocol};
use ringmain_load::run::{Progress, RunError, Session};

use crate::rounds::support::{Peer, Server, check, get, plan, round};

on_every_backend!(
    several_rounds,
    cut_short,
    cut_short_before_anything_was_measured,
    workers_that_end_apart,
    chosen_source_addresses,
    plans_that_make_no_sense,
);

fn several_rounds(engine: Choice) {
    let server = Server::new(Peer::serve);
    let plan = Plan {
        rounds: 3,
        threads: 2,
        extent: Extent::Count(100),
        ..plan(&server, engine)
    };
    let session = Session::new(plan, get()).expect("a plan");
    for number in 0..3 {
        let round = session.round(number, None, &mut |_| ()).expect("a round");
        check(&round, session.plan());
        assert_eq!(round.figures.counts.answered, 100);
        let expected = 2 * (number as usize + 1);
        assert_eq!(server.connections(expected), expected, "its own connections");
    }
    server.finish();
}

/// What was measured by then is the round.
fn cut_short(engine: Choice) {
    let server = Server::new(Peer::serve);
    let hour = Duration::from_secs(3600);
    for pace in [Pace::Closed, Pace::Constant(1000.0)] {
        let plan = Plan {
            connections: 4,
            threads: 2,
            pace,
            extent: Extent::Count(u64::MAX),
            ..plan(&server, engine)
        };
        let session = Session::new(plan, get()).expect("a plan");
        let stop = session.stop();
        let (mut seen, mut answered) = (0, 0);
        let mut end = |progress: Progress<'_>| {
            if let Progress::Interval { figures, .. } = progress {
                seen += 1;
                answered += figures.counts.answered;
            }
            stop.store(seen >= 2 && answered > 0, Ordering::SeqCst);
        };
        let round = session.round(0, None, &mut end).expect("a part of a round");
        check(&round, session.plan());
        assert!(round.elapsed >= Duration::from_millis(20) && round.elapsed < hour);
        assert!(round.figures.counts.answered > 0);
        assert!(round.began > Duration::ZERO);
    }
    server.finish();
}

fn cut_short_before_anything_was_measured(engine: Choice) {
    let server = Server::new(Peer::serve);
    for early in [true, false] {
        let plan = Plan {
            warmup: Duration::from_secs(3600),
            ..plan(&server, engine)
        };
        let session = Session::new(plan, get()).expect("a plan");
        let stop = session.stop();
        let mut end = |progress: Progress<'_>| {
            if early || matches!(progress, Progress::Warming) {
                stop.store(true, Ordering::SeqCst);
            }
        };
        let error = session.round(0, None, &mut end).expect_err("nothing is measured");
        assert!(matches!(error, RunError::Stopped), "{error:?}");
    }
    server.finish();
}

/// One worker's connection is answered at once, the other one's late: intervals are told while the slow one goes on.
fn workers_that_end_apart(engine: Choice) {
    let gate = crate::rounds::support::Gate::default();
    let shut = gate.clone();
    let server = Server::new(move |peer| {
        if peer.number == 0 && peer.request().is_some() {
            shut.pass();
            peer.answer(200, "ok");
        }
        peer.serve();
    });
    let plan = Plan {
        threads: 2,
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let session = Session::new(plan, get()).expect("a plan");
    let mut seen = 0;
    let mut open = |progress: Progress<'_>| {
        seen += u32::from(matches!(progress, Progress::Interval { .. }));
        if seen == 3 {
            gate.open();
        }
    };
    let round = session.round(0, None, &mut open).expect("a round");
    check(&round, session.plan());
    assert_eq!(round.figures.counts.answered, 20);
    assert!(round.series.len() >= 3);
    server.finish();
}

fn chosen_source_addresses(engine: Choice) {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let from = Arc::clone(&seen);
    let server = Server::new(move |peer| {
        let address = peer.from.expect("TCP").ip().to_string();
        from.lock().expect("nobody panics with it").insert(address);
        peer.serve();
    });
    let source = |text: &str| -> Addr { text.parse().expect("an address") };
    let plan = Plan {
        connections: 5,
        threads: 2,
        sources: vec![source("127.0.0.2:0"), source("127.0.0.3:0")],
        ..plan(&server, engine)
    };
    assert_eq!(round(plan, get()).figures.counts.answered, 10);
    let expected: BTreeSet<_> = ["127.0.0.2", "127.0.0.3"].map(str::to_owned).into();
    assert_eq!(*seen.lock().expect("nobody panics with it"), expected);
    server.finish();
}

type Spoil = fn(&mut Plan);

fn plans_that_make_no_sense(engine: Choice) {
    let server = Server::new(Peer::serve);
    let good = plan(&server, engine);
    let cases: Vec<(&str, Spoil)> = vec![
        ("connections", |plan| plan.connections = 0),
        ("connections", |plan| plan.connections = limits::CONNECTIONS + 1),
        ("threads", |plan| plan.threads = 0),
        ("threads", |plan| plan.threads = 3),
        ("pipeline", |plan| plan.pipeline = 0),
        ("pipeline", |plan| plan.pipeline = limits::PIPELINE + 1),
        ("reconnect-every", |plan| plan.reconnect_after = Some(0)),
        ("rate", |plan| plan.pace = Pace::Constant(0.0)),
        ("rate", |plan| plan.pace = Pace::Poisson(f64::NAN)),
        ("rate", |plan| plan.pace = Pace::Constant(2.0 * limits::RATE)),
        ("interval", |plan| plan.interval = limits::INTERVAL / 2),
        ("timeout", |plan| plan.timeout = Duration::ZERO),
        ("echo", |plan| plan.protocol = Protocol::Echo { bytes: 0 }),
        ("echo", |plan| {
            plan.protocol = Protocol::Echo {
                bytes: limits::ECHO_BYTES + 1,
            };
        }),
    ];
    for (expected, spoil) in cases {
        let mut plan = good.clone();
        spoil(&mut plan);
        match Session::new(plan, get()) {
            Err(RunError::Plan { setting, .. }) => assert_eq!(setting, expected),
            other => panic!("{expected}: {other:?}"),
        }
    }
    server.finish();
}
