//! Flows of several steps, long requests, echoed messages, other sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Choice;
use ringmain_load::plan::{Extent, Pace, Plan, Protocol};
use ringmain_load::traffic::{Body, Capture, FlowDraft, Request, Source, StepDraft, Traffic};

use crate::rounds::support::{Peer, Server, answer, get, plan, round};

on_every_backend!(
    captured_values_go_on,
    a_flow_goes_on_over_a_new_connection,
    a_flow_ends_with_a_wrong_answer,
    think_time_before_every_step,
    think_time_in_an_open_loop,
    long_uploads,
    many_uploads_in_flight,
    echoed_messages,
    long_echoed_messages,
    wrong_echoes,
    unix_sockets,
);

fn step(target: &str, pause: Option<Duration>) -> StepDraft {
    StepDraft {
        name: String::new(),
        request: Request::get(target, "test"),
        pause,
        captures: Vec::new(),
    }
}

fn flow(steps: Vec<StepDraft>) -> Traffic {
    let flow = FlowDraft {
        name: "flow".into(),
        weight: 1,
        steps,
    };
    Traffic::mix(&[flow]).expect("a flow")
}

/// Logs in and shows twice what it was given.
fn session(pause: Option<Duration>) -> Traffic {
    let mut login = step("/login", None);
    login.captures = vec![Capture {
        name: "token".into(),
        from: Source::Json("/token".into()),
    }];
    let mut show = step("/show/{{value:token}}", pause);
    show.request.headers = vec![("Authorization".into(), "Bearer {{value:token}}".into())];
    flow(vec![login, show.clone(), show])
}

/// Gives each flow a token of its own; returns what to answer. Fails if one shows another one's.
fn give_or_check(given: &AtomicUsize, last: &mut Option<String>, peer: &mut Peer) -> Option<String> {
    let asked = peer.request()?;
    if asked.target == "/login" {
        let token = format!("t{}", given.fetch_add(1, Ordering::SeqCst));
        *last = Some(token.clone());
        return Some(format!("{{\"token\":\"{token}\"}}"));
    }
    let token = asked.target.strip_prefix("/show/").expect("the other step");
    let header = format!("Authorization: Bearer {token}\r\n");
    assert!(asked.head.contains(&header), "{}", asked.head);
    if let Some(last) = last {
        assert_eq!(token, last, "the one that was given last on this connection");
    }
    Some("shown".into())
}

fn captured_values_go_on(engine: Choice) {
    for pause in [None, Some(Duration::from_millis(2))] {
        let given = Arc::new(AtomicUsize::new(0));
        let tokens = Arc::clone(&given);
        let server = Server::new(move |peer| {
            let mut last = None;
            while let Some(body) = give_or_check(&tokens, &mut last, peer) {
                peer.answer(200, &body);
            }
        });
        let plan = Plan {
            connections: 3,
            extent: Extent::Count(90),
            ..plan(&server, engine)
        };
        let counts = round(plan, session(pause)).figures.counts;
        assert_eq!((counts.answered, counts.unexpected, counts.failed()), (90, 0, 0));
        assert_eq!(counts.connects, 3);
        assert!(
            (30..=32).contains(&given.load(Ordering::SeqCst)),
            "three steps each"
        );
        server.finish();
    }
}

fn a_flow_goes_on_over_a_new_connection(engine: Choice) {
    for pause in [None, Some(Duration::from_millis(2))] {
        let given = Arc::new(AtomicUsize::new(0));
        let tokens = Arc::clone(&given);
        let server = Server::new(move |peer| {
            if let Some(body) = give_or_check(&tokens, &mut None, peer) {
                let length = body.len();
                peer.send(format!(
                    "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}"
                ));
            }
        });
        let plan = Plan {
            extent: Extent::Count(30),
            ..plan(&server, engine)
        };
        let counts = round(plan, session(pause)).figures.counts;
        assert_eq!((counts.answered, counts.unexpected, counts.failed()), (30, 0, 0));
        assert!(
            (10..=11).contains(&given.load(Ordering::SeqCst)),
            "three steps each"
        );
        server.finish();
    }
}

fn a_flow_ends_with_a_wrong_answer(engine: Choice) {
    let server = Server::new(|peer| {
        while let Some(asked) = peer.request() {
            assert_eq!(asked.target, "/login", "the next step has nothing to show");
            peer.answer(200, "no token");
        }
    });
    let plan = Plan {
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let counts = round(plan, session(None)).figures.counts;
    assert_eq!((counts.answered, counts.unexpected), (20, 20));
    server.finish();
}

fn think_time_before_every_step(engine: Choice) {
    let server = Server::new(Peer::serve);
    let pause = Some(Duration::from_millis(5));
    let plan = Plan {
        extent: Extent::Count(8),
        ..plan(&server, engine)
    };
    let round = round(plan, flow(vec![step("/a", pause), step("/b", pause)]));
    assert_eq!(round.figures.counts.answered, 8);
    // Two connections, four steps each.
    assert!(round.elapsed >= Duration::from_millis(20), "{:?}", round.elapsed);
    server.finish();
}

fn think_time_in_an_open_loop(engine: Choice) {
    let server = Server::new(Peer::serve);
    let pause = Some(Duration::from_millis(5));
    let plan = Plan {
        pace: Pace::Constant(200.0),
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let figures = round(plan, flow(vec![step("/a", pause), step("/b", pause)])).figures;
    assert_eq!(figures.counts.answered, 20);
    assert!(figures.response.max() >= figures.service.max());
    server.finish();
}

fn upload(body: Vec<u8>) -> Traffic {
    let mut request = Request::get("/", "test");
    request.method = "POST".into();
    request.body = Body::Bytes(body.into());
    Traffic::single(request).expect("a request")
}

/// Bytes whose position can be told from their value.
fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at * 31 + at / 251) as u8).collect()
}

fn long_uploads(engine: Choice) {
    const LENGTH: usize = 5 << 20;
    let server = Server::new(|peer| {
        while let Some(asked) = peer.request() {
            assert_eq!((asked.method.as_str(), asked.body.len()), ("POST", LENGTH));
            assert!(asked.body == pattern(LENGTH), "as it was sent");
            peer.answer(200, "ok");
        }
    });
    let plan = Plan {
        extent: Extent::Count(6),
        ..plan(&server, engine)
    };
    let counts = round(plan, upload(pattern(LENGTH))).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (6, 0));
    assert_eq!(counts.bytes_sent, server.traffic.received.load(Ordering::SeqCst));
    server.finish();
}

/// Together they are more than a connection may leave unsent.
fn many_uploads_in_flight(engine: Choice) {
    const LENGTH: usize = 100_000;
    let server = Server::new(|peer| {
        while let Some(asked) = peer.request() {
            assert!(asked.body == pattern(LENGTH), "as it was sent");
            peer.answer(200, "ok");
        }
    });
    let plan = Plan {
        connections: 1,
        pipeline: 32,
        extent: Extent::Count(64),
        ..plan(&server, engine)
    };
    let counts = round(plan, upload(pattern(LENGTH))).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (64, 0), "{:?}", counts.broken);
    server.finish();
}

fn echo(peer: &mut Peer) {
    loop {
        let bytes = peer.bytes();
        if bytes.is_empty() {
            return;
        }
        peer.send(bytes);
    }
}

fn echoed_messages(engine: Choice) {
    for (bytes, pipeline) in [(1, 1), (15, 3), (100, 1), (1000, 8)] {
        let server = Server::new(echo);
        let plan = Plan {
            protocol: Protocol::Echo { bytes },
            pipeline,
            extent: Extent::Count(200),
            ..plan(&server, engine)
        };
        let counts = round(plan, get()).figures.counts;
        assert_eq!((counts.sent, counts.answered, counts.failed()), (200, 200, 0));
        assert_eq!(counts.statuses, BTreeMap::new());
        let all = 200 * u64::from(bytes);
        assert_eq!((counts.bytes_sent, counts.bytes_received), (all, all));
        server.finish();
    }
}

fn long_echoed_messages(engine: Choice) {
    let server = Server::new(echo);
    let plan = Plan {
        protocol: Protocol::Echo { bytes: 1 << 20 },
        extent: Extent::Count(10),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.answered, counts.failed()), (10, 0));
    server.finish();
}

/// A changed byte, and the message of another connection.
fn wrong_echoes(engine: Choice) {
    let server = Server::new(|peer| {
        let mut message = peer.bytes();
        for _ in 0..3 {
            let Some(first) = message.first_mut() else { return };
            // The fourth one: of a connection that is not this one.
            *first = if peer.number % 2 == 0 { *first } else { 0xff };
            peer.send(&message);
            message = peer.bytes();
        }
        if let Some(last) = message.last_mut() {
            *last ^= 1;
            peer.send(&message);
            peer.wait();
        }
    });
    let plan = Plan {
        connections: 1,
        protocol: Protocol::Echo { bytes: 40 },
        extent: Extent::Count(50),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    // Three answers and a failure, then a failure, and so on.
    assert_eq!((counts.answered, counts.failed()), (30, 20));
    assert_eq!(counts.broken, BTreeMap::from([("echoed other bytes", 20)]));
    server.finish();
}

fn unix_sockets(engine: Choice) {
    let name = format!("ringmain-load-{}-{engine:?}", std::process::id());
    let path = std::env::temp_dir().join(name);
    let server = Server::unix(&path, |peer| {
        while peer.request().is_some() {
            peer.send(answer(200, "ok"));
        }
    });
    let plan = Plan {
        connections: 8,
        extent: Extent::Count(200),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.sent, counts.answered, counts.failed()), (200, 200, 0));
    assert_eq!(server.connections(8), 8);
    server.finish();
    std::fs::remove_file(&path).expect("the socket's name");
}
