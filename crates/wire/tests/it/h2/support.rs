//! Frames by hand, a connection with its buffers, and what it says as text.

use std::time::Duration;

use ringmain_wire::h2::{Connection, Event, HeadBuffer, Limits, PREFACE, PeerFault, Role, Stream};

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const PRIORITY: u8 = 2;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PUSH_PROMISE: u8 = 5;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const WINDOW_UPDATE: u8 = 8;
pub(crate) const CONTINUATION: u8 = 9;

pub(crate) const END_STREAM: u8 = 1;
pub(crate) const ACK: u8 = 1;
pub(crate) const END_HEADERS: u8 = 4;
pub(crate) const PADDED: u8 = 8;
pub(crate) const WITH_PRIORITY: u8 = 0x20;

/// `GET / http localhost`, by the static table and one literal.
pub(crate) const GET: &[u8] = b"\x82\x84\x86\x41\x09localhost";
/// The same with POST.
pub(crate) const POST: &[u8] = b"\x83\x84\x86\x41\x09localhost";

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&stream.to_be_bytes());
    out.extend_from_slice(payload);
    out
}

/// A header block of plain literals.
pub(crate) fn literals(fields: &[(&str, &str)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        out.push(0);
        for text in [name, value] {
            assert!(text.len() < 127);
            out.push(text.len() as u8);
            out.extend_from_slice(text.as_bytes());
        }
    }
    out
}

/// The usual request's fields, then others.
pub(crate) fn get_with(fields: &[(&str, &str)]) -> Vec<u8> {
    [GET, &literals(fields)].concat()
}

pub(crate) fn settings(pairs: &[(u16, u32)]) -> Vec<u8> {
    let mut payload = Vec::new();
    for (number, value) in pairs {
        payload.extend_from_slice(&number.to_be_bytes());
        payload.extend_from_slice(&value.to_be_bytes());
    }
    frame(SETTINGS, 0, 0, &payload)
}

/// What a client sends first.
pub(crate) fn opening() -> Vec<u8> {
    [PREFACE, &settings(&[])[..]].concat()
}

/// A request without a body.
pub(crate) fn get(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | END_STREAM, stream, GET)
}

/// A request with a body to come.
pub(crate) fn post(stream: u32) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, POST)
}

pub(crate) fn rst(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8_u32.to_be_bytes())
}

pub(crate) fn window_update(stream: u32, increment: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &increment.to_be_bytes())
}

/// One side of a connection.
pub(crate) struct Side {
    pub(crate) connection: Connection,
    pub(crate) heads: HeadBuffer,
    pub(crate) out: Vec<u8>,
    /// Input that is not taken yet.
    pub(crate) input: Vec<u8>,
    pub(crate) now: Duration,
}

/// What one side has heard: an event as text, with its stream.
pub(crate) type Heard = (Option<Stream>, String);

impl Side {
    pub(crate) fn new(role: Role, limits: &Limits) -> Side {
        let mut out = Vec::new();
        let now = Duration::from_secs(1_000);
        Side {
            connection: Connection::new(role, limits, now, &mut out),
            heads: HeadBuffer::new(limits),
            out,
            input: Vec::new(),
            now,
        }
    }

    /// A server behind its client's opening; its own is dropped, which the client has read.
    pub(crate) fn server(limits: &Limits) -> Side {
        let mut side = Side::new(Role::Server, limits);
        side.hear(&opening()).expect("an opening");
        side.hear(&frame(SETTINGS, ACK, 0, &[])).expect("an answer to it");
        side.out.clear();
        side
    }

    /// A client behind its server's settings.
    pub(crate) fn client(limits: &Limits) -> Side {
        let mut side = Side::new(Role::Client, limits);
        side.hear(&settings(&[])).expect("settings");
        side.out.clear();
        side
    }

    /// Gives it bytes; what they say.
    pub(crate) fn hear(&mut self, bytes: &[u8]) -> Result<Vec<Heard>, PeerFault> {
        let mut all = Vec::new();
        self.hear_into(bytes, &mut all).map(|()| all)
    }

    pub(crate) fn hear_into(&mut self, bytes: &[u8], all: &mut Vec<Heard>) -> Result<(), PeerFault> {
        self.input.extend_from_slice(bytes);
        let mut at = 0;
        loop {
            let step =
                self.connection
                    .receive(&self.input[at..], self.now, &mut self.heads, &mut self.out)?;
            at += step.consumed;
            if matches!(step.event, Event::NeedMore) {
                self.input.drain(..at);
                return Ok(());
            }
            all.push(shown(&step.event));
        }
    }

    /// The frames that it has written since it was asked last: type, flags, stream, payload.
    pub(crate) fn frames(&mut self) -> Vec<(u8, u8, u32, Vec<u8>)> {
        let out = std::mem::take(&mut self.out);
        let mut rest = &out[..];
        let mut frames = Vec::new();
        while let Some((&[a, b, c, kind, flags, s, t, u, v], behind)) = rest.split_first_chunk::<9>() {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            let (payload, behind) = behind.split_at(length);
            frames.push((kind, flags, u32::from_be_bytes([s, t, u, v]), payload.to_vec()));
            rest = behind;
        }
        assert!(rest.is_empty());
        frames
    }
}

/// An event as text.
pub(crate) fn shown(event: &Event<'_>) -> Heard {
    match event {
        Event::NeedMore => (None, "more".into()),
        Event::Request { stream, head, end } => {
            let mut text = format!("{} {} {}", stream.id(), head.method.as_str(), head.target_text);
            let host = head.authority.map_or("", |authority| authority.as_str());
            text += &format!(" {host} {:?} end={end}", head.framing);
            for field in head.fields.iter() {
                text += &format!(" {}={}", field.name.escape_ascii(), field.value.escape_ascii());
            }
            (Some(*stream), text)
        }
        Event::TooLarge { stream, end } => (Some(*stream), format!("{} too large end={end}", stream.id())),
        Event::Response { stream, head, end } => {
            let mut text = format!("{} {} {:?} end={end}", stream.id(), head.status, head.framing);
            for field in head.fields.iter() {
                text += &format!(" {}={}", field.name.escape_ascii(), field.value.escape_ascii());
            }
            (Some(*stream), text)
        }
        Event::Data { stream, data, end } => (
            Some(*stream),
            format!("{} data {} end={end}", stream.id(), data.escape_ascii()),
        ),
        Event::Trailers { stream, fields } => {
            let mut text = format!("{} trailers", stream.id());
            for field in fields.iter() {
                text += &format!(" {}={}", field.name.escape_ascii(), field.value.escape_ascii());
            }
            (Some(*stream), text)
        }
        Event::Reset { stream, code } => (Some(*stream), format!("{} reset {code}", stream.id())),
        Event::Broken { stream, fault } => (*stream, format!("broken {:?} {:?}", fault.kind, fault.scope)),
        Event::Window { stream } => (*stream, format!("window {:?}", stream.map(|stream| stream.id()))),
        Event::Settings => (None, "settings".into()),
        Event::GoAway { last, code } => (None, format!("goaway {last} {code}")),
        Event::Pong { payload } => (None, format!("pong {}", payload.escape_ascii())),
    }
}

pub(crate) fn texts(heard: &[Heard]) -> Vec<&str> {
    heard.iter().map(|(_, text)| &text[..]).collect()
}
