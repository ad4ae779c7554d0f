//! The search for the highest rate, at a server that loses something beyond a known one.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_load::push::knee::Break;
use ringmain_load::push::report::{json, text};
use ringmain_load::push::{Plan, PushError, Session};
use ringmain_load::report::text::Style;
use serde_json::Value;

use crate::push::plan;
use crate::push::server::{Manner, Server, right};

/// Of each run's publications the server delivers so many: what 480 a second are in a quarter of a second.
const MOST: u64 = 120;

#[test]
fn the_highest_rate_is_found_with_clients_that_connect_once() {
    // A publication says its run behind six bytes, and each has four clients.
    let mut runs: BTreeMap<String, u64> = BTreeMap::new();
    let server = Server::new(Manner::Right, move |case| {
        let seen = runs.entry(case.data[6..14].to_owned()).or_default();
        *seen += 1;
        if *seen > 4 * MOST { vec![] } else { right(case) }
    });
    let plan = Plan {
        rate: 100.0,
        settle: Duration::from_secs(1),
        ..plan(&server)
    };
    let session = Session::new(plan).unwrap();
    let mut tried = Vec::new();
    let searched = session.search(&[], None, &mut |_| {}, &mut |step, outcome| {
        tried.push((step.rate, outcome.broke.clone()));
    });
    let searched = searched.unwrap_or_else(|error| panic!("{error}"));
    let held = searched.found.held.unwrap();
    assert!((470.0..=480.0).contains(&held), "{held}: {tried:?}");
    let (broke, why) = searched.found.broke.clone().unwrap();
    assert!(
        broke > 480.0 && matches!(why[..], [Break::Lost(1..)]),
        "{broke} {why:?}"
    );
    assert_eq!(searched.confirmed.len(), 3);
    for run in &searched.confirmed {
        assert_eq!((run.plan.rate, run.lost()), (held, 0));
        assert_eq!(run.heard.counts.delivered, run.totals.expected);
        assert_eq!((run.heard.ready.count(), run.heard.counts.doubled), (8, 0));
    }
    assert_eq!(server.sockets(), 8, "clients stay for all steps");

    let page = text::search(&searched, "ws://there", &[], Style::Plain);
    assert!(
        page.contains("highest rate: ") && page.contains("ws://there"),
        "{page}"
    );
    let document: Value = serde_json::from_str(&json::search(&searched, "ws://there", &[])).unwrap();
    assert_eq!(document["kind"], "push-search");
    assert_eq!(document["search"]["held_per_s"], held);
    assert_eq!(document["run"]["deliveries"]["lost"], 0);
}

#[test]
fn without_publications_there_is_nothing_to_search() {
    let server = Server::new(Manner::Right, right);
    let plan = Plan {
        publishing: None,
        ..plan(&server)
    };
    let outcome = Session::new(plan)
        .unwrap()
        .search(&[], None, &mut |_| {}, &mut |_, _| {});
    assert!(matches!(outcome, Err(PushError::Plan { .. })), "{outcome:?}");
}
