//! Another URL for a request.

use ringmain_web::{Error, Reply, Request, path};

use super::{Failure, Found};
use crate::desk::Desk;
use crate::gateway::{View, Worker};
use crate::model::{HttpsRedirect, PathRewrite, Redirect};
use crate::plan::Plan;

/// As a rule has it.
pub(super) fn redirect(
    worker: &Worker,
    view: &View,
    found: &Found<'_>,
    plan: &Plan,
    redirect: &Redirect,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Failure> {
    let https = redirect.https.unwrap_or(req.scheme() == "https");
    let port = match (redirect.port, redirect.https) {
        (Some(port), _) => Some(port),
        (None, Some(_)) => None,
        (None, None) => own_port(view, req),
    };
    let host = redirect.host.as_ref().map(|host| host.as_str());
    let desk = &mut *worker.desk.borrow_mut();
    begin(desk, https, host.unwrap_or_else(|| host_of(req)), port);
    write_path(desk, redirect.path.as_ref(), found.matched.prefix(), req);
    send(reply, redirect.status, &desk.host)?;
    super::own::changes(reply, &plan.response)?;
    Ok(())
}

/// The same under `https`, as a listener has it.
pub(super) fn to_https(
    worker: &Worker,
    redirect: HttpsRedirect,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let desk = &mut *worker.desk.borrow_mut();
    begin(desk, true, host_of(req), Some(redirect.port));
    write_path(desk, None, 0, req);
    send(reply, redirect.status, &desk.host)
}

/// The same path with a slash at its end, which a directory has: else its relative links would lead elsewhere.
pub(super) fn to_directory(
    worker: &Worker,
    view: &View,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let desk = &mut *worker.desk.borrow_mut();
    begin(desk, req.scheme() == "https", host_of(req), own_port(view, req));
    let raw = req.head().target.path();
    let passed = path::pass_on(raw, &mut desk.path).unwrap_or(raw);
    desk.host.push_str(passed);
    desk.host.push('/');
    if let Some(query) = req.head().target.query() {
        desk.host.push('?');
        desk.host.push_str(query);
    }
    send(reply, 308, &desk.host)
}

fn send(reply: &mut Reply<'_>, status: u16, location: &str) -> Result<(), Error> {
    reply.status(status);
    reply.header("Location", location).map(|_| ())
}

/// Scheme, host and port. A scheme's own port is not written.
fn begin(desk: &mut Desk, https: bool, host: &str, port: Option<u16>) {
    let url = &mut desk.host;
    url.clear();
    url.push_str(if https { "https://" } else { "http://" });
    url.push_str(host);
    let own = if https { 443 } else { 80 };
    if let Some(port) = port.filter(|port| *port != own) {
        url.push(':');
        url.push_str(&port.to_string());
    }
}

fn write_path(desk: &mut Desk, rewrite: Option<&PathRewrite>, prefix: usize, req: &Request<'_>) {
    let Desk {
        host: url,
        path: scratch,
        ..
    } = desk;
    let raw = req.head().target.path();
    match rewrite {
        None => url.push_str(path::pass_on(raw, scratch).unwrap_or(raw)),
        Some(rewrite) => {
            let passed = path::pass_on(raw, scratch).unwrap_or(raw);
            super::request::rewritten(rewrite, passed, &req.path()[..prefix], url);
        }
    }
    if let Some(query) = req.head().target.query() {
        url.push('?');
        url.push_str(query);
    }
}

/// The host that was asked, without its port.
fn host_of<'r>(req: &Request<'r>) -> &'r str {
    let authority = req.host().unwrap_or("localhost");
    match authority.rfind([':', ']']) {
        Some(at) if authority.as_bytes()[at] == b':' => &authority[..at],
        _ => authority,
    }
}

/// The listener's port; the one that was asked if the kernel has chosen it.
fn own_port(view: &View, req: &Request<'_>) -> Option<u16> {
    let told = view.address(req.listener()).and_then(|id| view.port(id));
    told.or_else(|| {
        let authority = req.host()?;
        authority[host_of(req).len()..].strip_prefix(':')?.parse().ok()
    })
}
