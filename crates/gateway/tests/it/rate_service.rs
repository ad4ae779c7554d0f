//! A rate limit service over gRPC (`envoy.service.ratelimit.v3`): descriptors, the effect of its decisions, and its failures.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, HeaderMatch, Policy, RateDescriptor, RateEntry, RateEntryValue, RateKey, RateLimit, RateService,
    Target, ValueMatch,
};
use ringmain_gateway::stats::{ExtensionKind, ExtensionReport};
use ringmain_wire::h2::ErrorCode;

use crate::grpc_service::{self, FAILING, count, respond};
use crate::h2_origin::Framed;
use crate::origin::{Edge, Origin, edge, refusing_addr, to};
use crate::policies::{ask, header, with};
use crate::rate_messages::{self as proto, Asked, ok, over_limit};
use crate::support::PATIENCE;

on_every_backend! {
    descriptors_describe_the_request,
    a_request_without_descriptors_causes_no_call,
    an_admitted_request_has_the_headers_of_the_service,
    a_request_over_the_limit_is_refused,
    limits_are_reported,
    limits_of_the_process_apply_first,
    a_failure_denies,
    a_failure_admits_if_configured,
    an_unresponsive_service_waits_no_longer_than_its_timeout,
    a_failure_concerns_its_own_request,
    a_service_that_recovers_is_used_again,
}

fn entry(key: &str, value: RateEntryValue) -> RateEntry {
    RateEntry {
        key: key.into(),
        value,
        optional: false,
    }
}

fn part(key: &str, part: RateKey) -> RateEntry {
    entry(key, RateEntryValue::Request(part))
}

fn descriptor(entries: Vec<RateEntry>) -> RateDescriptor {
    RateDescriptor { entries, hits: None }
}

fn policy(descriptors: Vec<RateDescriptor>) -> RateService {
    RateService {
        timeout: PATIENCE,
        ..RateService::new(Target::Upstream("limiter".into()), "shop", descriptors)
    }
}

/// One descriptor, by the path.
fn by_path() -> RateService {
    policy(vec![descriptor(vec![part("path", RateKey::Path)])])
}

fn config(origin: &Origin, limiter: SocketAddr, policies: Vec<Policy>) -> model::Config {
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config
        .upstreams
        .push(grpc_service::upstream_of("limiter", limiter));
    config
}

fn limited(engine: Config, origin: &Origin, limiter: SocketAddr, policy: RateService) -> Edge {
    let policies = vec![Policy::RateService(Arc::new(policy))];
    edge(engine, config(origin, limiter, policies))
}

/// A service that responds to each query with the message that `decide` returns.
fn deciding(decide: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Framed {
    grpc_service::responding(move |asked| decide(&Asked::parse(asked)))
}

fn with_header(name: &str, value: ValueMatch) -> Vec<HeaderMatch> {
    vec![HeaderMatch {
        name: header(name),
        value,
    }]
}

/// Descriptors with every kind of entry.
fn every_kind() -> RateService {
    let beta = |expect| RateEntryValue::Match {
        text: "beta".into(),
        headers: with_header("X-Beta", ValueMatch::Present),
        expect,
    };
    let mut optional = part("tenant", RateKey::Header(header("X-Tenant")));
    optional.optional = true;
    let source = |v4, v6| part("address", RateKey::Source { v4, v6 });
    let mut weighted = descriptor(vec![
        entry("plan", RateEntryValue::Constant("free".into())),
        optional,
    ]);
    weighted.hits = Some(3);
    policy(vec![
        weighted,
        descriptor(vec![source(32, 128), part("path", RateKey::Path)]),
        descriptor(vec![source(24, 64), part("method", RateKey::Method)]),
        descriptor(vec![
            part("host", RateKey::Host),
            entry("route", RateEntryValue::Route),
        ]),
        descriptor(vec![part("tenant", RateKey::Header(header("X-Tenant")))]),
        descriptor(vec![part("cookie", RateKey::Cookie("id".into()))]),
        descriptor(vec![entry("match", beta(true))]),
        descriptor(vec![entry("match", beta(false))]),
        descriptor(vec![part("identity", RateKey::Identity)]),
    ])
}

fn descriptors_describe_the_request(engine: Config) {
    let origin = Origin::echo();
    let limiter = deciding(|_| ok(&[]));
    let edge = limited(engine, &origin, limiter.addr, every_kind());
    let answer = edge.server.ask(
        "GET /a%2Db/../c%20?d=e HTTP/1.1\r\nHost: Shop.example:80\r\nX-Forwarded-For: 192.0.2.7\r\nX-Tenant: one\r\nX-Tenant: \
         two\r\nX-Beta:\r\nCookie: a=b; id=7\r\n\r\n",
    );
    assert_eq!(answer.status, 200);
    let asked = limiter.asked();
    assert_eq!(
        asked.line.split(' ').nth(2),
        Some("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
    );
    assert!(asked.field("grpc-timeout").is_some());
    let Asked { domain, descriptors } = Asked::parse(&asked.body);
    assert_eq!(domain, "shop");
    assert_eq!(
        descriptors,
        [
            "3*plan=free;tenant=one",
            "address=192.0.2.7;path=/c%20",
            "address=192.0.2.0/24;method=GET",
            "host=shop.example:80;route=all",
            "tenant=one",
            "cookie=7",
            "match=beta",
        ]
    );
    // A request that has less.
    assert_eq!(ask(&edge, "POST", "X-Tenant:\r\n").status, 200);
    let Asked { descriptors, .. } = Asked::parse(&limiter.asked().body);
    assert_eq!(
        descriptors,
        [
            "3*plan=free",
            "address=127.0.0.1;path=/",
            "address=127.0.0.0/24;method=POST",
            "host=a;route=all",
            "match=beta",
        ]
    );
    edge.server.shut_down();
}

fn a_request_without_descriptors_causes_no_call(engine: Config) {
    let origin = Origin::echo();
    let limiter = deciding(|_| over_limit(&[]));
    let tenant = part("tenant", RateKey::Header(header("X-Tenant")));
    let optional = RateEntry {
        optional: true,
        ..tenant.clone()
    };
    let policy = policy(vec![descriptor(vec![tenant]), descriptor(vec![optional])]);
    let edge = limited(engine, &origin, limiter.addr, policy);
    assert_eq!(ask(&edge, "GET", "").status, 200);
    assert!(limiter.is_quiet());
    assert_eq!(ask(&edge, "GET", "X-Tenant: one\r\n").status, 429);
    edge.server.shut_down();
}

fn an_admitted_request_has_the_headers_of_the_service(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nX-Add: origin\r\nContent-Length: 2\r\n\r\nhi");
    let limiter = deciding(|asked| match &asked.descriptors[0][..] {
        "path=/plain" => ok(&[]),
        _ => ok(&[
            proto::request_header("X-Plan", "free"),
            proto::request_header("x-plan", "trial"),
            proto::response_header("x-add", "limiter"),
        ]),
    });
    let policy = RateService {
        upstream_headers: vec![header("X-Plan")],
        ..by_path()
    };
    let edge = limited(engine, &origin, limiter.addr, policy);
    let answer = ask(&edge, "GET", "X-Plan: gold\r\nx_plan: gold\r\n");
    answer.expect(200, "hi");
    let added = answer.fields.iter().filter(|(name, _)| name == "x-add");
    let added: Vec<&str> = added.map(|(_, value)| &**value).collect();
    assert_eq!(added, ["origin", "limiter"]);
    let seen = origin.seen();
    assert_eq!(seen.field("x-plan").as_deref(), Some("free | trial"));
    assert_eq!(seen.field("x_plan"), None);
    // The client cannot set a header that the service may set, though the service sets none.
    let plain = "GET /plain HTTP/1.1\r\nHost: a\r\nX-Plan: gold\r\n\r\n";
    assert_eq!(edge.server.ask(plain).status, 200);
    assert_eq!(origin.seen().field("x-plan"), None);
    edge.server.shut_down();
}

fn a_request_over_the_limit_is_refused(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is admitted"));
    let limiter = deciding(|asked| match &asked.descriptors[0][..] {
        "path=/body" => over_limit(&[
            proto::raw_body("slow down"),
            proto::response_header("x-why", "limit"),
            proto::response_header("bad name", "1"),
            proto::status(1, None, 0, 90),
            proto::status(2, None, 0, 30),
            proto::status(2, None, 0, 0),
        ]),
        "path=/json" => over_limit(&[
            proto::raw_body("{}"),
            proto::response_header("Content-Type", "application/json"),
            proto::response_header("Retry-After", "7"),
            proto::status(2, None, 0, 30),
        ]),
        _ => over_limit(&[]),
    });
    let edge = limited(engine.clone(), &origin, limiter.addr, by_path());
    let plain = edge.server.get("/");
    plain.expect(429, "rate limit exceeded\n");
    assert_eq!(plain.field("retry-after"), None);
    let body = edge.server.get("/body");
    body.expect(429, "slow down");
    for (name, value) in [
        ("x-why", "limit"),
        ("retry-after", "30"),
        ("content-type", "text/plain"),
    ] {
        assert_eq!(body.field(name), Some(value), "{name}");
    }
    let json = edge.server.get("/json");
    json.expect(429, "{}");
    for (name, value) in [("retry-after", "7"), ("content-type", "application/json")] {
        assert_eq!(json.field(name), Some(value), "{name}");
    }
    assert_eq!(count(&edge, "rate_limited"), 3);
    assert_eq!(outcomes(&edge), [0, 3, 0]);
    edge.server.shut_down();

    let policy = RateService {
        status: 503,
        ..by_path()
    };
    let edge = limited(engine, &origin, limiter.addr, policy);
    edge.server.get("/").expect(503, "rate limit exceeded\n");
    edge.server.get("/body").expect(503, "slow down");
    edge.server.shut_down();
}

/// Returns the calls by outcome.
fn outcomes(edge: &Edge) -> [u64; 3] {
    let all: Vec<ExtensionReport> = edge.gateway.extension_reports();
    let found = all.iter().find(|report| report.kind == ExtensionKind::RateLimit);
    found.map_or([0; 3], |report| report.outcomes)
}

fn limits_are_reported(engine: Config) {
    let origin = Origin::echo();
    let limiter = deciding(|asked| {
        let statuses = [
            proto::status(1, Some((1000, 3, "total")), 900, 1800),
            proto::status(1, None, 0, 1),
            proto::status(1, Some((5, 2, "")), 2, 17),
            proto::status(1, Some((9, 0, "odd")), 9, 1),
        ];
        match &asked.descriptors[0][..] {
            "path=/over" => over_limit(&statuses),
            "path=/none" => ok(&[]),
            _ => ok(&statuses),
        }
    });
    let policy = RateService {
        limit_headers: true,
        ..by_path()
    };
    let edge = limited(engine, &origin, limiter.addr, policy);
    for (path, status) in [("/", 200), ("/over", 429)] {
        let answer = edge.server.get(path);
        assert_eq!(answer.status, status);
        for (name, value) in [
            ("x-ratelimit-limit", "5, 1000;w=3600;name=\"total\", 5;w=60"),
            ("x-ratelimit-remaining", "2"),
            ("x-ratelimit-reset", "17"),
        ] {
            assert_eq!(answer.field(name), Some(value), "{name}");
        }
    }
    assert_eq!(edge.server.get("/none").field("x-ratelimit-limit"), None);
    edge.server.shut_down();
}

fn limits_of_the_process_apply_first(engine: Config) {
    let origin = Origin::echo();
    let limiter = deciding(|_| ok(&[]));
    let own = RateLimit::new("own", 1, Duration::from_hours(1));
    // Whatever their order.
    let policies = vec![
        Policy::RateService(Arc::new(by_path())),
        Policy::RateLimit(Arc::new(own)),
    ];
    let edge = edge(engine, config(&origin, limiter.addr, policies));
    assert_eq!(ask(&edge, "GET", "").status, 200);
    limiter.asked();
    assert_eq!(ask(&edge, "GET", "").status, 429);
    assert!(limiter.is_quiet());
    edge.server.shut_down();
}

fn a_failure_denies(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is admitted"));
    for (what, fail) in FAILING {
        let limiter = grpc_service::failing(*fail, ok(&[]));
        let edge = limited(engine.clone(), &origin, limiter.addr, by_path());
        let refused = ask(&edge, "GET", "");
        assert_eq!(refused.text(), "rate limiter unavailable\n", "{what}");
        assert_eq!(
            (refused.status, refused.field("retry-after")),
            (503, Some("1")),
            "{what}"
        );
        assert_eq!(count(&edge, "limiter_down"), 1, "{what}");
        assert_eq!(outcomes(&edge), [0, 0, 1], "{what}");
        edge.server.shut_down();
    }
    // An unknown code, headers that the gateway writes itself or that cannot be sent, and too many.
    let many = vec![proto::response_header("a", "b"); 129];
    for message in [
        vec![8, 0],
        vec![8, 3],
        ok(&[proto::request_header("Host", "admin.example")]),
        ok(&[proto::request_header("x-plan", "a\r\nb: c")]),
        ok(&[proto::response_header("content-length", "0")]),
        ok(&many),
    ] {
        let limiter = deciding(move |_| message.clone());
        let edge = limited(engine.clone(), &origin, limiter.addr, by_path());
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
    let edge = limited(engine, &origin, refusing_addr(), by_path());
    assert_eq!(ask(&edge, "GET", "").status, 503);
    edge.server.shut_down();
}

fn open() -> RateService {
    RateService {
        fail_open: true,
        upstream_headers: vec![header("X-Plan")],
        ..by_path()
    }
}

fn a_failure_admits_if_configured(engine: Config) {
    for (what, fail) in FAILING {
        let (origin, limiter) = (Origin::echo(), grpc_service::failing(*fail, ok(&[])));
        let edge = limited(engine.clone(), &origin, limiter.addr, open());
        assert_eq!(ask(&edge, "GET", "X-Plan: gold\r\n").status, 200, "{what}");
        assert_eq!(origin.seen().field("x-plan"), None, "{what}");
        assert_eq!(count(&edge, "limiter_down"), 1, "{what}");
        edge.server.shut_down();
    }
    // The service blames the call: a client could cause that.
    for grpc_status in ["3", "8", "9", "11"] {
        let origin = Origin::new(|_| panic!("no request is admitted"));
        let limiter = grpc_service::failing(
            move |peer, stream, _| {
                let fields = [("content-type", "application/grpc"), ("grpc-status", grpc_status)];
                peer.respond(stream, 200, &fields, true);
            },
            Vec::new(),
        );
        let edge = limited(engine.clone(), &origin, limiter.addr, open());
        assert_eq!(ask(&edge, "GET", "").status, 503, "{grpc_status}");
        edge.server.shut_down();
    }
}

fn an_unresponsive_service_waits_no_longer_than_its_timeout(engine: Config) {
    for (fail_open, status) in [(false, 503), (true, 200)] {
        let origin = Origin::echo();
        let silent = Framed::new(|mut peer| {
            peer.request();
            peer.request();
        });
        let policy = RateService {
            timeout: Duration::from_millis(20),
            fail_open,
            ..by_path()
        };
        let edge = limited(engine.clone(), &origin, silent.addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, status);
        assert_eq!(outcomes(&edge), [0, 0, 1]);
        edge.server.shut_down();
    }
}

/// More failures than any breaker would wait for.
const FAILURES: u64 = 20;

fn a_failure_concerns_its_own_request(engine: Config) {
    for fail_open in [false, true] {
        let origin = Origin::echo();
        let limiter = Framed::new(|mut peer| {
            while let Some((stream, asked)) = peer.request() {
                match &Asked::parse(&asked.body).descriptors[0][..] {
                    "path=/poison" => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                    "path=/over" => respond(&mut peer, stream, &over_limit(&[])),
                    _ => respond(&mut peer, stream, &ok(&[])),
                }
            }
        });
        let policy = RateService {
            fail_open,
            ..by_path()
        };
        let edge = limited(engine.clone(), &origin, limiter.addr, policy);
        for _ in 0..FAILURES {
            let poison = edge.server.get("/poison").status;
            assert_eq!(poison, if fail_open { 200 } else { 503 });
            assert_eq!(edge.server.get("/").status, 200);
            assert_eq!(edge.server.get("/over").status, 429, "fail_open: {fail_open}");
        }
        edge.server.shut_down();
    }
}

fn a_service_that_recovers_is_used_again(engine: Config) {
    let origin = Origin::echo();
    // The first two connections break at their first call.
    let limiter = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            match peer.number {
                0 | 1 => return peer.cut(),
                _ => respond(&mut peer, stream, &over_limit(&[])),
            }
        }
    });
    let edge = limited(engine, &origin, limiter.addr, by_path());
    for status in [503, 503, 429, 429] {
        assert_eq!(edge.server.get("/").status, status);
    }
    edge.server.shut_down();
}
