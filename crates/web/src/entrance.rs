//! What becomes of the connections of one listener: HTTP, HTTP/2 alone, HTTP by TLS, or a stream of bytes for the application; and what
//! they begin with.
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

use crate::incoming::Incoming;

pub(crate) type StreamHandler = dyn Fn(Incoming) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// What becomes of a listener's connections; see [`App::listener`](crate::App::listener).
#[derive(Clone)]
pub struct Entrance {
    pub(crate) kind: Kind,
    pub(crate) proxied: Option<Arc<Proxied>>,
    /// What handlers of bytes may end TLS by.
    pub(crate) tls: Option<Acceptor>,
}

/// A PROXY protocol header that connections begin with.
pub(crate) struct Proxied {
    /// Whether who is connected may say who the client is; `None`: by a Unix socket.
    pub(crate) trusts: Box<Trusts>,
    pub(crate) timeout: Duration,
}

type Trusts = dyn Fn(Option<IpAddr>) -> bool + Send + Sync;

/// Whether a connection is one of HTTP, by the name that its client asks for.
type IsHttp = dyn Fn(Option<&str>) -> bool + Send + Sync;

#[derive(Clone)]
pub(crate) enum Kind {
    Http,
    /// HTTP/2 alone, in the clear.
    H2c,
    Https(Acceptor),
    Stream(Arc<StreamHandler>),
    /// By TLS, and the name that the client asks for says which of both.
    Either(Arc<Either>),
}

/// See [`Kind::Either`].
pub(crate) struct Either {
    pub(crate) https: Acceptor,
    pub(crate) is_http: Box<IsHttp>,
    pub(crate) handler: Arc<StreamHandler>,
}

impl Entrance {
    /// HTTP in the clear: what each listener is unless something else is said.
    #[must_use]
    pub fn http() -> Entrance {
        Entrance::of(Kind::Http)
    }

    /// HTTP/2 in the clear and nothing else, by prior knowledge (RFC 9113 §3.3): what does not begin with its preface is closed,
    /// where [`Entrance::http`] takes it for HTTP/1.1 and answers.
    #[must_use]
    pub fn h2c() -> Entrance {
        Entrance::of(Kind::H2c)
    }

    /// HTTP by TLS. What the acceptor reloads holds for connections that come from then on. Of application protocols (ALPN)
    /// its settings may name `h2` and `http/1.1` ([`http_protocols`](ringmain_tls::http_protocols)), or none, which is HTTP/1.1.
    #[must_use]
    pub fn https(acceptor: &Acceptor) -> Entrance {
        Entrance::of(Kind::Https(acceptor.clone()))
    }

    /// Bytes: each connection is handed to `handler`, which runs as a task and ends it by dropping the stream. Limits of
    /// connections hold; deadlines are the handler's.
    #[must_use]
    pub fn stream(handler: impl AsyncFn(Incoming) + Clone + Send + Sync + 'static) -> Entrance {
        Entrance::of(Kind::Stream(started(handler)))
    }

    /// TLS of which some is HTTP: `is_http` is told the name that the client asks for (in small letters; `None`: none). Those are
    /// served as by [`Entrance::https`]; all others, also who speaks no TLS, are handed to `handler` as by [`Entrance::stream`],
    /// with all their bytes. A client that does not ask within [`Limits::handshake_timeout`] is closed.
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

    /// Has connections begin with a PROXY protocol header (version 1 or 2), which says who the client is: [`Request::remote`],
    /// [`Incoming::remote`] and limits go by it. Who connects and is not trusted to say so is closed, also who says nothing
    /// within `timeout` or something else.
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

    /// Lets a handler of bytes end TLS by this acceptor: [`Incoming::secure`].
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

/// The entrances of an application, by the numbers of listeners; they may change while it serves. Clones are the same.
#[derive(Clone, Debug, Default)]
pub struct Entrances(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// Of `all`: workers look at this first, once a connection.
    generation: AtomicU64,
    /// Each with the generation that it came with.
    all: Mutex<Vec<(u64, Entrance)>>,
}

impl Entrances {
    /// Says what becomes of connections of listener `number` that come from now on. Those that are there go on as they began.
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

    /// What they are, each with the generation that it came with.
    pub(crate) fn list(&self) -> Vec<(u64, Entrance)> {
        self.all().clone()
    }

    fn all(&self) -> MutexGuard<'_, Vec<(u64, Entrance)>> {
        self.0.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
