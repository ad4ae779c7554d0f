//! Encoding: what was encoded parses to the same message, and what would lie is refused.

use ringmain_wire::h1::{
    AnswerTo, BodyEncoder, Exchange, FieldBlock, Framing, Limits, Method, Misuse, RequestEncoder,
    ResponseEncoder, Version,
};

use crate::h1::support::{Event, Rng, Role, events, with_request};

const PLAIN: Exchange = Exchange {
    version: Version::Http11,
    keep_alive: true,
    method: AnswerTo::Other,
};

const OLD: Exchange = Exchange {
    version: Version::Http10,
    ..PLAIN
};

const HEAD: Exchange = Exchange {
    method: AnswerTo::Head,
    ..PLAIN
};

/// One more than any recipient takes.
const BEYOND: Framing = Framing::Length(1 << 63);

fn text(out: &[u8]) -> &str {
    str::from_utf8(out).expect("these tests write ASCII")
}

/// The whole response: `status`, `framing`, and `body` in one piece.
fn response(status: u16, exchange: Exchange, framing: Framing, body: &str) -> Result<String, Misuse> {
    let mut out = Vec::new();
    let mut encoder = ResponseEncoder::new(&mut out, status, exchange)?.finish(framing)?;
    encoder.data(&mut out, body.as_bytes())?;
    encoder.finish(&mut out)?;
    Ok(text(&out).to_owned())
}

/// Status, exchange, framing, body; what is written after the status line.
type Case = (u16, Exchange, Framing, &'static str, &'static str);

fn check_responses(cases: &[Case]) {
    for &(status, exchange, framing, body, expected) in cases {
        let line = format!("HTTP/1.1 {status} {}\r\n", ringmain_wire::h1::reason(status));
        let found = response(status, exchange, framing, body);
        assert_eq!(found.as_deref(), Ok(format!("{line}{expected}").as_str()));
    }
}

#[test]
fn responses_say_how_they_end() {
    use Framing::{Chunked, Length, None, UntilClose};
    let refused = Exchange::REFUSED;
    let chunks = "Transfer-Encoding: chunked\r\n\r\n11\r\n0123456789abcdef!\r\n0\r\n\r\n";
    let alive = "Content-Length: 2\r\nConnection: keep-alive\r\n\r\nhi";
    let closing = "Content-Length: 0\r\nConnection: close\r\n\r\n";
    check_responses(&[
        (200, PLAIN, Length(2), "hi", "Content-Length: 2\r\n\r\nhi"),
        (200, PLAIN, None, "", "Content-Length: 0\r\n\r\n"),
        (200, PLAIN, Chunked, "0123456789abcdef!", chunks),
        (200, PLAIN, UntilClose, "hi", "Connection: close\r\n\r\nhi"),
        (200, OLD, Length(2), "hi", alive),
        (400, refused, None, "", closing),
        (299, PLAIN, None, "", "Content-Length: 0\r\n\r\n"),
    ]);
}

#[test]
fn responses_without_body() {
    use Framing::{Chunked, Length, None, UntilClose};
    check_responses(&[
        (200, HEAD, Length(2), "hi", "Content-Length: 2\r\n\r\n"),
        (200, HEAD, Length(2), "", "Content-Length: 2\r\n\r\n"),
        (200, HEAD, Chunked, "hi", "Transfer-Encoding: chunked\r\n\r\n"),
        (200, HEAD, None, "hi", "\r\n"),
        (304, PLAIN, None, "", "\r\n"),
        (304, PLAIN, Length(9), "", "Content-Length: 9\r\n\r\n"),
        // RFC 9110 §15.3.6: whatever is written of a body.
        (205, PLAIN, None, "", "Content-Length: 0\r\n\r\n"),
        (205, PLAIN, Length(2), "hi", "Content-Length: 0\r\n\r\n"),
        (205, PLAIN, Chunked, "hi", "Content-Length: 0\r\n\r\n"),
        (
            205,
            OLD,
            Chunked,
            "hi",
            "Content-Length: 0\r\nConnection: keep-alive\r\n\r\n",
        ),
        (
            205,
            PLAIN,
            UntilClose,
            "hi",
            "Content-Length: 0\r\nConnection: close\r\n\r\n",
        ),
        (205, HEAD, Length(2), "hi", "Content-Length: 0\r\n\r\n"),
        (204, PLAIN, None, "", "\r\n"),
        (100, PLAIN, None, "", "\r\n"),
    ]);
}

#[test]
fn responses_that_would_lie_are_refused() {
    let tunnel = Exchange {
        method: AnswerTo::Connect,
        ..PLAIN
    };
    let cases = [
        (204, PLAIN, Framing::Length(0), "", Misuse::BodyForbidden),
        (103, PLAIN, Framing::Chunked, "", Misuse::BodyForbidden),
        (200, tunnel, Framing::Length(0), "", Misuse::BodyForbidden),
        (200, PLAIN, BEYOND, "", Misuse::LengthTooLarge),
        (200, HEAD, BEYOND, "", Misuse::LengthTooLarge),
        (304, PLAIN, BEYOND, "", Misuse::LengthTooLarge),
        (101, PLAIN, Framing::None, "", Misuse::Status),
        (99, PLAIN, Framing::None, "", Misuse::Status),
        (1000, PLAIN, Framing::None, "", Misuse::Status),
        (200, OLD, Framing::Chunked, "", Misuse::ChunkedToOldPeer),
        (
            200,
            PLAIN,
            Framing::Length(1),
            "hi",
            Misuse::BodyTooLong { left: 1 },
        ),
        (
            200,
            PLAIN,
            Framing::Length(3),
            "hi",
            Misuse::BodyTooShort { left: 1 },
        ),
        (200, PLAIN, Framing::None, "hi", Misuse::BodyTooLong { left: 0 }),
        (204, PLAIN, Framing::None, "hi", Misuse::BodyTooLong { left: 0 }),
        (
            200,
            HEAD,
            Framing::Length(1),
            "hi",
            Misuse::BodyTooLong { left: 1 },
        ),
    ];
    for (status, exchange, framing, body, expected) in cases {
        assert_eq!(
            response(status, exchange, framing, body),
            Err(expected),
            "{status} {framing:?}"
        );
        assert!(!expected.to_string().is_empty());
    }
}

#[test]
fn fields_that_would_split_or_reframe_are_refused() {
    let cases: &[(&str, &[u8], Misuse)] = &[
        ("", b"x", Misuse::FieldName),
        ("A B", b"x", Misuse::FieldName),
        ("A:", b"x", Misuse::FieldName),
        ("A\r\nB", b"x", Misuse::FieldName),
        ("\u{e4}", b"x", Misuse::FieldName),
        ("A", b"x\r\nB: y", Misuse::FieldValue),
        ("A", b"x\n", Misuse::FieldValue),
        ("A", b"\r", Misuse::FieldValue),
        ("A", b"x\0y", Misuse::FieldValue),
        ("A", b"\x7f", Misuse::FieldValue),
        ("Content-Length", b"5", Misuse::FramingField),
        ("content-length", b"5", Misuse::FramingField),
        ("Content_Length", b"5", Misuse::FramingField),
        ("Transfer-Encoding", b"chunked", Misuse::FramingField),
        ("transfer_encoding", b"chunked", Misuse::FramingField),
        ("Transfer.Encoding", b"chunked", Misuse::FramingField),
        ("Connection", b"close", Misuse::FramingField),
        ("Upgrade", b"x", Misuse::FramingField),
        ("Host", b"x", Misuse::FramingField),
    ];
    for (name, value, expected) in cases {
        let mut out = b"before".to_vec();
        let mut head = ResponseEncoder::new(&mut out, 200, PLAIN).expect("200 is a status");
        assert_eq!(head.field(name, value), Err(*expected), "{name:?}");
        assert_eq!(FieldBlock::new().push(name, value), Err(*expected), "{name:?}");
        drop(head);
        assert_eq!(out, b"before", "an unfinished head takes its bytes back");
        let mut head = RequestEncoder::new(&mut out, Method::Get, "/", "a").expect("a request");
        assert_eq!(head.field(name, value), Err(*expected), "{name:?}");
        drop(head);
        assert_eq!(out, b"before");
    }
}

#[test]
fn requests_that_would_split_are_refused() {
    let new = |method, target, host| RequestEncoder::new(&mut Vec::new(), method, target, host).err();
    assert_eq!(new(Method::Get, "/", "a:80"), None);
    assert_eq!(new(Method::Options, "*", "a"), None);
    assert_eq!(new(Method::Connect, "a:80", "a:80"), None);
    assert_eq!(new(Method::Other("A B"), "/", "a"), Some(Misuse::Method));
    assert_eq!(new(Method::Other(""), "/", "a"), Some(Misuse::Method));
    for target in ["", "a", "*", "/ HTTP/1.1\r\n", "/a b", "/#", "/\u{e4}"] {
        assert_eq!(new(Method::Get, target, "a"), Some(Misuse::Target), "{target:?}");
    }
    for host in ["", "a\r\nX: y", "u@a", "a/b", "a b"] {
        assert_eq!(new(Method::Get, "/", host), Some(Misuse::Host), "{host:?}");
    }
    let mut out = Vec::new();
    let head = RequestEncoder::new(&mut out, Method::Get, "/", "a").expect("a request");
    assert_eq!(
        head.finish(Framing::UntilClose, true).err(),
        Some(Misuse::RequestUntilClose)
    );
    assert!(out.is_empty());
}

#[test]
fn requests_with_a_body_that_no_server_takes_are_refused() {
    // By its name and by the way that is for other methods: the server sees the same.
    for method in [Method::Connect, Method::Other("CONNECT")] {
        let mut out = Vec::new();
        assert_eq!(
            RequestEncoder::new(&mut out, method, "/", "a").err(),
            Some(Misuse::Target)
        );
        for framing in [Framing::Length(0), Framing::Length(1), Framing::Chunked] {
            let head = RequestEncoder::new(&mut out, method, "a:80", "a:80").expect("a request");
            let refused = head.finish(framing, true).err();
            assert_eq!(refused, Some(Misuse::BodyForbidden), "{framing:?}");
        }
        assert!(out.is_empty());
    }
    let mut out = Vec::new();
    let head = RequestEncoder::new(&mut out, Method::Put, "/", "a").expect("a request");
    assert_eq!(head.finish(BEYOND, true).err(), Some(Misuse::LengthTooLarge));
    assert!(out.is_empty());

    let head = RequestEncoder::new(&mut out, Method::Put, "/", "a").expect("a request");
    let mut body = head.finish(Framing::Chunked, true).expect("a body may follow");
    let before = out.len();
    assert_eq!(body.begin(&mut out, 1 << 63), Err(Misuse::LengthTooLarge));
    assert_eq!(out.len(), before);
    assert_eq!(body.begin(&mut out, (1 << 63) - 1), Ok(true));
    assert!(out.ends_with(b"\r\n7fffffffffffffff\r\n"));
}

#[test]
fn a_length_to_come_is_filled_or_rolled_back() {
    let write = |exchange, body: &[u8]| {
        let mut out = b"before".to_vec();
        let mut head = ResponseEncoder::new(&mut out, 200, exchange).expect("200 is a status");
        head.field("A", b"b").expect("a field");
        let slot = head.finish_with_length_to_come().expect("a body may follow");
        out.extend_from_slice(body);
        slot.fill(&mut out);
        out.split_off(6)
    };
    for body in [b"".as_slice(), b"x", &[b'y'; 1234]] {
        let seen = events(
            Role::Client(Method::Get),
            &Limits::default(),
            &write(PLAIN, body),
            &[],
        );
        let data: Vec<u8> = seen
            .iter()
            .flat_map(|event| {
                if let Event::Data(data) = event {
                    &data[..]
                } else {
                    &[]
                }
            })
            .copied()
            .collect();
        assert_eq!(data, body);
        assert_eq!(seen.last(), Some(&Event::End));
    }
    let head = write(HEAD, b"hello");
    assert!(
        text(&head).contains(" 5\r\n") && text(&head).ends_with("\r\n\r\n"),
        "{}",
        text(&head)
    );

    let mut out = b"before".to_vec();
    let head = ResponseEncoder::new(&mut out, 200, PLAIN).expect("200 is a status");
    let slot = head.finish_with_length_to_come().expect("a body may follow");
    out.extend_from_slice(b"half a bo");
    slot.roll_back(&mut out);
    assert_eq!(out, b"before");
    let head = ResponseEncoder::new(&mut out, 204, PLAIN).expect("204 is a status");
    assert_eq!(
        head.finish_with_length_to_come().err(),
        Some(Misuse::BodyForbidden)
    );
    assert_eq!(out, b"before");
}

#[test]
fn switching_protocols() {
    let mut out = Vec::new();
    let head = ResponseEncoder::new(&mut out, 101, PLAIN).expect("101 is a status");
    head.switch(b"websocket").expect("a protocol");
    assert_eq!(
        text(&out),
        "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n"
    );
    let head = ResponseEncoder::new(&mut out, 101, PLAIN).expect("101 is a status");
    assert_eq!(head.switch(b"a\r\nb").err(), Some(Misuse::FieldValue));
    let head = ResponseEncoder::new(&mut out, 200, PLAIN).expect("200 is a status");
    assert_eq!(head.switch(b"a").err(), Some(Misuse::Status));

    let mut out = Vec::new();
    let head = RequestEncoder::new(&mut out, Method::Get, "/", "a").expect("a request");
    let _ = head
        .finish_with_upgrade(Framing::None, b"websocket")
        .expect("a protocol");
    assert_eq!(
        with_request(&out, |head, _| head.upgrade.map(<[u8]>::to_vec)),
        Some(b"websocket".to_vec())
    );
}

#[test]
fn a_body_ends_once_and_trailers_need_chunks() {
    let chunked = |out: &mut Vec<u8>| ResponseEncoder::new(out, 200, PLAIN)?.finish(Framing::Chunked);
    let mut trailers = FieldBlock::new();
    trailers.push("Sum", b"1").expect("a field");
    let mut out = Vec::new();
    let mut body = chunked(&mut out).expect("a head");
    body.data(&mut out, b"").expect("empty data writes nothing");
    assert_eq!(body.begin(&mut out, 300), Ok(true));
    out.extend_from_slice(&[b'x'; 300]);
    body.end(&mut out);
    body.finish_with_trailers(&mut out, &trailers).expect("chunked");
    assert_eq!(body.finish(&mut out), Err(Misuse::BodyOver));
    assert_eq!(body.data(&mut out, b"x"), Err(Misuse::BodyOver));
    let seen = events(Role::Client(Method::Get), &Limits::default(), &out, &[]);
    assert_eq!(
        &seen[1..],
        [
            Event::Data(vec![b'x'; 300]),
            Event::Trailers(vec![("Sum".to_owned(), "1".to_owned())]),
            Event::End
        ]
    );
    let head = ResponseEncoder::new(&mut out, 200, PLAIN).expect("200 is a status");
    let mut body = head.finish(Framing::None).expect("a head");
    assert_eq!(
        body.finish_with_trailers(&mut Vec::new(), &trailers),
        Err(Misuse::TrailersWithoutChunks)
    );
}

/// Writes `body` in pieces of random length and ends it.
fn write_body(rng: &mut Rng, encoder: &mut BodyEncoder, out: &mut Vec<u8>, mut body: &[u8]) {
    while !body.is_empty() {
        let (piece, rest) = body.split_at(1 + rng.below(body.len()));
        encoder.data(out, piece).expect("as declared");
        body = rest;
    }
    encoder.finish(out).expect("as declared");
}

/// A body's framing of a random kind that suits it.
fn random_framing(rng: &mut Rng, body: &[u8], kinds: usize) -> Framing {
    match rng.below(kinds) {
        0 => Framing::Length(body.len() as u64),
        1 => Framing::Chunked,
        _ => Framing::UntilClose,
    }
}

fn random_fields(rng: &mut Rng) -> Vec<(String, Vec<u8>)> {
    let names = [
        "Accept",
        "X-A",
        "cookie",
        "Set-Cookie",
        "Content-Type",
        "Content-Lengths",
        "!#$%&'*+-.^_`|~",
    ];
    let bytes = b"az09 \t,;=\"\x80\xff:/";
    let value = |rng: &mut Rng| -> Vec<u8> {
        let value: Vec<u8> = (0..rng.below(30))
            .map(|_| bytes[rng.below(bytes.len())])
            .collect();
        value.trim_ascii().to_vec()
    };
    (0..rng.below(8))
        .map(|_| (names[rng.below(names.len())].to_owned(), value(rng)))
        .collect()
}

#[test]
fn requests_round_trip() {
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let methods = [
            Method::Get,
            Method::Post,
            Method::Head,
            Method::Options,
            Method::Other("M-SEARCH"),
        ];
        let method = methods[rng.below(methods.len())];
        let target = ["/", "/a/b?c=d", "http://x:1/y?z", "/%20|{}"][rng.below(4)];
        let body: Vec<u8> = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
        let fields = random_fields(&mut rng);
        let framing = random_framing(&mut rng, &body, 2);
        let keep_alive = rng.below(2) == 0;

        let mut out = Vec::new();
        let mut head = RequestEncoder::new(&mut out, method, target, "host:1").expect("valid");
        fields
            .iter()
            .for_each(|(name, value)| head.field(name, value).expect("valid"));
        let mut encoder = head.finish(framing, keep_alive).expect("valid");
        write_body(&mut rng, &mut encoder, &mut out, &body);

        with_request(&out, |head, _| {
            assert_eq!((head.method, head.target_text), (method, target), "seed {seed}");
            assert_eq!(
                (head.framing, head.keep_alive),
                (framing, keep_alive),
                "seed {seed}"
            );
            assert_eq!(
                head.fields.known(ringmain_wire::h1::Known::Host),
                Some(&b"host:1"[..])
            );
            let seen = head.fields.iter().skip(1).take(fields.len());
            assert!(
                seen.map(|f| (f.name, f.value))
                    .eq(fields.iter().map(|(n, v)| (n.as_bytes(), &v[..]))),
                "seed {seed}"
            );
        });
        check_body(seed, Role::Server, &out, &body);
    }
}

#[test]
fn responses_round_trip() {
    for seed in 0..3000 {
        let mut rng = Rng(seed);
        let status = [200, 201, 206, 299, 404, 503, 999][rng.below(7)];
        let body: Vec<u8> = (0..rng.below(60)).map(|_| rng.next() as u8).collect();
        let framing = random_framing(&mut rng, &body, 3);
        let mut out = Vec::new();
        let mut head = ResponseEncoder::new(&mut out, status, PLAIN).expect("valid");
        random_fields(&mut rng)
            .iter()
            .for_each(|(name, value)| head.field(name, value).expect("valid"));
        let mut encoder = head.finish(framing).expect("valid");
        write_body(&mut rng, &mut encoder, &mut out, &body);
        check_body(seed, Role::Client(Method::Get), &out, &body);
    }
}

fn check_body(seed: u64, role: Role<'_>, out: &[u8], body: &[u8]) {
    let seen = events(role, &Limits::default(), out, &[]);
    let data = if body.is_empty() {
        None
    } else {
        Some(Event::Data(body.to_vec()))
    };
    let expected: Vec<Event> = data.into_iter().chain([Event::End]).collect();
    assert_eq!(&seen[1..], expected, "seed {seed}: `{}`", out.escape_ascii());
}
