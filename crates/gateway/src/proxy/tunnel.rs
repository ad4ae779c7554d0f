//! A connection after a switch of protocols: relays bytes in both directions until both sides have closed, the upstream fails, or the idle
//! time expires.
//!
//! ```text
//! Both ─┬─ client closes, FIN to the upstream ─▶ Down ─ upstream closes ─┬─▶ closed
//!       └─ upstream closes, FIN to the client ─▶ Up ─── client closes ───┘
//! ```
//!
//! A side that has closed still receives the rest from the other. A client on an HTTP/2 stream must close its side within [`TUNNEL_REST`]:
//! the stream carries a WebSocket, in which nothing follows the server's close, and some browsers never close such a stream.
//!
//! [`TUNNEL_REST`]: crate::limits::TUNNEL_REST

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_web::limits::SEND_CHUNK_BYTES;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{FieldBlock, Version};

use crate::limits::TUNNEL_REST;
use crate::upstream::client_share::ShareGuard;
use crate::upstream::pool::{SelectedEndpoint, UpstreamConn};

/// An established tunnel.
pub(super) struct Tunnel {
    pub(super) conn: UpstreamConn,
    /// Charges the tunnel to its client while it lives.
    pub(super) _share: Option<ShareGuard>,
    /// Counts the tunnel at its endpoint while it lives.
    pub(super) _endpoint: SelectedEndpoint,
    pub(super) idle: Option<Duration>,
}

/// An event of the upstream.
enum TunnelEvent {
    Bytes,
    End,
    Reset,
}

impl Tunnel {
    /// Relays bytes until the tunnel closes.
    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        let conn = &self.conn;
        let upstream_closed = Cell::new(false);
        let mut upload = pin!(self.relay_to_upstream(req, &upstream_closed));
        let mut sending = true;
        loop {
            conn.set_deadline(self.idle);
            let event = poll_fn(|context| {
                if let Err(error) = poll_to_upstream(upload.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(error));
                }
                poll_to_client(conn, reply, context)
            });
            match event.await? {
                TunnelEvent::Bytes => reply.flush().await?,
                // An end without a TLS close_notify may be an attacker's: it is not relayed as a clean close.
                TunnelEvent::End if sending && !may_be_truncated(conn) => break,
                TunnelEvent::End | TunnelEvent::Reset => return Ok(()),
            }
        }
        reply.shut_down_tunnel()?;
        upstream_closed.set(true);
        conn.set_deadline(self.close_timeout(req));
        poll_fn(|context| {
            if let Err(error) = poll_to_upstream(upload.as_mut(), &mut sending, context) {
                return Poll::Ready(Err(error));
            }
            match poll_upstream_closed(conn, context) {
                Poll::Pending if sending => Poll::Pending,
                _ => Poll::Ready(Ok(())),
            }
        })
        .await
    }

    /// Returns how long the client may leave its side open after the upstream has closed.
    fn close_timeout(&self, req: &Request<'_>) -> Option<Duration> {
        match req.version() {
            Version::Http2 => Some(self.idle.map_or(TUNNEL_REST, |idle| idle.min(TUNNEL_REST))),
            Version::Http10 | Version::Http11 => self.idle,
        }
    }

    /// Relays bytes of the client until it closes or the upstream accepts no more. `upstream_closed`: the upstream has closed its side.
    async fn relay_to_upstream(&self, req: &Request<'_>, upstream_closed: &Cell<bool>) -> Result<(), Error> {
        while let Some(bytes) = req.chunk().await? {
            self.conn.set_deadline(if upstream_closed.get() {
                self.close_timeout(req)
            } else {
                self.idle
            });
            let is_sent = match &self.conn {
                UpstreamConn::Http1(pooled) => pooled.stream.write_frame(bytes).await.is_ok(),
                UpstreamConn::H2(channel) => channel.send_body(&bytes).await.is_ok(),
            };
            if !is_sent {
                return Ok(());
            }
            // Progress to the upstream restarts the idle time, too.
            self.conn.set_deadline(if upstream_closed.get() {
                self.close_timeout(req)
            } else {
                self.idle
            });
        }
        match &self.conn {
            UpstreamConn::Http1(pooled) => drop(pooled.stream.shutdown().await),
            UpstreamConn::H2(channel) => drop(channel.finish_body(&FieldBlock::new())),
        }
        Ok(())
    }
}

fn poll_to_upstream(
    upload: Pin<&mut impl Future<Output = Result<(), Error>>>,
    sending: &mut bool,
    context: &mut Context<'_>,
) -> Result<(), Error> {
    if *sending && let Poll::Ready(sent) = upload.poll(context) {
        *sending = false;
        return sent;
    }
    Ok(())
}

/// Relays bytes of the upstream to the client.
fn poll_to_client(
    conn: &UpstreamConn,
    reply: &mut Reply<'_>,
    context: &mut Context<'_>,
) -> Poll<Result<TunnelEvent, Error>> {
    let mut outcome = Ok(());
    let mut relay = |bytes: &[u8]| {
        let bytes = &bytes[..bytes.len().min(SEND_CHUNK_BYTES)];
        outcome = reply.write_buffered(bytes);
        bytes.len()
    };
    let event = match conn {
        UpstreamConn::Http1(pooled) => {
            pooled
                .stream
                .poll_received(context, |bytes| relay(bytes))
                .map(|received| match received {
                    Ok(0) => TunnelEvent::End,
                    Ok(_) => TunnelEvent::Bytes,
                    Err(_) => TunnelEvent::Reset,
                })
        }
        UpstreamConn::H2(channel) => channel.poll_body(context, relay).map(|received| match received {
            Ok(None) => TunnelEvent::End,
            Ok(Some(_)) => TunnelEvent::Bytes,
            Err(_) => TunnelEvent::Reset,
        }),
    };
    event.map(|event| outcome.map(|()| event))
}

/// Returns whether the end may be an attacker's truncation. An HTTP/2 stream has an explicit end.
fn may_be_truncated(conn: &UpstreamConn) -> bool {
    match conn {
        UpstreamConn::Http1(pooled) => pooled.stream.was_cut(),
        UpstreamConn::H2(_) => false,
    }
}

/// Waits until the upstream accepts no more bytes.
fn poll_upstream_closed(conn: &UpstreamConn, context: &mut Context<'_>) -> Poll<()> {
    match conn {
        UpstreamConn::Http1(pooled) => pooled.stream.poll_over(context).map(drop),
        UpstreamConn::H2(channel) => channel.poll_closed(context),
    }
}
