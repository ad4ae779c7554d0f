//! Compiles a table of which only some routes and upstreams differ from those of the last one, without reading any other part.
//!
//! Owns the conditions for that: the last table has no problems, neither have the changed parts, and all other parts are the same objects.
//! Otherwise the configuration is compiled as a whole, with the same result.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use super::check::{ListenersByName, NameSet, ProblemList, RouteChecks, check_changed_upstreams, rules};
use super::compiled_route::CompiledRoute;
use super::host_map::{HostChanges, HostMap};
use super::list_diff::{ListDiff, have_same_objects};
use super::{AttachedListener, Planner, Table, compile_route};
use crate::model::{Config, Listener, Name, Route, Rule};

/// The names of upstreams that only one of two configurations has.
struct UpstreamChanges<'c> {
    added: BTreeSet<&'c Name>,
    removed: BTreeSet<&'c Name>,
}

impl<P> Table<P> {
    /// Compiles the next table from this one. `None`: it has to be compiled as a whole. `plan` may have been called for some of its rules.
    pub(super) fn succeed(&self, config: &Arc<Config>, plan: Planner<'_, P>) -> Option<Table<P>> {
        let last = &self.config;
        let has_same_rest = have_same_objects(&last.listeners, &config.listeners)
            && have_same_objects(&last.certificates, &config.certificates)
            && have_same_objects(&last.authorities, &config.authorities)
            && have_same_objects(&last.streams, &config.streams);
        if !self.problems.is_empty() || !has_same_rest {
            return None;
        }
        let mut problems = ProblemList::default();
        let upstreams = self.changed_upstreams(config, &mut problems)?;
        let diff = ListDiff::of(&last.routes, &config.routes);
        if !upstreams.removed.is_empty() && self.any_unchanged_refers_to(&diff, &upstreams.removed) {
            return None;
        }
        let names = self.upstream_names.with(&upstreams.added, &upstreams.removed);
        let changed = self.compile_changed(config, &diff, &names, &mut problems, plan)?;
        let routes = self.routes.replace(&diff, &changed);
        let has_guards = |routes: &[Arc<CompiledRoute<P>>]| {
            let mut routes = routes.iter();
            routes.any(|route| guards_paths(route.route()))
        };
        let old = &self.routes.routes()[diff.old.clone()];
        // A listener that such a route was or is attached to.
        let rechecks_guards = has_guards(old) || has_guards(&changed);
        let mut next = Table {
            listeners: self.attach_changed(&diff, &changed),
            addresses: Arc::clone(&self.addresses),
            routes,
            problems: Box::default(),
            clean: OnceLock::new(),
            upstream_names: names,
            compiled: diff.new.clone().filter_map(|at| u32::try_from(at).ok()).collect(),
            config: Arc::clone(config),
        };
        if rechecks_guards {
            next.set_guards();
        }
        Some(next)
    }

    /// Compares the upstreams. `None`: their change needs more than the changed ones.
    fn changed_upstreams<'c>(
        &'c self,
        config: &'c Config,
        problems: &mut ProblemList,
    ) -> Option<UpstreamChanges<'c>> {
        let diff = ListDiff::of(&self.config.upstreams, &config.upstreams);
        let old = self.config.upstreams[diff.old.clone()].iter();
        let old: BTreeSet<&Name> = old.map(|upstream| &upstream.name).collect();
        let changed = &config.upstreams[diff.new];
        let new: BTreeSet<&Name> = changed.iter().map(|upstream| &upstream.name).collect();
        let added: BTreeSet<&Name> = new.difference(&old).copied().collect();
        let removed: BTreeSet<&Name> = old.difference(&new).copied().collect();
        let is_duplicate = new.len() < changed.len();
        let is_duplicate = is_duplicate || added.iter().any(|name| self.upstream_names.contains(name));
        // Streams were checked with the upstreams that they lead to.
        let are_same = old.is_empty() && new.is_empty();
        if is_duplicate || !(config.streams.is_empty() || are_same) {
            return None;
        }
        check_changed_upstreams(config, changed, problems).then_some(UpstreamChanges { added, removed })
    }

    fn any_unchanged_refers_to(&self, diff: &ListDiff, removed: &BTreeSet<&Name>) -> bool {
        let routes = &self.config.routes;
        let mut unchanged = routes[..diff.old.start].iter().chain(&routes[diff.old.end..]);
        unchanged.any(|route| rules::upstream_targets(route).any(|(.., name)| removed.contains(name)))
    }

    /// Compiles the changed routes. `None`: a changed route has a problem.
    fn compile_changed(
        &self,
        config: &Config,
        diff: &ListDiff,
        upstreams: &NameSet,
        problems: &mut ProblemList,
        plan: Planner<'_, P>,
    ) -> Option<Vec<Arc<CompiledRoute<P>>>> {
        let listeners: ListenersByName<'_> =
            config.listeners.iter().map(|part| (&*part.name, part)).collect();
        let mut names: BTreeSet<&Name> = BTreeSet::new();
        let mut compiled = Vec::with_capacity(diff.new.len());
        for route in &config.routes[diff.new.clone()] {
            let is_unchanged = |number: usize| !diff.old.contains(&number);
            let is_duplicate = self.routes.number(&route.name).is_some_and(is_unchanged);
            if is_duplicate || !names.insert(&route.name) {
                return None;
            }
            if !rules::check_listeners(route, &listeners, problems) || !rules::check_counts(route, problems) {
                return None;
            }
            let mut checks = RouteChecks {
                upstreams,
                problems: &mut *problems,
            };
            let last = self.routes.find(&route.name);
            compiled.push(compile_route(route, last, &mut checks, plan));
            if !problems.is_empty() {
                return None;
            }
        }
        Some(compiled)
    }

    /// Returns the listeners with their changed hosts.
    fn attach_changed(
        &self,
        diff: &ListDiff,
        changed: &[Arc<CompiledRoute<P>>],
    ) -> Box<[AttachedListener<P>]> {
        let old = &self.routes.routes()[diff.old.clone()];
        let touched = old.iter().chain(changed).map(|route| &route.route().listeners);
        let is_everywhere = touched.clone().any(Vec::is_empty);
        let touched: BTreeSet<&Name> = touched.flatten().collect();
        // Listeners with the same hosts and the same changes share the next hosts, too.
        let mut known: BTreeMap<_, Arc<HostMap<P>>> = BTreeMap::new();
        let attach = |attached: &AttachedListener<P>| {
            let name = &attached.listener.name;
            let is_touched = is_everywhere || touched.contains(name);
            if !is_touched || !attached.listener.protocol.is_http() {
                return attached.clone();
            }
            let is_attached = |route: &&Arc<CompiledRoute<P>>| route.route().attaches_to(name);
            let numbered = diff.new.clone().zip(changed);
            let changes = HostChanges {
                old: old.iter().filter(is_attached).collect(),
                new: numbered.filter(|(_, route)| is_attached(route)).collect(),
            };
            let hosts = known.entry((Arc::as_ptr(&attached.hosts).addr(), changes.addresses()));
            let hosts = hosts.or_insert_with(|| {
                let position = |route: &CompiledRoute<P>| {
                    let number = self.routes.number(&route.route().name);
                    number.and_then(|number| diff.moved(number))
                };
                Arc::new(attached.hosts.succeed(&changes, &position))
            });
            AttachedListener {
                hosts: Arc::clone(hosts),
                ..attached.clone()
            }
        };
        self.listeners.iter().map(attach).collect()
    }

    /// Determines the listeners that have a route with policies for a part of its paths.
    fn set_guards(&mut self) {
        let routes = self.routes.routes().iter().map(|route| &**route.route());
        let guarding: Vec<&Route> = routes.filter(|route| guards_paths(route)).collect();
        for attached in &mut self.listeners {
            attached.guards_paths = is_guarded(&attached.listener, &guarding);
        }
    }
}

/// Returns whether a route has policies for a part of its paths.
pub(super) fn guards_paths(route: &Route) -> bool {
    route.rules.iter().any(Rule::guards_path)
}

/// Returns whether one of these routes is attached to a listener.
pub(super) fn is_guarded(listener: &Listener, guarding: &[&Route]) -> bool {
    guarding.iter().any(|route| route.attaches_to(&listener.name))
}
