//! Tests of the parsers of texts.

use super::{
    HeaderName, HeaderValue, Hostname, MethodName, Network, Origin, OriginPort, PasswordHash, Path, Pattern,
    Secret,
};

#[track_caller]
fn assert_error<T: std::fmt::Debug>(outcome: Result<T, super::TextError>, expected: &str) {
    assert_eq!(outcome.expect_err("refused").to_string(), expected);
}

#[test]
fn hostnames() {
    let parse = |text| Hostname::parse(text).map(|host| host.as_str().to_owned()).ok();
    assert_eq!(parse("Shop.Example."), Some("shop.example".to_owned()));
    assert_eq!(parse("*.Shop.Example"), Some("*.shop.example".to_owned()));
    assert_eq!(parse("a_b.c-d"), Some("a_b.c-d".to_owned()));
    assert_eq!(parse("127.0.0.1"), Some("127.0.0.1".to_owned()));
    assert_eq!(parse("[0::1]"), Some("[::1]".to_owned()));
    let long = "a.".repeat(128);
    for bad in [
        "",
        "*",
        "*.",
        ".",
        "a..b",
        "a*.b",
        "a.*.b",
        "-a",
        "a-",
        "a:80",
        "ä.example",
        "[::1",
        &long,
    ] {
        assert_eq!(parse(bad), None, "{bad}");
    }
    assert_error(
        Hostname::parse("a:80"),
        "expected a hostname such as shop.example, or *.shop.example, found `a:80`",
    );
    let wildcard = Hostname::parse("*.shop.example").unwrap();
    assert!(wildcard.matches("a.shop.example") && wildcard.matches("a.b.shop.example"));
    assert!(!wildcard.matches("shop.example") && !wildcard.matches("ashop.example"));
}

#[test]
fn origins() {
    let of = |scheme: &str, host: Option<&str>, port| Origin::Of {
        scheme: scheme.into(),
        host: host.map(|host| Hostname::parse(host).unwrap()),
        port,
    };
    for (text, expected) in [
        ("*", Origin::Any),
        (
            "https://Shop.example",
            of("https", Some("shop.example"), OriginPort::Default),
        ),
        (
            "http://*.shop.example:8080",
            of("http", Some("*.shop.example"), OriginPort::Number(8080)),
        ),
        ("https://*", of("https", None, OriginPort::Default)),
        ("https://*:8443", of("https", None, OriginPort::Number(8443))),
        (
            "http://localhost:*",
            of("http", Some("localhost"), OriginPort::Any),
        ),
        (
            "http://[::1]:3000",
            of("http", Some("[::1]"), OriginPort::Number(3000)),
        ),
        (
            "http://[2001:db8::1]",
            of("http", Some("[2001:db8::1]"), OriginPort::Default),
        ),
        (
            "Capacitor://localhost",
            of("capacitor", Some("localhost"), OriginPort::Default),
        ),
    ] {
        assert_eq!(Origin::parse(text), Ok(expected), "{text}");
    }
    for bad in [
        "",
        "null",
        "shop.example",
        "https://",
        "https://shop.example/",
        "https://shop.example?a",
        "https://shop.example:",
        "https://shop.example:0",
        "https://shop.example:65536",
        "https://a@shop.example",
        "https://**",
        "https://*shop.example",
        "https://a.*.example",
        "https://::1",
        "://shop.example",
        "1http://shop.example",
        "*://shop.example",
    ] {
        assert!(Origin::parse(bad).is_err(), "{bad}");
    }
    assert_error(
        Origin::parse("shop.example"),
        "expected `*`, or an origin without a path such as https://shop.example or http://localhost:*, found `shop.example`",
    );
}

#[test]
fn paths_are_in_normal_form() {
    let parse = |text| Path::parse(text).map(|path| path.as_str().to_owned());
    assert_eq!(parse("/caf%C3%A9//x/../y").unwrap(), "/café/y");
    assert_eq!(parse("/a/").unwrap(), "/a/");
    assert_error(
        parse("a"),
        "expected a path that begins with `/`, without `?` and `#`, found `a`",
    );
    assert_error(
        parse("/a?b"),
        "expected a path that begins with `/`, without `?` and `#`, found `/a?b`",
    );
    assert!(parse("/%zz").is_err() && parse(&format!("/{}", "a".repeat(5000))).is_err());
}

#[test]
fn headers_and_methods() {
    assert_eq!(
        HeaderName::parse("X-A").unwrap(),
        HeaderName::parse("x-a").unwrap()
    );
    assert!(
        HeaderName::parse("a b").is_err()
            && HeaderName::parse("").is_err()
            && HeaderName::parse("a:").is_err()
    );
    assert!(HeaderValue::parse("a b\tc ü").is_ok() && HeaderValue::parse("").is_ok());
    assert!(HeaderValue::parse("a\r\nb: c").is_err() && HeaderValue::parse(" a").is_err());
    assert!(MethodName::parse("GET").is_ok() && MethodName::parse("M-SEARCH").is_ok());
    assert_error(
        MethodName::parse("get"),
        "expected a method in capital letters, such as GET, found `get`",
    );
}

#[test]
fn expressions_match_the_whole_text() {
    let pattern = Pattern::parse("/v[0-9]+|/x").unwrap();
    assert!(pattern.matches(b"/v12") && pattern.matches(b"/x"));
    assert!(!pattern.matches(b"/v12/a") && !pattern.matches(b"a/x"));
    assert!(!Pattern::parse("a").unwrap().matches(b"a\n"));
    assert_eq!(pattern, Pattern::parse("/v[0-9]+|/x").unwrap());
    assert_error(
        Pattern::parse("a)|(b"),
        "expected an expression (unopened group), found `a)|(b`",
    );
    assert!(Pattern::parse("(").is_err());
    assert_error(
        Pattern::parse(r"(\w{100}){100}"),
        r"expected an expression of at most 256 KiB once compiled (repeat less, and smaller classes: `[0-9]` for `\d`, `[0-9A-Za-z_]` for `\w`), found `(\\w{100}){100}`",
    );
    assert_error(
        Pattern::parse(&"a".repeat(1025)),
        &format!(
            "expected an expression of at most 1024 bytes, found `{}…`",
            "a".repeat(80)
        ),
    );
    assert!(Pattern::parse("([0-9A-Za-z_]{20}){20}").is_ok());
}

#[test]
fn networks() {
    let contains = |network: &str, address: &str| {
        Network::parse(network)
            .unwrap()
            .contains(address.parse().unwrap())
    };
    assert!(contains("10.0.0.0/8", "10.255.0.1") && contains("10.0.0.0/8", "::ffff:10.0.0.1"));
    assert!(!contains("10.0.0.0/8", "11.0.0.1") && !contains("10.0.0.0/8", "::1"));
    assert!(
        contains("0.0.0.0/0", "1.2.3.4") && !contains("::/0", "1.2.3.4") && contains("::/0", "2001:db8::1")
    );
    assert!(contains("fd00::/8", "fdff::1") && !contains("fd00::/8", "fe80::1"));
    assert!(contains("192.0.2.7", "192.0.2.7") && !contains("192.0.2.7", "192.0.2.6"));
    for bad in [
        "",
        "10.0.0.0/33",
        "10.0.0.0/",
        "10.0.0.0/+8",
        "10.0.0.1/8",
        "::/129",
        "a/8",
    ] {
        assert!(Network::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn secrets_are_not_shown() {
    let secret = Secret::new(&b"hunter2"[..]);
    assert_eq!(format!("{secret:?}"), "Secret(7 bytes)");
    assert_eq!(secret.expose(), b"hunter2");
}

#[test]
fn passwords_are_verified_against_their_hashes() {
    use argon2::password_hash::CustomizedPasswordHasher;
    let params = argon2::Params::new(16, 1, 1, None).expect("they are in range");
    let argon: argon2::PasswordHash = argon2::Argon2::default()
        .hash_password_customized(b"Hello world!", b"saltsaltsalt", None, None, params)
        .expect("a hash");
    for hash in [
        bcrypt::hash("Hello world!", 4).expect("a hash"),
        argon.to_string(),
        // From `openssl passwd`.
        "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc5".to_owned(),
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz1"
            .to_owned(),
    ] {
        let read = PasswordHash::parse(&hash).expect("a valid hash");
        assert!(read.verify(b"Hello world!"), "{hash}");
        assert!(!read.verify(b"Hello world"), "{hash}");
        assert!(!format!("{read:?}").contains(&hash));
    }
    for wrong in [
        "",
        "Hello world!",
        "$apr1$abcdefgh$irBVrkQ2N5Kc8Z0vZbLsf/",
        "{SHA}2jmj7l5rSw0yVb/vlWAYkK/YBwk=",
        "$2y$20$abcdefghijklmnopqrstuuo3bKCQEYKTtjhAsNnFEEeBDEDr2BJ6.",
        "$2y$04$short",
        "$argon2id$v=19$m=1048576,t=3,p=4$c2FsdHNhbHQ$aGFzaGhhc2hoYXNoaGFzaA",
        "$argon2id$v=19$m=x,t=3,p=4$c2FsdHNhbHQ$aGFzaA",
        "$6$rounds=999999999$saltstring$x",
        // Truncated, as in files that were read while they were being written.
        "$5$saltstring",
        "$5$saltstring$5B8vYYiY.CVt1RlTTf8KbXBH3hsxY/GNooZaBBGWEc",
        "$6$saltstring$svn8UoSVapNtMuq1ukKS4tPQd8iKwSMHWjl/O817G3uBnIFNjnQJuesI68u4OTLiBFdcbYEdFCoEOfaS35inz",
        "$argon2id$v=19$m=16,t=1,p=1",
        "$argon2id$v=19$m=16,t=1,p=1$c2FsdHNhbHQ",
    ] {
        let fault = PasswordHash::parse(wrong).expect_err("a rejected hash");
        assert!(!fault.to_string().contains("Hello"), "{fault}");
    }
}
