//! hyper's HTTP/1 server over bytes in memory, polled to its end without a runtime.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};

use crate::conversation::Seen;

/// Polls after which a connection that is still pending is given up: everything is always ready, so each poll
/// makes progress.
const POLLS: usize = 10_000;

/// The requests of `input` that hyper gave to its service and whose bodies it read to their end.
pub(crate) fn read(input: &[u8]) -> Vec<Seen> {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let service = service_fn(|request: Request<Incoming>| {
        let seen = Arc::clone(&seen);
        async move {
            if let Some(request) = collect(request).await {
                seen.lock().expect("no panic while locked").push(request);
            }
            Ok::<_, Infallible>(Response::new(NoBody))
        }
    });
    let memory = Memory {
        input: input.to_vec(),
        at: 0,
    };
    let mut builder = http1::Builder::new();
    let mut connection = pin!(builder.half_close(true).serve_connection(memory, service));
    let mut context = Context::from_waker(Waker::noop());
    let over = (0..POLLS).any(|_| connection.as_mut().poll(&mut context).is_ready());
    assert!(over, "hyper comes to an end");
    let seen = seen.lock().expect("no panic while locked");
    seen.clone()
}

/// The request with its body; `None` if the body is broken.
async fn collect(request: Request<Incoming>) -> Option<Seen> {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(frame) = poll_fn(|context| Pin::new(&mut incoming).poll_frame(context)).await {
        if let Ok(data) = frame.ok()?.into_data() {
            body.extend_from_slice(&data);
        }
    }
    Some(Seen {
        start: vec![head.method.as_str().to_owned(), head.uri.to_string()],
        body,
    })
}

struct NoBody;

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

/// Reads what is there, then the end; swallows what is written.
struct Memory {
    input: Vec<u8>,
    at: usize,
}

impl Read for Memory {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let length = buffer.remaining().min(self.input.len() - self.at);
        buffer.put_slice(&self.input[self.at..self.at + length]);
        self.at += length;
        Poll::Ready(Ok(()))
    }
}

impl Write for Memory {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
