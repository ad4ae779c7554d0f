//! The state of routes and upstreams as JSON, for operators.

use std::time::Duration;

use ringmain_gateway::fault::Fault;
use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::stats::upstreams::EndpointStatus;
use ringmain_gateway::{Gateway, MirrorOutcome, table};
use serde_json::{Value, json};

/// The classes of statuses, in ascending order.
pub(super) const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

/// Returns listeners, routes and streams, in their order.
pub(super) fn routes_json(gateway: &Gateway) -> Value {
    let table = gateway.table();
    let listeners: Vec<Value> = table
        .listeners()
        .map(|(_, listener)| {
            let addresses = listener.addresses.iter().map(ToString::to_string);
            let hosts = listener.hostnames.iter().map(ToString::to_string);
            json!({
                "name": *listener.name,
                "addresses": addresses.collect::<Vec<_>>(),
                "hosts": hosts.collect::<Vec<_>>(),
            })
        })
        .collect();
    let routes: Vec<Value> = table
        .routes()
        .map(|compiled| {
            let route = compiled.route();
            let rules = (0..).zip(&route.rules).map(|(number, rule)| {
                json!({
                    "name": rule.name.as_deref(),
                    "steps": table::describe_steps(rule),
                    "broken": compiled.plan(number).err(),
                })
            });
            json!({
                "name": *route.name,
                "listeners": route.listeners.iter().map(|name| &**name).collect::<Vec<_>>(),
                "hosts": route.hostnames.iter().map(ToString::to_string).collect::<Vec<_>>(),
                "rules": rules.collect::<Vec<_>>(),
            })
        })
        .collect();
    let streams = table.config().streams.iter().map(|stream| {
        json!({
            "name": *stream.name,
            "listeners": stream.listeners.iter().map(|name| &**name).collect::<Vec<_>>(),
            "hosts": stream.hostnames.iter().map(ToString::to_string).collect::<Vec<_>>(),
        })
    });
    let streams: Vec<Value> = streams.collect();
    let problems: Vec<String> = gateway.problems().iter().map(ToString::to_string).collect();
    json!({"listeners": listeners, "routes": routes, "streams": streams, "problems": problems})
}

/// Returns the upstreams with their endpoints. `wall`: the time since the Unix epoch.
pub(super) fn upstreams_json(gateway: &Gateway, wall: Duration) -> Value {
    let upstreams: Vec<Value> = gateway
        .upstreams()
        .iter()
        .map(|upstream| {
            let endpoints = upstream.endpoints.iter().map(|endpoint| {
                json!({
                    "address": endpoint.addr.to_string(),
                    "weight": endpoint.weight,
                    "draining": endpoint.draining,
                    "requests": endpoint.requests,
                    "load": endpoint.load.map(|load| json!({
                        "clients": load.clients,
                        "max": load.max,
                        "leaving": load.leaving,
                    })),
                    "health": health_label(endpoint.verdict),
                    "health_error": endpoint.check_error.as_ref().map(|error| &*error.reason),
                    "health_failing_since": endpoint.check_error.as_ref().map(|error| error.since.as_secs()),
                    "failures": endpoint.failures,
                    "ejected": ejection_json(endpoint, wall),
                    "connect_error": endpoint.connect_failure.map(|failure| fault_reason(failure.fault)),
                    "connect_failing_since": endpoint.connect_failure.map(|failure| failure.since.as_secs()),
                    "unreachable": endpoint.unreachable_until.and_then(|until| time_left_json(until, wall)),
                })
            });
            let refused = upstream.refused.iter();
            let refused = refused.map(|(cap, count)| (cap.label().to_owned(), json!(count)));
            let copies = MirrorOutcome::ALL.iter().zip(upstream.mirrors);
            let copies = copies.map(|(copied, count)| (copied.label().to_owned(), count.into()));
            let responses = CLASSES.iter().zip(upstream.responses);
            let responses = responses.map(|(class, count)| ((*class).to_owned(), count.into()));
            let faults = upstream.faults.iter();
            let faults = faults.map(|(fault, count)| (fault.label().to_owned(), json!(count)));
            json!({
                "name": *upstream.name,
                "attempts": upstream.attempts,
                "responses": Value::Object(responses.collect()),
                "faults": faults.collect::<serde_json::Map<_, _>>(),
                "requests": upstream.requests,
                "connections": upstream.connections,
                "waiting": upstream.waiting,
                "retrying": upstream.retrying,
                "hedged": upstream.hedged,
                "refused": refused.collect::<serde_json::Map<_, _>>(),
                "retries": {"done": upstream.retries, "refused": upstream.retries_refused},
                "mirrored": Value::Object(copies.collect()),
                "endpoints": endpoints.collect::<Vec<_>>(),
                "no_endpoint": upstream.no_endpoint.map(fault_reason),
            })
        })
        .collect();
    json!({ "upstreams": upstreams })
}

/// Returns the reason and remaining time of an endpoint's ejection, if it is ejected.
fn ejection_json(endpoint: &EndpointStatus, wall: Duration) -> Option<Value> {
    let ejection = endpoint.ejection?;
    let mut shown = time_left_json(ejection.until, wall)?;
    shown["why"] = ejection.reason.to_string().into();
    shown["times"] = ejection.times.into();
    Some(shown)
}

/// Returns a future instant, in seconds since the Unix epoch and from now.
fn time_left_json(until: Duration, wall: Duration) -> Option<Value> {
    let left = until.checked_sub(wall).filter(|left| !left.is_zero())?;
    Some(json!({"until": until.as_secs(), "seconds_left": (left.as_secs_f64() * 10.0).ceil() / 10.0}))
}

/// Returns the reason why no connection to an endpoint was established, or why an upstream has no endpoint.
pub(super) fn fault_reason(fault: Fault) -> &'static str {
    let text = fault.text();
    text.strip_prefix("upstream ").unwrap_or(text)
}

/// Returns the word for the result of active health checks.
pub(super) fn health_label(health: CheckVerdict) -> &'static str {
    match health {
        CheckVerdict::Unknown => "unknown",
        CheckVerdict::Healthy => "healthy",
        CheckVerdict::Unhealthy => "unhealthy",
    }
}
