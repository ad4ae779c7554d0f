//! Right and wrong answers, one check or capture at a time, with what is said of the wrong ones.

use super::super::tests::{judged, step};
use super::super::{Request, Step, StepDraft, TrafficError};
use super::*;

fn compiled(draft: &StepDraft) -> Result<Step, TrafficError> {
    Step::new(draft, &mut Names::new()).map_err(|problem| problem.at(0, 0))
}

fn expecting(expect: Expect) -> Step {
    let mut draft = step(Request::get("/", "host"));
    draft.request.expect = expect;
    compiled(&draft).unwrap()
}

fn checking(check: Check) -> Step {
    expecting(Expect {
        statuses: Vec::new(),
        checks: vec![check],
    })
}

fn capturing(from: Source) -> Step {
    let mut draft = step(Request::get("/", "host"));
    let name = "v".to_owned();
    draft.captures.push(Capture { name, from });
    compiled(&draft).unwrap()
}

#[track_caller]
fn passes(step: &Step, head: &str, body: &str) {
    assert_eq!(
        judged(step, head, body.as_bytes(), &mut Values::default()),
        Ok(())
    );
}

#[track_caller]
fn fails(step: &Step, head: &str, body: &str, message: &str) {
    let result = judged(step, head, body.as_bytes(), &mut Values::default());
    assert_eq!(result, Err(message.to_owned()));
}

#[test]
fn statuses() {
    let default = expecting(Expect::default());
    passes(&default, "200 OK", "");
    passes(&default, "399 x", "");
    fails(
        &default,
        "404 x",
        "",
        "expected status 200 to 399, found status 404",
    );
    let own = expecting(Expect {
        statuses: vec![201..=201, 404..=404, 500..=599],
        checks: Vec::new(),
    });
    for status in [201, 404, 500, 599] {
        passes(&own, &format!("{status} x"), "");
    }
    fails(
        &own,
        "200 x",
        "",
        "expected status 201 or 404 or 500 to 599, found status 200",
    );
    assert!(!own.needs_body());
}

#[test]
fn headers() {
    let test = Test::Contains("json".to_owned());
    let name = "Content-Type".to_owned();
    let contains = checking(Check::Header { name, test });
    passes(&contains, "200 OK\r\ncontent-type: text/json; x", "");
    let expected = "expected header Content-Type with \"json\" in it, found";
    fails(
        &contains,
        "200 OK\r\nContent-Type: text/html",
        "",
        &format!("{expected} \"text/html\""),
    );
    fails(&contains, "200 OK", "", &format!("{expected} no such header"));
    assert!(!contains.needs_body());
    let test = Test::Equals("b".to_owned());
    let name = "X".to_owned();
    let equals = checking(Check::Header { name, test });
    passes(&equals, "200 OK\r\nX: a\r\nx: b", "");
    fails(
        &equals,
        "200 OK\r\nX: bb",
        "",
        "expected header X equal to \"b\", found \"bb\"",
    );
}

#[test]
fn bodies() {
    let contains = checking(Check::Body(Test::Contains("ell".to_owned())));
    assert!(contains.needs_body());
    passes(&contains, "200 OK", "Hello");
    fails(
        &contains,
        "200 OK",
        "",
        "expected body with \"ell\" in it, found nothing",
    );
    fails(
        &contains,
        "200 OK",
        "a\r\n\u{e9}",
        "expected body with \"ell\" in it, found \"a\\r\\n\\xc3\\xa9\"",
    );
    let equals = checking(Check::Body(Test::Equals("Hello".to_owned())));
    passes(&equals, "200 OK", "Hello");
    fails(
        &equals,
        "200 OK",
        "Hello!",
        "expected body equal to \"Hello\", found \"Hello!\"",
    );
    passes(&checking(Check::Body(Test::Equals(String::new()))), "200 OK", "");
}

#[test]
fn json() {
    let check = |pointer: &str, equals: Value| {
        let pointer = pointer.to_owned();
        checking(Check::Json { pointer, equals })
    };
    let ok = check("/ok", Value::Bool(true));
    assert!(ok.needs_body());
    passes(&ok, "200 OK", r#"{"ok":true}"#);
    fails(
        &ok,
        "200 OK",
        r#"{"ok":1}"#,
        "expected JSON true at `/ok`, found 1",
    );
    fails(
        &ok,
        "200 OK",
        "{}",
        "expected JSON true at `/ok`, found nothing at that pointer of {}",
    );
    fails(
        &ok,
        "200 OK",
        "oops",
        "expected JSON true at `/ok`, found no JSON: oops",
    );
    fails(
        &ok,
        "200 OK",
        "",
        "expected JSON true at `/ok`, found an empty body",
    );
    passes(
        &check("", serde_json::json!({"a": [1, "b"]})),
        "200 OK",
        r#"{ "a": [1, "b"] }"#,
    );
}

#[test]
fn captures() {
    let kept = |step: &Step, head: &str, body: &str| {
        let mut values = Values::default();
        judged(step, head, body.as_bytes(), &mut values).map(|()| values.value(0).to_vec())
    };
    let header = capturing(Source::Header("X-Token".to_owned()));
    assert_eq!(kept(&header, "200 OK\r\nx-token: abc", ""), Ok(b"abc".to_vec()));
    let failed = "expected header X-Token, to capture as `v`, found no such header";
    fails(&header, "200 OK", "", failed);

    let json = capturing(Source::Json("/a/1".to_owned()));
    for (body, value) in [
        ("\"x\\ny\"", "x\ny"),
        ("42", "42"),
        ("-1.5", "-1.5"),
        ("true", "true"),
    ] {
        let body = format!(r#"{{"a":[0,{body}]}}"#);
        assert_eq!(kept(&json, "200 OK", &body), Ok(value.as_bytes().to_vec()));
    }
    let expected = "expected JSON string, number or boolean at `/a/1`, to capture as `v`, found";
    fails(&json, "200 OK", r#"{"a":[0,null]}"#, &format!("{expected} null"));
    fails(
        &json,
        "200 OK",
        r#"{"a":[0,{"b":1}]}"#,
        &format!("{expected} {{\"b\":1}}"),
    );

    let (before, after) = ("id=\"".to_owned(), "\"".to_owned());
    let between = capturing(Source::Between { before, after });
    assert_eq!(
        kept(&between, "200 OK", r#"<a id="x1" id="x2">"#),
        Ok(b"x1".to_vec())
    );
    assert_eq!(kept(&between, "200 OK", r#"id="""#), Ok(Vec::new()));
    let expected = "expected body with \"id=\\\"\" … \"\\\"\", to capture as `v`, found";
    fails(&between, "200 OK", r#"id="x"#, &format!("{expected} \"id=\"x\""));
}

#[test]
fn a_value_that_is_too_long_is_not_kept() {
    let step = capturing(Source::Between {
        before: "<".to_owned(),
        after: ">".to_owned(),
    });
    let mut values = Values::default();
    let body = |length: usize| format!("<{}>", "x".repeat(length));
    judged(&step, "200 OK", body(limits::VALUE_BYTES).as_bytes(), &mut values).unwrap();
    assert_eq!(values.value(0).len(), limits::VALUE_BYTES);
    let failed = judged(
        &step,
        "200 OK",
        body(limits::VALUE_BYTES + 1).as_bytes(),
        &mut values,
    )
    .unwrap_err();
    assert!(
        failed.contains("found more than 4096 bytes: xxx") && failed.ends_with("..."),
        "{failed}"
    );
    assert_eq!(values.value(0), b"");
}

#[test]
fn what_was_found_is_short_and_printable() {
    for length in 0..300 {
        for byte in [b'x', 0, 0xFF, b'\n', b'"'] {
            let excerpt = Excerpt::of(&[b"\"", &vec![byte; length], b"\""]);
            let text = excerpt.as_str();
            assert!(text.len() <= Excerpt::BYTES);
            assert!(text.bytes().all(|byte| byte.is_ascii_graphic()), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_checked_is_refused() {
    let refused = |draft: &StepDraft| compiled(draft).unwrap_err().to_string();
    let check = |check: Check| {
        let mut draft = step(Request::get("/", "host"));
        draft.request.expect.checks = vec![check];
        refused(&draft)
    };
    let capture = |name: &str, from: Source| {
        let mut draft = step(Request::get("/", "host"));
        let name = name.to_owned();
        draft.captures = vec![Capture { name, from }];
        refused(&draft)
    };
    let empty = "expected a text to look for, found an empty one, which is everywhere";
    assert_eq!(
        check(Check::Body(Test::Contains(String::new()))),
        format!("check 1: {empty}")
    );
    let pointer = "expected a JSON pointer (RFC 6901): empty, or `/name/0/name`, with `~0` for `~` and `~1` for `/`, \
                   found `a.b`";
    let (path, equals) = ("a.b".to_owned(), Value::Null);
    assert_eq!(
        check(Check::Json {
            pointer: path.clone(),
            equals
        }),
        format!("check 1: {pointer}")
    );
    assert_eq!(capture("v", Source::Json(path)), format!("capture 1: {pointer}"));
    let header = Source::Header("a b".to_owned());
    let expected = "capture 1: expected a header name of letters, digits and hyphens, found `a b`";
    assert_eq!(capture("v", header.clone()), expected);
    let expected = "capture 1: expected a name of 1 to 64 letters, digits, `-` and `_`, found `a b`";
    assert_eq!(capture("a b", header), expected);
    let (before, after) = ("x".to_owned(), String::new());
    assert_eq!(
        capture("v", Source::Between { before, after }),
        format!("capture 1: {empty}")
    );
    let mut draft = step(Request::get("/", "host"));
    draft.request.expect.statuses = vec![101..=101];
    let expected = "expected status: expected statuses from 200 to 999, the smaller first, found 101 to 101";
    assert_eq!(refused(&draft), expected);
}

#[test]
fn a_flow_has_so_many_values() {
    let mut draft = step(Request::get("/", "host"));
    let capture = |index: usize| Capture {
        name: format!("v{index}"),
        from: Source::Header("X".to_owned()),
    };
    draft.captures = (0..limits::VALUES).map(capture).collect();
    // The same name again needs no room.
    draft.captures.push(capture(0));
    assert!(compiled(&draft).is_ok());
    draft.captures.push(capture(limits::VALUES));
    let expected = "capture 66: expected at most 64 captured values in a flow, found one more: `v64`";
    assert_eq!(compiled(&draft).unwrap_err().to_string(), expected);
}
