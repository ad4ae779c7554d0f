//! How a route's sockets are opened: which pages may, which subprotocols are known, whether messages are deflated.

use std::rc::Rc;

use ringmain_wire::ws::{
    self, Acceptance, Deflation, HandshakeFault, HandshakeFaultKind, ServerWish, Window,
};

use super::carrier::Carrier;
use super::origin::Origins;
use super::{Live, Socket, Sockets, Ws};
use crate::error::{Error, Result};
use crate::reply::Reply;
use crate::request::Request;

/// Settings of one route's sockets: for [`App::ws_with`](crate::App::ws_with).
///
/// Unless set otherwise only pages of the same host may open one (and who is no browser), no subprotocol is known and
/// nothing is deflated.
#[derive(Clone, Debug, Default)]
pub struct WsOptions {
    origins: Vec<String>,
    any_origin: bool,
    protocols: &'static [&'static str],
    deflation: Option<Deflation>,
}

impl WsOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> WsOptions {
        WsOptions::default()
    }

    /// Pages of this origin may open a socket too: `https://app.example.com`, `https://*.example.com` for all names
    /// below, or without a scheme for any. What is none of these is an error when the application is built.
    #[must_use]
    pub fn allow_origin(mut self, origin: &str) -> WsOptions {
        self.origins.push(origin.into());
        self
    }

    /// Any page may open a socket, with its visitor's cookies: for what is public, or asks for a token.
    #[must_use]
    pub fn allow_any_origin(mut self) -> WsOptions {
        self.any_origin = true;
        self
    }

    /// Subprotocols that this route speaks; the client's order of preference decides ([`Ws::protocol`]). A client that
    /// names only others gets a socket without one, and may close it. A name that is no token, or comes
    /// twice, is an error when the application is built.
    #[must_use]
    pub fn protocols(mut self, protocols: &'static [&'static str]) -> WsOptions {
        self.protocols = protocols;
        self
    }

    /// Agrees to permessage-deflate (RFC 7692) without memory between messages: about 0.5 MB a worker, however many
    /// sockets. Costs time for each message.
    #[must_use]
    pub fn deflate(mut self) -> WsOptions {
        self.deflation = Some(Deflation::SHARED);
        self
    }

    /// The same with memory between messages, which makes small ones much smaller: up to 420 KiB a socket, less with
    /// a smaller `window`. When a worker has [`WsLimits::contexts`](crate::limits::WsLimits) of these, further sockets are deflated
    /// as by [`WsOptions::deflate`].
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

/// Makes a route's socket for a request.
pub(crate) type Maker = dyn Fn(&Request<'_>) -> Result<Box<dyn Socket>> + Send + Sync;

/// Settings, checked.
pub(crate) struct Gate {
    origins: Origins,
    protocols: &'static [&'static str],
    deflation: Option<Deflation>,
    maker: Box<Maker>,
}

/// A request that becomes a socket.
pub(crate) struct Upgrade {
    pub(crate) acceptance: Acceptance<'static>,
    socket: Box<dyn Socket>,
}

impl Gate {
    /// # Errors
    /// What is wrong with the settings.
    pub(crate) fn new(options: &WsOptions, maker: Box<Maker>) -> std::result::Result<Gate, String> {
        let mut origins = Origins::default();
        if options.any_origin {
            origins.allow_any();
        }
        for origin in &options.origins {
            origins.allow(origin)?;
        }
        ws::Opening::new([0; 16], options.protocols, None)
            .map_err(|misuse| format!("subprotocols {:?}: {misuse}", options.protocols))?;
        Ok(Gate {
            origins,
            protocols: options.protocols,
            deflation: options.deflation,
            maker,
        })
    }

    /// What becomes of a request that the hooks let pass: left in `reply`.
    ///
    /// # Errors
    /// A request that opens no socket, a page that may not, what the application says.
    pub(crate) fn open(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
        let mut deflation = self.deflation;
        if let Some(wish) = &mut deflation
            && !request.local.sockets.has_context_left()
        {
            (wish.own_context, wish.peer_context) = (false, false);
        }
        let wish = ServerWish {
            protocols: self.protocols,
            deflation,
        };
        let acceptance = ws::accept(request.head, &wish).map_err(|fault| {
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
            // It could only be told to go away.
            return Err(Error::new(503, "the server is shutting down").with_header("Retry-After", "1"));
        }
        let socket = (self.maker)(request)?;
        reply.upgrade = Some(Box::new(Upgrade { acceptance, socket }));
        Ok(())
    }
}

impl Upgrade {
    /// Both halves of the socket, once the 101 is on its way (the 200 over HTTP/2).
    pub(crate) fn into_live(self, sockets: &Rc<Sockets>, carrier: Carrier) -> Box<Live> {
        let deflation = self.acceptance.deflation();
        let ws = Ws::new(sockets, carrier, self.acceptance.protocol, deflation);
        Box::new(Live::new(ws, self.socket))
    }
}

fn refused(fault: &HandshakeFault) -> Error {
    let text = fault.to_string();
    // The codec's advice to the server is none of the client's.
    let advice = format!("; answer {})", fault.kind.status());
    let fact = text.strip_suffix(&advice).map(|fact| format!("{fact})"));
    Error::new(fault.kind.status(), fact.unwrap_or(text))
}
