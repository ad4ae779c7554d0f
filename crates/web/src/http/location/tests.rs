//! Which targets a client may be sent to.

use super::*;

fn fault(result: Result<&[u8]>) -> LocationFault {
    let error = result.expect_err("refused");
    assert_eq!((error.status(), error.detail()), (500, ""));
    let cause = error.cause().expect("a cause for the log");
    cause.downcast_ref::<LocationFault>().expect("of our own").clone()
}

#[test]
fn any_uri_reference_is_a_target() {
    for target in [
        "/",
        "/a/b?c=d&e=%20#f",
        "https://user@[::1]:8443/x;y=(1)*'!$+,~",
        "../up",
        "?q",
        "#top",
        "//host/x",
    ] {
        assert_eq!(check(target).ok(), Some(target.as_bytes()));
    }
}

#[test]
fn characters_invalid_in_a_uri_are_named() {
    let table = [
        ("/\r\nSet-Cookie: a=b", '\r', 1),
        ("/a b", ' ', 2),
        ("/\\example.org", '\\', 1),
        ("/é", 'é', 1),
        ("/\"", '"', 1),
        ("/<", '<', 1),
        ("/\0", '\0', 1),
        ("/\u{7f}", '\u{7f}', 1),
        ("/{id}", '{', 1),
    ];
    for (target, found, at) in table {
        assert_eq!(
            fault(check(target)),
            LocationFault::Character { found, at },
            "{target:?}"
        );
    }
    assert_eq!(fault(check("")), LocationFault::Empty);
    let text = fault(check("/\n")).to_string();
    assert_eq!(
        text,
        "a redirect's target is a URI: `\\n` at byte 1 must be percent-encoded"
    );
}

#[test]
fn a_redirect_has_a_status_of_redirection() {
    for status in 100..600 {
        let redirects = [301, 302, 303, 307, 308].contains(&status);
        let result = for_redirect(status, "/");
        assert_eq!(result.is_ok(), redirects, "{status}");
        if !redirects {
            assert_eq!(fault(result), LocationFault::Status(status));
        }
    }
}
