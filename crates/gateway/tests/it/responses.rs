//! Responses of the gateway: URLs in redirects, header changes of its own responses, `Date`, and `100 Continue`.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};

use ringmain_engine::Config;
use ringmain_gateway::model::{
    self, Action, DirectResponse as Respond, HeaderName, HeaderValue, Hostname, HttpsRedirect, Match,
    Network, Path, PathMatch, PathRewrite, Redirect, Rule, StaticBody, StatusHeaders, StatusRange,
};
use ringmain_wire::h2::Limits;

use crate::h2_origin::{Framed, Happened};
use crate::h2_upstreams::by_streams;
use crate::http2::{Http2, fields};
use crate::origin::{Edge, Origin, edge, refusing_addr, rules, to, upstream};
use crate::support::{Answer, PATIENCE};

on_every_backend! {
    redirects_name_the_url_that_the_client_requested,
    redirects_to_https_end,
    own_responses_are_changed,
    fields_are_set_for_some_statuses,
    dates_are_added_once,
    the_upstream_decides_about_the_body,
    the_body_is_sent_after_100,
    a_body_that_was_not_asked_for_is_no_request,
    an_upstream_that_ignores_the_expectation,
    expectations_over_http2,
}

fn name(text: &str) -> HeaderName {
    HeaderName::parse(text).expect("a name")
}

fn value(text: &str) -> HeaderValue {
    HeaderValue::parse(text).expect("a value")
}

fn at(path: &str, action: Action) -> Rule {
    Rule {
        matches: vec![Match {
            path: PathMatch::Prefix(Path::parse(path).expect("a path")),
            ..Match::default()
        }],
        ..Rule::new(action)
    }
}

fn trusting(mut config: model::Config) -> model::Config {
    let trusted = vec![Network::parse("127.0.0.0/8").expect("a network")];
    Arc::make_mut(&mut config.listeners[0]).client_address.trusted = trusted;
    config
}

fn asked(edge: &Edge, target: &str, headers: &str) -> Answer {
    edge.server.ask(format!("GET {target} HTTP/1.1\r\n{headers}\r\n"))
}

const HTTPS: &str = "X-Forwarded-Proto: https\r\n";

/// Target, host, further fields; the location by a trusted proxy, and by any other client.
const REDIRECTS: [(&str, &str, &str, &str, &str); 10] = [
    (
        "/moved/a?b",
        "shop.example",
        "",
        "http://shop.example/to/a?b",
        "http://shop.example/to/a?b",
    ),
    (
        "/moved",
        "shop.example:81",
        "",
        "http://shop.example:81/to",
        "http://shop.example:81/to",
    ),
    (
        "/moved",
        "shop.example",
        HTTPS,
        "https://shop.example/to",
        "http://shop.example/to",
    ),
    (
        "/moved",
        "[::1]:9",
        HTTPS,
        "https://[::1]:9/to",
        "http://[::1]:9/to",
    ),
    (
        "/away",
        "shop.example:8443",
        HTTPS,
        "https://other.example:8443/away",
        "http://other.example:8443/away",
    ),
    // The default port of the scheme between proxy and gateway.
    (
        "/moved",
        "shop.example:80",
        HTTPS,
        "https://shop.example/to",
        "http://shop.example/to",
    ),
    (
        "/moved",
        "inside:8080",
        "X-Forwarded-Proto: https\r\nX-Forwarded-Host: shop.example\r\nX-Forwarded-Port: 8443\r\n",
        "https://shop.example:8443/to",
        "http://inside:8080/to",
    ),
    (
        "/moved",
        "shop.example",
        "X-Forwarded-For: 6.6.6.6, 192.0.2.1\r\nX-Forwarded-Proto: http, https\r\nX-Forwarded-Host: forged, real\r\n",
        "https://real/to",
        "http://shop.example/to",
    ),
    // Values that are neither scheme, host nor port.
    (
        "/moved",
        "shop.example",
        "X-Forwarded-Proto: gopher\r\nX-Forwarded-Host: a@b\r\nX-Forwarded-Port: 0\r\n",
        "http://shop.example/to",
        "http://shop.example/to",
    ),
    (
        "/moved",
        "a",
        "X-Forwarded-Host: b/c\r\nX-Forwarded-Proto: HTTPS\r\n",
        "https://a/to",
        "http://a/to",
    ),
];

fn redirects_name_the_url_that_the_client_requested(engine: Config) {
    let moved = Redirect {
        path: Some(PathRewrite::Prefix(Path::parse("/to").expect("a path"))),
        ..Redirect::default()
    };
    let away = Redirect {
        host: Some(Hostname::parse("other.example").expect("a host")),
        ..Redirect::default()
    };
    let all = || {
        vec![
            at("/moved", Action::Redirect(moved.clone())),
            at("/away", Action::Redirect(away.clone())),
        ]
    };
    let trusted = edge(engine.clone(), trusting(rules(all(), Vec::new())));
    let strangers = edge(engine, rules(all(), Vec::new()));
    for (target, host, fields, from_proxy, from_client) in REDIRECTS {
        let headers = format!("Host: {host}\r\n{fields}");
        for (edge, expected) in [(&trusted, from_proxy), (&strangers, from_client)] {
            let answer = asked(edge, target, &headers);
            let found = (answer.status, answer.field("location"));
            assert_eq!(found, (302, Some(expected)), "{target} {headers}");
        }
    }
    trusted.server.shut_down();
    strangers.server.shut_down();
}

fn redirects_to_https_end(engine: Config) {
    let respond = Action::Respond(Respond {
        status: 204,
        content_type: None,
        body: StaticBody::default(),
    });
    let mut config = trusting(rules(vec![Rule::new(respond)], Vec::new()));
    Arc::make_mut(&mut config.listeners[0]).redirect_to_https = Some(HttpsRedirect::default());
    let edge = edge(engine, config);
    let plain = asked(
        &edge,
        "/a?b",
        "Host: shop.example:80\r\nX-Forwarded-Proto: http\r\n",
    );
    assert_eq!(
        (plain.status, plain.field("location")),
        (308, Some("https://shop.example/a?b"))
    );
    let secure = asked(&edge, "/", "Host: shop.example\r\nX-Forwarded-Proto: https\r\n");
    assert_eq!(secure.status, 204);
    edge.server.shut_down();
}

/// The values of a field, one for each line.
fn all<'a>(answer: &'a Answer, name: &str) -> Vec<&'a str> {
    let named = answer.fields.iter().filter(|(found, _)| found == name);
    named.map(|(_, value)| value.as_str()).collect()
}

fn own_responses_are_changed(engine: Config) {
    let respond = |status| {
        Action::Respond(Respond {
            status,
            content_type: None,
            body: StaticBody(b"own".as_slice().into()),
        })
    };
    let moved = Redirect {
        https: Some(true),
        ..Redirect::default()
    };
    let forward = || Action::Forward(Box::new(model::Forward::to("down")));
    let mut all_rules = Vec::new();
    for action in [respond(200), respond(404), Action::Redirect(moved), forward()] {
        for change in ["remove", "set", "add", "none"] {
            let mut rule = at(&format!("/{}/{change}", all_rules.len() / 4), action.clone());
            match change {
                "remove" => rule.response_headers.remove = vec![name("Server"), name("DATE")],
                "set" => {
                    rule.response_headers.set =
                        vec![(name("server"), value("mine")), (name("date"), value("now"))]
                }
                "add" => rule.response_headers.add = vec![(name("server"), value("mine"))],
                _ => {}
            }
            all_rules.push(rule);
        }
    }
    let down: Vec<SocketAddr> = vec![refusing_addr()];
    let edge = edge(engine, rules(all_rules, vec![upstream("down", &down)]));
    for (number, status) in [200, 404, 302, 503].into_iter().enumerate() {
        let ask = |change: &str| asked(&edge, &format!("/{number}/{change}"), "Host: a\r\n");
        let removed = ask("remove");
        assert_eq!(removed.status, status);
        assert_eq!((all(&removed, "server"), all(&removed, "date")), (vec![], vec![]));
        let set = ask("set");
        assert_eq!(
            (all(&set, "server"), all(&set, "date")),
            (vec!["mine"], vec!["now"])
        );
        let added = ask("add");
        assert_eq!(
            (all(&added, "server"), all(&added, "date").len()),
            (vec!["mine"], 1)
        );
        let none = ask("none");
        assert_eq!(
            (all(&none, "server"), all(&none, "date").len()),
            (vec!["ringmain"], 1)
        );
    }
    edge.server.shut_down();
}

fn fields_are_set_for_some_statuses(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let status = &seen.line()[5..8];
            peer.send(format!(
                "HTTP/1.1 {status} x\r\nContent-Length: 0\r\nX-Up: 1\r\n\r\n"
            ));
        }
    });
    let mut config = to(&[origin.addr], |forward, _| {
        forward.backends[0].status_headers = vec![StatusHeaders {
            statuses: vec![StatusRange::one(204)],
            changes: model::HeaderChanges {
                set: vec![(name("x-b"), value("backend"))],
                ..Default::default()
            },
        }];
    });
    let rule = &mut Arc::make_mut(&mut config.routes[0]).rules[0];
    rule.response_headers.set = vec![(name("x-a"), value("always")), (name("x-b"), value("always"))];
    rule.status_headers = vec![
        StatusHeaders {
            statuses: vec![
                StatusRange {
                    first: 200,
                    last: 299,
                },
                StatusRange::one(304),
            ],
            changes: model::HeaderChanges {
                set: vec![(name("x-a"), value("good"))],
                ..Default::default()
            },
        },
        StatusHeaders {
            statuses: vec![StatusRange {
                first: 400,
                last: 599,
            }],
            changes: model::HeaderChanges {
                remove: vec![name("x-up"), name("x-a")],
                ..Default::default()
            },
        },
    ];
    let edge = edge(engine, config);
    for (status, a, b, up) in [
        (200, Some("good"), Some("always"), Some("1")),
        (204, Some("good"), Some("backend"), Some("1")),
        (301, Some("always"), Some("always"), Some("1")),
        (304, Some("good"), Some("always"), Some("1")),
        (404, None, Some("always"), None),
        (500, None, Some("always"), None),
    ] {
        let answer = asked(&edge, &format!("/{status}"), "Host: a\r\n");
        let found = (
            answer.status,
            answer.field("x-a"),
            answer.field("x-b"),
            answer.field("x-up"),
        );
        assert_eq!(found, (status, a, b, up));
    }
    edge.server.shut_down();
}

fn dates_are_added_once(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let date = if seen.line().contains("/dated") {
                "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n"
            } else {
                ""
            };
            let body = if seen.line().contains("/long") {
                "Transfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n"
            } else {
                "Content-Length: 0\r\n\r\n"
            };
            peer.send(format!("HTTP/1.1 404 x\r\n{date}{body}"));
        }
    });
    let mut config = to(&[origin.addr], |_, _| {});
    let mut without = config.routes[0].rules[0].clone();
    without.matches = at("/without", without.action.clone()).matches;
    without.response_headers.remove = vec![name("date")];
    Arc::make_mut(&mut config.routes[0]).rules.push(without);
    let edge = edge(engine, config);
    for target in ["/", "/long"] {
        let answer = asked(&edge, target, "Host: a\r\n");
        let dates = all(&answer, "date");
        assert!(matches!(dates[..], [date] if date.ends_with(" GMT")), "{dates:?}");
    }
    for target in ["/dated", "/dated/long"] {
        let answer = asked(&edge, target, "Host: a\r\n");
        assert_eq!(all(&answer, "date"), ["Sun, 06 Nov 1994 08:49:37 GMT"]);
    }
    for target in ["/without", "/without/dated"] {
        let answer = asked(&edge, target, "Host: a\r\n");
        assert_eq!(all(&answer, "date"), [""; 0]);
    }
    edge.server.shut_down();
}

const EXPECTING: &str = "PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n";

fn the_upstream_decides_about_the_body(engine: Config) {
    let (decide, decided) = mpsc::channel::<()>();
    let decided = std::sync::Mutex::new(decided);
    let (sender, seen) = mpsc::channel();
    let origin = Origin::new(move |mut peer| {
        let Some(head) = peer.head() else { return };
        sender.send(head.field("expect")).expect("the test waits");
        let wait = decided.lock().expect("one connection");
        wait.recv_timeout(PATIENCE).expect("the test decides");
        peer.send("HTTP/1.1 401 x\r\nContent-Length: 2\r\n\r\nno");
        // Nothing of the body was sent.
        assert_eq!(peer.some(), None);
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(EXPECTING);
    let expect = seen.recv_timeout(PATIENCE).expect("the head is sent");
    assert_eq!(expect.as_deref(), Some("100-continue"));
    decide.send(()).expect("the origin waits");
    client.answer().expect(401, "no");
    edge.server.shut_down();
}

fn the_body_is_sent_after_100(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(head) = peer.head() {
            if head.field("expect").is_some() {
                peer.send("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nX-Hint: 1\r\n\r\n");
            }
            let Some(body) = peer.take(5) else { return };
            peer.send([b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n".as_slice(), &body].concat());
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..2 {
        client.send(EXPECTING);
        assert_eq!(client.head().status, 100);
        assert_eq!(client.head().status, 103);
        client.send("abcde");
        client.answer().expect(200, "abcde");
    }
    // The body follows the head at once: 100 (Continue) is not needed.
    client.send(format!("{EXPECTING}abcde"));
    let mut answer = client.head();
    while answer.status < 200 {
        answer = client.head();
    }
    assert_eq!((answer.status, client.take(5)), (200, b"abcde".to_vec()));
    edge.server.shut_down();
}

/// An upstream that refuses without reading the body takes that for its next request: another client's is not sent behind it.
fn a_body_that_was_not_asked_for_is_no_request(engine: Config) {
    let (sender, lines) = mpsc::channel();
    let origin = Origin::new(move |mut peer| {
        while let Some(head) = peer.head() {
            sender.send(head.line().to_owned()).expect("the test waits");
            peer.send("HTTP/1.1 401 x\r\nContent-Length: 2\r\n\r\nno");
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for _ in 0..3 {
        let mut client = edge.server.client();
        client.send(format!("{EXPECTING}GET /"));
        let mut answer = client.head();
        while answer.status < 200 {
            answer = client.head();
        }
        assert_eq!(answer.status, 401);
        edge.server
            .ask("GET /other HTTP/1.1\r\nHost: a\r\n\r\n")
            .expect(401, "no");
        for expected in ["PUT / HTTP/1.1", "GET /other HTTP/1.1"] {
            assert_eq!(lines.recv_timeout(PATIENCE).expect("it is sent"), expected);
        }
    }
    edge.server.shut_down();
}

fn an_upstream_that_ignores_the_expectation(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    client.send(EXPECTING);
    assert_eq!(client.head().status, 100, "after EXPECT_WAIT");
    client.send("abcde");
    let answer = client.answer();
    assert_eq!(answer.status, 200);
    assert!(answer.text().ends_with("abcde"), "{}", answer.text());
    edge.server.shut_down();
}

fn expectations_over_http2(engine: Config) {
    let origin = Framed::new(|mut peer| {
        while let Some((stream, asked, end)) = peer.head() {
            assert_eq!((asked.field("expect"), end), (Some("100-continue"), false));
            if asked.line.ends_with("/refused") {
                peer.answer(stream, 401, &[], b"no");
                continue;
            }
            peer.respond(stream, 100, &[], false);
            let mut body = Vec::new();
            loop {
                match peer.next() {
                    Happened::Data(_, data, end) => {
                        body.extend_from_slice(&data);
                        if end {
                            peer.answer(stream, 200, &[], &body);
                            break;
                        }
                    }
                    Happened::Closed => return,
                    _ => {}
                }
            }
        }
    });
    let edge = by_streams(engine, &origin, |_, _| {});
    // Over HTTP/1.1 to the gateway.
    let mut client = edge.server.client();
    client.send(EXPECTING);
    assert_eq!(client.head().status, 100);
    client.send("abcde");
    client.answer().expect(200, "abcde");
    let mut client = edge.server.client();
    client.send(EXPECTING.replace("PUT / ", "PUT /refused "));
    client.answer().expect(401, "no");
    // Over HTTP/2.
    let mut client = Http2::over(edge.server.client(), &Limits::INTERNET);
    let expecting = fields(&[("expect", "100-continue")]);
    let stream = client.head("PUT", "/", &expecting, false);
    let got = client.wait_for(stream, |got| !got.interim.is_empty() || got.end);
    assert_eq!((got.interim, got.status), (vec![100], 0));
    client.send_body(stream, b"abcde");
    client.wait(stream).expect(200, "abcde");
    let stream = client.head("PUT", "/refused", &expecting, false);
    let got = client.wait(stream);
    assert_eq!((got.interim.len(), got.status, got.text()), (0, 401, "no"));
    edge.server.shut_down();
}
