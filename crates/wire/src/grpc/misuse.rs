//! What a caller can do wrong. What peers do wrong is in `fault`.

use std::fmt;

/// The caller asked for bytes that would break the protocol. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A message of 4 GiB or more.
    MessageTooLong,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::MessageTooLong => "a message's length has 32 bits: send it in parts",
        })
    }
}

impl std::error::Error for Misuse {}
