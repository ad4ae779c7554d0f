//! The framing of transport messages: several commands or replies in one, in JSON or Protobuf.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Command, NotJson, Reply};
use crate::limits;

/// The encoding of messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON objects, separated by line breaks.
    #[default]
    Json,
    /// Protobuf messages, each after its length as a varint.
    Protobuf,
}

/// A transport message that cannot be parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// Invalid JSON, or not a message of this protocol.
    #[error("expected a command in JSON as number {number} of the message: {reason}")]
    Json {
        /// The number of the part, from 1.
        number: usize,
        /// The text of the JSON parser, with the position.
        reason: String,
    },
    /// Invalid Protobuf, or not a message of this protocol.
    #[error("expected a command in Protobuf, behind its length, as number {number} of the message: {reason}")]
    Protobuf {
        /// The number of the part, from 1.
        number: usize,
        /// The text of the Protobuf parser.
        reason: String,
    },
    /// An invalid message without framing.
    #[error("expected one message in {format:?}: {reason}")]
    Unframed {
        /// The expected format.
        format: Format,
        /// The text of the parser.
        reason: String,
    },
    /// See [`limits::COMMANDS_PER_MESSAGE`].
    #[error(
        "expected at most {} in one message, found more",
        limits::COMMANDS_PER_MESSAGE
    )]
    TooMany,
}

/// The commands or replies in one transport message. Ends after the first invalid one; all valid ones before it are returned.
#[derive(Debug)]
pub struct MessageParts<T> {
    format: Format,
    remaining: Bytes,
    number: usize,
    kind: PhantomData<T>,
}

/// The commands in a client's message.
pub type Commands = MessageParts<Command>;
/// The replies in a server's message.
pub type Replies = MessageParts<Reply>;

impl<T> MessageParts<T> {
    /// Parses a complete transport message. The transport must limit its length: [`limits::MESSAGE_BYTES`].
    #[must_use]
    pub fn new(format: Format, message: Bytes) -> Self {
        MessageParts {
            format,
            remaining: message,
            number: 0,
            kind: PhantomData,
        }
    }
}

impl<T: Message + Default + DeserializeOwned> Iterator for MessageParts<T> {
    type Item = Result<T, MessageError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.format == Format::Json {
            let blank = self
                .remaining
                .iter()
                .take_while(|byte| byte.is_ascii_whitespace());
            self.remaining.advance(blank.count());
        }
        if self.remaining.is_empty() {
            return None;
        }
        self.number += 1;
        let part = match self.format {
            _ if self.number > limits::COMMANDS_PER_MESSAGE => Err(MessageError::TooMany),
            Format::Json => self.json(),
            Format::Protobuf => {
                T::decode_length_delimited(&mut self.remaining).map_err(|reason| MessageError::Protobuf {
                    number: self.number,
                    reason: reason.to_string(),
                })
            }
        };
        if part.is_err() {
            self.remaining = Bytes::new();
        }
        Some(part)
    }
}

impl<T: DeserializeOwned> MessageParts<T> {
    fn json(&mut self) -> Result<T, MessageError> {
        let mut parts = serde_json::Deserializer::from_slice(&self.remaining).into_iter();
        let part = parts
            .next()
            .unwrap_or_else(|| unreachable!("more than white space"));
        let end = parts.byte_offset();
        let part = part.map_err(|reason| MessageError::Json {
            number: self.number,
            reason: reason.to_string(),
        })?;
        self.remaining.advance(end);
        Ok(part)
    }
}

/// Returns the length of a message in Protobuf without its length prefix, in bytes: an estimate of its memory.
#[must_use]
pub fn encoded_bytes(part: &impl Message) -> usize {
    part.encoded_len()
}

impl Format {
    /// Appends a message. `out` is empty or contains other parts of the same transport message.
    ///
    /// # Errors
    /// [`NotJson`]: the format is JSON, and a field of bytes is not. `out` is unchanged.
    pub fn write<T: Message + Serialize>(self, part: &T, out: &mut Vec<u8>) -> Result<(), NotJson> {
        match self {
            Format::Protobuf => {
                out.reserve(part.encoded_len() + 4);
                // A `Vec` always has room.
                part.encode_length_delimited(out)
                    .unwrap_or_else(|_| unreachable!("a vector grows"));
            }
            Format::Json => {
                let before = out.len();
                self.separate(out);
                if serde_json::to_writer(&mut *out, part).is_err() {
                    out.truncate(before);
                    return Err(NotJson);
                }
            }
        }
        Ok(())
    }

    /// Parses a single message without framing.
    ///
    /// # Errors
    /// [`MessageError::Unframed`].
    pub fn read<T: Message + Default + DeserializeOwned>(self, message: &[u8]) -> Result<T, MessageError> {
        let parsed = match self {
            Format::Json => serde_json::from_slice(message).map_err(|reason| reason.to_string()),
            Format::Protobuf => T::decode(message).map_err(|reason| reason.to_string()),
        };
        parsed.map_err(|reason| MessageError::Unframed { format: self, reason })
    }

    /// Appends the separator of two parts.
    pub fn separate(self, out: &mut Vec<u8>) {
        if self == Format::Json && !out.is_empty() {
            out.push(b'\n');
        }
    }

    /// Returns the WebSocket subprotocol of the format.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Format::Json => "centrifuge-json",
            Format::Protobuf => "centrifuge-protobuf",
        }
    }
}
