//! How one configuration takes the place of another: as a whole, or in parts.
//!
//! ```text
//! stage ─▶ listeners' TLS ─▶ problems? ─┬─ none, or in parts ─▶ bind ─▶ commit ─▶ publish ─▶ accept
//!                                       └─ any ─▶ discard: nothing has changed
//! ```
//!
//! As a whole: for a file, which one person saves and means as it is. In parts: for objects of many owners, where one owner's mistake
//! must not keep the others from theirs; a rule that cannot be compiled, or that was translated as broken, keeps its place then and
//! responds 500.

#[cfg(test)]
mod tests;

use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use ringmain_push::{KeySource, Options, Push};

use super::{Gateway, Published, State};
use crate::compiling::Staged;
use crate::exchange::push::Asks;
use crate::front::{Bindings, Doors, NextFronts};
use crate::model::{Config, Endpoint, Name, secret_params};
use crate::passage::StreamPlan;
use crate::policy;
use crate::table::{Problem, unresolved_parts};

impl Gateway {
    /// Replaces the configuration in parts: what is wrong is left out or responds 500, all else is served. Each worker follows at
    /// its next request; requests in flight finish as they began. Returns what is wrong. `now` is wall time since 1970.
    ///
    /// Once the engine runs ([`Gateway::listen_by`]) its listeners follow before this returns: those that are new are opened, those
    /// that are gone closed, and what an address speaks changes for connections that are accepted from then on. An address that
    /// cannot be listened at is a problem; it is tried again at each replacement. What still arrives by a listener that is gone, or
    /// that speaks something else now, is answered 404. Not to be called by a worker: workers are waited for.
    pub fn replace(&self, config: Arc<Config>, now: Duration) -> Vec<Problem> {
        let mut doors = self.doors();
        let (staged, next) = self.prepare(&doors, config, now);
        self.commit(&mut doors, staged, next, Vec::new());
        self.problems()
    }

    /// Replaces the configuration as a whole, as [`Gateway::replace`] does in parts.
    ///
    /// # Errors
    /// What is wrong with it: then nothing has changed. An address that cannot be listened at is part of it.
    pub fn replace_whole(&self, config: Arc<Config>, now: Duration) -> Result<(), Vec<Problem>> {
        let mut doors = self.doors();
        let (staged, next) = self.prepare(&doors, config, now);
        let problems = problems(&staged, &next);
        let bound = match problems.is_empty() {
            true => doors.bind(&next, &|_| true),
            false => Err(problems),
        };
        self.commit_bound(&mut doors, staged, next, bound)
    }

    /// Replaces the configuration in parts, as [`Gateway::replace`] does, once the addresses of the listeners that `is_required`
    /// selects by their names are bound: for parts that were checked as a whole ([`Gateway::check`]) beside parts of others.
    ///
    /// # Errors
    /// The addresses of these listeners that cannot be listened at: then nothing has changed.
    pub fn replace_bound(
        &self,
        config: Arc<Config>,
        now: Duration,
        is_required: &dyn Fn(&Name) -> bool,
    ) -> Result<(), Vec<Problem>> {
        let mut doors = self.doors();
        let (staged, next) = self.prepare(&doors, config, now);
        let bound = doors.bind(&next, is_required);
        self.commit_bound(&mut doors, staged, next, bound)
    }

    /// Replaces the endpoints of an upstream, and nothing else: no rule is compiled. Each worker follows at its next request to it;
    /// connections to endpoints that stay are kept. The next [`Gateway::replace`] sets them again. Returns `false` if there is no such
    /// upstream: then nothing has changed. Not to be called by a worker, as for [`Gateway::replace`].
    pub fn put_endpoints(&self, upstream: &str, endpoints: Vec<Endpoint>) -> bool {
        // A configuration prepared meanwhile would bring back former endpoints.
        let doors = self.doors();
        let is_known = self
            .state()
            .registries
            .upstreams
            .set_endpoints(upstream, endpoints);
        self.0.changes.tell();
        drop(doors);
        is_known
    }

    /// What is wrong with a configuration that would replace this one. Nothing changes, and no address is opened.
    #[must_use]
    pub fn check(&self, config: Arc<Config>, now: Duration) -> Vec<Problem> {
        let doors = self.doors();
        let (staged, next) = self.prepare(&doors, config, now);
        let problems = problems(&staged, &next);
        self.state().registries.discard(staged);
        problems
    }

    /// The lock of `doors` keeps others from preparing at the same time. That of the state is not held in between: workers take
    /// it, and are waited for while listeners open and close.
    fn prepare(&self, doors: &Doors, config: Arc<Config>, now: Duration) -> (Staged, NextFronts) {
        let mut state = self.state();
        let State {
            registries, table, ..
        } = &mut *state;
        let staged = registries.stage(config, Some(table), now);
        let next = doors.fronts.prepare(&staged.table, now);
        (staged, next)
    }

    /// Serves a prepared configuration, or discards it because addresses could not be bound.
    fn commit_bound(
        &self,
        doors: &mut Doors,
        staged: Staged,
        next: NextFronts,
        bound: Result<Bindings, Vec<Problem>>,
    ) -> Result<(), Vec<Problem>> {
        match bound {
            Ok(bound) => {
                self.commit(doors, staged, next, bound);
                Ok(())
            }
            Err(problems) => {
                self.state().registries.discard(staged);
                Err(problems)
            }
        }
    }

    /// Serves what was prepared.
    fn commit(&self, doors: &mut Doors, staged: Staged, next: NextFronts, bound: Bindings) {
        let mut guard = self.state();
        let state = &mut *guard;
        let provider = staged.provider_before().cloned();
        let (table, problems) = state.registries.commit(staged, &self.0.metrics);
        // Before a worker asks for them.
        self.0.redacted.add(secret_params(table.config()));
        let mut followed = doors.fronts.apply(next);
        state.problems = problems;
        state.problems.append(&mut followed.problems);
        let (upstreams, policies) = (&state.registries.upstreams, &state.registries.policies);
        let last = Arc::clone(&self.published().asks);
        let next = Published {
            table: Arc::clone(&table),
            streams: Arc::new(StreamPlan::all(table.config(), upstreams, &self.0.metrics)),
            asks: Asks::of(table.config(), upstreams, policies.guards(), Some(&last)),
            ids: Arc::clone(&followed.ids),
        };
        let last = std::mem::replace(&mut *self.published(), next);
        // Workers need not wait for the end of what was.
        drop(last);
        let last = (&**state.table.config(), provider.as_ref());
        follow_push(&self.0.push, Some(last), (table.config(), policies.push()));
        let old = std::mem::replace(&mut state.table, table);
        self.0.generation.fetch_add(1, Ordering::Release);
        state.replaced.push(old);
        state.replaced.retain(|table| Arc::strong_count(table) > 1);
        self.0.changes.tell();
        drop(guard);
        let unopened = doors.turn(&followed, bound);
        self.state().problems.extend(unopened);
    }
}

/// Returns the problems that keep a configuration from being applied as a whole.
fn problems(staged: &Staged, next: &NextFronts) -> Vec<Problem> {
    let mut problems = staged.problems.clone();
    problems.extend_from_slice(&next.problems);
    for unresolved in unresolved_parts(staged.table.config()) {
        // A plan that could not be compiled without it has been reported.
        if problems.iter().all(|problem| problem.place != unresolved.place) {
            problems.push(unresolved);
        }
    }
    problems
}

/// What push follows: a configuration, and the provider whose tokens clients show.
type Followable<'a> = (&'a Config, Option<&'a Arc<policy::jwt::Provider>>);

/// Has push follow a configuration. One without it leaves push as it is: no rule leads there any more, and connected clients stay.
pub(super) fn follow_push(push: &Push, last: Option<Followable<'_>>, (config, provider): Followable<'_>) {
    let Some(settings) = &config.push else { return };
    let is_same = |(last, before): Followable<'_>| {
        last.push.as_ref() == Some(settings) && before.map(Arc::as_ptr) == provider.map(Arc::as_ptr)
    };
    if last.is_some_and(is_same) {
        return;
    }
    let keys = provider.map(|provider| Arc::clone(provider) as Arc<dyn KeySource>);
    let drain = config.limits.drain;
    let replaced = settings
        .options(keys)
        .map(|options| Options { drain, ..options })
        .and_then(|options| push.replace(options).map_err(|error| error.to_string()));
    if let Err(error) = replaced {
        // Among the problems of what was staged.
        log::error!("push stays as it was: {error}");
    }
}
