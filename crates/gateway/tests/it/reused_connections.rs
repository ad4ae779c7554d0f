//! Responses of every form on a reused connection: clients see the same with and without a task.

use std::net::SocketAddr;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{Balance, Endpoint, EndpointLocation};

use crate::origin::{Origin, Peer, Seen, edge, to};
use crate::support::{Answer, Client, PATIENCE, get, pattern};

on_every_backend! {
    answers_of_every_form,
    pipelined_requests_are_answered_in_order,
    a_client_that_leaves_closes_the_connection,
    endpoints_are_replaced_without_the_table,
}

const LARGE: usize = 300_000;

fn whole(seen: &Seen) -> Vec<u8> {
    let body = seen.line().split(' ').nth(1).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nX-Up: yes\r\n\r\n",
        body.len()
    );
    let body = if seen.head.starts_with("HEAD") { "" } else { body };
    (head + body).into_bytes()
}

/// Responds in the form that the path selects. Returns whether the connection stays open.
fn answer(peer: &mut Peer, seen: &Seen) -> bool {
    let path = seen.line().split(' ').nth(1).unwrap_or_default().to_owned();
    match &path[..] {
        "/split" => whole(seen).iter().all(|byte| peer.send([*byte])),
        "/chunked" => {
            peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n/chunked\r\n0\r\n\r\n")
        }
        "/none" => peer.send("HTTP/1.1 204 No Content\r\nX-Up: yes\r\n\r\n"),
        "/same" => peer.send("HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 5\r\n\r\n"),
        "/interim" => {
            peer.send([b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n", &whole(seen)[..]].concat())
        }
        "/large" => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LARGE}\r\n\r\n");
            peer.send(head) && peer.send(pattern(LARGE))
        }
        "/close" => {
            peer.send("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 6\r\n\r\n/close");
            false
        }
        "/until" => {
            peer.send("HTTP/1.1 200 OK\r\n\r\n/until");
            false
        }
        "/more" => peer.send(
            [
                whole(seen),
                b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nbad".to_vec(),
            ]
            .concat(),
        ),
        // Gone without a word, as one that was closed just then.
        "/die" if peer.connection == 0 => false,
        "/garbage" => peer.send("nothing of the kind\r\n\r\n"),
        _ => peer.send(whole(seen)),
    }
}

fn ask(client: &mut Client, method: &str, path: &str) -> Answer {
    client.send(format!("{method} {path} HTTP/1.1\r\nHost: test\r\n\r\n"));
    client.answer_to(method)
}

fn answers_of_every_form(engine: Config) {
    // Each form is sent on a reused connection, and the next request shows whether the connection may be used again.
    for (path, status, body) in [
        ("/whole", 200, "/whole"),
        ("/split", 200, "/split"),
        ("/chunked", 200, "/chunked"),
        ("/none", 204, ""),
        ("/same", 304, ""),
        ("/large", 200, ""),
        ("/close", 200, "/close"),
        ("/until", 200, "/until"),
        ("/more", 200, "/more"),
        ("/die", 200, "/die"),
        ("/garbage", 502, ""),
    ] {
        let origin = Origin::new(|mut peer| {
            while let Some(seen) = peer.request()
                && answer(&mut peer, &seen)
            {}
        });
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        ask(&mut client, "GET", "/first").expect(200, "/first");
        assert_eq!(origin.seen().connection, 0);
        let found = ask(&mut client, "GET", path);
        assert_eq!(found.status, status, "{path}");
        match path {
            "/large" => assert_eq!(found.body, pattern(LARGE)),
            "/garbage" => {}
            _ => assert_eq!(found.text(), body, "{path}"),
        }
        assert_eq!(origin.seen().connection, 0, "{path} found the kept one");
        if path == "/die" {
            assert_eq!(
                origin.seen().connection,
                1,
                "and was tried again on one of its own"
            );
        }
        ask(&mut client, "HEAD", "/last").expect(200, "");
        let kept = !matches!(path, "/close" | "/until" | "/more" | "/die" | "/garbage");
        assert_eq!(origin.seen().connection == 0, kept, "{path}");
        edge.server.shut_down();
    }
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request()
            && answer(&mut peer, &seen)
        {}
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    ask(&mut client, "GET", "/first").expect(200, "/first");
    client.send(get("/interim"));
    assert_eq!(client.head().status, 103);
    client.answer().expect(200, "/interim");
    edge.server.shut_down();
}

fn pipelined_requests_are_answered_in_order(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request()
            && answer(&mut peer, &seen)
        {}
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    let paths = [
        "/a", "/split", "/b", "/chunked", "/c", "/close", "/d", "/e", "/die", "/f",
    ];
    client.send(paths.map(get).concat());
    for path in paths {
        client.answer().expect(200, path);
    }
    edge.server.shut_down();
}

fn a_client_that_leaves_closes_the_connection(engine: Config) {
    let (left, gone) = mpsc::channel();
    let (asked, came) = mpsc::channel();
    let (left, asked) = (Mutex::new(left), Mutex::new(asked));
    let origin = Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            if seen.line().contains("/hold") {
                asked
                    .lock()
                    .expect("one at a time")
                    .send(())
                    .expect("the test waits");
                assert_eq!(peer.some(), None, "nothing more comes by it");
                return left
                    .lock()
                    .expect("one at a time")
                    .send(())
                    .expect("the test waits");
            }
            peer.send(whole(&seen));
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    ask(&mut client, "GET", "/first").expect(200, "/first");
    client.send(get("/hold"));
    came.recv_timeout(PATIENCE).expect("it was sent on");
    client.reset();
    gone.recv_timeout(PATIENCE).expect("the upstream hears of it");
    let route = edge.gateway.route_reports().remove(0);
    assert_eq!((route.classes[1], route.classes[3]), (1, 1), "as 499");
    // Pooled connections are used again.
    let mut client = edge.server.client();
    ask(&mut client, "GET", "/second").expect(200, "/second");
    ask(&mut client, "GET", "/third").expect(200, "/third");
    edge.server.shut_down();
}

/// The connection to an endpoint that stays is kept, one that was removed gets no request, and the next configuration sets the endpoints again.
fn endpoints_are_replaced_without_the_table(engine: Config) {
    let (first, second) = (Origin::echo(), Origin::echo());
    let config = to(&[first.addr], |_, upstream| {
        upstream.balance = Balance::RoundRobin
    });
    let name = Arc::clone(&config.upstreams[0].name);
    let edge = edge(engine, config.clone());
    let table = edge.gateway.table();
    let endpoints = |addrs: &[SocketAddr]| -> Vec<Endpoint> {
        let endpoint = |addr: &SocketAddr| Endpoint::new(EndpointLocation::Address(*addr));
        addrs.iter().map(endpoint).collect()
    };
    let put = |addrs: &[SocketAddr]| assert!(edge.gateway.set_endpoints(&name, endpoints(addrs)));
    let mut client = edge.server.client();
    ask(&mut client, "GET", "/");
    assert_eq!(first.seen().connection, 0);
    put(&[first.addr, second.addr]);
    for _ in 0..2 {
        ask(&mut client, "GET", "/");
    }
    assert_eq!(first.seen().connection, 0, "the same connection");
    assert_eq!(second.seen().connection, 0, "each has its turn");
    put(&[second.addr]);
    for _ in 0..2 {
        ask(&mut client, "GET", "/");
        assert_eq!(second.seen().connection, 0);
    }
    put(&[]);
    assert_eq!(ask(&mut client, "GET", "/").status, 503);
    assert!(!edge.gateway.set_endpoints("another", endpoints(&[first.addr])));
    assert!(Arc::ptr_eq(&edge.gateway.table(), &table), "nothing is compiled");
    assert_eq!(edge.gateway.upstreams().len(), 1);
    assert_eq!(edge.gateway.replace(Arc::new(config), Duration::ZERO), []);
    ask(&mut client, "GET", "/");
    assert_eq!(first.seen().connection, 1, "another connection");
    edge.server.shut_down();
}
