//! The transport of a socket's frames: its own connection, or an HTTP/2 stream (RFC 8441).
//!
//! Knows neither frames nor messages.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use ringmain_engine::backend::SocketOption;
use ringmain_engine::{ConnId, Cx, Reason};

use crate::server::http2::Line;

/// See the module.
pub(crate) enum Carrier {
    Connection(ConnId),
    Stream(Line),
}

/// A carrier with its worker's handle, ready for calls.
#[derive(Clone, Copy)]
pub(super) struct Carried<'a> {
    carrier: &'a Carrier,
    cx: &'a Cx,
}

impl Carrier {
    pub(super) fn on<'a>(&'a self, cx: &'a Cx) -> Carried<'a> {
        Carried { carrier: self, cx }
    }
}

impl Carried<'_> {
    /// Returns the written bytes that the kernel has not taken yet, including those of other streams of the connection.
    pub(super) fn unsent(self) -> usize {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).unsent(),
            Carrier::Stream(line) => line.session.unsent(line.stream),
        }
    }

    /// Limits the kernel's queue to this many unsent bytes.
    pub(super) fn limit_kernel(self, bytes: u32) {
        if let Carrier::Connection(id) = self.carrier
            && let Err(error) = self.cx.conn(*id).set_option(SocketOption::NotSentLowWater(bytes))
        {
            log::debug!("TCP_NOTSENT_LOWAT: {error}");
        }
    }

    /// Sends a copy of `bytes`; `false`: the carrier is closed.
    pub(super) fn write(self, bytes: &[u8]) -> bool {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).write(bytes).is_ok(),
            Carrier::Stream(line) => line.session.data_copied(line.stream, bytes).is_ok(),
        }
    }

    /// Sends `bytes` without a copy; `false`: the carrier is closed.
    pub(super) fn write_frame(self, bytes: Bytes) -> bool {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).write_frame(bytes).is_ok(),
            Carrier::Stream(line) => line.session.data(line.stream, bytes).is_ok(),
        }
    }

    /// Returns the bytes that the client has taken, as far as known.
    pub(super) fn sent(self) -> u64 {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).sent(),
            Carrier::Stream(line) => line.session.sent(line.stream),
        }
    }

    /// Starts counting the bytes that the client takes, for the next check.
    pub(super) fn count_sent(self) {
        if let Carrier::Connection(id) = self.carrier {
            self.cx.conn(*id).count_sent();
        }
    }

    /// Sets the time of the socket's next check.
    pub(super) fn set_deadline(self, span: Option<Duration>) {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).set_deadline(span),
            Carrier::Stream(line) => line.session.set_due(line.stream, span),
        }
    }

    /// Resets the connection, or the stream alone.
    pub(super) fn abort_because(self, reason: Reason) {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).abort_because(reason),
            Carrier::Stream(line) => line.session.give_up(line.stream),
        }
    }

    /// Stops receiving. Data on a stream is buffered, up to its window.
    pub(super) fn pause(self) {
        if let Carrier::Connection(id) = self.carrier {
            self.cx.conn(*id).pause();
        }
    }

    /// Resumes receiving.
    pub(super) fn resume(self) {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).resume(),
            Carrier::Stream(line) => line.session.set_due(line.stream, Some(Duration::ZERO)),
        }
    }
}

impl fmt::Debug for Carrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Carrier::Connection(id) => write!(f, "{id:?}"),
            Carrier::Stream(line) => write!(f, "stream {}", line.stream.id()),
        }
    }
}
