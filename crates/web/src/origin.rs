//! Where a request came from: its connection, the client's address, the listener.

use std::net::SocketAddr;

use ringmain_engine::ConnId;

/// Where a request came from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin {
    pub(crate) conn: ConnId,
    /// `None` for a Unix socket.
    pub(crate) remote: Option<SocketAddr>,
    /// The listener's number, in the order in which the engine was given them.
    pub(crate) listener: u32,
    /// By TLS.
    pub(crate) secure: bool,
}
