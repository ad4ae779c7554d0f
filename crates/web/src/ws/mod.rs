//! WebSockets of an application: the trait that an author implements ([`Socket`]), the handle that sends ([`Ws`]), the check of
//! origins.
//!
//! Owns both halves of an open socket on any transport: a connection that was switched (RFC 6455), or an HTTP/2 stream (RFC 8441).
//! Knows nothing of HTTP but the request that opens a socket; phases of the connection are the server's (`server/websocket.rs`,
//! `server/http2/websocket.rs`), frames the codec's.

mod allowed_origins;
mod frame;
mod options;
mod sender;
mod session;
mod stream;
mod transport;
mod worker_state;

pub use ringmain_wire::ws::{CloseCode, Deflater, FaultKind, Message, Window};

pub use self::allowed_origins::Origins;
pub use self::frame::WsFrame;
pub use self::options::WsOptions;
pub(crate) use self::options::{SocketFactory, Upgrade, WsRoute};
pub use self::sender::Ws;
pub(crate) use self::session::{IntoSession, WsSession};
pub(crate) use self::stream::AsyncSocketHandler;
pub use self::stream::{OwnedMessage, WsStream};
pub(crate) use self::transport::WsTransport;
pub(crate) use self::worker_state::WsWorkerState;

use crate::http::error::Result;

/// The application's side of one open WebSocket: receives its events on its worker's thread. It must not block. Code that waits
/// runs as a task ([`Cx::spawn`](ringmain_engine::Cx::spawn)) that holds a clone of the [`Ws`], or as a handler of
/// [`App::ws_async`](crate::App::ws_async).
///
/// A panic closes the socket with 1011; other sockets are not affected.
pub trait Socket: 'static {
    /// Called after the handshake: messages may be sent.
    ///
    /// # Errors
    /// As [`Socket::message`].
    fn opened(&mut self, ws: &Ws) -> Result {
        let _ = ws;
        Ok(())
    }

    /// Called for each complete message, also for one in flight when this end closed.
    ///
    /// # Errors
    /// An error closes the socket: a status below 500 with 1008 and the detail (up to 123 bytes) as the reason, any other with
    /// 1011; its text is logged.
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result;

    /// Called when the client has taken the queued bytes, after [`Ws::is_full`] returned true.
    ///
    /// # Errors
    /// As [`Socket::message`].
    fn drained(&mut self, ws: &Ws) -> Result {
        let _ = ws;
        Ok(())
    }

    /// Called when the process begins to shut down. `false`, the default: the socket is closed with 1012 in its turn, for which the sockets
    /// of a worker are spread over [`Cx::drain_spread`](ringmain_engine::Cx::drain_spread); until then messages pass as before. `true`:
    /// the application closes it within the grace period; a socket still open then is reset.
    fn shuts_down(&mut self, ws: &Ws) -> bool {
        let _ = ws;
        false
    }

    /// Called once, last: nothing more arrives and nothing can be sent.
    fn closed(&mut self, closed: &Closed<'_>) {
        let _ = closed;
    }
}

/// The end of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<'a> {
    /// The code of the client's Close; 1005: it had none. Without a Close from the client, the code of this end's; 1006: neither
    /// side sent one (RFC 6455 §7.1.5).
    pub code: u16,
    /// The reason in the client's Close.
    pub reason: &'a str,
    /// The side that ended the socket, and the reason.
    pub cause: CloseCause,
}

/// The side that ended a socket, and the reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseCause {
    /// The client closed.
    Client,
    /// The application closed ([`Ws::close`], an error, the end of an asynchronous handler).
    Application,
    /// The process is shutting down: the client was sent 1012.
    Shutdown,
    /// The client violated the protocol or a limit on message sizes.
    Fault(FaultKind),
    /// A message was incomplete after [`WsLimits::message_timeout`](crate::limits::WsLimits).
    SlowMessage,
    /// Incomplete messages together exceeded [`WsLimits::assembly_bytes`](crate::limits::WsLimits).
    Overloaded,
    /// The client reads too slowly: more than [`WsLimits::unsent_bytes`](crate::limits::WsLimits) was queued for it.
    SlowReader,
    /// No sign of life within [`WsLimits::pong_timeout`](crate::limits::WsLimits) after a ping.
    Silent,
    /// The connection ended without a Close.
    Lost,
}
