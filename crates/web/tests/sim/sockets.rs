//! Simulated WebSocket clients: each sends its own mix of messages, whole or in fragments, deflated or not, and checks that each is
//! echoed once, in order.

use std::collections::VecDeque;
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_sim::World;
use ringmain_wire::h1::{self, FieldTable, HeadScanner, Method, Parsed, RequestEncoder, parse_response};
use ringmain_wire::ws::{
    Close, CloseCode, Decoder, Deflater, Deflation, Encoder, Event, Inflater, Limits, Mask, Message, Opening,
    Role,
};

use crate::app::pattern;
use crate::clients::{Manner, Weather};
use crate::link::Link;

/// The application's echoes: at once, deflated, by a task.
const TARGETS: [&str; 3] = ["/ws", "/ws/deflate", "/ws/task"];

/// A client's frames are masked, with keys that follow from the seed.
struct Keys(u64);

/// One socket of a client.
pub(crate) struct SocketClient {
    peer: Link,
    manner: Manner,
    target: &'static str,
    /// `None` until the server has agreed.
    codec: Option<Codec>,
    wish: Option<Deflation>,
    keys: Keys,
    input: Vec<u8>,
    /// Bytes to be written, and the number already written.
    out: Vec<u8>,
    written: usize,
    /// Bytes written in all, and after how many it ends, resets or sleeps.
    total: usize,
    limit: usize,
    id: u64,
    /// Messages to send, and at most how many bytes of one.
    left: usize,
    most: usize,
    /// Sent and not yet back.
    owed: VecDeque<Vec<u8>>,
    came: Vec<u8>,
    back: usize,
    ended: bool,
    slept: bool,
    wakes: Option<Time>,
    stall: usize,
    stuck: bool,
    /// The server has said Close, with this code.
    closed: Option<u16>,
    pub(crate) done: bool,
}

struct Codec {
    encoder: Encoder,
    decoder: Decoder,
    deflation: Option<Deflation>,
    deflater: Deflater,
    inflater: Inflater,
}

impl Keys {
    fn next(&mut self) -> [u8; 4] {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        ((self.0 >> 32) as u32).to_be_bytes()
    }
}

fn opening(wish: Option<Deflation>) -> Opening<'static> {
    Opening::new([5; 16], &[], wish).expect("no subprotocols")
}

impl SocketClient {
    /// Returns a client that sends some messages of at most `most` bytes each, marked with `id`.
    pub(crate) fn new(world: &World, peer: Link, id: u64, most: usize) -> SocketClient {
        let target = TARGETS[world.below(3)];
        let wish = [None, Some(Deflation::SHARED), Some(Deflation::CONTEXT)][world.below(3)];
        let mut out = Vec::new();
        let mut head = RequestEncoder::new(&mut out, Method::Get, target, "sim").expect("a target");
        opening(wish).write_fields(&mut head).expect("checked fields");
        let _without_body = head
            .finish_with_upgrade(h1::Framing::None, b"websocket")
            .expect("no body");
        let left = world.below(8);
        // More than one message is.
        let most = most.min(900_000);
        SocketClient {
            peer,
            manner: Manner::draw(world),
            target,
            codec: None,
            wish,
            keys: Keys(id),
            input: Vec::new(),
            limit: world.below(out.len() + 1 + left * most / 2),
            out,
            written: 0,
            total: 0,
            id,
            left,
            most,
            owed: VecDeque::new(),
            came: Vec::new(),
            back: 0,
            ended: false,
            slept: false,
            wakes: None,
            stall: 0,
            stuck: false,
            closed: None,
            done: false,
        }
    }

    /// Returns the number of echoed messages.
    pub(crate) fn answered(&self) -> usize {
        self.back
    }

    /// Returns true if time must not jump: the client would act at the current time.
    pub(crate) fn is_busy(&self) -> bool {
        let writes = self.may_write() > 0 && (!self.stuck || self.peer.takes());
        let sends = self.codec.is_some() && self.written == self.out.len() && self.wants_to_send();
        !self.done && self.wakes.is_none() && (self.stall > 0 || self.peer.is_busy() || writes || sends)
    }

    fn wants_to_send(&self) -> bool {
        let Some(codec) = &self.codec else { return false };
        let may_close = self.left == 0 && self.owed.is_empty();
        codec.encoder.closing().may_send() && !self.ended && (self.left > 0 || may_close)
    }

    /// One step.
    pub(crate) fn act(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if self.done || self.waits(world) {
            return Ok(());
        }
        if self.written == self.out.len() && self.wants_to_send() {
            self.draw(world);
        }
        self.write(world);
        self.read(world, weather)?;
        self.leave();
        if let Some(fault) = self.peer.fault() {
            return Err(format!("TLS: {fault}"));
        }
        if !self.done && (self.peer.failed() && self.peer.readable() == 0 || self.peer.eof()) {
            self.over(weather)?;
        }
        Ok(())
    }

    fn waits(&mut self, world: &World) -> bool {
        if self.manner == Manner::Stalls && self.stall == 0 && world.below(40) == 0 {
            self.stall = world.below(100);
        }
        if self.manner == Manner::Sleeps && !self.slept && self.total >= self.limit {
            self.slept = true;
            let span = [1, 4, 40, 80, 200][world.below(5)];
            self.wakes = Some(world.now().after(Duration::from_secs(span)));
        }
        if self.wakes.is_some_and(|at| at <= world.now()) {
            self.wakes = None;
        }
        self.stall = self.stall.saturating_sub(1);
        self.stall > 0 || self.wakes.is_some()
    }

    /// Makes the next message, perhaps in fragments with a ping between, or a Close when all is back.
    fn draw(&mut self, world: &World) {
        let Some(codec) = &mut self.codec else { return };
        self.out.clear();
        self.written = 0;
        let keys = &mut self.keys;
        let mut key = || keys.next();
        if self.left == 0 {
            let close = Close {
                code: CloseCode::NORMAL,
                reason: "",
            };
            let encoded = codec
                .encoder
                .close(&mut self.out, Some(close), Mask::Keys(&mut key));
            return encoded.expect("it is open");
        }
        self.left -= 1;
        let length = if world.below(4) == 0 {
            world.below(self.most + 1)
        } else {
            world.below(600.min(self.most) + 1)
        };
        let mut data = pattern(self.id << 8 | self.left as u64, length);
        let is_text = world.below(2) == 0;
        if is_text || world.below(2) == 0 {
            // Letters, of which few are many times there.
            data.iter_mut().for_each(|byte| *byte = b'a' + *byte % 8);
        }
        let whole = match str::from_utf8(&data) {
            Ok(text) if is_text => Message::Text(text),
            _ => Message::Binary(&data),
        };
        if world.below(3) == 0 {
            let cut = world.below(length + 1);
            let part = |range: std::ops::Range<usize>| match whole {
                Message::Text(text) => Message::Text(&text[range]),
                Message::Binary(bytes) => Message::Binary(&bytes[range]),
            };
            let out = &mut self.out;
            codec
                .encoder
                .fragment(out, part(0..cut), false, Mask::Keys(&mut key))
                .expect("it is open");
            codec
                .encoder
                .ping(out, b"between", Mask::Keys(&mut key))
                .expect("it is open");
            codec
                .encoder
                .fragment(out, part(cut..length), true, Mask::Keys(&mut key))
                .expect("it is open");
        } else if codec.deflation.is_some() && world.below(2) == 0 {
            let encoded =
                codec
                    .encoder
                    .deflated(&mut self.out, whole, &mut codec.deflater, Mask::Keys(&mut key));
            encoded.expect("it was agreed on");
        } else {
            codec
                .encoder
                .message(&mut self.out, whole, Mask::Keys(&mut key))
                .expect("it is open");
        }
        self.owed.push_back(data);
    }

    /// Bytes that may go out now.
    fn may_write(&self) -> usize {
        if self.ended {
            return 0;
        }
        let left = self.out.len() - self.written;
        match self.manner {
            // Up to its limit, where it ends.
            Manner::Ends => left.min(self.limit - self.total.min(self.limit)),
            _ => left,
        }
    }

    fn write(&mut self, world: &World) {
        let left = self.may_write();
        // A client without room retries each time: time must not jump past the next opportunity.
        if left == 0 || !self.stuck && world.below(2) == 0 {
            return;
        }
        let count = if world.below(3) == 0 {
            1 + world.below(left)
        } else {
            left
        };
        let count = self.peer.write(&self.out[self.written..][..count]).unwrap_or(0);
        self.stuck = count == 0;
        self.written += count;
        self.total += count;
    }

    fn read(&mut self, world: &World, weather: Weather) -> Result<(), String> {
        if world.below(3) == 0 {
            return Ok(());
        }
        let most = match self.manner {
            Manner::Slow => 300,
            _ => 40_000,
        };
        let bytes = self.peer.read(1 + world.below(most));
        self.input.extend_from_slice(&bytes);
        if self.codec.is_none() {
            self.handshake(weather)?;
        }
        self.frames(weather)
    }

    fn handshake(&mut self, weather: Weather) -> Result<(), String> {
        let limits = h1::Limits::INTERNET;
        let mut table = FieldTable::new(&limits);
        let parsed = parse_response(
            &self.input,
            Method::Get,
            &limits,
            &mut HeadScanner::new(),
            &mut table,
        );
        let (head, bytes) = match parsed.map_err(|fault| fault.to_string())? {
            Parsed::Complete { head, bytes } => (head, bytes),
            Parsed::Partial => return Ok(()),
        };
        if head.status != 101 {
            let excused = head.status == 503 && weather.draining || head.status == 408 && self.slept;
            self.done = true;
            self.peer.close();
            return excused
                .then_some(())
                .ok_or_else(|| format!("refused with {}", head.status));
        }
        if self.written < self.out.len() {
            return Err("it was opened before it was asked for".into());
        }
        let opened = opening(self.wish)
            .conclude(&head)
            .map_err(|fault| fault.to_string())?;
        let deflation = opened.deflation;
        if deflation.is_some() != (self.wish.is_some() && self.target == "/ws/deflate") {
            return Err(format!("{} agreed on {deflation:?}", self.target));
        }
        let limits = Limits {
            frame_bytes: u64::MAX,
            message_bytes: u64::MAX,
            control_frames: u32::MAX,
        };
        let window = deflation.unwrap_or(Deflation::SHARED).own_window;
        self.codec = Some(Codec {
            encoder: Encoder::new(Role::Client, deflation, usize::MAX),
            decoder: Decoder::new(Role::Client, &limits, deflation),
            deflation,
            deflater: Deflater::new(window, 1),
            inflater: Inflater::new(1000),
        });
        self.input.drain(..bytes);
        Ok(())
    }

    fn frames(&mut self, weather: Weather) -> Result<(), String> {
        let Some(codec) = &mut self.codec else {
            return Ok(());
        };
        let keys = &mut self.keys;
        let mut key = || keys.next();
        let mut at = 0;
        loop {
            let step = codec
                .decoder
                .decode(&mut self.input[at..], Some(&mut codec.inflater))
                .map_err(|fault| fault.to_string())?;
            at += step.consumed;
            match step.event {
                Event::NeedMore | Event::NeedInflater => break,
                Event::Piece(piece) => {
                    self.came.extend_from_slice(piece.data);
                    if piece.last {
                        let came = std::mem::take(&mut self.came);
                        if self.owed.pop_front() != Some(came) {
                            return Err(format!("message {} came back changed", self.back));
                        }
                        self.back += 1;
                    }
                }
                // Follows the bytes being written, which end with a frame.
                Event::Ping(data) if codec.encoder.closing().may_send() => {
                    let pong = codec.encoder.pong(&mut self.out, data, Mask::Keys(&mut key));
                    pong.map_err(|misuse| misuse.to_string())?;
                }
                Event::Ping(_) => {}
                Event::Pong(data) if data == b"between" => {}
                Event::Pong(data) => return Err(format!("a pong of {}", data.escape_ascii())),
                Event::Close(close) => {
                    let code = close.map_or(1005, |close| close.code.number());
                    let planned = codec.encoder.closing() == ringmain_wire::ws::Closing::Sent && code == 1000;
                    let excused = code == 1012 && weather.draining || code == 1008 && self.slept;
                    if !planned && !excused {
                        return Err(format!("closed with {code}"));
                    }
                    self.closed = Some(code);
                    if codec.encoder.close_received().may_send() {
                        let answer = codec.encoder.close(&mut self.out, close, Mask::Keys(&mut key));
                        answer.map_err(|misuse| misuse.to_string())?;
                    }
                }
            }
        }
        self.input.drain(..at);
        Ok(())
    }

    fn leave(&mut self) {
        match self.manner {
            Manner::Resets if self.total >= self.limit => self.peer.reset(),
            Manner::Leaves if self.total >= self.limit => self.peer.close(),
            Manner::Ends if self.total >= self.limit && !self.ended => {
                self.ended = true;
                self.peer.shutdown_write();
                return;
            }
            _ => return,
        }
        self.done = true;
    }

    /// The server has ended the connection: checks that it had a cause and that no message is missing.
    fn over(&mut self, weather: Weather) -> Result<(), String> {
        self.done = true;
        if self.peer.eof() {
            let rest = self.peer.read(usize::MAX);
            self.input.extend_from_slice(&rest);
            self.frames(weather)?;
        }
        let was_cut = self.peer.was_cut();
        let how = if self.peer.failed() { "a reset" } else { "an end" };
        self.peer.close();
        let excused = weather.broken || weather.draining || self.slept || self.ended;
        if !excused && was_cut {
            return Err("an end that was not announced".into());
        }
        if !excused && self.closed.is_none() {
            return Err(format!("{how} without a Close"));
        }
        if !excused && (self.left > 0 || !self.owed.is_empty()) {
            return Err(format!("{how} before all came back"));
        }
        Ok(())
    }
}

impl std::fmt::Debug for SocketClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:?} {} {:?}: {} back, {} owed, {} to send, {} of {} bytes written, closed {:?}{}; {} readable",
            self.manner,
            self.target,
            self.peer,
            self.back,
            self.owed.len(),
            self.left,
            self.written,
            self.out.len(),
            self.closed,
            if self.ended { ", ended" } else { "" },
            self.peer.readable(),
        )
    }
}
