//! The backend of a request and its upstream head, as far as they follow from the request and its rule alone.

use std::net::IpAddr;
use std::rc::Rc;

use ringmain_engine::Addr;
use ringmain_web::Request;
use ringmain_wire::h1::{Framing, Known, Version};
use ringmain_wire::proxy::Addresses;
use ringmain_wire::ws::Challenge;

use super::fast_path::StartedAttempt;
use super::request::UpstreamRequest;
use super::response_body::ExchangeTimeouts;
use super::{RequestRoute, client, grpc, trailers};
use crate::balance::stable_hash;
use crate::compile::plan::{Plan, PlannedBackend};
use crate::fault::Fault;
use crate::gateway::Worker;
use crate::model::{ErrorPage, Forward, HashKey, Listener, Rule};
use crate::policy::Cleared;
use crate::upstream::pool::UpstreamPool;

/// The upstream side of a request: the parts that are the same for all its attempts.
pub(super) struct ForwardTarget<'a> {
    /// Index of the backend in the rule.
    pub(super) number: usize,
    pub(super) backend: &'a PlannedBackend,
    /// This worker's pool of the upstream.
    pub(super) pool: Rc<UpstreamPool>,
    pub(super) timeouts: ExchangeTimeouts,
    /// The hash of the balancing key.
    pub(super) key: Option<u64>,
    pub(super) upstream_request: UpstreamRequest<'a>,
}

/// A request that has passed the policies of a rule that forwards it.
#[derive(Clone, Copy)]
pub(super) struct ClearedRequest<'q, 'a> {
    pub(super) req: &'q Request<'a>,
    pub(super) cleared: &'a Cleared,
    pub(super) rule: &'a Forward,
    pub(super) plan: &'a Plan,
}

impl<'a> ForwardTarget<'a> {
    /// Picks a backend, and starts the time limits of a request. With `started`, continues with the backend and the limits of that attempt.
    ///
    /// # Errors
    /// The rule has no backend, or the backend has no upstream.
    pub(super) fn new(
        worker: &Rc<Worker>,
        route: &RequestRoute<'a>,
        request: ClearedRequest<'_, 'a>,
        started: Option<&StartedAttempt>,
    ) -> Result<ForwardTarget<'a>, Fault> {
        let ClearedRequest {
            req,
            cleared,
            rule,
            plan,
        } = request;
        let (number, backend) = match started {
            Some(started) => {
                let backend = plan.backends.get(started.backend).ok_or(Fault::NoBackend)?;
                (started.backend, backend)
            }
            None => pick_backend(worker, plan)?,
        };
        let upstream = backend.upstream.as_ref().ok_or(Fault::BrokenBackend)?;
        let (pool, timeouts) = match started {
            Some(started) => (Rc::clone(&started.pool), started.timeouts),
            None => {
                let timeouts = ExchangeTimeouts::start(&rule.timeouts, worker.cx.now());
                (worker.pool(upstream), timeouts)
            }
        };
        let hash = pool.with_hash_key(|key| hash_key(key, route.listener, req, cleared));
        Ok(ForwardTarget {
            number,
            backend,
            pool,
            timeouts,
            key: hash.flatten(),
            upstream_request: build_upstream_request(route, rule, backend, number, req, cleared),
        })
    }
}

/// Collects the parts from which the head for a backend is written.
fn build_upstream_request<'a>(
    route: &RequestRoute<'a>,
    forward: &'a Forward,
    backend: &'a PlannedBackend,
    number: usize,
    req: &Request<'a>,
    cleared: &'a Cleared,
) -> UpstreamRequest<'a> {
    let upgrade = offered_upgrade(req, forward);
    UpstreamRequest {
        listener: route.listener,
        changes: &backend.request,
        cleared,
        rule: &forward.rewrite,
        backend: &forward.backends[number].rewrite,
        prefix: route.matched.prefix(),
        decoded: route.decoded_path.clone(),
        upgrade,
        challenge: upgrade
            .filter(|_| req.version() == Version::Http2)
            .map(|_| websocket_challenge(req)),
        trailers: req.version() != Version::Http10
            && req.head().fields.known(Known::Te).is_some()
            && trailers::accepts_trailers(&req.head().fields),
        grpc_web: grpc::grpc_web_type(forward, req),
    }
}

/// Returns the error pages that replace error responses of the upstream.
pub(super) fn replacement_pages<'r>(rule: &'r Rule, forward: &Forward) -> &'r [ErrorPage] {
    if forward.replace_errors {
        &rule.error_pages
    } else {
        &[]
    }
}

/// Returns the hash of a request's balancing key.
pub(super) fn hash_key(
    key: &HashKey,
    listener: &Listener,
    req: &Request<'_>,
    cleared: &Cleared,
) -> Option<u64> {
    match key {
        HashKey::Cookie(name) => req.cookies().get(name).map(|value| stable_hash(value.as_bytes())),
        HashKey::Header(name) => req
            .header(name.as_str())
            .map(|value| stable_hash(value.as_bytes())),
        HashKey::Path => Some(stable_hash(req.path().as_bytes())),
        HashKey::Source => hash_client(listener, req),
        HashKey::Query(name) => {
            let query = req.query().ok()?;
            query.get(name).map(|value| stable_hash(value.as_bytes()))
        }
        HashKey::Identity => cleared
            .identity()
            .map(|identity| stable_hash(identity.as_bytes())),
        HashKey::Claim(path) => cleared.with_claim(path, |claim| stable_hash(claim.as_bytes())),
    }
}

/// Returns the hash of the client's address.
pub(super) fn hash_client(listener: &Listener, req: &Request<'_>) -> Option<u64> {
    match client::address(&listener.client_address, req)? {
        IpAddr::V4(address) => Some(stable_hash(&address.octets())),
        IpAddr::V6(address) => Some(stable_hash(&address.octets())),
    }
}

/// Returns the addresses of the client's connection for a PROXY protocol header.
pub(super) fn client_addresses(req: &Request<'_>) -> Option<Addresses> {
    let conn = req.cx().conn(req.connection());
    match conn.local_addr() {
        Ok(Some(Addr::Inet(to))) => Some(Addresses {
            from: req.remote()?,
            to,
        }),
        _ => None,
    }
}

/// Picks a backend at random, by weight.
fn pick_backend<'p>(worker: &Worker, plan: &'p Plan) -> Result<(usize, &'p PlannedBackend), Fault> {
    let number = match plan.weight {
        0 => return Err(Fault::NoBackend),
        _ if plan.backends.len() == 1 => 0,
        weight => worker.cx.random() % weight,
    };
    plan.backend(number).ok_or(Fault::NoBackend)
}

/// Creates a `Sec-WebSocket-Key`; the upstream's response to it proves that it speaks WebSocket.
fn websocket_challenge(req: &Request<'_>) -> Challenge {
    let random = || u128::from(req.cx().random());
    Challenge::new(((random() << 64) | random()).to_ne_bytes())
}

/// Returns the protocol to offer in `Upgrade`: an allowed one, the only one requested, and only for a request without a body.
fn offered_upgrade<'r>(req: &Request<'r>, forward: &Forward) -> Option<&'r [u8]> {
    let upgrade = req.head().upgrade?;
    if req.head().fields.all_known(Known::Upgrade).nth(1).is_some() {
        return None;
    }
    let allowed = |protocol: &[u8]| {
        let name = protocol.split(|&byte| byte == b'/').next().unwrap_or_default();
        forward
            .upgrades
            .iter()
            .any(|allowed| name.eq_ignore_ascii_case(allowed.as_bytes()))
    };
    (req.head().framing == Framing::None && allowed(upgrade)).then_some(upgrade)
}
