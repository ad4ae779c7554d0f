//! Fields that count as one, and heads that name one origin.

use ringmain_wire::h2::Limits;

use crate::h2::support::*;

/// RFC 9113 §8.2.3: many crumbs are one field, whose bytes are bounded as those of one.
#[test]
fn many_cookies_count_as_one_field() {
    let limits = Limits {
        head_bytes: 4000,
        fields: 2,
        ..Limits::INTERNET
    };
    let mut server = Side::server(&limits);
    let crumbs: Vec<String> = (0..200).map(|number| format!("c{number:03}=1234567")).collect();
    let mut fields: Vec<(&str, &str)> = vec![("x", "y")];
    fields.extend(crumbs.iter().map(|crumb| ("cookie", crumb.as_str())));
    let heard = server
        .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &get_with(&fields)))
        .expect("no fault");
    let joined = crumbs.join("; ");
    assert_eq!(
        texts(&heard),
        [format!("1 GET / localhost None end=true x=y cookie={joined}")]
    );
    // One field more is one too many; the crumbs were not.
    fields.push(("z", "z"));
    let heard = server
        .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 3, &get_with(&fields)))
        .expect("no fault");
    assert_eq!(texts(&heard), ["3 too large end=true"]);
}

/// A crumb costs a client one byte once it is in the table: their sum is bounded, empty ones included.
#[test]
fn the_bytes_of_cookies_are_bounded() {
    let limits = Limits {
        head_bytes: 4000,
        ..Limits::INTERNET
    };
    for value in ["", "a=1", &"v".repeat(500)] {
        let mut server = Side::server(&limits);
        let mut block = get_with(&[]);
        // A literal that is indexed, then the entry by its number.
        block.extend_from_slice(b"\x60");
        assert!(value.len() < 600);
        match value.len() {
            length @ 0..127 => block.push(length as u8),
            length => block.extend_from_slice(&[
                0x7f,
                0x80 | ((length - 127) & 0x7f) as u8,
                ((length - 127) >> 7) as u8,
            ]),
        }
        block.extend_from_slice(value.as_bytes());
        block.extend(std::iter::repeat_n(0xbe, 3000));
        let heard = server
            .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
            .expect("no fault");
        assert_eq!(texts(&heard), ["1 too large end=true"], "{} bytes", value.len());
        // The next block uses the same table.
        let heard = server.hear(&get(3)).expect("no fault");
        assert_eq!(texts(&heard), ["3 GET / localhost None end=true"]);
    }
}

#[test]
fn cookies_that_are_empty_leave_no_separator() {
    let mut server = Side::server(&Limits::INTERNET);
    let block = get_with(&[
        ("cookie", ""),
        ("cookie", "a=1"),
        ("cookie", ""),
        ("cookie", "b=2"),
    ]);
    let heard = server
        .hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block))
        .expect("no fault");
    assert_eq!(texts(&heard), ["1 GET / localhost None end=true cookie=a=1; b=2"]);
}

/// RFC 9113 §8.3.1, RFC 3986 §6.2.3: the port of the scheme, an empty one and none are the same.
#[test]
fn authority_and_host_are_compared_after_normalising() {
    let head = |scheme: &str, authority: &str, host: &str| {
        literals(&[
            (":method", "GET"),
            (":scheme", scheme),
            (":path", "/"),
            (":authority", authority),
            ("host", host),
        ])
    };
    let hear = |scheme: &str, authority: &str, host: &str| {
        let mut server = Side::server(&Limits::INTERNET);
        let block = head(scheme, authority, host);
        let heard = server.hear(&frame(HEADERS, END_HEADERS | END_STREAM, 1, &block));
        heard
            .expect("no fault of the connection")
            .pop()
            .map(|heard| heard.1)
    };
    for (scheme, authority, host) in [
        ("http", "a", "a:80"),
        ("http", "a:80", "a"),
        ("HTTP", "a", "A:"),
        ("http", "a:", "a:80"),
        ("https", "a", "a:443"),
        ("https", "a:443", "a:"),
        ("https", "a:8443", "A:8443"),
        ("http", "[::1]", "[::1]:80"),
        ("ws", "a", "a:"),
    ] {
        let found = hear(scheme, authority, host).expect("a request");
        let expected = format!("1 GET / {authority} None end=true host={host}");
        assert_eq!(found, expected);
    }
    for (scheme, authority, host) in [
        ("http", "a", "a:443"),
        ("https", "a", "a:80"),
        ("http", "a:80", "a:81"),
        ("http", "a", "b:80"),
        ("http", "[::1]", "[::1]:8"),
        ("http", "[::80]", "[:"),
        ("ws", "a", "a:80"),
    ] {
        let found = hear(scheme, authority, host);
        assert!(
            found.as_deref().is_none_or(|found| !found.contains("GET")),
            "{scheme} {authority} {host}: {found:?}"
        );
    }
}

/// RFC 9113 §5.1: what was sent before a client knew that its stream was over is no fault, and the connection goes on.
#[test]
fn frames_on_a_finished_stream_are_ignored() {
    let mut server = Side::server(&Limits::INTERNET);
    let heard = server.hear(&get(1)).expect("no fault");
    let stream = heard[0].0.expect("a stream");
    server
        .connection
        .respond(stream, 200, &mut server.out)
        .expect("a head")
        .finish(true);
    for late in [window_update(1, 5), rst(1), window_update(1, 5)] {
        assert_eq!(texts(&server.hear(&late).expect("no fault")), [""; 0]);
    }
    let heard = server.hear(&get(3)).expect("no fault");
    assert_eq!(texts(&heard), ["3 GET / localhost None end=true"]);
}
