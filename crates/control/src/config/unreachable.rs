//! Parts that no request reaches: valid, but probably not intended.
//!
//! Pure: from the model to texts. Does not report rules that only few requests reach.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_gateway::model::{Config, Hostname, Listener, Match, PathMatch, Route};
use ringmain_gateway::table::ConfigPart;

/// The path of ACME challenges (RFC 8555 §8.3), which are fetched over HTTP without TLS.
const ACME: &str = "/.well-known/acme-challenge";

/// Returns the parts that no request reaches, each with the reason.
pub(super) fn find_unreachable(config: &Config) -> Vec<(ConfigPart, String)> {
    let mut all = Vec::new();
    let no_streams = config.streams.is_empty() && config.push.is_none();
    for route in &config.routes {
        let listeners = listeners_of(config, route);
        check_redirects(route, &listeners, &mut all);
        check_hosts(route, &listeners, &mut all);
        check_duplicates(route, &mut all);
    }
    if config.routes.is_empty() && no_streams {
        let first = config
            .listeners
            .first()
            .map(|listener| Arc::clone(&listener.name));
        let redirects = |listener: &Arc<Listener>| listener.redirect_to_https.is_some();
        if let Some(name) = first.filter(|_| !config.listeners.iter().all(redirects)) {
            let text = "no routes: every request receives 404; add some with the key `routes` or `to`";
            all.push((ConfigPart::Listener(name), text.to_owned()));
        }
    }
    all
}

/// Returns the listeners that receive requests of a route.
fn listeners_of<'c>(config: &'c Config, route: &Route) -> Vec<&'c Listener> {
    let named_listeners =
        |listener: &&Arc<Listener>| route.listeners.is_empty() || route.listeners.contains(&listener.name);
    let http = config
        .listeners
        .iter()
        .filter(|listener| listener.protocol.is_http());
    http.filter(named_listeners).map(|listener| &**listener).collect()
}

/// Finds routes whose listeners redirect every request to https.
fn check_redirects(route: &Route, listeners: &[&Listener], all: &mut Vec<(ConfigPart, String)>) {
    let redirecting: Vec<&&Listener> = listeners
        .iter()
        .filter(|listener| listener.redirect_to_https.is_some())
        .collect();
    let Some(first) = redirecting.first() else { return };
    let name = &first.name;
    if redirecting.len() == listeners.len() {
        let text = format!(
            "no request reaches it: listener `{name}` redirects every request to https (`redirect_to_https`); a route with \
             `redirect: {{scheme: https}}` in place of that key leaves paths to others"
        );
        return all.push((ConfigPart::Route(Arc::clone(&route.name), None), text));
    }
    let is_acme = |found: &Match| match &found.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) => path.as_str().starts_with(ACME),
        PathMatch::Pattern(_) => false,
    };
    let acme = route
        .rules
        .iter()
        .position(|rule| rule.matches.iter().any(is_acme));
    if let Some(number) = acme {
        let text = format!(
            "no ACME challenge (`{ACME}` over HTTP) reaches it: listener `{name}` redirects every request to \
             https (`redirect_to_https`)"
        );
        all.push((ConfigPart::Route(Arc::clone(&route.name), Some(number)), text));
    }
}

/// Finds hosts of a route that none of its listeners serves.
fn check_hosts(route: &Route, listeners: &[&Listener], all: &mut Vec<(ConfigPart, String)>) {
    let is_served = |host: &Hostname| {
        let serves = |listener: &&Listener| {
            let hosts = &listener.hostnames;
            hosts.is_empty() || hosts.iter().any(|own| hosts_overlap(own, host))
        };
        listeners.iter().any(serves)
    };
    let shadowed: Vec<String> = route
        .hostnames
        .iter()
        .filter(|host| !is_served(host))
        .map(|host| format!("`{host}`"))
        .collect();
    if shadowed.is_empty() || listeners.is_empty() {
        return;
    }
    let names: Vec<String> = listeners.iter().map(|it| format!("`{}`", it.name)).collect();
    let text = format!(
        "no request for {} reaches it: {} not among the hosts of its listeners ({})",
        shadowed.join(", "),
        if shadowed.len() == 1 { "it is" } else { "they are" },
        names.join(", ")
    );
    all.push((ConfigPart::Route(Arc::clone(&route.name), None), text));
}

/// Returns whether a host matches both.
fn hosts_overlap(one: &Hostname, other: &Hostname) -> bool {
    match (one.wildcard_suffix(), other.wildcard_suffix()) {
        (Some(one), Some(other)) => one.ends_with(other) || other.ends_with(one),
        (Some(_), None) => one.matches(other.as_str()),
        _ => other.matches(one.as_str()),
    }
}

/// Finds rules of a route whose matches all occur in earlier rules.
fn check_duplicates(route: &Route, all: &mut Vec<(ConfigPart, String)>) {
    let mut seen: BTreeSet<(u8, String, String)> = BTreeSet::new();
    for (number, rule) in route.rules.iter().enumerate() {
        let any = [Match::default()];
        let matches = if rule.matches.is_empty() {
            &any[..]
        } else {
            &rule.matches[..]
        };
        let keys: Vec<_> = matches.iter().map(match_key).collect();
        if keys
            .iter()
            .all(|key| key.as_ref().is_some_and(|key| seen.contains(key)))
        {
            let text = "no request reaches it: an earlier rule of the route has the same match".to_owned();
            all.push((ConfigPart::Route(Arc::clone(&route.name), Some(number)), text));
        }
        seen.extend(keys.into_iter().flatten());
    }
}

/// Returns the condition of a match; `None`: it has headers or a query as well.
fn match_key(found: &Match) -> Option<(u8, String, String)> {
    if !found.headers.is_empty() || !found.query.is_empty() {
        return None;
    }
    let (kind, path) = match &found.path {
        PathMatch::Exact(path) => (0, path.as_str().to_owned()),
        PathMatch::Prefix(path) => (1, path.as_str().to_owned()),
        PathMatch::Pattern(pattern) => (2, pattern.as_str().to_owned()),
    };
    let method = found.method.as_ref().map(|method| method.as_str().to_owned());
    Some((kind, path, method.unwrap_or_default()))
}
