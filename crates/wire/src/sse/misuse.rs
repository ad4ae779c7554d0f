//! What a caller can do wrong while writing events.

use std::fmt;

/// The caller asked for an event that a reader would take for another one. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Misuse {
    /// A name with CR or LF: what follows would be a line of its own.
    Name,
    /// An id with CR, LF or NUL: it would be a line of its own, or ignored.
    Id,
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Name => "an event's name has no line end in it",
            Self::Id => "an event's id has no line end and no NUL in it",
        })
    }
}

impl std::error::Error for Misuse {}
