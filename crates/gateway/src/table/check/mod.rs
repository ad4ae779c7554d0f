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
    Action, Authorities, Certificate, Config, Listener, Name, Route, Rule, StreamRoute, Upstream,
};

pub(crate) use unresolved::unresolved_parts;

/// The parts of a configuration that are as they should be, and what is wrong with the others.
pub(super) struct Checked<'c> {
    pub(super) listeners: Vec<&'c Arc<Listener>>,
    /// Those that are there at all and are the first of their name; rules are for [`Checked::rule`].
    pub(super) routes: Vec<&'c Arc<Route>>,
    pub(super) streams: Vec<&'c Arc<StreamRoute>>,
    upstreams: BTreeSet<&'c str>,
    /// Routes that have more rules or matches than they may: all of their requests are answered 500.
    oversized: BTreeSet<&'c str>,
    pub(super) problems: Problems,
}

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

    /// The first part of each name.
    fn unique<'c, T>(
        &mut self,
        parts: &'c [Arc<T>],
        name_of: impl Fn(&T) -> &Name,
        place: impl Fn(Name) -> Place,
    ) -> Vec<&'c Arc<T>> {
        let mut names = Slots::of(parts.len());
        let mut kept: Vec<&Arc<T>> = Vec::with_capacity(parts.len());
        for part in parts {
            let name = name_of(part);
            let hash = hash(0, name.as_bytes());
            if names
                .find(hash, |index| name_of(kept[index as usize]) == name)
                .is_none()
            {
                names.insert(hash, u32::try_from(kept.len()).expect("fewer parts than that"));
                kept.push(part);
            } else {
                let found = format!("`{name}` again");
                let place = place(name.clone());
                self.tell(
                    place,
                    "name",
                    "a name that none before it has",
                    found,
                    Outcome::LeftOut,
                );
            }
        }
        kept
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
        let mut routes = problems.unique(
            &config.routes,
            |part: &Route| &part.name,
            |name| Place::Route(name, None),
        );
        routes.retain(|route| rules::attached(route, &listeners, &mut problems));
        let oversized = routes
            .iter()
            .filter(|route| !rules::counted(route, &mut problems));
        let oversized = oversized.map(|route| &*route.name).collect();
        let mut streams = problems.unique(&config.streams, |part: &StreamRoute| &part.name, Place::Stream);
        streams.retain(|stream| rules::stream(stream, &listeners, &upstreams, &mut problems));
        Checked {
            listeners,
            routes,
            streams,
            upstreams,
            oversized,
            problems,
        }
    }

    /// Upstreams that a route names and that are not there.
    pub(super) fn missing(&mut self, route: &Route) -> Vec<Name> {
        rules::missing(route, &self.upstreams, &mut self.problems)
    }

    /// Whether a route has more rules or matches than it may.
    pub(super) fn is_oversized(&self, route: &Route) -> bool {
        self.oversized.contains(&*route.name)
    }

    /// What stands in for a route that has more rules or matches than it may: one rule that keeps its requests from wider routes.
    pub(super) fn substitute(&self, route: &Route) -> Option<Arc<Route>> {
        self.is_oversized(route).then(|| {
            let reason = "its route has more rules or matches than it may".into();
            Arc::new(Route {
                rules: vec![Rule::new(Action::Broken { reason })],
                ..Route::clone(route)
            })
        })
    }

    /// Why a rule of a route cannot be as it says.
    pub(super) fn rule(&mut self, route: &Route, number: usize) -> Option<String> {
        rules::check(route, number, &mut self.problems)
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
