//! Stream routes at UDP listeners: the parts that only connections can have.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{ListenersByName, ProblemList};
use crate::model::{EndpointLocation, Listener, StreamRoute, Target, Upstream};
use crate::table::{ConfigPart, Consequence};

/// Upstreams by name, where a listener receives datagrams.
pub(super) type DatagramUpstreams<'c> = BTreeMap<&'c str, &'c Arc<Upstream>>;

/// Checks a stream route against the listeners that it applies to. Returns whether it can be served.
pub(super) fn check_datagrams(
    stream: &StreamRoute,
    listeners: &ListenersByName<'_>,
    upstreams: &DatagramUpstreams<'_>,
    problems: &mut ProblemList,
) -> bool {
    let attached = attached_listeners(stream, listeners);
    let has_datagrams = attached.clone().any(|listener| listener.protocol.is_datagram());
    let mut report = |field, expected: &str, found: String, consequence| {
        let place = ConfigPart::Stream(stream.name.clone());
        problems.report(place, field, expected, found, consequence);
    };
    if !has_datagrams {
        if let Some(responses) = stream.datagrams.responses {
            let expected = "a listener of UDP: connections end by themselves";
            report("responses", expected, responses.to_string(), Consequence::Omitted);
        }
        return stream.datagrams.responses.is_none();
    }
    if let Some(host) = stream.hostnames.first()
        && attached.clone().all(|listener| listener.protocol.is_datagram())
    {
        let expected = "no hosts: datagrams have no host to select by";
        report("hostnames", expected, format!("`{host}`"), Consequence::Omitted);
        return false;
    }
    for backend in &stream.backends {
        let Target::Upstream(name) = &backend.target else {
            continue;
        };
        let unfit = upstreams.get(&**name).and_then(|upstream| unfit_part(upstream));
        if let Some((expected, found)) = unfit {
            let found = format!("{found} of upstream `{name}`");
            report("backends", expected, found, Consequence::ShareResponds500);
        }
    }
    true
}

fn attached_listeners<'l>(
    stream: &'l StreamRoute,
    listeners: &'l ListenersByName<'_>,
) -> impl Iterator<Item = &'l Listener> + Clone {
    let all = listeners.values().filter(|listener| !listener.protocol.is_http());
    let is_named =
        |listener: &&&Arc<Listener>| stream.listeners.is_empty() || stream.listeners.contains(&listener.name);
    all.filter(is_named).map(|listener| &***listener)
}

/// Returns the part of an upstream that datagrams cannot have: the expectation, and the name of the part.
fn unfit_part(upstream: &Upstream) -> Option<(&'static str, &'static str)> {
    let is_unix = |location: &EndpointLocation| matches!(location, EndpointLocation::Unix(_));
    if upstream.tls.is_some() {
        return Some((
            "an upstream without TLS, as datagrams are forwarded unchanged",
            "`tls`",
        ));
    }
    if upstream.proxy_protocol.is_some() {
        let expected = "an upstream without PROXY protocol, which starts connections";
        return Some((expected, "`proxy_protocol`"));
    }
    let mut endpoints = upstream.endpoints.iter();
    let has_unix = endpoints.any(|endpoint| is_unix(&endpoint.address));
    has_unix.then_some(("an upstream of IP addresses and hosts for UDP", "a Unix socket"))
}
