//! The representation of each kind of error to a client.

use super::*;

fn problem(error: &Error) -> String {
    let mut out = b"before".to_vec();
    error.write_problem(&mut out);
    let text = String::from_utf8(out).unwrap();
    text.strip_prefix("before").expect("it is appended").to_owned()
}

#[test]
fn a_problem_has_only_public_details() {
    let cause = std::io::Error::other("the password is hunter2");
    let table = [
        (
            Error::bad_request("no `name`"),
            r#"{"type":"about:blank","title":"Bad Request","status":400,"detail":"no `name`"}"#,
        ),
        (
            Error::new(503, "try \"again\"\nlater\u{7f}"),
            "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,\
             \"detail\":\"try \\\"again\\\"\\nlater\u{7f}\"}",
        ),
        (
            Error::internal(cause),
            r#"{"type":"about:blank","title":"Internal Server Error","status":500}"#,
        ),
        (
            Error::new(500, "the application says so"),
            r#"{"type":"about:blank","title":"Internal Server Error","status":500,"detail":"the application says so"}"#,
        ),
        (
            Error::new(499, "gone"),
            r#"{"type":"about:blank","status":499,"detail":"gone"}"#,
        ),
        (
            Error::new(404, ""),
            r#"{"type":"about:blank","title":"Not Found","status":404}"#,
        ),
    ];
    for (error, expected) in table {
        let text = problem(&error);
        assert_eq!(text, expected);
        serde_json::from_str::<serde_json::Value>(&text).expect("a problem is JSON");
    }
}

#[test]
fn a_status_that_is_no_error_becomes_500() {
    for (status, expected) in [
        (200, 500),
        (399, 500),
        (400, 400),
        (599, 599),
        (600, 500),
        (0, 500),
    ] {
        assert_eq!(Error::new(status, "").status(), expected, "{status}");
    }
}

#[test]
fn a_foreign_error_is_for_the_log() {
    fn fails() -> Result {
        Err(std::io::Error::other("disk"))?
    }
    let error = fails().unwrap_err();
    assert_eq!((error.status(), error.detail()), (500, ""));
    assert_eq!(error.cause().map(ToString::to_string), Some("disk".into()));
    assert_eq!(error.to_string(), "500: disk");
}
