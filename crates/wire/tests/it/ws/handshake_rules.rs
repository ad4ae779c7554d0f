//! Rules 14 to 16: the opening handshake of both sides, and what they agree on.

use ringmain_wire::h1::{
    Exchange, FieldBlock, FieldTable, Framing, HeadScanner, Limits, Method, Parsed, RequestEncoder,
    RequestHead, ResponseEncoder, Version, parse_request, parse_response,
};
use ringmain_wire::ws::{
    Acceptance, Challenge, Deflation, HandshakeFault, HandshakeFaultKind as Fault, Misuse, Opened, Opening,
    ServerWish, Window, accept,
};

const SAMPLE: &str = "GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n";

/// What the server makes of a request's lines.
fn accepted<'w>(lines: &str, wish: &ServerWish<'w>) -> Result<Acceptance<'w>, Fault> {
    let (limits, mut scanner) = (Limits::default(), HeadScanner::new());
    let mut table = FieldTable::new(&limits);
    let head = format!("{lines}\r\n");
    match parse_request(head.as_bytes(), &limits, &mut scanner, &mut table) {
        Ok(Parsed::Complete { head, .. }) => accept(&head, wish).map_err(|fault| fault.kind),
        other => panic!("`{head}`: {other:?}"),
    }
}

fn answer(acceptance: &Acceptance<'_>) -> String {
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, 101, Exchange::REFUSED).expect("a status");
    acceptance.write_fields(&mut head).expect("fields");
    head.switch(b"websocket").expect("a switch");
    String::from_utf8(out).expect("ASCII")
}

/// What the client makes of a response.
fn concluded<'w>(opening: &Opening<'w>, head: &str) -> Result<Opened<'w>, Fault> {
    let (limits, mut scanner) = (Limits::default(), HeadScanner::new());
    let mut table = FieldTable::new(&limits);
    match parse_response(head.as_bytes(), Method::Get, &limits, &mut scanner, &mut table) {
        Ok(Parsed::Complete { head, .. }) => opening.conclude(&head).map_err(|fault| fault.kind),
        other => panic!("`{head}`: {other:?}"),
    }
}

fn request(opening: &Opening<'_>) -> String {
    let mut out = Vec::new();
    let mut head = RequestEncoder::new(&mut out, Method::Get, "/", "a").expect("a request");
    opening.write_fields(&mut head).expect("fields");
    let body = head.finish_with_upgrade(Framing::None, b"websocket");
    body.expect("a head").finish(&mut out).expect("no body");
    let text = String::from_utf8(out).expect("ASCII");
    text.strip_suffix("\r\n").expect("an empty line").to_owned()
}

#[test]
fn rule_14_the_example_of_rfc_6455() {
    let acceptance = accepted(SAMPLE, &ServerWish::default()).expect("valid");
    assert_eq!((acceptance.protocol, acceptance.deflation()), (None, None));
    assert_eq!(
        answer(&acceptance),
        "HTTP/1.1 101 Switching Protocols\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
         Connection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
}

#[test]
fn rule_14_a_request_asks_for_a_websocket_and_nothing_else() {
    let with = |from: &str, to: &str| accepted(&SAMPLE.replacen(from, to, 1), &ServerWish::default()).err();
    let check =
        |from: &str, to: &str, expected: Option<Fault>| assert_eq!(with(from, to), expected, "{from}: {to}");
    check("websocket", "WebSocket", None);
    check("Upgrade: websocket", "Upgrade: h2c, websocket", None);
    check("Upgrade: websocket", "Upgrade: h2c\r\nUpgrade: websocket", None);
    check("Connection: Upgrade", "Connection: keep-alive, upgrade", None);
    check("Host: a\r\n", "Host: a\r\nContent-Length: 0\r\n", None);
    check("Upgrade: websocket\r\n", "", Some(Fault::Upgrade));
    check("websocket", "websocket2", Some(Fault::Upgrade));
    check("Connection: Upgrade\r\n", "", Some(Fault::Connection));
    check(
        "Connection: Upgrade",
        "Connection: keep-alive",
        Some(Fault::Connection),
    );
    check("GET", "POST", Some(Fault::Method));
    check("HTTP/1.1", "HTTP/1.0", Some(Fault::HttpVersion));
    check(
        "Host: a\r\n",
        "Host: a\r\nContent-Length: 1\r\n",
        Some(Fault::Content),
    );
    check(
        "Host: a\r\n",
        "Host: a\r\nTransfer-Encoding: chunked\r\n",
        Some(Fault::Content),
    );
    check("Sec-WebSocket-Version: 13\r\n", "", Some(Fault::Version));
    for other in ["8", "14", "013", "13, 8", ""] {
        check("Version: 13", &format!("Version: {other}"), Some(Fault::Version));
    }
    check(
        "Host: a\r\n",
        "Host: a\r\nSec-WebSocket-Version: 13\r\n",
        Some(Fault::VersionRepeated),
    );
    check(
        "Host: a\r\n",
        "Host: a\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        Some(Fault::Key),
    );
    check(
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n",
        "",
        Some(Fault::Key),
    );
    for other in [
        "",
        "dGhlIHNhbXBsZSBub25jZQ",
        "dGhlIHNhbXBsZSBub25jZQ=",
        "dGhlIHNhbXBsZSBub25jZR==",
        "dGhlIHNhbXBsZSBub25j",
        "dGhlIHNhbXBsZSBub25jZSEh",
        "dGhlIHNhbXBsZSBub25jZSE=",
        "dGhlIHNhbXBsZSBub25j!Q==",
        "dGhlIHNhbXBsZSBub25jZSEhISE=",
    ] {
        check("dGhlIHNhbXBsZSBub25jZQ==", other, Some(Fault::Key));
    }
}

/// What the server makes of the same lines in an extended CONNECT.
fn accepted_on_a_stream<'w>(
    lines: &str,
    protocol: &str,
    wish: &ServerWish<'w>,
) -> Result<Acceptance<'w>, Fault> {
    let (limits, mut scanner) = (Limits::default(), HeadScanner::new());
    let mut table = FieldTable::new(&limits);
    let head = format!("{lines}\r\n");
    let Ok(Parsed::Complete { head, .. }) = parse_request(head.as_bytes(), &limits, &mut scanner, &mut table)
    else {
        panic!("`{head}` is a request");
    };
    let head = RequestHead {
        version: Version::Http2,
        method: Method::Connect,
        protocol: Some(protocol),
        ..head
    };
    let upgrade = head.as_upgrade().expect("an extended CONNECT");
    assert_eq!(
        (upgrade.method, upgrade.upgrade),
        (Method::Get, Some(protocol.as_bytes()))
    );
    let accepted = accept(&upgrade, wish).map_err(|fault| fault.kind);
    if head.framing == Framing::None {
        assert_eq!(accept(&head, wish).map_err(|fault| fault.kind), accepted);
    }
    accepted
}

#[test]
fn rule_14_a_stream_is_asked_for_without_a_key() {
    let plain = "GET /chat HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Version: 13\r\n";
    let wish = ServerWish {
        protocols: &["chat"],
        deflation: Some(Deflation::SHARED),
    };
    let check = |lines: &str, protocol: &str, expected: Option<Fault>| {
        assert_eq!(
            accepted_on_a_stream(lines, protocol, &wish).err(),
            expected,
            "{lines}"
        );
    };
    check(plain, "websocket", None);
    check(plain, "WebSocket", None);
    check(plain, "connect-udp", Some(Fault::Upgrade));
    check(
        &format!("{plain}Content-Length: 1\r\n"),
        "websocket",
        Some(Fault::Content),
    );
    check(&plain.replace("13", "8"), "websocket", Some(Fault::VersionOther));
    check(
        "GET / HTTP/1.1\r\nHost: a\r\n",
        "websocket",
        Some(Fault::VersionOther),
    );
    check(
        &format!("{plain}Sec-WebSocket-Version: 13\r\n"),
        "websocket",
        Some(Fault::VersionRepeated),
    );
    check(
        &format!("{plain}Sec-WebSocket-Protocol: a, a\r\n"),
        "websocket",
        Some(Fault::Protocols),
    );
    let offers = "Sec-WebSocket-Protocol: chat\r\nSec-WebSocket-Extensions: permessage-deflate\r\n";
    let acceptance =
        accepted_on_a_stream(&format!("{plain}{offers}"), "websocket", &wish).expect("an opening");
    let mut fields = FieldBlock::new();
    acceptance.add_fields(&mut fields).expect("fields");
    let names: Vec<&str> = fields.iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Sec-WebSocket-Protocol", "Sec-WebSocket-Extensions"]);
}

#[test]
fn rule_15_an_intermediary_has_a_key_of_its_own() {
    let challenge = Challenge::new(*b"the sample nonce");
    let mut out = Vec::new();
    let mut head = RequestEncoder::new(&mut out, Method::Get, "/", "a").expect("a request");
    challenge.write_field(&mut head).expect("a field");
    let mut body = head
        .finish_with_upgrade(Framing::None, b"websocket")
        .expect("a head");
    body.finish(&mut out).expect("no body");
    let text = String::from_utf8(out).expect("ASCII");
    assert!(
        text.contains("\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"),
        "{text}"
    );
    for (accept, met) in [
        ("s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", true),
        ("s3pPLMBiTxaQ9kYGzzhZRbK+xOp=", false),
    ] {
        let head = format!(
            "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
        );
        let (limits, mut scanner) = (Limits::default(), HeadScanner::new());
        let mut table = FieldTable::new(&limits);
        match parse_response(head.as_bytes(), Method::Get, &limits, &mut scanner, &mut table) {
            Ok(Parsed::Complete { head, .. }) => assert_eq!(challenge.is_met(&head), met, "{accept}"),
            other => panic!("{other:?}"),
        }
    }
    assert!(Challenge::replaces(b"sec-websocket-key") && !Challenge::replaces(b"sec-websocket-accept"));
}

#[test]
fn rule_14_the_answer_to_a_fault_says_what_would_do() {
    for &kind in Fault::ALL {
        let fault = HandshakeFault { kind };
        let mut out = Vec::new();
        let mut head = ResponseEncoder::new(&mut out, kind.status(), Exchange::REFUSED).expect("a status");
        fault.write_fields(&mut head).expect("fields of that status");
        let mut body = head.finish(Framing::None).expect("a head");
        body.finish(&mut out).expect("no body");
        let text = String::from_utf8(out).expect("ASCII");
        let version = text.contains("\r\nSec-WebSocket-Version: 13\r\n");
        let upgrade = text.contains("\r\nConnection: upgrade\r\nUpgrade: websocket\r\n");
        assert_eq!(
            (version, upgrade),
            (kind.status() == 426, kind.status() == 426),
            "{text}"
        );
        assert_eq!(
            text.contains("\r\nAllow: GET\r\n"),
            kind.status() == 405,
            "{text}"
        );
    }
    let fault = HandshakeFault::from(Fault::Version);
    assert_eq!(
        fault.to_string(),
        "expected `Sec-WebSocket-Version: 13`; found Version (RFC 6455 §4.4; answer 426)"
    );
    let mut out = Vec::new();
    let mut head = ResponseEncoder::new(&mut out, 400, Exchange::REFUSED).expect("a status");
    assert!(
        fault.write_fields(&mut head).is_err(),
        "the status is the fault's"
    );
}

#[test]
fn rule_14_subprotocols_are_chosen_in_the_client_s_order() {
    let wish = ServerWish {
        protocols: &["b", "a"],
        deflation: None,
    };
    for (lines, expected) in [
        ("", Ok(None)),
        ("Sec-WebSocket-Protocol: a, b\r\n", Ok(Some("a"))),
        (
            "Sec-WebSocket-Protocol: c\r\nSec-WebSocket-Protocol: b, a\r\n",
            Ok(Some("b")),
        ),
        ("Sec-WebSocket-Protocol: c, A\r\n", Ok(None)),
        // An empty list is none, and empty elements do not count (RFC 9110 §5.6.1.2).
        ("Sec-WebSocket-Protocol:\r\n", Ok(None)),
        ("Sec-WebSocket-Protocol: , ,\r\n", Ok(None)),
        ("Sec-WebSocket-Protocol: a,\r\n", Ok(Some("a"))),
        (
            "Sec-WebSocket-Protocol:\r\nSec-WebSocket-Protocol: ,b\r\n",
            Ok(Some("b")),
        ),
        ("Sec-WebSocket-Protocol: a,, a\r\n", Err(Fault::Protocols)),
        ("Sec-WebSocket-Protocol: a b\r\n", Err(Fault::Protocols)),
        ("Sec-WebSocket-Protocol: a, b, a\r\n", Err(Fault::Protocols)),
    ] {
        let found = accepted(&format!("{SAMPLE}{lines}"), &wish);
        assert_eq!(
            found.as_ref().map(|found| found.protocol),
            expected.as_ref().map(|name| *name),
            "{lines}"
        );
        if let Ok(Acceptance {
            protocol: Some(name), ..
        }) = &found
        {
            let answer = answer(found.as_ref().expect("it was taken"));
            assert!(
                answer.contains(&format!("\r\nSec-WebSocket-Protocol: {name}\r\n")),
                "{answer}"
            );
        }
    }
}

#[test]
fn rule_15_a_response_switches_as_it_was_asked_to() {
    let opening = Opening::new(*b"the sample nonce", &["a", "b"], Some(Deflation::SHARED)).expect("tokens");
    let response = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\
        Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\nSec-WebSocket-Protocol: b\r\n\r\n";
    let opened = Opened {
        protocol: Some("b"),
        deflation: None,
    };
    assert_eq!(concluded(&opening, response), Ok(opened));
    let check = |from: &str, to: &str, expected: Fault| {
        let response = response.replacen(from, to, 1);
        assert_eq!(concluded(&opening, &response), Err(expected), "{response}");
    };
    check("101 Switching Protocols", "200 OK", Fault::Status);
    check("Upgrade: websocket\r\n", "", Fault::UpgradeOther);
    check("Upgrade: websocket", "Upgrade: h2c", Fault::UpgradeOther);
    check("Connection: Upgrade\r\n", "", Fault::UpgradeOther);
    check(
        "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n",
        "",
        Fault::Accept,
    );
    check("s3pP", "S3pP", Fault::Accept);
    check("+xOo=", "+xOo", Fault::Accept);
    let accept = "Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n";
    check(accept, &accept.repeat(2), Fault::Accept);
    check("Protocol: b", "Protocol: c", Fault::ProtocolUnasked);
    check("Protocol: b", "Protocol: a, b", Fault::ProtocolUnasked);
    check(
        "Protocol: b",
        "Protocol: a\r\nSec-WebSocket-Protocol: b",
        Fault::ProtocolUnasked,
    );
    for extensions in [
        "permessage-bzip2",
        "permessage-deflate",
        "permessage-deflate; server_no_context_takeover; x=1",
        "permessage-deflate; server_no_context_takeover=1",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits",
        "permessage-deflate; server_no_context_takeover; server_max_window_bits=16",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=8",
        "permessage-deflate; server_no_context_takeover; client_max_window_bits=08",
        "permessage-deflate; server_no_context_takeover, permessage-deflate; server_no_context_takeover",
        "permessage-deflate; server_no_context_takeover; server_no_context_takeover",
        "permessage-deflate; =",
        "permessage-deflate;",
        "\"permessage-deflate\"",
    ] {
        let lines = format!("Sec-WebSocket-Extensions: {extensions}\r\nConnection: Upgrade");
        check("Connection: Upgrade", &lines, Fault::ExtensionUnasked);
    }
    let none = Opening::new(*b"the sample nonce", &[], None).expect("nothing");
    let unasked = response.replacen(
        "Sec-WebSocket-Protocol: b",
        "Sec-WebSocket-Extensions: permessage-deflate",
        1,
    );
    assert_eq!(concluded(&none, &unasked), Err(Fault::ExtensionUnasked));
    assert_eq!(concluded(&none, response), Err(Fault::ProtocolUnasked));
}

#[test]
fn rule_15_a_request_is_what_the_server_expects() {
    let opening = Opening::new(*b"the sample nonce", &["a", "b"], Some(Deflation::SHARED)).expect("tokens");
    let request = request(&opening);
    assert_eq!(
        request,
        "GET / HTTP/1.1\r\nHost: a\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
         Sec-WebSocket-Protocol: a, b\r\nSec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover; \
         client_no_context_takeover; client_max_window_bits\r\nUpgrade: websocket\r\nConnection: upgrade\r\n"
    );
    for wrong in [&["a", "a"][..], &[""], &["a b"], &["a\r\nX: y"]] {
        assert_eq!(
            Opening::new([0; 16], wrong, None).err(),
            Some(Misuse::Protocol),
            "{wrong:?}"
        );
    }
}

fn window(bits: u8) -> Window {
    Window::new(bits).expect("9 to 15")
}

/// What a server with that wish answers to offers.
fn check_agreed(wish: Option<Deflation>, offers: &str, expected: Option<&str>) {
    let wish = ServerWish {
        protocols: &[],
        deflation: wish,
    };
    let lines = format!("{SAMPLE}Sec-WebSocket-Extensions: {offers}\r\n");
    let answer = answer(&accepted(&lines, &wish).expect("valid"));
    let found = answer
        .split("\r\n")
        .find_map(|line| line.strip_prefix("Sec-WebSocket-Extensions: "));
    assert_eq!(found, expected, "{offers}");
}

#[test]
fn rule_16_an_offer_is_taken_as_far_as_both_wish() {
    let all = Deflation::CONTEXT;
    let narrow = Deflation {
        own_window: window(10),
        peer_window: window(11),
        ..all
    };
    let plain = "permessage-deflate";
    for (wish, offer, expected) in [
        (all, plain, plain),
        (all, "Permessage-Deflate", plain),
        (all, "x-other; a=b, , permessage-deflate", plain),
        (
            Deflation::SHARED,
            plain,
            "permessage-deflate; server_no_context_takeover; client_no_context_takeover",
        ),
        (
            all,
            "permessage-deflate; server_no_context_takeover",
            "permessage-deflate; server_no_context_takeover",
        ),
        (
            all,
            "permessage-deflate ; client_no_context_takeover",
            "permessage-deflate; client_no_context_takeover",
        ),
        (all, "permessage-deflate; client_max_window_bits", plain),
        (
            all,
            "permessage-deflate; client_max_window_bits=\"12\"",
            "permessage-deflate; client_max_window_bits=12",
        ),
        (
            all,
            "permessage-deflate; server_max_window_bits = 9",
            "permessage-deflate; server_max_window_bits=9",
        ),
        (
            narrow,
            "permessage-deflate; server_max_window_bits=12; client_max_window_bits",
            "permessage-deflate; server_max_window_bits=10; client_max_window_bits=11",
        ),
        // A client that cannot be told keeps its window, one that did not ask is not told ours.
        (narrow, plain, plain),
    ] {
        check_agreed(Some(wish), offer, Some(expected));
    }
}

#[test]
fn rule_16_the_first_offer_that_can_be_kept_to_is_taken() {
    let all = Some(Deflation::CONTEXT);
    let plain = "permessage-deflate";
    check_agreed(all, "", None);
    check_agreed(None, plain, None);
    for declined in [
        // No deflater keeps to a window of 8 bits.
        "server_max_window_bits=8",
        "server_max_window_bits",
        "server_max_window_bits=16",
        "client_max_window_bits=7",
        "client_max_window_bits=010",
        "client_no_context_takeover=1",
        "client_max_window_bits; client_max_window_bits",
        "x",
    ] {
        let offer = format!("{plain}; {declined}");
        check_agreed(all, &offer, None);
        check_agreed(all, &format!("{offer}, {plain}"), Some(plain));
        check_agreed(all, &format!("{plain}, {offer}"), Some(plain));
    }
}

#[test]
fn rule_16_extensions_follow_their_grammar() {
    for offers in [
        ";",
        "a b",
        "a;",
        "a; ",
        "a; b=",
        "a; b=\"",
        "a; b=\"c",
        "a; b=\"c d\"",
        "a; b=\"\"",
        "a; b c",
        "a; =b",
        "=",
        "a/b",
        "permessage-deflate; x y",
    ] {
        for deflation in [None, Some(Deflation::SHARED)] {
            let wish = ServerWish {
                protocols: &[],
                deflation,
            };
            let lines = format!("{SAMPLE}Sec-WebSocket-Extensions: {offers}\r\n");
            assert_eq!(
                accepted(&lines, &wish).err(),
                Some(Fault::Extensions),
                "`{offers}`"
            );
        }
    }
}

/// Whatever two ends of ours wish, they agree, and both understand the same by it.
#[test]
fn rule_16_both_sides_agree_on_the_same() {
    let mut wishes = Vec::new();
    for (own_context, peer_context) in [(false, false), (false, true), (true, false), (true, true)] {
        for (own, peer) in [(15, 15), (9, 15), (15, 10), (12, 11)] {
            wishes.push(Deflation {
                own_context,
                peer_context,
                own_window: window(own),
                peer_window: window(peer),
            });
        }
    }
    for client in &wishes {
        for server in &wishes {
            let opening = Opening::new([7; 16], &[], Some(*client)).expect("tokens");
            let wish = ServerWish {
                protocols: &[],
                deflation: Some(*server),
            };
            let acceptance = accepted(&request(&opening), &wish).expect("our own request");
            let ours = acceptance.deflation().expect("all of it can be kept to");
            let opened = concluded(&opening, &answer(&acceptance)).expect("our own answer");
            let theirs = opened.deflation.expect("it was agreed on");
            assert_eq!(ours.own_context, theirs.peer_context);
            assert!(
                theirs.own_context <= ours.peer_context,
                "what comes is understood"
            );
            assert!(ours.own_window <= theirs.peer_window && theirs.own_window <= ours.peer_window);
            assert!(ours.own_window <= server.own_window && theirs.own_window <= client.own_window);
            assert!(ours.own_context <= server.own_context && theirs.own_context <= client.own_context);
        }
    }
}
