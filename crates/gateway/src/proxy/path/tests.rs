//! Tests of forwarded paths, and of prefixes in any spelling.

use super::*;

#[track_caller]
fn check(merge_slashes: bool, decoded: Option<&str>, raw: &str, expected: &str) {
    let paths = Paths {
        merge_slashes,
        ..Paths::default()
    };
    assert_eq!(
        forwarded_path(paths, decoded, raw, &mut String::new()),
        expected,
        "{raw}"
    );
}

#[test]
fn paths_are_forwarded_octet_for_octet() {
    for raw in [
        "/",
        "/thumb/300x200/https://img.example/a.jpg",
        "//a///b//",
        "/%61%2f%5c%7e%7E",
        "/a;b=c/d:@!$&'()*+,=e",
        "/...",
        "/a%2",
    ] {
        check(false, None, raw, raw);
    }
    check(true, None, "/a//b", "/a/b");
    check(false, Some("/admin/x y"), "/admin%2fx%20y", "/admin/x%20y");
}

#[test]
fn dot_segments_are_resolved_as_rules_see_them() {
    for (raw, expected) in [
        ("/a/../b", "/b"),
        ("/a//../b", "/b"),
        ("/a/%2e%2E/b", "/b"),
        ("/./a//b", "/a/b"),
        ("/a/.", "/a/"),
    ] {
        check(false, None, raw, expected);
    }
}

#[test]
fn rest_of_a_path_after_a_prefix() {
    for (sent, prefix, rest) in [
        ("/api/v1", "/api", "/v1"),
        ("/api", "/api", ""),
        ("/api//v1//", "/api", "//v1//"),
        ("//api//v1", "/api", "//v1"),
        ("/%61pi/v1", "/api", "/v1"),
        ("/a//b/c", "/a/b", "/c"),
        ("/a/b", "", "/a/b"),
        ("//a", "", "//a"),
    ] {
        assert_eq!(rest_after_prefix(sent, prefix), rest, "{sent}");
    }
}
