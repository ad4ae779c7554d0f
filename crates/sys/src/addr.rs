//! Addresses that a socket can listen on or connect to, and their text form.

use std::net::SocketAddr;
use std::path::PathBuf;

/// Where a stream socket listens or connects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Addr {
    /// IPv4 or IPv6 with a port.
    Inet(SocketAddr),
    /// A Unix socket in the file system.
    Unix(PathBuf),
    /// A Unix socket in Linux's abstract namespace (the name without its leading zero byte).
    Abstract(Vec<u8>),
}
