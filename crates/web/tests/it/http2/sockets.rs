//! WebSockets on streams (RFC 8441).

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_web::ws::{CloseCause, CloseCode, Closed, Message, OwnedMessage};
use ringmain_web::{App, Limits, Request, Result, Socket, Ws, WsFrame, WsOptions};
use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{ErrorCode, Stream};
use ringmain_wire::ws::{Close, Decoder, Encoder, Event, Kind, Mask, Role};

use crate::http2::client::{Got, Http2, fields};
use crate::support::{Setting, pattern, serve};

in_every_way!(
    messages_are_echoed,
    bytes_may_arrive_one_by_one,
    many_sockets_share_a_connection,
    the_handshake_reports_negotiated_parameters,
    a_refused_handshake_has_a_reason,
    an_extended_connect_to_an_http_route_fails,
    a_handler_leads_to_sockets,
    a_slow_reader_costs_its_stream_alone,
    a_slow_handler_holds_up_its_client,
    the_end_of_a_stream_ends_its_socket,
    an_application_closes,
    a_shutdown_closes_each_socket,
);

/// The ends of sockets.
#[derive(Clone, Default)]
struct Ends(Arc<Mutex<Vec<(u16, CloseCause)>>>);

impl Ends {
    fn all(&self) -> Vec<(u16, CloseCause)> {
        self.0.lock().expect("no panic holds it").clone()
    }
}

struct Echo(Ends);

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        match message {
            Message::Text("close") => {
                ws.close(CloseCode::new(4000).expect("a code"), "as asked");
            }
            Message::Text("much") => while ws.send_binary([7; 10_000]) {},
            other => {
                ws.send(other);
            }
        }
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

type Room = Rc<RefCell<Vec<Ws>>>;

/// Everybody here hears what one says.
struct Guest(Room);

impl Socket for Guest {
    fn opened(&mut self, ws: &Ws) -> Result {
        self.0.borrow_mut().push(ws.clone());
        Ok(())
    }

    fn message(&mut self, _: &Ws, message: Message<'_>) -> Result {
        let frame = WsFrame::new(message);
        self.0.borrow_mut().retain(|guest| guest.send_frame(&frame));
        Ok(())
    }
}

fn app(ends: &Ends) -> App {
    let open = |req: &Request<'_>| Ok(Echo(req.state::<Ends>()?.clone()));
    App::new()
        .state(ends.clone())
        .per_worker(|_| Room::default())
        .get("/", |_, reply| reply.text("root"))
        .get_async("/task", async |_, reply| reply.text("task"))
        .get_async("/pieces", async |_, reply| reply.write("pieces").await)
        .post("/post", |_, reply| reply.text("posted"))
        .ws("/echo", open)
        .ws_with(
            "/deflate",
            &WsOptions::new().deflate().protocols(&["b", "a"]),
            open,
        )
        .ws("/room", |req| Ok(Guest(req.local::<Room>()?.clone())))
        .ws_async("/sum", |req, mut ws| {
            let cx = req.cx().clone();
            Ok(async move {
                let mut sum = 0;
                while let Some(message) = ws.next().await? {
                    if let OwnedMessage::Text(_) = message {
                        ws.send_text(sum.to_string()).await?;
                        continue;
                    }
                    sum += message.data().len();
                    cx.sleep(Duration::from_millis(1)).await;
                }
                Ok(())
            })
        })
}

/// A client's half of a socket on a stream.
struct Link {
    stream: Stream,
    encoder: Encoder,
    decoder: Decoder,
    input: Vec<u8>,
}

fn handshake() -> FieldBlock {
    fields(&[("sec-websocket-version", "13")])
}

impl Link {
    fn open(client: &mut Http2, path: &str) -> Link {
        let stream = client.extended("websocket", path, &handshake(), false);
        let got = client.wait_for(stream, |got| got.status > 0);
        assert_eq!((got.status, got.end, got.reset), (200, false, None), "{got:?}");
        assert!(got.field("sec-websocket-accept").is_none() && got.field("content-length").is_none());
        Link::on(stream)
    }

    fn on(stream: Stream) -> Link {
        let limits = ringmain_wire::ws::Limits {
            message_bytes: 1 << 24,
            frame_bytes: 1 << 24,
            ..ringmain_wire::ws::Limits::INTERNET
        };
        Link {
            stream,
            encoder: Encoder::new(Role::Client, None, usize::MAX),
            decoder: Decoder::new(Role::Client, &limits, None),
            input: Vec::new(),
        }
    }

    fn encode(&mut self, message: Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut key = || [1, 2, 3, 4];
        let encoded = self.encoder.message(&mut out, message, Mask::Keys(&mut key));
        encoded.expect("open");
        out
    }

    /// Sends a message, as the windows let it through.
    fn send(&mut self, client: &mut Http2, message: Message<'_>) {
        let bytes = self.encode(message);
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            let sent = client
                .wire
                .data(self.stream, rest, false, &mut client.out)
                .expect("a stream");
            rest = &rest[sent..];
            client.flush();
            if !rest.is_empty() {
                assert!(client.turn());
            }
        }
    }

    fn say(&mut self, client: &mut Http2, text: &str) {
        self.send(client, Message::Text(text));
    }

    fn close(&mut self, client: &mut Http2, code: u16) {
        let mut out = Vec::new();
        let close = Close {
            code: CloseCode::new(code).expect("a code"),
            reason: "",
        };
        let mut key = || [9; 4];
        let encoded = self.encoder.close(&mut out, Some(close), Mask::Keys(&mut key));
        encoded.expect("open");
        client.send_piece(self.stream, &out, false);
    }

    /// The next message, or the code of a Close.
    fn next(&mut self, client: &mut Http2) -> std::result::Result<Vec<u8>, u16> {
        let mut message = Vec::new();
        loop {
            self.input.extend(client.take_body(self.stream));
            loop {
                let step = self
                    .decoder
                    .decode(&mut self.input, None)
                    .expect("a server that keeps the rules");
                let consumed = step.consumed;
                let done = match step.event {
                    Event::NeedMore => {
                        self.input.drain(..consumed);
                        break;
                    }
                    Event::Piece(piece) => {
                        assert!(matches!(piece.kind, Kind::Text | Kind::Binary));
                        message.extend_from_slice(piece.data);
                        piece.last.then(|| Ok(std::mem::take(&mut message)))
                    }
                    Event::Close(close) => Some(Err(close.map_or(1005, |close| close.code.number()))),
                    Event::Ping(_) | Event::Pong(_) | Event::NeedInflater => None,
                };
                self.input.drain(..consumed);
                if let Some(done) = done {
                    return done;
                }
            }
            let seen = client.so_far(self.stream);
            assert!(!seen.end && seen.reset.is_none(), "no message: {seen:?}");
            assert!(client.turn(), "the connection ended");
        }
    }

    #[track_caller]
    fn hear(&mut self, client: &mut Http2, text: &str) {
        assert_eq!(self.next(client).as_deref(), Ok(text.as_bytes()));
    }
}

fn messages_are_echoed(setting: Setting) {
    let ends = Ends::default();
    let server = serve(setting.clone(), app(&ends));
    let mut client = Http2::new(&setting, &server);
    client.ask("/").expect(200, "root");
    assert!(client.wire.takes_extended_connect());
    let mut link = Link::open(&mut client, "/echo");
    for text in ["", "a", "später"] {
        link.say(&mut client, text);
        link.hear(&mut client, text);
    }
    // More than a window holds, both ways.
    let large = pattern(700_000);
    link.send(&mut client, Message::Binary(&large));
    assert_eq!(link.next(&mut client), Ok(large));
    // Others have their turn meanwhile.
    client.ask("/").expect(200, "root");
    link.close(&mut client, 1000);
    assert_eq!(link.next(&mut client), Err(1000));
    let got = client.wait(link.stream);
    assert_eq!((got.end, got.reset), (true, None));
    client.send_piece(link.stream, b"", true);
    client.ask("/").expect(200, "root");
    assert_eq!(ends.all(), [(1000, CloseCause::Client)]);
    assert_eq!(client.wire.open_streams(), 0);
    assert_eq!(server.running.report().workers[0].accepted, 1);
}

fn bytes_may_arrive_one_by_one(setting: Setting) {
    let server = serve(setting.clone(), app(&Ends::default()));
    let mut client = Http2::new(&setting, &server);
    let mut link = Link::open(&mut client, "/echo");
    for text in ["one by one", ""] {
        for byte in link.encode(Message::Text(text)) {
            client.send_piece(link.stream, &[byte], false);
        }
        link.hear(&mut client, text);
    }
}

fn many_sockets_share_a_connection(setting: Setting) {
    let server = serve(setting.clone(), app(&Ends::default()));
    let mut client = Http2::new(&setting, &server);
    let mut links: Vec<Link> = (0..60).map(|_| Link::open(&mut client, "/room")).collect();
    for round in 0..20 {
        let text = format!("round {round}");
        links[round].say(&mut client, &text);
        for link in &mut links {
            link.hear(&mut client, &text);
        }
    }
    // A socket whose stream is reset receives nothing more; the others continue.
    let gone = links.remove(3);
    client.reset(gone.stream);
    links[0].say(&mut client, "still here");
    for link in &mut links {
        link.hear(&mut client, "still here");
    }
    assert_eq!(client.so_far(gone.stream).reset, None);
}

fn the_handshake_reports_negotiated_parameters(setting: Setting) {
    let server = serve(setting.clone(), app(&Ends::default()));
    let mut client = Http2::new(&setting, &server);
    let wish = fields(&[
        ("sec-websocket-version", "13"),
        (
            "origin",
            if setting.tls {
                "https://localhost"
            } else {
                "http://localhost"
            },
        ),
        ("sec-websocket-protocol", "x, a, b"),
        (
            "sec-websocket-extensions",
            "permessage-deflate; client_max_window_bits",
        ),
    ]);
    let stream = client.extended("websocket", "/deflate", &wish, false);
    let got = client.wait_for(stream, |got| got.status > 0);
    assert_eq!(got.status, 200, "{got:?}");
    assert_eq!(got.field("sec-websocket-protocol"), Some("a"));
    let extensions = got.field("sec-websocket-extensions").expect("deflated");
    assert!(extensions.starts_with("permessage-deflate"), "{extensions}");
    // RFC 7692 §7.2.3.1: `Hello`, deflated.
    let frame = [0xc1, 0x87, 0, 0, 0, 0, 0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    client.send_piece(stream, &frame, false);
    let got = client.wait_for(stream, |got| got.body.len() == 7);
    assert_eq!(got.body, b"\x81\x05Hello");
}

fn a_refused_handshake_has_a_reason(setting: Setting) {
    let ends = Ends::default();
    let server = serve(setting.clone(), app(&ends));
    let mut client = Http2::new(&setting, &server);
    let mut ask = |protocol: &str, path: &str, block: &FieldBlock, end: bool| -> Got {
        let stream = client.extended(protocol, path, block, end);
        client.wait_for(stream, |got| got.status > 0)
    };
    let foreign = fields(&[("sec-websocket-version", "13"), ("origin", "http://evil.example")]);
    assert_eq!(ask("websocket", "/echo", &foreign, false).status, 403);
    let old = ask(
        "websocket",
        "/echo",
        &fields(&[("sec-websocket-version", "8")]),
        false,
    );
    assert_eq!(
        (old.status, old.field("sec-websocket-version")),
        (400, Some("13"))
    );
    assert_eq!(ask("websocket", "/echo", &FieldBlock::new(), false).status, 400);
    assert_eq!(ask("websocket", "/echo", &handshake(), true).status, 400);
    assert_eq!(ask("connect-udp", "/echo", &handshake(), false).status, 501);
    assert_eq!(ask("websocket", "/nowhere", &handshake(), false).status, 404);
    assert_eq!(ask("websocket", "/post", &handshake(), false).status, 405);
    // A client that sends the HTTP/1.1 handshake gets the 426, too.
    let got = client.ask("/echo");
    assert_eq!(got.status, 426);
    client.ask("/").expect(200, "root");
    assert_eq!(ends.all(), []);
}

fn an_extended_connect_to_an_http_route_fails(setting: Setting) {
    let server = serve(setting.clone(), app(&Ends::default()));
    let mut client = Http2::new(&setting, &server);
    for path in ["/", "/task", "/pieces"] {
        let stream = client.extended("WebSocket", path, &handshake(), false);
        let got = client.wait(stream);
        assert_eq!(got.status, 501, "{path}: {got:?}");
        assert!(
            got.text().contains("does not support WebSocket"),
            "{}",
            got.text()
        );
    }
    client.ask("/task").expect(200, "task");
}

fn a_handler_leads_to_sockets(setting: Setting) {
    let ends = Ends::default();
    let outer = App::new()
        .delegate_to(app(&ends))
        .fallback_streamed(async |req, reply| reply.delegate(req.path()).await);
    let server = serve(setting.clone(), outer);
    let mut client = Http2::new(&setting, &server);
    client.ask("/").expect(200, "root");
    // Data that arrives before the response waits for it.
    let stream = client.extended("websocket", "/echo", &handshake(), false);
    let mut link = Link::on(stream);
    link.say(&mut client, "early");
    link.hear(&mut client, "early");
    let mut other = Link::open(&mut client, "/echo");
    other.say(&mut client, "other");
    other.hear(&mut client, "other");
    other.close(&mut client, 1000);
    assert_eq!(other.next(&mut client), Err(1000));
    assert!(client.wait(other.stream).end);
    client.ask("/task").expect(200, "task");
    let stream = client.extended("websocket", "/", &handshake(), false);
    assert_eq!(client.wait(stream).status, 501);
    link.say(&mut client, "late");
    link.hear(&mut client, "late");
    client.reset(link.stream);
    client.ask("/").expect(200, "root");
    assert_eq!(ends.all(), [(1000, CloseCause::Client), (1006, CloseCause::Lost)]);
}

fn a_slow_reader_costs_its_stream_alone(setting: Setting) {
    let ends = Ends::default();
    let server = serve(setting.clone(), app(&ends));
    let mut client = Http2::new(&setting, &server);
    let mut slow = Link::open(&mut client, "/echo");
    let mut other = Link::open(&mut client, "/echo");
    client.hungry = false;
    slow.say(&mut client, "much");
    let got = client.wait(slow.stream);
    assert_eq!((got.end, got.reset), (false, Some(ErrorCode::CANCEL)));
    assert_eq!(ends.all(), [(1006, CloseCause::SlowReader)]);
    client.hungry = true;
    let held = got.body.len();
    client.wire.consume(slow.stream, held, &mut client.out);
    other.say(&mut client, "alive");
    other.hear(&mut client, "alive");
}

fn a_slow_handler_holds_up_its_client(setting: Setting) {
    let server = serve(setting.clone(), app(&Ends::default()));
    let mut client = Http2::new(&setting, &server);
    let mut link = Link::open(&mut client, "/sum");
    let piece = pattern(20_000);
    for _ in 0..100 {
        link.send(&mut client, Message::Binary(&piece));
    }
    link.say(&mut client, "sum?");
    link.hear(&mut client, "2000000");
    link.close(&mut client, 1000);
    assert_eq!(link.next(&mut client), Err(1000));
}

fn the_end_of_a_stream_ends_its_socket(setting: Setting) {
    let ends = Ends::default();
    let server = serve(setting.clone(), app(&ends));
    let mut client = Http2::new(&setting, &server);
    let mut link = Link::open(&mut client, "/echo");
    link.say(&mut client, "a");
    link.hear(&mut client, "a");
    client.send_piece(link.stream, b"", true);
    let got = client.wait(link.stream);
    assert_eq!((got.end, got.reset), (true, None));
    assert_eq!(ends.all(), [(1006, CloseCause::Lost)]);
    // A violation of the WebSocket protocol closes the socket alone.
    let link = Link::open(&mut client, "/echo");
    client.send_piece(link.stream, &[0x81, 0x01, b'x'], false);
    let got = client.wait(link.stream);
    assert_eq!((got.end, got.body), (true, b"\x88\x02\x03\xea".to_vec()));
    assert!(matches!(ends.all()[1], (1002, CloseCause::Fault(_))));
    // The connection's end is the end of each.
    let _one = Link::open(&mut client, "/echo");
    let _two = Link::open(&mut client, "/echo");
    drop(client);
    server.shut_down();
    assert_eq!(ends.all().len(), 4);
}

fn an_application_closes(setting: Setting) {
    let ends = Ends::default();
    let server = serve(setting.clone(), app(&ends));
    let mut client = Http2::new(&setting, &server);
    let mut link = Link::open(&mut client, "/echo");
    link.say(&mut client, "close");
    assert_eq!(link.next(&mut client), Err(4000));
    link.close(&mut client, 4000);
    let got = client.wait(link.stream);
    assert_eq!((got.end, got.reset), (true, None));
    assert_eq!(ends.all(), [(4000, CloseCause::Application)]);
    client.ask("/").expect(200, "root");
}

fn a_shutdown_closes_each_socket(mut setting: Setting) {
    let ends = Ends::default();
    setting.engine.drain_spread = Some(std::time::Duration::from_millis(100));
    let server = serve(setting.clone(), app(&ends).limits(Limits::default()));
    let mut client = Http2::new(&setting, &server);
    let mut links: Vec<Link> = (0..3).map(|_| Link::open(&mut client, "/echo")).collect();
    server.running.shut_down();
    for link in &mut links {
        assert_eq!(link.next(&mut client), Err(1012));
        link.close(&mut client, 1012);
    }
    for link in &links {
        assert!(client.wait(link.stream).end);
        client.send_piece(link.stream, b"", true);
    }
    client.expect_end();
    assert_eq!(ends.all(), [(1012, CloseCause::Shutdown); 3]);
}
