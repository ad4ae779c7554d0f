//! What a client reads, as bytes: the answer that opens its connection, frames or events, and messages in them.

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, BodyDecoder, BodyEvent, Method, Parsed, parse_response};
use ringmain_wire::ws::{CloseCode, Decoder, Encoder, Event, Limits, Mask, Opening, Role};

use super::deliver::Brought;
use super::dial::protocols;
use super::link::{Reading, Talk};
use super::{How, Listeners};
use crate::limits;
use crate::push::plan::{Format, Transport};
use crate::push::speak::{self, Parts, Said};
use crate::push::worker::Place;

/// What a server may send: it is under test, not attacking, and of what it sends little is kept.
const LIMITS: Limits = Limits {
    frame_bytes: limits::HEARD_BYTES as u64,
    message_bytes: limits::HEARD_BYTES as u64,
    control_frames: u32::MAX,
};

/// Bytes of a carry that are kept for the next message.
const KEPT: usize = 4096;

/// Why a connection is not read on.
#[derive(Clone, Debug)]
pub(super) enum Stop {
    /// With this code and reason, by a Close that is to be answered.
    Closed(u32, String),
    /// With these, by a push; the end of the stream follows.
    Told(u32, String),
    /// The server does not want to, in whole words.
    Refused(String),
    /// The server does not want to now, and may later.
    Later(String),
    /// The server broke a rule.
    Broken(&'static str),
}

impl Listeners {
    /// Bytes have come; returns how many were taken.
    pub(in crate::push) fn received(&mut self, conn: Conn<'_>, place: Place, bytes: &mut [u8]) -> usize {
        let Some(index) = self.owner(place) else {
            return bytes.len();
        };
        let Some(mut talk) = self.links[index as usize].talk.take() else {
            return bytes.len();
        };
        let now = self.cx.clock();
        if self.is_counting() {
            let behind = now.since(self.cx.ready_at());
            self.figures.behind.record(behind.as_nanos() as u64);
        }
        let outcome = self.read(conn, index, &mut talk, bytes, now);
        let (taken, stop) = match outcome {
            Ok(taken) => (taken, None),
            Err(stop) => (bytes.len(), Some(stop)),
        };
        self.figures.counts.bytes_received += taken as u64;
        match stop {
            None => {
                self.links[index as usize].talk = Some(talk);
                self.spend(conn, index, taken);
            }
            Some(stop) => self.stop(conn, index, stop),
        }
        taken
    }

    fn stop(&mut self, conn: Conn<'_>, index: u32, stop: Stop) {
        match stop {
            Stop::Closed(code, reason) => {
                let code_back = u16::try_from(code).ok().and_then(CloseCode::new);
                self.write_close(conn, code_back.unwrap_or(CloseCode::NORMAL));
                conn.close();
                self.end(index, &How::Code(code, &reason));
            }
            Stop::Told(code, reason) => {
                conn.close();
                self.end(index, &How::Code(code, &reason));
            }
            Stop::Refused(message) => {
                conn.abort();
                self.end(index, &How::Refused(message));
            }
            Stop::Later(message) => {
                conn.abort();
                self.end(index, &How::Later(message));
            }
            Stop::Broken(what) => {
                conn.abort();
                self.end(index, &How::What(what));
            }
        }
    }

    fn read(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        bytes: &mut [u8],
        now: Time,
    ) -> Result<usize, Stop> {
        let mut at = 0;
        if matches!(talk.reading, Reading::Head { .. }) {
            match self.head(conn, index, talk, bytes)? {
                Some(head) => at = head,
                None => return Ok(0),
            }
        }
        match self.plan.transport {
            Transport::WebSocket(format) => {
                at += self.frames(conn, index, talk, &mut bytes[at..], format, now)?;
            }
            Transport::Sse => at += self.events(conn, index, talk, &bytes[at..], now)?,
        }
        Ok(at)
    }

    /// The answer that opens a connection; returns its length once it is whole.
    fn head(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        bytes: &[u8],
    ) -> Result<Option<usize>, Stop> {
        let Reading::Head { scanner, nonce } = &mut talk.reading else {
            return Ok(Some(0));
        };
        let limits = &h1::Limits::INTERNET;
        let (head, length) = match parse_response(bytes, Method::Get, limits, scanner, &mut self.table) {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Partial) => return Ok(None),
            Err(_) => return Err(Stop::Refused("the server does not speak HTTP/1.1".into())),
        };
        let node = &self.plan.nodes[usize::from(self.links[index as usize].node)];
        let path = node.path.split('?').next().unwrap_or_default();
        let refused = |status: u16| {
            let said = String::from_utf8_lossy(&bytes[length..]);
            let said = detail(&said);
            let hint = match status {
                404 => "no such endpoint: is this the path that clients connect to?",
                401 | 403 => "check that anonymous clients may connect, or pass a --token",
                _ => "expected an endpoint of the Centrifuge client protocol",
            };
            Stop::Refused(format!("{path} returns {status}{said}; {hint}"))
        };
        // Many at once are more than a server may want to take; none of them is told to stay away.
        if matches!(head.status, 429 | 502..=504) {
            return Err(Stop::Broken("asked to retry later (429, 502, 503 or 504)"));
        }
        match self.plan.transport {
            Transport::WebSocket(format) => {
                if head.status != 101 {
                    return Err(refused(head.status));
                }
                let protocols = protocols(format);
                let opening = Opening::new(*nonce, protocols, None).expect("a name of ours is a token");
                let opened = opening.conclude(&head);
                let opened = opened.map_err(|fault| Stop::Refused(format!("{path}: {fault}")))?;
                if opened.protocol != protocols.first().copied() {
                    return Err(Stop::Refused(format!(
                        "{path} does not speak {}",
                        protocols.join(", ")
                    )));
                }
                talk.reading = Reading::Frames(Decoder::new(Role::Client, &LIMITS, None));
                let mut message = Vec::new();
                speak::connect(&mut message, format, self.plan.token.as_deref());
                self.say(conn, format, &message);
            }
            Transport::Sse => {
                if head.status != 200 {
                    return Err(refused(head.status));
                }
                let decoder = BodyDecoder::new(head.framing, limits);
                let decoder = decoder.map_err(|_| Stop::Broken("broke HTTP/1.1"))?;
                talk.reading = Reading::Events(decoder);
            }
        }
        Ok(Some(length))
    }

    fn frames(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        bytes: &mut [u8],
        format: Format,
        now: Time,
    ) -> Result<usize, Stop> {
        let mut at = 0;
        loop {
            let Reading::Frames(decoder) = &mut talk.reading else {
                return Ok(at);
            };
            let step = decoder.decode(&mut bytes[at..], None);
            let step = step.map_err(|_| Stop::Broken("broke the WebSocket protocol"))?;
            at += step.consumed;
            match step.event {
                Event::NeedMore => return Ok(at),
                Event::NeedInflater => return Err(Stop::Broken("sent an unexpected compressed message")),
                Event::Pong(_) => {}
                Event::Ping(data) => {
                    self.scratch.clear();
                    let mut key = || self.random.u32(..).to_ne_bytes();
                    let mut encoder = Encoder::new(Role::Client, None, usize::MAX);
                    let written = encoder.pong(&mut self.scratch, data, Mask::Keys(&mut key));
                    debug_assert!(written.is_ok(), "a ping's bytes fit a pong");
                    // A refused write ends the connection, and `closed` comes.
                    let _ = conn.write(&self.scratch);
                }
                Event::Close(close) => {
                    let (code, reason) =
                        close.map_or((1005, ""), |close| (close.code.number(), close.reason));
                    return Err(Stop::Closed(u32::from(code), shown(reason)));
                }
                Event::Piece(piece) if piece.first && piece.last => {
                    self.message(conn, index, talk, piece.data, format, now)?;
                }
                Event::Piece(piece) => {
                    talk.carry.extend_from_slice(piece.data);
                    if piece.last {
                        let carry = std::mem::take(&mut talk.carry);
                        self.message(conn, index, talk, &carry, format, now)?;
                        keep(talk, carry);
                    }
                }
            }
        }
    }

    fn events(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        bytes: &[u8],
        now: Time,
    ) -> Result<usize, Stop> {
        let mut at = 0;
        loop {
            let Reading::Events(decoder) = &mut talk.reading else {
                return Ok(at);
            };
            let step = decoder.decode(&bytes[at..]);
            let step = step.map_err(|_| Stop::Broken("broke HTTP/1.1"))?;
            at += step.consumed;
            match step.event {
                BodyEvent::NeedMore => return Ok(at),
                BodyEvent::Trailers(_) => {}
                BodyEvent::End => return Err(Stop::Broken("closed by the server without a code")),
                BodyEvent::Data(data) => self.lines(conn, index, talk, data, now)?,
            }
        }
    }

    /// Lines of events; the last one may go on in what comes next.
    fn lines(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        mut data: &[u8],
        now: Time,
    ) -> Result<(), Stop> {
        while let Some(end) = memchr::memchr(b'\n', data) {
            let (line, rest) = (&data[..end], &data[end + 1..]);
            data = rest;
            if talk.carry.is_empty() {
                self.line(conn, index, talk, line, now)?;
            } else {
                let mut carry = std::mem::take(&mut talk.carry);
                carry.extend_from_slice(line);
                self.line(conn, index, talk, &carry, now)?;
                keep(talk, carry);
            }
        }
        if talk.carry.len() + data.len() > limits::HEARD_BYTES {
            return Err(Stop::Broken("sent an event that is too long"));
        }
        talk.carry.extend_from_slice(data);
        Ok(())
    }

    fn line(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        line: &[u8],
        now: Time,
    ) -> Result<(), Stop> {
        // Comments and other fields mean nothing here.
        let Some(data) = line.strip_prefix(b"data:") else {
            return Ok(());
        };
        self.part(conn, index, talk, data.trim_ascii(), Format::Json, now)
    }

    fn message(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        message: &[u8],
        format: Format,
        now: Time,
    ) -> Result<(), Stop> {
        for part in Parts::new(format, message) {
            let part = part.map_err(|_| Stop::Broken("sent an invalid message of the protocol"))?;
            self.part(conn, index, talk, part, format, now)?;
        }
        Ok(())
    }

    fn part(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        part: &[u8],
        format: Format,
        now: Time,
    ) -> Result<(), Stop> {
        self.figures.counts.messages += 1;
        let read =
            || speak::read(format, part).map_err(|_| Stop::Broken("sent an invalid message of the protocol"));
        // Answers may bring publications, and it has to be known of those. Where all stands nobody is told anything else in the
        // middle of a publication.
        let stands = talk.connected && talk.left == 0;
        let said = if stands { None } else { Some(read()?) };
        let brought = match &said {
            Some(Said::Subscribed { .. } | Said::Connected { .. }) => Brought::ByAnswer,
            _ => Brought::ByPush(format),
        };
        self.answered.clear();
        let published = self.publications(index, part, brought, now);
        let said = match said {
            Some(said) => said,
            None if published => return Ok(()),
            None => read()?,
        };
        self.told(conn, index, talk, said, format)
    }
}

/// Keeps the memory of a carry that is not needed any more, if it is little.
fn keep(talk: &mut Talk, mut carry: Vec<u8>) {
    if carry.capacity() <= KEPT && talk.carry.is_empty() {
        carry.clear();
        talk.carry = carry;
    }
}

/// A server's words, as much of them as a message needs.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .filter(|c| !c.is_control())
        .take(limits::REASON_CHARACTERS)
        .collect()
}

/// What the body of a refusal says, in parentheses.
fn detail(body: &str) -> String {
    let said = serde_json::from_str::<serde_json::Value>(body).ok();
    let said = said
        .as_ref()
        .and_then(|said| said.get("detail"))
        .and_then(|said| said.as_str());
    said.map_or_else(String::new, |said| format!(" ({})", shown(said)))
}
