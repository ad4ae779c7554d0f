//! Redirects: the URL in `Location`. Parts that a redirect does not set are those of the URL that the client requested.

use ringmain_web::{Error, Reply, Request, path};

use super::client::RequestUrl;
use super::path::forwarded_path;
use super::{Failure, RequestRoute};
use crate::compile::plan::Plan;
use crate::gateway::scratch::WorkerScratch;
use crate::gateway::{View, Worker};
use crate::model::{HttpsRedirect, Listener, PathRewrite, Paths, Redirect};

/// Sends the redirect of a rule.
pub(super) fn send_redirect(
    worker: &Worker,
    view: &View,
    route: &RequestRoute<'_>,
    plan: &Plan,
    redirect: &Redirect,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let requested = RequestUrl::new(route.listener, req);
    let https = redirect.https.unwrap_or(requested.https);
    let port = match (redirect.port, redirect.https) {
        (Some(port), _) => Some(port),
        (None, Some(_)) => None,
        (None, None) if redirect.listener_port => listener_port(view, req).or(requested.port),
        (None, None) => requested_port(&requested, view, req),
    };
    let host = redirect.host.as_ref().map(|host| host.as_str());
    let desk = &mut *worker.scratch.borrow_mut();
    write_origin(desk, https, host.or(requested.host), port);
    let prefix = &route.matched_path(req)[..route.matched.prefix()];
    write_path(
        desk,
        redirect.path.as_ref(),
        prefix,
        route.decoded_path.as_deref(),
        req,
    );
    write_redirect(reply, redirect.status, &desk.host)?;
    super::local_response::edit_headers(reply, &plan.response)?;
    Ok(())
}

/// Redirects to the same URL under `https`, as configured at a listener.
pub(super) fn redirect_to_https(
    worker: &Worker,
    listener: &Listener,
    redirect: HttpsRedirect,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let requested = RequestUrl::new(listener, req);
    let desk = &mut *worker.scratch.borrow_mut();
    write_origin(desk, true, requested.host, Some(redirect.port));
    write_path(desk, None, "", None, req);
    write_redirect(reply, redirect.status, &desk.host)
}

/// Redirects to the same path with a trailing slash, as a directory requires: without it relative links would resolve to other paths.
pub(super) fn redirect_to_directory(
    worker: &Worker,
    view: &View,
    listener: &Listener,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let requested = RequestUrl::new(listener, req);
    let port = requested_port(&requested, view, req);
    let desk = &mut *worker.scratch.borrow_mut();
    write_origin(desk, requested.https, requested.host, port);
    let raw = req.head().target.path();
    let forwarded_path = path::forwardable(raw, &mut desk.path).unwrap_or(raw);
    desk.host.push_str(forwarded_path);
    desk.host.push('/');
    if let Some(query) = req.head().target.query() {
        desk.host.push('?');
        desk.host.push_str(query);
    }
    write_redirect(reply, 308, &desk.host)
}

fn write_redirect(reply: &mut Reply<'_>, status: u16, location: &str) -> Result<(), Error> {
    reply.status(status);
    reply.header("Location", location).map(|_| ())
}

/// Writes scheme, host and port. The default port of a scheme is not written.
fn write_origin(desk: &mut WorkerScratch, https: bool, host: Option<&str>, port: Option<u16>) {
    let url = &mut desk.host;
    url.clear();
    url.push_str(if https { "https://" } else { "http://" });
    url.push_str(host.unwrap_or("localhost"));
    let default_port = if https { 443 } else { 80 };
    if let Some(port) = port.filter(|port| *port != default_port) {
        url.push(':');
        url.push_str(&port.to_string());
    }
}

/// Writes the path in its normal form: one that begins with two slashes would lead to another host.
fn write_path(
    desk: &mut WorkerScratch,
    rewrite: Option<&PathRewrite>,
    prefix: &str,
    decoded: Option<&str>,
    req: &Request<'_>,
) {
    let WorkerScratch {
        host: url,
        path: scratch,
        ..
    } = desk;
    let normal = Paths {
        merge_slashes: true,
        ..Paths::default()
    };
    let forwarded_path = forwarded_path(normal, decoded, req.head().target.path(), scratch);
    match rewrite {
        None => url.push_str(forwarded_path),
        Some(rewrite) => super::request::write_rewritten_path(rewrite, forwarded_path, prefix, url),
    }
    if let Some(query) = req.head().target.query() {
        url.push('?');
        url.push_str(query);
    }
}

/// Returns the port that the client requested, or the listener's for a request without a host.
fn requested_port(requested: &RequestUrl<'_>, view: &View, req: &Request<'_>) -> Option<u16> {
    match requested.host {
        Some(_) => requested.port,
        None => listener_port(view, req),
    }
}

/// Returns the port that the listener is configured with; `None` if the kernel has picked it.
fn listener_port(view: &View, req: &Request<'_>) -> Option<u16> {
    view.address(req.listener()).and_then(|id| view.port(id))
}
