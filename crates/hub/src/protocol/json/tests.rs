//! The validator, compared with `serde_json` over random tokens and over corrupted values.

use serde_json::value::RawValue;

use super::value;

/// Compares the result with that of `serde_json`.
#[track_caller]
fn check(bytes: &[u8]) {
    let known = serde_json::from_slice::<&RawValue>(bytes).ok().map(RawValue::get);
    assert_eq!(value(bytes), known, "{}", String::from_utf8_lossy(bytes));
}

const PIECES: [&str; 34] = [
    "{", "}", "[", "]", ",", ":", "\"", "\"a\"", "\"a\":", "\\", "\\u00e9", "\\ud800", "\\u00g0", "\\n", "é",
    "\u{1}", " ", "\n", "\t", "0", "-", "1", "12", ".", ".5", "e", "E+", "e-3", "true", "false", "null",
    "nul", "01", "\u{b}",
];

#[test]
fn validity_equals_that_of_serde_json() {
    for seed in 0..200 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        for _ in 0..1000 {
            let count = random.usize(0..12);
            let text: String = (0..count).map(|_| PIECES[random.usize(..PIECES.len())]).collect();
            check(text.as_bytes());
        }
    }
}

/// Valid values, and each of these truncated, or with a byte changed or removed.
#[test]
fn corrupted_values_are_judged_like_serde_json() {
    for text in [
        r#" {"a":[1,-2.5e+10,{"b":{}},[]],"c":"x\u00e9\"\\","d":[true,false,null]} "#,
        r#"[[[[{"a":{"b":[0,0.1,1e5]}}]]],"",{}]"#,
        "-0.0E-7\n",
    ] {
        let bytes = text.as_bytes();
        assert_eq!(value(bytes), Some(text.trim()));
        for at in 0..bytes.len() {
            check(&bytes[..at]);
            check(&[&bytes[..at], &bytes[at + 1..]].concat());
            for other in [
                b'"', b'\\', b'{', b']', b',', b':', b'0', b'.', b'e', b' ', 0, 0x1f, 0x7f, 0xff,
            ] {
                let mut changed = bytes.to_vec();
                changed[at] = other;
                check(&changed);
            }
        }
    }
}

#[test]
fn any_depth_is_supported() {
    for depth in [1, 2, 127, 128, 129, 130, 5000] {
        for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
            let text = format!("{}0{}", open.repeat(depth), close.repeat(depth));
            assert_eq!(value(text.as_bytes()), Some(&*text));
            assert_eq!(value(&text.as_bytes()[..text.len() - 1]), None);
            assert_eq!(value(format!("{text}{close}").as_bytes()), None);
        }
        let mixed = format!("{}{{}}{}", "[{\"a\":".repeat(depth), "}]".repeat(depth));
        assert_eq!(value(mixed.as_bytes()), Some(&*mixed));
    }
}
