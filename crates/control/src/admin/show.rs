//! Routes and upstreams for whoever looks after them, as JSON.

use ringmain_gateway::Gateway;
use ringmain_gateway::health::Verdict;
use ringmain_gateway::table;
use serde_json::{Value, json};

/// What is served, in its order.
pub(super) fn routes(gateway: &Gateway) -> Value {
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
                    "steps": table::steps(rule),
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

/// Who answers.
pub(super) fn upstreams(gateway: &Gateway) -> Value {
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
                    "health": label(endpoint.verdict),
                })
            });
            let refused = upstream.refused.iter();
            let refused = refused.map(|(cap, count)| (cap.label().to_owned(), json!(count)));
            json!({
                "name": *upstream.name,
                "requests": upstream.requests,
                "connections": upstream.connections,
                "waiting": upstream.waiting,
                "retrying": upstream.retrying,
                "hedged": upstream.hedged,
                "refused": refused.collect::<serde_json::Map<_, _>>(),
                "endpoints": endpoints.collect::<Vec<_>>(),
            })
        })
        .collect();
    json!({ "upstreams": upstreams })
}

/// What active health checks have shown, in a word.
pub(super) fn label(health: Verdict) -> &'static str {
    match health {
        Verdict::Unknown => "unknown",
        Verdict::Well => "well",
        Verdict::Ill => "ill",
    }
}
