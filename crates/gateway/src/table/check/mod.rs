//! Checks across parts of a configuration: names that do not exist, parts that exclude each other, numbers out of range. One
//! function for each kind of part; each reports every error that it finds.

mod datagrams;
mod listeners;
pub(super) mod rules;
mod services;
mod unresolved;
mod upstreams;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::name_index::{HashSlots, hash_text};
use super::problem::{ConfigPart, Consequence, Problem};
use crate::model::{
    Action, Authorities, Certificate, Config, Listener, Name, Route, Rule, StreamRoute, Target, Upstream,
    WeightedBackend,
};

use datagrams::DatagramUpstreams;
pub(crate) use unresolved::unresolved_parts;

/// The valid parts of a configuration, and the errors of the others.
pub(super) struct CheckedConfig<'c> {
    pub(super) listeners: Vec<&'c Arc<Listener>>,
    /// Listeners that are left out: no other listener of their addresses receives requests for their hosts.
    pub(super) left_out: Vec<&'c Arc<Listener>>,
    /// Routes with a listener; their rules are checked one by one.
    pub(super) routes: Vec<CheckedRoute<'c>>,
    pub(super) streams: Vec<Arc<StreamRoute>>,
    /// The names of valid upstreams.
    pub(super) upstreams: NameSet,
    /// Every upstream of the last configuration exists.
    has_last_upstreams: bool,
    valid_upstreams: Vec<&'c Arc<Upstream>>,
    pub(super) problems: ProblemList,
}

/// A route, and the reason that it cannot be served as a whole, if there is one.
#[derive(Clone, Copy)]
pub(super) struct CheckedRoute<'c> {
    pub(super) route: &'c Arc<Route>,
    pub(super) rejection: Option<RouteRejection>,
    /// The route is one of the last table, which had no problem with it: its number there.
    pub(super) unchanged: Option<u32>,
}

/// The parts of a table that it had no problems with. The next table need not check those that are the same objects.
#[derive(Debug, Default)]
pub(super) struct CleanParts {
    /// Addresses of routes, each with its number in the table; sorted.
    routes: Box<[(usize, u32)]>,
    /// Addresses of upstreams that depend on no other part; sorted.
    upstreams: Box<[usize]>,
    /// Each listener that is served, and whether its protocol is HTTP.
    listeners: Box<[(Name, bool)]>,
}

impl CleanParts {
    /// Collects the parts. `routes` are the addresses of routes with their numbers.
    pub(super) fn new<'c>(
        mut routes: Vec<(usize, u32)>,
        upstreams: impl Iterator<Item = &'c Arc<Upstream>>,
        listeners: impl Iterator<Item = &'c Arc<Listener>>,
    ) -> CleanParts {
        routes.sort_unstable();
        let independent = upstreams.filter(|upstream| upstream.tls.is_none());
        let mut upstreams: Vec<usize> = independent.map(|part| Arc::as_ptr(part).addr()).collect();
        upstreams.sort_unstable();
        CleanParts {
            routes: routes.into(),
            upstreams: upstreams.into(),
            listeners: listeners
                .map(|part| (Arc::clone(&part.name), part.protocol.is_http()))
                .collect(),
        }
    }

    fn has_upstream(&self, upstream: &Arc<Upstream>) -> bool {
        self.upstreams
            .binary_search(&Arc::as_ptr(upstream).addr())
            .is_ok()
    }

    fn route(&self, route: &Arc<Route>) -> Option<u32> {
        let address = Arc::as_ptr(route).addr();
        let found = self
            .routes
            .binary_search_by_key(&address, |(address, _)| *address);
        found.ok().map(|at| self.routes[at].1)
    }

    /// Returns the listeners that are not among these any more, or have another protocol.
    fn removed_listeners(&self, listeners: &ListenersByName<'_>) -> BTreeSet<&str> {
        let is_same = |(name, is_http): &&(Name, bool)| {
            let listener = listeners.get(&**name);
            listener.is_some_and(|listener| listener.protocol.is_http() == *is_http)
        };
        let removed = self.listeners.iter().filter(|listener| !is_same(listener));
        removed.map(|(name, _)| &**name).collect()
    }
}

/// A set of names. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct NameSet {
    /// Sorted.
    names: Arc<[Name]>,
}

impl NameSet {
    fn new(names: impl Iterator<Item = Name>) -> NameSet {
        let mut names: Vec<_> = names.collect();
        names.sort_unstable();
        NameSet { names: names.into() }
    }

    /// Returns the set with names that it does not have, and without some that it has.
    pub(super) fn with(&self, added: &BTreeSet<&Name>, removed: &BTreeSet<&Name>) -> NameSet {
        if added.is_empty() && removed.is_empty() {
            return self.clone();
        }
        let staying = self.names.iter().filter(|name| !removed.contains(name));
        NameSet::new(staying.chain(added.iter().copied()).cloned())
    }

    pub(super) fn contains(&self, name: &str) -> bool {
        self.names.binary_search_by(|other| (**other).cmp(name)).is_ok()
    }

    /// Returns whether every name of another set is in this one.
    fn has_all(&self, others: &NameSet) -> bool {
        let mut own = self.names.iter();
        others.names.iter().all(|name| {
            // Most names are the same object.
            own.any(|other| Arc::ptr_eq(other, name) || other == name)
        })
    }
}

/// The inputs of the checks of routes.
pub(super) struct RouteChecks<'c> {
    pub(super) upstreams: &'c NameSet,
    pub(super) problems: &'c mut ProblemList,
}

impl RouteChecks<'_> {
    /// Returns the upstreams that a route names and that do not exist.
    pub(super) fn missing_upstreams(&mut self, route: &Route) -> Vec<Name> {
        rules::missing_upstreams(route, self.upstreams, self.problems)
    }

    /// Checks a rule of a route. Returns the reason that it cannot be served.
    pub(super) fn check_rule(&mut self, route: &Route, number: usize) -> Option<String> {
        rules::check_rule(route, number, self.problems)
    }
}

/// Checks some of a configuration's upstreams. Returns whether all can be used.
pub(super) fn check_changed_upstreams(
    config: &Config,
    changed: &[Arc<Upstream>],
    problems: &mut ProblemList,
) -> bool {
    let needs_names = changed.iter().any(|upstream| upstream.tls.is_some());
    let certificates = config.certificates.iter().filter(|_| needs_names);
    let authorities = config.authorities.iter().filter(|_| needs_names);
    let known = KnownNames {
        certificates: certificates.map(|part| &*part.name).collect(),
        authorities: authorities.map(|part| &*part.name).collect(),
    };
    let mut changed = changed.iter();
    changed.all(|upstream| upstreams::check_upstream(upstream, &known, problems))
}

/// The listeners that are served, by name.
pub(super) type ListenersByName<'c> = BTreeMap<&'c str, &'c Arc<Listener>>;

/// The reason that all requests of a route receive 500 instead of matching wider routes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteRejection {
    /// The route exceeds the limit of rules or matches.
    TooManyRules,
    /// An earlier route has the same name.
    DuplicateName,
}

impl CheckedRoute<'_> {
    /// Returns the route that keeps the requests of one that is refused.
    pub(super) fn replacement(&self) -> Option<Arc<Route>> {
        let broken = |reason: &str| {
            Rule::new(Action::Broken {
                reason: reason.into(),
            })
        };
        let rules = match self.rejection? {
            RouteRejection::TooManyRules => vec![broken("its route exceeds the limit of rules or matches")],
            RouteRejection::DuplicateName => {
                let rules = self.route.rules.iter().map(|rule| Rule {
                    matches: rule.matches.clone(),
                    ..broken(DUPLICATE_NAME)
                });
                rules.collect()
            }
        };
        Some(Arc::new(Route {
            rules,
            ..Route::clone(self.route)
        }))
    }
}

const DUPLICATE_NAME: &str = "duplicate route name";

/// The errors found so far.
#[derive(Default)]
pub(super) struct ProblemList(Vec<Problem>);

impl ProblemList {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn into_boxed_slice(self) -> Box<[Problem]> {
        self.0.into()
    }

    pub(super) fn report(
        &mut self,
        place: ConfigPart,
        part: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
        outcome: Consequence,
    ) {
        self.0.push(Problem {
            part: place,
            field: part,
            expected: expected.into(),
            found: found.into(),
            consequence: outcome,
        });
    }

    /// Returns the first part of each name; later ones are left out.
    fn keep_unique<'c, T>(
        &mut self,
        parts: &'c [Arc<T>],
        name_of: impl Fn(&T) -> &Name,
        place: impl Fn(Name) -> ConfigPart,
    ) -> Vec<&'c Arc<T>> {
        let again = self.report_duplicates(parts, name_of, place, Consequence::Omitted);
        let first = parts.iter().zip(again).filter(|(_, again)| !again);
        first.map(|(part, _)| part).collect()
    }

    /// Returns for each part whether an earlier one has its name, which is a problem with this outcome.
    fn report_duplicates<T>(
        &mut self,
        parts: &[Arc<T>],
        name_of: impl Fn(&T) -> &Name,
        place: impl Fn(Name) -> ConfigPart,
        outcome: Consequence,
    ) -> Vec<bool> {
        let mut names = HashSlots::with_capacity(parts.len());
        let is_duplicate = (0..).zip(parts).map(|(index, part)| {
            let name = name_of(part);
            let hash = hash_text(0, name.as_bytes());
            let Some(first) = names.find(hash, |index| name_of(&parts[index as usize]) == name) else {
                names.insert(hash, index);
                return false;
            };
            let found = format!(
                "duplicate `{name}`: number {} has the name of number {}",
                index + 1,
                first + 1
            );
            let expected = "a unique name";
            self.report(place(name.clone()), "name", expected, found, outcome);
            true
        });
        is_duplicate.collect()
    }
}

impl<'c> CheckedConfig<'c> {
    /// Checks all parts except the rules of routes. `last` are parts of the last table, and the names of its upstreams.
    pub(super) fn new(config: &'c Config, last: Option<(&CleanParts, &NameSet)>) -> CheckedConfig<'c> {
        let (last, last_names) = last.unzip();
        let mut problems = ProblemList::default();
        let certificates = problems.keep_unique(
            &config.certificates,
            |part: &Certificate| &part.name,
            ConfigPart::Certificate,
        );
        let certificates: BTreeSet<&str> = certificates.iter().map(|part| &*part.name).collect();
        let authorities = problems.keep_unique(
            &config.authorities,
            |part: &Authorities| &part.name,
            ConfigPart::Authorities,
        );
        let authorities: BTreeSet<&str> = authorities.iter().map(|part| &*part.name).collect();
        let known = KnownNames {
            certificates,
            authorities,
        };
        let mut upstreams = problems.keep_unique(
            &config.upstreams,
            |part: &Upstream| &part.name,
            ConfigPart::Upstream,
        );
        upstreams.retain(|upstream| {
            let is_clean = last.is_some_and(|last| last.has_upstream(upstream));
            is_clean || upstreams::check_upstream(upstream, &known, &mut problems)
        });
        let valid_upstreams = upstreams;
        let upstreams = NameSet::new(valid_upstreams.iter().map(|part| Arc::clone(&part.name)));
        let mut listeners = problems.keep_unique(
            &config.listeners,
            |part: &Listener| &part.name,
            ConfigPart::Listener,
        );
        listeners.retain(|listener| listeners::check_listener(listener, &known, &mut problems));
        listeners::remove_conflicting(&mut listeners, &mut problems);
        let by_name: ListenersByName<'_> = listeners.iter().map(|part| (&*part.name, *part)).collect();
        let served = |listener: &&Arc<Listener>| {
            let of_name = by_name.get(&*listener.name);
            of_name.is_some_and(|other| Arc::ptr_eq(listener, other))
        };
        let left_out = if listeners.len() == config.listeners.len() {
            Vec::new()
        } else {
            config
                .listeners
                .iter()
                .filter(|listener| !served(listener))
                .collect()
        };
        CheckedConfig {
            routes: check_routes(config, &by_name, last, &mut problems),
            streams: check_streams(config, &by_name, &upstreams, &mut problems),
            listeners,
            left_out,
            has_last_upstreams: last_names.is_some_and(|last| upstreams.has_all(last)),
            upstreams,
            valid_upstreams,
            problems,
        }
    }

    /// Returns the number in the last table of a route that need not be compiled again. Such a route has no missing upstreams.
    pub(super) fn unchanged(&self, listed: &CheckedRoute<'_>) -> Option<u32> {
        listed.unchanged.filter(|_| self.has_last_upstreams)
    }

    /// Returns the parts without problems. `routes` are addresses of routes with their numbers.
    pub(super) fn clean_parts(&self, routes: Vec<(usize, u32)>) -> CleanParts {
        let upstreams = self.valid_upstreams.iter().copied();
        CleanParts::new(routes, upstreams, self.listeners.iter().copied())
    }

    /// Returns the inputs of the checks of routes.
    pub(super) fn route_checks(&mut self) -> RouteChecks<'_> {
        RouteChecks {
            upstreams: &self.upstreams,
            problems: &mut self.problems,
        }
    }
}

/// Returns the routes with a listener. One that is too large, or has the name of an earlier route, keeps its requests. `last` are parts
/// of the last table.
fn check_routes<'c>(
    config: &'c Config,
    listeners: &ListenersByName<'_>,
    last: Option<&CleanParts>,
    problems: &mut ProblemList,
) -> Vec<CheckedRoute<'c>> {
    let place = |name| ConfigPart::Route(name, None);
    let again =
        problems.report_duplicates(&config.routes, |part| &part.name, place, Consequence::Responds500);
    let removed = last.map(|last| last.removed_listeners(listeners));
    let has_listeners = |route: &Route| {
        let removed = removed.as_ref().filter(|removed| !removed.is_empty());
        removed.is_none_or(|removed| !route.listeners.iter().any(|name| removed.contains(&**name)))
    };
    let mut listed = Vec::with_capacity(config.routes.len());
    for (route, again) in config.routes.iter().zip(again) {
        let unchanged = last.and_then(|last| last.route(route));
        let unchanged = unchanged.filter(|_| !again && has_listeners(route));
        if unchanged.is_some() {
            listed.push(CheckedRoute {
                route,
                rejection: None,
                unchanged,
            });
            continue;
        }
        if !rules::check_listeners(route, listeners, problems) {
            continue;
        }
        let refused = if rules::check_counts(route, problems) {
            again.then_some(RouteRejection::DuplicateName)
        } else {
            Some(RouteRejection::TooManyRules)
        };
        listed.push(CheckedRoute {
            route,
            rejection: refused,
            unchanged: None,
        });
    }
    listed
}

/// Like [`check_routes`], for stream routes.
fn check_streams(
    config: &Config,
    listeners: &ListenersByName<'_>,
    upstreams: &NameSet,
    problems: &mut ProblemList,
) -> Vec<Arc<StreamRoute>> {
    let outcome = Consequence::ShareResponds500;
    let again = problems.report_duplicates(&config.streams, |part| &part.name, ConfigPart::Stream, outcome);
    let has_datagrams = listeners.values().any(|part| part.protocol.is_datagram());
    let parts = config.upstreams.iter().filter(|_| has_datagrams);
    // The first of equals, which is the one that is served.
    let parts: DatagramUpstreams<'_> = parts.rev().map(|part| (&*part.name, part)).collect();
    let mut listed = Vec::with_capacity(config.streams.len());
    for (stream, again) in config.streams.iter().zip(again) {
        let is_attached = rules::check_stream(stream, listeners, upstreams, problems);
        if is_attached && datagrams::check_datagrams(stream, listeners, &parts, problems) {
            listed.push(if again {
                Arc::new(rejected_stream(stream))
            } else {
                Arc::clone(stream)
            });
        }
    }
    listed
}

/// Returns a stream route that takes connections without a backend, so that they do not fall to wider routes.
fn rejected_stream(stream: &StreamRoute) -> StreamRoute {
    let broken_backend = WeightedBackend {
        target: Target::Broken {
            reason: DUPLICATE_NAME.into(),
        },
        ..WeightedBackend::new("")
    };
    StreamRoute {
        backends: vec![broken_backend],
        ..stream.clone()
    }
}

/// The names of certificates and authorities.
struct KnownNames<'c> {
    certificates: BTreeSet<&'c str>,
    authorities: BTreeSet<&'c str>,
}

impl KnownNames<'_> {
    /// Checks that every named set of authorities exists and that there is at least one.
    fn check_authorities(&self, names: &[Name], mut report: impl FnMut(&str, String)) -> bool {
        if names.is_empty() {
            report("at least one set of authorities", "none".to_owned());
        }
        let missing = names.iter().filter(|name| !self.authorities.contains(&***name));
        missing
            .clone()
            .for_each(|name| report("authorities of the configuration", format!("`{name}`")));
        !names.is_empty() && missing.count() == 0
    }
}
