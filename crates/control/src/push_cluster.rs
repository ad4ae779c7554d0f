//! The node of this process in a cluster of push servers, as configured at the start.

use std::io;

use ringmain_cluster::links::{Cluster, LinkOptions, Membership, TlsFiles};
use ringmain_cluster::member::Role;
use ringmain_gateway::Gateway;
use ringmain_gateway::model::Config;

/// Starts the node, before the workers start. `None`: no cluster is configured.
///
/// # Errors
/// The certificate is unusable, the address cannot be bound, or there is no thread.
pub(crate) fn start(gateway: &Gateway, config: &Config) -> io::Result<Option<Cluster>> {
    let Some(cluster) = config.push.as_ref().and_then(|push| push.cluster.as_ref()) else {
        return Ok(None);
    };
    let Some(port) = gateway.push_cluster_port() else {
        return Err(io::Error::other("cluster: this process is a node already"));
    };
    let options = LinkOptions {
        name: cluster.name.clone(),
        zone: cluster.zone.clone().unwrap_or_default(),
        role: Role::All,
        weight: cluster.weight,
        listen: cluster.listen,
        membership: Membership::Names(cluster.nodes.iter().map(ToString::to_string).collect()),
        rebalance: None,
        tls: cluster.tls.as_ref().map(|tls| TlsFiles {
            certificate: tls.certificate.chain.to_vec(),
            key: tls.certificate.key.expose().to_vec(),
            authority: tls.authorities.to_vec(),
            server_name: tls.server_name.as_deref().map(str::to_owned),
        }),
    };
    Cluster::start(options, port).map(Some).map_err(io::Error::other)
}
