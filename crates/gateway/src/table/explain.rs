//! Explains routing: the rule that takes a request, and the reason that each other match does not.
//!
//! Checks every match of every rule, one after the other: for operators, never on the path of a request.

use super::describe;
use super::request_facts::{RequestFacts, header_holds, holds, path_holds, query_holds};
use super::{AddressId, ListenerId, Matched, Table, cors};
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
    pub refused: Option<Fault>,
    /// The path that is matched, if `escaped_slashes` of the listener changes it.
    pub path: Option<String>,
    /// The method of the request that a preflight announces; the CORS policy of that request's rule answers.
    pub preflight: Option<String>,
    /// Other listeners of the address, each with the reason that the request is not theirs.
    pub others: Vec<(Name, String)>,
    /// The rule that takes the request; `None`: 404.
    pub taken: Option<Taken>,
    /// Matches that did not take the request, the closest first: at most [`limits::EXPLAINED`].
    pub rejected: Vec<Rejected>,
    /// The number of further matches.
    pub more: usize,
}

/// The rule that takes a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The route.
    pub route: Name,
    /// The rule's number, from 0.
    pub rule: usize,
    /// The name of the rule, if it has one.
    pub name: Option<Name>,
    /// The match, in words.
    pub by: String,
    /// The steps of the rule, in order.
    pub steps: Vec<String>,
    /// The reason that the response is 500 all the same; `None`: it is not.
    pub broken: Option<String>,
}

/// A match that did not take a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rejected {
    /// The route.
    pub route: Name,
    /// The rule's number, from 0.
    pub rule: usize,
    /// The match's number, from 0.
    pub matching: usize,
    /// The reason.
    pub why: Why,
}

/// The reason that a match does not take a request; later variants are closer to a match.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Why {
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

impl Why {
    /// Returns the reason in words.
    #[must_use]
    pub fn text(&self) -> &str {
        let (Why::Listener(text)
        | Why::Host(text)
        | Why::Path(text)
        | Why::Method(text)
        | Why::Header(text)
        | Why::Query(text)
        | Why::Later(text)) = self;
        text
    }

    /// Returns how close to a match it is; higher is closer.
    pub(super) fn stage(&self) -> u8 {
        match self {
            Why::Listener(_) => 0,
            Why::Host(_) => 1,
            Why::Path(_) => 2,
            Why::Method(_) => 3,
            Why::Header(_) => 4,
            Why::Query(_) => 5,
            Why::Later(_) => 6,
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
        let listener = self.addresses().admit(address, facts.host);
        let all = self.addresses().listeners(address);
        let others = all.filter(|(id, _)| Some(*id) != listener).map(|(_, other)| {
            let hosts = listed(&other.hostnames);
            (
                other.name.clone(),
                format!("it is for {hosts}, not for `{}`", facts.host),
            )
        });
        let mut explanation = Explanation {
            listener: listener.map(|listener| self.listener(listener).name.clone()),
            to_https: listener.is_some_and(|listener| self.listener(listener).redirect_to_https.is_some()),
            refused: None,
            path: None,
            preflight: None,
            others: others.collect(),
            taken: None,
            rejected: Vec::new(),
            more: 0,
        };
        if let Some(listener) = listener.filter(|_| !explanation.to_https) {
            self.explain_rules(listener, facts, &mut explanation);
        }
        explanation
    }

    fn explain_rules(&self, listener: ListenerId, facts: &RequestFacts<'_>, to: &mut Explanation) {
        let decoded = match self.decode_path(listener, facts.path) {
            Ok(decoded) => decoded,
            Err(fault) => {
                to.refused = Some(fault);
                return;
            }
        };
        let mut facts = RequestFacts {
            path: decoded.as_deref().unwrap_or(facts.path),
            ..*facts
        };
        let matched = self.find_request(listener, &facts);
        let is_cors = |matched: &Matched<'_, P>| cors(self.listener(listener), matched).is_some();
        if let Some(asked) = facts.asked_by_preflight()
            && matched.as_ref().is_some_and(is_cors)
        {
            to.preflight = Some(asked.method.to_owned());
            facts = asked;
        }
        to.taken = matched.map(|matched| taken(self.config(), matched));
        to.rejected = self.rejected(listener, matched, &facts);
        to.more = to.rejected.len().saturating_sub(limits::EXPLAINED);
        to.rejected.truncate(limits::EXPLAINED);
        to.path = decoded.map(|path| path.to_string());
    }

    fn rejected(
        &self,
        listener: ListenerId,
        matched: Option<Matched<'_, P>>,
        facts: &RequestFacts<'_>,
    ) -> Vec<Rejected> {
        let every = Match::default();
        let mut rejected = Vec::new();
        // In the order of the configuration, which the sort below keeps for equal stages.
        let routes = self.config().routes.iter().filter(|route| {
            let compiled = self.routes.find(&route.name);
            compiled.is_some_and(|compiled| compiled.route() == *route)
        });
        for route in routes {
            let outside = self.outside(listener, route, facts);
            for (number, rule) in route.rules.iter().enumerate() {
                let matches = if rule.matches.is_empty() {
                    std::slice::from_ref(&every)
                } else {
                    &*rule.matches
                };
                for (matching, found) in matches.iter().enumerate() {
                    let it = matched.is_some_and(|matched| {
                        matched.route().route().name == route.name
                            && (matched.number(), matched.matching()) == (number, matching)
                    });
                    if it {
                        continue;
                    }
                    rejected.push(Rejected {
                        route: route.name.clone(),
                        rule: number,
                        matching,
                        why: outside.clone().unwrap_or_else(|| why(found, facts)),
                    });
                }
            }
        }
        rejected.sort_by_key(|rejected| std::cmp::Reverse(rejected.why.stage()));
        rejected
    }

    /// Returns the reason that no rule of a route can take a request, if there is one.
    fn outside(&self, listener: ListenerId, route: &Route, facts: &RequestFacts<'_>) -> Option<Why> {
        let name = &self.listener(listener).name;
        if !route.listeners.is_empty() && !route.listeners.contains(name) {
            let listeners: Vec<_> = route.listeners.iter().map(|name| format!("`{name}`")).collect();
            return Some(Why::Listener(format!(
                "its listeners are {}, not `{name}`",
                listeners.join(", ")
            )));
        }
        let host = facts.host;
        if !route.hostnames.is_empty() && !route.hostnames.iter().any(|name| name.matches(host)) {
            return Some(Why::Host(format!(
                "it is for {}, not for `{host}`",
                listed(&route.hostnames)
            )));
        }
        None
    }
}

fn taken<P>(config: &Config, matched: Matched<'_, P>) -> Taken {
    let rule = matched.rule();
    let mut steps = describe::steps(rule);
    if let Action::Forward(forward) = &rule.action {
        describe::protocols(&mut steps, forward, &config.upstreams);
    }
    Taken {
        route: matched.route().route().name.clone(),
        rule: matched.number(),
        name: rule.name.clone(),
        steps,
        by: rule
            .matches
            .get(matched.matching())
            .map_or_else(|| "every request".to_owned(), describe_match),
        broken: matched.plan().err().map(str::to_owned),
    }
}

/// Returns the reason that a match does not take a request.
fn why(found: &Match, facts: &RequestFacts<'_>) -> Why {
    let path = facts.path.replace(ringmain_web::path::ENCODED_SLASH, "%2F");
    if !path_holds(&found.path, facts.path) {
        return Why::Path(format!("{} is not `{path}`", describe_path(&found.path)));
    }
    if let Some(method) = found
        .method
        .as_ref()
        .filter(|method| method.as_str() != facts.method)
    {
        return Why::Method(format!("it is for {}, not for {}", method.as_str(), facts.method));
    }
    if let Some(header) = found.headers.iter().find(|header| !header_holds(header, facts)) {
        let name = header.name.as_str();
        return Why::Header(format!(
            "header `{name}` is not {}",
            describe_value(&header.value)
        ));
    }
    if let Some(parameter) = found
        .query
        .iter()
        .find(|parameter| !query_holds(parameter, facts))
    {
        let (name, value) = (&parameter.name, describe_value(&parameter.value));
        return Why::Query(format!("query parameter `{name}` is not {value}"));
    }
    debug_assert!(holds(found, facts), "all parts were looked at");
    Why::Later(format!("{} holds too, but comes later", describe_match(found)))
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
        ValueMatch::Present => "there".to_owned(),
        ValueMatch::Exact(text) => format!("`{text}`"),
        ValueMatch::Pattern(pattern) => format!("of the expression `{}`", pattern.as_str()),
    }
}

pub(super) fn listed(hosts: &[Hostname]) -> String {
    let hosts: Vec<_> = hosts.iter().map(|host| format!("`{host}`")).collect();
    if hosts.is_empty() {
        "hosts that no other has".to_owned()
    } else {
        hosts.join(", ")
    }
}
