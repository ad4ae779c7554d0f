//! Messages of the transport: several commands or replies in one, in JSON or in Protobuf.

use std::marker::PhantomData;

use bytes::{Buf, Bytes};
use prost::Message;
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{Command, NotJson, Reply};
use crate::limits;

/// How messages are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Format {
    /// JSON objects, a line break between two.
    #[default]
    Json,
    /// Each with its length before it, as a varint.
    Protobuf,
}

/// A message of the transport that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Not JSON, or not of this protocol.
    #[error("expected a command in JSON as number {number} of the message: {why}")]
    Json {
        /// Which one, from 1.
        number: usize,
        /// The reader's words, with its place.
        why: String,
    },
    /// Not Protobuf, or not of this protocol.
    #[error("expected a command in Protobuf, behind its length, as number {number} of the message: {why}")]
    Protobuf {
        /// Which one, from 1.
        number: usize,
        /// The reader's words.
        why: String,
    },
    /// A message that stands alone.
    #[error("expected one message in {format:?}: {why}")]
    Alone {
        /// What it was to be.
        format: Format,
        /// The reader's words.
        why: String,
    },
    /// See [`limits::COMMANDS_A_MESSAGE`].
    #[error("expected at most {} in one message, found more", limits::COMMANDS_A_MESSAGE)]
    TooMany,
}

/// What is in one message of the transport, one after the other. Ends behind the first that cannot be understood. Nothing that is
/// well-formed is lost before it.
#[derive(Debug)]
pub struct Parts<T> {
    format: Format,
    left: Bytes,
    number: usize,
    kind: PhantomData<T>,
}

/// Commands of a client.
pub type Commands = Parts<Command>;
/// Replies of a server.
pub type Replies = Parts<Reply>;

impl<T> Parts<T> {
    /// Of a whole message. How long it may be is the transport's to say: [`limits::MESSAGE_BYTES`].
    #[must_use]
    pub fn new(format: Format, message: Bytes) -> Self {
        Parts {
            format,
            left: message,
            number: 0,
            kind: PhantomData,
        }
    }
}

impl<T: Message + Default + DeserializeOwned> Iterator for Parts<T> {
    type Item = Result<T, Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.format == Format::Json {
            let blank = self.left.iter().take_while(|byte| byte.is_ascii_whitespace());
            self.left.advance(blank.count());
        }
        if self.left.is_empty() {
            return None;
        }
        self.number += 1;
        let found = match self.format {
            _ if self.number > limits::COMMANDS_A_MESSAGE => Err(Broken::TooMany),
            Format::Json => self.json(),
            Format::Protobuf => T::decode_length_delimited(&mut self.left).map_err(|why| Broken::Protobuf {
                number: self.number,
                why: why.to_string(),
            }),
        };
        if found.is_err() {
            self.left = Bytes::new();
        }
        Some(found)
    }
}

impl<T: DeserializeOwned> Parts<T> {
    fn json(&mut self) -> Result<T, Broken> {
        let mut parts = serde_json::Deserializer::from_slice(&self.left).into_iter();
        let part = parts
            .next()
            .unwrap_or_else(|| unreachable!("more than white space"));
        let end = parts.byte_offset();
        let part = part.map_err(|why| Broken::Json {
            number: self.number,
            why: why.to_string(),
        })?;
        self.left.advance(end);
        Ok(part)
    }
}

/// Bytes of a message in Protobuf, without a length before it: how much memory it takes, about.
#[must_use]
pub fn encoded_bytes(part: &impl Message) -> usize {
    part.encoded_len()
}

impl Format {
    /// Appends a message's part. What is in `out` is other parts of the same message of the transport, or nothing.
    ///
    /// # Errors
    /// A field of bytes is not JSON, and the format is. Nothing is appended.
    pub fn write<T: Message + Serialize>(self, part: &T, out: &mut Vec<u8>) -> Result<(), NotJson> {
        match self {
            Format::Protobuf => {
                out.reserve(part.encoded_len() + 4);
                // A vector has room for everything.
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

    /// Reads a message that stands alone: without a length before it, and with nothing behind it.
    ///
    /// # Errors
    /// [`Broken::Alone`].
    pub fn read<T: Message + Default + DeserializeOwned>(self, message: &[u8]) -> Result<T, Broken> {
        let found = match self {
            Format::Json => serde_json::from_slice(message).map_err(|why| why.to_string()),
            Format::Protobuf => T::decode(message).map_err(|why| why.to_string()),
        };
        found.map_err(|why| Broken::Alone { format: self, why })
    }

    /// Appends what stands between two parts.
    pub fn separate(self, out: &mut Vec<u8>) {
        if self == Format::Json && !out.is_empty() {
            out.push(b'\n');
        }
    }

    /// The subprotocol of WebSocket that asks for it.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Format::Json => "centrifuge-json",
            Format::Protobuf => "centrifuge-protobuf",
        }
    }
}
