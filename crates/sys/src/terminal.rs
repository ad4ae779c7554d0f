//! What a terminal is like.

use std::os::fd::AsFd;

use rustix::termios::tcgetwinsize;

/// How much a terminal shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Characters in a line.
    pub columns: u16,
    /// Lines.
    pub rows: u16,
}

/// The size of a terminal; `None` if `file` is none or it does not know.
pub fn size(file: impl AsFd) -> Option<Size> {
    let size = tcgetwinsize(file).ok()?;
    (size.ws_col > 0 && size.ws_row > 0).then_some(Size {
        columns: size.ws_col,
        rows: size.ws_row,
    })
}
