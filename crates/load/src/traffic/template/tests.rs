//! Tokens one by one: what is taken for one, what it gives, and what becomes of a hostile value.

use super::*;

fn names() -> Names {
    vec!["token".to_owned(), "id".to_owned()]
}

fn expanded(token: Token, place: Place, value: &[u8]) -> String {
    let mut values = Values::default();
    assert!(values.set(0, value));
    let mut out = Vec::new();
    let mut random = fastrand::Rng::with_seed(5);
    Piece::Hole(token, place).write(&mut out, &values, &mut random, &mut Sequence::new(4, 8));
    out.escape_ascii().to_string()
}

#[test]
fn texts_are_cut_at_tokens() {
    let text = |text: &str| Span::Text(text.to_owned());
    let value = |slot| Span::Token(Token::Value { slot });
    let cases = [
        ("", vec![]),
        ("plain { } }} text", vec![text("plain { } }} text")]),
        ("{{seq}}", vec![Span::Token(Token::Sequence)]),
        (
            "a{{ uuid }}b",
            vec![text("a"), Span::Token(Token::Uuid), text("b")],
        ),
        ("{{value:id}}{{value: token }}", vec![value(1), value(0)]),
        ("{{{{seq}}", vec![text("{{seq}}")]),
        ("{{{{{{{{", vec![text("{{{{")]),
        ("a{{{{{{seq}}", vec![text("a{{"), Span::Token(Token::Sequence)]),
        (
            "{{random:0..0}}",
            vec![Span::Token(Token::Random { first: 0, last: 0 })],
        ),
        ("{{random-hex:3}}", vec![Span::Token(Token::Hex { digits: 3 })]),
    ];
    for (input, expected) in cases {
        assert_eq!(parse(input, Part::Body, &names()), Ok(expected), "{input}");
    }
}

#[test]
fn what_is_no_token_is_told() {
    let range = "two whole numbers below 2^64, the smaller first, as in `{{random:1..1000}}`";
    let digits = "1 to 1024 digits, as in `{{random-hex:16}}`";
    let value = "a value that an earlier step of the flow captures: token, id";
    let end = "`}}` at the end of a token (`{{{{` is a literal `{{`)";
    let token = "one of the tokens `{{seq}}`, `{{random:1..1000}}`, `{{random-hex:16}}`, `{{uuid}}`, \
                 `{{value:NAME}}` (`{{{{` is a literal `{{`)";
    let cases = [
        ("{{sequence}}", token, "`{{sequence}}`"),
        ("{{}}", token, "`{{}}`"),
        ("{{seq:1}}", token, "`{{seq:1}}`"),
        ("{{{seq}}}", token, "`{{{seq}}`"),
        ("{{seq", end, "`{{seq`"),
        ("{{random}}", range, "`{{random}}`"),
        ("{{random:5..1}}", range, "`{{random:5..1}}`"),
        ("{{random:-5..1}}", range, "`{{random:-5..1}}`"),
        ("{{random:1..}}", range, "`{{random:1..}}`"),
        (
            "{{random:0..18446744073709551616}}",
            range,
            "`{{random:0..18446744073709551616}}`",
        ),
        ("{{random-hex:0}}", digits, "`{{random-hex:0}}`"),
        ("{{random-hex:1025}}", digits, "`{{random-hex:1025}}`"),
        ("{{value:other}}", value, "`{{value:other}}`"),
        ("{{value}}", value, "`{{value:}}`"),
    ];
    for (input, expected, found) in cases {
        let problem = parse(input, Part::Body, &names()).unwrap_err();
        assert_eq!(problem, Problem::new(Part::Body, expected, found), "{input}");
    }
}

#[test]
fn tokens_give_what_they_say() {
    assert_eq!(expanded(Token::Sequence, Place::Body, b""), "4");
    let random = Token::Random { first: 10, last: 12 };
    for _ in 0..100 {
        let number: u64 = expanded(random, Place::Body, b"").parse().unwrap();
        assert!((10..=12).contains(&number));
    }
    let whole = Token::Random {
        first: 0,
        last: u64::MAX,
    };
    assert!(expanded(whole, Place::Body, b"").parse::<u64>().is_ok());
    for digits in [1, 15, 16, 17, 32, 33] {
        let hex = expanded(Token::Hex { digits }, Place::Body, b"");
        assert!(
            hex.len() == digits && hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
            "{hex}"
        );
    }
    let uuid = expanded(Token::Uuid, Place::Body, b"");
    let groups: Vec<_> = uuid.split('-').map(str::len).collect();
    assert_eq!(groups, [8, 4, 4, 4, 12], "{uuid}");
    assert!(
        uuid.as_bytes()[14] == b'4' && b"89ab".contains(&uuid.as_bytes()[19]),
        "{uuid}"
    );
}

#[test]
fn both_ends_of_a_range_come() {
    let mut random = fastrand::Rng::with_seed(1);
    let hole = Piece::Hole(Token::Random { first: 8, last: 11 }, Place::Body);
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..200 {
        let mut out = Vec::new();
        hole.write(
            &mut out,
            &Values::default(),
            &mut random,
            &mut Sequence::new(0, 1),
        );
        seen.insert(out);
    }
    let all: Vec<_> = seen.iter().map(Vec::as_slice).collect();
    assert_eq!(all, [&b"10"[..], b"11", b"8", b"9"]);
}

#[test]
fn a_captured_value_cannot_end_what_it_stands_in() {
    let value = Token::Value { slot: 0 };
    let hostile = b"a\r\nX: y \"\\#%20&\xFF\x00";
    let cases = [
        (Place::Target, "a%0D%0AX:%20y%20\\\"\\\\%23%20&%FF%00"),
        (Place::Field, "aX: y \\\"\\\\#%20&\\xff"),
        (Place::Body, "a\\r\\nX: y \\\"\\\\#%20&\\xff\\x00"),
        (
            Place::Json,
            "a\\\\u000d\\\\u000aX: y \\\\\\\"\\\\\\\\#%20&\\xff\\\\u0000",
        ),
    ];
    for (place, expected) in cases {
        assert_eq!(expanded(value, place, hostile), expected, "{place:?}");
    }
}

#[test]
fn a_captured_location_is_a_target() {
    let value = Token::Value { slot: 0 };
    let cases: [(&[u8], &str); 9] = [
        (b"", "/"),
        (b"42", "/42"),
        (b"/a?b", "/a?b"),
        (b"?b", "/?b"),
        (b"http://other:81/a?b#c", "/a?b%23c"),
        (b"HTTPS://other", "/"),
        (b"https://other?q", "/?q"),
        (b"*", "/*"),
        (b"\xC3", "/%C3"),
    ];
    for (input, expected) in cases {
        assert_eq!(
            expanded(value, Place::TargetStart, input),
            expected,
            "{}",
            input.escape_ascii()
        );
    }
}

#[test]
fn lengths_are_within_what_is_announced() {
    let value = [0x01; limits::VALUE_BYTES];
    let tokens = [
        Token::Sequence,
        Token::Random {
            first: 0,
            last: u64::MAX,
        },
        Token::Random { first: 7, last: 7 },
        Token::Hex { digits: 31 },
        Token::Uuid,
        Token::Value { slot: 0 },
    ];
    for token in tokens {
        for place in [Place::Body, Place::Json] {
            let mut values = Values::default();
            assert!(values.set(0, &value));
            let mut out = Vec::new();
            let mut random = fastrand::Rng::with_seed(9);
            Piece::Hole(token, place).write(&mut out, &values, &mut random, &mut Sequence::new(0, 1));
            let (least, most) = token.bytes(place);
            assert!((least..=most).contains(&out.len()), "{token:?} in {place:?}");
        }
    }
}
