//! Delegate routes: reached only through a handler of the application, once it has admitted the request.
//!
//! Owns the delegation from one handler to another within a request: the rest of its body, its hooks, its response.

use std::cell::Cell;

use ringmain_wire::h1::Version;

use crate::app::compiled::{Action, CompiledApp, CompiledRoute, Flow, Hooks, RouteMatch, found};
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::router::{Params, Router};
use crate::server::response;

/// The delegate routes, and the hooks around responses to requests that match none.
pub(crate) struct DelegateRoutes {
    pub(crate) router: Router<CompiledRoute>,
    pub(crate) hooks: Hooks,
}

impl CompiledApp {
    /// Matches the delegate routes.
    fn match_delegate<'s>(
        &'s self,
        request: &Request<'_>,
        path: &str,
        params: &mut Params,
    ) -> RouteMatch<'s> {
        match &self.delegate {
            Some(delegate) => {
                found(delegate.router.find(request.method(), path, params)).unwrap_or(RouteMatch::NotFound)
            }
            None => RouteMatch::NotFound,
        }
    }
}

impl Reply<'_> {
    /// Lets the delegate routes ([`App::delegate_to`](crate::App::delegate_to)) answer the request in place of the calling handler, which must
    /// return the result. Fields set before stay, except with an error. `path` is matched against the routes: the request's path,
    /// or its end.
    ///
    /// The body is received as the route requires, up to its limit. Therefore the calling handler must be a streaming one, and must
    /// not have read any of the body.
    ///
    /// # Errors
    /// As the route's handler; 404 and 405 without a matching route; 413 for a body that is too long; 500 once anything was sent.
    pub async fn delegate(&mut self, path: &str) -> Result {
        if self.is_streaming() {
            return Err(Error::internal(
                "a request must be delegated before its reply is sent",
            ));
        }
        let (request, app) = (self.request, self.request.app);
        let mut params = Params::new();
        let route_match = app.match_delegate(request, path, &mut params);
        let hooks = match (&route_match, &app.delegate) {
            (RouteMatch::Route(route), _) => &route.hooks,
            (_, Some(delegate)) => &delegate.hooks,
            (_, None) => &app.hooks,
        };
        // Set before the head of a streamed response is sent, because the hooks see it.
        self.hooks = hooks;
        let limits = app.limits();
        let (streamed, limit) = match &route_match {
            RouteMatch::Route(CompiledRoute {
                action: Action::Task { streamed: true, .. },
                body_bytes,
                ..
            }) => (true, body_bytes.or(limits.streamed_body_bytes)),
            RouteMatch::Route(route) => (false, Some(route.body_bytes.unwrap_or(limits.body_bytes))),
            // No handler reads the body.
            _ => (true, Some(0)),
        };
        let mut body = Vec::new();
        // The data on the stream of an extended CONNECT is not a body.
        if !streamed && request.head.protocol.is_none() {
            let remaining = Cell::new(limit);
            while let Some(piece) = request.chunk_within(&remaining).await? {
                body.extend_from_slice(&piece);
            }
        }
        let delegated = request.delegated(path, params, &body, hooks, limit);
        let outcome = match response::run_before(&delegated, self) {
            Ok(Flow::Continue) => run(&route_match, &delegated, self).await,
            Ok(Flow::Stop) => Ok(()),
            Err(error) => Err(error),
        };
        request.log_fields.add(&delegated.log_fields);
        if outcome.is_ok() && self.upgrade.is_some() {
            self.status = if request.version() == Version::Http2 {
                200
            } else {
                101
            };
        }
        outcome
    }
}

async fn run(route_match: &RouteMatch<'_>, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    match route_match {
        RouteMatch::Route(CompiledRoute {
            action: Action::Task { factory, .. },
            ..
        }) => factory.run_inline(request, reply).await,
        RouteMatch::Route(CompiledRoute {
            action: Action::Socket(gate),
            ..
        }) => match request.exchange {
            Some(exchange) if exchange.is_body_complete() || request.head.protocol.is_some() => {
                gate.open(request, reply)
            }
            _ => Err(Error::bad_request("expected a WebSocket request without a body")),
        },
        route_match => route_match.answer(request, reply),
    }
}
