//! The results of a translation for each object, from which statuses follow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::Name;

use super::{Condition, StatusAddress};
use crate::objects::{Id, Key, Kind, ParentRef};

/// The results for each object of ours. Objects of other controllers are not in here.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// By name.
    pub classes: BTreeMap<Id, Vec<Condition>>,
    /// By namespace and name.
    pub gateways: BTreeMap<Id, GatewayFinding>,
    /// By namespace and name.
    pub listener_sets: BTreeMap<Id, ListenerSetFinding>,
    /// The parents of ours of each route. Empty: the route has none any more.
    pub routes: BTreeMap<Key, Arc<Vec<Parent>>>,
    /// The Gateways that use each BackendTLSPolicy. Empty: none does.
    pub policies: BTreeMap<Id, Vec<Ancestor>>,
    /// The same of each XBackendTrafficPolicy.
    pub traffic_policies: BTreeMap<Id, Vec<Ancestor>>,
}

impl Findings {
    /// Returns the objects, in the order in which their statuses are written.
    #[must_use]
    pub fn keys(&self) -> Vec<Key> {
        let of = |kind| move |id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        let classes = self.classes.keys().map(of(Kind::GatewayClass));
        let gateways = self.gateways.keys().map(of(Kind::Gateway));
        let sets = self.listener_sets.keys().map(of(Kind::ListenerSet));
        let policies = self.policies.keys().map(of(Kind::BackendTlsPolicy));
        let traffic = self.traffic_policies.keys();
        let traffic = traffic.map(of(Kind::XBackendTrafficPolicy));
        let routes = self.routes.keys().cloned();
        classes
            .chain(gateways)
            .chain(sets)
            .chain(routes)
            .chain(policies)
            .chain(traffic)
            .collect()
    }

    /// Replaces results by newer ones, and removes those of objects that have none any more. Returns the difference.
    pub(super) fn replace(
        &mut self,
        newer: Findings,
        removed: impl IntoIterator<Item = Key>,
    ) -> FindingsUpdate {
        let mut update = FindingsUpdate::default();
        let changed = &mut update.changed;
        replace(&mut self.classes, newer.classes, &mut changed.classes);
        replace(&mut self.gateways, newer.gateways, &mut changed.gateways);
        let sets = newer.listener_sets;
        replace(&mut self.listener_sets, sets, &mut changed.listener_sets);
        replace(&mut self.routes, newer.routes, &mut changed.routes);
        replace(&mut self.policies, newer.policies, &mut changed.policies);
        let traffic = newer.traffic_policies;
        replace(&mut self.traffic_policies, traffic, &mut changed.traffic_policies);
        let removed = removed.into_iter().filter(|key| self.remove(key));
        update.removed = removed.collect();
        update
    }

    /// Applies a difference to the results that it was made of.
    pub fn apply(&mut self, update: &FindingsUpdate) {
        for key in &update.removed {
            self.remove(key);
        }
        let changed = &update.changed;
        insert_all(&mut self.classes, &changed.classes);
        insert_all(&mut self.gateways, &changed.gateways);
        insert_all(&mut self.listener_sets, &changed.listener_sets);
        insert_all(&mut self.routes, &changed.routes);
        insert_all(&mut self.policies, &changed.policies);
        insert_all(&mut self.traffic_policies, &changed.traffic_policies);
    }

    /// Sets the results for an object to those that others have.
    pub(crate) fn copy(&mut self, key: &Key, others: &Findings) {
        let id = key.id();
        match key.kind {
            Kind::GatewayClass => copy(&mut self.classes, id, &others.classes),
            Kind::Gateway => copy(&mut self.gateways, id, &others.gateways),
            Kind::ListenerSet => copy(&mut self.listener_sets, id, &others.listener_sets),
            Kind::BackendTlsPolicy => copy(&mut self.policies, id, &others.policies),
            Kind::XBackendTrafficPolicy => copy(&mut self.traffic_policies, id, &others.traffic_policies),
            _ => copy(&mut self.routes, key.clone(), &others.routes),
        }
    }

    /// Returns whether an object has results.
    pub(super) fn has(&self, key: &Key) -> bool {
        let id = key.id();
        match key.kind {
            Kind::GatewayClass => self.classes.contains_key(&id),
            Kind::Gateway => self.gateways.contains_key(&id),
            Kind::ListenerSet => self.listener_sets.contains_key(&id),
            Kind::BackendTlsPolicy => self.policies.contains_key(&id),
            Kind::XBackendTrafficPolicy => self.traffic_policies.contains_key(&id),
            _ => self.routes.contains_key(key),
        }
    }

    /// Returns the Gateways and ListenerSets that have results here and none in `newer`.
    pub(super) fn missing_listeners(&self, newer: &Findings) -> Vec<Key> {
        let of = |kind| move |id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        let gateways = self.gateways.keys().filter(|id| !newer.gateways.contains_key(id));
        let sets = self.listener_sets.keys();
        let sets = sets.filter(|id| !newer.listener_sets.contains_key(id));
        let gateways = gateways.map(of(Kind::Gateway));
        gateways.chain(sets.map(of(Kind::ListenerSet))).collect()
    }

    /// Returns whether the object had results.
    fn remove(&mut self, key: &Key) -> bool {
        let id = key.id();
        match key.kind {
            Kind::GatewayClass => self.classes.remove(&id).is_some(),
            Kind::Gateway => self.gateways.remove(&id).is_some(),
            Kind::ListenerSet => self.listener_sets.remove(&id).is_some(),
            Kind::BackendTlsPolicy => self.policies.remove(&id).is_some(),
            Kind::XBackendTrafficPolicy => self.traffic_policies.remove(&id).is_some(),
            _ => self.routes.remove(key).is_some(),
        }
    }
}

/// Inserts newer values, and those that differ into `changed`, too.
fn replace<K: Ord + Clone, T: Clone + PartialEq>(
    own: &mut BTreeMap<K, T>,
    newer: BTreeMap<K, T>,
    changed: &mut BTreeMap<K, T>,
) {
    for (key, value) in newer {
        if own.get(&key) != Some(&value) {
            own.insert(key.clone(), value.clone());
            changed.insert(key, value);
        }
    }
}

fn insert_all<K: Ord + Clone, T: Clone>(own: &mut BTreeMap<K, T>, changed: &BTreeMap<K, T>) {
    let changed = changed.iter();
    own.extend(changed.map(|(key, value)| (key.clone(), value.clone())));
}

fn copy<K: Ord, T: Clone>(own: &mut BTreeMap<K, T>, key: K, others: &BTreeMap<K, T>) {
    match others.get(&key) {
        Some(value) => drop(own.insert(key, value.clone())),
        None => drop(own.remove(&key)),
    }
}

/// The difference between the results of a translation and those of the one before it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FindingsUpdate {
    /// Results that are new or others.
    pub changed: Findings,
    /// Objects that have no results any more.
    pub removed: BTreeSet<Key>,
}

impl FindingsUpdate {
    /// Returns the objects whose results differ.
    #[must_use]
    pub fn keys(&self) -> BTreeSet<Key> {
        let changed = self.changed.keys().into_iter();
        changed.chain(self.removed.iter().cloned()).collect()
    }
}

/// The results for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GatewayFinding {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its addresses.
    pub addresses: Vec<StatusAddress>,
    /// Its own listeners.
    pub listeners: Vec<ListenerFinding>,
    /// The number of ListenerSets with a listener that serves; `None`: the Gateway allows none.
    pub attached_listener_sets: Option<u32>,
}

/// The results for a listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerFinding {
    /// Its name in its object.
    pub name: String,
    /// Its name in the model.
    pub part: Name,
    /// The kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// The number of routes that are attached.
    pub attached_routes: u32,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its certificates in the model.
    pub certificates: Vec<Name>,
}

/// The results for a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListenerSetFinding {
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// Its listeners; none if its Gateway does not allow it.
    pub listeners: Vec<ListenerFinding>,
}

/// The results for a route at one parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parent {
    /// The reference, as the route has it.
    pub parent_ref: ParentRef,
    /// Its conditions.
    pub conditions: Vec<Condition>,
    /// The names of its parts in the model.
    pub parts: Vec<Name>,
}

/// The results for a policy at one Gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ancestor {
    /// The Gateway.
    pub gateway: Id,
    /// Its conditions.
    pub conditions: Vec<Condition>,
}
