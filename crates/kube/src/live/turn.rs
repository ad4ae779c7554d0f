//! One turn from objects to statuses: translated, applied, and what is to be written. Knows neither feeds nor requests.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::table::Problem;
use tokio::sync::watch;

use super::first;
use super::pool::Pool;
use super::services::service;
use super::time::time;
use super::writer::Wanted;
use super::Apply;
use crate::objects::{Gateway, GatewayClass, Id};
use crate::store::Store;

/// The last translation and its outcome.
pub(super) struct Turn {
    controller: Arc<str>,
    apply: Apply,
    wanted: watch::Sender<Arc<Wanted>>,
    problems: Vec<Problem>,
}

impl Turn {
    pub(super) fn new(controller: Arc<str>, apply: Apply, wanted: watch::Sender<Arc<Wanted>>) -> Turn {
        Turn {
            controller,
            apply,
            wanted,
            problems: Vec::new(),
        }
    }

    /// The Gateways of the controller, in the order of precedence.
    pub(super) fn gateways<'s>(&self, store: &'s Store) -> Vec<&'s Arc<Gateway>> {
        let is_ours = |gateway: &&Arc<Gateway>| {
            let class = store.get::<GatewayClass>("", &gateway.spec.gateway_class_name);
            class.is_some_and(|class| *class.spec.controller_name == *self.controller)
        };
        store.by_precedence::<Gateway>().into_iter().filter(is_ours).collect()
    }

    /// Translates and applies the objects: once this returns every worker serves them.
    pub(super) fn translate(&mut self, store: &Store, pool: &Pool) {
        let config = first::translate(store, pool, &self.gateways(store));
        self.problems = (self.apply)(config);
        for problem in &self.problems {
            log::warn!("{problem}");
        }
    }

    /// Publishes what is to be written.
    pub(super) fn publish(&mut self, store: &Store, pool: &Pool, now: Duration) {
        let gateways = self.gateways(store);
        let services = gateways.iter().map(|gateway| {
            let (name, service) = service(gateway);
            (Id::new(Arc::clone(&gateway.metadata.namespace), name), Arc::new(service))
        });
        let wanted = Wanted {
            services: services.collect(),
            statuses: first::statuses(store, pool, &self.controller, &gateways, &time(now)),
        };
        self.wanted.send_if_modified(|last| {
            let differs = **last != wanted;
            if differs {
                *last = Arc::new(wanted);
            }
            differs
        });
    }
}
