//! Routes that no request reaches by itself: a handler of the application leads requests to them, once it knows that they
//! may go there.
//!
//! Owns the way from one handler to another within a request: what is left of its body, its hooks, its answer. Knows nothing of why.

use std::cell::Cell;

use ringmain_wire::h1::Version;

use crate::error::{Error, Result};
use crate::reply::Reply;
use crate::request::Request;
use crate::router::{Params, Router};
use crate::server::answer;
use crate::site::{Action, Flow, Hooks, Route, Site, Verdict, found};

/// The routes, and the hooks around what none of them answers.
pub(crate) struct Inner {
    pub(crate) router: Router<Route>,
    pub(crate) hooks: Hooks,
}

impl Site {
    /// Which of the inner routes answers.
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
    /// Has the inner routes ([`App::inner`](crate::App::inner)) answer the request in place of the handler that calls this, which is
    /// to return what comes of it. Fields that were set before stay, unless it is an error. `path` is what
    /// the routes are to see: the request's, or the end of it.
    ///
    /// A body is read as the route wants it, up to its limit: by a handler that had it streamed and has not read any of it.
    ///
    /// # Errors
    /// As the route's handler; 404 and 405 where there is none; 413 for a body that is too long; 500 once anything was sent.
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
        // Also for an answer that lasts, whose head they see before it is sent.
        self.hooks = hooks;
        let limits = site.limits();
        let (streamed, most) = match &verdict {
            Verdict::Route(Route {
                action: Action::Task { streamed: true, .. },
                body_bytes,
                ..
            }) => (true, body_bytes.or(limits.streamed_body_bytes)),
            Verdict::Route(route) => (false, Some(route.body_bytes.unwrap_or(limits.body_bytes))),
            // Nobody reads it.
            _ => (true, Some(0)),
        };
        let mut body = Vec::new();
        // What comes on the stream of an extended CONNECT is no body.
        if !streamed && request.head.protocol.is_none() {
            let left = Cell::new(most);
            while let Some(piece) = request.chunk_within(&left).await? {
                body.extend_from_slice(&piece);
            }
        }
        let inside = request.inside(path, params, &body, (hooks, most));
        let outcome = match answer::run_before(&inside, self) {
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
