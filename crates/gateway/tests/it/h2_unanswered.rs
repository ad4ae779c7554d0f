//! HTTP/2 requests that an endpoint does not answer, or not in full.

use std::sync::mpsc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{Timeouts, UpstreamProtocol};
use ringmain_testkit::wait::find;
use ringmain_wire::h2::ErrorCode;

use crate::h2_origin::{Framed, Happened};
use crate::h2_upstreams::by_streams;
use crate::origin::{Origin, edge, refusing_addr, to};
use crate::support::{PATIENCE, get, post};

on_every_backend! {
    who_goes_away_is_asked_no_more,
    what_was_not_looked_at_is_asked_again,
    what_is_refused_is_asked_again,
    what_is_always_refused_is_answered,
    a_response_before_the_end_of_the_request,
    a_client_that_leaves_gives_its_stream_up,
    a_connection_that_is_cut,
    streams_that_are_reset,
    endpoints_that_speak_something_else,
    answers_that_break_rules,
    an_endpoint_that_does_not_answer,
    idle_connections_are_closed,
    no_endpoint_accepts,
}

fn who_goes_away_is_asked_no_more(engine: Config) {
    let origin = Framed::new(|mut peer| {
        let Some((stream, _)) = peer.request() else { return };
        peer.respond(stream, 200, &[], false);
        peer.data(stream, b"one, ", false);
        peer.go_away(stream.id());
        // A response that was begun is finished.
        peer.data(stream, b"two", true);
        assert!(peer.request().is_none());
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for number in 0..3 {
        edge.server.get("/").expect(200, "one, two");
        assert_eq!(origin.asked().connection, number);
    }
    edge.server.shut_down();
}

fn what_was_not_looked_at_is_asked_again(engine: Config) {
    // The first connection answers its first request, and goes away before it looks at those behind.
    let origin = Framed::new(|mut peer| {
        let is_first = peer.number == 0;
        while let Some((stream, asked)) = peer.request() {
            if is_first && stream.id() > 1 {
                peer.go_away(1);
                continue;
            }
            peer.answer(stream, 200, &[], asked.line.as_bytes());
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    edge.server.get("/1").expect(200, "GET test /1");
    // Whatever its method: nothing was done for it.
    edge.server
        .ask(post("/2", "text/plain", "a body"))
        .expect(200, "POST test /2");
    let lines: Vec<_> = (0..3)
        .map(|_| origin.asked())
        .map(|asked| (asked.connection, asked.line))
        .collect();
    let expected = [(0, "GET test /1"), (0, "POST test /2"), (1, "POST test /2")];
    assert_eq!(lines, expected.map(|(number, line)| (number, line.to_owned())));
    edge.server.shut_down();
}

fn what_is_refused_is_asked_again(engine: Config) {
    let origin = Framed::new(|mut peer| {
        let is_first = peer.number == 0;
        while let Some((stream, asked)) = peer.request() {
            if is_first {
                peer.reset(stream, ErrorCode::REFUSED_STREAM);
            } else {
                peer.answer(stream, 200, &[], asked.line.as_bytes());
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    // Its body is kept, whatever its rule says of tries.
    edge.server
        .ask(post("/", "text/plain", "x"))
        .expect(200, "POST test /");
    let asked = [origin.asked(), origin.asked()];
    assert_eq!(asked.each_ref().map(|asked| asked.connection), [0, 1]);
    assert_eq!(asked.each_ref().map(|asked| asked.body.clone()), [b"x", b"x"]);
    edge.server.shut_down();
}

fn what_is_always_refused_is_answered(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.reset(stream, ErrorCode::REFUSED_STREAM);
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    edge.server.get("/").expect(503, "upstream refused the stream\n");
    // Once without being asked to, and no more.
    origin.asked();
    origin.asked();
    assert!(origin.is_quiet());
    edge.server.shut_down();
}

fn a_response_before_the_end_of_the_request(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked, end)) = peer.head() {
            peer.answer(stream, 413, &[], asked.line.as_bytes());
            if !end {
                peer.reset(stream, ErrorCode::NO_ERROR);
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for _ in 0..3 {
        let mut client = edge.server.client();
        client.send("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\nabc");
        client.answer().expect(413, "PUT a /");
    }
    edge.server.get("/").expect(413, "GET test /");
    edge.server.shut_down();
}

fn a_client_that_leaves_gives_its_stream_up(engine: Config) {
    let (sender, events) = mpsc::channel();
    let origin = Framed::new(move |mut peer| {
        loop {
            match peer.next() {
                Happened::Head(stream, asked, _) if asked.line.ends_with("/wait") => {
                    let _ = sender.send((peer.number, "asked"));
                    peer.respond(stream, 200, &[], false);
                    peer.data(stream, b"some", false);
                }
                Happened::Head(stream, ..) => {
                    peer.answer(stream, 200, &[], b"ok");
                }
                Happened::Reset(_, ErrorCode::CANCEL) => {
                    let _ = sender.send((peer.number, "given up"));
                }
                Happened::Closed => return,
                _ => {}
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for _ in 0..3 {
        let mut client = edge.server.client();
        client.send(get("/wait"));
        assert_eq!(events.recv_timeout(PATIENCE), Ok((0, "asked")));
        assert_eq!(client.head().status, 200);
        client.reset();
        assert_eq!(events.recv_timeout(PATIENCE), Ok((0, "given up")));
        edge.server.get("/").expect(200, "ok");
    }
    edge.server.shut_down();
}

fn a_connection_that_is_cut(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            match asked.line.as_str() {
                "GET test /within" => {
                    peer.respond(stream, 200, &[("content-length", "10")], false);
                    peer.data(stream, b"some", false);
                    peer.cut();
                }
                // A kept connection that ends with the second request on it: the third is on another.
                "GET test /stale" if peer.number != 1 => peer.cut(),
                "POST test /stale" => peer.cut(),
                _ => {
                    peer.answer(stream, 200, &[], b"ok");
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    edge.server.get("/").expect(200, "ok");
    edge.server.get("/stale").expect(200, "ok");
    // A request that may have been processed is not retried.
    let answer = edge
        .server
        .ask("POST /stale HTTP/1.1\r\nHost: test\r\nContent-Length: 0\r\n\r\n");
    answer.expect(
        502,
        "upstream closed the connection before the response headers\n",
    );
    let mut client = edge.server.client();
    client.send(get("/within"));
    let head = client.head();
    assert_eq!((head.status, head.field("content-length")), (200, Some("10")));
    assert_eq!(client.rest().0, b"some", "the answer is cut");
    edge.server.shut_down();
}

fn streams_that_are_reset(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            match asked.line.as_str() {
                "GET test /before" => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                "GET test /within" => {
                    peer.respond(stream, 200, &[], false);
                    peer.data(stream, b"some", false);
                    peer.reset(stream, ErrorCode::CANCEL);
                }
                _ => {
                    peer.answer(stream, 200, &[], b"ok");
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for _ in 0..3 {
        let mut client = edge.server.client();
        client.send(get("/within"));
        assert_eq!(client.head().status, 200);
        let rest = String::from_utf8(client.rest().0).expect("text");
        assert_eq!(rest, "4\r\nsome\r\n", "the answer is cut");
        assert_eq!(origin.asked().connection, 0, "others go on");
    }
    let answer = edge.server.get("/before");
    answer.expect(502, "upstream reset the connection before the response headers\n");
    edge.server.get("/").expect(200, "ok");
    edge.server.shut_down();
}

fn endpoints_that_speak_something_else(engine: Config) {
    let text = "upstream does not support HTTP/2\n";
    let old = Origin::new(|mut peer| {
        peer.some();
        peer.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    });
    let config = to(&[old.addr], |_, upstream| {
        upstream.protocol = UpstreamProtocol::Http2
    });
    let edge = edge(engine, config);
    edge.server.get("/").expect(502, text);
    edge.server.shut_down();
}

fn answers_that_break_rules(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            let id = stream.id();
            match asked.line.as_str() {
                // `:status: 200`, then a literal field with the given name and value.
                "GET test /case" => peer.raw(1, 4, id, b"\x88\x00\x03X-A\x01b"),
                "GET test /framing" => peer.raw(1, 4, id, b"\x88\x00\x11transfer-encoding\x07chunked"),
                "GET test /line" => peer.raw(1, 4, id, b"\x88\x00\x01a\x06b\r\nc:d"),
                "GET test /status" => peer.raw(1, 4, id, b"\x00\x01a\x01b"),
                "GET test /length" => {
                    peer.raw(1, 4, id, b"\x88\x0f\x0d\x013");
                    peer.raw(0, 1, id, b"four");
                }
                "GET test /large" => {
                    let fields = [("x-many", "1"); 250];
                    peer.respond(stream, 200, &fields, true);
                }
                _ => {
                    peer.answer(stream, 200, &[], b"ok");
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    for target in ["/case", "/framing", "/line", "/status"] {
        let answer = edge.server.get(target);
        answer.expect(502, "invalid upstream response headers\n");
    }
    edge.server
        .get("/large")
        .expect(502, "upstream response headers too large\n");
    let mut client = edge.server.client();
    client.send(get("/length"));
    let head = client.head();
    assert_eq!(head.field("content-length"), Some("3"));
    assert_eq!(
        client.rest().0,
        b"",
        "nothing of a body that is longer than was said"
    );
    edge.server.get("/").expect(200, "ok");
    edge.server.shut_down();
}

fn an_endpoint_that_does_not_answer(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked)) = peer.request() {
            match asked.line.as_str() {
                "GET test /never" => {}
                "GET test /some" => {
                    peer.respond(stream, 200, &[], false);
                    peer.data(stream, b"some", false);
                }
                _ => {
                    peer.answer(stream, 200, &[], b"ok");
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |forward, _| {
        forward.timeouts = Timeouts {
            idle: Some(Duration::from_millis(200)),
            ..Timeouts::default()
        };
    });
    edge.server
        .get("/never")
        .expect(504, "upstream response timeout\n");
    let mut asked = 1;
    // On a busy machine the origin may itself be too late for the head.
    let mut client = find("a response whose head is in time", || {
        asked += 1;
        let mut client = edge.server.client();
        client.send(get("/some"));
        (client.head().status == 200).then_some(client)
    });
    assert_eq!(client.rest().0, b"4\r\nsome\r\n");
    // It lives, and is used on.
    find("a response in time", || {
        asked += 1;
        (edge.server.get("/").status == 200).then_some(())
    });
    for _ in 0..asked {
        assert_eq!(origin.asked().connection, 0);
    }
    edge.server.shut_down();
}

fn idle_connections_are_closed(engine: Config) {
    let (sender, events) = mpsc::channel();
    let origin = Framed::new(move |mut peer| {
        loop {
            match peer.next() {
                Happened::Head(stream, ..) => {
                    peer.answer(stream, 200, &[], b"ok");
                }
                Happened::GoAway(code) => {
                    let _ = sender.send(code);
                }
                Happened::Closed => return,
                _ => {}
            }
        }
    });
    let edge = by_streams(engine.clone(), &origin, |_, upstream| {
        upstream.pool.idle = Duration::from_millis(10);
    });
    edge.server.get("/").expect(200, "ok");
    assert_eq!(events.recv_timeout(PATIENCE), Ok(ErrorCode::NO_ERROR));
    edge.server.get("/").expect(200, "ok");
    edge.server.shut_down();
    // And in a shutdown.
    assert_eq!(events.recv_timeout(PATIENCE), Ok(ErrorCode::NO_ERROR));
}

fn no_endpoint_accepts(engine: Config) {
    let config = to(&[refusing_addr()], |_, upstream| {
        upstream.protocol = UpstreamProtocol::Http2
    });
    let edge = edge(engine, config);
    let mut clients: Vec<_> = (0..20).map(|_| edge.server.client()).collect();
    clients.iter_mut().for_each(|client| client.send(get("/")));
    for client in &mut clients {
        client.answer().expect(503, "upstream connection refused\n");
    }
    edge.server.shut_down();
}
