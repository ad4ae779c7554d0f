//! WebSocket, the client's side: how a connection is opened, what is sent, whether it comes back as it was, how it is closed.
//!
//! Frames are built in the worker's scratch and masked there. Once buffers are warm a message allocates nothing. Knows neither
//! time nor connections.

use std::collections::VecDeque;

use ringmain_wire::h1::{self, FieldTable, HeadScanner, Method, Parsed, parse_response};
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Deflater, Deflation, Encoder, Event, Inflater, Kind, Limits, Mask, Message,
    Piece, Role, Step,
};

use super::echo::Echo;
use super::speak::Draws;
use super::{Answer, Told};
use crate::limits;
use crate::traffic::{Content, NONCE_BYTES, Socket};

#[cfg(test)]
mod tests;

/// What a server may send: it is under test, not attacking, and of what it sends nothing is kept.
const LIMITS: Limits = Limits {
    frame_bytes: u64::MAX,
    message_bytes: u64::MAX,
    control_frames: u32::MAX,
};

/// Messages are deflated fast rather than well: it is the server that is measured.
const LEVEL: u8 = 1;

/// What all connections of a worker share.
#[derive(Debug)]
pub(crate) struct WebSocket {
    table: FieldTable,
    marked: Echo,
    /// A message of tokens, put together.
    message: Vec<u8>,
    /// One for each window that a server has asked for.
    deflaters: Vec<Deflater>,
    /// Those that no message needs at the time.
    inflaters: Vec<Inflater>,
}

/// What is known of one connection.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    nonce: [u8; NONCE_BYTES],
    scanner: HeadScanner,
    frames: Option<Frames>,
    /// Messages of tokens that have not come back yet, one behind the other, and the length of each.
    sent: VecDeque<u8>,
    lengths: VecDeque<u32>,
}

/// A connection on which frames flow.
#[derive(Debug)]
struct Frames {
    decoder: Decoder,
    encoder: Encoder,
    deflation: Option<Deflation>,
    /// Of a message that is under way.
    inflater: Option<Inflater>,
    echoed: Echoed,
}

/// How far the message at hand has come back.
#[derive(Clone, Copy, Debug, Default)]
struct Echoed {
    bytes: usize,
    /// Something of it is not as it was.
    wrong: bool,
}

/// The messages of a connection that are on their way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Awaited {
    /// The number of the connection.
    pub(crate) connection: u64,
    /// The number of the first message that has not come back yet.
    pub(crate) oldest: u64,
    /// The number of messages on their way.
    pub(crate) asked: usize,
}

/// What came of an answer to a handshake.
#[derive(Debug)]
pub(crate) enum Opened {
    /// It is not whole yet.
    More,
    /// Frames may flow, deflated or not.
    Open { deflated: bool },
    /// There is no WebSocket: what is counted, and what was said.
    Refused(&'static str, String),
}

impl WebSocket {
    pub(crate) fn new(message_bytes: u32) -> WebSocket {
        WebSocket {
            table: FieldTable::new(&h1::Limits::INTERNET),
            marked: Echo::new(message_bytes),
            message: Vec::new(),
            deflaters: Vec::new(),
            inflaters: Vec::new(),
        }
    }

    /// Leaves a handshake in the scratch.
    pub(crate) fn open(reading: &mut Reading, socket: &Socket, draws: &mut Draws<'_>) {
        reading.nonce = draws.random.u128(..).to_ne_bytes();
        draws.scratch.clear();
        socket.write_opening(draws.scratch, reading.nonce, draws.random, draws.sequence);
    }

    /// Reads bytes of the handshake's response. Returns the number of bytes consumed, and the outcome.
    pub(crate) fn opened(&mut self, reading: &mut Reading, socket: &Socket, input: &[u8]) -> (usize, Opened) {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let (limits, scanner) = (&h1::Limits::INTERNET, &mut reading.scanner);
            let (head, bytes) = match parse_response(rest, Method::Get, limits, scanner, &mut self.table) {
                Ok(Parsed::Complete { head, bytes }) => (head, bytes),
                Ok(Parsed::Partial) => return (at, Opened::More),
                Err(fault) => return (at, Opened::Refused("WebSocket: not HTTP/1.1", fault.to_string())),
            };
            at += bytes;
            if head.is_interim() {
                continue;
            }
            if head.status != 101 {
                let reason = String::from_utf8_lossy(head.reason);
                let said = format!("the server returned {} {reason}", head.status);
                return (at, Opened::Refused(refused(head.status), said));
            }
            return match socket.conclude(reading.nonce, &head) {
                Ok(deflation) => {
                    reading.frames = Some(Frames::new(deflation));
                    let deflated = deflation.is_some();
                    (at, Opened::Open { deflated })
                }
                Err(fault) => (
                    at,
                    Opened::Refused("WebSocket: broke the handshake", fault.to_string()),
                ),
            };
        }
    }

    /// Leaves message `number` of `connection` in the scratch, as frames.
    pub(crate) fn write(
        &mut self,
        reading: &mut Reading,
        socket: &Socket,
        connection: u64,
        number: u64,
        draws: &mut Draws<'_>,
    ) {
        let Draws {
            random,
            sequence,
            scratch,
        } = draws;
        let message = match socket.content() {
            Content::Marked(_) => Message::Binary(self.marked.message(connection, number)),
            Content::Text(text) => Message::Text(text),
            Content::Binary(bytes) => Message::Binary(bytes),
            Content::Template(template) => {
                self.message.clear();
                template.write(&mut self.message, random, sequence);
                reading.sent.extend(&self.message);
                reading.lengths.push_back(self.message.len() as u32);
                let text = str::from_utf8(&self.message);
                Message::Text(text.expect("tokens give ASCII, and the rest is a text"))
            }
        };
        let frames = reading
            .frames
            .as_mut()
            .expect("frames flow on a link that stands");
        scratch.clear();
        let mut key = || random.u32(..).to_ne_bytes();
        let mask = Mask::Keys(&mut key);
        let written = match frames.deflation {
            None => frames.encoder.message(scratch, message, mask),
            Some(Deflation { own_window, .. }) => {
                let deflaters = &mut self.deflaters;
                let known = deflaters.iter().position(|one| one.window() == own_window);
                let at = known.unwrap_or_else(|| {
                    deflaters.push(Deflater::new(own_window, LEVEL));
                    deflaters.len() - 1
                });
                frames
                    .encoder
                    .deflated(scratch, message, &mut deflaters[at], mask)
            }
        };
        written.expect("a link that stands has sent no Close");
    }

    /// Reads bytes of the expected messages. Returns the number of bytes consumed, and the outcome.
    pub(crate) fn read(
        &mut self,
        reading: &mut Reading,
        socket: &Socket,
        awaited: Awaited,
        input: &mut [u8],
        draws: &mut Draws<'_>,
    ) -> (usize, Told) {
        let frames = reading
            .frames
            .as_mut()
            .expect("frames flow on a link that stands");
        let mut at = 0;
        loop {
            let decoded = frames.decoder.decode(&mut input[at..], frames.inflater.as_mut());
            let Step { event, consumed } = match decoded {
                Ok(step) => step,
                Err(fault) => {
                    say_close(&mut frames.encoder, fault.close_code(), draws);
                    return (at, Told::Closing("broke the protocol"));
                }
            };
            at += consumed;
            match event {
                Event::NeedMore => return (at, Told::More),
                Event::NeedInflater => {
                    let free = self.inflaters.pop();
                    frames.inflater = Some(free.unwrap_or_else(|| Inflater::new(limits::INFLATED_PIECE)));
                }
                Event::Pong(_) => {}
                Event::Ping(data) => {
                    let mut key = || draws.random.u32(..).to_ne_bytes();
                    draws.scratch.clear();
                    let written = frames.encoder.pong(draws.scratch, data, Mask::Keys(&mut key));
                    written.expect("a ping's bytes fit a pong, and no Close was sent");
                    return (at, Told::Said);
                }
                Event::Close(close) => {
                    frames.encoder.close_received();
                    say_close(&mut frames.encoder, close.map(|close| close.code), draws);
                    return (at, Told::Closing("closed by a Close frame"));
                }
                Event::Piece(_) if awaited.asked == 0 => {
                    return (at, Told::Broken("sent data without a request"));
                }
                Event::Piece(piece) => {
                    let Awaited {
                        connection, oldest, ..
                    } = awaited;
                    let (sent, lengths) = (&reading.sent, &reading.lengths);
                    let expected = expected(&mut self.marked, socket, connection, oldest, sent, lengths);
                    if let Some(right) = frames.echoed.take(piece, socket.kind(), expected) {
                        self.inflaters.extend(frames.inflater.take());
                        if let Some(length) = reading.lengths.pop_front() {
                            reading.sent.drain(..length as usize);
                        }
                        let answer = Answer {
                            status: 0,
                            right,
                            last: false,
                            code: None,
                        };
                        return (at, Told::Answer(answer));
                    }
                }
            }
        }
    }
}

impl Reading {
    /// As new, but for the memory.
    pub(crate) fn forget(&mut self) {
        self.scanner = HeadScanner::default();
        self.frames = None;
        self.sent.clear();
        self.lengths.clear();
    }

    /// Leaves a Close in the scratch; `false` if no frame may be sent.
    pub(crate) fn close(&mut self, draws: &mut Draws<'_>) -> bool {
        let Some(frames) = &mut self.frames else {
            return false;
        };
        say_close(&mut frames.encoder, Some(CloseCode::NORMAL), draws);
        !draws.scratch.is_empty()
    }

    /// A part of a message has come back.
    pub(crate) fn is_within_message(&self) -> bool {
        self.frames.as_ref().is_some_and(|frames| frames.echoed.bytes > 0)
    }
}

impl Frames {
    fn new(deflation: Option<Deflation>) -> Frames {
        Frames {
            decoder: Decoder::new(Role::Client, &LIMITS, deflation),
            encoder: Encoder::new(Role::Client, deflation, usize::MAX),
            deflation,
            inflater: None,
            echoed: Echoed::default(),
        }
    }
}

impl Echoed {
    /// Compares the next piece; of the last one it says whether the message is as it was sent.
    fn take(&mut self, piece: Piece<'_>, kind: Kind, [first, second]: [&[u8]; 2]) -> Option<bool> {
        let from = self.bytes;
        let until = from + piece.data.len();
        // What there is of both parts of the message between the two.
        let part = |bytes: &'_ [u8], start: usize| {
            let place = |at: usize| at.saturating_sub(start).min(bytes.len());
            place(from)..place(until)
        };
        let (head, tail) = (part(first, 0), part(second, first.len()));
        self.bytes = until;
        self.wrong |= piece.kind != kind
            || head.len() + tail.len() != piece.data.len()
            || piece.data[..head.len()] != first[head.clone()]
            || piece.data[head.len()..] != second[tail];
        if !piece.last {
            return None;
        }
        let message = std::mem::take(self);
        Some(!message.wrong && message.bytes == first.len() + second.len())
    }
}

/// The message that is to come back, in at most two parts.
fn expected<'a>(
    marked: &'a mut Echo,
    socket: &'a Socket,
    connection: u64,
    number: u64,
    sent: &'a VecDeque<u8>,
    lengths: &VecDeque<u32>,
) -> [&'a [u8]; 2] {
    match socket.content() {
        Content::Marked(_) => [marked.message(connection, number), &[]],
        Content::Text(text) => [text.as_bytes(), &[]],
        Content::Binary(bytes) => [bytes, &[]],
        Content::Template(_) => {
            let length = *lengths.front().expect("a message was sent") as usize;
            let (first, second) = sent.as_slices();
            let first = &first[..first.len().min(length)];
            [first, &second[..length - first.len()]]
        }
    }
}

/// Leaves a Close in the scratch, unless one was sent.
fn say_close(encoder: &mut Encoder, code: Option<CloseCode>, draws: &mut Draws<'_>) {
    let mut key = || draws.random.u32(..).to_ne_bytes();
    draws.scratch.clear();
    let close = code.map(|code| Close { code, reason: "" });
    let written = encoder.close(draws.scratch, close, Mask::Keys(&mut key));
    debug_assert!(written.is_ok() || draws.scratch.is_empty());
}

/// What is counted of a server that does not want to.
fn refused(status: u16) -> &'static str {
    match status {
        200..=299 => "WebSocket: answered 2xx",
        301 => "WebSocket: answered 301",
        302 => "WebSocket: answered 302",
        303 => "WebSocket: answered 303",
        307 => "WebSocket: answered 307",
        308 => "WebSocket: answered 308",
        400 => "WebSocket: answered 400",
        401 => "WebSocket: answered 401",
        403 => "WebSocket: answered 403",
        404 => "WebSocket: answered 404",
        405 => "WebSocket: answered 405",
        426 => "WebSocket: answered 426",
        429 => "WebSocket: answered 429",
        other if other / 100 == 4 => "WebSocket: answered 4xx",
        500 => "WebSocket: answered 500",
        502 => "WebSocket: answered 502",
        503 => "WebSocket: answered 503",
        504 => "WebSocket: answered 504",
        other if other / 100 == 5 => "WebSocket: answered 5xx",
        _ => "WebSocket: answered another status",
    }
}
