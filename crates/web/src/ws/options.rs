//! Settings for opening a route's sockets: admitted pages, subprotocols, deflate.

use std::rc::Rc;

use ringmain_wire::ws::{
    self, Acceptance, Deflation, HandshakeFault, HandshakeFaultKind, ServerWish, Window,
};

use super::allowed_origins::Origins;
use super::transport::WsTransport;
use super::{IntoSession, Ws, WsSession, WsWorkerState};
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;

/// Settings of one route's sockets: for [`App::ws_with`](crate::App::ws_with).
///
/// By default only pages of the same host, and clients that are not browsers, may open a socket, no subprotocol is known and
/// nothing is deflated.
#[derive(Clone, Debug, Default)]
pub struct WsOptions {
    origins: Vec<String>,
    any_origin: bool,
    protocols: &'static [&'static str],
    deflation: Option<Deflation>,
}

impl WsOptions {
    /// Returns the defaults.
    #[must_use]
    pub fn new() -> WsOptions {
        WsOptions::default()
    }

    /// Admits pages of this origin: `https://app.example.com`, `https://*.example.com` for all subdomains, or without a scheme for
    /// any scheme. An invalid entry is an error when the application is built.
    #[must_use]
    pub fn allow_origin(mut self, origin: &str) -> WsOptions {
        self.origins.push(origin.into());
        self
    }

    /// Admits any page, with its visitor's cookies: for sockets that are public or require a token.
    #[must_use]
    pub fn allow_any_origin(mut self) -> WsOptions {
        self.any_origin = true;
        self
    }

    /// Sets the subprotocols of this route; the client's order of preference decides ([`Ws::protocol`]). A client that names only
    /// others gets a socket without one, and may close it. A name that is not a token, or appears twice, is an error when the
    /// application is built.
    #[must_use]
    pub fn protocols(mut self, protocols: &'static [&'static str]) -> WsOptions {
        self.protocols = protocols;
        self
    }

    /// Accepts permessage-deflate (RFC 7692) without context takeover: about 0.5 MB per worker, regardless of the number of
    /// sockets. Costs CPU time for each message.
    #[must_use]
    pub fn deflate(mut self) -> WsOptions {
        self.deflation = Some(Deflation::SHARED);
        self
    }

    /// Accepts permessage-deflate with context takeover, which makes small messages much smaller: up to 420 KiB per socket, less
    /// with a smaller `window`. When a worker has [`WsLimits::contexts`](crate::limits::WsLimits) such sockets, further ones are
    /// deflated as by [`WsOptions::deflate`].
    #[must_use]
    pub fn deflate_with_context(mut self, window: Window) -> WsOptions {
        self.deflation = Some(Deflation {
            own_window: window,
            peer_window: window,
            ..Deflation::CONTEXT
        });
        self
    }
}

/// Creates a route's socket for a request.
pub(crate) type SocketFactory = dyn Fn(&Request<'_>) -> Result<Box<dyn IntoSession>> + Send + Sync;

/// Validated settings.
pub(crate) struct WsRoute {
    origins: Origins,
    protocols: &'static [&'static str],
    deflation: Option<Deflation>,
    maker: Box<SocketFactory>,
}

/// A request that becomes a socket.
pub(crate) struct Upgrade {
    pub(crate) acceptance: Acceptance<'static>,
    socket: Box<dyn IntoSession>,
}

impl WsRoute {
    /// # Errors
    /// A message about the invalid setting.
    pub(crate) fn new(
        options: &WsOptions,
        maker: Box<SocketFactory>,
    ) -> std::result::Result<WsRoute, String> {
        let mut origins = Origins::default();
        if options.any_origin {
            origins.allow_any();
        }
        for origin in &options.origins {
            origins.allow(origin)?;
        }
        ws::Opening::new([0; 16], options.protocols, None)
            .map_err(|misuse| format!("subprotocols {:?}: {misuse}", options.protocols))?;
        Ok(WsRoute {
            origins,
            protocols: options.protocols,
            deflation: options.deflation,
            maker,
        })
    }

    /// Handles a request that the hooks have passed; the result is in `reply`.
    ///
    /// # Errors
    /// A request that is not a valid handshake, a page that is not admitted, an error of the application.
    pub(crate) fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
        let mut deflation = self.deflation;
        if let Some(offered) = &mut deflation
            && !request.worker.sockets.has_free_context()
        {
            (offered.own_context, offered.peer_context) = (false, false);
        }
        let offered = ServerWish {
            protocols: self.protocols,
            deflation,
        };
        let acceptance = ws::accept(request.head, &offered).map_err(|fault| {
            reply.handshake = Some(fault);
            match fault.kind {
                HandshakeFaultKind::VersionOther => {
                    refused(&fault).with_header("Sec-WebSocket-Version", "13")
                }
                _ => refused(&fault),
            }
        })?;
        self.origins.check(request)?;
        if request.cx().is_draining() {
            // The socket would only be closed with 1012.
            return Err(Error::new(503, "the server is shutting down").with_header("Retry-After", "1"));
        }
        let socket = (self.maker)(request)?;
        reply.upgrade = Some(Box::new(Upgrade { acceptance, socket }));
        Ok(())
    }
}

impl Upgrade {
    /// Returns both halves of the socket, once the 101 was sent (the 200 over HTTP/2).
    pub(crate) fn into_session(self, sockets: &Rc<WsWorkerState>, transport: WsTransport) -> Box<WsSession> {
        let deflation = self.acceptance.deflation();
        let ws = Ws::new(sockets, transport, self.acceptance.protocol, deflation);
        self.socket.into_session(ws)
    }
}

fn refused(fault: &HandshakeFault) -> Error {
    let text = fault.to_string();
    // The codec's advice addresses the server, not the client.
    let advice = format!("; answer {})", fault.kind.status());
    let fact = text.strip_suffix(&advice).map(|fact| format!("{fact})"));
    Error::new(fault.kind.status(), fact.unwrap_or(text))
}
