//! A connection after a switch of protocols: relays bytes in both directions until both sides have closed, the upstream fails, or the idle
//! time expires.
//!
//! ```text
//!    ┌─ its turn in a shutdown, frame complete ─ Close 1012 to the client ─▶ Closing ─ upstream closes, TUNNEL_CLOSE ─▶ closed
//! Both ─┬─ client closes, FIN to the upstream ─▶ Down ─ upstream closes ─┬─▶ closed
//!       └─ upstream closes, FIN to the client ─▶ Up ─── client closes ───┘
//! ```
//!
//! A side that has closed still receives the rest from the other. A client on an HTTP/2 stream must close its side within [`TUNNEL_REST`]:
//! the stream carries a WebSocket, in which nothing follows the server's close, and some browsers never close such a stream.
//!
//! WebSockets are closed in a shutdown at an even rate ([`Cx::drain_turn`](ringmain_engine::Cx::drain_turn)), since their
//! clients reconnect. The client's reply, a Close frame with the same code, reaches the upstream as its notification. Tunnels of
//! other protocols are cut at an even rate at the end of the shutdown's time ([`Cx::last_drain_turn`](ringmain_engine::Cx::last_drain_turn)).
//!
//! [`TUNNEL_REST`]: crate::limits::TUNNEL_REST

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use ringmain_engine::DrainTurn;
use ringmain_web::limits::SEND_CHUNK_BYTES;
use ringmain_web::{Error, Reply, Request};
use ringmain_wire::h1::{FieldBlock, Version};
use ringmain_wire::ws::FrameTracker;

use super::request::WEBSOCKET;
use crate::limits::{TUNNEL_CLOSE, TUNNEL_REST};
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
    /// It is this WebSocket's turn to end in a shutdown.
    DrainTurn,
    /// It is the turn of a tunnel of another protocol.
    Cut,
}

/// A Close frame with code 1012, "service restart": clients reconnect (RFC 6455 §5.5.1, IANA's registry of close codes).
const SERVICE_RESTART: [u8; 4] = [0x88, 2, 0x03, 0xF4];

/// A WebSocket whose frames to the client are followed.
struct TrackedSocket {
    frames: FrameTracker,
    turn: DrainTurn,
    /// The turn has arrived: a Close frame follows the current frame.
    is_due: bool,
}

impl TrackedSocket {
    fn new(req: &Request<'_>) -> Option<TrackedSocket> {
        let upgrade = req.head().upgrade;
        let is_websocket =
            upgrade.is_some_and(|protocol| protocol.eq_ignore_ascii_case(WEBSOCKET.as_bytes()));
        is_websocket.then(|| TrackedSocket {
            frames: FrameTracker::default(),
            turn: req.cx().drain_turn(),
            is_due: false,
        })
    }

    /// Returns whether the Close frame can be sent now. After the upstream's own no other may follow.
    fn can_close(&self) -> bool {
        self.is_due && self.frames.is_at_boundary() && !self.frames.has_close()
    }

    fn poll_turn(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if self.is_due {
            return Poll::Pending;
        }
        let turn = Pin::new(&mut self.turn).poll(context);
        self.is_due = turn.is_ready();
        turn
    }

    /// Follows bytes to the client, and returns how many may be sent before the Close frame.
    fn admit(&mut self, bytes: &[u8]) -> usize {
        if self.is_due && !self.frames.has_close() {
            return self.frames.advance_to_boundary(bytes);
        }
        self.frames.advance(bytes);
        bytes.len()
    }
}

impl Tunnel {
    /// Relays bytes until the tunnel closes.
    pub(super) async fn run(self, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
        let conn = &self.conn;
        let idle = Cell::new(self.idle);
        let mut upload = pin!(self.relay_to_upstream(req, &idle));
        let mut sending = true;
        let mut socket = TrackedSocket::new(req);
        let mut cut_turn = socket.is_none().then(|| req.cx().last_drain_turn());
        let mut is_closing = false;
        loop {
            conn.set_deadline(idle.get());
            let event = poll_fn(|context| {
                if let Err(error) = poll_to_upstream(upload.as_mut(), &mut sending, context) {
                    return Poll::Ready(Err(error));
                }
                if let Some(socket) = &mut socket
                    && socket.poll_turn(context).is_ready()
                {
                    return Poll::Ready(Ok(TunnelEvent::DrainTurn));
                }
                if let Some(turn) = &mut cut_turn
                    && Pin::new(turn).poll(context).is_ready()
                {
                    return Poll::Ready(Ok(TunnelEvent::Cut));
                }
                poll_to_client(conn, reply, socket.as_mut(), context)
            });
            match event.await? {
                TunnelEvent::Bytes => reply.flush().await?,
                TunnelEvent::DrainTurn => {}
                // An end without a TLS close_notify may be an attacker's: it is not relayed as a clean close.
                TunnelEvent::End if sending && !may_be_truncated(conn) => break,
                TunnelEvent::End | TunnelEvent::Reset | TunnelEvent::Cut => return Ok(()),
            }
            if socket.as_ref().is_some_and(TrackedSocket::can_close) {
                reply.write_buffered(&SERVICE_RESTART)?;
                reply.flush().await?;
                is_closing = true;
                idle.set(Some(TUNNEL_CLOSE));
                conn.set_deadline(idle.get());
                poll_fn(|context| {
                    if let Err(error) = poll_to_upstream(upload.as_mut(), &mut sending, context) {
                        return Poll::Ready(Err(error));
                    }
                    poll_discarding(conn, context).map(Ok)
                })
                .await?;
                break;
            }
        }
        reply.shut_down_tunnel()?;
        if !is_closing {
            idle.set(self.close_timeout(req));
        }
        conn.set_deadline(idle.get());
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

    /// Relays bytes of the client until it closes or the upstream accepts no more. `idle`: the time without progress after which the tunnel
    /// closes.
    async fn relay_to_upstream(&self, req: &Request<'_>, idle: &Cell<Option<Duration>>) -> Result<(), Error> {
        while let Some(bytes) = req.chunk().await? {
            self.conn.set_deadline(idle.get());
            let is_sent = match &self.conn {
                UpstreamConn::Http1(pooled) => pooled.stream.write_frame(bytes).await.is_ok(),
                UpstreamConn::H2(channel) => channel.send_body(&bytes).await.is_ok(),
            };
            if !is_sent {
                return Ok(());
            }
            // Progress to the upstream restarts the idle time, too.
            self.conn.set_deadline(idle.get());
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
    mut socket: Option<&mut TrackedSocket>,
    context: &mut Context<'_>,
) -> Poll<Result<TunnelEvent, Error>> {
    let mut outcome = Ok(());
    let mut relay = |bytes: &[u8]| {
        let mut bytes = &bytes[..bytes.len().min(SEND_CHUNK_BYTES)];
        if let Some(socket) = &mut socket {
            bytes = &bytes[..socket.admit(bytes)];
        }
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

/// Drops bytes of the upstream until it ends.
fn poll_discarding(conn: &UpstreamConn, context: &mut Context<'_>) -> Poll<()> {
    loop {
        let has_ended = match conn {
            UpstreamConn::Http1(pooled) => {
                let received = pooled.stream.poll_received(context, |bytes| bytes.len());
                received.map(|received| !matches!(received, Ok(1..)))
            }
            UpstreamConn::H2(channel) => {
                let received = channel.poll_body(context, |bytes| bytes.len());
                received.map(|received| !matches!(received, Ok(Some(_))))
            }
        };
        match has_ended {
            Poll::Ready(true) => return Poll::Ready(()),
            Poll::Ready(false) => {}
            Poll::Pending => return Poll::Pending,
        }
    }
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
