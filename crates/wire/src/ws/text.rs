//! UTF-8 that arrives in pieces (RFC 6455 §8.1): refused at the first byte that cannot be part of it.

/// Text that is not UTF-8.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Invalid;

/// Checks one text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextCheck {
    /// The start of a character that the last piece was cut in.
    carry: [u8; 3],
    length: u8,
}

impl TextCheck {
    pub(super) const fn new() -> Self {
        Self {
            carry: [0; 3],
            length: 0,
        }
    }

    /// Checks the next piece. Returns it as text if it begins and ends between characters.
    pub(super) fn piece<'a>(&mut self, piece: &'a [u8]) -> Result<Option<&'a str>, Invalid> {
        let resumed = self.length > 0;
        let rest = self.fill(piece)?;
        let (whole, cut) = rest.split_at(rest.len() - cut_bytes(rest));
        let text = simdutf8::basic::from_utf8(whole).map_err(|_| Invalid)?;
        if cut.is_empty() {
            return Ok((!resumed && self.length == 0).then_some(text));
        }
        check_start(cut)?;
        self.carry[..cut.len()].copy_from_slice(cut);
        self.length = cut.len() as u8;
        Ok(None)
    }

    /// The text is over.
    pub(super) const fn end(&self) -> Result<(), Invalid> {
        if self.length == 0 { Ok(()) } else { Err(Invalid) }
    }

    /// Completes the character that the last piece was cut in; returns what follows it.
    fn fill<'a>(&mut self, piece: &'a [u8]) -> Result<&'a [u8], Invalid> {
        let mut rest = piece;
        while self.length > 0
            && let [next, after @ ..] = rest
        {
            let length = usize::from(self.length);
            let mut character = [0; 4];
            character[..length].copy_from_slice(&self.carry[..length]);
            character[length] = *next;
            let character = &character[..=length];
            rest = after;
            if std::str::from_utf8(character).is_ok() {
                self.length = 0;
                break;
            }
            // Four bytes are a character or nothing.
            check_start(character)?;
            self.carry[..=length].copy_from_slice(character);
            self.length += 1;
        }
        Ok(rest)
    }
}

/// Bytes at the end of `piece` that look like the start of a character that goes on after it.
fn cut_bytes(piece: &[u8]) -> usize {
    for (index, byte) in piece.iter().rev().take(3).enumerate() {
        let needed = match byte {
            0x80..=0xBF => continue,
            0xC0..=0xDF => 2,
            0xE0..=0xEF => 3,
            0xF0..=0xFF => 4,
            _ => 1,
        };
        return if needed > index + 1 { index + 1 } else { 0 };
    }
    0
}

/// Whether some character begins with `start`, and is longer.
fn check_start(start: &[u8]) -> Result<(), Invalid> {
    match std::str::from_utf8(start) {
        Err(error) if error.valid_up_to() == 0 && error.error_len().is_none() => Ok(()),
        _ => Err(Invalid),
    }
}
