//! Tunnels: the bytes of a connection after 101, or of an HTTP/2 stream after an extended CONNECT.

use std::future::poll_fn;
use std::task::Poll;

use bytes::Bytes;

use super::Exchange;

impl Exchange {
    /// Turns the connection into a tunnel: the client's bytes are handed over as they arrive, after those already received.
    pub(crate) fn switch_to_tunnel(&self) {
        let mut body = self.body_queue.borrow_mut();
        body.tunnel = true;
        body.progress = None;
        let paused = std::mem::take(&mut body.paused);
        drop(body);
        self.last.set(true);
        let conn = self.conn();
        conn.set_deadline(None);
        if paused {
            conn.resume();
        }
    }

    /// Shuts down the sending side of a tunnel; the client may continue to send.
    pub(crate) fn shut_down_tunnel(&self) {
        self.body_queue.borrow_mut().half_closed = true;
        self.conn().shutdown();
    }

    /// Returns the next bytes of a tunnel; `None` at its end.
    pub(super) async fn tunnel_chunk(&self) -> Option<Bytes> {
        poll_fn(|context| {
            let mut body = self.body_queue.borrow_mut();
            if body.queue.is_empty() {
                let ended = body.client_ended;
                drop(body);
                return if ended {
                    Poll::Ready(None)
                } else {
                    self.wait(context)
                };
            }
            let bytes = Bytes::from(std::mem::take(&mut body.queue));
            let paused = std::mem::take(&mut body.paused);
            drop(body);
            if paused {
                self.conn().resume();
            }
            Poll::Ready(Some(bytes))
        })
        .await
    }

    /// Returns true if the task still has work to do after the connection has closed properly: for the engine a tunnel is closed
    /// once both sides have sent their FIN, but its handler may still hold bytes from the client.
    pub(crate) fn outlives_connection(&self) -> bool {
        let body = self.body_queue.borrow();
        body.half_closed && body.client_ended
    }
}
