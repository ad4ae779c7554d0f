//! Each way in which an upstream or a client fails, and the report to the other side.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    Action, DirectResponse, ErrorPage, HeaderValue, Retry, RetryOn, Rule, StaticBody, StatusRange, Target,
    WeightedBackend,
};
use ringmain_testkit::wait;

use crate::origin::{Origin, edge, refusing_addr, rules, to, upstream};
use crate::support::{End, get, pattern, post};

on_every_backend! {
    answers_that_are_none,
    an_answer_that_breaks_off,
    an_answer_that_stops,
    no_response_in_time,
    a_kept_connection_that_was_closed,
    a_kept_connection_that_closes_on_a_post,
    another_endpoint,
    no_endpoints_and_broken_backends,
    bodies_that_are_too_large,
    a_client_that_leaves,
    a_client_that_closes_within_a_stream,
    a_client_that_shuts_down_its_side_before_the_response,
    a_client_that_shuts_down_its_side_within_the_response,
    an_early_answer,
    error_pages,
    errors_of_the_upstream_are_replaced,
    caps,
}

fn answers_that_are_none(engine: Config) {
    let long = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(60_000));
    for (answer, status, text) in [
        ("SSH-2.0-OpenSSH\r\n", 502, "invalid upstream response headers\n"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            502,
            "invalid upstream response headers\n",
        ),
        (&long, 502, "upstream response headers too large\n"),
        (
            "HTTP/1.1 200",
            502,
            "upstream closed the connection before the response headers\n",
        ),
        (
            "",
            502,
            "upstream closed the connection before the response headers\n",
        ),
        (
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
            502,
            "unexpected protocol switch by the upstream\n",
        ),
    ] {
        let bytes = answer.to_owned();
        let origin = Origin::new(move |mut peer| {
            peer.request();
            peer.send(&bytes);
        });
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        edge.server.get("/").expect(status, text);
        edge.server.shut_down();
    }
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.reset();
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    edge.server
        .get("/")
        .expect(502, "upstream reset the connection before the response headers\n");
    edge.server.shut_down();
}

fn an_answer_that_breaks_off(engine: Config) {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\nabc",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzzz",
    ] {
        let origin = Origin::new(move |mut peer| {
            peer.request();
            peer.send(head);
        });
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        client.send(get("/"));
        let answer = client.head();
        assert_eq!(answer.status, 200);
        if answer.field("content-length").is_some() {
            assert_eq!(client.take(3), b"abc");
        } else {
            assert_eq!(client.chunk().as_deref(), Some(&b"abc"[..]));
        }
        client.expect_end();
        edge.server.shut_down();
    }
}

fn an_answer_that_stops(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc");
        // Until the gateway gives up.
        peer.request();
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.timeouts.idle = Some(Duration::from_millis(100));
        }),
    );
    // On a busy machine the origin may itself be too late for the head.
    let mut client = wait::find("a response whose head is in time", || {
        let mut client = edge.server.client();
        client.send(get("/"));
        (client.head().status == 200).then_some(client)
    });
    assert_eq!(client.take(3), b"abc");
    client.expect_end();
    edge.server.shut_down();
}

fn no_response_in_time(engine: Config) {
    let silent = || Origin::new(|mut peer| while peer.request().is_some() {});
    let span = Some(Duration::from_millis(100));
    let origin = silent();
    let idle = edge(
        engine.clone(),
        to(&[origin.addr], |forward, _| forward.timeouts.idle = span),
    );
    idle.server.get("/").expect(504, "upstream response timeout\n");
    idle.server.shut_down();
    let try_ = edge(
        engine.clone(),
        to(&[origin.addr], |forward, _| forward.timeouts.per_try = span),
    );
    try_.server.get("/").expect(504, "upstream response timeout\n");
    try_.server.shut_down();
    let all = edge(
        engine,
        to(&[origin.addr], |forward, _| forward.timeouts.request = span),
    );
    all.server.get("/").expect(504, "request timeout\n");
    all.server.shut_down();
}

/// An origin that closes its connection without notice after a response, once the second request has arrived.
fn forgetful() -> Origin {
    Origin::new(|mut peer| {
        if peer.request().is_some() {
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
            // The next request on this connection is seen and not answered.
            let _ = peer.head();
        }
    })
}

fn a_kept_connection_that_was_closed(engine: Config) {
    let origin = forgetful();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for connection in 0..4 {
        client.send(get("/"));
        client.answer().expect(200, "ok");
        assert_eq!(origin.seen().connection, connection);
    }
    edge.server.shut_down();
}

fn a_kept_connection_that_closes_on_a_post(engine: Config) {
    let origin = forgetful();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    client.answer().expect(200, "ok");
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
    client.answer().expect(
        502,
        "upstream closed the connection before the response headers\n",
    );
    edge.server.shut_down();
}

fn another_endpoint(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
    let retry = Retry {
        attempts: 1,
        on: RetryOn::default(),
        backoff_min: Duration::ZERO,
        backoff: Duration::from_millis(1),
        backoff_max: Duration::from_millis(1),
    };
    let edge = edge(
        engine,
        to(&[refusing_addr(), origin.addr], |forward, _| {
            forward.retry = Some(retry)
        }),
    );
    for _ in 0..10 {
        edge.server.ask(post("/", "text/plain", "abc")).expect(200, "ok");
        assert_eq!(origin.seen().body, b"abc");
    }
    edge.server.shut_down();
}

fn no_endpoints_and_broken_backends(engine: Config) {
    let none = edge(engine.clone(), to(&[], |_, _| {}));
    none.server.get("/").expect(503, "upstream has no endpoints\n");
    none.server.shut_down();
    let weightless = edge(
        engine.clone(),
        to(&[refusing_addr()], |forward, _| forward.backends[0].weight = 0),
    );
    weightless
        .server
        .get("/")
        .expect(500, "no backend with a weight above zero\n");
    weightless.server.shut_down();
    let broken = edge(
        engine,
        to(&[refusing_addr()], |forward, _| {
            forward.backends = vec![WeightedBackend {
                target: Target::Broken {
                    reason: "not allowed".into(),
                },
                ..WeightedBackend::new("origin")
            }];
        }),
    );
    broken
        .server
        .get("/")
        .expect(500, "invalid backend configuration\n");
    broken.server.shut_down();
}

fn bodies_that_are_too_large(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 200\r\n\r\n");
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.body.request = Some(100);
            forward.body.response = Some(100);
        }),
    );
    let answer = edge.server.ask(post("/", "text/plain", &"x".repeat(101)));
    answer.expect(413, "request body too large\n");
    let mut client = edge.server.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n41\r\n");
    client.send([b'x'; 0x41]);
    client.send(format!("\r\n41\r\n{}\r\n0\r\n\r\n", "x".repeat(0x41)));
    client.answer().expect(413, "request body too large\n");
    edge.server
        .get("/")
        .expect(502, "upstream response body too large\n");
    edge.server.shut_down();
}

fn a_client_that_leaves(engine: Config) {
    let (sender, ended) = std::sync::mpsc::channel();
    let sender = std::sync::Mutex::new(sender);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        // The gateway ends its side when its client is gone.
        assert!(peer.head().is_none());
        sender.lock().expect("one").send(()).expect("the test waits");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    origin.seen();
    client.reset();
    ended
        .recv_timeout(crate::support::PATIENCE)
        .expect("the upstream's connection ends");
    edge.server.shut_down();
}

/// A stream may be silent without a limit: only the end of the client's side shows that the client has left.
fn a_client_that_closes_within_a_stream(engine: Config) {
    for head in [
        "Transfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n",
        "Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n:\n\r\n",
        "Connection: close\r\n\r\nhi",
        "Content-Length: 100\r\n\r\nhi",
    ] {
        let (sender, ended) = std::sync::mpsc::channel();
        let sender = std::sync::Mutex::new(sender);
        let origin = Origin::new(move |mut peer| {
            peer.request();
            peer.send(format!("HTTP/1.1 200 OK\r\n{head}"));
            assert!(peer.head().is_none());
            sender.lock().expect("one").send(()).expect("the test waits");
        });
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        client.send(get("/"));
        assert_eq!(client.head().status, 200);
        client.finish();
        ended
            .recv_timeout(crate::support::PATIENCE)
            .expect("the upstream's connection ends");
        // Without a length only a reset shows that the body is not complete.
        assert_eq!(client.rest().1, End::Reset, "{head:?}");
        edge.server.shut_down();
    }
}

/// A client may shut down its side after the request and still read.
fn a_client_that_shuts_down_its_side_before_the_response(engine: Config) {
    let (sender, finished) = std::sync::mpsc::channel();
    let finished = std::sync::Mutex::new(finished);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        finished.lock().expect("one").recv().expect("the test sends");
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        peer.send("0\r\n\r\n");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    origin.seen();
    client.finish();
    sender.send(()).expect("the origin waits");
    client.answer().expect(200, "hi");
    edge.server.shut_down();
}

/// The rest of the response is on its way.
fn a_client_that_shuts_down_its_side_within_the_response(engine: Config) {
    let (sender, finished) = std::sync::mpsc::channel();
    let finished = std::sync::Mutex::new(finished);
    let origin = Origin::new(move |mut peer| {
        peer.request();
        peer.send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n");
        finished.lock().expect("one").recv().expect("the test sends");
        peer.send("1\r\n!\r\n0\r\n\r\n");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(get("/"));
    assert_eq!(client.head().status, 200);
    client.finish();
    sender.send(()).expect("the origin waits");
    let chunks = std::iter::from_fn(|| client.chunk()).collect::<Vec<_>>();
    assert_eq!(chunks.concat(), b"hi!");
    edge.server.shut_down();
}

/// A response before the end of the request's body: it is relayed, and the connection is closed.
fn an_early_answer(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.head();
        peer.send("HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\nno");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    let answer = client.answer();
    answer.expect(401, "no");
    assert!(answer.closes());
    assert_eq!(client.rest().1, End::Orderly);
    edge.server.shut_down();
}

fn error_pages(engine: Config) {
    let mut config = to(&[refusing_addr()], |_, _| {});
    let route = Arc::make_mut(&mut config.routes[0]);
    route.rules[0].error_pages = vec![ErrorPage {
        statuses: StatusRange {
            first: 500,
            last: 599,
        },
        response: DirectResponse {
            status: 200,
            content_type: Some(HeaderValue::parse("text/html").expect("a value")),
            body: StaticBody(Arc::from(&b"<p>sorry"[..])),
        },
    }];
    let edge = edge(engine.clone(), config);
    let answer = edge.server.get("/");
    answer.expect(503, "<p>sorry");
    assert_eq!(answer.field("content-type"), Some("text/html"));
    edge.server.shut_down();
    let direct = Rule::new(Action::Respond(DirectResponse {
        status: 418,
        content_type: None,
        body: StaticBody(Arc::from(&b"teapot"[..])),
    }));
    let edge = crate::origin::edge(engine, rules(vec![direct], vec![upstream("x", &[])]));
    edge.server.get("/").expect(418, "teapot");
    edge.server.shut_down();
}

fn errors_of_the_upstream_are_replaced(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let status = match seen.line() {
                line if line.contains("/missing") => "404 Not Found",
                line if line.contains("/broken") => "500 Oh",
                _ => "200 OK",
            };
            peer.send(format!(
                "HTTP/1.1 {status}\r\nX-Own: 1\r\nContent-Length: 5\r\n\r\nown\r\n"
            ));
        }
    });
    for replaced in [false, true] {
        let mut config = to(&[origin.addr], |forward, _| forward.replace_errors = replaced);
        let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
        rule.error_pages = vec![ErrorPage {
            statuses: StatusRange {
                first: 404,
                last: 404,
            },
            response: DirectResponse {
                status: 200,
                content_type: None,
                body: StaticBody(Arc::from(&b"not here"[..])),
            },
        }];
        let edge = edge(engine.clone(), config);
        let mut client = edge.server.client();
        for (path, status, body) in [
            ("/", 200, "own\r\n"),
            ("/missing", 404, if replaced { "not here" } else { "own\r\n" }),
            ("/broken", 500, "own\r\n"),
            ("/", 200, "own\r\n"),
        ] {
            client.send(get(path));
            let answer = client.answer();
            answer.expect(status, body);
            // Of an answer that is replaced nothing is left.
            assert_eq!(answer.field("x-own").is_some(), body != "not here");
        }
        edge.server.shut_down();
    }
}

fn caps(engine: Config) {
    let running = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (Arc::clone(&running), Arc::clone(&most));
    let origin = Origin::new(move |mut peer| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        while let Some(seen) = peer.request() {
            let body = seen.line().to_owned();
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            ));
        }
        now.fetch_sub(1, Ordering::SeqCst);
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| upstream.pool.connections = 2),
    );
    let clients: Vec<_> = (0..16)
        .map(|number| {
            let mut client = edge.server.client();
            std::thread::spawn(move || {
                for turn in 0..20 {
                    client.send(get(&format!("/{number}/{turn}")));
                    client
                        .answer()
                        .expect(200, &format!("GET /{number}/{turn} HTTP/1.1"));
                }
            })
        })
        .collect();
    for client in clients {
        client.join().expect("each answer is the one that was asked for");
    }
    assert!(most.load(Ordering::SeqCst) <= 2);
    let _ = pattern(0);
    edge.server.shut_down();
}
