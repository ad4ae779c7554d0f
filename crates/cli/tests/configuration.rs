//! `ringmain check`, `explain` and `schema`, as somebody types them.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

mod common;

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use common::{Directory, program};
use serde_json::Value;

const SHOP: &str = include_str!("../../../examples/shop.yaml");
const PROXY: &str = include_str!("../../../examples/proxy.yaml");

fn run(args: &[&str]) -> Output {
    Command::new(program())
        .args(args)
        .env("SHOP_NAME", "corner")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A file in a folder of its own.
fn written(name: &str, text: &str) -> (Directory, String) {
    let directory = Directory::new();
    let path = directory.join(name);
    fs::write(&path, text).unwrap();
    (directory, path.display().to_string())
}

/// The shop with what stands for its certificates.
fn shop() -> (Directory, String) {
    let (directory, path) = written("shop.yaml", SHOP);
    let folder = PathBuf::from(&path).with_file_name("shop");
    fs::create_dir(&folder).unwrap();
    for name in ["shop", "wildcard", "gateway"] {
        for kind in ["crt", "key"] {
            fs::write(
                folder.join(format!("{name}.{kind}")),
                "-----BEGIN SOMETHING-----\n",
            )
            .unwrap();
        }
    }
    for name in ["staff-ca.crt", "internal-ca.crt"] {
        fs::write(folder.join(name), "-----BEGIN SOMETHING-----\n").unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop/not-found.html");
    fs::copy(page, folder.join("not-found.html")).unwrap();
    (directory, path)
}

#[test]
fn the_examples_are_right() {
    let (_directory, path) = shop();
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        text(&output.stdout),
        format!("{path}: right: 6 listeners, 6 routes, 9 upstreams\n")
    );
    let (_directory, path) = written("proxy.yaml", PROXY);
    let output = run(&["check", "--json", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["right"], true);
}

#[test]
fn all_that_is_wrong_is_told() {
    let (_directory, path) = written(
        "bad.yaml",
        "listen: :80\nlisten_to: x\nroutes:\n  r: {hosts: 'a b', to: nobody}\n",
    );
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let lines: Vec<_> = text(&output.stdout).lines().collect();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].starts_with(&format!("{path}:2:1: expected one of the keys ")),
        "{lines:?}"
    );
    assert!(
        lines[1].starts_with(&format!("{path}:4:14: expected a hostname ")),
        "{lines:?}"
    );
    assert_eq!(lines[2], format!("{path}: route `r`: it is left out"));
    assert_eq!(
        text(&output.stderr),
        format!("error: {path}: 2 things are wrong\n")
    );
    let output = run(&["check", "--json", &path]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json["right"], &json["errors"][1]["column"]),
        (&Value::from(false), &Value::from(14))
    );
}

#[test]
fn a_file_that_is_not_there() {
    for command in [
        &["check", "/nowhere.yaml"][..],
        &["explain", "/nowhere.yaml", "GET", "http://a/"],
    ] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(text(&output.stderr).starts_with("error: cannot read the configuration /nowhere.yaml: "));
    }
}

#[test]
fn where_a_request_goes() {
    let (_directory, path) = shop();
    let check = |args: &[&str], code: i32, expected: &[&str]| {
        let output = run(&[&["explain", &path], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        for expected in expected {
            assert!(
                text(&output.stdout).contains(expected),
                "{expected}: {}",
                text(&output.stdout)
            );
        }
    };
    check(
        &["GET", "https://shop.example:8443/catalogue//x?id=1"],
        0,
        &[
            "listener `secure`\n  not `staff`: it is for `staff.shop.example`, not for `shop.example`\n",
            "route `shop`, rule 0 (catalogue), by prefix `/catalogue`\n",
            "  put `/v1/items` in place of the prefix\n  send to upstream `catalogue`\n",
            "  route `shop`, rule 10: prefix `/` holds too, but comes later\n",
        ],
    );
    let bulk = "content-type: application/ndjson";
    check(
        &["POST", "https://shop.example/catalogue", "-H", bulk],
        0,
        &["rule 1 (bulk), by prefix `/catalogue`, method POST, header `content-type`"],
    );
    check(
        &["GET", "http://shop.example/"],
        0,
        &["listener `plain`\n  redirects to https"],
    );
    check(
        &["GET", "https://other.example/"],
        1,
        &["no listener for `other.example`"],
    );
    check(
        &["GET", "https://staff.shop.example/x"],
        0,
        &["listener `staff`", "upstream `admin`"],
    );
    let json = run(&["explain", &path, "GET", "https://a.shop.example/status", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["taken"]["route"], "tenants");
    // A secret's value is not told, only that a header is set.
    let output = run(&["explain", &path, "GET", "https://shop.example/catalogue"]);
    assert!(!text(&output.stdout).contains("corner"), "{output:?}");
}

#[test]
fn what_is_no_request_is_refused() {
    let (_directory, path) = written("proxy.yaml", PROXY);
    let check = |args: &[&str], code: i32, expected: &str| {
        let output = run(&[&["explain", &path], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(text(&output.stderr).contains(expected), "{output:?}");
    };
    check(
        &["GET", "/path"],
        2,
        "expected a URL such as http://shop.example/cart, found `/path`",
    );
    check(&["GET /", "http://a/"], 2, "expected a method in capital letters");
    check(
        &["GET", "http://a/", "-H", "x"],
        2,
        "expected a header such as 'accept: text/html', found `x`",
    );
    check(
        &["GET", "http://a/%zz"],
        1,
        "400 Bad Request: request path, byte 1",
    );
    check(
        &["GET", "http://a:81/"],
        1,
        "no listener of http has port 81; its addresses are: 0.0.0.0:8080",
    );
}

#[test]
fn the_schema_is_printed() {
    let output = run(&["schema"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checked_in: Value = serde_json::from_str(include_str!("../../../docs/config.schema.json")).unwrap();
    assert!(printed == checked_in);
}
