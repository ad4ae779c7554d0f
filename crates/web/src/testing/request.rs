//! A request under construction by a test.

use ringmain_wire::h1::{Framing, Method, Misuse, RequestEncoder};
use serde::Serialize;

use super::reply::{StreamedReply, TestReply};
use super::{TestClient, TestError};

/// A request, sent by [`send`](TestRequest::send).
#[must_use = "a request goes out by `send`"]
pub struct TestRequest<'c> {
    client: &'c mut TestClient,
    method: String,
    target: String,
    host: String,
    fields: Vec<(String, Vec<u8>)>,
    body: Option<Vec<u8>>,
    chunk_bytes: Option<usize>,
}

impl<'c> TestRequest<'c> {
    pub(super) fn new(client: &'c mut TestClient, method: &str, target: &str) -> TestRequest<'c> {
        TestRequest {
            client,
            method: method.into(),
            target: target.into(),
            host: "localhost".into(),
            fields: Vec::new(),
            body: None,
            chunk_bytes: None,
        }
    }

    /// Adds a field. Fields of the framing are the client's own; a test that needs to set them uses [`TestClient::raw`].
    pub fn header(mut self, name: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push((name.into(), value.as_ref().into()));
        self
    }

    /// Sets the host; default: `localhost`.
    pub fn host(mut self, host: &str) -> Self {
        self.host = host.into();
        self
    }

    /// Sets a body with its length.
    pub fn body(mut self, body: impl Into<Vec<u8>>) -> Self {
        self.body = Some(body.into());
        self
    }

    /// Sets the body to a value as JSON, with its content type.
    ///
    /// # Panics
    /// If it cannot be serialized as JSON.
    #[track_caller]
    pub fn json<T: Serialize + ?Sized>(self, value: &T) -> Self {
        let body = serde_json::to_vec(value).expect("the test's value can be written as JSON");
        self.header("Content-Type", "application/json").body(body)
    }

    /// Sets the body to an encoded form (`a=1&b=2`), with its content type.
    pub fn form(self, encoded: &str) -> Self {
        self.header("Content-Type", "application/x-www-form-urlencoded")
            .body(encoded)
    }

    /// Sends the body in chunks of `bytes` instead of with its length.
    pub fn chunked(mut self, bytes: usize) -> Self {
        self.chunk_bytes = Some(bytes.max(1));
        self
    }

    /// Sends the request and waits for the whole response.
    ///
    /// # Panics
    /// If [`TestRequest::try_send`] fails; the message has the reason.
    #[must_use]
    #[track_caller]
    pub fn send(self) -> TestReply {
        let name = format!("{} {}", self.method, self.target);
        self.try_send().unwrap_or_else(|error| panic!("{name}: {error}"))
    }

    /// Sends the request and waits for the whole response.
    ///
    /// # Errors
    /// No response within [`Setup::timeout`](super::Setup) of virtual time, a broken connection, a response that violates the
    /// protocol, a request that cannot be encoded.
    pub fn try_send(self) -> Result<TestReply, TestError> {
        let bytes = self.encode()?;
        let reply = self.client.connection()?.exchange(&bytes, &self.method);
        if reply.as_ref().map_or(true, TestReply::closes) {
            self.client.forget_connection(reply.is_err());
        }
        reply
    }

    /// Sends the request and waits for the response's head only; the body is read in chunks.
    ///
    /// # Errors
    /// As [`TestRequest::try_send`].
    pub fn open(self) -> Result<StreamedReply, TestError> {
        let bytes = self.encode()?;
        let mut connection = self.client.separate()?;
        let head = connection.begin(&bytes, &self.method)?;
        Ok(StreamedReply {
            connection,
            method: self.method,
            head,
            over: false,
            text: Vec::new(),
        })
    }

    fn encode(&self) -> Result<Vec<u8>, TestError> {
        self.try_encode()
            .map_err(|misuse| TestError(format!("the request cannot be written: {misuse}")))
    }

    fn try_encode(&self) -> Result<Vec<u8>, Misuse> {
        let mut out = Vec::new();
        let method = Method::new(&self.method);
        let mut head = RequestEncoder::new(&mut out, method, &self.target, &self.host)?;
        for (name, value) in &self.fields {
            head.field(name, value)?;
        }
        let framing = match (&self.body, self.chunk_bytes) {
            (None, None) => Framing::None,
            (Some(body), None) => Framing::Length(body.len() as u64),
            (_, Some(_)) => Framing::Chunked,
        };
        let mut encoder = head.finish(framing, true)?;
        let body = self.body.as_deref().unwrap_or_default();
        for piece in body.chunks(self.chunk_bytes.unwrap_or(usize::MAX)) {
            encoder.data(&mut out, piece)?;
        }
        encoder.finish(&mut out)?;
        Ok(out)
    }
}

impl std::fmt::Debug for TestRequest<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.target)
    }
}
