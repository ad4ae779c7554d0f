//! Several nodes: clients are spread over them, fail over to the next one, and what they receive there is compared.

use std::time::Duration;

use ringmain_load::push::report::{Run, json, text};
use ringmain_load::push::{KillServer, Plan, PushError, Session};
use ringmain_load::report::text::Style;
use serde_json::Value;

use crate::push::server::{Case, Fate, Manner, Server, right};
use crate::push::{ALL, all_right, node, plan, run};

/// Subscriptions of [`plan`].
const SUBSCRIPTIONS: u64 = 8 * 2;

/// The same on two nodes.
fn spread(nodes: [&Server; 2]) -> Plan {
    Plan {
        nodes: nodes.map(node).into(),
        settle: Duration::from_secs(30),
        ..plan(nodes[0])
    }
}

/// Ends the sessions of all clients before the gate of the server.
fn cuts(case: &Case<'_>) -> Vec<Fate> {
    match case.number {
        36..40 => vec![Fate::Message(case.message()), Fate::Cut],
        _ => right(case),
    }
}

/// Clients per node at the start and at the end, and sessions that ended.
fn counts(run: &Run) -> Vec<[u64; 3]> {
    let nodes = run.heard.nodes.iter();
    nodes.map(|node| [node.joined, node.at_end, node.ended]).collect()
}

#[test]
fn clients_are_spread_and_agree_on_positions() {
    let one = Server::new(Manner::Right, right);
    let run = run(spread([&one, &one.another()]));
    all_right(&run, ALL);
    assert_eq!(counts(&run), [[4, 4, 0], [4, 4, 0]]);
    // Without positions there is nothing to compare, and the report notes it.
    assert_eq!((run.heard.counts.compared, run.heard.counts.conflicting), (0, 0));
    let remarks = run.remarks(&[]);
    assert!(
        remarks
            .iter()
            .any(|remark| remark.message.contains("nothing was compared")),
        "{remarks:?}"
    );
}

#[test]
fn clients_fail_over_to_the_next_node_and_recover_there() {
    let one = Server::new(Manner::Keeps, cuts);
    let run = run(spread([&one, &one.another()]));
    assert_eq!(counts(&run), [[4, 4, 4], [4, 4, 4]]);
    let found = &run.heard.counts;
    assert_eq!((run.totals.expected, found.delivered, run.lost()), (ALL, ALL, 0));
    assert_eq!(
        (found.recoveries, run.recovery_attempts(), found.falsely_recovered),
        (SUBSCRIPTIONS, SUBSCRIPTIONS, 0)
    );
    assert!(found.compared > 0 && found.conflicting == 0, "{found:?}");
    assert_eq!((found.doubled, found.reordered, found.not_compared), (0, 0, 0));
}

#[test]
fn recoveries_that_leave_out_publications_are_false() {
    let one = Server::new(Manner::Lies, cuts);
    let run = run(Plan {
        // Lost publications never arrive, so the run ends by it.
        settle: Duration::from_secs(2),
        ..spread([&one, &one.another()])
    });
    let found = &run.heard.counts;
    assert_eq!(
        (found.recoveries, found.falsely_recovered, run.lost()),
        (SUBSCRIPTIONS, SUBSCRIPTIONS, SUBSCRIPTIONS)
    );
    let page = text::run(&run, "two nodes", &run.remarks(&[]), Style::Plain);
    for expect in [
        "falsely recovered",
        "16 of 16 subscriptions, with ",
        "16 of them (recovered: true) lack a publication",
        "4 clients, 4 at the end, 4 sessions ended",
    ] {
        let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains(expect), "expected `{expect}` in:\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    let document: Value = serde_json::from_str(&json::run(&run, "two nodes", &[])).unwrap();
    assert_eq!(document["deliveries"]["falsely_recovered"], 16, "{document:#}");
    assert_eq!(document["recovery"]["subscriptions_resumed"], 16, "{document:#}");
    assert_eq!(document["nodes"][1]["sessions_ended"], 4, "{document:#}");
}

#[test]
fn different_publications_under_one_position_are_conflicts() {
    // The first client of each channel receives each publication under the next one's offset.
    let one = Server::new(Manner::Keeps, |case| {
        let offset = case.offset.map(|offset| offset + usize::from(case.client == 0));
        let message = Case {
            offset,
            ..case.clone()
        }
        .message();
        match case.number {
            36..40 => vec![Fate::Message(message), Fate::Cut],
            _ => vec![Fate::Message(message)],
        }
    });
    let run = run(Plan {
        // A client that is ahead by an offset does not receive what it missed.
        settle: Duration::from_secs(2),
        ..spread([&one, &one.another()])
    });
    let found = &run.heard.counts;
    assert!(found.conflicting > 0 && found.compared > 0, "{found:?}");
    let remarks = run.remarks(&[]);
    assert!(
        remarks.iter().any(|remark| remark
            .message
            .contains("were delivered with different publications")),
        "{remarks:?}"
    );
}

#[test]
fn a_node_that_is_down_at_the_start_is_skipped() {
    let one = Server::new(Manner::Right, right);
    let down = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mut plan = spread([&one, &one]);
    plan.nodes[1].target = down.local_addr().unwrap().into();
    drop(down);
    let run = run(plan);
    all_right(&run, ALL);
    assert_eq!(counts(&run), [[8, 8, 0]]);
    assert_eq!(run.heard.counts.connect_errors.get("refused"), Some(&4));
}

#[test]
fn processes_that_cannot_be_killed_are_errors() {
    let server = Server::new(Manner::Right, right);
    let seconds = Duration::from_secs;
    let check = |pid: u32, after: Duration, expect: &str| {
        let outcome = Session::new(Plan {
            kill_server: Some(KillServer { pid, after }),
            ..plan(&server)
        });
        let error = outcome.unwrap_err();
        assert!(matches!(error, PushError::Plan { .. }), "{error}");
        assert!(
            error.to_string().contains(expect),
            "expected `{expect}` in: {error}"
        );
    };
    check(
        u32::MAX,
        Duration::ZERO,
        "kill-server: expected the number of a running process, found no process 4294967295",
    );
    check(
        1,
        seconds(1),
        "expected a time before the end of the duration, 250ms, found 1s",
    );
    check(std::process::id(), Duration::ZERO, "which is this program");
}
