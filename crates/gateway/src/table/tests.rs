//! Tests of precedence, of sharing between tables, and of problems.

mod explain;
mod problems;
mod reference;
mod succession;
mod successor;

use std::sync::Arc;

use super::{Headers, ListenerId, Matched, RequestFacts, Table};
use crate::model::{
    Action, Config, DirectResponse, HeaderMatch, HeaderName, Hostname, HttpLimits, Listener, Match,
    MethodName, Path, PathMatch, Pattern, Protocol, QueryMatch, Route, Rule, StaticBody, ValueMatch,
};

/// A match as tests write it: `/prefix`, `=/exact` or `~expression`, then `GET`, `h:name=value`, `q:name`, `q:name~expression`.
pub(super) fn found(text: &str) -> Match {
    let mut words = text.split(' ');
    let path = words.next().expect("a path");
    let path = match path.split_at(1) {
        ("=", path) => PathMatch::Exact(Path::parse(path).unwrap()),
        ("~", pattern) => PathMatch::Pattern(Pattern::parse(pattern).unwrap()),
        _ => PathMatch::Prefix(Path::parse(path).unwrap()),
    };
    let mut found = Match {
        path,
        ..Match::default()
    };
    for word in words {
        if let Some(header) = word.strip_prefix("h:") {
            let (name, value) = value(header);
            let name = HeaderName::parse(name).unwrap();
            found.headers.push(HeaderMatch { name, value });
        } else if let Some(parameter) = word.strip_prefix("q:") {
            let (name, value) = value(parameter);
            let name = name.to_owned();
            found.query.push(QueryMatch { name, value });
        } else {
            found.method = Some(MethodName::parse(word).unwrap());
        }
    }
    found
}

fn value(text: &str) -> (&str, ValueMatch) {
    if let Some((name, value)) = text.split_once('=') {
        (name, ValueMatch::Exact(value.to_owned()))
    } else if let Some((name, pattern)) = text.split_once('~') {
        (name, ValueMatch::Pattern(Pattern::parse(pattern).unwrap()))
    } else {
        (text, ValueMatch::Present)
    }
}

pub(super) fn rule(matches: &[&str]) -> Rule {
    let mut rule = Rule::new(Action::Respond(DirectResponse {
        status: 200,
        content_type: None,
        body: StaticBody::default(),
    }));
    rule.matches = matches.iter().map(|text| found(text)).collect();
    rule
}

/// Builds a route whose rules have one match each.
pub(super) fn route(name: &str, hosts: &[&str], matches: &[&str]) -> Route {
    Route {
        name: name.into(),
        listeners: Vec::new(),
        hostnames: hosts.iter().map(|host| Hostname::parse(host).unwrap()).collect(),
        rules: matches.iter().map(|text| rule(&[text])).collect(),
    }
}

pub(super) fn listener(name: &str, port: u16, hosts: &[&str]) -> Listener {
    Listener {
        name: name.into(),
        addresses: vec![format!("127.0.0.1:{port}").parse().unwrap()],
        protocol: Protocol::Http,
        hostnames: hosts.iter().map(|host| Hostname::parse(host).unwrap()).collect(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: Default::default(),
        client_address: Default::default(),
        limits: HttpLimits::default(),
        policies: Vec::new(),
    }
}

pub(super) fn config(routes: impl IntoIterator<Item = Route>) -> Config {
    Config {
        listeners: vec![Arc::new(listener("web", 80, &[]))],
        routes: routes.into_iter().map(Arc::new).collect(),
        ..Config::default()
    }
}

pub(super) fn compile(config: Config) -> Table<()> {
    Table::compile(Arc::new(config), None, &mut |_, _| Ok(()))
}

pub(super) fn facts<'a>(method: &'a str, url: &'a str) -> RequestFacts<'a> {
    let (host, path) = url.split_at(url.find('/').expect("host/path"));
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    RequestFacts {
        host,
        path,
        method,
        query,
        headers: Headers::List(&[]),
    }
}

fn told(matched: Option<Matched<'_, ()>>) -> String {
    matched.map_or_else(
        || "404".to_owned(),
        |matched| format!("{} {}", matched.route().route().name, matched.rule_number()),
    )
}

const WEB: ListenerId = ListenerId(0);

#[track_caller]
fn takes(table: &Table<()>, facts: &RequestFacts<'_>, expected: &str) {
    assert_eq!(told(table.find(WEB, facts)), expected);
}

#[test]
fn exact_hosts_then_wildcards_then_all() {
    let table = compile(config([
        route("all", &[], &["/"]),
        route("wide", &["*.example"], &["/", "/only-wide"]),
        route("long", &["*.shop.example"], &["/"]),
        route("exact", &["a.shop.example"], &["/exact"]),
    ]));
    let check = |url, expected| takes(&table, &facts("GET", url), expected);
    check("a.shop.example/exact/x", "exact 0");
    // A request that the more specific host has no rule for falls to the next host.
    check("a.shop.example/", "long 0");
    check("a.b.shop.example/", "long 0");
    check("a.shop.example/only-wide", "long 0");
    check("shop.example/only-wide", "wide 1");
    check("example/", "all 0");
    check(".example/", "all 0");
    check("/", "all 0");
}

#[test]
fn exact_paths_then_expressions_then_the_longest_prefix() {
    let table = compile(config([route(
        "r",
        &[],
        &["/", "/a", "/a/b/", "=/a/b", "=/a/", "~/[ab]/x", "=/a/x"],
    )]));
    let check = |path, expected| takes(&table, &facts("GET", path), expected);
    check("/", "r 0");
    check("/ab", "r 0");
    check("/a", "r 1");
    check("/a/", "r 4");
    check("/a/c", "r 1");
    check("/a/b", "r 3");
    check("/a/b/", "r 2");
    check("/a/b/c/d/e", "r 2");
    check("/a/bc", "r 1");
    check("/a/x", "r 6");
    check("/b/x", "r 5");
    check("/b/x/", "r 0");
    takes(&table, &facts("OPTIONS", "/").with_path("*"), "404");
}

impl<'a> RequestFacts<'a> {
    fn with_path(self, path: &'a str) -> RequestFacts<'a> {
        RequestFacts { path, ..self }
    }

    fn with_headers(self, headers: &'a [(&'a str, &'a [u8])]) -> RequestFacts<'a> {
        let headers = Headers::List(headers);
        RequestFacts { headers, ..self }
    }
}

#[test]
fn then_method_headers_query_and_order() {
    let table = compile(config([
        route("first", &[], &["/", "/a h:x=1", "/a q:k", "/a"]),
        route(
            "second",
            &[],
            &["/a h:x=1 h:y", "/a GET", "/a q:k q:l~[0-9]+", "/a"],
        ),
    ]));
    let check = |method, url, headers, expected| {
        takes(&table, &facts(method, url).with_headers(headers), expected);
    };
    check("POST", "/a", &[], "first 3");
    check("GET", "/a", &[("x", b"1")], "second 1");
    check("POST", "/a", &[("X", b"1")], "first 1");
    check("POST", "/a", &[("X", b"2"), ("x", b"1")], "first 1");
    check("POST", "/a", &[("X", b"2")], "first 3");
    check("POST", "/a", &[("X", b"1"), ("Y", b"")], "second 0");
    check("POST", "/a?k", &[], "first 2");
    check("POST", "/a?k&&l=12", &[], "second 2");
    check("POST", "/a?%6B=+&l=%31", &[], "second 2");
    check("POST", "/a?k&l=12x", &[], "first 2");
    check("POST", "/a?l=12", &[], "first 3");
    check("POST", "/b?k", &[], "first 0");
}

#[test]
fn a_prefix_whose_predicates_fail_leaves_it_to_a_shorter_one() {
    let table = compile(config([route("r", &[], &["/a", "/a/b POST", "=/a/b/c POST"])]));
    takes(&table, &facts("POST", "/a/b/c"), "r 2");
    takes(&table, &facts("GET", "/a/b/c"), "r 0");
    takes(&table, &facts("POST", "/a/b/d"), "r 1");
    takes(&table, &facts("GET", "/b"), "404");
}

#[test]
fn the_matched_prefix_is_reported() {
    let table = compile(config([route("r", &[], &["/", "/a/b/", "=/a/b/c"])]));
    let prefix = |path| table.find(WEB, &facts("GET", path)).unwrap().prefix();
    assert_eq!(
        [
            prefix("/x"),
            prefix("/a/b"),
            prefix("/a/b/"),
            prefix("/a/b/x"),
            prefix("/a/b/c")
        ],
        [0, 4, 4, 4, 0]
    );
}

#[test]
fn a_rule_without_matches_takes_all() {
    let mut every = route("r", &["a.example"], &["/x"]);
    every.rules.push(rule(&[]));
    let table = compile(config([every]));
    takes(&table, &facts("GET", "a.example/x"), "r 0");
    takes(&table, &facts("PUT", "a.example/y"), "r 1");
    takes(&table, &facts("PUT", "b.example/y"), "404");
}

#[test]
fn listeners_have_their_own_routes() {
    let mut own = route("own", &[], &["/"]);
    own.listeners.push("other".into());
    let mut config = config([own, route("all", &[], &["/"])]);
    config
        .listeners
        .push(Arc::new(listener("other", 80, &["*.example", "one.example"])));
    config
        .listeners
        .push(Arc::new(listener("third", 80, &["a.one.example"])));
    let table = compile(config);
    assert_eq!(table.problems(), []);
    let (id, ..) = table.addresses().iter().next().unwrap();
    assert_eq!(table.addresses().iter().count(), 1);
    let listener = |host| {
        table
            .addresses()
            .select_listener(id, host)
            .map(|id| &*table.listener(id).name)
    };
    assert_eq!(listener("one.example"), Some("other"));
    assert_eq!(listener("a.one.example"), Some("third"));
    assert_eq!(listener("b.one.example"), Some("other"));
    assert_eq!(listener("example"), Some("web"));
    assert_eq!(listener(""), Some("web"));
    takes(&table, &facts("GET", "/"), "all 0");
    assert_eq!(told(table.find(ListenerId(1), &facts("GET", "/"))), "own 0");
}

#[test]
fn hosts_are_compared_in_one_form() {
    let mut scratch = String::new();
    let mut host = |authority| super::normalize_host(authority, &mut scratch).to_owned();
    assert_eq!(host("Shop.Example.:8080"), "shop.example");
    assert_eq!(host("shop.example"), "shop.example");
    assert_eq!(host("[::1]:80"), "[::1]");
    assert_eq!(host("[FD00::1]"), "[fd00::1]");
    assert_eq!(host(""), "");
}

#[test]
fn unchanged_parts_are_shared() {
    let config = |path: &str| {
        config([
            route("a", &["a.example"], &["/a"]),
            route("b", &["b.example"], &[path]),
            route("both", &["a.example", "c.example"], &["/c"]),
        ])
    };
    let first = compile(config("/b"));
    let planned = std::cell::RefCell::new(0);
    let again = |config| {
        Table::compile(Arc::new(config), Some(&first), &mut |_, _| {
            *planned.borrow_mut() += 1;
            Ok(())
        })
    };
    let same = again(config("/b"));
    assert_eq!(*planned.borrow(), 0);
    let changed = again(config("/x"));
    assert_eq!(*planned.borrow(), 1);
    for host in ["a.example", "c.example"] {
        assert!(first.shares_host(&same, 0, host) && first.shares_host(&changed, 0, host));
    }
    // Equal routes of the model are shared, too: a reloaded configuration does not hold them twice.
    assert!(Arc::ptr_eq(&first.config().routes[1], &same.config().routes[1]));
    assert!(!Arc::ptr_eq(
        &first.config().routes[1],
        &changed.config().routes[1]
    ));
    assert!(first.shares_host(&same, 0, "b.example") && !first.shares_host(&changed, 0, "b.example"));
    takes(&changed, &facts("GET", "b.example/x"), "b 0");
    takes(&changed, &facts("GET", "b.example/b"), "404");
    takes(&first, &facts("GET", "b.example/b"), "b 0");
}
