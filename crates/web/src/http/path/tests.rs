//! Raw paths and their normal form.

use super::{
    PathFault, PathFaultKind, display_path, escape, forwardable, has_dot_segment, normalise, with_slashes,
};
use crate::http::error::Error;

#[track_caller]
fn check(raw: &str, expected: Result<&str, (PathFaultKind, usize)>) {
    let mut scratch = String::from("left from before");
    let expected = expected.map_err(|(kind, at)| PathFault { kind, at });
    assert_eq!(normalise(raw, &mut scratch), expected, "{raw}");
}

#[test]
fn a_normal_path_is_not_copied() {
    for raw in [
        "/",
        "/a",
        "/a/",
        "/json",
        "/plaintext",
        "/a.b/c..d/e.",
        "/users/1234567/posts/89",
        "/größe/ü",
        "/a;x=1/b\\..\\c",
        "/-/",
        "/0/0/0/0/0/0/0/0",
    ] {
        let mut scratch = String::from("left from before");
        let path = normalise(raw, &mut scratch).expect("normal");
        assert!(
            std::ptr::eq(path, raw),
            "{raw} is the same text in the same place"
        );
        assert_eq!(scratch, "left from before");
    }
}

#[test]
fn escapes_slashes_and_nul_are_found_at_any_offset() {
    for length in 0..40 {
        for at in 0..=length {
            for (found, expected) in [
                ("%41", Ok("A")),
                ("//", Ok("/")),
                ("/./", Ok("/")),
                ("\0", Err(())),
            ] {
                let (before, after) = ("a".repeat(at), "b".repeat(length - at));
                let raw = format!("/x{before}{found}{after}y");
                let mut scratch = String::new();
                let path = normalise(&raw, &mut scratch).map_err(|_| ());
                let expected = expected.map(|middle| format!("/x{before}{middle}{after}y"));
                assert_eq!(path.map(str::to_owned), expected, "{raw:?}");
            }
        }
    }
}

#[test]
fn escapes_are_decoded_once() {
    check("/%61", Ok("/a"));
    check("/a%20b", Ok("/a b"));
    check("/a+b", Ok("/a+b"));
    check("/gr%C3%B6%c3%9Fe", Ok("/größe"));
    check("/%2541", Ok("/%41"));
    check("/%25%34%31", Ok("/%41"));
    check("/%252e%252e/a", Ok("/%2e%2e/a"));
    check("/%252f", Ok("/%2f"));
    check("/a%3Fb%23c", Ok("/a?b#c"));
    check("/%5c..%5C", Ok("/\\..\\"));
}

#[test]
fn an_escaped_slash_is_data() {
    check("/a%2Fb", Ok("/a\0b"));
    check("/%2f", Ok("/\0"));
    check("/a%2f%2Fb/", Ok("/a\0\0b/"));
    check("/a/%2f/../b", Ok("/a/b"));
    check("/group%2f.github", Ok("/group\0.github"));
    assert_eq!(display_path("a\0b\0"), "a/b/");
    assert!(matches!(display_path("ab"), std::borrow::Cow::Borrowed("ab")));
}

#[test]
fn dot_segments_go_and_never_above_the_root() {
    check("/.", Ok("/"));
    check("/..", Ok("/"));
    check("/../", Ok("/"));
    check("/../../etc/passwd", Ok("/etc/passwd"));
    check("/a/.", Ok("/a/"));
    check("/a/./b", Ok("/a/b"));
    check("/a/..", Ok("/"));
    check("/a/b/..", Ok("/a/"));
    check("/a/b/../", Ok("/a/"));
    check("/a/b/../c", Ok("/a/c"));
    check("/a/b/c/../../d", Ok("/a/d"));
    check("/a/b/c/./../../g", Ok("/a/g"));
    check("/mid/content=5/../6", Ok("/mid/6"));
    check("/...", Ok("/..."));
    check("/.a/..b/c", Ok("/.a/..b/c"));
    check("/%2e%2e/a", Ok("/a"));
    check("/a/%2E%2e/b", Ok("/b"));
    check("/a/.%2e/b", Ok("/b"));
    check("/a/%2e/b", Ok("/a/b"));
    check("/ö/../ß", Ok("/ß"));
}

#[test]
fn repeated_slashes_become_one() {
    check("//", Ok("/"));
    check("//a", Ok("/a"));
    check("/a//b///c", Ok("/a/b/c"));
    check("/a//", Ok("/a/"));
    check("//../a", Ok("/a"));
    check("/a//../b", Ok("/b"));
    check("//evil.example/a", Ok("/evil.example/a"));
}

#[test]
fn ambiguous_paths_have_one_normal_form() {
    check("/admin/..;/a", Ok("/admin/..;/a"));
    check("/a;/../b", Ok("/b"));
    check("/public/%2e%2e/admin", Ok("/admin"));
    check("/public/..%2fadmin", Err((PathFaultKind::Climb, 8)));
    check("/public/%2e%2e%2fadmin", Err((PathFaultKind::Climb, 8)));
    check("/a%20b%2f..", Err((PathFaultKind::Climb, 9)));
    check("/a%2f%2e%2e%2fb", Err((PathFaultKind::Climb, 5)));
    check("/a%2f../../b", Err((PathFaultKind::Climb, 5)));
    check("/..%5cadmin", Ok("/..\\admin"));
    check("/%2fadmin", Ok("/\0admin"));
    check("/admin%20", Ok("/admin "));
    check("/admin%0a", Ok("/admin\n"));
}

#[test]
fn invalid_paths_are_rejected_with_their_offset() {
    check("/a%", Err((PathFaultKind::Escape, 2)));
    check("/a%4", Err((PathFaultKind::Escape, 2)));
    check("/%zz", Err((PathFaultKind::Escape, 1)));
    check("/%+1", Err((PathFaultKind::Escape, 1)));
    check("/%u0041", Err((PathFaultKind::Escape, 1)));
    check("/%4ö", Err((PathFaultKind::Escape, 1)));
    check("/ab%00", Err((PathFaultKind::Nul, 3)));
    check("/a\0b", Err((PathFaultKind::Nul, 2)));
    check("/%ff", Err((PathFaultKind::Utf8, 1)));
    check("/%41b%c0%af", Err((PathFaultKind::Utf8, 5)));
    check("/%e0%80%af", Err((PathFaultKind::Utf8, 1)));
    check("/%ed%a0%80", Err((PathFaultKind::Utf8, 1)));
    check("/a%ff/../b", Err((PathFaultKind::Utf8, 2)));
    check("/%ff%", Err((PathFaultKind::Escape, 4)));
    check("", Err((PathFaultKind::NotAbsolute, 0)));
    check("*", Err((PathFaultKind::NotAbsolute, 0)));
    check("a/b", Err((PathFaultKind::NotAbsolute, 0)));
}

#[test]
fn a_fault_names_the_remedy_for_the_client() {
    let mut scratch = String::new();
    let fault = normalise("/100%", &mut scratch).expect_err("a broken escape");
    let error = Error::from(fault);
    assert_eq!(error.status(), 400);
    let told = "request path, byte 4: `%` without two hexadecimal digits; write `%25` for a percent sign";
    assert_eq!(error.detail(), told);
}

#[test]
fn the_normal_form_stays_as_it_is() {
    for raw in ["/a//b/../%63", "/..//.", "/a%20b/", "/...", "/.a/%2e%2e%2e"] {
        let (mut first, mut second) = (String::new(), String::new());
        let path = normalise(raw, &mut first).expect("it has one");
        assert_eq!(normalise(path, &mut second), Ok(path));
    }
}

#[test]
fn room_is_kept_through_faults() {
    let mut scratch = String::with_capacity(64);
    let room = scratch.capacity();
    for raw in ["/%41", "/%ff", "/%", "/%00", "/a//b"] {
        let fine = normalise(raw, &mut scratch).is_ok();
        assert_eq!(scratch.capacity(), room, "{raw}: {fine}");
    }
}

#[test]
fn forwarded_paths() {
    for (raw, expected) in [
        ("/a/b", "/a/b"),
        ("/%61/%7Eb", "/a/~b"),
        ("/a%2fb/c", "/a%2Fb/c"),
        ("/a%3bb;c", "/a%3Bb;c"),
        ("/a%20b", "/a%20b"),
        ("/%e2%82%ac", "/%E2%82%AC"),
        ("/a/%2e%2e/b", "/b"),
        ("/a//b/./c/", "/a/b/c/"),
        ("/a/..", "/"),
        ("/100%25", "/100%25"),
        ("/%2541", "/%2541"),
    ] {
        let mut scratch = String::new();
        assert_eq!(forwardable(raw, &mut scratch), Ok(expected), "{raw}");
    }
    assert!(forwardable("/%zz", &mut String::new()).is_err());
    assert!(forwardable("a", &mut String::new()).is_err());
}

/// A recipient of the forwarded path decides as we do, and forwarding it again changes nothing.
#[test]
fn forwarded_paths_have_the_same_normal_form() {
    const PIECES: &[&str] = &[
        "/",
        "/",
        "/",
        "a",
        "b",
        ".",
        "..",
        "%2e",
        "%2E",
        "%2f",
        "%41",
        "%25",
        "%3b",
        ";",
        "%e2%82%ac",
        "%20",
        "=",
        "%61",
    ];
    let mut seed = 7_u64;
    for _ in 0..20_000 {
        let mut raw = String::from("/");
        for _ in 0..seed % 12 {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            raw.push_str(PIECES[(seed >> 40) as usize % PIECES.len()]);
        }
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (mut one, mut two, mut three, mut four) = Default::default();
        let normal = normalise(&raw, &mut one);
        let passed = forwardable(&raw, &mut two);
        assert_eq!(normal.is_ok(), passed.is_ok(), "{raw}");
        let (Ok(normal), Ok(passed)) = (normal, passed) else {
            continue;
        };
        assert_eq!(
            normalise(passed, &mut three),
            Ok(normal),
            "{raw} passed on as {passed}"
        );
        assert_eq!(forwardable(passed, &mut four), Ok(passed), "{raw}");
        let mut written = String::new();
        escape(normal, &mut written);
        assert_eq!(
            normalise(&written, &mut String::new()),
            Ok(normal),
            "{raw} written as {written}"
        );
    }
}

#[test]
fn dot_segments_are_found_in_any_form() {
    for raw in [
        "/.", "/..", "/a/./b", "/a/../b", "/%2e", "/.%2E/a", "/%2e%2e", "/a/..", "//..",
    ] {
        assert!(has_dot_segment(raw), "{raw}");
    }
    for raw in [
        "/",
        "/a",
        "/...",
        "/.a",
        "/a.",
        "/a..b",
        "/%2e%2e%2e",
        "/%2ea",
        "/%25",
        "/a%2e",
        "//",
    ] {
        assert!(!has_dot_segment(raw), "{raw}");
    }
}

#[test]
fn escaped_slashes_become_slashes() {
    for (raw, expected) in [
        ("/a/b", None),
        ("/admin%2fx", Some("/admin/x")),
        ("/admin%5cx", Some("/admin/x")),
        ("/admin\\x", Some("/admin/x")),
        ("/%2f%2fadmin", Some("/admin")),
        ("/public%5c..%5cadmin", Some("/admin")),
        ("/a%2f", Some("/a/")),
        ("/a%252fb", None),
    ] {
        let mut scratch = String::new();
        let normal = normalise(raw, &mut scratch).expect("a path");
        assert_eq!(with_slashes(normal).as_deref(), expected, "{raw}");
    }
}
