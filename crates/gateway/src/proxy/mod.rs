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
mod client_watch;
mod cors;
mod evaluation;
mod event_stream;
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

pub(crate) use self::cors::CorsHeaders;
pub(crate) use self::hop_by_hop::{ConnectionOptions, FieldTreatment, ProxyField, eq_folded, treatment};
pub(crate) use self::request::is_trusted_peer;

use std::net::IpAddr;
use std::rc::Rc;

use ringmain_tls::Tls;
use ringmain_web::{Error, Method, Reply, Request};
use ringmain_wire::h1::Known;

use self::backend::ClearedRequest;
use self::evaluation::{Evaluation, evaluate};
use self::fast_path::{FastPathState, StartedAttempt};
use self::files::FileRequest;
use self::filter_chain::FilterChain;
use crate::compile::plan::Plan;
use crate::fault::{Fault, FaultSide};
use crate::filter;
use crate::gateway::{View, Worker};
use crate::listeners::rejects_certificate;
use crate::model::{Action, HttpsRedirect, Listener};
use crate::policy::{self, Cleared};
use crate::stats::RequestCounter;
use crate::table::{Headers, Matched, RequestFacts, cors_policy, normalize_host};

/// The reason why a request gets no response from its route.
#[derive(Debug)]
pub(crate) enum Failure {
    Fault(Fault),
    /// An error of the client's connection: it is closed, or its body violated the protocol.
    Web(Error),
    /// A filter's response replaces the expected one.
    FilterResponse(Box<filter::FilterResponse>),
}

impl Failure {
    /// Converts an error of the client's body: an aborted body is counted and logged as a fault. A disconnected client gets no response.
    pub(crate) fn from_body_error(error: Error) -> Failure {
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
pub(crate) struct RequestRoute<'v> {
    pub(crate) listener: &'v Listener,
    pub(crate) matched: Matched<'v, Plan>,
    /// The CORS fields of its response, if the rule has a CORS policy.
    pub(crate) cors: Option<CorsHeaders>,
    /// The counters of its series, once it has a task.
    pub(crate) counter: Option<&'v RequestCounter<'v>>,
    decoded_path: path::DecodedPath,
}

impl<'v> RequestRoute<'v> {
    fn with_request<'q>(&'q self, view: &'q View, req: &'q Request<'v>) -> RoutedRequest<'q, 'v> {
        RoutedRequest {
            view,
            route: self,
            req,
        }
    }
}

/// A request with its rule and the configuration that it uses.
#[derive(Clone, Copy)]
struct RoutedRequest<'q, 'v> {
    view: &'q View,
    route: &'q RequestRoute<'v>,
    req: &'q Request<'v>,
}

/// The result of matching a request.
enum Routed<'v> {
    Rule(RequestRoute<'v>),
    /// The listener redirects every request to the same URL under `https`.
    ToHttps(&'v Listener, HttpsRedirect),
}

/// The remaining work that needs no view of the configuration.
enum Continuation {
    Done,
    Body(response_body::ResponseRelay),
    Tunnel(tunnel::Tunnel),
    Push(push::PushRequest),
}

/// Serves a request.
pub(crate) async fn serve_request(
    worker: &Rc<Worker>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<(), Error> {
    let state = worker.fast_path.take_state(req.responder_id());
    let started_at = state.as_ref().map_or(worker.cx.now(), |state| state.arrived);
    let count = RequestCounter::start(&worker.counters, &worker.cx, started_at);
    // Set if the rule has filters.
    let mut chain = None;
    let outcome = match run_request(worker, &count, state, &mut chain, req, reply).await {
        // Long bodies and tunnels hold no configuration.
        Ok(Continuation::Done) => {
            grpc::convert_local_response(req, reply);
            Ok(())
        }
        Ok(Continuation::Body(download)) => download.run(worker, req, reply, chain.as_deref()).await,
        Ok(Continuation::Tunnel(tunnel)) => tunnel.run(req, reply).await,
        Ok(Continuation::Push(pushed)) => pushed.run(req, reply).await,
        Err(error) => Err(error),
    };
    if let Some(chain) = &chain {
        chain.record_outcome(&outcome, reply);
    }
    match &outcome {
        Err(error) if error.is_disconnected() => {}
        Err(error) if !reply.is_streaming() => count.set_status(error.status()),
        _ => count.set_status(reply.current_status()),
    }
    outcome
}

async fn run_request(
    worker: &Rc<Worker>,
    count: &RequestCounter<'_>,
    state: Option<FastPathState>,
    chain: &mut Option<Box<FilterChain>>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Error> {
    let (view, known, started) = match state {
        Some(state) => (state.view, Some(state.policy_result), state.attempt),
        None => (worker.view(), None, None),
    };
    let evaluation = evaluate(worker, &view, req, known, |route| {
        route.counter = Some(count);
        log_fields::log_route(worker, count, route, req);
        req.set_minimum_rate(route.listener.limits.rate_bytes);
        true
    });
    let (route, policy_result) = match evaluation {
        Evaluation::Matched(route, Some(result)) => (route, result),
        Evaluation::Matched(route, None) => {
            let result = policy::evaluate(worker, &route, req).await;
            log_fields::log_policies(&result, req);
            (route, result)
        }
        Evaluation::Unforwardable(route, fault) => {
            log_fields::log_fault(worker, req, fault);
            return local_response::send_fault(reply, &route.matched, fault).map(|()| Continuation::Done);
        }
        Evaluation::ToHttps(listener, redirect) => {
            return redirect::redirect_to_https(worker, listener, redirect, req, reply)
                .map(|()| Continuation::Done);
        }
        Evaluation::Unmatched(failure) => return respond_unmatched(worker, failure, req, reply),
    };
    if let Some(cors) = &route.cors {
        reply.add_headers(&cors.fields);
        if cors.is_preflight && policy_result.is_ok() {
            return respond_preflight(&route, reply).map(|()| Continuation::Done);
        }
    }
    let mut cleared = match policy_result {
        Ok(cleared) => cleared,
        Err(refusal) => {
            log_fields::log_fault(worker, req, refusal.fault);
            return local_response::send_refusal(reply, &route.matched, &refusal)
                .map(|()| Continuation::Done);
        }
    };
    cleared.hold_permits(req);
    cleared.add_to_response(reply);
    let request = route.with_request(&view, req);
    let filters = route.matched.plan().ok().and_then(|plan| plan.filters.as_deref());
    if let Some(uses) = filters {
        // Boxed, so that the future of requests without filters has no room for it.
        return Box::pin(filter_chain::serve_filtered(
            worker,
            request,
            &mut cleared,
            uses,
            chain,
            reply,
        ))
        .await;
    }
    let outcome = run_action(worker, request, &cleared, started, None, reply).await;
    finish_response(worker, &route, outcome, req, reply)
}

/// Responds to a CORS preflight request that the policies have accepted.
fn respond_preflight(route: &RequestRoute<'_>, reply: &mut Reply<'_>) -> Result<(), Error> {
    reply.no_content()?;
    match route.matched.plan() {
        Ok(plan) => local_response::edit_headers(reply, &plan.response),
        Err(_) => Ok(()),
    }
}

/// Responds to a request without a rule.
fn respond_unmatched(
    worker: &Worker,
    failure: Failure,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Error> {
    match failure {
        Failure::Fault(fault) => {
            log_fields::log_fault(worker, req, fault);
            local_response::send_plain_fault(reply, fault).map(|()| Continuation::Done)
        }
        Failure::Web(error) => Err(error),
        Failure::FilterResponse(_) => Err(filter_chain::late_response_error()),
    }
}

/// Finalizes the response of a request after its rule's action: a fault becomes the response, if none has started.
fn finish_response(
    worker: &Worker,
    route: &RequestRoute<'_>,
    outcome: Result<Continuation, Failure>,
    req: &Request<'_>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Error> {
    if let Err(Failure::Fault(fault)) = &outcome {
        log_fields::log_fault(worker, req, *fault);
    }
    match outcome {
        Ok(continuation) => Ok(continuation),
        Err(Failure::Fault(fault)) if !reply.is_streaming() => {
            local_response::send_fault(reply, &route.matched, fault).map(|()| Continuation::Done)
        }
        Err(Failure::Fault(fault)) => abort_response(req, reply, fault).map(|()| Continuation::Done),
        Err(Failure::Web(error)) => Err(error),
        Err(Failure::FilterResponse(_)) => Err(filter_chain::late_response_error()),
    }
}

/// Aborts a response that has started. gRPC clients receive the status of the call; others detect that the body is incomplete.
fn abort_response(req: &Request<'_>, reply: &mut Reply<'_>, fault: Fault) -> Result<(), Error> {
    if grpc::end_with_status(req, reply, fault) {
        return Ok(());
    }
    Err(match fault.side() {
        FaultSide::Client => Error::new(fault.status(), fault.text()),
        FaultSide::Gateway | FaultSide::Upstream => Error::internal(fault),
    })
}

/// Finds the rule for a request.
fn find_route<'v>(worker: &Worker, view: &'v View, req: &Request<'_>) -> Result<Routed<'v>, Failure> {
    let scratch = &mut *worker.scratch.borrow_mut();
    let host = normalize_host(req.host().unwrap_or_default(), &mut scratch.host);
    let address = view.address(req.listener()).ok_or(Fault::NoListener)?;
    let addresses = view.table.addresses();
    let secure = req.scheme() == "https";
    let no_listener = if secure {
        Fault::Misdirected
    } else {
        Fault::NoListener
    };
    let id = addresses.select_listener(address, host).ok_or(no_listener)?;
    let listener = view.table.listener(id);
    let has_several = addresses.listeners(address).nth(1).is_some();
    if secure && has_several && addresses.select_listener(address, &client_sni(req)) != Some(id) {
        return Err(Fault::Misdirected.into());
    }
    // The protocol of the address may have changed since the connection was accepted.
    if !listener.protocol.is_http() || listener.protocol.has_sni() != secure {
        return Err(no_listener.into());
    }
    // The server checks the requirements of the handshake before each request, by the current settings. Where several listeners of an
    // address differ, the handshake requires less than each listener does.
    if secure && has_several && rejects_certificate(listener, || req.tls()) {
        return Err(Fault::NoCertificate.into());
    }
    // A trusted proxy may have received it over TLS already: redirecting it to its own URL would be an endless loop.
    if let Some(action) = listener.redirect_to_https
        && !client::RequestUrl::is_https(listener, req)
    {
        return Ok(Routed::ToHttps(listener, action));
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
    let policy = cors_policy(listener, &matched);
    Ok(Routed::Rule(RequestRoute {
        listener,
        matched,
        cors: policy.map(|cors| cors::build_headers(cors, req)),
        counter: None,
        decoded_path: decoded,
    }))
}

/// Rejects a request that cannot be forwarded, whatever its policies decide, before any service is queried or connected to.
fn reject_unforwardable(route: &RequestRoute<'_>, req: &Request<'_>) -> Result<(), Fault> {
    let rule = route.matched.rule();
    if !matches!(rule.action, Action::Forward(_)) {
        return Ok(());
    }
    let fields = &req.head().fields;
    if fields.known(Known::Connection).is_some() {
        ConnectionOptions::parse(fields)?;
    }
    if req.method() == Method::Trace {
        let matching = rule.matches.get(route.matched.match_number());
        let method = matching.and_then(|matching| matching.method.as_ref());
        return method.map_or(Err(Fault::TraceRefused), |_| Ok(()));
    }
    Ok(())
}

/// Returns the client's address; `None` on a Unix socket without a trusted header.
pub(crate) fn client_address(listener: &Listener, req: &Request<'_>) -> Option<IpAddr> {
    client::address(&listener.client_address, req)
}

/// Returns the scheme that the client used, as far as trusted proxies report it.
pub(crate) fn client_scheme(listener: &Listener, req: &Request<'_>) -> &'static str {
    if client::RequestUrl::is_https(listener, req) {
        "https"
    } else {
        "http"
    }
}

/// Returns the path and query of a request as an upstream receives them, without the rule's rewrite.
pub(crate) fn forwarded_uri(route: &RequestRoute<'_>, req: &Request<'_>) -> String {
    let target = req.head().target;
    let mut scratch = String::new();
    let decoded = route.decoded_path.as_deref();
    let mut uri = path::forwarded_path(route.listener.paths, decoded, target.path(), &mut scratch).to_owned();
    if let Some(query) = target.query() {
        uri.push('?');
        uri.push_str(query);
    }
    uri
}

/// Returns the server name of the client's TLS handshake.
fn client_sni(req: &Request<'_>) -> String {
    let conn = req.cx().conn(req.connection());
    let name = conn.layer(|tls: &mut Tls| tls.facts().and_then(|facts| facts.server_name.clone()));
    name.flatten().unwrap_or_default()
}

async fn run_action(
    worker: &Rc<Worker>,
    request: RoutedRequest<'_, '_>,
    cleared: &Cleared,
    started: Option<StartedAttempt>,
    chain: Option<&FilterChain>,
    reply: &mut Reply<'_>,
) -> Result<Continuation, Failure> {
    let RoutedRequest { view, route, req } = request;
    let plan = route.matched.plan().map_err(|_error| Fault::BrokenRule)?;
    match &route.matched.rule().action {
        Action::Forward(forward) => {
            let request = ClearedRequest {
                req,
                cleared,
                rule: forward,
                plan,
            };
            forward::forward(worker, route, request, started, chain, reply).await
        }
        Action::Respond(response) => {
            local_response::send_direct(reply, plan, response).map(|()| Continuation::Done)
        }
        Action::Redirect(action) => redirect::send_redirect(worker, view, route, plan, action, req, reply)
            .map(|()| Continuation::Done),
        Action::Files(action) => {
            let request = FileRequest {
                req,
                files: action,
                plan,
                chain,
            };
            let sent = files::serve_file(worker, view, route, request, reply).await;
            sent.map(|()| Continuation::Done)
        }
        Action::Push(at) => {
            let pushed = push::PushRequest::new(worker, view, route, plan, cleared, at, req);
            Ok(Continuation::Push(pushed))
        }
        Action::Broken { .. } => Err(Fault::BrokenRule.into()),
    }
}
