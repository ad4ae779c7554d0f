//! Backends: a port of a Service, its EndpointSlices and its BackendTLSPolicy as an upstream.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ringmain_gateway::model::{
    Affinity, Endpoint, EndpointLocation, Name, RetryBudget, Target, Upstream, UpstreamProtocol,
    ZonePreference,
};

use super::condition::Fault;
use super::location::{Location, TrafficDistribution};
use super::{Context, policy};
use crate::limits;
use crate::objects::{BackendRef, EndpointAddress, Id, Kind, Service, ServicePort};
use crate::store::{Referrer, Store};

/// The use of a backend, which the upstream depends on.
#[derive(Clone, Copy)]
pub(super) struct Usage<'a> {
    /// The kind and namespace of the route.
    pub(super) from: Referrer<'a>,
    /// The Gateway that the route is attached to.
    pub(super) gateway: &'a Id,
    /// The certificate that its upstreams receive.
    pub(super) certificate: Option<&'a Name>,
    /// Connections are not terminated here: no TLS is added.
    pub(super) passthrough: bool,
    /// The backend speaks gRPC, whatever its Service states.
    pub(super) grpc: bool,
}

impl Usage<'_> {
    /// Returns whether the connections to the backend may have TLS that the route does not forward.
    fn may_add_tls(&self) -> bool {
        !self.passthrough && self.from.kind != Kind::UdpRoute
    }
}

/// An upstream of the parts.
#[derive(Clone, Debug)]
pub(super) struct KnownUpstream {
    pub(super) upstream: Arc<Upstream>,
    /// The port of the Service.
    pub(super) port: ServicePort,
    pub(super) distribution: TrafficDistribution,
}

/// A backend of a route, and the reason for which its reference is not resolved.
pub(super) struct Backend {
    pub(super) target: Target,
    pub(super) fault: Option<Fault>,
    /// The sessions of its Service's policy.
    pub(super) affinity: Option<Affinity>,
}

impl Backend {
    fn broken(fault: Fault) -> Backend {
        let reason = fault.message.as_str().into();
        Backend {
            target: Target::Broken { reason },
            fault: Some(fault),
            affinity: None,
        }
    }

    fn resolved(target: Target, affinity: Option<Affinity>) -> Backend {
        Backend {
            target,
            fault: None,
            affinity,
        }
    }
}

impl Context<'_> {
    /// Resolves a reference and adds the upstream to the parts.
    pub(super) fn backend(&mut self, usage: &Usage<'_>, reference: &BackendRef) -> Backend {
        let is_core = reference.group.as_deref().unwrap_or_default().is_empty();
        let kind = reference.kind.as_deref().unwrap_or("Service");
        if !is_core || kind != "Service" {
            return Backend::broken(Fault::new(
                "InvalidKind",
                format!("backends of kind {kind} are not supported"),
            ));
        }
        let namespace = reference.namespace.as_deref().unwrap_or(usage.from.namespace);
        let id = Id::new(namespace, &*reference.name);
        if !self
            .store
            .permits(usage.from, Kind::Service, namespace, &reference.name)
        {
            let message = format!("no ReferenceGrant permits Service {id}");
            return Backend::broken(Fault::new("RefNotPermitted", message));
        }
        let not_found = |what: String| Backend::broken(Fault::new("BackendNotFound", what));
        self.reads.services.insert(id.clone());
        let Some(service) = self.store.get::<Service>(namespace, &reference.name).cloned() else {
            return not_found(format!("Service {id} is not found"));
        };
        if service.spec.kind == "ExternalName" {
            return not_found(format!(
                "Service {id} is of type ExternalName, which is not supported"
            ));
        }
        let number = reference.port.unwrap_or_default();
        let is_udp = usage.from.kind == Kind::UdpRoute;
        let mut ports = service.spec.ports.iter();
        let Some(port) = ports.find(|port| port.port == number && (port.protocol == "UDP") == is_udp) else {
            let protocol = if is_udp { "UDP" } else { "TCP" };
            return not_found(format!("Service {id} has no {protocol} port {number}"));
        };
        self.upstream(usage, &id, &service, port)
    }

    fn upstream(&mut self, usage: &Usage<'_>, service: &Id, object: &Service, port: &ServicePort) -> Backend {
        let found = self.policies.find(service, &port.name, usage.gateway);
        let found = found.filter(|_| usage.may_add_tls());
        let app = port.app_protocol.as_deref().unwrap_or_default();
        let is_grpc = usage.grpc || usage.from.kind == Kind::GrpcRoute;
        let is_h2 = is_grpc || matches!(app, "kubernetes.io/h2c" | "grpc");
        if found.is_none() && app == "kubernetes.io/wss" && usage.may_add_tls() {
            let message = format!("Service {service}: {app} needs a BackendTLSPolicy");
            return Backend::broken(Fault::new("UnsupportedProtocol", message));
        }
        let certificate = usage.certificate.filter(|_| found.is_some());
        let name = upstream_name(usage, service, port, is_h2, certificate.is_some());
        let target = Target::Upstream(Arc::clone(&name));
        self.reads.upstreams.insert(Arc::clone(&name));
        let (budget, affinity) = self.traffic(usage, service, port);
        if self.upstreams.contains_key(&name) {
            return Backend::resolved(target, affinity);
        }
        let tls = match found.map(|found| policy::resolve(self, found).tls) {
            None => None,
            Some(Ok(mut tls)) => {
                tls.certificate = certificate.cloned();
                Some(tls)
            }
            // The reference itself is resolved; the policy reports the fault.
            Some(Err(fault)) => {
                let reason = format!(
                    "the BackendTLSPolicy of Service {service} is not valid: {}",
                    fault.message
                );
                let target = Target::Broken {
                    reason: reason.into(),
                };
                return Backend::resolved(target, None);
            }
        };
        let distribution = TrafficDistribution::of(object);
        let endpoints = endpoints(self.store, service, port, &self.location, distribution);
        let mut upstream = Upstream::new(Arc::clone(&name), endpoints);
        // All endpoints are alike if none is near.
        upstream.zones = self.location.is_known().then_some(ZonePreference::Prefer);
        upstream.protocol = if is_h2 {
            UpstreamProtocol::Http2
        } else {
            UpstreamProtocol::Http1
        };
        upstream.tls = tls;
        upstream.connect_timeout = limits::CONNECT_TIMEOUT;
        // Rules that retry set their own number of attempts, which the default budget would cut short.
        upstream.retry_budget = budget.unwrap_or(RetryBudget {
            percent: 100,
            least: 10_000,
            ..RetryBudget::default()
        });
        let known = KnownUpstream {
            upstream: Arc::new(upstream),
            port: port.clone(),
            distribution,
        };
        self.upstreams.insert(name, known);
        Backend::resolved(target, affinity)
    }
}

/// The name of the upstream for a port: usages that connect in another way have their own.
fn upstream_name(
    usage: &Usage<'_>,
    service: &Id,
    port: &ServicePort,
    is_h2: bool,
    has_certificate: bool,
) -> Name {
    let mut name = format!("{}{}", upstream_prefix(service), port.port);
    let app = port.app_protocol.as_deref().unwrap_or_default();
    if is_h2 && !matches!(app, "kubernetes.io/h2c" | "grpc") {
        name.push_str("+h2");
    }
    if usage.passthrough {
        name.push_str("+passthrough");
    }
    if usage.from.kind == Kind::UdpRoute {
        name.push_str("+udp");
    }
    if has_certificate {
        name.push_str(&format!("+{}", usage.gateway));
    }
    name.into()
}

/// The start of the names of a Service's upstreams.
pub(super) fn upstream_prefix(service: &Id) -> String {
    format!("Service/{service}:")
}

/// Returns the endpoints of a port, each address once, sorted.
pub(super) fn endpoints(
    store: &Store,
    service: &Id,
    port: &ServicePort,
    location: &Location,
    distribution: TrafficDistribution,
) -> Vec<Endpoint> {
    let mut endpoints: BTreeMap<SocketAddr, (Endpoint, &EndpointAddress)> = BTreeMap::new();
    for slice in store.slices_of(service) {
        let mut ports = slice.ports.iter();
        let number = ports
            .find(|found| found.name == port.name)
            .and_then(|found| found.port);
        let Some(number) = number else { continue };
        for found in &slice.endpoints {
            let Some((address, endpoint)) = translate_endpoint(found, number) else {
                continue;
            };
            if endpoints.len() < limits::ENDPOINTS_PER_PORT {
                let draining = endpoint.draining;
                let (stored, _) = endpoints.entry(address).or_insert((endpoint, found));
                stored.draining &= draining;
            }
        }
    }
    let mut endpoints: Vec<_> = endpoints.into_values().collect();
    location.locate(distribution, &mut endpoints);
    endpoints.into_iter().map(|(endpoint, _)| endpoint).collect()
}

/// Returns an endpoint that is ready, or that still serves while it terminates. All its addresses are the same endpoint.
fn translate_endpoint(endpoint: &EndpointAddress, port: u16) -> Option<(SocketAddr, Endpoint)> {
    let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    let conditions = endpoint.conditions;
    let is_ready = conditions.ready.unwrap_or(true);
    let is_draining = conditions.serving.unwrap_or(false) && conditions.terminating.unwrap_or(false);
    if !is_ready && !is_draining {
        return None;
    }
    let address = SocketAddr::new(address, port);
    let mut found = Endpoint::new(EndpointLocation::Address(address));
    found.zone.clone_from(&endpoint.zone);
    found.draining = !is_ready;
    Some((address, found))
}
