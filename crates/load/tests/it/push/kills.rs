//! All clients are cut off while publications go on, and come back: to servers that kept what they missed, and to others.

use std::time::Duration;

use ringmain_load::push::report::{Run, json, text};
use ringmain_load::push::{Kill, Plan, PushError, Session};
use ringmain_load::report::text::Style;
use serde_json::Value;

use crate::push::server::{Manner, Server, right};
use crate::push::{ALL, fails, plan, run};

/// Subscriptions of [`plan`].
const SUBSCRIPTIONS: u64 = 8 * 2;

fn killed(server: &Server) -> Plan {
    Plan {
        kill: Some(Kill {
            after: Duration::from_millis(50),
            every: None,
        }),
        settle: Duration::from_secs(30),
        ..plan(server)
    }
}

/// Clients that were cut off once, and all came back.
#[track_caller]
fn all_back(run: &Run) {
    let (counts, outages) = (&run.heard.counts, &run.heard.outages);
    assert_eq!((run.cut_and_back(), run.heard.back.count()), ((8, 8), 8));
    assert_eq!(outages.len(), 1, "{outages:?}");
    let took = run.all_back().expect("all are back");
    // The histogram knows three digits.
    assert!(took > Duration::ZERO && run.heard.back.max() <= took + took / 100);
    // What was done on purpose is not what the server did.
    assert_eq!(
        (counts.disconnects.total(), counts.reconnects, counts.gone),
        (0, 0, 0)
    );
}

#[test]
fn what_clients_missed_comes_by_recovery_and_is_not_lost() {
    let server = Server::new(Manner::Keeps, right);
    let run = run(killed(&server));
    all_back(&run);
    let counts = &run.heard.counts;
    assert_eq!((run.totals.expected, counts.delivered, run.lost()), (ALL, ALL, 0));
    assert_eq!((counts.doubled, counts.reordered, counts.old), (0, 0, 0));
    assert_eq!(
        (counts.recoveries, counts.unrecovered, counts.unplaced),
        (SUBSCRIPTIONS, 0, 0)
    );
    // Each has missed one at least, and their times stand apart.
    assert!(counts.by_recovery >= SUBSCRIPTIONS, "{counts:?}");
    assert_eq!(run.heard.recovered.count(), counts.by_recovery);
    assert_eq!(run.heard.fast.count() + counts.by_recovery, ALL);
    assert_eq!(run.totals.incomplete, 0);
}

#[test]
fn what_the_server_did_not_keep_is_lost_and_told() {
    let server = Server::new(Manner::Forgets, right);
    let run = run(Plan {
        // The time limit for reconnecting: lost publications never arrive, so the run ends by it.
        settle: Duration::from_secs(2),
        ..killed(&server)
    });
    let counts = &run.heard.counts;
    assert_eq!(run.cut_and_back(), (8, 8));
    assert_eq!(
        (counts.recoveries, counts.unrecovered, counts.by_recovery),
        (0, SUBSCRIPTIONS, 0)
    );
    assert!(run.lost() >= SUBSCRIPTIONS, "{}", run.lost());
    assert_eq!(counts.delivered + run.lost(), ALL);
    let remarks = run.remarks(&[]);
    let told = remarks.iter().any(|remark| {
        remark
            .message
            .contains("did not have all that 16 of 16 subscriptions")
    });
    assert!(told, "{remarks:?}");
}

#[test]
fn a_server_that_hesitates_is_asked_again() {
    let server = Server::new(Manner::Hesitates, right);
    let run = run(killed(&server));
    all_back(&run);
    let counts = &run.heard.counts;
    assert_eq!((counts.delivered, run.lost()), (ALL, 0));
    let errors: Vec<_> = counts.connect_errors.iter().collect();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(errors[0].0, "asked to retry: 111 too many");
}

#[test]
fn a_server_that_cannot_recover_is_an_error_unless_nothing_can_be_lost() {
    let server = Server::new(Manner::Right, right);
    fails(killed(&server), "clients cannot recover publications of test:");
    let run = run(Plan {
        publishing: None,
        ..killed(&server)
    });
    all_back(&run);
    let counts = &run.heard.counts;
    assert_eq!((counts.unrecovered, counts.unplaced), (0, SUBSCRIPTIONS));
}

#[test]
fn clients_are_cut_off_again_and_again() {
    let server = Server::new(Manner::Right, right);
    let run = run(Plan {
        publishing: None,
        connect_rate: Some(2000.0),
        kill: Some(Kill {
            after: Duration::from_millis(50),
            every: Some(Duration::from_millis(50)),
        }),
        settle: Duration::from_secs(30),
        ..plan(&server)
    });
    let (cut, back) = run.cut_and_back();
    // A thread that has no CPU for long is told that all is over before it has done all of it.
    let times = run.heard.outages.len() as u64;
    assert!((1..=4).contains(&times), "{times}");
    assert!((8..=8 * times).contains(&cut) && back == cut, "{cut} {back}");
    assert_eq!(run.heard.back.count(), cut);
}

#[test]
fn plans_without_sense_are_errors() {
    let server = Server::new(Manner::Keeps, right);
    let span = Duration::from_millis;
    for (after, every) in [(250, None), (0, Some(0)), (1, Some(1))] {
        let kill = Kill {
            after: span(after),
            every: every.map(span),
        };
        // The last one would be cut off more often than is kept count of.
        let duration = if after == 1 { span(2000) } else { span(250) };
        let plan = Plan {
            kill: Some(kill),
            duration,
            ..plan(&server)
        };
        let outcome = Session::new(plan);
        assert!(matches!(outcome, Err(PushError::Plan { .. })), "{kill:?}");
    }
}

#[test]
fn reports_hold_what_became_of_it() {
    let server = Server::new(Manner::Keeps, right);
    let run = run(killed(&server));
    let page = text::run(&run, "ws://there", &[], Style::Plain);
    for expect in [
        "a reconnected client",
        "by recovery",
        "8 clients at once; all reconnected in ",
        "16 subscriptions, with ",
    ] {
        assert!(page.contains(expect), "expected `{expect}` in:\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    let document: Value = serde_json::from_str(&json::run(&run, "ws://there", &[])).unwrap();
    let recovery = &document["recovery"];
    assert_eq!(recovery["clients_back"], 8, "{recovery:#}");
    assert_eq!(recovery["subscriptions_recovered"], 16, "{recovery:#}");
    assert_eq!(recovery["times"][0]["clients_cut"], 8, "{recovery:#}");
    assert!(recovery["all_back_s"].as_f64() > Some(0.0), "{recovery:#}");
    assert_eq!(document["plan"]["kill_after_s"], 0.05);
}
