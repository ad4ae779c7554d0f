//! The addresses to open beside inherited ones, and the redirect to HTTPS.

use super::*;

fn check(wanted: &[&str], inherited: &[&str], expect: &[&str]) {
    let parse = |texts: &[&str]| -> Vec<Addr> { texts.iter().map(|t| t.parse().unwrap()).collect() };
    let wanted = parse(wanted);
    let missing: Vec<Addr> = missing_addresses(&wanted, &parse(inherited))
        .into_iter()
        .cloned()
        .collect();
    assert_eq!(missing, parse(expect));
}

#[test]
fn only_addresses_that_are_not_inherited_are_opened() {
    check(&["127.0.0.1:80", "[::1]:80"], &[], &["127.0.0.1:80", "[::1]:80"]);
    check(&["127.0.0.1:80", "[::1]:80"], &["[::1]:80"], &["127.0.0.1:80"]);
    check(&[":80"], &["[::]:80"], &[]);
    check(&["unix:/a", "@a"], &["unix:/a"], &["@a"]);
    check(&[], &["unix:/a"], &[]);
}

#[test]
fn port_0_matches_one_inherited_port() {
    check(&["127.0.0.1:0"], &["127.0.0.1:4711"], &[]);
    check(
        &["127.0.0.1:0", "127.0.0.1:0"],
        &["127.0.0.1:4711"],
        &["127.0.0.1:0"],
    );
    check(&["127.0.0.1:0"], &["127.0.0.2:4711"], &["127.0.0.1:0"]);
    // A port wanted by its number does not match port 0.
    check(
        &["127.0.0.1:0", "127.0.0.1:4711"],
        &["127.0.0.1:4711"],
        &["127.0.0.1:0"],
    );
}

#[test]
fn unspecified_addresses_are_reachable_through_loopback() {
    for (listen, expect) in [
        ("0.0.0.0:80", "127.0.0.1:80"),
        ("[::]:80", "[::1]:80"),
        ("192.0.2.1:80", "192.0.2.1:80"),
    ] {
        assert_eq!(reachable_address(listen.parse().unwrap()).to_string(), expect);
    }
}

#[test]
fn a_redirect_retains_path_and_query() {
    for (target, expect) in [
        ("/", "/"),
        ("/a/b?c=d", "/a/b?c=d"),
        ("/go?to=http://other.example/x", "/go?to=http://other.example/x"),
        ("//twice", "//twice"),
        ("http://a.example", "/"),
        ("http://a.example/", "/"),
        ("http://a.example:80/b?c", "/b?c"),
        ("http://a.example?c=/d", "/?c=/d"),
        ("*", "/"),
        ("a.example:443", "/"),
    ] {
        let (slash, place) = redirect::path_and_query(target);
        assert_eq!(format!("{slash}{place}"), expect, "{target}");
    }
}

#[test]
fn the_port_of_a_host_is_removed() {
    for (host, expect) in [
        ("a.example", "a.example"),
        ("a.example:80", "a.example"),
        ("a.example:", "a.example"),
        ("[::1]", "[::1]"),
        ("[::1]:8080", "[::1]"),
        ("", ""),
    ] {
        assert_eq!(redirect::strip_port(host), expect, "{host}");
    }
}

#[test]
fn limits_of_the_container_are_part_of_the_line_if_there_are_any() {
    assert_eq!(format_container_limits(None, None), "");
    assert_eq!(format_container_limits(Some(1.5), None), ", CPU quota 1.5");
    assert_eq!(
        format_container_limits(Some(2.0), Some(512 << 20)),
        ", CPU quota 2, memory up to 512 MiB"
    );
}
