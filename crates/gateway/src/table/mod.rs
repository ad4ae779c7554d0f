//! The compiled model: from a connection's address and host to a listener, from a request to the rule that takes it.
//!
//! ```text
//! address, SNI or host ─▶ listener ─▶ hosts: exact, wildcards, any ─▶ tree of path segments ─▶ predicates ─▶ rule, plan
//! ```
//!
//! A [`Table`] is immutable. The next one shares with it each unchanged route, and each host whose routes are unchanged.
//! Errors are reported as [`Problem`]s, part by part; all other parts are served.
//!
//! # Precedence of rules
//!
//! Only routes of the request's listener are checked. Of the matches that apply, the first in this order takes the request:
//!
//! 1. host: the exact one, then the wildcard with the longest suffix, then routes for every host;
//! 2. path: exact, then regular expressions, then the longest prefix (the length of an expression has no meaning, so
//!    expressions are ordered by the following criteria);
//! 3. a match with a method before one without;
//! 4. more headers;
//! 5. more query parameters;
//! 6. the order of routes, then of rules, then of matches.
//!
//! So if a route for an exact host has no match for a path, the request falls to a wildcard's route, and from a prefix whose
//! predicates fail to a shorter one. This is the order of the Gateway API, which leaves the position of expressions open; here they
//! have the position that most gateways give them.
//!
//! # Parts with problems
//!
//! Partial service is for configurations with many owners alone: a file is accepted as a whole or not at all.
//!
//! A listener or upstream that cannot be served is left out, and so is a route whose listeners are. No other listener of its addresses
//! receives the requests for its hosts. A rule that cannot be compiled, or whose route is too large or has the name of another, answers
//! with 500: if it were left out, its requests would fall to a wider rule that may be less strict. An upstream that does not exist
//! answers with 500 for its share alone.

mod address;
mod check;
mod compiled_route;
mod describe;
mod explain;
mod explain_stream;
mod host_map;
mod list_diff;
mod name_index;
mod path_tree;
mod problem;
mod request;
mod request_facts;
mod route_index;
mod successor;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use crate::model::{Action, Config, Listener, Name, Policy, Route, Rule, StreamRoute};
use address::AddressTable;
#[cfg(test)]
pub(crate) use address::host_specificity;
pub use address::{AddressId, ListenerId};
pub(crate) use check::unresolved_parts;
use check::{CheckedConfig, CleanParts, NameSet, RouteChecks};
pub use compiled_route::{CompiledRoute, Matched};
pub use describe::describe_steps;
pub use explain::{Explanation, RejectedMatch, RejectionReason, SelectedRule};
pub use explain_stream::{SelectedStream, StreamExplanation};
pub(crate) use host_map::ByHost;
use host_map::{HostMap, StreamMap};
pub(crate) use list_diff::{ListDiff, have_same_objects};
pub use problem::{ConfigPart, Consequence, Problem};
pub(crate) use request::{announced_method, cors_policy, is_token};
pub(crate) use request_facts::matches_header;
pub use request_facts::{Headers, RequestFacts, normalize_host};
use route_index::RouteIndex;
use successor::{guards_paths, is_guarded};

/// Builds the data plane's plan of a rule, once for each version of its route.
///
/// Receives the names of upstreams that do not exist; their share of requests is answered with 500. An error is the reason that the
/// rule cannot be served: its requests are answered with 500. For such a rule the planner is also called with each filter alone, in a
/// rule without other parts that serves no requests, so that every error is reported at once.
pub type Planner<'p, P> = &'p mut dyn FnMut(&Rule, &[Name]) -> Result<P, String>;

/// A compiled configuration. `P` is the data plane's plan of a rule.
#[derive(Debug)]
pub struct Table<P> {
    config: Arc<Config>,
    listeners: Box<[AttachedListener<P>]>,
    addresses: Arc<AddressTable>,
    routes: RouteIndex<P>,
    problems: Box<[Problem]>,
    /// Derived when the next table needs it, unless this one was compiled as a whole.
    clean: OnceLock<CleanParts>,
    /// The names of valid upstreams.
    upstream_names: NameSet,
    /// The numbers of the routes that were compiled for this table.
    compiled: Box<[u32]>,
}

/// A listener with its routes.
#[derive(Debug)]
struct AttachedListener<P> {
    listener: Arc<Listener>,
    hosts: Arc<HostMap<P>>,
    streams: Arc<StreamMap>,
    guards_paths: bool,
}

impl<P> Clone for AttachedListener<P> {
    fn clone(&self) -> AttachedListener<P> {
        AttachedListener {
            listener: Arc::clone(&self.listener),
            hosts: Arc::clone(&self.hosts),
            streams: Arc::clone(&self.streams),
            guards_paths: self.guards_paths,
        }
    }
}

impl<P> Table<P> {
    /// Compiles a configuration. Parts that equal those in `last` are shared with it.
    #[must_use]
    pub fn compile(config: Arc<Config>, last: Option<&Table<P>>, plan: Planner<'_, P>) -> Table<P> {
        Table::compile_with_stale(config, last, None, plan)
    }

    /// Like [`Table::compile`], but shares no routes of `last` that are `stale`: their plans depend on more than the routes themselves.
    /// `stale` is `None` if there are none.
    pub(crate) fn compile_with_stale(
        config: Arc<Config>,
        last: Option<&Table<P>>,
        stale: Option<&dyn Fn(&Route) -> bool>,
        plan: Planner<'_, P>,
    ) -> Table<P> {
        if let Some(last) = last.filter(|_| stale.is_none())
            && let Some(next) = last.succeed(&config, plan)
        {
            return next;
        }
        Table::compile_whole(config, last, stale.unwrap_or(&|_| false), plan)
    }

    fn compile_whole(
        config: Arc<Config>,
        last: Option<&Table<P>>,
        stale: &dyn Fn(&Route) -> bool,
        plan: Planner<'_, P>,
    ) -> Table<P> {
        let clean = last.map(|last| last.clean.get_or_init(|| last.derive_clean()));
        let names = last.map(|last| &last.upstream_names);
        let mut checked = CheckedConfig::new(&config, clean.zip(names));
        let mut routes = Vec::with_capacity(checked.routes.len());
        let mut compiled = Vec::new();
        let mut clean_routes = Vec::with_capacity(checked.routes.len());
        let mut shared_routes = BTreeMap::new();
        for (number, listed) in (0..).zip(std::mem::take(&mut checked.routes)) {
            let route = listed.route;
            let unchanged = checked.unchanged(&listed).filter(|_| !stale(route));
            if let Some((last, at)) = last.zip(unchanged) {
                clean_routes.push((Arc::as_ptr(route).addr(), number));
                routes.push(Arc::clone(&last.routes.routes()[at as usize]));
                continue;
            }
            let last = last.and_then(|last| last.routes.find(&route.name));
            let last = last.filter(|_| !stale(route));
            let problems = checked.problems.len();
            let substitute = listed.replacement();
            let substituted = substitute.as_ref().unwrap_or(route);
            let shared = compile_route(substituted, last, &mut checked.route_checks(), plan);
            if listed.rejection.is_none() && checked.problems.len() == problems && shared.is_clean() {
                clean_routes.push((Arc::as_ptr(shared.route()).addr(), number));
            }
            if !Arc::ptr_eq(shared.route(), route) && listed.rejection.is_none() {
                shared_routes.insert(Arc::as_ptr(route), Arc::clone(shared.route()));
            }
            compiled.push(number);
            routes.push(shared);
        }
        let listeners = attach_listeners(&checked, &routes, last);
        let addresses = AddressTable::new(&checked.listeners, &checked.left_out);
        let clean = checked.clean_parts(clean_routes);
        let CheckedConfig {
            upstreams, problems, ..
        } = checked;
        let config = reuse_routes(config, &shared_routes);
        Table {
            listeners,
            addresses: Arc::new(addresses),
            routes: RouteIndex::new(routes),
            problems: problems.into_boxed_slice(),
            clean: OnceLock::from(clean),
            upstream_names: upstreams,
            compiled: compiled.into(),
            config,
        }
    }

    /// Returns the parts that have no problems, of a table without any.
    fn derive_clean(&self) -> CleanParts {
        let routes = (0..).zip(self.routes.routes());
        let routes = routes.filter(|(_, route)| route.is_clean());
        let routes = routes.map(|(number, route)| (Arc::as_ptr(route.route()).addr(), number));
        let upstreams = self.config.upstreams.iter();
        let listeners = self.listeners.iter().map(|attached| &attached.listener);
        CleanParts::new(routes.collect(), upstreams, listeners)
    }

    /// Returns the routes that were compiled for this table; all others are those of tables before it.
    pub(crate) fn compiled_routes(&self) -> impl Iterator<Item = &Arc<CompiledRoute<P>>> {
        let numbers = self.compiled.iter();
        numbers.map(|number| &self.routes.routes()[*number as usize])
    }

    /// Returns the configuration that was compiled.
    #[must_use]
    pub fn config(&self) -> &Arc<Config> {
        &self.config
    }

    /// Returns the errors of parts that could not be served as configured. Empty: there are none.
    #[must_use]
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the routes that are served, in their order.
    pub fn routes(&self) -> impl ExactSizeIterator<Item = &Arc<CompiledRoute<P>>> {
        self.routes.routes().iter()
    }

    /// Returns the listeners that are served.
    pub fn listeners(&self) -> impl Iterator<Item = (ListenerId, &Arc<Listener>)> {
        let listeners = (0..).map(ListenerId).zip(&self.listeners);
        listeners.map(|(id, attached)| (id, &attached.listener))
    }

    /// Returns a listener.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's listeners.
    #[must_use]
    pub fn listener(&self, id: ListenerId) -> &Arc<Listener> {
        &self.listeners[id.0 as usize].listener
    }

    /// Returns whether a rule of a listener has policies for a part of its paths.
    ///
    /// # Panics
    /// `id` is of another table and beyond this one's listeners.
    #[must_use]
    pub fn guards_paths(&self, id: ListenerId) -> bool {
        self.listeners[id.0 as usize].guards_paths
    }

    /// Returns the addresses to listen on, each with its listeners.
    #[must_use]
    pub fn addresses(&self) -> &AddressTable {
        &self.addresses
    }

    /// Returns the rule that takes a request at a listener. `None`: no rule does, 404. Allocates nothing, except that a regular expression
    /// may on its first use on a thread.
    ///
    /// # Panics
    /// `listener` is of another table and beyond this one's listeners.
    #[must_use]
    pub fn find(&self, listener: ListenerId, facts: &RequestFacts<'_>) -> Option<Matched<'_, P>> {
        let hosts = &self.listeners[listener.0 as usize].hosts;
        hosts.find(facts)
    }

    /// Returns the stream route that takes a connection. `None`: the connection is closed.
    ///
    /// # Panics
    /// `listener` is of another table and beyond this one's listeners.
    #[must_use]
    pub fn find_stream(&self, listener: ListenerId, sni: Option<&str>) -> Option<&Arc<StreamRoute>> {
        self.listeners[listener.0 as usize]
            .streams
            .find(sni.unwrap_or_default())
    }

    /// Returns whether the routes of a host are the same objects in both tables, not just equal.
    #[cfg(test)]
    fn shares_host(&self, other: &Table<P>, listener: usize, host: &str) -> bool {
        let host = crate::model::Hostname::parse(host).expect("a hostname");
        let of = |table: &Table<P>| table.listeners[listener].hosts.find_exact(Some(&host)).cloned();
        matches!((of(self), of(other)), (Some(own), Some(other)) if Arc::ptr_eq(&own, &other))
    }
}

/// Attaches routes to the listeners. Hosts that are those of the last table are shared with it.
fn attach_listeners<P>(
    checked: &CheckedConfig<'_>,
    routes: &[Arc<CompiledRoute<P>>],
    last: Option<&Table<P>>,
) -> Box<[AttachedListener<P>]> {
    let guarding = routes.iter().map(|route| &**route.route());
    let guarding: Vec<&Route> = guarding.filter(|route| guards_paths(route)).collect();
    let mut builder = host_map::HostMapBuilder::new(routes, &checked.streams);
    let last_listeners = last.iter().flat_map(|last| &last.listeners);
    let last_listeners: BTreeMap<&Name, &AttachedListener<P>> = last_listeners
        .map(|attached| (&attached.listener.name, attached))
        .collect();
    let listeners = checked.listeners.iter().map(|listener| {
        let last = last_listeners.get(&listener.name);
        let (hosts, streams) = builder.attach_listener(listener, last.map(|last| &*last.hosts));
        AttachedListener {
            listener: Arc::clone(listener),
            hosts,
            streams,
            guards_paths: is_guarded(listener, &guarding),
        }
    });
    listeners.collect()
}

/// Replaces routes that equal the last configuration's by those, so that none is held twice.
fn reuse_routes(mut config: Arc<Config>, shared_routes: &BTreeMap<*const Route, Arc<Route>>) -> Arc<Config> {
    if !shared_routes.is_empty() {
        for route in &mut Arc::make_mut(&mut config).routes {
            if let Some(last) = shared_routes.get(&Arc::as_ptr(route)) {
                *route = Arc::clone(last);
            }
        }
    }
    config
}

/// Compiles a route; returns the last table's if it is unchanged.
fn compile_route<P>(
    route: &Arc<Route>,
    last: Option<&Arc<CompiledRoute<P>>>,
    checks: &mut RouteChecks<'_>,
    plan: Planner<'_, P>,
) -> Arc<CompiledRoute<P>> {
    let missing = checks.missing_upstreams(route);
    if let Some(last) = last.filter(|last| last.is_current(route, &missing)) {
        return Arc::clone(last);
    }
    let faults: Vec<_> = (0..route.rules.len())
        .map(|number| checks.check_rule(route, number))
        .collect();
    let mut plans = Vec::with_capacity(faults.len());
    for (number, (rule, fault)) in route.rules.iter().zip(faults).enumerate() {
        let is_reported = fault.is_some() || matches!(rule.action, Action::Broken { .. });
        let mut report = |part, expected: &str, found: &str| {
            let place = ConfigPart::Route(route.name.clone(), Some(number));
            checks
                .problems
                .report(place, part, expected, found, Consequence::Responds500);
        };
        let planned = match (fault, &rule.action) {
            (Some(fault), _) => Err(Arc::from(fault)),
            (None, Action::Broken { reason }) => Err(Arc::clone(reason)),
            (None, _) => plan(rule, &missing).map_err(Arc::from),
        };
        if let Err(fault) = &planned {
            let unknown = filter_errors(rule, plan);
            for found in &unknown {
                report("policies.filters", "a filter of this program", found);
            }
            let is_known = is_reported || unknown.iter().any(|found| **found == **fault);
            if !is_known {
                report("plan", "a rule that can be carried out", fault);
            }
        }
        plans.push(planned);
    }
    Arc::new(CompiledRoute::new(
        Arc::clone(route),
        plans.into(),
        missing.into(),
    ))
}

/// Returns the errors of each filter of a rule that cannot be served: each is planned alone.
fn filter_errors<P>(rule: &Rule, plan: Planner<'_, P>) -> Vec<String> {
    let filters = rule
        .policies
        .iter()
        .filter(|policy| matches!(policy, Policy::Filter(_)));
    let single_filter = filters.map(|policy| {
        let mut single_filter = Rule::new(Action::Broken {
            reason: Arc::default(),
        });
        single_filter.policies = vec![policy.clone()];
        single_filter
    });
    single_filter.filter_map(|rule| plan(&rule, &[]).err()).collect()
}
