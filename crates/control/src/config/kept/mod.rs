//! What is served of a configuration with errors: parts that many may depend on go on as they last were.

use std::collections::BTreeMap;
use std::sync::Arc;

use ringmain_gateway::model::{Config, Route};
use ringmain_gateway::table::{Outcome, Place};

use super::Loaded;

#[cfg(test)]
mod tests;

impl Loaded {
    /// Takes what can be served. Listeners, upstreams, certificates and authorities that are wrong are as in `last`, if there is one
    /// and it has them: they are returned, too. Routes stand for themselves, and are left out. `None`: nothing can be.
    pub fn take(&mut self, last: Option<&Config>) -> Option<(Config, Vec<Place>)> {
        let mut config = self.config.take()?;
        let kept = last.map(|last| keep(&self.outcomes, &mut config, last));
        show_what_is_there(&mut config);
        if let Some(last) = last {
            share(&mut config, last);
        }
        Some((config, kept.unwrap_or_default()))
    }
}

fn keep(outcomes: &[(Place, Outcome)], config: &mut Config, last: &Config) -> Vec<Place> {
    let mut kept = Vec::new();
    for (place, outcome) in outcomes {
        if *outcome != Outcome::LeftOut {
            continue;
        }
        let found = match place {
            Place::Listener(name) => one(&mut config.listeners, &last.listeners, |it| it.name == *name),
            Place::Upstream(name) => one(&mut config.upstreams, &last.upstreams, |it| it.name == *name),
            Place::Certificate(name) => one(&mut config.certificates, &last.certificates, |it| {
                it.name == *name
            }),
            Place::Authorities(name) => {
                one(&mut config.authorities, &last.authorities, |it| it.name == *name)
            }
            Place::Route(..) | Place::Stream(_) => false,
        };
        if found {
            kept.push(place.clone());
        }
    }
    kept
}

/// Puts routes of the last configuration in place of those that are the same: whoever compiles it sees at once what is not, and
/// none is held twice.
fn share(config: &mut Config, last: &Config) {
    let known: BTreeMap<&str, &Arc<Route>> = last.routes.iter().map(|route| (&*route.name, route)).collect();
    for route in &mut config.routes {
        if let Some(same) = known.get(&*route.name).filter(|last| ***last == *route) {
            *route = Arc::clone(same);
        }
    }
}

/// Takes a part over that is there no longer.
fn one<T>(now: &mut Vec<Arc<T>>, last: &[Arc<T>], is_it: impl Fn(&T) -> bool) -> bool {
    if now.iter().any(|part| is_it(part)) {
        return false;
    }
    let found = last.iter().find(|part| is_it(part));
    now.extend(found.cloned());
    found.is_some()
}

/// A listener goes without those of its certificates that are wrong, as long as it has others.
fn show_what_is_there(config: &mut Config) {
    let known = &config.certificates;
    for listener in &mut config.listeners {
        let Some(tls) = &listener.tls else { continue };
        let is_there = |name: &Arc<str>| known.iter().any(|it| it.name == *name);
        let there: Vec<_> = tls
            .certificates
            .iter()
            .filter(|name| is_there(name))
            .cloned()
            .collect();
        if there.is_empty() || there.len() == tls.certificates.len() {
            continue;
        }
        if let Some(tls) = &mut Arc::make_mut(listener).tls {
            tls.certificates = there;
        }
    }
}
