//! WebSockets of an application: what an author writes ([`Socket`]), what a socket is sent by ([`Ws`]), who may open one.
//!
//! Owns both halves of an open socket, whatever carries it: a connection that was switched (RFC 6455), or a stream of HTTP/2
//! (RFC 8441). Knows nothing of HTTP but the request that opens one; phases of the connection are the server's
//! (`server/socket.rs`, `server/http2/socket.rs`), frames the codec's.

mod carrier;
mod frame;
mod live;
mod options;
mod origin;
mod outlet;
mod stream;
mod worker;

pub use ringmain_wire::ws::{CloseCode, Deflater, FaultKind, Message, Window};

pub(crate) use self::carrier::Carrier;
pub use self::frame::WsFrame;
pub(crate) use self::live::Live;
pub use self::options::WsOptions;
pub(crate) use self::options::{Gate, Maker, Upgrade};
pub use self::origin::Origins;
pub use self::outlet::Ws;
pub(crate) use self::stream::Asynchronous;
pub use self::stream::{OwnedMessage, WsStream};
pub(crate) use self::worker::Sockets;

use crate::error::Result;

/// One open WebSocket's part of an application: a value that is told what happens, on its worker's thread. It must not
/// block; what waits is a task ([`Cx::spawn`](ringmain_engine::Cx::spawn)) that keeps a clone of the [`Ws`], or a handler of
/// [`App::ws_async`](crate::App::ws_async).
///
/// A panic closes the socket with 1011, and others go on.
pub trait Socket: 'static {
    /// The handshake is done: messages may be sent.
    ///
    /// # Errors
    /// As [`Socket::message`].
    fn opened(&mut self, ws: &Ws) -> Result {
        let _ = ws;
        Ok(())
    }

    /// A whole message has arrived, also one that was on its way when this end closed.
    ///
    /// # Errors
    /// Close the socket: a status below 500 with 1008 and its words (up to 123 bytes of them), any other with 1011, and its
    /// text is logged.
    fn message(&mut self, ws: &Ws, message: Message<'_>) -> Result;

    /// The client has taken what was sent: after [`Ws::is_full`] said that it is slow, it is so no longer.
    ///
    /// # Errors
    /// As [`Socket::message`].
    fn drained(&mut self, ws: &Ws) -> Result {
        let _ = ws;
        Ok(())
    }

    /// The process begins to shut down. `false`, the default: the socket is closed at once, with 1001. `true`: the application closes
    /// it within the grace time; else it is reset then.
    fn shuts_down(&mut self, ws: &Ws) -> bool {
        let _ = ws;
        false
    }

    /// It is over, told once and last: nothing arrives any more and nothing can be sent.
    fn closed(&mut self, closed: &Closed<'_>) {
        let _ = closed;
    }
}

/// How a socket ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Closed<'a> {
    /// What the client's Close said; 1005: nothing. Without one, what this end had to say of it; 1006: neither side said
    /// anything (RFC 6455 §7.1.5).
    pub code: u16,
    /// The words of the client's Close.
    pub reason: &'a str,
    /// Who ended it, and why.
    pub cause: Cause,
}

/// Who ended a socket, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The client closed.
    Client,
    /// The application closed ([`Ws::close`], an error, the end of an asynchronous handler).
    Application,
    /// The process is shutting down: the client was sent 1001.
    Shutdown,
    /// The client broke a rule of the protocol or a limit of message sizes.
    Fault(FaultKind),
    /// A message did not become whole within [`WsLimits::message_timeout`](crate::limits::WsLimits).
    SlowMessage,
    /// All parts of messages together took more than [`WsLimits::assembly_bytes`](crate::limits::WsLimits).
    Overloaded,
    /// The client takes too slowly: more than [`WsLimits::unsent_bytes`](crate::limits::WsLimits) waited for it.
    SlowReader,
    /// No sign of life within [`WsLimits::pong_timeout`](crate::limits::WsLimits) after a ping.
    Silent,
    /// The connection ended without a Close.
    Lost,
}
