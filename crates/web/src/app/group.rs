//! Routes below one prefix, with their hooks: a tree while it is built, a flat table afterwards.

use std::sync::Arc;

use ringmain_wire::h1::Method;

use super::AppError;
use crate::app::compiled::{Action, After, Before, CompiledRoute, Hooks};
use crate::http::error::Result;
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::router::{Methods, RouterBuilder, join};
use crate::server::task_pool::AsyncHandler;
use crate::ws::{SocketFactory, WsOptions, WsRoute};

/// Routes below a prefix; made by [`App::group`](crate::App::group).
#[derive(Default)]
pub struct Group {
    pub(super) scope: Scope,
}

/// The common part of an application and a group.
#[derive(Default)]
pub(super) struct Scope {
    pub(super) before: Vec<Arc<Before>>,
    pub(super) after: Vec<Arc<After>>,
    pub(super) body_bytes: Option<u64>,
    routes: Vec<PendingRoute>,
    /// The first invalid route.
    fault: Option<AppError>,
    groups: Vec<(String, Scope)>,
}

/// A route as it was added. `None`: any method.
struct PendingRoute {
    method: Option<String>,
    pattern: String,
    action: Action,
    urgent: bool,
}

impl Group {
    /// Adds routes below a further prefix.
    #[must_use]
    pub fn group(mut self, prefix: &str, build: impl FnOnce(Group) -> Group) -> Group {
        self.scope.group(prefix, build);
        self
    }
}

impl Action {
    pub(super) fn asynchronous<F>(handler: F, streamed: bool) -> Action
    where
        F: AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    {
        Action::Task {
            factory: Box::new(AsyncHandler(Arc::new(handler))),
            streamed,
        }
    }
}

impl Scope {
    pub(super) fn add(&mut self, method: Option<&str>, pattern: &str, action: Action) {
        self.routes.push(PendingRoute {
            method: method.map(Into::into),
            pattern: pattern.into(),
            action,
            urgent: false,
        });
    }

    /// Records that the application cannot be built.
    pub(super) fn refuse(&mut self, fault: AppError) {
        self.fault.get_or_insert(fault);
    }

    /// Adds a GET route that opens a WebSocket.
    pub(super) fn add_socket(&mut self, pattern: &str, options: &WsOptions, maker: Box<SocketFactory>) {
        match WsRoute::new(options, maker) {
            Ok(gate) => self.add(Some("GET"), pattern, Action::Socket(gate)),
            Err(problem) => {
                self.refuse(AppError(format!("WebSocket route `{pattern}`: {problem}")));
            }
        }
    }

    /// Adds a GET route that is answered even when the worker is overloaded.
    pub(super) fn add_urgent(
        &mut self,
        pattern: &str,
        handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    ) {
        self.routes.push(PendingRoute {
            method: Some("GET".into()),
            pattern: pattern.into(),
            action: Action::Plain(Box::new(handler)),
            urgent: true,
        });
    }

    pub(super) fn group(&mut self, prefix: &str, build: impl FnOnce(Group) -> Group) {
        let group = build(Group::default());
        self.groups.push((prefix.into(), group.scope));
    }

    /// Returns the hooks of this scope, within the outer ones.
    pub(super) fn hooks(&self, outer: &Hooks) -> Hooks {
        Hooks {
            before: outer.before.iter().chain(&self.before).cloned().collect(),
            after: self.after.iter().chain(&outer.after).cloned().collect(),
        }
    }

    /// Adds all routes to the table.
    pub(super) fn compile(
        self,
        prefix: &str,
        outer: &Hooks,
        body_bytes: Option<u64>,
        index: &mut usize,
        router: &mut RouterBuilder<CompiledRoute>,
    ) -> std::result::Result<(), AppError> {
        let hooks = self.hooks(outer);
        if let Some(fault) = self.fault {
            return Err(fault);
        }
        let body_bytes = self.body_bytes.or(body_bytes);
        for pending in self.routes {
            let pattern = join(prefix, &pending.pattern).map_err(refused)?;
            let route = CompiledRoute {
                action: pending.action,
                hooks: hooks.clone(),
                index: *index,
                urgent: pending.urgent,
                body_bytes,
            };
            *index += 1;
            let inserted = match &pending.method {
                None => router.insert(Methods::Any, &pattern, route),
                Some(method) => router.insert(Methods::Only(&[Method::new(method)]), &pattern, route),
            };
            inserted.map_err(refused)?;
        }
        for (below, scope) in self.groups {
            // A group for its hooks alone has no prefix to join.
            let prefix = if below.is_empty() {
                prefix.to_owned()
            } else {
                join(prefix, &below).map_err(refused)?
            };
            scope.compile(&prefix, &hooks, body_bytes, index, router)?;
        }
        Ok(())
    }
}

fn refused(error: crate::router::RouteError) -> AppError {
    AppError(error.to_string())
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Group of {} routes", self.scope.routes.len())
    }
}
