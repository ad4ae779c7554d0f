//! A connection that is handed to the application as bytes, with what is known of where it comes from.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use ringmain_engine::stream::Stream;

use crate::access_log::Record;
use crate::local::{Local, micros};
use crate::note::Note;
use crate::origin::Origin;
use crate::server::entering::Way;

/// A connection of a listener of bytes ([`Entrance::stream`](crate::Entrance::stream)).
pub struct Incoming {
    /// Its bytes. Dropping this ends it.
    pub stream: Stream,
    origin: Origin,
    way: Rc<Way>,
    local: Rc<Local>,
}

/// What is said of a connection of bytes in the access log, beside when and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Passed<'a> {
    /// What was spoken, in the place of a method: `TCP`, `TLS`.
    pub protocol: &'static str,
    /// What it was for, in the place of a target; `-` if there is nothing to say.
    pub target: &'a str,
    /// How it ended, in the terms of HTTP: 200, or why nothing was served.
    pub status: u16,
    /// Bytes sent to the client.
    pub sent: u64,
    /// How long it was open.
    pub span: Duration,
    /// All else.
    pub notes: &'a [(&'static str, Note)],
}

impl Incoming {
    pub(crate) fn new(stream: Stream, origin: Origin, way: Rc<Way>, local: &Rc<Local>) -> Incoming {
        Incoming {
            stream,
            origin,
            way,
            local: Rc::clone(local),
        }
    }

    /// The number of its listener, in the order in which the engine was given them.
    #[must_use]
    pub fn listener(&self) -> u32 {
        self.origin.listener
    }

    /// Who the client is: who is connected, or whom its PROXY protocol header names. `None`: by a Unix socket.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.origin.remote
    }

    /// Ends TLS here, as its entrance was told to ([`Entrance::ending_tls`](crate::Entrance::ending_tls)); what was received and
    /// not read is a part of it. Waits for the end of the handshake.
    ///
    /// # Errors
    /// `Unsupported`: it was told nothing. Else as [`Stream::secure`].
    pub async fn secure(&self) -> io::Result<()> {
        let session = self.way.session(self.local.cx.wall());
        let session = session.ok_or(io::ErrorKind::Unsupported)?;
        self.stream.secure(Box::new(session)).await
    }

    /// The worker's own state of this type ([`App::per_worker`](crate::App::per_worker)).
    #[must_use]
    pub fn local<T: 'static>(&self) -> Option<&T> {
        self.local.state()
    }

    /// What the access log is written by, for when the connection is over and this is gone.
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

/// The access log, for one connection of bytes.
pub struct Logging {
    client: Option<IpAddr>,
    local: Rc<Local>,
}

impl Logging {
    /// Whether there is one.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.local.access.is_some()
    }

    /// Notes a connection that is over.
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
