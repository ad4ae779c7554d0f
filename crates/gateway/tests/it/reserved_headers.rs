//! Headers that policies write for an upstream: no client can send them there, through whatever rule; and requests that no policy
//! applies to.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::fault::Fault;
use ringmain_gateway::model::{
    self, Action, ApiKeys, Forward, HeaderName, HeaderValue, Match, MethodName, Path, PathMatch, Policy, Rule,
};

use crate::origin::{Edge, Origin, edge, refusing_addr, rules, to, upstream};
use crate::support::get;

on_every_backend! {
    written_headers_cannot_be_forged_by_another_rule,
    trace_goes_further_where_it_is_named,
    a_connection_field_of_many_names_is_refused_before_anybody_is_connected_to,
}

/// Builds a rule for a path prefix.
fn below(path: &str, to: &str) -> Rule {
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to(to))));
    rule.matches = vec![Match {
        path: PathMatch::Prefix(Path::parse(path).expect("a path")),
        ..Match::default()
    }];
    rule
}

/// `/keys` wants a key and tells the upstream whose it is; the others want nothing.
fn config(origin: &Origin, guarded: bool) -> model::Config {
    let mut keys = below("/keys", "origin");
    if guarded {
        keys.policies = vec![Policy::ApiKeys(Arc::new(ApiKeys {
            from: Vec::new(),
            keys: Vec::new().into(),
            consumer_header: HeaderName::parse("X-Consumer").ok(),
            hide: true,
        }))];
    }
    let mut sets = below("/sets", "origin");
    sets.request_headers.set = vec![(
        HeaderName::parse("X-Consumer").expect("a name"),
        HeaderValue::parse("nobody").expect("a value"),
    )];
    let upstreams = ["origin", "other"].map(|name| upstream(name, &[origin.addr]));
    rules(
        vec![keys, sets, below("/open", "origin"), below("/other", "other")],
        upstreams.into(),
    )
}

/// Returns the headers that the origin receives from a client that claims an identity.
fn seen(edge: &Edge, origin: &Origin, path: &str) -> [Option<String>; 2] {
    let fields = "X-Consumer: root\r\nX_Consumer: root\r\n";
    edge.server
        .ask(format!("GET {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n"));
    let seen = origin.seen();
    [seen.field("x-consumer"), seen.field("x_consumer")]
}

fn written_headers_cannot_be_forged_by_another_rule(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, config(&origin, true));
    let root = || Some("root".to_owned());
    for guarded in [true, false, true] {
        // Also when only the other rule has changed.
        let next = Arc::new(config(&origin, guarded));
        assert_eq!(edge.gateway.replace(next, Duration::ZERO), []);
        let open = seen(&edge, &origin, "/open");
        let expected = if guarded { [None, None] } else { [root(), root()] };
        assert_eq!(open, expected, "{guarded}");
        let sets = seen(&edge, &origin, "/sets");
        assert_eq!(sets, [Some("nobody".to_owned()), None]);
        assert_eq!(seen(&edge, &origin, "/other"), [root(), root()]);
    }
    edge.server.shut_down();
}

fn trace_goes_further_where_it_is_named(engine: Config) {
    let origin = Origin::echo();
    let mut named = below("/named", "origin");
    named.matches[0].method = MethodName::parse("TRACE").ok();
    let config = rules(
        vec![named, below("/", "origin")],
        vec![upstream("origin", &[origin.addr])],
    );
    let edge = edge(engine, config);
    let ask = |path: &str| {
        edge.server.ask(format!(
            "TRACE {path} HTTP/1.1\r\nHost: a\r\nCookie: secret\r\n\r\n"
        ))
    };
    ask("/").expect(405, "method not allowed: TRACE\n");
    assert!(edge.gateway.fault_counts().contains(&(Fault::TraceRefused, 1)));
    assert_eq!(ask("/named").status, 200);
    // It is the first that the origin was asked.
    assert_eq!(origin.seen().line(), "TRACE /named HTTP/1.1");
    edge.server.shut_down();
}

fn a_connection_field_of_many_names_is_refused_before_anybody_is_connected_to(engine: Config) {
    // Connecting would be another fault.
    let edge = edge(engine, to(&[refusing_addr()], |_, _| {}));
    let asked = |names: usize, rest: &str| {
        let names = vec!["x"; names].join(", ");
        edge.server.ask(format!(
            "GET / HTTP/1.1\r\nHost: a\r\nConnection: {names}\r\n{rest}\r\n"
        ))
    };
    assert_eq!(asked(32, "").status, 503);
    asked(33, "").expect(400, "too many options in the Connection header\n");
    // Also one that a task answers from the beginning.
    asked(33, "Content-Length: 0\r\n").expect(400, "too many options in the Connection header\n");
    let mut client = edge.server.client();
    client.send(get("/").replace("\r\n\r\n", "\r\nConnection: a,b\r\n\r\n"));
    assert_eq!(client.answer().status, 503);
    let faults = edge.gateway.fault_counts();
    assert!(faults.contains(&(Fault::ConnectionOptions, 2)), "{faults:?}");
    edge.server.shut_down();
}
