//! One listener of a Gateway or a ListenerSet: its protocol, kinds, certificates and validation of clients, and conflicts with
//! the listeners before it.

use std::sync::Arc;

use ringmain_gateway::model::{
    Addr, ClientCertificateMode, ClientCertificates, Hostname, Listener, ListenerTls, Name, Protocol,
    TlsVersion,
};

use super::condition::Fault;
use super::{Condition, Context, ListenerFinding, part_name};
use crate::objects::{FrontendTls, GATEWAY_GROUP, Gateway, Key, Kind, ListenerSpec, NamespaceScope};
use crate::store::{Referrer, Store};

/// A listener by itself: it follows from its object, its Gateway, and the Secrets, ConfigMaps and grants that these refer to.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ListenerBase {
    /// The Gateway or ListenerSet that has it.
    pub(super) owner: Key,
    pub(super) spec: Arc<ListenerSpec>,
    pub(super) part: Name,
    protocol: Option<Protocol>,
    /// `None`: all hosts.
    pub(super) hostname: Option<Hostname>,
    pub(super) kinds: Vec<Kind>,
    accepted: Option<Fault>,
    resolved: Option<Fault>,
    /// It lacks a certificate, an authority for its clients, or a filter: it keeps its hosts and serves none of their requests.
    unusable: bool,
    tls: Option<ListenerTls>,
}

/// A listener among those of its Gateway.
#[derive(Clone, Debug)]
pub(super) struct ListenerState {
    pub(super) base: Arc<ListenerBase>,
    /// With an earlier listener of the Gateway.
    pub(super) conflict: Option<Fault>,
    /// The Gateway has too many listeners before it.
    pub(super) surplus: Option<Fault>,
    /// No address can be bound for its port.
    pub(super) is_unbound: bool,
    /// `None`: the data plane does not get it.
    pub(super) model: Option<Arc<Listener>>,
}

impl ListenerBase {
    pub(super) fn new(
        context: &mut Context<'_>,
        gateway: &Gateway,
        owner: Key,
        spec: &ListenerSpec,
    ) -> ListenerBase {
        let mut base = ListenerBase {
            part: part_name(&owner, &format!("/{}", spec.name)),
            owner,
            spec: Arc::new(spec.clone()),
            protocol: None,
            hostname: None,
            kinds: Vec::new(),
            accepted: None,
            resolved: None,
            unusable: false,
            tls: None,
        };
        base.read_protocol();
        base.read_hostname();
        base.read_kinds();
        if matches!(base.protocol, Some(Protocol::Https | Protocol::Tls)) {
            base.read_certificates(context);
            if base.protocol == Some(Protocol::Https) {
                base.read_validation(context, gateway);
            }
        }
        if spec.filters.as_ref().is_some_and(has_filters) {
            base.refuse("UnsupportedValue", "filters of listeners are not supported");
            base.unusable = true;
        }
        base
    }

    /// Returns whether it depends on Secrets, ConfigMaps or grants.
    pub(super) fn has_references(&self) -> bool {
        self.tls.is_some()
    }

    fn refuse(&mut self, reason: &'static str, message: &str) {
        self.accepted.get_or_insert_with(|| Fault::new(reason, message));
    }

    fn read_protocol(&mut self) {
        let spec = Arc::clone(&self.spec);
        let mode = spec.tls.as_ref().and_then(|tls| tls.mode.as_deref());
        let protocol = match (spec.protocol.as_str(), mode.unwrap_or("Terminate")) {
            ("HTTP", _) => Protocol::Http,
            ("HTTPS", "Terminate") => Protocol::Https,
            ("TLS", "Terminate") => Protocol::Tls,
            ("TLS", "Passthrough") => Protocol::TlsPassthrough,
            ("TCP", _) => Protocol::Tcp,
            ("UDP", _) => Protocol::Udp,
            (name @ ("HTTPS" | "TLS"), mode) => {
                let message = format!("mode {mode} with protocol {name} is not supported");
                self.refuse("UnsupportedValue", &message);
                self.unusable = true;
                if name == "HTTPS" {
                    Protocol::Https
                } else {
                    Protocol::Tls
                }
            }
            (protocol, _) => {
                let message = format!("protocol {protocol} is not supported");
                return self.refuse("UnsupportedProtocol", &message);
            }
        };
        self.protocol = Some(protocol);
    }

    fn read_hostname(&mut self) {
        let hostname = self.spec.hostname.as_deref();
        let hostname = hostname.filter(|hostname| !hostname.is_empty());
        match hostname.map(Hostname::parse) {
            None => {}
            Some(Ok(hostname)) => self.hostname = Some(hostname),
            Some(Err(fault)) => self.refuse("UnsupportedValue", &fault.to_string()),
        }
    }

    fn read_kinds(&mut self) {
        let supported: &[Kind] = match self.protocol {
            Some(protocol) if protocol.is_http() => &[Kind::HttpRoute, Kind::GrpcRoute],
            Some(protocol) if protocol.has_sni() => &[Kind::TlsRoute],
            Some(Protocol::Tcp) => &[Kind::TcpRoute],
            Some(Protocol::Udp) => &[Kind::UdpRoute],
            _ => &[],
        };
        let spec = Arc::clone(&self.spec);
        let allowed = spec.allowed_routes.as_ref();
        let allowed = allowed.map_or(&[][..], |allowed| &allowed.kinds);
        if allowed.is_empty() {
            self.kinds = supported.to_vec();
            return;
        }
        for listed in allowed {
            let is_ours = listed.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP;
            match Kind::parse(&listed.kind).filter(|kind| is_ours && supported.contains(kind)) {
                Some(kind) if self.kinds.contains(&kind) => {}
                Some(kind) => self.kinds.push(kind),
                None => {
                    let message = format!(
                        "kind {} does not attach to protocol {}",
                        listed.kind, spec.protocol
                    );
                    self.resolved = Some(Fault::new("InvalidRouteKinds", message));
                }
            }
        }
    }

    fn read_certificates(&mut self, context: &mut Context<'_>) {
        let owner = self.owner.clone();
        let from = Referrer {
            kind: owner.kind,
            namespace: &owner.namespace,
        };
        let spec = Arc::clone(&self.spec);
        let references = spec.tls.as_ref();
        let references = references.map_or(&[][..], |tls| &tls.certificate_refs);
        let mut tls = ListenerTls {
            certificates: Vec::new(),
            clients: None,
            minimum: TlsVersion::default(),
        };
        for reference in references {
            match context.certificate(from, reference) {
                Ok(name) => tls.certificates.push(name),
                Err(fault) => self.resolved = Some(fault),
            }
        }
        if references.is_empty() {
            self.resolved = Some(Fault::new("InvalidCertificateRef", "there is no certificateRef"));
        }
        self.unusable |= tls.certificates.is_empty();
        self.tls = Some(tls);
    }

    fn read_validation(&mut self, context: &mut Context<'_>, gateway: &Gateway) {
        let Some(validation) = frontend(gateway, self.spec.port).and_then(|tls| tls.validation.as_ref())
        else {
            return;
        };
        let from = Referrer {
            kind: Kind::Gateway,
            namespace: &gateway.metadata.namespace,
        };
        let mut authorities = Vec::new();
        for reference in &validation.authorities {
            match context.authority(from, reference, "InvalidCACertificateKind") {
                Ok(name) => authorities.push(name),
                Err(fault) => self.resolved = Some(fault),
            }
        }
        let mode = match validation.mode.as_deref().unwrap_or("AllowValidOnly") {
            "AllowInsecureFallback" => ClientCertificateMode::Unchecked,
            "AllowValidOnly" => ClientCertificateMode::Required,
            mode => {
                self.unusable = true;
                let message = format!("validation mode {mode} is not supported");
                self.refuse("UnsupportedValue", &message);
                ClientCertificateMode::Required
            }
        };
        if authorities.is_empty() {
            self.unusable = true;
            self.refuse("NoValidCACertificate", "no caCertificateRef is valid");
        }
        if let Some(tls) = &mut self.tls {
            tls.clients = Some(ClientCertificates { authorities, mode });
        }
    }
}

impl ListenerState {
    /// Creates a listener that has no other beside it.
    pub(super) fn new(base: Arc<ListenerBase>) -> ListenerState {
        ListenerState {
            base,
            conflict: None,
            surplus: None,
            is_unbound: false,
            model: None,
        }
    }

    /// Returns whether routes attach to both alike.
    pub(super) fn is_alike(&self, other: &ListenerState) -> bool {
        self.base == other.base && self.conflict == other.conflict && self.surplus == other.surplus
    }

    /// `None`: it serves nothing.
    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.base.protocol.filter(|_| self.surplus.is_none())
    }

    /// Returns the reason for which it is not accepted.
    fn refusal(&self) -> Option<&Fault> {
        let among_others = self.surplus.as_ref().or(self.conflict.as_ref());
        among_others.or(self.base.accepted.as_ref())
    }

    /// Sets the conflict with an earlier listener of the Gateway, if there is one.
    pub(super) fn check_conflict(&mut self, earlier: &ListenerState) {
        let (Some(protocol), Some(other)) = (self.protocol(), earlier.protocol()) else {
            return;
        };
        if self.conflict.is_some() || self.base.spec.port != earlier.base.spec.port {
            return;
        }
        let alike = protocol.has_sni() == other.has_sni() && protocol.is_http() == other.is_http();
        let both_sni = protocol.has_sni() && other.has_sni();
        let (reason, found) = if !alike && !both_sni {
            ("ProtocolConflict", "another protocol")
        } else if !has_hosts(protocol) || self.base.hostname == earlier.base.hostname {
            ("HostnameConflict", "the same hostname")
        } else {
            return;
        };
        let part = &earlier.base.part;
        let message = format!("listener `{part}` of the same port has {found}");
        self.conflict = Some(Fault::new(reason, message));
    }

    /// Returns whether the data plane gets it, be it to refuse its hosts.
    pub(super) fn is_emitted(&self) -> bool {
        let keeps_hosts = self.base.unusable && self.conflict.is_none();
        self.protocol().is_some() && (self.refusal().is_none() || keeps_hosts)
    }

    pub(super) fn is_programmed(&self) -> bool {
        let is_served = self.protocol().is_some() && !self.base.unusable && !self.is_unbound;
        self.refusal().is_none() && is_served
    }

    /// Returns whether a route of this namespace may attach.
    pub(super) fn allows(&self, store: &Store, namespace: &str) -> bool {
        let allowed = self.base.spec.allowed_routes.as_ref();
        let scope = allowed.and_then(|allowed| allowed.namespaces.as_ref());
        is_in_scope(store, scope, "Same", &self.base.owner.namespace, namespace)
    }

    /// Builds the listener of the model. `None`: the data plane does not get it.
    pub(super) fn build_model(&self, addresses: Vec<Addr>) -> Option<Listener> {
        let is_emitted = self.is_emitted() && !addresses.is_empty();
        let protocol = self.protocol().filter(|_| is_emitted)?;
        // The data plane leaves out a listener with TLS and no certificate, whatever its protocol, and gives its hosts to no
        // other listener.
        let tls = if self.base.unusable {
            Some(ListenerTls::default())
        } else {
            self.base.tls.clone()
        };
        let hostname = self.base.hostname.clone().filter(|_| has_hosts(protocol));
        Some(Listener {
            name: Arc::clone(&self.base.part),
            addresses,
            protocol,
            hostnames: hostname.into_iter().collect(),
            tls,
            proxy_protocol: None,
            redirect_to_https: None,
            client_address: Default::default(),
            paths: Default::default(),
            limits: Default::default(),
            policies: Vec::new(),
        })
    }

    /// Returns the results for a listener to which so many routes are attached.
    pub(super) fn finding(&self, attached_routes: u32) -> ListenerFinding {
        let programmed = match (self.is_programmed(), &self.conflict) {
            (true, _) => None,
            (false, Some(conflict)) => Some(conflict.clone()),
            (false, None) if self.is_unbound => Some(Fault::new(
                "PortUnavailable",
                "the port cannot be bound at an address of the Gateway",
            )),
            (false, None) => {
                let fault = self.refusal().or(self.base.resolved.as_ref());
                Some(Fault::new("Invalid", fault.map_or("", |fault| &fault.message)))
            }
        };
        let mut conflicted = Condition::new("Conflicted", false, "NoConflicts");
        if let Some(conflict) = &self.conflict {
            conflicted = Condition {
                is_true: true,
                ..Condition::unless("Conflicted", "NoConflicts", Some(conflict))
            };
        }
        ListenerFinding {
            name: self.base.spec.name.clone(),
            part: Arc::clone(&self.base.part),
            kinds: self.base.kinds.clone(),
            attached_routes,
            conditions: vec![
                Condition::unless("Accepted", "Accepted", self.refusal()),
                Condition::unless("Programmed", "Programmed", programmed.as_ref()),
                Condition::unless("ResolvedRefs", "ResolvedRefs", self.base.resolved.as_ref()),
                conflicted,
            ],
            certificates: self
                .base
                .tls
                .iter()
                .flat_map(|tls| tls.certificates.iter().cloned())
                .collect(),
        }
    }

    pub(super) fn uses_fallback(&self) -> bool {
        let clients = self.base.tls.as_ref().and_then(|tls| tls.clients.as_ref());
        clients.is_some_and(|clients| clients.mode == ClientCertificateMode::Unchecked)
    }
}

/// Returns whether hosts distinguish listeners of a protocol.
fn has_hosts(protocol: Protocol) -> bool {
    !matches!(protocol, Protocol::Tcp | Protocol::Udp)
}

fn has_filters(filters: &serde_json::Value) -> bool {
    match &filters["requests"] {
        serde_json::Value::Null => false,
        serde_json::Value::Array(filters) => !filters.is_empty(),
        _ => true,
    }
}

/// The settings of TLS towards clients for a port: the entry of the port, or the default.
fn frontend(gateway: &Gateway, port: u16) -> Option<&FrontendTls> {
    let frontend = gateway.spec.tls.as_ref()?.frontend.as_ref()?;
    let entry = frontend.per_port.iter().find(|entry| entry.port == port);
    Some(entry.map_or(&frontend.default_tls, |entry| &entry.tls))
}

/// Returns whether a namespace is in a scope. Values that are not known include no namespace.
pub(super) fn is_in_scope(
    store: &Store,
    scope: Option<&NamespaceScope>,
    default: &str,
    own: &str,
    namespace: &str,
) -> bool {
    let from = scope.and_then(|scope| scope.from.as_deref()).unwrap_or(default);
    match from {
        "All" => true,
        "Same" => own == namespace,
        "Selector" => {
            let selector = scope.and_then(|scope| scope.selector.as_ref());
            let labels = store.namespace_labels(namespace);
            selector
                .zip(labels)
                .is_some_and(|(selector, labels)| selector.matches(labels))
        }
        _ => false,
    }
}
