//! Decisions by the responses of a service.

use std::collections::BTreeMap;

use super::super::super::envoy_messages::{BoolValue, HeaderValue, ListValue};
use super::super::super::header_change::HeaderAction;
use super::super::messages::HttpStatus;
use super::*;

fn option(key: &str, value: &str, append: Option<bool>, append_action: i32) -> HeaderOption {
    HeaderOption {
        header: Some(HeaderValue {
            key: key.to_owned(),
            value: value.to_owned(),
            raw_value: Vec::new(),
        }),
        append: append.map(|value| BoolValue { value }),
        append_action,
    }
}

fn status(code: i32) -> Option<RpcStatus> {
    Some(RpcStatus {
        code,
        message: String::new(),
    })
}

fn ok(ok: OkResponse) -> CheckResponse {
    CheckResponse {
        status: status(0),
        http_response: Some(HttpResponse::Ok(ok)),
        dynamic_metadata: None,
    }
}

fn denied(code: i32, headers: Vec<HeaderOption>, body: &str) -> DeniedResponse {
    DeniedResponse {
        status: Some(HttpStatus { code }),
        headers,
        body: body.to_owned(),
    }
}

fn with_header(option: HeaderOption) -> Decision {
    decide(ok(OkResponse {
        headers: vec![option],
        ..OkResponse::default()
    }))
}

#[test]
fn a_status_or_an_explicit_response_allows() {
    let allows = |status, http_response| {
        let response = CheckResponse {
            status,
            http_response,
            dynamic_metadata: None,
        };
        matches!(decide(response), Decision::Allowed(_))
    };
    let changes = || Some(HttpResponse::Ok(OkResponse::default()));
    assert!(allows(status(0), None));
    assert!(allows(status(0), changes()));
    assert!(allows(None, changes()));
    assert!(!allows(None, None), "an empty response is not a decision");
    assert!(!allows(status(7), changes()));
    assert!(!allows(status(-1), None));
    let denies = Some(HttpResponse::Denied(DeniedResponse::default()));
    assert!(!allows(status(0), denies.clone()), "a denial is a denial");
    assert!(!allows(None, denies));
    let error = Some(HttpResponse::Error(DeniedResponse::default()));
    assert!(!allows(status(0), error));
}

#[test]
fn a_denial_has_the_response_of_the_service() {
    let headers = vec![
        option("X-A", "1", None, 0),
        option("x-a", "2", None, 0),
        option("x-b", "1", None, 0),
        option("x-b", "2", None, 2),
        option("content-length", "7", None, 0),
        option("bad name", "7", None, 0),
        option("x-c", "1\r\n2", None, 0),
    ];
    let response = CheckResponse {
        status: status(16),
        http_response: Some(HttpResponse::Denied(denied(401, headers, "no"))),
        dynamic_metadata: None,
    };
    let Decision::Denied(denial, _) = decide(response) else {
        panic!("expected a denial");
    };
    let fields: Vec<_> = denial.fields.iter().collect();
    assert_eq!(
        fields,
        [
            ("x-a", &b"1"[..]),
            ("x-a", b"2"),
            ("x-b", b"2"),
            ("content-type", b"text/plain")
        ]
    );
    assert_eq!((denial.status, &denial.body[..]), (401, &b"no"[..]));
}

#[test]
fn a_denial_without_a_final_status_is_403() {
    for (code, expect, body) in [
        (0, 403, "x"),
        (101, 403, "x"),
        (199, 403, "x"),
        (200, 200, "x"),
        (204, 204, ""),
        (304, 304, ""),
        (599, 599, "x"),
        (600, 403, "x"),
        (-1, 403, "x"),
        (70_000, 403, "x"),
    ] {
        let response = CheckResponse {
            status: status(7),
            http_response: Some(HttpResponse::Denied(denied(code, Vec::new(), "x"))),
            dynamic_metadata: None,
        };
        let Decision::Denied(denial, _) = decide(response) else {
            panic!("expected a denial");
        };
        assert_eq!(
            (denial.status, &denial.body[..]),
            (expect, body.as_bytes()),
            "{code}"
        );
    }
}

#[test]
fn actions_of_header_options() {
    for (append, action, expect) in [
        (None, 0, HeaderAction::Overwrite),
        (None, 1, HeaderAction::AddIfAbsent),
        (None, 2, HeaderAction::Overwrite),
        (None, 3, HeaderAction::OverwriteIfExists),
        (Some(true), 2, HeaderAction::Append),
        (Some(false), 1, HeaderAction::Overwrite),
    ] {
        let Decision::Allowed(changes) = with_header(option("X-A", "1", append, action)) else {
            panic!("expected no failure");
        };
        assert_eq!(changes.headers[0].action, expect, "{append:?} {action}");
        assert_eq!(changes.headers[0].name, "x-a");
    }
}

#[test]
fn a_change_that_cannot_be_made_is_a_failure() {
    for bad in [
        option(":path", "/", None, 0),
        option("Host", "a", None, 0),
        option("content_length", "1", None, 4),
        option("Content-Length", "1", None, 0),
        option("Transfer-Encoding", "chunked", None, 0),
        option("connection", "close", None, 0),
        option("X_Forwarded_For", "127.0.0.1", None, 0),
        option("forwarded", "for=a", None, 0),
        option("via", "a", None, 0),
        option("", "a", None, 0),
        option("x a", "a", None, 0),
        option("x-a", "a\nb", None, 0),
        option("x-a", "a", None, 9),
        HeaderOption::default(),
    ] {
        let decision = with_header(bad.clone());
        assert!(
            matches!(decision, Decision::Failed(_, None)),
            "{bad:?}: {decision:?}"
        );
    }
    let many = vec!["x-a".to_owned(); limits::AUTHZ_CHANGES + 1];
    let many = OkResponse {
        headers_to_remove: many,
        ..OkResponse::default()
    };
    assert!(matches!(decide(ok(many)), Decision::Failed(_, None)));
}

#[test]
fn an_error_has_its_own_response() {
    let response = CheckResponse {
        status: status(13),
        http_response: Some(HttpResponse::Error(denied(
            0,
            vec![option("x-a", "1", None, 0)],
            "why",
        ))),
        dynamic_metadata: None,
    };
    let Decision::Failed(_, Some(denial)) = decide(response) else {
        panic!("expected a failure");
    };
    assert_eq!((denial.status, &denial.body[..]), (0, &b"why"[..]));
}

#[test]
fn metadata_is_logged_as_json_within_a_limit() {
    let value = |kind| Value { kind: Some(kind) };
    let mut fields = BTreeMap::from([
        ("user".to_owned(), value(ValueKind::Text("ada \"1\"".to_owned()))),
        ("level".to_owned(), value(ValueKind::Number(1.5))),
        ("nan".to_owned(), value(ValueKind::Number(f64::NAN))),
        (
            "list".to_owned(),
            value(ValueKind::List(ListValue {
                values: vec![value(ValueKind::Bool(true)), value(ValueKind::Null(0))],
            })),
        ),
    ]);
    let metadata = Metadata(Some(Struct {
        fields: fields.clone(),
    }));
    assert_eq!(
        metadata.log_text().as_deref(),
        Some(r#"{"level":1.5,"list":[true,null],"nan":null,"user":"ada \"1\""}"#)
    );
    assert_eq!(
        (metadata.text("user"), metadata.text("level")),
        (Some("ada \"1\""), None)
    );
    let long = "x".repeat(limits::AUTHZ_METADATA_BYTES);
    fields.insert("long".to_owned(), value(ValueKind::Text(long)));
    assert_eq!(Metadata(Some(Struct { fields })).log_text(), None);
}
