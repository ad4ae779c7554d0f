//! From a configuration to what the data plane has of it: upstreams by name, plans of rules, what is wrong.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use crate::metrics::Metrics;
use crate::model::{Config, Route};
use crate::plan::Plan;
use crate::policy::{self, Guards, leads_to};
use crate::table::{Compiled, Outcome, Place, Problem, Table};
use crate::upstream::registry::Registry;

/// Compiles a configuration. What is the same as in `last` is shared with it. `now` is wall time since 1970.
pub(crate) fn compile(
    config: Arc<Config>,
    last: Option<&Table<Plan>>,
    registry: &mut Registry,
    known: &mut policy::Registry,
    metrics: &Metrics,
    now: Duration,
) -> Arc<Table<Plan>> {
    let mut names = BTreeSet::new();
    for upstream in &config.upstreams {
        // Of two with one name the first counts.
        if names.insert(upstream.name.clone()) {
            registry.put(upstream, &config, now);
        }
    }
    registry.retain(|name| names.contains(name));
    registry.room().resize(config.limits.upstream_connections);
    // Without the key push goes on as it was.
    if let Some(push) = &config.push
        && let Err(why) = known.follow_push(push, registry)
    {
        log::error!("push: {why}");
    }
    let before = known.guard(Guards::of(&config));
    let changed = known.guards().changed(&before);
    // What another rule's policies write is part of this one's plan.
    let stale = |route: &Route| leads_to(route, &changed);
    let mut plan = |rule: &_, missing: &[_]| Plan::of(rule, missing, registry, known);
    let table = Table::compile_but(config, last, &stale, &mut plan);
    for route in table.routes() {
        // One that is shared with the last table has its number already.
        for plan in plans(route).filter(|plan| plan.number.get().is_none()) {
            let name = &route.route().name;
            for backend in &plan.backends {
                let upstream = backend.upstream.as_ref().map(|upstream| &upstream.name);
                backend
                    .series
                    .get_or_init(|| metrics.series_number(name, upstream));
            }
            plan.number.get_or_init(|| metrics.series_number(name, None));
        }
    }
    known.retain(
        table
            .routes()
            .flat_map(|route| plans(route))
            .map(|plan| &plan.policies),
    );
    Arc::new(table)
}

/// The plans of a route's rules that have one.
fn plans(route: &Compiled<Plan>) -> impl Iterator<Item = &Plan> {
    let rules = 0..route.route().rules.len();
    rules.filter_map(|rule| route.plan(rule).ok())
}

/// What a registry has found wrong: upstreams that no connection can be made to.
pub(crate) fn problems(registry: &Registry) -> Vec<Problem> {
    let mut all = Vec::new();
    for shared in registry.iter() {
        let current = shared.current();
        if let Some(Err(why)) = &current.transport.connector {
            all.push(Problem {
                place: Place::Upstream(shared.name.clone()),
                part: "tls",
                expected: "what a connection can be made with".to_owned(),
                found: why.clone(),
                outcome: Outcome::LeftOut,
            });
        }
    }
    all
}
