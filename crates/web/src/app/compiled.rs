//! A compiled application: routes, hooks, state and limits, shared by all workers and immutable.
//!
//! Selects the handler of a request. Knows no connection.

use std::any::{Any, TypeId};
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_wire::h1::Method;

use crate::app::listener_protocol::Entrances;
use crate::app::mount::Inner;
use crate::http::client_text;
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits::Limits;
use crate::logging::access_log::AccessLog;
use crate::logging::redact::RedactedParams;
use crate::router::{Lookup, Params, Router};
use crate::server::connection_limit::Admission;
use crate::server::fast_path::Look;
use crate::server::task_pool::Launch;
use crate::stats::Stats;
use crate::ws::Gate;

/// The decision of a hook that runs before the handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Continue with the next hook, or the handler.
    Continue,
    /// Stop: the reply is complete.
    Stop,
}

pub(crate) type Handler = dyn Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync;
pub(crate) type Before = dyn Fn(&Request<'_>, &mut Reply<'_>) -> Result<Flow> + Send + Sync;
pub(crate) type After = dyn Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync;
pub(crate) type MakeLocal = dyn Fn(&Cx) -> (TypeId, Box<dyn Any>) + Send + Sync;

/// The hooks around a handler: those of the application, then those of its groups.
#[derive(Clone, Default)]
pub(crate) struct Hooks {
    pub(crate) before: Vec<Arc<Before>>,
    pub(crate) after: Vec<Arc<After>>,
}

pub(crate) enum Action {
    /// Answers without waiting.
    Plain(Box<Handler>),
    /// May wait; the body is collected first, or streamed.
    Task { launch: Box<dyn Launch>, streamed: bool },
    /// Opens a WebSocket.
    Socket(Gate),
}

pub(crate) struct Route {
    pub(crate) action: Action,
    pub(crate) hooks: Hooks,
    /// The route's number, by which workers store state per route.
    pub(crate) index: usize,
    /// Answered even when the worker is overloaded.
    pub(crate) urgent: bool,
    /// Replaces the limit of the application.
    pub(crate) body_bytes: Option<u64>,
}

/// The compiled application, made by [`App`](crate::App).
pub struct Site {
    pub(crate) router: Router<Route>,
    pub(crate) fallback: Option<Route>,
    /// The routes to which handlers delegate.
    pub(crate) inner: Option<Inner>,
    /// The callback that may answer the fallback's requests without a task.
    pub(crate) early: Option<Box<Look>>,
    /// The hooks around responses to requests that match no route.
    pub(crate) hooks: Hooks,
    pub(crate) states: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
    pub(crate) per_worker: Vec<Box<MakeLocal>>,
    /// Entrances by listener.
    pub(crate) entrances: Entrances,
    pub(crate) limits: Limits,
    pub(crate) server_name: Option<String>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) request_ids: bool,
    /// Query parameters that logs redact beside [`HIDDEN`](crate::HIDDEN).
    pub(crate) redacted: RedactedParams,
    pub(crate) stats: Stats,
    pub(crate) admission: Admission,
}

/// The result of routing.
pub(crate) enum Verdict<'s> {
    Route(&'s Route),
    /// There is no such route, or no such method on it.
    NotFound,
    MethodNotAllowed {
        allow: &'s str,
    },
    /// OPTIONS of a path that has no handler for it.
    Options {
        allow: &'s str,
    },
    /// The request has waited longer than [`Limits::patience`].
    TooLate,
    /// The request is invalid whatever the route. Boxed, because every verdict is as large as the largest.
    Refused(Box<Error>),
}

impl Site {
    /// Returns the counters and latencies since the start.
    #[must_use]
    pub fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Returns the limits.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the access log, to reopen or finish it.
    #[must_use]
    pub fn access_log(&self) -> Option<&AccessLog> {
        self.access_log.as_ref()
    }

    pub(crate) fn state<T: 'static>(&self) -> Option<&T> {
        let (_, value) = self.states.iter().find(|(id, _)| *id == TypeId::of::<T>())?;
        value.downcast_ref()
    }

    pub(crate) fn find<'s>(&'s self, method: Method<'_>, path: &str, params: &mut Params) -> Verdict<'s> {
        found(self.router.find(method, path, params))
            .unwrap_or_else(|| self.fallback.as_ref().map_or(Verdict::NotFound, Verdict::Route))
    }
}

/// Converts the result of a router. `None`: the path has no route.
pub(crate) fn found(found: Lookup<'_, Route>) -> Option<Verdict<'_>> {
    match found {
        Lookup::Route(route) => Some(Verdict::Route(route)),
        Lookup::Nothing => None,
        Lookup::MethodNotAllowed { allow } => Some(Verdict::MethodNotAllowed { allow }),
        Lookup::Options { allow } => Some(Verdict::Options { allow }),
    }
}

impl<'s> Verdict<'s> {
    /// Returns the route's own hooks, or those around responses to requests that match no route.
    pub(crate) fn hooks(&self, site: &'s Site) -> &'s Hooks {
        match self {
            Verdict::Route(route) => &route.hooks,
            _ => &site.hooks,
        }
    }

    /// Writes the response of a plain handler, or of the application itself.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
        match self {
            Verdict::Route(Route {
                action: Action::Plain(handler),
                ..
            }) => handler(request, reply),
            Verdict::Route(Route {
                action: Action::Socket(gate),
                ..
            }) => gate.open(request, reply),
            Verdict::Route(_) => Err(Error::internal("an asynchronous handler was not launched")),
            Verdict::NotFound => Err(Error::not_found(format!(
                "nothing is served at `{}`",
                client_text::cut(request.target())
            ))),
            Verdict::MethodNotAllowed { allow } => Err(Error::new(
                405,
                format!(
                    "expected one of {allow} here, found {}",
                    client_text::cut(request.method().as_str())
                ),
            )
            .with_header("Allow", (*allow).to_owned())),
            Verdict::Options { allow } => {
                reply.header("Allow", allow)?;
                reply.no_content()
            }
            Verdict::TooLate => {
                Err(Error::new(503, "the server is overloaded: ask again later")
                    .with_header("Retry-After", "1"))
            }
            Verdict::Refused(error) => Err(error.again()),
        }
    }
}

impl std::fmt::Debug for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Site")
    }
}
