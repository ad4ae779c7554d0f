//! What goes on as it was when it is wrong.

use std::io;
use std::path::Path;

use super::*;
use crate::config::{self, Sources};

fn load(text: &str) -> Loaded {
    let sources = Sources {
        variable: &|_| None,
        file: &|_| Err(io::ErrorKind::NotFound.into()),
        folder: Path::new("/etc"),
    };
    config::load("proxy.yaml", text, &sources)
}

#[test]
fn what_others_depend_on_goes_on_and_routes_do_not() {
    let right = "
listen: 127.0.0.1:8080
upstreams: {a: http://127.0.0.1:3000, b: http://127.0.0.1:3001}
routes:
  one: {rules: [{match: /one, to: a}]}
  two: {rules: [{match: /two, to: b}]}
";
    let last = load(right).config.expect("right");
    let wrong = right.replace("3001", "port").replace("/two", "two");
    let mut loaded = load(&wrong);
    assert_eq!(
        loaded.config.as_ref().map(|config| config.upstreams.len()),
        Some(1)
    );
    let (config, kept) = loaded.take(Some(&last)).expect("some of it");
    assert_eq!(kept, [Place::Upstream("b".into())]);
    assert_eq!(config.upstreams.len(), 2);
    assert!(Arc::ptr_eq(&config.upstreams[1], &last.upstreams[1]));
    assert!(config.routes.len() <= 2);
}

#[test]
fn what_was_never_right_is_left_out() {
    let mut loaded =
        load("{listen: '127.0.0.1:8080', upstreams: {a: 'http://127.0.0.1:port'}, to: 'http://127.0.0.1:1'}");
    let (config, kept) = loaded.take(Some(&Config::default())).expect("some of it");
    assert!(kept.is_empty() && config.upstreams.iter().all(|it| &*it.name != "a"));
}

#[test]
fn a_listener_goes_without_a_certificate_that_is_wrong() {
    let text = "
listeners:
  web: {address: 127.0.0.1:8443, tls: {certificates: [right, wrong]}}
certificates:
  right: {chain: right.pem, key: right.pem}
  wrong: {chain: right.pem, key: wrong.pem}
to: http://127.0.0.1:3000
";
    let sources = Sources {
        variable: &|_| None,
        file: &|name| match name {
            "right.pem" => Ok(b"-----BEGIN SOMETHING-----\n".to_vec()),
            _ => Err(io::ErrorKind::NotFound.into()),
        },
        folder: Path::new("/etc"),
    };
    let mut loaded = config::load("proxy.yaml", text, &sources);
    let (config, _) = loaded.take(None).expect("some of it");
    let tls = config.listeners[0].tls.as_ref().expect("TLS");
    assert_eq!(tls.certificates, ["right".into()]);
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
    let (config, _) = load(&text.replace("/two, respond: 204", "/two, respond: 404"))
        .take(Some(&last))
        .expect("right");
    assert!(Arc::ptr_eq(&config.routes[0], &last.routes[0]));
    assert_ne!(config.routes[1], last.routes[1]);
}
