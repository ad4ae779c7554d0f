//! A watch: a response of lines that does not end by itself, each an object of JSON. Knows no kind of object.

use std::pin::Pin;

use futures_util::io::{AsyncBufRead, AsyncBufReadExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Error;
use crate::limits;

/// A change of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event<T> {
    /// It is new, or has changed.
    Put(T),
    /// It is gone; its last state.
    Deleted(T),
    /// Nothing has changed up to this version.
    Bookmark(String),
}

/// A watch that has begun.
pub struct Watch {
    request: String,
    lines: Pin<Box<dyn AsyncBufRead + Send>>,
    line: Vec<u8>,
}

/// The type of a line. The rest is parsed when that is known: an error is no object of the watched kind.
#[derive(Deserialize)]
struct Kind {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Line<T> {
    object: T,
}

#[derive(Deserialize)]
struct Bookmark {
    metadata: Version,
}

#[derive(Deserialize)]
struct Version {
    #[serde(rename = "resourceVersion")]
    version: String,
}

/// A `Status` of the API server.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Status {
    code: u16,
    reason: String,
    message: String,
}

impl Watch {
    pub(super) fn new(request: String, lines: impl AsyncBufRead + Send + 'static) -> Watch {
        Watch {
            request,
            lines: Box::pin(lines),
            line: Vec::new(),
        }
    }

    /// Returns the next change, or nothing once the API server has ended the watch. Not to be called again after either of an end
    /// and an error.
    ///
    /// # Errors
    /// The connection was lost or is silent, or the version is [expired](Error::is_expired).
    pub async fn next<T: DeserializeOwned>(&mut self) -> Result<Option<Event<T>>, Error> {
        let read = timeout(limits::WATCH_SILENCE, self.read_line()).await;
        match read {
            Err(_) => Err(Error::Late(self.request.clone())),
            Ok(Err(error)) => Err(error),
            Ok(Ok(false)) => Ok(None),
            Ok(Ok(true)) => self.parse().map(Some),
        }
    }

    /// Reads a line. Returns `false` at the end; an incomplete last line is dropped.
    async fn read_line(&mut self) -> Result<bool, Error> {
        self.line.clear();
        loop {
            let bytes = match self.lines.fill_buf().await {
                Ok(bytes) => bytes,
                Err(error) => {
                    return Err(Error::Unreachable {
                        url: self.request.clone(),
                        why: super::error::with_causes(&error),
                    });
                }
            };
            if bytes.is_empty() {
                return Ok(false);
            }
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let length = end.unwrap_or(bytes.len());
            if self.line.len() + length > limits::LINE_BYTES {
                return Err(self.unexpected(format!("an object of more than {} bytes", limits::LINE_BYTES)));
            }
            self.line.extend_from_slice(&bytes[..length]);
            let used = length + usize::from(end.is_some());
            Pin::new(&mut self.lines).consume(used);
            if end.is_some() && !self.line.is_empty() {
                return Ok(true);
            }
        }
    }

    fn parse<T: DeserializeOwned>(&self) -> Result<Event<T>, Error> {
        let wrong = |error: serde_json::Error| self.unexpected(error.to_string());
        let Kind { kind } = serde_json::from_slice(&self.line).map_err(wrong)?;
        match &*kind {
            "ADDED" | "MODIFIED" => {
                let Line { object } = serde_json::from_slice(&self.line).map_err(wrong)?;
                Ok(Event::Put(object))
            }
            "DELETED" => {
                let Line { object } = serde_json::from_slice(&self.line).map_err(wrong)?;
                Ok(Event::Deleted(object))
            }
            "BOOKMARK" => {
                let Line::<Bookmark> { object } = serde_json::from_slice(&self.line).map_err(wrong)?;
                Ok(Event::Bookmark(object.metadata.version))
            }
            "ERROR" => {
                let Line::<Status> { object } = serde_json::from_slice(&self.line).map_err(wrong)?;
                Err(Error::Refused {
                    request: self.request.clone(),
                    status: object.code,
                    reason: object.reason,
                    message: object.message,
                })
            }
            other => Err(self.unexpected(format!("an event of type `{other}`"))),
        }
    }

    fn unexpected(&self, why: String) -> Error {
        Error::Unexpected {
            request: self.request.clone(),
            why,
        }
    }
}
