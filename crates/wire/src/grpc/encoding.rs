//! `grpc-encoding` and `grpc-accept-encoding`: how messages may be made smaller. The work itself is in `inflating`.

use crate::h1::grammar;

/// How a message with the compressed flag is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Encoding {
    /// As it is: no message may have the flag.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950, with the header of zlib.
    Deflate,
}

impl Encoding {
    /// All of them as the value of `grpc-accept-encoding`.
    pub const ALL: &'static str = "identity,deflate,gzip";

    /// The encoding that a value of `grpc-encoding` names; `None`: one that is not known here.
    #[must_use]
    pub fn of(name: &[u8]) -> Option<Self> {
        match name.trim_ascii() {
            b"identity" => Some(Self::Identity),
            b"gzip" => Some(Self::Gzip),
            b"deflate" => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }
}

/// The encodings that a peer reads, of those that are known here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted(u8);

impl Accepted {
    /// What values of `grpc-accept-encoding` name.
    #[must_use]
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let names = values.into_iter().flat_map(grammar::list);
        let bits = names.filter_map(Encoding::of).map(bit);
        Self(bits.fold(0, |all, bit| all | bit))
    }

    /// Whether the peer reads it. Everybody reads what is as it is.
    #[must_use]
    pub fn has(self, encoding: Encoding) -> bool {
        encoding == Encoding::Identity || self.0 & bit(encoding) != 0
    }
}

const fn bit(encoding: Encoding) -> u8 {
    1 << encoding as u8
}
