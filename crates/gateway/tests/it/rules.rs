//! Features of rules: header changes, rewrites, redirects, protocol upgrades; and state that survives a change of configuration.

use std::sync::Arc;
use std::time::Duration;

use ringmain_engine::Config;
use ringmain_gateway::model::{
    Action, Forward, HeaderChanges, HeaderName, HeaderValue, Hostname, HttpsRedirect, Match, Network, Path,
    PathMatch, PathRewrite, Redirect, Rule, WeightedBackend,
};
use ringmain_testkit::wait;

use crate::origin::{Origin, edge, rules, to, upstream};
use crate::support::{End, get};

on_every_backend! {
    headers_are_changed,
    paths_are_sent_as_they_arrive,
    prefixes_are_rewritten,
    hosts_are_rewritten,
    redirects,
    everything_to_https,
    trusted_proxies,
    going_round_in_a_circle,
    interim_answers,
    answers_without_bodies,
    an_answer_that_lasts_until_the_end,
    a_switch_of_protocols,
    a_switch_to_another_protocol,
    a_switch_that_is_refused,
    a_switch_that_is_not_allowed,
    a_tunnel_without_a_byte,
    shares_of_requests,
    a_change_of_configuration,
    an_old_client,
}

fn name(text: &str) -> HeaderName {
    HeaderName::parse(text).expect("a name")
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::parse(text).expect("a value")
}

fn path(text: &str) -> Path {
    Path::parse(text).expect("a path")
}

fn prefix(text: &str) -> Match {
    Match {
        path: PathMatch::Prefix(path(text)),
        ..Match::default()
    }
}

fn headers_are_changed(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nServer: x\r\nX-Own: 1\r\n\r\n");
    let mut config = to(&[origin.addr], |forward, _| {
        forward.backends[0].request_headers.set = vec![(name("x-set"), value("2"))];
        forward.backends[0].response_headers.add = vec![(name("X-Backend"), value("b"))];
    });
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.request_headers = HeaderChanges {
        remove: vec![name("X-Gone"), name("Via")],
        set: vec![(name("X-Set"), value("1"))],
        add: vec![(name("X-Add"), value("1"))],
    };
    rule.response_headers.remove = vec![name("Server")];
    let edge = edge(engine, config);
    let answer = edge
        .server
        .ask("GET / HTTP/1.1\r\nHost: a\r\nX-Gone: 1\r\nX-Set: 0\r\nx-add: 0\r\n\r\n");
    assert_eq!(
        (
            answer.field("server"),
            answer.field("x-own"),
            answer.field("x-backend")
        ),
        (None, Some("1"), Some("b"))
    );
    let seen = origin.seen();
    assert_eq!(seen.field("X-Gone"), None);
    assert_eq!(seen.field("X-Set").as_deref(), Some("2"));
    assert_eq!(seen.field("X-Add").as_deref(), Some("0 | 1"));
    assert_eq!(seen.field("Via"), None);
    edge.server.shut_down();
}

fn paths_are_sent_as_they_arrive(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for (target, expected) in [
        ("/", "/"),
        ("/a/../b/./c?x=../y", "/b/c?x=../y"),
        ("/%61%2fb%3B", "/%61%2fb%3B"),
        ("//a///b", "//a///b"),
        (
            "/thumb/300x200/https://img.example/a.jpg",
            "/thumb/300x200/https://img.example/a.jpg",
        ),
        ("/a//../b", "/b"),
        ("http://shop.example//x", "//x"),
        ("http://shop.example/x?y", "/x?y"),
        ("http://shop.example?y", "/?y"),
    ] {
        edge.server
            .ask(format!("GET {target} HTTP/1.1\r\nHost: shop.example\r\n\r\n"));
        assert_eq!(
            origin.seen().line(),
            format!("GET {expected} HTTP/1.1"),
            "{target}"
        );
    }
    edge.server.shut_down();
}

fn prefixes_are_rewritten(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let forward = |rewrite| {
        let mut forward = Forward::to("origin");
        forward.rewrite.path = Some(rewrite);
        Action::Forward(Box::new(forward))
    };
    let rule = |found, rewrite| Rule {
        matches: vec![prefix(found)],
        ..Rule::new(forward(rewrite))
    };
    let all = vec![
        rule("/api", PathRewrite::Prefix(path("/"))),
        rule("/v1/old", PathRewrite::Prefix(path("/new/place"))),
        rule("/full", PathRewrite::Full(path("/one file"))),
    ];
    let edge = edge(engine, rules(all, vec![upstream("origin", &[origin.addr])]));
    for (target, expected) in [
        ("/api", "/"),
        ("/api/", "/"),
        ("/api/a%2Fb/c?d", "/a%2Fb/c?d"),
        ("/v1//old/%41", "/new/place/%41"),
        ("/v1/x/../old", "/new/place"),
        ("/api/https://a//b/", "/https://a//b/"),
        ("//api//c", "//c"),
        ("/full/whatever?q", "/one%20file?q"),
    ] {
        edge.server.get(target);
        assert_eq!(
            origin.seen().line(),
            format!("GET {expected} HTTP/1.1"),
            "{target}"
        );
    }
    edge.server.shut_down();
}

fn hosts_are_rewritten(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.rewrite.host = Some(Hostname::parse("inside.example").expect("a host"));
        }),
    );
    edge.server.ask("GET / HTTP/1.1\r\nHost: shop.example\r\n\r\n");
    let seen = origin.seen();
    assert_eq!(seen.field("host").as_deref(), Some("inside.example"));
    assert_eq!(seen.field("x-forwarded-host").as_deref(), Some("shop.example"));
    edge.server.shut_down();
}

fn redirects(engine: Config) {
    let rule = |found, redirect| Rule {
        matches: vec![prefix(found)],
        ..Rule::new(Action::Redirect(redirect))
    };
    let all = vec![
        rule(
            "/tls",
            Redirect {
                https: Some(true),
                status: 301,
                ..Redirect::default()
            },
        ),
        rule(
            "/moved",
            Redirect {
                path: Some(PathRewrite::Prefix(path("/to"))),
                ..Redirect::default()
            },
        ),
        rule(
            "/away",
            Redirect {
                host: Some(Hostname::parse("other.example").expect("a host")),
                port: Some(8443),
                https: Some(true),
                path: Some(PathRewrite::Full(path("/é"))),
                status: 308,
                ..Redirect::default()
            },
        ),
    ];
    let edge = edge(engine, rules(all, Vec::new()));
    for (target, status, expected) in [
        ("/tls/a?b", 301, "https://shop.example/tls/a?b"),
        ("/moved/a%2Fb", 302, "http://shop.example:81/to/a%2Fb"),
        ("/away/x?y", 308, "https://other.example:8443/%C3%A9?y"),
    ] {
        let answer = edge
            .server
            .ask(format!("GET {target} HTTP/1.1\r\nHost: shop.example:81\r\n\r\n"));
        assert_eq!(
            (answer.status, answer.field("location")),
            (status, Some(expected))
        );
    }
    edge.server.shut_down();
}

fn everything_to_https(engine: Config) {
    let mut config = rules(Vec::new(), Vec::new());
    Arc::make_mut(&mut config.listeners[0]).redirect_to_https = Some(HttpsRedirect::default());
    let edge = edge(engine, config);
    let answer = edge
        .server
        .ask("GET /a//b?c HTTP/1.1\r\nHost: shop.example:80\r\n\r\n");
    assert_eq!(
        (answer.status, answer.field("location")),
        (308, Some("https://shop.example/a/b?c"))
    );
    edge.server.shut_down();
}

fn trusted_proxies(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let mut config = to(&[origin.addr], |_, _| {});
    Arc::make_mut(&mut config.listeners[0]).client_address.trusted =
        vec![Network::parse("127.0.0.0/8").expect("a network")];
    let edge = edge(engine, config);
    edge.server.ask(
        "GET / HTTP/1.1\r\nHost: inside\r\nX-Forwarded-For: 1.2.3.4\r\nX-Forwarded-For: 5.6.7.8\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nForwarded: for=1.2.3.4\r\nX-Real-IP: 1.2.3.4\r\n\r\n",
    );
    let seen = origin.seen();
    assert_eq!(
        seen.field("x-forwarded-for").as_deref(),
        Some("1.2.3.4, 5.6.7.8, 127.0.0.1")
    );
    assert_eq!(seen.field("x-forwarded-proto").as_deref(), Some("https"));
    assert_eq!(seen.field("x-forwarded-host").as_deref(), Some("shop.example"));
    assert_eq!(
        seen.field("forwarded").as_deref(),
        Some("for=1.2.3.4, for=127.0.0.1;proto=http;host=\"inside\"")
    );
    assert_eq!(seen.field("x-real-ip").as_deref(), Some("1.2.3.4"));
    edge.server.shut_down();
}

fn going_round_in_a_circle(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let via = |hops| {
        format!(
            "GET / HTTP/1.1\r\nHost: a\r\nVia: {}\r\n\r\n",
            vec!["1.1 ringmain"; hops].join(", ")
        )
    };
    assert_eq!(edge.server.ask(via(8)).status, 200);
    edge.server.ask(via(9)).expect(508, "proxy loop detected\n");
    edge.server.shut_down();
}

fn interim_answers(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nConnection: x-own\r\nX-Own: 1\r\n\r\n\
         HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    );
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..2 {
        client.send(get("/"));
        let hints = client.head();
        assert_eq!(
            (hints.status, hints.fields.len(), hints.field("link")),
            (103, 1, Some("</a.css>"))
        );
        client.answer().expect(200, "ok");
    }
    assert_eq!((origin.seen().connection, origin.seen().connection), (0, 0));
    // To an old client nothing but the answer.
    edge.server.ask("GET / HTTP/1.0\r\n\r\n").expect(200, "ok");
    edge.server.shut_down();
}

fn answers_without_bodies(engine: Config) {
    for (method, head, length) in [
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n",
            Some("1234"),
        ),
        (
            "HEAD",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            None,
        ),
        ("GET", "HTTP/1.1 204 No Content\r\n\r\n", None),
        (
            "GET",
            "HTTP/1.1 304 Not Modified\r\nContent-Length: 99\r\nETag: \"x\"\r\n\r\n",
            Some("99"),
        ),
        ("GET", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", Some("0")),
        // RFC 9110 §15.3.6: a body that an upstream sends all the same is not forwarded.
        (
            "GET",
            "HTTP/1.1 205 Reset Content\r\nContent-Length: 7\r\n\r\ncontent",
            Some("0"),
        ),
        (
            "GET",
            "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n7\r\ncontent\r\n0\r\n\r\n",
            Some("0"),
        ),
    ] {
        let origin = Origin::answering(head);
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let mut client = edge.server.client();
        for _ in 0..2 {
            client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
            let answer = client.answer_to(method);
            assert_eq!(answer.field("content-length"), length, "{head}");
            assert_eq!(answer.body, b"");
            assert_eq!(origin.seen().connection, 0, "{head} lets the connection live on");
        }
        edge.server.shut_down();
    }
}

fn an_answer_that_lasts_until_the_end(engine: Config) {
    let origin = Origin::new(|mut peer| {
        peer.request();
        peer.send("HTTP/1.0 200 OK\r\n\r\nhello");
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..2 {
        client.send(get("/"));
        let answer = client.answer();
        answer.expect(200, "hello");
        assert_eq!(answer.field("transfer-encoding"), Some("chunked"));
    }
    edge.server.shut_down();
}

const UPGRADE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n\r\n";
const SWITCHED: &str = "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: y\r\n\r\n";

/// An origin that switches protocols and then echoes.
fn echoing() -> Origin {
    Origin::new(|mut peer| {
        let Some(_) = peer.request() else { return };
        peer.send([SWITCHED.as_bytes(), b"first"].concat());
        while let Some(bytes) = peer.some() {
            peer.send(bytes);
        }
    })
}

fn a_switch_of_protocols(engine: Config) {
    let origin = echoing();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    // The first bytes may arrive before the response.
    client.send([UPGRADE.as_bytes(), b"early"].concat());
    let answer = client.head();
    assert_eq!(
        (
            answer.status,
            answer.field("upgrade"),
            answer.field("sec-websocket-accept")
        ),
        (101, Some("websocket"), Some("y"))
    );
    assert_eq!(client.take(10), b"firstearly");
    let seen = origin.seen();
    assert_eq!(
        (
            seen.field("upgrade").as_deref(),
            seen.field("connection").as_deref()
        ),
        (Some("websocket"), Some("upgrade"))
    );
    let long = crate::support::pattern(1_000_000);
    let sent = client.send_behind(long.clone());
    assert!(client.take(long.len()) == long);
    sent.join().expect("no panic").expect("all was taken");
    // The end goes through in both directions.
    client.finish();
    client.expect_end();
    edge.server.shut_down();
}

/// A switch to something else than was asked for is none.
fn a_switch_to_another_protocol(engine: Config) {
    for upgrade in ["h2c", "websocket/2", "websocket, h2c"] {
        let origin = Origin::answering(format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: {upgrade}\r\n\r\n"
        ));
        let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
        let answer = edge.server.ask(UPGRADE);
        answer.expect(502, "unexpected protocol switch by the upstream\n");
        edge.server.shut_down();
    }
    let origin = Origin::answering(
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: WebSocket\r\n\r\n",
    );
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(UPGRADE);
    assert_eq!(client.head().status, 101);
    client.finish();
    client.expect_end();
    edge.server.shut_down();
}

fn a_switch_that_is_refused(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\nno");
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..2 {
        client.send(UPGRADE);
        client.answer().expect(403, "no");
    }
    edge.server.shut_down();
}

fn a_switch_that_is_not_allowed(engine: Config) {
    let origin = Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    edge.server.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n\r\n");
    let seen = origin.seen();
    assert_eq!(
        (
            seen.field("upgrade"),
            seen.field("connection"),
            seen.field("http2-settings")
        ),
        (None, None, None)
    );
    edge.server.shut_down();
}

fn a_tunnel_without_a_byte(engine: Config) {
    let origin = echoing();
    let edge = edge(
        engine,
        to(&[origin.addr], |forward, _| {
            forward.timeouts.idle = Some(Duration::from_millis(200))
        }),
    );
    // On a busy machine the origin may itself be too late.
    let mut client = wait::find("a tunnel in time", || {
        let mut client = edge.server.client();
        client.send(UPGRADE);
        (client.head().status == 101).then_some(client)
    });
    assert_eq!(client.take(5), b"first");
    assert_eq!(client.rest(), (Vec::new(), End::Orderly));
    edge.server.shut_down();
}

fn shares_of_requests(engine: Config) {
    let origins = ["one", "two"]
        .map(|body| Origin::answering(format!("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n{body}")));
    let mut forward = Forward::to("one");
    forward.backends[0].weight = 3;
    forward.backends.push(WeightedBackend::new("two"));
    let upstreams = vec![
        upstream("one", &[origins[0].addr]),
        upstream("two", &[origins[1].addr]),
    ];
    let edge = edge(
        engine,
        rules(vec![Rule::new(Action::Forward(Box::new(forward)))], upstreams),
    );
    let mut client = edge.server.client();
    let ones = (0..400).filter(|_| {
        client.send(get("/"));
        client.answer().text() == "one"
    });
    let ones = ones.count();
    assert!(
        (240..360).contains(&ones),
        "{ones} of 400 with three of four shares"
    );
    edge.server.shut_down();
}

fn a_change_of_configuration(engine: Config) {
    let (old, new) = (
        echoing(),
        Origin::answering("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nnew"),
    );
    let edge = edge(engine, to(&[old.addr], |_, _| {}));
    let mut open = edge.server.client();
    open.send(UPGRADE);
    assert_eq!(open.head().status, 101);
    assert_eq!(open.take(5), b"first");
    let mut client = edge.server.client();
    for turn in 0..50 {
        assert_eq!(
            edge.gateway.replace(
                Arc::new(to(&[new.addr], |_, upstream| upstream.pool.pending = turn)),
                Duration::ZERO
            ),
            []
        );
        client.send(get("/"));
        client.answer().expect(200, "new");
        assert_eq!(new.seen().connection, 0, "kept connections stay");
        open.send("still");
        assert_eq!(open.take(5), b"still");
    }
    drop(open);
    edge.server.shut_down();
}

fn an_old_client(engine: Config) {
    let origin =
        Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n");
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let answer = edge.server.ask("GET / HTTP/1.0\r\n\r\n");
    answer.expect(200, "ok");
    assert_eq!((answer.field("transfer-encoding"), answer.closes()), (None, true));
    // RFC 9112 §3.2: HTTP/1.1 has a host, whatever the client said.
    assert_eq!(origin.seen().field("host"), Some(origin.addr.to_string()));
    edge.server.shut_down();
}
