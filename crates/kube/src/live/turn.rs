//! One turn from objects to statuses: the translation, its application, and the documents to write. Knows neither feeds nor requests.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::DataPlane;
use super::pool::Pool;
use super::services::service;
use super::writer::Wanted;
use crate::objects::{Gateway, GatewayClass, Id, Key};
use crate::status::{StatusDocument, apply_problems, document};
use crate::store::{Changes, Store};
use crate::translate::{Findings, Location, PartsUpdate, Settings, Translator, Update};

/// The last translation and its outcome.
pub(super) struct Turn {
    settings: Settings,
    translator: Translator,
    plane: Box<dyn DataPlane>,
    wanted: watch::Sender<Arc<Wanted>>,
    /// The results of the translator with the problems of the data plane.
    findings: Findings,
    /// The objects with such problems.
    with_problems: BTreeSet<Key>,
    /// The statuses that are to be written, in the order of writing.
    statuses: BTreeMap<Key, Arc<Value>>,
}

impl Turn {
    pub(super) fn new(
        controller: &str,
        location: Location,
        plane: Box<dyn DataPlane>,
        wanted: watch::Sender<Arc<Wanted>>,
    ) -> Turn {
        let settings = Settings {
            controller_name: controller.to_owned(),
            location,
        };
        Turn {
            translator: Translator::new(settings.clone()),
            settings,
            plane,
            wanted,
            findings: Findings::default(),
            with_problems: BTreeSet::new(),
            statuses: BTreeMap::new(),
        }
    }

    /// The Gateways of the controller, in the order of precedence.
    pub(super) fn gateways<'s>(&self, store: &'s Store) -> Vec<&'s Arc<Gateway>> {
        let is_ours = |gateway: &&Arc<Gateway>| {
            let class = store.get::<GatewayClass>("", &gateway.spec.gateway_class_name);
            class.is_some_and(|class| class.spec.controller_name == self.settings.controller_name)
        };
        let gateways = store.by_precedence::<Gateway>().into_iter();
        gateways.filter(is_ours).collect()
    }

    /// Translates all objects and applies the parts, also if they are those of the last time. Once this returns every worker
    /// serves them. Returns the objects whose statuses may have changed.
    pub(super) fn translate(&mut self, store: &Store, pool: &Pool) -> BTreeSet<Key> {
        let update = self.translator.translate_again(store, pool);
        let mut changed = self.apply(update);
        changed.extend(self.statuses.keys().cloned());
        changed
    }

    /// Does the same for what depends on changes. Returns whether something was applied, too.
    pub(super) fn update(&mut self, store: &Store, pool: &Pool, changes: &Changes) -> (BTreeSet<Key>, bool) {
        match self.translator.update(store, pool, changes) {
            Update::Unchanged => (BTreeSet::new(), false),
            Update::Endpoints(endpoints) => {
                self.plane.put_endpoints(endpoints);
                (BTreeSet::new(), true)
            }
            Update::Parts(update) => (self.apply(*update), true),
        }
    }

    fn apply(&mut self, update: PartsUpdate) -> BTreeSet<Key> {
        let problems = self.plane.replace(update.parts);
        for problem in &problems {
            log::debug!("{problem}");
        }
        self.findings.apply(&update.findings);
        let mut changed = update.findings.keys();
        for key in std::mem::take(&mut self.with_problems) {
            self.findings.copy(&key, self.translator.findings());
            changed.insert(key);
        }
        self.with_problems = apply_problems(&mut self.findings, &problems, &changed);
        changed.extend(self.with_problems.iter().cloned());
        changed
    }

    /// Publishes the documents to write: the statuses of these objects that differ from those of the store, and Services.
    pub(super) fn publish(&mut self, store: &Store, changed: &BTreeSet<Key>, now: Duration) {
        if changed.is_empty() {
            return;
        }
        let now = super::rfc3339(now);
        for key in changed {
            match document(store, &self.settings, &self.findings, key, &now) {
                Some(document) => drop(self.statuses.insert(key.clone(), object(document))),
                None => drop(self.statuses.remove(key)),
            }
        }
        let gateways = self.gateways(store).into_iter();
        let accepted = gateways.filter(|gateway| self.is_accepted(gateway));
        let services = accepted.map(|gateway| {
            let (name, service) = service(gateway);
            let id = Id::new(Arc::clone(&gateway.metadata.namespace), name);
            (id, Arc::new(service))
        });
        let statuses = self.statuses.iter();
        let wanted = Wanted {
            services: services.collect(),
            statuses: statuses
                .map(|(key, object)| (key.clone(), Arc::clone(object)))
                .collect(),
        };
        self.wanted.send_if_modified(|last| {
            let differs = **last != wanted;
            if differs {
                *last = Arc::new(wanted);
            }
            differs
        });
    }

    fn is_accepted(&self, gateway: &Gateway) -> bool {
        let finding = self.findings.gateways.get(&gateway.metadata.id());
        let mut conditions = finding.iter().flat_map(|finding| &finding.conditions);
        conditions.any(|condition| condition.kind == "Accepted" && condition.is_true)
            && gateway.metadata.deletion_timestamp.is_none()
    }
}

/// An object as its status is written: all else is ignored there.
fn object(document: StatusDocument) -> Arc<Value> {
    let StatusDocument {
        key,
        resource_version,
        status,
    } = document;
    let mut metadata = json!({"name": key.name, "resourceVersion": resource_version});
    if key.kind.is_namespaced() {
        metadata["namespace"] = json!(key.namespace);
    }
    Arc::new(json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.name(),
        "metadata": metadata,
        "status": status,
    }))
}
