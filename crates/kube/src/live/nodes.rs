//! The nodes of a push cluster: the endpoints of a Service, by its EndpointSlices. Knows no links.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ringmain_gateway::model::{PushService, PushServicePort};
use tokio::sync::{mpsc, watch};

use super::feed::{Change, Feed, Topic};
use crate::api::Api;
use crate::limits;
use crate::objects::{EndpointSlice, Id, Key, Object};

/// Follows the endpoints of a Service, and sends their addresses when they change, until there is no receiver. While the API server does not
/// respond, the last addresses remain.
pub async fn follow_nodes(api: Api, service: PushService, addresses: watch::Sender<Arc<[SocketAddr]>>) {
    let namespace = service.namespace.as_deref().unwrap_or(api.namespace());
    let topic = Topic::endpoints_of(Id::new(namespace, Arc::clone(&service.service)));
    let (sender, mut changes) = mpsc::channel(limits::CHANGES);
    // An unreadable EndpointSlice is logged; without Gateways nothing else records it.
    let (findings, _) = mpsc::channel(1);
    let feed = tokio::spawn(Feed::new(api, topic, sender, findings).run());
    let mut nodes = Nodes::new(service.port);
    loop {
        let change = tokio::select! {
            () = addresses.closed() => break,
            change = changes.recv() => change,
        };
        match change {
            None => break,
            Some(Change::Objects { put, deleted, .. }) => {
                if let Some(changed) = nodes.apply(put, &deleted) {
                    let count = changed.len();
                    log::info!(
                        "cluster: the Service {} has {count} addresses of nodes",
                        service.service
                    );
                    addresses.send_replace(changed);
                }
            }
            Some(Change::Failed { topic, error }) => {
                log::warn!(
                    "cluster: {topic}: {error}; the last addresses of nodes remain, and it is retried"
                );
            }
            Some(Change::Recovered { topic }) => log::info!("cluster: {topic}: delivered again"),
        }
    }
    feed.abort();
}

/// The EndpointSlices of a Service, and the addresses that follow from them.
#[derive(Debug)]
struct Nodes {
    port: PushServicePort,
    slices: BTreeMap<Key, Arc<EndpointSlice>>,
    /// Addresses that were ready or serving at some time and are still listed. A node that leaves is neither any more, but still has
    /// links: it hands its channels over.
    known: BTreeSet<SocketAddr>,
    /// The last list that was sent. `None`: none yet.
    sent: Option<Arc<[SocketAddr]>>,
}

impl Nodes {
    fn new(port: PushServicePort) -> Nodes {
        Nodes {
            port,
            slices: BTreeMap::new(),
            known: BTreeSet::new(),
            sent: None,
        }
    }

    /// Applies changes. Returns the addresses if they differ from the last ones.
    fn apply(&mut self, put: Vec<Object>, deleted: &[Key]) -> Option<Arc<[SocketAddr]>> {
        for object in put {
            let key = object.key();
            if let Object::EndpointSlice(slice) = object {
                self.slices.insert(key, slice);
            }
        }
        for key in deleted {
            self.slices.remove(key);
        }
        let mut listed = BTreeSet::new();
        for slice in self.slices.values() {
            let Some(port) = port_of(slice, &self.port) else {
                continue;
            };
            for endpoint in &slice.endpoints {
                let state = endpoint.conditions;
                let is_up = state.ready != Some(false) || state.serving == Some(true);
                let parsed = endpoint.addresses.iter().filter_map(|text| text.parse().ok());
                let addresses = parsed.map(|address: IpAddr| SocketAddr::new(address, port));
                listed.extend(addresses.filter(|address| is_up || self.known.contains(address)));
            }
        }
        self.known = listed;
        if self.known.len() > limits::PUSH_NODES {
            let (count, most) = (self.known.len(), limits::PUSH_NODES);
            log::error!(
                "cluster: expected at most {most} addresses of nodes, found {count}; the others are left out"
            );
        }
        let current: Arc<[SocketAddr]> = self.known.iter().copied().take(limits::PUSH_NODES).collect();
        if self.sent.as_ref() == Some(&current) {
            return None;
        }
        self.sent = Some(Arc::clone(&current));
        Some(current)
    }
}

/// Returns the port of the endpoints of an EndpointSlice; `None`: it has no port of that name.
fn port_of(slice: &EndpointSlice, port: &PushServicePort) -> Option<u16> {
    match port {
        PushServicePort::Number(number) => Some(*number),
        PushServicePort::Name(name) => slice.ports.iter().find(|port| *port.name == **name)?.port,
    }
}
