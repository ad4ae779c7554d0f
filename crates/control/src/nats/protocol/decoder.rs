//! Bytes of a server to events.
//!
//! ```text
//!        ┌──────────── payload that is too large ──────────┐
//!        ▼                                                 │
//! Line ──┴─▶ (event)        Skipping(bytes) ── all of it ──┘
//!   │                          ▲
//!   └── MSG … too large ───────┘
//! ```

use super::{LINE_BYTES, SUBJECT_BYTES};

/// Reads what a server says. After a [`ProtocolError`] nothing is to be read any more.
#[derive(Clone, Debug)]
pub struct Decoder {
    payload_bytes: usize,
    /// Of a payload that is too large, with its end: bytes that are still to come.
    skipping: usize,
    /// Of the line that has not come whole: bytes that hold no end of it.
    scanned: usize,
}

/// What a server has said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent<'b> {
    /// What it is and wants, as JSON; the first of all, and again when that changes.
    Info(&'b [u8]),
    /// Something was published.
    Message {
        /// Where.
        subject: &'b str,
        /// The number of the subscription.
        subscription: u64,
        /// What.
        payload: &'b [u8],
    },
    /// Something was published that has more bytes than are taken. They are passed over.
    TooLarge {
        /// Where.
        subject: &'b str,
        /// The number of the subscription.
        subscription: u64,
        /// How many there are.
        bytes: usize,
    },
    /// It wants to know whether somebody is there: a PONG is due.
    Ping,
    /// It is there.
    Pong,
    /// It has done what it was told to.
    Ok,
    /// It has not, or is about to close: why, without the quotes.
    Error(&'b str),
}

/// A server does not keep to the protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line is longer than [`LINE_BYTES`].
    #[error("expected a line of at most {LINE_BYTES} bytes, found a longer one")]
    LongLine,
    /// A line does not end with CR and LF.
    #[error("expected CR and LF at the end of a line, found LF alone")]
    LineEnd,
    /// No such thing is said to a client that asked for nothing else.
    #[error("expected INFO, MSG, PING, PONG, +OK or -ERR, found something else")]
    Unknown,
    /// A MSG without its parts, or with others.
    #[error("expected MSG with subject, subscription and size, found something else")]
    Message,
    /// A payload does not end where it should.
    #[error("expected CR and LF behind a payload, found something else")]
    PayloadEnd,
}

const END: &[u8] = b"\r\n";

impl Decoder {
    /// For payloads of so many bytes at most: larger ones are passed over. Whoever keeps what has not been consumed holds at most
    /// [`LINE_BYTES`] and those, and two bytes more.
    #[must_use]
    pub fn new(payload_bytes: usize) -> Decoder {
        Decoder {
            payload_bytes,
            skipping: 0,
            scanned: 0,
        }
    }

    /// Reads the first event. Returns how many bytes are done with, and what they said. `None`: what is left is the part of
    /// something, and is shown again with what comes behind it.
    ///
    /// # Errors
    /// [`ProtocolError`].
    pub fn decode<'b>(&mut self, bytes: &'b [u8]) -> Result<(usize, Option<ServerEvent<'b>>), ProtocolError> {
        let skipped = self.skipping.min(bytes.len());
        self.skipping -= skipped;
        let rest = &bytes[skipped..];
        let Some(line) = self.next_line(rest)? else {
            return Ok((skipped, None));
        };
        let behind = &rest[line.len() + END.len()..];
        let used = skipped + line.len() + END.len();
        let (word, arguments) = match line.iter().position(|byte| is_space(*byte)) {
            Some(end) => (&line[..end], line[end..].trim_ascii()),
            None => (line, &line[..0]),
        };
        if word.eq_ignore_ascii_case(b"MSG") {
            let Some((message, length)) = self.decode_message(arguments, behind)? else {
                return Ok((skipped, None));
            };
            self.scanned = 0;
            return Ok((used + length, Some(message)));
        }
        self.scanned = 0;
        let event = match word {
            word if word.eq_ignore_ascii_case(b"PING") => ServerEvent::Ping,
            word if word.eq_ignore_ascii_case(b"PONG") => ServerEvent::Pong,
            word if word.eq_ignore_ascii_case(b"+OK") => ServerEvent::Ok,
            word if word.eq_ignore_ascii_case(b"INFO") => ServerEvent::Info(arguments),
            word if word.eq_ignore_ascii_case(b"-ERR") => {
                let arguments = str::from_utf8(arguments).map_err(|_| ProtocolError::Unknown)?;
                ServerEvent::Error(arguments.trim_matches('\''))
            }
            _ => return Err(ProtocolError::Unknown),
        };
        Ok((used, Some(event)))
    }

    /// The line that is at the front, without its end. `None`: it is not all there.
    fn next_line<'b>(&mut self, bytes: &'b [u8]) -> Result<Option<&'b [u8]>, ProtocolError> {
        let scanned = self.scanned.min(bytes.len());
        let Some(end) = bytes[scanned..].iter().position(|&byte| byte == b'\n') else {
            if bytes.len() >= LINE_BYTES {
                return Err(ProtocolError::LongLine);
            }
            self.scanned = bytes.len();
            return Ok(None);
        };
        let end = scanned + end;
        if end >= LINE_BYTES {
            return Err(ProtocolError::LongLine);
        }
        // Shown again for want of its payload, it need not be looked through.
        self.scanned = end;
        bytes[..end]
            .strip_suffix(b"\r")
            .map(Some)
            .ok_or(ProtocolError::LineEnd)
    }

    /// A message, and the bytes behind its line that are done with. `None`: it is not all there.
    fn decode_message<'b>(
        &mut self,
        arguments: &'b [u8],
        behind: &'b [u8],
    ) -> Result<Option<(ServerEvent<'b>, usize)>, ProtocolError> {
        let arguments = str::from_utf8(arguments).map_err(|_| ProtocolError::Message)?;
        let mut parts = arguments.split([' ', '\t']).filter(|part| !part.is_empty());
        let mut next = || parts.next();
        let (subject, subscription, third, fourth) = (next(), next(), next(), next());
        // Between them may be a subject for an answer.
        let bytes = fourth.or(third).and_then(number);
        let subscription = subscription.and_then(number);
        let (Some(subject), Some(subscription), Some(bytes), None) =
            (subject, subscription, bytes, parts.next())
        else {
            return Err(ProtocolError::Message);
        };
        let bytes = usize::try_from(bytes).map_err(|_| ProtocolError::Message)?;
        if subject.len() > SUBJECT_BYTES {
            return Err(ProtocolError::Message);
        }
        if bytes > self.payload_bytes {
            let all = bytes.checked_add(END.len()).ok_or(ProtocolError::Message)?;
            let here = all.min(behind.len());
            self.skipping = all - here;
            let event = ServerEvent::TooLarge {
                subject,
                subscription,
                bytes,
            };
            return Ok(Some((event, here)));
        }
        let Some((payload, end)) = behind.split_at_checked(bytes) else {
            return Ok(None);
        };
        let Some(end) = end.get(..END.len()) else {
            return Ok(None);
        };
        if end != END {
            return Err(ProtocolError::PayloadEnd);
        }
        let event = ServerEvent::Message {
            subject,
            subscription,
            payload,
        };
        Ok(Some((event, bytes + END.len())))
    }
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t')
}

/// Digits and nothing else: `+1` is no number here.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}
