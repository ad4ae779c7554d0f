//! Building an application: routes in groups, hooks around them, state, limits.
//!
//! What is wrong with a route is said when the application is built, not where it was added, so that building is one
//! chain of calls. Nothing here is on the path of a request.

mod group;

use std::any::{Any, TypeId};
use std::convert::Infallible;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::{Config, Cx, Start};

pub use self::group::Group;
use self::group::Scope;
use crate::access_log::AccessLog;
use crate::entrance::{Entrance, Entrances};
use crate::error::{Error, Result};
use crate::exit::Exit;
use crate::hidden::RedactedParams;
use crate::inner::Inner;
use crate::limits::{self, Limits};
use crate::preamble::Preamble;
use crate::process;
use crate::reply::Reply;
use crate::request::Request;
use crate::router::RouterBuilder;
use crate::server::Server;
use crate::server::admission::Admission;
use crate::server::early::{Early, Look, Ticket};
use crate::site::{Action, Flow, Hooks, MakeLocal, Route, Site};
use crate::stats::Stats;
use crate::ws::{Asynchronous, Socket, WsOptions, WsStream};

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
/// *Patterns*: `{name}` stands for one segment of the path, `{*rest}` for all that is left; `{{` and `}}` for
/// braces. Of several that fit, the one with the earlier literal text wins. `/a` and `/a/` are two paths. HEAD is answered by
/// the GET route, OPTIONS and 405 with the methods that there are.
///
/// *Handlers*: a plain one ([`get`](App::get)) answers at once and must not block its worker: the request's body is
/// all there. One that waits is `async` and added by [`get_async`](App::get_async); a
/// [`streamed`](App::post_streamed) one also reads its body piece by piece. All have the same shape.
pub struct App {
    scope: Scope,
    fallback: Option<Action>,
    early: Option<Box<Look>>,
    inner: Scope,
    states: Vec<(TypeId, Box<dyn Any + Send + Sync>)>,
    per_worker: Vec<Box<MakeLocal>>,
    entrances: Entrances,
    limits: Limits,
    server_name: Option<String>,
    access_log: Option<AccessLog>,
    request_ids: bool,
    redacted: RedactedParams,
}

/// Why an application cannot be built.
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
    /// An application that answers 404 to everything.
    #[must_use]
    pub fn new() -> App {
        App {
            scope: Scope::default(),
            fallback: None,
            early: None,
            inner: Scope::default(),
            states: Vec::new(),
            per_worker: Vec::new(),
            entrances: Entrances::default(),
            limits: Limits::default(),
            server_name: Some("ringmain".into()),
            access_log: None,
            request_ids: false,
            redacted: RedactedParams::new(),
        }
    }

    /// Adds routes below `prefix`, with hooks of their own:
    /// `.group("/api", |api| api.before(check_token).get("/users", users))`.
    #[must_use]
    pub fn group(mut self, prefix: &str, build: impl FnOnce(Group) -> Group) -> App {
        self.scope.group(prefix, build);
        self
    }

    /// Answers what no route matches, instead of 404.
    #[must_use]
    pub fn fallback(
        mut self,
        handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    ) -> App {
        self.fallback = Some(Action::Plain(Box::new(handler)));
        self
    }

    /// Answers what no route matches by a handler that waits and reads the body piece by piece, as [`on_streamed`](App::on_streamed).
    #[must_use]
    pub fn fallback_streamed(
        mut self,
        handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
    ) -> App {
        self.fallback = Some(Action::waiting(handler, true));
        self
    }

    /// Shows each request without a body that would be the streamed fallback's to `look` first, which may keep its ticket and
    /// answer it from outside a task: for intermediaries, whose answers come by other connections of the worker. A request whose
    /// ticket is given back is the handler's. Not shown are requests that hooks run on, or that get an id.
    #[must_use]
    pub fn early(
        mut self,
        look: impl Fn(&Request<'_>, Ticket) -> std::result::Result<Rc<dyn Early>, Ticket> + Send + Sync + 'static,
    ) -> App {
        self.early = Some(Box::new(look));
        self
    }

    /// Has the application not be built, which says why: for those who add a part to it and find that it cannot be.
    #[must_use]
    pub fn refuse(mut self, why: impl Into<String>) -> App {
        self.scope.refuse(AppError(why.into()));
        self
    }

    /// Adds routes that no request reaches by itself: handlers lead requests there by
    /// [`Reply::lead_inside`]. Of `inner` its routes, hooks and state are taken (its state takes the
    /// place of what there is of the same type), nothing else. Hooks of this application that run before handlers have run by then; those
    /// behind handlers run behind those of `inner`. A second call takes the place of the first.
    #[must_use]
    pub fn inner(mut self, inner: App) -> App {
        for (id, value) in inner.states {
            self.states.retain(|(other, _)| *other != id);
            self.states.push((id, value));
        }
        self.per_worker.extend(inner.per_worker);
        self.inner = inner.scope;
        self
    }

    /// State that all workers share; handlers find it by its type ([`Request::state`]). A second value of the same
    /// type takes the place of the first.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> App {
        self.states.retain(|(id, _)| *id != TypeId::of::<T>());
        self.states.push((TypeId::of::<T>(), Box::new(value)));
        self
    }

    /// State of each worker's own, made when it starts; handlers find it by its type ([`Request::local`]). It needs
    /// no lock: caches, pools, counters.
    #[must_use]
    pub fn per_worker<T: 'static>(mut self, make: impl Fn(&Cx) -> T + Send + Sync + 'static) -> App {
        let make = move |cx: &Cx| -> (TypeId, Box<dyn Any>) { (TypeId::of::<T>(), Box::new(make(cx))) };
        self.per_worker.push(Box::new(make));
        self
    }

    /// Says what becomes of the connections of listener `number`, counted from 0 in the order in which the engine was given
    /// them. What is not said is [`Entrance::http`].
    #[must_use]
    pub fn listener(self, number: u32, entrance: Entrance) -> App {
        self.entrances.set(number, entrance);
        self
    }

    /// Has these entrances in place of its own: they may be changed while the application serves, for listeners that come, go,
    /// or become others.
    #[must_use]
    pub fn entrances(mut self, entrances: &Entrances) -> App {
        self.entrances = entrances.clone();
        self
    }

    /// Limits other than the defaults, which survive the internet.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> App {
        self.limits = limits;
        self
    }

    /// The value of `Server` in answers; `None` leaves it out. `ringmain` unless set.
    #[must_use]
    pub fn server_name(mut self, name: Option<&str>) -> App {
        self.server_name = name.map(Into::into);
        self
    }

    /// Writes a line for each answer.
    #[must_use]
    pub fn access_log(mut self, log: AccessLog) -> App {
        self.access_log = Some(log);
        self
    }

    /// Has no log show values of query parameters with these names either, as they are from time to time.
    #[must_use]
    pub fn redacted_params(mut self, params: &RedactedParams) -> App {
        self.redacted = params.clone();
        self
    }

    /// Gives each request an id: the one that the client's `X-Request-Id` says, if it is a safe one, else a new one. The
    /// answer says it too, and the access log.
    #[must_use]
    pub fn request_ids(mut self) -> App {
        self.request_ids = true;
        self
    }

    /// Adds `/healthz` (the process answers) and `/readyz` (it takes traffic: 503 once shutdown has begun).
    #[must_use]
    pub fn health(self) -> App {
        self.health_if(|_| Ok(()))
    }

    /// As [`App::health`]; `/readyz` also asks `ready`, and answers what it fails with.
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
    /// A pattern that is none, two routes for the same requests, a limit beyond what can be held; what [`App::refuse`] was told.
    pub fn build(self) -> std::result::Result<Arc<Site>, AppError> {
        check(&self.limits)?;
        Preamble::new(self.server_name.as_deref())
            .map_err(|misuse| AppError(format!("the server name: {misuse}")))?;
        let hooks = self.scope.hooks(&Hooks::default());
        let mut router = RouterBuilder::new();
        let mut index = 0;
        self.scope
            .compile("", &Hooks::default(), None, &mut index, &mut router)?;
        let fallback = self.fallback.map(|action| Route {
            action,
            hooks: hooks.clone(),
            index,
            urgent: false,
            body_bytes: None,
        });
        let behind = Hooks {
            before: Vec::new(),
            after: hooks.after.clone(),
        };
        let mut inside = RouterBuilder::new();
        let around = self.inner.hooks(&behind);
        let mut count = 0;
        self.inner.compile("", &behind, None, &mut count, &mut inside)?;
        let inner = (count > 0).then(|| Inner {
            router: inside.build(),
            hooks: around,
        });
        Ok(Arc::new(Site {
            router: router.build(),
            fallback,
            inner,
            early: self.early,
            hooks,
            states: self.states,
            per_worker: self.per_worker,
            entrances: self.entrances,
            admission: Admission::new(self.limits.connections_per_address),
            limits: self.limits,
            server_name: self.server_name,
            access_log: self.access_log,
            redacted: self.redacted,
            request_ids: self.request_ids,
            stats: Stats::default(),
        }))
    }

    /// Serves `addr` (`127.0.0.1:8080`, `[::]:80`, `unix:/run/app.sock`) with the engine's defaults until a
    /// termination signal, then lets requests finish.
    ///
    /// Listeners that were handed to the process take the place of `addr`: from a service manager (`LISTEN_FDS`), or from
    /// the process before it, which starts this program anew on `SIGUSR2` and ends when that one serves.
    ///
    /// A program that starts threads of its own before this calls [`block_signals`](ringmain_engine::block_signals)
    /// first of all: else a signal would end the process by one of them, and no request would be finished.
    ///
    /// With port 0 the kernel chooses. `listening on ADDR` is logged when all workers serve, with the port that it
    /// became. Log lines go to the program's logger (of the `log` facade); without one they go to standard error, from
    /// level `info` on.
    #[must_use]
    pub fn run(self, addr: &str) -> Exit {
        self.run_with(addr, Config::default())
    }

    /// The same with settings of the engine: back-end, workers, limits of the process.
    ///
    /// A program that wants more (several addresses, its own threads, to be told the port) does by itself what this
    /// does: [`App::build`], [`Engine::listen`](ringmain_engine::Engine::listen), and
    /// [`Engine::start`](ringmain_engine::Engine::start) or [`Engine::run`](ringmain_engine::Engine::run) with
    /// [`Site::server`].
    #[must_use]
    pub fn run_with(self, addr: &str, config: Config) -> Exit {
        let site = match self.build() {
            Ok(site) => site,
            Err(error) => return Exit::Failure(error.to_string()),
        };
        let of_workers = Arc::clone(&site);
        let outcome = process::run(addr, config, move |start| of_workers.server(start));
        if let Some(log) = site.access_log() {
            // Whoever reads it is too slow: that was logged, and is no failure of the application.
            let _ = log.finish(limits::LAST_LINES);
        }
        Exit::from(outcome)
    }
}

impl Site {
    /// The handler of one worker, for [`Engine::run`] or [`Engine::start`].
    #[must_use]
    pub fn server(self: &Arc<Site>, start: Start<Infallible>) -> Server {
        Server::new(self, start)
    }
}

/// Relations that the machine relies on.
fn check(limits: &Limits) -> std::result::Result<(), AppError> {
    let most = u64::from(limits::HEAD_BYTES_MOST);
    let bounds = [
        ("http1.head_bytes", u64::from(limits.http1.head_bytes), most),
        (
            "http1.start_line_bytes",
            u64::from(limits.http1.start_line_bytes),
            most,
        ),
        ("http1.trailer_bytes", u64::from(limits.http1.trailer_bytes), most),
    ];
    for (name, value, most) in bounds {
        if value > most {
            return Err(AppError(format!(
                "limit {name}: expected at most {most}, found {value}"
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

/// The methods by which routes and hooks are added, alike for an application and its groups.
macro_rules! routes {
    ($type:ty) => {
        impl $type {
            /// Runs before each handler here, in the order in which hooks were added, those of outer groups first. It
            /// may end the request: by an error, or by a reply and [`Flow::Stop`].
            #[must_use]
            pub fn before(
                mut self,
                hook: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result<Flow> + Send + Sync + 'static,
            ) -> Self {
                self.scope.before.push(Arc::new(hook));
                self
            }

            /// Runs after each handler here, also after one that failed, those of inner groups first; for a streamed
            /// reply, before its head is sent. One that fails is logged, and the reply stays as it is.
            #[must_use]
            pub fn after(
                mut self,
                hook: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.after.push(Arc::new(hook));
                self
            }

            /// Bytes of body that handlers here take, instead of the application's limit.
            #[must_use]
            pub fn body_limit(mut self, bytes: u64) -> Self {
                self.scope.body_bytes = Some(bytes);
                self
            }

            /// A handler for any method that no other route of the same pattern names.
            #[must_use]
            pub fn any(
                mut self,
                pattern: &str,
                handler: impl Fn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(None, pattern, Action::Plain(Box::new(handler)));
                self
            }

            /// A handler that waits, for any method that no other route of the same pattern names.
            #[must_use]
            pub fn any_async(
                mut self,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(None, pattern, Action::waiting(handler, false));
                self
            }

            /// A handler for a method by its name.
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

            /// A handler that waits, for a method by its name.
            #[must_use]
            pub fn on_async(
                mut self,
                method: &str,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(Some(method), pattern, Action::waiting(handler, false));
                self
            }

            /// A handler that waits and reads its body piece by piece ([`Request::chunk`]), for a method by its name.
            #[must_use]
            pub fn on_streamed(
                mut self,
                method: &str,
                pattern: &str,
                handler: impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static,
            ) -> Self {
                self.scope.add(Some(method), pattern, Action::waiting(handler, true));
                self
            }

            /// A WebSocket: `open` makes the value that is told what happens on it, or refuses with an error, which is an
            /// ordinary answer. Hooks run on the request before. With the defaults of [`WsOptions`].
            #[must_use]
            pub fn ws<S: Socket>(
                self,
                pattern: &str,
                open: impl Fn(&Request<'_>) -> Result<S> + Send + Sync + 'static,
            ) -> Self {
                self.ws_with(pattern, &WsOptions::new(), open)
            }

            /// As [`ws`](Self::ws) with settings of the route.
            #[must_use]
            pub fn ws_with<S: Socket>(
                mut self,
                pattern: &str,
                options: &WsOptions,
                open: impl Fn(&Request<'_>) -> Result<S> + Send + Sync + 'static,
            ) -> Self {
                let maker = move |request: &Request<'_>| open(request).map(|it| Box::new(it) as Box<dyn Socket>);
                self.scope.add_socket(pattern, options, Box::new(maker));
                self
            }

            /// A WebSocket for code in its own order: `open` looks at the request, or refuses it, and returns the task that
            /// runs once the socket is open. With the task the socket ends: with 1000, or as an error of
            /// [`Socket::message`] says.
            #[must_use]
            pub fn ws_async<F: Future<Output = Result> + 'static>(
                self,
                pattern: &str,
                open: impl Fn(&Request<'_>, WsStream) -> Result<F> + Send + Sync + 'static,
            ) -> Self {
                self.ws_async_with(pattern, &WsOptions::new(), open)
            }

            /// As [`ws_async`](Self::ws_async) with settings of the route.
            #[must_use]
            pub fn ws_async_with<F: Future<Output = Result> + 'static>(
                self,
                pattern: &str,
                options: &WsOptions,
                open: impl Fn(&Request<'_>, WsStream) -> Result<F> + Send + Sync + 'static,
            ) -> Self {
                self.ws_with(pattern, options, move |request| {
                    Asynchronous::new(|stream| open(request, stream))
                })
            }

            routes!(@plain get "GET", post "POST", put "PUT", patch "PATCH", delete "DELETE");
            routes!(@waiting on_async get_async "GET", post_async "POST", put_async "PUT", patch_async "PATCH",
                delete_async "DELETE");
            routes!(@waiting on_streamed post_streamed "POST", put_streamed "PUT", patch_streamed "PATCH");
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
    (@waiting $on:ident $($name:ident $method:literal),*) => {
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
