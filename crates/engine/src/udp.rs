//! Datagram sockets for asynchronous code.
//!
//! What the kernel reports late (a send that failed, an ICMP error) is told once, at the next call of whatever
//! kind; the socket works on. One task may receive while another sends. Knows nothing of what is in the datagrams.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::task::Poll;

use ringmain_sys::addr::Addr;

use crate::backend::Slot;
use crate::limits;
use crate::worker::cx::{Cx, keep_waker};

/// A bound datagram socket; dropping it closes it.
pub struct Udp {
    cx: Cx,
    slot: Slot,
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Udp({}.{})", self.slot.index, self.slot.generation)
    }
}

impl Cx {
    /// Opens a datagram socket; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// As `socket(2)` and `bind(2)`.
    pub fn bind_udp(&self, local: SocketAddr) -> io::Result<Udp> {
        let slot = self.core().open_datagrams(local)?;
        Ok(Udp {
            cx: self.clone(),
            slot,
        })
    }
}

impl Udp {
    /// Binds the socket to one peer: only its datagrams are received, and its ICMP errors ("connection refused")
    /// are reported, which Linux keeps from a socket without a peer.
    ///
    /// # Errors
    /// As `connect(2)`, and the error of an earlier send.
    pub async fn connect(&self, peer: SocketAddr) -> io::Result<()> {
        let mut begun = false;
        poll_fn(|context| {
            let mut core = self.cx.core();
            let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
            // One attempt at a time, also after one whose future was dropped.
            if !datagrams.connecting && begun {
                return Poll::Ready(core.take_datagram_error(self.slot).map_or(Ok(()), Err));
            }
            keep_waker(&mut datagrams.writer, context.waker());
            if !datagrams.connecting {
                begun = true;
                core.connect_datagrams(self.slot, peer);
            }
            Poll::Pending
        })
        .await
    }

    /// The next datagram and its sender (`None` if the kernel gave no internet address).
    ///
    /// Up to [`limits::DATAGRAMS_QUEUED`] wait here, then in the kernel's socket buffer.
    ///
    /// # Errors
    /// What the socket reports, such as an ICMP error of an earlier send.
    pub async fn recv_from(&self) -> io::Result<(Vec<u8>, Option<SocketAddr>)> {
        poll_fn(|context| {
            let mut core = self.cx.core();
            let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
            if let Some(datagram) = datagrams.queue.pop_front() {
                core.rearm_datagrams(self.slot);
                return Poll::Ready(Ok(datagram));
            }
            if let Some(error) = core.take_datagram_error(self.slot) {
                return Poll::Ready(Err(error));
            }
            let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
            keep_waker(&mut datagrams.reader, context.waker());
            Poll::Pending
        })
        .await
    }

    /// Queues one datagram; waits while [`limits::DATAGRAM_SENDS`] are in flight.
    ///
    /// # Errors
    /// `InvalidInput` above [`limits::DATAGRAM_BYTES`]; the error of an earlier send, and then this datagram is
    /// not sent.
    pub async fn send_to(&self, data: &[u8], to: SocketAddr) -> io::Result<()> {
        if data.len() > limits::DATAGRAM_BYTES {
            let text = format!("a datagram carries at most {} bytes", limits::DATAGRAM_BYTES);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        poll_fn(|context| {
            let core = &mut *self.cx.core();
            if let Some(error) = core.take_datagram_error(self.slot) {
                return Poll::Ready(Err(error));
            }
            let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
            if datagrams.sends_in_flight >= limits::DATAGRAM_SENDS {
                keep_waker(&mut datagrams.writer, context.waker());
                return Poll::Pending;
            }
            datagrams.sends_in_flight += 1;
            let socket = datagrams.socket;
            core.backend.send_to(self.slot, socket, to, data);
            Poll::Ready(Ok(()))
        })
        .await
    }

    /// The local address.
    ///
    /// # Errors
    /// As `getsockname(2)`.
    pub fn local_addr(&self) -> io::Result<Option<Addr>> {
        let core = &mut *self.cx.core();
        let socket = core
            .datagrams(self.slot)
            .expect("lives as long as this handle")
            .socket;
        core.backend.local_addr(socket)
    }
}

impl Drop for Udp {
    fn drop(&mut self) {
        self.cx.core().close_datagrams(self.slot);
    }
}
