//! Event streams as browsers read them (WHATWG HTML §9.2, `text/event-stream`): the writing side.
//!
//! An event is appended to the caller's buffer as a whole or not at all. Nothing is allocated but what the buffer
//! needs, and nothing is known of who reads the stream, or how often something is sent.

mod misuse;

use std::time::Duration;

pub use misuse::Misuse;

/// Bytes that keep a silent stream alive: readers ignore them, proxies see traffic. To be sent between two events.
pub const HEARTBEAT: &[u8] = b":\n\n";

/// One event. What is not set is not written; without data a reader only takes note of id and delay, and dispatches
/// nothing.
///
/// ```text
/// event: price          `addEventListener("price", …)`; without it "message"
/// id: 42                the `Last-Event-ID` that a reader comes back with
/// retry: 1000           milliseconds before it comes back
/// data: first line      a line each
/// data: second line
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[must_use = "an event does nothing until it is written"]
pub struct Event<'a> {
    name: Option<&'a str>,
    id: Option<&'a str>,
    retry: Option<Duration>,
    data: Option<&'a str>,
}

impl<'a> Event<'a> {
    /// An event of nothing yet.
    pub const fn new() -> Self {
        Self {
            name: None,
            id: None,
            retry: None,
            data: None,
        }
    }

    /// Its data, of any length. CR, LF and CRLF each end a line; a reader gets LF between lines, whichever it was.
    pub const fn data(mut self, data: &'a str) -> Self {
        self.data = Some(data);
        self
    }

    /// The type that a reader listens for. An empty one is that of an event without.
    pub const fn event(mut self, name: &'a str) -> Self {
        self.name = Some(name);
        self
    }

    /// The last event's id from now on. An empty one makes the reader forget it.
    pub const fn id(mut self, id: &'a str) -> Self {
        self.id = Some(id);
        self
    }

    /// How long a reader waits from now on before it connects again; in whole milliseconds.
    pub const fn retry(mut self, delay: Duration) -> Self {
        self.retry = Some(delay);
        self
    }

    /// Appends the event and the empty line that ends it.
    ///
    /// # Errors
    /// `Name`, `Id`; `out` is as before.
    pub fn write(&self, out: &mut Vec<u8>) -> Result<(), Misuse> {
        let ends_line = |byte| matches!(byte, b'\r' | b'\n');
        if self.name.is_some_and(|name| name.bytes().any(ends_line)) {
            return Err(Misuse::Name);
        }
        // A reader ignores an id with NUL and keeps the one before.
        if self
            .id
            .is_some_and(|id| id.bytes().any(|byte| ends_line(byte) || byte == 0))
        {
            return Err(Misuse::Id);
        }
        if let Some(name) = self.name {
            line(out, b"event: ", name.as_bytes());
        }
        if let Some(id) = self.id {
            line(out, b"id: ", id.as_bytes());
        }
        if let Some(delay) = self.retry {
            out.extend_from_slice(b"retry: ");
            decimal(out, u64::try_from(delay.as_millis()).unwrap_or(u64::MAX));
            out.push(b'\n');
        }
        if let Some(data) = self.data {
            lines(out, b"data: ", data);
        }
        out.push(b'\n');
        Ok(())
    }
}

/// Appends a comment, which readers ignore: for people who watch the stream. A line for each of `text`.
pub fn comment(out: &mut Vec<u8>, text: &str) {
    lines(out, b": ", text);
    out.push(b'\n');
}

/// Appends `text` with `start` before each of its lines. The empty text is one line.
fn lines(out: &mut Vec<u8>, start: &[u8], text: &str) {
    let mut rest = text.as_bytes();
    while let Some(at) = rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')) {
        line(out, start, &rest[..at]);
        let end = if rest[at..].starts_with(b"\r\n") { 2 } else { 1 };
        rest = &rest[at + end..];
    }
    line(out, start, rest);
}

fn line(out: &mut Vec<u8>, start: &[u8], text: &[u8]) {
    out.extend_from_slice(start);
    out.extend_from_slice(text);
    out.push(b'\n');
}

fn decimal(out: &mut Vec<u8>, mut number: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (number % 10) as u8;
        number /= 10;
        if number == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}
