//! The decoding of a response body: from the framing of HTTP/1.1, or from frames.

use ringmain_wire::h1::{BodyDecoder, Framing};

use crate::fault::Fault;

/// The state of decoding a response body.
pub(super) enum Decoding {
    /// The framing of HTTP/1.1.
    Encoded(BodyDecoder),
    /// HTTP/2 frames.
    Framed {
        /// Bytes that the rule's limit still allows; `None`: unlimited.
        left: Option<u64>,
        /// Set if the head rules out a body.
        is_bare: bool,
    },
}

impl Decoding {
    /// Creates the state for a framed body.
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
