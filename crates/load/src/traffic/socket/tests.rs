//! Handshakes that servers take, and what messages hold.

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};
use ringmain_wire::ws::{ServerWish, accept};

use super::*;

fn request(headers: &[(&str, &str)], body: Body) -> Request {
    let headers = headers
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()));
    Request {
        headers: headers.collect(),
        body,
        ..Request::get("/room/{{seq}}?x={{random-hex:4}}", "host:81")
    }
}

fn opening(socket: &Socket, nonce: [u8; NONCE_BYTES]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut random = fastrand::Rng::with_seed(7);
    socket.write_opening(&mut out, nonce, &mut random, &mut Sequence::new(3, 10));
    out
}

#[test]
fn a_server_takes_the_handshake() {
    let headers = [
        ("Authorization", "Bearer {{uuid}}"),
        ("Sec-WebSocket-Protocol", "chat, superchat"),
        ("X-Key", "AAAAAAAAAAAAAAAAAAAAAA=="),
    ];
    let socket = Socket::new(&request(&headers, Body::None), 64, true).unwrap();
    for nonce in [[0; 16], [1; 16], [255; 16]] {
        let bytes = opening(&socket, nonce);
        let mut table = FieldTable::new(&Limits::INTERNET);
        let parsed = parse_request(&bytes, &Limits::INTERNET, &mut HeadScanner::new(), &mut table).unwrap();
        let Parsed::Complete { head, bytes: length } = parsed else {
            panic!("not whole");
        };
        assert_eq!(length, bytes.len());
        assert!(head.target.path() == "/room/3" && head.target.query().is_some_and(|q| q.len() == 6));
        assert_eq!(head.fields.all("Sec-WebSocket-Key").next(), Some(&key(nonce)[..]));
        assert_eq!(
            head.fields.all("X-Key").next(),
            Some(&b"AAAAAAAAAAAAAAAAAAAAAA=="[..])
        );
        assert_eq!(head.fields.all("Sec-WebSocket-Protocol").count(), 1);
        let wish = ServerWish {
            protocols: &["superchat"],
            deflation: Some(Deflation::CONTEXT),
        };
        let acceptance = accept(&head, &wish).unwrap();
        assert_eq!(acceptance.protocol, Some("superchat"));
        assert_eq!(acceptance.deflation(), Some(Deflation::SHARED));
    }
}

#[test]
fn what_a_message_holds() {
    let content = |body| Socket::new(&request(&[], body), 64, false).unwrap();
    assert!(matches!(content(Body::None).content, Content::Marked(64)));
    let text = content(Body::Text("hello".into()));
    assert_eq!((text.kind(), text.most_bytes()), (Kind::Text, 5));
    let empty = content(Body::Text(String::new()));
    assert_eq!((empty.kind(), empty.most_bytes()), (Kind::Text, 0));
    let binary = content(Body::Bytes(vec![0xff, 0].into()));
    assert_eq!((binary.kind(), binary.most_bytes()), (Kind::Binary, 2));
    let tokens = content(Body::Text("n {{random:1..1000}}".into()));
    assert_eq!((tokens.kind(), tokens.most_bytes()), (Kind::Text, 6));
    let Content::Template(template) = tokens.content else {
        panic!("it has a token");
    };
    let mut out = Vec::new();
    template.write(
        &mut out,
        &mut fastrand::Rng::with_seed(7),
        &mut Sequence::new(0, 1),
    );
    assert!(out.starts_with(b"n ") && out.len() <= 6, "{out:?}");
}

fn check_wrong(headers: &[(&str, &str)], body: Body, part: Part, expect: &str) {
    let problem = Socket::new(&request(headers, body), 64, false).unwrap_err();
    assert_eq!(problem.part, part);
    let said = format!("expected {}, found {}", problem.expected, problem.found);
    assert!(said.contains(expect), "expected `{expect}` in: {said}");
}

#[test]
fn what_cannot_be_sent_is_refused() {
    for name in [
        "sec-websocket-key",
        "Sec-WebSocket-Version",
        "SEC-WEBSOCKET-EXTENSIONS",
    ] {
        check_wrong(
            &[("A", "b"), (name, "x")],
            Body::None,
            Part::Header(1),
            "the handshake does not write itself",
        );
    }
    check_wrong(
        &[("A", "b"), ("Sec-WebSocket-Protocol", "a b")],
        Body::None,
        Part::Header(1),
        "names of subprotocols",
    );
    check_wrong(
        &[("Upgrade", "x")],
        Body::None,
        Part::Header(0),
        "written for you",
    );
    let long = Body::Bytes(vec![0; limits::ECHO_BYTES as usize + 1].into());
    check_wrong(&[], long, Part::Body, "a message of at most");
}
