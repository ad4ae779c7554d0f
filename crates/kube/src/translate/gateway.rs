//! GatewayClasses, Gateways and ListenerSets: which listeners there are, and their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Hostname, Listener, Name};

use super::condition::Fault;
use super::listener::{ListenerState, is_in_scope};
use super::{
    AddressProblem, Condition, Context, GatewayFinding, ListenerFinding, ListenerSetFinding, Placement,
    Places,
};
use crate::limits;
use crate::objects::{GATEWAY_GROUP, Gateway, GatewayClass, Id, Key, Kind, ListenerSet};
use crate::store::Referrer;

/// Returns the conditions of a class of ours.
pub(super) fn class_conditions(class: &GatewayClass) -> Vec<Condition> {
    let fault = class
        .spec
        .parameters_ref
        .as_ref()
        .map(|_| Fault::new("InvalidParameters", "no kind of parameters is supported"));
    vec![
        Condition::unless("Accepted", "Accepted", fault.as_ref()),
        Condition::new("SupportedVersion", true, "SupportedVersion"),
    ]
}

/// A Gateway while routes attach to it.
pub(super) struct GatewayState<'a> {
    index: usize,
    pub(super) id: Id,
    gateway: &'a Arc<Gateway>,
    placement: Placement,
    accepted: Option<Fault>,
    /// The certificate that upstreams receive, or why there is none.
    pub(super) backend_certificate: Option<Result<Name, Fault>>,
    sets: Vec<(Id, bool)>,
}

/// The ports of a Gateway whose listeners have no conflict with each other.
#[derive(Default)]
struct Taken {
    /// By number, and whether it is a port of UDP.
    ports: BTreeMap<(u16, bool), TakenPort>,
}

/// Listeners by index.
#[derive(Default)]
struct TakenPort {
    /// The protocol of the others is compatible with that of the first one.
    first: Option<usize>,
    by_hostname: BTreeMap<Option<Hostname>, usize>,
}

/// All Gateways of ours with their listeners.
pub(super) struct Attached<'a> {
    pub(super) gateways: Vec<GatewayState<'a>>,
    pub(super) listeners: Vec<ListenerState<'a>>,
    places: &'a dyn Places,
    /// Each Gateway, by index.
    by_id: BTreeMap<Id, usize>,
    /// The listeners of a Gateway or a ListenerSet.
    by_owner: BTreeMap<Key, Vec<usize>>,
    /// The Gateway of each ListenerSet of ours, by index.
    set_gateways: BTreeMap<Id, usize>,
}

impl<'a> Attached<'a> {
    pub(super) fn new(
        context: &mut Context<'a>,
        classes: &[&Arc<GatewayClass>],
        places: &'a dyn Places,
    ) -> Attached<'a> {
        let names: BTreeSet<&str> = classes.iter().map(|class| &*class.metadata.name).collect();
        let mut attached = Attached {
            gateways: Vec::new(),
            listeners: Vec::new(),
            places,
            by_id: BTreeMap::new(),
            by_owner: BTreeMap::new(),
            set_gateways: BTreeMap::new(),
        };
        let store = context.store;
        let sets = store.by_precedence::<ListenerSet>();
        let mut sets_of: BTreeMap<Id, Vec<&'a Arc<ListenerSet>>> = BTreeMap::new();
        for set in sets {
            if let Some(gateway) = gateway_of(set) {
                sets_of.entry(gateway).or_default().push(set);
            }
        }
        for gateway in store.by_precedence::<Gateway>() {
            if names.contains(&*gateway.spec.gateway_class_name) {
                let sets = sets_of.remove(&gateway.metadata.id()).unwrap_or_default();
                attached.add_gateway(context, gateway, &sets);
            }
        }
        attached
    }

    fn add_gateway(
        &mut self,
        context: &mut Context<'a>,
        gateway: &'a Arc<Gateway>,
        sets: &[&'a Arc<ListenerSet>],
    ) {
        let index = self.gateways.len();
        let id = gateway.metadata.id();
        let placement = self.places.place(gateway);
        let infrastructure = gateway.spec.infrastructure.as_ref();
        let mut accepted = infrastructure
            .and_then(|infrastructure| infrastructure.parameters_ref.as_ref())
            .map(|_| Fault::new("InvalidParameters", "no kind of parameters is supported"));
        if let Some(AddressProblem::Unsupported(message)) = &placement.problem {
            accepted = Some(Fault::new("UnsupportedAddress", message));
        }
        let reference = gateway.spec.tls.as_ref().and_then(|tls| tls.backend.as_ref());
        let reference = reference.and_then(|backend| backend.client_certificate_ref.as_ref());
        let from = Referrer {
            kind: Kind::Gateway,
            namespace: &id.namespace,
        };
        let backend_certificate = reference.map(|reference| context.certificate(from, reference));
        let allowed = gateway.spec.allowed_listeners.as_ref();
        let scope = allowed.and_then(|allowed| allowed.namespaces.as_ref());
        let is_allowed = |set: &ListenerSet| {
            is_in_scope(
                context.store,
                scope,
                "None",
                &id.namespace,
                &set.metadata.namespace,
            )
        };
        let sets: Vec<_> = sets.iter().map(|set| (*set, is_allowed(set))).collect();
        let key = |kind, id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        let first = self.listeners.len();
        let mut taken = Taken::default();
        for spec in &gateway.spec.listeners {
            let owner = key(Kind::Gateway, &id);
            let listener = ListenerState::new(context, index, gateway, owner, spec);
            self.add_listener(listener, first, &mut taken);
        }
        for (set, _) in sets.iter().filter(|(_, is_allowed)| *is_allowed) {
            for spec in &set.spec.listeners {
                let owner = key(Kind::ListenerSet, &set.metadata.id());
                let listener = ListenerState::new(context, index, gateway, owner, spec);
                self.add_listener(listener, first, &mut taken);
            }
        }
        for (set, _) in &sets {
            self.set_gateways.insert(set.metadata.id(), index);
        }
        self.by_id.insert(id.clone(), index);
        self.gateways.push(GatewayState {
            index,
            id,
            gateway,
            placement,
            accepted,
            backend_certificate,
            sets: sets
                .iter()
                .map(|(set, is_allowed)| (set.metadata.id(), *is_allowed))
                .collect(),
        });
    }

    /// Adds a listener behind the others of its Gateway, which begin at `first` and take precedence.
    fn add_listener(&mut self, mut listener: ListenerState<'a>, first: usize, taken: &mut Taken) {
        if self.listeners.len() - first >= limits::LISTENERS_PER_GATEWAY {
            let message = format!(
                "a Gateway has at most {} listeners",
                limits::LISTENERS_PER_GATEWAY
            );
            listener.accepted = Some(Fault::new("TooManyListeners", message));
            listener.protocol = None;
        }
        if let Some(protocol) = listener.protocol {
            let port = (listener.spec.port, protocol.is_datagram());
            let port = taken.ports.entry(port).or_default();
            let same_host = port.by_hostname.get(&listener.hostname);
            for earlier in port.first.iter().chain(same_host) {
                listener.check_conflict(&self.listeners[*earlier]);
            }
            if listener.conflict.is_none() {
                port.first.get_or_insert(self.listeners.len());
                port.by_hostname
                    .insert(listener.hostname.clone(), self.listeners.len());
            }
        }
        let index = self.listeners.len();
        self.by_owner
            .entry(listener.owner.clone())
            .or_default()
            .push(index);
        self.listeners.push(listener);
    }

    /// Returns the Gateway and the listeners that a parent of a route has. `None`: it is none of ours.
    pub(super) fn parent(&self, kind: Kind, id: &Id) -> Option<(usize, &[usize])> {
        let gateway = match kind {
            Kind::Gateway => *self.by_id.get(id)?,
            Kind::ListenerSet => *self.set_gateways.get(id)?,
            _ => return None,
        };
        let owner = Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        Some((gateway, self.by_owner.get(&owner).map_or(&[], Vec::as_slice)))
    }

    /// Counts a route that is attached to these listeners.
    pub(super) fn count(&mut self, listeners: &BTreeSet<usize>) {
        for listener in listeners {
            let listener = &mut self.listeners[*listener];
            listener.attached += u32::from(listener.conflict.is_none());
        }
    }

    /// Returns whether the data plane gets a listener.
    pub(super) fn is_emitted(&self, listener: usize) -> bool {
        let listener = &self.listeners[listener];
        listener.is_emitted() && self.gateways[listener.gateway].accepted.is_none()
    }

    /// Returns the listeners of the model, and reports all Gateways and ListenerSets.
    pub(super) fn finish(mut self, context: &mut Context<'_>) -> Vec<Arc<Listener>> {
        let mut models = Vec::new();
        for index in 0..self.listeners.len() {
            if self.is_emitted(index) {
                let listener = &self.listeners[index];
                let gateway = self.gateways[listener.gateway].gateway;
                let addresses = self.places.bind(gateway, listener.spec.port);
                let is_unbound = addresses.is_empty();
                models.extend(listener.model(addresses).map(Arc::new));
                self.listeners[index].is_unbound = is_unbound;
            }
        }
        for gateway in &self.gateways {
            let mut count = 0;
            for (set, is_allowed) in &gateway.sets {
                let finding = self.set_finding(set, *is_allowed, gateway);
                count += u32::from(finding.conditions[0].is_true);
                context.findings.listener_sets.insert(set.clone(), finding);
            }
            let finding = self.gateway_finding(gateway, count);
            context.findings.gateways.insert(gateway.id.clone(), finding);
        }
        models
    }

    fn findings_of(&self, kind: Kind, id: &Id) -> Vec<ListenerFinding> {
        let owner = Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        let indices = self.by_owner.get(&owner).into_iter().flatten();
        indices.map(|index| self.listeners[*index].finding()).collect()
    }

    fn gateway_finding(&self, state: &GatewayState<'_>, sets: u32) -> GatewayFinding {
        let listeners = self.findings_of(Kind::Gateway, &state.id);
        let is_accepted = |listener: &ListenerFinding| listener.conditions[0].is_true;
        let invalid = Fault::new("ListenersNotValid", "some listeners are not valid");
        let accepted = match &state.accepted {
            Some(fault) => Condition::unless("Accepted", "Accepted", Some(fault)),
            None if listeners.iter().all(is_accepted) => Condition::new("Accepted", true, "Accepted"),
            None => Condition {
                is_true: listeners.iter().any(is_accepted),
                ..Condition::unless("Accepted", "Accepted", Some(&invalid))
            },
        };
        let programmed = match &state.placement.problem {
            Some(AddressProblem::NotUsable(message)) => Some(Fault::new("AddressNotUsable", message)),
            Some(AddressProblem::NotAssigned(message)) => Some(Fault::new("AddressNotAssigned", message)),
            _ if !accepted.is_true => Some(Fault::new("Invalid", &accepted.message)),
            _ if state.placement.addresses.is_empty() => {
                Some(Fault::new("AddressNotAssigned", "no address is assigned yet"))
            }
            _ => None,
        };
        let mut conditions = vec![
            accepted,
            Condition::unless("Programmed", "Programmed", programmed.as_ref()),
        ];
        let mut own = self
            .listeners
            .iter()
            .filter(|listener| listener.gateway == state.index);
        if own.any(ListenerState::uses_fallback) {
            let kind = "InsecureFrontendValidationMode";
            conditions.push(Condition::new(kind, true, "ConfigurationChanged"));
        }
        if let Some(certificate) = &state.backend_certificate {
            let fault = certificate.as_ref().err().map(|fault| match fault.reason {
                "RefNotPermitted" => fault.clone(),
                _ => Fault::new("InvalidClientCertificateRef", &fault.message),
            });
            conditions.push(Condition::unless("ResolvedRefs", "ResolvedRefs", fault.as_ref()));
        }
        let allows_sets = state.gateway.spec.allowed_listeners.is_some();
        GatewayFinding {
            conditions,
            addresses: state.placement.addresses.clone(),
            listeners,
            attached_listener_sets: (allows_sets || sets > 0).then_some(sets),
        }
    }

    fn set_finding(&self, id: &Id, is_allowed: bool, gateway: &GatewayState<'_>) -> ListenerSetFinding {
        let refused = match (&gateway.accepted, is_allowed) {
            (_, false) => Some(Fault::new(
                "NotAllowed",
                "the Gateway does not allow this ListenerSet",
            )),
            (Some(fault), true) => Some(Fault::new("ParentNotAccepted", &fault.message)),
            (None, true) => None,
        };
        if let Some(fault) = refused {
            let conditions =
                ["Accepted", "Programmed"].map(|kind| Condition::unless(kind, kind, Some(&fault)));
            return ListenerSetFinding {
                conditions: conditions.into(),
                listeners: Vec::new(),
            };
        }
        let listeners = self.findings_of(Kind::ListenerSet, id);
        let holds = |at: usize| move |listener: &ListenerFinding| listener.conditions[at].is_true;
        let serves = listeners.iter().any(holds(1));
        let invalid = Fault::new("ListenersNotValid", "some listeners are not valid");
        let accepted = if serves && listeners.iter().all(holds(0)) {
            Condition::new("Accepted", true, "Accepted")
        } else {
            Condition {
                is_true: serves,
                ..Condition::unless("Accepted", "Accepted", Some(&invalid))
            }
        };
        let programmed = Condition::unless("Programmed", "Programmed", (!serves).then_some(&invalid));
        ListenerSetFinding {
            conditions: vec![accepted, programmed],
            listeners,
        }
    }
}

/// The Gateway of a ListenerSet. `None`: its parent is of another kind.
fn gateway_of(set: &ListenerSet) -> Option<Id> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    let namespace = parent.namespace.as_deref().unwrap_or(&set.metadata.namespace);
    is_gateway.then(|| Id::new(namespace, &*parent.name))
}
