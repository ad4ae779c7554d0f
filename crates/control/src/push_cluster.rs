//! The node of this process in a cluster of push servers, as configured at the start.

use std::io;
#[cfg(feature = "kubernetes")]
use std::net::SocketAddr;
use std::sync::Arc;

use ringmain_cluster::links::{Cluster, LinkOptions, Membership, Rebalance, TlsFiles};
use ringmain_cluster::member::Role;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Config, PushCluster, PushMembership, PushRole, PushService};
#[cfg(feature = "kubernetes")]
use ringmain_kube::{api::Api, live};
#[cfg(feature = "kubernetes")]
use tokio::sync::watch;

#[cfg(feature = "kubernetes")]
use crate::limits;

/// Starts the node, before the workers start. `None`: no cluster is configured.
///
/// # Errors
/// The certificate is unusable, the address cannot be bound, or there is no thread or no access to Kubernetes.
pub(crate) fn start(gateway: &Gateway, config: &Config) -> io::Result<Option<Cluster>> {
    let Some(cluster) = config.push.as_ref().and_then(|push| push.cluster.as_ref()) else {
        return Ok(None);
    };
    let Some(port) = gateway.push_cluster_port() else {
        return Err(io::Error::other("cluster: this process is a node already"));
    };
    port.set_name(&cluster.name);
    let (membership, zone) = find_nodes(cluster)?;
    let options = LinkOptions {
        name: cluster.name.clone(),
        zone: zone.unwrap_or_default(),
        role: match cluster.role {
            PushRole::All => Role::All,
            PushRole::PushGateway => Role::Gateway,
            PushRole::PushServer => Role::Server,
        },
        weight: cluster.weight,
        listen: cluster.listen,
        membership,
        rebalance: cluster.rebalance.map(|rebalance| Rebalance {
            above: f64::from(rebalance.above_percent) / 100.0,
            until: f64::from(rebalance.until_percent) / 100.0,
            share_per_second: f64::from(rebalance.rate.part) / f64::from(rebalance.rate.of),
        }),
        tls: cluster.tls.as_ref().map(|tls| TlsFiles {
            certificate: tls.certificate.chain.to_vec(),
            key: tls.certificate.key.expose().to_vec(),
            authority: tls.authorities.to_vec(),
            server_name: tls.server_name.as_deref().map(str::to_owned),
        }),
    };
    if options.role == Role::Server {
        port.refuse_clients();
    }
    let log = crate::push_log::start(cluster)?;
    Cluster::start_with_log(options, port, log)
        .map(Some)
        .map_err(io::Error::other)
}

/// Returns the source of the nodes' addresses, and the zone of this node.
fn find_nodes(cluster: &PushCluster) -> io::Result<(Membership, Option<Arc<str>>)> {
    match &cluster.nodes {
        PushMembership::Names(names) => {
            let names = names.iter().map(ToString::to_string).collect();
            Ok((Membership::Names(names), cluster.zone.clone()))
        }
        PushMembership::Kubernetes(service) => follow_service(service, cluster.zone.clone()),
    }
}

/// Starts the thread that follows the Pods of a Service: it ends with the receiver. Reads the zone of the Node first, unless one is
/// configured.
#[cfg(feature = "kubernetes")]
fn follow_service(
    service: &PushService,
    zone: Option<Arc<str>>,
) -> io::Result<(Membership, Option<Arc<str>>)> {
    let (sender, receiver) = watch::channel(Arc::<[SocketAddr]>::from([]));
    let (started, start) = std::sync::mpsc::sync_channel(1);
    let service = service.clone();
    let runtime = crate::nats::runtime()?;
    let builder = std::thread::Builder::new().name("ringmain-nodes".into());
    #[expect(
        clippy::disallowed_methods,
        reason = "the one thread that waits for the API server, which no worker may"
    )]
    builder.spawn(move || {
        runtime.block_on(async move {
            match Api::from_environment().await {
                Ok(api) => {
                    let zone = match (zone, std::env::var("NODE_NAME")) {
                        (None, Ok(node)) => {
                            let zone = live::zone_of_node(&api, &node);
                            let zone = tokio::time::timeout(limits::NODE_ZONE_WITHIN, zone).await;
                            zone.unwrap_or_else(|_| {
                                log::warn!("cluster: the zone of node {node} is unknown: the API server does not respond");
                                None
                            })
                        }
                        (zone, _) => zone,
                    };
                    // The receiver waits for this value.
                    let _ = started.send(Ok(zone));
                    live::follow_nodes(api, service, sender).await;
                }
                Err(error) => drop(started.send(Err(error))),
            }
        });
    })?;
    match start.recv() {
        Ok(Ok(zone)) => Ok((Membership::Watched(receiver), zone)),
        Ok(Err(error)) => Err(io::Error::other(error)),
        Err(_) => Err(io::Error::other(
            "cluster: the thread that follows Kubernetes has ended",
        )),
    }
}

/// Fails: builds without the feature reject a file with this source.
#[cfg(not(feature = "kubernetes"))]
fn follow_service(_: &PushService, _: Option<Arc<str>>) -> io::Result<(Membership, Option<Arc<str>>)> {
    Err(io::ErrorKind::Unsupported.into())
}
