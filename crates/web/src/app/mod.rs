//! Building an application: routes in groups, hooks around them, state, limits.
//!
//! Route errors are reported when the application is built, not where the route was added, so that building is one chain of calls.
//! Nothing here runs per request.

pub(crate) mod compiled;
pub(crate) mod exit;
mod group;
pub(crate) mod listener_protocol;
pub(crate) mod mount;
pub(crate) mod serve;

use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::{Config, Cx, Start};

use self::compiled::{Action, CompiledRoute, Hooks, WorkerStartHook, WorkerStateFactory};
pub use self::compiled::{CompiledApp, Flow};
pub use self::exit::Exit;
pub use self::group::Group;
use self::group::Scope;
pub use self::listener_protocol::{ListenerProtocol, ListenerProtocols};
pub use self::serve::serve;
use crate::app::mount::DelegateRoutes;
use crate::http::error::{Error, Result};
use crate::http::reply::Reply;
use crate::http::request::Request;
use crate::limits::{self, Limits};
use crate::logging::access_log::AccessLog;
use crate::logging::redact::RedactedParams;
use crate::router::RouterBuilder;
use crate::server::connection_limit::ConnectionLimit;
use crate::server::fast_path::{AbortHandle, FastPath, Responder};
use crate::server::preamble::Preamble;
use crate::server::{Server, StartedWorker};
use crate::stats::Stats;
use crate::ws::{AsyncSocketHandler, IntoSession, Socket, WsOptions, WsStream};

/// An HTTP application: routes, hooks around them, and state.
///
/// ```no_run
/// use ringmain_web::{App, Exit, Reply, Request, Result};
///
/// fn hello(req: &Request, reply: &mut Reply) -> Result {
///     reply.text(format!("Hello, {}!\n", req.param("name")?))
/// }
///
/// fn main() -> Exit {
///     App::new().get("/hello/{name}", hello).run("127.0.0.1:8080")
/// }
/// ```
///
/// *Patterns*: `{name}` matches one segment of the path, `{*rest}` the remaining path; `{{` and `}}` are literal braces. If several
/// patterns match, the one with the earlier literal text wins. `/a` and `/a/` are two paths. HEAD is served by the GET route;
/// OPTIONS and 405 list the available methods.
///
/// *Handlers*: a plain one ([`get`](App::get)) responds at once, must not block its worker and receives the whole body. An `async`
/// one, added by [`get_async`](App::get_async), may wait; a [`streamed`](App::post_streamed) one also reads its body in chunks. All
/// have the same signature.
pub struct App {
    scope: Scope,
    fallback: Option<Action>,
    fast_path: Option<Box<FastPath>>,
    delegate: Scope,
    states: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
    per_worker: Vec<Box<WorkerStateFactory>>,
    on_worker_start: Vec<Box<WorkerStartHook>>,
    listener_protocols: ListenerProtocols,
    limits: Limits,
    server_name: Option<String>,
    access_log: Option<AccessLog>,
    request_ids: bool,
    redacted: RedactedParams,
}

/// The reason why an application cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AppError(pub(crate) String);

impl fmt::Display for AppError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for AppError {}

impl Default for App {
    fn default() -> App {
        App::new()
    }
}

impl App {
    /// Returns an application that responds with 404 to every request.
    #[must_use]
    pub fn new() -> App {
        App {
            scope: Scope::default(),
            fallback: None,
            fast_path: None,
            delegate: Scope::default(),
            states: Vec::new(),
            per_worker: Vec::new(),
            on_worker_start: Vec::new(),
            listener_protocols: ListenerProtocols::default(),
            limits: Limits::default(),
            server_name: Some("ringmain".into()),
            access_log: None,
            request_ids: false,
            redacted: RedactedParams::new(),
        }
    }

    /// Adds routes below `prefix`, with hooks of their own: `.group("/api", |api| api.before(check_token).get("/users", users))`.
    #[must_use]
    pub fn group(mut self, prefix: &str, build: impl FnOnce(Group) -> Group) -> App {
        self.scope.group(prefix, build);
        self
    }

    /// Sets the handler of requests that match no route, in place of 404.
    #[must_use]
    pub fn fallback(
        mut self,
        handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    ) -> App {
        self.fallback = Some(Action::Plain(Box::new(handler)));
        self
    }

    /// Sets an asynchronous handler, which reads the body in chunks, for requests that match no route; as
    /// [`on_streamed`](App::on_streamed).
    #[must_use]
    pub fn fallback_streamed(
        mut self,
        handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    ) -> App {
        self.fallback = Some(Action::asynchronous(handler, true));
        self
    }

    /// Offers each request without a body that would reach the streamed fallback to `inspect` first. `inspect` may retain its responder and
    /// respond from outside a task: for intermediaries, whose responses arrive on other connections of the worker. A request whose
    /// responder is returned reaches the handler. Requests that run hooks or get an id are not offered.
    #[must_use]
    pub fn fast_path(
        mut self,
        inspect: impl Fn(&Request<'_>, Responder) -> std::result::Result<Rc<dyn AbortHandle>, Responder>
        + Send
        + Sync
        + 'static,
    ) -> App {
        self.fast_path = Some(Box::new(inspect));
        self
    }

    /// Makes [`App::build`] fail with this reason: for code that adds a part to the application and finds an error in it.
    #[must_use]
    pub fn build_error(mut self, reason: impl Into<String>) -> App {
        self.scope.refuse(AppError(reason.into()));
        self
    }

    /// Adds routes that requests reach only if a handler delegates to them with [`Reply::delegate`]. Only the routes, hooks and
    /// state of `delegate` are used; its state replaces state of the same type. This application's `before` hooks have run by then;
    /// its `after` hooks run after those of `delegate`. A second call replaces the first.
    #[must_use]
    pub fn delegate_to(mut self, delegate: App) -> App {
        for (id, value) in delegate.states {
            self.states.retain(|(other, _)| *other != id);
            self.states.push((id, value));
        }
        self.per_worker.extend(delegate.per_worker);
        self.on_worker_start.extend(delegate.on_worker_start);
        self.delegate = delegate.scope;
        self
    }

    /// Adds state that all workers share; handlers access it by type ([`Request::state`]). A second value of the same type replaces
    /// the first.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> App {
        self.states.retain(|(id, _)| *id != TypeId::of::<T>());
        self.states.push((TypeId::of::<T>(), Box::new(value)));
        self
    }

    /// Adds state that each worker builds for itself at its start; handlers access it by type ([`Request::local`]). It needs no
    /// lock: caches, pools, counters.
    #[must_use]
    pub fn per_worker<T: 'static>(mut self, create: impl Fn(&Cx) -> T + Send + Sync + 'static) -> App {
        let create = move |cx: &Cx| -> (TypeId, Box<dyn Any>) { (TypeId::of::<T>(), Box::new(create(cx))) };
        self.per_worker.push(Box::new(create));
        self
    }

    /// Adds a hook that each worker calls once at its start, when its own state is built.
    #[must_use]
    pub fn on_worker_start(mut self, hook: impl Fn(&StartedWorker<'_>) + Send + Sync + 'static) -> App {
        self.on_worker_start.push(Box::new(hook));
        self
    }

    /// Sets the protocol of the connections of listener `number`, counted from 0 in the order of the calls of
    /// [`Engine::listen`](ringmain_engine::Engine::listen). Default: [`ListenerProtocol::http`].
    #[must_use]
    pub fn listener(self, number: u32, protocol: ListenerProtocol) -> App {
        self.listener_protocols.set(number, protocol);
        self
    }

    /// Replaces the table of listener protocols with one that may change while the application serves, for listeners that are added, removed
    /// or changed.
    #[must_use]
    pub fn listener_protocols(mut self, protocols: &ListenerProtocols) -> App {
        self.listener_protocols = protocols.clone();
        self
    }

    /// Sets limits other than the defaults, which are safe on the internet.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> App {
        self.limits = limits;
        self
    }

    /// Sets the value of `Server` in responses; `None` omits the field. Default: `ringmain`.
    #[must_use]
    pub fn server_name(mut self, name: Option<&str>) -> App {
        self.server_name = name.map(Into::into);
        self
    }

    /// Writes a line for each response.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> App {
        self.access_log = Some(log);
        self
    }

    /// Redacts the query parameters with these names from logs as well; the list may change while the application serves.
    #[must_use]
    pub fn redacted_params(mut self, params: &RedactedParams) -> App {
        self.redacted = params.clone();
        self
    }

    /// Assigns an id to each request: the client's `X-Request-Id` if it is safe, else a new one. The response and the access log
    /// include it.
    #[must_use]
    pub fn request_ids(mut self) -> App {
        self.request_ids = true;
        self
    }

    /// Adds `/healthz` (200 while the process serves) and `/readyz` (200 while it accepts traffic, 503 once shutdown has begun).
    #[must_use]
    pub fn health(self) -> App {
        self.health_if(|_| Ok(()))
    }

    /// Adds the routes of [`App::health`]; `/readyz` also calls `ready` and responds with its error.
    #[must_use]
    pub fn health_if(mut self, ready: impl Fn(&Request<'_>) -> Result + Send + Sync + 'static) -> App {
        let ready = move |req: &Request<'_>, reply: &mut Reply<'_>| {
            if req.cx().is_draining() {
                return Err(Error::new(503, "shutting down"));
            }
            ready(req)?;
            reply.text("ok\n")
        };
        self.scope.add_urgent("/healthz", |_, reply| reply.text("ok\n"));
        self.scope.add_urgent("/readyz", ready);
        self
    }

    /// Compiles routes and hooks.
    ///
    /// # Errors
    /// An invalid pattern, two routes for the same requests, a limit out of range, or the reason given to [`App::build_error`].
    pub fn build(self) -> std::result::Result<Arc<CompiledApp>, AppError> {
        check(&self.limits)?;
        Preamble::new(self.server_name.as_deref())
            .map_err(|misuse| AppError(format!("server name: {misuse}")))?;
        let hooks = self.scope.hooks(&Hooks::default());
        let mut router = RouterBuilder::new();
        let mut index = 0;
        self.scope
            .compile("", &Hooks::default(), None, &mut index, &mut router)?;
        let fallback = self.fallback.map(|action| CompiledRoute {
            action,
            hooks: hooks.clone(),
            index,
            urgent: false,
            body_bytes: None,
        });
        let outer_hooks = Hooks {
            before: Vec::new(),
            after: hooks.after.clone(),
        };
        let mut delegate_router = RouterBuilder::new();
        let delegate_hooks = self.delegate.hooks(&outer_hooks);
        let mut count = 0;
        self.delegate
            .compile("", &outer_hooks, None, &mut count, &mut delegate_router)?;
        let delegate = (count > 0).then(|| DelegateRoutes {
            router: delegate_router.build(),
            hooks: delegate_hooks,
        });
        Ok(Arc::new(CompiledApp {
            router: router.build(),
            fallback,
            delegate,
            fast_path: self.fast_path,
            hooks,
            states: self.states,
            per_worker: self.per_worker,
            on_worker_start: self.on_worker_start,
            listener_protocols: self.listener_protocols,
            connection_limit: ConnectionLimit::new(self.limits.connections_per_address),
            limits: self.limits,
            server_name: self.server_name,
            access_log: self.access_log,
            redacted: self.redacted,
            request_ids: self.request_ids,
            stats: Stats::default(),
        }))
    }

    /// Serves `addr` (`127.0.0.1:8080`, `[::]:80`, `unix:/run/app.sock`) with the engine's defaults until a termination signal,
    /// then lets requests finish.
    ///
    /// Inherited listeners replace `addr`: from a service manager (`LISTEN_FDS`), or from the previous process, which starts this
    /// program again on `SIGUSR2` and exits once the new process serves.
    ///
    /// A program that starts threads of its own before this call must first call [`block_signals`](ringmain_engine::block_signals):
    /// otherwise one of these threads would receive the signal, and the process would end without finishing requests.
    ///
    /// With port 0 the kernel chooses the port. `listening on ADDR` is logged with the actual port when all workers serve. Log
    /// lines go to the program's logger (of the `log` facade); without one they go to standard error, from level `info` on.
    #[must_use]
    pub fn run(self, addr: &str) -> Exit {
        self.run_with(addr, Config::default())
    }

    /// Serves as [`App::run`] with settings of the engine: back-end, workers, limits of the process.
    ///
    /// A program that needs more (several addresses, its own threads, the port) makes the same calls itself: [`App::build`],
    /// [`Engine::listen`](ringmain_engine::Engine::listen), and [`Engine::start`](ringmain_engine::Engine::start) or
    /// [`Engine::run`](ringmain_engine::Engine::run) with [`CompiledApp::server`].
    #[must_use]
    pub fn run_with(self, addr: &str, config: Config) -> Exit {
        let app = match self.build() {
            Ok(app) => app,
            Err(error) => return Exit::Failure(error.to_string()),
        };
        let of_workers = Arc::clone(&app);
        let outcome = serve::run(addr, config, move |start| of_workers.server(start));
        if let Some(log) = app.access_log() {
            // The destination is too slow: that was logged, and is not a failure of the application.
            let _ = log.finish(limits::ACCESS_LOG_FINISH_TIMEOUT);
        }
        Exit::from(outcome)
    }
}

impl CompiledApp {
    /// Returns the handler of one worker, for [`Engine::run`](ringmain_engine::Engine::run) or
    /// [`Engine::start`](ringmain_engine::Engine::start).
    #[must_use]
    pub fn server(self: &Arc<CompiledApp>, start: Start<Infallible>) -> Server {
        Server::new(self, start)
    }
}

/// Checks relations between limits that the server relies on.
fn check(limits: &Limits) -> std::result::Result<(), AppError> {
    let max = u64::from(limits::MAX_HEAD_BYTES);
    let bounds = [
        ("http1.head_bytes", u64::from(limits.http1.head_bytes), max),
        (
            "http1.start_line_bytes",
            u64::from(limits.http1.start_line_bytes),
            max,
        ),
        ("http1.trailer_bytes", u64::from(limits.http1.trailer_bytes), max),
    ];
    for (name, value, max) in bounds {
        if value > max {
            return Err(AppError(format!(
                "limit {name}: expected at most {max}, found {value}"
            )));
        }
    }
    Ok(())
}

impl fmt::Debug for App {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("App")
    }
}

/// Defines the methods that add routes and hooks, for an application and for its groups.
macro_rules! routes {
    ($type:ty) => {
        impl $type {
            /// Adds a hook that runs before each handler of this scope, in the order of the calls, those of outer groups first. It
            /// may end the request with an error, or with a reply and [`Flow::Stop`].
            #[must_use]
            pub fn before(
                mut self,
                hook: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result<Flow> + Send + Sync + 'static,
            ) -> Self {
                self.scope.before.push(Arc::new(hook));
                self
            }

            /// Adds a hook that runs after each handler of this scope, also after one that failed, those of inner groups first; for
            /// a streamed reply, before its head is sent. A hook's error is logged, and the reply stays as it is.
            #[must_use]
            pub fn after(
                mut self,
                hook: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.after.push(Arc::new(hook));
                self
            }

            /// Sets the limit of body bytes for handlers of this scope, in place of the application's.
            #[must_use]
            pub fn body_limit(mut self, bytes: u64) -> Self {
                self.scope.body_bytes = Some(bytes);
                self
            }

            /// Adds a handler for any method that no other route of the same pattern names.
            #[must_use]
            pub fn any(
                mut self,
                pattern: &str,
                handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(None, pattern, Action::Plain(Box::new(handler)));
                self
            }

            /// Adds an asynchronous handler for any method that no other route of the same pattern names.
            #[must_use]
            pub fn any_async(
                mut self,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(None, pattern, Action::asynchronous(handler, false));
                self
            }

            /// Adds a handler for a method by its name.
            #[must_use]
            pub fn on(
                mut self,
                method: &str,
                pattern: &str,
                handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(Some(method), pattern, Action::Plain(Box::new(handler)));
                self
            }

            /// Adds an asynchronous handler for a method by its name.
            #[must_use]
            pub fn on_async(
                mut self,
                method: &str,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(Some(method), pattern, Action::asynchronous(handler, false));
                self
            }

            /// Adds an asynchronous handler that reads its body in chunks ([`Request::chunk`]) for a method by its name.
            #[must_use]
            pub fn on_streamed(
                mut self,
                method: &str,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(Some(method), pattern, Action::asynchronous(handler, true));
                self
            }

            /// Adds a WebSocket route with the defaults of [`WsOptions`]: `open` returns the value that receives the socket's
            /// events, or refuses with an error, which is an ordinary response. Hooks run on the request before.
            #[must_use]
            pub fn ws<S: Socket>(
                self,
                pattern: &str,
                open: impl Fn(&Request<'_>) -> Result<S> + Send + Sync + 'static,
            ) -> Self {
                self.ws_with(pattern, &WsOptions::new(), open)
            }

            /// Adds a WebSocket route as [`ws`](Self::ws), with its own settings.
            #[must_use]
            pub fn ws_with<S: Socket>(
                mut self,
                pattern: &str,
                options: &WsOptions,
                open: impl Fn(&Request<'_>) -> Result<S> + Send + Sync + 'static,
            ) -> Self {
                let maker = move |request: &Request<'_>| open(request).map(|it| Box::new(it) as Box<dyn IntoSession>);
                self.scope.add_socket(pattern, options, Box::new(maker));
                self
            }

            /// Adds an asynchronous WebSocket route: `open` checks the request, or refuses it, and returns the task that runs once
            /// the socket is open. The socket closes when the task ends: with 1000, or as for an error of [`Socket::message`].
            #[must_use]
            pub fn ws_async<F: Future<Output = Result> + 'static>(
                self,
                pattern: &str,
                open: impl Fn(&Request<'_>, WsStream) -> Result<F> + Send + Sync + 'static,
            ) -> Self {
                self.ws_async_with(pattern, &WsOptions::new(), open)
            }

            /// Adds a WebSocket route as [`ws_async`](Self::ws_async), with its own settings.
            #[must_use]
            pub fn ws_async_with<F: Future<Output = Result> + 'static>(
                self,
                pattern: &str,
                options: &WsOptions,
                open: impl Fn(&Request<'_>, WsStream) -> Result<F> + Send + Sync + 'static,
            ) -> Self {
                self.ws_with(pattern, options, move |request| {
                    AsyncSocketHandler::new(|stream| open(request, stream))
                })
            }

            routes!(@plain get "GET", post "POST", put "PUT", patch "PATCH", delete "DELETE");
            routes!(@asynchronous on_async get_async "GET", post_async "POST", put_async "PUT", patch_async "PATCH",
                delete_async "DELETE");
            routes!(@asynchronous on_streamed post_streamed "POST", put_streamed "PUT", patch_streamed "PATCH");
        }
    };
    (@plain $($name:ident $method:literal),*) => {
        $(
            #[doc = concat!("A handler for ", $method, ".")]
            #[must_use]
            pub fn $name(
                self,
                pattern: &str,
                handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.on($method, pattern, handler)
            }
        )*
    };
    (@asynchronous $on:ident $($name:ident $method:literal),*) => {
        $(
            #[doc = concat!("As [`", stringify!($on), "`](Self::", stringify!($on), ") for ", $method, ".")]
            #[must_use]
            pub fn $name(
                self,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.$on($method, pattern, handler)
            }
        )*
    };
}

routes!(App);
routes!(Group);
