//! Whole fan-outs over real sockets, against servers that err on purpose: every delivery is counted by what became of it.
#![allow(
    clippy::disallowed_methods,
    reason = "servers in a test are real threads and sockets"
)]

mod broker;
mod kills;
mod nodes;
mod search;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::push::report::{Run, json, text};
use ringmain_load::push::{Form, Format, Node, Plan, Publishing, PushError, Session, Transport};
use ringmain_load::report::text::Style;
use serde_json::Value;

use server::{Fate, Manner, Server, right};

/// The WebSocket endpoint of a server.
pub(crate) fn node(server: &Server) -> Node {
    Node {
        name: format!("ws://{}", server.addr),
        target: server.addr.into(),
        host: server.addr.to_string(),
        path: "/connection/websocket".into(),
        tls: None,
    }
}

/// A hundred publications, in turn to four channels, to eight clients with two channels each.
fn plan(server: &Server) -> Plan {
    Plan {
        nodes: vec![node(server)],
        transport: Transport::WebSocket(Format::Json),
        token: None,
        sources: Vec::new(),
        clients: 8,
        channels: 4,
        each: 2,
        prefix: "test:".into(),
        publishing: Some(Publishing {
            target: server.addr.into(),
            tls: None,
            host: server.addr.to_string(),
            path: "/api/publish".into(),
            api_key: Some("K".into()),
            form: Form::Api,
            connections: 1,
        }),
        broker: None,
        rate: 400.0,
        common: None,
        size: 200,
        conflated: None,
        slow: 0.0,
        slow_pace: 0.25,
        connect_rate: None,
        kill: None,
        kill_server: None,
        reconnect: Duration::from_secs(1),
        listening: None,
        timeout: Duration::from_secs(30),
        connect_timeout: Duration::from_secs(30),
        warmup: Duration::ZERO,
        duration: Duration::from_millis(250),
        settle: Duration::from_secs(2),
        threads: 2,
        cpus: Vec::new(),
        engine: Choice::Auto,
    }
}

/// Deliveries of [`plan`]: each channel has four clients.
pub(crate) const ALL: u64 = 100 * 4;

#[track_caller]
fn run(plan: Plan) -> Run {
    let run = Session::new(plan).and_then(|session| session.run(None, &mut |_| {}));
    run.unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn fails(plan: Plan, expect: &str) {
    let error = Session::new(plan)
        .and_then(|session| session.run(None, &mut |_| {}))
        .unwrap_err();
    assert!(
        error.to_string().contains(expect),
        "expected `{expect}` in: {error}"
    );
}

/// Counts of a run that a right server would have.
#[track_caller]
fn all_right(run: &Run, deliveries: u64) {
    let counts = &run.heard.counts;
    assert_eq!(
        (run.totals.expected, counts.delivered, run.lost()),
        (deliveries, deliveries, 0)
    );
    assert_eq!((counts.doubled, counts.reordered, counts.old), (0, 0, 0));
    assert_eq!(
        (counts.misdelivered, counts.changed, counts.behind_at_end),
        (0, 0, 0)
    );
    assert_eq!((counts.disconnects.total(), run.totals.incomplete), (0, 0));
    assert_eq!(run.heard.fast.count(), deliveries);
    assert_eq!(
        (run.published.accepted, run.published.due),
        (run.published.due, run.published.due)
    );
}

#[test]
fn a_right_server_is_told_as_one_on_each_back_end() {
    for engine in [Choice::Auto, Choice::Epoll] {
        let server = Server::new(Manner::Right, right);
        let run = run(Plan {
            engine,
            ..plan(&server)
        });
        all_right(&run, ALL);
        assert_eq!(run.totals.last.count(), 100);
        assert!(run.totals.last.max() <= run.heard.fast.max() + Duration::from_micros(1));
        assert_eq!((run.heard.ready.count(), run.heard.connect.count()), (8, 8));
    }
}

/// A hundred publications that are due within a tenth of a millisecond, in requests of up to 64.
fn batched(server: &Server) -> Plan {
    let mut plan = Plan {
        rate: 1e6,
        duration: Duration::from_micros(100),
        ..plan(server)
    };
    let publishing = plan.publishing.as_mut().expect("it publishes");
    publishing.path = "/api/batch".into();
    publishing.form = Form::Batch(64);
    plan
}

#[test]
fn what_is_due_together_leaves_in_one_request() {
    let server = Server::new(Manner::Right, right);
    let run = run(batched(&server));
    all_right(&run, ALL);
    // One tries, two hold a hundred; more if the clock stood between them.
    assert!((3..100).contains(&server.requests()), "{}", server.requests());
}

#[test]
fn each_publication_of_a_request_has_an_answer_of_its_own() {
    let server = Server::new(Manner::UnknownChannel, right);
    let run = run(batched(&server));
    assert_eq!((run.published.due, run.published.accepted), (100, 75));
    assert_eq!(run.published.refused.total(), 25);
    assert_eq!((run.totals.expected, run.lost()), (75 * 4, 0));
}

#[test]
fn what_comes_before_the_time_that_counts_does_not_count() {
    let server = Server::new(Manner::Right, right);
    let run = run(Plan {
        warmup: Duration::from_millis(100),
        ..plan(&server)
    });
    all_right(&run, ALL);
}

#[test]
fn messages_in_pieces_and_pings_are_understood() {
    let server = Server::new(Manner::Pieces, right);
    all_right(&run(plan(&server)), ALL);
    let server = Server::new(Manner::Pings, right);
    let run = run(plan(&server));
    all_right(&run, ALL);
    assert_eq!((run.heard.counts.pings, server.pongs()), (8, 8));
}

#[test]
fn clients_that_only_listen_hear_events() {
    let server = Server::new(Manner::Right, |case| {
        let (channel, data) = (case.channel, case.data);
        let event = format!("data: {{\"channel\":\"{channel}\",\"pub\":{{\"data\":{data}}}}}\n\n");
        // Cut where a reader has to put it together.
        let (first, last) = event.as_bytes().split_at(event.len() / 3);
        vec![Fate::Raw(first.to_vec()), Fate::Raw(last.to_vec())]
    });
    let plan = Plan {
        transport: Transport::Sse,
        nodes: vec![Node {
            path: "/connection/uni_sse".into(),
            ..node(&server)
        }],
        ..plan(&server)
    };
    all_right(&run(plan), ALL);
}

#[test]
fn a_common_channel_has_all_clients_and_figures_of_its_own() {
    let server = Server::new(Manner::Right, right);
    let run = run(Plan {
        common: Some(40.0),
        ..plan(&server)
    });
    all_right(&run, ALL + 10 * 8);
    assert_eq!(
        (run.totals.last.count(), run.totals.last_common.count()),
        (100, 10)
    );
}

#[test]
fn what_is_lost_is_counted_once_for_each_client() {
    let server = Server::new(Manner::Right, |case| {
        // To two of the channel's four clients.
        if case.number % 10 == 5 && case.client < 2 {
            vec![]
        } else {
            right(case)
        }
    });
    let run = run(plan(&server));
    let lost = 10 * 2;
    assert_eq!(
        (run.totals.expected, run.heard.counts.delivered, run.lost()),
        (ALL, ALL - lost, lost)
    );
    assert_eq!((run.totals.incomplete, run.totals.last.count()), (10, 90));
    assert!(
        run.remarks(&[])
            .iter()
            .any(|remark| remark.message.contains("20 deliveries were lost"))
    );
}

#[test]
fn what_is_doubled_is_counted_apart() {
    let server = Server::new(Manner::Right, |case| {
        if case.number % 10 == 5 {
            [right(case), right(case)].concat()
        } else {
            right(case)
        }
    });
    let run = run(plan(&server));
    assert_eq!(
        (run.heard.counts.delivered, run.heard.counts.doubled, run.lost()),
        (ALL, 10 * 4, 0)
    );
    assert_eq!(run.heard.counts.reordered, 0);
}

#[test]
fn what_comes_out_of_order_is_counted_and_not_lost() {
    // Of channel 0's 25 publications the third and the fourth change places, for each of its clients.
    let mut held: Vec<Vec<Fate>> = vec![Vec::new(); 4];
    let server = Server::new(Manner::Right, move |case| match case.number {
        8 => {
            held[case.client] = right(case);
            vec![]
        }
        12 => [right(case), std::mem::take(&mut held[case.client])].concat(),
        _ => right(case),
    });
    let run = run(plan(&server));
    let counts = &run.heard.counts;
    assert_eq!(
        (counts.delivered, counts.reordered, counts.doubled, run.lost()),
        (ALL, 4, 0, 0)
    );
}

#[test]
fn what_nobody_asked_for_and_what_is_spoilt_is_counted() {
    let server = Server::new(Manner::Right, |case| match case.number {
        // Channel 0, said to be channel 3, which its clients do not have. The channel stands behind 14 bytes of data.
        4 => {
            let (message, at) = (
                case.message(),
                case.message().find(case.data).expect("the data") + 14,
            );
            vec![Fate::Message(
                [&message[..at], "00000003", &message[at + 8..]].concat(),
            )]
        }
        8 => vec![Fate::Message(case.message().replace("xx\"", "xy "))],
        _ => right(case),
    });
    let run = run(plan(&server));
    let counts = &run.heard.counts;
    assert_eq!((counts.misdelivered, counts.changed), (4, 4), "{counts:?}");
    assert_eq!((run.lost(), counts.doubled, counts.old), (8, 0, 0), "{counts:?}");
}

#[test]
fn clients_that_are_cut_off_are_told_by_code_and_come_back() {
    let server = Server::new(Manner::Right, |case| match (case.number, case.client) {
        (8, 0) => vec![Fate::Close(3008, "slow")],
        (8, 1) => vec![Fate::Cut],
        (8, 2) => vec![Fate::Close(3507, "banned")],
        _ => right(case),
    });
    let run = run(Plan {
        duration: Duration::from_millis(2500),
        rate: 40.0,
        ..plan(&server)
    });
    let counts = &run.heard.counts;
    let ends: Vec<(&str, u64)> = counts.disconnects.iter().collect();
    assert_eq!(ends[..2], [("3008 slow", 1), ("3507 banned", 1)], "{ends:?}");
    assert!(ends.len() == 3 && ends[2].1 == 1, "{ends:?}");
    assert_eq!((counts.reconnects, counts.gone), (2, 1));
    assert!(run.lost() > 0);
}

#[test]
fn conflated_channels_lose_nothing_and_say_how_far_they_are_behind() {
    // Each channel has 25 publications, of which every fifth is sent; the last one is among them.
    let server = Server::new(Manner::Right, |case| {
        if case.number / 4 % 5 == 4 {
            right(case)
        } else {
            vec![]
        }
    });
    let plan = Plan {
        conflated: Some(Duration::from_millis(50)),
        ..plan(&server)
    };
    let run = run(plan);
    assert_eq!(
        (run.lost(), run.missing(), run.heard.counts.delivered),
        (0, ALL * 4 / 5, ALL / 5)
    );
    assert_eq!(run.heard.counts.behind_at_end, 0);
    assert!(run.heard.fresh.count() > 0);
    // By the calendar of publications, which lasts for 250 ms however slow the machine is.
    assert!(
        run.heard.fresh.max() <= Duration::from_millis(250),
        "{:?}",
        run.heard.fresh.max()
    );
    assert_eq!(run.totals.last.count(), 0);
}

#[test]
fn a_last_value_that_never_comes_is_told() {
    let server = Server::new(
        Manner::Right,
        |case| if case.number < 96 { right(case) } else { vec![] },
    );
    let plan = Plan {
        conflated: Some(Duration::from_millis(10)),
        settle: Duration::from_millis(200),
        ..plan(&server)
    };
    let run = run(plan);
    assert_eq!(run.heard.counts.behind_at_end, 16);
    assert!(
        run.remarks(&[])
            .iter()
            .any(|remark| remark.message.contains("did not receive the last value"))
    );
}

#[test]
fn slow_clients_have_figures_of_their_own() {
    let server = Server::new(Manner::Right, right);
    let run = run(Plan {
        slow: 1.0,
        ..plan(&server)
    });
    assert_eq!(
        (
            run.totals.slow_clients,
            run.totals.expected,
            run.totals.expected_slow
        ),
        (8, 0, ALL)
    );
    assert_eq!((run.heard.counts.delivered, run.heard.fast.count()), (0, 0));
    assert_eq!(run.heard.counts.delivered_slow, run.heard.slow.count());
}

#[test]
fn without_publications_clients_only_stand() {
    let server = Server::new(Manner::Pings, right);
    let run = run(Plan {
        publishing: None,
        ..plan(&server)
    });
    assert_eq!(
        (run.published.due, run.totals.expected, run.delivered()),
        (0, 0, 0)
    );
    assert_eq!(run.heard.counts.pings, 8);
}

#[test]
fn a_server_that_does_not_want_to_is_an_error_that_says_why() {
    let cases = [
        (
            Manner::NoConnections,
            "3501 bad request; check that anonymous clients may connect",
        ),
        (Manner::NoSubscriptions, "refused to subscribe to test:"),
        (
            Manner::NoEndpoint,
            "/connection/websocket returns 404 (nothing here); no such endpoint",
        ),
        (
            Manner::UnknownChannel,
            "error 102 unknown channel; check that the namespace",
        ),
    ];
    for (manner, expect) in cases {
        let server = Server::new(manner, right);
        fails(plan(&server), expect);
    }
    let server = Server::new(Manner::NoKey, right);
    let mut wrong = plan(&server);
    wrong.publishing.as_mut().unwrap().api_key = Some("wrong".into());
    fails(
        wrong,
        "401, expected the API key in X-API-Key; give its key by --api-key",
    );
}

#[test]
fn a_client_that_is_told_to_come_later_does() {
    let server = Server::new(Manner::Busy, right);
    let run = run(plan(&server));
    all_right(&run, ALL);
    assert_eq!(run.heard.counts.connect_errors.values().sum::<u64>(), 1);
}

#[test]
fn nobody_there_and_plans_without_sense_are_errors() {
    let server = Server::new(Manner::Right, right);
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    fails(
        Plan {
            nodes: vec![Node {
                target: free.into(),
                ..node(&server)
            }],
            ..plan(&server)
        },
        "0 of 8 clients connected",
    );
    let wrong = [
        Plan {
            clients: 0,
            ..plan(&server)
        },
        Plan {
            each: 5,
            ..plan(&server)
        },
        Plan {
            size: 47,
            ..plan(&server)
        },
        Plan {
            threads: 9,
            ..plan(&server)
        },
        Plan {
            rate: f64::NAN,
            ..plan(&server)
        },
        Plan {
            prefix: "a\"".into(),
            ..plan(&server)
        },
        Plan {
            slow: 1.5,
            ..plan(&server)
        },
        Plan {
            duration: Duration::from_secs(1_000_000),
            ..plan(&server)
        },
    ];
    for plan in wrong {
        assert!(matches!(Session::new(plan), Err(PushError::Plan { .. })));
    }
}

#[test]
fn a_run_that_is_stopped_ends() {
    let server = Server::new(Manner::Right, right);
    let session = Session::new(Plan {
        duration: Duration::from_secs(3600),
        rate: 10.0,
        ..plan(&server)
    })
    .unwrap();
    let (stop, seen) = (session.stop(), Arc::new(AtomicUsize::new(0)));
    let outcome = session.run(None, &mut |_| {
        seen.fetch_add(1, Ordering::Relaxed);
        stop.store(true, Ordering::Relaxed);
    });
    assert!(matches!(outcome, Err(PushError::Stopped)), "{outcome:?}");
    assert!(seen.load(Ordering::Relaxed) > 0);
}

#[test]
fn reports_hold_what_was_counted() {
    let server = Server::new(Manner::Right, right);
    let run = run(plan(&server));
    let remarks = run.remarks(&[0]);
    let page = text::run(&run, "ws://there", &remarks, Style::Plain);
    for expect in [
        "ws://there",
        "8 over WebSocket, JSON",
        "expected",
        "400",
        "lost",
        "CPU 0",
    ] {
        assert!(page.contains(expect), "expected `{expect}` in:\n{page}");
    }
    assert!(page.lines().all(|line| line.chars().count() <= 100), "{page}");
    let document: Value = serde_json::from_str(&json::run(&run, "ws://there", &remarks)).unwrap();
    assert_eq!(
        (&document["format"], &document["kind"]),
        (&"ringmain-bench".into(), &"push".into())
    );
    assert_eq!(document["deliveries"]["expected"], 400);
    assert_eq!(document["latency"]["count"], 400);
    assert!(document["server"].is_null());
}
