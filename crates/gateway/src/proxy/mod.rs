//! One request, from its head to the last byte of its response: the path that all requests take.
//!
//! ```text
//! head ─▶ listener ─▶ rule ─┬─ forward ─▶ endpoint, connection ─▶ head, body up │ head, body down ─▶ pool
//!                           └─ redirect, answer, files                          └─ 101 ─▶ tunnel
//! ```
//!
//! Owns the order of the steps. The contents of heads belong to `request` and `response`, the choice of endpoints to `upstream`.

mod affinity;
mod backend;
mod body_decoder;
mod client;
mod cors;
mod expect_continue;
pub(crate) mod fast_path;
mod files;
mod filter_chain;
mod forward;
mod grpc;
mod hop_by_hop;
mod local_response;
pub(crate) mod log_fields;
mod min_rate;
mod mirror;
mod path;
pub(crate) mod push;
mod redirect;
mod replay_buffer;
mod request;
mod request_body;
mod response;
mod response_body;
mod trailers;
mod tunnel;

pub(crate) use self::cors::Cross;
pub(crate) use self::hop_by_hop::is_folded;

use std::net::IpAddr;
use std::rc::Rc;

use ringmain_tls::Tls;
use ringmain_web::{Error, Method, Reply, Request};
use ringmain_wire::h1::Known;

use self::fast_path::{Ahead, Started};
use self::filter_chain::Chain;
use self::hop_by_hop::Named;
use crate::compile::plan::Plan;
use crate::fault::{Fault, Side};
use crate::filter;
use crate::gateway::{View, Worker};
use crate::listeners::refuses_certificate;
use crate::model::{Action, HttpsRedirect, Listener};
use crate::policy::{self, Cleared, Walk};
use crate::stats::Count;
use crate::table::{Headers, Matched, RequestFacts, cors, host};

/// The reason why a request gets no response from its route.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    /// An error of the client's connection: it is closed, or its body violated the protocol.
    Web(Error),
    /// A filter's response replaces the expected one.
    Instead(Box<filter::Answer>),
}

impl Failure {
    /// Converts an error of the client's body: an aborted body is counted and logged as a fault. A disconnected client gets no response.
    pub(crate) fn of_body(error: Error) -> Failure {
        let fault = match error.status() {
            _ if error.is_disconnected() => return Failure::Web(error),
            400 => Fault::RequestCut,
            408 => Fault::RequestTooSlow,
            413 => Fault::RequestTooLarge,
            _ => return Failure::Web(error),
        };
        log::debug!("{fault}: {error}");
        Failure::Fault(fault)
    }
}

impl From<Fault> for Failure {
    fn from(fault: Fault) -> Failure {
        Failure::Fault(fault)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Web(error)
    }
}

/// The listener and rule of a request.
pub(crate) struct Found<'v> {
    pub(crate) listener: &'v Listener,
    pub(crate) matched: Matched<'v, Plan>,
    /// The CORS fields of its response, if the rule has a CORS policy.
    pub(crate) cross: Option<Cross>,
    /// The counters of its series, once it has a task.
    pub(crate) count: Option<&'v Count<'v>>,
    decoded: path::Decoded,
}

/// The result of matching a request.
enum Routed<'v> {
    Rule(Found<'v>),
    /// The listener redirects every request to the same URL under `https`.
    ToHttps(&'v Listener, HttpsRedirect),
}

/// The remaining work that needs no view of the configuration.
enum Rest {
    Nothing,
    Body(response_body::Download),
    Tunnel(tunnel::Tunnel),
    Push(push::Pushed),
}

/// Serves a request.
pub(crate) async fn serve(
    worker: &Rc<Worker>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let ahead = worker.beginnings.take(req.ticket());
    let began = ahead.as_ref().map_or(worker.cx.now(), |ahead| ahead.began);
    let count = Count::begin(&worker.counting, &worker.cx, began);
    // Set if the rule has filters.
    let mut chain = None;
    let outcome = match begin(worker, &count, ahead, &mut chain, req, reply).await {
        // Long bodies and tunnels hold no configuration.
        Ok(Rest::Nothing) => {
            grpc::own(req, reply);
            Ok(())
        }
        Ok(Rest::Body(download)) => download.run(worker, req, reply, chain.as_deref()).await,
        Ok(Rest::Tunnel(tunnel)) => tunnel.run(req, reply).await,
        Ok(Rest::Push(pushed)) => pushed.run(req, reply).await,
        Err(error) => Err(error),
    };
    if let Some(chain) = &chain {
        chain.ended(&outcome, reply);
    }
    match &outcome {
        Err(error) if error.is_disconnected() => {}
        Err(error) if !reply.is_streaming() => count.end(error.status()),
        _ => count.end(reply.status_now()),
    }
    outcome
}

async fn begin(
    worker: &Rc<Worker>,
    count: &Count<'_>,
    ahead: Option<Ahead>,
    chain: &mut Option<Box<Chain>>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Error> {
    let (view, walked, started) = match ahead {
        Some(ahead) => (ahead.view, Some(ahead.walked), ahead.started),
        None => (worker.view(), None, None),
    };
    let found = match find(worker, &view, req) {
        Ok(Routed::Rule(mut found)) => {
            found.count = Some(count);
            found
        }
        Ok(Routed::ToHttps(listener, how)) => {
            return redirect::to_https(worker, listener, how, req, reply).map(|()| Rest::Nothing);
        }
        Err(Failure::Fault(fault)) => {
            log_fields::fault(worker, req, fault);
            return local_response::plain(reply, fault).map(|()| Rest::Nothing);
        }
        Err(Failure::Web(error)) => return Err(error),
        Err(Failure::Instead(_)) => return Err(filter_chain::too_late()),
    };
    log_fields::route(worker, count, &found, req);
    req.set_minimum_rate(found.listener.limits.rate_bytes);
    if let Err(fault) = reject_unforwardable(&found, req) {
        log_fields::fault(worker, req, fault);
        return local_response::fault(reply, &found.matched, fault).map(|()| Rest::Nothing);
    }
    let walked = match walked {
        Some(walked) => walked,
        None => match policy::walk_now(worker, &found, req) {
            Walk::Cleared(cleared) => Ok(cleared),
            Walk::Refused(refusal) => Err(refusal),
            Walk::Waits => policy::walk(worker, &found, req).await,
        },
    };
    if let Some(cross) = &found.cross {
        reply.add_headers(&cross.fields);
        if cross.is_preflight && walked.is_ok() {
            reply.no_content()?;
            if let Ok(plan) = found.matched.plan() {
                local_response::changes(reply, &plan.response)?;
            }
            return Ok(Rest::Nothing);
        }
    }
    let mut cleared = match walked {
        Ok(cleared) => cleared,
        Err(refusal) => {
            log_fields::fault(worker, req, refusal.fault);
            return local_response::refusal(reply, &found.matched, &refusal).map(|()| Rest::Nothing);
        }
    };
    cleared.stay(req);
    reply.add_headers(cleared.answer());
    let filters = found.matched.plan().ok().and_then(|plan| plan.filters.as_deref());
    if let Some(uses) = filters {
        // Boxed, so that the future of requests without filters has no room for it.
        let passing = (&mut cleared, uses, chain);
        return Box::pin(filter_chain::serve(worker, &view, &found, passing, req, reply)).await;
    }
    let outcome = act(worker, &view, &found, (&cleared, started, None), req, reply).await;
    answered(worker, &found, outcome, req, reply)
}

/// Finalizes the response of a request after its rule's action: a fault becomes the response, if none has started.
fn answered(
    worker: &Worker,
    found: &Found<'_>,
    outcome: Result<Rest, Failure>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Error> {
    if let Err(Failure::Fault(fault)) = &outcome {
        log_fields::fault(worker, req, *fault);
    }
    match outcome {
        Ok(rest) => Ok(rest),
        Err(Failure::Fault(fault)) if !reply.is_streaming() => {
            local_response::fault(reply, &found.matched, fault).map(|()| Rest::Nothing)
        }
        Err(Failure::Fault(fault)) => cut(req, reply, fault).map(|()| Rest::Nothing),
        Err(Failure::Web(error)) => Err(error),
        Err(Failure::Instead(_)) => Err(filter_chain::too_late()),
    }
}

/// Aborts a response that has started. gRPC clients receive the status of the call; others detect that the body is incomplete.
fn cut(req: &Request<'_>, reply: &mut Reply<'_>, fault: Fault) -> Result<(), Error> {
    if grpc::ends(req, reply, fault) {
        return Ok(());
    }
    Err(match fault.side() {
        Side::Client => Error::new(fault.status(), fault.text()),
        Side::Gateway | Side::Upstream => Error::internal(fault),
    })
}

/// Finds the rule for a request.
fn find<'v>(worker: &Worker, view: &'v View, req: &Request<'_>) -> Result<Routed<'v>, Failure> {
    let desk = &mut *worker.desk.borrow_mut();
    let host = host(req.host().unwrap_or_default(), &mut desk.host);
    let address = view.address(req.listener()).ok_or(Fault::NoListener)?;
    let addresses = view.table.addresses();
    let secure = req.scheme() == "https";
    let stranger = if secure {
        Fault::Misdirected
    } else {
        Fault::NoListener
    };
    let id = addresses.admit(address, host).ok_or(stranger)?;
    let listener = view.table.listener(id);
    let several = addresses.listeners(address).nth(1).is_some();
    if secure && several && addresses.admit(address, &sni(req)) != Some(id) {
        return Err(Fault::Misdirected.into());
    }
    // The protocol of the address may have changed since the connection was accepted.
    if !listener.protocol.is_http() || listener.protocol.has_sni() != secure {
        return Err(stranger.into());
    }
    // The server checks the requirements of the handshake before each request, by the current settings. Where several listeners of an
    // address differ, the handshake requires less than each listener does.
    if secure && several && refuses_certificate(listener, || req.tls()) {
        return Err(Fault::NoCertificate.into());
    }
    // A trusted proxy may have received it over TLS already: redirecting it to its own URL would be an endless loop.
    if let Some(how) = listener.redirect_to_https
        && !client::RequestUrl::is_https(listener, req)
    {
        return Ok(Routed::ToHttps(listener, how));
    }
    let decoded = view.table.decode_path(id, req.path())?;
    let facts = RequestFacts {
        host,
        path: decoded.as_deref().unwrap_or_else(|| req.path()),
        method: req.method().as_str(),
        query: req.head().target.query().unwrap_or_default(),
        headers: Headers::Fields(req.head().fields),
    };
    let matched = view.table.find_request(id, &facts).ok_or(Fault::NoRoute)?;
    let policy = cors(listener, &matched);
    Ok(Routed::Rule(Found {
        listener,
        matched,
        cross: policy.map(|cors| cors::fields(cors, req)),
        count: None,
        decoded,
    }))
}

/// Rejects a request that cannot be forwarded, whatever its policies decide, before any service is queried or connected to.
fn reject_unforwardable(found: &Found<'_>, req: &Request<'_>) -> Result<(), Fault> {
    let rule = found.matched.rule();
    if !matches!(rule.action, Action::Forward(_)) {
        return Ok(());
    }
    let fields = &req.head().fields;
    if fields.known(Known::Connection).is_some() {
        Named::of(fields)?;
    }
    if req.method() == Method::Trace {
        let matching = rule.matches.get(found.matched.matching());
        let named = matching.and_then(|matching| matching.method.as_ref());
        return named.map_or(Err(Fault::TraceRefused), |_| Ok(()));
    }
    Ok(())
}

/// Returns the client's address; `None` on a Unix socket without a trusted header.
pub(crate) fn client_address(listener: &Listener, req: &Request<'_>) -> Option<IpAddr> {
    client::address(&listener.client_address, req)
}

/// Returns the scheme that the client used, as far as trusted proxies report it.
pub(crate) fn client_scheme(listener: &Listener, req: &Request<'_>) -> &'static str {
    match client::RequestUrl::is_https(listener, req) {
        true => "https",
        false => "http",
    }
}

/// Returns the path and query of a request as an upstream receives them, without the rule's rewrite.
pub(crate) fn forwarded_uri(found: &Found<'_>, req: &Request<'_>) -> String {
    let target = req.head().target;
    let mut scratch = String::new();
    let decoded = found.decoded.as_deref();
    let mut uri = path::forwarded(found.listener.paths, decoded, target.path(), &mut scratch).to_owned();
    if let Some(query) = target.query() {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}

/// Returns the server name of the client's TLS handshake.
fn sni(req: &Request<'_>) -> String {
    let conn = req.cx().conn(req.connection());
    let name = conn.layer(|tls: &mut Tls| tls.facts().and_then(|facts| facts.server_name.clone()));
    name.flatten().unwrap_or_default()
}

async fn act(
    worker: &Rc<Worker>,
    view: &View,
    found: &Found<'_>,
    (cleared, started, chain): (&Cleared, Option<Started>, Option<&Chain>),
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Rest, Failure> {
    let plan = found.matched.plan().map_err(|_why| Fault::BrokenRule)?;
    match &found.matched.rule().action {
        Action::Forward(forward) => {
            forward::forward(
                worker,
                found,
                (cleared, started, chain),
                plan,
                forward,
                req,
                reply,
            )
            .await
        }
        Action::Answer(answer) => local_response::answer(reply, plan, answer).map(|()| Rest::Nothing),
        Action::Redirect(how) => {
            redirect::redirect(worker, view, found, plan, how, req, reply).map(|()| Rest::Nothing)
        }
        Action::Files(how) => {
            let sent = files::answer(worker, view, found, (plan, chain), how, req, reply).await;
            sent.map(|()| Rest::Nothing)
        }
        Action::Push(at) => {
            let pushed = push::Pushed::new(worker, view, (found, plan), cleared, at, req);
            Ok(Rest::Push(pushed))
        }
        Action::Broken { .. } => Err(Fault::BrokenRule.into()),
    }
}
