//! Frames in, events out, for either role. Answers nothing, and keeps no bytes but those of a cut character.

mod inflating;
mod resting;

use inflating::Inflating;
pub use resting::Resting;

use super::close::{Close, CloseCode};
use super::deflate::Inflater;
use super::extension::Deflation;
use super::fault::{FaultKind, Found, PeerFault};
use super::header::{self, Expectation, Header, Opcode};
use super::limits::Limits;
use super::mask;
use super::role::{Kind, Role};
use super::text::TextCheck;

/// What comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// Nothing more to be had from this input: call again with what was not consumed and more behind it.
    NeedMore,
    /// A deflated message goes on: call again with an inflater, and with the same one until the message is over.
    NeedInflater,
    /// A part of a message.
    Piece(Piece<'a>),
    /// To be answered by a pong with the same bytes, at most 125.
    Ping(&'a [u8]),
    /// An answer to a ping, or a sign of life; at most 125 bytes.
    Pong(&'a [u8]),
    /// The peer closes. Whatever follows is discarded.
    Close(Option<Close<'a>>),
}

/// A part of a message, unmasked and inflated. Where a message is cut into pieces follows from how it arrived, and
/// means nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece<'a> {
    /// The kind of the whole message.
    pub kind: Kind,
    /// Whether the message begins here.
    pub first: bool,
    /// Whether the message ends here.
    pub last: bool,
    /// The bytes; empty only in an empty message, or where only the end was still missing.
    pub data: &'a [u8],
    /// The same as text, if the message is text and the piece was cut between characters. Always so in a piece that
    /// is `first` and `last`; otherwise the text is known to be UTF-8 once `last` has come.
    pub text: Option<&'a str>,
}

/// An event, and how much of the input is done with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    /// The event.
    pub event: Event<'a>,
    /// Bytes to drop from the front of the input before the next call, whatever the event.
    pub consumed: usize,
}

/// Decodes what one peer sends after the opening handshake.
///
/// A caller buffers at most 131 bytes that were not consumed: a header and the payload of a control frame.
#[derive(Clone, Copy, Debug)]
pub struct Decoder {
    role: Role,
    deflation: Option<Deflation>,
    limits: Limits,
    state: State,
    message: Option<Message>,
    text: TextCheck,
    /// Bytes consumed.
    position: u64,
    /// Where the current frame begins.
    frame_at: u64,
    /// Control frames left of the budget.
    budget: u32,
    /// Whether the peer's context between messages holds something.
    context_begun: bool,
}

const _: () = assert!(
    size_of::<Decoder>() <= 192,
    "an idle connection is a small record"
);

/// ```text
///           ┌──────── the frame is over ────────┐
///           ▼                                   │
///        Header ─── text, binary, ──────▶ Payload
///         │  ▲      continuation                │ the last frame of a deflated message is over
///         │  │                                  ▼
///         │  ├──────── all is put out ──────── Tail
///         │  └─ ping, pong ┐
///         ├────────────────┘
///         └─ close ─▶ Closed
///
/// any ── fault ─▶ Dead
/// ```
#[derive(Clone, Copy, Debug)]
enum State {
    Header,
    Payload(Payload),
    /// Bytes of the tail that were inflated.
    Tail(u8),
    Closed,
    Dead(PeerFault),
}

/// A data frame being read.
#[derive(Clone, Copy, Debug)]
struct Payload {
    left: u64,
    /// The key of the next byte that is masked.
    key: Option<[u8; 4]>,
    /// Bytes at the front of the input that are unmasked and not consumed.
    clear: usize,
    last: bool,
}

/// A message being read.
#[derive(Clone, Copy, Debug)]
struct Message {
    kind: Kind,
    deflated: bool,
    /// Bytes announced (plain) or inflated.
    bytes: u64,
    /// Whether a piece was handed out.
    begun: bool,
    inflating: Inflating,
}

impl Decoder {
    /// For this end's `role`; `deflation` is what was agreed on.
    #[must_use]
    pub const fn new(role: Role, limits: &Limits, deflation: Option<Deflation>) -> Self {
        Self {
            role,
            deflation,
            limits: *limits,
            state: State::Header,
            message: None,
            text: TextCheck::new(),
            position: 0,
            frame_at: 0,
            budget: limits.control_frames,
            context_begun: false,
        }
    }

    /// Fills the budget of control frames again: to be called from time to time, such as once a second while
    /// something arrives. The decoder knows no time.
    pub const fn renew_budget(&mut self) {
        self.budget = self.limits.control_frames;
    }

    /// Whether the peer's Close was read.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Whether the inflater that was lent last holds what this connection still needs. If not, it is free.
    #[must_use]
    pub fn keeps_inflater(&self) -> bool {
        if matches!(self.state, State::Closed | State::Dead(_)) {
            return false;
        }
        let is_fed = |message: Message| message.deflated && message.inflating != Inflating::Fresh;
        // Set only where a context is kept.
        self.context_begun || self.message.is_some_and(is_fed)
    }

    /// The next event of `input`, which is unmasked in place. Call until `NeedMore`; an event may come of what was
    /// read before, also with empty input.
    ///
    /// # Errors
    /// The first rule or limit that the peer broke, then the same for ever. What was handed out before of a message
    /// that is not over is to be thrown away.
    pub fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        inflater: Option<&'a mut Inflater>,
    ) -> Result<Step<'a>, PeerFault> {
        let result = self.next(input, inflater);
        match &result {
            Ok(step) => self.position += step.consumed as u64,
            Err(fault) => self.state = State::Dead(*fault),
        }
        result
    }

    /// The peer has closed its side of the connection and everything was decoded.
    ///
    /// # Errors
    /// `Truncated` without a Close: what the peer meant to say may be missing.
    pub fn end_of_input(&mut self) -> Result<(), PeerFault> {
        match self.state {
            State::Closed => Ok(()),
            State::Dead(fault) => Err(fault),
            _ => {
                self.frame_at = self.position;
                let fault = self.fault(FaultKind::Truncated, Found::This);
                self.state = State::Dead(fault);
                Err(fault)
            }
        }
    }

    fn next<'a>(
        &mut self,
        input: &'a mut [u8],
        mut inflater: Option<&'a mut Inflater>,
    ) -> Result<Step<'a>, PeerFault> {
        let mut at = 0;
        loop {
            match self.state {
                State::Dead(fault) => return Err(fault),
                State::Closed => return Ok(step(Event::NeedMore, input.len())),
                State::Header => {
                    let Some(header) = self.header(&input[at..], at)? else {
                        return Ok(step(Event::NeedMore, at));
                    };
                    let end = at + header.bytes;
                    if header.opcode.is_control() {
                        let payload = end..end + header.length as usize;
                        if input.len() < payload.end {
                            return Ok(step(Event::NeedMore, at));
                        }
                        let consumed = payload.end;
                        let event = self.control(&header, &mut input[payload])?;
                        return Ok(step(event, consumed));
                    }
                    self.begin(&header)?;
                    at = end;
                }
                State::Payload(_) | State::Tail(_) if self.is_deflated() => {
                    if self.waits(input.len() - at) {
                        return Ok(step(Event::NeedMore, at));
                    }
                    let Some(inflater_now) = inflater.as_deref_mut() else {
                        return Ok(step(Event::NeedInflater, at));
                    };
                    let filled = self.inflate(input, &mut at, inflater_now)?;
                    if filled.piece > 0 || filled.is_over {
                        let data = inflater.map_or(&[][..], |inflater| inflater.piece(filled.piece));
                        return Ok(step(Event::Piece(self.piece(data, filled.is_over)?), at));
                    }
                    if !matches!(self.state, State::Header) {
                        return Ok(step(Event::NeedMore, at));
                    }
                }
                State::Payload(payload) => {
                    let end = at + prefix(input.len() - at, payload.left);
                    if self.skips(&payload, end - at) {
                        continue;
                    }
                    if payload.left > 0 && end == at {
                        return Ok(step(Event::NeedMore, at));
                    }
                    let is_over = self.unmask(&mut input[at..end], payload);
                    return Ok(step(Event::Piece(self.piece(&input[at..end], is_over)?), end));
                }
                // Only deflated messages have a tail.
                State::Tail(_) => self.state = State::Header,
            }
        }
    }

    fn header(&mut self, input: &[u8], at: usize) -> Result<Option<Header>, PeerFault> {
        self.frame_at = self.position + at as u64;
        let expectation = Expectation {
            role: self.role,
            in_message: self.message.is_some(),
            deflate: self.deflation.is_some(),
        };
        header::parse(input, expectation).map_err(|(kind, found)| self.fault(kind, found))
    }

    /// A control frame that is all there.
    fn control<'a>(&mut self, header: &Header, payload: &'a mut [u8]) -> Result<Event<'a>, PeerFault> {
        if let Some(key) = header.key {
            mask::apply(payload, key);
        }
        let payload: &'a [u8] = payload;
        if header.opcode == Opcode::Close {
            let close = self.close(payload)?;
            self.state = State::Closed;
            self.message = None;
            return Ok(Event::Close(close));
        }
        self.spend()?;
        Ok(match header.opcode {
            Opcode::Ping => Event::Ping(payload),
            _ => Event::Pong(payload),
        })
    }

    fn close<'a>(&self, payload: &'a [u8]) -> Result<Option<Close<'a>>, PeerFault> {
        let Some((code, reason)) = payload.split_first_chunk::<2>() else {
            return Ok(None);
        };
        let number = u16::from_be_bytes(*code);
        let code = CloseCode::new(number)
            .ok_or_else(|| self.fault(FaultKind::CloseCode, Found::Number(u64::from(number))))?;
        let reason =
            std::str::from_utf8(reason).map_err(|_| self.fault(FaultKind::CloseReason, Found::This))?;
        Ok(Some(Close { code, reason }))
    }

    /// A data frame begins.
    fn begin(&mut self, header: &Header) -> Result<(), PeerFault> {
        if header.length > self.limits.frame_bytes {
            let found = Found::MoreThan(self.limits.frame_bytes);
            return Err(self.fault(FaultKind::FrameTooLarge, found));
        }
        if header.length == 0 && !header.last {
            self.spend()?;
        }
        if let Opcode::Message(kind) = header.opcode {
            self.text = TextCheck::new();
            self.message = Some(Message {
                kind,
                deflated: header.deflated,
                bytes: 0,
                begun: false,
                inflating: Inflating::Fresh,
            });
        }
        let limit = self.limits.message_bytes;
        let mut is_within = true;
        if let Some(message) = &mut self.message
            && !message.deflated
        {
            message.bytes = message.bytes.saturating_add(header.length);
            is_within = message.bytes <= limit;
        }
        if !is_within {
            return Err(self.fault(FaultKind::MessageTooLarge, Found::MoreThan(limit)));
        }
        self.state = State::Payload(Payload {
            left: header.length,
            key: header.key,
            clear: 0,
            last: header.last,
        });
        Ok(())
    }

    /// One more frame that brings nothing.
    fn spend(&mut self) -> Result<(), PeerFault> {
        let Some(budget) = self.budget.checked_sub(1) else {
            let found = Found::MoreThan(u64::from(self.limits.control_frames));
            return Err(self.fault(FaultKind::TooManyControlFrames, found));
        };
        self.budget = budget;
        Ok(())
    }

    fn is_deflated(&self) -> bool {
        self.message.is_some_and(|message| message.deflated)
    }

    /// Whether a plain frame is over without having anything to hand out.
    fn skips(&mut self, payload: &Payload, available: usize) -> bool {
        let skips = payload.left == 0 && available == 0 && !payload.last;
        if skips {
            self.state = State::Header;
        }
        skips
    }

    /// Unmasks `data`, the next bytes of a plain frame; returns whether the message is over.
    fn unmask(&mut self, data: &mut [u8], mut payload: Payload) -> bool {
        if let Some(key) = payload.key {
            mask::apply(data, key);
            payload.key = Some(mask::after(key, data.len()));
        }
        payload.left -= data.len() as u64;
        self.state = if payload.left > 0 {
            State::Payload(payload)
        } else {
            State::Header
        };
        payload.left == 0 && payload.last
    }

    /// The next piece of the message under way.
    fn piece<'a>(&mut self, data: &'a [u8], last: bool) -> Result<Piece<'a>, PeerFault> {
        let message = self.message.as_mut().expect("pieces are of messages");
        let (kind, first) = (message.kind, !message.begun);
        message.begun = true;
        let mut text = None;
        if kind == Kind::Text {
            let checked = self.text.piece(data);
            let checked = checked.and_then(|text| {
                if last {
                    self.text.end().map(|()| text)
                } else {
                    Ok(text)
                }
            });
            text = checked.map_err(|_| self.fault(FaultKind::Text, Found::This))?;
        }
        if last {
            self.message = None;
        }
        Ok(Piece {
            kind,
            first,
            last,
            data,
            text,
        })
    }

    #[cold]
    fn fault(&self, kind: FaultKind, found: Found) -> PeerFault {
        PeerFault {
            kind,
            at: self.frame_at,
            found,
        }
    }
}

/// How many of `available` bytes belong to the `left` ones of a frame.
fn prefix(available: usize, left: u64) -> usize {
    usize::try_from(left).map_or(available, |left| left.min(available))
}

fn step(event: Event<'_>, consumed: usize) -> Step<'_> {
    Step { event, consumed }
}
