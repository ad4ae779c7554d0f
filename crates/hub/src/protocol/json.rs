//! Whether bytes are one JSON value (RFC 8259): found in one pass, without memory for how deep it is.

use serde_json::value::RawValue;

/// Levels that have a bit each. What is deeper is looked at by somebody with a stack.
const LEVELS: u32 = u128::BITS;

/// The one value that bytes are, without the white space around it; `None`: they are something else.
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
    /// Goes behind the value that begins here.
    fn value(&mut self) -> Result<(), Stopped> {
        // Of the levels that are open, the innermost last: whether it is an object.
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
            // A value has ended: so may those around it.
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

    /// The rest of a value that holds no others.
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

    /// A key and what parts it from its value.
    fn key(&mut self) -> Result<(), Stopped> {
        self.blank();
        self.word(b"\"")?;
        self.string()?;
        self.blank();
        self.word(b":")
    }

    /// A string behind its first mark.
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

    /// A number behind its first digit.
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

    /// At least one.
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
