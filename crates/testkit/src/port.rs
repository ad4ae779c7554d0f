//! Ports that a test must know before a server listens there.

use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::net::sockopt::set_socket_reuseaddr;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with};

/// A port of the loopback that the kernel gives to no other socket as long as this lives: bound, but not listening. Connections are refused,
/// and a server that names the port (with `SO_REUSEADDR`, as servers do) listens there, as often as the test likes.
#[derive(Debug)]
pub struct Reserved {
    addr: SocketAddr,
    _socket: OwnedFd,
}

impl Reserved {
    /// A port of the kernel's choice.
    #[allow(clippy::new_without_default, reason = "it takes a port")]
    pub fn new() -> Reserved {
        Reserved::on(Ipv4Addr::LOCALHOST)
    }

    fn on(host: Ipv4Addr) -> Reserved {
        let socket = socket_with(
            AddressFamily::INET,
            SocketType::STREAM,
            SocketFlags::CLOEXEC,
            None,
        )
        .expect("a socket");
        set_socket_reuseaddr(&socket, true).expect("a socket option");
        bind(&socket, &SocketAddr::from((host, 0))).expect("a free port");
        let addr = getsockname(&socket).expect("it is bound");
        Reserved {
            addr: SocketAddr::try_from(addr).expect("an internet address"),
            _socket: socket,
        }
    }

    /// The address, of the loopback.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The port alone.
    pub fn port(&self) -> u16 {
        self.addr.port()
    }
}

/// An address of the loopback that no other test or process has: whatever listens on one of its ports was started by the caller.
pub fn own_host() -> Ipv4Addr {
    static HOSTS: AtomicU8 = AtomicU8::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    Ipv4Addr::new(127, 1 + high % 200, low, HOSTS.fetch_add(1, Ordering::Relaxed))
}

/// An address at which nothing listens, unless the caller starts a server there.
pub fn unused() -> SocketAddr {
    // Never a listener: a child of another test may have a copy of the socket until its exec.
    Reserved::on(own_host()).addr()
}
