//! The compiled form of a stream route: its number, and handles of its upstreams.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::fault::Fault;
use crate::model::{Config, Name, StreamRoute, Target};
use crate::stats::Metrics;
use crate::upstream::UpstreamState;
use crate::upstream::registry::UpstreamRegistry;

/// The plan of a stream route.
#[derive(Debug)]
pub(crate) struct StreamPlan {
    /// The number for metrics.
    pub(crate) number: u32,
    weight: u64,
    /// The cumulative weight of each backend. `None`: the upstream does not exist.
    backends: Box<[(u64, Option<Arc<UpstreamState>>)]>,
}

impl StreamPlan {
    /// Builds the plans of every stream route, by name.
    pub(crate) fn compile_all(
        config: &Config,
        registry: &UpstreamRegistry,
        metrics: &Metrics,
    ) -> BTreeMap<Name, StreamPlan> {
        let mut all = BTreeMap::new();
        for route in &config.streams {
            // Of two with one name the first counts.
            all.entry(Arc::clone(&route.name))
                .or_insert_with(|| StreamPlan::compile(route, registry, metrics));
        }
        all
    }

    fn compile(route: &StreamRoute, registry: &UpstreamRegistry, metrics: &Metrics) -> StreamPlan {
        let mut weight = 0;
        let backends = route.backends.iter().map(|backend| {
            weight += u64::from(backend.weight);
            let upstream = match &backend.target {
                Target::Upstream(name) => registry.find(name).cloned(),
                Target::Broken { .. } => None,
            };
            (weight, upstream)
        });
        let backends = backends.collect();
        StreamPlan {
            number: metrics.stream_number(&route.name),
            weight,
            backends,
        }
    }

    /// Selects an upstream by weight; `random` returns a number below the sum of weights.
    pub(crate) fn pick_upstream(
        &self,
        random: impl FnOnce(u64) -> u64,
    ) -> Result<&Arc<UpstreamState>, Fault> {
        if self.weight == 0 {
            return Err(Fault::NoBackend);
        }
        let number = random(self.weight);
        let entry = self.backends.iter().find(|(until, _)| number < *until);
        let (_, upstream) = entry.ok_or(Fault::NoBackend)?;
        upstream.as_ref().ok_or(Fault::BrokenBackend)
    }
}
