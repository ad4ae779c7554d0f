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

/// Decodes the messages of a server. After a [`ProtocolError`] no more data may be decoded.
#[derive(Clone, Debug)]
pub struct Decoder {
    payload_bytes: usize,
    /// The number of bytes of an oversized payload that are still to be skipped.
    skipping: usize,
    /// The number of bytes of an incomplete line that have been searched for its end.
    scanned: usize,
}

/// An event from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerEvent<'b> {
    /// Its properties and requirements, as JSON; the first event, and repeated when they change.
    Info(&'b [u8]),
    /// Something was published.
    Message {
        /// The subject.
        subject: &'b str,
        /// The number of the subscription.
        subscription: u64,
        /// The payload.
        payload: &'b [u8],
    },
    /// A message with an oversized payload, which is skipped.
    TooLarge {
        /// The subject.
        subject: &'b str,
        /// The number of the subscription.
        subscription: u64,
        /// The size of the payload.
        bytes: usize,
    },
    /// A ping: a pong is due.
    Ping,
    /// A pong.
    Pong,
    /// The last command was accepted.
    Ok,
    /// An error of the server, after which it may close the connection: the message, without quotes.
    Error(&'b str),
}

/// A violation of the protocol by the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    /// A line is longer than [`LINE_BYTES`].
    #[error("expected a line of at most {LINE_BYTES} bytes, found a longer one")]
    LongLine,
    /// A line does not end with CR and LF.
    #[error("expected CR and LF at the end of a line, found LF alone")]
    LineEnd,
    /// A line that servers do not send to such a client.
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
    /// Creates a decoder for payloads of at most `payload_bytes` bytes: larger ones are skipped. A caller that keeps unconsumed
    /// bytes holds at most [`LINE_BYTES`], that number, and two bytes.
    #[must_use]
    pub fn new(payload_bytes: usize) -> Decoder {
        Decoder {
            payload_bytes,
            skipping: 0,
            scanned: 0,
        }
    }

    /// Decodes the first event. Returns the number of consumed bytes, and the event. `None`: the rest is incomplete, and must be
    /// passed again with more data.
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
        let after = &rest[line.len() + END.len()..];
        let used = skipped + line.len() + END.len();
        let (word, arguments) = match line.iter().position(|byte| is_space(*byte)) {
            Some(end) => (&line[..end], line[end..].trim_ascii()),
            None => (line, &line[..0]),
        };
        if word.eq_ignore_ascii_case(b"MSG") {
            let Some((message, length)) = self.decode_message(arguments, after)? else {
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

    /// Returns the first line without its end. `None`: the line is incomplete.
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
        // With an incomplete payload the line is passed again, and need not be searched again.
        self.scanned = end;
        bytes[..end]
            .strip_suffix(b"\r")
            .map(Some)
            .ok_or(ProtocolError::LineEnd)
    }

    /// Decodes a message. Returns it, and the number of bytes consumed after its line. `None`: it is incomplete.
    fn decode_message<'b>(
        &mut self,
        arguments: &'b [u8],
        after: &'b [u8],
    ) -> Result<Option<(ServerEvent<'b>, usize)>, ProtocolError> {
        let arguments = str::from_utf8(arguments).map_err(|_| ProtocolError::Message)?;
        let mut parts = arguments.split([' ', '\t']).filter(|part| !part.is_empty());
        let mut next = || parts.next();
        let (subject, subscription, third, fourth) = (next(), next(), next(), next());
        // An optional reply subject is between them.
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
            let available = all.min(after.len());
            self.skipping = all - available;
            let event = ServerEvent::TooLarge {
                subject,
                subscription,
                bytes,
            };
            return Ok(Some((event, available)));
        }
        let Some((payload, end)) = after.split_at_checked(bytes) else {
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
