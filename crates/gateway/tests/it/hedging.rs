//! A second try beside the first: whose answer begins first is passed on, the other is cancelled, and budgets hold.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::limits;
use ringmain_gateway::model::{self, Balance, RetryBudget};
use ringmain_gateway::stats::upstreams::UpstreamLimit;
use ringmain_testkit::wait::{pause, until};

use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::support::{PATIENCE, chunked, get, pattern, post};

on_every_backend! {
    the_second_answers_and_the_first_is_cancelled,
    the_first_answers_after_all,
    one_of_them_fails,
    both_fail,
    both_send_the_whole_body,
    a_late_body_is_awaited,
    unsafe_requests_are_not_repeated,
    without_budget_there_is_none,
}

/// Both endpoints in turn, the first one first, with a second try after this time.
fn hedged(
    addrs: [SocketAddr; 2],
    after: Duration,
    change: impl FnOnce(&mut model::Upstream),
) -> model::Config {
    to(&addrs, |forward, upstream| {
        forward.hedge = Some(after);
        upstream.balance = Balance::RoundRobin;
        change(upstream);
    })
}

const SOON: Duration = Duration::from_millis(2);

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// An origin that the test controls for each request: it responds with a text, or closes.
fn held() -> (Origin, Sender<Option<&'static str>>) {
    let (go, gone) = channel::<Option<&'static str>>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let told = gone.lock().expect("one at a time").recv_timeout(PATIENCE);
            match told {
                Ok(Some(text)) if peer.send(ok(text)) => {}
                _ => return,
            }
        }
    });
    (origin, go)
}

#[track_caller]
fn until_hedged(edge: &Edge, count: u64) {
    until("a second try", || edge.gateway.upstreams()[0].hedged >= count);
}

fn the_second_answers_and_the_first_is_cancelled(engine: Config) {
    let (closed, is_closed) = channel();
    let first = Origin::new(move |mut peer| {
        if peer.request().is_some() {
            // After the request only the end arrives.
            let _ = closed.send(peer.some().is_none());
        }
    });
    let second = Origin::answering(ok("second"));
    let edge = edge(engine, hedged([first.addr, second.addr], SOON, |_| {}));
    edge.server.get("/").expect(200, "second");
    assert_eq!(is_closed.recv_timeout(PATIENCE), Ok(true));
    assert_eq!(edge.gateway.upstreams()[0].hedged, 1);
    until("nothing is held", || {
        let upstream = &edge.gateway.upstreams()[0];
        upstream.retrying == 0 && upstream.requests == 0
    });
    edge.server.shut_down();
}

fn the_first_answers_after_all(engine: Config) {
    let [(first, go), (second, _silent)] = [held(), held()];
    let edge = edge(engine, hedged([first.addr, second.addr], SOON, |_| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    first.seen();
    second.seen();
    go.send(Some("first")).expect("it waits");
    client.answer().expect(200, "first");
    edge.server.shut_down();
}

fn one_of_them_fails(engine: Config) {
    let (first, go) = held();
    let edge = edge(engine, hedged([first.addr, refusing_addr()], SOON, |_| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    first.seen();
    until_hedged(&edge, 1);
    let refused = [(Fault::ConnectRefused, 1)];
    until("the failure of the second", || {
        edge.gateway.upstreams()[0].faults == refused
    });
    go.send(Some("first")).expect("it waits");
    client.answer().expect(200, "first");
    let upstream = &edge.gateway.upstreams()[0];
    assert_eq!((upstream.attempts, upstream.responses), (2, [0, 1, 0, 0, 0]));
    edge.server.shut_down();
}

fn both_fail(engine: Config) {
    let [(first, go), (second, on)] = [held(), held()];
    let edge = edge(engine, hedged([first.addr, second.addr], SOON, |_| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    first.seen();
    second.seen();
    go.send(None).expect("it waits");
    on.send(None).expect("it waits");
    client.answer().expect(
        502,
        "upstream closed the connection before the response headers\n",
    );
    edge.server.shut_down();
}

fn put(body: &[u8]) -> Vec<u8> {
    let head = format!(
        "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), body].concat()
}

fn put_chunked(body: &[u8]) -> Vec<u8> {
    let head = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    [&head[..], &chunked(body, 7000)].concat()
}

/// A body at the limit of the replay buffer, with a length and in chunks: both endpoints receive it in full, the slower is abandoned.
fn both_send_the_whole_body(engine: Config) {
    let body = pattern(limits::REPLAY_BYTES);
    for request in [put(&body), put_chunked(&body), put(b"x"), put_chunked(b"")] {
        let (closed, is_closed) = channel();
        let first = Origin::new(move |mut peer| {
            if peer.request().is_some() {
                let _ = closed.send(peer.some().is_none());
            }
        });
        let second = Origin::answering(ok("second"));
        let edge = edge(engine.clone(), hedged([first.addr, second.addr], SOON, |_| {}));
        edge.server.ask(request).expect(200, "second");
        assert_eq!(is_closed.recv_timeout(PATIENCE), Ok(true), "the other is left");
        let bodies = [first.seen().body, second.seen().body];
        assert!(bodies[0] == bodies[1], "the same at both");
        assert!([&body[..], b"x", b""].contains(&&bodies[0][..]), "and all of it");
        assert_eq!(edge.gateway.upstreams()[0].hedged, 1);
        edge.server.shut_down();
    }
}

/// A body for two endpoints is buffered before anything is sent; an incomplete one is not sent.
fn a_late_body_is_awaited(engine: Config) {
    let origin = Origin::answering(ok("done"));
    let edge = edge(engine, hedged([origin.addr, origin.addr], PATIENCE, |_| {}));
    let mut client = edge.server.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100, "the body is asked for");
    assert_eq!(edge.gateway.upstreams()[0].connections, 0, "nobody is asked yet");
    client.send("x");
    client.send("y");
    client.answer().expect(200, "done");
    assert_eq!(origin.seen().body, b"xy");
    // If the client leaves within its body, no endpoint is queried.
    let mut client = edge.server.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.reset();
    edge.server.get("/last").expect(200, "done");
    assert_eq!(origin.seen().line(), "GET /last HTTP/1.1");
    edge.server.shut_down();
}

fn unsafe_requests_are_not_repeated(engine: Config) {
    let slow = || {
        Origin::new(|mut peer| {
            while let Some(seen) = peer.request() {
                // Time enough for a second try, if there were one.
                pause(10 * SOON);
                peer.send(ok(&seen.body.len().to_string()));
            }
        })
    };
    let origins = [slow(), slow()];
    let edge = edge(engine, hedged([origins[0].addr, origins[1].addr], SOON, |_| {}));
    let long = pattern(limits::REPLAY_BYTES + 1);
    for (request, length) in [
        (post("/", "text/plain", "x").into_bytes(), "1"),
        (
            b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".to_vec(),
            "0",
        ),
        // A body over the limit of the replay buffer is sent once, in full.
        (put(&long), "65537"),
        (put_chunked(&long), "65537"),
    ] {
        edge.server.ask(request).expect(200, length);
    }
    assert_eq!(edge.gateway.upstreams()[0].hedged, 0);
    edge.server.shut_down();
}

fn without_budget_there_is_none(engine: Config) {
    let [(first, go), (second, _silent)] = [held(), held()];
    let config = hedged([first.addr, second.addr], SOON, |upstream| {
        upstream.retry_budget = RetryBudget {
            percent: 0,
            least: 0,
            ..RetryBudget::default()
        };
    });
    let edge = edge(engine, config);
    let mut client = edge.server.client();
    client.send(get("/"));
    first.seen();
    until("it is refused", || {
        edge.gateway.upstreams()[0].refused[UpstreamLimit::Budget as usize].1 > 0
    });
    go.send(Some("first")).expect("it waits");
    client.answer().expect(200, "first");
    assert_eq!(edge.gateway.upstreams()[0].hedged, 0);
    edge.server.shut_down();
}
