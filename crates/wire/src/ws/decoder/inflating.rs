//! The decoder's way through deflated messages (RFC 7692 §7.2.2): bounded pieces, in the order of the stream, so that
//! no cut of the input changes which fault comes first.

use super::{Decoder, Inflater, Message, Payload, State, prefix};
use crate::ws::deflate::{Inflated, TAIL};
use crate::ws::fault::{FaultKind, Found, PeerFault};
use crate::ws::mask;
use crate::ws::role::Kind;

/// A deflated message's stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Inflating {
    /// Nothing was fed.
    Fresh,
    /// All that was fed is put out.
    Drained,
    /// There was no room for more.
    Full,
    /// What follows is not DEFLATE.
    Failed,
}

/// What came of inflating until the piece was full, the frame over or the input empty.
#[derive(Clone, Copy, Debug)]
pub(super) struct Filled {
    /// Bytes of the piece.
    pub(super) piece: usize,
    /// Whether the message ends with it.
    pub(super) is_over: bool,
}

impl Decoder {
    /// Whether nothing can be inflated before more of the frame is there.
    pub(super) fn waits(&self, available: usize) -> bool {
        let is_drained =
            |message: Message| matches!(message.inflating, Inflating::Fresh | Inflating::Drained);
        matches!(self.state, State::Payload(payload) if payload.left > 0)
            && available == 0
            && self.message.is_some_and(is_drained)
    }

    /// Inflates from `input[*at..]`, within the current frame.
    pub(super) fn inflate(
        &mut self,
        input: &mut [u8],
        at: &mut usize,
        inflater: &mut Inflater,
    ) -> Result<Filled, PeerFault> {
        self.clear(&mut input[*at..]);
        let mut filled = Filled {
            piece: 0,
            is_over: false,
        };
        let mut message = self.message.expect("only messages are inflated");
        while !filled.is_over && inflater.room(filled.piece) > 0 {
            if message.inflating == Inflating::Failed {
                if filled.piece > 0 {
                    break;
                }
                return Err(self.fault(FaultKind::Deflate, Found::This));
            }
            let source = match self.state {
                State::Payload(payload) => &input[*at..*at + prefix(input.len() - *at, payload.left)],
                State::Tail(fed) => &TAIL[usize::from(fed)..],
                _ => break,
            };
            if source.is_empty() && message.inflating != Inflating::Full {
                if !self.advance(message.inflating, &mut filled) {
                    break;
                }
                continue;
            }
            if message.inflating == Inflating::Fresh {
                self.renew(inflater);
            }
            let inflated = inflater.run(source, filled.piece);
            let is_stuck = inflated.used == 0 && inflated.made == 0 && !source.is_empty() && !inflated.ended;
            filled.piece += inflated.made;
            self.consume(inflated, at);
            message.inflating = match inflater.room(filled.piece) {
                _ if inflated.failed || is_stuck => Inflating::Failed,
                0 if !inflated.ended => Inflating::Full,
                _ => Inflating::Drained,
            };
            if inflated.ended {
                inflater.reset();
            }
            self.check_size(&message, inflater, filled.piece)?;
        }
        message.bytes += filled.piece as u64;
        self.message = Some(message);
        Ok(filled)
    }

    /// Unmasks what of the frame is there and was not unmasked before.
    fn clear(&mut self, input: &mut [u8]) {
        let State::Payload(Payload {
            left,
            key: Some(key),
            clear,
            ..
        }) = &mut self.state
        else {
            return;
        };
        let available = prefix(input.len(), *left);
        let masked = &mut input[*clear..available];
        mask::apply(masked, *key);
        *key = mask::after(*key, masked.len());
        *clear = available;
    }

    /// All that there is was fed and put out. Returns whether there is more to feed now.
    fn advance(&mut self, inflating: Inflating, filled: &mut Filled) -> bool {
        match self.state {
            State::Payload(payload) if payload.left > 0 => false,
            State::Payload(payload) if !payload.last => {
                self.state = State::Header;
                false
            }
            // Without a byte there is no stream that could end: some peers send an empty message so.
            State::Payload(_) if inflating != Inflating::Fresh => {
                self.state = State::Tail(0);
                true
            }
            _ => {
                self.state = State::Header;
                filled.is_over = true;
                false
            }
        }
    }

    /// A message begins. A context is begun anew also where it is kept, once: the inflater may have been another's.
    fn renew(&mut self, inflater: &mut Inflater) {
        if !self.context_begun {
            inflater.reset();
        }
        self.context_begun = self.deflation.is_some_and(|deflation| deflation.peer_context);
    }

    fn consume(&mut self, inflated: Inflated, at: &mut usize) {
        match &mut self.state {
            State::Payload(payload) => {
                payload.left -= inflated.used as u64;
                payload.clear = payload.clear.saturating_sub(inflated.used);
                *at += inflated.used;
            }
            State::Tail(fed) => *fed += inflated.used as u8,
            _ => {}
        }
    }

    /// Text up to the limit is judged before the limit is: as it would be had it arrived in smaller pieces.
    fn check_size(&mut self, message: &Message, inflater: &Inflater, piece: usize) -> Result<(), PeerFault> {
        let limit = self.limits.message_bytes;
        let left = limit - message.bytes;
        if piece as u64 <= left {
            return Ok(());
        }
        if message.kind == Kind::Text && self.text.piece(inflater.piece(left as usize)).is_err() {
            return Err(self.fault(FaultKind::Text, Found::This));
        }
        Err(self.fault(FaultKind::MessageTooLarge, Found::MoreThan(limit)))
    }
}
