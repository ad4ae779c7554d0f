//! Cookies in and out: every rule of RFC 6265bis that is ours to keep.

use std::time::Duration;

use ringmain_wire::h1::{FieldTable, HeadScanner, Limits, Parsed, parse_request};

use super::*;

fn with_cookies(fields: &str, check: impl FnOnce(Cookies<'_>)) {
    let limits = Limits::default();
    let mut table = FieldTable::new(&limits);
    let input = format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n");
    let parsed = parse_request(input.as_bytes(), &limits, &mut HeadScanner::new(), &mut table);
    let Ok(Parsed::Complete { head, .. }) = parsed else {
        panic!("`{input}` is no request: {parsed:?}")
    };
    check(Cookies::new(head.fields));
}

#[test]
fn one_field_is_pairs_between_semicolons() {
    type Row = (&'static [u8], &'static [(&'static str, &'static str)]);
    let table: [Row; 10] = [
        (b"", &[]),
        (b"a=1", &[("a", "1")]),
        (
            b"a=1; b=2;c=3 ; d = 4",
            &[("a", "1"), ("b", "2"), ("c", "3"), ("d", "4")],
        ),
        (b"a=b=c", &[("a", "b=c")]),
        (b"a=", &[("a", "")]),
        (b"=a", &[("", "a")]),
        (b"a; b=1;;", &[("b", "1")]),
        (b"a=\"quoted\"", &[("a", "\"quoted\"")]),
        (b"a=\xff; b=\xc3\xa9", &[("b", "é")]),
        (b"a=1, b=2", &[("a", "1, b=2")]),
    ];
    for (value, expected) in table {
        let found: Vec<_> = pairs(value).collect();
        assert_eq!(found, expected, "{}", value.escape_ascii());
    }
}

#[test]
fn several_fields_are_one_list_and_the_first_of_a_name_counts() {
    with_cookies("Cookie: a=1; b=2\r\nX: y\r\ncookie: a=3; C=4\r\n", |cookies| {
        assert_eq!(cookies.get("a"), Some("1"));
        assert_eq!(cookies.get("C"), Some("4"));
        assert_eq!(cookies.get("c"), None);
        assert_eq!(cookies.iter().count(), 4);
    });
    with_cookies("", |cookies| assert_eq!(cookies.iter().next(), None));
}

fn written(cookie: SetCookie<'_>) -> String {
    let mut out = Vec::new();
    cookie.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_cookie_is_written_with_its_attributes() {
    let table = [
        (SetCookie::new("a", "1"), "a=1; Path=/; HttpOnly; SameSite=Lax"),
        (
            SetCookie::new("a", "")
                .path(None)
                .http_only(false)
                .same_site(None),
            "a=",
        ),
        (
            SetCookie::removal("a").path(Some("/x")).domain("example.org"),
            "a=; Path=/x; Domain=example.org; Max-Age=0; Expires=Thu, 01 Jan 1970 00:00:00 GMT; HttpOnly; SameSite=Lax",
        ),
        (
            SetCookie::new("a", "1")
                .max_age(Duration::from_millis(86_400_900))
                .secure(true)
                .partitioned(true)
                .same_site(Some(SameSite::None)),
            "a=1; Path=/; Max-Age=86400; Secure; HttpOnly; SameSite=None; Partitioned",
        ),
        (
            SetCookie::new("__Host-id", "x.y~z")
                .secure(true)
                .same_site(Some(SameSite::Strict)),
            "__Host-id=x.y~z; Path=/; Secure; HttpOnly; SameSite=Strict",
        ),
    ];
    for (cookie, expected) in table {
        assert_eq!(written(cookie), expected);
    }
}

#[test]
fn a_cookie_that_clients_would_refuse_is_an_error() {
    let long = "v".repeat(4096);
    let path = format!("/{}", "p".repeat(1024));
    let fine = SetCookie::new("a", "1");
    let table = [
        (SetCookie::new("", "1"), CookieFault::Name),
        (SetCookie::new("a b", "1"), CookieFault::Name),
        (SetCookie::new("a=b", "1"), CookieFault::Name),
        (SetCookie::new("a", "1; Domain=evil"), CookieFault::Value),
        (SetCookie::new("a", "1\r\nSet-Cookie: b=2"), CookieFault::Value),
        (SetCookie::new("a", "x y"), CookieFault::Value),
        (SetCookie::new("a", "\"x\""), CookieFault::Value),
        (SetCookie::new("a", "é"), CookieFault::Value),
        (SetCookie::new("a", &long), CookieFault::TooLong),
        (fine.path(Some(&path)), CookieFault::TooLong),
        (fine.path(Some("x")), CookieFault::Path),
        (fine.path(Some("")), CookieFault::Path),
        (fine.path(Some("/;Secure")), CookieFault::Path),
        (fine.domain(""), CookieFault::Domain),
        (fine.domain(".example.org"), CookieFault::Domain),
        (fine.domain("example.org;"), CookieFault::Domain),
        (fine.domain("-a.org"), CookieFault::Domain),
        (fine.same_site(Some(SameSite::None)), CookieFault::NotSecure),
        (fine.partitioned(true), CookieFault::NotSecure),
        (SetCookie::new("__Secure-a", "1"), CookieFault::NotSecure),
        (SetCookie::new("__host-a", "1"), CookieFault::NotSecure),
        (
            SetCookie::new("__Host-a", "1").secure(true).domain("a.org"),
            CookieFault::NotOfHost,
        ),
        (
            SetCookie::new("__HOST-a", "1").secure(true).path(Some("/x")),
            CookieFault::NotOfHost,
        ),
    ];
    for (cookie, expected) in table {
        let mut out = b"kept".to_vec();
        let error = cookie.write(&mut out).unwrap_err();
        assert_eq!(error.status(), 500);
        assert_eq!(
            error
                .cause()
                .and_then(|cause| cause.downcast_ref::<CookieFault>()),
            Some(&expected),
            "{cookie:?}"
        );
        assert_eq!(out, b"kept");
    }
    // One byte less is kept by clients.
    assert!(SetCookie::new("a", &long[1..]).write(&mut Vec::new()).is_ok());
}

#[test]
fn written_cookies_are_parsed_back() {
    let cookie = written(SetCookie::new("id", "!#$%&'()*+-./:<=>?@[]^_`{|}~"));
    let pair = cookie.split(';').next().unwrap();
    let found: Vec<_> = pairs(pair.as_bytes()).collect();
    assert_eq!(found, [("id", "!#$%&'()*+-./:<=>?@[]^_`{|}~")]);
}
