//! Fields behind bodies: which go further, and to whom.

use ringmain_engine::Config;
use ringmain_gateway::model::{HeaderChanges, HeaderName, HeaderValue};

use crate::origin::{Origin, Peer, edge, to};

on_every_backend! {
    of_a_request,
    of_an_answer,
    without_te_trailers_are_dropped,
    that_are_not_allowed,
    that_are_too_many,
}

/// A request's head and all of a body in chunks with its trailers, byte by byte.
fn raw(peer: &mut Peer) -> Option<(String, String)> {
    let head = peer.head()?.head;
    let mut body = String::new();
    loop {
        let line = String::from_utf8(peer.line()?).expect("text");
        let over = line == "\r\n" && (body.ends_with("0\r\n") || body.contains("\r\n0\r\n"));
        body.push_str(&line);
        if over {
            return Some((head, body));
        }
    }
}

/// An origin that responds with an echo of the request.
fn mirror() -> Origin {
    Origin::new(|mut peer| {
        while let Some((head, body)) = raw(&mut peer) {
            let text = format!("{head}{body}");
            peer.send(format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}",
                text.len()
            ));
        }
    })
}

const REQUEST: &str = "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n";

/// Returns a client's response to a request, to the end of its connection.
fn all(edge: &crate::origin::Edge, fields: &str) -> String {
    let mut client = edge.server.client();
    client.send(format!(
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{fields}\r\n"
    ));
    String::from_utf8(client.rest().0).expect("text")
}

fn of_a_request(engine: Config) {
    let origin = mirror();
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let mut client = edge.server.client();
    for _ in 0..2 {
        client.send(format!(
            "{REQUEST}Trailer: X-Sum, Content-Length\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"
        ));
        let text = client.answer().text().to_owned();
        assert!(text.contains("\r\nTrailer: X-Sum\r\n"), "{text}");
        assert!(
            text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 1\r\nX-More: 2\r\n\r\n"),
            "{text}"
        );
    }
    // The next one has none of the last one's.
    client.send(format!("{REQUEST}\r\n3\r\nabc\r\n0\r\n\r\n"));
    let text = client.answer().text().to_owned();
    assert!(text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{text}");
    edge.server.shut_down();
}

fn of_an_answer(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: grpc-status, Set-Cookie\r\nConnection: X-Own\r\n\r\n\
         3\r\nabc\r\n0\r\ngrpc-status: 0\r\nX-Own: 1\r\nX-Sum: 7\r\n\r\n",
    );
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    for _ in 0..2 {
        let text = all(&edge, "TE: trailers\r\n");
        assert!(text.contains("\r\nTrailer: grpc-status\r\n"), "{text}");
        assert!(
            text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\ngrpc-status: 0\r\nX-Sum: 7\r\n\r\n"),
            "{text}"
        );
        let seen = origin.seen();
        assert_eq!(seen.field("te").as_deref(), Some("trailers"));
        assert_eq!(seen.field("connection").as_deref(), Some("te"));
        assert_eq!(seen.connection, 0, "a connection is kept behind trailers");
    }
    edge.server.shut_down();
}

fn without_te_trailers_are_dropped(engine: Config) {
    let origin = Origin::answering(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 7\r\n\r\n",
    );
    let edge = edge(engine.clone(), to(&[origin.addr], |_, _| {}));
    for fields in ["", "TE: deflate\r\n"] {
        let text = all(&edge, fields);
        assert!(!text.contains("X-Sum"), "{text}");
        assert!(text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\n\r\n"), "{text}");
        assert_eq!(origin.seen().field("te"), None);
    }
    // An old client gets a body without chunks.
    let mut client = edge.server.client();
    client.send("GET / HTTP/1.0\r\nHost: a\r\nTE: trailers\r\n\r\n");
    let text = String::from_utf8(client.rest().0).expect("text");
    assert!(text.ends_with("\r\n\r\nabc") && !text.contains("X-Sum"), "{text}");
    // HEAD has no body, so nothing is behind it.
    let head = Origin::answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n");
    let other = crate::origin::edge(engine, to(&[head.addr], |_, _| {}));
    let answer = other
        .server
        .ask("HEAD / HTTP/1.1\r\nHost: a\r\nTE: trailers\r\n\r\n");
    assert_eq!(answer.status, 200);
    other.server.shut_down();
    edge.server.shut_down();
}

/// Trailers that could be mistaken for fields of a head.
const STRANGE: &str = "Authorization: x\r\nauthorization: x\r\nCookie: a=b\r\nSet-Cookie: a=b\r\nX-Forwarded-For: 9.9.9.9\r\n\
                       X_Forwarded_For: 9.9.9.9\r\nX-Real-IP: 9.9.9.9\r\nForwarded: for=9.9.9.9\r\nVia: 1.1 x\r\n\
                       Connection: close\r\nTE: trailers\r\nExpect: 100-continue\r\nIf-Match: x\r\nContent-Type: x/y\r\n\
                       Content-Encoding: gzip\r\nContent_Type: x/y\r\nProxy-Authorization: x\r\nCache-Control: no-store\r\n\
                       WWW-Authenticate: x\r\nLocation: /\r\nAccess-Control-Allow-Origin: *\r\nVary: *\r\nX-Secret: x\r\n\
                       X_Secret: x\r\nRange: bytes=0-1\r\nMax-Forwards: 0\r\nUpgrade: h2c\r\n";

fn that_are_not_allowed(engine: Config) {
    let up = mirror();
    let secret = HeaderChanges {
        set: vec![(
            HeaderName::parse("X-Secret").expect("a name"),
            HeaderValue::parse("own").expect("a value"),
        )],
        ..HeaderChanges::default()
    };
    let change = |config: &mut ringmain_gateway::model::Config| {
        let route = std::sync::Arc::make_mut(&mut config.routes[0]);
        route.rules[0].request_headers = secret.clone();
        route.rules[0].response_headers = secret.clone();
    };
    let mut config = to(&[up.addr], |_, _| {});
    change(&mut config);
    let first = edge(engine.clone(), config);
    let mut client = first.server.client();
    client.send(format!("{REQUEST}\r\n3\r\nabc\r\n0\r\n{STRANGE}ETag: e\r\n\r\n"));
    let text = client.answer().text().to_owned();
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\nETag: e\r\n\r\n"),
        "{text}"
    );
    first.server.shut_down();

    let down = Origin::answering(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n{STRANGE}ETag: e\r\n\r\n"
    ));
    let mut config = to(&[down.addr], |_, _| {});
    change(&mut config);
    let second = edge(engine.clone(), config);
    let text = all(&second, "TE: trailers\r\n");
    assert!(
        text.ends_with("\r\n\r\n3\r\nabc\r\n0\r\nETag: e\r\n\r\n"),
        "{text}"
    );
    second.server.shut_down();

    // Fields that frame or route a message are invalid as trailers: the request is refused.
    let origin = mirror();
    let third = edge(engine, to(&[origin.addr], |_, _| {}));
    for field in ["Content-Length: 3", "Transfer-Encoding: chunked", "Host: b"] {
        let mut client = third.server.client();
        client.send(format!("{REQUEST}\r\n3\r\nabc\r\n0\r\n{field}\r\n\r\n"));
        assert_eq!(client.answer().status, 400, "{field}");
    }
    third.server.shut_down();
}

/// More than fit are no answer: the client can tell that it is cut.
fn that_are_too_many(engine: Config) {
    let many: String = (0..100).map(|number| format!("X-{number}: 1\r\n")).collect();
    let origin = Origin::answering(format!(
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n{many}\r\n"
    ));
    let edge = edge(engine, to(&[origin.addr], |_, _| {}));
    let text = all(&edge, "TE: trailers\r\n");
    assert!(
        text.starts_with("HTTP/1.1 502") || text.ends_with("3\r\nabc\r\n"),
        "{text}"
    );
    edge.server.shut_down();
}
