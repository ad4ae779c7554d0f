//! Replacement of a configuration by another: as a whole, or in parts.
//!
//! ```text
//! stage ─▶ listeners' TLS ─▶ problems? ─┬─ none, or in parts ─▶ bind ─▶ commit ─▶ publish ─▶ accept
//!                                       └─ any ─▶ discard: no change
//! ```
//!
//! As a whole: for a file, which one person saves as a unit. In parts: for objects of many owners, where one owner's mistake must not
//! affect the others; a rule that cannot be compiled, or that was translated as broken, keeps its requests then and responds 500.

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use ringmain_push::{KeySource, Push};

use super::{Gateway, GatewayState, PublishedConfig};
use crate::compile::StagedConfig;
use crate::l4::StreamPlan;
use crate::listeners::{Bindings, ListenerController, NextListeners};
use crate::model::{Config, Endpoint, Name, secret_params};
use crate::policy;
use crate::proxy::push::PushQueries;
use crate::table::{Problem, unresolved_parts};

impl Gateway {
    /// Replaces the configuration in parts: invalid parts are left out or respond 500, all others are served. Each worker follows at its
    /// next request; requests in flight finish with the old configuration. Returns the problems. `now` is the time since the Unix epoch.
    ///
    /// Once the engine runs ([`Gateway::manage_listeners`]) its listeners follow before this returns: new ones are opened, removed ones closed,
    /// and a changed protocol of an address applies to connections accepted from then on. An address that cannot be listened on is a
    /// problem; it is retried at each replacement. Requests that still arrive through a listener that was removed, or whose protocol has
    /// changed, are answered 404. Must not be called on a worker, since it waits for workers.
    pub fn replace(&self, config: Arc<Config>, now: Duration) -> Vec<Problem> {
        let mut controller = self.lock_listeners();
        let (staged, next) = self.prepare(&controller, config, now);
        self.commit(&mut controller, staged, next, Bindings::default());
        self.problems()
    }

    /// Replaces the configuration as a whole, as [`Gateway::replace`] does in parts.
    ///
    /// # Errors
    /// The problems of the configuration, including addresses that cannot be listened on. The current configuration stays in place.
    pub fn replace_atomically(&self, config: Arc<Config>, now: Duration) -> Result<(), Vec<Problem>> {
        let mut controller = self.lock_listeners();
        let (staged, next) = self.prepare(&controller, config, now);
        let problems = blocking_problems(&staged, &next);
        let bound = if problems.is_empty() {
            controller.bind_new(&next, &|_| true)
        } else {
            Err(problems)
        };
        self.commit_bound(&mut controller, staged, next, bound)
    }

    /// Replaces the configuration in parts, as [`Gateway::replace`] does, after binding the addresses of the listeners whose names
    /// `is_required` selects: for parts that were checked as a whole ([`Gateway::check`]) next to parts of others.
    ///
    /// # Errors
    /// The addresses of these listeners that cannot be listened on. The current configuration stays in place.
    pub fn replace_after_bind(
        &self,
        config: Arc<Config>,
        now: Duration,
        is_required: &dyn Fn(&Name) -> bool,
    ) -> Result<(), Vec<Problem>> {
        let mut controller = self.lock_listeners();
        let (staged, next) = self.prepare(&controller, config, now);
        let bound = controller.bind_new(&next, is_required);
        self.commit_bound(&mut controller, staged, next, bound)
    }

    /// Replaces the endpoints of an upstream, and nothing else: no rule is compiled. Each worker follows at its next request to it;
    /// connections to remaining endpoints stay pooled. The next [`Gateway::replace`] sets the endpoints again. Returns `false` without a
    /// change if the upstream does not exist. Must not be called on a worker, like [`Gateway::replace`].
    pub fn set_endpoints(&self, upstream: &str, endpoints: Vec<Endpoint>) -> bool {
        // A configuration that is being prepared would restore the former endpoints.
        let controller = self.lock_listeners();
        let is_known = self
            .lock_state()
            .registries
            .upstreams
            .set_endpoints(upstream, endpoints);
        self.0.changes.notify();
        drop(controller);
        is_known
    }

    /// Returns the problems of a configuration that would replace this one. Changes nothing and opens no address.
    #[must_use]
    pub fn check(&self, config: Arc<Config>, now: Duration) -> Vec<Problem> {
        let controller = self.lock_listeners();
        let (staged, next) = self.prepare(&controller, config, now);
        let problems = blocking_problems(&staged, &next);
        self.lock_state().registries.discard(staged);
        problems
    }

    /// Compiles a configuration. The lock of `controller` prevents concurrent preparations. The lock of the state is released in between:
    /// workers acquire it, and are waited for while listeners open and close.
    fn prepare(
        &self,
        controller: &ListenerController,
        config: Arc<Config>,
        now: Duration,
    ) -> (StagedConfig, NextListeners) {
        let mut state = self.lock_state();
        let GatewayState {
            registries, table, ..
        } = &mut *state;
        let staged = registries.stage(config, Some(table), now);
        let next = controller.prepare(&staged.table, now);
        (staged, next)
    }

    /// Serves a prepared configuration, or discards it because addresses could not be bound.
    fn commit_bound(
        &self,
        controller: &mut ListenerController,
        staged: StagedConfig,
        next: NextListeners,
        bound: Result<Bindings, Vec<Problem>>,
    ) -> Result<(), Vec<Problem>> {
        match bound {
            Ok(bound) => {
                self.commit(controller, staged, next, bound);
                Ok(())
            }
            Err(problems) => {
                self.lock_state().registries.discard(staged);
                Err(problems)
            }
        }
    }

    /// Puts a prepared configuration into service.
    fn commit(
        &self,
        controller: &mut ListenerController,
        staged: StagedConfig,
        next: NextListeners,
        mut bound: Bindings,
    ) {
        let mut guard = self.lock_state();
        let state = &mut *guard;
        let provider = staged.previous_push_provider().cloned();
        let (table, problems) = state.registries.commit(staged, &self.0.metrics);
        // Before a worker serves requests with these parameters.
        let routes = table.compiled_routes().map(|route| route.route());
        let params = secret_params(&table.config().listeners, routes);
        self.0.redacted.add(params);
        let mut applied = controller.apply_addresses(next, &mut bound);
        state.problems = problems;
        state.problems.append(&mut applied.problems);
        let (upstreams, policies) = (&state.registries.upstreams, &state.registries.policies);
        let last = Arc::clone(&self.lock_published().push_queries);
        let next = PublishedConfig {
            table: Arc::clone(&table),
            streams: Arc::new(StreamPlan::compile_all(
                table.config(),
                upstreams,
                &self.0.metrics,
            )),
            push_queries: PushQueries::compile(
                table.config(),
                upstreams,
                policies.reserved_headers(),
                Some(&last),
            ),
            address_ids: Arc::clone(&applied.ids),
            datagrams: controller.datagrams.published(),
        };
        let last = std::mem::replace(&mut *self.lock_published(), next);
        // Dropped outside the lock, so that workers need not wait.
        drop(last);
        let last = (&**state.table.config(), provider.as_ref());
        follow_push(
            &self.0.push,
            Some(last),
            (table.config(), policies.push_provider()),
        );
        let previous = std::mem::replace(&mut state.table, table);
        self.0.generation.fetch_add(1, Ordering::Release);
        self.0.changes.notify();
        state.replaced.push(previous);
        state.replaced.retain(|table| Arc::strong_count(table) > 1);
        drop(guard);
        let unopened = controller.apply(&applied, bound);
        self.lock_state().problems.extend(unopened);
    }
}

/// Returns the problems that keep a configuration from being applied as a whole.
fn blocking_problems(staged: &StagedConfig, next: &NextListeners) -> Vec<Problem> {
    let mut problems = staged.problems.clone();
    problems.extend_from_slice(&next.problems);
    for unresolved in unresolved_parts(staged.table.config()) {
        // A plan that could not be compiled without it has been reported.
        if problems.iter().all(|problem| problem.part != unresolved.part) {
            problems.push(unresolved);
        }
    }
    problems
}

/// The sources of the push settings: a configuration, and the provider that signs clients' tokens.
type PushConfig<'a> = (&'a Config, Option<&'a Arc<policy::jwt::KeyProvider>>);

/// Applies the push settings of a configuration. One without them leaves push unchanged: no rule leads to it any more, and connected
/// clients stay connected.
pub(super) fn follow_push(push: &Push, last: Option<PushConfig<'_>>, (config, provider): PushConfig<'_>) {
    let Some(settings) = &config.push else { return };
    let is_same = |(last, before): PushConfig<'_>| {
        last.push.as_ref() == Some(settings) && before.map(Arc::as_ptr) == provider.map(Arc::as_ptr)
    };
    if last.is_some_and(is_same) {
        return;
    }
    let keys = provider.map(|provider| Arc::clone(provider) as Arc<dyn KeySource>);
    let replaced = settings
        .options(keys)
        .and_then(|options| push.replace(options).map_err(|error| error.to_string()));
    if let Err(error) = replaced {
        // Already among the problems of the staged configuration.
        log::error!("keeping the previous push settings: {error}");
    }
}
