//! Admitted pages, by tables.

use super::Origins;

fn check(entries: &[&str], origin: &str, authority: &str, may: bool) {
    let mut origins = Origins::default();
    for entry in entries {
        origins.allow(entry).unwrap();
    }
    assert_eq!(
        origins.allow_page(origin.as_bytes(), Some(authority), false),
        may,
        "{entries:?}: {origin} asks {authority}"
    );
}

#[test]
fn the_same_host_and_port_may() {
    check(&[], "http://a", "a", true);
    check(&[], "http://a", "A:80", true);
    check(&[], "https://a", "a:443", true);
    check(&[], "https://A.example", "a.EXAMPLE", true);
    check(&[], "http://a:8080", "a:8080", true);
    check(&[], "http://[::1]:8080", "[::1]:8080", true);
    check(&[], "http://[::1]", "[::1]", true);
}

#[test]
fn a_secure_socket_is_for_secure_pages() {
    let may = |entry: Option<&str>, origin: &str| {
        let mut origins = Origins::default();
        entry.into_iter().for_each(|entry| origins.allow(entry).unwrap());
        origins.allow_page(origin.as_bytes(), Some("a"), true)
    };
    assert!(may(None, "https://a"));
    assert!(!may(None, "http://a"));
    // Unless the list says so.
    assert!(may(Some("http://a"), "http://a"));
}

#[test]
fn other_origins_are_rejected() {
    check(&[], "http://b", "a", false);
    check(&[], "http://a:8080", "a", false);
    check(&[], "http://a", "a:8080", false);
    check(&[], "http://a.b", "a", false);
    check(&[], "http://b.a", "a", false);
    check(&[], "null", "a", false);
    check(&[], "", "a", false);
    check(&[], "http://", "a", false);
    check(&[], "http://a/", "a", false);
    check(&[], "http://a@b", "a@b", false);
    check(&[], "http://a:x", "a:x", false);
}

#[test]
fn listed_origins_are_admitted() {
    check(&["https://b.example"], "https://b.example", "a", true);
    check(&["https://B.example:443"], "HTTPS://b.EXAMPLE", "a", true);
    check(&["https://b.example"], "http://b.example", "a", false);
    check(&["https://b.example"], "https://b.example:444", "a", false);
    check(&["b.example:8080"], "http://b.example:8080", "a", true);
    check(&["*.example.com"], "https://x.example.com", "a", true);
    check(&["*.example.com"], "http://x.y.example.com", "a", true);
    check(&["*.example.com"], "https://example.com", "a", false);
    check(&["*.example.com"], "https://badexample.com", "a", false);
    check(&["*.example.com"], "https://example.com.evil", "a", false);
    check(&["https://*.example.com"], "http://x.example.com", "a", false);
    check(&["*.example.com"], "null", "a", false);
    // The same origin remains admitted.
    check(&["*.example.com"], "http://a", "a", true);
}

/// Characters that no host has, on which clients and servers may differ about where the host ends.
#[test]
fn a_page_with_an_invalid_host_is_rejected() {
    let entries = ["https://*.pages.example", "*.pages.example:8443"];
    for host in [
        "evil.example\\.pages.example",
        "evil.example/.pages.example",
        "evil.example%2f.pages.example",
        "evil.example%5c.pages.example",
        "evil.example .pages.example",
        "evil.example\t.pages.example",
        "evil.example;.pages.example",
        "evil.example,.pages.example",
        "evil.example'.pages.example",
        "evil.example#.pages.example",
        "evil@x.pages.example",
        "[evil.example].pages.example",
        "[::1].pages.example",
        "..pages.example",
        "a..pages.example",
        "\u{e9}.pages.example",
    ] {
        check(&entries, &format!("https://{host}"), "a", false);
        check(&entries, &format!("https://{host}:8443"), "a", false);
    }
    check(&entries, "https://x_1.pages.example", "a", true);
    check(&entries, "https://x.y-z.pages.example:8443", "a", true);
    for scheme in ["", "1a", "a b", "ht\\tp"] {
        check(
            &entries[1..],
            &format!("{scheme}://x.pages.example:8443"),
            "a",
            false,
        );
    }
    let mut origins = Origins::default();
    for entry in [
        "https://*.pages.example\\x",
        "*.a b.example",
        "https://*..example",
        "https://*.%2fx",
        "*",
    ] {
        assert!(origins.allow(entry).is_err(), "{entry}");
    }
}

#[test]
fn any_is_any() {
    let mut origins = Origins::default();
    origins.allow_any();
    assert!(origins.allow_page(b"null", Some("a"), true));
    assert!(origins.allow_page(b"\xff", None, false));
}

#[test]
fn entries_are_checked() {
    for entry in [
        "",
        "*",
        "*.",
        "*example.com",
        "https://",
        "://a",
        "a/b",
        "a*b",
        "http://a/",
        "a:x",
        ".a",
    ] {
        let error = Origins::default().allow(entry).unwrap_err();
        assert!(error.contains(&format!("`{entry}`")), "{error}");
    }
}
