//! Tests of explanations.

use std::sync::Arc;

use super::{compile, config, facts, listener, route};
use crate::limits;
use crate::model::{Protocol, StreamRoute, WeightedBackend};
use crate::table::Table;

#[test]
fn the_closest_match_is_first() {
    let mut elsewhere = route("elsewhere", &[], &["/"]);
    elsewhere.listeners.push("other".into());
    let mut config = config([
        elsewhere,
        route("host", &["b.example"], &["/"]),
        route(
            "shop",
            &["a.example"],
            &[
                "/",
                "/cart POST",
                "/cart h:x=1",
                "/cart q:k~[0-9]+",
                "=/help",
                "/cart",
            ],
        ),
    ]);
    config
        .listeners
        .push(Arc::new(listener("other", 80, &["c.example"])));
    let table = compile(config);
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "a.example/cart/1"));
    assert_eq!(explained.listener.as_deref(), Some("web"));
    assert_eq!(
        explained.other_listeners,
        [(
            "other".into(),
            "matches only `c.example`, not `a.example`".to_owned()
        )]
    );
    let taken = explained.selected.unwrap();
    assert_eq!(
        (&*taken.route, taken.rule, &*taken.matched_by),
        ("shop", 5, "prefix `/cart`")
    );
    let rejected: Vec<_> = explained
        .rejected
        .iter()
        .map(|rejected| format!("{} {}: {}", rejected.route, rejected.rule, rejected.reason.text()))
        .collect();
    assert_eq!(
        rejected,
        [
            "shop 0: prefix `/` also matches, but has lower precedence",
            "shop 3: query parameter `k` is not matching `[0-9]+`",
            "shop 2: header `x` is not `1`",
            "shop 1: matches only POST, not GET",
            "shop 4: path `/help` does not match `/cart/1`",
            "host 0: matches only `b.example`, not `a.example`",
            "elsewhere 0: attached to `other`, not `web`",
        ]
    );
    assert_eq!(explained.omitted, 0);
}

#[test]
fn the_list_is_bounded() {
    let routes = (0..100).map(|number| route(&format!("r{number}"), &[], &["/x"]));
    let table = compile(config(routes));
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "/y"));
    assert_eq!(
        (explained.selected, explained.rejected.len(), explained.omitted),
        (None, limits::EXPLAINED, 80)
    );
}

#[test]
fn a_host_without_a_listener() {
    let mut config = config([]);
    config.listeners = vec![Arc::new(listener("web", 80, &["a.example"]))];
    let table = compile(config);
    let (id, ..) = table.addresses().iter().next().unwrap();
    let explained = table.explain(id, &facts("GET", "b.example/"));
    assert_eq!(explained.listener, None);
    assert_eq!(
        explained.other_listeners[0].1,
        "matches only `a.example`, not `b.example`"
    );
}

/// Builds listeners for TLS with two names, for bytes, and for HTTP.
fn passing() -> Table<()> {
    let stream = |name: &str, hosts: &[&str], to: &[&str]| {
        let route = route(name, hosts, &[]);
        Arc::new(StreamRoute {
            name: route.name,
            listeners: Vec::new(),
            hostnames: route.hostnames,
            backends: to.iter().map(|name| WeightedBackend::new(*name)).collect(),
            idle: Some(std::time::Duration::from_secs(60)),
            datagrams: Default::default(),
        })
    };
    let of = |name: &str, port, hosts: &[&str], protocol| {
        let mut listener = listener(name, port, hosts);
        listener.protocol = protocol;
        Arc::new(listener)
    };
    let mut config = config([]);
    config.listeners = vec![
        of("mail", 993, &["*.example"], Protocol::TlsPassthrough),
        of("other", 993, &["a.test"], Protocol::TlsPassthrough),
        of("bytes", 5432, &[], Protocol::Tcp),
        of("web", 80, &[], Protocol::Http),
    ];
    let mut elsewhere = (*stream("elsewhere", &["a.example"], &[])).clone();
    elsewhere.listeners = vec!["other".into()];
    config.streams = vec![
        stream("none", &[], &[]),
        stream("wide", &["*.example", "b.example"], &["up", "up"]),
        elsewhere.into(),
        stream("one", &["a.example"], &["up"]),
        stream("late", &["a.example"], &["up"]),
        stream("test", &["a.test"], &["up"]),
    ];
    compile(config)
}

/// Returns the listener and the explanation of a connection.
fn told(table: &Table<()>, at: usize, sni: Option<&str>) -> (Option<String>, Vec<String>) {
    let (id, ..) = table.addresses().iter().nth(at).unwrap();
    let explained = table.explain_stream(id, sni);
    let mut lines: Vec<String> = explained
        .other_listeners
        .iter()
        .map(|(name, why)| format!("not {name}: {why}"))
        .collect();
    if let Some(taken) = explained.selected {
        lines.push(format!(
            "{} by {}: {}",
            taken.route,
            taken.matched_by,
            taken.steps.join(", ")
        ));
    }
    lines.extend(
        explained
            .rejected
            .iter()
            .map(|(name, why)| format!("{name}: {}", why.text())),
    );
    (explained.listener.map(|name| name.to_string()), lines)
}

#[test]
fn connections_are_explained() {
    let table = passing();
    let explain = |at, sni| told(&table, at, sni);
    let (listener, lines) = explain(0, Some("a.example"));
    assert_eq!(listener.as_deref(), Some("mail"));
    assert_eq!(
        lines,
        [
            "not other: matches only `a.test`, not `a.example`",
            "one by host `a.example`: forward to upstream `up`, idle timeout 60s",
            "none: every connection also matches, but has lower precedence",
            "wide: host `*.example` also matches, but has lower precedence",
            "late: host `a.example` also matches, but has lower precedence",
            "test: matches only `a.test`, not `a.example`",
            "elsewhere: attached to `other`, not `mail`",
        ]
    );
    let (_, lines) = explain(0, Some("c.example"));
    assert_eq!(
        lines[1],
        "wide by host `*.example`: forward 1 of 2 to upstream `up`, forward 1 of 2 to upstream `up`, idle timeout 60s"
    );
    let (listener, lines) = explain(0, None);
    assert_eq!(
        (listener, &*lines[0]),
        (
            None,
            "not mail: matches only `*.example`, not a client without SNI"
        )
    );
    // On a listener without TLS the SNI is ignored.
    let (listener, lines) = explain(1, Some("a.example"));
    assert_eq!(listener.as_deref(), Some("bytes"));
    assert_eq!(
        lines[0],
        "none by every connection: close: no backend, idle timeout 60s"
    );
    assert!(lines[1].ends_with("not a client without SNI"), "{lines:?}");
    assert_eq!(explain(2, None), (Some("web".to_owned()), Vec::new()));
}

/// Escaped slashes are handled as in the data plane, by the same functions.
#[test]
fn paths_are_handled_as_in_requests() {
    use crate::model::{Action, Addresses, EscapedSlashes, Policy};
    let guarded = || {
        let mut admin = route("admin", &[], &["/admin"]);
        admin.rules[0].policies = vec![Policy::Addresses(Arc::new(Addresses {
            allow: vec![crate::model::Network::parse("10.0.0.0/8").unwrap()],
            ..Addresses::default()
        }))];
        vec![admin, route("all", &[], &["/"])]
    };
    let open = || vec![route("admin", &[], &["/admin"]), route("all", &[], &["/"])];
    let stand_in = ringmain_web::path::ENCODED_SLASH;
    let target = format!("/admin{stand_in}x");
    for (routes, how, expected) in [
        (open(), None, Ok(("all", None))),
        (open(), Some(EscapedSlashes::Keep), Ok(("all", None))),
        (
            open(),
            Some(EscapedSlashes::Decode),
            Ok(("admin", Some("/admin/x"))),
        ),
        (
            open(),
            Some(EscapedSlashes::Reject),
            Err(crate::fault::Fault::EscapedSlash),
        ),
        (guarded(), None, Err(crate::fault::Fault::EscapedSlash)),
        (guarded(), Some(EscapedSlashes::Keep), Ok(("all", None))),
        (
            guarded(),
            Some(EscapedSlashes::Decode),
            Ok(("admin", Some("/admin/x"))),
        ),
    ] {
        let mut config = config(routes);
        Arc::make_mut(&mut config.listeners[0]).paths.escaped_slashes = how;
        let table = compile(config);
        assert!(
            table
                .routes()
                .all(|route| !matches!(route.route().rules[0].action, Action::Broken { .. }))
        );
        let (id, ..) = table.addresses().iter().next().unwrap();
        let explained = table.explain(id, &facts("GET", &target));
        let found = match explained.fault {
            Some(fault) => Err(fault),
            None => Ok((
                &*explained.selected.as_ref().unwrap().route,
                explained.path.as_deref(),
            )),
        };
        assert_eq!(found, expected, "{how:?}");
        if let Ok((_, Some(_))) = expected {
            let why = explained.rejected[0].reason.text();
            assert_eq!(why, "prefix `/` also matches, but has lower precedence");
        }
    }
}

/// A preflight is routed as the request that it announces, if CORS applies there.
#[test]
fn a_preflight_is_explained_by_the_announced_request() {
    use super::super::{Headers, RequestFacts};
    use crate::model::{Cors, Policy};
    let headers: [(&str, &[u8]); 2] = [
        ("origin", b"https://a.example"),
        ("access-control-request-method", b"PUT"),
    ];
    for has_cors in [false, true] {
        let mut config = config([route("r", &[], &["/x PUT", "/x OPTIONS", "/"])]);
        if has_cors {
            let route = Arc::make_mut(&mut config.routes[0]);
            route.rules[0].policies = vec![Policy::Cors(Arc::new(Cors::default()))];
        }
        let table = compile(config);
        let (id, ..) = table.addresses().iter().next().unwrap();
        let explain = |method: &str, headers: &[(&str, &[u8])]| {
            let facts = RequestFacts {
                headers: Headers::List(headers),
                ..facts(method, "/x")
            };
            let explained = table.explain(id, &facts);
            (explained.selected.unwrap().rule, explained.preflight)
        };
        let expected = if has_cors {
            (0, Some("PUT".to_owned()))
        } else {
            (1, None)
        };
        assert_eq!(explain("OPTIONS", &headers), expected);
        // Without an origin, or with another method, it is no preflight.
        assert_eq!(explain("OPTIONS", &headers[1..]), (1, None));
        assert_eq!(explain("GET", &headers), (2, None));
    }
}
