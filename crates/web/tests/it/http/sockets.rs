//! WebSockets over real sockets. The effects of limits are tested in virtual time, elsewhere.

use std::cell::RefCell;
use std::rc::Rc;

use ringmain_web::ws::Message;
use ringmain_web::{App, Limits, Result, Socket, Ws, WsFrame, WsOptions};
use ringmain_wire::ws::{Close, CloseCode, Decoder, Encoder, Event, Mask, Role};

use crate::support::{Client, End, Server, Setting, get, pattern, serve};

in_every_way!(
    messages_are_echoed,
    bytes_may_arrive_one_by_one,
    a_socket_opens_after_other_requests,
    a_slow_reader_receives_everything,
    a_reset_ends_one_socket_only,
    a_frame_goes_to_many,
    a_shutdown_closes_each_socket,
);

struct Echo;

impl Socket for Echo {
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result {
        ws.send(message);
        Ok(())
    }
}

/// Everybody here hears what one says: the sockets of one worker.
type Room = Rc<RefCell<Vec<Ws>>>;

struct Guest(Room);

impl Socket for Guest {
    fn opened(&mut self, ws: &Ws) -> Result {
        self.0.borrow_mut().push(ws.clone());
        Ok(())
    }

    fn message(&mut self, _: &Ws, message: Message<'_>) -> Result {
        let frame = WsFrame::new(message);
        let mut guests = self.0.borrow_mut();
        guests.retain(|guest| guest.send_frame(&frame));
        Ok(())
    }
}

fn app() -> App {
    let mut limits = Limits::default();
    limits.websocket.message_bytes = 8 * 1024 * 1024;
    limits.websocket.frame_bytes = 8 * 1024 * 1024;
    limits.websocket.unsent_bytes = 9 * 1024 * 1024;
    App::new()
        .limits(limits)
        .per_worker(|_| Room::default())
        .get("/", |_, reply| reply.text("ok"))
        .ws_with("/echo", &WsOptions::new(), |_| Ok(Echo))
        .ws("/room", |req| Ok(Guest(req.local::<Room>()?.clone())))
}

/// A client's half of a socket: its encoder, and the received bytes.
struct Link {
    client: Client,
    encoder: Encoder,
    decoder: Decoder,
}

impl Link {
    fn new(server: &Server, target: &str) -> Link {
        Link::over(server.client(), target)
    }

    fn over(mut client: Client, target: &str) -> Link {
        client.send(format!(
            "GET {target} HTTP/1.1\r\nHost: test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        ));
        let answer = client.head();
        assert_eq!(answer.status, 101, "{answer:?}");
        assert_eq!(
            answer.field("sec-websocket-accept"),
            Some("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=")
        );
        let limits = ringmain_wire::ws::Limits {
            frame_bytes: u64::MAX,
            message_bytes: u64::MAX,
            control_frames: 100,
        };
        Link {
            client,
            encoder: Encoder::new(Role::Client, None, 100_000),
            decoder: Decoder::new(Role::Client, &limits, None),
        }
    }

    fn encode(&mut self, message: Message<'_>) -> Vec<u8> {
        let mut out = Vec::new();
        let mut key = || [1, 2, 3, 4];
        let mask = Mask::Keys(&mut key);
        self.encoder.message(&mut out, message, mask).expect("it is open");
        out
    }

    fn send(&mut self, message: Message<'_>) {
        let bytes = self.encode(message);
        self.client.send(bytes);
    }

    fn close(&mut self) {
        let mut out = Vec::new();
        let mut key = || [1, 2, 3, 4];
        let close = Close {
            code: CloseCode::NORMAL,
            reason: "",
        };
        let encoded = self.encoder.close(&mut out, Some(close), Mask::Keys(&mut key));
        encoded.expect("it is open");
        self.client.send(out);
    }

    /// The next message; a Close's code as text.
    #[track_caller]
    fn next(&mut self) -> Vec<u8> {
        let mut message = Vec::new();
        let mut input = Vec::new();
        loop {
            let step = self.decoder.decode(&mut input, None).expect("frames");
            let consumed = step.consumed;
            match step.event {
                Event::Piece(piece) => {
                    message.extend_from_slice(piece.data);
                    if piece.last {
                        assert_eq!(consumed, input.len(), "bytes are read one by one");
                        return message;
                    }
                }
                Event::Close(close) => {
                    return close.map_or(0, |close| close.code.number()).to_string().into();
                }
                Event::Ping(_) | Event::Pong(_) | Event::NeedInflater => {}
                Event::NeedMore => {
                    input.drain(..consumed);
                    input.extend(self.client.take(1));
                    continue;
                }
            }
            input.drain(..consumed);
        }
    }
}

fn messages_are_echoed(config: Setting) {
    let server = serve(config, app());
    let mut link = Link::new(&server, "/echo");
    for length in [0, 1, 125, 126, 65_535, 65_536, 300_000] {
        let bytes = pattern(length);
        link.send(Message::Binary(&bytes));
        assert!(link.next() == bytes, "{length} bytes");
    }
    link.send(Message::Text("ünïcödé"));
    assert_eq!(link.next(), "ünïcödé".as_bytes());
    link.close();
    assert_eq!(link.next(), b"1000");
    link.client.expect_end();
    let totals = server.app.stats().totals();
    assert_eq!(
        (totals.sockets, totals.messages_in, totals.messages_out),
        (0, 8, 8)
    );
    server.shut_down();
}

fn bytes_may_arrive_one_by_one(config: Setting) {
    let server = serve(config, app());
    let mut link = Link::new(&server, "/echo");
    let bytes = link.encode(Message::Text("one by one"));
    for byte in bytes {
        link.client.send([byte]);
    }
    assert_eq!(link.next(), b"one by one");
    server.shut_down();
}

fn a_socket_opens_after_other_requests(config: Setting) {
    let server = serve(config, app());
    let mut client = server.client();
    client.send(get("/"));
    client.send(get("/nothing"));
    client.answer().expect(200, "ok");
    assert_eq!(client.answer().status, 404);
    let mut link = Link::over(client, "/echo");
    link.send(Message::Text("still here"));
    assert_eq!(link.next(), b"still here");
    server.shut_down();
}

fn a_slow_reader_receives_everything(config: Setting) {
    let server = serve(config, app());
    let mut link = Link::over(server.slow_client(), "/echo");
    let large = pattern(5_000_000);
    let mut bytes = link.encode(Message::Binary(&large));
    for _ in 0..100 {
        bytes.extend(link.encode(Message::Binary(&large[..10_000])));
    }
    // The server stops reading while it cannot send.
    let sender = link.client.send_behind(bytes);
    assert!(link.next() == large);
    for _ in 0..100 {
        assert!(link.next() == large[..10_000]);
    }
    sender.join().expect("a thread").expect("all is taken");
    link.close();
    assert_eq!(link.next(), b"1000");
    link.client.expect_end();
    server.shut_down();
}

fn a_reset_ends_one_socket_only(config: Setting) {
    let server = serve(config, app());
    let mut other = Link::new(&server, "/echo");
    for _ in 0..10 {
        let mut link = Link::new(&server, "/echo");
        link.send(Message::Binary(&[1; 100_000]));
        link.client.reset();
        other.send(Message::Text("here"));
        assert_eq!(other.next(), b"here");
    }
    server.shut_down();
}

fn a_frame_goes_to_many(config: Setting) {
    let server = serve(config, app());
    let mut guests: Vec<Link> = (0..20).map(|_| Link::new(&server, "/room")).collect();
    // Once the first message arrives every socket has joined.
    for text in ["one", "two"] {
        guests[3].send(Message::Text(text));
        for guest in &mut guests {
            assert_eq!(guest.next(), text.as_bytes());
        }
        // Nothing is sent to a client that has left.
        drop(guests.pop());
    }
    server.shut_down();
}

fn a_shutdown_closes_each_socket(config: Setting) {
    let server = serve(config, app());
    let mut link = Link::new(&server, "/echo");
    link.send(Message::Text("before"));
    assert_eq!(link.next(), b"before");
    server.running.shut_down();
    assert_eq!(link.next(), b"1012");
    // It waits for the answer.
    link.close();
    let (rest, end) = link.client.rest();
    assert_eq!((rest.len(), end), (0, End::Orderly));
    server.running.join().expect("an orderly end");
}
