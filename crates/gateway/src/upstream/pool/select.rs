//! The selection of an endpoint by one worker.

use std::rc::Rc;

use super::{PoolEndpoint, PoolSnapshot, SelectedEndpoint, UpstreamPool};
use crate::fault::Fault;
use crate::upstream::AffinityHint;
use crate::upstream::selection::{self, SelectionContext};

impl UpstreamPool {
    /// Selects an endpoint, not from `tried` if there are others; `key` is the hash of the request's key.
    ///
    /// # Errors
    /// There is no endpoint, or all are unhealthy.
    pub(crate) fn select(
        &self,
        tried: &[Rc<PoolEndpoint>],
        key: Option<u64>,
        affinity: AffinityHint,
    ) -> Result<SelectedEndpoint, Fault> {
        let random = || self.cx.random();
        self.select_with(&self.selection_context(tried, key, affinity, &random))
    }

    /// Like [`UpstreamPool::select`], for a request that may retry at an endpoint of `tried`, in preference to one of `unreachable`.
    ///
    /// # Errors
    /// There is no endpoint, or all are unhealthy.
    pub(crate) fn select_for_retry(
        &self,
        tried: &[Rc<PoolEndpoint>],
        unreachable: &[Rc<PoolEndpoint>],
        key: Option<u64>,
        affinity: AffinityHint,
    ) -> Result<SelectedEndpoint, Fault> {
        let random = || self.cx.random();
        self.select_with(&SelectionContext {
            unreachable,
            ..self.selection_context(tried, key, affinity, &random)
        })
    }

    /// Selects an endpoint even if none is healthy, not from `tried` if there are others.
    ///
    /// # Errors
    /// There is no endpoint.
    pub(crate) fn select_ignoring_health(
        &self,
        tried: &[Rc<PoolEndpoint>],
    ) -> Result<SelectedEndpoint, Fault> {
        let random = || self.cx.random();
        self.select_with(&SelectionContext {
            ignore_health: true,
            ..self.selection_context(tried, None, AffinityHint::None, &random)
        })
    }

    /// Returns whether an endpoint that is not in `tried` can be selected.
    pub(crate) fn has_untried_endpoint(&self, tried: &[Rc<PoolEndpoint>]) -> bool {
        let snapshot = &mut *self.refresh_snapshot();
        let now = self.cx.now().0;
        selection::has_untried_endpoint(
            &self.upstream,
            &snapshot.upstream,
            &snapshot.endpoints,
            &mut snapshot.health,
            tried,
            now,
        )
    }

    fn selection_context<'a>(
        &'a self,
        tried: &'a [Rc<PoolEndpoint>],
        key: Option<u64>,
        affinity: AffinityHint,
        random: &'a dyn Fn() -> u64,
    ) -> SelectionContext<'a> {
        SelectionContext {
            tried,
            unreachable: &[],
            key,
            affinity,
            ignore_health: false,
            now: self.cx.now().0,
            random,
        }
    }

    fn select_with(&self, context: &SelectionContext<'_>) -> Result<SelectedEndpoint, Fault> {
        let PoolSnapshot {
            upstream: snapshot,
            endpoints,
            health,
            round_robin,
            ..
        } = &mut *self.refresh_snapshot();
        let index =
            selection::select_endpoint(&self.upstream, snapshot, endpoints, health, round_robin, context)?;
        let endpoint = &endpoints[index];
        if snapshot.config.zones.is_some() {
            self.upstream
                .counters
                .0
                .count_distance(endpoint.endpoint.distance);
        }
        Ok(SelectedEndpoint {
            endpoint: Rc::clone(endpoint),
            _guard: endpoint.endpoint.state.count_request(),
        })
    }
}
