//! Routes that requests reach only through a handler of the application, once it knows that they may.
//!
//! Owns the delegation from one handler to another within a request: the rest of its body, its hooks, its response. Does not know
//! the reason.

use std::cell::Cell;

use ringmain_wire::h1::Version;

use crate::app::compiled::{Action, Flow, Hooks, Route, Site, Verdict, found};
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::router::{Params, Router};
use crate::server::response;

/// The inner routes, and the hooks around responses to requests that match none.
pub(crate) struct Inner {
    pub(crate) router: Router<Route>,
    pub(crate) hooks: Hooks,
}

impl Site {
    /// Matches the inner routes.
    fn find_inside<'s>(&'s self, request: &Request<'_>, path: &str, params: &mut Params) -> Verdict<'s> {
        match &self.inner {
            Some(inner) => {
                found(inner.router.find(request.method(), path, params)).unwrap_or(Verdict::NotFound)
            }
            None => Verdict::NotFound,
        }
    }
}

impl Reply<'_> {
    /// Lets the inner routes ([`App::inner`](crate::App::inner)) answer the request in place of the calling handler, which must
    /// return the result. Fields set before stay, except with an error. `path` is matched against the routes: the request's path,
    /// or its end.
    ///
    /// The body is received as the route requires, up to its limit. Therefore the calling handler must be a streaming one, and must
    /// not have read any of the body.
    ///
    /// # Errors
    /// As the route's handler; 404 and 405 without a matching route; 413 for a body that is too long; 500 once anything was sent.
    pub async fn lead_inside(&mut self, path: &str) -> Result {
        if self.is_streaming() {
            return Err(Error::internal(
                "a request is to be led to the inner routes before its reply is sent",
            ));
        }
        let (request, site) = (self.request, self.request.site);
        let mut params = Params::new();
        let verdict = site.find_inside(request, path, &mut params);
        let hooks = match (&verdict, &site.inner) {
            (Verdict::Route(route), _) => &route.hooks,
            (_, Some(inner)) => &inner.hooks,
            (_, None) => &site.hooks,
        };
        // Set before the head of a streamed response is sent, because the hooks see it.
        self.hooks = hooks;
        let limits = site.limits();
        let (streamed, most) = match &verdict {
            Verdict::Route(Route {
                action: Action::Task { streamed: true, .. },
                body_bytes,
                ..
            }) => (true, body_bytes.or(limits.streamed_body_bytes)),
            Verdict::Route(route) => (false, Some(route.body_bytes.unwrap_or(limits.body_bytes))),
            // No handler reads the body.
            _ => (true, Some(0)),
        };
        let mut body = Vec::new();
        // The data on the stream of an extended CONNECT is not a body.
        if !streamed && request.head.protocol.is_none() {
            let left = Cell::new(most);
            while let Some(piece) = request.chunk_within(&left).await? {
                body.extend_from_slice(&piece);
            }
        }
        let inside = request.inside(path, params, &body, (hooks, most));
        let outcome = match response::run_before(&inside, self) {
            Ok(Flow::Continue) => run(&verdict, &inside, self).await,
            Ok(Flow::Stop) => Ok(()),
            Err(error) => Err(error),
        };
        request.notes.add(&inside.notes);
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

async fn run(verdict: &Verdict<'_>, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    match verdict {
        Verdict::Route(Route {
            action: Action::Task { launch, .. },
            ..
        }) => launch.answer(request, reply).await,
        Verdict::Route(Route {
            action: Action::Socket(gate),
            ..
        }) => match request.exchange {
            Some(exchange) if exchange.body_is_over() || request.head.protocol.is_some() => {
                gate.open(request, reply)
            }
            _ => Err(Error::bad_request(
                "expected a request without a body, which becomes a WebSocket",
            )),
        },
        verdict => verdict.answer(request, reply),
    }
}
