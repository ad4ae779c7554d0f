//! Services, EndpointSlices, Secrets, ConfigMaps and Namespaces.

use std::sync::Arc;

use ringmain_gateway::model;
use serde::{Deserialize, Deserializer};

use super::{Meta, nullable, shared_text};

/// The label of an EndpointSlice that names its Service.
pub const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Service {
    /// Its metadata, with labels and annotations.
    pub metadata: Meta,
    /// Its specification.
    pub spec: ServiceSpec,
}

/// The specification of a [`Service`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    /// `ClusterIP` (the default), `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its ports.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<ServicePort>,
    /// `PreferSameZone`, `PreferClose` (its former name) or `PreferSameNode`. Default: no preference.
    pub traffic_distribution: Option<String>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePort {
    /// Empty if the Service has one port alone.
    pub name: String,
    /// Its number.
    pub port: u16,
    /// `TCP` (the default), `UDP` or `SCTP`.
    pub protocol: String,
    /// The protocol of the application, such as `kubernetes.io/h2c`.
    pub app_protocol: Option<String>,
}

/// Some endpoints of a Service.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointSlice {
    /// Its metadata, with labels.
    pub metadata: Meta,
    /// `IPv4`, `IPv6` or `FQDN`.
    pub address_type: String,
    /// The endpoints.
    #[serde(deserialize_with = "nullable")]
    pub endpoints: Vec<EndpointAddress>,
    /// The ports of every endpoint.
    #[serde(deserialize_with = "nullable")]
    pub ports: Vec<EndpointPort>,
}

impl EndpointSlice {
    /// The name of its Service; `None`: it belongs to none.
    #[must_use]
    pub fn service(&self) -> Option<&str> {
        self.metadata.labels.get(SERVICE_NAME).map(String::as_str)
    }
}

/// An endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointAddress {
    /// At least one; all lead to the same endpoint.
    #[serde(deserialize_with = "nullable")]
    pub addresses: Vec<String>,
    /// Its state.
    pub conditions: EndpointConditions,
    /// The zone of its node.
    pub zone: Option<Arc<str>>,
    /// Its node.
    #[serde(rename = "nodeName")]
    pub node: Option<Arc<str>>,
    /// The zones and nodes whose clients prefer it.
    pub hints: Option<Box<EndpointHints>>,
}

/// Hints of the controller of EndpointSlices about an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointHints {
    /// Zones.
    #[serde(deserialize_with = "nullable")]
    pub for_zones: Vec<NameHint>,
    /// Nodes.
    #[serde(deserialize_with = "nullable")]
    pub for_nodes: Vec<NameHint>,
}

/// The name of a zone or a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NameHint {
    /// The name.
    pub name: Arc<str>,
}

/// The state of an endpoint. `None`: unknown, which counts as ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointConditions {
    /// It receives new connections.
    pub ready: Option<bool>,
    /// It responds, also while it terminates.
    pub serving: Option<bool>,
    /// It terminates.
    pub terminating: Option<bool>,
}

/// A port of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct EndpointPort {
    /// The name of the Service's port.
    #[serde(deserialize_with = "nullable")]
    pub name: String,
    /// `None`: any port, which is never used.
    pub port: Option<u16>,
}

/// Certificates and keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Secret {
    /// Its metadata.
    pub metadata: Meta,
    /// The values that are read.
    #[serde(deserialize_with = "nullable")]
    pub data: SecretData,
}

/// Values of a [`Secret`]. A value that is not base64 counts as absent.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecretData {
    /// PEM of a certificate and of those between it and its authority.
    #[serde(rename = "tls.crt", deserialize_with = "decoded")]
    pub chain: Option<Arc<[u8]>>,
    /// PEM of its key.
    #[serde(rename = "tls.key", deserialize_with = "decoded_key")]
    pub key: Option<model::Secret>,
    /// PEM of authorities.
    #[serde(rename = "ca.crt", deserialize_with = "decoded")]
    pub authorities: Option<Arc<[u8]>>,
}

fn decoded<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Arc<[u8]>>, D::Error> {
    use base64::Engine as _;
    let text: Option<String> = Option::deserialize(input)?;
    let bytes = text.and_then(|text| base64::engine::general_purpose::STANDARD.decode(text).ok());
    Ok(bytes.map(Arc::from))
}

fn decoded_key<'de, D: Deserializer<'de>>(input: D) -> Result<Option<model::Secret>, D::Error> {
    Ok(decoded(input)?.map(model::Secret::new))
}

/// Texts, of which those of authorities are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMap {
    /// Its metadata.
    pub metadata: Meta,
    /// The value that is read.
    #[serde(deserialize_with = "nullable")]
    pub data: ConfigMapData,
}

/// The value of a [`ConfigMap`] that is read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ConfigMapData {
    /// PEM of authorities.
    #[serde(rename = "ca.crt", deserialize_with = "optional_text")]
    pub authorities: Option<Arc<str>>,
}

fn optional_text<'de, D: Deserializer<'de>>(input: D) -> Result<Option<Arc<str>>, D::Error> {
    let text: Arc<str> = shared_text(input)?;
    Ok(Some(text))
}

/// A namespace, for its labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Namespace {
    /// Its metadata, with labels.
    pub metadata: Meta,
}
