//! The push server's cluster.

use std::net::SocketAddr;
use std::sync::Arc;

use ringmain_cluster::limits::{NAME_BYTES, WEIGHT_MAX};
use ringmain_gateway::model::{
    self, PushCluster, PushClusterTls, PushMembership, PushRebalance, PushRole, PushService,
};

use super::{Builder, field_value, list_items, parsed_value, zone_name};
use crate::config::document::{self, Field};
use crate::config::error::{FilePosition, quote};
use crate::config::fields::{ShortOrFull, Spanned};
use crate::config::scalars::{Fraction, Multiple, ServiceName, ServicePort};

type NodeItem = Spanned<ShortOrFull<String, document::PushNodesSection>>;

impl Builder<'_> {
    /// Builds the cluster. `None`: an error was reported.
    pub(super) fn build_push_cluster(
        &self,
        at: Spanned<document::PushClusterSection>,
        push: &model::Push,
    ) -> Option<Arc<PushCluster>> {
        let position = at.position;
        let part = at.value?;
        self.check_cluster_conflicts(push, position)?;
        let is_complete = part.listen.is_some() && part.nodes.is_some();
        if !is_complete {
            let found = match (&part.listen, &part.nodes) {
                (None, None) => "neither",
                _ => "one",
            };
            self.errors
                .report(position, "the keys `listen` and `nodes`", found);
        }
        let listen = self.build_cluster_address(part.listen);
        let nodes_at = part.nodes.as_ref().map(|at| at.position);
        let nodes = self.build_membership(list_items(part.nodes));
        let has_zone = part.zone.is_some();
        let zone = zone_name(self.errors, part.zone);
        let name = self.build_cluster_name(part.name);
        let weight = self.build_cluster_weight(part.weight);
        let rebalance = match part.rebalance {
            None => None,
            Some(at) => Some(self.build_rebalance(at.value?, at.position)?),
        };
        let tls = match part.tls {
            None => None,
            Some(at) => Some(self.build_cluster_tls(at.value?, at.position)?),
        };
        let log = match part.log {
            None => None,
            Some(at) => Some(self.build_push_log(at.value?, at.position, push)?),
        };
        let (listen, listen_at) = listen?;
        if tls.is_none() && !listen.ip().is_loopback() {
            let expected =
                "the key `tls`, or a loopback address in `listen`: links without TLS must not leave the host";
            self.errors
                .report(listen_at, expected, quote(&listen.to_string()));
            return None;
        }
        let nodes = nodes?;
        if let (PushMembership::Kubernetes(_), Some(tls)) = (&nodes, &tls)
            && tls.server_name.is_none()
        {
            let expected = "the key `tls.server_name` with `nodes.kubernetes`: Pods have no name that their certificates could be \
                            verified against";
            self.errors.report(nodes_at.unwrap_or(position), expected, "none");
            return None;
        }
        Some(Arc::new(PushCluster {
            name: name?.unwrap_or_else(|| listen.to_string().into()),
            role: field_value(part.role).map(convert_role).unwrap_or_default(),
            zone: zone.or_else(|| self.zone.clone().filter(|_| !has_zone)),
            weight: weight?,
            rebalance,
            listen,
            nodes,
            tls,
            log,
        }))
    }

    /// Reports keys that cannot be used in a cluster.
    fn check_cluster_conflicts(&self, push: &model::Push, position: FilePosition) -> Option<()> {
        let (expected, found) = if !push.nats.is_empty() || !push.sources.is_empty() {
            let expected = "no consumers of brokers in a cluster: their records would reach the clients of one node only";
            (expected, "some")
        } else if push.state_dir.is_some() {
            let expected =
                "no `state_dir` in a cluster: a node takes the state of its channels from the other nodes";
            (expected, "a directory")
        } else {
            return Some(());
        };
        self.errors.report(position, expected, found);
        None
    }

    fn build_cluster_address(&self, at: Field<String>) -> Option<(SocketAddr, FilePosition)> {
        let at = at?;
        let text = at.value?;
        let address = text.parse::<SocketAddr>().ok();
        if address.is_none() {
            self.errors
                .report(at.position, "an address, `IP:PORT`", quote(&text));
        }
        Some((address?, at.position))
    }

    fn build_membership(&self, mut items: Vec<NodeItem>) -> Option<PushMembership> {
        if let [
            Spanned {
                value: Some(ShortOrFull::Full(_)),
                ..
            },
        ] = items[..]
        {
            let at = items.pop()?;
            let Some(ShortOrFull::Full(part)) = at.value else {
                return None;
            };
            return self
                .build_service(part, at.position)
                .map(PushMembership::Kubernetes);
        }
        let mut nodes = Vec::new();
        let mut is_valid = !items.is_empty();
        for at in items {
            let node = match at.value {
                Some(ShortOrFull::Short(node)) => node,
                Some(ShortOrFull::Full(_)) => {
                    let expected = "either nodes, each `HOST:PORT`, or the key `kubernetes` alone";
                    self.errors.report(at.position, expected, "both");
                    return None;
                }
                None => {
                    is_valid = false;
                    continue;
                }
            };
            let is_node = node.rsplit_once(':').is_some_and(|(host, port)| {
                !host.is_empty() && !host.contains('/') && port.parse::<u16>().is_ok_and(|port| port > 0)
            });
            if !is_node {
                self.errors
                    .report(at.position, "a node, `HOST:PORT`", quote(&node));
                is_valid = false;
            }
            nodes.push(node.into());
        }
        is_valid.then_some(PushMembership::Names(nodes))
    }

    fn build_service(&self, part: document::PushNodesSection, position: FilePosition) -> Option<PushService> {
        let Some(at) = part.kubernetes else {
            self.errors.report(position, "the key `kubernetes`", "none");
            return None;
        };
        if !cfg!(feature = "kubernetes") {
            let expected = "a build with the feature `kubernetes` (cargo build --features kubernetes)";
            self.errors
                .report(at.position, expected, "one without it, and `kubernetes`");
            return None;
        }
        let part = at.value?;
        if part.service.is_none() || part.port.is_none() {
            let found = match (&part.service, &part.port) {
                (None, None) => "neither",
                _ => "one",
            };
            self.errors
                .report(at.position, "the keys `service` and `port`", found);
            return None;
        }
        let has_namespace = part.namespace.is_some();
        let namespace = parsed_value(part.namespace).map(|ServiceName(name)| name);
        let ServiceName(service) = parsed_value(part.service)?;
        let ServicePort(port) = parsed_value(part.port)?;
        (namespace.is_some() == has_namespace).then_some(PushService {
            service,
            namespace,
            port,
        })
    }

    fn build_cluster_weight(&self, at: Field<u16>) -> Option<u16> {
        let Some(at) = at else { return Some(1) };
        at.value.filter(|weight| {
            let is_valid = (1..=WEIGHT_MAX).contains(weight);
            if !is_valid {
                let expected = format!("a weight from 1 to {WEIGHT_MAX}");
                self.errors.report(at.position, expected, weight.to_string());
            }
            is_valid
        })
    }

    fn build_cluster_name(&self, at: Field<String>) -> Option<Option<Arc<str>>> {
        let Some(at) = at else { return Some(None) };
        let name = at.value?;
        if name.is_empty() || name.len() > NAME_BYTES {
            let expected = format!("a name of 1 to {NAME_BYTES} bytes");
            self.errors.report(at.position, expected, quote(&name));
            return None;
        }
        Some(Some(name.into()))
    }

    fn build_rebalance(
        &self,
        part: document::PushRebalanceSection,
        position: FilePosition,
    ) -> Option<PushRebalance> {
        let given = [part.above.is_some(), part.until.is_some(), part.rate.is_some()];
        let above = parsed_value(part.above).map(|Multiple(hundredths)| hundredths);
        let until = parsed_value(part.until).map(|Multiple(hundredths)| hundredths);
        let rate = parsed_value(part.rate).map(|Fraction(fraction)| fraction);
        if given != [above.is_some(), until.is_some(), rate.is_some()] {
            // An error was reported.
            return None;
        }
        let default = PushRebalance::default();
        let rebalance = PushRebalance {
            above_percent: above.unwrap_or(default.above_percent),
            until_percent: until.unwrap_or(default.until_percent),
            rate: rate.unwrap_or(default.rate),
        };
        if rebalance.until_percent >= rebalance.above_percent {
            let expected = "a value of `until` below that of `above`";
            let found = format!(
                "{} and {}",
                as_multiple(rebalance.until_percent),
                as_multiple(rebalance.above_percent)
            );
            self.errors.report(position, expected, found);
            return None;
        }
        if rebalance.rate.part == 0 {
            self.errors.report(position, "a `rate` above 0", "0");
            return None;
        }
        Some(rebalance)
    }

    fn build_cluster_tls(
        &self,
        part: document::PushClusterTlsSection,
        position: FilePosition,
    ) -> Option<PushClusterTls> {
        if part.certificate.is_none() || part.authorities.is_none() {
            let expected = "the keys `certificate` and `authorities`: each node verifies the others";
            self.errors.report(position, expected, "not both");
            return None;
        }
        let names = self.resolve_names(part.authorities, &self.authority_names, "authorities");
        let all = &self.built.config.authorities;
        let named = all.iter().filter(|it| names.contains(&it.name));
        let authorities = named.flat_map(|it| it.pem.iter().copied()).collect();
        let name = self.resolve_name(&part.certificate?, &self.certificate_names, "a certificate")?;
        let certificate = self.built.config.certificates.iter().find(|it| it.name == name);
        Some(PushClusterTls {
            certificate: certificate.cloned()?,
            authorities,
            server_name: parsed_value(part.server_name).map(|name| name.as_str().into()),
        })
    }
}

fn as_multiple(percent: u16) -> String {
    format!("{}.{:02}", percent / 100, percent % 100)
}

fn convert_role(part: document::PushRole) -> PushRole {
    match part {
        document::PushRole::All => PushRole::All,
        document::PushRole::PushGateway => PushRole::PushGateway,
        document::PushRole::PushServer => PushRole::PushServer,
    }
}
