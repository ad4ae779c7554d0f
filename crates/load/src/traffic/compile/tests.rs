//! What is refused before anything is sent, and lengths that are only known when the body is.

use super::super::tests::{Writer, capturing, flow, parsed, step};
use super::super::{Request, Traffic, TrafficError};
use super::*;

fn refused(change: impl FnOnce(&mut Request)) -> TrafficError {
    let mut request = Request::get("/", "host");
    change(&mut request);
    Traffic::single(request).unwrap_err()
}

#[track_caller]
fn check(change: impl FnOnce(&mut Request), expected: &str) {
    assert_eq!(refused(change).to_string(), expected);
}

fn header(name: &str, value: &str) -> impl FnOnce(&mut Request) {
    move |request| {
        request.headers.push(("A".to_owned(), "1".to_owned()));
        request.headers.push((name.to_owned(), value.to_owned()));
    }
}

#[test]
fn what_the_encoder_would_not_write_is_refused() {
    check(
        |request| request.method = "GET /".to_owned(),
        "method: expected a method of letters, digits and hyphens, found `GET /`",
    );
    check(
        |request| request.method = "CONNECT".to_owned(),
        "method: expected a method other than CONNECT: a tunnel has no response to measure, found `CONNECT`",
    );
    check(
        |request| request.target = "http://host/".to_owned(),
        "path: expected a path that begins with `/`, found `http://host/`",
    );
    check(
        |request| request.target = "{{seq}}".to_owned(),
        "path: expected a path that begins with `/`, found `{{seq}}`",
    );
    for target in ["/a b", "/a#b", "/a\r\nX: y", "/ä"] {
        let error = refused(|request| request.target = target.to_owned());
        assert_eq!(error.part, Part::Target, "{target}");
    }
    check(
        |request| request.host = "user@host".to_owned(),
        "host: expected `host` or `host:port`, found `user@host`",
    );
    check(
        header("Host", "a b"),
        "header 2: expected `host` or `host:port`, found `a b`",
    );
    check(
        header("X Y", "1"),
        "header 2: expected a header name of letters, digits and hyphens, found `X Y`",
    );
    check(
        header("X", "a\r\nB: c"),
        "header 2: expected a header value without control characters, found `X: a\\r\\nB: c`",
    );
    for name in ["Content-Length", "transfer-encoding", "Connection", "Upgrade"] {
        let error = refused(header(name, "1"));
        assert_eq!((error.part, error.found), (Part::Header(1), format!("`{name}`")));
    }
}

#[test]
fn a_host_cannot_be_captured() {
    let mut draft = step(Request::get("/", "host"));
    draft
        .request
        .headers
        .push(("Host".to_owned(), "{{value:v}}".to_owned()));
    let error = Traffic::mix(&[flow("f", 1, vec![capturing("v"), draft])]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "header 1: expected a host without captured values, found `{{value:v}}`"
    );
    assert_eq!((error.flow, error.step), (0, 1));
}

#[test]
fn limits_are_told() {
    check(
        |request| request.body = Body::Text("{{seq}}".repeat(limits::TOKENS + 1)),
        "request: expected at most 1024 tokens in a request, found 1025",
    );
    let error = refused(|request| request.target = format!("/{}", "a".repeat(limits::HEAD_BYTES)));
    assert_eq!(error.expected, "a head of at most 65536 bytes");
    let bytes = Bytes::from(vec![0; limits::REQUEST_BODY_BYTES + 1]);
    let error = refused(|request| request.body = Body::Bytes(bytes));
    assert_eq!(error.expected, "a body of at most 67108864 bytes");
}

#[test]
fn a_text_like_a_marker_is_only_text() {
    let mut request = Request::get("/~token000000/~token/{{random:3..3}}~tokenn", "host");
    request
        .headers
        .push(("X".to_owned(), "~toke{{random:4..4}}n000001".to_owned()));
    let traffic = Traffic::single(request).unwrap();
    let written = Writer::new().write(&traffic.flows()[0].steps[0]);
    let expected = "GET /~token000000/~token/3~tokenn HTTP/1.1\r\nHost: host\r\nX: ~toke4n000001\r\n\r\n";
    assert_eq!(
        written.escape_ascii().to_string(),
        expected.as_bytes().escape_ascii().to_string()
    );
}

#[test]
fn a_length_is_right_at_every_change_of_its_digits() {
    for literal in [0, 1, 8, 9, 89, 98, 99, 100, 979, 998, 999] {
        let mut draft = step(Request::get("/", "host"));
        draft.request.body = Body::Text(format!("{}{{{{value:v}}}}", "x".repeat(literal)));
        let traffic = Traffic::mix(&[flow("f", 1, vec![capturing("v"), draft])]).unwrap();
        let step = &traffic.flows()[0].steps[1];
        let mut writer = Writer::new();
        for length in [0, 1, 2, 10, 11, 90, 91, 900, 901, limits::VALUE_BYTES] {
            assert!(writer.values.set(0, &vec![b'y'; length]));
            let written = writer.write(step);
            let declared = format!("\r\nContent-Length: {}\r\n\r\n", literal + length);
            assert!(
                memchr::memmem::find(&written, declared.as_bytes()).is_some(),
                "{declared}"
            );
            parsed(&written, |_, body| assert_eq!(body.len(), literal + length));
        }
    }
}

#[test]
fn a_body_of_tokens_of_fixed_length_has_a_constant_length_field() {
    let request = Request {
        method: "PUT".to_owned(),
        body: Body::Text("{{uuid}}{{random-hex:17}}{{random:10..99}}".to_owned()),
        ..Request::get("/", "host")
    };
    let Whole::Template(template) = Message::new(&request, &Names::new()).unwrap().whole else {
        panic!("it has tokens");
    };
    assert_eq!(template.length_digits, None);
    let traffic = Traffic::single(request).unwrap();
    let written = Writer::new().write(&traffic.flows()[0].steps[0]);
    parsed(&written, |_, body| assert_eq!(body.len(), 36 + 17 + 2));
}
