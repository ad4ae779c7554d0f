//! What becomes of the connections of one listener: HTTP, HTTP by TLS, or a stream of bytes for the application; and what
//! they begin with.
//!
//! Owns the choice. Knows no connection.

use std::fmt;
use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::stream::Stream;
use ringmain_tls::Acceptor;

pub(crate) type StreamHandler = dyn Fn(Stream) -> Pin<Box<dyn Future<Output = ()>>> + Send + Sync;

/// What becomes of a listener's connections; see [`App::listener`](crate::App::listener).
#[derive(Clone)]
pub struct Entrance {
    pub(crate) kind: Kind,
    pub(crate) proxied: Option<Arc<Proxied>>,
}

/// A PROXY protocol header that connections begin with.
pub(crate) struct Proxied {
    /// Whether who is connected may say who the client is; `None`: by a Unix socket.
    pub(crate) trusts: Box<Trusts>,
    pub(crate) timeout: Duration,
}

type Trusts = dyn Fn(Option<IpAddr>) -> bool + Send + Sync;

#[derive(Clone)]
pub(crate) enum Kind {
    Http,
    Https(Acceptor),
    Stream(Arc<StreamHandler>),
}

impl Entrance {
    /// HTTP in the clear: what each listener is unless something else is said.
    #[must_use]
    pub fn http() -> Entrance {
        Entrance::of(Kind::Http)
    }

    /// HTTP/1.1 by TLS. What the acceptor reloads holds for connections that come from then on. Of application protocols (ALPN)
    /// its settings must name `http/1.1` alone, or none.
    #[must_use]
    pub fn https(acceptor: &Acceptor) -> Entrance {
        Entrance::of(Kind::Https(acceptor.clone()))
    }

    /// Bytes: each connection is handed to `handler`, which runs as a task and ends it by dropping the stream. Limits of
    /// connections hold; deadlines are the handler's.
    #[must_use]
    pub fn stream(handler: impl AsyncFn(Stream) + Clone + Send + Sync + 'static) -> Entrance {
        let start = move |stream| -> Pin<Box<dyn Future<Output = ()>>> {
            let handler = handler.clone();
            Box::pin(async move { handler(stream).await })
        };
        Entrance::of(Kind::Stream(Arc::new(start)))
    }

    /// Has connections begin with a PROXY protocol header (version 1 or 2), which says who the client is: [`Request::remote`]
    /// and limits go by it. Who connects and is not trusted to say so is closed, also who says nothing within `timeout` or
    /// something else. A handler of bytes reads the header itself.
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

    fn of(kind: Kind) -> Entrance {
        Entrance { kind, proxied: None }
    }
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            Kind::Http => "Http",
            Kind::Https(_) => "Https",
            Kind::Stream(_) => "Stream",
        })
    }
}
