//! Reads the ClientHello of a connection without consuming it: the server that terminates TLS reads it again. A client that speaks
//! plain HTTP instead receives a response in its own protocol.

use std::future::poll_fn;
use std::task::Poll;

use ringmain_engine::stream::Stream;
use ringmain_wire::tls::{Hello, HelloScanner, Looked, NoHello, plain};

use crate::fault::Fault;
use crate::limits;

/// Waits for the ClientHello.
pub(super) async fn read_client_hello(stream: &Stream) -> Result<Hello, Fault> {
    stream.set_deadline(Some(limits::HANDSHAKE_TIMEOUT));
    let mut scanner = HelloScanner::new();
    let found = poll_fn(|context| {
        let mut scan = Ok(Looked::NeedMore);
        let received = stream.poll_received(context, |bytes| {
            match plain::is_http(bytes) {
                Some(true) => scan = Err(NoHello::NotTls("plain HTTP")),
                Some(false) => scan = scanner.look(bytes),
                // The bytes begin like a method.
                None => {}
            }
            0
        });
        match (scan, received) {
            (Ok(Looked::Hello(hello)), _) => Poll::Ready(Ok(hello)),
            (Err(NoHello::NotTls(found)), _) => {
                log::debug!("{stream:?}: {}", NoHello::NotTls(found));
                Poll::Ready(Err(Fault::NotTls))
            }
            (Err(NoHello::TooLong), _) => Poll::Ready(Err(Fault::HelloTooLong)),
            (Ok(Looked::NeedMore), Poll::Ready(_)) => Poll::Ready(Err(Fault::NoHello)),
            (Ok(Looked::NeedMore), Poll::Pending) => Poll::Pending,
        }
    })
    .await;
    stream.set_deadline(None);
    found
}

/// Returns the response to a client that has sent a plain HTTP request; `None` for other bytes.
pub(super) async fn plain_http_response(stream: &Stream) -> Option<Vec<u8>> {
    let mut answer = None;
    let scan = poll_fn(|context| {
        let _ = stream.poll_received(context, |bytes| {
            if plain::is_http(bytes) == Some(true) {
                let mut out = Vec::new();
                plain::respond(bytes, &mut out);
                answer = Some(out);
            }
            0
        });
        Poll::Ready(())
    });
    scan.await;
    answer
}

/// Sends a response and closes the sending side, then waits a while for the client's end: with unread bytes the kernel would
/// reset the connection, which could discard the response.
pub(super) async fn respond_and_close(stream: &Stream, answer: &[u8]) {
    stream.set_deadline(Some(limits::PLAIN_HTTP_LINGER));
    // Both fail if the client has left.
    let _ = stream.write_now(answer);
    let _ = stream.shutdown().await;
    let mut remaining = limits::PLAIN_HTTP_LINGER_BYTES;
    while remaining > 0 {
        let dropped = poll_fn(|context| stream.poll_received(context, <[u8]>::len)).await;
        match dropped {
            Ok(count @ 1..) => remaining = remaining.saturating_sub(count),
            Ok(0) | Err(_) => break,
        }
    }
}
