//! How the body of an upstream's answer is framed.

use ringmain_wire::h1::{BodyDecoder, Framing};

use crate::fault::Fault;

/// How an answer's body is taken out of what comes.
pub(super) enum Decoding {
    /// Out of the framing of HTTP/1.1.
    Encoded(BodyDecoder),
    /// It comes in frames.
    Framed {
        /// Bytes of it that the rule still lets pass; `None`: any number.
        left: Option<u64>,
        /// Its head says that nothing follows.
        is_bare: bool,
    },
}

impl Decoding {
    /// Of a body that comes in frames.
    pub(super) fn framed(framing: Framing, most: Option<u64>) -> Result<Decoding, Fault> {
        match (framing, most) {
            (Framing::Length(length), Some(most)) if length > most => Err(Fault::ResponseTooLarge),
            _ => Ok(Decoding::Framed {
                left: most,
                is_bare: framing == Framing::None,
            }),
        }
    }

    pub(super) fn is_over(&self) -> bool {
        match self {
            Decoding::Encoded(decoder) => decoder.is_over(),
            Decoding::Framed { is_bare, .. } => *is_bare,
        }
    }
}
