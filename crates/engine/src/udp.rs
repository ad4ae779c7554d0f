//! Datagram sockets for asynchronous code.
//!
//! The kernel reports some errors late (a send that failed, an ICMP error): once, at the next call of any kind but [`Udp::try_send`];
//! the socket remains usable. One task may receive while another sends. Knows no payload.

use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use ringmain_sys::addr::Addr;
use ringmain_sys::{datagram, socket};

use crate::backend::Slot;
pub use crate::backend::{DatagramInfo, DatagramOptions, OutgoingDatagram};
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

/// One UDP address, bound once for each worker ([`DatagramOptions::shared`]); dropping it closes the sockets.
#[derive(Debug)]
pub struct UdpGroup {
    /// The address, with the port that the kernel has chosen.
    pub addr: SocketAddr,
    /// The sockets, in worker order. The kernel receives datagrams for each from now on.
    pub sockets: Vec<OwnedFd>,
}

impl UdpGroup {
    /// Binds an address for so many workers, on any thread. `exclusive`: fails if a socket of this user has the address already, which
    /// would silently be joined otherwise.
    ///
    /// # Errors
    /// As `socket(2)`, `setsockopt(2)` and `bind(2)`.
    pub fn bind(addr: SocketAddr, workers: usize, exclusive: bool) -> io::Result<UdpGroup> {
        let options = DatagramOptions {
            shared: true,
            local_address: addr.ip().is_unspecified(),
            coalesce: true,
        };
        if exclusive && addr.port() != 0 {
            drop(datagram::open(addr, DatagramOptions::default())?);
        }
        let first = datagram::open(addr, options)?;
        let bound = match socket::local_addr(&first)? {
            Some(Addr::Inet(bound)) => bound,
            _ => addr,
        };
        let mut sockets = vec![first];
        for _ in 1..workers {
            sockets.push(datagram::open(bound, options)?);
        }
        Ok(UdpGroup { addr: bound, sockets })
    }
}

impl Cx {
    /// Opens a datagram socket; port 0 lets the kernel choose.
    ///
    /// # Errors
    /// As `socket(2)` and `bind(2)`.
    pub fn bind_udp(&self, local: SocketAddr) -> io::Result<Udp> {
        self.bind_udp_with(local, DatagramOptions::default())
    }

    /// Opens a datagram socket with options, as [`Cx::bind_udp`] does.
    ///
    /// # Errors
    /// As `socket(2)`, `setsockopt(2)` and `bind(2)`.
    pub fn bind_udp_with(&self, local: SocketAddr, options: DatagramOptions) -> io::Result<Udp> {
        let slot = self.core().open_datagrams(local, options)?;
        Ok(Udp {
            cx: self.clone(),
            slot,
        })
    }

    /// Takes over a bound datagram socket, such as one of a group that shares an address. On error it is closed.
    ///
    /// # Errors
    /// `ENFILE`: the worker's table is full; `Unsupported` in a simulation.
    pub fn adopt_udp(&self, fd: OwnedFd) -> io::Result<Udp> {
        let slot = self.core().adopt_datagrams(fd)?;
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
                return Poll::Ready(Ok((datagram.data, datagram.from)));
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

    /// Passes the next datagram to `read`, with its sender (`None` if the kernel reported no internet address), without an allocation.
    /// With [`DatagramOptions::coalesce`] it may be several, see [`DatagramInfo::segment`]. `read` may use the worker.
    ///
    /// Ready with an error that the socket reports, such as an ICMP error; then it can be called again. Datagrams that had arrived
    /// before the error are passed first.
    pub fn poll_datagram<T>(
        &self,
        context: &mut Context<'_>,
        read: impl FnOnce(&mut [u8], Option<SocketAddr>, DatagramInfo) -> T,
    ) -> Poll<io::Result<T>> {
        let mut core = self.cx.core();
        let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
        if let Some(mut datagram) = datagrams.queue.pop_front() {
            core.rearm_datagrams(self.slot);
            drop(core);
            let read = read(&mut datagram.data, datagram.from, datagram.info);
            self.cx.core().recycle_datagram(datagram.data);
            return Poll::Ready(Ok(read));
        }
        if let Some(error) = core.take_datagram_error(self.slot) {
            return Poll::Ready(Err(error));
        }
        let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
        keep_waker(&mut datagrams.reader, context.waker());
        Poll::Pending
    }

    /// Queues a datagram, or several of one size, without waiting. The errors of earlier sends are left to [`Udp::poll_datagram`].
    ///
    /// # Errors
    /// `WouldBlock` while [`limits::DATAGRAM_SENDS`] are in flight; `InvalidInput` above [`limits::DATAGRAM_BYTES`] or
    /// [`limits::DATAGRAM_SEGMENTS`].
    pub fn try_send(&self, datagram: &OutgoingDatagram<'_>) -> io::Result<()> {
        let segments = datagram.segment.map_or(1, |size| match usize::from(size) {
            0 => usize::MAX,
            size => datagram.data.len().div_ceil(size),
        });
        if datagram.data.len() > limits::DATAGRAM_BYTES || segments > limits::DATAGRAM_SEGMENTS {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let core = &mut *self.cx.core();
        let datagrams = core.datagrams(self.slot).expect("lives as long as this handle");
        if datagrams.sends_in_flight >= limits::DATAGRAM_SENDS {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        datagrams.sends_in_flight += 1;
        let socket = datagrams.socket;
        core.backend.send_to(self.slot, socket, datagram);
        Ok(())
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
            core.backend
                .send_to(self.slot, socket, &OutgoingDatagram::new(to, data));
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
