//! Against serde_json's own pointers, and what is no pointer.

use super::*;

const DOCUMENT: &str =
    r#"{"a":[1,{"b":null,"~":"tilde","/":"slash","":"empty"},[true]],"":{"":2},"d":1,"d":2,"0":"o"}"#;

#[test]
fn places_are_those_of_the_whole_document() {
    let whole: Value = serde_json::from_str(DOCUMENT).unwrap();
    let pointers = [
        "",
        "/",
        "//",
        "/a",
        "/a/0",
        "/a/1",
        "/a/1/b",
        "/a/1/~0",
        "/a/1/~1",
        "/a/1/",
        "/a/2/0",
        "/a/2/1",
        "/a/3",
        "/a/00",
        "/a/-",
        "/a/+1",
        "/0",
        "/x",
        "/a/0/x",
        "/a/1/b/c",
        "/a/99999999999999999999",
    ];
    for text in pointers {
        let found = Pointer::new(text).unwrap().find(DOCUMENT.as_bytes()).unwrap();
        // Their object keeps the last of two equal names.
        let expected = whole.pointer(text).cloned().map(|mut value| {
            if let Some(last) = value.get_mut("d") {
                *last = Value::from(2);
            }
            value
        });
        assert_eq!(found, expected, "{text}");
    }
}

#[test]
fn the_first_of_two_equal_names_counts() {
    let found = Pointer::new("/d").unwrap().find(DOCUMENT.as_bytes()).unwrap();
    assert_eq!(found, Some(Value::from(1)));
}

#[test]
fn an_escaped_tilde_before_a_one_is_no_slash() {
    let found = Pointer::new("/~01").unwrap().find(br#"{"/":1,"~1":2}"#).unwrap();
    assert_eq!(found, Some(Value::from(2)));
}

#[test]
fn what_is_no_pointer_is_refused() {
    for text in ["a", "a/b", "/~", "/~2", "/a~", "#/a"] {
        assert_eq!(Pointer::new(text), None, "{text}");
    }
}

#[test]
fn what_is_no_json_is_an_error() {
    let pointer = Pointer::new("/a").unwrap();
    for document in ["", "{", r#"{"a":1"#, r#"{"a":1}x"#, r#"{"a":1,}"#, "<html>"] {
        assert!(pointer.find(document.as_bytes()).is_err(), "{document}");
    }
}
