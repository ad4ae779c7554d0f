//! A service that is asked whether requests may pass: that lets them, does not, is slow, down, lies, and is back.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::health::CheckVerdict;
use ringmain_gateway::limits;
use ringmain_gateway::model::{
    ActiveHealth, AuthzRequest, DirectResponse, ErrorPage, ExternalAuth, HealthCheck, Policy, StaticBody,
    StatusRange, Target,
};
use ringmain_testkit::wait::until;

use crate::origin::{Edge, Origin, edge, refusing_addr, to, upstream};
use crate::policies::{ask, header, with};
use crate::support::PATIENCE;

on_every_backend! {
    headers_to_the_service_and_to_the_upstream,
    a_fixed_path_is_queried,
    a_refusal_is_its_own,
    a_failure_denies,
    a_failure_allows_if_configured,
    a_failure_concerns_its_own_request,
    allow_is_never_for_a_full_pool,
    allow_asks_an_endpoint_that_fails_its_health_check,
    a_refusal_that_is_too_long_or_cut_is_a_refusal,
    without_a_connection_the_next_endpoint_is_queried,
    it_sees_bodies_within_a_limit,
    a_body_that_it_has_seen_is_sent_again,
    headers_of_the_service_replace_those_of_clients,
}

fn policy() -> ExternalAuth {
    ExternalAuth {
        request_headers: vec![header("X-Tenant"), header("X-Forwarded-For"), header("X-Who")],
        upstream_headers: vec![header("X-Who")],
        client_headers: vec![header("X-Reason")],
        identity: Some(header("X-Who")),
        timeout: PATIENCE,
        ..ExternalAuth::new(
            Target::Upstream("authz".into()),
            AuthzRequest::Prefix("/check".into()),
        )
    }
}

fn guarded(engine: Config, origin: &Origin, authz: std::net::SocketAddr, policy: ExternalAuth) -> Edge {
    let policies = vec![Policy::ExternalAuth(Arc::new(policy))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config.upstreams.push(Arc::new(upstream("authz", &[authz])));
    edge(engine, config)
}

fn answer(head: &str, body: &str) -> String {
    format!("HTTP/1.1 {head}\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

fn headers_to_the_service_and_to_the_upstream(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer("200 OK\r\nX-Who: ada\r\nX-Other: no", "fine"));
    let edge = guarded(engine, &origin, authz.addr, policy());
    let answer = edge.server.ask(
        "POST /a%20b/../c?d=e HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\n\
         X-Forwarded-Uri: /forged\r\nX-Tenant: one\r\nX-Tenant: two\r\nx_who: root\r\nX-Who: root\r\nX-Secret: s\r\n\
         Authorization: Bearer t\r\nCookie: a=b\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert_eq!(answer.status, 200);
    let seen = authz.seen();
    assert_eq!(seen.line(), "POST /check/c?d=e HTTP/1.1");
    let field = |name: &str| seen.field(name);
    for (name, value) in [
        ("x-forwarded-method", "POST"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example"),
        ("x-forwarded-uri", "/c?d=e"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-tenant", "one | two"),
        ("authorization", "Bearer t"),
        ("cookie", "a=b"),
        ("content-length", "0"),
    ] {
        assert_eq!(field(name).as_deref(), Some(value), "{name}");
    }
    for name in ["x-who", "x_who", "x-secret"] {
        assert_eq!(field(name), None, "{name}");
    }
    let seen = origin.seen();
    assert_eq!(
        (seen.field("x-who").as_deref(), seen.field("x_who")),
        (Some("ada"), None)
    );
    assert_eq!((seen.field("x-other"), &seen.body[..]), (None, &b"body"[..]));
    edge.server.shut_down();
}

fn a_fixed_path_is_queried(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let policy = ExternalAuth {
        ask: AuthzRequest::Path("/verify?site=1".into()),
        ..policy()
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    // On one connection, as requests of clients are sent on.
    for connection in [0, 0] {
        assert_eq!(ask(&edge, "DELETE", "").status, 200);
        let seen = authz.seen();
        assert_eq!(seen.line(), "GET /verify?site=1 HTTP/1.1");
        assert_eq!(seen.field("x-forwarded-method").as_deref(), Some("DELETE"));
        assert_eq!(seen.connection, connection);
    }
    edge.server.shut_down();
}

fn a_refusal_is_its_own(engine: Config) {
    let origin = Origin::new(|_| panic!("nobody passes"));
    let authz = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let path = seen.line().split(' ').nth(1).expect("a path").to_owned();
            peer.send(match &*path {
                "/check/login" => answer(
                    "302 Found\r\nLocation: https://id.example/\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nX-Inner: no",
                    "",
                ),
                "/check/page" => answer("403 Forbidden", "inner"),
                _ => answer(
                    "401 Unauthorized\r\nContent-Type: text/html\r\nWWW-Authenticate: Custom\r\nX-Reason: why",
                    "<p>no</p>",
                ),
            });
        }
    });
    let policies = vec![Policy::ExternalAuth(Arc::new(policy()))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config.upstreams.push(Arc::new(upstream("authz", &[authz.addr])));
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.error_pages.push(ErrorPage {
        statuses: StatusRange::one(403),
        response: DirectResponse {
            status: 403,
            content_type: None,
            body: StaticBody(b"our own".as_slice().into()),
        },
    });
    let edge = edge(engine, config);
    let refused = edge.server.get("/");
    refused.expect(401, "<p>no</p>");
    for (name, value) in [
        ("content-type", "text/html"),
        ("www-authenticate", "Custom"),
        ("x-reason", "why"),
    ] {
        assert_eq!(refused.field(name), Some(value), "{name}");
    }
    let sent = edge.server.get("/login");
    sent.expect(302, "");
    let cookies = sent.fields.iter().filter(|(name, _)| name == "set-cookie");
    assert_eq!(cookies.count(), 2);
    assert_eq!(
        (sent.field("location"), sent.field("x-inner")),
        (Some("https://id.example/"), None)
    );
    edge.server.get("/page").expect(403, "our own");
    let faults = edge.gateway.fault_counts();
    let denied = faults.iter().find(|(fault, _)| fault.label() == "authz_denied");
    assert_eq!(denied.map(|(_, count)| *count), Some(3));
    edge.server.shut_down();
}

/// Services that fail, with the kind of failure.
fn failing() -> Vec<(&'static str, Origin)> {
    let long = "x".repeat(usize::try_from(limits::AUTHZ_BODY_BYTES).expect("few") + 1);
    vec![
        (
            "500",
            Origin::answering(answer("500 Internal Server Error", "200")),
        ),
        ("garbage", Origin::answering("what?\r\n\r\n")),
        (
            "a switch",
            Origin::answering(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: a\r\nConnection: upgrade\r\n\r\n",
            ),
        ),
        ("long", Origin::answering(answer("200 OK", &long))),
        ("closing", Origin::new(|mut peer| drop(peer.request()))),
        (
            "cut",
            Origin::new(|mut peer| {
                if peer.request().is_some() {
                    peer.send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf");
                }
            }),
        ),
    ]
}

fn a_failure_denies(engine: Config) {
    let origin = Origin::new(|_| panic!("nobody passes"));
    for (what, authz) in failing() {
        let edge = guarded(engine.clone(), &origin, authz.addr, policy());
        let refused = ask(&edge, "GET", "");
        assert_eq!(refused.text(), "authorization service unavailable\n", "{what}");
        assert_eq!(
            (refused.status, refused.field("retry-after")),
            (503, Some("1")),
            "{what}"
        );
        edge.server.shut_down();
    }
    // One that is not there, and one that says nothing.
    let silent = Origin::new(|mut peer| {
        peer.request();
        peer.some();
    });
    for (addr, timeout) in [
        (refusing_addr(), PATIENCE),
        (silent.addr, Duration::from_millis(20)),
    ] {
        let policy = ExternalAuth { timeout, ..policy() };
        let edge = guarded(engine.clone(), &origin, addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
}

fn a_failure_allows_if_configured(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer("500 Internal Server Error\r\nX-Who: root", ""));
    let policy = ExternalAuth {
        fail_open: true,
        ..policy()
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    for _ in 0..FAILURES {
        assert_eq!(ask(&edge, "GET", "X-Who: root\r\n").status, 200);
        assert_eq!(origin.seen().field("x-who"), None);
    }
    let faults = edge.gateway.fault_counts();
    let failed = faults
        .iter()
        .find(|(fault, _)| fault.label() == "authz_unavailable");
    assert_eq!(failed.map(|(_, count)| *count), Some(FAILURES));
    edge.server.shut_down();
}

/// More failures than any breaker would wait for.
const FAILURES: u64 = 20;

/// Fails one input, allows requests with credentials, refuses others.
fn choosy() -> Origin {
    Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let status = match (seen.line().contains("/poison"), seen.field("authorization")) {
                (true, _) => "500 Internal Server Error",
                (false, Some(_)) => "200 OK",
                (false, None) => "401 Unauthorized",
            };
            peer.send(answer(status, ""));
        }
    })
}

fn a_failure_concerns_its_own_request(engine: Config) {
    for fail_open in [false, true] {
        let (origin, authz) = (Origin::echo(), choosy());
        let policy = ExternalAuth {
            fail_open,
            ..policy()
        };
        let edge = guarded(engine.clone(), &origin, authz.addr, policy);
        for _ in 0..FAILURES {
            let poison = edge.server.get("/poison").status;
            assert_eq!(poison, if fail_open { 200 } else { 503 });
            assert_eq!(ask(&edge, "GET", "Authorization: Bearer t\r\n").status, 200);
            assert_eq!(ask(&edge, "GET", "").status, 401, "fail_open: {fail_open}");
        }
        edge.server.shut_down();
    }
}

fn allow_is_never_for_a_full_pool(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is allowed"));
    let (asked, is_asked) = std::sync::mpsc::channel();
    let (release, released) = std::sync::mpsc::channel::<()>();
    let signals = std::sync::Mutex::new((asked, released));
    let authz = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let (asked, released) = &*signals.lock().expect("no panic");
            asked.send(()).expect("the test waits");
            // Until the end of the test.
            let _ = released.recv();
            peer.send("HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n");
        }
    });
    let policy = ExternalAuth {
        fail_open: true,
        ..policy()
    };
    let policies = vec![Policy::ExternalAuth(Arc::new(policy))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    let mut service = upstream("authz", &[authz.addr]);
    service.pool.requests = 1;
    config.upstreams.push(Arc::new(service));
    let edge = edge(engine, config);
    let mut first = edge.server.client();
    first.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    is_asked.recv_timeout(PATIENCE).expect("the first is asked about");
    for _ in 0..FAILURES {
        assert_eq!(ask(&edge, "GET", "").status, 503);
    }
    drop(release);
    first.answer();
    edge.server.shut_down();
}

fn allow_asks_an_endpoint_that_fails_its_health_check(engine: Config) {
    let (origin, authz) = (Origin::echo(), choosy());
    let policy = ExternalAuth {
        fail_open: true,
        ..policy()
    };
    let policies = vec![Policy::ExternalAuth(Arc::new(policy))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    let mut service = upstream("authz", &[authz.addr]);
    let mut check = ActiveHealth::new(HealthCheck::Http {
        target: "/health".into(),
        host: None,
        statuses: StatusRange::one(204),
    });
    check.every = Duration::from_millis(10);
    service.health.active = Some(check);
    config.upstreams.push(Arc::new(service));
    let edge = edge(engine, config);
    let verdict = || {
        let upstreams = edge.gateway.upstreams();
        let found = upstreams.iter().find(|upstream| &*upstream.name == "authz");
        found.expect("it is configured").endpoints[0].verdict
    };
    until("it is checked", || verdict() == CheckVerdict::Unhealthy);
    assert_eq!(ask(&edge, "GET", "").status, 401);
    assert_eq!(ask(&edge, "GET", "Authorization: Bearer t\r\n").status, 200);
    edge.server.shut_down();
}

fn a_refusal_that_is_too_long_or_cut_is_a_refusal(engine: Config) {
    let long = "x".repeat(usize::try_from(limits::AUTHZ_BODY_BYTES).expect("few") + 1);
    let refusals = [
        answer("403 Forbidden\r\nX-Reason: why", &long),
        "HTTP/1.1 403 Forbidden\r\nX-Reason: why\r\nContent-Length: 10\r\n\r\nhalf".to_owned(),
        "HTTP/1.1 403 Forbidden\r\nX-Reason: why\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n".to_owned(),
    ];
    for refusal in refusals {
        let origin = Origin::new(|_| panic!("no request is allowed"));
        let authz = Origin::new(move |mut peer| {
            if peer.request().is_some() {
                peer.send(&refusal);
            }
        });
        let policy = ExternalAuth {
            fail_open: true,
            ..policy()
        };
        let edge = guarded(engine.clone(), &origin, authz.addr, policy);
        let refused = ask(&edge, "GET", "");
        assert_eq!(
            (refused.status, refused.text(), refused.field("x-reason")),
            (403, "", Some("why"))
        );
        edge.server.shut_down();
    }
}

fn without_a_connection_the_next_endpoint_is_queried(engine: Config) {
    let (origin, authz) = (Origin::echo(), choosy());
    let policies = vec![Policy::ExternalAuth(Arc::new(policy()))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    let service = upstream("authz", &[refusing_addr(), authz.addr, refusing_addr()]);
    config.upstreams.push(Arc::new(service));
    let edge = edge(engine, config);
    for _ in 0..10 {
        assert_eq!(ask(&edge, "GET", "Authorization: Bearer t\r\n").status, 200);
        assert_eq!(ask(&edge, "GET", "").status, 401);
    }
    edge.server.shut_down();
}

fn post(edge: &Edge, path: &str, fields: &str, body: &str) -> crate::support::Answer {
    edge.server
        .ask(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{fields}\r\n{body}"))
}

/// The service and then the upstream receive the same body, however it is framed.
fn it_sees_bodies_within_a_limit(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer("200 OK", ""));
    let policy = ExternalAuth { body: 10, ..policy() };
    let edge = guarded(engine, &origin, authz.addr, policy);
    for (fields, body) in [
        ("Content-Length: 10\r\n", "0123456789"),
        (
            "Transfer-Encoding: chunked\r\n",
            "4\r\n0123\r\n6\r\n456789\r\n0\r\n\r\n",
        ),
        // A request with a body is no upgrade, and its body does not bypass the service.
        (
            "Connection: Upgrade\r\nUpgrade: other\r\nContent-Length: 10\r\n",
            "0123456789",
        ),
        (
            "Connection: Upgrade\r\nUpgrade: websocket\r\nTransfer-Encoding: chunked\r\n",
            "a\r\n0123456789\r\n0\r\n\r\n",
        ),
    ] {
        assert_eq!(post(&edge, "/", fields, body).status, 200, "{fields}");
        let seen = authz.seen();
        assert_eq!(seen.field("content-length").as_deref(), Some("10"), "{fields}");
        assert_eq!(seen.body, b"0123456789", "{fields}");
        assert_eq!(origin.seen().body, b"0123456789", "{fields}");
    }
    // The gateway itself has this client send its body.
    let mut client = edge.server.client();
    client.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert_eq!(client.answer().status, 100);
    client.send("ok");
    assert_eq!(client.answer().status, 200);
    assert_eq!(
        (&authz.seen().body[..], &origin.seen().body[..]),
        (&b"ok"[..], &b"ok"[..])
    );
    let deleted = edge
        .server
        .ask("DELETE / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx");
    assert_eq!(deleted.status, 200);
    assert_eq!(
        (&authz.seen().body[..], &origin.seen().body[..]),
        (&b"x"[..], &b"x"[..])
    );
    assert_eq!(edge.server.get("/").status, 200);
    assert_eq!((authz.seen().body.len(), origin.seen().body.len()), (0, 0));
    for (fields, body) in [
        ("Content-Length: 11\r\n", "0123456789x"),
        (
            "Transfer-Encoding: chunked\r\n",
            "a\r\n0123456789\r\n1\r\nx\r\n0\r\n\r\n",
        ),
    ] {
        assert_eq!(post(&edge, "/", fields, body).status, 413, "{fields}");
    }
    // Neither of the two has arrived anywhere.
    assert_eq!(post(&edge, "/next", "Content-Length: 1\r\n", "y").status, 200);
    assert_eq!(authz.seen().line(), "POST /check/next HTTP/1.1");
    assert_eq!(origin.seen().line(), "POST /next HTTP/1.1");
    edge.server.shut_down();
}

/// A body that a service has seen is sent again by a retry, and replaced by none.
fn a_body_that_it_has_seen_is_sent_again(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer("200 OK", ""));
    let body = "x".repeat(200_000);
    let policy = ExternalAuth {
        body: limits::AUTHZ_REQUEST_BYTES,
        ..policy()
    };
    let policies = vec![Policy::ExternalAuth(Arc::new(policy))];
    let mut config = with(
        to(&[refusing_addr(), origin.addr], |forward, _| {
            forward.retry = Some(Default::default());
        }),
        policies,
    );
    config.upstreams.push(Arc::new(upstream("authz", &[authz.addr])));
    let edge = edge(engine, config);
    for _ in 0..4 {
        let length = format!("Content-Length: {}\r\n", body.len());
        assert_eq!(post(&edge, "/", &length, &body).status, 200);
        assert_eq!(authz.seen().body.len(), body.len());
        assert_eq!(origin.seen().body.len(), body.len());
    }
    edge.server.shut_down();
}

/// As the Gateway API has it: the client's host, no cookies, 200 alone allows, and every header is sent to the upstream.
fn headers_of_the_service_replace_those_of_clients(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer(
        "200 OK\r\nX-Who: ada\r\nX-Role: admin\r\nX-Role: owner\r\nContent-Type: text/plain\r\nServer: s\r\nSet-Cookie: a=b\r\nHost: evil",
        "",
    ));
    let policy = ExternalAuth {
        client_host: true,
        cookies: false,
        allowed: StatusRange::one(200),
        upstream_headers: Vec::new(),
        all_upstream_headers: true,
        ..policy()
    };
    let edge = guarded(engine.clone(), &origin, authz.addr, policy.clone());
    let answered = edge.server.ask(
        "GET / HTTP/1.1\r\nHost: shop.example\r\nCookie: a=b\r\nx_role: forged\r\nX-Role: forged\r\nX-Other: own\r\n\r\n",
    );
    assert_eq!(answered.status, 200);
    let seen = authz.seen();
    assert_eq!(seen.field("host").as_deref(), Some("shop.example"));
    assert_eq!(seen.field("cookie"), None);
    let seen = origin.seen();
    for (name, value) in [
        ("x-who", Some("ada")),
        ("x-role", Some("admin | owner")),
        ("x_role", None),
        ("x-other", Some("own")),
        ("host", Some("shop.example")),
        ("cookie", Some("a=b")),
        ("content-type", None),
        ("server", None),
        ("set-cookie", None),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}");
    }
    edge.server.shut_down();
    let authz = Origin::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let edge = guarded(engine, &origin, authz.addr, policy);
    assert_eq!(edge.server.get("/").status, 403, "204 is not 200");
    edge.server.shut_down();
}
