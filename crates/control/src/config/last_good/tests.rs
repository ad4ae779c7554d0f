//! Taking a configuration, and sharing parts with the previous one.

use std::io;
use std::path::Path;

use super::*;
use crate::config::{self, ConfigEnvironment};

fn load(text: &str) -> Loaded {
    let sources = ConfigEnvironment {
        variable: &|_| None,
        file: &|_| Err(io::ErrorKind::NotFound.into()),
        is_public: &|_| false,
        folder: Path::new("/etc"),
    };
    config::load("proxy.yaml", text, &sources)
}

/// With any error no part of the file is taken.
#[test]
fn invalid_files_are_not_taken() {
    let right = "
listen: 127.0.0.1:8080
upstreams: {a: http://127.0.0.1:3000, b: http://127.0.0.1:3001}
routes:
  one: {rules: [{match: /one, to: a}]}
  two: {rules: [{match: /two, to: b}]}
";
    let last = load(right).config.expect("right");
    assert!(load(right).take_valid(Some(&last)).is_some());
    for (from, to) in [
        ("3001", "port"),
        ("/two", "two"),
        ("8080", "80800"),
        ("listen:", "listn:"),
        ("upstreams:", "upstreems:"),
        ("rules:", "rule:"),
        ("to: b", "to: c"),
    ] {
        let wrong = right.replace(from, to);
        assert!(load(&wrong).take_valid(Some(&last)).is_none(), "{from} as {to}");
        assert!(load(&wrong).take_valid(None).is_none(), "{from} as {to}");
    }
}

#[test]
fn routes_that_are_the_same_are_not_held_twice() {
    let text = "
listen: 127.0.0.1:8080
routes:
  one: {rules: [{match: /one, respond: 204}]}
  two: {rules: [{match: /two, respond: 204}]}
";
    let last = load(text).config.expect("right");
    let config = load(&text.replace("/two, respond: 204", "/two, respond: 404"))
        .take_valid(Some(&last))
        .expect("right");
    assert!(Arc::ptr_eq(&config.routes[0], &last.routes[0]));
    assert_ne!(config.routes[1], last.routes[1]);
}
