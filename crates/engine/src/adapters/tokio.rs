//! A [`Stream`] as tokio's `AsyncRead` and `AsyncWrite`, for code that wants those and no runtime.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use ::tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::stream::Stream;

/// A stream with tokio's I/O traits. Futures that hold one are `!Send`: spawn them by [`crate::Cx::spawn`].
#[derive(Debug)]
pub struct TokioStream(Stream);

impl TokioStream {
    /// Wraps the stream.
    #[must_use]
    pub fn new(stream: Stream) -> TokioStream {
        TokioStream(stream)
    }

    /// The stream itself, for its deadline and addresses.
    #[must_use]
    pub fn stream(&self) -> &Stream {
        &self.0
    }

    /// Gives the stream back.
    #[must_use]
    pub fn into_inner(self) -> Stream {
        self.0
    }
}

impl AsyncRead for TokioStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buffer.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        let take = |bytes: &[u8]| {
            let count = bytes.len().min(buffer.remaining());
            buffer.put_slice(&bytes[..count]);
            count
        };
        self.0.poll_received(context, take).map_ok(drop)
    }
}

impl AsyncWrite for TokioStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write_vectored(context, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(context)
    }
}
