//! Compiles a configuration: upstreams by name, plans of rules, problems.
//!
//! ```text
//! stage ─▶ Staged { table, problems } ─┬─▶ commit: upstreams, limits and numbers follow
//!                                      └─▶ discard: all is as it was
//! ```
//!
//! Start, reload and `check` all compile here, so that they report the same problems.

pub(crate) mod plan;

use std::sync::Arc;
use std::time::Duration;

use crate::compile::plan::Plan;
use crate::model::{Config, Name, Route};
use crate::policy::{self, targets_any};
use crate::stats::Metrics;
use crate::table::{CompiledRoute, ConfigPart, Consequence, Problem, Table};
use crate::upstream::registry::UpstreamRegistry;

/// A compiled configuration that does not serve yet.
#[derive(Debug)]
pub(crate) struct StagedConfig {
    pub(crate) table: Arc<Table<Plan>>,
    /// All problems except those of listeners' TLS.
    pub(crate) problems: Vec<Problem>,
    previous_policies: policy::PolicySnapshot,
}

impl StagedConfig {
    /// Returns the provider that validated tokens of push clients before.
    pub(crate) fn previous_push_provider(&self) -> Option<&Arc<policy::jwt::KeyProvider>> {
        self.previous_policies.push_provider()
    }
}

/// State that outlives a change of configuration and that compiling needs.
#[derive(Debug)]
pub(crate) struct Registries {
    pub(crate) upstreams: UpstreamRegistry,
    /// State of policies.
    pub(crate) policies: policy::PolicyRegistry,
}

impl Registries {
    /// Compiles a configuration. Parts that equal those in `last` are shared with it. `now` is the time since the Unix epoch. Nothing
    /// changes before [`Registries::commit`]; [`Registries::discard`] undoes the preparation.
    pub(crate) fn stage(
        &mut self,
        config: Arc<Config>,
        last: Option<&Table<Plan>>,
        now: Duration,
    ) -> StagedConfig {
        let Registries { upstreams, policies } = self;
        let before = policies.before();
        let last_config = last.map(|last| &**last.config());
        upstreams.stage(&config, last_config, now);
        let mut push_problems = Vec::new();
        // Without a `push` key, push remains as it was.
        if let Some(push) = &config.push {
            let followed = policies.set_push_provider(push, upstreams);
            let keys = policies.push_provider().map(|provider| Arc::clone(provider) as _);
            let checked = followed.and_then(|()| push.options(keys).map(drop));
            push_problems.extend(checked.err().map(push_problem));
        }
        let reserved = before.reserved_headers().follow(last_config, &config);
        policies.set_reserved_headers(reserved);
        let changed = policies
            .reserved_headers()
            .changed_upstreams(before.reserved_headers());
        // A plan includes the header fields that other rules' policies write.
        let is_stale = |route: &Route| targets_any(route, &changed);
        let stale: Option<&dyn Fn(&Route) -> bool> = (!changed.is_empty()).then_some(&is_stale);
        let mut plan = |rule: &_, missing: &[_]| Plan::compile(rule, missing, upstreams, policies);
        let table = Table::compile_with_stale(config, last, stale, &mut plan);
        let mut problems = table.problems().to_vec();
        problems.extend(
            upstreams
                .invalid_tls()
                .map(|(name, why)| upstream_problem(name, why)),
        );
        problems.extend(push_problems);
        StagedConfig {
            table: Arc::new(table),
            problems,
            previous_policies: before,
        }
    }

    /// Applies a staged configuration. Returns its table and its problems.
    pub(crate) fn commit(
        &mut self,
        staged: StagedConfig,
        metrics: &Metrics,
    ) -> (Arc<Table<Plan>>, Vec<Problem>) {
        let StagedConfig {
            table,
            problems,
            previous_policies: before,
        } = staged;
        drop(before);
        self.upstreams.commit();
        let room = table.config().limits.upstream_connections;
        self.upstreams.connection_budget().set_limit(room);
        for route in table.compiled_routes() {
            // The plan of an equal route of the last table has its number already.
            for plan in route_plans(route).filter(|plan| plan.number.get().is_none()) {
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
        let routes = table.routes();
        let plans = routes.flat_map(|route| route_plans(route));
        self.policies.retain(plans.map(|plan| &plan.policies));
        (table, problems)
    }

    /// Discards a staged configuration.
    pub(crate) fn discard(&mut self, staged: StagedConfig) {
        // Plans hold counters, which are released with their last holder.
        drop(staged.table);
        self.policies.restore(staged.previous_policies);
        self.upstreams.discard();
    }
}

/// Returns the plans of a route's rules, as far as they have one.
fn route_plans(route: &CompiledRoute<Plan>) -> impl Iterator<Item = &Plan> {
    let rules = 0..route.route().rules.len();
    rules.filter_map(|rule| route.plan(rule).ok())
}

/// Returns the problem of an upstream that cannot be connected to.
fn upstream_problem(name: &Name, why: String) -> Problem {
    Problem {
        part: ConfigPart::Upstream(name.clone()),
        field: "tls",
        expected: "valid TLS settings".to_owned(),
        found: why,
        consequence: Consequence::Omitted,
    }
}

fn push_problem(why: String) -> Problem {
    let why = why.strip_prefix("expected ").unwrap_or(&why);
    let (expected, found) = why
        .rsplit_once(", found ")
        .unwrap_or(("valid push settings", why));
    Problem {
        part: ConfigPart::Push,
        field: "push",
        expected: expected.to_owned(),
        found: found.to_owned(),
        consequence: Consequence::Unchanged,
    }
}
