//! The origin of a request: its connection, the client's address, the listener.

use std::net::SocketAddr;

use ringmain_engine::ConnId;

/// The origin of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerInfo {
    pub(crate) conn: ConnId,
    /// `None` for a Unix socket.
    pub(crate) remote: Option<SocketAddr>,
    /// The listener's number, in the order of the calls of `Engine::listen`.
    pub(crate) listener: u32,
    /// Over TLS.
    pub(crate) secure: bool,
}
