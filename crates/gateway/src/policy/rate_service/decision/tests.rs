//! Decisions by the responses of a service.

use super::super::messages::{CurrentLimit, Span};
use super::*;

fn header(key: &str, value: &str) -> HeaderValue {
    HeaderValue {
        key: key.to_owned(),
        value: value.to_owned(),
        raw_value: Vec::new(),
    }
}

fn response(code: OverallCode) -> RateLimitResponse {
    RateLimitResponse {
        overall_code: code as i32,
        ..RateLimitResponse::default()
    }
}

fn status(requests: u32, unit: Unit, remaining: u32) -> DescriptorStatus {
    DescriptorStatus {
        code: OverallCode::Ok as i32,
        current_limit: Some(CurrentLimit {
            requests,
            unit: unit as i32,
            name: String::new(),
        }),
        remaining,
        until_reset: None,
    }
}

fn is_failure(response: RateLimitResponse) -> bool {
    matches!(decide(response, false), RateDecision::Failed(_))
}

#[test]
fn an_unknown_code_is_a_failure() {
    assert!(is_failure(RateLimitResponse::default()));
    assert!(is_failure(RateLimitResponse {
        overall_code: 7,
        ..RateLimitResponse::default()
    }));
    assert!(!is_failure(response(OverallCode::Ok)));
}

#[test]
fn headers_of_an_admitted_request_are_valid_or_it_fails() {
    let with = |request: &[(&str, &str)], answer: &[(&str, &str)]| {
        let all = |list: &[(&str, &str)]| list.iter().map(|(name, value)| header(name, value)).collect();
        RateLimitResponse {
            request_headers: all(request),
            response_headers: all(answer),
            ..response(OverallCode::Ok)
        }
    };
    let RateDecision::Admitted(changes) = decide(with(&[("X-A", "1")], &[("x-b", "2"), ("x-b", "3")]), false)
    else {
        panic!("expected an admitted request");
    };
    assert_eq!((changes.headers.len(), changes.response.len()), (1, 2));
    for name in [
        "host",
        ":path",
        "content-length",
        "connection",
        "x-forwarded-for",
        "a b",
        "",
    ] {
        assert!(is_failure(with(&[(name, "1")], &[])), "{name}");
    }
    for name in ["content-length", "transfer-encoding", "a b"] {
        assert!(is_failure(with(&[], &[(name, "1")])), "{name}");
    }
    let many = [("x-a", "1"); limits::RATE_CHANGES];
    assert!(!is_failure(with(&many, &[])));
    assert!(is_failure(with(&many, &[("x-b", "1")])));
}

#[test]
fn a_response_over_the_limit_refuses_whatever_else_it_has() {
    let response = RateLimitResponse {
        request_headers: vec![header("host", "a")],
        response_headers: vec![header("a b", "1"), header("x-a", "1")],
        raw_body: b"no".to_vec(),
        ..response(OverallCode::OverLimit)
    };
    let RateDecision::OverLimit(refusal) = decide(response, true) else {
        panic!("expected a refusal");
    };
    let fields: Vec<_> = refusal.fields.iter().collect();
    assert_eq!(fields, [("x-a", &b"1"[..]), ("content-type", &b"text/plain"[..])]);
    assert_eq!(refusal.body, b"no");
}

#[test]
fn the_time_to_wait_is_rounded_up() {
    let wait = |seconds, nanos| {
        wait_seconds(&DescriptorStatus {
            code: OverallCode::OverLimit as i32,
            until_reset: Some(Span { seconds, nanos }),
            ..DescriptorStatus::default()
        })
    };
    for (seconds, nanos, expect) in [
        (0, 0, 1),
        (1, 0, 1),
        (1, 1, 2),
        (-5, 0, 1),
        (i64::MAX, 1, i64::MAX),
    ] {
        assert_eq!(wait(seconds, nanos), Some(expect), "{seconds} {nanos}");
    }
}

#[test]
fn limits_are_reported_by_the_nearest() {
    let texts = |statuses: &[DescriptorStatus]| {
        let fields = limit_fields(statuses).into_iter();
        fields.map(|header| header.value).collect::<Vec<_>>()
    };
    assert!(texts(&[]).is_empty());
    assert!(texts(&[DescriptorStatus::default()]).is_empty());
    let mut named = status(9, Unit::Month, 3);
    named.until_reset = Some(Span {
        seconds: 8,
        nanos: 999,
    });
    if let Some(limit) = &mut named.current_limit {
        "a".clone_into(&mut limit.name);
    }
    assert_eq!(
        texts(&[status(5, Unit::Unknown, 3), status(7, Unit::Second, 4)]),
        ["5, 7;w=1", "3", "0"]
    );
    assert_eq!(
        texts(&[status(7, Unit::Year, 4), named]),
        ["9, 7;w=31536000, 9;w=2592000;name=\"a\"", "3", "8"]
    );
}
