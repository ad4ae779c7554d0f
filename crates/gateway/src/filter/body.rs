//! Pieces of bodies, as filters receive them.

use super::head::{RequestHead, RequestInfo, ResponseHead};
use super::{BodyAccess, FilterError};

/// A piece of a body, for one filter.
pub(crate) struct BodyPiece<'h> {
    pub(crate) about: &'h RequestInfo<'h>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_end: bool,
    pub(crate) want: BodyAccess,
}

impl BodyPiece<'_> {
    fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, FilterError> {
        match self.want {
            BodyAccess::Modify | BodyAccess::Buffer => Ok(&mut self.bytes),
            BodyAccess::Read | BodyAccess::Nothing => {
                Err("expected BodyAccess::Modify or BodyAccess::Buffer, found BodyAccess::Read".into())
            }
        }
    }
}

macro_rules! body {
    ($(#[doc = $doc:literal])+ $name:ident, $head:ident, $whose:literal) => {
        $(#[doc = $doc])+
        pub struct $name<'h> {
            pub(crate) piece: BodyPiece<'h>,
            pub(crate) head: Option<$head<'h>>,
        }

        impl<'h> $name<'h> {
            /// Returns the request that it belongs to.
            #[must_use]
            pub fn about(&self) -> &RequestInfo<'h> {
                self.piece.about
            }

            /// Returns the bytes of this piece. The division of a body into pieces depends on the network: a filter must not rely on it.
            #[must_use]
            pub fn bytes(&self) -> &[u8] {
                &self.piece.bytes
            }

            /// Returns the bytes of this piece for modification; the result is relayed. It may be longer than the original by
            /// [`FILTER_GROWTH_BYTES`](crate::limits::FILTER_GROWTH_BYTES); beyond that the filter has failed.
            ///
            /// # Errors
            /// The filter requested the body for inspection only ([`BodyAccess::Read`](super::BodyAccess::Read)).
            pub fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, FilterError> {
                self.piece.bytes_mut()
            }

            /// Returns whether this is the last piece, which may be empty.
            #[must_use]
            pub fn is_end(&self) -> bool {
                self.piece.is_end
            }

            #[doc = concat!("Returns the ", $whose, " head if it was not sent yet: with [`BodyAccess::Buffer`](super::BodyAccess::Buffer).")]
            pub fn head(&mut self) -> Option<&mut $head<'h>> {
                self.head.as_mut()
            }
        }

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let BodyPiece { bytes, is_end, .. } = &self.piece;
                f.debug_struct(stringify!($name)).field("bytes", &bytes.len()).field("is_end", is_end).finish()
            }
        }
    };
}

body! {
    /// A piece of a request's body.
    RequestBody, RequestHead, "request's"
}

body! {
    /// A piece of a response's body, as it is sent: encoded as `Content-Encoding` states. A filter that needs to read bodies removes
    /// `Accept-Encoding` from requests.
    ResponseBody, ResponseHead, "response's"
}
