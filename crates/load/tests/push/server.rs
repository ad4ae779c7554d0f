//! A push server in threads that errs as a test says: it loses, doubles, reorders and cuts off on purpose.
//!
//! What is published is delivered before it is answered, so that with the last answer all is on its way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};

use ringmain_wire::h1::{
    FieldTable, HeadScanner, Limits, Parsed, RequestHead, ResponseEncoder, parse_request,
};
use ringmain_wire::ws::{self, Decoder, Event, Role, ServerWish, accept};
use serde_json::{Value, json};

/// What becomes of a publication for one client.
#[derive(Clone, Debug)]
pub(crate) enum Fate {
    /// The client gets this message.
    Message(String),
    /// The client gets these bytes, whatever they are.
    Raw(Vec<u8>),
    /// The client is cut off with this code and reason.
    Close(u16, &'static str),
    /// The connection ends without a word.
    Cut,
}

/// One publication, on its way to one client.
#[derive(Clone, Debug)]
pub(crate) struct Case<'a> {
    /// Its number in the run, from 0; the one that tries is none of them.
    pub(crate) number: u64,
    /// The client's number among those of the channel, in the order in which they have subscribed.
    pub(crate) client: usize,
    pub(crate) channel: &'a str,
    pub(crate) data: &'a str,
}

impl Case<'_> {
    /// The message that a right server sends.
    pub(crate) fn message(&self) -> String {
        format!(
            "{{\"push\":{{\"channel\":\"{}\",\"pub\":{{\"data\":{}}}}}}}",
            self.channel, self.data
        )
    }
}

/// As a right server does it.
pub(crate) fn right(case: &Case<'_>) -> Vec<Fate> {
    vec![Fate::Message(case.message())]
}

/// What becomes of each publication.
pub(crate) type Script = Box<dyn FnMut(&Case<'_>) -> Vec<Fate> + Send>;

/// How the server answers besides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    Right,
    /// Nobody may connect: the code of a Close.
    NoConnections,
    /// Nobody may subscribe.
    NoSubscriptions,
    /// Nothing is where it is looked for.
    NoEndpoint,
    /// Programs need a key.
    NoKey,
    /// Programs are told of an error.
    UnknownChannel,
    /// Pings are sent, and must be answered before the session goes on.
    Pings,
    /// Messages come in frames and pieces of frames.
    Pieces,
    /// The first client is told to come later.
    Busy,
}

struct State {
    channels: BTreeMap<String, Vec<TcpStream>>,
    published: u64,
    tried: bool,
    pongs: usize,
    refused: bool,
    script: Script,
}

/// A server at work until the test ends.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    state: Arc<Mutex<State>>,
}

impl Server {
    pub(crate) fn new(manner: Manner, script: impl FnMut(&Case<'_>) -> Vec<Fate> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let state = Arc::new(Mutex::new(State {
            channels: BTreeMap::new(),
            published: 0,
            tried: false,
            pongs: 0,
            refused: false,
            script: Box::new(script),
        }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, shared) = (stream.expect("a connection"), Arc::clone(&shared));
                std::thread::spawn(move || {
                    Peer {
                        stream,
                        manner,
                        shared,
                        kept: Vec::new(),
                    }
                    .serve()
                });
            }
        });
        Server { addr, state }
    }

    /// Pings that were answered.
    pub(crate) fn pongs(&self) -> usize {
        lock(&self.state).pongs
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().expect("no case panics with it")
}

struct Peer {
    stream: TcpStream,
    manner: Manner,
    shared: Arc<Mutex<State>>,
    kept: Vec<u8>,
}

impl Peer {
    fn serve(mut self) {
        while let Some(head) = self.head() {
            let mut table = FieldTable::new(&Limits::INTERNET);
            let parsed = parse_request(&head, &Limits::INTERNET, &mut HeadScanner::new(), &mut table);
            let Ok(Parsed::Complete { head, .. }) = parsed else {
                panic!("{}", String::from_utf8_lossy(&head));
            };
            let text = head.target_text.to_owned();
            if self.manner == Manner::NoEndpoint && !text.starts_with("/api/") {
                return self.answer(404, &json!({"detail": "nothing here"}));
            }
            let is_client = text.starts_with("/connection/");
            if self.manner == Manner::Busy
                && is_client
                && !std::mem::replace(&mut lock(&self.shared).refused, true)
            {
                return self.answer(503, &json!({"detail": "later"}));
            }
            match text.split('?').next() {
                Some("/api/publish") => self.publish(&head),
                Some("/connection/websocket") => return self.websocket(&head),
                Some("/connection/uni_sse") => return self.events(&text),
                other => panic!("{other:?}"),
            }
        }
    }

    fn more(&mut self) -> bool {
        let mut piece = [0; 16 << 10];
        let count = self.stream.read(&mut piece).unwrap_or(0);
        self.kept.extend_from_slice(&piece[..count]);
        count > 0
    }

    fn head(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(end) = self.kept.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                return Some(self.kept.drain(..end + 4).collect());
            }
            if !self.more() {
                return None;
            }
        }
    }

    fn send(&mut self, bytes: &[u8]) {
        // A client that is gone is none of the server's business.
        let _ = self.stream.write_all(bytes);
    }

    fn answer(&mut self, status: u16, body: &Value) {
        let body = body.to_string();
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} So\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        );
        self.send((head + &body).as_bytes());
    }

    fn publish(&mut self, head: &RequestHead<'_>) {
        let length = head.fields.get("content-length").expect("a length");
        let length: usize = str::from_utf8(length).expect("digits").parse().expect("a number");
        while self.kept.len() < length {
            assert!(self.more(), "a whole body");
        }
        let body: Vec<u8> = self.kept.drain(..length).collect();
        if self.manner == Manner::NoKey && head.fields.get("x-api-key") != Some(b"K") {
            return self.answer(401, &json!({"detail": "expected the API key in X-API-Key"}));
        }
        if self.manner == Manner::UnknownChannel {
            return self.answer(
                200,
                &json!({"error": {"code": 102, "message": "unknown channel"}}),
            );
        }
        let body = String::from_utf8(body).expect("a text");
        let asked: Value = serde_json::from_str(&body).expect("JSON");
        let channel = asked["channel"].as_str().expect("a channel").to_owned();
        let data = body.split_once("\"data\":").expect("data").1;
        let data = data.strip_suffix('}').expect("an object");
        self.deliver(&channel, data);
        self.answer(200, &json!({"result": {}}));
    }

    fn deliver(&mut self, channel: &str, data: &str) {
        let mut state = lock(&self.shared);
        let state = &mut *state;
        // The first one only tries whether publishing works.
        if !std::mem::replace(&mut state.tried, true) {
            return;
        }
        let number = state.published;
        state.published += 1;
        let clients = state
            .channels
            .get_mut(channel)
            .map_or(&mut [][..], Vec::as_mut_slice);
        for (client, stream) in clients.iter_mut().enumerate() {
            for fate in (state.script)(&Case {
                number,
                client,
                channel,
                data,
            }) {
                carry_out(stream, fate, self.manner == Manner::Pieces);
            }
        }
    }

    fn subscribe(&mut self, channel: &str) {
        let stream = self.stream.try_clone().expect("another handle");
        lock(&self.shared)
            .channels
            .entry(channel.to_owned())
            .or_default()
            .push(stream);
    }

    fn websocket(&mut self, head: &RequestHead<'_>) {
        let acceptance = accept(head, &ServerWish::default()).expect("a handshake");
        let mut out = Vec::new();
        let mut response = ResponseEncoder::new(&mut out, 101, head.exchange()).expect("a status");
        acceptance.write_fields(&mut response).expect("fields");
        response.switch(b"websocket").expect("a switch");
        self.send(&out);
        let mut decoder = Decoder::new(Role::Server, &ws::Limits::INTERNET, None);
        loop {
            let step = decoder
                .decode(&mut self.kept, None)
                .expect("a client that keeps the rules");
            let consumed = step.consumed;
            let message = match step.event {
                Event::NeedMore => {
                    self.kept.drain(..consumed);
                    if !self.more() {
                        return;
                    }
                    continue;
                }
                Event::Piece(piece) => Some(piece.text.expect("one piece").to_owned()),
                Event::Close(_) => return,
                other => panic!("{other:?}"),
            };
            self.kept.drain(..consumed);
            let message = message.unwrap_or_default();
            for line in message.lines() {
                self.command(&serde_json::from_str(line).expect("JSON"));
            }
        }
    }

    fn command(&mut self, command: &Value) {
        let id = command["id"].as_u64();
        if command.get("connect").is_some() {
            if self.manner == Manner::NoConnections {
                return carry_out(&mut self.stream, Fate::Close(3501, "bad request"), false);
            }
            let pong = self.manner == Manner::Pings;
            self.say(&json!({"id": id, "connect": {"client": "c", "pong": pong, "ping": 25}}));
            if pong {
                self.say(&json!({}));
            }
        } else if let Some(request) = command.get("subscribe") {
            if self.manner == Manner::NoSubscriptions {
                let error = json!({"code": 103, "message": "permission denied"});
                return self.say(&json!({"id": id, "error": error}));
            }
            self.subscribe(request["channel"].as_str().expect("a channel"));
            self.say(&json!({"id": id, "subscribe": {}}));
        } else {
            assert_eq!(command, &json!({}), "an answer to a ping");
            lock(&self.shared).pongs += 1;
        }
    }

    /// The lock keeps what is published out of the middle of it.
    fn say(&mut self, value: &Value) {
        let shared = Arc::clone(&self.shared);
        let _guard = lock(&shared);
        carry_out(
            &mut self.stream,
            Fate::Message(value.to_string()),
            self.manner == Manner::Pieces,
        );
    }

    fn events(&mut self, target: &str) {
        let query = target.split_once("cf_connect=").expect("a request").1;
        let request: Value = serde_json::from_slice(&unescaped(query)).expect("JSON");
        let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
        let begin = format!(
            "{head}: hello\n\ndata: {}\n\n",
            json!({"connect": {"client": "c"}})
        );
        for channel in request["subs"].as_object().expect("channels").keys() {
            self.subscribe(channel);
        }
        self.send(begin.as_bytes());
        while self.more() {}
    }
}

fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next().expect("a digit"), bytes.next().expect("a digit")];
                u8::from_str_radix(str::from_utf8(&digits).expect("ASCII"), 16).expect("digits")
            }
            byte => byte,
        });
    }
    out
}

fn carry_out(stream: &mut TcpStream, fate: Fate, pieces: bool) {
    let frame = |opcode: u8, payload: &[u8]| {
        let mut out = vec![opcode];
        match payload.len() {
            short @ ..126 => out.push(short as u8),
            long => {
                out.push(126);
                out.extend_from_slice(&u16::try_from(long).expect("a short message").to_be_bytes());
            }
        }
        out.extend_from_slice(payload);
        out
    };
    let bytes = match fate {
        Fate::Message(text) if pieces => {
            let (first, last) = text.as_bytes().split_at(text.len() / 2);
            [frame(0x01, first), frame(0x80, last)].concat()
        }
        Fate::Message(text) => frame(0x81, text.as_bytes()),
        Fate::Raw(bytes) => bytes,
        Fate::Close(code, reason) => frame(0x88, &[&code.to_be_bytes()[..], reason.as_bytes()].concat()),
        Fate::Cut => {
            let _ = stream.shutdown(Shutdown::Both);
            return;
        }
    };
    // In small pieces a reader must put them together.
    for piece in bytes.chunks(if pieces { 7 } else { usize::MAX }) {
        let _ = stream.write_all(piece);
    }
}
