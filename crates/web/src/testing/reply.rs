//! Responses as a test reads them: whole, or in chunks.

use ringmain_wire::h1::Version;
use serde::de::DeserializeOwned;

use super::TestError;
use super::connection::RawConnection;

/// A whole response, or the head of one.
#[derive(Clone, Debug)]
pub struct TestReply {
    pub(super) status: u16,
    pub(super) version: Version,
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) interim: Vec<u16>,
    pub(super) keep_alive: bool,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Vec<(String, Vec<u8>)>,
}

impl TestReply {
    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Returns the protocol version of the response.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// Returns the value of the first field with this name, compared without case, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .fields
            .iter()
            .find(|(field_name, _)| field_name.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| str::from_utf8(value).ok())
    }

    /// Returns all fields in order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the trailers of a chunked body.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// Returns the statuses of interim responses before this one: 100 for `100 Continue`.
    #[must_use]
    pub fn interim(&self) -> &[u16] {
        &self.interim
    }

    /// Returns true if the connection closes after this response.
    #[must_use]
    pub fn closes(&self) -> bool {
        !self.keep_alive
    }

    /// Returns the body, without its framing.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// Returns the body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("the answer's body is text")
    }

    /// Parses the body as JSON.
    ///
    /// # Panics
    /// If it is not JSON, or not of this type: the message shows it.
    #[must_use]
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            let body = self.body.escape_ascii();
            panic!("expected JSON in answer {}, found `{body}`: {error}", self.status)
        })
    }
}

/// A response that is read as it arrives: a download, a stream of events. It has a separate connection, which is closed when this
/// is dropped.
#[derive(Debug)]
pub struct StreamedReply {
    pub(super) connection: RawConnection,
    pub(super) method: String,
    pub(super) head: TestReply,
    pub(super) over: bool,
    /// Bytes received after the last returned event.
    pub(super) text: Vec<u8>,
}

impl StreamedReply {
    /// Returns the status and the fields.
    #[must_use]
    pub fn head(&self) -> &TestReply {
        &self.head
    }

    /// Returns the status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// Returns the connection, to close it or shut down the client's side.
    pub fn connection(&mut self) -> &mut RawConnection {
        &mut self.connection
    }

    /// Returns the received bytes of the body; waits for some. `None` after the last.
    ///
    /// # Errors
    /// Nothing arrives in time, or the response is truncated.
    pub fn piece(&mut self) -> Result<Option<Vec<u8>>, TestError> {
        if self.over {
            return Ok(None);
        }
        let (piece, over) = self.connection.piece(&self.method)?;
        self.over = over;
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// Waits for the next server-sent event and returns it unparsed, without the empty line at its end. `None` when the stream has
    /// ended.
    ///
    /// # Errors
    /// As [`StreamedReply::piece`].
    pub fn event(&mut self) -> Result<Option<String>, TestError> {
        loop {
            let end = self.text.windows(2).position(|pair| pair == b"\n\n");
            if let Some(end) = end {
                let event = String::from_utf8_lossy(&self.text[..end]).into_owned();
                self.text.drain(..end + 2);
                return Ok(Some(event));
            }
            match self.piece()? {
                Some(piece) => self.text.extend_from_slice(&piece),
                None => return Ok(None),
            }
        }
    }
}
