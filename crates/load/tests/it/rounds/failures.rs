//! What goes wrong is counted by what it was, and nothing that a server does keeps a round from ending.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

use ringmain_engine::{Addr, Choice};
use ringmain_load::figures::Counts;
use ringmain_load::plan::{Extent, Plan};
use ringmain_load::report::Run;
use ringmain_load::run::{RunError, Session};
use ringmain_load::threshold::Threshold;
use ringmain_load::traffic::{Check, Request, Test, Traffic};
use ringmain_testkit::port::Reserved;

use crate::rounds::support::{Peer, Server, answer, get, plan, plan_to, round};

on_every_backend!(
    no_answer_in_time,
    no_answer_in_time_to_a_pipeline,
    a_reset_within_an_answer,
    closed_without_an_answer,
    closed_within_an_answer,
    garbage,
    answers_that_nobody_asked_for,
    bytes_before_any_request,
    a_server_that_closes_what_is_idle,
    a_server_that_is_gone,
    a_server_that_is_gone_while_time_runs,
    nobody_listens,
    no_such_socket,
    connections_of_which_some_fail,
    answers_that_fail_a_check,
);

/// A round of so many requests on one connection at a time, against a server that fails each of them.
fn failing(engine: Choice, requests: u64, script: impl Fn(&mut Peer) + Send + Sync + 'static) -> Counts {
    let server = Server::new(script);
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(requests),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!(counts.answered + counts.failed(), requests);
    server.finish();
    counts
}

fn broken(what: &'static str, count: u64) -> BTreeMap<&'static str, u64> {
    BTreeMap::from([(what, count)])
}

fn no_answer_in_time(engine: Choice) {
    let server = Server::new(Peer::wait);
    let plan = Plan {
        timeout: Duration::from_millis(20),
        extent: Extent::Count(6),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.timeouts, counts.failed(), counts.answered), (6, 6, 0));
    assert!((6..=7).contains(&counts.connects), "each ends its connection");
    server.finish();
}

fn no_answer_in_time_to_a_pipeline(engine: Choice) {
    let server = Server::new(Peer::wait);
    let plan = Plan {
        connections: 1,
        pipeline: 4,
        timeout: Duration::from_millis(20),
        extent: Extent::Count(12),
        ..plan(&server, engine)
    };
    let counts = round(plan, get()).figures.counts;
    assert_eq!((counts.timeouts, counts.failed(), counts.answered), (3, 12, 0));
    assert_eq!(counts.broken, broken("behind one that timed out", 9));
    server.finish();
}

/// A socket that is closed with bytes unread resets its connection.
fn a_reset_within_an_answer(engine: Choice) {
    let mut request = Request::get("/", "test");
    request.method = "POST".into();
    request.body = ringmain_load::traffic::Body::Bytes(vec![b'a'; 4 << 20].into());
    let server = Server::new(|peer| {
        // The first part of it.
        if !peer.bytes().is_empty() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly");
        }
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(5),
        ..plan(&server, engine)
    };
    let counts = round(plan, Traffic::single(request).expect("a request"))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.failed()), (0, 5));
    let told = ["reset", "closed while sending"];
    assert!(
        counts.broken.keys().all(|what| told.contains(what)),
        "{:?}",
        counts.broken
    );
    server.finish();
}

fn closed_without_an_answer(engine: Choice) {
    let counts = failing(engine, 20, |peer| drop(peer.request()));
    assert_eq!(counts.broken, broken("closed without a response", 20));
}

fn closed_within_an_answer(engine: Choice) {
    let counts = failing(engine, 20, |peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly");
        }
    });
    assert_eq!(counts.broken, broken("closed within a response", 20));
}

fn garbage(engine: Choice) {
    let counts = failing(engine, 20, |peer| {
        if peer.request().is_some() {
            peer.send("SSH-2.0-OpenSSH_9.9\r\n\r\n");
            peer.wait();
        }
    });
    assert_eq!(counts.broken, broken("not HTTP/1.1", 20));
}

/// Two for one: the second was there before anybody could ask for it.
fn answers_that_nobody_asked_for(engine: Choice) {
    let counts = failing(engine, 20, |peer| {
        if peer.request().is_some() {
            peer.send(answer(200, "ok").repeat(2));
            peer.wait();
        }
    });
    assert_eq!(counts.answered, 10);
    assert_eq!(counts.broken, broken("sent data without a request", 10));
}

fn bytes_before_any_request(engine: Choice) {
    let server = Server::new(|peer| {
        peer.send("220 hello\r\n\r\n");
        peer.wait();
    });
    let plan = Plan {
        connections: 1,
        extent: Extent::Time(Duration::from_millis(50)),
        ..plan(&server, engine)
    };
    assert_eq!(round(plan, get()).figures.counts.answered, 0);
    server.finish();
}

fn a_server_that_closes_what_is_idle(engine: Choice) {
    let counts = failing(engine, 20, |peer| {
        for _ in 0..2 {
            if peer.request().is_none() {
                return;
            }
            peer.answer(200, "ok");
        }
    });
    let told = ["closed without a response", "reset"];
    assert!(
        counts.broken.keys().all(|what| told.contains(what)),
        "{:?}",
        counts.broken
    );
    assert!(counts.answered > 0 && counts.connects > 1);
}

/// Three connections of five answers, then nobody listens any more.
fn five_each() -> Server {
    Server::limited(3, |peer| {
        for _ in 0..5 {
            peer.request().expect("more than five on each connection");
            peer.answer(200, "ok");
        }
    })
}

fn a_server_that_is_gone(engine: Choice) {
    let server = five_each();
    let plan = Plan {
        connections: 3,
        connect_timeout: Duration::from_millis(300),
        extent: Extent::Count(1000),
        ..plan(&server, engine)
    };
    let round = round(plan, get());
    let counts = round.figures.counts;
    assert_eq!((counts.answered, counts.connects), (15, 3));
    assert!(counts.sent < 1000, "what cannot be reached is given up");
    assert_eq!(counts.sent + counts.dropped, 1000, "and counts as never sent");
    assert!(counts.connect_errors["refused"] > 1);
    assert!(round.elapsed >= Duration::from_millis(300));
    server.finish();
}

fn a_server_that_is_gone_while_time_runs(engine: Choice) {
    let server = five_each();
    let plan = Plan {
        connections: 3,
        extent: Extent::Time(Duration::from_secs(1)),
        ..plan(&server, engine)
    };
    let round = round(plan.clone(), get());
    let counts = &round.figures.counts;
    assert_eq!((counts.answered, counts.connects), (15, 3));
    assert!(counts.connect_errors["refused"] > 1);
    // From the last response on, none of the three connections is established. The client notices that some time after it.
    let silent = round
        .series
        .iter()
        .rev()
        .take_while(|interval| interval.counts.answered == 0 && interval.counts.broken.is_empty());
    let silent: Duration = silent.map(|interval| interval.length).sum();
    let down = counts.unconnected;
    assert!(
        2 * down >= 3 * silent && down <= 3 * round.elapsed,
        "{down:?} of three connections, of which none was established for {silent:?}"
    );
    // What was answered before says nothing of the rest.
    let run = Run {
        name: String::new(),
        plan,
        engine: String::new(),
        rounds: vec![round],
    };
    for threshold in ["errors<50%", "p50<10s", "p99<10s", "max<10s", "mean<10s"] {
        let judgement = threshold.parse::<Threshold>().expect("a threshold").judge(&run);
        assert!(!judgement.held(), "{judgement}");
    }
    server.finish();
}

fn nobody_listens(engine: Choice) {
    let reserved = Reserved::new();
    let addr = reserved.addr();
    for threads in [1, 2] {
        let plan = Plan {
            threads,
            ..plan_to(addr.into(), engine)
        };
        let session = Session::new(plan, get()).expect("a plan");
        let error = session.round(0, None, &mut |_| ()).expect_err("nobody is there");
        let text = error.to_string();
        assert!(
            text.starts_with(&format!("cannot connect to {addr}: connection refused; ")),
            "{text}"
        );
        let RunError::NotConnected { waited, .. } = error else {
            panic!("{error:?}")
        };
        assert!(waited < session.plan().connect_timeout, "at once");
    }
}

fn no_such_socket(engine: Choice) {
    let path = std::env::temp_dir().join("ringmain-load-no-such-socket");
    let session = Session::new(plan_to(Addr::Unix(path), engine), get()).expect("a plan");
    let error = session.round(0, None, &mut |_| ()).expect_err("nobody is there");
    let text = error.to_string();
    assert!(text.contains("no-such-socket: entity not found"), "{text}");
}

/// The second connection cannot be made, and is tried again every ten milliseconds.
fn connections_of_which_some_fail(engine: Choice) {
    let server = Server::new(Peer::serve);
    let source = |bytes| Addr::Inet(SocketAddr::from((bytes, 0)));
    let plan = Plan {
        // The other one is reserved for documentation, and nobody's.
        sources: vec![source([127, 0, 0, 1]), source([192, 0, 2, 1])],
        connect_timeout: Duration::from_millis(300),
        ..plan(&server, engine)
    };
    let session = Session::new(plan, get()).expect("a plan");
    let error = session.round(0, None, &mut |_| ()).expect_err("one is missing");
    let RunError::NotConnected { waited, last, .. } = error else {
        panic!("{error:?}")
    };
    assert!(waited >= Duration::from_millis(300));
    let kind = last.expect("it has failed").kind();
    assert_eq!(kind, std::io::ErrorKind::AddrNotAvailable);
    server.finish();
}

fn answers_that_fail_a_check(engine: Choice) {
    let server = Server::new(|peer| {
        for body in ["right", "wrong"].into_iter().cycle() {
            if peer.request().is_none() {
                return;
            }
            peer.answer(200, body);
        }
    });
    let mut request = Request::get("/", "test");
    request.expect.checks = vec![Check::Body(Test::Equals("right".into()))];
    let plan = Plan {
        connections: 1,
        extent: Extent::Count(20),
        ..plan(&server, engine)
    };
    let counts = round(plan, Traffic::single(request).expect("a request"))
        .figures
        .counts;
    assert_eq!((counts.answered, counts.unexpected, counts.failed()), (20, 10, 0));
    server.finish();
}
