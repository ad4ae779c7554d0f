//! Requests by the load that endpoints report in responses to health checks, and by keys of the request.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::LoadReport;
use ringmain_gateway::model::{
    ActiveHealth, Balance, ClaimPath, HashKey, HealthCheck, JwtAlgorithm, Policy, PushBalance, StatusRange,
    Upstream, UpstreamProtocol,
};
use ringmain_testkit::wait::until;
use serde_json::json;

use crate::h2_origin::Framed;
use crate::identity_provider::{Signer, claims, inline, jwt, provider};
use crate::origin::{Edge, Origin, edge, to};
use crate::policies::with;
use crate::support::Answer;

on_every_backend! {
    reported_loads_select_the_endpoint,
    reports_are_read_over_http2,
    keys_of_requests_select_the_endpoint,
}

/// The status and the header of an endpoint's responses to health checks.
type Report = Arc<Mutex<(u16, String)>>;

fn report(text: &str) -> Report {
    Arc::new(Mutex::new((200, text.to_owned())))
}

fn set(report: &Report, status: u16, text: &str) {
    *report.lock().expect("no panic") = (status, text.to_owned());
}

/// Reports its load, and responds to other requests with its name.
fn origin(name: char, report: &Report) -> Origin {
    let report = Arc::clone(report);
    Origin::new(move |mut peer| {
        while let Some(seen) = peer.request() {
            let (status, load) = match seen.line().contains("/readyz") {
                true => report.lock().expect("no panic").clone(),
                false => (200, String::new()),
            };
            let load = match &*load {
                "" => String::new(),
                load => format!("Ringmain-Load: {load}\r\n"),
            };
            peer.send(format!(
                "HTTP/1.1 {status} x\r\n{load}Content-Length: 1\r\n\r\n{name}"
            ));
        }
    })
}

fn check(upstream: &mut Upstream) {
    upstream.balance = Balance::Push(PushBalance::default());
    upstream.health.active = Some(ActiveHealth {
        every: Duration::from_millis(20),
        // A leaving endpoint is not selected although its checks fail too seldom to be unhealthy.
        unhealthy_after: u8::MAX,
        ..ActiveHealth::new(HealthCheck::Http {
            target: "/readyz".into(),
            host: None,
            statuses: StatusRange::one(200),
        })
    });
}

fn wait_for(edge: &Edge, expected: &[Option<&str>]) {
    let expected: Vec<_> = expected
        .iter()
        .map(|text| text.and_then(|text| LoadReport::parse(text.as_bytes())))
        .collect();
    until("load reports", || {
        let upstreams = edge.gateway.upstreams();
        let endpoints = upstreams[0].endpoints.iter();
        endpoints
            .map(|endpoint| endpoint.load)
            .eq(expected.iter().copied())
    });
}

/// The endpoints of 20 requests.
fn endpoints_of(edge: &Edge) -> BTreeSet<String> {
    let texts = (0..20).map(|_| edge.server.get("/"));
    texts
        .map(|answer| {
            assert_eq!(answer.status, 200);
            answer.text().to_owned()
        })
        .collect()
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn reported_loads_select_the_endpoint(engine: Config) {
    let reports = [report("clients=10, max=1000"), report("clients=900, max=1000")];
    let origins = [origin('a', &reports[0]), origin('b', &reports[1])];
    let addrs: Vec<SocketAddr> = origins.iter().map(|origin| origin.addr).collect();
    let edge = edge(engine, to(&addrs, |_, upstream| check(upstream)));
    wait_for(
        &edge,
        &[Some("clients=10, max=1000"), Some("clients=900, max=1000")],
    );
    assert_eq!(endpoints_of(&edge), names(&["a"]), "the less loaded of two");
    // It drains: its checks fail, and its response has the report.
    set(&reports[0], 503, "clients=10, max=1000, leaving");
    wait_for(
        &edge,
        &[
            Some("clients=10, max=1000, leaving"),
            Some("clients=900, max=1000"),
        ],
    );
    assert_eq!(endpoints_of(&edge), names(&["b"]), "no leaving one");
    set(&reports[0], 200, "clients=0, max=1000");
    wait_for(
        &edge,
        &[Some("clients=0, max=1000"), Some("clients=900, max=1000")],
    );
    assert_eq!(endpoints_of(&edge), names(&["a"]), "its successor");
    set(&reports[0], 200, "clients=1000, max=1000");
    set(&reports[1], 200, "clients=999999, max=1000000");
    wait_for(
        &edge,
        &[
            Some("clients=1000, max=1000"),
            Some("clients=999999, max=1000000"),
        ],
    );
    assert_eq!(endpoints_of(&edge), names(&["b"]), "no full one");
    // Without a valid report both are compared by requests in flight: there are none.
    set(&reports[0], 200, "");
    set(&reports[1], 200, "clients=many");
    wait_for(&edge, &[None, None]);
    let both = (0..5).flat_map(|_| endpoints_of(&edge)).collect::<BTreeSet<_>>();
    assert_eq!(both, names(&["a", "b"]));
    edge.server.shut_down();
}

fn reports_are_read_over_http2(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            peer.respond(stream, 200, &[("ringmain-load", "clients=7, leaving")], true);
            peer.flush();
        }
    });
    let edge = edge(
        engine,
        to(&[origin.addr], |_, upstream| {
            check(upstream);
            upstream.protocol = UpstreamProtocol::Http2;
        }),
    );
    wait_for(&edge, &[Some("clients=7, leaving")]);
    assert_eq!(edge.server.get("/").status, 200, "the only endpoint is used");
    edge.server.shut_down();
}

/// Requests with the same value of a key reach one endpoint, and those with others several.
fn keys_of_requests_select_the_endpoint(engine: Config) {
    let none = report("");
    let origins: Vec<_> = ('a'..='e').map(|name| origin(name, &none)).collect();
    let addrs: Vec<SocketAddr> = origins.iter().map(|origin| origin.addr).collect();
    let signer = Signer::new(JwtAlgorithm::EdDsa, "one");
    let keys = [
        HashKey::Query("room".into()),
        HashKey::Claim(ClaimPath("org.tenant".into())),
        HashKey::Identity,
        HashKey::Header(ringmain_gateway::model::HeaderName::parse("X-Tenant").expect("a name")),
    ];
    for key in keys {
        for balance in [
            Balance::RingHash(key.clone()),
            Balance::Push(PushBalance {
                key: Some(key.clone()),
            }),
        ] {
            let tokens = jwt(provider(inline(&[&signer]), &[signer.algorithm]));
            let config = to(&addrs, |_, upstream| {
                check(upstream);
                upstream.balance = balance;
            });
            let edge = edge(engine.clone(), with(config, vec![Policy::Jwt(Arc::new(tokens))]));
            let ask = |value: usize, other: usize| -> Answer {
                let (query, header, tenant, subject) = match &key {
                    HashKey::Query(_) => (value, other, other, other),
                    HashKey::Header(_) => (other, value, other, other),
                    HashKey::Claim(_) => (other, other, value, other),
                    _ => (other, other, other, value),
                };
                let changes =
                    json!({ "org": { "tenant": format!("t{tenant}") }, "sub": format!("s{subject}") });
                let token = signer.sign(&claims(changes));
                let fields = format!("Host: a\r\nX-Tenant: {header}\r\nAuthorization: Bearer {token}\r\n");
                edge.server.ask(format!(
                    "GET /{other}?a=b&room=r%20{query} HTTP/1.1\r\n{fields}\r\n"
                ))
            };
            let mut all = BTreeSet::new();
            for value in 0..20 {
                let of_value: BTreeSet<_> = (0..3)
                    .map(|other| {
                        let answer = ask(value, other);
                        assert_eq!(answer.status, 200, "{key:?}");
                        answer.text().to_owned()
                    })
                    .collect();
                assert_eq!(of_value.len(), 1, "{key:?} {value}: {of_value:?}");
                all.extend(of_value);
            }
            assert!(all.len() >= 3, "{key:?}: {all:?}");
            edge.server.shut_down();
        }
    }
}
