//! A validator of JSON (RFC 8259), in one pass and with constant memory up to a nesting depth of 128.

use serde_json::value::RawValue;

/// The nesting levels that fit into a bit set. Deeper values are validated by `serde_json`.
const LEVELS: u32 = u128::BITS;

/// Returns the single JSON value in `bytes`, without the white space around it, or `None` if the bytes are anything else.
pub(super) fn value(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut scan = Scan { bytes, at: 0 };
    scan.blank();
    let begin = scan.at;
    match scan.value() {
        Ok(()) => {}
        Err(Stopped::Wrong) => return None,
        Err(Stopped::Deep) => return serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get),
    }
    let end = scan.at;
    scan.blank();
    (scan.at == bytes.len()).then(|| &text[begin..end])
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum Stopped {
    Wrong,
    Deep,
}

impl Scan<'_> {
    /// Skips the value that starts here.
    fn value(&mut self) -> Result<(), Stopped> {
        // One bit for each open level, the innermost lowest: whether it is an object.
        let (mut depth, mut objects) = (0, 0_u128);
        loop {
            self.blank();
            let begins = self.next()?;
            if matches!(begins, b'{' | b'[') {
                if depth == LEVELS {
                    return Err(Stopped::Deep);
                }
                let is_object = begins == b'{';
                self.blank();
                let is_empty = self.peek() == Some(if is_object { b'}' } else { b']' });
                if !is_empty {
                    depth += 1;
                    objects = (objects << 1) | u128::from(is_object);
                    if is_object {
                        self.key()?;
                    }
                    continue;
                }
                self.at += 1;
            } else {
                self.scalar(begins)?;
            }
            // A value is complete; so may be those around it.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.blank();
                let is_object = objects & 1 == 1;
                match self.next()? {
                    b',' if is_object => break self.key()?,
                    b',' => break,
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return Err(Stopped::Wrong),
                }
                (depth, objects) = (depth - 1, objects >> 1);
            }
        }
    }

    /// Skips the rest of a scalar.
    fn scalar(&mut self, begins: u8) -> Result<(), Stopped> {
        match begins {
            b'"' => self.string(),
            b'-' => {
                let digit = self.next()?;
                self.number(digit)
            }
            b'0'..=b'9' => self.number(begins),
            b't' => self.word(b"rue"),
            b'f' => self.word(b"alse"),
            b'n' => self.word(b"ull"),
            _ => Err(Stopped::Wrong),
        }
    }

    /// Skips a key and its colon.
    fn key(&mut self) -> Result<(), Stopped> {
        self.blank();
        self.word(b"\"")?;
        self.string()?;
        self.blank();
        self.word(b":")
    }

    /// Skips the rest of a string, after its opening quote.
    fn string(&mut self) -> Result<(), Stopped> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escaped()?,
                0..0x20 => return Err(Stopped::Wrong),
                _ => {}
            }
        }
    }

    fn escaped(&mut self) -> Result<(), Stopped> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4).ok_or(Stopped::Wrong)?;
                self.at += 4;
                let is_number = digits.iter().all(u8::is_ascii_hexdigit);
                is_number.then_some(()).ok_or(Stopped::Wrong)
            }
            _ => Err(Stopped::Wrong),
        }
    }

    /// Skips the rest of a number, after its first digit.
    fn number(&mut self, first: u8) -> Result<(), Stopped> {
        match first {
            b'0' if self.peek().is_some_and(|byte| byte.is_ascii_digit()) => return Err(Stopped::Wrong),
            b'0' => {}
            b'1'..=b'9' => drop(self.digits()),
            _ => return Err(Stopped::Wrong),
        }
        if self.peek() == Some(b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.peek(), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.peek(), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        Ok(())
    }

    /// Skips at least one digit.
    fn digits(&mut self) -> Result<(), Stopped> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > from).then_some(()).ok_or(Stopped::Wrong)
    }

    fn word(&mut self, word: &[u8]) -> Result<(), Stopped> {
        let is_there = self.bytes[self.at..].starts_with(word);
        self.at += word.len();
        is_there.then_some(()).ok_or(Stopped::Wrong)
    }

    fn blank(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, Stopped> {
        let next = self.peek().ok_or(Stopped::Wrong)?;
        self.at += 1;
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
