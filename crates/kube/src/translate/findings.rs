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
        changed.extend(differing(&self.classes, &last.classes).map(of(Kind::GatewayClass)));
        changed.extend(differing(&self.gateways, &last.gateways).map(of(Kind::Gateway)));
        changed.extend(differing(&self.listener_sets, &last.listener_sets).map(of(Kind::ListenerSet)));
        changed.extend(differing(&self.policies, &last.policies).map(of(Kind::BackendTlsPolicy)));
        let traffic = differing(&self.traffic_policies, &last.traffic_policies);
        changed.extend(traffic.map(of(Kind::XBackendTrafficPolicy)));
        let routes = self.routes.iter().filter(|(key, finding)| {
            let before = last.routes.get(*key);
            before.is_none_or(|before| !Arc::ptr_eq(before, finding) && before != *finding)
        });
        changed.extend(routes.map(|(key, _)| key.clone()));
        changed
    }
}

/// The keys whose values are new or others.
fn differing<'a, T: PartialEq>(
    now: &'a BTreeMap<Id, T>,
    last: &BTreeMap<Id, T>,
) -> impl Iterator<Item = &'a Id> {
    let differs = |(id, finding): &(&Id, &T)| last.get(*id) != Some(*finding);
    now.iter().filter(differs).map(|(id, _)| id)
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
