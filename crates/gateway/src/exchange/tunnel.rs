//! A connection after a switch of protocols: bytes both ways, until the upstream ends or nothing comes for too long. A client
//! that ends its side is still told the rest.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ringmain_web::limits::SEND_SHARE;
use ringmain_web::{Error, Reply, Request};

use crate::upstream::local::{Chosen, Link};

/// See the module.
pub(super) struct Tunnel {
    pub(super) link: Link,
    /// Counted at its endpoint as long as it lives.
    pub(super) _chosen: Chosen,
    pub(super) idle: Option<Duration>,
}

impl Tunnel {
    /// Moves bytes until the end.
    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        let stream = &self.link.stream;
        let up = async {
            while let Some(bytes) = req.chunk().await? {
                stream.set_deadline(self.idle);
                if stream.write_frame(bytes).await.is_err() {
                    return Ok(());
                }
            }
            // The other direction may go on.
            let _ = stream.shutdown().await;
            Ok::<(), Error>(())
        };
        let mut up = pin!(up);
        let mut sending = true;
        loop {
            stream.set_deadline(self.idle);
            let mut outcome = Ok(());
            let received = poll_fn(|context| {
                if sending && let Poll::Ready(sent) = up.as_mut().poll(context) {
                    sending = false;
                    if sent.is_err() {
                        return Poll::Ready(sent.map(|()| 0));
                    }
                }
                let received = stream.poll_received(context, |bytes| {
                    let bytes = &bytes[..bytes.len().min(SEND_SHARE)];
                    outcome = reply.put(bytes);
                    bytes.len()
                });
                // However it ends, the tunnel is over.
                received.map(|received| Ok(received.unwrap_or(0)))
            })
            .await?;
            outcome?;
            if received == 0 {
                return Ok(());
            }
            reply.flush().await?;
        }
    }
}
