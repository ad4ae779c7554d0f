//! The kinds that are read, and their names in the API.

use std::fmt;

/// A kind of object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// `gatewayclasses`, without namespaces.
    GatewayClass,
    /// `gateways`.
    Gateway,
    /// `listenersets`.
    ListenerSet,
    /// `httproutes`.
    HttpRoute,
    /// `grpcroutes`.
    GrpcRoute,
    /// `tlsroutes`.
    TlsRoute,
    /// `tcproutes`.
    TcpRoute,
    /// `udproutes`.
    UdpRoute,
    /// `referencegrants`.
    ReferenceGrant,
    /// `backendtlspolicies`.
    BackendTlsPolicy,
    /// `xbackendtrafficpolicies`, experimental.
    XBackendTrafficPolicy,
    /// `services`.
    Service,
    /// `endpointslices`.
    EndpointSlice,
    /// `secrets`.
    Secret,
    /// `configmaps`.
    ConfigMap,
    /// `namespaces`, without namespaces.
    Namespace,
}

/// The group of the Gateway API.
pub const GATEWAY_GROUP: &str = "gateway.networking.k8s.io";

/// The group of experimental kinds of the Gateway API, which not every cluster has.
pub const EXPERIMENTAL_GROUP: &str = "gateway.networking.x-k8s.io";

/// A row for each kind: its name, group (empty for the core group), version, and plural in paths.
const NAMES: &[(Kind, &str, &str, &str, &str)] = &[
    (
        Kind::GatewayClass,
        "GatewayClass",
        GATEWAY_GROUP,
        "v1",
        "gatewayclasses",
    ),
    (Kind::Gateway, "Gateway", GATEWAY_GROUP, "v1", "gateways"),
    (
        Kind::ListenerSet,
        "ListenerSet",
        GATEWAY_GROUP,
        "v1",
        "listenersets",
    ),
    (Kind::HttpRoute, "HTTPRoute", GATEWAY_GROUP, "v1", "httproutes"),
    (Kind::GrpcRoute, "GRPCRoute", GATEWAY_GROUP, "v1", "grpcroutes"),
    (Kind::TlsRoute, "TLSRoute", GATEWAY_GROUP, "v1", "tlsroutes"),
    (Kind::TcpRoute, "TCPRoute", GATEWAY_GROUP, "v1", "tcproutes"),
    (Kind::UdpRoute, "UDPRoute", GATEWAY_GROUP, "v1", "udproutes"),
    (
        Kind::ReferenceGrant,
        "ReferenceGrant",
        GATEWAY_GROUP,
        "v1",
        "referencegrants",
    ),
    (
        Kind::BackendTlsPolicy,
        "BackendTLSPolicy",
        GATEWAY_GROUP,
        "v1",
        "backendtlspolicies",
    ),
    (
        Kind::XBackendTrafficPolicy,
        "XBackendTrafficPolicy",
        EXPERIMENTAL_GROUP,
        "v1alpha1",
        "xbackendtrafficpolicies",
    ),
    (Kind::Service, "Service", "", "v1", "services"),
    (
        Kind::EndpointSlice,
        "EndpointSlice",
        "discovery.k8s.io",
        "v1",
        "endpointslices",
    ),
    (Kind::Secret, "Secret", "", "v1", "secrets"),
    (Kind::ConfigMap, "ConfigMap", "", "v1", "configmaps"),
    (Kind::Namespace, "Namespace", "", "v1", "namespaces"),
];

impl Kind {
    /// All kinds, in the order in which their lists are useful: classes and Gateways first.
    pub const ALL: [Kind; 16] = [
        Kind::GatewayClass,
        Kind::Gateway,
        Kind::ListenerSet,
        Kind::HttpRoute,
        Kind::GrpcRoute,
        Kind::TlsRoute,
        Kind::TcpRoute,
        Kind::UdpRoute,
        Kind::ReferenceGrant,
        Kind::BackendTlsPolicy,
        Kind::XBackendTrafficPolicy,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ConfigMap,
        Kind::Namespace,
    ];

    /// The kind of this name in objects, such as `HTTPRoute`.
    #[must_use]
    pub fn parse(name: &str) -> Option<Kind> {
        NAMES.iter().find(|row| row.1 == name).map(|row| row.0)
    }

    fn row(self) -> &'static (Kind, &'static str, &'static str, &'static str, &'static str) {
        // A test holds that rows are in the order of the variants.
        &NAMES[self as usize]
    }

    /// The name in objects, such as `HTTPRoute`.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().1
    }

    /// The API group; empty for the core group.
    #[must_use]
    pub fn group(self) -> &'static str {
        self.row().2
    }

    /// The version that is read and written.
    #[must_use]
    pub fn version(self) -> &'static str {
        self.row().3
    }

    /// The name in paths, such as `httproutes`.
    #[must_use]
    pub fn plural(self) -> &'static str {
        self.row().4
    }

    /// The value of `apiVersion`.
    #[must_use]
    pub fn api_version(self) -> String {
        match self.group() {
            "" => self.version().to_owned(),
            group => format!("{group}/{}", self.version()),
        }
    }

    /// Returns whether objects of the kind belong to a namespace.
    #[must_use]
    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::GatewayClass | Kind::Namespace)
    }

    /// Returns whether objects of the kind are routes.
    #[must_use]
    pub fn is_route(self) -> bool {
        matches!(
            self,
            Kind::HttpRoute | Kind::GrpcRoute | Kind::TlsRoute | Kind::TcpRoute | Kind::UdpRoute
        )
    }

    /// Returns whether a status is written for objects of the kind.
    #[must_use]
    pub fn has_status(self) -> bool {
        (self.group() == GATEWAY_GROUP && self != Kind::ReferenceGrant) || self.is_experimental()
    }

    /// Returns whether the kind is experimental: it is optional in a cluster, and so are the rights to read it.
    #[must_use]
    pub fn is_experimental(self) -> bool {
        self.group() == EXPERIMENTAL_GROUP
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
