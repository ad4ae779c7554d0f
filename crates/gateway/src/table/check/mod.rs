//! What parts of a configuration can be wrong in together: names that are not there, parts that exclude each other,
//! numbers out of their limits. A function for each kind of part; each tells all that it finds.

mod listeners;
mod rules;
mod unresolved;
mod upstreams;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::names::{Slots, hash};
use super::problem::{Outcome, Place, Problem};
use crate::model::{
    Action, Authorities, Certificate, Config, Listener, Name, Route, Rule, StreamRoute, Target, Upstream,
    WeightedBackend,
};

pub(crate) use unresolved::unresolved_parts;

/// The parts of a configuration that are as they should be, and what is wrong with the others.
pub(super) struct Checked<'c> {
    pub(super) listeners: Vec<&'c Arc<Listener>>,
    /// Those that are left out: no other listener of their addresses receives the requests of their hosts.
    pub(super) left_out: Vec<&'c Arc<Listener>>,
    /// Those that have a listener; rules are for [`Checked::rule`].
    pub(super) routes: Vec<Listed<'c>>,
    pub(super) streams: Vec<Arc<StreamRoute>>,
    upstreams: BTreeSet<&'c str>,
    pub(super) problems: Problems,
}

/// A route, and why it cannot be served as a whole.
#[derive(Clone, Copy)]
pub(super) struct Listed<'c> {
    pub(super) route: &'c Arc<Route>,
    pub(super) refused: Option<Refused>,
}

/// The reason that all requests of a route receive 500 instead of matching wider routes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// It has more rules or matches than it may.
    Oversized,
    /// A route before it has its name.
    Again,
}

impl Listed<'_> {
    /// Returns the route that keeps the requests of one that is refused.
    pub(super) fn substitute(&self) -> Option<Arc<Route>> {
        let broken = |reason: &str| {
            Rule::new(Action::Broken {
                reason: reason.into(),
            })
        };
        let rules = match self.refused? {
            Refused::Oversized => vec![broken("its route has more rules or matches than it may")],
            Refused::Again => {
                let rules = self.route.rules.iter().map(|rule| Rule {
                    matches: rule.matches.clone(),
                    ..broken(AGAIN)
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

const AGAIN: &str = "another route has its name";

/// All that was found.
#[derive(Default)]
pub(super) struct Problems(pub(super) Vec<Problem>);

impl Problems {
    pub(super) fn tell(
        &mut self,
        place: Place,
        part: &'static str,
        expected: impl Into<String>,
        found: impl Into<String>,
        outcome: Outcome,
    ) {
        self.0.push(Problem {
            place,
            part,
            expected: expected.into(),
            found: found.into(),
            outcome,
        });
    }

    /// The first part of each name; others are left out.
    fn unique<'c, T>(
        &mut self,
        parts: &'c [Arc<T>],
        name_of: impl Fn(&T) -> &Name,
        place: impl Fn(Name) -> Place,
    ) -> Vec<&'c Arc<T>> {
        let again = self.again(parts, name_of, place, Outcome::LeftOut);
        let first = parts.iter().zip(again).filter(|(_, again)| !again);
        first.map(|(part, _)| part).collect()
    }

    /// Of each part, whether one before it has its name, which is a problem with this outcome.
    fn again<T>(
        &mut self,
        parts: &[Arc<T>],
        name_of: impl Fn(&T) -> &Name,
        place: impl Fn(Name) -> Place,
        outcome: Outcome,
    ) -> Vec<bool> {
        let mut names = Slots::of(parts.len());
        let is_again = (0..).zip(parts).map(|(index, part)| {
            let name = name_of(part);
            let hash = hash(0, name.as_bytes());
            let Some(first) = names.find(hash, |index| name_of(&parts[index as usize]) == name) else {
                names.insert(hash, index);
                return false;
            };
            let found = format!(
                "`{name}` again: number {} has the name of number {}",
                index + 1,
                first + 1
            );
            let expected = "a name that none before it has";
            self.tell(place(name.clone()), "name", expected, found, outcome);
            true
        });
        is_again.collect()
    }
}

impl<'c> Checked<'c> {
    /// Looks at all but the rules of routes.
    pub(super) fn new(config: &'c Config) -> Checked<'c> {
        let mut problems = Problems::default();
        let certificates = problems.unique(
            &config.certificates,
            |part: &Certificate| &part.name,
            Place::Certificate,
        );
        let certificates: BTreeSet<&str> = certificates.iter().map(|part| &*part.name).collect();
        let authorities = problems.unique(
            &config.authorities,
            |part: &Authorities| &part.name,
            Place::Authorities,
        );
        let authorities: BTreeSet<&str> = authorities.iter().map(|part| &*part.name).collect();
        let known = Known {
            certificates,
            authorities,
        };
        let mut upstreams = problems.unique(&config.upstreams, |part: &Upstream| &part.name, Place::Upstream);
        upstreams.retain(|upstream| upstreams::check(upstream, &known, &mut problems));
        let upstreams: BTreeSet<&str> = upstreams.iter().map(|part| &*part.name).collect();
        let mut listeners = problems.unique(&config.listeners, |part: &Listener| &part.name, Place::Listener);
        listeners.retain(|listener| listeners::check(listener, &known, &mut problems));
        listeners::compatible(&mut listeners, &mut problems);
        let served = |it: &&Arc<Listener>| listeners.iter().any(|other| Arc::ptr_eq(it, other));
        let left_out = match listeners.len() == config.listeners.len() {
            true => Vec::new(),
            false => config.listeners.iter().filter(|it| !served(it)).collect(),
        };
        Checked {
            routes: routes(config, &listeners, &mut problems),
            streams: streams(config, &listeners, &upstreams, &mut problems),
            listeners,
            left_out,
            upstreams,
            problems,
        }
    }

    /// Upstreams that a route names and that are not there.
    pub(super) fn missing(&mut self, route: &Route) -> Vec<Name> {
        rules::missing(route, &self.upstreams, &mut self.problems)
    }

    /// Checks a rule of a route. Returns the reason that it cannot be served.
    pub(super) fn rule(&mut self, route: &Route, number: usize) -> Option<String> {
        rules::check(route, number, &mut self.problems)
    }
}

/// Routes that have a listener. One that is too large, or whose name a route before it has, keeps its requests.
fn routes<'c>(config: &'c Config, listeners: &[&Arc<Listener>], problems: &mut Problems) -> Vec<Listed<'c>> {
    let place = |name| Place::Route(name, None);
    let again = problems.again(&config.routes, |part| &part.name, place, Outcome::Answers500);
    let mut listed = Vec::with_capacity(config.routes.len());
    for (route, again) in config.routes.iter().zip(again) {
        if !rules::attached(route, listeners, problems) {
            continue;
        }
        let refused = match rules::counted(route, problems) {
            false => Some(Refused::Oversized),
            true => again.then_some(Refused::Again),
        };
        listed.push(Listed { route, refused });
    }
    listed
}

/// The same for routes of connections.
fn streams(
    config: &Config,
    listeners: &[&Arc<Listener>],
    upstreams: &BTreeSet<&str>,
    problems: &mut Problems,
) -> Vec<Arc<StreamRoute>> {
    let outcome = Outcome::ShareAnswers500;
    let again = problems.again(&config.streams, |part| &part.name, Place::Stream, outcome);
    let mut listed = Vec::with_capacity(config.streams.len());
    for (stream, again) in config.streams.iter().zip(again) {
        if rules::stream(stream, listeners, upstreams, problems) {
            listed.push(match again {
                true => Arc::new(refused(stream)),
                false => Arc::clone(stream),
            });
        }
    }
    listed
}

/// A route of connections that keeps them from wider ones, and leads nowhere.
fn refused(stream: &StreamRoute) -> StreamRoute {
    let nowhere = WeightedBackend {
        target: Target::Broken { reason: AGAIN.into() },
        ..WeightedBackend::new("")
    };
    StreamRoute {
        backends: vec![nowhere],
        ..stream.clone()
    }
}

/// What certificates there are.
struct Known<'c> {
    certificates: BTreeSet<&'c str>,
    authorities: BTreeSet<&'c str>,
}

impl Known<'_> {
    /// Whether these sets of authorities are there, and at least one.
    fn vouch(&self, names: &[Name], mut tell: impl FnMut(&str, String)) -> bool {
        if names.is_empty() {
            tell("at least one set of authorities", "none".to_owned());
        }
        let missing = names.iter().filter(|name| !self.authorities.contains(&***name));
        missing
            .clone()
            .for_each(|name| tell("authorities of the configuration", format!("`{name}`")));
        !names.is_empty() && missing.count() == 0
    }
}
