//! Pieces of bodies, as filters see them.

use super::head::{About, RequestHead, ResponseHead};
use super::{Error, Want};

/// A piece of a body, for one filter.
pub(crate) struct Piece<'h> {
    pub(crate) about: &'h About<'h>,
    pub(crate) bytes: Vec<u8>,
    pub(crate) is_end: bool,
    pub(crate) want: Want,
}

impl Piece<'_> {
    fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, Error> {
        match self.want {
            Want::Change | Want::Whole => Ok(&mut self.bytes),
            Want::Look | Want::Nothing => {
                Err("expected a body that was wanted by Want::Change or Want::Whole, found Want::Look".into())
            }
        }
    }
}

macro_rules! body {
    ($(#[doc = $doc:literal])+ $name:ident, $head:ident, $whose:literal) => {
        $(#[doc = $doc])+
        pub struct $name<'h> {
            pub(crate) piece: Piece<'h>,
            pub(crate) head: Option<$head<'h>>,
        }

        impl<'h> $name<'h> {
            /// Whose it is.
            #[must_use]
            pub fn about(&self) -> &About<'h> {
                self.piece.about
            }

            /// What has come. How a body is cut into pieces depends on the network: nothing may follow from it.
            #[must_use]
            pub fn bytes(&self) -> &[u8] {
                &self.piece.bytes
            }

            /// The same, to be changed: what is in here afterwards goes on. It may be longer than what came by
            /// [`FILTER_GROWTH_BYTES`](crate::limits::FILTER_GROWTH_BYTES); beyond that the filter has failed.
            ///
            /// # Errors
            /// The body was wanted to be looked at only.
            pub fn bytes_mut(&mut self) -> Result<&mut Vec<u8>, Error> {
                self.piece.bytes_mut()
            }

            /// Whether it is the last one, which may be empty: nothing comes behind it.
            #[must_use]
            pub fn is_end(&self) -> bool {
                self.piece.is_end
            }

            #[doc = concat!("The ", $whose, " head, as long as it is not sent: with [`Want::Whole`].")]
            pub fn head(&mut self) -> Option<&mut $head<'h>> {
                self.head.as_mut()
            }
        }

        impl std::fmt::Debug for $name<'_> {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let Piece { bytes, is_end, .. } = &self.piece;
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
    /// A piece of an answer's body, as it is sent: encoded if `Content-Encoding` says so. A filter that needs to read bodies removes
    /// `Accept-Encoding` from requests.
    ResponseBody, ResponseHead, "answer's"
}
