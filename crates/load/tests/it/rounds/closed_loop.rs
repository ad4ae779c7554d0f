//! A closed loop does exactly what was asked for: so many requests, on so many connections, so many in flight.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Plan};
use ringmain_load::traffic::{Expect, FlowDraft, Request, StepDraft, Traffic};

use crate::rounds::support::{Server, answer, get, plan, round};

on_every_backend!(
    exactly_so_many_requests,
    fewer_requests_than_threads,
    for_so_long,
    a_warm_up_does_not_count,
    statuses_and_checks,
    connections_are_made_anew_after_so_many_answers,
    connections_that_the_server_ends,
    answers_that_end_with_the_connection,
    pipelining_keeps_window_and_order,
    answers_that_end_a_pipeline,
);

fn exactly_so_many_requests(engine: Choice) {
    for threads in [1, 3] {
        let server = Server::new(|peer| peer.serve());
        let plan = Plan {
            connections: 5,
            threads,
            extent: Extent::Count(1000),
            ..plan(&server, engine)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.sent, counts.answered, counts.unfinished), (1000, 1000, 0));
        assert_eq!(counts.statuses, BTreeMap::from([(200, 1000)]));
        assert_eq!((counts.unexpected, counts.failed(), counts.connects), (0, 0, 5));
        assert_eq!((counts.late, counts.dropped), (0, 0), "no schedule to miss");
        let seen = &server.traffic;
        assert_eq!(counts.bytes_sent, seen.received.load(Ordering::SeqCst));
        assert_eq!(counts.bytes_received, seen.sent.load(Ordering::SeqCst));
        assert_eq!(server.connections(5), 5);
        server.finish();
    }
}

fn fewer_requests_than_threads(engine: Choice) {
    let server = Server::new(|peer| peer.serve());
    let plan = Plan {
        connections: 3,
        threads: 3,
        extent: Extent::Count(2),
        ..plan(&server, engine)
    };
    assert_eq!(round(plan, get()).figures.counts.answered, 2);
    server.finish();
}

fn for_so_long(engine: Choice) {
    let server = Server::new(|peer| peer.serve());
    let plan = Plan {
        connections: 4,
        threads: 2,
        extent: Extent::Time(Duration::from_millis(95)),
        ..plan(&server, engine)
    };
    let round = round(plan, get());
    assert_eq!(round.series.len(), 10, "nine whole intervals and a half");
    assert_eq!(round.series[9].length, Duration::from_millis(5));
    // Each connection had one on its way at the end.
    assert!(round.figures.counts.unfinished <= 4);
    server.finish();
}

fn a_warm_up_does_not_count(engine: Choice) {
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    // The first hundred are warm-up or not; whoever counts them all counts too many.
    let server = Server::new(move |peer| {
        while peer.request().is_some() {
            count.fetch_add(1, Ordering::SeqCst);
            peer.answer(200, "ok");
        }
    });
    let plan = Plan {
        warmup: Duration::from_millis(30),
        extent: Extent::Count(50),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (50, 0));
    assert_eq!(counts.connects, 2, "those are made before it");
    assert!(served.load(Ordering::SeqCst) >= 50);
    server.finish();
}

fn statuses_and_checks(engine: Choice) {
    let server = Server::new(|peer| {
        for status in [200, 204, 404, 500].into_iter().cycle() {
            if peer.request().is_none() {
                return;
            }
            match status {
                204 => peer.send("HTTP/1.1 204 No Content\r\n\r\n"),
                status => peer.answer(status, "text"),
            }
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(40),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    let expected = [(200, 10), (204, 10), (404, 10), (500, 10)];
    assert_eq!(counts.statuses, BTreeMap::from(expected));
    assert_eq!(
        (counts.unexpected, counts.http_errors(), counts.failed()),
        (20, 20, 0)
    );
    server.finish();
}

fn connections_are_made_anew_after_so_many_answers(engine: Choice) {
    for pipeline in [1, 2] {
        let server = Server::new(|peer| {
            for _ in 0..5 {
                if peer.request().is_none() {
                    return;
                }
                peer.answer(200, "ok");
            }
            assert!(peer.request().is_none(), "not more");
        });
        let plan = Plan {
            pipeline,
            reconnect_after: Some(5),
            extent: Extent::Count(100),
            ..plan(&server, engine)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.sent, counts.answered, counts.failed()), (100, 100, 0));
        // At the end one may have had fewer, or none.
        assert!(
            (20..=22).contains(&counts.connects),
            "{} connections",
            counts.connects
        );
        server.finish();
    }
}

fn connections_that_the_server_ends(engine: Choice) {
    let server = Server::new(|peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok");
        }
    });
    let plan = Plan {
        extent: Extent::Count(30),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.sent, counts.answered, counts.failed()), (30, 30, 0));
    assert!(
        (30..=31).contains(&counts.connects),
        "{} connections",
        counts.connects
    );
    server.finish();
}

fn answers_that_end_with_the_connection(engine: Choice) {
    let server = Server::new(|peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\n\r\nas long as it lasts");
        }
    });
    let plan = Plan {
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (20, 0, 0));
    server.finish();
}

/// One flow for each status, so that an answer that was taken for another request's is not the expected one.
fn statuses_by_target() -> Traffic {
    let flow = |status: u16| {
        let mut request = Request::get(&format!("/{status}/{{{{seq}}}}"), "test");
        request.expect = Expect {
            statuses: vec![status..=status],
            checks: Vec::new(),
        };
        let step = StepDraft {
            name: String::new(),
            request,
            pause: None,
            captures: Vec::new(),
        };
        FlowDraft {
            name: status.to_string(),
            weight: 1,
            steps: vec![step],
        }
    };
    Traffic::mix(&[200, 201, 404, 503].map(flow)).expect("flows")
}

fn pipelining_keeps_window_and_order(engine: Choice) {
    const WINDOW: usize = 8;
    let server = Server::new(|peer| {
        let (mut received, mut answered, mut number) = (0, 0, None);
        let mut waiting = std::collections::VecDeque::new();
        while let Some(asked) = peer.request() {
            let mut next = Some(asked);
            while let Some(asked) = next {
                let (status, sequence) = asked.target[1..].split_once('/').expect("a status");
                let sequence: u64 = sequence.parse().expect("a number");
                assert!(number.is_none_or(|last| last < sequence), "in order");
                number = Some(sequence);
                waiting.push_back(status.parse().expect("a status"));
                received += 1;
                next = peer.waiting_request();
            }
            assert!(
                received - answered <= WINDOW,
                "{received} received, {answered} answered"
            );
            // The window is filled before the first answer.
            if answered == 0 && received < WINDOW {
                continue;
            }
            // One answer, then all, in turn: answers come one by one and many in a piece.
            let count = if answered % 2 == 0 { 1 } else { waiting.len() };
            let answers: String = waiting.drain(..count).map(|status| answer(status, "a")).collect();
            answered += count;
            peer.send(answers);
        }
    });
    let plan = Plan {
        pipeline: WINDOW as u32,
        extent: Extent::Count(2_000),
        ..plan(&server, engine)
    };
    let counts = round(plan, statuses_by_target()).figures.counts;
    assert_eq!(counts.answered, 2_000);
    assert_eq!(
        (counts.unexpected, counts.failed()),
        (0, 0),
        "each answer is its request's"
    );
    server.finish();
}

fn answers_that_end_a_pipeline(engine: Choice) {
    let server = Server::new(|peer| {
        for _ in 0..4 {
            if peer.request().is_none() {
                return;
            }
        }
        let last = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok";
        peer.send(answer(200, "ok") + last);
        peer.wait();
    });
    let plan = Plan {
        connections: 1,
        pipeline: 4,
        extent: Extent::Count(40),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    // The first answer makes room for a fifth request.
    assert_eq!((counts.answered, counts.failed(), counts.unfinished), (16, 24, 0));
    assert_eq!(
        counts.broken,
        BTreeMap::from([("closed before its response", 24)])
    );
    server.finish();
}
