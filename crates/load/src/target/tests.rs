//! Targets as tables: what they mean, what is wrong with them.

use super::*;

fn read(text: &str) -> Target {
    Target::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// `addrs` separated by commas.
fn check_at(text: &str, scheme: Scheme, addrs: &str, host: &str, path: &str) {
    let expect = Target {
        scheme,
        secured_as: None,
        place: Place::Addrs(addrs.split(',').map(|addr| addr.parse().unwrap()).collect()),
        host: host.into(),
        path: path.into(),
    };
    assert_eq!(read(text), expect, "{text}");
}

fn check_named(text: &str, name: &str, port: u16, host: &str, path: &str) {
    let expect = Target {
        scheme: Scheme::Http,
        secured_as: None,
        place: Place::Name {
            host: name.into(),
            port,
        },
        host: host.into(),
        path: path.into(),
    };
    assert_eq!(read(text), expect, "{text}");
}

#[test]
fn http_at_addresses() {
    let http = Scheme::Http;
    check_at("http://127.0.0.1", http, "127.0.0.1:80", "127.0.0.1", "/");
    check_at("http://127.0.0.1:80/", http, "127.0.0.1:80", "127.0.0.1", "/");
    check_at(
        "HTTP://127.0.0.1:8080/a?b=c",
        http,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "/a?b=c",
    );
    check_at(
        "http://127.0.0.1:8080?b",
        http,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "/?b",
    );
    check_at(
        "http://127.0.0.1:8080/a#b/c",
        http,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "/a",
    );
    check_at("127.0.0.1:8080", http, "127.0.0.1:8080", "127.0.0.1:8080", "/");
    check_at(
        "127.0.0.1:8080/json",
        http,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "/json",
    );
    check_at("http://[::1]/x", http, "[::1]:80", "[::1]", "/x");
    check_at("[::1]:8080", http, "[::1]:8080", "[::1]:8080", "/");
    check_at(
        ":8080/x",
        http,
        "127.0.0.1:8080,[::1]:8080",
        "localhost:8080",
        "/x",
    );
    check_at(":80", http, "127.0.0.1:80,[::1]:80", "localhost", "/");
    check_at(
        "http://127.0.0.1:8080//a:/@",
        http,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "//a:/@",
    );
}

#[test]
fn http_at_names() {
    check_named("http://localhost", "localhost", 80, "localhost", "/");
    check_named(
        "http://Example.ORG:8080/A",
        "example.org",
        8080,
        "example.org:8080",
        "/A",
    );
    check_named(
        "my_app-1:3000/?x=http://y",
        "my_app-1",
        3000,
        "my_app-1:3000",
        "/?x=http://y",
    );
    // Names that begin as a scheme does.
    check_named("http:8080", "http", 8080, "http:8080", "/");
    check_named("tcp:8080/x", "tcp", 8080, "tcp:8080", "/x");
}

#[test]
fn unix_sockets() {
    check_at(
        "http+unix:/run/a.sock",
        Scheme::Http,
        "unix:/run/a.sock",
        "localhost",
        "/",
    );
    check_at(
        "http+unix:/run/a.sock:/x?y",
        Scheme::Http,
        "unix:/run/a.sock",
        "localhost",
        "/x?y",
    );
    check_at(
        "http+unix:///run/a.sock:/x",
        Scheme::Http,
        "unix:/run/a.sock",
        "localhost",
        "/x",
    );
    check_at(
        "http+unix:@app:/x:/y",
        Scheme::Http,
        "unix:@app",
        "localhost",
        "/x:/y",
    );
    check_at(
        r"http+unix:/a\x3a/b:/x",
        Scheme::Http,
        r"unix:/a\x3a/b",
        "localhost",
        "/x",
    );
    check_at("tcp+unix:/run/a.sock", Scheme::Tcp, "unix:/run/a.sock", "", "");
    check_at("tcp+unix:@a", Scheme::Tcp, "unix:@a", "", "");
}

#[test]
fn websockets() {
    let ws = Scheme::WebSocket;
    check_at("ws://127.0.0.1", ws, "127.0.0.1:80", "127.0.0.1", "/");
    check_at(
        "WS://127.0.0.1:8080/a?b=c",
        ws,
        "127.0.0.1:8080",
        "127.0.0.1:8080",
        "/a?b=c",
    );
    check_at(
        "ws://:8080/x#y",
        Scheme::WebSocket,
        "127.0.0.1:8080,[::1]:8080",
        "localhost:8080",
        "/x",
    );
    check_at(
        "ws+unix:/run/a.sock:/x",
        ws,
        "unix:/run/a.sock",
        "localhost",
        "/x",
    );
    // A name that begins as the scheme does.
    check_named("ws:8080/x", "ws", 8080, "ws:8080", "/x");
}

fn check_secured(text: &str, scheme: Scheme, name: &str, port: u16, host: &str) {
    let target = read(text);
    assert_eq!((target.scheme, target.host.as_str()), (scheme, host), "{text}");
    assert_eq!(target.secured_as.as_deref(), Some(name), "{text}");
    let found = match &target.place {
        Place::Name { port, .. } => *port,
        Place::Addrs(addrs) => match &addrs[0] {
            Addr::Inet(addr) => addr.port(),
            other => panic!("{other}"),
        },
    };
    assert_eq!(found, port, "{text}");
}

#[test]
fn what_is_secured() {
    let (http, ws) = (Scheme::Http, Scheme::WebSocket);
    check_secured("https://Example.org/x", http, "example.org", 443, "example.org");
    check_secured(
        "https://example.org:8443",
        http,
        "example.org",
        8443,
        "example.org:8443",
    );
    check_secured(
        "https://example.org:80",
        http,
        "example.org",
        80,
        "example.org:80",
    );
    check_secured(
        "https://127.0.0.1:8443/",
        http,
        "127.0.0.1",
        8443,
        "127.0.0.1:8443",
    );
    check_secured("https://[::1]/", http, "::1", 443, "[::1]");
    check_secured("https://:8443/x", http, "localhost", 8443, "localhost:8443");
    check_secured("wss://example.org/x", ws, "example.org", 443, "example.org");
    check_secured("wss://:8443/x", ws, "localhost", 8443, "localhost:8443");
    assert_eq!(read("http://example.org:443/").host, "example.org:443");
    for plain in ["http://a/", "ws://a/", ":80", "tcp://a:1", "http+unix:/a"] {
        assert_eq!(read(plain).secured_as, None, "{plain}");
    }
}

#[test]
fn bytes_over_tcp() {
    check_at("tcp://127.0.0.1:7000", Scheme::Tcp, "127.0.0.1:7000", "", "");
    check_at("tcp://:7000/", Scheme::Tcp, "127.0.0.1:7000,[::1]:7000", "", "");
    let Place::Name { host, port } = read("tcp://localhost:7000").place else {
        panic!("expected a name");
    };
    assert_eq!((host.as_str(), port), ("localhost", 7000));
}

fn check_wrong(text: &str, expect: &str) {
    let error = Target::parse(text).unwrap_err().to_string();
    assert!(error.contains(expect), "expected `{expect}` in: {error}");
    assert!(!error.contains(|c: char| c.is_control()), "{error:?}");
}

#[test]
fn what_is_wrong_is_said_with_what_to_write() {
    check_wrong("", "it is empty");
    check_wrong(
        "h2://x.org/",
        "for HTTP/2 over TLS write https:// and --http2; supported: http://, https://, http+unix:, ws://, wss://, ws+unix:",
    );
    check_wrong("https:///x", "a host is missing");
    check_wrong("ws:///x", "a host is missing");
    check_wrong("h2c://x", "for HTTP/2 write http:// and --http2");
    check_wrong("grpc://x", "for gRPC write http:// and --grpc");
    check_wrong("ftp://x", "`ftp` is not supported; supported: http://");
    check_wrong(
        "localhost",
        "a port is missing: write localhost:8080, or http://localhost",
    );
    check_wrong("127.0.0.1/x", "write 127.0.0.1:8080");
    check_wrong("tcp://localhost", "a port is missing");
    check_wrong("tcp://localhost:7000/x", "`/x` has no meaning for an echo server");
    check_wrong("http://", "a host is missing");
    check_wrong("http:///x", "a host is missing");
    check_wrong("http://:80/x", "a host is missing");
    check_wrong(
        "/x",
        "for HTTP write http+unix:/x:/path, for WebSocket ws+unix:/x:/path, for echoed bytes tcp+unix:/x",
    );
    check_wrong("unix:/x", "for HTTP write http+unix:/x:/path");
    check_wrong(
        "http://a:0/",
        "`0` is not a port: expected a number from 1 to 65535",
    );
    check_wrong("http://a:/", "`` is not a port");
    check_wrong("a:65536", "`65536` is not a port");
    check_wrong("a:+80", "`+80` is not a port");
    check_wrong("http://::1/", "is written in brackets");
    check_wrong("http://[::1/", "closing `]`");
    check_wrong("http://[::g]:1/", "`::g` is not an IPv6 address");
    check_wrong("http://me:secret@a/", "-H 'Authorization: …'");
    check_wrong("http://a/b c", "write %20 for a space");
    check_wrong("http://a/\r\nX: y", r"`\r` is not allowed in it");
    check_wrong("http://a/ü", "write %C3%BC for `ü`");
    check_wrong("http://bücher.de/", "write its xn-- form");
    check_wrong("http://a*b/", "`*` is not allowed in a host name");
    check_wrong(
        &format!("http://{}/", "a".repeat(254)),
        "at most 253 characters, found 254",
    );
    check_wrong("http+unix:run/a.sock", "expected an absolute path");
    check_wrong("http+unix:", "expected an absolute path");
    check_wrong("tcp+unix:@", "expected a name after the `@`");
}

#[test]
fn a_long_text_is_not_repeated_whole() {
    let error = Target::parse(&"x".repeat(10_000)).unwrap_err();
    assert!(error.found.chars().count() <= 121, "{}", error.found);
}

#[test]
fn no_text_is_a_panic() {
    let seed = ringmain_sys::clock::random();
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "http", "tcp", "ws", "s", "unix", "+", ":", "/", "//", "[", "]", "::1", "@", "?", "#", "80", "a",
        "ü", "\\x", "%", " ", "\0", ".",
    ];
    for _ in 0..20_000 {
        let text: String = (0..random.usize(..8))
            .map(|_| pieces[random.usize(..pieces.len())])
            .collect();
        if let Ok(target) = Target::parse(&text) {
            assert!(target.path.is_ascii(), "{text}");
            assert_eq!(
                target.path.starts_with('/'),
                target.scheme != Scheme::Tcp,
                "{text}"
            );
        }
    }
}
