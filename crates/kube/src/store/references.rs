//! The Secrets and ConfigMaps that objects of our classes refer to, with a permission where one is needed: the only ones that
//! have to be read.

use std::collections::BTreeSet;

use super::{Referrer, Store};
use crate::objects::{
    BackendTlsPolicy, Gateway, GatewayClass, Id, Kind, ListenerSet, ListenerSpec, ObjectRef,
};

/// Objects that are referred to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Secrets of listeners, Gateways and policies.
    pub secrets: BTreeSet<Id>,
    /// ConfigMaps with authorities.
    pub config_maps: BTreeSet<Id>,
}

impl Store {
    /// Returns the Secrets and ConfigMaps that Gateways of a controller, their ListenerSets and BackendTLSPolicies refer to,
    /// whether or not they exist.
    #[must_use]
    pub fn references(&self, controller_name: &str) -> References {
        let mut references = References::default();
        let classes = self
            .all::<GatewayClass>()
            .filter(|class| class.spec.controller_name == controller_name);
        let classes: BTreeSet<&str> = classes.map(|class| &*class.metadata.name).collect();
        for gateway in self.all::<Gateway>() {
            if classes.contains(&*gateway.spec.gateway_class_name) {
                self.add_gateway(gateway, &mut references);
            }
        }
        for set in self.all::<ListenerSet>() {
            let from = Referrer {
                kind: Kind::ListenerSet,
                namespace: &set.metadata.namespace,
            };
            self.add_listeners(from, &set.spec.listeners, &mut references);
        }
        for policy in self.all::<BackendTlsPolicy>() {
            let from = Referrer {
                kind: Kind::BackendTlsPolicy,
                namespace: &policy.metadata.namespace,
            };
            for reference in &policy.spec.validation.authorities {
                self.add(from, reference, None, &mut references);
            }
        }
        references
    }

    fn add_gateway(&self, gateway: &Gateway, references: &mut References) {
        let from = Referrer {
            kind: Kind::Gateway,
            namespace: &gateway.metadata.namespace,
        };
        self.add_listeners(from, &gateway.spec.listeners, references);
        let Some(tls) = &gateway.spec.tls else { return };
        let backend = tls
            .backend
            .as_ref()
            .and_then(|backend| backend.client_certificate_ref.as_ref());
        if let Some(reference) = backend {
            self.add(from, reference, Some(Kind::Secret), references);
        }
        let Some(frontend) = &tls.frontend else { return };
        let ports = frontend.per_port.iter().map(|port| &port.tls);
        let validations = ports.chain([&frontend.default_tls]);
        for validation in validations.filter_map(|tls| tls.validation.as_ref()) {
            for reference in &validation.authorities {
                self.add(from, reference, None, references);
            }
        }
    }

    fn add_listeners(&self, from: Referrer<'_>, listeners: &[ListenerSpec], references: &mut References) {
        for listener in listeners {
            for reference in listener.tls.iter().flat_map(|tls| &tls.certificate_refs) {
                self.add(from, reference, Some(Kind::Secret), references);
            }
        }
    }

    fn add(
        &self,
        from: Referrer<'_>,
        reference: &ObjectRef,
        default: Option<Kind>,
        references: &mut References,
    ) {
        let kind = match reference.kind.as_deref() {
            Some(kind) => Kind::parse(kind),
            None => default,
        };
        let is_core = reference.group.as_deref().unwrap_or_default().is_empty();
        let Some(kind) = kind.filter(|_| is_core) else {
            return;
        };
        let namespace = reference.namespace.as_deref().unwrap_or(from.namespace);
        if !self.permits(from, kind, namespace, &reference.name) {
            return;
        }
        let id = Id::new(namespace, &*reference.name);
        match kind {
            Kind::Secret => references.secrets.insert(id),
            Kind::ConfigMap => references.config_maps.insert(id),
            _ => false,
        };
    }
}
