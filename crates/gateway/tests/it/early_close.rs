//! Sides that end before the other: clients behind their requests, upstreams behind their answers. Nothing is cut that was
//! promised, and nothing stays behind.

use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_testkit::wait;

use crate::l4_rig::until;
use crate::origin::{Edge, Origin, edge, to};
use crate::support::{End, PATIENCE, get, pattern};

on_every_backend! {
    a_client_that_ends_behind_its_request,
    a_client_that_ends_behind_several,
    a_client_that_ends_within_a_body,
    a_client_that_ends_and_downloads,
    an_upstream_that_ends_behind_its_answer,
    an_upstream_that_ends_before_the_request_is_sent,
    a_client_that_ends_within_a_tunnel,
    an_upstream_that_ends_within_a_tunnel,
    an_upstream_that_ends_and_a_client_that_is_silent,
    an_upstream_that_breaks_off_a_tunnel,
    an_upstream_that_dribbles,
}

/// Waits until nothing is held: no request, no connection of a client, and of upstreams none that is not kept.
#[track_caller]
fn nothing_left(edge: &Edge, kept: u32) {
    wait::until("no request and no more connections than are kept", || {
        let upstream = &edge.gateway.upstreams()[0];
        let found = (
            upstream.requests,
            upstream.endpoints[0].requests,
            upstream.connections,
            edge.server.connections(),
        );
        found.0 == 0 && found.1 == 0 && found.2 <= kept && found.3 <= found.2
    });
}

/// Waits until no request and no connection of an upstream is held, whatever its client does.
fn nothing_of_upstreams(edge: &Edge) {
    until(|| {
        let upstream = &edge.gateway.upstreams()[0];
        upstream.requests == 0 && upstream.connections == 0
    });
}

fn a_client_that_ends_behind_its_request(engine: Config) {
    let (go, gone) = channel::<()>();
    let gone = Mutex::new(gone);
    let origin = Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            let _ = gone.lock().expect("one").recv_timeout(PATIENCE);
            let body = String::from_utf8(seen.body).expect("text");
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for request in [
        get("/"),
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n".to_owned(),
    ] {
        let mut client = edge.server.client();
        client.send(&request);
        client.finish();
        // The origin has it, and the client's end is long there.
        origin.seen();
        go.send(()).expect("the origin waits");
        let answer = client.answer();
        answer.expect(200, if request.starts_with("GET") { "" } else { "abc" });
        client.expect_end();
    }
    nothing_left(&edge, 1);
    edge.server.shut_down();
}

fn a_client_that_ends_behind_several(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send([get("/1"), get("/2"), get("/3")].concat());
    client.finish();
    for number in 1..=3 {
        let answer = client.answer();
        assert!(
            answer.text().starts_with(&format!("GET /{number} ")),
            "{}",
            answer.text()
        );
    }
    client.expect_end();
    nothing_left(&edge, 1);
    edge.server.shut_down();
}

fn a_client_that_ends_within_a_body(engine: Config) {
    let origin = Origin::new(|mut peer| {
        // The request never arrives in full.
        assert!(peer.request().is_none());
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for head in [
        "Content-Length: 10\r\n\r\nabc",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Half: ",
    ] {
        let mut client = edge.server.client();
        client.send(format!("POST / HTTP/1.1\r\nHost: a\r\n{head}"));
        client.finish();
        assert_eq!(client.answer().status, 400, "{head}");
        client.expect_end();
    }
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn a_client_that_ends_and_downloads(engine: Config) {
    let body = pattern(3_000_000);
    let whole = body.clone();
    let origin = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", whole.len());
            peer.send(head);
            peer.send(&whole);
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.slow_client();
    client.send(get("/"));
    client.finish();
    assert!(client.answer().body == body);
    client.expect_end();
    nothing_left(&edge, 1);
    edge.server.shut_down();
}

fn an_upstream_that_ends_behind_its_answer(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        peer.finish();
        // The gateway ends its side, too.
        assert!(peer.some().is_none());
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for connection in 0..3 {
        client.send(get("/"));
        client.answer().expect(200, "ok");
        assert_eq!(origin.seen().connection, connection);
    }
    drop(client);
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn an_upstream_that_ends_before_the_request_is_sent(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 413 Too Large\r\nContent-Length: 2\r\n\r\nno");
        peer.finish();
        while peer.some().is_some() {}
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| forward.body.request = None),
    );
    let mut client = edge.server.client();
    let length = 10_000_000;
    let head = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
    let sent = client.send_behind([head.into_bytes(), pattern(length)].concat());
    let answer = client.answer();
    answer.expect(413, "no");
    drop(client);
    // Refused in the middle or taken to the end.
    let _ = sent.join().expect("no panic");
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";
const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n";

fn a_client_that_ends_within_a_tunnel(engine: Config) {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        peer.send(SWITCHED);
        let mut all = Vec::new();
        while let Some(bytes) = peer.some() {
            all.extend_from_slice(&bytes);
        }
        // The client has said all, and still listens.
        peer.send("late");
        sender.lock().expect("one").send(all).expect("the test waits");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send([UPGRADE, "all of it"].concat());
    assert_eq!(client.head().status, 101);
    client.finish();
    assert_eq!(heard.recv_timeout(PATIENCE).as_deref(), Ok(&b"all of it"[..]));
    assert_eq!(client.rest(), (b"late".to_vec(), End::Orderly));
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn an_upstream_that_ends_within_a_tunnel(engine: Config) {
    let (sender, heard) = channel();
    let sender = Mutex::new(sender);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        peer.send([SWITCHED, "all of it"].concat());
        peer.finish();
        let mut all = Vec::new();
        while let Some(bytes) = peer.some() {
            all.extend_from_slice(&bytes);
        }
        sender.lock().expect("one").send(all).expect("the test waits");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    // The second one ends with all of its bytes under way.
    for length in [4, 1_000_000] {
        let mut client = edge.server.client();
        client.send(UPGRADE);
        assert_eq!(client.head().status, 101);
        assert_eq!(client.rest(), (b"all of it".to_vec(), End::Orderly));
        let late = pattern(length);
        client.send(&late);
        client.finish();
        let all = heard.recv_timeout(PATIENCE).expect("the upstream hears the end");
        assert!(all == late, "{} of {length} bytes", all.len());
    }
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn an_upstream_that_ends_and_a_client_that_is_silent(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send([SWITCHED, "bye"].concat());
        peer.finish();
        // The gateway ends its side when the client has been silent for long enough.
        assert!(peer.some().is_none());
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.timeouts.idle = Some(Duration::from_millis(200));
        }),
    );
    // On a busy machine the origin may itself be too late.
    let mut client = wait::find("a tunnel in time", || {
        let mut client = edge.server.client();
        client.send(UPGRADE);
        (client.head().status == 101).then_some(client)
    });
    assert_eq!(client.rest(), (b"bye".to_vec(), End::Orderly));
    nothing_of_upstreams(&edge);
    drop(client);
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn an_upstream_that_breaks_off_a_tunnel(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send([SWITCHED, "half"].concat());
        // The client sends this once it has received the bytes above.
        assert_eq!(peer.some().as_deref(), Some(&b"heard"[..]));
        peer.reset();
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(UPGRADE);
    assert_eq!(client.head().status, 101);
    assert_eq!(client.take(4), b"half");
    client.send("heard");
    client.rest();
    nothing_of_upstreams(&edge);
    drop(client);
    nothing_left(&edge, 0);
    edge.server.shut_down();
}

fn an_upstream_that_dribbles(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        // Never silent for long, and far below the rate.
        while peer.send("x") {
            wait::pause(Duration::from_millis(20));
        }
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.timeouts.minimum_rate = 100_000
        }),
    );
    let mut client = edge.server.client();
    client.send(get("/"));
    assert_eq!(client.head().status, 200);
    let (rest, _) = client.rest();
    assert!(rest.len() < 1_000_000 && rest.iter().all(|byte| *byte == b'x'));
    // The client may see the end before the worker has counted it.
    until(|| edge.gateway.fault_counts().contains(&(Fault::BodyTooSlow, 1)));
    nothing_left(&edge, 0);
    edge.server.shut_down();
}
