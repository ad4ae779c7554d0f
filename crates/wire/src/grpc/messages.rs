//! Messages with their length in front: bytes of a body in, pieces of messages out, and the prefix of those that go out.

use super::fault::{FaultKind, Found, PeerFault};
use super::limits::Limits;
use super::misuse::Misuse;

/// Bytes in front of each message: a flag, and its length with the most significant byte first.
pub const PREFIX_BYTES: usize = 5;

const COMPRESSED: u8 = 0x01;
pub(super) const TRAILERS: u8 = 0x80;

/// What a frame of the body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frame {
    /// A message.
    Message {
        /// It is in the encoding that was named in front.
        compressed: bool,
    },
    /// The trailers of gRPC-Web: [`WebTrailers`](super::WebTrailers) reads them. Nothing follows.
    Trailers,
}

/// What comes next in a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A frame of `bytes` begins; `Data` and `End` follow.
    Begin {
        /// What it is.
        frame: Frame,
        /// Its length.
        bytes: u32,
    },
    /// Bytes of the frame; never empty.
    Data(&'a [u8]),
    /// The frame is whole.
    End,
    /// Nothing more to be had from this input.
    NeedMore,
}

/// An event, and how much of the input is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The event.
    pub event: Event<'a>,
    /// Bytes to drop from the front of the input before the next call. With `NeedMore` these are all.
    pub consumed: usize,
}

/// Reads one body. Keeps no byte of it but those of a prefix.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    state: State,
    limits: Limits,
    /// Whether trailers may come, as in answers of gRPC-Web.
    trailers: bool,
    /// Bytes consumed.
    position: u64,
}

/// ```text
///   ┌──────────────────────────────┐
///   ▼                              │
/// Prefix ─ five bytes ─▶ Payload ──┴─ of trailers ─▶ Over
///
/// any ── fault ─▶ Dead
/// ```
#[derive(Clone, Copy, Debug)]
enum State {
    Prefix { have: u8, bytes: [u8; PREFIX_BYTES] },
    Payload { left: u32, last: bool },
    Over,
    Dead(PeerFault),
}

const START: State = State::Prefix {
    have: 0,
    bytes: [0; PREFIX_BYTES],
};

impl Decoder {
    /// For a body of messages: every request, and answers whose trailers are HTTP's.
    #[must_use]
    pub const fn new(limits: &Limits) -> Self {
        Self {
            state: START,
            limits: *limits,
            trailers: false,
            position: 0,
        }
    }

    /// For an answer of gRPC-Web, which ends in trailers.
    #[must_use]
    pub const fn with_trailers(limits: &Limits) -> Self {
        Self {
            trailers: true,
            ..Self::new(limits)
        }
    }

    /// Replaces the limits, for the frames whose prefix is not complete yet.
    pub const fn set_limits(&mut self, limits: &Limits) {
        self.limits = *limits;
    }

    /// Reads on.
    ///
    /// # Errors
    /// The peer broke a rule: the same again from then on.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<Step<'a>, PeerFault> {
        match self.state {
            State::Dead(fault) => Err(fault),
            State::Over if input.is_empty() => Ok(step(Event::NeedMore, 0)),
            State::Over => Err(self.fail(FaultKind::AfterTrailers, self.position, Found::Byte(input[0]))),
            State::Payload { left: 0, last } => {
                self.state = if last { State::Over } else { START };
                Ok(step(Event::End, 0))
            }
            State::Payload { .. } if input.is_empty() => Ok(step(Event::NeedMore, 0)),
            State::Payload { left, last } => {
                let length = input.len().min(left as usize);
                self.position += length as u64;
                self.state = State::Payload {
                    left: left - length as u32,
                    last,
                };
                Ok(step(Event::Data(&input[..length]), length))
            }
            State::Prefix { have, mut bytes } => {
                let missing = PREFIX_BYTES - usize::from(have);
                let length = input.len().min(missing);
                bytes[usize::from(have)..][..length].copy_from_slice(&input[..length]);
                self.position += length as u64;
                if length > 0 && have == 0 {
                    self.check_flag(bytes[0], length)?;
                }
                if length < missing {
                    let have = have + length as u8;
                    self.state = State::Prefix { have, bytes };
                    return Ok(step(Event::NeedMore, length));
                }
                let event = self.begin(bytes)?;
                Ok(step(event, length))
            }
        }
    }

    /// The body is over.
    ///
    /// # Errors
    /// It ended within a message; the fault before, if there was one.
    pub fn end_of_input(&mut self) -> Result<(), PeerFault> {
        match self.state {
            State::Dead(fault) => Err(fault),
            State::Over | State::Prefix { have: 0, .. } | State::Payload { left: 0, .. } => Ok(()),
            State::Prefix { .. } | State::Payload { .. } => {
                Err(self.fail(FaultKind::Truncated, self.position, Found::This))
            }
        }
    }

    /// Whether trailers were read whole.
    #[must_use]
    pub const fn is_over(&self) -> bool {
        matches!(self.state, State::Over)
    }

    /// A flag is judged when it comes, however its prefix is cut. `read`: bytes of the prefix that came with it.
    fn check_flag(&mut self, flag: u8, read: usize) -> Result<(), PeerFault> {
        if matches!(flag, 0 | COMPRESSED) || self.trailers && flag == TRAILERS {
            return Ok(());
        }
        let at = self.position - read as u64;
        Err(self.fail(FaultKind::Flag, at, Found::Byte(flag)))
    }

    fn begin<'a>(&mut self, bytes: [u8; PREFIX_BYTES]) -> Result<Event<'a>, PeerFault> {
        let [flag, length @ ..] = bytes;
        let length = u32::from_be_bytes(length);
        let last = flag == TRAILERS;
        let (frame, limit, kind) = if last {
            (
                Frame::Trailers,
                self.limits.trailer_bytes,
                FaultKind::TrailersTooLarge,
            )
        } else {
            let compressed = flag == COMPRESSED;
            (
                Frame::Message { compressed },
                self.limits.message_bytes,
                FaultKind::MessageTooLarge,
            )
        };
        if length > limit {
            let at = self.position - PREFIX_BYTES as u64;
            return Err(self.fail(kind, at, Found::Number(length.into())));
        }
        self.state = State::Payload { left: length, last };
        Ok(Event::Begin { frame, bytes: length })
    }

    #[cold]
    fn fail(&mut self, kind: FaultKind, at: u64, found: Found) -> PeerFault {
        let fault = PeerFault { kind, at, found };
        self.state = State::Dead(fault);
        fault
    }
}

fn step(event: Event<'_>, consumed: usize) -> Step<'_> {
    Step { event, consumed }
}

/// Room for the prefix of a message that is written behind it, straight into the buffer.
#[derive(Clone, Copy, Debug)]
#[must_use = "a message without its length cannot be read"]
pub struct Slot(usize);

impl Slot {
    /// Begins a message at the end of `out`.
    pub fn open(out: &mut Vec<u8>) -> Self {
        let at = out.len();
        out.extend_from_slice(&[0; PREFIX_BYTES]);
        Self(at)
    }

    /// Bytes of the message so far.
    #[must_use]
    pub fn bytes(&self, out: &[u8]) -> usize {
        out.len() - self.0 - PREFIX_BYTES
    }

    /// Ends the message: it is what was appended to `out` meanwhile.
    ///
    /// # Errors
    /// `MessageTooLong`; the message was taken out again.
    pub fn close(self, out: &mut Vec<u8>, compressed: bool) -> Result<(), Misuse> {
        self.close_as(out, u8::from(compressed))
    }

    pub(super) fn close_as(self, out: &mut Vec<u8>, flag: u8) -> Result<(), Misuse> {
        let Ok(length) = u32::try_from(self.bytes(out)) else {
            out.truncate(self.0);
            return Err(Misuse::MessageTooLong);
        };
        out[self.0] = flag;
        out[self.0 + 1..][..4].copy_from_slice(&length.to_be_bytes());
        Ok(())
    }
}
