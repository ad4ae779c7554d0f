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

use std::collections::{BTreeMap, BTreeSet};
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
    /// The parts of the file, then those of objects, as they were applied last. `None`: there is no second source.
    merged: Option<Arc<Config>>,
    /// The endpoints of objects' upstreams that were replaced since.
    endpoints: BTreeMap<Name, Vec<Endpoint>>,
}

impl ConfigMerger {
    /// Creates a gateway that serves a file. `has_objects`: there is a second source, which is empty so far.
    #[must_use]
    pub fn new(gateway: Gateway, file: Arc<Config>, has_objects: bool) -> ConfigMerger {
        ConfigMerger {
            gateway,
            inputs: Mutex::new(MergeInputs {
                merged: has_objects.then(|| Arc::clone(&file)),
                file,
                endpoints: BTreeMap::new(),
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
        let Some(merged) = &inputs.merged else {
            self.gateway.replace_atomically(config, now)?;
            // The table's own, which has the parts of the last one that are alike: none is held twice.
            return Ok(Arc::clone(self.gateway.table().config()));
        };
        let problems = self.gateway.check(Arc::clone(&config), now);
        if !problems.is_empty() {
            return Err(problems);
        }
        let names: BTreeSet<&Name> = config.listeners.iter().map(|listener| &listener.name).collect();
        let is_ours = |name: &Name| names.contains(name);
        let mut objects = parts_of_objects(&inputs.file, merged);
        for upstream in &mut objects.upstreams {
            if let Some(endpoints) = inputs.endpoints.get(&upstream.name) {
                Arc::make_mut(upstream).endpoints.clone_from(endpoints);
            }
        }
        let merged = Arc::new(merge_parts(&config, objects));
        self.gateway
            .replace_after_bind(Arc::clone(&merged), now, &is_ours)?;
        inputs.file = Arc::clone(&config);
        inputs.merged = Some(merged);
        inputs.endpoints.clear();
        Ok(config)
    }

    /// Replaces the parts of objects, one by one. Returns the problems of the whole configuration, once all workers serve it.
    pub fn replace_objects(&self, objects: Config, now: Duration) -> Vec<Problem> {
        let mut inputs = self.inputs();
        let is_same = inputs.endpoints.is_empty()
            && inputs
                .merged
                .as_ref()
                .is_some_and(|merged| has_same_objects(&inputs.file, merged, &objects));
        // An address that could not be listened at may be free now.
        if is_same && self.gateway.unbound_addrs().is_empty() {
            return self.gateway.problems();
        }
        let merged = Arc::new(merge_parts(&inputs.file, objects));
        let last = inputs.merged.replace(Arc::clone(&merged));
        inputs.endpoints.clear();
        let problems = self.gateway.replace(merged, now);
        // Parts that are gone are dropped once the others are served.
        drop(last);
        problems
    }

    /// Replaces the endpoints of some upstreams of the objects, and nothing else: no rule is compiled. Upstreams that the objects do
    /// not have are ignored.
    pub fn put_endpoints(&self, all: Vec<(Name, Vec<Endpoint>)>) {
        let mut inputs = self.inputs();
        let MergeInputs {
            file,
            merged,
            endpoints: replaced,
        } = &mut *inputs;
        if merged.is_none() {
            return;
        }
        for (name, endpoints) in all {
            // Of two with the same name, that of the file applies.
            let is_of_file = file.upstreams.iter().any(|other| other.name == name);
            if is_of_file || self.gateway.set_endpoints(&name, endpoints.clone()) {
                replaced.insert(name, endpoints);
            }
        }
    }

    fn inputs(&self) -> MutexGuard<'_, MergeInputs> {
        self.inputs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Merges the parts of both, those of the file first. Of two with the same name or equal matches, that of the file applies; settings of the
/// process are the file's.
fn merge_parts(file: &Config, objects: Config) -> Config {
    fn join<T>(file: &[Arc<T>], objects: Vec<Arc<T>>) -> Vec<Arc<T>> {
        let mut joined = Vec::with_capacity(file.len() + objects.len());
        joined.extend_from_slice(file);
        joined.extend(objects);
        joined
    }
    Config {
        listeners: join(&file.listeners, objects.listeners),
        routes: join(&file.routes, objects.routes),
        streams: join(&file.streams, objects.streams),
        upstreams: join(&file.upstreams, objects.upstreams),
        certificates: join(&file.certificates, objects.certificates),
        authorities: join(&file.authorities, objects.authorities),
        push: file.push.clone(),
        admin: file.admin.clone(),
        access_log: file.access_log.clone(),
        limits: file.limits,
        process_log: file.process_log,
    }
}

/// Returns the parts of objects that were merged with those of a file.
fn parts_of_objects(file: &Config, merged: &Config) -> Config {
    Config {
        listeners: merged.listeners[file.listeners.len()..].to_vec(),
        routes: merged.routes[file.routes.len()..].to_vec(),
        streams: merged.streams[file.streams.len()..].to_vec(),
        upstreams: merged.upstreams[file.upstreams.len()..].to_vec(),
        certificates: merged.certificates[file.certificates.len()..].to_vec(),
        authorities: merged.authorities[file.authorities.len()..].to_vec(),
        ..Config::default()
    }
}

/// Returns whether these parts of objects are those that were merged with a file: those that are shared are not compared.
fn has_same_objects(file: &Config, merged: &Config, objects: &Config) -> bool {
    fn are_same<T: PartialEq>(file: &[Arc<T>], merged: &[Arc<T>], objects: &[Arc<T>]) -> bool {
        let last = &merged[file.len()..];
        let mut pairs = last.iter().zip(objects);
        last.len() == objects.len() && pairs.all(|(a, b)| Arc::ptr_eq(a, b) || a == b)
    }
    are_same(&file.listeners, &merged.listeners, &objects.listeners)
        && are_same(&file.routes, &merged.routes, &objects.routes)
        && are_same(&file.streams, &merged.streams, &objects.streams)
        && are_same(&file.upstreams, &merged.upstreams, &objects.upstreams)
        && are_same(&file.certificates, &merged.certificates, &objects.certificates)
        && are_same(&file.authorities, &merged.authorities, &objects.authorities)
}
