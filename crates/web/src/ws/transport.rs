//! The transport of a socket's frames: its own connection, or an HTTP/2 stream (RFC 8441).
//!
//! Knows neither frames nor messages.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::SocketOption;
use ringmain_engine::{ConnId, Cx, Reason};

use crate::server::http2::StreamRef;

/// See the module.
pub(crate) enum WsTransport {
    Connection(ConnId),
    Stream(StreamRef),
}

/// A transport with its worker's handle, ready for calls.
#[derive(Clone, Copy)]
pub(super) struct BoundTransport<'a> {
    transport: &'a WsTransport,
    cx: &'a Cx,
}

impl WsTransport {
    pub(super) fn on<'a>(&'a self, cx: &'a Cx) -> BoundTransport<'a> {
        BoundTransport { transport: self, cx }
    }
}

impl BoundTransport<'_> {
    /// Returns the written bytes that the kernel has not taken yet, including those of other streams of the connection.
    pub(super) fn unsent(self) -> usize {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).unsent(),
            WsTransport::Stream(stream_ref) => stream_ref.session.unsent(stream_ref.stream),
        }
    }

    /// Limits the kernel's queue to this many unsent bytes.
    pub(super) fn limit_kernel_queue(self, bytes: u32) {
        if let WsTransport::Connection(id) = self.transport
            && let Err(error) = self.cx.conn(*id).set_option(SocketOption::NotSentLowWater(bytes))
        {
            log::debug!("TCP_NOTSENT_LOWAT: {error}");
        }
    }

    /// Sends a copy of `bytes`; `false`: the transport is closed.
    pub(super) fn write(self, bytes: &[u8]) -> bool {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).write(bytes).is_ok(),
            WsTransport::Stream(stream_ref) => {
                stream_ref.session.data_copied(stream_ref.stream, bytes).is_ok()
            }
        }
    }

    /// Sends `bytes` without a copy; `false`: the transport is closed.
    pub(super) fn write_frame(self, bytes: Bytes) -> bool {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).write_frame(bytes).is_ok(),
            WsTransport::Stream(stream_ref) => stream_ref.session.data(stream_ref.stream, bytes).is_ok(),
        }
    }

    /// Returns the bytes that the client has taken, as far as known.
    pub(super) fn sent(self) -> u64 {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).sent(),
            WsTransport::Stream(stream_ref) => stream_ref.session.sent(stream_ref.stream),
        }
    }

    /// Starts counting the bytes that the client takes, for the next check.
    pub(super) fn count_sent(self) {
        if let WsTransport::Connection(id) = self.transport {
            self.cx.conn(*id).count_sent();
        }
    }

    /// Sets the time of the socket's next check.
    pub(super) fn set_deadline(self, span: Option<Duration>) {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).set_deadline(span),
            WsTransport::Stream(stream_ref) => stream_ref.session.set_due(stream_ref.stream, span),
        }
    }

    /// Resets the connection, or the stream alone.
    pub(super) fn abort_because(self, reason: Reason) {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).abort_because(reason),
            WsTransport::Stream(stream_ref) => stream_ref.session.give_up(stream_ref.stream),
        }
    }

    /// Stops receiving. Data on a stream is buffered, up to its window.
    pub(super) fn pause(self) {
        if let WsTransport::Connection(id) = self.transport {
            self.cx.conn(*id).pause();
        }
    }

    /// Resumes receiving.
    pub(super) fn resume(self) {
        match self.transport {
            WsTransport::Connection(id) => self.cx.conn(*id).resume(),
            WsTransport::Stream(stream_ref) => stream_ref
                .session
                .set_due(stream_ref.stream, Some(Duration::ZERO)),
        }
    }
}

impl fmt::Debug for WsTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            WsTransport::Connection(id) => write!(f, "{id:?}"),
            WsTransport::Stream(stream_ref) => write!(f, "stream {}", stream_ref.stream.id()),
        }
    }
}
