//! What came back: a whole answer, or one that is read piece by piece.

use ringmain_wire::h1::Version;
use serde::de::DeserializeOwned;

use super::TestError;
use super::connection::RawConnection;

/// A whole answer, or the head of one.
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
    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The protocol version that the answer says.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The value of the first field of that name, in any case, if it is text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.fields.iter().find(|(is, _)| is.eq_ignore_ascii_case(name));
        found.and_then(|(_, value)| str::from_utf8(value).ok())
    }

    /// All fields in their order.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The fields behind a body in chunks.
    pub fn trailers(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.trailers
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The statuses of interim answers before this one: 100 for `100 Continue`.
    #[must_use]
    pub fn interim(&self) -> &[u16] {
        &self.interim
    }

    /// Whether the connection closes after this answer.
    #[must_use]
    pub fn closes(&self) -> bool {
        !self.keep_alive
    }

    /// The body, without its framing.
    #[must_use]
    pub fn body(&self) -> &[u8] {
        &self.body
    }

    /// The body as text.
    ///
    /// # Panics
    /// If it is not UTF-8.
    #[must_use]
    #[track_caller]
    pub fn text(&self) -> &str {
        str::from_utf8(&self.body).expect("the answer's body is text")
    }

    /// The body as JSON.
    ///
    /// # Panics
    /// If it is none, or not of this type: the message shows it.
    #[must_use]
    #[track_caller]
    pub fn json<T: DeserializeOwned>(&self) -> T {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| {
            let body = self.body.escape_ascii();
            panic!("expected JSON in answer {}, found `{body}`: {error}", self.status)
        })
    }
}

/// An answer that is read as it comes: a download, a stream of events. It has a connection of its own, which is closed
/// when this is dropped.
#[derive(Debug)]
pub struct StreamedReply {
    pub(super) connection: RawConnection,
    pub(super) method: String,
    pub(super) head: TestReply,
    pub(super) over: bool,
    /// Received behind the last event that was taken.
    pub(super) text: Vec<u8>,
}

impl StreamedReply {
    /// Status and fields.
    #[must_use]
    pub fn head(&self) -> &TestReply {
        &self.head
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.head.status
    }

    /// The connection, for closing or half-closing it.
    pub fn connection(&mut self) -> &mut RawConnection {
        &mut self.connection
    }

    /// The next bytes of the body, as many as are there; waits for some. `None` after the last.
    ///
    /// # Errors
    /// Nothing comes in time, or the answer is cut.
    pub fn piece(&mut self) -> Result<Option<Vec<u8>>, TestError> {
        if self.over {
            return Ok(None);
        }
        let (piece, over) = self.connection.piece(&self.method)?;
        self.over = over;
        Ok(Some(piece).filter(|piece| !piece.is_empty()))
    }

    /// The next server-sent event as it was written, without the empty line at its end; waits for it. `None` when the
    /// stream has ended.
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
