//! The administration: an application on its own listener that shows the state of the gateway, and drains it.
//!
//! It runs on its own engine with one worker, so that it responds however busy the gateway's workers are, is not subject to their
//! limits, and continues while they drain. Every client of its listener may read everything, and change state with the token, or
//! without one if none is configured. Metrics and probes have their own application beside it.

mod cluster_status;
mod dashboard;
mod metrics;
mod push_cluster_status;
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
use ringmain_gateway::model::{Hostname, Secret};
use ringmain_gateway::{Gateway, LOAD_HEADER, LoadReport};
use ringmain_sys::clock;
use ringmain_web::{App, CompiledApp, Error, Flow, Limits, Reply, Request, Result};
use serde::Serialize;
use serde_json::json;

use crate::config;
use crate::limits;
use crate::push_node::PushNode;
use crate::reload::ConfigWatcher;

/// The application of the administration.
#[derive(Clone)]
pub struct AdminApp(Arc<AdminContext>);

struct AdminContext {
    gateway: Gateway,
    control: Arc<ConfigWatcher>,
    site: Arc<CompiledApp>,
    board: StatusBoard,
    version: &'static str,
    /// The start time, by the monotonic clock.
    since: Duration,
    dashboard: dashboard::Dashboard,
}

/// The state shared by the administration and the owner of the gateway's engine.
#[derive(Clone, Debug, Default)]
pub struct StatusBoard(Arc<BoardState>);

#[derive(Debug, Default)]
struct BoardState {
    report: Mutex<Option<Report>>,
    draining: AtomicBool,
    drain: AtomicBool,
}

impl StatusBoard {
    /// Publishes the engine's current counters, and whether it drains.
    pub fn publish(&self, report: Report, draining: bool) {
        *self.0.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.0.draining.store(draining, Ordering::Release);
    }

    /// Reports the process as draining from now on, before its engine does.
    pub fn set_draining(&self) {
        self.0.draining.store(true, Ordering::Release);
    }

    /// Returns whether a drain was requested.
    #[must_use]
    pub fn is_drain_requested(&self) -> bool {
        self.0.drain.load(Ordering::Acquire)
    }

    fn report(&self) -> Option<Report> {
        self.0
            .report
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns whether the process drains, or is about to: a request for that counts before it is followed.
    fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Acquire) || self.is_drain_requested()
    }
}

impl AdminApp {
    /// Creates the administration of a gateway, from its configuration watcher and its application. `version` is the program's.
    #[must_use]
    pub fn new(
        gateway: Gateway,
        control: Arc<ConfigWatcher>,
        site: Arc<CompiledApp>,
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
            // Scrapers of metrics can wait.
            max_queue_delay: None,
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
                with(|inner, _, reply| reply_json(reply, &status::routes_json(&inner.gateway))),
            )
            .get(
                "/upstreams",
                with(|inner, req, reply| {
                    reply_json(reply, &status::upstreams_json(&inner.gateway, req.cx().wall()))
                }),
            )
            .get("/kubernetes", with(show_kubernetes))
            .get("/push-cluster", with(show_push_cluster))
            .get("/metrics", with(show_metrics))
            .get("/healthz", with(show_alive))
            .get("/readyz", with(show_ready))
            .post("/drain", with(request_drain))
            .get("/log", show_level)
            .put("/log", set_level)
    }

    /// Returns the application with metrics and probes only.
    #[must_use]
    pub fn metrics(&self) -> App {
        let with = |show: fn(&AdminContext, &Request<'_>, &mut Reply<'_>) -> Result| {
            let inner = Arc::clone(&self.0);
            move |req: &Request<'_>, reply: &mut Reply<'_>| show(&inner, req, reply)
        };
        App::new()
            .limits(Limits {
                body_bytes: limits::ADMIN_BODY_BYTES,
                max_queue_delay: None,
                ..Limits::default()
            })
            .get("/metrics", with(show_metrics))
            .get("/healthz", with(show_alive))
            .get("/readyz", with(show_ready))
    }

    /// Records a point of the dashboard's history, if one is due. Called several times a second.
    pub fn record_history(&self) {
        dashboard::record_history(&self.0);
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

/// Returns the name of the engine's back-end; empty before it runs.
fn engine_name(report: Option<&Report>) -> &'static str {
    match report {
        Some(report) if report.selection.uring => "uring",
        Some(_) => "epoll",
        None => "",
    }
}

const INDEX: &str = "\
/           this list; in a browser the dashboard
/live       the history of the last ten minutes, then snapshots of the dashboard each second, as server-sent events
/config     the served configuration without secrets; the errors of the last reload
/routes     routes, and the steps of their rules
/upstreams  upstreams and their endpoints: health, ejections, requests, connections, retries
/kubernetes the followed cluster: API server, leader, objects, failing watches, problems; 404 without one
/push-cluster  this node of a push cluster, and the other nodes; 404 without one
/metrics    metrics in the text format of Prometheus
/healthz    200 while the process responds
/readyz     200 while it accepts requests and its sources deliver; 503 while it drains, a source does not deliver, lists of Kubernetes are missing, a push gateway is linked to no push server, or the log of a push cluster does not deliver
/drain      POST: graceful shutdown
/log        GET and PUT: the log level (error, warn, info, debug, trace)

POST and PUT require `Authorization: Bearer TOKEN` if `admin.token` is configured.
";

/// Rejects names that are not the gateway's own: with DNS rebinding a page under such a name could read everything. Pages cannot
/// reach Unix sockets.
fn check_host(hosts: &[Hostname], req: &Request<'_>) -> Result<Flow> {
    let Some(host) = req.host().filter(|_| req.remote().is_some()) else {
        return Ok(Flow::Continue);
    };
    let mut scratch = String::new();
    let name = ringmain_gateway::table::normalize_host(host, &mut scratch);
    let is_address = name.trim_matches(['[', ']']).parse::<IpAddr>().is_ok();
    if is_address || name == "localhost" || hosts.iter().any(|ours| ours.matches(name)) {
        return Ok(Flow::Continue);
    }
    Err(Error::new(
        421,
        "expected an IP address, `localhost` or a name of `admin.hosts` in `Host`",
    ))
}

/// Rejects a request that changes state without the token, if one is configured.
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

/// Rejects changes from pages of a browser on the same host, which can reach a loopback address.
fn reject_cross_origin(req: &Request<'_>, _: &mut Reply<'_>) -> Result<Flow> {
    if req.method().as_str() != "GET" && req.header("origin").is_some() {
        return Err(Error::new(403, "a page in a browser cannot change state"));
    }
    Ok(Flow::Continue)
}

/// Replies with an indented document: it is read by people as well.
fn reply_json(reply: &mut Reply<'_>, document: &impl Serialize) -> Result {
    let text = serde_json::to_string_pretty(document)
        .map_err(|error| Error::new(500, format!("the document cannot be written: {error}")))?;
    reply.text(text)?;
    reply.header("Content-Type", "application/json")?;
    Ok(())
}

fn show_config(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let status = inner.control.status();
    let unreadable = status.unreadable.iter().cloned();
    let wrong: Vec<String> = unreadable
        .chain(status.errors.iter().map(ToString::to_string))
        .collect();
    let document = json!({
        "file": status.path.display().to_string(),
        "read_at": status.loaded_at.as_secs(),
        "is_current": status.is_current,
        "last_reload": {"successful": status.is_current, "at": status.attempted_at.as_secs()},
        "wrong": wrong,
        "at_restart": status.restart_required,
        "config": config::redacted(&status.text),
    });
    reply_json(reply, &document)
}

fn show_kubernetes(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    match cluster_status::cluster_status(inner) {
        Some(followed) => reply_json(reply, &followed),
        None => Err(Error::new(404, "the configuration has no key `kubernetes`")),
    }
}

fn show_push_cluster(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    match push_cluster_status::push_cluster_status(inner) {
        Some(status) => reply_json(reply, &status),
        None => Err(Error::new(404, "the configuration has no key `push.cluster`")),
    }
}

fn show_metrics(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let text = metrics::render(inner);
    reply.text(text)?;
    reply.header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")?;
    Ok(())
}

fn show_alive(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    report_load(inner, reply)?;
    reply.text("ok\n")
}

/// Reports the load of the push server, by which gateways schedule new clients (`balance: push`).
fn report_load(inner: &AdminContext, reply: &mut Reply<'_>) -> Result {
    let Some(push) = inner.gateway.push_report() else {
        return Ok(());
    };
    let report = LoadReport {
        clients: u32::try_from(push.clients).unwrap_or(u32::MAX),
        max: inner.gateway.table().config().limits.connections,
        leaving: inner.board.is_draining(),
    };
    reply.header(LOAD_HEADER, report.to_string())?;
    Ok(())
}

fn show_ready(inner: &AdminContext, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    report_load(inner, reply)?;
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
    if inner.control.push_cluster().is_some_and(PushNode::lacks_servers) {
        return Err(Error::new(
            503,
            "no node of the push cluster that owns channels is linked",
        ));
    }
    if let Some(reason) = inner.control.push_cluster().and_then(PushNode::log_failure) {
        return Err(Error::new(503, reason));
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
    log::info!("drain requested through the administration");
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
    log::info!("log level set to {level} through the administration");
    show_level(req, reply)
}
