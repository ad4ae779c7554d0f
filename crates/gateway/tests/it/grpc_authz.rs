//! A service over gRPC that decides whether requests are allowed (`envoy.service.auth.v3`): its attributes, the changes that it demands, and
//! its failures.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{AuthzRequest, ExternalAuth, GrpcCheck, Policy, Target};
use ringmain_wire::h2::ErrorCode;

use crate::authz_messages::{self as proto, Check, denied, ok};
use crate::grpc_service::{self, FAILING, count, respond};
use crate::h2_origin::Framed;
use crate::origin::{Edge, Origin, edge, refusing_addr, to, upstream};
use crate::policies::{ask, header, with};
use crate::support::{Answer, PATIENCE};

on_every_backend! {
    attributes_describe_the_request,
    an_allowed_request_is_changed,
    clients_cannot_send_guarded_headers,
    a_response_is_changed,
    a_denial_is_its_own,
    a_failure_denies,
    a_forbidden_change_is_a_failure,
    a_failure_allows_if_configured,
    a_failure_has_a_status_of_its_own,
    a_failure_concerns_its_own_request,
    a_refused_stream_is_repeated_and_others_are_not,
    a_body_is_sent_within_a_limit,
    a_part_of_a_body_suffices,
    an_upstream_over_http_1_is_a_failure,
}

fn policy(check: GrpcCheck) -> ExternalAuth {
    ExternalAuth {
        timeout: PATIENCE,
        ..ExternalAuth::new(
            Target::Upstream("authz".into()),
            AuthzRequest::Grpc(Arc::new(check)),
        )
    }
}

fn guarded(engine: Config, origin: &Origin, authz: std::net::SocketAddr, policy: ExternalAuth) -> Edge {
    let policies = vec![Policy::ExternalAuth(Arc::new(policy))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config.upstreams.push(grpc_service::upstream_of("authz", authz));
    edge(engine, config)
}

/// A service that responds to each query with the message that `decide` returns.
fn deciding(decide: impl Fn(&Check) -> Vec<u8> + Send + Sync + 'static) -> Framed {
    grpc_service::responding(move |asked| decide(&Check::parse(asked)))
}

fn attributes_describe_the_request(engine: Config) {
    let origin = Origin::echo();
    let authz = deciding(|_| ok(&[]));
    let check = GrpcCheck {
        context: vec![("site".to_owned(), "one".to_owned())],
        ..GrpcCheck::default()
    };
    let edge = guarded(engine, &origin, authz.addr, policy(check));
    let answer = edge.server.ask(
        "POST /a%20b/../c?d=e HTTP/1.1\r\nHost: shop.example\r\nX-Forwarded-For: 192.0.2.7\r\n\
         X-Tenant: one\r\nX-Tenant: two\r\nX-Hidden: 1\r\nConnection: x-hidden\r\nKeep-Alive: 1\r\n\
         X-Envoy-Auth-Partial-Body: true\r\nX-Bytes: caf\u{e9}\r\nCookie: a=b\r\nContent-Length: 4\r\n\r\nbody",
    );
    assert_eq!(answer.status, 200);
    let asked = authz.asked();
    assert_eq!(
        asked.line.split(' ').nth(2),
        Some("/envoy.service.auth.v3.Authorization/Check")
    );
    for (name, value) in [("te", "trailers"), ("content-type", "application/grpc")] {
        assert_eq!(asked.field(name), Some(value), "{name}");
    }
    let timeout = asked.field("grpc-timeout").expect("a deadline");
    assert!(timeout.len() <= 9, "{timeout}");
    let check = Check::parse(&asked.body);
    for (path, value) in [
        ("method", "POST"),
        ("path", "/c?d=e"),
        ("host", "shop.example"),
        ("scheme", "http"),
        ("protocol", "HTTP/1.1"),
        ("body", ""),
        ("source", "192.0.2.7"),
        ("context.site", "one"),
        ("x-tenant", "one,two"),
        ("cookie", "a=b"),
        ("x-bytes", "caf\u{e9}"),
        ("content-length", "4"),
        ("x-forwarded-for", "192.0.2.7"),
        ("x-forwarded-proto", "http"),
        ("x-forwarded-host", "shop.example"),
        (":path", "/c?d=e"),
        (":method", "POST"),
        (":authority", "shop.example"),
    ] {
        assert_eq!(check.get(path), Some(value), "{path}");
    }
    for name in [
        "x-hidden",
        "keep-alive",
        "connection",
        "x-envoy-auth-partial-body",
    ] {
        assert_eq!(check.get(name), None, "{name}");
    }
    assert_eq!(check.size, 4);
    assert_eq!(&origin.seen().body[..], b"body");
    edge.server.shut_down();
}

fn an_allowed_request_is_changed(engine: Config) {
    let origin = Origin::echo();
    let authz = deciding(|_| {
        ok(&[
            proto::set("X-User", "ada"),
            proto::append("X-Group", "b"),
            proto::add_if_absent("x-new", "1"),
            proto::add_if_absent("x-old", "1"),
            proto::overwrite_if_exists("x-old", "2"),
            proto::overwrite_if_exists("x-none", "2"),
            proto::remove("Authorization"),
            proto::set_query("token", "a b"),
            proto::remove_query("secret"),
        ])
    });
    let edge = guarded(engine, &origin, authz.addr, policy(GrpcCheck::default()));
    let answer = edge.server.ask(
        "GET /x?a=1&%73ecret=1&token=2&b=3 HTTP/1.1\r\nHost: a\r\nx-user: root\r\nX_User: root\r\nX-Group: a\r\n\
         X-Old: 0\r\nAuthorization: Bearer t\r\n\r\n",
    );
    assert_eq!(answer.status, 200);
    let seen = origin.seen();
    assert_eq!(seen.line(), "GET /x?a=1&b=3&token=a%20b HTTP/1.1");
    for (name, value) in [
        ("x-user", Some("ada")),
        ("x_user", None),
        ("x-group", Some("a | b")),
        ("x-new", Some("1")),
        ("x-old", Some("2")),
        ("x-none", None),
        ("authorization", None),
    ] {
        assert_eq!(seen.field(name).as_deref(), value, "{name}");
    }
    edge.server.shut_down();
}

fn clients_cannot_send_guarded_headers(engine: Config) {
    let origin = Origin::echo();
    let authz = deciding(|check| {
        assert_eq!(check.get("x-user"), None, "the client's value is not a fact");
        ok(&[])
    });
    let policy = ExternalAuth {
        upstream_headers: vec![header("X-User")],
        ..policy(GrpcCheck::default())
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    assert_eq!(ask(&edge, "GET", "X-User: root\r\nx_user: root\r\n").status, 200);
    let seen = origin.seen();
    assert_eq!((seen.field("x-user"), seen.field("x_user")), (None, None));
    edge.server.shut_down();
}

fn a_response_is_changed(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nX-Set: origin\r\nX-Add: origin\r\nX-Here: origin\r\nContent-Length: 2\r\n\r\nhi",
    );
    let authz = deciding(|_| {
        ok(&[
            proto::response(proto::overwrite("x-set", "service")),
            proto::response(proto::set("x-add", "service")),
            proto::response(proto::add_if_absent("x-here", "service")),
            proto::response(proto::overwrite_if_exists("x-absent", "service")),
        ])
    });
    let edge = guarded(engine, &origin, authz.addr, policy(GrpcCheck::default()));
    let answer = ask(&edge, "GET", "");
    answer.expect(200, "hi");
    let values = |name: &str| {
        let all = answer.fields.iter().filter(|(found, _)| found == name);
        all.map(|(_, value)| value.as_str()).collect::<Vec<_>>()
    };
    assert_eq!(values("x-set"), ["service"]);
    assert_eq!(values("x-add"), ["origin", "service"]);
    assert_eq!(values("x-here"), ["origin"]);
    assert!(values("x-absent").is_empty());
    edge.server.shut_down();
}

fn a_denial_is_its_own(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is allowed"));
    let authz = deciding(|check| match check.get("path") {
        Some("/login") => denied(302, &[("Location", "https://id.example/")], ""),
        Some("/plain") => proto::status(7),
        Some("/page") => denied(0, &[("Content-Type", "text/html")], "<p>no</p>"),
        _ => denied(401, &[("WWW-Authenticate", "Custom")], "<p>no</p>"),
    });
    let edge = guarded(engine, &origin, authz.addr, policy(GrpcCheck::default()));
    let refused = edge.server.get("/");
    refused.expect(401, "<p>no</p>");
    assert_eq!(refused.field("www-authenticate"), Some("Custom"));
    assert_eq!(refused.field("content-type"), Some("text/plain"));
    let login = edge.server.get("/login");
    login.expect(302, "");
    assert_eq!(login.field("location"), Some("https://id.example/"));
    assert_eq!(login.field("content-type"), None);
    let page = edge.server.get("/page");
    page.expect(403, "<p>no</p>");
    assert_eq!(page.field("content-type"), Some("text/html"));
    assert_eq!(edge.server.get("/plain").status, 403);
    assert_eq!(count(&edge, "authz_denied"), 4);
    edge.server.shut_down();
}

fn a_failure_denies(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is allowed"));
    for (what, fail) in FAILING {
        let authz = grpc_service::failing(*fail, ok(&[]));
        let edge = guarded(engine.clone(), &origin, authz.addr, policy(GrpcCheck::default()));
        let refused = ask(&edge, "GET", "");
        assert_eq!(refused.text(), "authorization service unavailable\n", "{what}");
        assert_eq!(
            (refused.status, refused.field("retry-after")),
            (503, Some("1")),
            "{what}"
        );
        assert_eq!(count(&edge, "authz_unavailable"), 1, "{what}");
        edge.server.shut_down();
    }
    // One that is not there, and one that does not respond.
    let silent = Framed::new(|mut peer| {
        peer.request();
        peer.request();
    });
    for (addr, timeout) in [
        (refusing_addr(), PATIENCE),
        (silent.addr, Duration::from_millis(20)),
    ] {
        let policy = ExternalAuth {
            timeout,
            ..policy(GrpcCheck::default())
        };
        let edge = guarded(engine.clone(), &origin, addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, 503);
        edge.server.shut_down();
    }
}

fn a_forbidden_change_is_a_failure(engine: Config) {
    for (fail_open, status) in [(false, 503), (true, 200)] {
        let origin = Origin::echo();
        let authz = deciding(|_| ok(&[proto::set("x-user", "root"), proto::set(":path", "/admin")]));
        let policy = ExternalAuth {
            fail_open,
            ..policy(GrpcCheck::default())
        };
        let edge = guarded(engine.clone(), &origin, authz.addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, status);
        if fail_open {
            let seen = origin.seen();
            assert_eq!((seen.line(), seen.field("x-user")), ("GET / HTTP/1.1", None));
        }
        edge.server.shut_down();
    }
}

fn a_failure_allows_if_configured(engine: Config) {
    for (what, fail) in FAILING {
        let (origin, authz) = (Origin::echo(), grpc_service::failing(*fail, ok(&[])));
        let policy = ExternalAuth {
            fail_open: true,
            upstream_headers: vec![header("X-User")],
            ..policy(GrpcCheck::default())
        };
        let edge = guarded(engine.clone(), &origin, authz.addr, policy);
        assert_eq!(ask(&edge, "GET", "X-User: root\r\n").status, 200, "{what}");
        assert_eq!(origin.seen().field("x-user"), None, "{what}");
        assert_eq!(count(&edge, "authz_unavailable"), 1, "{what}");
        edge.server.shut_down();
    }
    // The service denies by the status of the call, or blames the request: a client could cause that.
    for (grpc_status, status) in [
        ("7", 403),
        ("16", 403),
        ("3", 503),
        ("8", 503),
        ("9", 503),
        ("11", 503),
    ] {
        let origin = Origin::new(|_| panic!("no request is allowed"));
        let authz = grpc_service::failing(
            move |peer, stream, _| {
                let fields = [("content-type", "application/grpc"), ("grpc-status", grpc_status)];
                peer.respond(stream, 200, &fields, true);
            },
            Vec::new(),
        );
        let policy = ExternalAuth {
            fail_open: true,
            ..policy(GrpcCheck::default())
        };
        let edge = guarded(engine.clone(), &origin, authz.addr, policy);
        assert_eq!(ask(&edge, "GET", "").status, status, "{grpc_status}");
        edge.server.shut_down();
    }
}

fn a_failure_has_a_status_of_its_own(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is allowed"));
    let authz = deciding(|check| match check.get("path") {
        Some("/own") => proto::error(500, &[("X-Why", "broken")], "why"),
        _ => proto::error(0, &[], "why"),
    });
    let policy = ExternalAuth {
        failure_status: Some(403),
        ..policy(GrpcCheck::default())
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    edge.server.get("/").expect(403, "why");
    let own = edge.server.get("/own");
    own.expect(500, "why");
    assert_eq!(own.field("x-why"), Some("broken"));
    assert_eq!(count(&edge, "authz_unavailable"), 2);
    edge.server.shut_down();
}

/// More failures than any breaker would wait for.
const FAILURES: u64 = 20;

fn a_failure_concerns_its_own_request(engine: Config) {
    for fail_open in [false, true] {
        let origin = Origin::echo();
        let authz = Framed::new(|mut peer| {
            while let Some((stream, asked)) = peer.request() {
                let check = Check::parse(&asked.body);
                match (check.get("path"), check.get("authorization")) {
                    (Some("/poison"), _) => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                    (_, Some(_)) => respond(&mut peer, stream, &ok(&[])),
                    (_, None) => respond(&mut peer, stream, &denied(401, &[], "")),
                }
            }
        });
        let policy = ExternalAuth {
            fail_open,
            ..policy(GrpcCheck::default())
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

fn a_refused_stream_is_repeated_and_others_are_not(engine: Config) {
    let origin = Origin::echo();
    // The first connection refuses its first stream; the second stream of each is reset, and may have been processed.
    let authz = Framed::new(|mut peer| {
        let mut requests = 0;
        while let Some((stream, _)) = peer.request() {
            requests += 1;
            match (peer.number, requests) {
                (0, 1) => peer.reset(stream, ErrorCode::REFUSED_STREAM),
                (_, 2) => peer.reset(stream, ErrorCode::INTERNAL_ERROR),
                _ => respond(&mut peer, stream, &ok(&[])),
            }
        }
    });
    let edge = guarded(engine.clone(), &origin, authz.addr, policy(GrpcCheck::default()));
    assert_eq!(ask(&edge, "GET", "").status, 200);
    assert_eq!((authz.asked().connection, authz.asked().connection), (0, 1));
    assert_eq!(ask(&edge, "GET", "").status, 503);
    authz.asked();
    assert!(authz.is_quiet(), "a stream that was reset is not repeated");
    edge.server.shut_down();

    // A connection that is going away has not processed the streams above the last one.
    let authz = Framed::new(|mut peer| {
        while let Some((stream, _)) = peer.request() {
            match peer.number {
                0 => peer.go_away(0),
                _ => respond(&mut peer, stream, &ok(&[])),
            }
        }
    });
    let edge = guarded(engine, &origin, authz.addr, policy(GrpcCheck::default()));
    assert_eq!(ask(&edge, "GET", "").status, 200);
    edge.server.shut_down();
}

fn post(edge: &Edge, body: &[u8]) -> Answer {
    let head = format!(
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    edge.server.ask([head.as_bytes(), body].concat())
}

fn a_body_is_sent_within_a_limit(engine: Config) {
    let origin = Origin::echo();
    let authz = deciding(|_| ok(&[]));
    let policy = ExternalAuth {
        body: 8,
        ..policy(GrpcCheck::default())
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    for body in [&b"12345678"[..], b"caf\xe9"] {
        assert_eq!(post(&edge, body).status, 200);
        let check = Check::parse(&authz.asked().body);
        match str::from_utf8(body) {
            Ok(text) => assert_eq!((check.get("body"), &check.raw_body[..]), (Some(text), &b""[..])),
            Err(_) => assert_eq!((check.get("body"), &check.raw_body[..]), (Some(""), body)),
        }
        assert_eq!(check.get("x-envoy-auth-partial-body"), Some("false"));
        assert_eq!(&origin.seen().body[..], body);
    }
    assert_eq!(post(&edge, b"123456789").status, 413);
    edge.server.shut_down();
}

fn a_part_of_a_body_suffices(engine: Config) {
    let origin = Origin::echo();
    let authz = deciding(|_| ok(&[]));
    let policy = ExternalAuth {
        body: 8,
        ..policy(GrpcCheck {
            partial_body: true,
            raw_body: true,
            ..GrpcCheck::default()
        })
    };
    let edge = guarded(engine, &origin, authz.addr, policy);
    let long = vec![b'x'; 300_000];
    for (body, partial) in [(&long[..], "true"), (b"short", "false")] {
        let answer = post(&edge, body);
        assert_eq!(answer.status, 200);
        let check = Check::parse(&authz.asked().body);
        assert_eq!(check.raw_body, body[..body.len().min(8)]);
        assert_eq!(check.get("x-envoy-auth-partial-body"), Some(partial));
        assert!(origin.seen().body == body, "the origin receives all of the body");
    }
    // In pieces, whose end is not known in advance.
    let mut client = edge.server.client();
    client
        .send("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n4\r\n1234\r\n5\r\n56789\r\n");
    let check = Check::parse(&authz.asked().body);
    assert_eq!(
        (
            check.size,
            &check.raw_body[..],
            check.get("x-envoy-auth-partial-body")
        ),
        (-1, &b"12345678"[..], Some("true"))
    );
    client.send("2\r\nab\r\n0\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert_eq!(&origin.seen().body[..], b"123456789ab");
    edge.server.shut_down();
}

fn an_upstream_over_http_1_is_a_failure(engine: Config) {
    let origin = Origin::new(|_| panic!("no request is allowed"));
    let authz = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let policies = vec![Policy::ExternalAuth(Arc::new(policy(GrpcCheck::default())))];
    let mut config = with(to(&[origin.addr], |_, _| {}), policies);
    config.upstreams.push(Arc::new(upstream("authz", &[authz.addr])));
    let edge = edge(engine, config);
    assert_eq!(ask(&edge, "GET", "").status, 503);
    edge.server.shut_down();
}
