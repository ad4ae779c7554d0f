//! A connection that the application receives as a byte stream, with its origin.
//!
//! Knows nothing of HTTP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::stream::Stream;

use crate::logging::access_log::Record;
use crate::logging::log_field::Note;
use crate::server::accept::Way;
use crate::server::peer::Origin;
use crate::server::worker_context::{WorkerContext, micros};

/// A connection of a stream listener ([`Entrance::stream`](crate::Entrance::stream)).
pub struct Incoming {
    /// The byte stream. Dropping it closes the connection.
    pub stream: Stream,
    origin: Origin,
    way: Rc<Way>,
    local: Rc<WorkerContext>,
}

/// The access log record of a byte stream, without its time and its client.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// The protocol, in place of a method: `TCP`, `TLS`.
    pub protocol: &'static str,
    /// The destination, in place of a target; `-` if there is none.
    pub target: &'a str,
    /// The outcome as an HTTP status: 200, or the reason why nothing was served.
    pub status: u16,
    /// Bytes sent to the client.
    pub sent: u64,
    /// The time for which it was open.
    pub span: Duration,
    /// Further fields.
    pub notes: &'a [(&'static str, Note)],
}

impl Incoming {
    pub(crate) fn new(stream: Stream, origin: Origin, way: Rc<Way>, local: &Rc<WorkerContext>) -> Incoming {
        Incoming {
            stream,
            origin,
            way,
            local: Rc::clone(local),
        }
    }

    /// Returns the number of its listener, in the order of the calls of [`Engine::listen`](ringmain_engine::Engine::listen).
    #[must_use]
    pub fn listener(&self) -> u32 {
        self.origin.listener
    }

    /// Returns the client's address: the peer's, or the one in its PROXY protocol header. `None`: a Unix socket.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.origin.remote
    }

    /// Terminates TLS on this stream with the acceptor of its entrance ([`Entrance::ending_tls`](crate::Entrance::ending_tls)).
    /// Bytes that were received and not read belong to the handshake. Waits for the end of the handshake.
    ///
    /// # Errors
    /// `Unsupported` if the entrance has no acceptor. Otherwise as [`Stream::secure`].
    pub async fn secure(&self) -> io::Result<()> {
        let session = self.way.session(self.local.cx.wall());
        let session = session.ok_or(io::ErrorKind::Unsupported)?;
        self.stream.secure(Box::new(session)).await
    }

    /// Returns the worker's own state of this type ([`App::per_worker`](crate::App::per_worker)).
    #[must_use]
    pub fn local<T: 'static>(&self) -> Option<&T> {
        self.local.state()
    }

    /// Returns a handle of the access log that outlives the connection and this value.
    #[must_use]
    pub fn logging(&self) -> Logging {
        Logging {
            client: self.origin.remote.map(|remote| remote.ip()),
            local: Rc::clone(&self.local),
        }
    }
}

impl std::fmt::Debug for Incoming {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "Incoming({:?} by {})",
            self.origin.remote, self.origin.listener
        )
    }
}

/// The access log, for one byte stream.
pub struct Logging {
    client: Option<IpAddr>,
    local: Rc<WorkerContext>,
}

impl Logging {
    /// Returns true if there is an access log.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.local.access.is_some()
    }

    /// Records a closed connection.
    pub fn note(&self, passed: &Passed<'_>) {
        let Some(access) = &self.local.access else {
            return;
        };
        access.borrow_mut().record(&Record {
            remote: self.client,
            time: self.local.cx.wall(),
            method: passed.protocol,
            target: passed.target,
            version: None,
            status: passed.status,
            body_bytes: passed.sent,
            duration_us: micros(passed.span),
            referer: None,
            user_agent: None,
            request_id: None,
            notes: passed.notes,
        });
    }
}

impl std::fmt::Debug for Logging {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Logging({:?})", self.client)
    }
}
