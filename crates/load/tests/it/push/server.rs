//! A push server in threads that errs as a test says: it loses, doubles, reorders and cuts off on purpose.
//!
//! What is published is delivered before it is answered, so that with the last answer all is on its way.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

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
    /// Its number among those that are kept of the channel, if they are.
    pub(crate) offset: Option<usize>,
}

impl Case<'_> {
    /// The message that a right server sends.
    pub(crate) fn message(&self) -> String {
        let offset = self
            .offset
            .map_or_else(String::new, |offset| format!(",\"offset\":{offset}"));
        format!(
            "{{\"push\":{{\"channel\":\"{}\",\"pub\":{{\"data\":{}{offset}}}}}}}",
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
    /// Publications are kept, and clients that come back get those that they missed; see [`GATE`].
    Keeps,
    /// Clients may recover; but nothing is kept, and they are told so.
    Forgets,
    /// As `Keeps`; but the first publication that a client has missed is left out, and the reply says that all are there.
    Lies,
    /// As `Keeps`; and the first who takes up one of its subscriptions again is told to try it later.
    Hesitates,
}

impl Manner {
    fn recovers(self) -> bool {
        matches!(
            self,
            Manner::Keeps | Manner::Forgets | Manner::Lies | Manner::Hesitates
        )
    }
}

/// The publication of this number, and those behind it, wait until this many clients have been cut off; and who comes back to a
/// channel waits for one of them. So each client misses something, whatever the threads do meanwhile.
const GATE: (u64, usize) = (40, 8);

/// The epoch of all channels.
const EPOCH: &str = "E\"1";

struct State {
    channels: BTreeMap<String, Vec<(SocketAddr, TcpStream)>>,
    kept: BTreeMap<String, Vec<String>>,
    /// Clients whose connections have ended.
    ended: usize,
    /// The commands that were told to be tried later.
    hesitated: Vec<u64>,
    published: u64,
    requests: usize,
    tried: bool,
    pongs: usize,
    sockets: usize,
    refused: bool,
    script: Script,
}

/// A server at work until the test ends.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    manner: Manner,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Server {
    pub(crate) fn new(manner: Manner, script: impl FnMut(&Case<'_>) -> Vec<Fate> + Send + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        let state = Mutex::new(State {
            channels: BTreeMap::new(),
            kept: BTreeMap::new(),
            ended: 0,
            hesitated: Vec::new(),
            published: 0,
            requests: 0,
            tried: false,
            pongs: 0,
            sockets: 0,
            refused: false,
            script: Box::new(script),
        });
        let shared = Arc::new(Shared {
            state,
            changed: Condvar::new(),
        });
        accept_all(listener, manner, &shared);
        Server { addr, manner, shared }
    }

    /// Another node with the same channels.
    pub(crate) fn another(&self) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("an address");
        accept_all(listener, self.manner, &self.shared);
        Server {
            addr,
            manner: self.manner,
            shared: Arc::clone(&self.shared),
        }
    }

    /// Requests that published.
    pub(crate) fn requests(&self) -> usize {
        lock(&self.shared).requests
    }

    /// WebSockets that were opened.
    pub(crate) fn sockets(&self) -> usize {
        lock(&self.shared).sockets
    }

    /// Pings that were answered.
    pub(crate) fn pongs(&self) -> usize {
        lock(&self.shared).pongs
    }
}

/// Serves each connection in a thread.
fn accept_all(listener: TcpListener, manner: Manner, shared: &Arc<Shared>) {
    let shared = Arc::clone(shared);
    std::thread::spawn(move || {
        loop {
            let ((stream, peer), shared) = (listener.accept().expect("a connection"), Arc::clone(&shared));
            std::thread::spawn(move || {
                Peer {
                    stream,
                    peer,
                    manner,
                    shared,
                    kept: Vec::new(),
                }
                .serve()
            });
        }
    });
}

fn lock(shared: &Shared) -> MutexGuard<'_, State> {
    shared.state.lock().expect("no case panics with it")
}

/// Waits until it is so.
fn wait<'a>(
    shared: &'a Shared,
    state: MutexGuard<'a, State>,
    mut is_so: impl FnMut(&State) -> bool,
) -> MutexGuard<'a, State> {
    let waited = shared.changed.wait_while(state, |state| !is_so(state));
    waited.expect("no case panics with it")
}

struct Peer {
    stream: TcpStream,
    peer: SocketAddr,
    manner: Manner,
    shared: Arc<Shared>,
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
                Some("/api/batch") => self.batch(&head),
                Some("/connection/websocket") => {
                    self.websocket(&head);
                    return self.gone();
                }
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

    fn body(&mut self, head: &RequestHead<'_>) -> String {
        let length = head.fields.get("content-length").expect("a length");
        let length: usize = str::from_utf8(length).expect("digits").parse().expect("a number");
        while self.kept.len() < length {
            assert!(self.more(), "a whole body");
        }
        lock(&self.shared).requests += 1;
        String::from_utf8(self.kept.drain(..length).collect()).expect("a text")
    }

    /// Publications to the channel `test:3` are refused in the manner of an unknown channel.
    fn batch(&mut self, head: &RequestHead<'_>) {
        let asked: Value = serde_json::from_str(&self.body(head)).expect("JSON");
        assert_eq!(asked["parallel"], true);
        let mut replies = Vec::new();
        for command in asked["commands"].as_array().expect("commands") {
            let publish = &command["publish"];
            let channel = publish["channel"].as_str().expect("a channel");
            if self.manner == Manner::UnknownChannel && channel == "test:3" {
                replies.push(json!({"error": {"code": 102, "message": "unknown channel"}}));
                continue;
            }
            self.deliver(channel, &publish["data"].to_string());
            replies.push(json!({"publish": {}}));
        }
        self.answer(200, &json!({"replies": replies}));
    }

    fn publish(&mut self, head: &RequestHead<'_>) {
        let body = self.body(head);
        if self.manner == Manner::NoKey && head.fields.get("x-api-key") != Some(b"K") {
            return self.answer(401, &json!({"detail": "expected the API key in X-API-Key"}));
        }
        if self.manner == Manner::UnknownChannel {
            return self.answer(
                200,
                &json!({"error": {"code": 102, "message": "unknown channel"}}),
            );
        }
        let asked: Value = serde_json::from_str(&body).expect("JSON");
        let channel = asked["channel"].as_str().expect("a channel").to_owned();
        let data = body.split_once("\"data\":").expect("data").1;
        let data = data.strip_suffix('}').expect("an object");
        self.deliver(&channel, data);
        self.answer(200, &json!({"result": {}}));
    }

    fn deliver(&mut self, channel: &str, data: &str) {
        let mut state = lock(&self.shared);
        // The first one only tries whether publishing works.
        if !std::mem::replace(&mut state.tried, true) {
            return;
        }
        let number = state.published;
        state.published += 1;
        let mut offset = None;
        if self.manner.recovers() {
            state = wait(&self.shared, state, |state| {
                number < GATE.0 || state.ended >= GATE.1
            });
            let kept = state.kept.entry(channel.to_owned()).or_default();
            kept.push(data.to_owned());
            offset = Some(kept.len());
            self.shared.changed.notify_all();
        }
        let state = &mut *state;
        let clients = state
            .channels
            .get_mut(channel)
            .map_or(&mut [][..], Vec::as_mut_slice);
        for (client, (_, stream)) in clients.iter_mut().enumerate() {
            for fate in (state.script)(&Case {
                number,
                client,
                channel,
                data,
                offset,
            }) {
                carry_out(stream, fate, self.manner == Manner::Pieces);
            }
        }
    }

    fn subscribe(&mut self, state: &mut State, channel: &str) {
        let stream = self.stream.try_clone().expect("another handle");
        let clients = state.channels.entry(channel.to_owned()).or_default();
        clients.push((self.peer, stream));
    }

    /// Subscribes as a server does that keeps publications, or says that it does.
    fn recover(&mut self, id: &Value, request: &Value) {
        let shared = Arc::clone(&self.shared);
        let channel = request["channel"].as_str().expect("a channel");
        assert_eq!(request["recoverable"], true, "{request}");
        let mut state = lock(&shared);
        let mut result = json!({"recoverable": true, "epoch": EPOCH});
        if request["recover"] == true {
            assert_eq!(request["epoch"], EPOCH, "{request}");
            let client = id.as_u64().expect("a number");
            if self.manner == Manner::Hesitates && !state.hesitated.contains(&client) {
                state.hesitated.push(client);
                let error = json!({"code": 111, "message": "too many", "temporary": true});
                return self.say_locked(&json!({"id": id, "error": error}));
            }
            let offset = request["offset"].as_u64().expect("an offset") as usize;
            let count = |state: &State| state.kept.get(channel).map_or(0, Vec::len);
            state = wait(&shared, state, |state| count(state) > offset);
            if self.manner != Manner::Forgets {
                let left_out = usize::from(self.manner == Manner::Lies);
                let kept = state.kept[channel].iter().enumerate().skip(offset + left_out);
                let missed = kept.map(|(before, data)| {
                    let data: Value = serde_json::from_str(data).expect("JSON");
                    json!({"data": data, "offset": before + 1})
                });
                result["publications"] = missed.collect();
                result["recovered"] = true.into();
            }
        }
        result["offset"] = state.kept.get(channel).map_or(0, Vec::len).into();
        self.subscribe(&mut state, channel);
        self.say_locked(&json!({"id": id, "subscribe": result}));
    }

    /// The client's connection has ended.
    fn gone(&mut self) {
        let mut state = lock(&self.shared);
        state.ended += 1;
        for clients in state.channels.values_mut() {
            clients.retain(|(peer, _)| *peer != self.peer);
        }
        self.shared.changed.notify_all();
    }

    fn websocket(&mut self, head: &RequestHead<'_>) {
        let acceptance = accept(head, &ServerWish::default()).expect("a handshake");
        let mut out = Vec::new();
        let mut response = ResponseEncoder::new(&mut out, 101, head.exchange()).expect("a status");
        acceptance.write_fields(&mut response).expect("fields");
        response.switch(b"websocket").expect("a switch");
        self.send(&out);
        lock(&self.shared).sockets += 1;
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
            if self.manner.recovers() {
                return self.recover(&command["id"], request);
            }
            let shared = Arc::clone(&self.shared);
            self.subscribe(
                &mut lock(&shared),
                request["channel"].as_str().expect("a channel"),
            );
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
        self.say_locked(value);
    }

    fn say_locked(&mut self, value: &Value) {
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
            let shared = Arc::clone(&self.shared);
            self.subscribe(&mut lock(&shared), channel);
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
