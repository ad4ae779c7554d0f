//! A validator of JSON (RFC 8259), in one pass and with constant memory up to a nesting depth of 128.

use serde_json::value::RawValue;

/// The nesting levels that fit into a bit set. Deeper values are validated by `serde_json`.
const LEVELS: u32 = u128::BITS;

/// Returns the single JSON value in `bytes`, without the white space around it, or `None` if the bytes are anything else.
pub(super) fn value(bytes: &[u8]) -> Option<&str> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut scan = Scan { bytes, at: 0 };
    scan.skip_white_space();
    let start = scan.at;
    match scan.value() {
        Ok(()) => {}
        Err(ScanError::Invalid) => return None,
        Err(ScanError::TooDeep) => return serde_json::from_str::<&RawValue>(text).ok().map(RawValue::get),
    }
    let end = scan.at;
    scan.skip_white_space();
    (scan.at == bytes.len()).then(|| &text[start..end])
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

enum ScanError {
    Invalid,
    TooDeep,
}

impl Scan<'_> {
    /// Skips the value that starts here.
    fn value(&mut self) -> Result<(), ScanError> {
        // One bit for each open level, the innermost lowest: whether it is an object.
        let (mut depth, mut objects) = (0, 0_u128);
        loop {
            self.skip_white_space();
            let first = self.next()?;
            if matches!(first, b'{' | b'[') {
                if depth == LEVELS {
                    return Err(ScanError::TooDeep);
                }
                let is_object = first == b'{';
                self.skip_white_space();
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
                self.scalar(first)?;
            }
            // A value is complete; so may be those around it.
            loop {
                if depth == 0 {
                    return Ok(());
                }
                self.skip_white_space();
                let is_object = objects & 1 == 1;
                match self.next()? {
                    b',' if is_object => break self.key()?,
                    b',' => break,
                    b'}' if is_object => {}
                    b']' if !is_object => {}
                    _ => return Err(ScanError::Invalid),
                }
                (depth, objects) = (depth - 1, objects >> 1);
            }
        }
    }

    /// Skips the rest of a scalar.
    fn scalar(&mut self, first: u8) -> Result<(), ScanError> {
        match first {
            b'"' => self.string(),
            b'-' => {
                let digit = self.next()?;
                self.number(digit)
            }
            b'0'..=b'9' => self.number(first),
            b't' => self.expect(b"rue"),
            b'f' => self.expect(b"alse"),
            b'n' => self.expect(b"ull"),
            _ => Err(ScanError::Invalid),
        }
    }

    /// Skips a key and its colon.
    fn key(&mut self) -> Result<(), ScanError> {
        self.skip_white_space();
        self.expect(b"\"")?;
        self.string()?;
        self.skip_white_space();
        self.expect(b":")
    }

    /// Skips the rest of a string, after its opening quote.
    fn string(&mut self) -> Result<(), ScanError> {
        loop {
            match self.next()? {
                b'"' => return Ok(()),
                b'\\' => self.escaped()?,
                0..0x20 => return Err(ScanError::Invalid),
                _ => {}
            }
        }
    }

    fn escaped(&mut self) -> Result<(), ScanError> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Ok(()),
            b'u' => {
                let digits = self.bytes.get(self.at..self.at + 4).ok_or(ScanError::Invalid)?;
                self.at += 4;
                let is_number = digits.iter().all(u8::is_ascii_hexdigit);
                is_number.then_some(()).ok_or(ScanError::Invalid)
            }
            _ => Err(ScanError::Invalid),
        }
    }

    /// Skips the rest of a number, after its first digit.
    fn number(&mut self, first: u8) -> Result<(), ScanError> {
        match first {
            b'0' if self.peek().is_some_and(|byte| byte.is_ascii_digit()) => return Err(ScanError::Invalid),
            b'0' => {}
            b'1'..=b'9' => drop(self.digits()),
            _ => return Err(ScanError::Invalid),
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
    fn digits(&mut self) -> Result<(), ScanError> {
        let from = self.at;
        while self.peek().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > from).then_some(()).ok_or(ScanError::Invalid)
    }

    fn expect(&mut self, token: &[u8]) -> Result<(), ScanError> {
        let is_match = self.bytes[self.at..].starts_with(token);
        self.at += token.len();
        is_match.then_some(()).ok_or(ScanError::Invalid)
    }

    fn skip_white_space(&mut self) {
        while matches!(self.peek(), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn next(&mut self) -> Result<u8, ScanError> {
        let next = self.peek().ok_or(ScanError::Invalid)?;
        self.at += 1;
        Ok(next)
    }
}

#[cfg(test)]
mod tests;
