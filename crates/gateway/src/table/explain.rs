//! Explains routing: the rule that takes a request, and the reason that each other match does not.
//!
//! Checks every match of every rule, one after the other: for operators, never on the path of a request.

use super::describe;
use super::request_facts::{RequestFacts, matches_all, matches_header, matches_path, matches_query};
use super::{AddressId, ListenerId, Matched, Table, cors_policy};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Action, Config, Hostname, Match, Name, PathMatch, Route, ValueMatch};

/// The explanation of a request's routing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// The listener; `None`: the address has none for the request's host.
    pub listener: Option<Name>,
    /// The listener redirects the request to HTTPS; routes are not checked.
    pub to_https: bool,
    /// The listener refuses the request; routes are not checked.
    pub fault: Option<Fault>,
    /// The path that is matched, if `escaped_slashes` of the listener changes it.
    pub path: Option<String>,
    /// The method of the request that a preflight announces; the CORS policy of that request's rule answers.
    pub preflight: Option<String>,
    /// Other listeners of the address, each with the reason that the request is not theirs.
    pub other_listeners: Vec<(Name, String)>,
    /// The rule that takes the request; `None`: 404.
    pub selected: Option<SelectedRule>,
    /// Matches that did not take the request, the closest first: at most [`limits::EXPLAINED`].
    pub rejected: Vec<RejectedMatch>,
    /// The number of further matches.
    pub omitted: usize,
}

/// The rule that takes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedRule {
    /// The route.
    pub route: Name,
    /// The rule's number, from 0.
    pub rule: usize,
    /// The name of the rule, if it has one.
    pub name: Option<Name>,
    /// The match, in words.
    pub matched_by: String,
    /// The steps of the rule, in order.
    pub steps: Vec<String>,
    /// The reason that the response is 500 all the same; `None`: it is not.
    pub broken: Option<String>,
}

/// A match that did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RejectedMatch {
    /// The route.
    pub route: Name,
    /// The rule's number, from 0.
    pub rule: usize,
    /// The match's number, from 0.
    pub matching: usize,
    /// The reason.
    pub reason: RejectionReason,
}

/// The reason that a match does not take a request; later variants are closer to a match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RejectionReason {
    /// The route is not attached to this listener.
    Listener(String),
    /// The match is for other hosts.
    Host(String),
    /// The match is for other paths.
    Path(String),
    /// The match is for another method.
    Method(String),
    /// A header does not match.
    Header(String),
    /// The query does not match.
    Query(String),
    /// The match applies, too, but has lower precedence.
    Later(String),
}

impl RejectionReason {
    /// Returns the reason in words.
    #[must_use]
    pub fn text(&self) -> &str {
        let (RejectionReason::Listener(text)
        | RejectionReason::Host(text)
        | RejectionReason::Path(text)
        | RejectionReason::Method(text)
        | RejectionReason::Header(text)
        | RejectionReason::Query(text)
        | RejectionReason::Later(text)) = self;
        text
    }

    /// Returns how close to a match it is; higher is closer.
    pub(super) fn closeness(&self) -> u8 {
        match self {
            RejectionReason::Listener(_) => 0,
            RejectionReason::Host(_) => 1,
            RejectionReason::Path(_) => 2,
            RejectionReason::Method(_) => 3,
            RejectionReason::Header(_) => 4,
            RejectionReason::Query(_) => 5,
            RejectionReason::Later(_) => 6,
        }
    }
}

impl<P> Table<P> {
    /// Explains the routing of a request at an address. With TLS, the SNI is assumed to equal the request's host.
    ///
    /// # Panics
    /// `address` is of another table and beyond this one's addresses.
    #[must_use]
    pub fn explain(&self, address: AddressId, facts: &RequestFacts<'_>) -> Explanation {
        let listener = self.addresses().select_listener(address, facts.host);
        let all = self.addresses().listeners(address);
        let others = all.filter(|(id, _)| Some(*id) != listener).map(|(_, other)| {
            let hosts = list_hosts(&other.hostnames);
            (
                other.name.clone(),
                format!("matches only {hosts}, not `{}`", facts.host),
            )
        });
        let mut explanation = Explanation {
            listener: listener.map(|listener| self.listener(listener).name.clone()),
            to_https: listener.is_some_and(|listener| self.listener(listener).redirect_to_https.is_some()),
            fault: None,
            path: None,
            preflight: None,
            other_listeners: others.collect(),
            selected: None,
            rejected: Vec::new(),
            omitted: 0,
        };
        if let Some(listener) = listener.filter(|_| !explanation.to_https) {
            self.explain_routing(listener, facts, &mut explanation);
        }
        explanation
    }

    fn explain_routing(&self, listener: ListenerId, facts: &RequestFacts<'_>, to: &mut Explanation) {
        let decoded = match self.decode_path(listener, facts.path) {
            Ok(decoded) => decoded,
            Err(fault) => {
                to.fault = Some(fault);
                return;
            }
        };
        let mut facts = RequestFacts {
            path: decoded.as_deref().unwrap_or(facts.path),
            ..*facts
        };
        let matched = self.find_request(listener, &facts);
        let is_cors = |matched: &Matched<'_, P>| cors_policy(self.listener(listener), matched).is_some();
        if let Some(announced) = facts.announced_request()
            && matched.as_ref().is_some_and(is_cors)
        {
            to.preflight = Some(announced.method.to_owned());
            facts = announced;
        }
        to.selected = matched.map(|matched| selected_rule(self.config(), matched));
        to.rejected = self.rejected_matches(listener, matched, &facts);
        to.omitted = to.rejected.len().saturating_sub(limits::EXPLAINED);
        to.rejected.truncate(limits::EXPLAINED);
        to.path = decoded.map(|path| path.to_string());
    }

    fn rejected_matches(
        &self,
        listener: ListenerId,
        matched: Option<Matched<'_, P>>,
        facts: &RequestFacts<'_>,
    ) -> Vec<RejectedMatch> {
        let every = Match::default();
        let mut rejected = Vec::new();
        // In the order of the configuration, which the sort below keeps for equal stages.
        let routes = self.config().routes.iter().filter(|route| {
            let compiled = self.routes.find(&route.name);
            compiled.is_some_and(|compiled| compiled.route() == *route)
        });
        for route in routes {
            let outside = self.route_rejection(listener, route, facts);
            for (number, rule) in route.rules.iter().enumerate() {
                let matches = if rule.matches.is_empty() {
                    std::slice::from_ref(&every)
                } else {
                    &*rule.matches
                };
                for (matching, found) in matches.iter().enumerate() {
                    let has_method = matched.is_some_and(|matched| {
                        matched.route().route().name == route.name
                            && (matched.rule_number(), matched.match_number()) == (number, matching)
                    });
                    if has_method {
                        continue;
                    }
                    rejected.push(RejectedMatch {
                        route: route.name.clone(),
                        rule: number,
                        matching,
                        reason: outside.clone().unwrap_or_else(|| match_rejection(found, facts)),
                    });
                }
            }
        }
        rejected.sort_by_key(|rejected| std::cmp::Reverse(rejected.reason.closeness()));
        rejected
    }

    /// Returns the reason that no rule of a route can take a request, if there is one.
    fn route_rejection(
        &self,
        listener: ListenerId,
        route: &Route,
        facts: &RequestFacts<'_>,
    ) -> Option<RejectionReason> {
        let name = &self.listener(listener).name;
        if !route.listeners.is_empty() && !route.listeners.contains(name) {
            let listeners: Vec<_> = route.listeners.iter().map(|name| format!("`{name}`")).collect();
            return Some(RejectionReason::Listener(format!(
                "attached to {}, not `{name}`",
                listeners.join(", ")
            )));
        }
        let host = facts.host;
        if !route.hostnames.is_empty() && !route.hostnames.iter().any(|name| name.matches(host)) {
            return Some(RejectionReason::Host(format!(
                "matches only {}, not `{host}`",
                list_hosts(&route.hostnames)
            )));
        }
        None
    }
}

fn selected_rule<P>(config: &Config, matched: Matched<'_, P>) -> SelectedRule {
    let rule = matched.rule();
    let mut steps = describe::describe_steps(rule);
    if let Action::Forward(forward) = &rule.action {
        describe::describe_protocols(&mut steps, forward, &config.upstreams);
    }
    SelectedRule {
        route: matched.route().route().name.clone(),
        rule: matched.rule_number(),
        name: rule.name.clone(),
        steps,
        matched_by: rule
            .matches
            .get(matched.match_number())
            .map_or_else(|| "every request".to_owned(), describe_match),
        broken: matched.plan().err().map(str::to_owned),
    }
}

/// Returns the reason that a match does not take a request.
fn match_rejection(found: &Match, facts: &RequestFacts<'_>) -> RejectionReason {
    let path = facts.path.replace(ringmain_web::path::ENCODED_SLASH, "%2F");
    if !matches_path(&found.path, facts.path) {
        return RejectionReason::Path(format!("{} does not match `{path}`", describe_path(&found.path)));
    }
    if let Some(method) = found
        .method
        .as_ref()
        .filter(|method| method.as_str() != facts.method)
    {
        return RejectionReason::Method(format!("matches only {}, not {}", method.as_str(), facts.method));
    }
    if let Some(header) = found
        .headers
        .iter()
        .find(|header| !matches_header(header, &facts.headers))
    {
        let name = header.name.as_str();
        return RejectionReason::Header(format!(
            "header `{name}` is not {}",
            describe_value(&header.value)
        ));
    }
    if let Some(parameter) = found
        .query
        .iter()
        .find(|parameter| !matches_query(parameter, facts))
    {
        let (name, value) = (&parameter.name, describe_value(&parameter.value));
        return RejectionReason::Query(format!("query parameter `{name}` is not {value}"));
    }
    debug_assert!(matches_all(found, facts), "all parts were checked");
    RejectionReason::Later(format!(
        "{} also matches, but has lower precedence",
        describe_match(found)
    ))
}

/// Describes a match in words.
fn describe_match(found: &Match) -> String {
    let mut text = describe_path(&found.path);
    if let Some(method) = &found.method {
        text += &format!(", method {}", method.as_str());
    }
    for header in &found.headers {
        text += &format!(
            ", header `{}` {}",
            header.name.as_str(),
            describe_value(&header.value)
        );
    }
    for parameter in &found.query {
        text += &format!(
            ", query parameter `{}` {}",
            parameter.name,
            describe_value(&parameter.value)
        );
    }
    text
}

fn describe_path(path: &PathMatch) -> String {
    match path {
        PathMatch::Exact(path) => format!("path `{}`", path.as_str()),
        PathMatch::Prefix(path) => format!("prefix `{}`", path.as_str()),
        PathMatch::Pattern(pattern) => format!("expression `{}`", pattern.as_str()),
    }
}

fn describe_value(value: &ValueMatch) -> String {
    match value {
        ValueMatch::Present => "present".to_owned(),
        ValueMatch::Exact(text) => format!("`{text}`"),
        ValueMatch::Pattern(pattern) => format!("matching `{}`", pattern.as_str()),
    }
}

pub(super) fn list_hosts(hosts: &[Hostname]) -> String {
    let hosts: Vec<_> = hosts.iter().map(|host| format!("`{host}`")).collect();
    if hosts.is_empty() {
        "hosts of no other listener or route".to_owned()
    } else {
        hosts.join(", ")
    }
}
