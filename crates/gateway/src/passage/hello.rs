//! A client's first message of TLS, which stays where it is: who ends TLS reads it again.

use std::future::poll_fn;
use std::task::Poll;

use ringmain_engine::stream::Stream;
use ringmain_wire::tls::{Hello, HelloScanner, Looked, NoHello};

use crate::fault::Fault;
use crate::limits;

/// Waits for the message.
pub(super) async fn read(stream: &Stream) -> Result<Hello, Fault> {
    stream.set_deadline(Some(limits::HANDSHAKE_TIMEOUT));
    let mut scanner = HelloScanner::new();
    let found = poll_fn(|context| {
        let mut looked = Ok(Looked::NeedMore);
        let received = stream.poll_received(context, |bytes| {
            looked = scanner.look(bytes);
            0
        });
        match (looked, received) {
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
