//! Checks across parts of a configuration: names that do not exist, parts that exclude each other, numbers out of range. One
//! function for each kind of part; each reports every error that it finds.

mod listeners;
mod rules;
mod unresolved;
mod upstreams;

use std::collections::BTreeSet;
use std::sync::Arc;

use super::name_index::{Slots, hash};
use super::problem::{Outcome, Place, Problem};
use crate::model::{
    Action, Authorities, Certificate, Config, Listener, Name, Route, Rule, StreamRoute, Target, Upstream,
    WeightedBackend,
};

pub(crate) use unresolved::unresolved_parts;

/// The valid parts of a configuration, and the errors of the others.
pub(super) struct Checked<'c> {
    pub(super) listeners: Vec<&'c Arc<Listener>>,
    /// Listeners that are left out: no other listener of their addresses receives requests for their hosts.
    pub(super) left_out: Vec<&'c Arc<Listener>>,
    /// Routes with a listener; [`Checked::rule`] checks their rules.
    pub(super) routes: Vec<Listed<'c>>,
    pub(super) streams: Vec<Arc<StreamRoute>>,
    upstreams: BTreeSet<&'c str>,
    pub(super) problems: Problems,
}

/// A route, and the reason that it cannot be served as a whole, if there is one.
#[derive(Clone, Copy)]
pub(super) struct Listed<'c> {
    pub(super) route: &'c Arc<Route>,
    pub(super) refused: Option<Refused>,
}

/// The reason that all requests of a route receive 500 instead of matching wider routes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The route exceeds the limit of rules or matches.
    Oversized,
    /// An earlier route has the same name.
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

/// The errors found so far.
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

    /// Returns the first part of each name; later ones are left out.
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

    /// Returns for each part whether an earlier one has its name, which is a problem with this outcome.
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
    /// Checks all parts except the rules of routes.
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

    /// Returns the upstreams that a route names and that do not exist.
    pub(super) fn missing(&mut self, route: &Route) -> Vec<Name> {
        rules::missing(route, &self.upstreams, &mut self.problems)
    }

    /// Checks a rule of a route. Returns the reason that it cannot be served.
    pub(super) fn rule(&mut self, route: &Route, number: usize) -> Option<String> {
        rules::check(route, number, &mut self.problems)
    }
}

/// Returns the routes with a listener. One that is too large, or has the name of an earlier route, keeps its requests.
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

/// Does the same for stream routes.
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

/// Returns a stream route that takes connections without a backend, so that they do not fall to wider routes.
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

/// The names of certificates and authorities.
struct Known<'c> {
    certificates: BTreeSet<&'c str>,
    authorities: BTreeSet<&'c str>,
}

impl Known<'_> {
    /// Checks that every named set of authorities exists and that there is at least one.
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
