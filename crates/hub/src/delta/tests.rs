//! Deltas: the format, the round trip over random edits, and hostile deltas.

use std::sync::Arc;

use super::fossil::{apply, create};
use crate::limits::DELTA_BYTES;
use crate::protocol::Published;

/// Checks that a delta leads from one to the other, and returns its length; that of the target if there is none.
#[track_caller]
fn check(source: &[u8], target: &[u8]) -> usize {
    let Some(delta) = create(source, target) else {
        return target.len();
    };
    assert!(delta.len() < target.len());
    assert_eq!(apply(source, &delta, target.len()).as_deref(), Ok(target));
    if std::str::from_utf8(source).is_ok() && std::str::from_utf8(target).is_ok() {
        assert!(std::str::from_utf8(&delta).is_ok(), "a delta of texts is a text");
    }
    delta.len()
}

#[test]
fn a_delta_has_the_format_of_fossil() {
    let source = b"{\"index\":1,\"padding\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}";
    let target = b"{\"index\":2,\"padding\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}";
    let delta = create(source, target).expect("most of it is equal");
    assert_eq!(String::from_utf8_lossy(&delta), "t\n9@0,1:2j@A,3mRwyq;");
}

#[test]
fn a_delta_with_a_copy_and_an_insert_is_applied() {
    let source = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let delta = b"F\nA@0,5:ABCDE3Vtzvh;";
    let mut target = b"0123456789".to_vec();
    target.extend_from_slice(b"ABCDE");
    assert_eq!(apply(source, delta, 100), Ok(target));
}

#[test]
fn edits_of_a_state_are_short() {
    let state = |price: u32, time: u32| {
        let fields: String = (0..100)
            .map(|at| format!("\"field{at}\":\"value {at}\","))
            .collect();
        format!("{{\"price\":{price},{fields}\"time\":{time}}}").into_bytes()
    };
    let (one, two) = (state(1012, 1_700_000_000), state(1013, 1_700_000_137));
    assert!(one.len() > 1800);
    assert!(check(&one, &two) < 60, "both ends have changed");
    // A part that has moved.
    let moved = [&one[900..], &one[..900]].concat();
    assert!(check(&one, &moved) < 60);
}

#[test]
fn characters_are_not_cut() {
    let source = "Zürich – 温度: 21.5 °C, 天気: 晴れ, Wind: 3 m/s".repeat(3);
    for (from, to) in [("度", "庡"), ("ü", "ö"), ("°", "³"), ("晴", "晵"), ("5 °", "7 °")] {
        let target = source.replacen(from, to, 2);
        assert_ne!(source, target);
        check(source.as_bytes(), target.as_bytes());
    }
}

#[test]
fn random_edits_return() {
    for seed in 0..500 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let alphabet: Vec<char> = "ab01\"{}ü温😀".chars().collect();
        let length = random.usize(0..600);
        let source: String = (0..length)
            .map(|_| alphabet[random.usize(..alphabet.len())])
            .collect();
        let mut target: Vec<char> = source.chars().collect();
        for _ in 0..random.usize(0..8) {
            let at = random.usize(0..=target.len());
            let end = (at + random.usize(0..20)).min(target.len());
            match random.u8(0..3) {
                0 => drop(target.drain(at..end)),
                1 => {
                    let moved: Vec<char> = target.drain(at..end).collect();
                    let to = random.usize(0..=target.len());
                    target.splice(to..to, moved);
                }
                _ => {
                    let added = (0..random.usize(0..30)).map(|_| alphabet[random.usize(..alphabet.len())]);
                    let added: Vec<char> = added.collect();
                    target.splice(at..end, added);
                }
            }
        }
        let target: String = target.into_iter().collect();
        check(source.as_bytes(), target.as_bytes());
    }
}

#[test]
fn random_bytes_return() {
    for seed in 0..300 {
        println!("seed {seed}");
        let mut random = fastrand::Rng::with_seed(seed);
        let values = random.u8(1..=255);
        let mut bytes = |length: usize| -> Vec<u8> {
            let length = random.usize(0..=length);
            (0..length).map(|_| random.u8(0..=values)).collect()
        };
        let (source, other) = (bytes(400), bytes(400));
        check(&source, &other);
        check(&source, &[&source[..], &other, &source].concat());
        check(&[&other[..], &source].concat(), &source);
    }
}

#[test]
fn there_is_no_delta_of_short_or_long_data() {
    assert_eq!(create(b"", b"abc"), None);
    assert_eq!(create(b"abc", b""), None);
    assert_eq!(create(b"abc", b"abc"), None, "it would not be shorter");
    let long = vec![b'a'; DELTA_BYTES + 1];
    assert_eq!(create(&long, &long), None);
    assert!(create(&long[1..], &long[1..]).is_some());
}

#[test]
fn an_invalid_delta_is_an_error() {
    let source = b"0123456789abcdef";
    for (delta, reason) in [
        (&b""[..], "truncated"),
        (b"5", "truncated"),
        (b"5;", "line break"),
        (b"5\n", "truncated"),
        (b"5\n5:abcde", "truncated"),
        (b"5\n6:abcdef0;", "longer than announced"),
        (b"5\n5@C,0;", "exceeds the source"),
        (b"5\n5@~~~~~,0;", "exceeds the source"),
        (b"5\n5@0;", "comma"),
        (b"5\n4:abcd0;", "another length"),
        (b"5\n5:abcde0;", "checksum"),
        (b"5\n5?abcde0;", "unknown command"),
        (b"5\n~~~~~~~:", "32 bits"),
        (b"~~~~~\n", "longer than the limit"),
        (b"5\n~~~~~:a", "truncated"),
    ] {
        let error = apply(source, delta, 1000).expect_err("it is invalid").to_string();
        assert!(
            error.contains(reason),
            "{}: {error}",
            String::from_utf8_lossy(delta)
        );
    }
}

#[test]
fn a_delta_of_the_same_pair_is_made_once() {
    let publication = |text: &str| {
        Arc::new(Published {
            data: format!("{text}, {}", "and what they share ".repeat(20)).into(),
            ..Published::default()
        })
    };
    let (one, two, other) = (
        publication("one state"),
        publication("two state"),
        publication("other"),
    );
    let first = two.delta_from(&one).expect("parts are equal");
    let second = two.delta_from(&one).expect("parts are equal");
    assert_eq!(first.as_ptr(), second.as_ptr(), "the same memory");
    // The delta from another publication is not mistaken for it.
    let from_other = two.delta_from(&other);
    if let Some(delta) = from_other {
        assert_eq!(apply(&other.data, &delta, 1000).as_deref(), Ok(&two.data[..]));
    }
    assert_eq!(
        two.delta_from(&one).map(|delta| delta.as_ptr()),
        Some(first.as_ptr())
    );
}
