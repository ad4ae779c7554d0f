//! One turn from objects to statuses: the translation, its application, and the documents to write. Knows neither feeds nor requests.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;
use tokio::sync::watch;

use super::Apply;
use super::pool::Pool;
use super::services::service;
use super::writer::Wanted;
use crate::objects::{Gateway, GatewayClass, Id};
use crate::status::{StatusDocument, apply_problems, documents};
use crate::store::Store;
use crate::translate::{Findings, Settings, Translation, translate};

/// The last translation and its outcome.
pub(super) struct Turn {
    settings: Settings,
    apply: Apply,
    wanted: watch::Sender<Arc<Wanted>>,
    findings: Findings,
}

impl Turn {
    pub(super) fn new(controller: &str, apply: Apply, wanted: watch::Sender<Arc<Wanted>>) -> Turn {
        Turn {
            settings: Settings {
                controller_name: controller.to_owned(),
            },
            apply,
            wanted,
            findings: Findings::default(),
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

    /// Translates and applies the objects: once this returns every worker serves them.
    pub(super) fn translate(&mut self, store: &Store, pool: &Pool) {
        let Translation { parts, mut findings } = translate(store, &self.settings, pool);
        let problems = (self.apply)(parts);
        for problem in &problems {
            log::debug!("{problem}");
        }
        apply_problems(&mut findings, &problems);
        self.findings = findings;
    }

    /// Publishes the documents to write: the statuses that differ from those of the store, and Services.
    pub(super) fn publish(&self, store: &Store, now: Duration) {
        let gateways = self.gateways(store).into_iter();
        let accepted = gateways.filter(|gateway| self.is_accepted(gateway));
        let services = accepted.map(|gateway| {
            let (name, service) = service(gateway);
            let id = Id::new(Arc::clone(&gateway.metadata.namespace), name);
            (id, Arc::new(service))
        });
        let statuses = documents(store, &self.settings, &self.findings, &super::rfc3339(now)).into_iter();
        let wanted = Wanted {
            services: services.collect(),
            statuses: statuses.map(object).collect(),
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
fn object(document: StatusDocument) -> (crate::objects::Key, Arc<serde_json::Value>) {
    let StatusDocument {
        key,
        resource_version,
        status,
    } = document;
    let mut metadata = json!({"name": key.name, "resourceVersion": resource_version});
    if key.kind.is_namespaced() {
        metadata["namespace"] = json!(key.namespace);
    }
    let object = json!({
        "apiVersion": key.kind.api_version(),
        "kind": key.kind.name(),
        "metadata": metadata,
        "status": status,
    });
    (key, Arc::new(object))
}
