//! Bytes in memory as a connection of hyper's, polled without a runtime.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};

/// Polls after which a connection that is still pending is given up: everything is always ready, so each poll
/// makes progress.
pub(crate) const POLLS: usize = 10_000;

/// Reads what is there, then the end; swallows what is written.
pub(crate) struct Memory {
    input: Vec<u8>,
    at: usize,
    /// Whether there is something to read only once something was written: a server that is asked first.
    answers: bool,
}

impl Memory {
    /// A client that sends `input`.
    pub(crate) fn client(input: &[u8]) -> Self {
        Self {
            input: input.to_vec(),
            at: 0,
            answers: false,
        }
    }

    /// A server that answers `input`.
    pub(crate) fn server(input: &[u8]) -> Self {
        Self {
            answers: true,
            ..Self::client(input)
        }
    }
}

impl Read for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        if self.answers {
            return Poll::Pending;
        }
        let length = buffer.remaining().min(self.input.len() - self.at);
        buffer.put_slice(&self.input[self.at..self.at + length]);
        self.at += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(mut self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.answers = false;
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

/// The data of a body; `None` if the body is broken.
pub(crate) async fn collect(mut incoming: Incoming) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await
    {
        if let Ok(data) = frame.ok()?.into_data() {
            body.extend_from_slice(&data);
        }
    }
    Some(body)
}

/// The body of a message without one.
pub(crate) struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}
