//! Keys of Kubernetes as a source of configuration.

use ringmain_gateway::model::Network;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{Field, Parsed};

/// Kubernetes as a source of configuration. The API server is that of the Pod's ServiceAccount, or the one of the kubeconfig
/// file that the environment variable KUBECONFIG names. Needs a build with the feature `kubernetes`. Example:
/// `{addresses: {pool: 192.0.2.0/24}}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "Kubernetes")]
pub(in crate::config) struct KubernetesSection {
    /// The controller name: the Gateways of GatewayClasses with this `spec.controllerName` are served. Default:
    /// `ringmain.dev/gateway`.
    pub(in crate::config) controller: Field<String>,
    /// The addresses of Gateways. Required.
    pub(in crate::config) addresses: Field<GatewayAddressesSection>,
}

/// The addresses of Gateways. Example: `{pool: 192.0.2.0/24}`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
#[schemars(rename = "GatewayAddresses")]
pub(in crate::config) struct GatewayAddressesSection {
    /// A range of addresses that are routed to this host, for example as virtual addresses. Each Gateway has one of its own, and listens
    /// on the ports of its listeners there. Required.
    pub(in crate::config) pool: Field<Parsed<Network>>,
}
