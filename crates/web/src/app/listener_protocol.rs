//! The protocol of the connections of one listener: HTTP, HTTP/2 only, HTTP over TLS, or a byte stream for the application; and the
//! PROXY protocol header before it.
//!
//! Owns the choice. Knows no connection.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_tls::Acceptor;

use crate::server::stream_connection::StreamConnection;

pub(crate) type StreamHandler = dyn Fn(StreamConnection) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// The protocol of a listener's connections; see [`App::listener`](crate::App::listener).
#[derive(Clone)]
pub struct ListenerProtocol {
    pub(crate) kind: ProtocolKind,
    pub(crate) proxy_protocol: Option<Arc<ProxyHeaderSettings>>,
    /// The acceptor with which stream handlers may terminate TLS.
    pub(crate) tls: Option<Acceptor>,
}

/// The PROXY protocol header at the start of each connection.
pub(crate) struct ProxyHeaderSettings {
    /// Returns true if a peer with this address may name the client; `None`: the peer is connected over a Unix socket.
    pub(crate) is_trusted: Box<IsTrustedProxy>,
    pub(crate) timeout: Duration,
}

type IsTrustedProxy = dyn Fn(Option<IpAddr>) -> bool + Send + Sync;

/// Returns true if a connection with this server name (SNI) is HTTP.
type IsHttp = dyn Fn(Option<&str>) -> bool + Send + Sync;

#[derive(Clone)]
pub(crate) enum ProtocolKind {
    Http,
    /// HTTP/2 only, without TLS.
    H2c,
    Https(Acceptor),
    Stream(Arc<StreamHandler>),
    /// TLS; the server name (SNI) selects HTTP or the stream handler.
    HttpsOrStream(Arc<HttpsOrStream>),
}

/// See [`ProtocolKind::HttpsOrStream`].
pub(crate) struct HttpsOrStream {
    pub(crate) https: Acceptor,
    pub(crate) is_http: Box<IsHttp>,
    pub(crate) handler: Arc<StreamHandler>,
}

impl ListenerProtocol {
    /// Returns the protocol of HTTP without TLS: the default of each listener.
    #[must_use]
    pub fn http() -> ListenerProtocol {
        ListenerProtocol::new(ProtocolKind::Http)
    }

    /// Returns the protocol of HTTP/2 only, without TLS and with prior knowledge (RFC 9113 §3.3). A connection that does not start
    /// with the HTTP/2 preface is closed; [`ListenerProtocol::http`] would serve it as HTTP/1.1.
    #[must_use]
    pub fn h2c() -> ListenerProtocol {
        ListenerProtocol::new(ProtocolKind::H2c)
    }

    /// Returns the protocol of HTTP over TLS. Settings that the acceptor reloads apply to connections accepted afterwards. Its
    /// application protocols (ALPN) may include `h2` and `http/1.1` ([`http_protocols`](ringmain_tls::http_protocols)); none means
    /// HTTP/1.1.
    #[must_use]
    pub fn https(acceptor: &Acceptor) -> ListenerProtocol {
        ListenerProtocol::new(ProtocolKind::Https(acceptor.clone()))
    }

    /// Returns the protocol of byte streams: each connection is handed to `handler`, which runs as a task and closes it by dropping
    /// the stream. Limits on connections apply; deadlines are the handler's.
    #[must_use]
    pub fn stream(
        handler: impl AsyncFn(StreamConnection) + Clone + Send + Sync + 'static,
    ) -> ListenerProtocol {
        ListenerProtocol::new(ProtocolKind::Stream(boxed_handler(handler)))
    }

    /// Returns the protocol of TLS that carries HTTP on some connections. `is_http` receives the server name (SNI) in lower case,
    /// `None` if the client sent none. If it returns true the connection is served as by [`ListenerProtocol::https`]. All others, including
    /// clients that do not speak TLS, are handed to `handler` as by [`ListenerProtocol::stream`], with all their bytes. A client that sends
    /// no ClientHello within [`Limits::handshake_timeout`] is closed.
    ///
    /// [`Limits::handshake_timeout`]: crate::Limits::handshake_timeout
    #[must_use]
    pub fn https_or_stream(
        https: &Acceptor,
        is_http: impl Fn(Option<&str>) -> bool + Send + Sync + 'static,
        handler: impl AsyncFn(StreamConnection) + Clone + Send + Sync + 'static,
    ) -> ListenerProtocol {
        ListenerProtocol::new(ProtocolKind::HttpsOrStream(Arc::new(HttpsOrStream {
            https: https.clone(),
            is_http: Box::new(is_http),
            handler: boxed_handler(handler),
        })))
    }

    /// Requires each connection to start with a PROXY protocol header (version 1 or 2), which names the client:
    /// [`Request::remote`], [`StreamConnection::remote`] and limits use its address. The connection is closed if its peer is not trusted,
    /// or if no valid header arrives within `timeout`.
    ///
    /// [`Request::remote`]: crate::Request::remote
    #[must_use]
    pub fn proxy_protocol(
        mut self,
        is_trusted: impl Fn(Option<IpAddr>) -> bool + Send + Sync + 'static,
        timeout: Duration,
    ) -> ListenerProtocol {
        self.proxy_protocol = Some(Arc::new(ProxyHeaderSettings {
            is_trusted: Box::new(is_trusted),
            timeout,
        }));
        self
    }

    /// Lets a stream handler terminate TLS with this acceptor: [`StreamConnection::secure`].
    #[must_use]
    pub fn stream_tls(mut self, acceptor: &Acceptor) -> ListenerProtocol {
        self.tls = Some(acceptor.clone());
        self
    }

    fn new(kind: ProtocolKind) -> ListenerProtocol {
        ListenerProtocol {
            kind,
            proxy_protocol: None,
            tls: None,
        }
    }
}

fn boxed_handler(
    handler: impl AsyncFn(StreamConnection) + Clone + Send + Sync + 'static,
) -> Arc<StreamHandler> {
    Arc::new(move |incoming| -> Pin<Box<dyn Future<Output = ()>>> {
        let handler = handler.clone();
        Box::pin(async move { handler(incoming).await })
    })
}

impl fmt::Debug for ListenerProtocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            ProtocolKind::Http => "Http",
            ProtocolKind::H2c => "H2c",
            ProtocolKind::Https(_) => "Https",
            ProtocolKind::Stream(_) => "Stream",
            ProtocolKind::HttpsOrStream(_) => "Either",
        })
    }
}

/// The listener protocols of an application by listener number. They may change while it serves. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct ListenerProtocols(Arc<ProtocolTable>);

#[derive(Debug, Default)]
struct ProtocolTable {
    /// The generation of the last change; workers check it first, once per connection.
    generation: AtomicU64,
    /// Protocols by listener number, each with the generation of its last change.
    all: Mutex<Vec<(u64, ListenerProtocol)>>,
}

impl ListenerProtocols {
    /// Sets the protocol of connections that listener `number` accepts from now on. Open connections continue unchanged.
    pub fn set(&self, number: u32, protocol: ListenerProtocol) {
        let mut all = self.all();
        let index = number as usize;
        if all.len() <= index {
            all.resize(index + 1, (0, ListenerProtocol::http()));
        }
        let generation = self.0.generation.load(Ordering::Relaxed) + 1;
        all[index] = (generation, protocol);
        self.0.generation.store(generation, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Returns the listener protocols by listener number, each with the generation of its last change.
    pub(crate) fn list(&self) -> Vec<(u64, ListenerProtocol)> {
        self.all().clone()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(u64, ListenerProtocol)>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
