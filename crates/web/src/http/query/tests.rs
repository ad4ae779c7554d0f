//! Queries and forms: their content, and the messages about rejected ones.

use std::collections::BTreeMap;

use super::*;

fn pairs(raw: &str) -> Vec<(String, String)> {
    let query = Query::new(raw).unwrap_or_else(|error| panic!("`{raw}`: {error}"));
    query
        .iter()
        .map(|(name, value)| (name.into_owned(), value.into_owned()))
        .collect()
}

fn refused(raw: &[u8]) -> String {
    let error = Query::checked(raw, PairSource::Query).expect_err("refused");
    assert_eq!(error.status(), 400);
    error.detail().to_owned()
}

#[test]
fn pairs_are_decoded_in_their_order() {
    let table: [(&str, &[(&str, &str)]); 10] = [
        ("", &[]),
        ("&&", &[]),
        ("a=1&b=2", &[("a", "1"), ("b", "2")]),
        ("a=1&&b=2&", &[("a", "1"), ("b", "2")]),
        ("a", &[("a", "")]),
        ("=", &[("", "")]),
        ("a=b=c", &[("a", "b=c")]),
        ("a+b=c%20d%2B+", &[("a b", "c d+ ")]),
        ("%C3%A9=%e2%82%AC", &[("é", "€")]),
        ("a=%26%3D%25", &[("a", "&=%")]),
    ];
    for (raw, expected) in table {
        let found = pairs(raw);
        let found: Vec<(&str, &str)> = found
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        assert_eq!(found, expected, "{raw}");
    }
}

#[test]
fn a_plain_value_is_borrowed() {
    let query = Query::new("a=plain&b=es+caped&%61=again").unwrap();
    assert!(matches!(query.get("a"), Some(Cow::Borrowed("plain"))));
    assert_eq!(query.get("b").as_deref(), Some("es caped"));
    assert_eq!(query.get("c"), None);
    let all: Vec<_> = query.all("a").collect();
    assert_eq!(all, ["plain", "again"]);
}

#[test]
fn invalid_escapes_and_text_are_rejected_with_their_position() {
    let table: [(&[u8], &str); 7] = [
        (
            b"a=1&b=2%zz",
            "query parameter 2: expected two hexadecimal digits after `%` (byte 8 of the input)",
        ),
        (
            b"a%",
            "query parameter 1: expected two hexadecimal digits after `%` (byte 2 of the input)",
        ),
        (
            b"a=%4",
            "query parameter 1: expected two hexadecimal digits after `%` (byte 3 of the input)",
        ),
        (
            b"a=%4&1=b",
            "query parameter 1: expected two hexadecimal digits after `%` (byte 3 of the input)",
        ),
        (
            b"a=1&%+1=b",
            "query parameter 2: expected two hexadecimal digits after `%` (byte 5 of the input)",
        ),
        (
            b"a=1&b=x%ff",
            "query parameter 2: expected percent-encoded UTF-8 (byte 7 of the input)",
        ),
        // A character may not be cut by the end of a value.
        (
            b"%c3=%a9",
            "query parameter 1: expected percent-encoded UTF-8 (byte 1 of the input)",
        ),
    ];
    for (raw, expected) in table {
        assert_eq!(refused(raw), expected, "{}", raw.escape_ascii());
    }
    let pairs = vec!["a=b"; limits::QUERY_PAIRS].join("&");
    assert_eq!(Query::new(&pairs).unwrap().iter().count(), limits::QUERY_PAIRS);
    let pairs = format!("{pairs}&c");
    assert_eq!(
        refused(pairs.as_bytes()),
        "expected at most 1000 query parameters, found 1001"
    );
}

/// Every string of a small alphabet, against the library's decoding: where ours takes it, both read the same.
#[test]
fn it_reads_as_the_library_does() {
    let alphabet = [b'a', b'&', b'=', b'%', b'+', b'4', 0xC3, 0xA9];
    for number in 0..alphabet.len().pow(5) {
        let raw: Vec<u8> = (0..5)
            .map(|place| alphabet[number / alphabet.len().pow(place) % alphabet.len()])
            .collect();
        if let Ok(query) = Query::checked(&raw, PairSource::Form) {
            let ours: Vec<_> = query
                .iter()
                .map(|(a, b)| (a.into_owned(), b.into_owned()))
                .collect();
            let theirs: Vec<(String, String)> = serde_html_form::from_bytes(&raw).expect("pairs of text");
            assert_eq!(ours, theirs, "{}", raw.escape_ascii());
        } else {
            assert!(
                raw.contains(&b'%') || str::from_utf8(&raw).is_err(),
                "{}",
                raw.escape_ascii()
            );
        }
    }
}

#[test]
fn one_value_as_a_type() {
    let query = Query::new("page=7&size=x%22y&twice=1&twice=2&none=").unwrap();
    assert_eq!(query.parse::<u32>("page").unwrap(), Some(7));
    assert_eq!(query.parse::<u32>("absent").unwrap(), None);
    let message = |name| query.parse::<u32>(name).unwrap_err().detail().to_owned();
    assert_eq!(
        message("size"),
        "query parameter `size`: expected an integer from 0 to 4294967295, found `x\"y`"
    );
    assert_eq!(
        message("twice"),
        "query parameter `twice`: expected it once, found it 2 times"
    );
    assert_eq!(
        message("none"),
        "query parameter `none`: expected an integer from 0 to 4294967295, found ``"
    );
}

#[derive(Debug, Deserialize, PartialEq)]
struct Search<'a> {
    text: Cow<'a, str>,
    #[serde(default)]
    tags: Vec<String>,
    page: Option<u32>,
    #[serde(default)]
    exact: bool,
}

#[test]
fn all_pairs_as_a_type() {
    let query = Query::new("text=a+b&tags=x&tags=y&exact=true&other=1").unwrap();
    let search: Search<'_> = query.read().unwrap();
    assert_eq!(
        search,
        Search {
            text: "a b".into(),
            tags: vec!["x".into(), "y".into()],
            page: None,
            exact: true
        }
    );
    let map: BTreeMap<String, String> = Query::new("a=1&b=2").unwrap().read().unwrap();
    assert_eq!(map.len(), 2);
    let table = [
        ("", "query parameter: missing field `text`"),
        (
            "text=a&page=-1",
            "query parameter `page`: expected an integer from 0 to 4294967295, found `-1`",
        ),
        (
            "text=a&page=1&page=2",
            "query parameter `page`: expected it once, found it 2 times",
        ),
        (
            "text=a&exact=yes",
            "query parameter `exact`: expected `true`, `on` or `false`, found `yes`",
        ),
        // An option that is empty is none: the next one is wrong.
        (
            "page=&exact=1&text=a",
            "query parameter `exact`: expected `true`, `on` or `false`, found `1`",
        ),
    ];
    for (raw, expected) in table {
        let error = Query::new(raw).unwrap().read::<Search<'_>>().unwrap_err();
        assert_eq!((error.status(), error.detail()), (400, expected), "{raw}");
    }
}

/// None of Rust's words reach a client, whatever the type.
#[test]
fn errors_name_the_expected_type_in_plain_words() {
    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum FormOrder {
        Up,
        Down,
    }
    #[derive(Debug, Default, Deserialize)]
    #[serde(default)]
    struct All {
        byte: u8,
        signed: i64,
        ratio: f32,
        nonzero: Option<std::num::NonZeroU16>,
        letter: Option<char>,
        many: Vec<u32>,
        order: Option<FormOrder>,
    }
    for (raw, expected) in [
        (
            "byte=256",
            "`byte`: expected an integer from 0 to 255, found `256`",
        ),
        (
            "signed=1.5",
            "`signed`: expected an integer from -9223372036854775808 to 9223372036854775807, found `1.5`",
        ),
        ("ratio=x", "`ratio`: expected a number, found `x`"),
        (
            "nonzero=0",
            "`nonzero`: expected an integer from 1 to 65535, found the number 0",
        ),
        ("letter=ab", "`letter`: expected a character, found a string"),
        (
            "many=1&many=x",
            "`many[1]`: expected an integer from 0 to 4294967295, found `x`",
        ),
        (
            "order=left",
            "`order`: unknown variant `left`, expected `up` or `down`",
        ),
    ] {
        let error = Query::new(raw).unwrap().read::<All>().unwrap_err();
        assert_eq!(error.detail(), format!("query parameter {expected}"), "{raw}");
    }
    assert!(matches!(
        Query::new("order=up").unwrap().read::<All>().unwrap().order,
        Some(FormOrder::Up | FormOrder::Down)
    ));
}

#[test]
fn a_form_needs_its_content_type() {
    let form = b"name=J%C3%BCrgen&text=a%0D%0Ab";
    for content_type in [
        "application/x-www-form-urlencoded",
        "Application/X-WWW-Form-Urlencoded; charset=UTF-8",
    ] {
        let fields = Query::form(Some(content_type.as_bytes()), form).unwrap();
        assert_eq!(fields.get("name").as_deref(), Some("Jürgen"));
        assert_eq!(fields.get("text").as_deref(), Some("a\r\nb"));
    }
    let table: [(Option<&[u8]>, &str); 3] = [
        (
            None,
            "expected the content type `application/x-www-form-urlencoded`, found none",
        ),
        (
            Some(b"text/plain"),
            "expected the content type `application/x-www-form-urlencoded`, found `text/plain`",
        ),
        (
            Some(b"a\xff"),
            "expected the content type `application/x-www-form-urlencoded`, found `a\\xff`",
        ),
    ];
    for (content_type, expected) in table {
        let error = Query::form(content_type, form).unwrap_err();
        assert_eq!((error.status(), error.detail()), (415, expected));
    }
    let error = Query::form(Some(media_type::FORM.as_bytes()), b"a=\xff").unwrap_err();
    assert_eq!(
        error.detail(),
        "form field 1: expected percent-encoded UTF-8 (byte 3 of the input)"
    );
}

#[test]
fn it_shows_its_pairs() {
    let query = Query::new("a=1&b=%22").unwrap();
    assert_eq!(format!("{query:?}"), r#"{"a": "1", "b": "\""}"#);
}
