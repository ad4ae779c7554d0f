//! Tests of problems: each part is reported alone, and the other parts are served.

use std::sync::Arc;
use std::time::Duration;

use super::{WEB, compile, config, facts, listener, route, rule, takes};
use crate::model::{
    Action, ActiveHealth, Addr, Balance, Certificate, Config, DatagramSessions, Endpoint, EndpointLocation,
    Forward, HashKey, HeaderName, HealthCheck, ListenerTls, Path, PathRewrite, Protocol,
    ProxyProtocolVersion, PushBalance, Retry, Rule, Secret, StatusRange, StreamRoute, Upstream, UpstreamTls,
    WeightedBackend, ZonePreference,
};
use crate::table::Table;

#[track_caller]
fn told(config: Config, expected: &[&str]) -> Table<()> {
    let table = compile(config);
    let problems: Vec<_> = table.problems().iter().map(ToString::to_string).collect();
    assert_eq!(problems, expected);
    table
}

fn upstream(name: &str) -> Arc<Upstream> {
    Arc::new(Upstream::new(
        name,
        vec![Endpoint::new(EndpointLocation::Address(
            "127.0.0.1:3000".parse().unwrap(),
        ))],
    ))
}

fn forward(matches: &[&str], change: impl FnOnce(&mut Forward)) -> Rule {
    let mut forward = Forward::to("up");
    change(&mut forward);
    Rule {
        action: Action::Forward(Box::new(forward)),
        ..rule(matches)
    }
}

#[test]
fn a_bad_rule_keeps_its_requests() {
    let mut bad = route("bad", &[], &[]);
    bad.rules = vec![
        forward(&["=/admin"], |forward| {
            forward.rewrite.path = Some(PathRewrite::Prefix(Path::root()));
            forward.timeouts.request = Some(Duration::from_secs(1));
            forward.timeouts.per_try = Some(Duration::from_secs(2));
            forward.retry = Some(Retry {
                attempts: 200,
                ..Retry::default()
            });
        }),
        forward(&["/good"], |_| {}),
    ];
    let mut config = config([bad, route("wide", &[], &["/"])]);
    config.upstreams = vec![upstream("up")];
    let table = told(
        config,
        &[
            "route `bad`, rule 1: rewrite.path: expected only prefix matches, since the prefix is replaced, found a match \
             of another kind; its requests receive 500",
            "route `bad`, rule 1: retry.attempts: expected at most 10, found 200; its requests receive 500",
            "route `bad`, rule 1: timeouts.per_try: expected at most the request timeout, 1s, found 2s; its requests \
             receive 500",
        ],
    );
    takes(&table, &facts("GET", "/admin"), "bad 0");
    takes(&table, &facts("GET", "/good"), "bad 1");
    takes(&table, &facts("GET", "/other"), "wide 0");
    let plan = |path| table.find(WEB, &facts("GET", path)).unwrap().plan();
    assert_eq!(
        plan("/admin"),
        Err(
            "rewrite.path: expected only prefix matches, since the prefix is replaced, found a match of another kind"
        )
    );
    assert_eq!(plan("/good"), Ok(&()));
}

#[test]
fn a_missing_upstream_breaks_its_share() {
    let mut route = route("r", &[], &[]);
    route.rules = vec![forward(&["/"], |_| {})];
    let without = config([route]);
    let mut with = without.clone();
    with.upstreams = vec![upstream("up")];
    let mut missing = Vec::new();
    let mut plan = |_: &Rule, names: &[Arc<str>]| {
        missing.push(names.to_vec());
        Ok(())
    };
    let first = Table::compile(Arc::new(without), None, &mut plan);
    assert_eq!(
        first.problems()[0].to_string(),
        "route `r`, rule 1: backends: expected a valid upstream of the configuration, found `up`; its share of \
         requests receives 500"
    );
    // The route is unchanged, but the upstream that it names exists now.
    let second = Table::compile(Arc::new(with.clone()), Some(&first), &mut plan);
    let third = Table::compile(Arc::new(with), Some(&second), &mut plan);
    assert_eq!(third.problems(), []);
    assert_eq!(missing, [vec!["up".into()], vec![]]);
}

#[test]
fn a_repeated_name_is_a_problem() {
    let mut config = config([
        route("r", &[], &["/a"]),
        route("other", &[], &["/"]),
        route("r", &[], &["/b", "/c"]),
    ]);
    config.listeners.push(Arc::new(listener("web", 81, &[])));
    let problems = [
        "listener `web`: name: expected a unique name, found duplicate `web`: number 2 has the name of number 1; \
         it is ignored",
        "route `r`: name: expected a unique name, found duplicate `r`: number 3 has the name of number 1; its \
         requests receive 500",
    ];
    let check = |table: &Table<()>| {
        let plan = |path| table.find(WEB, &facts("GET", path)).unwrap().plan();
        takes(table, &facts("GET", "/a"), "r 0");
        assert_eq!(plan("/a"), Ok(&()));
        takes(table, &facts("GET", "/d"), "other 0");
        // They do not fall to the wider route.
        takes(table, &facts("GET", "/b"), "r 0");
        takes(table, &facts("GET", "/c/x"), "r 1");
        for path in ["/b", "/c/x"] {
            assert_eq!(plan(path), Err("duplicate route name"), "{path}");
        }
    };
    let table = told(config.clone(), &problems);
    check(&table);
    // Nor does the next compilation confuse the two routes.
    let next = Table::compile(Arc::new(config), Some(&table), &mut |_, _| Ok(()));
    assert_eq!(next.problems(), table.problems());
    check(&next);
}

#[test]
fn a_stream_whose_name_another_has_keeps_its_connections() {
    let stream = |name: &str, host: &str| {
        Arc::new(StreamRoute {
            name: name.into(),
            listeners: Vec::new(),
            hostnames: vec![crate::model::Hostname::parse(host).unwrap()],
            backends: vec![crate::model::WeightedBackend::new("up")],
            idle: None,
            datagrams: Default::default(),
        })
    };
    let mut config = config([]);
    let mut pass = listener("pass", 443, &[]);
    pass.protocol = Protocol::TlsPassthrough;
    config.listeners = vec![Arc::new(pass)];
    config.upstreams = vec![upstream("up")];
    config.streams = vec![
        stream("s", "a.example"),
        stream("wide", "*.example"),
        stream("s", "b.example"),
    ];
    let table = told(
        config,
        &[
            "stream `s`: name: expected a unique name, found duplicate `s`: number 3 has the name of number 1; its \
             share of requests receives 500",
        ],
    );
    let leads = |host: &str| {
        let found = table.find_stream(WEB, Some(host)).unwrap();
        (found.name.to_string(), found.backends[0].target.clone())
    };
    let up = crate::model::Target::Upstream("up".into());
    assert_eq!(leads("a.example"), ("s".to_owned(), up.clone()));
    assert_eq!(leads("c.example"), ("wide".to_owned(), up));
    let (name, target) = leads("b.example");
    assert_eq!(name, "s");
    assert!(
        matches!(target, crate::model::Target::Broken { .. }),
        "{target:?}"
    );
}

/// The hosts of a listener that cannot be served stay with it: a wider listener at its address may demand less of clients.
#[test]
fn hosts_of_a_listener_that_is_left_out_fall_to_no_other() {
    let mut admin = listener("admin", 80, &["admin.example", "*.admin.example"]);
    admin.limits.head_bytes = 1;
    let mut config = config([route("r", &[], &["/"])]);
    let mut exact = listener("exact", 80, &["x.admin.example"]);
    exact.name = "exact".into();
    config.listeners.extend([Arc::new(admin), Arc::new(exact)]);
    // Connections of another protocol are not those of the served listeners.
    let mut pass = listener("pass", 80, &["pass.example"]);
    pass.protocol = Protocol::TlsPassthrough;
    config.listeners.push(Arc::new(pass));
    let table = compile(config);
    assert_eq!(table.problems().len(), 2);
    let (address, ..) = table.addresses().iter().next().unwrap();
    let admitted = |host| {
        let id = table.addresses().select_listener(address, host)?;
        Some(table.listener(id).name.to_string())
    };
    for (host, expected) in [
        ("admin.example", None),
        ("y.admin.example", None),
        ("x.admin.example", Some("exact")),
        ("shop.example", Some("web")),
        ("pass.example", Some("web")),
        ("", Some("web")),
    ] {
        assert_eq!(admitted(host).as_deref(), expected, "{host}");
    }
}

#[test]
fn listeners_of_an_address_are_distinguishable() {
    let mut tls = listener("tls", 80, &["a.example"]);
    tls.protocol = Protocol::TlsPassthrough;
    let mut config = config([]);
    for listener in [
        listener("second", 80, &[]),
        listener("third", 80, &["a.example"]),
        listener("fourth", 80, &["b.example", "a.example"]),
        tls,
    ] {
        config.listeners.push(Arc::new(listener));
    }
    let any: Addr = "127.0.0.1:0".parse().unwrap();
    for name in ["any1", "any2"] {
        let mut listener = listener(name, 0, &[]);
        listener.addresses = vec![any.clone()];
        config.listeners.push(Arc::new(listener));
    }
    let table = told(
        config,
        &[
            "listener `second`: hostnames: expected hosts that distinguish it from other listeners, found none, as at \
             listener `web` of the same address; it is ignored",
            "listener `fourth`: hostnames: expected hosts unique among the listeners of the address, found `a.example`, as \
             at listener `third` of the same address; it is ignored",
            "listener `tls`: protocol: expected distinguishable protocols: either HTTP, by host, or TLS, by SNI, found \
             TlsPassthrough, as at listener `web` of the same address; it is ignored",
        ],
    );
    assert_eq!(table.addresses().iter().count(), 3);
}

#[test]
fn tls_needs_existing_certificates() {
    let secure = |name: &str, port, certificate: &str| {
        let mut listener = listener(name, port, &[]);
        listener.protocol = Protocol::Https;
        listener.tls = Some(ListenerTls {
            certificates: vec![certificate.into()],
            ..ListenerTls::default()
        });
        Arc::new(listener)
    };
    let mut config = config([]);
    config.certificates = vec![Arc::new(Certificate {
        name: "shop".into(),
        chain: Arc::from(&b""[..]),
        key: Secret::new(&b""[..]),
    })];
    let mut without = listener("without", 445, &[]);
    without.protocol = Protocol::Https;
    config.listeners = vec![
        secure("good", 443, "shop"),
        secure("bad", 444, "shoop"),
        Arc::new(without),
    ];
    let table = told(
        config,
        &[
            "listener `bad`: tls.certificates: expected a certificate of the configuration, found `shoop`; it is ignored",
            "listener `without`: tls: expected certificates for TLS termination, found none; it is ignored",
        ],
    );
    assert_eq!(table.listeners().count(), 1);
}

#[test]
fn headers_that_frame_messages_are_not_changed() {
    let mut route = route("r", &[], &["/"]);
    route.rules[0].request_headers.remove = vec![HeaderName::parse("Transfer-Encoding").unwrap()];
    told(
        config([route]),
        &[
            "route `r`, rule 1: headers: expected no framing or hop-by-hop headers, found \
           `Transfer-Encoding`; its requests receive 500",
        ],
    );
}

#[test]
fn datagrams_have_no_hosts_and_ports_of_their_own() {
    let mut config = config([]);
    let udp = |name: &str, hosts: &[&str]| {
        let mut listener = listener(name, 53, hosts);
        listener.protocol = Protocol::Udp;
        Arc::new(listener)
    };
    let mut tcp = listener("tcp", 53, &[]);
    tcp.protocol = Protocol::Tcp;
    config.listeners = vec![
        udp("dns", &[]),
        udp("hosts", &["dns.example"]),
        udp("again", &[]),
        Arc::new(tcp),
    ];
    let table = told(
        config,
        &[
            "listener `hosts`: hostnames: expected no hosts: datagrams have no host to select by, found \
             `dns.example`; it is ignored",
            "listener `again`: protocol: expected distinguishable protocols: either HTTP, by host, or TLS, by SNI, \
             found Udp, as at listener `dns` of the same address; it is ignored",
        ],
    );
    let kinds = table.addresses().iter().map(|(.., is_datagram)| is_datagram);
    assert_eq!(kinds.collect::<Vec<_>>(), [true, false]);
}

#[test]
fn streams_of_datagrams_have_nothing_that_only_connections_have() {
    let mut config = config([]);
    let at = |name: &str, port, protocol| {
        let mut listener = listener(name, port, &[]);
        listener.protocol = protocol;
        Arc::new(listener)
    };
    config.listeners = vec![at("dns", 53, Protocol::Udp), at("tcp", 54, Protocol::Tcp)];
    let upstream = |name: &str, address| Upstream::new(name, vec![Endpoint::new(address)]);
    let inet = || EndpointLocation::Address("127.0.0.1:53".parse().unwrap());
    let mut tls = upstream("tls", inet());
    tls.tls = Some(UpstreamTls::default());
    let mut announced = upstream("announced", inet());
    announced.proxy_protocol = Some(ProxyProtocolVersion::V2);
    let unix = upstream("unix", EndpointLocation::Unix("/run/x".into()));
    config.upstreams = [upstream("plain", inet()), tls, announced, unix]
        .map(Arc::new)
        .into();
    let stream = |name: &str, listeners: &[&str], hosts: &[&str], to: &str, responses| {
        let route = route(name, hosts, &[]);
        Arc::new(StreamRoute {
            name: route.name,
            listeners: listeners.iter().map(|name| (*name).into()).collect(),
            hostnames: route.hostnames,
            backends: vec![WeightedBackend::new(to)],
            idle: None,
            datagrams: DatagramSessions {
                responses,
                ..DatagramSessions::default()
            },
        })
    };
    config.streams = vec![
        stream("plain", &["dns"], &[], "plain", Some(1)),
        stream("tls", &["dns"], &[], "tls", None),
        stream("announced", &["dns"], &[], "announced", None),
        stream("unix", &["dns"], &[], "unix", None),
        stream("both", &[], &["a.example"], "tls", Some(1)),
        stream("hosts", &["dns"], &["a.example"], "plain", None),
        stream("connections", &["tcp"], &["a.example"], "tls", Some(2)),
    ];
    told(
        config,
        &[
            "stream `tls`: backends: expected an upstream without TLS, as datagrams are forwarded unchanged, found \
             `tls` of upstream `tls`; its share of requests receives 500",
            "stream `announced`: backends: expected an upstream without PROXY protocol, which starts connections, found \
             `proxy_protocol` of upstream `announced`; its share of requests receives 500",
            "stream `unix`: backends: expected an upstream of IP addresses and hosts for UDP, found a Unix socket of \
             upstream `unix`; its share of requests receives 500",
            "stream `both`: backends: expected an upstream without TLS, as datagrams are forwarded unchanged, found \
             `tls` of upstream `tls`; its share of requests receives 500",
            "stream `hosts`: hostnames: expected no hosts: datagrams have no host to select by, found `a.example`; it \
             is ignored",
            "stream `connections`: responses: expected a listener of UDP: connections end by themselves, found 2; it is \
             ignored",
        ],
    );
}

#[test]
fn streams_go_by_sni() {
    let stream = |name: &str, hosts: &[&str]| {
        let route = route(name, hosts, &[]);
        Arc::new(StreamRoute {
            name: route.name,
            listeners: Vec::new(),
            hostnames: route.hostnames,
            backends: Vec::new(),
            idle: None,
            datagrams: Default::default(),
        })
    };
    let mut config = config([]);
    let mut listener = listener("tls", 443, &[]);
    listener.protocol = Protocol::TlsPassthrough;
    config.listeners = vec![Arc::new(listener)];
    config.streams = vec![
        stream("all", &[]),
        stream("wide", &["*.example"]),
        stream("one", &["a.example"]),
        stream("late", &["a.example"]),
    ];
    let table = told(config, &[]);
    let name = |sni| table.find_stream(WEB, sni).map(|stream| &*stream.name);
    assert_eq!(name(Some("a.example")), Some("one"));
    assert_eq!(name(Some("b.example")), Some("wide"));
    assert_eq!(name(Some("example")), Some("all"));
    assert_eq!(name(None), Some("all"));
}

#[test]
fn an_invalid_plan_is_reported_each_time() {
    let config = Arc::new(config([route("r", &[], &["/"])]));
    let mut last: Option<Table<()>> = None;
    for _ in 0..2 {
        let table = Table::compile(Arc::clone(&config), last.as_ref(), &mut |_, _| {
            Err("file not found".to_owned())
        });
        assert_eq!(
            table.problems()[0].to_string(),
            "route `r`, rule 1: plan: expected a rule that can be carried out, found file not found; its requests \
             receive 500"
        );
        last = Some(table);
    }
}

#[test]
fn balancing_for_push_servers_needs_their_reports() {
    let check = HealthCheck::Http {
        target: "/readyz".into(),
        host: None,
        statuses: StatusRange::one(200),
    };
    let reports = Some(ActiveHealth::new(check));
    let push = |key| Balance::Push(PushBalance { key });
    let least = Balance::LeastRequest;
    let near = Some(ZonePreference::Prefer);
    for (balance, active, zones, factor, expected) in [
        (push(None), reports.clone(), None, None, &[][..]),
        (
            push(Some(HashKey::Identity)),
            reports.clone(),
            None,
            Some(101),
            &[],
        ),
        (Balance::Maglev(HashKey::Path), None, near, Some(150), &[]),
        (
            push(None),
            Some(ActiveHealth::new(HealthCheck::Connect)),
            near,
            None,
            &[
                "zones: expected no `zones` with `balance: push`, which prefers the zone by itself, found both",
                "balance: expected `health.active` with a `path`, whose responses report the load of push servers, found \
                 `push` without it",
            ],
        ),
        (
            push(Some(HashKey::Query("".into()))),
            reports.clone(),
            None,
            Some(100),
            &[
                "balance: expected a key with a name, found an empty one",
                "hash_balance_factor: expected a percentage from 101 to 10000, found 100",
            ],
        ),
        (
            least,
            None,
            None,
            Some(125),
            &[
                "hash_balance_factor: expected `balance` with a key: `ring_hash`, `maglev`, or `push` with `key`, found none",
            ],
        ),
    ] {
        let mut upstream = Upstream::clone(&upstream("up"));
        upstream.balance = balance;
        upstream.health.active = active;
        upstream.zones = zones;
        upstream.hash_balance_factor = factor;
        let config = Config {
            upstreams: vec![Arc::new(upstream)],
            ..config([])
        };
        let found = compile(config);
        let found: Vec<_> = found.problems().iter().map(ToString::to_string).collect();
        assert_eq!(found.len(), expected.len(), "{found:?}");
        for (found, expected) in found.iter().zip(expected) {
            assert!(found.contains(expected), "{found}: {expected}");
        }
    }
}
