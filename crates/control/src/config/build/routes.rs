//! Routes with their rules and matches; stream routes.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits;
use ringmain_gateway::model::{
    self, Action, DatagramSessions, Forward, HeaderMatch, HeaderName, Name, PathMatch, Policy, QueryMatch,
    StreamRoute, ValueMatch,
};
use ringmain_gateway::table::ConfigPart;
use serde::Deserialize;

use super::{Builder, field_value, list_items, parsed_items, parsed_value, positive_number};
use crate::config::deserializer::NodeDeserializer;
use crate::config::document::{self, OneOrManyField};
use crate::config::error::{FilePosition, quote};
use crate::config::fields::{OneOrMany, OrderedMap, Parsed, ShortOrFull, Spanned};
use crate::config::scalars::{GrpcMethodName, UpstreamTarget};
use crate::config::yaml::YamlEntry;

/// Upstreams as written.
pub(super) type Backends = OneOrManyField<ShortOrFull<Parsed<UpstreamTarget>, document::BackendSection>>;

impl Builder<'_> {
    pub(super) fn build_routes(&mut self, routes: &[YamlEntry<'_>]) {
        let errors = self.errors;
        for (key, node) in routes {
            let Ok(name) = Spanned::<String>::deserialize(NodeDeserializer::new(key, errors)) else {
                continue;
            };
            let Ok(at) = Spanned::deserialize(NodeDeserializer::new(node, errors)) else {
                continue;
            };
            let Some(text) = name.value else { continue };
            self.build_route(text.as_str().into(), name.position, at);
        }
    }

    /// Adds the route of the file's key `to`.
    pub(super) fn add_default_route(&mut self, to: Backends) {
        let Some(position) = to.as_ref().map(|at| at.position) else {
            return;
        };
        let is_valid = to.as_ref().is_some_and(|at| at.is_valid);
        let name = Name::from("default");
        if self.built.config.routes.iter().any(|route| route.name == name) {
            let expected = "no route named `default` beside the key `to`, which makes one";
            self.errors.report(position, expected, "both");
            return;
        }
        let route = document::RouteSection {
            to,
            ..document::RouteSection::default()
        };
        let at = Spanned {
            value: Some(route),
            position,
            is_valid,
        };
        self.build_route(name, position, at);
    }

    fn build_route(&mut self, name: Name, position: FilePosition, at: Spanned<document::RouteSection>) {
        let place = ConfigPart::Route(name.clone(), None);
        self.built.positions.insert(place.clone(), position);
        let Some(part) = at.value else {
            return;
        };
        // Listeners and hosts must be valid, and no key of the route unknown: it may have been a condition.
        let are_listeners_valid = part.listeners.as_ref().is_none_or(|at| at.is_valid);
        if !are_listeners_valid || part.hosts.as_ref().is_some_and(|at| !at.is_valid) {
            return;
        }
        let are_rules_valid = part.rules.iter().flatten().all(|rule| rule.is_valid);
        let is_to_valid = part.to.as_ref().is_none_or(|at| at.is_valid);
        let before = self.errors.count();
        let are_policies_valid = part.policies.as_ref().is_none_or(|at| at.is_valid);
        let policies = self.build_policies(part.policies, &[], &place);
        // A rule without an intended policy of its route would admit too many requests.
        let is_suspect = (!at.is_valid && are_rules_valid && is_to_valid)
            || !are_policies_valid
            || self.errors.count() > before;
        let named = part.listeners.is_some();
        let listeners = self.resolve_names(part.listeners, &self.listener_names, "a listener");
        if named && listeners.is_empty() {
            return;
        }
        let rules = match (part.rules, part.to) {
            (Some(rules), None) if !rules.is_empty() => rules,
            (Some(_), None) => {
                self.errors.report(position, "at least one rule", "an empty list");
                return;
            }
            (None, Some(to)) => vec![forwarding_rule(to)],
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                self.errors.report(position, "either `rules` or `to`", found);
                return;
            }
        };
        let mut route = model::Route {
            name: name.clone(),
            listeners,
            hostnames: parsed_items(part.hosts),
            rules: Vec::new(),
        };
        let mut unreadable = None;
        for rule in rules {
            let number = route.rules.len();
            let rule_place = ConfigPart::Route(name.clone(), Some(number));
            self.built.positions.insert(rule_place.clone(), rule.position);
            let line = rule.position.line;
            let built = self.build_rule(rule, &policies, &rule_place, is_suspect);
            if built.is_none() {
                unreadable.get_or_insert(line);
            }
            route
                .rules
                .push(built.unwrap_or_else(|| model::Rule::new(broken_action(line))));
        }
        if let Some(line) = unreadable {
            // The requests of this rule are unknown: they must not match another rule.
            route
                .rules
                .iter_mut()
                .for_each(|rule| rule.action = broken_action(line));
        }
        // There may be many, and they stay.
        route.hostnames.shrink_to_fit();
        route.rules.shrink_to_fit();
        self.built.config.routes.push(Arc::new(route));
    }

    /// Builds a rule; an invalid one keeps its requests. `None`: its matches are invalid.
    fn build_rule(
        &mut self,
        at: Spanned<document::RuleSection>,
        policies: &[Policy],
        place: &ConfigPart,
        is_suspect: bool,
    ) -> Option<model::Rule> {
        let before = self.errors.count();
        let position = at.position;
        let mut part = at.value?;
        let is_valid = part.matches.as_ref().is_none_or(|at| at.is_valid);
        let matches = list_items(part.matches.take());
        let matches = matches
            .into_iter()
            .filter_map(|at| self.build_match(at))
            .collect();
        let unknown = !is_valid || self.errors.count() > before;
        let mut rule = model::Rule::new(Action::Respond(model::DirectResponse {
            status: 500,
            content_type: None,
            body: model::StaticBody::default(),
        }));
        rule.matches = matches;
        rule.name = field_value(part.name.take()).map(Into::into);
        rule.policies = self.build_policies(part.policies.take(), policies, place);
        self.build_action(&mut rule, part, position);
        // Its other errors have been reported.
        if unknown {
            return None;
        }
        rule.matches.shrink_to_fit();
        if let Action::Forward(forward) = &mut rule.action {
            forward.backends.shrink_to_fit();
        }
        let is_complete = at.is_valid && !is_suspect && self.errors.count() == before;
        if !is_complete {
            rule.action = broken_action(position.line);
        }
        Some(rule)
    }

    fn build_match(
        &self,
        at: Spanned<ShortOrFull<Parsed<model::Path>, document::MatchSection>>,
    ) -> Option<model::Match> {
        let part = match at.value? {
            ShortOrFull::Short(Parsed(path)) => {
                self.reject_pattern_path(&path, at.position)?;
                return Some(model::Match {
                    path: PathMatch::Prefix(path),
                    ..model::Match::default()
                });
            }
            ShortOrFull::Full(part) => part,
        };
        let (path, method) = match part.grpc {
            Some(at) => {
                if part.path.is_some() || part.method.is_some() {
                    let expected = "`grpc` without `path` and `method`, which it replaces";
                    self.errors.report(at.position, expected, "both");
                }
                grpc_match(at.value?.0)?
            }
            None => {
                let position = part.path.as_ref().map_or(at.position, |at| at.position);
                let path = build_path_match(field_value(part.path));
                if let PathMatch::Exact(path) | PathMatch::Prefix(path) = &path {
                    self.reject_pattern_path(path, position)?;
                }
                (path, parsed_value(part.method))
            }
        };
        let headers = part.headers.0.into_iter().filter_map(|(key, at)| {
            let name = self.header_name(&key)?;
            let value = self.build_value_match(at)?;
            Some(HeaderMatch { name, value })
        });
        let headers = headers.collect();
        let query = part.query.0.into_iter().filter_map(|(key, at)| {
            let name = key.value?;
            let value = self.build_value_match(at)?;
            Some(QueryMatch { name, value })
        });
        Some(model::Match {
            path,
            method,
            headers,
            query: query.collect(),
        })
    }

    /// Refuses a path that is written as other programs write patterns: taken literally it would match no request.
    fn reject_pattern_path(&self, path: &model::Path, position: FilePosition) -> Option<()> {
        let text = path.as_str();
        let Some(suggestion) = suggest_for_pattern(text) else {
            return Some(());
        };
        let expected = format!("a path without patterns such as `*`, `{{…}}` and `:name`; {suggestion}");
        self.errors.report(position, expected, quote(text));
        None
    }

    pub(super) fn header_name(&self, key: &Spanned<String>) -> Option<HeaderName> {
        let name = HeaderName::parse(key.value.as_deref()?);
        name.map_err(|fault| self.errors.report(key.position, fault.expected, fault.found))
            .ok()
    }

    pub(super) fn build_value_match(
        &self,
        at: Spanned<ShortOrFull<String, document::ValueMatch>>,
    ) -> Option<ValueMatch> {
        Some(match at.value? {
            ShortOrFull::Short(text) | ShortOrFull::Full(document::ValueMatch::Exact(text)) => {
                ValueMatch::Exact(text)
            }
            ShortOrFull::Full(document::ValueMatch::Regex(Parsed(pattern))) => ValueMatch::Pattern(pattern),
            ShortOrFull::Full(document::ValueMatch::Present(true)) => ValueMatch::Present,
            ShortOrFull::Full(document::ValueMatch::Present(false)) => {
                self.errors
                    .report(at.position, "`present: true`", "`present: false`");
                return None;
            }
        })
    }

    pub(super) fn build_streams(&mut self, streams: OrderedMap<document::StreamSection>) {
        self.for_each_part(streams, ConfigPart::Stream, |builder, name, part, position| {
            let mut forward = Forward::default();
            builder.add_backends(&mut forward, part.to);
            if forward.backends.is_empty() {
                builder.errors.report(position, "the key `to`", "none");
            }
            let named = part.listeners.is_some();
            let listeners = builder.resolve_names(part.listeners, &builder.listener_names, "a listener");
            if named && listeners.is_empty() {
                return;
            }
            let idle = parsed_value(part.idle).map(|time| time.0);
            let responses = positive_number(builder.errors, part.responses);
            let datagram_idle = match responses {
                Some(_) => limits::DATAGRAM_RESPONSE_IDLE,
                None => limits::DATAGRAM_IDLE,
            };
            let stream = StreamRoute {
                name,
                listeners,
                hostnames: parsed_items(part.hosts),
                backends: forward.backends,
                idle: idle.unwrap_or(Some(Duration::from_hours(1))),
                datagrams: DatagramSessions {
                    idle: idle.unwrap_or(Some(datagram_idle)),
                    responses,
                },
            };
            builder.built.config.streams.push(Arc::new(stream));
        });
    }
}

/// Suggests a spelling for a path with patterns of other programs. `None`: it has no pattern.
fn suggest_for_pattern(path: &str) -> Option<String> {
    let is_pattern = |segment: &str| {
        let named = segment
            .strip_prefix(':')
            .is_some_and(|name| name.starts_with(|first: char| first.is_ascii_alphabetic()));
        let encloses =
            |open: char, close: char| segment.find(open).is_some_and(|at| segment[at..].contains(close));
        named || segment.contains('*') || encloses('{', '}') || encloses('<', '>')
    };
    if !path.split('/').any(is_pattern) {
        // Characters that only expressions have; `(1)` and `$metadata` occur in paths of OData.
        let is_expression =
            path.contains(".+") || path.contains('\\') || path.contains("(?") || path.contains('[');
        let has_end = path.len() > 1 && path.ends_with('$');
        return (is_expression || has_end).then(|| {
            let pattern = path.trim_end_matches('$');
            format!("for a regular expression write `{{path: {{regex: '{pattern}'}}}}`")
        });
    }
    let prefix = path.trim_end_matches('*').trim_end_matches('/');
    if path.ends_with("/*") || path.ends_with("/**") {
        let prefix = if prefix.is_empty() { "/" } else { prefix };
        if !prefix.split('/').any(is_pattern) {
            return Some(format!("a prefix matches everything below it: write `{prefix}`"));
        }
    }
    let segments = path.split('/').map(|segment| match segment {
        "**" => ".*".to_owned(),
        _ if segment.contains('*') => regex_of(segment),
        _ if is_pattern(segment) => "[^/]+".to_owned(),
        _ => regex_of(segment),
    });
    let pattern = segments.collect::<Vec<_>>().join("/");
    Some(format!("write `{{path: {{regex: '{pattern}'}}}}`"))
}

/// Returns a regular expression for a segment with `*` as a wildcard.
fn regex_of(segment: &str) -> String {
    let mut out = String::new();
    for c in segment.chars() {
        match c {
            '*' => out.push_str("[^/]*"),
            '.' | '+' | '?' | '(' | ')' | '|' | '[' | ']' | '{' | '}' | '^' | '$' | '\\' => {
                out.push('\\');
                out.push(c);
            }
            c => out.push(c),
        }
    }
    out
}

/// Returns the action of an invalid rule: 500.
fn broken_action(line: u64) -> Action {
    Action::Broken {
        reason: format!("invalid configuration (line {line}); `ringmain check` reports the errors").into(),
    }
}

/// Builds the path of a match.
fn build_path_match(part: Option<ShortOrFull<Parsed<model::Path>, document::PathMatch>>) -> PathMatch {
    match part {
        None => PathMatch::default(),
        Some(
            ShortOrFull::Short(Parsed(path)) | ShortOrFull::Full(document::PathMatch::Prefix(Parsed(path))),
        ) => PathMatch::Prefix(path),
        Some(ShortOrFull::Full(document::PathMatch::Exact(Parsed(path)))) => PathMatch::Exact(path),
        Some(ShortOrFull::Full(document::PathMatch::Regex(Parsed(pattern)))) => PathMatch::Pattern(pattern),
    }
}

/// Builds the match of gRPC calls: `POST /service/method`.
fn grpc_match(name: GrpcMethodName) -> Option<(PathMatch, Option<model::MethodName>)> {
    let path = |text: String| model::Path::parse(&text).ok();
    let path = match name.method {
        Some(method) => PathMatch::Exact(path(format!("/{}/{method}", name.service))?),
        None => PathMatch::Prefix(path(format!("/{}", name.service))?),
    };
    Some((path, model::MethodName::parse("POST").ok()))
}

/// Builds the only rule of a route that has `to` in place of rules.
fn forwarding_rule(
    to: Spanned<OneOrMany<ShortOrFull<Parsed<UpstreamTarget>, document::BackendSection>>>,
) -> Spanned<document::RuleSection> {
    let (position, is_valid) = (to.position, to.is_valid);
    let rule = document::RuleSection {
        to: Some(to),
        ..document::RuleSection::default()
    };
    Spanned {
        value: Some(rule),
        position,
        is_valid,
    }
}
