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

use crate::server::stream_connection::Incoming;

pub(crate) type StreamHandler = dyn Fn(Incoming) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// The protocol of a listener's connections; see [`App::listener`](crate::App::listener).
#[derive(Clone)]
pub struct Entrance {
    pub(crate) kind: Kind,
    pub(crate) proxied: Option<Arc<Proxied>>,
    /// The acceptor with which stream handlers may terminate TLS.
    pub(crate) tls: Option<Acceptor>,
}

/// The PROXY protocol header at the start of each connection.
pub(crate) struct Proxied {
    /// Returns true if a peer with this address may name the client; `None`: the peer is connected over a Unix socket.
    pub(crate) trusts: Box<Trusts>,
    pub(crate) timeout: Duration,
}

type Trusts = dyn Fn(Option<IpAddr>) -> bool + Send + Sync;

/// Returns true if a connection with this server name (SNI) is HTTP.
type IsHttp = dyn Fn(Option<&str>) -> bool + Send + Sync;

#[derive(Clone)]
pub(crate) enum Kind {
    Http,
    /// HTTP/2 only, without TLS.
    H2c,
    Https(Acceptor),
    Stream(Arc<StreamHandler>),
    /// TLS; the server name (SNI) selects HTTP or the stream handler.
    Either(Arc<Either>),
}

/// See [`Kind::Either`].
pub(crate) struct Either {
    pub(crate) https: Acceptor,
    pub(crate) is_http: Box<IsHttp>,
    pub(crate) handler: Arc<StreamHandler>,
}

impl Entrance {
    /// Returns an entrance for HTTP without TLS: the default of each listener.
    #[must_use]
    pub fn http() -> Entrance {
        Entrance::of(Kind::Http)
    }

    /// Returns an entrance for HTTP/2 only, without TLS and with prior knowledge (RFC 9113 §3.3). A connection that does not start
    /// with the HTTP/2 preface is closed; [`Entrance::http`] would serve it as HTTP/1.1.
    #[must_use]
    pub fn h2c() -> Entrance {
        Entrance::of(Kind::H2c)
    }

    /// Returns an entrance for HTTP over TLS. Settings that the acceptor reloads apply to connections accepted afterwards. Its
    /// application protocols (ALPN) may include `h2` and `http/1.1` ([`http_protocols`](ringmain_tls::http_protocols)); none means
    /// HTTP/1.1.
    #[must_use]
    pub fn https(acceptor: &Acceptor) -> Entrance {
        Entrance::of(Kind::Https(acceptor.clone()))
    }

    /// Returns an entrance for byte streams: each connection is handed to `handler`, which runs as a task and closes it by dropping
    /// the stream. Limits on connections apply; deadlines are the handler's.
    #[must_use]
    pub fn stream(handler: impl AsyncFn(Incoming) + Clone + Send + Sync + 'static) -> Entrance {
        Entrance::of(Kind::Stream(started(handler)))
    }

    /// Returns an entrance for TLS that carries HTTP on some connections. `is_http` receives the server name (SNI) in lower case,
    /// `None` if the client sent none. If it returns true the connection is served as by [`Entrance::https`]. All others, including
    /// clients that do not speak TLS, are handed to `handler` as by [`Entrance::stream`], with all their bytes. A client that sends
    /// no ClientHello within [`Limits::handshake_timeout`] is closed.
    ///
    /// [`Limits::handshake_timeout`]: crate::Limits::handshake_timeout
    #[must_use]
    pub fn either(
        https: &Acceptor,
        is_http: impl Fn(Option<&str>) -> bool + Send + Sync + 'static,
        handler: impl AsyncFn(Incoming) + Clone + Send + Sync + 'static,
    ) -> Entrance {
        Entrance::of(Kind::Either(Arc::new(Either {
            https: https.clone(),
            is_http: Box::new(is_http),
            handler: started(handler),
        })))
    }

    /// Requires each connection to start with a PROXY protocol header (version 1 or 2), which names the client:
    /// [`Request::remote`], [`Incoming::remote`] and limits use its address. The connection is closed if its peer is not trusted,
    /// or if no valid header arrives within `timeout`.
    ///
    /// [`Request::remote`]: crate::Request::remote
    #[must_use]
    pub fn proxied(
        mut self,
        trusts: impl Fn(Option<IpAddr>) -> bool + Send + Sync + 'static,
        timeout: Duration,
    ) -> Entrance {
        self.proxied = Some(Arc::new(Proxied {
            trusts: Box::new(trusts),
            timeout,
        }));
        self
    }

    /// Lets a stream handler terminate TLS with this acceptor: [`Incoming::secure`].
    #[must_use]
    pub fn ending_tls(mut self, acceptor: &Acceptor) -> Entrance {
        self.tls = Some(acceptor.clone());
        self
    }

    fn of(kind: Kind) -> Entrance {
        Entrance {
            kind,
            proxied: None,
            tls: None,
        }
    }
}

fn started(handler: impl AsyncFn(Incoming) + Clone + Send + Sync + 'static) -> Arc<StreamHandler> {
    Arc::new(move |incoming| -> Pin<Box<dyn Future<Output = ()>>> {
        let handler = handler.clone();
        Box::pin(async move { handler(incoming).await })
    })
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Http => "Http",
            Kind::H2c => "H2c",
            Kind::Https(_) => "Https",
            Kind::Stream(_) => "Stream",
            Kind::Either(_) => "Either",
        })
    }
}

/// The entrances of an application by listener number. They may change while it serves. Clones share one table.
#[derive(Clone, Debug, Default)]
pub struct Entrances(Arc<EntranceTable>);

#[derive(Debug, Default)]
struct EntranceTable {
    /// The generation of the last change; workers check it first, once per connection.
    generation: AtomicU64,
    /// Entrances by listener number, each with the generation of its last change.
    all: Mutex<Vec<(u64, Entrance)>>,
}

impl Entrances {
    /// Sets the protocol of connections that listener `number` accepts from now on. Open connections continue unchanged.
    pub fn set(&self, number: u32, entrance: Entrance) {
        let mut all = self.all();
        let index = number as usize;
        if all.len() <= index {
            all.resize(index + 1, (0, Entrance::http()));
        }
        let generation = self.0.generation.load(Ordering::Relaxed) + 1;
        all[index] = (generation, entrance);
        self.0.generation.store(generation, Ordering::Release);
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }

    /// Returns the entrances by listener number, each with the generation of its last change.
    pub(crate) fn list(&self) -> Vec<(u64, Entrance)> {
        self.all().clone()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(u64, Entrance)>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
