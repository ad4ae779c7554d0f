//! GatewayClass, Gateway and ListenerSet.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::policy::ObjectRef;
use super::{Meta, Status};

/// Names the controller of Gateways.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GatewayClass {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: GatewayClassSpec,
    /// As the API server has it.
    pub status: Status,
}

/// The specification of a [`GatewayClass`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewayClassSpec {
    /// The controller of the class.
    pub controller_name: String,
    /// Parameters, of which no kind is supported.
    pub parameters_ref: Option<ObjectRef>,
}

/// Listeners with addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Gateway {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: GatewaySpec,
    /// As the API server has it.
    pub status: Status,
}

/// The specification of a [`Gateway`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct GatewaySpec {
    /// The name of its [`GatewayClass`].
    pub gateway_class_name: String,
    /// Its own listeners.
    pub listeners: Vec<ListenerSpec>,
    /// The addresses that are requested; none: any.
    pub addresses: Vec<GatewayAddress>,
    /// Labels and annotations of the objects that are created for it.
    pub infrastructure: Option<Infrastructure>,
    /// The ListenerSets that may add listeners; default: none.
    pub allowed_listeners: Option<AllowedListeners>,
    /// Client certificates in both directions.
    pub tls: Option<GatewayTls>,
}

/// A requested address.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GatewayAddress {
    /// `IPAddress` (the default), `Hostname` or a name with a domain.
    #[serde(rename = "type")]
    pub kind: Option<String>,
    /// Empty: any address of that type.
    pub value: String,
}

/// Labels and annotations of the objects that are created for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Infrastructure {
    /// Labels of the created objects.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the created objects.
    pub annotations: BTreeMap<String, String>,
    /// Parameters, of which no kind is supported.
    pub parameters_ref: Option<ObjectRef>,
}

/// The ListenerSets that may add listeners to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AllowedListeners {
    /// Default: none.
    pub namespaces: Option<NamespaceScope>,
}

/// A set of namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NamespaceScope {
    /// `All`, `Same`, `Selector` or `None`.
    pub from: Option<String>,
    /// The labels of the namespaces for `Selector`.
    pub selector: Option<LabelSelector>,
}

/// Requirements for labels, all of which must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct LabelSelector {
    /// Labels with these values.
    pub match_labels: BTreeMap<String, String>,
    /// Further requirements.
    pub match_expressions: Vec<SelectorRequirement>,
}

/// A requirement for one label.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SelectorRequirement {
    /// The label's name.
    pub key: String,
    /// `In`, `NotIn`, `Exists` or `DoesNotExist`.
    pub operator: String,
    /// The values for `In` and `NotIn`.
    pub values: Vec<String>,
}

impl LabelSelector {
    /// Returns whether these labels satisfy all requirements. An operator that is not known is satisfied by none.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let same = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let holds = |requirement: &SelectorRequirement| {
            let value = labels.get(&requirement.key);
            let is_listed = value.is_some_and(|value| requirement.values.contains(value));
            match requirement.operator.as_str() {
                "In" => is_listed,
                "NotIn" => !is_listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                _ => false,
            }
        };
        self.match_labels.iter().all(same) && self.match_expressions.iter().all(holds)
    }
}

/// Client certificates of a Gateway in both directions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GatewayTls {
    /// The certificate that upstreams receive.
    pub backend: Option<BackendCertificate>,
    /// The validation of clients' certificates.
    pub frontend: Option<Frontend>,
}

/// The certificate that upstreams receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct BackendCertificate {
    /// A Secret.
    pub client_certificate_ref: Option<ObjectRef>,
}

/// The validation of clients' certificates, by port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Frontend {
    /// For ports without an entry of their own.
    #[serde(rename = "default")]
    pub default_tls: FrontendTls,
    /// Entries of ports.
    pub per_port: Vec<PortValidation>,
}

/// The validation of one port.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PortValidation {
    /// The listeners' port.
    pub port: u16,
    /// In place of the default, also where it is empty.
    pub tls: FrontendTls,
}

/// Settings of TLS towards clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct FrontendTls {
    /// Default: no certificate is requested.
    pub validation: Option<ClientValidation>,
}

/// The validation of clients' certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClientValidation {
    /// ConfigMaps and Secrets with certificates of authorities.
    #[serde(rename = "caCertificateRefs")]
    pub authorities: Vec<ObjectRef>,
    /// `AllowValidOnly` (the default) or `AllowInsecureFallback`.
    pub mode: Option<String>,
}

/// A listener of a Gateway or of a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSpec {
    /// Unique in its object.
    pub name: String,
    /// Its host; default: all.
    pub hostname: Option<String>,
    /// Its port.
    pub port: u16,
    /// `HTTP`, `HTTPS`, `TLS`, `TCP`, `UDP` or a name with a domain.
    pub protocol: String,
    /// Its certificates.
    pub tls: Option<ListenerTls>,
    /// The routes that may attach.
    pub allowed_routes: Option<AllowedRoutes>,
    /// Filters of the experimental channel, of which none is supported: a listener that has some is not accepted.
    pub filters: Option<Value>,
}

/// TLS of a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerTls {
    /// `Terminate` (the default) or `Passthrough`.
    pub mode: Option<String>,
    /// Secrets.
    pub certificate_refs: Vec<ObjectRef>,
}

/// The routes that may attach to a listener.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct AllowedRoutes {
    /// Default: the listener's own namespace.
    pub namespaces: Option<NamespaceScope>,
    /// Default: all kinds that the protocol has.
    pub kinds: Vec<RouteKind>,
}

/// A kind of route.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct RouteKind {
    /// Default: that of the Gateway API.
    pub group: Option<String>,
    /// Such as `HTTPRoute`.
    pub kind: String,
}

/// Further listeners of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ListenerSet {
    /// Its metadata.
    pub metadata: Meta,
    /// Its specification.
    pub spec: ListenerSetSpec,
    /// As the API server has it.
    pub status: Status,
}

/// The specification of a [`ListenerSet`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ListenerSetSpec {
    /// Its Gateway.
    pub parent_ref: ObjectRef,
    /// Its listeners.
    pub listeners: Vec<ListenerSpec>,
}
