//! TLSRoutes, TCPRoutes and UDPRoutes.

use std::time::Duration;

use ringmain_gateway::model::{DatagramSessions, StreamRoute, WeightedBackend};

use super::Context;
use super::backend::Usage;
use super::gateway::Attached;
use super::route::{Attachment, RouteHead, RuleFaults};
use crate::objects::{Kind, StreamRule, TcpRoute, TlsRoute, UdpRoute};

/// Translates a TLSRoute.
pub(super) fn translate_tls(
    context: &mut Context<'_>,
    attached: &Attached,
    route: &TlsRoute,
) -> Vec<StreamRoute> {
    let spec = &route.spec;
    let head = RouteHead::new(
        Kind::TlsRoute,
        &route.metadata,
        &spec.parent_refs,
        &spec.hostnames,
    );
    translate(context, attached, &head, &spec.rules)
}

/// Translates a TCPRoute.
pub(super) fn translate_tcp(
    context: &mut Context<'_>,
    attached: &Attached,
    route: &TcpRoute,
) -> Vec<StreamRoute> {
    let spec = &route.spec;
    let head = RouteHead::new(Kind::TcpRoute, &route.metadata, &spec.parent_refs, &[]);
    translate(context, attached, &head, &spec.rules)
}

/// Translates a UDPRoute.
pub(super) fn translate_udp(
    context: &mut Context<'_>,
    attached: &Attached,
    route: &UdpRoute,
) -> Vec<StreamRoute> {
    let spec = &route.spec;
    let head = RouteHead::new(Kind::UdpRoute, &route.metadata, &spec.parent_refs, &[]);
    translate(context, attached, &head, &spec.rules)
}

fn translate(
    context: &mut Context<'_>,
    attached: &Attached,
    head: &RouteHead<'_>,
    rules: &[StreamRule],
) -> Vec<StreamRoute> {
    let parts = head.translate(context, attached, |context, usage| {
        backends(context, usage, rules)
    });
    let stream = |(attachment, backends): (Attachment, Vec<WeightedBackend>)| StreamRoute {
        name: attachment.name,
        listeners: attachment.listeners,
        hostnames: attachment.hostnames,
        backends,
        idle: Some(Duration::from_hours(1)),
        datagrams: DatagramSessions::default(),
    };
    parts.into_iter().map(stream).collect()
}

fn backends(
    context: &mut Context<'_>,
    usage: &Usage<'_>,
    rules: &[StreamRule],
) -> (Vec<WeightedBackend>, RuleFaults) {
    let mut faults = RuleFaults::default();
    let mut found = Vec::new();
    for reference in rules.iter().flat_map(|rule| &rule.backend_refs) {
        let backend = context.backend(usage, &reference.backend);
        let mut weighted = WeightedBackend::new("");
        weighted.target = backend.target;
        weighted.weight = reference.weight.unwrap_or(1);
        faults.unresolved = faults.unresolved.or(backend.fault);
        found.push(weighted);
    }
    (found, faults)
}
