//! Routes, their rules and what these match; routes of connections.

use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    self, Action, Forward, HeaderMatch, HeaderName, Name, PathMatch, Policy, QueryMatch, StreamRoute,
    ValueMatch,
};
use ringmain_gateway::table::Place;
use serde::Deserialize;

use super::{Builder, list, text, texts, value};
use crate::config::document::{self, Some1};
use crate::config::error::{Position, quoted};
use crate::config::deserializer::Reader;
use crate::config::scalars::{GrpcName, To};
use crate::config::yaml::Pair;
use crate::config::fields::{At, Either, OneOrMany, Pairs, Text};

/// Who answers, as it is written.
pub(super) type Backends = Some1<Either<Text<To>, document::Backend>>;

impl Builder<'_> {
    pub(super) fn routes(&mut self, routes: &[Pair<'_>]) {
        let errors = self.errors;
        for (key, node) in routes {
            let Ok(name) = At::<String>::deserialize(Reader::new(key, errors)) else {
                continue;
            };
            let Ok(at) = At::deserialize(Reader::new(node, errors)) else {
                continue;
            };
            let Some(text) = name.value else { continue };
            self.route(text.as_str().into(), name.position, at);
        }
    }

    /// What the key `to` of the file says.
    pub(super) fn short_route(&mut self, to: Backends) {
        let Some(position) = to.as_ref().map(|at| at.position) else {
            return;
        };
        let clean = to.as_ref().is_some_and(|at| at.clean);
        let name = Name::from("default");
        if self.built.config.routes.iter().any(|route| route.name == name) {
            let expected = "no route named `default` beside the key `to`, which makes one";
            self.errors.tell(position, expected, "both");
            return;
        }
        let route = document::Route {
            to,
            ..document::Route::default()
        };
        let at = At {
            value: Some(route),
            position,
            clean,
        };
        self.route(name, position, at);
    }

    fn route(&mut self, name: Name, position: Position, at: At<document::Route>) {
        let place = Place::Route(name.clone(), None);
        self.built.places.insert(place.clone(), position);
        let Some(part) = at.value else {
            return;
        };
        // Whom it is for must be known; and that no key of its own was passed over, which may have been a condition.
        let whom = |clean: Option<bool>| clean.unwrap_or(true);
        let listeners_clean = whom(part.listeners.as_ref().map(|at| at.clean));
        let hosts_clean = whom(part.hosts.as_ref().map(|at| at.clean));
        let rules_clean = part.rules.iter().flatten().all(|rule| rule.clean);
        let to_clean = whom(part.to.as_ref().map(|at| at.clean));
        if !listeners_clean || !hosts_clean {
            return;
        }
        let before = self.errors.count();
        let policies_clean = part.policies.as_ref().is_none_or(|at| at.clean);
        let policies = self.policies(part.policies, &[], &place);
        // A rule without a policy that its route means it to have lets in more than it should.
        let strange =
            (!at.clean && rules_clean && to_clean) || !policies_clean || self.errors.count() > before;
        let named = part.listeners.is_some();
        let listeners = self.known(part.listeners, &self.listeners, "a listener");
        if named && listeners.is_empty() {
            return;
        }
        let rules = match (part.rules, part.to) {
            (Some(rules), None) if !rules.is_empty() => rules,
            (Some(_), None) => {
                self.errors.tell(position, "at least one rule", "an empty list");
                return;
            }
            (None, Some(to)) => vec![rule_to(to)],
            (both, _) => {
                let found = if both.is_some() { "both" } else { "neither" };
                self.errors.tell(position, "either `rules` or `to`", found);
                return;
            }
        };
        let mut route = model::Route {
            name: name.clone(),
            listeners,
            hostnames: texts(part.hosts),
            rules: Vec::new(),
        };
        let mut unreadable = None;
        for rule in rules {
            let number = route.rules.len();
            let rule_place = Place::Route(name.clone(), Some(number));
            self.built.places.insert(rule_place.clone(), rule.position);
            let line = rule.position.line;
            let built = self.rule(rule, &policies, &rule_place, strange);
            if built.is_none() {
                unreadable.get_or_insert(line);
            }
            route
                .rules
                .push(built.unwrap_or_else(|| model::Rule::new(broken(line))));
        }
        if let Some(line) = unreadable {
            // Which requests that rule is for is not known: they must not fall to another one.
            route.rules.iter_mut().for_each(|rule| rule.action = broken(line));
        }
        // There may be many, and they stay.
        route.hostnames.shrink_to_fit();
        route.rules.shrink_to_fit();
        self.built.config.routes.push(Arc::new(route));
    }

    /// A rule; one that is wrong keeps its requests. `None`: it is not known which requests it is for.
    fn rule(
        &mut self,
        at: At<document::Rule>,
        policies: &[Policy],
        place: &Place,
        strange: bool,
    ) -> Option<model::Rule> {
        let before = self.errors.count();
        let position = at.position;
        let mut part = at.value?;
        let clean = part.matches.as_ref().is_none_or(|at| at.clean);
        let matches = list(part.matches.take());
        let matches = matches.into_iter().filter_map(|at| self.matching(at)).collect();
        let unknown = !clean || self.errors.count() > before;
        let mut rule = model::Rule::new(Action::Answer(model::Answer {
            status: 500,
            content_type: None,
            body: model::Body::default(),
        }));
        rule.matches = matches;
        rule.name = value(part.name.take()).map(Into::into);
        rule.policies = self.policies(part.policies.take(), policies, place);
        self.rest_of_rule(&mut rule, part, position);
        // What else is wrong with it was told at once.
        if unknown {
            return None;
        }
        rule.matches.shrink_to_fit();
        if let Action::Forward(forward) = &mut rule.action {
            forward.backends.shrink_to_fit();
        }
        let right = at.clean && !strange && self.errors.count() == before;
        if !right {
            rule.action = broken(position.line);
        }
        Some(rule)
    }

    fn matching(&self, at: At<Either<Text<model::Path>, document::Match>>) -> Option<model::Match> {
        let part = match at.value? {
            Either::Short(Text(path)) => {
                self.is_literal(&path, at.position)?;
                return Some(model::Match {
                    path: PathMatch::Prefix(path),
                    ..model::Match::default()
                });
            }
            Either::Full(part) => part,
        };
        let (path, method) = match part.grpc {
            Some(at) => {
                if part.path.is_some() || part.method.is_some() {
                    let expected = "`grpc` without `path` and `method`, which it stands for";
                    self.errors.tell(at.position, expected, "both");
                }
                grpc(at.value?.0)?
            }
            None => {
                let position = part.path.as_ref().map_or(at.position, |at| at.position);
                let path = path(value(part.path));
                if let PathMatch::Exact(path) | PathMatch::Prefix(path) = &path {
                    self.is_literal(path, position)?;
                }
                (path, text(part.method))
            }
        };
        let headers = part.headers.0.into_iter().filter_map(|(key, at)| {
            let name = self.header_name(&key)?;
            let value = self.value_match(at)?;
            Some(HeaderMatch { name, value })
        });
        let headers = headers.collect();
        let query = part.query.0.into_iter().filter_map(|(key, at)| {
            let name = key.value?;
            let value = self.value_match(at)?;
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
    fn is_literal(&self, path: &model::Path, position: Position) -> Option<()> {
        let text = path.as_str();
        let Some(meant) = meant_by(text) else {
            return Some(());
        };
        let expected = format!("a path without patterns such as `*`, `{{…}}` and `:name`; {meant}");
        self.errors.tell(position, expected, quoted(text));
        None
    }

    pub(super) fn header_name(&self, key: &At<String>) -> Option<HeaderName> {
        let name = HeaderName::parse(key.value.as_deref()?);
        name.map_err(|fault| self.errors.tell(key.position, fault.expected, fault.found))
            .ok()
    }

    fn value_match(&self, at: At<Either<String, document::ValueMatch>>) -> Option<ValueMatch> {
        Some(match at.value? {
            Either::Short(text) | Either::Full(document::ValueMatch::Exact(text)) => ValueMatch::Exact(text),
            Either::Full(document::ValueMatch::Regex(Text(pattern))) => ValueMatch::Pattern(pattern),
            Either::Full(document::ValueMatch::Present(true)) => ValueMatch::Present,
            Either::Full(document::ValueMatch::Present(false)) => {
                self.errors
                    .tell(at.position, "`present: true`", "`present: false`");
                return None;
            }
        })
    }

    pub(super) fn streams(&mut self, streams: Pairs<document::Stream>) {
        self.each(streams, Place::Stream, |builder, name, part, position| {
            let mut forward = Forward::default();
            builder.backends(&mut forward, part.to);
            if forward.backends.is_empty() {
                builder.errors.tell(position, "the key `to`", "none");
            }
            let named = part.listeners.is_some();
            let listeners = builder.known(part.listeners, &builder.listeners, "a listener");
            if named && listeners.is_empty() {
                return;
            }
            let stream = StreamRoute {
                name,
                listeners,
                hostnames: texts(part.hosts),
                backends: forward.backends,
                idle: text(part.idle).map_or(Some(Duration::from_hours(1)), |time| time.0),
            };
            builder.built.config.streams.push(Arc::new(stream));
        });
    }
}

/// What a path with patterns of other programs is probably meant to be. `None`: it has none.
fn meant_by(path: &str) -> Option<String> {
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
            format!("for an expression write `{{path: {{regex: '{pattern}'}}}}`")
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

/// A regular expression for a segment, in which `*` stands for anything.
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

/// The action of a rule that is wrong: 500.
fn broken(line: u64) -> Action {
    Action::Broken {
        reason: format!("its configuration is wrong (line {line}); `ringmain check` says what").into(),
    }
}

/// What a path must be.
fn path(part: Option<Either<Text<model::Path>, document::PathMatch>>) -> PathMatch {
    match part {
        None => PathMatch::default(),
        Some(Either::Short(Text(path)) | Either::Full(document::PathMatch::Prefix(Text(path)))) => {
            PathMatch::Prefix(path)
        }
        Some(Either::Full(document::PathMatch::Exact(Text(path)))) => PathMatch::Exact(path),
        Some(Either::Full(document::PathMatch::Regex(Text(pattern)))) => PathMatch::Pattern(pattern),
    }
}

/// The same for calls of gRPC: `POST /service/method`.
fn grpc(name: GrpcName) -> Option<(PathMatch, Option<model::MethodName>)> {
    let path = |text: String| model::Path::parse(&text).ok();
    let path = match name.method {
        Some(method) => PathMatch::Exact(path(format!("/{}/{method}", name.service))?),
        None => PathMatch::Prefix(path(format!("/{}", name.service))?),
    };
    Some((path, model::MethodName::parse("POST").ok()))
}

/// The one rule of a route that has `to` in place of rules.
fn rule_to(to: At<OneOrMany<Either<Text<To>, document::Backend>>>) -> At<document::Rule> {
    let (position, clean) = (to.position, to.clean);
    let rule = document::Rule {
        to: Some(to),
        ..document::Rule::default()
    };
    At {
        value: Some(rule),
        position,
        clean,
    }
}
