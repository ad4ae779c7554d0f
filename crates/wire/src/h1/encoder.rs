//! Heads out: requests and responses, appended to the caller's buffer. The caller brings the date.
//!
//! Framing fields are written here only, so that a head cannot contradict its body. A head that was begun and
//! not finished takes its bytes back.

use super::authority::Authority;
use super::body_encoder::BodyEncoder;
use super::field_block::FieldBlock;
use super::fields::Known;
use super::framing::{Framing, LENGTH_LIMIT, Version};
use super::grammar::{self, TARGET, TOKEN};
use super::lines;
use super::method::Method;
use super::misuse::Misuse;
use super::request::RequestHead;
use super::status;
use super::target::Target;

/// A response's status line and first fields, checked once and sent many times.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preface {
    status: u16,
    bytes: Vec<u8>,
}

impl Preface {
    /// The status line, and nothing else yet.
    ///
    /// # Errors
    /// `Status`.
    pub fn new(status: u16) -> Result<Self, Misuse> {
        let mut bytes = Vec::new();
        write_status(&mut bytes, status)?;
        Ok(Self { status, bytes })
    }

    /// Appends fields that were checked before.
    pub fn block(&mut self, block: &FieldBlock) {
        self.bytes.extend_from_slice(block.as_bytes());
    }

    /// The status line alone again; keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        // The status was checked by `new`.
        let _ = write_status(&mut self.bytes, self.status);
    }
}

/// What of a request its answer depends on; small, so that it outlives the request's bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exchange {
    /// The client's version.
    pub version: Version,
    /// Whether the connection is to live on. Clear it to close after the answer.
    pub keep_alive: bool,
    /// What the method says about the answer's body.
    pub method: AnswerTo,
}

/// The methods that frame their answers in a way of their own (RFC 9112 §6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerTo {
    /// No body, whatever the head says.
    Head,
    /// A tunnel after 2xx.
    Connect,
    /// A body as the head says.
    Other,
}

impl Exchange {
    /// For the answer to a request that could not be read: the connection closes after it.
    pub const REFUSED: Self = Self {
        version: Version::Http11,
        keep_alive: false,
        method: AnswerTo::Other,
    };
}

impl RequestHead<'_> {
    /// What the answer to this request depends on.
    #[must_use]
    pub const fn exchange(&self) -> Exchange {
        Exchange {
            version: self.version,
            keep_alive: self.keep_alive,
            method: match self.method {
                Method::Head => AnswerTo::Head,
                Method::Connect => AnswerTo::Connect,
                _ => AnswerTo::Other,
            },
        }
    }
}

/// The buffer with a head at its end, taken back unless it is kept.
#[derive(Debug)]
struct Draft<'o> {
    out: &'o mut Vec<u8>,
    start: usize,
    kept: bool,
}

impl<'o> Draft<'o> {
    #[inline]
    fn new(out: &'o mut Vec<u8>) -> Self {
        let start = out.len();
        Self {
            out,
            start,
            kept: false,
        }
    }

    #[inline]
    fn keep(&mut self) {
        self.out.extend_from_slice(b"\r\n");
        self.kept = true;
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.out.truncate(self.start);
        }
    }
}

/// A response head being written.
#[derive(Debug)]
#[must_use = "a head that is not finished is taken back"]
pub struct ResponseEncoder<'o> {
    draft: Draft<'o>,
    status: u16,
    exchange: Exchange,
}

impl<'o> ResponseEncoder<'o> {
    /// Begins a response with `status`, appended to `out`.
    ///
    /// The version is 1.1 also for an HTTP/1.0 client (RFC 9112 §2.3).
    ///
    /// # Errors
    /// `Status`.
    #[inline]
    pub fn new(out: &'o mut Vec<u8>, status: u16, exchange: Exchange) -> Result<Self, Misuse> {
        let draft = Draft::new(out);
        write_status(draft.out, status)?;
        Ok(Self {
            draft,
            status,
            exchange,
        })
    }

    /// As [`new`](Self::new), with what was prepared.
    #[inline]
    pub fn with_preface(out: &'o mut Vec<u8>, preface: &Preface, exchange: Exchange) -> Self {
        let draft = Draft::new(out);
        draft.out.extend_from_slice(&preface.bytes);
        Self {
            draft,
            status: preface.status,
            exchange,
        }
    }

    /// Adds a field.
    ///
    /// # Errors
    /// `FieldName`, `FieldValue`, `FramingField`; the head is as before.
    #[inline]
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        write_field(self.draft.out, name, value)
    }

    /// Adds fields that were checked before.
    #[inline]
    pub fn block(&mut self, block: &FieldBlock) {
        self.draft.out.extend_from_slice(block.as_bytes());
    }

    /// Names the protocol to switch to in a 426 (RFC 9110 §15.5.22).
    ///
    /// # Errors
    /// `FramingField` for another status, `FieldValue`; the head is as before.
    pub fn offer_upgrade(&mut self, protocol: &[u8]) -> Result<(), Misuse> {
        if self.status != 426 {
            return Err(Misuse::FramingField);
        }
        check_value(protocol)?;
        // What else `Connection` says follows in a field of its own: the two are one list.
        self.write(b"Connection: upgrade\r\nUpgrade: ");
        self.write(protocol);
        self.write(b"\r\n");
        Ok(())
    }

    /// Ends the head; the body is written by what this returns.
    ///
    /// `Framing::None` declares a length of 0 where a body could be, and so does any framing of a 205, whose body is dropped
    /// (RFC 9110 §15.3.6). `Framing::UntilClose` closes after the body,
    /// whatever the exchange says.
    ///
    /// # Errors
    /// `BodyForbidden`, `ChunkedToOldPeer`, `LengthTooLarge`, and `Status` for 101 ([`switch`](Self::switch) is for that).
    #[inline]
    pub fn finish(mut self, framing: Framing) -> Result<BodyEncoder, Misuse> {
        let bodiless = self.is_bodiless();
        match (framing, self.status) {
            (_, 101) => return Err(Misuse::Status),
            (Framing::None, _) if bodiless => {}
            (_, _) if bodiless => return Err(Misuse::BodyForbidden),
            (_, 205) => {
                self.exchange.keep_alive &= framing != Framing::UntilClose;
                self.write(b"Content-Length: 0\r\n");
            }
            (Framing::None, 304) => {}
            (Framing::None, _) if self.exchange.method == AnswerTo::Head => {}
            (Framing::None, _) => self.write(b"Content-Length: 0\r\n"),
            (Framing::Length(length), _) => write_length(self.draft.out, length)?,
            (Framing::Chunked, _) if self.exchange.version == Version::Http10 => {
                return Err(Misuse::ChunkedToOldPeer);
            }
            (Framing::Chunked, _) => self.write(b"Transfer-Encoding: chunked\r\n"),
            (Framing::UntilClose, _) => self.exchange.keep_alive = false,
        }
        self.write_connection();
        self.draft.keep();
        if self.is_silent() {
            return Ok(BodyEncoder::silent(framing));
        }
        Ok(BodyEncoder::new(framing))
    }

    /// Ends the head before the body's length is known: the body is appended to the same buffer, then
    /// [`LengthSlot::fill`] declares how long it became.
    ///
    /// # Errors
    /// `BodyForbidden`, `Status`.
    #[inline]
    pub fn finish_with_length_to_come(mut self) -> Result<LengthSlot, Misuse> {
        if self.status == 101 {
            return Err(Misuse::Status);
        }
        if self.is_bodiless() {
            return Err(Misuse::BodyForbidden);
        }
        self.write(b"Content-Length: ");
        let digits_at = self.draft.out.len();
        self.write(&[b' '; LENGTH_DIGITS]);
        self.write(b"\r\n");
        self.write_connection();
        self.draft.keep();
        Ok(LengthSlot {
            start: self.draft.start,
            digits_at,
            body_at: self.draft.out.len(),
            silent: self.is_silent(),
            empty: self.status == 205,
        })
    }

    /// Ends the head of a 101: what follows it in either direction is `protocol`.
    ///
    /// # Errors
    /// `Status` for another status, `FieldValue`.
    pub fn switch(mut self, protocol: &[u8]) -> Result<(), Misuse> {
        if self.status != 101 {
            return Err(Misuse::Status);
        }
        check_value(protocol)?;
        self.write(b"Connection: upgrade\r\nUpgrade: ");
        self.write(protocol);
        self.write(b"\r\n");
        self.draft.keep();
        Ok(())
    }

    /// RFC 9110 §8.6, RFC 9112 §6.1: no body and no field that announces one.
    #[inline]
    fn is_bodiless(&self) -> bool {
        let tunnel = self.exchange.method == AnswerTo::Connect && matches!(self.status, 200..=299);
        matches!(self.status, 100..=199 | 204) || tunnel
    }

    /// No body, whatever is written of one.
    #[inline]
    fn is_silent(&self) -> bool {
        self.exchange.method == AnswerTo::Head || matches!(self.status, 205 | 304)
    }

    /// RFC 9112 §9.3, §9.6. An interim response says nothing about the connection, a tunnel has none.
    #[inline]
    fn write_connection(&mut self) {
        let interim = self.status < 200;
        let tunnel = self.exchange.method == AnswerTo::Connect && self.is_bodiless();
        if interim || tunnel {
            return;
        }
        match (self.exchange.keep_alive, self.exchange.version) {
            (false, _) => self.write(b"Connection: close\r\n"),
            (true, Version::Http10) => self.write(b"Connection: keep-alive\r\n"),
            (true, _) => {}
        }
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.draft.out.extend_from_slice(bytes);
    }
}

/// Digits kept free for a length to come: any `usize`.
const LENGTH_DIGITS: usize = 20;

/// The place of a `Content-Length` in a buffer. Offsets: what stands before the head must stay.
#[derive(Debug)]
#[must_use = "without its length the response is invalid: fill it or roll it back"]
pub struct LengthSlot {
    start: usize,
    digits_at: usize,
    body_at: usize,
    silent: bool,
    empty: bool,
}

impl LengthSlot {
    /// Declares all that `out` holds after the head as the body. Where no body may be (HEAD, 304) it is taken
    /// back after it was counted; a 205 declares none.
    pub fn fill(self, out: &mut Vec<u8>) {
        let mut length = if self.empty { 0 } else { out.len() - self.body_at };
        let slot = &mut out[self.digits_at..self.digits_at + LENGTH_DIGITS];
        for digit in slot.iter_mut().rev() {
            *digit = b'0' + (length % 10) as u8;
            length /= 10;
            if length == 0 {
                break;
            }
        }
        if self.silent {
            out.truncate(self.body_at);
        }
    }

    /// Takes head and body back.
    pub fn roll_back(self, out: &mut Vec<u8>) {
        out.truncate(self.start);
    }
}

/// A request head being written.
#[derive(Debug)]
#[must_use = "a head that is not finished is taken back"]
pub struct RequestEncoder<'o> {
    draft: Draft<'o>,
    connect: bool,
}

impl<'o> RequestEncoder<'o> {
    /// Begins a request, appended to `out`. `host` becomes the `Host` field (RFC 9112 §3.2).
    ///
    /// # Errors
    /// `Method`, `Target`, `Host`.
    pub fn new(out: &'o mut Vec<u8>, method: Method<'_>, target: &str, host: &str) -> Result<Self, Misuse> {
        // The peer sees a name, however the caller said it.
        let method = Method::new(method.as_str());
        if !is_all(method.as_str().as_bytes(), TOKEN) {
            return Err(Misuse::Method);
        }
        if !is_all(target.as_bytes(), TARGET) || Target::parse(method, target).is_err() {
            return Err(Misuse::Target);
        }
        Authority::new(host.as_bytes()).map_err(|_| Misuse::Host)?;
        let draft = Draft::new(out);
        for part in [method.as_str(), " ", target, " HTTP/1.1\r\nHost: ", host, "\r\n"] {
            draft.out.extend_from_slice(part.as_bytes());
        }
        Ok(Self {
            draft,
            connect: method == Method::Connect,
        })
    }

    /// Adds a field.
    ///
    /// # Errors
    /// `FieldName`, `FieldValue`, `FramingField`; the head is as before.
    pub fn field(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        write_field(self.draft.out, name, value)
    }

    /// Adds fields that were checked before.
    pub fn block(&mut self, block: &FieldBlock) {
        self.draft.out.extend_from_slice(block.as_bytes());
    }

    /// Says that fields behind the answer's body are read (RFC 9110 §10.1.4).
    pub fn accept_trailers(&mut self) {
        // What else `Connection` says follows in a field of its own: the two are one list.
        self.draft
            .out
            .extend_from_slice(b"TE: trailers\r\nConnection: te\r\n");
    }

    /// Ends the head; the body is written by what this returns. `Framing::None` announces nothing; a method that
    /// usually has content should say `Framing::Length(0)` (RFC 9110 §8.6).
    ///
    /// # Errors
    /// `RequestUntilClose`, `LengthTooLarge`, and `BodyForbidden` for CONNECT with anything but `Framing::None`.
    pub fn finish(self, framing: Framing, keep_alive: bool) -> Result<BodyEncoder, Misuse> {
        self.end(framing, if keep_alive { b"" } else { b"Connection: close\r\n" })
    }

    /// As [`finish`](Self::finish), with an offer to switch to `protocol` (RFC 9110 §7.8).
    ///
    /// # Errors
    /// As [`finish`](Self::finish), and `FieldValue`.
    pub fn finish_with_upgrade(self, framing: Framing, protocol: &[u8]) -> Result<BodyEncoder, Misuse> {
        check_value(protocol)?;
        for part in [b"Upgrade: ", protocol, b"\r\n"] {
            self.draft.out.extend_from_slice(part);
        }
        self.end(framing, b"Connection: upgrade\r\n")
    }

    fn end(mut self, framing: Framing, connection: &[u8]) -> Result<BodyEncoder, Misuse> {
        match framing {
            Framing::None => {}
            Framing::UntilClose => return Err(Misuse::RequestUntilClose),
            // RFC 9110 §9.3.6: what follows the head belongs to the tunnel.
            _ if self.connect => return Err(Misuse::BodyForbidden),
            Framing::Length(length) => write_length(self.draft.out, length)?,
            Framing::Chunked => self
                .draft
                .out
                .extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
        }
        self.draft.out.extend_from_slice(connection);
        self.draft.keep();
        Ok(BodyEncoder::new(framing))
    }
}

#[inline]
fn write_status(out: &mut Vec<u8>, status: u16) -> Result<(), Misuse> {
    match status::line(status) {
        Some(line) => out.extend_from_slice(line),
        None if matches!(status, 100..=999) => {
            let digits = [status / 100, status / 10 % 10, status % 10];
            out.extend_from_slice(b"HTTP/1.1 ");
            out.extend(digits.map(|digit| b'0' + digit as u8));
            out.extend_from_slice(b" \r\n");
        }
        None => return Err(Misuse::Status),
    }
    Ok(())
}

#[inline]
fn is_all(text: &[u8], class: u8) -> bool {
    !text.is_empty() && grammar::class_end(text, 0, class) == text.len()
}

/// The response splitting check: on every value, whoever made it.
#[inline]
fn check_value(value: &[u8]) -> Result<(), Misuse> {
    if grammar::text_end(value, 0) == value.len() {
        Ok(())
    } else {
        Err(Misuse::FieldValue)
    }
}

#[inline]
pub(super) fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) -> Result<(), Misuse> {
    let name = name.as_bytes();
    if !is_all(name, TOKEN) {
        return Err(Misuse::FieldName);
    }
    check_value(value)?;
    let framing = match Known::of(name) {
        Some(known) => matches!(
            known,
            Known::Connection | Known::ContentLength | Known::Host | Known::TransferEncoding | Known::Upgrade
        ),
        None => lines::is_framing_variant(name),
    };
    if framing {
        return Err(Misuse::FramingField);
    }
    for part in [name, b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
    Ok(())
}

/// In one piece, since it is part of almost every head.
#[inline]
fn write_length(out: &mut Vec<u8>, length: u64) -> Result<(), Misuse> {
    if length > LENGTH_LIMIT {
        return Err(Misuse::LengthTooLarge);
    }
    const NAME: &[u8; 16] = b"Content-Length: ";
    // From its end on, since the digits are found so.
    let mut line = [0; NAME.len() + LENGTH_DIGITS + 2];
    let mut at = line.len() - 2;
    line[at..].copy_from_slice(b"\r\n");
    let mut left = length;
    loop {
        at -= 1;
        line[at] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    at -= NAME.len();
    line[at..at + NAME.len()].copy_from_slice(NAME);
    out.extend_from_slice(&line[at..]);
    Ok(())
}
