//! A decoder between two messages, in as few bytes as it takes to go on: most connections are idle most of the time.

use super::{Decoder, State};
use crate::ws::extension::Deflation;
use crate::ws::limits::Limits;
use crate::ws::role::Role;

/// What a decoder is between two frames outside a message. Whoever keeps it knows the rest: the role, the limits and what was
/// agreed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resting {
    position: u64,
    budget: u32,
    context_begun: bool,
}

const _: () = assert!(size_of::<Resting>() <= 16, "an idle connection is a small record");

impl Resting {
    /// Of a connection on which nothing has arrived.
    #[must_use]
    pub const fn new(limits: &Limits) -> Resting {
        Resting {
            position: 0,
            budget: limits.control_frames,
            context_begun: false,
        }
    }

    /// The decoder, as it was. All that is given must be what it was made with.
    #[must_use]
    pub const fn wake(self, role: Role, limits: &Limits, deflation: Option<Deflation>) -> Decoder {
        let mut decoder = Decoder::new(role, limits, deflation);
        decoder.position = self.position;
        decoder.budget = self.budget;
        decoder.context_begun = self.context_begun;
        decoder
    }
}

impl Decoder {
    /// All that is to be kept of it now; `None`: a message is under way, or nothing is decoded any more.
    #[must_use]
    pub fn rest(&self) -> Option<Resting> {
        let rests = matches!(self.state, State::Header) && self.message.is_none();
        rests.then_some(Resting {
            position: self.position,
            budget: self.budget,
            context_begun: self.context_begun,
        })
    }
}
