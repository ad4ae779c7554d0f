//! Requests on their way up, answers on their way down.

use ringmain_engine::Config;
use ringmain_gateway::model::{ClientHeader, HeaderChanges, HeaderName, HeaderValue, Network};

use crate::origin::{Origin, edge, refusing_addr, to};
use crate::support::{chunked, get, pattern, post};

on_every_backend! {
    a_request_and_its_answer,
    fields_of_the_connection_stay,
    fields_of_an_answers_connection_stay,
    headers_set_by_a_rule_cannot_be_forged,
    bodies_both_ways,
    connections_are_kept,
    no_listener_at_the_endpoint,
}

fn a_request_and_its_answer(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 201 Made\r\nContent-Length: 5\r\nX-One: 1\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\n\r\nhello",
    );
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let answer = edge
        .server
        .ask("GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nX-Two: 2\r\n\r\n");
    answer.expect(201, "hello");
    let fields: Vec<_> = answer
        .fields
        .iter()
        .filter(|(name, _)| name != "date")
        .map(|(name, value)| format!("{name}: {value}"))
        .collect();
    assert_eq!(
        fields,
        [
            "x-one: 1",
            "set-cookie: a=1",
            "set-cookie: b=2",
            "content-length: 5"
        ]
    );
    let seen = origin.seen();
    let expected = "GET /a/b?c=d HTTP/1.1\r\nHost: shop.example\r\nX-Two: 2\r\nX-Forwarded-For: 127.0.0.1\r\n\
                    X-Forwarded-Proto: http\r\nX-Forwarded-Host: shop.example\r\nVia: 1.1 ringmain\r\n\r\n";
    assert_eq!(seen.head, expected);
    edge.server.shut_down();
}

fn fields_of_the_connection_stay(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    edge.server.ask(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: keep-alive, X-Own, Authorization\r\nX-Own: 1\r\nKeep-Alive: 5\r\n\
         Proxy-Connection: keep-alive\r\nTE: trailers\r\nUpgrade: h2c\r\nAuthorization: Basic eA==\r\n\
         X-Forwarded-For: 9.9.9.9\r\nX_Forwarded_For: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\n\
         X-Forwarded-Proto: https\r\nX-Forwarded-Port: 443\r\nVia: 1.1 other\r\n\r\n",
    );
    let seen = origin.seen();
    assert_eq!(
        seen.head,
        "GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic eA==\r\nVia: 1.1 other\r\nX-Forwarded-For: 127.0.0.1\r\n\
         X-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 ringmain\r\nTE: trailers\r\nConnection: te\r\n\r\n"
    );
    edge.server.shut_down();
}

fn fields_of_an_answers_connection_stay(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nConnection: X-Own, keep-alive, Set-Cookie, Content-Type\r\nX-Own: 1\r\nx-own: 2\r\n\
         Keep-Alive: timeout=5\r\nProxy-Connection: keep-alive\r\nTE: x\r\nUpgrade: h2c\r\nSet-Cookie: a=1\r\n\
         Content-Type: text/css\r\nX-End: 1\r\nContent-Length: 2\r\n\r\nok",
    );
    let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
    let answer = edge.server.get("/");
    answer.expect(200, "ok");
    let fields: Vec<_> = answer.fields.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(
        fields,
        ["set-cookie", "content-type", "x-end", "date", "content-length"]
    );
    edge.server.shut_down();
    // HEAD says how long the body would be, and the connection is used again behind it.
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let body = if seen.line().starts_with("HEAD") {
                ""
            } else {
                "0123456789"
            };
            peer.send(format!("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{body}"));
        }
    });
    let edge = crate::origin::edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for method in ["HEAD", "GET", "HEAD"] {
        client.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
        let answer = client.answer_to(method);
        assert_eq!(answer.field("content-length"), Some("10"), "{method}");
        assert_eq!(origin.seen().connection, 0);
    }
    edge.server.shut_down();
}

fn headers_set_by_a_rule_cannot_be_forged(engine: Config) {
    let origin = Origin::echo();
    let name = |text: &str| HeaderName::parse(text).expect("a name");
    let mut config = to(&[origin.addr], |_, _| {});
    let route = std::sync::Arc::make_mut(&mut config.routes[0]);
    route.rules[0].request_headers = HeaderChanges {
        remove: vec![name("X-Internal")],
        set: vec![(name("X-User-ID"), HeaderValue::parse("7").expect("a value"))],
        add: Vec::new(),
    };
    let listener = std::sync::Arc::make_mut(&mut config.listeners[0]);
    listener.client_address.header = ClientHeader::Named(name("CF-Connecting-IP"));
    let edge = edge(engine, config.clone());
    let request = "GET / HTTP/1.1\r\nHost: a\r\nX_User_ID: 1\r\nX-User_ID: 1\r\nx-user-id: 1\r\nX_INTERNAL: 1\r\n\
                   CF-Connecting-IP: 9.9.9.9\r\nCF_Connecting_IP: 9.9.9.9\r\nX_Other: 1\r\n\r\n";
    edge.server.ask(request);
    let names = |seen: crate::origin::Seen| -> Vec<String> {
        let fields = seen.head.lines().skip(2).filter_map(|line| line.split_once(": "));
        let fields = fields.filter(|(name, _)| !name.starts_with("X-Forwarded") && *name != "Via");
        fields.map(|(name, value)| format!("{name}: {value}")).collect()
    };
    assert_eq!(names(origin.seen()), ["X_Other: 1", "X-User-ID: 7"]);
    // A proxy that is trusted says who the client is, in one form.
    let listener = std::sync::Arc::make_mut(&mut config.listeners[0]);
    listener.client_address.trusted = vec![Network::parse("127.0.0.0/8").expect("a network")];
    let config = std::sync::Arc::new(config);
    assert_eq!(edge.gateway.replace(config, std::time::Duration::ZERO), []);
    edge.server.ask(request);
    assert_eq!(
        names(origin.seen()),
        ["CF-Connecting-IP: 9.9.9.9", "X_Other: 1", "X-User-ID: 7"]
    );
    edge.server.shut_down();
}

fn bodies_both_ways(engine: Config) {
    let origin = Origin::new(|mut peer| {
        while let Some(seen) = peer.request() {
            let mut answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
            answer.extend_from_slice(&chunked(&seen.body, 7000));
            peer.send(answer);
        }
    });
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for length in [0, 1, 5000, 70_000, 3_000_000] {
        let body = pattern(length);
        let mut client = edge.server.client();
        let request = format!("PUT / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n");
        let sent = client.send_behind([request.as_bytes(), &body].concat());
        let answer = client.answer();
        assert_eq!(answer.status, 200);
        assert!(answer.body == body, "{length} bytes came back");
        sent.join().expect("no panic").expect("all was taken");
        let request = b"PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        let sent = client.send_behind([request, &*chunked(&body, 9000)].concat());
        assert!(client.answer().body == body, "{length} bytes in chunks came back");
        sent.join().expect("no panic").expect("all was taken");
    }
    edge.server.shut_down();
}

fn connections_are_kept(engine: Config) {
    let origin = Origin::echo();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..5 {
        client.send(get("/"));
        assert_eq!(client.answer().status, 200);
        client.send(post("/", "text/plain", "x"));
        assert_eq!(client.answer().status, 200);
    }
    for _ in 0..10 {
        assert_eq!(origin.seen().connection, 0);
    }
    edge.server.shut_down();
}

fn no_listener_at_the_endpoint(engine: Config) {
    let edge = edge(engine, to(&[refusing_addr()], |_, _| {}));
    let answer = edge.server.get("/");
    answer.expect(503, "upstream connection refused\n");
    assert_eq!(answer.field("retry-after"), Some("1"));
    edge.server.shut_down();
}
