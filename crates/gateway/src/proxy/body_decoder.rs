//! The decoding of a response body: from the framing of HTTP/1.1, or from frames.

use ringmain_wire::h1::{BodyDecoder, Framing};

use crate::fault::Fault;

/// The state of decoding a response body.
pub(super) enum ResponseDecoder {
    /// The framing of HTTP/1.1.
    Http1(BodyDecoder),
    /// HTTP/2 frames.
    H2 {
        /// Bytes that the rule's limit still allows; `None`: unlimited.
        remaining: Option<u64>,
        /// Set if the head rules out a body.
        is_bodiless: bool,
    },
}

impl ResponseDecoder {
    /// Creates the state for a framed body.
    pub(super) fn from_framing(framing: Framing, limit: Option<u64>) -> Result<ResponseDecoder, Fault> {
        match (framing, limit) {
            (Framing::Length(length), Some(limit)) if length > limit => Err(Fault::ResponseTooLarge),
            _ => Ok(ResponseDecoder::H2 {
                remaining: limit,
                is_bodiless: framing == Framing::None,
            }),
        }
    }

    pub(super) fn is_finished(&self) -> bool {
        match self {
            ResponseDecoder::Http1(decoder) => decoder.is_over(),
            ResponseDecoder::H2 { is_bodiless, .. } => *is_bodiless,
        }
    }
}
