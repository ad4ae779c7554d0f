//! Values of YAML files, alone and compared with another parser.

use serde_json::Value as Json;

use super::compose::key_name;
use super::{YamlNode, YamlValue, parse};
use crate::config::error::{Diagnostics, FilePosition};

/// In place of a key that is no text, which JSON cannot have.
const NO_NAME: &str = "\0";

/// Returns the values, or the first error.
fn values(text: &str) -> Result<Json, String> {
    let errors = Diagnostics::new("f");
    match parse(text, &errors) {
        Some(node) => Ok(json(&node)),
        None => Err(errors.finish().0.remove(0).to_string()),
    }
}

/// Numbers as numbers, so that they can be compared with another reader's.
fn json(node: &YamlNode<'_>) -> Json {
    match &node.value {
        YamlValue::Null => Json::Null,
        YamlValue::Bool(value) => (*value).into(),
        YamlValue::Text(text) if node.is_number() => number(text),
        YamlValue::Text(text) => (**text).into(),
        YamlValue::List(list) => list.iter().map(json).collect(),
        YamlValue::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| (key_name(key).unwrap_or(NO_NAME).to_owned(), json(value)))
            .collect(),
    }
}

fn number(text: &str) -> Json {
    let radix = |prefix, radix| u64::from_str_radix(text.strip_prefix(prefix)?, radix).ok();
    match radix("0x", 16).or_else(|| radix("0o", 8)) {
        Some(whole) => (whole as f64).into(),
        None => text.parse::<f64>().map_or_else(|_| text.into(), Json::from),
    }
}

#[track_caller]
fn told(text: &str, expected: &str) {
    assert_eq!(values(text), Err(format!("f:{expected}")), "{text}");
}

#[test]
fn values_and_their_places() {
    let errors = Diagnostics::new("f");
    let text = "a: 1.10\n'b ü': [x, \"y\\n\", ~]\nc:\n  - |\n    z\n";
    let node = parse(text, &errors).unwrap();
    let YamlValue::Map(pairs) = &node.value else {
        panic!("{node:?}");
    };
    let at = |line, column| FilePosition { line, column };
    let places: Vec<_> = pairs
        .iter()
        .map(|(key, value)| (key.position, value.position))
        .collect();
    assert_eq!(
        places,
        [(at(1, 1), at(1, 4)), (at(2, 1), at(2, 8)), (at(3, 1), at(4, 3))]
    );
    assert!(matches!(&pairs[0].1.value, YamlValue::Text(text) if text == "1.10"));
    assert!(pairs[0].1.is_number());
    let expected = serde_json::json!({"a": 1.1, "b ü": ["x", "y\n", null], "c": ["z\n"]});
    assert_eq!(json(&node), expected);
}

#[test]
fn tags_of_the_core_schema_and_no_others() {
    let expected = serde_json::json!({"a": "1", "b": "true", "c": 1.0, "d": {"x": []}});
    assert_eq!(
        values("a: !!str 1\nb: ! true\nc: !!float 1\nd: !!map {x: !!seq []}\n"),
        Ok(expected)
    );
    told(
        "a: !!int x\n",
        "1:10: expected a value of its tag `!!int`, found `x`",
    );
    told(
        "a: !!map []\n",
        "1:10: expected the tag `!!seq`, or none, found `!!map`",
    );
    told(
        "a: !secret x\n",
        "1:12: expected no tag, or one of `!!str`, `!!int`, `!!float`, `!!bool`, `!!null`, `!!seq`, `!!map`, found `!secret`",
    );
}

#[test]
fn merge_keys_add_missing_keys() {
    let text = "a: &a {x: 1, y: 1}\nb: &b {y: 2, z: 2}\nc: {<<: [*a, *b], x: 3}\nd: {'<<': 1}\n";
    let read = values(text).unwrap();
    assert_eq!(read["c"], serde_json::json!({"x": 3.0, "y": 1.0, "z": 2.0}));
    assert_eq!(read["d"], serde_json::json!({"<<": 1.0}));
    told(
        "a: {<<: [1]}\n",
        "1:10: expected a map, or a list of maps, after `<<`, found a string",
    );
    told(
        "a: {<<: {}, <<: {}}\n",
        "1:13: expected each key once, found `<<` a second time",
    );
}

#[test]
fn keys_are_there_once() {
    told(
        "a: {b: 1, c: 2, b: 3}\n",
        "1:17: expected each key once, found `b` a second time",
    );
    let many: String = (0..100).map(|number| format!("k{number}: 1\n")).collect();
    told(
        &format!("{many}k50: 2\n"),
        "101:1: expected each key once, found `k50` a second time",
    );
    told(
        "1: a\n'1': b\n",
        "2:1: expected each key once, found `1` a second time",
    );
}

#[test]
fn aliases_need_a_complete_value() {
    told(
        "a: *b\n",
        "1:4: expected an alias of an anchor further up, found another one",
    );
    told(
        "a: &a [*a]\n",
        "1:8: expected an alias of a value that ends further up, found one that contains it",
    );
}

#[test]
fn aliases_cannot_make_a_small_file_large() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let aliases = vec![format!("*a{}", level - 1); 10].join(", ");
        text += &format!("a{level}: &a{level} [{aliases}]\n");
    }
    let told = values(&text).unwrap_err();
    assert!(
        told.contains("expected aliases of at most 100000 values"),
        "{told}"
    );

    let long = "x".repeat(1 << 20);
    let text = format!("a: &a \"{long}\"\nb: [{}]\n", vec!["*a"; 40].join(", "));
    let told = values(&text).unwrap_err();
    assert!(
        told.contains("expected aliases of at most 33554432 bytes"),
        "{told}"
    );
}

#[test]
fn nesting_depth_is_limited() {
    let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
    assert!(values(&nested(64)).is_ok());
    told(
        &nested(65),
        "1:65: expected values nested at most 64 deep, found deeper ones",
    );
    let block: String = (0..70)
        .map(|depth| format!("{}a:\n", " ".repeat(depth)))
        .collect();
    assert!(values(&block).unwrap_err().contains("nested at most 64 deep"));
    let aliased = format!(
        "a: &a {}\nb: &b [{}]\n",
        nested(60),
        "[".repeat(5) + "*a" + &"]".repeat(5)
    );
    assert!(values(&aliased).unwrap_err().contains("nested at most 64 deep"));
    assert!(values(&"[".repeat(100_000)).is_err());
    assert!(values(&"- ".repeat(100_000)).is_err());
    assert!(values(&"? ".repeat(100_000)).is_err());
}

/// Returns the values of the other parser; `None`: it rejects the text.
fn twin(text: &str) -> Option<Json> {
    let options = serde_saphyr::options! {
        duplicate_keys: serde_saphyr::options::DuplicateKeyPolicy::Error,
        merge_keys: serde_saphyr::options::MergeKeyPolicy::Merge,
        strict_booleans: true,
        with_snippet: false,
    };
    let value = serde_saphyr::from_str_with_options::<Json>(text, options).ok()?;
    Some(with_floats(value))
}

fn with_floats(value: Json) -> Json {
    match value {
        Json::Number(number) => number.as_f64().into(),
        Json::Array(list) => list.into_iter().map(with_floats).collect(),
        Json::Object(map) => map
            .into_iter()
            .map(|(key, value)| (key, with_floats(value)))
            .collect(),
        other => other,
    }
}

#[test]
fn another_reader_reads_the_same() {
    let seed = 20_261_123;
    println!("seed {seed}");
    let mut random = fastrand::Rng::with_seed(seed);
    let pieces = [
        "a",
        "b",
        "c",
        ": ",
        ":\n  ",
        "\n",
        "\n  ",
        "\n- ",
        "- ",
        "[",
        "]",
        "{",
        "}",
        ", ",
        "'x y'",
        "\"z\\t\"",
        "1",
        "-2.5",
        "0x1f",
        "true",
        "null",
        "~",
        "# c\n",
        "| \n  t\n",
        "> \n  t\n",
        "&a ",
        "*a",
        "<<: ",
        "*a\n",
        "? ",
        "---\n",
        "...\n",
        "!!str ",
    ];
    let (mut both, mut neither) = (0, 0);
    for _ in 0..40_000 {
        let count = random.usize(1..14);
        let text: String = (0..count).map(|_| pieces[random.usize(..pieces.len())]).collect();
        match (values(&text), twin(&text)) {
            (Ok(ours), Some(theirs)) => {
                assert_eq!(ours, theirs, "{text:?}");
                both += 1;
            }
            (Err(_), None) => neither += 1,
            // Duplicates are reported by the reader of names, with their position.
            (Ok(ours), None) if ours.to_string().contains(r"\u0000") => {}
            // A merge key without a value is a slip, and so are lists in its list.
            (Err(error), Some(_)) if error.contains("after `<<`, found ") => {}
            (ours, theirs) => panic!("{text:?}: here {ours:?}, there {theirs:?}"),
        }
    }
    println!("{both} read alike, {neither} refused by both");
    assert!(both > 1000 && neither > 1000, "{both} {neither}");
}
