//! A compiled application: routes, hooks, state and limits, shared by all workers and immutable.
//!
//! Selects the handler of a request. Knows no connection.

use std::any::{Any, TypeId};
use std::sync::Arc;

use ringmain_engine::Cx;
use ringmain_wire::h1::Method;

use crate::app::listener_protocol::ListenerProtocols;
use crate::app::mount::DelegateRoutes;
use crate::http::client_text;
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits::Limits;
use crate::logging::access_log::AccessLog;
use crate::logging::redact::RedactedParams;
use crate::router::{Lookup, Params, Router};
use crate::server::StartedWorker;
use crate::server::connection_limit::ConnectionLimit;
use crate::server::fast_path::FastPath;
use crate::server::task_pool::TaskFactory;
use crate::stats::Stats;
use crate::ws::WsRoute;

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
pub(crate) type WorkerStartHook = dyn Fn(&StartedWorker<'_>) + Send + Sync;
pub(crate) type WorkerStateFactory = dyn Fn(&Cx) -> (TypeId, Box<dyn Any>) + Send + Sync;

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
    Task {
        factory: Box<dyn TaskFactory>,
        streamed: bool,
    },
    /// Opens a WebSocket.
    Socket(WsRoute),
}

pub(crate) struct CompiledRoute {
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
pub struct CompiledApp {
    pub(crate) router: Router<CompiledRoute>,
    pub(crate) fallback: Option<CompiledRoute>,
    /// The routes to which handlers delegate.
    pub(crate) delegate: Option<DelegateRoutes>,
    /// The callback that may answer the fallback's requests without a task.
    pub(crate) fast_path: Option<Box<FastPath>>,
    /// The hooks around responses to requests that match no route.
    pub(crate) hooks: Hooks,
    pub(crate) states: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
    pub(crate) per_worker: Vec<Box<WorkerStateFactory>>,
    pub(crate) on_worker_start: Vec<Box<WorkerStartHook>>,
    /// Protocols by listener.
    pub(crate) listener_protocols: ListenerProtocols,
    pub(crate) limits: Limits,
    pub(crate) server_name: Option<String>,
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) request_ids: bool,
    /// Query parameters that logs redact beside [`REDACTED_PARAMS`](crate::REDACTED_PARAMS).
    pub(crate) redacted: RedactedParams,
    pub(crate) stats: Stats,
    pub(crate) connection_limit: ConnectionLimit,
}

/// The result of routing.
pub(crate) enum RouteMatch<'s> {
    Route(&'s CompiledRoute),
    /// There is no such route, or no such method on it.
    NotFound,
    MethodNotAllowed {
        allow: &'s str,
    },
    /// OPTIONS of a path that has no handler for it.
    Options {
        allow: &'s str,
    },
    /// The request has waited longer than [`Limits::max_queue_delay`].
    Overloaded,
    /// The request is invalid whatever the route. Boxed, because every match is as large as the largest.
    Invalid(Box<Error>),
}

impl CompiledApp {
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

    pub(crate) fn find<'s>(&'s self, method: Method<'_>, path: &str, params: &mut Params) -> RouteMatch<'s> {
        found(self.router.find(method, path, params)).unwrap_or_else(|| {
            self.fallback
                .as_ref()
                .map_or(RouteMatch::NotFound, RouteMatch::Route)
        })
    }
}

/// Converts the result of a router. `None`: the path has no route.
pub(crate) fn found(found: Lookup<'_, CompiledRoute>) -> Option<RouteMatch<'_>> {
    match found {
        Lookup::Route(route) => Some(RouteMatch::Route(route)),
        Lookup::Nothing => None,
        Lookup::MethodNotAllowed { allow } => Some(RouteMatch::MethodNotAllowed { allow }),
        Lookup::Options { allow } => Some(RouteMatch::Options { allow }),
    }
}

impl<'s> RouteMatch<'s> {
    /// Returns the factory of the route's task, and the route's number; `None`: no task answers.
    pub(crate) fn task(&self) -> Option<(&'s dyn TaskFactory, usize)> {
        match self {
            RouteMatch::Route(CompiledRoute {
                action: Action::Task { factory, .. },
                index,
                ..
            }) => Some((&**factory, *index)),
            _ => None,
        }
    }

    /// Returns the route's own hooks, or those around responses to requests that match no route.
    pub(crate) fn hooks(&self, app: &'s CompiledApp) -> &'s Hooks {
        match self {
            RouteMatch::Route(route) => &route.hooks,
            _ => &app.hooks,
        }
    }

    /// Writes the response of a plain handler, or of the application itself.
    pub(crate) fn answer(&self, request: &Request<'_>, reply: &mut Reply<'_>) -> Result {
        match self {
            RouteMatch::Route(CompiledRoute {
                action: Action::Plain(handler),
                ..
            }) => handler(request, reply),
            RouteMatch::Route(CompiledRoute {
                action: Action::Socket(gate),
                ..
            }) => gate.open(request, reply),
            RouteMatch::Route(_) => Err(Error::internal("an asynchronous handler was not started")),
            RouteMatch::NotFound => Err(Error::not_found(format!(
                "no route matches `{}`",
                client_text::truncate(request.target())
            ))),
            RouteMatch::MethodNotAllowed { allow } => Err(Error::new(
                405,
                format!(
                    "method not allowed: expected one of {allow}, found {}",
                    client_text::truncate(request.method().as_str())
                ),
            )
            .with_header("Allow", (*allow).to_owned())),
            RouteMatch::Options { allow } => {
                reply.header("Allow", allow)?;
                reply.no_content()
            }
            RouteMatch::Overloaded => {
                Err(Error::new(503, "server overloaded").with_header("Retry-After", "1"))
            }
            RouteMatch::Invalid(error) => Err(error.clone_without_cause()),
        }
    }
}

impl std::fmt::Debug for CompiledApp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("CompiledApp")
    }
}
