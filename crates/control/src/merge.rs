//! One gateway with two sources of configuration: a file, which is applied as a whole, and objects with many owners, which are
//! applied in parts (decision 0024).
//!
//! ```text
//! file ────▶ checked alone ─▶ ┐
//!                             ├─ file's parts, then objects' ─▶ Gateway::replace, replace_bound
//! objects ──────────────────▶ ┘
//! endpoints of objects ───────────────────────────────────▶ Gateway::set_endpoints
//! ```
//!
//! Without a second source a file is applied by [`Gateway::replace_atomically`]. Knows neither formats nor the origin of configurations.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ringmain_gateway::Gateway;
use ringmain_gateway::model::{Config, Endpoint, Name};
use ringmain_gateway::table::Problem;

/// A gateway that serves the parts of its sources together.
#[derive(Debug)]
pub struct ConfigMerger {
    gateway: Gateway,
    inputs: Mutex<MergeInputs>,
}

#[derive(Debug)]
struct MergeInputs {
    file: Arc<Config>,
    /// `None`: there is no second source.
    objects: Option<Config>,
}

impl ConfigMerger {
    /// Creates a gateway that serves a file. `has_objects`: there is a second source, which is empty so far.
    #[must_use]
    pub fn new(gateway: Gateway, file: Arc<Config>, has_objects: bool) -> ConfigMerger {
        ConfigMerger {
            gateway,
            inputs: Mutex::new(MergeInputs {
                file,
                objects: has_objects.then(Config::default),
            }),
        }
    }

    /// The gateway.
    #[must_use]
    pub fn gateway(&self) -> &Gateway {
        &self.gateway
    }

    /// Replaces the parts of the file, as a whole. Returns the file's configuration as it is served. `now` is wall time since 1970.
    ///
    /// # Errors
    /// The problems of the file: then nothing has changed.
    pub fn replace_file(&self, config: Arc<Config>, now: Duration) -> Result<Arc<Config>, Vec<Problem>> {
        let mut inputs = self.inputs();
        let Some(objects) = &inputs.objects else {
            self.gateway.replace_atomically(config, now)?;
            // The table's own, which has the parts of the last one that are alike: none is held twice.
            return Ok(Arc::clone(self.gateway.table().config()));
        };
        let problems = self.gateway.check(Arc::clone(&config), now);
        if !problems.is_empty() {
            return Err(problems);
        }
        let is_ours = |name: &Name| config.listeners.iter().any(|listener| listener.name == *name);
        self.gateway
            .replace_after_bind(Arc::new(merge_parts(&config, objects)), now, &is_ours)?;
        inputs.file = Arc::clone(&config);
        Ok(config)
    }

    /// Replaces the parts of objects, one by one. Returns the problems of the whole configuration, once all workers serve it.
    pub fn replace_objects(&self, objects: Config, now: Duration) -> Vec<Problem> {
        let mut inputs = self.inputs();
        let is_same = inputs
            .objects
            .as_ref()
            .is_some_and(|last| have_same_parts(last, &objects));
        // An address that could not be listened at may be free now.
        if is_same && self.gateway.unbound_addrs().is_empty() {
            return self.gateway.problems();
        }
        let merged = merge_parts(&inputs.file, &objects);
        inputs.objects = Some(objects);
        self.gateway.replace(Arc::new(merged), now)
    }

    /// Replaces the endpoints of some upstreams of the objects, and nothing else: no rule is compiled. Upstreams that the objects do
    /// not have are ignored.
    pub fn put_endpoints(&self, all: Vec<(Name, Vec<Endpoint>)>) {
        let mut inputs = self.inputs();
        let MergeInputs { file, objects } = &mut *inputs;
        let Some(objects) = objects else { return };
        let mut by_name: BTreeMap<Name, Vec<Endpoint>> = all.into_iter().collect();
        for upstream in &mut objects.upstreams {
            let Some(endpoints) = by_name.remove(&upstream.name) else {
                continue;
            };
            Arc::make_mut(upstream).endpoints.clone_from(&endpoints);
            // Of two with the same name, that of the file applies.
            if file.upstreams.iter().all(|other| other.name != upstream.name) {
                self.gateway.set_endpoints(&upstream.name, endpoints);
            }
            if by_name.is_empty() {
                break;
            }
        }
    }

    fn inputs(&self) -> MutexGuard<'_, MergeInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges the parts of both. Of two with the same name or equal matches, that of the file applies; settings of the process are the
/// file's.
fn merge_parts(file: &Config, objects: &Config) -> Config {
    let mut merged = file.clone();
    merged.listeners.extend(objects.listeners.iter().cloned());
    merged.routes.extend(objects.routes.iter().cloned());
    merged.streams.extend(objects.streams.iter().cloned());
    merged.upstreams.extend(objects.upstreams.iter().cloned());
    merged.certificates.extend(objects.certificates.iter().cloned());
    merged.authorities.extend(objects.authorities.iter().cloned());
    merged
}

/// Returns whether the parts of objects are the same: those that are shared are not compared.
fn have_same_parts(a: &Config, b: &Config) -> bool {
    fn are_same<T: PartialEq>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
        let mut pairs = a.iter().zip(b);
        a.len() == b.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
    are_same(&a.listeners, &b.listeners)
        && are_same(&a.routes, &b.routes)
        && are_same(&a.streams, &b.streams)
        && are_same(&a.upstreams, &b.upstreams)
        && are_same(&a.certificates, &b.certificates)
        && are_same(&a.authorities, &b.authorities)
}
