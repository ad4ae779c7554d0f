//! Upstreams that speak HTTP/2: requests that share connections.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{ActiveHealth, HealthCheck, Mirror, StatusRange, UpstreamProtocol};
use ringmain_wire::h2::Limits;

use ringmain_gateway::Gateway;
use ringmain_gateway::limits::UPSTREAM_STREAM_WINDOW;

use crate::h2_origin::{Framed, Happened};
use crate::l4_rig::until;
use crate::origin::{Edge, edge, to, upstream};
use crate::support::{self, PATIENCE, chunked, get, pattern, post};

on_every_backend! {
    a_request_and_its_answer,
    requests_share_a_connection,
    bodies_both_ways,
    fields_behind_bodies,
    answers_without_a_body,
    interim_answers,
    as_many_as_the_endpoint_takes,
    as_many_connections_as_are_needed,
    a_waiter_gets_a_stream,
    a_slow_client_blocks_no_other,
    bodies_that_wait_for_slow_clients_are_counted,
    a_slow_endpoint_holds_its_client_back,
    a_connection_serves_so_many,
    copies_and_probes,
}

/// Sends every request to one upstream over HTTP/2.
pub(crate) fn by_streams(
    engine: Config,
    origin: &Framed,
    change: impl FnOnce(&mut ringmain_gateway::model::Forward, &mut ringmain_gateway::model::Upstream),
) -> Edge {
    let config = to(&[origin.addr], |forward, upstream| {
        upstream.protocol = UpstreamProtocol::Http2;
        change(forward, upstream);
    });
    edge(engine, config)
}

fn a_request_and_its_answer(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            let fields = [("x-one", "1"), ("set-cookie", "a=1"), ("set-cookie", "b=2")];
            peer.answer(stream, 201, &fields, b"hello");
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let answer = edge.server.ask(
        "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nConnection: X-Own\r\nX-Own: 1\r\nX-Two: 2\r\nKeep-Alive: 5\r\n\
         Upgrade: h2c\r\nHTTP2-Settings: x\r\nProxy-Connection: keep-alive\r\nCookie: a=b\r\n\r\n",
    );
    answer.expect(201, "hello");
    let fields: Vec<_> = answer
        .fields
        .iter()
        .filter(|(name, _)| name != "date")
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let expected = [
        "x-one: 1",
        "set-cookie: a=1",
        "set-cookie: b=2",
        "transfer-encoding: chunked",
    ];
    assert_eq!(fields, expected);
    let asked = origin.asked();
    assert_eq!(asked.line, "GET shop.example /a/b?c=d");
    let fields: Vec<_> = asked
        .fields
        .iter()
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    let expected = [
        "x-two: 2",
        "cookie: a=b",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-proto: http",
        "x-forwarded-host: shop.example",
        "via: 1.1 ringmain",
    ];
    assert_eq!(fields, expected);
    edge.server.shut_down();
}

fn requests_share_a_connection(engine: Config) {
    const CLIENTS: usize = 50;
    // Every request has arrived before the first response, and responses are sent in reverse order.
    let origin = Framed::new(|mut peer| {
        let mut waiting = Vec::new();
        while let Some((stream, asked)) = peer.request() {
            waiting.push((stream, asked.line));
            if waiting.len() == CLIENTS {
                while let Some((stream, line)) = waiting.pop() {
                    peer.answer(stream, 200, &[], line.as_bytes());
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for _ in 0..3 {
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| edge.server.client()).collect();
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(get(&format!("/{number}")));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            client.answer().expect(200, &format!("GET test /{number}"));
        }
        for _ in 0..CLIENTS {
            assert_eq!(origin.asked().connection, 0);
        }
    }
    edge.server.shut_down();
}

fn bodies_both_ways(engine: Config) {
    let origin = Framed::echo();
    let edge = by_streams(engine, &origin, |_, _| {});
    for length in [0, 1, 5000, 70_000, 3_000_000] {
        let body = pattern(length);
        let mut client = edge.server.client();
        let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let sent = client.send_behind([request.as_bytes(), &body].concat());
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{length} bytes came back");
        sent.join().expect("no panic").expect("all was taken");
        let length = length.to_string();
        assert_eq!(origin.asked().field("content-length"), Some(length.as_str()));
        let request = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let sent = client.send_behind([request, &*chunked(&body, 9000)].concat());
        assert!(client.answer().body == body, "{length} bytes in chunks came back");
        sent.join().expect("no panic").expect("all was taken");
        let asked = origin.asked();
        assert_eq!(asked.field("content-length"), None);
        assert_eq!(asked.field("transfer-encoding"), None);
        assert_eq!(asked.connection, 0);
    }
    edge.server.shut_down();
}

fn fields_behind_bodies(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.respond(stream, 200, &[("trailer", "grpc-status, set-cookie")], false);
            peer.data(stream, b"abc", false);
            peer.trailers(
                stream,
                &[("grpc-status", "0"), ("set-cookie", "a=b"), ("x-sum", "7")],
            );
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    client.send(
        "PUT / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n\
         3\r\nabc\r\n0\r\nX-Sum: 1\r\nAuthorization: x\r\n\r\n",
    );
    let text = String::from_utf8(client.rest().0).expect("text");
    assert!(text.contains("\r\nTrailer: grpc-status\r\n"), "{text}");
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\ngrpc-status: 0\r\nx-sum: 7\r\n\r\n"),
        "{text}"
    );
    let asked = origin.asked();
    assert_eq!(asked.field("te"), Some("trailers"));
    assert_eq!(asked.field("trailer"), Some("X-Sum"));
    assert_eq!(
        (asked.body, asked.trailers),
        (b"abc".to_vec(), vec![("x-sum".into(), "1".into())])
    );
    // A client that does not accept trailers receives none.
    let mut client = edge.server.client();
    client.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    let text = String::from_utf8(client.rest().0).expect("text");
    assert!(text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{text}");
    assert_eq!(origin.asked().field("te"), None);
    edge.server.shut_down();
}

fn answers_without_a_body(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            match asked.line.as_str() {
                "HEAD a /" => peer.respond(stream, 200, &[], true),
                // Its end is in a frame of its own.
                "HEAD a /late" => {
                    peer.respond(stream, 200, &[], false);
                    peer.data(stream, b"", true);
                }
                "GET a /204" => peer.respond(stream, 204, &[], true),
                "GET a /304" => peer.respond(stream, 304, &[("etag", "x")], true),
                _ => peer.respond(stream, 200, &[], true),
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    for _ in 0..3 {
        for (method, target, status, length) in [
            ("HEAD", "/", 200, None),
            ("HEAD", "/late", 200, None),
            ("GET", "/204", 204, None),
            ("GET", "/304", 304, None),
            ("GET", "/empty", 200, Some("0")),
        ] {
            client.send(format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            let answer = client.answer_to(method);
            assert_eq!((answer.status, answer.body.len()), (status, 0), "{target}");
            if length.is_some() {
                assert_eq!(answer.field("content-length"), length, "{target}");
            }
            assert_eq!(origin.asked().connection, 0);
        }
    }
    edge.server.shut_down();
}

fn interim_answers(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let many = if asked.line.ends_with("/storm") { 40 } else { 2 };
            for _ in 0..many {
                if peer.connection.is_open(stream) {
                    peer.respond(stream, 103, &[("link", "</a.css>")], false);
                }
            }
            peer.answer(stream, 200, &[], b"ok");
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    client.send(get("/"));
    for _ in 0..2 {
        let head = client.head();
        assert_eq!((head.status, head.field("link")), (103, Some("</a.css>")));
    }
    client.answer().expect(200, "ok");
    // More than anybody passes on.
    let mut client = edge.server.client();
    client.send(get("/storm"));
    let status = loop {
        let head = client.head();
        if head.status != 103 {
            break head.status;
        }
    };
    assert_eq!(status, 502);
    edge.server.shut_down();
}

fn as_many_as_the_endpoint_takes(engine: Config) {
    let limits = Limits {
        streams: 1,
        ..Limits::INTERNET
    };
    let (sender, gate) = mpsc::channel();
    let gate = std::sync::Mutex::new(gate);
    let origin = Framed::with(limits, move |mut peer| {
        while let Some((stream, asked)) = peer.request() {
            if !asked.line.ends_with("/free") {
                gate.lock()
                    .expect("one")
                    .recv_timeout(PATIENCE)
                    .expect("the test goes on");
            }
            peer.answer(stream, 200, &[], asked.line.as_bytes());
        }
    });
    // One connection, so that requests beyond its limit of streams wait.
    let edge = by_streams(engine, &origin, |_, upstream| upstream.pool.connections = 1);
    edge.server.get("/free").expect(200, "GET test /free");
    origin.asked();
    let mut clients: Vec<_> = (0..4).map(|_| edge.server.client()).collect();
    for (number, client) in clients.iter_mut().enumerate() {
        client.send(get(&format!("/{number}")));
        if number == 0 {
            assert_eq!(origin.asked().line, "GET test /0");
        }
    }
    for _ in 0..4 {
        sender.send(()).expect("the origin waits");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        client.answer().expect(200, &format!("GET test /{number}"));
    }
    for _ in 0..3 {
        assert_eq!(origin.asked().connection, 0);
    }
    edge.server.shut_down();
}

fn as_many_connections_as_are_needed(engine: Config) {
    // No response before every request has arrived.
    let all = Arc::new(std::sync::Barrier::new(4));
    let origin = Framed::new(move |mut peer| {
        let mut streams = Vec::new();
        while let Some((stream, _)) = peer.request() {
            streams.push(stream);
            if streams.len() == 2 {
                all.wait();
                for stream in streams.drain(..) {
                    peer.answer(stream, 200, &[], b"ok");
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, upstream| {
        upstream.pool.streams_per_connection = 2
    });
    let mut clients: Vec<_> = (0..8).map(|_| edge.server.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    clients
        .iter_mut()
        .for_each(|client| client.answer().expect(200, "ok"));
    let mut asked: Vec<_> = (0..8).map(|_| origin.asked().connection).collect();
    asked.sort_unstable();
    assert_eq!(asked, [0, 0, 1, 1, 2, 2, 3, 3]);
    edge.server.shut_down();
}

fn a_waiter_gets_a_stream(engine: Config) {
    let origin = Framed::echo();
    let edge = by_streams(engine, &origin, |_, upstream| {
        upstream.pool.connections = 2;
        upstream.pool.streams_per_connection = 3;
    });
    let mut clients: Vec<_> = (0..40).map(|_| edge.server.client()).collect();
    for round in 0..5 {
        for (number, client) in clients.iter_mut().enumerate() {
            client.send(post("/", "text/plain", &format!("{round} {number}")));
        }
        for (number, client) in clients.iter_mut().enumerate() {
            client.answer().expect(200, &format!("{round} {number}"));
        }
    }
    for _ in 0..200 {
        assert!(origin.asked().connection < 2);
    }
    edge.server.shut_down();
}

fn a_slow_client_blocks_no_other(engine: Config) {
    let big = 8 << 20;
    let origin = Framed::new(move |mut peer| {
        let mut bodies = Vec::new();
        let body = pattern(big);
        while let Happened::Head(stream, asked, _) = peer.next_but_windows(&mut bodies, &body) {
            if asked.line.ends_with("/big") {
                peer.respond(stream, 200, &[], false);
                bodies.push((stream, 0));
            } else {
                peer.answer(stream, 200, &[], b"small");
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut slow: Vec<_> = (0..8).map(|_| edge.server.slow_client()).collect();
    slow.iter_mut().for_each(|client| client.send(get("/big")));
    let mut quick = edge.server.client();
    for _ in 0..50 {
        quick.send(get("/small"));
        quick.answer().expect(200, "small");
    }
    let expected = pattern(big);
    for client in &mut slow {
        assert!(client.answer().body == expected, "all of it came in the end");
    }
    edge.server.shut_down();
}

fn a_slow_endpoint_holds_its_client_back(engine: Config) {
    let origin = Framed::new(|mut peer| {
        peer.consumes = false;
        let Some((stream, ..)) = peer.head() else { return };
        // As much as its window has room for, and no more until that was read.
        let mut came = 0;
        while came < 256 * 1024 {
            if let Happened::Data(_, data, _) = peer.next() {
                came += data.len();
            }
        }
        assert_eq!(came, 256 * 1024);
        let mut unread = came;
        let mut end = false;
        while !end {
            peer.consume(stream, std::mem::take(&mut unread));
            if let Happened::Data(_, data, last) = peer.next() {
                came += data.len();
                unread = data.len();
                end = last;
            }
        }
        peer.answer(stream, 200, &[], came.to_string().as_bytes());
        peer.request();
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    let mut client = edge.server.client();
    let request = b"PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n";
    let sent = client.send_behind([&request[..], &pattern(5_000_000)].concat());
    client.answer().expect(200, "5000000");
    sent.join().expect("no panic").expect("all was taken");
    edge.server.shut_down();
}

fn a_connection_serves_so_many(engine: Config) {
    let origin = Framed::echo();
    let edge = by_streams(engine, &origin, |_, upstream| {
        upstream.pool.requests_per_connection = Some(2);
    });
    for number in 0..6 {
        edge.server.ask(post("/", "text/plain", "x")).expect(200, "x");
        assert_eq!(origin.asked().connection, number / 2);
    }
    edge.server.shut_down();
}

fn copies_and_probes(engine: Config) {
    let (origin, other) = (Framed::echo(), Framed::echo());
    let mut config = to(&[origin.addr], |forward, first| {
        first.protocol = UpstreamProtocol::Http2;
        forward.mirrors = vec![Mirror::to("other")];
    });
    let mut copied = upstream("other", &[other.addr]);
    copied.protocol = UpstreamProtocol::Http2;
    copied.health.active = Some(ActiveHealth {
        every: Duration::from_mins(10),
        ..ActiveHealth::new(HealthCheck::Http {
            target: "/health".into(),
            host: None,
            statuses: StatusRange {
                first: 200,
                last: 200,
            },
        })
    });
    config.upstreams.push(copied.into());
    let edge = edge(engine, config);
    let probe = other.asked();
    assert_eq!(probe.line, format!("GET {} /health", other.addr));
    assert_eq!(probe.field("user-agent"), Some("ringmain-health"));
    let length = 1000;
    let body = "y".repeat(length);
    edge.server
        .ask(post("/a?b", "text/plain", &body))
        .expect(200, &body);
    let (first, copy) = (origin.asked(), other.asked());
    assert_eq!((&first.line, &first.body), (&copy.line, &copy.body));
    assert_eq!(copy.line, "POST test /a?b");
    assert_eq!(copy.field("content-length"), Some("1000"));
    edge.server.shut_down();
}

/// Received bytes of bodies that clients do not read count in `engine::limits::HELD_BYTES` until these clients have disconnected.
fn bodies_that_wait_for_slow_clients_are_counted(engine: Config) {
    const CLIENTS: usize = 6;
    // On a connection of its own each, since an endpoint of this test sends one body at a time.
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.respond(stream, 200, &[], false);
            if !peer.data(stream, &pattern(4_000_000), true) {
                return;
            }
        }
    });
    let config = to(&[origin.addr], |_, upstream| {
        upstream.protocol = UpstreamProtocol::Http2;
        upstream.pool.streams_per_connection = 1;
    });
    let gateway = Gateway::new(Arc::new(config), Duration::ZERO);
    let app = gateway.app().get("/held-by-the-worker", |req, reply| {
        reply.text(req.cx().held().to_string())
    });
    let server = support::serve(engine, app);
    let held = || {
        server
            .get("/held-by-the-worker")
            .text()
            .parse::<usize>()
            .expect("a number")
    };
    assert_eq!(held(), 0);
    let mut clients = Vec::new();
    for count in 1..=CLIENTS {
        let mut client = server.slow_client();
        client.send(get("/"));
        clients.push(client);
        // At most a mark and a share of the relay are unsent; the rest is counted for bodies.
        let unsent = ringmain_engine::limits::WRITE_MARK + ringmain_gateway::limits::RELAY_SHARE;
        until(|| held() > count * (unsent + UPSTREAM_STREAM_WINDOW as usize / 4));
        let most = count * (unsent + 2 * UPSTREAM_STREAM_WINDOW as usize);
        assert!(
            held() <= most,
            "{} bytes of {count} clients, at most {most}",
            held()
        );
    }
    drop(clients);
    until(|| held() == 0);
    server.shut_down();
}
