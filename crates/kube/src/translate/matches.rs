//! Matches of HTTPRoutes and GRPCRoutes.
//!
//! A condition that cannot be read is widened, so that the rule, which then responds 500, keeps at least its own requests.

use ringmain_gateway::model::{
    HeaderMatch, HeaderName, Match, MethodName, Path, PathMatch, Pattern, QueryMatch, TextError, ValueMatch,
};

use super::condition::Fault;
use crate::objects::{GrpcMatch, GrpcMethod, HttpMatch, PathSpec, ValueSpec};

/// Collects the first fault of a rule.
#[derive(Default)]
pub(super) struct Faults(pub(super) Option<Fault>);

impl Faults {
    pub(super) fn add(&mut self, message: impl Into<String>) {
        self.0
            .get_or_insert_with(|| Fault::new("UnsupportedValue", message));
    }

    pub(super) fn read<T>(&mut self, value: Result<T, TextError>) -> Option<T> {
        value.map_err(|error| self.add(error.to_string())).ok()
    }
}

/// Translates a match of an HTTPRoute.
pub(super) fn http(spec: &HttpMatch, faults: &mut Faults) -> Match {
    let method = spec.method.as_deref();
    Match {
        path: spec
            .path
            .as_ref()
            .map_or_else(PathMatch::default, |path| http_path(path, faults)),
        method: method.and_then(|method| faults.read(MethodName::parse(method))),
        headers: headers(&spec.headers, faults),
        query: query(&spec.query_params, faults),
    }
}

/// Translates a match of a GRPCRoute.
pub(super) fn grpc(spec: &GrpcMatch, faults: &mut Faults) -> Match {
    Match {
        path: spec
            .method
            .as_ref()
            .map_or_else(PathMatch::default, |method| grpc_path(method, faults)),
        method: None,
        headers: headers(&spec.headers, faults),
        query: Vec::new(),
    }
}

fn http_path(spec: &PathSpec, faults: &mut Faults) -> PathMatch {
    let value = spec.value.as_deref().unwrap_or("/");
    let found = match spec.kind.as_deref().unwrap_or("PathPrefix") {
        "Exact" => faults.read(Path::parse(value)).map(PathMatch::Exact),
        "PathPrefix" => faults.read(Path::parse(value)).map(PathMatch::Prefix),
        "RegularExpression" => return pattern(value, faults),
        kind => {
            faults.add(format!("path match of type {kind} is not supported"));
            None
        }
    };
    found.unwrap_or_default()
}

fn grpc_path(spec: &GrpcMethod, faults: &mut Faults) -> PathMatch {
    let part = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(str::to_owned);
    let (service, method) = (part(&spec.service), part(&spec.method));
    let found = match spec.kind.as_deref().unwrap_or("Exact") {
        "Exact" => match (service, method) {
            (None, None) => Some(PathMatch::default()),
            (Some(service), None) => faults
                .read(Path::parse(&format!("/{service}")))
                .map(PathMatch::Prefix),
            (Some(service), Some(method)) => faults
                .read(Path::parse(&format!("/{service}/{method}")))
                .map(PathMatch::Exact),
            (None, Some(method)) => return pattern(&format!("/[^/]+/{}", escape(&method)), faults),
        },
        "RegularExpression" => {
            let any = || "[^/]+".to_owned();
            let group = |text: Option<String>| text.map_or_else(any, |text| format!("(?:{text})"));
            return pattern(&format!("/{}/{}", group(service), group(method)), faults);
        }
        kind => {
            faults.add(format!("method match of type {kind} is not supported"));
            None
        }
    };
    found.unwrap_or_default()
}

/// An expression for paths. One that is invalid becomes one for all paths with the same literal beginning.
fn pattern(text: &str, faults: &mut Faults) -> PathMatch {
    let found = faults.read(Pattern::parse(text)).or_else(|| {
        let wider = format!("{}.*", escape(literal_prefix(text)));
        Pattern::parse(&wider).or_else(|_| Pattern::parse("/.*")).ok()
    });
    found.map_or_else(PathMatch::default, PathMatch::Pattern)
}

/// The beginning of an expression that every match has.
fn literal_prefix(text: &str) -> &str {
    let text = text.strip_prefix('^').unwrap_or(text);
    if text.contains('|') || !text.starts_with('/') {
        return "/";
    }
    let end = text.find(is_meta).unwrap_or(text.len());
    let is_repeated = text[end..].starts_with(['*', '?', '{']);
    let literal = &text[..end];
    let last = literal.char_indices().next_back().map_or(0, |(at, _)| at);
    if is_repeated { &literal[..last] } else { literal }
}

fn is_meta(letter: char) -> bool {
    r"\.+*?()|[]{}^$#&-~".contains(letter)
}

fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        if is_meta(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn value(spec: &ValueSpec, faults: &mut Faults) -> ValueMatch {
    match spec.kind.as_deref().unwrap_or("Exact") {
        "Exact" => ValueMatch::Exact(spec.value.clone()),
        "RegularExpression" => {
            let pattern = faults.read(Pattern::parse(&spec.value));
            pattern.map_or(ValueMatch::Present, ValueMatch::Pattern)
        }
        kind => {
            faults.add(format!("match of type {kind} is not supported"));
            ValueMatch::Present
        }
    }
}

/// Of matches for one header the first counts.
fn headers(specs: &[ValueSpec], faults: &mut Faults) -> Vec<HeaderMatch> {
    let mut found: Vec<HeaderMatch> = Vec::new();
    for spec in specs {
        let Some(name) = faults.read(HeaderName::parse(&spec.name)) else {
            continue;
        };
        if found.iter().all(|other| other.name != name) {
            let value = value(spec, faults);
            found.push(HeaderMatch { name, value });
        }
    }
    found
}

/// Of matches for one parameter the first counts.
fn query(specs: &[ValueSpec], faults: &mut Faults) -> Vec<QueryMatch> {
    let mut found: Vec<QueryMatch> = Vec::new();
    for spec in specs {
        if found.iter().all(|other| other.name != spec.name) {
            let value = value(spec, faults);
            let name = spec.name.clone();
            found.push(QueryMatch { name, value });
        }
    }
    found
}
