//! The server's side of HTTP/2 on a blocking connection: requests as wholes, answers one by one. Knows no single case.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use ringmain_wire::h1::FieldBlock;
use ringmain_wire::h2::{Connection, ErrorCode, Event, HeadBuffer, Limits, Role, Stream};

use crate::rounds::support::Peer;

/// A request that has come as a whole.
#[derive(Clone, Debug)]
pub(crate) struct Asked {
    pub(crate) stream: Stream,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) authority: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

pub(crate) struct Served<'p> {
    pub(crate) peer: &'p mut Peer,
    pub(crate) connection: Connection,
    heads: HeadBuffer,
    out: Vec<u8>,
    input: Vec<u8>,
    /// By stream number, what has come of each.
    begun: BTreeMap<u32, Asked>,
    whole: VecDeque<Asked>,
    /// Bodies that wait for the client's windows.
    waiting: Vec<(Stream, Vec<u8>)>,
    /// Streams that the client has reset.
    pub(crate) resets: usize,
    /// The most that were open at once.
    pub(crate) most_open: usize,
}

impl<'p> Served<'p> {
    pub(crate) fn new(peer: &'p mut Peer, limits: &Limits) -> Served<'p> {
        let mut out = Vec::new();
        let connection = Connection::new(Role::Server, limits, Duration::ZERO, &mut out);
        let mut served = Served {
            peer,
            connection,
            heads: HeadBuffer::new(limits),
            out,
            input: Vec::new(),
            begun: BTreeMap::new(),
            whole: VecDeque::new(),
            waiting: Vec::new(),
            resets: 0,
            most_open: 0,
        };
        served.flush();
        served
    }

    fn flush(&mut self) {
        let out = std::mem::take(&mut self.out);
        if !out.is_empty() {
            self.peer.send(out);
        }
    }

    /// The next request; `None` when the client has ended the connection.
    pub(crate) fn request(&mut self) -> Option<Asked> {
        loop {
            if let Some(asked) = self.whole.pop_front() {
                return Some(asked);
            }
            if !self.hear() {
                return None;
            }
        }
    }

    /// Requests that are here, at least one; none when the client has ended the connection.
    pub(crate) fn requests(&mut self) -> Vec<Asked> {
        let first = self.request();
        first.into_iter().chain(self.whole.drain(..)).collect()
    }

    /// Takes more bytes, if the client has not ended the connection.
    fn hear(&mut self) -> bool {
        let bytes = self.peer.bytes();
        if bytes.is_empty() {
            return false;
        }
        self.input.extend_from_slice(&bytes);
        let mut at = 0;
        loop {
            let (input, heads) = (&self.input[at..], &mut self.heads);
            let step = self
                .connection
                .receive(input, Duration::ZERO, heads, &mut self.out);
            let step = step.expect("a client that keeps the rules");
            at += step.consumed;
            let ended = match step.event {
                Event::NeedMore => break,
                Event::Request { stream, head, end } => {
                    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("text");
                    let fields = head.fields.iter();
                    let asked = Asked {
                        stream,
                        method: head.method.as_str().to_owned(),
                        target: head.target_text.to_owned(),
                        authority: head.authority.expect("a host").as_str().to_owned(),
                        fields: fields
                            .map(|field| (text(field.name), text(field.value)))
                            .collect(),
                        body: Vec::new(),
                    };
                    self.begun.insert(stream.id(), asked);
                    end.then_some(stream)
                }
                Event::Data { stream, data, end } => {
                    if let Some(asked) = self.begun.get_mut(&stream.id()) {
                        asked.body.extend_from_slice(data);
                    }
                    self.connection.consume(stream, data.len(), &mut self.out);
                    end.then_some(stream)
                }
                Event::Reset { stream, .. } => {
                    self.begun.remove(&stream.id());
                    self.whole.retain(|asked| asked.stream != stream);
                    self.resets += 1;
                    None
                }
                Event::Broken { fault, .. } => panic!("{fault}"),
                _ => None,
            };
            self.most_open = self.most_open.max(self.connection.open_streams());
            self.whole
                .extend(ended.and_then(|stream| self.begun.remove(&stream.id())));
        }
        self.input.drain(..at);
        self.go_on();
        self.flush();
        true
    }

    /// Sends what the client's windows let through.
    fn go_on(&mut self) {
        for (stream, rest) in &mut self.waiting {
            let sent = self.connection.data(*stream, rest, true, &mut self.out);
            rest.drain(..sent.unwrap_or(rest.len()));
        }
        self.waiting.retain(|(_, rest)| !rest.is_empty());
    }

    /// Answers with these fields and this body.
    pub(crate) fn answer_with(&mut self, asked: &Asked, status: u16, fields: &[(&str, &str)], body: &[u8]) {
        let mut block = FieldBlock::new();
        for (name, value) in fields {
            block.push(name, value.as_bytes()).expect("a field");
        }
        // It fails if the client has given the stream up.
        let Ok(mut head) = self.connection.respond(asked.stream, status, &mut self.out) else {
            return;
        };
        head.block(&block);
        head.length(body.len() as u64);
        head.finish(body.is_empty());
        if !body.is_empty() {
            self.waiting.push((asked.stream, body.to_vec()));
            self.go_on();
        }
        self.flush();
    }

    /// Answers with a head alone that says no length.
    pub(crate) fn answer_without_length(&mut self, asked: &Asked, status: u16, fields: &[(&str, &str)]) {
        let mut block = FieldBlock::new();
        for (name, value) in fields {
            block.push(name, value.as_bytes()).expect("a field");
        }
        if let Ok(mut head) = self.connection.respond(asked.stream, status, &mut self.out) {
            head.block(&block);
            head.finish(true);
        }
        self.flush();
    }

    pub(crate) fn answer(&mut self, asked: &Asked, status: u16, body: &str) {
        self.answer_with(asked, status, &[], body.as_bytes());
    }

    /// Begins an answer and stops in the middle of it.
    pub(crate) fn half_answer(&mut self, asked: &Asked) {
        let mut head = self
            .connection
            .respond(asked.stream, 200, &mut self.out)
            .expect("it is open");
        head.length(100);
        head.finish(false);
        let sent = self.connection.data(asked.stream, b"half", false, &mut self.out);
        assert_eq!(sent, Ok(4));
        self.flush();
    }

    /// An answer by a body without a length, and trailers.
    pub(crate) fn answer_with_trailers(&mut self, asked: &Asked, body: &[u8], trailers: &[(&str, &str)]) {
        let mut block = FieldBlock::new();
        for (name, value) in trailers {
            block.push(name, value.as_bytes()).expect("a field");
        }
        let Ok(head) = self.connection.respond(asked.stream, 200, &mut self.out) else {
            return;
        };
        head.finish(false);
        let sent = self.connection.data(asked.stream, body, false, &mut self.out);
        assert_eq!(sent, Ok(body.len()));
        let ended = self.connection.trailers(asked.stream, &block, &mut self.out);
        ended.expect("it is open");
        self.flush();
    }

    pub(crate) fn interim(&mut self, asked: &Asked) {
        let head = self.connection.respond(asked.stream, 103, &mut self.out);
        head.expect("it is open").finish(false);
    }

    pub(crate) fn reset(&mut self, asked: &Asked, code: ErrorCode) {
        self.connection.reset(asked.stream, code, &mut self.out);
        self.flush();
    }

    /// GOAWAY that lets nothing behind what has come be answered.
    pub(crate) fn go_away(&mut self) {
        self.connection.go_away(&mut self.out);
        self.flush();
    }

    /// GOAWAY with an error.
    pub(crate) fn abandon(&mut self, code: ErrorCode) {
        self.connection.abandon(code, &mut self.out);
        self.flush();
    }

    /// Answers each request by 413 as soon as its head is there.
    pub(crate) fn refuse_uploads(&mut self) {
        loop {
            if !self.hear() {
                return;
            }
            let begun = std::mem::take(&mut self.begun);
            for asked in begun.into_values().chain(std::mem::take(&mut self.whole)) {
                self.answer(&asked, 413, "too much");
            }
        }
    }

    /// Answers all requests with 200.
    pub(crate) fn serve(&mut self) {
        while let Some(asked) = self.request() {
            self.answer(&asked, 200, "ok");
        }
    }
}
