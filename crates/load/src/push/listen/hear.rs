//! What a client reads: the answer that opens its connection, replies, pings and publications.

use std::sync::atomic::Ordering;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;
use ringmain_wire::h1::{self, BodyDecoder, BodyEvent, Method, Parsed, parse_response};
use ringmain_wire::ws::{CloseCode, Decoder, Encoder, Event, Limits, Mask, Message, Opening, Role};

use super::dial::protocols;
use super::link::{Reading, Talk};
use super::{How, Listeners};
use crate::limits;
use crate::push::layout::{named, write_name};
use crate::push::order::Arrival;
use crate::push::plan::{Format, Transport};
use crate::push::speak::{self, Parts, Said};
use crate::push::stamp::{Found, Stamp};
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
enum Stop {
    /// With this code and reason, by a Close that is to be answered.
    Closed(u32, String),
    /// With these, by a push; the end of the stream follows.
    Told(u32, String),
    /// The server does not want to, in whole words.
    Refused(String),
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
            match self.head(conn, talk, bytes)? {
                Some(head) => at = head,
                None => return Ok(0),
            }
        }
        match self.plan.transport {
            Transport::WebSocket(format) => {
                at += self.frames(conn, index, talk, &mut bytes[at..], (format, now))?;
            }
            Transport::Sse => at += self.events(conn, index, talk, &bytes[at..], now)?,
        }
        Ok(at)
    }

    /// The answer that opens a connection; returns its length once it is whole.
    fn head(&mut self, conn: Conn<'_>, talk: &mut Talk, bytes: &[u8]) -> Result<Option<usize>, Stop> {
        let Reading::Head { scanner, nonce } = &mut talk.reading else {
            return Ok(Some(0));
        };
        let limits = &h1::Limits::INTERNET;
        let (head, length) = match parse_response(bytes, Method::Get, limits, scanner, &mut self.table) {
            Ok(Parsed::Complete { head, bytes }) => (head, bytes),
            Ok(Parsed::Partial) => return Ok(None),
            Err(_) => return Err(Stop::Refused("what answers there does not speak HTTP/1.1".into())),
        };
        let path = self.plan.path.split('?').next().unwrap_or_default();
        let refused = |status: u16| {
            let said = String::from_utf8_lossy(&bytes[length..]);
            let said = detail(&said);
            let hint = match status {
                404 => "no such endpoint: is this the path that clients connect to?",
                401 | 403 => "do anonymous clients connect there? else give a --token",
                _ => "expected an endpoint of the Centrifuge client protocol",
            };
            Stop::Refused(format!("{path} answers {status}{said}; {hint}"))
        };
        // Many at once are more than a server may want to take; none of them is told to stay away.
        if matches!(head.status, 429 | 502..=504) {
            return Err(Stop::Broken("told to come later (429, 502, 503 or 504)"));
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
        (format, now): (Format, Time),
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
                Event::NeedInflater => return Err(Stop::Broken("sent deflated what was not to be")),
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
                    self.message(conn, index, talk, piece.data, (format, now))?;
                }
                Event::Piece(piece) => {
                    talk.carry.extend_from_slice(piece.data);
                    if piece.last {
                        let carry = std::mem::take(&mut talk.carry);
                        self.message(conn, index, talk, &carry, (format, now))?;
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
        self.part(conn, index, talk, data.trim_ascii(), (Format::Json, now))
    }

    fn message(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        message: &[u8],
        (format, now): (Format, Time),
    ) -> Result<(), Stop> {
        for part in Parts::new(format, message) {
            let part = part.map_err(|_| Stop::Broken("sent what is no message of the protocol"))?;
            self.part(conn, index, talk, part, (format, now))?;
        }
        Ok(())
    }

    fn part(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        part: &[u8],
        (format, now): (Format, Time),
    ) -> Result<(), Stop> {
        self.figures.counts.messages += 1;
        let mut published = false;
        let mut rest = part;
        while let Some(found) = self.reader.find(rest) {
            published = true;
            let (Found::Whole(_, end) | Found::Changed(end)) = found;
            match found {
                Found::Whole(stamp, _) => self.delivered(index, stamp, now),
                Found::Changed(_) => self.figures.counts.changed += 1,
            }
            rest = &rest[end..];
        }
        // Nobody is told anything else in the middle of a publication; but an answer may bring some.
        if published && talk.connected && talk.left == 0 {
            return Ok(());
        }
        let said = speak::read(format, part);
        let said = said.map_err(|_| Stop::Broken("sent what is no message of the protocol"))?;
        self.told(conn, index, talk, said, format)
    }

    fn told(
        &mut self,
        conn: Conn<'_>,
        index: u32,
        talk: &mut Talk,
        said: Said,
        format: Format,
    ) -> Result<(), Stop> {
        match said {
            Said::Other => {}
            Said::Ping => {
                self.figures.counts.pings += 1;
                if talk.pong {
                    let mut answer = Vec::with_capacity(2);
                    speak::pong(&mut answer, format);
                    self.say(conn, format, &answer);
                }
            }
            Said::Connected { pong } => {
                talk.pong = pong;
                talk.connected = true;
                match self.plan.transport {
                    Transport::Sse => self.stands(conn, index),
                    Transport::WebSocket(_) => {
                        talk.left = self.layout.places();
                        self.subscribe_all(conn, index, format);
                    }
                }
            }
            Said::Subscribed => {
                talk.left = talk.left.saturating_sub(1);
                if talk.left == 0 {
                    self.stands(conn, index);
                }
            }
            Said::Refused { id, code, message } => {
                let what = match id {
                    speak::CONNECT => "connect".to_owned(),
                    id => format!("subscribe to {}", self.name_of(index, id - 1 - speak::CONNECT)),
                };
                let hint = "may anonymous clients do that? else give a --token or another --prefix";
                let message = shown(&message);
                return Err(Stop::Refused(format!(
                    "the server refused to {what}: {code} {message}; {hint}"
                )));
            }
            Said::Unsubscribed {
                channel,
                code,
                reason,
            } => {
                self.figures
                    .counts
                    .unsubscribes
                    .add(format!("{code} {}", shown(&reason)));
                if code >= 2500 {
                    self.subscribe_again(conn, index, &channel, format);
                }
            }
            Said::Disconnected { code, reason } => return Err(Stop::Told(code, shown(&reason))),
        }
        Ok(())
    }

    fn name_of(&self, index: u32, place: u32) -> String {
        let mut name = Vec::new();
        let channel = self.layout.channel(self.first + index, place);
        write_name(&mut name, &self.plan.prefix, self.layout.channels, channel);
        String::from_utf8_lossy(&name).into_owned()
    }

    /// Asks for all of a client's channels, some in each message.
    fn subscribe_all(&mut self, conn: Conn<'_>, index: u32, format: Format) {
        let places: Vec<u32> = (0..self.layout.places()).collect();
        for some in places.chunks(limits::SUBSCRIBES_A_MESSAGE) {
            let mut message = Vec::new();
            for place in some {
                self.write_subscribe(&mut message, index, *place, format);
            }
            self.say(conn, format, &message);
        }
    }

    fn write_subscribe(&self, message: &mut Vec<u8>, index: u32, place: u32, format: Format) {
        let channel = self.layout.channel(self.first + index, place);
        let (prefix, channels) = (self.plan.prefix.as_str(), self.layout.channels);
        speak::subscribe(message, format, speak::CONNECT + 1 + place, &|out| {
            write_name(out, prefix, channels, channel);
        });
    }

    /// The server has ended a subscription that the client is to take up anew.
    fn subscribe_again(&mut self, conn: Conn<'_>, index: u32, name: &str, format: Format) {
        let channel = named(&self.plan.prefix, self.layout.channels, name);
        let place = channel.and_then(|channel| self.layout.place(self.first + index, channel));
        if let (Some(place), Transport::WebSocket(_)) = (place, self.plan.transport) {
            let mut message = Vec::new();
            self.write_subscribe(&mut message, index, place, format);
            self.say(conn, format, &message);
        }
    }

    /// Sends a message.
    fn say(&mut self, conn: Conn<'_>, format: Format, message: &[u8]) {
        self.scratch.clear();
        let mut key = || self.random.u32(..).to_ne_bytes();
        let message = match format {
            Format::Json => Message::Text(str::from_utf8(message).expect("names and tokens are ASCII")),
            Format::Protobuf => Message::Binary(message),
        };
        let mut encoder = Encoder::new(Role::Client, None, usize::MAX);
        let written = encoder.message(&mut self.scratch, message, Mask::Keys(&mut key));
        debug_assert!(written.is_ok(), "no message is under way and no Close was sent");
        // A refused write ends the connection, and `closed` comes.
        let _ = conn.write(&self.scratch);
    }

    /// A publication has come.
    #[inline]
    fn delivered(&mut self, index: u32, stamp: Stamp, now: Time) {
        let Stamp { mark, due } = stamp;
        // What was published to see whether that works.
        if mark.sequence == 0 {
            return;
        }
        let Some(place) = self.layout.place(self.first + index, mark.channel) else {
            self.figures.counts.misdelivered += 1;
            return;
        };
        let track = index as usize * self.layout.places() as usize + place as usize;
        let arrival = self.tracks[track].take(mark.sequence);
        let Some(counted) = self.calendar.place(mark) else {
            return;
        };
        let slow = self.links[index as usize].slow;
        let counts = &mut self.figures.counts;
        match arrival {
            Arrival::Double => {
                counts.doubled += 1;
                return;
            }
            Arrival::Old => {
                counts.old += 1;
                return;
            }
            Arrival::Late => counts.reordered += 1,
            Arrival::New => {}
        }
        let span = now.since(due);
        if slow {
            counts.delivered_slow += 1;
            self.figures.slow.record(span.as_nanos() as u64);
        } else {
            counts.delivered += 1;
            self.figures.fast.record(span.as_nanos() as u64);
            if let Some(spread) = self.spreads.get_mut(counted) {
                spread.take(span);
            }
        }
        let counts = &self.figures.counts;
        self.gauge
            .delivered
            .store(counts.delivered + counts.delivered_slow, Ordering::Relaxed);
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
fn shown(text: &str) -> String {
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
