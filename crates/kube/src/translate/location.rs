//! The distance of endpoints from this process: by the hints of EndpointSlices, or by the zone and node of an endpoint where its Service
//! asks for that.

use std::sync::Arc;

use ringmain_gateway::model::{Distance, Endpoint};

use crate::objects::{EndpointAddress, NameHint, Service};

/// The location of this process. Without both no endpoint is nearer than another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The name of its node.
    pub node: Option<Arc<str>>,
    /// The zone of its node.
    pub zone: Option<Arc<str>>,
}

/// The preference of a Service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum TrafficDistribution {
    /// None: hints alone count.
    #[default]
    Any,
    /// Endpoints of the same zone.
    SameZone,
    /// Endpoints of the same node, then of the same zone.
    SameNode,
}

impl TrafficDistribution {
    /// Values that are not known are no preference, as the API asks for.
    pub(super) fn of(service: &Service) -> TrafficDistribution {
        match service.spec.traffic_distribution.as_deref() {
            Some("PreferSameZone" | "PreferClose") => TrafficDistribution::SameZone,
            Some("PreferSameNode") => TrafficDistribution::SameNode,
            _ => TrafficDistribution::Any,
        }
    }
}

impl Location {
    pub(super) fn is_known(&self) -> bool {
        self.node.is_some() || self.zone.is_some()
    }

    /// Sets the distances of a Service's endpoints. Hints count if every endpoint that is ready has one: otherwise those without would
    /// get no requests from anywhere.
    pub(super) fn locate(
        &self,
        distribution: TrafficDistribution,
        endpoints: &mut [(Endpoint, &EndpointAddress)],
    ) {
        if !self.is_known() {
            return;
        }
        let mut ready = endpoints.iter().filter(|(endpoint, _)| !endpoint.draining);
        let has_ready = ready.clone().next().is_some();
        let has_zones = has_ready && ready.clone().all(|(_, found)| !zones(found).is_empty());
        let has_nodes = has_ready && ready.all(|(_, found)| !nodes(found).is_empty());
        for (endpoint, found) in endpoints {
            let is_on_node = if has_nodes {
                is_hinted(nodes(found), self.node.as_ref())
            } else {
                distribution == TrafficDistribution::SameNode && is_same(&found.node, &self.node)
            };
            let is_in_zone = if has_zones {
                is_hinted(zones(found), self.zone.as_ref())
            } else {
                distribution >= TrafficDistribution::SameZone && is_same(&found.zone, &self.zone)
            };
            endpoint.distance = match (is_on_node, is_in_zone) {
                (true, _) => Distance::Node,
                (false, true) => Distance::Zone,
                (false, false) => Distance::Elsewhere,
            };
        }
    }
}

fn zones(endpoint: &EndpointAddress) -> &[NameHint] {
    endpoint.hints.as_ref().map_or(&[], |hints| &hints.for_zones)
}

fn nodes(endpoint: &EndpointAddress) -> &[NameHint] {
    endpoint.hints.as_ref().map_or(&[], |hints| &hints.for_nodes)
}

fn is_hinted(hints: &[NameHint], own: Option<&Arc<str>>) -> bool {
    own.is_some_and(|own| hints.iter().any(|hint| hint.name == *own))
}

fn is_same(found: &Option<Arc<str>>, own: &Option<Arc<str>>) -> bool {
    own.is_some() && found == own
}
