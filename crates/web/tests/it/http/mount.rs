//! Requests that a handler delegates to other routes: they are answered as if they had arrived there directly.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use ringmain_web::testing::{ConnectionEnd, TestClient, TestEvent};
use ringmain_web::ws::{Closed, Message};
use ringmain_web::{App, Error, Flow, Reply, Request, Result, Socket, Ws};
use serde_json::{Value, json};

/// The ends of a worker's sockets.
#[derive(Clone, Default)]
struct Ends(Rc<Cell<u32>>);

/// Says hello, then sends everything back.
struct Echo(Ends);

impl Socket for Echo {
    fn opened(&mut self, ws: &Ws) -> Result {
        ws.send_text("hello");
        Ok(())
    }

    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        assert!(ws.send(message) || !ws.is_open());
        Ok(())
    }

    fn closed(&mut self, _: &Closed<'_>) {
        self.0.0.set(self.0.0.get() + 1);
    }
}

fn inner() -> App {
    App::new()
        .per_worker(|_| Ends::default())
        .state(String::from("state of the inner routes"))
        .get("/state", |req, reply| reply.text(req.state::<String>()?))
        .get("/user/{id}", |req, reply| reply.text(req.param("id")?))
        .get("/ends", |req, reply| reply.json(&req.local::<Ends>()?.0.get()))
        .ws("/echo", |req| Ok(Echo(req.local::<Ends>()?.clone())))
        .group("/json", |group| {
            group
                .body_limit(20)
                .after(|_, reply| reply.header("X-Inner", "behind").map(|_| ()))
                .before(|req, _| match req.header("x-forbidden") {
                    Some(_) => Err(Error::forbidden("no")),
                    None => Ok(Flow::Continue),
                })
                .post("", |req, reply| reply.json(&req.json::<Value>()?))
                .post_async("/later", async |req, reply| {
                    req.cx().sleep(Duration::from_secs(1)).await;
                    reply.json(&req.json::<Value>()?)
                })
                .post_streamed("/pieces", async |req, reply| {
                    let mut count = 0;
                    while let Some(piece) = req.chunk().await? {
                        count += piece.len();
                    }
                    reply.write(format!("{count} bytes")).await
                })
        })
}

/// Everything is led inside, a moment later where the query says so.
fn app() -> App {
    App::new()
        .before(|_, reply| reply.header("X-Outer", "before").map(|_| Flow::Continue))
        .after(|_, reply| reply.header("X-Outer-Behind", "behind").map(|_| ()))
        .get("/outside", |_, reply| reply.text("outside"))
        .fallback_streamed(async |req: &Request<'_>, reply: &mut Reply<'_>| {
            if req.target().ends_with("?later") {
                req.cx().sleep(Duration::from_secs(1)).await;
            }
            let path = req.path().strip_prefix("/below").unwrap_or(req.path());
            reply.delegate(path).await
        })
        .delegate_to(inner())
}

fn client() -> TestClient {
    TestClient::new(app()).unwrap()
}

#[test]
fn inner_routes_have_state_parameters_and_paths_of_their_own() {
    let mut client = client();
    assert_eq!(client.get("/state").send().text(), "state of the inner routes");
    assert_eq!(
        client.get("/below/state").send().text(),
        "state of the inner routes"
    );
    assert_eq!(client.get("/user/a%2Fb").send().text(), "a/b");
    assert_eq!(client.get("/outside").send().text(), "outside");
    assert_eq!(client.get("/nothing").send().status(), 404);
    let wrong = client.post("/state").send();
    assert_eq!(
        (wrong.status(), wrong.header("allow")),
        (405, Some("GET, HEAD, OPTIONS"))
    );
    assert_eq!(client.request("OPTIONS", "/state").send().status(), 204);
    let head = client.head("/state").send();
    assert_eq!((head.status(), head.body().len()), (200, 0));
    client.finish().unwrap();
}

#[test]
fn hooks_of_both_run_around_every_kind_of_answer() {
    let mut client = client();
    let value = json!({"a": 1});
    for path in ["/json", "/json/later"] {
        let reply = client.post(path).json(&value).send();
        assert_eq!(reply.json::<Value>(), value, "{path}");
        assert_eq!(reply.header("x-outer"), Some("before"), "{path}");
        assert_eq!(reply.header("x-inner"), Some("behind"), "{path}");
        assert_eq!(reply.header("x-outer-behind"), Some("behind"), "{path}");
    }
    let reply = client.post("/json/pieces").body(vec![b'x'; 20]).send();
    assert_eq!(
        (reply.text(), reply.header("x-inner")),
        ("20 bytes", Some("behind"))
    );
    let refused = client
        .post("/json")
        .header("X-Forbidden", "1")
        .json(&value)
        .send();
    assert_eq!(
        (refused.status(), refused.header("x-inner")),
        (403, Some("behind"))
    );
    client.finish().unwrap();
}

#[test]
fn bodies_are_as_long_as_their_route_takes() {
    let mut client = client();
    for path in ["/json", "/json/later", "/json/pieces"] {
        for chunked in [false, true] {
            let request = client.post(path).body(vec![b' '; 21]);
            let request = if chunked { request.chunked(4) } else { request };
            let reply = request.header("Content-Type", "application/json").send();
            assert_eq!(reply.status(), 413, "{path}, chunked: {chunked}");
        }
    }
    client.finish().unwrap();
}

#[test]
fn a_socket_opens_on_an_inner_route() {
    for target in ["/echo", "/echo?later"] {
        let mut client = client();
        let mut socket = client.ws(target).open();
        assert_eq!(socket.text(), "hello");
        socket.send_text("back");
        assert_eq!(socket.text(), "back");
        let totals = client.app().stats().totals();
        assert_eq!((totals.sockets, totals.classes[1]), (1, 1));
        socket.close(1000, "");
        assert_eq!(socket.closed(), (1000, String::new()));
        assert_eq!(socket.event().unwrap(), TestEvent::End);
        assert_eq!(client.get("/ends").send().text(), "1");
        assert_eq!(client.running(), 0, "its task is over");
        client.finish().unwrap();
    }
}

/// A masked text frame with the key 0.
fn frame(text: &str) -> Vec<u8> {
    let mut frame = vec![0x81, 0x80 | text.len() as u8, 0, 0, 0, 0];
    frame.extend_from_slice(text.as_bytes());
    frame
}

const OPENING: &str = "GET /echo?later HTTP/1.1\r\nHost: test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n";

#[test]
fn early_frames_wait_for_the_handshake() {
    let mut client = client();
    let mut raw = client.raw();
    let mut bytes = OPENING.as_bytes().to_vec();
    bytes.extend(frame("early"));
    raw.send(bytes);
    assert_eq!(raw.received(), b"");
    raw.advance(Duration::from_secs(2));
    let received = raw.received();
    assert!(
        received.starts_with(b"HTTP/1.1 101 "),
        "{}",
        received.escape_ascii()
    );
    assert!(
        received.ends_with(b"\x81\x05hello\x81\x05early"),
        "{}",
        received.escape_ascii()
    );
    // Silence is noticed as on any socket.
    raw.advance(Duration::from_secs(3600));
    assert_eq!(raw.received(), b"\x89\0", "a ping");
    assert_eq!(raw.ending(), Some(ConnectionEnd::Reset));
    assert_eq!(client.get("/ends").send().text(), "1");
    client.finish().unwrap();
}

#[test]
fn a_client_that_leaves_before_or_just_after_the_handshake_leaves_nothing() {
    for (wait, closed) in [(Duration::ZERO, "0"), (Duration::from_secs(2), "1")] {
        for leave in ["end", "reset"] {
            let mut client = client();
            let mut raw = client.raw();
            raw.send(OPENING);
            raw.advance(wait);
            match leave {
                "end" => raw.end(),
                _ => raw.reset(),
            }
            raw.advance(Duration::from_secs(3));
            if leave == "end" {
                raw.received();
                assert_eq!(raw.ending(), Some(ConnectionEnd::Closed));
            }
            let ends = client.get("/ends").send();
            // A half-closed client is still answered, and its socket closes at once.
            let expected = if leave == "end" { "1" } else { closed };
            assert_eq!(ends.text(), expected, "{wait:?} {leave}");
            assert_eq!(client.running(), 0);
            client.finish().unwrap();
        }
    }
}

#[test]
fn a_page_of_elsewhere_and_a_shutdown_are_refused_as_by_any_route() {
    let mut client = client();
    let refused = client
        .ws("/echo")
        .header("Origin", "https://elsewhere.example")
        .refused();
    assert_eq!(refused.status(), 403);
    assert_eq!(client.get("/echo").send().status(), 426);
    let mut socket = client.ws("/echo").open();
    assert_eq!(socket.text(), "hello");
    client.shut_down();
    assert_eq!(socket.closed(), (1012, String::new()));
    drop(socket);
    client.finish().unwrap();
}

#[test]
fn a_reply_that_is_sent_already_leads_nowhere() {
    let app = App::new()
        .get_async("/", async |_, reply| {
            reply.write("begun").await?;
            let error = reply.delegate("/state").await.unwrap_err();
            reply.write(format!(", then {}", error.status())).await
        })
        .delegate_to(inner());
    let mut client = TestClient::new(app).unwrap();
    assert_eq!(client.get("/").send().text(), "begun, then 500");
    client.finish().unwrap();
}
