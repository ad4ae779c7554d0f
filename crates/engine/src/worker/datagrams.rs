//! Datagram sockets of a worker: a bounded queue of received datagrams and the sends in flight.

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use ringmain_sys::addr::Addr;

use super::core::Core;
use super::record::{Datagrams, QueuedDatagram, Record};
use crate::backend::{DatagramInfo, DatagramOptions, Lent, Op, RecvEnd, Slot, Socket};
use crate::limits;

impl Core {
    pub(crate) fn datagrams(&mut self, slot: Slot) -> Option<&mut Datagrams> {
        match self.records.get_mut(slot) {
            Some(Record::Datagrams(datagrams)) => Some(datagrams),
            _ => None,
        }
    }

    pub(crate) fn open_datagrams(&mut self, local: SocketAddr, options: DatagramOptions) -> io::Result<Slot> {
        let socket = self.backend.open_datagram(local, options)?;
        self.insert_datagrams(socket)
    }

    pub(crate) fn adopt_datagrams(&mut self, fd: OwnedFd) -> io::Result<Slot> {
        let socket = self.backend.adopt(fd)?;
        self.insert_datagrams(socket)
    }

    fn insert_datagrams(&mut self, socket: Socket) -> io::Result<Slot> {
        let record = Datagrams {
            socket,
            armed: false,
            cancelled: false,
            closing: false,
            parked: false,
            connecting: false,
            sends_in_flight: 0,
            queue: Default::default(),
            reader: None,
            writer: None,
            error: None,
        };
        match self.records.insert(Record::Datagrams(Box::new(record))) {
            Ok(slot) => {
                self.datagram_sockets += 1;
                self.rearm_datagrams(slot);
                Ok(slot)
            }
            Err(_) => {
                self.close_unnamed(socket);
                Err(io::Error::from_raw_os_error(libc::ENFILE))
            }
        }
    }

    /// Receives while the queue has room; the kernel's socket buffer holds or drops the rest.
    pub(crate) fn rearm_datagrams(&mut self, slot: Slot) {
        let Some(Record::Datagrams(datagrams)) = self.records.get_mut(slot) else {
            return;
        };
        datagrams.parked = false;
        let wants = !datagrams.closing && datagrams.queue.len() < limits::DATAGRAMS_QUEUED;
        if wants && !datagrams.armed {
            datagrams.armed = true;
            datagrams.cancelled = false;
            self.backend.recv_from(slot, datagrams.socket);
        } else if !wants && datagrams.armed && !datagrams.cancelled {
            datagrams.cancelled = true;
            self.backend.cancel(Op::RecvFrom, slot);
        }
    }

    pub(crate) fn on_datagram(
        &mut self,
        slot: Slot,
        mut data: Lent,
        from: Option<SocketAddr>,
        info: DatagramInfo,
        more: bool,
    ) {
        if let Some(Record::Datagrams(datagrams)) = self.records.get_mut(slot) {
            datagrams.armed = more;
            let mut copy = self.datagram_buffers.pop().unwrap_or_default();
            copy.extend_from_slice(data.bytes_mut());
            datagrams.queue.push_back(QueuedDatagram {
                data: copy,
                from,
                info,
            });
            if let Some(reader) = datagrams.reader.take() {
                reader.wake();
            }
        }
        self.backend.give_back(data);
        self.rearm_datagrams(slot);
        self.close_datagrams_if_quiet(slot);
    }

    pub(crate) fn on_datagrams_ended(&mut self, slot: Slot, end: RecvEnd) {
        let Some(datagrams) = self.datagrams(slot) else {
            return;
        };
        datagrams.armed = false;
        match end {
            RecvEnd::Failed(error) => {
                // Receiving goes on when somebody has taken the error: one that lasts must not spin.
                datagrams.fail(error);
            }
            RecvEnd::NoBuffers => {
                datagrams.parked = true;
                self.parked.push_back(slot);
            }
            RecvEnd::Cancelled | RecvEnd::Eof => self.rearm_datagrams(slot),
        }
        self.close_datagrams_if_quiet(slot);
    }

    pub(crate) fn on_datagram_sent(&mut self, slot: Slot, result: io::Result<usize>) {
        let Some(datagrams) = self.datagrams(slot) else {
            return;
        };
        datagrams.sends_in_flight -= 1;
        if let Err(error) = result {
            datagrams.fail(error);
        }
        if let Some(writer) = datagrams.writer.take() {
            writer.wake();
        }
        self.close_datagrams_if_quiet(slot);
    }

    /// Retains the buffer of a datagram that was read for the next one.
    pub(crate) fn recycle_datagram(&mut self, mut buffer: Vec<u8>) {
        let is_small = buffer.capacity() <= limits::DATAGRAMS_POOLED_BYTES;
        if is_small && self.datagram_buffers.len() < limits::DATAGRAMS_POOLED {
            buffer.clear();
            self.datagram_buffers.push(buffer);
        }
    }

    /// The error that the next call reports; receiving goes on once it is taken.
    pub(crate) fn take_datagram_error(&mut self, slot: Slot) -> Option<io::Error> {
        let error = self.datagrams(slot)?.error.take()?;
        self.rearm_datagrams(slot);
        Some(error)
    }

    pub(crate) fn connect_datagrams(&mut self, slot: Slot, peer: SocketAddr) {
        if let Some(Record::Datagrams(datagrams)) = self.records.get_mut(slot) {
            datagrams.connecting = true;
            self.backend.connect(slot, datagrams.socket, &Addr::Inet(peer));
        }
    }

    pub(crate) fn on_datagrams_connected(&mut self, slot: Slot, result: io::Result<()>) {
        let Some(datagrams) = self.datagrams(slot) else {
            return;
        };
        datagrams.connecting = false;
        if let Err(error) = result {
            datagrams.fail(error);
        }
        if let Some(writer) = datagrams.writer.take() {
            writer.wake();
        }
        self.close_datagrams_if_quiet(slot);
    }

    pub(crate) fn close_datagrams(&mut self, slot: Slot) {
        if let Some(datagrams) = self.datagrams(slot) {
            datagrams.closing = true;
            self.rearm_datagrams(slot);
            self.close_datagrams_if_quiet(slot);
        }
    }

    fn close_datagrams_if_quiet(&mut self, slot: Slot) {
        let Some(Record::Datagrams(datagrams)) = self.records.get_mut(slot) else {
            return;
        };
        if datagrams.closing && !datagrams.busy() {
            // Counted as a send so that it is closed once.
            datagrams.sends_in_flight = 1;
            self.backend.close(slot, datagrams.socket);
        }
    }
}

impl Datagrams {
    /// Keeps the first error that nobody has seen, and tells who waits.
    fn fail(&mut self, error: io::Error) {
        self.error.get_or_insert(error);
        for waker in [self.reader.take(), self.writer.take()].into_iter().flatten() {
            waker.wake();
        }
    }

    /// Whether an operation of the kernel still names the socket.
    fn busy(&self) -> bool {
        self.armed || self.connecting || self.sends_in_flight > 0
    }
}
