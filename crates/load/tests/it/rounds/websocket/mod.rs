//! WebSockets: opened, echoed on, closed, against servers of `wire::ws` that do what the test says.

mod echoes;
mod ends;

use ringmain_load::plan::Plan;
use ringmain_load::report::Round;
use ringmain_load::traffic::{Body, Request, Traffic};
use ringmain_wire::h1::{
    FieldTable, HeadScanner, Limits as HeadLimits, Parsed, ResponseEncoder, parse_request,
};
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Deflater, Encoder, Event, Inflater, Kind, Limits, Mask, Message, Role,
    ServerWish, accept,
};

use crate::rounds::support::{Peer, round};

/// What came of a client.
#[derive(Debug, PartialEq)]
pub(super) enum Came {
    Message(Kind, Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>),
    /// The connection is over.
    End,
}

/// A WebSocket, the server's side.
pub(crate) struct Socket<'p> {
    pub(super) peer: &'p mut Peer,
    decoder: Decoder,
    pub(super) encoder: Encoder,
    inflater: Inflater,
    deflater: Option<Deflater>,
    kept: Vec<u8>,
    message: Vec<u8>,
}

/// Answers a client's handshake; `None` if there is no client.
pub(super) fn open<'p>(peer: &'p mut Peer, wish: &ServerWish<'_>) -> Option<Socket<'p>> {
    let asked = peer.request()?;
    let mut table = FieldTable::new(&HeadLimits::INTERNET);
    let head = parse_request(
        asked.head.as_bytes(),
        &HeadLimits::INTERNET,
        &mut HeadScanner::new(),
        &mut table,
    );
    let Ok(Parsed::Complete { head, .. }) = head else {
        panic!("{}", asked.head);
    };
    let acceptance = accept(&head, wish).expect("a handshake");
    let mut out = Vec::new();
    let exchange = head.exchange();
    let mut response = ResponseEncoder::new(&mut out, 101, exchange).expect("a status");
    acceptance.write_fields(&mut response).expect("fields");
    response.switch(b"websocket").expect("a switch");
    peer.send(out);
    let deflation = acceptance.deflation();
    Some(Socket {
        peer,
        decoder: Decoder::new(Role::Server, &Limits::INTERNET, deflation),
        encoder: Encoder::new(Role::Server, deflation, usize::MAX),
        inflater: Inflater::new(1 << 10),
        deflater: deflation.map(|deflation| Deflater::new(deflation.own_window, 1)),
        kept: Vec::new(),
        message: Vec::new(),
    })
}

pub(crate) fn plainly(peer: &mut Peer) -> Option<Socket<'_>> {
    open(peer, &ServerWish::default())
}

impl Socket<'_> {
    pub(super) fn next(&mut self) -> Came {
        loop {
            let step = self.decoder.decode(&mut self.kept, Some(&mut self.inflater));
            let step = step.expect("a client that keeps the rules");
            let consumed = step.consumed;
            let came = match step.event {
                Event::NeedMore => {
                    self.kept.drain(..consumed);
                    let bytes = self.peer.bytes();
                    if bytes.is_empty() {
                        return Came::End;
                    }
                    self.kept.extend_from_slice(&bytes);
                    continue;
                }
                Event::Piece(piece) => {
                    self.message.extend_from_slice(piece.data);
                    let kind = piece.kind;
                    piece
                        .last
                        .then(|| Came::Message(kind, std::mem::take(&mut self.message)))
                }
                Event::Pong(data) => Some(Came::Pong(data.to_vec())),
                Event::Close(close) => {
                    self.encoder.close_received();
                    Some(Came::Close(close.map(|close| close.code.number())))
                }
                other => panic!("{other:?}"),
            };
            self.kept.drain(..consumed);
            if let Some(came) = came {
                return came;
            }
        }
    }

    pub(super) fn say(&mut self, kind: Kind, data: &[u8]) {
        let mut out = Vec::new();
        let message = message(kind, data);
        match &mut self.deflater {
            Some(deflater) => self.encoder.deflated(&mut out, message, deflater, Mask::None),
            None => self.encoder.message(&mut out, message, Mask::None),
        }
        .expect("an open connection");
        self.peer.send(out);
    }

    pub(super) fn close(&mut self, code: CloseCode) {
        let mut out = Vec::new();
        let close = Close { code, reason: "so" };
        let written = self.encoder.close(&mut out, Some(close), Mask::None);
        written.expect("an open connection");
        self.peer.send(out);
    }

    /// Sends everything back until the client says goodbye, and answers that. The code that the client gave.
    pub(crate) fn echo(&mut self) -> Option<u16> {
        loop {
            match self.next() {
                Came::Message(kind, data) => self.say(kind, &data),
                Came::Close(code) => {
                    self.close(CloseCode::NORMAL);
                    return code;
                }
                Came::End => return None,
                other => panic!("{other:?}"),
            }
        }
    }
}

pub(super) fn message(kind: Kind, data: &[u8]) -> Message<'_> {
    match kind {
        Kind::Text => Message::Text(str::from_utf8(data).expect("the decoder has looked")),
        Kind::Binary => Message::Binary(data),
    }
}

pub(super) fn messages(body: Body, bytes: u32, deflate: bool) -> Traffic {
    let request = Request {
        body,
        ..Request::get("/ws", "test")
    };
    Traffic::messages(request, bytes, deflate).expect("messages")
}

/// A round over WebSockets.
#[track_caller]
pub(super) fn run(plan: Plan, traffic: &Traffic) -> Round {
    let protocol = traffic.socket().expect("messages").protocol();
    round(Plan { protocol, ..plan }, traffic.clone())
}

pub(super) fn texts() -> Vec<(Body, u32)> {
    vec![
        (Body::None, 1),
        (Body::None, 15),
        (Body::None, 512),
        (Body::None, 70_000),
        (Body::Text("händler".into()), 0),
        (Body::Text(String::new()), 0),
        (Body::Text("{{seq}} {{random-hex:200}}".into()), 0),
        (Body::Bytes(vec![0xff; 300].into()), 0),
    ]
}
