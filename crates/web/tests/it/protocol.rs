//! The protocol on one connection, byte by byte: order, framing, endings. Regressions found by the simulation, one per test.

use std::time::Duration;

use ringmain_web::testing::{ConnectionEnd, Plan, Setup, TestClient};
use ringmain_web::{App, Error, Event, Flow, Limits};

#[test]
fn no_interim_answer_follows_the_head_of_the_final_one() {
    let app = App::new().post_streamed("/", async |req, reply| {
        reply.write("begun, ").await?;
        let mut bytes = 0;
        while let Some(chunk) = req.chunk().await? {
            bytes += chunk.len();
        }
        reply.write(format!("{bytes} read")).await
    });
    let mut client = TestClient::new(app).unwrap();
    let mut raw = client.raw();
    raw.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n");
    raw.advance(Duration::from_secs(1));
    raw.send("body");
    let reply = raw.try_reply("POST").unwrap();
    assert_eq!((reply.text(), reply.interim()), ("begun, 4 read", &[][..]));
}

#[test]
fn a_last_answer_is_not_lost_to_requests_that_are_on_their_way() {
    let limits = Limits {
        requests_per_connection: Some(1),
        ..Limits::default()
    };
    let app = App::new()
        .limits(limits)
        .get("/plain", |_, reply| reply.text("plain"))
        .get_async("/async", async |_, reply| reply.text("async"));
    let mut client = TestClient::new(app).unwrap();
    for path in ["plain", "async"] {
        let mut raw = client.raw();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: a\r\n\r\n");
        raw.send(&request);
        // Answered by now, and not yet known to be the last.
        raw.advance(Duration::from_millis(10));
        raw.send(&request);
        raw.advance(Duration::from_millis(10));
        assert_eq!(raw.ending(), None, "{path}: no reset");
        let reply = raw.reply();
        assert_eq!((reply.text(), reply.closes()), (path, true));
        assert_eq!(
            raw.read_to_end().unwrap(),
            (Vec::new(), ConnectionEnd::Closed),
            "{path}"
        );
    }
}

#[test]
fn a_hook_that_panics_in_front_of_an_asynchronous_handler_is_answered_with_500() {
    let app = App::new()
        .before(|_, _| panic!("planned"))
        .get_async("/", async |_, reply| reply.text("not reached"));
    let mut client = TestClient::new(app).unwrap();
    for _ in 0..2 {
        assert_eq!(client.get("/").send().status(), 500);
    }
    assert_eq!((client.running(), client.connections()), (0, 1));
}

#[test]
fn a_trailer_section_may_come_in_pieces_wherever_its_body_goes() {
    let app = App::new()
        .post("/collect", |req, reply| reply.text(req.text()?))
        .post_async("/collected", async |req, reply| reply.text(req.text()?))
        .post_streamed("/stream", async |req, reply| {
            let mut body = Vec::new();
            while let Some(chunk) = req.chunk().await? {
                body.extend_from_slice(&chunk);
            }
            reply.body().extend_from_slice(&body);
            Ok(())
        });
    let mut client = TestClient::new(app).unwrap();
    for path in ["collect", "collected", "stream"] {
        let mut raw = client.raw();
        raw.send(format!(
            "POST /{path} HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nbody\r\n0\r\nX-A: b"
        ));
        raw.advance(Duration::from_secs(1));
        raw.send("c\r\n");
        raw.advance(Duration::from_secs(1));
        raw.send("\r\nGET /nowhere HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(raw.reply().text(), "body", "{path}");
        assert_eq!(raw.reply().status(), 404, "{path}");
    }
}

fn clock() -> App {
    App::new().get_async("/clock", async |req, reply| {
        let filling = "x".repeat(1000);
        let mut events = reply.events().await?;
        loop {
            events.send(&Event::new().data(&filling)).await?;
            req.cx().sleep(Duration::from_millis(100)).await;
        }
    })
}

#[test]
fn a_shutdown_or_the_clients_end_ends_an_event_stream_in_order() {
    for by_client in [false, true] {
        let mut client = TestClient::with(
            clock(),
            Setup {
                // So much waits in the server that the handler runs again before it is taken.
                plan: small_buffers(),
                ..Setup::default()
            },
        )
        .unwrap();
        let mut raw = client.raw();
        raw.send("GET /clock HTTP/1.1\r\nHost: a\r\n\r\n");
        raw.advance(Duration::from_secs(2));
        if by_client {
            raw.end();
        } else {
            client.shut_down();
        }
        raw.advance(Duration::from_secs(1));
        let reply = raw.reply();
        assert_eq!(reply.body().len() % "data: \n\n".len().wrapping_add(1000), 0);
        assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
    }
}

/// A network that holds a few bytes of a stream, as behind a client that does not read.
fn small_buffers() -> Plan {
    let mut plan = Plan::calm();
    (plan.send_bytes, plan.receive_bytes) = (2048, 2048);
    plan
}

#[test]
fn the_head_of_an_event_stream_has_no_body_at_a_shutdown() {
    let mut client = TestClient::new(clock()).unwrap();
    let mut raw = client.raw();
    raw.send("HEAD /clock HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(raw.try_reply("HEAD").unwrap().status(), 200);
    client.shut_down();
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
}

#[test]
fn an_unwanted_body_is_not_measured_by_the_limit_for_wanted_ones() {
    let limits = Limits {
        body_bytes: 10,
        ..Limits::default()
    };
    let mut client = TestClient::new(App::new().limits(limits)).unwrap();
    for _ in 0..2 {
        assert_eq!(client.post("/nowhere").body([b'x'; 1000]).send().status(), 404);
    }
    assert_eq!(client.connections(), 1, "it was read and dropped");
}

#[test]
fn an_unwanted_body_of_no_bytes_leaves_the_connection_idle() {
    let mut client = TestClient::new(App::new()).unwrap();
    let mut raw = client.raw();
    let request = "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n";
    for _ in 0..2 {
        raw.send(request);
        assert_eq!(raw.reply().status(), 404);
        raw.advance(Duration::from_secs(70));
    }
    assert_eq!(raw.ending(), None, "idle for less than its time");
    raw.advance(Duration::from_secs(10));
    assert_eq!(raw.ending(), Some(ConnectionEnd::Closed));
}

#[test]
fn a_shutdown_does_not_wait_for_a_connection_whose_unwanted_body_has_ended() {
    let mut client = TestClient::new(App::new()).unwrap();
    let mut raw = client.raw();
    raw.send("POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\n\r\na");
    assert_eq!(raw.reply().status(), 404);
    client.shut_down();
    raw.advance(Duration::from_secs(1));
    assert_eq!(raw.ending(), None);
    raw.send("b");
    raw.advance(Duration::from_secs(1));
    assert_eq!(raw.ending(), Some(ConnectionEnd::Closed));
}

#[test]
fn an_unread_body_after_a_large_response_is_not_parsed_as_a_request() {
    let app = App::new().before(|_, reply| {
        reply.body().resize(1_000_000, b'x');
        Ok(Flow::Stop)
    });
    let mut client = TestClient::new(app).unwrap();
    let mut raw = client.raw();
    let smuggled = "GET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";
    raw.send(format!(
        "POST /nowhere HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        smuggled.len()
    ));
    raw.advance(Duration::from_secs(1));
    raw.send(smuggled);
    assert_eq!(raw.reply().body().len(), 1_000_000);
    raw.send("GET /next HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
    assert_eq!(raw.reply().body().len(), 1_000_000);
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
}

#[test]
fn a_head_request_is_refused_without_a_body() {
    let app = App::new().get("/", |_, reply| reply.text("whole"));
    let mut client = TestClient::new(app).unwrap();
    let mut raw = client.raw();
    raw.send("HEAD / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000000\r\n\r\n");
    let reply = raw.try_reply("HEAD").unwrap();
    assert_eq!((reply.status(), reply.closes()), (413, true));
    raw.end();
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
    let mut raw = client.raw();
    raw.send("HEAD / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
    raw.advance(Duration::from_secs(1));
    raw.send("no size\r\n");
    assert_eq!(raw.try_reply("HEAD").unwrap().status(), 400);
    raw.end();
    assert_eq!(raw.read_to_end().unwrap(), (Vec::new(), ConnectionEnd::Closed));
}

#[test]
fn a_truncated_response_does_not_affect_earlier_ones() {
    let app = App::new()
        .get("/", |_, reply| reply.text("root"))
        .get_async("/cut", async |_, reply| {
            reply.write("begun").await?;
            Err(Error::internal("planned"))
        });
    let mut client = TestClient::new(app).unwrap();
    let mut raw = client.raw();
    raw.send("GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /cut HTTP/1.1\r\nHost: a\r\n\r\n");
    raw.advance(Duration::from_secs(1));
    assert_eq!(raw.reply().text(), "root");
    let error = raw.try_reply("GET").unwrap_err().to_string();
    assert!(error.contains("expected the rest of the message"), "{error}");
    // Without framing only a reset tells that it is not whole.
    let mut raw = client.raw();
    raw.send("GET /cut HTTP/1.0\r\n\r\n");
    assert_eq!(raw.read_to_end().unwrap().1, ConnectionEnd::Reset);
}

#[test]
fn trailers_follow_whole_and_streamed_responses_if_accepted() {
    let app = App::new()
        .after(|_, reply| reply.header("X-After", "ran").map(drop))
        .get_async("/whole", async |_, reply| {
            reply.trailer("X-Sum", "1")?.trailer("X-Sum", "2")?;
            reply.bytes("text/plain", "content")
        })
        .get_async("/pieces", async |_, reply| {
            reply.write("con").await?;
            reply.trailer("X-Sum", "1")?;
            reply.write("tent").await?;
            reply.trailer("X-Sum", "2").map(drop)
        })
        .get_async("/empty", async |_, reply| {
            reply.trailer("X-Sum", "1")?;
            reply.no_content()
        })
        .get_async("/broken", async |_, reply| {
            reply.trailer("Content-Length", "1").map(drop)
        })
        .get_async("/failed", async |_, reply| {
            reply.trailer("X-Sum", "1")?;
            Err(Error::conflict("after all"))
        })
        .get("/plain", |_, reply| {
            reply.trailer("X-Sum", "1")?;
            reply.text("content")
        });
    let mut client = TestClient::new(app).unwrap();
    let mut ask = |path: &str, te: &str| {
        let reply = client.get(path).header("TE", te).send();
        assert_eq!(reply.header("x-after"), Some("ran"), "{path}");
        let trailers: Vec<_> = reply
            .trailers()
            .map(|(name, value)| format!("{name}: {}", value.escape_ascii()))
            .collect();
        (reply.status(), reply.text().to_owned(), trailers.join(", "))
    };
    let sums = "X-Sum: 1, X-Sum: 2";
    for (path, te, trailers) in [
        ("/whole", "trailers", sums),
        ("/whole", "gzip, Trailers;q=0.5", sums),
        ("/whole", "gzip", ""),
        ("/pieces", "trailers", sums),
        ("/pieces", "", ""),
        ("/plain", "trailers", ""),
    ] {
        let expected = (200, "content".to_owned(), trailers.to_owned());
        assert_eq!(ask(path, te), expected, "{path} {te}");
    }
    assert_eq!(ask("/empty", "trailers"), (204, String::new(), String::new()));
    assert_eq!(ask("/broken", "trailers").0, 500);
    let (status, _, trailers) = ask("/failed", "trailers");
    assert_eq!((status, trailers.as_str()), (409, ""));
    // The connection stays open after every case; old clients and HEAD receive no trailers.
    assert_eq!(client.connections(), 1);
    assert_eq!(client.head("/whole").header("TE", "trailers").send().text(), "");
    let mut raw = client.raw();
    raw.send("GET /whole HTTP/1.0\r\nTE: trailers\r\n\r\n");
    let (bytes, ending) = raw.read_to_end().unwrap();
    assert!(bytes.ends_with(b"\r\n\r\ncontent"), "{}", bytes.escape_ascii());
    assert_eq!(ending, ConnectionEnd::Closed);
    client.finish().unwrap();
}
