//! Listening sockets: opening them, and saying what to do when that fails.
//!
//! Options that connections inherit are set on the listener, so that an accepted socket needs no
//! further call. Knows nothing of who accepts.

mod diag;
mod error;
mod owner;
mod steer;
mod unix;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;

use rustix::net::{SocketType, sockopt};

use crate::addr::Addr;
use crate::socket;

pub use error::ListenError;
pub use owner::{OwnerError, owner};
pub use steer::attach_cpu_steering;
pub use unix::unlink_if_ours;

/// How a listener is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    /// Connections that may wait to be accepted. The kernel silently clamps it by the sysctl
    /// `net.core.somaxconn`.
    pub backlog: u32,
    /// Lets several listeners share the address; each connection goes to one of them
    /// (`SO_REUSEPORT`). Ignored for Unix sockets, which are shared by duplicating the descriptor.
    pub reuse_port: bool,
    /// An IPv6 listener refuses IPv4. When false, `[::]` serves both.
    pub v6_only: bool,
    /// Permission bits of a Unix socket's file; without them the umask decides.
    pub unix_mode: Option<u32>,
    /// User and group of a Unix socket's file, as [`owner`] gives them; `None` leaves one alone.
    pub unix_owner: Option<(Option<u32>, Option<u32>)>,
    /// `SO_RCVBUF` of the connections, bytes (the kernel doubles it). Ignored for Unix sockets, which do not
    /// inherit it.
    pub receive_buffer: Option<u32>,
    /// `SO_SNDBUF` of the connections, bytes (the kernel doubles it). Ignored for Unix sockets, which do not
    /// inherit it.
    pub send_buffer: Option<u32>,
    /// `TCP_NOTSENT_LOWAT` of the connections, bytes. Ignored for Unix sockets, which have none.
    pub notsent_lowat: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> ListenOptions {
        ListenOptions {
            backlog: 4096,
            reuse_port: false,
            v6_only: false,
            unix_mode: None,
            unix_owner: None,
            receive_buffer: None,
            send_buffer: None,
            notsent_lowat: None,
        }
    }
}

/// Opens a listener: non-blocking, closed on exec; its TCP connections inherit `TCP_NODELAY`.
///
/// A Unix socket's file that nobody listens on any more is replaced. Starters that take the same path at
/// the same time exclude each other by a lock on `PATH.lock`, which exists only meanwhile.
///
/// # Errors
/// What failed and what to do about it, in one line.
pub fn listen(addr: &Addr, options: &ListenOptions) -> Result<OwnedFd, ListenError> {
    match addr {
        Addr::Inet(inet) => {
            listen_inet(addr, inet, options).map_err(|error| ListenError::inet(addr, inet, error))
        }
        Addr::Unix(path) => unix::listen(addr, path, options),
        Addr::Abstract(_) => listen_abstract(addr, options).map_err(|error| ListenError::unix(addr, error)),
    }
}

fn listen_inet(addr: &Addr, inet: &SocketAddr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = socket::open(addr, SocketType::STREAM)?;
    // Without it a restart fails for a minute while old connections are in TIME_WAIT; a listener that is
    // alive still keeps its port.
    sockopt::set_socket_reuseaddr(&fd, true)?;
    if options.reuse_port {
        sockopt::set_socket_reuseport(&fd, true)?;
    }
    if inet.is_ipv6() {
        sockopt::set_ipv6_v6only(&fd, options.v6_only)?;
    }
    socket::set_nodelay(&fd, true)?;
    if let Some(bytes) = options.receive_buffer {
        socket::set_receive_buffer(&fd, bytes)?;
    }
    if let Some(bytes) = options.send_buffer {
        socket::set_send_buffer(&fd, bytes)?;
    }
    if let Some(bytes) = options.notsent_lowat {
        socket::set_notsent_lowat(&fd, bytes)?;
    }
    rustix::net::bind(&fd, &addr.to_sockaddr()?)?;
    start(&fd, options)?;
    Ok(fd)
}

fn listen_abstract(addr: &Addr, options: &ListenOptions) -> io::Result<OwnedFd> {
    let fd = socket::open(addr, SocketType::STREAM)?;
    rustix::net::bind(&fd, &addr.to_sockaddr()?)?;
    start(&fd, options)?;
    Ok(fd)
}

fn start(fd: &OwnedFd, options: &ListenOptions) -> io::Result<()> {
    let backlog = i32::try_from(options.backlog).unwrap_or(i32::MAX);
    Ok(rustix::net::listen(fd, backlog)?)
}
