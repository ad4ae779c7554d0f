//! An origin that speaks HTTP/2: a thread for each connection, which answers as a test says.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use ringmain_wire::h1::{FieldBlock, Fields};
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Role, Stream};

use crate::support::PATIENCE;

/// A request as received.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    /// Which connection, from 0.
    pub(crate) connection: usize,
    /// `METHOD authority target`.
    pub(crate) line: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) trailers: Vec<(String, String)>,
}

impl Asked {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// An event on a connection.
#[derive(Debug)]
pub(crate) enum Happened {
    /// A head; whether nothing follows.
    Head(Stream, Asked, bool),
    Data(Stream, Vec<u8>, bool),
    Trailers(Stream, Vec<(String, String)>),
    Reset(Stream, ErrorCode),
    /// The gateway sends nothing more by it.
    GoAway(ErrorCode),
    Closed,
}

/// One connection.
pub(crate) struct Peer {
    socket: TcpStream,
    pub(crate) connection: Connection,
    pub(crate) number: usize,
    heads: HeadBuffer,
    input: Vec<u8>,
    out: Vec<u8>,
    events: VecDeque<Happened>,
    looks: u64,
    closed: bool,
    /// Bytes of bodies are consumed on receipt.
    pub(crate) consumes: bool,
    asked: mpsc::Sender<Asked>,
}

/// See the module.
pub(crate) struct Framed {
    pub(crate) addr: SocketAddr,
    asked: Mutex<mpsc::Receiver<Asked>>,
}

/// Paths of requests that an origin may answer.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<Mutex<Vec<String>>>);

impl Gate {
    pub(crate) fn open(&self, path: &str) {
        self.0.lock().expect("no panic").push(path.to_owned());
    }

    fn lets(&self, line: &str) -> bool {
        let open = self.0.lock().expect("no panic");
        open.iter().any(|path| line.ends_with(path.as_str()))
    }
}

fn owned(fields: &Fields<'_>) -> Vec<(String, String)> {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let fields = fields.iter();
    fields
        .map(|field| (text(field.name), text(field.value)))
        .collect()
}

/// Fields for an answer.
pub(crate) fn block(fields: &[(&str, &str)]) -> FieldBlock {
    let mut block = FieldBlock::new();
    for (name, value) in fields {
        block.push(name, value.as_bytes()).expect("a field");
    }
    block
}

impl Framed {
    /// Runs `serve` for each connection, each on a thread of its own.
    pub(crate) fn new(serve: impl Fn(Peer) + Send + Sync + 'static) -> Framed {
        Framed::with(Limits::INTERNET, serve)
    }

    pub(crate) fn with(limits: Limits, serve: impl Fn(Peer) + Send + Sync + 'static) -> Framed {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let addr = listener.local_addr().expect("it is bound");
        let (sender, asked) = mpsc::channel();
        let serve = Arc::new(serve);
        std::thread::spawn(move || {
            for (number, socket) in listener.incoming().enumerate() {
                let Ok(socket) = socket else { return };
                socket.set_nodelay(true).expect("a socket");
                socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
                let (serve, asked) = (Arc::clone(&serve), sender.clone());
                std::thread::spawn(move || serve(Peer::new(socket, &limits, number, asked)));
            }
        });
        Framed {
            addr,
            asked: Mutex::new(asked),
        }
    }

    /// Answers every request with an echo: its line and fields, then its body.
    pub(crate) fn echo() -> Framed {
        Framed::new(|mut peer| {
            while let Some((stream, asked)) = peer.request() {
                peer.answer(stream, 200, &[("x-origin", "yes")], &asked.body);
            }
        })
    }

    /// Answers each request with its line, once its path is among those that were let go.
    pub(crate) fn gated(limits: Limits) -> (Framed, Gate) {
        let gate = Gate::default();
        let open = gate.clone();
        let framed = Framed::with(limits, move |mut peer| {
            let mut held: Vec<(Stream, String)> = Vec::new();
            loop {
                match peer.next_within(Duration::from_millis(2)) {
                    Some(Happened::Head(stream, asked, _)) => {
                        held.push((stream, asked.line.clone()));
                        let _ = peer.asked.send(asked);
                    }
                    Some(Happened::Closed) => return,
                    _ => {}
                }
                for (stream, line) in held.extract_if(.., |(_, line)| open.lets(line)) {
                    peer.answer(stream, 200, &[], line.as_bytes());
                }
            }
        });
        (framed, gate)
    }

    /// Returns the next complete request.
    #[track_caller]
    pub(crate) fn asked(&self) -> Asked {
        let asked = self.asked.lock().expect("one test");
        asked.recv_timeout(PATIENCE).expect("the origin is asked")
    }

    /// Returns whether every received request was read by the test.
    pub(crate) fn is_quiet(&self) -> bool {
        self.asked.lock().expect("one test").try_recv().is_err()
    }
}

impl Peer {
    fn new(socket: TcpStream, limits: &Limits, number: usize, asked: mpsc::Sender<Asked>) -> Peer {
        let mut out = Vec::new();
        let connection = Connection::new(Role::Server, limits, Duration::ZERO, &mut out);
        Peer {
            socket,
            connection,
            number,
            heads: HeadBuffer::new(limits),
            input: Vec::new(),
            out,
            events: VecDeque::new(),
            looks: 0,
            closed: false,
            consumes: true,
            asked,
        }
    }

    /// Sends what there is to send.
    pub(crate) fn flush(&mut self) {
        let out = std::mem::take(&mut self.out);
        self.closed |= self.socket.write_all(&out).is_err();
    }

    /// Returns the next event.
    pub(crate) fn next(&mut self) -> Happened {
        loop {
            if let Some(event) = self.events.pop_front() {
                return event;
            }
            self.flush();
            if self.closed {
                return Happened::Closed;
            }
            let mut buffer = vec![0; 16 * 1024];
            match self.socket.read(&mut buffer) {
                Ok(count) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                _ => self.closed = true,
            }
            self.look();
        }
    }

    /// The same, if anything happens within `span`.
    pub(crate) fn next_within(&mut self, span: Duration) -> Option<Happened> {
        self.flush();
        if self.events.is_empty() && !self.closed {
            let mut buffer = vec![0; 16 * 1024];
            self.socket.set_read_timeout(Some(span)).expect("a socket");
            let read = self.socket.read(&mut buffer);
            self.socket.set_read_timeout(Some(PATIENCE)).expect("a socket");
            match read {
                Ok(count) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                    return None;
                }
                _ => self.closed = true,
            }
            self.look();
        }
        match self.events.pop_front() {
            None if self.closed => Some(Happened::Closed),
            event => event,
        }
    }

    fn look(&mut self) {
        // Time of its own: no client is taken for a flood by how fast the machine is.
        self.looks += 1;
        let now = Duration::from_millis(self.looks);
        let input = std::mem::take(&mut self.input);
        let mut at = 0;
        loop {
            let step = self
                .connection
                .receive(&input[at..], now, &mut self.heads, &mut self.out);
            let step = step.expect("the gateway keeps to the rules");
            at += step.consumed;
            let happened = match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, end } => {
                    let authority = head.authority.map(|authority| authority.as_bytes().to_vec());
                    let authority = String::from_utf8(authority.unwrap_or_default()).expect("text");
                    let asked = Asked {
                        connection: self.number,
                        line: format!("{} {authority} {}", head.method.as_str(), head.target_text),
                        fields: owned(&head.fields),
                        ..Asked::default()
                    };
                    Happened::Head(stream, asked, end)
                }
                Event::Data { stream, data, end } => {
                    let data = data.to_vec();
                    if self.consumes {
                        self.connection.consume(stream, data.len(), &mut self.out);
                    }
                    Happened::Data(stream, data, end)
                }
                Event::Trailers { stream, fields } => Happened::Trailers(stream, owned(&fields)),
                Event::Reset { stream, code } => Happened::Reset(stream, code),
                Event::GoAway { code, .. } => Happened::GoAway(code),
                Event::Broken { fault, .. } => panic!("the gateway broke a rule: {fault}"),
                _ => continue,
            };
            self.events.push_back(happened);
        }
        self.input = input[at..].to_vec();
    }

    /// Returns the next request with its whole body; `None`: the connection has ended.
    pub(crate) fn request(&mut self) -> Option<(Stream, Asked)> {
        let (stream, mut asked, end) = self.head()?;
        let mut over = end;
        let mut later = VecDeque::new();
        while !over {
            match self.next() {
                Happened::Data(of, data, end) if of == stream => {
                    asked.body.extend_from_slice(&data);
                    over = end;
                }
                Happened::Trailers(of, trailers) if of == stream => {
                    asked.trailers = trailers;
                    over = true;
                }
                Happened::Reset(of, _) if of == stream => {
                    self.events.append(&mut later);
                    return self.request();
                }
                Happened::Closed => return None,
                other => later.push_back(other),
            }
        }
        later.append(&mut self.events);
        self.events = later;
        let _ = self.asked.send(asked.clone());
        Some((stream, asked))
    }

    /// The next head; what else happens is dropped.
    pub(crate) fn head(&mut self) -> Option<(Stream, Asked, bool)> {
        loop {
            match self.next() {
                Happened::Head(stream, asked, end) => return Some((stream, asked, end)),
                Happened::Closed => return None,
                _ => {}
            }
        }
    }

    /// Sends a head. `end`: nothing follows.
    pub(crate) fn respond(&mut self, stream: Stream, status: u16, fields: &[(&str, &str)], end: bool) {
        let mut head = self
            .connection
            .respond(stream, status, &mut self.out)
            .expect("an open stream");
        for (name, value) in fields {
            match *name {
                "content-length" => head.length(value.parse().expect("a number")),
                name => head.field(name, value.as_bytes()).expect("a field"),
            }
        }
        head.finish(end);
        self.flush();
    }

    /// Sends part of a body, at the rate of flow control. Returns whether the gateway accepted all its bytes.
    pub(crate) fn data(&mut self, stream: Stream, mut bytes: &[u8], end: bool) -> bool {
        loop {
            let Ok(sent) = self.connection.data(stream, bytes, end, &mut self.out) else {
                self.flush();
                return false;
            };
            bytes = &bytes[sent..];
            self.flush();
            if bytes.is_empty() {
                return true;
            }
            let mut buffer = vec![0; 16 * 1024];
            match self.socket.read(&mut buffer) {
                Ok(count) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                _ => {
                    self.closed = true;
                    return false;
                }
            }
            self.look();
        }
    }

    /// The next head, or the end; meanwhile these bodies are sent as far as the gateway takes each.
    pub(crate) fn next_but_windows(&mut self, bodies: &mut Vec<(Stream, usize)>, body: &[u8]) -> Happened {
        loop {
            bodies.retain_mut(|(stream, sent)| {
                let rest = &body[*sent..];
                let went = self.connection.data(*stream, rest, true, &mut self.out);
                *sent += went.unwrap_or(rest.len());
                *sent < body.len()
            });
            self.flush();
            if let Some(event) = self.events.pop_front() {
                match event {
                    Happened::Head(..) | Happened::Closed => return event,
                    _ => continue,
                }
            }
            if self.closed {
                return Happened::Closed;
            }
            let mut buffer = vec![0; 16 * 1024];
            match self.socket.read(&mut buffer) {
                Ok(count) if count > 0 => self.input.extend_from_slice(&buffer[..count]),
                _ => self.closed = true,
            }
            self.look();
        }
    }

    /// Sends a whole answer.
    pub(crate) fn answer(
        &mut self,
        stream: Stream,
        status: u16,
        fields: &[(&str, &str)],
        body: &[u8],
    ) -> bool {
        if !self.connection.is_open(stream) {
            return false;
        }
        self.respond(stream, status, fields, body.is_empty());
        body.is_empty() || self.data(stream, body, true)
    }

    /// Ends an answer by these fields.
    pub(crate) fn trailers(&mut self, stream: Stream, fields: &[(&str, &str)]) {
        let sent = self.connection.trailers(stream, &block(fields), &mut self.out);
        sent.expect("an open stream");
        self.flush();
    }

    pub(crate) fn reset(&mut self, stream: Stream, code: ErrorCode) {
        self.connection.reset(stream, code, &mut self.out);
        self.flush();
    }

    /// Answers nothing above that stream.
    pub(crate) fn go_away(&mut self, last: u32) {
        let mut payload = last.to_be_bytes().to_vec();
        payload.extend_from_slice(&[0; 4]);
        self.raw(7, 0, 0, &payload);
    }

    /// Sends a frame unchanged.
    pub(crate) fn raw(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("a frame").to_be_bytes();
        self.out.extend_from_slice(&length[1..]);
        self.out.extend_from_slice(&[kind, flags]);
        self.out.extend_from_slice(&stream.to_be_bytes());
        self.out.extend_from_slice(payload);
        self.flush();
    }

    /// Done with so many bytes.
    pub(crate) fn consume(&mut self, stream: Stream, bytes: usize) {
        self.connection.consume(stream, bytes, &mut self.out);
        self.flush();
    }

    /// Breaks the connection off.
    pub(crate) fn cut(&mut self) {
        let _ = self.socket.shutdown(Shutdown::Both);
        self.closed = true;
    }
}
