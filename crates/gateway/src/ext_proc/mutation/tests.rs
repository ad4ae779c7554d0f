//! Changes that are valid, left out, and invalid.

use super::super::messages::{HeaderOption, HeaderValue, HttpStatus, Unread};
use super::*;

fn option(key: &str, value: &str) -> HeaderOption {
    HeaderOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: String::new(),
            raw_value: value.as_bytes().to_vec(),
        }),
        append: None,
        append_action: 0,
    }
}

fn response(set: &[(&str, &str)], remove: &[&str]) -> CommonResponse {
    CommonResponse {
        header_mutation: Some(HeaderMutation {
            set_headers: set.iter().map(|(name, value)| option(name, value)).collect(),
            remove_headers: remove.iter().map(|name| (*name).to_owned()).collect(),
        }),
        ..CommonResponse::default()
    }
}

#[test]
fn fields_of_the_gateway_are_left_out() {
    let own = [
        ":authority",
        ":method",
        ":scheme",
        "host",
        "content-length",
        "connection",
        "x-forwarded-for",
        "te",
    ];
    for name in own {
        let found = changes(response(&[(name, "a")], &[name]), Side::Request);
        assert_eq!(found, Ok(Changes::default()), "{name}");
    }
    for name in [
        ":scheme",
        "content-length",
        "transfer-encoding",
        "trailer",
        "host",
    ] {
        let found = changes(response(&[(name, "a")], &[name]), Side::Response);
        assert_eq!(found, Ok(Changes::default()), "{name}");
    }
}

#[test]
fn a_path_and_a_status_are_changes() {
    let found = changes(
        response(&[(":path", "/a?b"), ("X-A", "1")], &["X-B"]),
        Side::Request,
    );
    let head = found.expect("valid").head;
    assert_eq!(head.target.as_deref(), Some("/a?b"));
    assert_eq!((head.set.len(), head.removed), (1, vec!["x-b".to_owned()]));
    let found = changes(
        response(&[(":status", "404"), (":path", "/")], &[]),
        Side::Response,
    );
    let head = found.expect("valid").head;
    assert_eq!((head.status, head.target), (Some(404), None));
}

#[test]
fn an_invalid_change_makes_all_invalid() {
    for (name, value) in [("a b", "1"), ("x-a", "1\r\nb: 2"), ("", "1")] {
        for side in [Side::Request, Side::Response] {
            let found = changes(response(&[("x-b", "1"), (name, value)], &[]), side);
            assert!(found.is_err(), "{name} {value}");
        }
    }
    for status in ["99", "600", "1e2", ""] {
        let found = changes(response(&[(":status", status)], &[]), Side::Response);
        assert!(found.is_err(), "{status}");
    }
    assert!(changes(response(&[], &["a b"]), Side::Request).is_err());
    let many = [("x-a", "1"); limits::PROCESSOR_CHANGES];
    assert!(changes(response(&many, &[]), Side::Request).is_ok());
    assert!(changes(response(&many, &["x-b"]), Side::Request).is_err());
    let unknown = CommonResponse {
        status: 2,
        ..CommonResponse::default()
    };
    assert!(changes(unknown, Side::Request).is_err());
}

#[test]
fn bodies_are_replaced_and_cleared() {
    let body = |change| {
        let response = CommonResponse {
            body_mutation: Some(BodyMutation { change }),
            ..CommonResponse::default()
        };
        changes(response, Side::Request).map(|changes| changes.body)
    };
    assert_eq!(body(None), Ok(None));
    assert_eq!(body(Some(BodyChange::Clear(false))), Ok(None));
    assert_eq!(body(Some(BodyChange::Clear(true))), Ok(Some(Vec::new())));
    assert_eq!(
        body(Some(BodyChange::Body(b"a".to_vec()))),
        Ok(Some(b"a".to_vec()))
    );
    assert!(body(Some(BodyChange::Streamed(Unread {}))).is_err());
}

#[test]
fn immediate_responses() {
    let read = |code, headers: CommonResponse, body: &str| {
        immediate_response(ImmediateResponse {
            status: Some(HttpStatus { code }),
            headers: headers.header_mutation,
            body: body.as_bytes().to_vec(),
        })
    };
    let fields = |answer: &FilterResponse| -> Vec<(String, Vec<u8>)> {
        let fields = answer.fields.iter();
        fields
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect()
    };
    let field = |name: &str, value: &str| (name.to_owned(), value.as_bytes().to_vec());
    let answer = read(403, response(&[("x-a", "1")], &[]), "no").expect("valid");
    assert_eq!((answer.status, &answer.body[..]), (403, &b"no"[..]));
    assert_eq!(
        fields(&answer),
        [field("content-type", "text/plain"), field("x-a", "1")]
    );
    let answer = read(200, response(&[("Content-Type", "text/html")], &[]), "<p>").expect("valid");
    assert_eq!(fields(&answer), [field("content-type", "text/html")]);
    assert!(fields(&read(302, response(&[], &[]), "").expect("valid")).is_empty());
    for code in [0, 100, 199, 600, -1, 70_000] {
        assert!(read(code, response(&[], &[]), "").is_err(), "{code}");
    }
    assert!(immediate_response(ImmediateResponse::default()).is_err());
    assert!(read(403, response(&[("a b", "1")], &[]), "").is_err());
}
