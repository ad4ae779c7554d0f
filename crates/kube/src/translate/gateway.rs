//! GatewayClasses, Gateways and ListenerSets: which listeners there are, and their conditions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Addr, Authorities, Certificate, Hostname, Listener, Name};

use super::condition::Fault;
use super::listener::{ListenerBase, ListenerState, is_in_scope};
use super::{
    AddressProblem, Condition, Context, Findings, GatewayFinding, ListenerFinding, ListenerSetFinding,
    Placement, Places,
};
use crate::limits;
use crate::objects::{GATEWAY_GROUP, Gateway, GatewayClass, Id, Key, Kind, ListenerSet, ListenerSpec};
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

/// A Gateway with its listeners and those of its ListenerSets.
#[derive(Debug)]
pub(super) struct GatewayState {
    pub(super) id: Id,
    gateway: Arc<Gateway>,
    placement: Placement,
    pub(super) accepted: Option<Fault>,
    /// The certificate that upstreams receive, or why there is none.
    pub(super) backend_certificate: Option<Result<Name, Fault>>,
    /// The Gateway itself, then its ListenerSets in the order of precedence.
    pub(super) owners: Vec<Owner>,
    /// The number of ListenerSets with a listener that serves.
    attached_sets: u32,
    uses_fallback: bool,
}

/// A Gateway or a ListenerSet with its listeners.
#[derive(Debug)]
pub(super) struct Owner {
    pub(super) key: Key,
    /// The Gateway allows it. A ListenerSet that it does not allow has no listeners.
    is_allowed: bool,
    pub(super) listeners: Vec<ListenerState>,
}

/// The ports of a Gateway whose listeners have no conflict with each other.
#[derive(Default)]
struct Taken {
    /// By number, and whether it is a port of UDP.
    ports: BTreeMap<(u16, bool), TakenPort>,
    /// The number of listeners.
    count: usize,
}

/// Listeners by their owner and their index there.
#[derive(Default)]
struct TakenPort {
    /// The protocol of the others is compatible with that of the first one.
    first: Option<(usize, usize)>,
    by_hostname: BTreeMap<Option<Hostname>, (usize, usize)>,
}

/// All Gateways of ours with their listeners. They depend on no route.
#[derive(Debug, Default)]
pub(super) struct Attached {
    pub(super) gateways: Vec<GatewayState>,
    /// The Gateway of each owner, by index, and the index of the owner there.
    by_owner: BTreeMap<Key, (usize, usize)>,
    /// The parts that listeners and Gateways refer to.
    pub(super) certificates: BTreeMap<Name, Arc<Certificate>>,
    pub(super) authorities: BTreeMap<Name, Arc<Authorities>>,
}

/// The number of routes at each listener of an owner.
pub(super) type RouteCounts = BTreeMap<Key, Vec<u32>>;

impl Attached {
    /// Derives the Gateways of these classes. Parts that equal those of `last` are shared with it.
    pub(super) fn derive(
        context: &mut Context<'_>,
        classes: &BTreeSet<&str>,
        places: &dyn Places,
        last: &Attached,
    ) -> Attached {
        let mut attached = Attached::default();
        let store = context.store;
        let mut sets_of: BTreeMap<Id, Vec<&Arc<ListenerSet>>> = BTreeMap::new();
        for set in store.by_precedence::<ListenerSet>() {
            if let Some(gateway) = gateway_of(set) {
                sets_of.entry(gateway).or_default().push(set);
            }
        }
        context.certificates.clear();
        context.authorities.clear();
        for gateway in store.by_precedence::<Gateway>() {
            if classes.contains(&*gateway.spec.gateway_class_name) {
                let sets = sets_of.remove(&gateway.metadata.id()).unwrap_or_default();
                attached.add_gateway(context, gateway, &sets, places, last);
            }
        }
        attached.certificates = reuse_equal(std::mem::take(&mut context.certificates), &last.certificates);
        attached.authorities = reuse_equal(std::mem::take(&mut context.authorities), &last.authorities);
        attached
    }

    fn add_gateway(
        &mut self,
        context: &mut Context<'_>,
        gateway: &Arc<Gateway>,
        sets: &[&Arc<ListenerSet>],
        places: &dyn Places,
        last: &Attached,
    ) {
        let id = gateway.metadata.id();
        let placement = places.place(gateway);
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
            let namespace = &set.metadata.namespace;
            is_in_scope(context.store, scope, "None", &id.namespace, namespace)
        };
        let is_allowed: Vec<bool> = sets.iter().map(|set| is_allowed(set)).collect();
        let mut state = GatewayState {
            owners: Vec::with_capacity(1 + sets.len()),
            gateway: Arc::clone(gateway),
            placement,
            accepted,
            backend_certificate,
            attached_sets: 0,
            uses_fallback: false,
            id,
        };
        let mut taken = Taken::default();
        let own = (Kind::Gateway, &gateway.metadata, true, &gateway.spec.listeners);
        let sets = sets.iter().zip(is_allowed);
        let sets =
            sets.map(|(set, is_allowed)| (Kind::ListenerSet, &set.metadata, is_allowed, &set.spec.listeners));
        for (kind, meta, is_allowed, specs) in std::iter::once(own).chain(sets) {
            let key = Key::new(kind, Arc::clone(&meta.namespace), Arc::clone(&meta.name));
            let place = (self.gateways.len(), state.owners.len());
            self.by_owner.insert(key.clone(), place);
            state.owners.push(Owner {
                key,
                is_allowed,
                listeners: Vec::new(),
            });
            if is_allowed {
                state.add_listeners(context, specs, &mut taken, places, last);
            }
        }
        let owners = state.owners.iter();
        let serving = owners.filter(|owner| owner.is_set() && state.refused(owner).is_none());
        let serving = serving.filter(|owner| owner.listeners.iter().any(ListenerState::is_programmed));
        state.attached_sets = u32::try_from(serving.count()).unwrap_or(u32::MAX);
        let mut listeners = state.owners.iter().flat_map(|owner| &owner.listeners);
        state.uses_fallback = listeners.any(ListenerState::uses_fallback);
        self.gateways.push(state);
    }

    /// Returns the Gateway and the owner of listeners that a parent of a route is, by their indices. `None`: it is none of ours.
    pub(super) fn parent(&self, key: &Key) -> Option<(usize, usize)> {
        self.by_owner.get(key).copied()
    }

    fn owner(&self, key: &Key) -> Option<(&GatewayState, &Owner)> {
        let (gateway, owner) = self.parent(key)?;
        let gateway = &self.gateways[gateway];
        Some((gateway, &gateway.owners[owner]))
    }

    /// Returns the owners to which routes attach otherwise than to those of `last`, and those that exist in one of both only.
    pub(super) fn changed_owners<'o>(&'o self, last: &'o Attached) -> Vec<&'o Key> {
        let is_changed = |key: &&Key| match (self.owner(key), last.owner(key)) {
            (Some((gateway, owner)), Some((last_gateway, last))) => {
                let mut pairs = owner.listeners.iter().zip(&last.listeners);
                gateway.id != last_gateway.id
                    || gateway.accepted != last_gateway.accepted
                    || gateway.backend_certificate != last_gateway.backend_certificate
                    || owner.listeners.len() != last.listeners.len()
                    || pairs.any(|(listener, last)| !listener.is_alike(last))
            }
            _ => true,
        };
        let removed = last
            .by_owner
            .keys()
            .filter(|key| !self.by_owner.contains_key(key));
        self.by_owner.keys().filter(is_changed).chain(removed).collect()
    }

    /// Returns the listeners of the model.
    pub(super) fn models(&self) -> Vec<Arc<Listener>> {
        let owners = self.gateways.iter().flat_map(|gateway| &gateway.owners);
        let listeners = owners.flat_map(|owner| &owner.listeners);
        listeners.filter_map(|listener| listener.model.clone()).collect()
    }

    /// Adds the results of each Gateway and ListenerSet.
    pub(super) fn report_all(&self, counts: &RouteCounts, findings: &mut Findings) {
        for owner in self.by_owner.keys() {
            self.report(owner, counts, findings);
        }
    }

    /// Adds the results for a Gateway or ListenerSet, if it is one of ours.
    pub(super) fn report(&self, owner: &Key, counts: &RouteCounts, findings: &mut Findings) {
        let Some((gateway, owner)) = self.owner(owner) else {
            return;
        };
        let counts = counts.get(&owner.key).map_or(&[][..], Vec::as_slice);
        if owner.is_set() {
            let finding = gateway.set_finding(owner, counts);
            findings.listener_sets.insert(owner.key.id(), finding);
        } else {
            let finding = gateway.finding(owner, counts);
            findings.gateways.insert(gateway.id.clone(), finding);
        }
    }
}

impl GatewayState {
    /// Adds the listeners of the last owner behind those of the owners before it, which take precedence.
    fn add_listeners(
        &mut self,
        context: &mut Context<'_>,
        specs: &[ListenerSpec],
        taken: &mut Taken,
        places: &dyn Places,
        last: &Attached,
    ) {
        let owner = self.owners.len() - 1;
        let key = self.owners[owner].key.clone();
        let gateway = Arc::clone(&self.gateway);
        let last = last.owner(&key).map(|(_, last)| last);
        for (at, spec) in specs.iter().enumerate() {
            let reusable = last.and_then(|last| last.listeners.get(at));
            let reusable = reusable.filter(|last| !last.base.has_references() && *last.base.spec == *spec);
            let base = match reusable {
                Some(last) => Arc::clone(&last.base),
                None => Arc::new(ListenerBase::new(context, &gateway, key.clone(), spec)),
            };
            let mut listener = ListenerState::new(base);
            self.check_others(&mut listener, (owner, at), taken);
            if listener.is_emitted() && self.accepted.is_none() {
                let addresses = places.bind(&gateway, spec.port);
                listener.is_unbound = addresses.is_empty();
                let last = last.and_then(|last| last.find(&listener.base.part));
                listener.model = reuse_model(&listener, addresses, last);
            }
            self.owners[owner].listeners.push(listener);
        }
    }

    /// Compares a listener with those before it.
    fn check_others(&self, listener: &mut ListenerState, place: (usize, usize), taken: &mut Taken) {
        if taken.count >= limits::LISTENERS_PER_GATEWAY {
            let limit = limits::LISTENERS_PER_GATEWAY;
            let message = format!("a Gateway has at most {limit} listeners");
            listener.surplus = Some(Fault::new("TooManyListeners", message));
        }
        taken.count += 1;
        let Some(protocol) = listener.protocol() else {
            return;
        };
        let port = (listener.base.spec.port, protocol.is_datagram());
        let port = taken.ports.entry(port).or_default();
        let same_host = port.by_hostname.get(&listener.base.hostname);
        for (owner, at) in port.first.iter().chain(same_host) {
            listener.check_conflict(&self.owners[*owner].listeners[*at]);
        }
        if listener.conflict.is_none() {
            port.first.get_or_insert(place);
            port.by_hostname.insert(listener.base.hostname.clone(), place);
        }
    }

    /// Returns whether the data plane gets a listener.
    pub(super) fn is_emitted(&self, listener: &ListenerState) -> bool {
        listener.is_emitted() && self.accepted.is_none()
    }

    fn finding(&self, owner: &Owner, counts: &[u32]) -> GatewayFinding {
        let listeners = owner.findings(counts);
        let is_accepted = |listener: &ListenerFinding| listener.conditions[0].is_true;
        let invalid = Fault::new("ListenersNotValid", "some listeners are not valid");
        let accepted = match &self.accepted {
            Some(fault) => Condition::unless("Accepted", "Accepted", Some(fault)),
            None if listeners.iter().all(is_accepted) => Condition::new("Accepted", true, "Accepted"),
            None => Condition {
                is_true: listeners.iter().any(is_accepted),
                ..Condition::unless("Accepted", "Accepted", Some(&invalid))
            },
        };
        let programmed = match &self.placement.problem {
            Some(AddressProblem::NotUsable(message)) => Some(Fault::new("AddressNotUsable", message)),
            Some(AddressProblem::NotAssigned(message)) => Some(Fault::new("AddressNotAssigned", message)),
            _ if !accepted.is_true => Some(Fault::new("Invalid", &accepted.message)),
            _ if self.placement.addresses.is_empty() => {
                Some(Fault::new("AddressNotAssigned", "no address is assigned yet"))
            }
            _ => None,
        };
        let mut conditions = vec![
            accepted,
            Condition::unless("Programmed", "Programmed", programmed.as_ref()),
        ];
        if self.uses_fallback {
            let kind = "InsecureFrontendValidationMode";
            conditions.push(Condition::new(kind, true, "ConfigurationChanged"));
        }
        if let Some(certificate) = &self.backend_certificate {
            let fault = certificate.as_ref().err().map(|fault| match fault.reason {
                "RefNotPermitted" => fault.clone(),
                _ => Fault::new("InvalidClientCertificateRef", &fault.message),
            });
            conditions.push(Condition::unless("ResolvedRefs", "ResolvedRefs", fault.as_ref()));
        }
        let sets = self.attached_sets;
        let allows_sets = self.gateway.spec.allowed_listeners.is_some();
        GatewayFinding {
            conditions,
            addresses: self.placement.addresses.clone(),
            listeners,
            attached_listener_sets: (allows_sets || sets > 0).then_some(sets),
        }
    }

    /// Returns the reason for which a ListenerSet has no listeners.
    fn refused(&self, set: &Owner) -> Option<Fault> {
        match (&self.accepted, set.is_allowed) {
            (_, false) => Some(Fault::new(
                "NotAllowed",
                "the Gateway does not allow this ListenerSet",
            )),
            (Some(fault), true) => Some(Fault::new("ParentNotAccepted", &fault.message)),
            (None, true) => None,
        }
    }

    fn set_finding(&self, set: &Owner, counts: &[u32]) -> ListenerSetFinding {
        if let Some(fault) = self.refused(set) {
            let conditions =
                ["Accepted", "Programmed"].map(|kind| Condition::unless(kind, kind, Some(&fault)));
            return ListenerSetFinding {
                conditions: conditions.into(),
                listeners: Vec::new(),
            };
        }
        let listeners = set.findings(counts);
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

impl Owner {
    fn is_set(&self) -> bool {
        self.key.kind == Kind::ListenerSet
    }

    fn find(&self, part: &Name) -> Option<&ListenerState> {
        self.listeners.iter().find(|listener| listener.base.part == *part)
    }

    fn findings(&self, counts: &[u32]) -> Vec<ListenerFinding> {
        let counts = counts.iter().copied().chain(std::iter::repeat(0));
        let listeners = self.listeners.iter().zip(counts);
        listeners
            .map(|(listener, count)| listener.finding(count))
            .collect()
    }
}

/// Builds the model of a listener; returns that of `last` if it is the same.
fn reuse_model(
    listener: &ListenerState,
    addresses: Vec<Addr>,
    last: Option<&ListenerState>,
) -> Option<Arc<Listener>> {
    let last = last.and_then(|last| Some((last, last.model.as_ref()?)));
    if let Some((last, model)) = last
        && Arc::ptr_eq(&last.base, &listener.base)
        && model.addresses == addresses
        && last.is_alike(listener)
    {
        return Some(Arc::clone(model));
    }
    let model = listener.build_model(addresses)?;
    let same = last.filter(|(_, last)| ***last == model);
    Some(same.map_or_else(|| Arc::new(model), |(_, last)| Arc::clone(last)))
}

/// Replaces parts that equal those of `last` by those.
pub(super) fn reuse_equal<T: PartialEq>(
    mut parts: BTreeMap<Name, Arc<T>>,
    last: &BTreeMap<Name, Arc<T>>,
) -> BTreeMap<Name, Arc<T>> {
    for (name, part) in &mut parts {
        if let Some(last) = last.get(name).filter(|last| *last == part) {
            *part = Arc::clone(last);
        }
    }
    parts
}

/// The Gateway of a ListenerSet. `None`: its parent is of another kind.
fn gateway_of(set: &ListenerSet) -> Option<Id> {
    let parent = &set.spec.parent_ref;
    let is_gateway = parent.group.as_deref().unwrap_or(GATEWAY_GROUP) == GATEWAY_GROUP
        && parent.kind.as_deref().unwrap_or("Gateway") == "Gateway";
    let namespace = parent.namespace.as_deref().unwrap_or(&set.metadata.namespace);
    is_gateway.then(|| Id::new(namespace, &*parent.name))
}
