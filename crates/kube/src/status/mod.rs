//! Status documents: findings and the data plane's problems, merged into the statuses that the API server has.
//!
//! Pure; the time is a parameter. Owns the merge: entries of other controllers and conditions of other types stay as they
//! are, a transition time changes only with the status of its condition, and a document that would change nothing is left
//! out. Knows no API server.

mod merge;
mod problems;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};

use crate::limits;
use crate::objects::{GATEWAY_GROUP, Key, Kind, Object, ParentRef};
use crate::store::Store;
use crate::translate::{
    Ancestor, Condition, FEATURES, Findings, GatewayFinding, ListenerFinding, Parent, Settings,
};
use merge::{Merge, Owned};

pub use problems::apply_problems;

/// A status to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusDocument {
    /// The object.
    pub key: Key,
    /// The version that the document was derived from, for optimistic concurrency.
    pub resource_version: String,
    /// The whole status.
    pub status: Value,
}

const CLASS: Owned = &["Accepted", "SupportedVersion"];
const GATEWAY: Owned = &[
    "Accepted",
    "Programmed",
    "ResolvedRefs",
    "InsecureFrontendValidationMode",
];
const LISTENER: Owned = &["Accepted", "Programmed", "ResolvedRefs", "Conflicted"];
const LISTENER_SET: Owned = &["Accepted", "Programmed"];
const PARENT: Owned = &["Accepted", "ResolvedRefs", "PartiallyInvalid"];
const ANCESTOR: Owned = &["Accepted", "ResolvedRefs"];

/// Returns the statuses that differ from those of the store, in the order in which they are written: GatewayClasses,
/// Gateways, ListenerSets, routes, policies. `now` is the time in RFC 3339, in seconds.
#[must_use]
pub fn documents(store: &Store, settings: &Settings, findings: &Findings, now: &str) -> Vec<StatusDocument> {
    let documents = findings.keys().into_iter();
    documents
        .filter_map(|key| document(store, settings, findings, &key, now))
        .collect()
}

/// Returns the status of one object, as [`documents`] does. `None`: nothing changes, the object is gone, or it is none of ours.
#[must_use]
pub fn document(
    store: &Store,
    settings: &Settings,
    findings: &Findings,
    key: &Key,
    now: &str,
) -> Option<StatusDocument> {
    let id = key.id();
    let controller = &settings.controller_name;
    match key.kind {
        Kind::GatewayClass => {
            let conditions = findings.classes.get(&id)?;
            derive(store, key, now, |status, merge| {
                merge.conditions(status, CLASS, conditions);
                let features = FEATURES.iter().map(|name| json!({ "name": name }));
                status.insert("supportedFeatures".into(), features.collect());
            })
        }
        Kind::Gateway => {
            let finding = findings.gateways.get(&id)?;
            derive(store, key, now, |status, merge| gateway(status, merge, finding))
        }
        Kind::ListenerSet => {
            let finding = findings.listener_sets.get(&id)?;
            derive(store, key, now, |status, merge| {
                merge.conditions(status, LISTENER_SET, &finding.conditions);
                listeners(status, merge, &finding.listeners);
            })
        }
        Kind::BackendTlsPolicy | Kind::XBackendTrafficPolicy => {
            let policies = match key.kind {
                Kind::BackendTlsPolicy => &findings.policies,
                _ => &findings.traffic_policies,
            };
            let entries = ancestors(policies.get(&id)?);
            derive(store, key, now, |status, merge| {
                entries.merge_into(status, merge, controller);
            })
        }
        _ => {
            let entries = parents(findings.routes.get(key)?);
            derive(store, key, now, |status, merge| {
                entries.merge_into(status, merge, controller);
            })
        }
    }
}

fn gateway(status: &mut Map<String, Value>, merge: &Merge<'_>, finding: &GatewayFinding) {
    merge.conditions(status, GATEWAY, &finding.conditions);
    let addresses = finding.addresses.iter();
    let addresses = addresses.map(|address| json!({"type": address.kind, "value": address.value}));
    status.insert("addresses".into(), addresses.collect());
    listeners(status, merge, &finding.listeners);
    match finding.attached_listener_sets {
        Some(count) => status.insert("attachedListenerSets".into(), count.into()),
        None => status.remove("attachedListenerSets"),
    };
}

fn parents(parents: &[Parent]) -> Entries<'_> {
    let ours = parents
        .iter()
        .map(|parent| (parent_ref(&parent.parent_ref), &*parent.conditions));
    Entries {
        list: "parents",
        reference: "parentRef",
        owned: PARENT,
        limit: limits::STATUS_ENTRIES,
        ours: ours.collect(),
    }
}

fn ancestors(ancestors: &[Ancestor]) -> Entries<'_> {
    let reference = |gateway: &crate::objects::Id| {
        json!({
            "group": GATEWAY_GROUP, "kind": "Gateway",
            "namespace": &*gateway.namespace, "name": &*gateway.name,
        })
    };
    let ours = ancestors
        .iter()
        .map(|ancestor| (reference(&ancestor.gateway), &*ancestor.conditions));
    Entries {
        list: "ancestors",
        reference: "ancestorRef",
        owned: ANCESTOR,
        limit: limits::STATUS_ANCESTORS,
        ours: ours.collect(),
    }
}

/// Derives the status of one object. `None`: nothing changes, or the object is gone.
fn derive(
    store: &Store,
    key: &Key,
    now: &str,
    change: impl FnOnce(&mut Map<String, Value>, &Merge<'_>),
) -> Option<StatusDocument> {
    let object: Object = store.object(key)?;
    let present = object.status()?.fields();
    let merge = Merge {
        generation: object.meta().generation,
        now,
    };
    let mut status = present.clone();
    change(&mut status, &merge);
    (status != present).then(|| StatusDocument {
        key: key.clone(),
        resource_version: object.meta().resource_version.clone(),
        status: Value::Object(status),
    })
}

fn listeners(status: &mut Map<String, Value>, merge: &Merge<'_>, findings: &[ListenerFinding]) {
    let present = status.remove("listeners").unwrap_or_default();
    let present = present.as_array().map_or(&[][..], Vec::as_slice);
    let entry = |finding: &ListenerFinding| {
        let old = present.iter().find(|old| old["name"] == *finding.name);
        let mut entry = old.and_then(Value::as_object).cloned().unwrap_or_default();
        let kind = |kind: &Kind| json!({"group": GATEWAY_GROUP, "kind": kind.name()});
        entry.insert("name".into(), finding.name.as_str().into());
        entry.insert("supportedKinds".into(), finding.kinds.iter().map(kind).collect());
        entry.insert("attachedRoutes".into(), finding.attached_routes.into());
        merge.conditions(&mut entry, LISTENER, &finding.conditions);
        Value::Object(entry)
    };
    if !findings.is_empty() || !present.is_empty() {
        status.insert("listeners".into(), findings.iter().map(entry).collect());
    }
}

/// Entries of a list that controllers share.
struct Entries<'a> {
    list: &'static str,
    reference: &'static str,
    owned: Owned,
    limit: usize,
    ours: Vec<(Value, &'a [Condition])>,
}

impl Entries<'_> {
    /// Replaces the entries of our controller behind those of others.
    fn merge_into(&self, status: &mut Map<String, Value>, merge: &Merge<'_>, controller: &str) {
        let present = status.get(self.list).and_then(Value::as_array).cloned();
        let had_list = present.is_some();
        let (old, mut entries): (Vec<Value>, Vec<Value>) = present
            .unwrap_or_default()
            .into_iter()
            .partition(|entry| entry["controllerName"] == controller);
        for (reference, conditions) in &self.ours {
            if entries.len() >= self.limit {
                break;
            }
            let same = old.iter().find(|entry| entry[self.reference] == *reference);
            let mut entry = same.and_then(Value::as_object).cloned().unwrap_or_default();
            entry.insert(self.reference.into(), reference.clone());
            entry.insert("controllerName".into(), controller.into());
            merge.conditions(&mut entry, self.owned, conditions);
            entries.push(Value::Object(entry));
        }
        if had_list || !entries.is_empty() {
            status.insert(self.list.into(), Value::Array(entries));
        }
    }
}

/// The reference as the API server stores it, with its defaults.
fn parent_ref(parent: &ParentRef) -> Value {
    let mut reference = json!({
        "group": parent.group.as_deref().unwrap_or(GATEWAY_GROUP),
        "kind": parent.kind.as_deref().unwrap_or("Gateway"),
        "name": parent.name,
    });
    let optional = [
        ("namespace", parent.namespace.as_deref().map(Value::from)),
        ("sectionName", parent.section_name.as_deref().map(Value::from)),
        ("port", parent.port.map(Value::from)),
    ];
    for (key, value) in optional {
        if let Some(value) = value {
            reference[key] = value;
        }
    }
    reference
}
