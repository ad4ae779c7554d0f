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

    /// Returns the objects whose results differ from those of `last`.
    #[must_use]
    pub fn changes(&self, last: &Findings) -> BTreeSet<Key> {
        let of = |kind| move |id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
        let mut changed = BTreeSet::new();
        changed.extend(differing(&self.classes, &last.classes, PartialEq::eq).map(of(Kind::GatewayClass)));
        changed.extend(differing(&self.gateways, &last.gateways, PartialEq::eq).map(of(Kind::Gateway)));
        let sets = differing(&self.listener_sets, &last.listener_sets, PartialEq::eq);
        changed.extend(sets.map(of(Kind::ListenerSet)));
        let policies = differing(&self.policies, &last.policies, PartialEq::eq);
        changed.extend(policies.map(of(Kind::BackendTlsPolicy)));
        let traffic = differing(&self.traffic_policies, &last.traffic_policies, PartialEq::eq);
        changed.extend(traffic.map(of(Kind::XBackendTrafficPolicy)));
        // Results that are shared are not compared.
        let is_same = |a: &Arc<Vec<Parent>>, b: &Arc<Vec<Parent>>| Arc::ptr_eq(a, b) || a == b;
        changed.extend(differing(&self.routes, &last.routes, is_same).cloned());
        changed
    }
}

/// The keys whose values are new or others. Both maps are walked once, side by side.
fn differing<'a, K: Ord, T>(
    now: &'a BTreeMap<K, T>,
    last: &'a BTreeMap<K, T>,
    is_same: impl Fn(&T, &T) -> bool,
) -> impl Iterator<Item = &'a K> {
    let mut last = last.iter().peekable();
    now.iter().filter_map(move |(key, value)| {
        while last.next_if(|(other, _)| *other < key).is_some() {}
        let before = last.next_if(|(other, _)| *other == key);
        let is_unchanged = before.is_some_and(|(_, before)| is_same(before, value));
        (!is_unchanged).then_some(key)
    })
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
