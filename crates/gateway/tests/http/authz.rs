//! A service that is asked whether requests may pass: that lets them, does not, is slow, down, lies, and is back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringmain_engine::Config;
use ringmain_gateway::limits;
use ringmain_gateway::model::{Answer, Ask, Body, ErrorPage, ExternalAuth, Policy, StatusRange, Target};

use crate::origin::{Edge, Origin, edge, nobody, to, upstream};
use crate::policies::{ask, header, with};
use crate::support::PATIENCE;

on_every_backend! {
    what_it_sees_and_what_the_upstream_is_told,
    a_fixed_path_is_asked_for,
    a_refusal_is_its_own,
    what_fails_lets_nobody_pass,
    what_fails_lets_all_pass_if_that_is_wanted,
    it_is_left_alone_and_comes_back,
}

fn policy() -> ExternalAuth {
    ExternalAuth {
        upstream: Target::Upstream("authz".into()),
        host: None,
        ask: Ask::Prefix("/check".into()),
        request_headers: vec![header("X-Tenant"), header("X-Forwarded-For"), header("X-Who")],
        upstream_headers: vec![header("X-Who")],
        client_headers: vec![header("X-Reason")],
        identity: Some(header("X-Who")),
        timeout: PATIENCE,
        fail_open: false,
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

fn what_it_sees_and_what_the_upstream_is_told(engine: Config) {
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

fn a_fixed_path_is_asked_for(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering("HTTP/1.1 204 No Content\r\n\r\n");
    let policy = ExternalAuth {
        ask: Ask::Path("/verify?site=1".into()),
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
        answer: Answer {
            status: 403,
            content_type: None,
            body: Body(b"our own".as_slice().into()),
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
    let faults = edge.gateway.faults();
    let denied = faults.iter().find(|(fault, _)| fault.label() == "authz_denied");
    assert_eq!(denied.map(|(_, count)| *count), Some(3));
    edge.server.shut_down();
}

/// Services that fail, and what they do.
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

fn what_fails_lets_nobody_pass(engine: Config) {
    let origin = Origin::new(|_| panic!("nobody passes"));
    for (what, authz) in failing() {
        let edge = guarded(engine.clone(), &origin, authz.addr, policy());
        let refused = ask(&edge, "GET", "");
        assert_eq!(
            refused.text(),
            "nobody can tell now whether this is allowed\n",
            "{what}"
        );
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
    for (addr, timeout) in [(nobody(), PATIENCE), (silent.addr, Duration::from_millis(20))] {
        let policy = ExternalAuth { timeout, ..policy() };
        let edge = guarded(engine.clone(), &origin, addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
}

fn what_fails_lets_all_pass_if_that_is_wanted(engine: Config) {
    let origin = Origin::echo();
    let authz = Origin::answering(answer("500 Internal Server Error\r\nX-Who: root", ""));
    let policy = ExternalAuth {
        fail_open: true,
        ..policy()
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    // Also when it is asked no more.
    for _ in 0..2 * limits::AUTHZ_FAILURES {
        assert_eq!(ask(&edge, "GET", "X-Who: root\r\n").status, 200);
        assert_eq!(origin.seen().field("x-who"), None);
    }
    let faults = edge.gateway.faults();
    let failed = faults
        .iter()
        .find(|(fault, _)| fault.label() == "authz_unavailable");
    assert_eq!(
        failed.map(|(_, count)| *count),
        Some(u64::from(2 * limits::AUTHZ_FAILURES))
    );
    edge.server.shut_down();
}

fn it_is_left_alone_and_comes_back(engine: Config) {
    let origin = Origin::echo();
    let well = Arc::new(AtomicBool::new(false));
    let is_well = Arc::clone(&well);
    let authz = Origin::new(move |mut peer| {
        while peer.request().is_some() {
            let head = if is_well.load(Ordering::SeqCst) {
                "200 OK"
            } else {
                "503 Service Unavailable"
            };
            peer.send(answer(head, ""));
        }
    });
    let edge = guarded(engine, &origin, authz.addr, policy());
    for _ in 0..3 * limits::AUTHZ_FAILURES {
        assert_eq!(ask(&edge, "GET", "").status, 503);
    }
    well.store(true, Ordering::SeqCst);
    let began = Instant::now();
    loop {
        match ask(&edge, "GET", "").status {
            200 => break,
            status => assert_eq!(status, 503),
        }
        assert!(began.elapsed() < PATIENCE, "it is asked again");
        std::thread::yield_now();
    }
    // And from now on each time.
    assert_eq!(ask(&edge, "GET", "").status, 200);
    edge.server.shut_down();
}
