//! Connections that are not looked into: passed on as bytes to an endpoint of an upstream.
//!
//! ```text
//! incoming ─▶ by TLS? ─ the name asked for ─▶ listener, route ─┬─ TLS ends here ─┐
//!                                                              └─────────────────┴▶ endpoint ─▶ bytes both ways ─▶ note
//! ```
//!
//! Owns the order of things. Who answers is in `upstream`, what is said of a connection in `note`. Knows no HTTP.

mod hello;
mod note;
mod plan;
mod relay;

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use ringmain_engine::Addr;
use ringmain_tls::Tls;
use ringmain_web::Incoming;
use ringmain_wire::proxy::Addresses;
use ringmain_wire::tls::Hello;

use crate::balance::hash;
use crate::fault::{Fault, Retryable, Side};
use crate::front::refuses_certificate;
use crate::gateway::{View, Worker};
use crate::health::Meeting;
use crate::limits;
use crate::model::{HashKey, Listener, Protocol, StreamRoute, Target, WeightedBackend};
use crate::table::{AddressId, ListenerId};
use crate::upstream::local::bytes::Purpose;
use crate::upstream::local::{Chosen, End, Local, Sole};
use crate::upstream::{Admitted, Prefer, Shared};
use note::Passing;
pub(crate) use plan::StreamPlan;

/// Where a connection belongs.
struct Found {
    listener: Arc<Listener>,
    route: Arc<StreamRoute>,
    upstream: Arc<Shared>,
}

/// A connection to whom it is passed on to.
struct Onward {
    link: Sole,
    /// Counted at the endpoint and at the upstream as long as they live.
    _chosen: Chosen,
    _admitted: Admitted,
}

/// Passes a connection on, until it ends.
pub(crate) async fn serve(incoming: Incoming) {
    let Some(worker) = incoming.local::<Rc<Worker>>().map(Rc::clone) else {
        return;
    };
    let mut passing = Passing::begin(&worker, &incoming);
    match begin(&worker, &incoming, &mut passing).await {
        Ok((onward, idle)) => {
            let client = incoming.stream;
            let ended = relay::run(client, onward.link.stream, idle, &passing).await;
            passing.end(ended);
        }
        Err(fault) => {
            passing.fail(fault);
            if fault == Fault::NotTls
                && let Some(answer) = hello::plain_http_answer(&incoming.stream).await
            {
                log_plain_http(&worker, &incoming);
                return hello::answer_and_end(&incoming.stream, &answer).await;
            }
            refuse(incoming, fault, passing.takes_alerts());
        }
    }
}

/// Up to the first byte that is passed on.
async fn begin(
    worker: &Rc<Worker>,
    incoming: &Incoming,
    passing: &mut Passing,
) -> Result<(Onward, Option<std::time::Duration>), Fault> {
    let number = incoming.listener();
    let hello = match by_tls(&worker.view(), number)? {
        true => Some(hello::read(&incoming.stream).await?),
        false => None,
    };
    passing.asks(hello.as_ref());
    let found = {
        // As it is when it is known for whom it is.
        let view = worker.view();
        find(worker, &view, number, hello.as_ref(), passing)?
    };
    if found.listener.protocol == Protocol::Tls {
        end_tls(incoming, &found.listener).await?;
    }
    let onward = connect(worker, incoming, &found, passing).await?;
    Ok((onward, found.route.idle))
}

/// Whether connections of the engine's listener begin with TLS.
fn by_tls(view: &View, number: u32) -> Result<bool, Fault> {
    let address = view.address(number).ok_or(Fault::NoListener)?;
    let mut listeners = view.table.addresses().listeners(address);
    let (_, first) = listeners.next().ok_or(Fault::NoListener)?;
    Ok(first.protocol.has_sni())
}

fn find(
    worker: &Worker,
    view: &View,
    number: u32,
    hello: Option<&Hello>,
    passing: &mut Passing,
) -> Result<Found, Fault> {
    let address = view.address(number).ok_or(Fault::NoListener)?;
    let name = hello.and_then(|hello| hello.server_name.as_deref());
    let id = view.table.addresses().admit(address, name.unwrap_or_default());
    if is_passthrough(view, address, id) {
        passing.pass_through();
    }
    let id = id.ok_or(Fault::NoListener)?;
    let listener = view.table.listener(id);
    // It may be another one since the connection came.
    let fits = match listener.protocol {
        Protocol::Tcp => hello.is_none(),
        Protocol::Tls | Protocol::TlsPassthrough => hello.is_some(),
        Protocol::Http | Protocol::H2c | Protocol::Https | Protocol::Udp => false,
    };
    if !fits {
        return Err(Fault::NoListener);
    }
    let route = view.table.stream(id, name).ok_or(Fault::NoRoute)?;
    let is_broken = |backend: &WeightedBackend| matches!(backend.target, Target::Broken { .. });
    if !route.backends.is_empty() && route.backends.iter().all(is_broken) {
        // Its plan, by name, may be another route's.
        return Err(Fault::BrokenBackend);
    }
    let plan = view.streams.get(&route.name).ok_or(Fault::NoRoute)?;
    passing.route(route, plan);
    let upstream = plan.draw(|weight| worker.cx.random() % weight)?;
    Ok(Found {
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

/// Ends the client's TLS.
async fn end_tls(incoming: &Incoming, listener: &Listener) -> Result<(), Fault> {
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
    if refuses_certificate(listener, facts) {
        return Err(Fault::NoCertificate);
    }
    Ok(())
}

/// Connects to an endpoint, and to others not tried yet if that fails: no byte of the client's was sent by then.
async fn connect(
    worker: &Rc<Worker>,
    incoming: &Incoming,
    found: &Found,
    passing: &mut Passing,
) -> Result<Onward, Fault> {
    let local = worker.local(&found.upstream);
    let admitted = local.admit()?;
    local.settle(local.connect_timeout()).await;
    let key = local.key(|key| hashed(key, incoming.remote())).flatten();
    let greeting = local.greeting(|| addresses(incoming));
    let mut tried: Vec<Rc<End>> = Vec::new();
    let mut last = None;
    let failing_until = worker
        .cx
        .now()
        .after(local.connect_timeout() * limits::FAILOVER_CONNECT_TIMEOUTS);
    loop {
        let chosen = match (local.choose(&tried, key, Prefer::Any), last) {
            (Ok(chosen), None) => chosen,
            (Ok(chosen), Some(fault)) if is_among(&tried, &chosen.end) => return Err(fault),
            (Ok(chosen), Some(fault)) => {
                worker.counting.fault(fault);
                chosen
            }
            (Err(fault), last) => return Err(last.unwrap_or(fault)),
        };
        let end = Rc::clone(&chosen.end);
        let begun = worker.cx.now();
        let opened = local
            .open_alone(&end, Purpose::Bytes, &greeting, local.connect_timeout())
            .await;
        let span = worker.cx.now().since(begun);
        passing.attempt(&local.shared.name, &end, span);
        match opened {
            Ok(link) => {
                local.took(&end, span);
                local.met(&end, Meeting::Good);
                return Ok(Onward {
                    link,
                    _chosen: chosen,
                    _admitted: admitted,
                });
            }
            Err(fault) => {
                tried.push(end);
                blame(&local, &tried, fault);
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

/// The last one that was tried has failed.
fn blame(local: &Local, tried: &[Rc<End>], fault: Fault) {
    if let (Side::Upstream, Some(end)) = (fault.side(), tried.last()) {
        local.met(end, Meeting::Bad);
    }
}

fn is_among(tried: &[Rc<End>], end: &End) -> bool {
    tried.iter().any(|other| other.endpoint.addr == end.endpoint.addr)
}

/// A hash of what tells connections apart: nothing but who the client is can be seen of them.
fn hashed(key: &HashKey, remote: Option<SocketAddr>) -> Option<u64> {
    match (key, remote?.ip()) {
        (HashKey::Source, IpAddr::V4(address)) => Some(hash(&address.octets())),
        (HashKey::Source, IpAddr::V6(address)) => Some(hash(&address.octets())),
        _ => None,
    }
}

/// Who is connected to whom, as an upstream is told that wants to know.
fn addresses(incoming: &Incoming) -> Option<Addresses> {
    match incoming.stream.local_addr() {
        Ok(Some(Addr::Inet(to))) => Some(Addresses {
            from: incoming.remote()?,
            to,
        }),
        _ => None,
    }
}

fn log_plain_http(worker: &Worker, incoming: &Incoming) {
    if let Some(left_out) = worker.plain_http.admit(worker.cx.now()) {
        let remote = incoming
            .remote()
            .map_or_else(|| "unix".to_owned(), |remote| remote.to_string());
        log::info!(
            "{remote}: plain HTTP where TLS is expected; answered 400: this port speaks TLS{left_out}"
        );
    }
}

/// Closes a connection that is not passed on. A reset unless an alert tells it apart from a complete response: after an orderly end it
/// would look as if it had been served. A client whose TLS another server terminates takes alerts from that server alone (decision 0028).
fn refuse(incoming: Incoming, fault: Fault, takes_alerts: bool) {
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
    // Refused only if the client has left.
    let _ = incoming.stream.write_now(&[21, 3, 3, 0, 2, 2, description]);
}
