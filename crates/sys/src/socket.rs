//! Stream sockets: opening, moving bytes, options, addresses.
//!
//! Every descriptor made here is non-blocking and closed on exec. Calls interrupted by a signal
//! are repeated, so that nobody above sees `EINTR`. Knows nothing of readiness or completion.

use std::io::{self, IoSlice};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, SocketAddrAny, SocketFlags, SocketType, ipproto,
    sockopt,
};

use crate::addr::{self, Addr};

const FLAGS: SocketFlags = SocketFlags::NONBLOCK.union(SocketFlags::CLOEXEC);

/// Opens an unconnected stream socket that fits `to`, bound to `source` if given.
///
/// Internet sockets get `TCP_NODELAY`. A source with port 0 takes its port at connect time
/// (`IP_BIND_ADDRESS_NO_PORT`), so that ports are limited per destination and not per host.
///
/// # Errors
/// As `socket(2)` and `bind(2)`; `InvalidInput` if `source` is of another family than `to`.
pub fn stream(to: &Addr, source: Option<&Addr>) -> io::Result<OwnedFd> {
    let fd = open(to, SocketType::STREAM)?;
    if matches!(to, Addr::Inet(_)) {
        set_nodelay(&fd, true)?;
    }
    if let Some(source) = source {
        if source.family() != to.family() {
            let text = format!("the source address {source} is of another family than {to}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        if matches!(source, Addr::Inet(inet) if inet.port() == 0) {
            set_int(&fd, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)?;
        }
        rustix::net::bind(&fd, &source.to_sockaddr()?)?;
    }
    Ok(fd)
}

/// Starts to connect. On a non-blocking internet socket the usual answer is the error
/// `EINPROGRESS`: writability then tells the end, [`take_error`] the outcome. A full Unix
/// listener answers `EAGAIN`, and nothing has begun.
///
/// # Errors
/// As `connect(2)`, `EINPROGRESS` included.
pub fn connect(fd: impl AsFd, to: &Addr) -> io::Result<()> {
    let to = to.to_sockaddr()?;
    match rustix::net::connect(&fd, &to) {
        // The attempt goes on in the background after a signal; repeating it would say EALREADY.
        Err(Errno::INTR) => Err(Errno::INPROGRESS.into()),
        result => Ok(result?),
    }
}

pub(crate) fn open(addr: &Addr, kind: SocketType) -> io::Result<OwnedFd> {
    let protocol = match (addr, kind) {
        (Addr::Inet(_), SocketType::STREAM) => Some(ipproto::TCP),
        _ => None,
    };
    Ok(rustix::net::socket_with(addr.family(), kind, FLAGS, protocol)?)
}

/// Takes one waiting connection, non-blocking and closed on exec.
///
/// # Errors
/// As `accept4(2)`: `EAGAIN` when none waits, `EMFILE` and `ENFILE` when a table is full.
pub fn accept(listener: impl AsFd) -> io::Result<OwnedFd> {
    let listener = listener.as_fd();
    Ok(retry_on_intr(|| rustix::net::accept_with(listener, FLAGS))?)
}

/// Receives into `buffer`; 0 bytes mean the end of the stream.
///
/// # Errors
/// As `recv(2)`: `EAGAIN` when nothing is there.
pub fn recv(fd: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let fd = fd.as_fd();
    let (count, _) = retry_on_intr(|| rustix::net::recv(fd, &mut *buffer, RecvFlags::empty()))?;
    Ok(count)
}

/// Sends the pieces in order and returns how many bytes the kernel took. Never raises `SIGPIPE`.
///
/// # Errors
/// As `sendmsg(2)`: `EAGAIN` when the socket's buffer is full, `EMSGSIZE` beyond 1024 pieces.
pub fn send_vectored(fd: impl AsFd, pieces: &[IoSlice<'_>]) -> io::Result<usize> {
    let fd = fd.as_fd();
    let mut none = SendAncillaryBuffer::default();
    Ok(retry_on_intr(|| {
        rustix::net::sendmsg(fd, pieces, &mut none, SendFlags::NOSIGNAL)
    })?)
}

/// The peer's address; `None` for an unnamed Unix socket.
///
/// # Errors
/// As `getpeername(2)`: `ENOTCONN` once the connection is gone.
pub fn peer_addr(fd: impl AsFd) -> io::Result<Option<Addr>> {
    Ok(rustix::net::getpeername(fd)?.and_then(|any: SocketAddrAny| addr::from_any(&any)))
}

/// The socket's own address; `None` for an unnamed Unix socket.
///
/// # Errors
/// As `getsockname(2)`.
pub fn local_addr(fd: impl AsFd) -> io::Result<Option<Addr>> {
    Ok(addr::from_any(&rustix::net::getsockname(fd)?))
}

/// The socket's pending error, which is thereby cleared; `None` if there is none.
///
/// # Errors
/// As `getsockopt(2)`.
pub fn take_error(fd: impl AsFd) -> io::Result<Option<io::Error>> {
    Ok(sockopt::socket_error(fd)?.err().map(io::Error::from))
}

/// Ends our direction once what the kernel holds is sent (FIN).
///
/// # Errors
/// As `shutdown(2)`: `ENOTCONN` once the connection is gone.
pub fn shutdown_write(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Write)?)
}

/// Ends both directions.
///
/// # Errors
/// As `shutdown(2)`: `ENOTCONN` once the connection is gone.
pub fn shutdown_both(fd: impl AsFd) -> io::Result<()> {
    Ok(rustix::net::shutdown(fd, Shutdown::Both)?)
}

/// Sets `TCP_NODELAY`: small writes leave at once.
///
/// # Errors
/// As `setsockopt(2)`: `EOPNOTSUPP` on a Unix socket.
pub fn set_nodelay(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(fd, on)?)
}

/// Sets `TCP_NOTSENT_LOWAT`: how many unsent bytes the kernel holds before the socket stops being writable.
///
/// # Errors
/// As `setsockopt(2)`: `EOPNOTSUPP` on a Unix socket.
pub fn set_notsent_lowat(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, clamp(bytes))
}

/// Sets `TCP_USER_TIMEOUT` in milliseconds: how long sent bytes may stay unacknowledged before the kernel closes the connection.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_user_timeout(fd: impl AsFd, millis: u32) -> io::Result<()> {
    set_int(fd, libc::IPPROTO_TCP, libc::TCP_USER_TIMEOUT, clamp(millis))
}

/// Sets `SO_SNDBUF` in bytes. The kernel doubles it, clamps it by `net.core.wmem_max` and stops tuning it itself.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_send_buffer(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, clamp(bytes))
}

/// Sets `SO_RCVBUF` in bytes. The kernel doubles it, clamps it by `net.core.rmem_max` and stops tuning it itself.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_receive_buffer(fd: impl AsFd, bytes: u32) -> io::Result<()> {
    set_int(fd, libc::SOL_SOCKET, libc::SO_RCVBUF, clamp(bytes))
}

/// Sets `SO_KEEPALIVE`: the kernel probes idle connections (`net.ipv4.tcp_keepalive_time` seconds).
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_keepalive(fd: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(fd, on)?)
}

/// Sets `SO_LINGER` to zero seconds: close drops unsent bytes and sends RST.
///
/// # Errors
/// As `setsockopt(2)`.
pub fn set_reset_on_close(fd: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_linger(fd, Some(Duration::ZERO))?)
}

/// The kernel takes an `int`; anything above is as good as the largest one.
fn clamp(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}

pub(crate) fn set_int(fd: impl AsFd, level: i32, name: i32, value: i32) -> io::Result<()> {
    set_raw(fd, level, name, &value)
}

/// `setsockopt(2)` for what rustix does not wrap. `T` must be the option's C structure.
pub(crate) fn set_raw<T>(fd: impl AsFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    let fd = fd.as_fd().as_raw_fd();
    // SAFETY: pointer and length describe `value`; the kernel only reads it during the call.
    let status = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            std::ptr::from_ref(value).cast(),
            size_of::<T>() as u32,
        )
    };
    if status == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
