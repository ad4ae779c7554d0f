//! The operations: tried at once where that is worth it, else driven by readiness.
//!
//! Owns how an operation starts, goes on and ends. Knows sockets and the table, not how readiness
//! is learnt.
//!
//! ```text
//! accept, recv, recv_from:  armed ──readable──▶ one system call per completion ──▶ … ──▶ final
//! send, connect, send_to:   tried ──no room──▶ armed ──writable──▶ tried again ──▶ final
//! ```

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use ringmain_sys::addr::Addr;
use ringmain_sys::datagram::{self, SendControl};
use ringmain_sys::socket;
use rustix::io::retry_on_intr;
use rustix::net::SendFlags;

use super::mail::Parcel;
use super::poller::Watch;
use super::table::{Armed, Pieces, Ready, Waiting, WaitingDatagram};
use super::{Epoll, cancelled, closed_name, would_block};
use crate::backend::{Completion, Op, OutgoingDatagram, RecvEnd, Slot, Socket};
use crate::limits;

impl Epoll {
    /// The next completion that readiness gives in this turn.
    pub(super) fn progress(&mut self) -> Option<Completion> {
        while self.ready_left > 0 {
            let index = *self.ready.front()?;
            let completion = self.advance(index);
            let record = self.table.any_mut(index);
            if record.fd.is_none() || !record.due() {
                record.queued = false;
                self.ready.pop_front();
                self.ready_left -= 1;
            } else if record.share == 0 {
                record.share = limits::EPOLL_SHARE;
                self.ready.rotate_left(1);
                self.ready_left -= 1;
            }
            if completion.is_some() {
                return completion;
            }
        }
        None
    }

    /// One step of one socket: a completion, or readiness disproved.
    fn advance(&mut self, index: u32) -> Option<Completion> {
        let record = self.table.get_mut(index)?;
        if record.armed.has(Armed::WRITERS) && record.ready.has(Ready::WRITE) {
            let completion = self.advance_write(index);
            if completion.is_some() {
                return completion;
            }
        }
        let record = self.table.get_mut(index)?;
        if !record.ready.has(Ready::READABLE) {
            None
        } else if record.armed.has(Armed::RECV) {
            self.advance_recv(index)
        } else if record.armed.has(Armed::ACCEPT) {
            self.advance_accept(index)
        } else if record.armed.has(Armed::RECV_FROM) {
            self.advance_recv_from(index)
        } else {
            None
        }
    }

    fn advance_recv(&mut self, index: u32) -> Option<Completion> {
        let record = self.table.get_mut(index)?;
        let slot = record.slot;
        match socket::recv(record.fd(), &mut self.scratch[..self.receipt]) {
            Ok(0) => {
                record.armed.remove(Armed::RECV);
                Some(Completion::RecvEnded {
                    slot,
                    end: RecvEnd::Eof,
                })
            }
            Ok(count) => {
                if count == self.receipt {
                    record.share = 0;
                } else if !record.probe {
                    // epoll(7): a short receive means drained, and the next byte will be an edge.
                    // If the end is near (Ready::END) the socket stays due all the same.
                    record.ready.remove(Ready::READ);
                }
                Some(Completion::Received {
                    slot,
                    data: self.lend(count),
                    more: true,
                })
            }
            Err(error) if would_block(&error) => {
                record.ready.remove(Ready::READABLE);
                None
            }
            Err(error) => {
                record.armed.remove(Armed::RECV);
                Some(Completion::RecvEnded {
                    slot,
                    end: RecvEnd::Failed(error),
                })
            }
        }
    }

    fn advance_accept(&mut self, index: u32) -> Option<Completion> {
        let record = self.table.get_mut(index)?;
        let slot = record.slot;
        match socket::accept(record.fd()) {
            Ok(fd) => {
                record.share -= 1;
                let probe = record.probe;
                if std::mem::take(&mut record.one) {
                    record.armed.remove(Armed::ACCEPT);
                    self.poller.unwatch(record);
                    let ended = Completion::AcceptEnded { slot, error: None };
                    self.completions.push_back(ended);
                }
                let socket = self.table.insert(fd, probe);
                Some(Completion::Accepted { slot, socket })
            }
            Err(error) if would_block(&error) => {
                record.ready.remove(Ready::READABLE);
                None
            }
            Err(error) if concerns_one_connection(&error) => {
                record.share -= 1;
                None
            }
            Err(error) => {
                record.armed.remove(Armed::ACCEPT);
                self.poller.unwatch(record);
                Some(Completion::AcceptEnded {
                    slot,
                    error: Some(error),
                })
            }
        }
    }

    /// See [`crate::backend::Backend::accept_now`].
    pub(super) fn accept_one(&mut self, listener: Socket) -> io::Result<Option<Socket>> {
        let record = self.table.get_mut(listener.0).ok_or_else(closed_name)?;
        let probe = record.probe;
        loop {
            match socket::accept(record.fd()) {
                Ok(fd) => return Ok(Some(self.table.insert(fd, probe))),
                Err(error) if would_block(&error) => return Ok(None),
                Err(error) if concerns_one_connection(&error) => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn advance_recv_from(&mut self, index: u32) -> Option<Completion> {
        let record = self.table.get_mut(index)?;
        let slot = record.slot;
        match datagram::recv_message(record.fd(), &mut self.scratch) {
            Ok((count, from, info)) => {
                record.share -= 1;
                Some(Completion::Datagram {
                    slot,
                    data: self.lend(count),
                    from,
                    info,
                    more: true,
                })
            }
            Err(error) if would_block(&error) => {
                record.ready.remove(Ready::READABLE);
                None
            }
            Err(error) => {
                record.armed.remove(Armed::RECV_FROM);
                Some(Completion::DatagramsEnded {
                    slot,
                    end: RecvEnd::Failed(error),
                })
            }
        }
    }

    fn advance_write(&mut self, index: u32) -> Option<Completion> {
        let record = self.table.get_mut(index)?;
        let slot = record.slot;
        if record.armed.has(Armed::CONNECT) {
            let result = connect_outcome(record.fd());
            record.armed.remove(Armed::CONNECT);
            return Some(Completion::Connected { slot, result });
        }
        match &mut record.waiting {
            Waiting::Pieces(pieces) => {
                let fd = record.fd.as_ref()?.as_raw_fd();
                let result = send_pieces(fd, pieces);
                if result.as_ref().is_err_and(would_block) {
                    record.ready.remove(Ready::WRITE);
                    return None;
                }
                record.armed.remove(Armed::SEND);
                record.waiting = Waiting::Nothing;
                Some(Completion::Sent {
                    slot,
                    result,
                    held: false,
                })
            }
            Waiting::Datagrams(queue) => {
                let next = queue.front()?;
                let result = datagram::send_message(record.fd.as_ref()?, &next.data, next.to, &next.control);
                if result.as_ref().is_err_and(would_block) {
                    record.ready.remove(Ready::WRITE);
                    return None;
                }
                queue.pop_front();
                if queue.is_empty() {
                    record.armed.remove(Armed::SEND_TO);
                    record.waiting = Waiting::Nothing;
                }
                Some(Completion::DatagramSent { slot, result })
            }
            Waiting::Nothing => None,
        }
    }

    /// Sends what fits; `None` if nothing did and the send now waits.
    pub(super) fn send_or_wait(
        &mut self,
        slot: Slot,
        socket: Socket,
        pieces: &[io::IoSlice<'_>],
    ) -> Option<io::Result<usize>> {
        let Some(fd) = self.table.fd(socket.0) else {
            return Some(Err(closed_name()));
        };
        let result = match pieces {
            [one] => {
                retry_on_intr(|| rustix::net::send(fd, one, SendFlags::NOSIGNAL)).map_err(io::Error::from)
            }
            many => socket::send_vectored(fd, many),
        };
        if !result.as_ref().is_err_and(would_block) {
            return Some(result);
        }
        debug_assert!(pieces.len() <= limits::SEND_PIECES, "{} pieces", pieces.len());
        let empty = libc::iovec {
            iov_base: std::ptr::null_mut(),
            iov_len: 0,
        };
        let mut kept = Pieces {
            iovecs: [empty; limits::SEND_PIECES],
            count: 0,
        };
        // More pieces than allowed are cut off: a short send, which the worker sees in the count.
        for (iovec, piece) in kept.iovecs.iter_mut().zip(pieces) {
            *iovec = libc::iovec {
                iov_base: piece.as_ptr().cast_mut().cast(),
                iov_len: piece.len(),
            };
            kept.count += 1;
        }
        self.wait_for_room(Armed::SEND, slot, socket, Waiting::Pieces(Box::new(kept)))
            .err()
            .map(Err)
    }

    /// Parks an operation until the socket is writable.
    fn wait_for_room(&mut self, op: Armed, slot: Slot, socket: Socket, waiting: Waiting) -> io::Result<()> {
        if let Some(record) = self.table.get_mut(socket.0) {
            record.ready.remove(Ready::WRITE);
        }
        // Watching (anew) reports room that has come about since the attempt.
        self.watch(socket, Watch::ReadWrite)?;
        if let Some(record) = self.table.get_mut(socket.0) {
            record.waiting = waiting;
        }
        self.arm(op, slot, socket);
        Ok(())
    }

    /// Starts to connect; `None` if the outcome is open.
    pub(super) fn connect_or_wait(
        &mut self,
        slot: Slot,
        socket: Socket,
        to: &Addr,
    ) -> Option<io::Result<()>> {
        let Some(fd) = self.table.fd(socket.0) else {
            return Some(Err(closed_name()));
        };
        match socket::connect(fd, to) {
            Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => self
                .wait_for_room(Armed::CONNECT, slot, socket, Waiting::Nothing)
                .err()
                .map(Err),
            result => Some(result),
        }
    }

    /// Sends one datagram; `None` if it now waits behind others or for room.
    pub(super) fn send_to_or_wait(
        &mut self,
        slot: Slot,
        socket: Socket,
        outgoing: &OutgoingDatagram<'_>,
    ) -> Option<io::Result<usize>> {
        let Some(record) = self.table.get_mut(socket.0) else {
            return Some(Err(closed_name()));
        };
        if let Waiting::Datagrams(queue) = &mut record.waiting {
            if queue.len() >= limits::DATAGRAM_SENDS as usize {
                return Some(Err(io::Error::from_raw_os_error(libc::ENOBUFS)));
            }
            queue.push_back(waiting(outgoing));
            return None;
        }
        let control = SendControl::new(outgoing.to, outgoing.source, outgoing.segment);
        let result = datagram::send_message(record.fd(), outgoing.data, outgoing.to, &control);
        if !result.as_ref().is_err_and(would_block) {
            return Some(result);
        }
        let queue = Box::new(VecDeque::from([waiting(outgoing)]));
        self.wait_for_room(Armed::SEND_TO, slot, socket, Waiting::Datagrams(queue))
            .err()
            .map(Err)
    }

    /// See [`crate::backend::Backend::cancel`].
    pub(super) fn cancel_armed(&mut self, op: Op, slot: Slot) {
        let armed = Armed::from(op);
        let Some(index) = self.table.armed(armed, slot) else {
            return;
        };
        let Some(record) = self.table.get_mut(index) else {
            return;
        };
        record.armed.remove(armed);
        let completion = match op {
            Op::Accept => {
                self.poller.unwatch(record);
                Completion::AcceptEnded { slot, error: None }
            }
            Op::Recv => Completion::RecvEnded {
                slot,
                end: RecvEnd::Cancelled,
            },
            Op::RecvFrom => Completion::DatagramsEnded {
                slot,
                end: RecvEnd::Cancelled,
            },
            Op::Connect => Completion::Connected {
                slot,
                result: Err(cancelled()),
            },
            Op::Send => {
                record.waiting = Waiting::Nothing;
                Completion::Sent {
                    slot,
                    result: Err(cancelled()),
                    held: false,
                }
            }
        };
        self.completions.push_back(completion);
    }

    /// See [`crate::backend::Backend::close`].
    pub(super) fn close_now(&mut self, slot: Slot, socket: Socket) {
        if let Some(record) = self.table.get_mut(socket.0) {
            if let Waiting::Datagrams(queue) = &mut record.waiting {
                for _ in queue.drain(..) {
                    let result = Err(cancelled());
                    self.completions
                        .push_back(Completion::DatagramSent { slot, result });
                }
                record.armed.remove(Armed::SEND_TO);
            }
            debug_assert_eq!(
                record.armed,
                Armed::default(),
                "close with operations in flight (L1)"
            );
        }
        // Closing ends the watch too: nobody else holds this description of a stream.
        self.table.remove(socket.0);
        self.completions.push_back(Completion::Closed { slot });
    }

    /// See [`crate::backend::Backend::give`].
    pub(super) fn give_now(&mut self, socket: Socket, worker: usize, tag: u32) -> io::Result<()> {
        let workers = self.group.len();
        if worker >= workers {
            let text = format!("cannot give a connection to worker {worker}: there are {workers}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let record = self.table.get_mut(socket.0).ok_or_else(closed_name)?;
        debug_assert_eq!(
            record.armed,
            Armed::default(),
            "give with operations in flight (G1)"
        );
        // A failed give leaves it unwatched, which its next operation makes good.
        self.poller.unwatch(record);
        record.ready = Ready::default();
        let fd = record.fd.take().ok_or_else(closed_name)?;
        let parcel = Parcel {
            fd,
            tag,
            probe: record.probe,
        };
        match self.group.mailbox(worker).put(parcel) {
            Ok(()) => {
                self.table.release(socket.0);
                Ok(())
            }
            Err(parcel) => {
                record.fd = Some(parcel.fd);
                Err(io::Error::from_raw_os_error(libc::ENOBUFS))
            }
        }
    }
}

/// How an attempt to connect ended.
fn connect_outcome(fd: BorrowedFd<'_>) -> io::Result<()> {
    if let Some(error) = socket::take_error(fd)? {
        return Err(error);
    }
    // No error, yet it may have been shut down: only a peer makes it a connection.
    socket::peer_addr(fd).map(drop)
}

/// Errors that a waiting connection brought with it (accept(2), "Error handling"), as opposed to the listener's.
fn concerns_one_connection(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(
            libc::ECONNABORTED
                | libc::EPROTO
                | libc::ENETDOWN
                | libc::ENOPROTOOPT
                | libc::EHOSTDOWN
                | libc::ENONET
                | libc::EHOSTUNREACH
                | libc::ENETUNREACH
        )
    )
}

fn waiting(outgoing: &OutgoingDatagram<'_>) -> WaitingDatagram {
    WaitingDatagram {
        to: outgoing.to,
        control: SendControl::new(outgoing.to, outgoing.source, outgoing.segment),
        data: outgoing.data.into(),
    }
}

fn send_pieces(fd: i32, pieces: &mut Pieces) -> io::Result<usize> {
    loop {
        // SAFETY: a message header of zeroes is a valid one without name, pieces and ancillary data.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = pieces.iovecs.as_mut_ptr();
        message.msg_iovlen = pieces.count as _;
        // SAFETY: the pieces point to memory that the caller of `send` keeps valid until the final
        // completion, which has not been given yet.
        let count = unsafe { libc::sendmsg(fd, &message, libc::MSG_NOSIGNAL) };
        if let Ok(count) = usize::try_from(count) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}
