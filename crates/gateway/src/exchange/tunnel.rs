//! A connection after a switch of protocols: bytes both ways, until both sides have ended, the upstream breaks off, or nothing
//! comes for too long.
//!
//! ```text
//! Both ─┬─ the client's end, FIN to the upstream ─▶ Down ─ the upstream's end ─┬─▶ over
//!       └─ the upstream's end, FIN to the client ─▶ Up ─── the client's end ───┘
//! ```
//!
//! Who ends its side is still told the rest of the other. A client on a stream of HTTP/2 has [`TUNNEL_REST`] for its own: what it speaks is
//! WebSocket, in which nothing follows the server's end, and there are browsers that never end such a stream.
//!
//! [`TUNNEL_REST`]: crate::limits::TUNNEL_REST

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_web::limits::SEND_SHARE;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{FieldBlock, Version};

use crate::limits::TUNNEL_REST;
use crate::upstream::local::{Chosen, Link};
use crate::upstream::share::Held;

/// See the module.
pub(super) struct Tunnel {
    pub(super) link: Link,
    /// On its client's account as long as it lives.
    pub(super) _held: Option<Held>,
    /// Counted at its endpoint as long as it lives.
    pub(super) _chosen: Chosen,
    pub(super) idle: Option<Duration>,
}

/// What has come of the upstream.
enum Came {
    Bytes,
    End,
    Broken,
}

impl Tunnel {
    /// Moves bytes until the end.
    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        let link = &self.link;
        let is_over = Cell::new(false);
        let mut up = pin!(self.up(req, &is_over));
        let mut sending = true;
        loop {
            link.set_deadline(self.idle);
            let came = poll_fn(|context| {
                if let Err(error) = poll_up(up.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(error));
                }
                poll_down(link, reply, context)
            });
            match came.await? {
                Came::Bytes => reply.flush().await?,
                // An end that its TLS has not announced may be an attacker's: it is not passed on as one.
                Came::End if sending && !was_cut(link) => break,
                Came::End | Came::Broken => return Ok(()),
            }
        }
        reply.end_tunnel()?;
        is_over.set(true);
        link.set_deadline(self.rest(req));
        poll_fn(|context| {
            if let Err(error) = poll_up(up.as_mut(), &mut sending, context) {
                return Poll::Ready(Err(error));
            }
            match poll_over(link, context) {
                Poll::Pending if sending => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// How long the client may leave its side open behind the upstream's end.
    fn rest(&self, req: &Request<'_>) -> Option<Duration> {
        match req.version() {
            Version::Http2 => Some(self.idle.map_or(TUNNEL_REST, |idle| idle.min(TUNNEL_REST))),
            Version::Http10 | Version::Http11 => self.idle,
        }
    }

    /// What the client sends, until its end or until the upstream takes no more. `is_over`: the upstream has ended its side.
    async fn up(&self, req: &Request<'_>, is_over: &Cell<bool>) -> Result<(), Error> {
        while let Some(bytes) = req.chunk().await? {
            self.link
                .set_deadline(if is_over.get() { self.rest(req) } else { self.idle });
            let taken = match &self.link {
                Link::Sole(sole) => sole.stream.write_frame(bytes).await.is_ok(),
                Link::Shared(channel) => channel.send(&bytes).await.is_ok(),
            };
            if !taken {
                return Ok(());
            }
            // What was waited for has moved, too.
            self.link
                .set_deadline(if is_over.get() { self.rest(req) } else { self.idle });
        }
        match &self.link {
            Link::Sole(sole) => drop(sole.stream.shutdown().await),
            Link::Shared(channel) => drop(channel.finish(&FieldBlock::new())),
        }
        Ok(())
    }
}

fn poll_up(
    up: Pin<&mut impl Future<Output = Result<(), Error>>>,
    sending: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    if *sending && let Poll::Ready(sent) = up.poll(context) {
        *sending = false;
        return sent;
    }
    Ok(())
}

/// Hands the client what the upstream has sent.
fn poll_down(link: &Link, reply: &mut Reply<'_>, context: &mut Context<'_>) -> Poll<Result<Came, Error>> {
    let mut outcome = Ok(());
    let mut take = |bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(SEND_SHARE)];
        outcome = reply.put(bytes);
        bytes.len()
    };
    let came = match link {
        Link::Sole(sole) => sole
            .stream
            .poll_received(context, |bytes| take(bytes))
            .map(|received| match received {
                Ok(0) => Came::End,
                Ok(_) => Came::Bytes,
                Err(_) => Came::Broken,
            }),
        Link::Shared(channel) => channel.poll_body(context, take).map(|received| match received {
            Ok(None) => Came::End,
            Ok(Some(_)) => Came::Bytes,
            Err(_) => Came::Broken,
        }),
    };
    came.map(|came| outcome.map(|()| came))
}

/// Whether its end may be an attacker's. A stream of HTTP/2 says its own.
fn was_cut(link: &Link) -> bool {
    match link {
        Link::Sole(sole) => sole.stream.was_cut(),
        Link::Shared(_) => false,
    }
}

/// Waits until nothing more can be sent to the upstream.
fn poll_over(link: &Link, context: &mut Context<'_>) -> Poll<()> {
    match link {
        Link::Sole(sole) => sole.stream.poll_over(context).map(drop),
        Link::Shared(channel) => channel.poll_gone(context),
    }
}
