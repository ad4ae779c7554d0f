//! Tests of replacing a configuration as a whole and in parts.

use std::sync::Arc;
use std::time::Duration;

use crate::Gateway;
use crate::model::{
    Action, AuthzRequest, Config, Endpoint, EndpointLocation, ExternalAuth, Forward, HeaderChanges,
    HeaderName, HeaderValue, Hostname, HttpLimits, Listener, ListenerTls, Match, Mirror, Path, PathMatch,
    Policy, Protocol, Route, Rule, Target, Upstream,
};

fn listener(name: &str, address: &str) -> Arc<Listener> {
    Arc::new(Listener {
        name: name.into(),
        addresses: vec![address.parse().expect("an address")],
        protocol: Protocol::Http,
        hostnames: Vec::new(),
        tls: None,
        proxy_protocol: None,
        redirect_to_https: None,
        paths: crate::model::Paths::default(),
        client_address: crate::model::ClientAddress::default(),
        limits: HttpLimits::default(),
        policies: Vec::new(),
    })
}

fn rule(prefix: &str, upstream: &str) -> Rule {
    let mut rule = Rule::new(Action::Forward(Box::new(Forward::to(upstream))));
    rule.matches = vec![Match {
        path: PathMatch::Prefix(Path::parse(prefix).expect("a path")),
        ..Match::default()
    }];
    rule
}

fn upstream(name: &str, port: u16) -> Arc<Upstream> {
    Arc::new(Upstream::new(
        name,
        vec![Endpoint::new(EndpointLocation::Address(
            ([127, 0, 0, 1], port).into(),
        ))],
    ))
}

fn config() -> Config {
    Config {
        listeners: vec![listener("web", "127.0.0.1:1001")],
        routes: vec![Arc::new(Route {
            name: "site".into(),
            listeners: Vec::new(),
            hostnames: Vec::new(),
            rules: vec![rule("/admin", "app"), rule("/", "app")],
        })],
        upstreams: vec![upstream("app", 1)],
        ..Config::default()
    }
}

/// Returns the externally visible state of a gateway.
fn visible_state(gateway: &Gateway) -> (Vec<String>, String, Vec<String>, Vec<Hostname>) {
    let addrs = gateway.listen_addrs().iter().map(ToString::to_string).collect();
    let upstreams = format!("{:?}", gateway.upstreams());
    let problems = gateway.problems().iter().map(ToString::to_string).collect();
    (
        addrs,
        upstreams,
        problems,
        gateway.hostnames().into_iter().collect(),
    )
}

/// Returns changes that cannot be served, each next to others that could.
fn invalid_configs() -> Vec<(&'static str, Config)> {
    let mut all: Vec<(&'static str, Config)> = Vec::new();
    let mut case = |name, change: &dyn Fn(&mut Config)| {
        let mut config = config();
        // The valid part of the change differs from before, too.
        config.upstreams = vec![upstream("app", 2), upstream("new", 3)];
        config.listeners.push(listener("more", "127.0.0.1:1002"));
        change(&mut config);
        all.push((name, config));
    };
    let edit = |config: &mut Config, edit: &dyn Fn(&mut Route)| edit(Arc::make_mut(&mut config.routes[0]));
    case("an upstream that does not exist", &|config| {
        edit(config, &|route| route.rules[0] = rule("/admin", "ap"));
    });
    case("a header that frames the message", &|config| {
        edit(config, &|route| {
            route.rules[0].request_headers = HeaderChanges {
                set: vec![(
                    HeaderName::parse("Content-Length").expect("a name"),
                    HeaderValue::parse("1").expect("a value"),
                )],
                ..HeaderChanges::default()
            };
        });
    });
    case("an invalid host", &|config| {
        edit(config, &|route| {
            route.rules[0].request_headers = HeaderChanges {
                set: vec![(
                    HeaderName::parse("Host").expect("a name"),
                    HeaderValue::parse("a b").expect("a value"),
                )],
                ..HeaderChanges::default()
            };
        });
    });
    case("a listener twice at an address", &|config| {
        config.listeners.push(listener("again", "127.0.0.1:1001"));
    });
    case("a listener without certificates", &|config| {
        let mut secure = Listener::clone(&config.listeners[1]);
        secure.protocol = Protocol::Https;
        secure.tls = Some(ListenerTls {
            certificates: vec!["none".into()],
            ..ListenerTls::default()
        });
        config.listeners[1] = Arc::new(secure);
    });
    case("a route whose listener does not exist", &|config| {
        edit(config, &|route| route.listeners = vec!["wab".into()]);
    });
    case("too many rules", &|config| {
        edit(config, &|route| {
            route.rules = vec![rule("/", "app"); crate::limits::RULES + 1];
        });
    });
    all
}

#[test]
fn a_configuration_with_a_problem_changes_nothing() {
    let gateway = Gateway::new(Arc::new(config()), Duration::ZERO);
    assert_eq!(gateway.problems(), []);
    let (before, table) = (visible_state(&gateway), gateway.table());
    for (name, invalid) in invalid_configs() {
        let invalid = Arc::new(invalid);
        let checked = gateway.check(Arc::clone(&invalid), Duration::ZERO);
        assert!(!checked.is_empty(), "{name}");
        let rejected = gateway.replace_atomically(Arc::clone(&invalid), Duration::ZERO);
        assert_eq!(rejected, Err(checked), "{name}");
        assert_eq!(visible_state(&gateway), before, "{name}");
        assert!(Arc::ptr_eq(&gateway.table(), &table), "{name}");
        // As after a start.
        assert!(
            !Gateway::new(invalid, Duration::ZERO).problems().is_empty(),
            "{name}"
        );
    }
    let mut right = config();
    right.upstreams = vec![upstream("app", 2), upstream("new", 3)];
    let right = Arc::new(right);
    assert_eq!(gateway.check(Arc::clone(&right), Duration::ZERO), []);
    assert_eq!(visible_state(&gateway), before, "checking changes nothing");
    assert_eq!(gateway.replace_atomically(right, Duration::ZERO), Ok(()));
    assert_eq!(gateway.upstreams().len(), 2);
    assert_eq!(
        gateway.upstreams()[0].endpoints[0].addr.to_string(),
        "127.0.0.1:2"
    );
}

/// Checks parts of many owners: a rule that cannot be compiled keeps its requests, as does one beyond the limit.
#[test]
fn in_parts_no_rule_falls_through_to_a_wider_one() {
    use crate::table::{Headers, RequestFacts};
    let facts = RequestFacts {
        host: "a",
        path: "/admin/x",
        method: "GET",
        query: "",
        headers: Headers::List(&[]),
    };
    for (name, mut invalid) in invalid_configs() {
        let wide = Route {
            name: "wide".into(),
            rules: vec![rule("/", "app")],
            ..Route::clone(&invalid.routes[0])
        };
        let narrow = Arc::make_mut(&mut invalid.routes[0]);
        narrow.hostnames = vec![Hostname::parse("a").expect("a host")];
        invalid.routes.push(Arc::new(Route {
            listeners: Vec::new(),
            ..wide
        }));
        let listed = narrow_exists(&invalid);
        let gateway = Gateway::new(Arc::new(invalid), Duration::ZERO);
        let table = gateway.table();
        let (listener, _) = table.listeners().next().expect("a listener");
        let found = table.find(listener, &facts).expect("a rule");
        if listed {
            assert_eq!(&*found.route().route().name, "site", "{name}");
        }
    }
}

/// Returns configurations with a part that a translator could not resolve and left in its place.
fn broken() -> Vec<(&'static str, Config)> {
    let target = || Target::Broken {
        reason: "a reference that is not allowed".into(),
    };
    let case = |name, change: &dyn Fn(&mut Rule)| {
        let mut config = config();
        config.upstreams = vec![upstream("app", 2), upstream("new", 3)];
        change(&mut Arc::make_mut(&mut config.routes[0]).rules[0]);
        (name, config)
    };
    let forward = |rule: &mut Rule, change: &dyn Fn(&mut Forward)| match &mut rule.action {
        Action::Forward(forward) => change(forward),
        other => panic!("expected a rule that forwards, found {other:?}"),
    };
    vec![
        case("a rule", &|rule| {
            rule.action = Action::Broken {
                reason: "a filter that does not exist".into(),
            };
        }),
        case("a backend", &|rule| {
            forward(rule, &|forward| forward.backends[0].target = target());
        }),
        case("a mirror", &|rule| {
            forward(rule, &|forward| {
                let mut mirror = Mirror::to("app");
                mirror.target = target();
                forward.mirrors.push(mirror);
            });
        }),
        case("the upstream of a policy", &|rule| {
            let policy = ExternalAuth::new(target(), AuthzRequest::Prefix("/check".into()));
            rule.policies.push(Policy::ExternalAuth(Arc::new(policy)));
        }),
    ]
}

#[test]
fn a_broken_part_keeps_its_requests_in_parts_and_is_rejected_as_a_whole() {
    for (name, broken) in broken() {
        let broken = Arc::new(broken);
        let gateway = Gateway::new(Arc::new(config()), Duration::ZERO);
        let before = visible_state(&gateway);
        let checked = gateway.check(Arc::clone(&broken), Duration::ZERO);
        assert_eq!(checked.len(), 1, "{name}: {checked:?}");
        assert!(
            checked[0].to_string().contains("that "),
            "{name}: the problem has the reason"
        );
        let rejected = gateway.replace_atomically(Arc::clone(&broken), Duration::ZERO);
        assert_eq!(rejected, Err(checked), "{name}");
        assert_eq!(visible_state(&gateway), before, "{name}");

        // Its translator has reported it already, but a policy that cannot be compiled is reported here as well.
        let reported = gateway.replace(Arc::clone(&broken), Duration::ZERO);
        assert_eq!(
            reported.len(),
            usize::from(name == "the upstream of a policy"),
            "{name}"
        );
        assert_eq!(gateway.upstreams().len(), 2, "{name}: the other parts are served");
        let table = gateway.table();
        let (listener, _) = table.listeners().next().expect("a listener");
        let facts = crate::table::RequestFacts {
            host: "a",
            path: "/admin/x",
            method: "GET",
            query: "",
            headers: crate::table::Headers::List(&[]),
        };
        let found = table.find(listener, &facts).expect("a rule");
        assert_eq!(
            found.rule(),
            &broken.routes[0].rules[0],
            "{name}: not the wider rule"
        );
    }
}

/// Returns whether the narrow route is at a listener that exists.
fn narrow_exists(config: &Config) -> bool {
    let named = &config.routes[0].listeners;
    named.is_empty()
        || named
            .iter()
            .any(|name| config.listeners.iter().any(|it| it.name == *name))
}
