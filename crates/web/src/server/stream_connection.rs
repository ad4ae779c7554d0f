//! A connection that the application receives as a byte stream, with its origin.
//!
//! Knows nothing of HTTP.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::{Rc, Weak};
use std::time::Duration;

use ringmain_engine::stream::Stream;

use crate::logging::access_log::Record;
use crate::logging::log_field::LogField;
use crate::server::accept::ListenerState;
use crate::server::peer::PeerInfo;
use crate::server::worker_context::{WorkerContext, micros};

/// A connection of a stream listener ([`ListenerProtocol::stream`](crate::ListenerProtocol::stream)).
pub struct StreamConnection {
    /// The byte stream. Dropping it closes the connection.
    pub stream: Stream,
    peer: PeerInfo,
    listener_state: Rc<ListenerState>,
    worker: Rc<WorkerContext>,
}

/// The access log record of a byte stream, without its time and its client.
#[derive(Clone, Copy, Debug)]
pub struct StreamLogRecord<'a> {
    /// The protocol, in place of a method: `TCP`, `TLS`, `UDP`.
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
    pub log_fields: &'a [(&'static str, LogField)],
}

impl StreamConnection {
    pub(crate) fn new(
        stream: Stream,
        peer: PeerInfo,
        listener_state: Rc<ListenerState>,
        worker: &Rc<WorkerContext>,
    ) -> StreamConnection {
        StreamConnection {
            stream,
            peer,
            listener_state,
            worker: Rc::clone(worker),
        }
    }

    /// Returns the number of its listener, in the order of the calls of [`Engine::listen`](ringmain_engine::Engine::listen).
    #[must_use]
    pub fn listener(&self) -> u32 {
        self.peer.listener
    }

    /// Returns the client's address: the peer's, or the one in its PROXY protocol header. `None`: a Unix socket.
    #[must_use]
    pub fn remote(&self) -> Option<SocketAddr> {
        self.peer.remote
    }

    /// Terminates TLS on this stream with the acceptor of its listener protocol ([`ListenerProtocol::stream_tls`](crate::ListenerProtocol::stream_tls)).
    /// Bytes that were received and not read belong to the handshake. Waits for the end of the handshake.
    ///
    /// # Errors
    /// `Unsupported` if the listener protocol has no acceptor. Otherwise as [`Stream::secure`].
    pub async fn secure(&self) -> io::Result<()> {
        let session = self.listener_state.stream_tls_session(self.worker.cx.wall());
        let session = session.ok_or(io::ErrorKind::Unsupported)?;
        self.stream.secure(Box::new(session)).await
    }

    /// Returns the worker's own state of this type ([`App::per_worker`](crate::App::per_worker)).
    #[must_use]
    pub fn local<T: 'static>(&self) -> Option<&T> {
        self.worker.state()
    }

    /// Returns a handle of the access log that outlives the connection and this value.
    #[must_use]
    pub fn stream_log(&self) -> StreamLog {
        StreamLog {
            client: self.peer.remote.map(|remote| remote.ip()),
            worker: Rc::clone(&self.worker),
        }
    }
}

impl std::fmt::Debug for StreamConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "StreamConnection({:?} on {})",
            self.peer.remote, self.peer.listener
        )
    }
}

/// A worker that has started, with the state that it has built for itself; see [`App::on_worker_start`](crate::App::on_worker_start).
pub struct StartedWorker<'a>(&'a Rc<WorkerContext>);

impl<'a> StartedWorker<'a> {
    pub(crate) fn new(worker: &'a Rc<WorkerContext>) -> StartedWorker<'a> {
        StartedWorker(worker)
    }

    /// Returns the worker's own state of this type ([`App::per_worker`](crate::App::per_worker)).
    #[must_use]
    pub fn local<T: 'static>(&self) -> Option<&'a T> {
        self.0.state()
    }

    /// Returns a handle of the worker's access log, for traffic that does not arrive on connections.
    #[must_use]
    pub fn stream_logs(&self) -> StreamLogs {
        StreamLogs(Rc::downgrade(self.0))
    }
}

impl std::fmt::Debug for StartedWorker<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StartedWorker({})", self.0.cx.worker())
    }
}

/// The access log of a worker. It does not keep the worker's state alive, and may belong to that state.
pub struct StreamLogs(Weak<WorkerContext>);

impl StreamLogs {
    /// Returns the access log for a client. `None`: there is no access log, or the worker has ended.
    #[must_use]
    pub fn for_client(&self, client: IpAddr) -> Option<StreamLog> {
        let worker = self.0.upgrade().filter(|worker| worker.access.is_some())?;
        Some(StreamLog {
            client: Some(client),
            worker,
        })
    }
}

impl std::fmt::Debug for StreamLogs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("StreamLogs")
    }
}

/// The access log, for one byte stream.
pub struct StreamLog {
    client: Option<IpAddr>,
    worker: Rc<WorkerContext>,
}

impl StreamLog {
    /// Returns true if there is an access log.
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        self.worker.access.is_some()
    }

    /// Records a closed connection.
    pub fn record(&self, record: &StreamLogRecord<'_>) {
        let Some(access) = &self.worker.access else {
            return;
        };
        access.borrow_mut().record(&Record {
            remote: self.client,
            time: self.worker.cx.wall(),
            method: record.protocol,
            target: record.target,
            version: None,
            status: record.status,
            body_bytes: record.sent,
            duration_us: micros(record.span),
            referer: None,
            user_agent: None,
            request_id: None,
            log_fields: record.log_fields,
        });
    }
}

impl std::fmt::Debug for StreamLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StreamLog({:?})", self.client)
    }
}
