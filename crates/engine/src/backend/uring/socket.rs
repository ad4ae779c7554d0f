//! What is asked of one socket at once: options, addresses, shutdown, entering the table.
//!
//! A direct descriptor has no number that system calls know, so these go through socket commands
//! (Linux 6.7) or, where there is none, through a descriptor installed for the moment (6.8).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use io_uring::{opcode, squeue, types};
use ringmain_sys::addr::{Addr, SockAddr};
use ringmain_sys::socket;

use super::{DIRECT, Uring};
use crate::backend::{Socket, SocketOption};

/// `IORING_RECVSEND_POLL_FIRST`
const POLL_FIRST: u16 = 1;
/// `IORING_SEND_ZC_REPORT_USAGE`
pub(super) const REPORT_USAGE: u16 = 1 << 3;
/// `IORING_FILE_INDEX_ALLOC`: the kernel picks the table index.
const INDEX_ALLOC: i32 = -1;
const SOCKET_GETSOCKOPT: u32 = 2;

impl Uring {
    /// Moves a descriptor into the ring's table; `ENFILE` when that is full.
    pub(super) fn install(&mut self, fd: OwnedFd) -> io::Result<Socket> {
        let mut name = fd.as_raw_fd();
        let update = opcode::FilesUpdate::new(std::ptr::from_mut(&mut name), 1)
            .offset(INDEX_ALLOC)
            .build();
        // SAFETY: `name` outlives the call, in which the kernel replaces it with the index.
        unsafe { self.ring.call(update)? };
        Ok(Socket(name as u32 | DIRECT))
    }

    /// Runs `body` with a descriptor for the socket, made for the moment if it has none.
    pub(super) fn with_descriptor<T>(
        &mut self,
        socket: Socket,
        body: impl FnOnce(BorrowedFd<'_>) -> io::Result<T>,
    ) -> io::Result<T> {
        if socket.0 & DIRECT == 0 {
            // SAFETY: the worker closes a socket only by `close`, after which it does not name it again.
            return body(unsafe { BorrowedFd::borrow_raw(socket.0 as i32) });
        }
        let install = opcode::FixedFdInstall::new(types::Fixed(socket.0 & !DIRECT), 0).build();
        // SAFETY: points to no memory.
        let fd = unsafe { self.ring.call(install)? };
        // SAFETY: the kernel has just made this descriptor for us.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        body(fd.as_fd())
    }

    pub(super) fn shutdown(&mut self, socket: Socket, how: i32) {
        let done = self.with_descriptor(socket, |fd| {
            if how == libc::SHUT_WR {
                socket::shutdown_write(fd)
            } else {
                socket::shutdown_both(fd)
            }
        });
        let lacks_descriptor = |e: &io::Error| {
            matches!(
                e.raw_os_error(),
                Some(libc::EMFILE | libc::ENFILE | libc::EINVAL | libc::EOPNOTSUPP)
            )
        };
        if done.is_err_and(|e| lacks_descriptor(&e)) {
            // The operation of that name costs a kernel worker thread, so it is the second choice.
            let entry = with_fd!(socket, |fd| opcode::Shutdown::new(fd, how).build());
            self.push_ignored(entry);
        }
    }

    /// `SO_PEERNAME` asks what getpeername(2) asks, but as an option, and wants to be asked for no more
    /// bytes than the address has: first as many as an IPv4 address has, which tell the family.
    pub(super) fn peer_of(&mut self, socket: Socket) -> io::Result<Option<Addr>> {
        if socket.0 & DIRECT == 0 {
            return self.with_descriptor(socket, |fd| socket::peer_addr(fd));
        }
        let first = self.peer_name(socket, size_of::<libc::sockaddr_in>());
        match first {
            Ok(storage) if i32::from(storage.ss_family) == libc::AF_INET => {
                Ok(SockAddr::from_raw(storage, size_of::<libc::sockaddr_in>() as u32).to_addr())
            }
            Ok(storage) if i32::from(storage.ss_family) == libc::AF_INET6 => {
                let len = size_of::<libc::sockaddr_in6>();
                Ok(SockAddr::from_raw(self.peer_name(socket, len)?, len as u32).to_addr())
            }
            // A Unix address may have any length.
            _ => self.with_descriptor(socket, |fd| socket::peer_addr(fd)),
        }
    }

    fn peer_name(&mut self, socket: Socket, len: usize) -> io::Result<libc::sockaddr_storage> {
        // SAFETY: all-zero is a valid (empty) address.
        let mut storage: libc::sockaddr_storage = unsafe { std::mem::zeroed() };
        let (level, name) = (libc::SOL_SOCKET as u32, libc::SO_PEERNAME as u32);
        let value = std::ptr::from_mut(&mut storage).cast::<libc::c_void>();
        let entry = with_fd!(socket, |fd| opcode::SetSockOpt::new(
            fd, level, name, value, len as u32
        )
        .build());
        // SAFETY: the storage outlives the call and is larger than any `len` asked for.
        unsafe { self.ring.call(as_getsockopt(entry))? };
        Ok(storage)
    }

    pub(super) fn set(&mut self, socket: Socket, option: SocketOption) -> io::Result<()> {
        if let SocketOption::ResetOnClose = option {
            return self.set_raw(socket, libc::SOL_SOCKET, libc::SO_LINGER, [1, 0]);
        }
        let (level, name, value) = match option {
            SocketOption::NoDelay(on) => (libc::IPPROTO_TCP, libc::TCP_NODELAY, i32::from(on)),
            SocketOption::NotSentLowWater(bytes) => {
                (libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes as i32)
            }
            SocketOption::SendBuffer(bytes) => (libc::SOL_SOCKET, libc::SO_SNDBUF, bytes as i32),
            SocketOption::ReceiveBuffer(bytes) => (libc::SOL_SOCKET, libc::SO_RCVBUF, bytes as i32),
            SocketOption::KeepAlive(on) => (libc::SOL_SOCKET, libc::SO_KEEPALIVE, i32::from(on)),
            SocketOption::UserTimeout(millis) => (libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, millis as i32),
            SocketOption::ResetOnClose => unreachable!("handled above: its value has two words"),
        };
        self.set_raw(socket, level, name, [value])
    }

    fn set_raw<const N: usize>(
        &mut self,
        socket: Socket,
        level: i32,
        name: i32,
        value: [i32; N],
    ) -> io::Result<()> {
        let bytes = size_of_val(&value) as u32;
        let start = value.as_ptr().cast::<libc::c_void>();
        if let Some(fd) = plain_descriptor(socket) {
            // SAFETY: the value outlives the call and is as large as said.
            let done = unsafe { libc::setsockopt(fd, level, name, start, bytes) };
            return if done < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(())
            };
        }
        let entry = with_fd!(socket, |fd| opcode::SetSockOpt::new(
            fd,
            level as u32,
            name as u32,
            start,
            bytes
        )
        .build());
        // SAFETY: the value outlives the call and is as large as said.
        unsafe { self.ring.call(entry).map(drop) }
    }
}

fn plain_descriptor(socket: Socket) -> Option<i32> {
    (socket.0 & DIRECT == 0).then_some(socket.0 as i32)
}

/// Waits for data instead of trying first: right when none is expected, and it keeps the operation
/// armed when the buffer group is empty.
pub(super) fn poll_first(entry: squeue::Entry) -> squeue::Entry {
    patch(entry, |bytes| {
        // `ioprio`, two bytes at offset 2, carries the flags of receive and send.
        let flags = u16::from_ne_bytes([bytes[2], bytes[3]]) | POLL_FIRST;
        bytes[2..4].copy_from_slice(&flags.to_ne_bytes());
    })
}

/// The bindings know the set command only; the get command has the same layout under another number.
pub(super) fn as_getsockopt(entry: squeue::Entry) -> squeue::Entry {
    // `cmd_op`, four bytes at offset 8.
    patch(entry, |bytes| {
        bytes[8..12].copy_from_slice(&SOCKET_GETSOCKOPT.to_ne_bytes())
    })
}

fn patch(mut entry: squeue::Entry, change: impl FnOnce(&mut [u8; 64])) -> squeue::Entry {
    const { assert!(size_of::<squeue::Entry>() == 64) };
    // SAFETY: an entry is the kernel's 64-byte `struct io_uring_sqe`, valid for any bytes.
    change(unsafe { &mut *std::ptr::from_mut(&mut entry).cast::<[u8; 64]>() });
    entry
}
