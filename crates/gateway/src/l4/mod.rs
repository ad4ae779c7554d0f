//! TCP and TLS passthrough: connections that are forwarded as bytes to an endpoint of an upstream.
//!
//! ```text
//! incoming ─▶ is it TLS? ─ SNI ─▶ listener, route ─┬─ terminates TLS ─┐
//!                                                  └──────────────────┴▶ endpoint ─▶ bytes both ways ─▶ log
//! ```
//!
//! Owns the order of these steps. Endpoints belong to `upstream`, counts and log fields to `access_log`. Knows no HTTP.

mod access_log;
mod client_hello;
mod plan;
mod relay;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Addr;
use ringmain_tls::Tls;
use ringmain_web::StreamConnection;
use ringmain_wire::proxy::Addresses;
use ringmain_wire::tls::Hello;

use crate::balance::stable_hash;
use crate::fault::{Fault, FaultSide, Retryable};
use crate::gateway::{View, Worker};
use crate::health::RequestOutcome;
use crate::limits;
use crate::listeners::rejects_certificate;
use crate::model::{HashKey, Listener, Protocol, StreamRoute, Target, WeightedBackend};
use crate::table::{AddressId, ListenerId};
use crate::upstream::pool::dedicated::DedicatedUse;
use crate::upstream::pool::{PoolEndpoint, PooledConnection, SelectedEndpoint, UpstreamPool};
use crate::upstream::{AffinityHint, RequestPermit, UpstreamState};
use access_log::ConnectionLog;
pub(crate) use plan::StreamPlan;

/// The listener, route and upstream of a connection.
struct L4Destination {
    listener: Arc<Listener>,
    route: Arc<StreamRoute>,
    upstream: Arc<UpstreamState>,
}

/// A connection to an endpoint.
struct L4UpstreamConn {
    conn: PooledConnection,
    /// Counted at the endpoint and at the upstream until dropped.
    _endpoint: SelectedEndpoint,
    _permit: RequestPermit,
}

/// Serves a connection until it ends.
pub(crate) async fn serve_connection(incoming: StreamConnection) {
    let Some(worker) = incoming.local::<Rc<Worker>>().map(Rc::clone) else {
        return;
    };
    let mut log = ConnectionLog::start(&worker, &incoming);
    match connect_upstream(&worker, &incoming, &mut log).await {
        Ok((upstream, idle)) => {
            let client = incoming.stream;
            let ended = relay::relay_connections(client, upstream.conn.stream, idle, &log).await;
            log.record_end(ended);
        }
        Err(fault) => {
            log.record_fault(fault);
            if fault == Fault::NotTls
                && let Some(answer) = client_hello::plain_http_response(&incoming.stream).await
            {
                log_plain_http(&worker, &incoming);
                return client_hello::respond_and_close(&incoming.stream, &answer).await;
            }
            reject_connection(incoming, fault, log.sends_alerts());
        }
    }
}

/// Runs all steps before the first forwarded byte.
async fn connect_upstream(
    worker: &Rc<Worker>,
    incoming: &StreamConnection,
    log: &mut ConnectionLog,
) -> Result<(L4UpstreamConn, Option<std::time::Duration>), Fault> {
    let number = incoming.listener();
    let hello = if starts_with_tls(&worker.view(), number)? {
        Some(client_hello::read_client_hello(&incoming.stream).await?)
    } else {
        None
    };
    log.record_hello(hello.as_ref());
    let found = {
        // The configuration of the instant at which the SNI is known.
        let view = worker.view();
        find_destination(worker, &view, number, hello.as_ref(), log)?
    };
    if found.listener.protocol == Protocol::Tls {
        terminate_tls(incoming, &found.listener).await?;
    }
    let upstream = connect_endpoint(worker, incoming, &found, log).await?;
    Ok((upstream, found.route.idle))
}

/// Returns whether connections of the engine's listener begin with TLS.
fn starts_with_tls(view: &View, number: u32) -> Result<bool, Fault> {
    let address = view.address(number).ok_or(Fault::NoListener)?;
    let mut listeners = view.table.addresses().listeners(address);
    let (_, first) = listeners.next().ok_or(Fault::NoListener)?;
    Ok(first.protocol.has_sni())
}

fn find_destination(
    worker: &Worker,
    view: &View,
    number: u32,
    hello: Option<&Hello>,
    log: &mut ConnectionLog,
) -> Result<L4Destination, Fault> {
    let address = view.address(number).ok_or(Fault::NoListener)?;
    let name = hello.and_then(|hello| hello.server_name.as_deref());
    let id = view
        .table
        .addresses()
        .select_listener(address, name.unwrap_or_default());
    if is_passthrough(view, address, id) {
        log.set_passthrough();
    }
    let id = id.ok_or(Fault::NoListener)?;
    let listener = view.table.listener(id);
    // The listener's protocol may have changed since the connection was accepted.
    let matches = match listener.protocol {
        Protocol::Tcp => hello.is_none(),
        Protocol::Tls | Protocol::TlsPassthrough => hello.is_some(),
        Protocol::Http | Protocol::H2c | Protocol::Https | Protocol::Udp => false,
    };
    if !matches {
        return Err(Fault::NoListener);
    }
    let route = view.table.find_stream(id, name).ok_or(Fault::NoRoute)?;
    let is_broken = |backend: &WeightedBackend| matches!(backend.target, Target::Broken { .. });
    if !route.backends.is_empty() && route.backends.iter().all(is_broken) {
        // Plans are found by name: this one may be another route's.
        return Err(Fault::BrokenBackend);
    }
    let plan = view.streams.get(&route.name).ok_or(Fault::NoRoute)?;
    log.set_route(route, plan);
    let upstream = plan.pick_upstream(|weight| worker.cx.random() % weight)?;
    Ok(L4Destination {
        listener: Arc::clone(listener),
        route: Arc::clone(route),
        upstream: Arc::clone(upstream),
    })
}

/// Returns whether the gateway is no party to the TLS of a connection: its listener passes it through, or no listener admits it and
/// none of its address terminates TLS.
fn is_passthrough(view: &View, address: AddressId, admitted: Option<ListenerId>) -> bool {
    let passes = |listener: &Listener| listener.protocol == Protocol::TlsPassthrough;
    match admitted {
        Some(id) => passes(view.table.listener(id)),
        None => {
            let mut listeners = view.table.addresses().listeners(address);
            listeners.all(|(_, listener)| passes(listener))
        }
    }
}

/// Terminates the client's TLS.
async fn terminate_tls(incoming: &StreamConnection, listener: &Listener) -> Result<(), Fault> {
    let stream = &incoming.stream;
    stream.set_deadline(Some(limits::HANDSHAKE_TIMEOUT));
    if let Err(error) = incoming.secure().await {
        let found = stream.layer(|tls: &mut Tls| tls.fault().map(ToString::to_string));
        let found = found.flatten().unwrap_or_else(|| error.to_string());
        log::debug!("{:?}: TLS: {found}", incoming.remote());
        return Err(Fault::HandshakeFailed);
    }
    stream.set_deadline(None);
    let facts = || {
        stream
            .layer(|tls: &mut Tls| tls.session().shared_facts())
            .flatten()
    };
    if rejects_certificate(listener, facts) {
        return Err(Fault::NoCertificate);
    }
    Ok(())
}

/// Connects to an endpoint, and on failure to others not yet tried: no byte of the client was forwarded by then.
async fn connect_endpoint(
    worker: &Rc<Worker>,
    incoming: &StreamConnection,
    found: &L4Destination,
    log: &mut ConnectionLog,
) -> Result<L4UpstreamConn, Fault> {
    let pool = worker.pool(&found.upstream);
    let admitted = pool.admit_request()?;
    pool.wait_until_resolved(pool.connect_timeout()).await;
    let key = pool
        .with_hash_key(|key| hash_source(key, incoming.remote()))
        .flatten();
    let proxy_header = pool.proxy_header(|| proxy_addresses(incoming));
    let mut tried: Vec<Rc<PoolEndpoint>> = Vec::new();
    let mut last = None;
    let failing_until = worker
        .cx
        .now()
        .after(pool.connect_timeout() * limits::FAILOVER_CONNECT_TIMEOUTS);
    loop {
        let selected = match (pool.select(&tried, key, AffinityHint::None), last) {
            (Ok(selected), None) => selected,
            (Ok(selected), Some(fault)) if is_among(&tried, &selected.endpoint) => return Err(fault),
            (Ok(selected), Some(fault)) => {
                worker.counters.count_fault(fault);
                selected
            }
            (Err(fault), last) => return Err(last.unwrap_or(fault)),
        };
        pool.count_attempt();
        let end = Rc::clone(&selected.endpoint);
        let started_at = worker.cx.now();
        let opened = pool
            .open_dedicated(&end, DedicatedUse::Bytes, &proxy_header, pool.connect_timeout())
            .await;
        let span = worker.cx.now().since(started_at);
        log.record_attempt(&pool.upstream.name, &end, span);
        match opened {
            Ok(conn) => {
                pool.record_latency(&end, span);
                pool.record_outcome(&end, RequestOutcome::Success);
                return Ok(L4UpstreamConn {
                    conn,
                    _endpoint: selected,
                    _permit: admitted,
                });
            }
            Err(fault) => {
                tried.push(end);
                record_failure(&pool, &tried, fault);
                let fails_over = fault.is_connect_failure() && worker.cx.now() < failing_until;
                let may_retry = fault.retryable() == Retryable::Always && tried.len() < limits::STREAM_TRIES;
                if !(fails_over || may_retry) {
                    return Err(fault);
                }
                last = Some(fault);
            }
        }
    }
}

/// Records the failure of the last attempt.
fn record_failure(pool: &UpstreamPool, tried: &[Rc<PoolEndpoint>], fault: Fault) {
    pool.count_fault(fault);
    if let (FaultSide::Upstream, Some(end)) = (fault.side(), tried.last()) {
        pool.record_outcome(end, RequestOutcome::Failure);
    }
}

fn is_among(tried: &[Rc<PoolEndpoint>], end: &PoolEndpoint) -> bool {
    tried.iter().any(|other| other.endpoint.addr == end.endpoint.addr)
}

/// Returns a hash for consistent balancing. Only the source address is known of a connection.
pub(crate) fn hash_source(key: &HashKey, remote: Option<SocketAddr>) -> Option<u64> {
    match (key, remote?.ip()) {
        (HashKey::Source, IpAddr::V4(address)) => Some(stable_hash(&address.octets())),
        (HashKey::Source, IpAddr::V6(address)) => Some(stable_hash(&address.octets())),
        _ => None,
    }
}

/// Returns the addresses for the PROXY protocol header.
fn proxy_addresses(incoming: &StreamConnection) -> Option<Addresses> {
    match incoming.stream.local_addr() {
        Ok(Some(Addr::Inet(to))) => Some(Addresses {
            from: incoming.remote()?,
            to,
        }),
        _ => None,
    }
}

fn log_plain_http(worker: &Worker, incoming: &StreamConnection) {
    if let Some(left_out) = worker.plain_http.admit(worker.cx.now()) {
        let remote = incoming
            .remote()
            .map_or_else(|| "unix".to_owned(), |remote| remote.to_string());
        log::info!(
            "{remote}: plain HTTP where TLS is expected; answered 400: this port speaks TLS{left_out}"
        );
    }
}

/// Closes a connection that is not forwarded. By a reset, unless an alert distinguishes the end from a complete response: after an orderly
/// end it would look served. A client whose TLS another server terminates accepts alerts from that server alone (decision 0028).
fn reject_connection(incoming: StreamConnection, fault: Fault, takes_alerts: bool) {
    let is_terminated = incoming.stream.layer(|_: &mut Tls| ()).is_some();
    if is_terminated {
        // The session's own alert is being sent.
        return drop(incoming);
    }
    if !takes_alerts {
        return incoming.stream.abort();
    }
    // RFC 8446 §6.2: `unrecognized_name`, `internal_error`.
    let description = match fault {
        Fault::NoListener | Fault::NoRoute => 112,
        _ => 80,
    };
    // Fails only if the client has left.
    let _ = incoming.stream.write_now(&[21, 3, 3, 0, 2, 2, description]);
}
