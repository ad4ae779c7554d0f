//! HTTP/2's deadlines and limits in virtual time: what happens just below each, and beyond.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_web::stats::Rejection;
use ringmain_web::testing::{ConnectionEnd, RawConnection, TestClient};
use ringmain_web::ws::{CloseCause, CloseCode, Closed, Message};
use ringmain_web::{App, Bytes, Limits, Result, Socket, Ws};
use ringmain_wire::h1::{FieldBlock, Method};
use ringmain_wire::h2::{self, Connection, ErrorCode, Event, HeadBuffer, Request, Role, Stream};

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

fn app() -> App {
    App::new()
        .get("/", |_, reply| reply.text("root"))
        .post("/length", |req, reply| reply.text(req.body().len().to_string()))
        .post_streamed("/through", async |req, reply| {
            let mut length = 0;
            while let Some(chunk) = req.chunk().await? {
                length += chunk.len();
            }
            reply.text(length.to_string())
        })
        .get_async("/wait/{seconds}", async |req, reply| {
            req.cx().sleep(seconds(req.param_as("seconds")?)).await;
            reply.text("waited")
        })
        .get("/large", |_, reply| {
            reply.bytes("application/octet-stream", Bytes::from(vec![b'x'; 1_000_000]))
        })
}

/// A client of HTTP/2 over a simulated connection.
struct Http2 {
    raw: RawConnection,
    wire: Connection,
    heads: HeadBuffer,
    out: Vec<u8>,
    input: Vec<u8>,
    /// Received events, as text.
    heard: Vec<String>,
}

impl Http2 {
    fn new(client: &mut TestClient, limits: &h2::Limits) -> Http2 {
        let mut out = Vec::new();
        let mut http2 = Http2 {
            raw: client.raw(),
            wire: Connection::new(Role::Client, limits, Duration::ZERO, &mut out),
            heads: HeadBuffer::new(limits),
            out,
            input: Vec::new(),
            heard: Vec::new(),
        };
        http2.turn();
        http2
    }

    /// Sends queued bytes, advances time by a millisecond, and processes received bytes.
    fn turn(&mut self) {
        self.turn_after(Duration::from_millis(1));
    }

    fn turn_after(&mut self, span: Duration) {
        let out = std::mem::take(&mut self.out);
        self.raw.send(out);
        self.raw.advance(span);
        self.input.extend(self.raw.received());
        let mut at = 0;
        loop {
            let step = self
                .wire
                .receive(&self.input[at..], Duration::ZERO, &mut self.heads, &mut self.out)
                .expect("a server that keeps the rules");
            at += step.consumed;
            self.heard.push(match step.event {
                Event::NeedMore => break,
                Event::Response { stream, head, .. } => format!("{} {}", stream.id(), head.status),
                Event::Data { stream, data, end } => format!("{} {} bytes {end}", stream.id(), data.len()),
                Event::Reset { stream, code } => format!("{} {code}", stream.id()),
                Event::GoAway { code, .. } => format!("away {code}"),
                Event::Settings | Event::Window { .. } => continue,
                other => format!("{other:?}"),
            });
        }
        self.input.drain(..at);
    }

    fn begin(&mut self, method: &str, path: &str, end: bool) -> Stream {
        let request = Request {
            method: Method::new(method),
            scheme: "http",
            authority: "localhost",
            path,
            protocol: None,
        };
        self.wire
            .request(&request, &FieldBlock::new(), None, end, &mut self.out)
            .expect("a stream")
    }

    fn heard(&mut self) -> Vec<String> {
        self.turn();
        std::mem::take(&mut self.heard)
    }
}

fn client() -> TestClient {
    TestClient::new(app()).unwrap()
}

#[test]
fn an_idle_connection_is_closed() {
    let mut client = client();
    let limits = Limits::default();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    http2.begin("GET", "/", true);
    assert_eq!(http2.heard(), ["1 200", "1 4 bytes true"]);
    http2.turn_after(limits.idle_timeout - seconds(1));
    assert_eq!(http2.heard(), Vec::<String>::new());
    http2.turn_after(seconds(2));
    assert_eq!(http2.heard(), ["away NO_ERROR"]);
    http2.raw.end();
    assert_eq!(
        http2.raw.read_to_end().unwrap(),
        (Vec::new(), ConnectionEnd::Closed)
    );
}

#[test]
fn a_preface_that_does_not_come_ends_in_time() {
    for sent in [
        &b"PRI * HTTP/2.0\r\n\r\nSM"[..],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    ] {
        let mut client = client();
        let mut raw = client.raw();
        raw.send(sent);
        raw.advance(Limits::default().header_timeout - seconds(1));
        assert_eq!(raw.ending(), None);
        raw.advance(seconds(2));
        raw.end();
        let (bytes, ending) = raw.read_to_end().unwrap();
        assert!(!bytes.is_empty(), "it is told why");
        assert_eq!(ending, ConnectionEnd::Closed);
    }
}

#[test]
fn the_rest_of_a_head_has_a_deadline() {
    let mut client = client();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    http2.begin("GET", "/", true);
    http2.turn();
    http2.heard.clear();
    http2.begin("GET", "/", true);
    let head = std::mem::take(&mut http2.out);
    // A byte every two seconds does not put it off.
    for byte in &head[..6] {
        http2.raw.send([*byte]);
        http2.turn_after(seconds(2));
    }
    assert_eq!(http2.heard(), ["away NO_ERROR"]);
}

/// A frame as a client might send it that keeps no rule.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

const HEADERS: u8 = 0x1;
const PING: u8 = 0x6;
const CONTINUATION: u8 = 0x9;
const END_STREAM: u8 = 0x1;

/// Fields of a head that never ends, one each second, as a literal without indexing.
const DRIP: &[u8] = b"\x00\x01x\x01y";

#[test]
fn a_head_in_parts_has_the_time_of_one_head() {
    for busy in [false, true] {
        let mut client = client();
        let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
        let mut first = 1;
        if busy {
            http2.begin("GET", "/wait/3600", true);
            http2.turn();
            first = 3;
        }
        http2.turn();
        http2.raw.send(frame(HEADERS, END_STREAM, first, DRIP));
        let timeout = Limits::default().header_timeout.as_secs();
        // Every third second: more than eight frames would be a flood.
        for second in (0..timeout - 1).step_by(3) {
            http2.turn_after(seconds(3));
            assert_eq!(
                http2.heard,
                Vec::<String>::new(),
                "busy: {busy}, after {second} s"
            );
            http2.raw.send(frame(CONTINUATION, 0, first, DRIP));
        }
        http2.turn_after(seconds(4));
        assert_eq!(http2.heard(), ["away NO_ERROR"], "busy: {busy}");
        http2.raw.end();
        assert_eq!(http2.raw.read_to_end().unwrap().1, ConnectionEnd::Closed);
    }
}

/// Of a head's first frame there is no more than its header, while another stream is answered.
#[test]
fn part_of_a_heads_frame_has_that_time_too() {
    let mut client = client();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    http2.begin("GET", "/wait/3600", true);
    http2.turn();
    let whole = frame(HEADERS, END_STREAM, 3, DRIP);
    http2.raw.send(&whole[..11]);
    http2.turn_after(Limits::default().header_timeout + seconds(4));
    assert_eq!(http2.heard(), ["away NO_ERROR"]);
}

#[test]
fn pings_do_not_keep_an_idle_connection() {
    let mut client = client();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    let idle = Limits::default().idle_timeout.as_secs();
    // A request does: the time counts from its response.
    for _ in 0..2 {
        http2.begin("GET", "/", true);
        http2.turn();
        http2.heard.clear();
        for second in 0..idle - 2 {
            http2.raw.send(frame(PING, 0, 0, b"are we?!"));
            http2.turn_after(seconds(1));
            http2.heard.retain(|heard| !heard.starts_with("Pong"));
            assert_eq!(http2.heard, Vec::<String>::new(), "after {second} s");
        }
    }
    http2.raw.send(frame(PING, 0, 0, b"are we?!"));
    http2.turn_after(seconds(4));
    http2.heard.retain(|heard| !heard.starts_with("Pong"));
    assert_eq!(http2.heard(), ["away NO_ERROR"]);
}

#[test]
fn a_body_that_comes_too_slowly_is_refused() {
    for (path, drips, refused) in [
        ("/length", 300, false),
        ("/length", 20, true),
        ("/through", 300, false),
        ("/through", 20, true),
    ] {
        let mut client = client();
        let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
        let stream = http2.begin("POST", path, false);
        for _ in 0..20 {
            if http2.wire.is_open(stream) {
                // Beyond the answer nothing can be sent.
                let _ = http2.wire.data(stream, &vec![b'x'; drips], false, &mut http2.out);
            }
            http2.turn_after(seconds(1));
        }
        let heard = http2.heard();
        if refused {
            assert_eq!(
                heard.first().map(String::as_str),
                Some("1 408"),
                "{path} {heard:?}"
            );
        } else {
            assert_eq!(heard, Vec::<String>::new(), "{path}");
            let end = http2.wire.data(stream, b"", true, &mut http2.out);
            assert_eq!(end, Ok(0));
            assert_eq!(http2.heard(), ["1 200", "1 4 bytes true"], "{path}");
        }
        http2.begin("GET", "/", true);
        assert_eq!(http2.heard(), ["3 200", "3 4 bytes true"], "{path}");
    }
}

#[test]
fn an_answer_that_nobody_makes_room_for_is_given_up() {
    let mut client = client();
    let limits = h2::Limits {
        stream_window: 1000,
        ..h2::Limits::INTERNET
    };
    let mut http2 = Http2::new(&mut client, &limits);
    http2.begin("GET", "/large", true);
    assert_eq!(http2.heard(), ["1 200", "1 1000 bytes false"]);
    http2.turn_after(Limits::default().send_pause - seconds(1));
    assert_eq!(http2.heard(), Vec::<String>::new());
    // Bytes taken at first regain some seconds, up to the same limit.
    http2.turn_after(seconds(4));
    assert_eq!(http2.heard(), ["1 CANCEL"]);
    http2.begin("GET", "/", true);
    assert_eq!(http2.heard(), ["3 200", "3 4 bytes true"]);
}

#[test]
fn a_silent_client_is_pinged_during_a_response() {
    let mut client = client();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    // The codec answers pings.
    http2.begin("GET", "/wait/300", true);
    for _ in 0..310 {
        http2.turn_after(seconds(1));
    }
    assert_eq!(http2.heard(), ["1 200", "1 6 bytes true"]);

    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    http2.begin("GET", "/wait/300", true);
    http2.turn();
    // From here on it says nothing.
    http2.raw.advance(seconds(45));
    assert_eq!(http2.raw.ending(), None);
    let asked = http2.raw.received();
    assert_eq!(asked[..5], [0, 0, 8, 6, 0], "a ping");
    http2.raw.advance(seconds(15));
    assert_eq!(http2.raw.ending(), Some(ConnectionEnd::Reset));
}

#[test]
fn streams_beyond_their_limit_are_refused() {
    let limits = Limits {
        streams: 2,
        ..Limits::default()
    };
    let mut client = TestClient::new(app().limits(limits)).unwrap();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    // A client does not know the server's settings before they have arrived.
    let mut out = Vec::new();
    let mut hasty = Connection::new(Role::Client, &h2::Limits::INTERNET, Duration::ZERO, &mut out);
    std::mem::swap(&mut http2.wire, &mut hasty);
    http2.raw = client.raw();
    http2.out = out;
    for _ in 0..3 {
        http2.begin("GET", "/wait/1", true);
    }
    let heard = http2.heard();
    assert_eq!(heard, [format!("5 {}", ErrorCode::REFUSED_STREAM)]);
    http2.turn_after(seconds(2));
    assert_eq!(
        http2.heard(),
        ["1 200", "1 6 bytes true", "3 200", "3 6 bytes true"]
    );
}

#[test]
fn running_requests_beyond_their_limit_are_told_to_come_again() {
    let limits = Limits {
        running_requests: 1,
        ..Limits::default()
    };
    let mut client = TestClient::new(app().limits(limits)).unwrap();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    http2.begin("GET", "/wait/5", true);
    http2.begin("GET", "/wait/5", true);
    assert_eq!(http2.heard()[0], "3 503");
    http2.turn_after(seconds(6));
    assert_eq!(http2.heard(), ["1 200", "1 6 bytes true"]);
    let rejected = client.app().stats().totals().rejected;
    assert!(
        rejected.contains(&(Rejection::RunningRequests, 1)),
        "{rejected:?}"
    );
}

/// Sends every message back; `close` is an order.
struct Echo(Ends);

#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<(u16, CloseCause)>>>);

impl Ends {
    fn all(&self) -> Vec<(u16, CloseCause)> {
        self.0.lock().expect("no panic holds it").clone()
    }
}

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        match message {
            Message::Text("close") => ws.close(CloseCode::NORMAL, ""),
            other => ws.send(other),
        };
        Ok(())
    }

    fn closed(&mut self, closed: &Closed<'_>) {
        self.0
            .0
            .lock()
            .expect("no panic")
            .push((closed.code, closed.cause));
    }
}

/// A client with so many sockets open.
fn sockets(count: usize) -> (TestClient, Http2, Vec<Stream>, Ends) {
    let ends = Ends::default();
    let theirs = ends.clone();
    let app = app().ws("/echo", move |_| Ok(Echo(theirs.clone())));
    let mut client = TestClient::new(app).unwrap();
    let mut http2 = Http2::new(&mut client, &h2::Limits::INTERNET);
    let streams = (0..count).map(|_| http2.socket()).collect();
    http2.turn();
    http2.heard.clear();
    (client, http2, streams, ends)
}

impl Http2 {
    fn socket(&mut self) -> Stream {
        let request = Request {
            method: Method::Connect,
            scheme: "http",
            authority: "localhost",
            path: "/echo",
            protocol: Some("websocket"),
        };
        let mut fields = FieldBlock::new();
        fields.push("sec-websocket-version", b"13").expect("a field");
        self.wire
            .request(&request, &fields, None, false, &mut self.out)
            .expect("a stream")
    }

    fn frame(&mut self, stream: Stream, first: u8, payload: &[u8]) {
        let mut frame = vec![first, 0x80 | payload.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(payload);
        let sent = self.wire.data(stream, &frame, false, &mut self.out);
        assert_eq!(sent, Ok(frame.len()));
    }
}

#[test]
fn a_silent_socket_is_pinged_and_given_up_alone() {
    let (_client, mut http2, streams, ends) = sockets(2);
    http2.turn_after(seconds(29));
    assert_eq!(http2.heard(), Vec::<String>::new());
    // Whatever arrives on it puts it off.
    http2.frame(streams[1], 0x81, b"here");
    assert_eq!(http2.heard(), ["3 6 bytes false"]);
    http2.turn_after(seconds(2));
    assert_eq!(http2.heard(), ["1 2 bytes false"]);
    http2.turn_after(seconds(10));
    // A pong is a sign of life: the other has none.
    http2.turn_after(seconds(18));
    http2.frame(streams[1], 0x8A, b"");
    assert_eq!(http2.heard(), ["1 CANCEL", "3 2 bytes false"]);
    assert_eq!(ends.all(), [(1006, CloseCause::Silent)]);
    http2.frame(streams[1], 0x81, b"here");
    assert_eq!(http2.heard(), ["3 6 bytes false"]);
}

#[test]
fn a_close_on_a_stream_is_answered_in_time_or_given_up() {
    let (_client, mut http2, streams, ends) = sockets(2);
    for &stream in &streams {
        http2.frame(stream, 0x81, b"close");
    }
    assert_eq!(http2.heard(), ["1 4 bytes false", "3 4 bytes false"]);
    http2.turn_after(seconds(3));
    http2.frame(streams[1], 0x88, b"\x03\xe8");
    assert_eq!(http2.heard(), ["3 0 bytes true"]);
    http2.turn_after(seconds(3));
    // One never answered, the other did not end its stream.
    let mut heard = http2.heard();
    heard.sort();
    assert_eq!(heard, ["1 CANCEL", "3 NO_ERROR"]);
    assert_eq!(
        ends.all(),
        [(1000, CloseCause::Application), (1006, CloseCause::Application)]
    );
    // Nothing is left that would keep the connection.
    http2.turn_after(Limits::default().idle_timeout + seconds(1));
    assert_eq!(http2.heard(), ["away NO_ERROR"]);
}

#[test]
fn a_message_on_a_stream_becomes_whole_in_time() {
    let (_client, mut http2, streams, ends) = sockets(1);
    http2.frame(streams[0], 0x01, b"slow");
    for _ in 0..5 {
        http2.turn_after(seconds(11));
        http2.frame(streams[0], 0x89, b"");
    }
    http2.turn();
    assert_eq!(ends.all(), []);
    http2.turn_after(seconds(6));
    assert_eq!(ends.all(), [(1008, CloseCause::SlowMessage)]);
    let heard = http2.heard();
    assert_eq!(heard[heard.len() - 2..], ["1 4 bytes false", "1 0 bytes true"]);
}

#[test]
fn sockets_and_other_streams_keep_their_own_time() {
    let (_client, mut http2, streams, ends) = sockets(1);
    // The connection is looked at each second while a request is answered, and rests afterwards.
    http2.begin("GET", "/wait/10", true);
    http2.turn_after(seconds(11));
    assert_eq!(http2.heard(), ["3 200", "3 6 bytes true"]);
    for _ in 0..20 {
        http2.turn_after(seconds(31));
        assert_eq!(http2.heard(), ["1 2 bytes false"], "a ping");
        http2.frame(streams[0], 0x8A, b"");
    }
    let body = http2.begin("POST", "/length", false);
    http2.turn_after(seconds(15));
    assert_eq!(http2.heard()[0], "5 408");
    assert!(!http2.wire.is_open(body));
    assert_eq!(ends.all(), []);
}
