//! Bodies: framed bytes in, data out (RFC 9112 §6, §7.1). Counts data against its limit, but not time.

use super::fault::{FaultKind, Found, PeerFault};
use super::fields::{Known, Record};
use super::framing::Framing;
use super::grammar;
use super::limits::Limits;
use super::lines::{Caps, Cursor, Step};
use super::trailers::Trailers;

/// What comes next in a body.
#[derive(Clone, Copy, Debug)]
pub enum BodyEvent<'a> {
    /// Data; never empty.
    Data(&'a [u8]),
    /// Nothing more to be had from this input: call again with what was not consumed and more behind it.
    NeedMore,
    /// The fields after the last chunk; there is at least one. `End` follows.
    Trailers(Trailers<'a>),
    /// The body is over. What was not consumed belongs to the next message.
    End,
}

/// An event, and how much of the input is done with.
#[derive(Clone, Copy, Debug)]
pub struct BodyStep<'a> {
    /// The event.
    pub event: BodyEvent<'a>,
    /// Bytes to drop from the front of the input before the next call, also with `NeedMore`.
    pub consumed: usize,
}

/// Decodes one body.
#[derive(Clone, Copy, Debug)]
pub struct BodyDecoder {
    state: State,
    /// Framed bytes consumed.
    position: u64,
    /// Data bytes announced (chunks) or passed on (until close).
    total: u64,
    /// Bytes of chunk extensions so far.
    extensions: u32,
    limits: BodyLimits,
}

/// The part of [`Limits`] that bodies need.
#[derive(Clone, Copy, Debug)]
struct BodyLimits {
    bytes: u64,
    line: u32,
    extensions: u32,
    trailers: Caps,
}

/// ```text
/// Length ────────────────────────────────────────────────────────────────────▶ End
/// UntilClose ─────────────────────────────────────────────── end_of_input ───▶ End
///
///   ┌──────────────────────────────────────────────────────────────┐
///   ▼                                                              │
/// Size ─┬─────────────────────▶ SizeLf ─┬─▶ Data ─▶ DataCr ─▶ DataLf
///       ├─ blank ▶ Gap ┐  CR ▲          │
///       └──── `;` ─────┴▶ Extension     └─ size 0 ─▶ Trailers ───────────────▶ End
///
/// any ── fault ─▶ Dead
/// ```
#[derive(Clone, Copy, Debug)]
enum State {
    Length(u64),
    UntilClose,
    Size { digits: u8, size: u64, line: u32 },
    Gap { size: u64, line: u32 },
    Extension { size: u64, line: u32 },
    SizeLf { size: u64, line: u32 },
    Data(u64),
    DataCr,
    DataLf,
    Trailers(Cursor),
    End,
    Dead(PeerFault),
}

/// Digits of a chunk size; more could not be told from an attempt to overflow (RFC 9112 §7.1).
const CHUNK_SIZE_DIGITS: u8 = 16;

const CHUNK_START: State = State::Size {
    digits: 0,
    size: 0,
    line: 0,
};

impl BodyDecoder {
    /// Decodes the body that follows a head with `framing`.
    ///
    /// # Errors
    /// `BodyTooLarge` if the head already announced more than the limit.
    pub fn new(framing: Framing, limits: &Limits) -> Result<Self, PeerFault> {
        let limits = BodyLimits {
            bytes: limits.body_bytes.unwrap_or(u64::MAX),
            line: limits.chunk_line_bytes,
            extensions: limits.chunk_extension_bytes,
            trailers: Caps {
                bytes: limits.trailer_bytes,
                fields: limits.trailer_fields,
                too_large: FaultKind::TrailersTooLarge,
                too_many: FaultKind::TooManyTrailers,
            },
        };
        let state = match framing {
            Framing::Length(length) if length > limits.bytes => {
                return Err(PeerFault::new(
                    FaultKind::BodyTooLarge,
                    0,
                    Found::MoreThan(limits.bytes),
                ));
            }
            Framing::None | Framing::Length(0) => State::End,
            Framing::Length(length) => State::Length(length),
            Framing::Chunked => CHUNK_START,
            Framing::UntilClose => State::UntilClose,
        };
        Ok(Self {
            state,
            position: 0,
            total: 0,
            extensions: 0,
            limits,
        })
    }

    /// Whether the body is over; then it needs no further call.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::End)
    }

    /// Bytes of the body consumed so far, with their framing.
    #[must_use]
    pub const fn consumed(&self) -> u64 {
        self.position
    }

    /// Returns where the chunk's size line or the trailer section that is decoded at present begins, if part of it was received and
    /// the rest was not. The first byte of a line is awaited for as long as a peer has nothing to send; the rest of it is not.
    #[must_use]
    pub const fn unfinished_line(&self) -> Option<u64> {
        match self.state {
            State::Size { line: 0, .. } => None,
            State::Size { line, .. }
            | State::Gap { line, .. }
            | State::Extension { line, .. }
            | State::SizeLf { line, .. } => Some(self.position - line as u64),
            // Nothing of it is consumed before it is whole.
            State::Trailers(_) => Some(self.position),
            _ => None,
        }
    }

    /// The next event of `input`.
    ///
    /// # Errors
    /// The first rule or limit that the peer broke, then the same for ever.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, PeerFault> {
        let result = match self.state {
            State::Dead(fault) => return Err(fault),
            State::End => Ok(BodyStep {
                event: BodyEvent::End,
                consumed: 0,
            }),
            State::Length(left) => Ok(self.sized(input, left)),
            State::UntilClose => self.until_close(input),
            _ => self.chunked(input),
        };
        match &result {
            Ok(step) => self.position += step.consumed as u64,
            Err(fault) => self.state = State::Dead(*fault),
        }
        result
    }

    /// The peer has closed its side and everything was decoded.
    ///
    /// # Errors
    /// `Truncated` unless the body is over, or lasts until close: a cut body must not look like a whole one
    /// (RFC 9112 §8).
    pub fn end_of_input(&mut self) -> Result<(), PeerFault> {
        match self.state {
            State::End => Ok(()),
            State::UntilClose => {
                self.state = State::End;
                Ok(())
            }
            State::Dead(fault) => Err(fault),
            _ => {
                let fault = self.fault(FaultKind::Truncated, 0, Found::End);
                self.state = State::Dead(fault);
                Err(fault)
            }
        }
    }

    fn sized<'a>(&mut self, input: &'a [u8], left: u64) -> BodyStep<'a> {
        let data = prefix(input, left);
        self.state = match left - data.len() as u64 {
            0 => State::End,
            left => State::Length(left),
        };
        data_or_need_more(data, 0)
    }

    fn until_close<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, PeerFault> {
        let data = prefix(input, self.limits.bytes - self.total);
        if data.is_empty() && !input.is_empty() {
            return Err(self.fault(FaultKind::BodyTooLarge, 0, Found::MoreThan(self.limits.bytes)));
        }
        self.total += data.len() as u64;
        Ok(data_or_need_more(data, 0))
    }

    fn chunked<'a>(&mut self, input: &'a [u8]) -> Result<BodyStep<'a>, PeerFault> {
        let mut at = 0;
        loop {
            match self.state {
                State::Data(left) => {
                    let data = prefix(&input[at..], left);
                    self.state = match left - data.len() as u64 {
                        0 => State::DataCr,
                        left => State::Data(left),
                    };
                    return Ok(data_or_need_more(data, at));
                }
                State::Trailers(cursor) => return self.trailers(input, at, cursor),
                _ => {}
            }
            let Some(&byte) = input.get(at) else {
                return Ok(data_or_need_more(&[], at));
            };
            self.state = self.framing_byte(byte, at)?;
            at += 1;
        }
    }

    /// `at` is the byte's place in the input.
    #[inline]
    fn framing_byte(&mut self, byte: u8, at: usize) -> Result<State, PeerFault> {
        match self.state {
            State::Size { digits, size, line } => self.size_byte(byte, at, digits, size, line),
            State::Gap { size, line } => {
                let line = self.line_byte(line, at)?;
                match byte {
                    b' ' | b'\t' => self.extension_byte(at).map(|()| State::Gap { size, line }),
                    b';' => self.extension_byte(at).map(|()| State::Extension { size, line }),
                    _ => Err(self.fault(FaultKind::ChunkSize, at, Found::Byte(byte))),
                }
            }
            State::Extension { size, line } => {
                let line = self.line_byte(line, at)?;
                match byte {
                    b'\r' => Ok(State::SizeLf { size, line }),
                    b'\n' => Err(self.fault(FaultKind::BareLineFeed, at, Found::Byte(byte))),
                    _ if grammar::is_text(byte) => {
                        self.extension_byte(at).map(|()| State::Extension { size, line })
                    }
                    _ => Err(self.fault(FaultKind::ChunkExtension, at, Found::Byte(byte))),
                }
            }
            State::SizeLf { size, line } => {
                self.line_byte(line, at)?;
                self.expect(b'\n', byte, at, FaultKind::BareCarriageReturn)?;
                self.announce(size, at)
            }
            State::DataCr => {
                self.expect(b'\r', byte, at, FaultKind::ChunkEnd)?;
                Ok(State::DataLf)
            }
            State::DataLf => {
                self.expect(b'\n', byte, at, FaultKind::ChunkEnd)?;
                Ok(CHUNK_START)
            }
            // The other states have no framing bytes of their own.
            state => Ok(state),
        }
    }

    #[inline]
    fn size_byte(
        &mut self,
        byte: u8,
        at: usize,
        digits: u8,
        size: u64,
        line: u32,
    ) -> Result<State, PeerFault> {
        let line = self.line_byte(line, at)?;
        if let Some(digit) = (byte as char).to_digit(16)
            && digits < CHUNK_SIZE_DIGITS
            && size <= i64::MAX as u64 >> 4
        {
            return Ok(State::Size {
                digits: digits + 1,
                size: size << 4 | u64::from(digit),
                line,
            });
        }
        match byte {
            b'\n' => Err(self.fault(FaultKind::BareLineFeed, at, Found::Byte(byte))),
            b'\r' if digits > 0 => Ok(State::SizeLf { size, line }),
            b';' if digits > 0 => self.extension_byte(at).map(|()| State::Extension { size, line }),
            // RFC 9112 §7.1.1: blanks may stand before the semicolon.
            b' ' | b'\t' if digits > 0 => self.extension_byte(at).map(|()| State::Gap { size, line }),
            _ => Err(self.fault(FaultKind::ChunkSize, at, Found::Byte(byte))),
        }
    }

    /// One more byte of a size line.
    #[inline]
    fn line_byte(&self, line: u32, at: usize) -> Result<u32, PeerFault> {
        if line == self.limits.line {
            let found = Found::MoreThan(u64::from(self.limits.line));
            return Err(self.fault(FaultKind::ChunkLineTooLong, at, found));
        }
        Ok(line + 1)
    }

    /// One more byte of extensions.
    #[inline]
    fn extension_byte(&mut self, at: usize) -> Result<(), PeerFault> {
        if self.extensions == self.limits.extensions {
            let found = Found::MoreThan(u64::from(self.limits.extensions));
            return Err(self.fault(FaultKind::ChunkExtensionsTooLong, at, found));
        }
        self.extensions += 1;
        Ok(())
    }

    fn expect(&self, expected: u8, byte: u8, at: usize, kind: FaultKind) -> Result<(), PeerFault> {
        if byte == expected {
            Ok(())
        } else {
            Err(self.fault(kind, at, Found::Byte(byte)))
        }
    }

    /// A chunk of `size` begins; its limit is checked before its data.
    fn announce(&mut self, size: u64, at: usize) -> Result<State, PeerFault> {
        if size == 0 {
            return Ok(State::Trailers(Cursor::default()));
        }
        match self.total.checked_add(size) {
            Some(total) if total <= self.limits.bytes => self.total = total,
            _ => return Err(self.fault(FaultKind::BodyTooLarge, at, Found::MoreThan(self.limits.bytes))),
        }
        Ok(State::Data(size))
    }

    /// The section begins at `from`; nothing of it is consumed before it is whole.
    fn trailers<'a>(
        &mut self,
        input: &'a [u8],
        from: usize,
        mut cursor: Cursor,
    ) -> Result<BodyStep<'a>, PeerFault> {
        let rest = &input[from..];
        let caps = self.limits.trailers;
        let window = &rest[..rest.len().min(caps.bytes as usize)];
        loop {
            let line = cursor.line as usize;
            let mut forbidden = false;
            let mut inspect = |record: Record| {
                let reframes = [Known::ContentLength, Known::TransferEncoding, Known::Host];
                forbidden = record.known.is_some_and(|known| reframes.contains(&known));
            };
            let step = cursor.next(window, &caps, &mut inspect);
            let step = step.map_err(|fault| PeerFault {
                at: self.position + from as u64 + fault.at,
                ..fault
            })?;
            match step {
                Step::Field if forbidden => {
                    return Err(self.fault(FaultKind::TrailerForbidden, from + line, Found::This));
                }
                Step::Field => {}
                Step::Cut => {
                    self.state = State::Trailers(cursor);
                    return Ok(data_or_need_more(&[], from));
                }
                Step::End(end) => {
                    self.state = State::End;
                    let event = if cursor.fields == 0 {
                        BodyEvent::End
                    } else {
                        BodyEvent::Trailers(Trailers::new(&window[..end - 2]))
                    };
                    return Ok(BodyStep {
                        event,
                        consumed: from + end,
                    });
                }
            }
        }
    }

    #[cold]
    fn fault(&self, kind: FaultKind, at: usize, found: Found) -> PeerFault {
        PeerFault {
            kind,
            at: self.position + at as u64,
            found,
        }
    }
}

/// As much of `input` as `left` allows.
fn prefix(input: &[u8], left: u64) -> &[u8] {
    let length = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
    &input[..length]
}

/// `data` ends the part of the input that begins at `at`.
fn data_or_need_more(data: &[u8], at: usize) -> BodyStep<'_> {
    BodyStep {
        event: if data.is_empty() {
            BodyEvent::NeedMore
        } else {
            BodyEvent::Data(data)
        },
        consumed: at + data.len(),
    }
}
