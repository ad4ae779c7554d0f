//! An open loop keeps its schedule whatever the server does: each arrival is sent or dropped, and the time that an answer
//! takes begins when it was meant to be asked for.

use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Pace, Plan};
use ringmain_load::run::{Progress, Session};

use crate::rounds::support::{Gate, Peer, Server, check, get, plan, round};

on_every_backend!(
    each_arrival_is_sent_or_dropped,
    arrivals_of_a_warm_up,
    so_many_requests,
    more_than_can_be_sent,
    poisson,
    a_server_that_never_answers,
    a_late_answer_makes_those_behind_it_late,
    timeouts_free_the_connection,
);

fn each_arrival_is_sent_or_dropped(engine: Choice) {
    for threads in [1, 3] {
        let server = Server::new(Peer::serve);
        let plan = Plan {
            connections: 4,
            threads,
            pace: Pace::Constant(2000.0),
            extent: Extent::Time(Duration::from_millis(300)),
            ..plan(&server, engine)
        };
        let round = round(plan, get());
        let counts = round.figures.counts;
        assert_eq!(counts.sent + counts.dropped, 600, "{counts:#?}");
        assert!(round.figures.response.max() >= round.figures.service.max());
        assert!(round.figures.lag.count() <= counts.sent);
        server.finish();
    }
}

fn arrivals_of_a_warm_up(engine: Choice) {
    let server = Server::new(Peer::serve);
    let plan = Plan {
        pace: Pace::Constant(1000.0),
        warmup: Duration::from_millis(100),
        extent: Extent::Time(Duration::from_millis(200)),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    // All of the measured time, and those of the warm-up that were under way or waiting at its end.
    assert!(
        (200..=300).contains(&(counts.sent + counts.dropped)),
        "{counts:#?}"
    );
    server.finish();
}

fn so_many_requests(engine: Choice) {
    let server = Server::new(Peer::serve);
    let plan = Plan {
        threads: 2,
        pace: Pace::Constant(5000.0),
        extent: Extent::Count(501),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.sent, counts.answered, counts.dropped), (501, 501, 0));
    server.finish();
}

/// Nothing is lost in counting, and the worker still reads, even at rates that nobody can send.
fn more_than_can_be_sent(engine: Choice) {
    let server = Server::new(Peer::serve);
    let plan = Plan {
        pace: Pace::Constant(1e9),
        extent: Extent::Time(Duration::from_millis(100)),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(counts.sent + counts.dropped, 100_000_000);
    assert_eq!(counts.failed(), 0);
    // The worker still reads.
    let plan = Plan {
        pace: Pace::Constant(1e9),
        ..crate::rounds::support::plan(&server, engine)
    };
    assert_eq!(round(plan, get()).figures.counts.answered, 10);
    server.finish();
}

/// A seed's arrivals are the same in every run.
fn poisson(engine: Choice) {
    let server = Server::new(Peer::serve);
    let arrivals = || {
        let plan = Plan {
            threads: 2,
            pace: Pace::Poisson(5000.0),
            extent: Extent::Time(Duration::from_millis(200)),
            ..plan(&server, engine)
        };
        let counts = round(plan, get()).figures.counts;
        counts.sent + counts.dropped
    };
    let first = arrivals();
    // Six standard deviations.
    assert!(
        (810..=1190).contains(&first),
        "{first} arrivals, expected 1000 or so"
    );
    assert_eq!(arrivals(), first);
    server.finish();
}

fn a_server_that_never_answers(engine: Choice) {
    let server = Server::new(Peer::wait);
    let plan = Plan {
        connections: 1,
        pace: Pace::Constant(1000.0),
        extent: Extent::Time(Duration::from_millis(200)),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.sent, counts.dropped), (1, 199));
    assert_eq!((counts.answered, counts.unfinished), (0, 1));
    server.finish();
}

fn a_late_answer_makes_those_behind_it_late(engine: Choice) {
    let gate = Gate::default();
    let shut = gate.clone();
    let server = Server::new(move |peer| {
        if peer.request().is_some() {
            shut.pass();
            peer.answer(200, "ok");
            peer.serve();
        }
    });
    let plan = Plan {
        connections: 1,
        pace: Pace::Constant(1000.0),
        extent: Extent::Count(100),
        ..plan(&server, engine)
    };
    let session = Session::new(plan, get()).expect("a plan");
    // The first answer is held back for three intervals at least.
    let mut intervals = 0;
    let mut count = |progress: Progress<'_>| {
        intervals += usize::from(matches!(progress, Progress::Interval { .. }));
        if intervals == 3 {
            gate.open();
        }
    };
    let round = session.round(0, None, &mut count).expect("a round");
    check(&round, session.plan());
    let figures = &round.figures;
    assert_eq!((figures.counts.sent, figures.counts.answered), (100, 100));
    // Those of the first thirty milliseconds, but for the last one, left more than a millisecond late.
    assert!(figures.counts.late >= 27, "{} late", figures.counts.late);
    assert!(figures.response.max() >= Duration::from_millis(29));
    assert!(figures.response.percentile(50.0) >= figures.service.percentile(50.0));
    // One in a hundred was slow to be answered, a quarter were slow for who waited.
    assert!(figures.response.percentile(90.0) >= Duration::from_millis(10));
    server.finish();
}

fn timeouts_free_the_connection(engine: Choice) {
    let server = Server::new(Peer::wait);
    let plan = Plan {
        connections: 1,
        timeout: Duration::from_millis(20),
        pace: Pace::Constant(1000.0),
        extent: Extent::Count(5),
        ..plan(&server, engine)
    };
    let figures = round(plan, get()).figures;
    assert_eq!((figures.counts.sent, figures.counts.timeouts), (5, 5));
    assert!(figures.counts.late >= 4);
    server.finish();
}
