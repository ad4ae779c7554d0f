//! Kubernetes as a source of configuration. Does not know its objects.

use std::sync::Arc;

use super::{Builder, field_value, parsed_value};
use crate::config::document::{self, Field};
use crate::config::error::quote;
use crate::config::{KubernetesSource, error::FilePosition};

/// The default controller name.
const CONTROLLER: &str = "ringmain.dev/gateway";

impl Builder<'_> {
    pub(super) fn build_kubernetes(&mut self, part: Field<document::KubernetesSection>) {
        let Some(part) = part else { return };
        let position = part.position;
        if !cfg!(feature = "kubernetes") {
            let expected = "a build with the feature `kubernetes` (cargo build --features kubernetes)";
            self.errors
                .report(position, expected, "one without it, and `kubernetes`");
            return;
        }
        let Some(part) = part.value else { return };
        let controller = part.controller.as_ref();
        let at = controller.map_or(position, |at| at.position);
        let controller = field_value(part.controller).unwrap_or_else(|| CONTROLLER.to_owned());
        self.check_controller(at, &controller);
        let pool = field_value(part.addresses).and_then(|addresses| parsed_value(addresses.pool));
        let Some(pool) = pool else {
            self.errors.report(position, "the key `addresses.pool`", "none");
            return;
        };
        self.built.kubernetes = Some(Arc::new(KubernetesSource {
            controller: controller.into(),
            pool,
            zone: self.zone.clone(),
        }));
    }

    /// Checks that a controller name is a domain and a path, as the Gateway API requires.
    fn check_controller(&self, position: FilePosition, controller: &str) {
        let is_valid = controller
            .split_once('/')
            .is_some_and(|(domain, path)| !domain.is_empty() && !path.is_empty());
        if !is_valid {
            let expected = "a domain and a path such as `ringmain.dev/gateway`";
            self.errors.report(position, expected, quote(controller));
        }
    }
}
