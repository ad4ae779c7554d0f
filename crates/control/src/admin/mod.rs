//! The administration: an application on a listener of its own that shows what the gateway does, and has it drain.
//!
//! It is for an engine of its own with one worker, so that it answers whatever the gateway's workers are busy with, does not
//! take part in their limits, and goes on while they drain. Whoever reaches its listener may do all of it.

mod dashboard;
mod metrics;
mod pushed;
mod show;

#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_engine::Report;
use ringmain_gateway::Gateway;
use ringmain_sys::clock;
use ringmain_web::{App, Error, Flow, Limits, Reply, Request, Result, Site};
use serde_json::json;

use crate::config;
use crate::follow::Control;
use crate::limits;

/// What the administration shows.
#[derive(Clone)]
pub struct Admin(Arc<Inner>);

struct Inner {
    gateway: Gateway,
    control: Arc<Control>,
    site: Arc<Site>,
    board: Board,
    version: &'static str,
    /// When this was made, by a clock that does not jump.
    since: Duration,
    dashboard: dashboard::Dashboard,
}

/// Between the administration and whoever runs the gateway's engine.
#[derive(Clone, Debug, Default)]
pub struct Board(Arc<Posted>);

#[derive(Debug, Default)]
struct Posted {
    report: Mutex<Option<Report>>,
    draining: AtomicBool,
    drain: AtomicBool,
}

impl Board {
    /// The engine's counts as they are now, and whether it takes no new connections any more.
    pub fn put(&self, report: Report, draining: bool) {
        *self.0.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(report);
        self.0.draining.store(draining, Ordering::Release);
    }

    /// Whether somebody has asked for a drain since the last call.
    #[must_use]
    pub fn take_drain(&self) -> bool {
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

impl Admin {
    /// Of a gateway, who follows its configuration, and the application that serves it. `version` is the program's.
    #[must_use]
    pub fn new(
        gateway: Gateway,
        control: Arc<Control>,
        site: Arc<Site>,
        board: Board,
        version: &'static str,
    ) -> Admin {
        Admin(Arc::new(Inner {
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
        let limits = Limits {
            body_bytes: limits::ADMIN_BODY_BYTES,
            // Who asks for metrics has time.
            patience: None,
            ..Limits::default()
        };
        let with = |show: fn(&Inner, &Request<'_>, &mut Reply<'_>) -> Result| {
            let inner = Arc::clone(&self.0);
            move |req: &Request<'_>, reply: &mut Reply<'_>| show(&inner, req, reply)
        };
        App::new()
            .limits(limits)
            .before(no_browser)
            .get("/", |req, reply| dashboard::front(PATHS, req, reply))
            .get_async("/live", self.live())
            .get("/config", with(show_config))
            .get(
                "/routes",
                with(|inner, _, reply| reply.json(&show::routes(&inner.gateway))),
            )
            .get(
                "/upstreams",
                with(|inner, req, reply| reply.json(&show::upstreams(&inner.gateway, req.cx().wall()))),
            )
            .get("/metrics", with(show_metrics))
            .get("/healthz", |_, reply| reply.text("ok\n"))
            .get("/readyz", with(show_ready))
            .post("/drain", with(drain))
            .get("/log", show_level)
            .put("/log", set_level)
    }

    fn live(&self) -> impl AsyncFn(&Request<'_>, &mut Reply<'_>) -> Result + Send + Sync + 'static + use<> {
        let inner = Arc::clone(&self.0);
        async move |req: &Request<'_>, reply: &mut Reply<'_>| dashboard::live(&inner, req, reply).await
    }
}

/// What serves, in a word; empty before it runs.
fn engine(report: Option<&Report>) -> &'static str {
    match report {
        Some(report) if report.selection.uring => "uring",
        Some(_) => "epoll",
        None => "",
    }
}

const PATHS: &str = "\
/           this; in a browser a page that shows the gateway at work
/live       the figures of that page each second, as server-sent events
/config     the configuration that is served, as it was read, without secrets; what is wrong with it
/routes     routes and what their rules do
/upstreams  upstreams and their endpoints: health, who is passed over, requests, connections, tries
/metrics    counts, in Prometheus' text format
/healthz    200 as long as the process answers
/readyz     200 while it takes requests and its sources deliver; 503 while it drains, or a source does not
/drain      POST: take no more connections, finish what is open, and end
/log        GET and PUT: how much is logged (error, warn, info, debug, trace)
";

/// Pages in a browser on the same host can reach a loopback address, too: what they ask to be changed is refused.
fn no_browser(req: &Request<'_>, _: &mut Reply<'_>) -> Result<Flow> {
    if req.method().as_str() != "GET" && req.header("origin").is_some() {
        return Err(Error::new(403, "nothing is changed for a page in a browser"));
    }
    Ok(Flow::Continue)
}

fn show_config(inner: &Inner, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let state = inner.control.state();
    let wrong: Vec<String> = state.wrong.iter().map(ToString::to_string).collect();
    reply.json(&json!({
        "file": state.path.display().to_string(),
        "read_at": state.since.as_secs(),
        "is_current": state.is_current,
        "wrong": wrong,
        "at_restart": state.at_restart,
        "config": config::shown(&state.text),
    }))
}

fn show_metrics(inner: &Inner, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    let text = metrics::text(inner);
    reply.text(text)?;
    reply.header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")?;
    Ok(())
}

fn show_ready(inner: &Inner, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
    if inner.board.is_draining() {
        return Err(Error::new(503, "draining"));
    }
    if inner.board.report().is_none() {
        return Err(Error::new(503, "not started yet"));
    }
    let undelivered = inner.control.consumers().undelivered();
    if !undelivered.is_empty() {
        let names = undelivered.join(", ");
        return Err(Error::new(
            503,
            format!("no publications arrive from these sources of push: {names}"),
        ));
    }
    reply.text("ok\n")
}

fn drain(inner: &Inner, _: &Request<'_>, reply: &mut Reply<'_>) -> Result {
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
