//! The administration: an application on a listener of its own that shows what the gateway does, and has it drain.
//!
//! It is for an engine of its own with one worker, so that it answers whatever the gateway's workers are busy with, does not
//! take part in their limits, and continues while they drain. Whoever reaches its listener may read all of it, and change something
//! with the token, or without one where none is configured. Metrics and probes have an application of their own beside it.

mod cluster_status;
mod dashboard;
mod metrics;
mod push_metrics;
mod status;

#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use ringmain_engine::Report;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Hostname, Secret};
use ringmain_sys::clock;
use ringmain_web::{App, Error, Flow, Limits, Reply, Request, Result, Site};
use serde_json::json;

use crate::config;
use crate::limits;
use crate::reload::ConfigWatcher;

/// What the administration shows.
#[derive(Clone)]
pub struct AdminApp(Arc<AdminContext>);

struct AdminContext {
    gateway: Gateway,
    control: Arc<ConfigWatcher>,
    site: Arc<Site>,
    board: StatusBoard,
    version: &'static str,
    /// When this was made, by a clock that does not jump.
    since: Duration,
    dashboard: dashboard::Dashboard,
}

/// Between the administration and whoever runs the gateway's engine.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard(Arc<BoardState>);

#[derive(Debug, Default)]
struct BoardState {
    report: Mutex<Option<Report>>,
    draining: AtomicBool,
    drain: AtomicBool,
}

impl StatusBoard {
    /// The engine's counts as they are now, and whether it takes no new connections any more.
    pub fn publish(&self, report: Report, draining: bool) {
        *self.0.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.0.draining.store(draining, Ordering::Release);
    }

    /// Whether somebody has asked for a drain since the last call.
    #[must_use]
    pub fn take_drain_request(&self) -> bool {
        self.0.drain.swap(false, Ordering::AcqRel)
    }

    fn report(&self) -> Option<Report> {
        self.0
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire)
    }
}

impl AdminApp {
    /// Of a gateway, who follows its configuration, and the application that serves it. `version` is the program's.
    #[must_use]
    pub fn new(
        gateway: Gateway,
        control: Arc<ConfigWatcher>,
        site: Arc<Site>,
        board: StatusBoard,
        version: &'static str,
    ) -> AdminApp {
        AdminApp(Arc::new(AdminContext {
            gateway,
            control,
            site,
            board,
            version,
            since: clock::monotonic(),
            dashboard: dashboard::Dashboard::default(),
        }))
    }

    /// The application.
    #[must_use]
    pub fn app(&self) -> App {
        let admin = self.0.control.status().config.admin.clone();
        let (hosts, token) = admin.map(|admin| (admin.hosts, admin.token)).unwrap_or_default();
        let limits = Limits {
            body_bytes: limits::ADMIN_BODY_BYTES,
            // Who asks for metrics has time.
            patience: None,
            ..Limits::default()
        };
        let with = |show: fn(&AdminContext, &Request<'_>, &mut Reply<'_>) -> Result| {
            let inner = Arc::clone(&self.0);
            move |req: &Request<'_>, reply: &mut Reply<'_>| show(&inner, req, reply)
        };
        App::new()
            .limits(limits)
            .before(move |req, _| check_host(&hosts, req))
            .before(reject_cross_origin)
            .before(move |req, reply| check_token(token.as_ref(), req, reply))
            .get("/", |req, reply| dashboard::serve_page(INDEX, req, reply))
            .get_async("/live", self.live_handler())
            .get("/config", with(show_config))
            .get(
                "/routes",
                with(|inner, _, reply| reply.json(&status::routes_json(&inner.gateway))),
            )
            .get(
                "/upstreams",
                with(|inner, req, reply| {
                    reply.json(&status::upstreams_json(&inner.gateway, req.cx().wall()))
                }),
            )
            .get("/kubernetes", with(show_kubernetes))
            .get("/metrics", with(show_metrics))
            .get("/healthz", |_, reply| reply.text("ok\n"))
            .get("/readyz", with(show_ready))
            .post("/drain", with(request_drain))
            .get("/log", show_level)
            .put("/log", set_level)
    }

    /// The application for who may read metrics and probes, and nothing else.
    #[must_use]
    pub fn metrics(&self) -> App {
        let with = |show: fn(&AdminContext, &Request<'_>, &mut Reply<'_>) -> Result| {
            let inner = Arc::clone(&self.0);
            move |req: &Request<'_>, reply: &mut Reply<'_>| show(&inner, req, reply)
        };
        App::new()
            .limits(Limits {
                body_bytes: limits::ADMIN_BODY_BYTES,
                patience: None,
                ..Limits::default()
            })
            .get("/metrics", with(show_metrics))
            .get("/healthz", |_, reply| reply.text("ok\n"))
            .get("/readyz", with(show_ready))
    }

    fn live_handler(
        &self,
    ) -> impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static + use<> {
        let inner = Arc::clone(&self.0);
        async move |req: &Request<'_>, reply: &mut Reply<'_>| {
            dashboard::stream_events(&inner, req, reply).await
        }
    }
}

/// What serves, in a word; empty before it runs.
fn engine_name(report: Option<&Report>) -> &'static str {
    match report {
        Some(report) if report.selection.uring => "uring",
        Some(_) => "epoll",
        None => "",
    }
}

const INDEX: &str = "\
/           this; in a browser a page that shows the gateway at work
/live       the figures of that page each second, as server-sent events
/config     the configuration that is served, as it was read, without secrets; what is wrong with it
/routes     routes and what their rules do
/upstreams  upstreams and their endpoints: health, who is passed over, requests, connections, tries
/kubernetes the followed cluster: API server, leader, objects, failing watches, problems; 404 without one
/metrics    counts, in Prometheus' text format
/healthz    200 as long as the process answers
/readyz     200 while it takes requests and its sources deliver; 503 while it drains, a source does not, or lists of Kubernetes are missing
/drain      POST: take no more connections, finish what is open, and end
/log        GET and PUT: how much is logged (error, warn, info, debug, trace)

POST and PUT need `Authorization: Bearer TOKEN` where the configuration has `admin.token`.
";

/// A page whose own name leads here (DNS rebinding) could read everything as its own: only names that lead nowhere else are answered.
/// Unix sockets are not reached by pages.
fn check_host(hosts: &[Hostname], req: &Request<'_>) -> Result<Flow> {
    let Some(host) = req.host().filter(|_| req.remote().is_some()) else {
        return Ok(Flow::Continue);
    };
    let mut scratch = String::new();
    let name = ringmain_gateway::table::host(host, &mut scratch);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_address || name == "localhost" || hosts.iter().any(|ours| ours.matches(name)) {
        return Ok(Flow::Continue);
    }
    Err(Error::new(
        421,
        "expected an IP address, `localhost` or a name of `admin.hosts` in `Host`",
    ))
}

/// Whether a request that changes something shows the token, if there is one.
fn check_token(token: Option<&Secret>, req: &Request<'_>, reply: &mut Reply<'_>) -> Result<Flow> {
    let (Some(token), false) = (token, matches!(req.method().as_str(), "GET" | "HEAD")) else {
        return Ok(Flow::Continue);
    };
    let shown = req.header("authorization").unwrap_or_default();
    let shown = shown
        .split_once(' ')
        .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"));
    let shown = shown.map_or("", |(_, token)| token.trim());
    if verify_slices_are_equal(shown.as_bytes(), token.expose()).is_ok() {
        return Ok(Flow::Continue);
    }
    reply.header("WWW-Authenticate", "Bearer")?;
    Err(Error::new(
        401,
        "expected the token of `admin.token` in `Authorization: Bearer`",
    ))
}

/// Pages in a browser on the same host can reach a loopback address, too: what they ask to be changed is refused.
fn reject_cross_origin(req: &Request<'_>, _: &mut Reply<'_>) -> Result<Flow> {
    if req.method().as_str() != "GET" && req.header("origin").is_some() {
        return Err(Error::new(403, "nothing is changed for a page in a browser"));
    }
    Ok(Flow::Continue)
}

fn show_config(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let status = inner.control.status();
    let wrong: Vec<String> = status.errors.iter().map(ToString::to_string).collect();
    reply.json(&json!({
        "file": status.path.display().to_string(),
        "read_at": status.loaded_at.as_secs(),
        "is_current": status.is_current,
        "last_reload": {"successful": status.is_current, "at": status.attempted_at.as_secs()},
        "wrong": wrong,
        "at_restart": status.restart_required,
        "config": config::redacted(&status.text),
    }))
}

fn show_kubernetes(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    match cluster_status::cluster_status(inner) {
        Some(followed) => reply.json(&followed),
        None => Err(Error::new(404, "the configuration has no key `kubernetes`")),
    }
}

fn show_metrics(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let text = metrics::render(inner);
    reply.text(text)?;
    reply.header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")?;
    Ok(())
}

fn show_ready(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    if inner.board.is_draining() {
        return Err(Error::new(503, "draining"));
    }
    if inner.board.report().is_none() {
        return Err(Error::new(503, "not started yet"));
    }
    if inner
        .control
        .cluster()
        .is_some_and(|cluster| !cluster.is_synced())
    {
        return Err(Error::new(
            503,
            "not all objects of the Kubernetes cluster have arrived yet",
        ));
    }
    let mut undelivered = inner.control.consumers().undelivered();
    undelivered.append(&mut inner.control.sources().undelivered());
    if !undelivered.is_empty() {
        let names = undelivered.join(", ");
        return Err(Error::new(
            503,
            format!("no publications arrive from these sources of push: {names}"),
        ));
    }
    let degraded = inner.control.sources().degraded();
    if degraded.is_empty() {
        return reply.text("ok\n");
    }
    let names = degraded.join(", ");
    reply.text(format!(
        "ok\ndegraded: these sources of push cannot deliver their dead letters: {names}\n"
    ))
}

fn request_drain(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    log::info!("asked to drain by the administration");
    inner.board.0.drain.store(true, Ordering::Release);
    reply.status(202).text("draining\n")
}

fn show_level(_: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    reply.text(format!("{}\n", log::max_level().as_str().to_ascii_lowercase()))
}

fn set_level(req: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let wanted = req.text()?.trim();
    let level = wanted
        .parse::<log::Level>()
        .map_err(|_| Error::bad_request("expected error, warn, info, debug or trace as the body"))?;
    log::set_max_level(level.to_level_filter());
    log::info!("the administration has set the log's level to {level}");
    show_level(req, reply)
}
