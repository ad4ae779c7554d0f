//! Allocations of a table: none for a lookup, few for a route. Counted by the allocator over every thread.

use std::alloc::System;
use std::hint::black_box;
use std::sync::Arc;

use ringmain_gateway::model::{
    Action, Config, Endpoint, EndpointLocation, Forward, HeaderMatch, HeaderName, Hostname, HttpLimits,
    Listener, Match, Path, PathMatch, Pattern, Protocol, QueryMatch, Route, Rule, Upstream, ValueMatch,
};
use ringmain_gateway::table::{Headers, RequestFacts, Table};
use stats_alloc::Region;

use crate::ALLOCATOR;

const ROUTES: usize = 5_000;

pub(crate) fn main() {
    for hosts in [ROUTES, 1] {
        let region = Region::new(ALLOCATOR);
        let config = config(hosts);
        let model = held(&region);
        let table: Table<()> = Table::compile(Arc::new(config), None, &mut |_, _| Ok(()));
        assert!(table.problems().is_empty());
        let all = held(&region);
        println!(
            "{ROUTES} routes on {hosts} hosts: {model} bytes a route for the model, {all} with its table"
        );
        assert!(all < 3 * 1024, "{all} bytes a route");
        lookups(&table);
    }
}

fn held(region: &Region<'_, System>) -> usize {
    let change = region.change();
    (change.bytes_allocated - change.bytes_deallocated) / ROUTES
}

fn lookups(table: &Table<()>) {
    let (listener, _) = table.listeners().next().expect("a listener");
    let find = |host: &str, path: &str, query: &str| {
        let facts = RequestFacts {
            host,
            path,
            method: "GET",
            query,
            headers: Headers::List(&[("x-user", b"1"), ("accept", b"*/*")]),
        };
        black_box(table.find(listener, &facts).map(|matched| matched.rule_number()))
    };
    let all = || {
        for (host, path, query) in [
            ("shop17.example", "/service17/a/b", "k=%31%32"),
            ("shop17.example", "/service17/a/b", "k=x&l=%"),
            ("shop0.example", "/nothing", ""),
            ("a.b.c.d.example", "/service4999", "k=1"),
            ("", "/expression/12", ""),
        ] {
            find(host, path, query);
        }
    };
    // An expression prepares itself the first time.
    all();
    let region = Region::new(ALLOCATOR);
    for _ in 0..1_000 {
        all();
    }
    let change = region.change();
    assert_eq!((change.allocations, change.reallocations), (0, 0), "{change:?}");
}

fn config(hosts: usize) -> Config {
    let mut routes: Vec<_> = (0..ROUTES).map(|number| Arc::new(route(number, hosts))).collect();
    let mut expression = route(0, 1);
    expression.name = "expression".into();
    expression.hostnames.clear();
    expression.rules[0].matches[0].path = PathMatch::Pattern(Pattern::parse("/expression/[0-9]+").unwrap());
    routes.push(Arc::new(expression));
    let address = EndpointLocation::Address("127.0.0.1:3000".parse().unwrap());
    Config {
        listeners: vec![Arc::new(Listener {
            name: "web".into(),
            addresses: vec!["127.0.0.1:8080".parse().unwrap()],
            protocol: Protocol::Http,
            hostnames: Vec::new(),
            tls: None,
            proxy_protocol: None,
            redirect_to_https: None,
            paths: Default::default(),
            client_address: Default::default(),
            limits: HttpLimits::default(),
            policies: Vec::new(),
        })],
        routes,
        upstreams: vec![Arc::new(Upstream::new("up", vec![Endpoint::new(address)]))],
        ..Config::default()
    }
}

/// Builds a route with two rules, one of which has predicates of every kind.
fn route(number: usize, hosts: usize) -> Route {
    let path = PathMatch::Prefix(Path::parse(&format!("/service{number}")).unwrap());
    let special = Match {
        path: path.clone(),
        method: None,
        headers: vec![HeaderMatch {
            name: HeaderName::parse("x-user").unwrap(),
            value: ValueMatch::Exact("1".to_owned()),
        }],
        query: vec![QueryMatch {
            name: "k".to_owned(),
            value: ValueMatch::Exact("12".to_owned()),
        }],
    };
    let plain = Match {
        path,
        ..Match::default()
    };
    let rule = |found| {
        let mut rule = Rule::new(Action::Forward(Box::new(Forward::to("up"))));
        rule.matches = vec![found];
        rule
    };
    Route {
        name: format!("route-{number}").into(),
        listeners: Vec::new(),
        hostnames: vec![Hostname::parse(&format!("shop{}.example", number % hosts)).unwrap()],
        rules: vec![rule(special), rule(plain)],
    }
}
