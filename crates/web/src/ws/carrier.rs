//! What a socket's frames go by: a connection of its own, or a stream of HTTP/2 (RFC 8441).
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

/// The same, at hand.
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
    /// Bytes that were written and that the kernel has not taken yet, those of other streams of the connection counted.
    pub(super) fn unsent(self) -> usize {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).unsent(),
            Carrier::Stream(line) => line.session.unsent(line.stream),
        }
    }

    /// Has the kernel take so many bytes beyond what is on its way.
    pub(super) fn limit_kernel(self, bytes: u32) {
        if let Carrier::Connection(id) = self.carrier
            && let Err(error) = self.cx.conn(*id).set_option(SocketOption::NotSentLowWater(bytes))
        {
            log::debug!("TCP_NOTSENT_LOWAT: {error}");
        }
    }

    /// Sends a copy of these; `false`: it is over.
    pub(super) fn write(self, bytes: &[u8]) -> bool {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).write(bytes).is_ok(),
            Carrier::Stream(line) => line.session.data_copied(line.stream, bytes).is_ok(),
        }
    }

    /// Sends these; `false`: it is over.
    pub(super) fn write_frame(self, bytes: Bytes) -> bool {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).write_frame(bytes).is_ok(),
            Carrier::Stream(line) => line.session.data(line.stream, bytes).is_ok(),
        }
    }

    /// Bytes that the client has taken, as far as that is known.
    pub(super) fn sent(self) -> u64 {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).sent(),
            Carrier::Stream(line) => line.session.sent(line.stream),
        }
    }

    /// Has what is taken from now on counted for the next look.
    pub(super) fn count_sent(self) {
        if let Carrier::Connection(id) = self.carrier {
            self.cx.conn(*id).count_sent();
        }
    }

    /// When the socket is to be looked at.
    pub(super) fn set_deadline(self, span: Option<Duration>) {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).set_deadline(span),
            Carrier::Stream(line) => line.session.set_due(line.stream, span),
        }
    }

    /// Gives it up: a reset of the connection, or of the stream alone.
    pub(super) fn abort_because(self, reason: Reason) {
        match self.carrier {
            Carrier::Connection(id) => self.cx.conn(*id).abort_because(reason),
            Carrier::Stream(line) => line.session.give_up(line.stream),
        }
    }

    /// Receives nothing more for now. What comes on a stream is kept, as much as its window lets through.
    pub(super) fn pause(self) {
        if let Carrier::Connection(id) = self.carrier {
            self.cx.conn(*id).pause();
        }
    }

    /// Receives again.
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
