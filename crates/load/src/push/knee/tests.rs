//! Searches at a made-up server, and what breaks in a run.

use std::time::Duration;

use super::{Break, Search, Searched, outcome};
use crate::limits;
use crate::push::figures::{Heard, Published};
use crate::push::fixtures;
use crate::push::plan::Plan;
use crate::push::report::{Effort, Joined, Run, Totals};

/// A second of publications at these rates to ten clients, all as it should be.
fn run([rate, common]: [f64; 2]) -> Run {
    let plan = Plan {
        rate,
        common: Some(common),
        ..fixtures::plan()
    };
    let published = (rate + common).ceil() as u64;
    let mut heard = Heard::default();
    heard.counts.delivered = 10 * published;
    for _ in 0..100 {
        heard.fast.record(2_000_000);
    }
    Run {
        plan,
        engine: String::new(),
        joined: Joined::default(),
        published: Published {
            due: published,
            accepted: published,
            ..Published::default()
        },
        heard,
        totals: Totals {
            expected: 10 * published,
            ..Totals::default()
        },
        killed_after: None,
        efforts: vec![
            Effort {
                cpu: Duration::from_millis(500),
                waited: None,
            };
            2
        ],
        server: None,
    }
}

/// A server that loses something above so many publications a second.
fn search(start: [f64; 2], most: f64) -> (Searched, Vec<[f64; 2]>) {
    let mut search = Search::new(start, Duration::from_secs(2));
    let mut tried = Vec::new();
    while let Some((step, rates)) = search.next() {
        assert!((rates.iter().sum::<f64>() - step.rate).abs() < 1e-6);
        tried.push(rates);
        let mut run = run(rates);
        run.heard.counts.delivered -= u64::from(step.rate > most);
        let outcome = outcome(&run, &[]);
        search.feed(step, run, outcome);
    }
    (search.found().expect("it has ended"), tried)
}

#[test]
fn a_known_limit_is_found_and_confirmed() {
    let (searched, tried) = search([300.0, 100.0], 10_000.0);
    let held = searched.found.held.unwrap();
    let (broke, why) = searched.found.broke.clone().unwrap();
    assert!(
        (9_800.0..=10_000.0).contains(&held) && broke > 10_000.0,
        "{held} {broke}"
    );
    assert_eq!(why, [Break::Lost(1)]);
    // Both streams keep their shares.
    assert!(
        tried
            .iter()
            .all(|[rate, common]| (rate / common - 3.0).abs() < 1e-6),
        "{tried:?}"
    );
    let deliveries: Vec<f64> = searched.deliveries_per_second().collect();
    assert!(
        deliveries.len() == 3 && deliveries.iter().all(|each| (each - 10.0 * held).abs() <= 10.0),
        "{deliveries:?}"
    );
    assert!(!searched.is_clients_limit());
}

#[test]
fn no_more_is_tried_than_can_be_kept_account_of() {
    let (searched, tried) = search([1e6, 0.0], f64::INFINITY);
    let most = f64::from(limits::PUBLICATIONS) / 2.0;
    assert_eq!((searched.found.held, searched.found.broke), (Some(most), None));
    assert!(tried.iter().all(|[rate, _]| *rate <= most), "{tried:?}");
}

#[test]
fn what_holds_nothing_has_no_run_to_show() {
    let (searched, _) = search([100.0, 0.0], 0.5);
    assert_eq!((searched.found.held, searched.confirmed.len()), (None, 0));
}

#[test]
fn a_run_breaks_by_what_it_lacks() {
    let says = |change: fn(&mut Run), objectives: &[&str]| -> Vec<String> {
        let mut run = run([100.0, 0.0]);
        change(&mut run);
        let objectives: Vec<_> = objectives.iter().map(|text| text.parse().unwrap()).collect();
        let outcome = outcome(&run, &objectives);
        outcome.broke.iter().map(ToString::to_string).collect()
    };
    let none: [String; 0] = [];
    assert_eq!(says(|_| {}, &["p99<5ms", "errors<=0%", "rps>=1000"]), none);
    assert_eq!(says(|_| {}, &["p99<1ms"]), ["p99<1ms missed: 2.00ms"]);
    assert_eq!(
        says(|_| {}, &["cpu<1s"]),
        ["cpu<1s cannot be judged: the server's CPU was not measured"]
    );
    assert!(says(|_| {}, &["service.p99<1s"])[0].contains("a publication has one latency"));
    assert_eq!(
        says(|run| run.heard.counts.delivered -= 3, &[]),
        ["3 deliveries were lost"]
    );
    assert_eq!(
        says(|run| run.published.accepted -= 2, &[]),
        ["2 publications were not accepted"]
    );
    assert_eq!(
        says(|run| run.heard.counts.disconnects.add("3008 slow".into()), &[]),
        ["1 clients were cut off"]
    );
    assert_eq!(
        says(|run| run.efforts[1].cpu = Duration::from_millis(950), &[]),
        ["a thread of the client used 95 % of a CPU: the client was the limit"]
    );
    assert_eq!(
        says(|run| run.heard.counts.delivered = 0, &["p99<1ms"]),
        ["nothing was delivered"]
    );
}

#[test]
fn what_the_client_itself_limits_is_told_as_that() {
    let mut search = Search::new([100.0, 0.0], Duration::from_secs(2));
    while let Some((step, rates)) = search.next() {
        let mut run = run(rates);
        if step.rate > 1000.0 {
            run.efforts[0].cpu = Duration::from_millis(990);
        }
        let outcome = outcome(&run, &[]);
        search.feed(step, run, outcome);
    }
    let searched = search.found().unwrap();
    assert!(searched.is_clients_limit() && searched.found.held.is_some());
}

#[test]
fn documents_are_of_the_schema() {
    use crate::push::report::json;
    use crate::report::json::schema::tests::assert_valid;
    use crate::report::{Remark, Severity};
    let remarks = [Remark {
        severity: Severity::Warning,
        message: "it was short".to_owned(),
    }];
    let mut run = run([100.0, 10.0]);
    run.heard.counts.disconnects.add("3008 slow".to_owned());
    assert_valid(&json::run(&run, "ws://a/", &remarks));
    assert_valid(&json::run(&self::run([0.0, 0.0]), "ws://a/", &[]));
    for most in [10_000.0, 0.5] {
        let (searched, _) = search([300.0, 100.0], most);
        assert_valid(&json::search(&searched, "ws://a/", &remarks));
    }
}

#[test]
fn a_run_without_any_delivery_has_failed() {
    let good = run([100.0, 10.0]);
    assert_eq!(good.failure(), None);
    let mut deaf = good.clone();
    deaf.heard.counts.delivered = 0;
    let failure = deaf.failure().expect("it has failed");
    assert!(
        failure.starts_with("none of 1100 deliveries arrived"),
        "{failure}"
    );
    deaf.published.accepted = 0;
    deaf.totals.expected = 0;
    let failure = deaf.failure().expect("it has failed");
    assert!(
        failure.starts_with("none of 110 publications was accepted"),
        "{failure}"
    );
    // Clients that only wait.
    deaf.published.due = 0;
    assert_eq!(deaf.failure(), None);
}
