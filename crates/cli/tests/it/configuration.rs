//! `ringmain check`, `explain` and `schema` as processes.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use crate::common::{Directory, program};
use crate::secure::Authority;
use serde_json::Value;

const SHOP: &str = include_str!("../../../../examples/shop.yaml");
const PROXY: &str = include_str!("../../../../examples/proxy.yaml");

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

/// The shop with certificates of its own.
fn shop() -> (Directory, String) {
    let (directory, path) = written("shop.yaml", SHOP);
    let folder = PathBuf::from(&path).with_file_name("shop");
    fs::create_dir(&folder).unwrap();
    let authority = Authority::new("shop");
    for name in ["shop", "wildcard", "gateway"] {
        let pair = authority.sign(&format!("{name}.example"));
        fs::write(folder.join(format!("{name}.crt")), pair.chain.bytes).unwrap();
        let key = folder.join(format!("{name}.key"));
        fs::write(&key, pair.key.bytes).unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    }
    for name in ["staff-ca.crt", "internal-ca.crt"] {
        fs::write(folder.join(name), &authority.pem.bytes).unwrap();
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/shop/not-found.html");
    fs::copy(page, folder.join("not-found.html")).unwrap();
    (directory, path)
}

#[test]
fn the_examples_are_valid() {
    let (_directory, path) = shop();
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        text(&output.stdout),
        format!("{path}: valid: 6 listeners, 6 routes, 9 upstreams\n")
    );
    let (_directory, path) = written("proxy.yaml", PROXY);
    let output = run(&["check", "--format", "json", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(text(&output.stdout), "[]\n");
}

#[test]
fn every_error_is_reported() {
    let (_directory, path) = written("bad.yaml", BAD);
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    check_bad_text(text(&output.stdout), &path);
    assert_eq!(text(&output.stderr), format!("error: {path}: 2 errors\n"));
    let output = run(&["check", "--format", "json", &path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    check_bad_json(&output.stdout, &path);
}

/// Two errors, on its lines 2 and 4.
const BAD: &str = "listen: :80\nlisten_to: x\nroutes:\n  r: {hosts: 'a b', to: nobody}\n";

#[track_caller]
fn check_bad_text(found: &str, name: &str) {
    let found: Vec<_> = found.lines().collect();
    let expected = [
        "error: expected one of the keys ".to_owned(),
        format!(" --> {name}:2:1"),
        "  |".to_owned(),
        "2 | listen_to: x".to_owned(),
        "  | ^".to_owned(),
        String::new(),
        "error: expected a hostname such as shop.example, or *.shop.example, found `a b`".to_owned(),
        format!(" --> {name}:4:14"),
        "  |".to_owned(),
        "4 |   r: {hosts: 'a b', to: nobody}".to_owned(),
        "  |              ^".to_owned(),
        String::new(),
    ];
    assert_eq!(found.len(), expected.len(), "{found:#?}");
    assert!(found[0].starts_with(&expected[0]), "{found:#?}");
    assert_eq!(found[1..], expected[1..]);
}

#[track_caller]
fn check_bad_json(found: &[u8], name: &str) {
    let found: Value = serde_json::from_slice(found).unwrap();
    let found = found.as_array().expect("an array");
    assert_eq!(found.len(), 2, "{found:#?}");
    assert_eq!(
        (&found[0]["line"], &found[0]["column"], &found[0]["path"]),
        (&2.into(), &1.into(), &"/listen_to".into())
    );
    assert_eq!(
        found[1],
        serde_json::json!({
            "file": name,
            "line": 4,
            "column": 14,
            "path": "/routes/r/hosts",
            "severity": "error",
            "message": "expected a hostname such as shop.example, or *.shop.example, found `a b`",
            "expected": "a hostname such as shop.example, or *.shop.example",
            "found": "`a b`",
        })
    );
}

/// Runs a command with this text as standard input.
fn run_with_input(args: &[&str], input: &[u8]) -> Output {
    let mut child = Command::new(program())
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}

#[test]
fn standard_input_is_checked_and_explained() {
    let output = run_with_input(&["check", "-"], PROXY.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        text(&output.stdout),
        "<stdin>: valid: 1 listener, 1 route, 1 upstream\n"
    );
    let output = run_with_input(&["check", "-"], BAD.as_bytes());
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    check_bad_text(text(&output.stdout), "<stdin>");
    assert_eq!(text(&output.stderr), "error: <stdin>: 2 errors\n");

    // An editor names the file that it has not saved yet: files are relative to it.
    let (directory, path) = written("site.yaml", "not what is checked");
    fs::write(directory.join("page.html"), "a page").unwrap();
    let with_page = b"listen: :80\nroutes: {r: {rules: [{respond: {status: 404, file: page.html}}]}}\n";
    let output = run_with_input(&["check", "-", "--stdin-filename", &path], with_page);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let output = run_with_input(
        &["check", "--format=json", "-", "--stdin-filename", &path],
        BAD.as_bytes(),
    );
    check_bad_json(&output.stdout, &path);

    let output = run_with_input(&["explain", "-", "GET", "http://a/cart"], PROXY.as_bytes());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        text(&output.stdout).contains("route `default`, rule 1, by every request"),
        "{output:?}"
    );

    let output = run_with_input(&["check", "-"], b"\xff");
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("standard input: not text (UTF-8)"),
        "{output:?}"
    );
    let output = run(&["check", &path, "--stdin-filename", "a"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    assert!(
        text(&output.stderr).contains("write - in place of FILE"),
        "{output:?}"
    );
}

#[test]
fn errors_and_warnings_are_in_the_order_of_the_file_without_secrets() {
    let config = "listen: :80\npush: {api_kee: hunter2}\nroutes:\n  r:\n    rules:\n      - {match: /a, respond: 200}\n      \
                  - {match: /b, respond: 200, rewrite: {host: a}}\n";
    let (_directory, path) = written("c.yaml", config);
    let output = run(&["check", &path]);
    let found = text(&output.stdout);
    assert!(
        !found.contains("hunter2") && found.contains("2 | push: {api_kee: (not shown)\n"),
        "{found}"
    );
    let (first, second) = (found.find(":2:8\n"), found.find(":7:"));
    assert!(first.is_some() && second > first, "{found}");
    // Warnings, of a valid file.
    let config = config
        .replace("push: {api_kee: hunter2}\n", "")
        .replace("/b, respond: 200, rewrite: {host: a}", "/a, respond: 200");
    let (_directory, path) = written("c.yaml", &config);
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let found = text(&output.stdout);
    let expected = "warning: route `r`, rule 2: no request reaches it: an earlier rule of the route has the same match\n";
    assert!(found.starts_with(expected), "{found}");
    assert!(
        found.ends_with(&format!("{path}: valid: 1 listener, 1 route, 0 upstreams\n")),
        "{found}"
    );
    let output = run(&["check", "--format", "json", &path]);
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&json[0]["severity"], &json[0]["line"], &json[0]["path"]),
        (&"warning".into(), &6.into(), &"/routes/r/rules/1".into())
    );
}

/// `ringmain` has no filters: it says so, and explains files of programs that do.
#[test]
fn filters_of_other_programs() {
    let (_directory, path) = written(
        "edge.yaml",
        "listen: :80\nroutes:\n  all:\n    rules:\n      - {match: /, respond: 200, policies: {filters: {name: sign, options: {key: x}}}}\n",
    );
    let output = run(&["check", &path]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let told = text(&output.stdout);
    let words = [
        "edge.yaml:5:",
        "the filter `sign`",
        "no filters are registered",
        "docs/how-to/custom-filters.md",
    ];
    assert!(words.iter().all(|word| told.contains(word)), "{told}");
    let output = run(&["explain", &path, "GET", "http://a/"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text(&output.stdout).contains("  filter `sign`\n"), "{output:?}");
}

#[test]
fn a_missing_file_is_an_error() {
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
fn requests_are_explained() {
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
            "listener `secure`\n  not `staff`: matches only `staff.shop.example`, not `shop.example`\n",
            "route `shop`, rule 1 (catalogue), by prefix `/catalogue`\n",
            "  replace the prefix by `/v1/items`\n  forward to upstream `catalogue`\n",
            "  route `shop`, rule 11: prefix `/` also matches, but has lower precedence\n",
        ],
    );
    let bulk = "content-type: application/ndjson";
    check(
        &["POST", "https://shop.example/catalogue", "-H", bulk],
        0,
        &["rule 2 (bulk), by prefix `/catalogue`, method POST, header `content-type`"],
    );
    check(
        &["GET", "http://shop.example/"],
        0,
        &["listener `plain`\n  redirects to HTTPS"],
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
    // The value of a secret is not shown, only that a header is set.
    let output = run(&["explain", &path, "GET", "https://shop.example/catalogue"]);
    assert!(!text(&output.stdout).contains("corner"), "{output:?}");
}

#[test]
fn connections_are_explained() {
    let (_directory, path) = shop();
    let check = |args: &[&str], code: i32, expected: &[&str]| {
        let output = run(&[&["explain", &path], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        let told = format!("{}{}", text(&output.stdout), text(&output.stderr));
        for expected in expected {
            assert!(told.contains(expected), "{expected}: {told}");
        }
    };
    check(
        &["--sni", "mail.shop.example"],
        0,
        &[
            "listener `passthrough`\nstream `mail`, by host `mail.shop.example`\n  forward to upstream `mail`\n",
            "  idle timeout 600s\nrejected streams, the closest first:\n",
            "  stream `postgres`: attached to `database`, not `passthrough`\n",
        ],
    );
    for listener in ["database", ":5433", "5433", "127.0.0.1:5433"] {
        check(
            &["--listener", listener],
            0,
            &["listener `database`\nstream `postgres`, by every connection\n"],
        );
    }
    check(
        &["--listener", "database", "--sni", "mail.shop.example"],
        0,
        &["a TCP listener: SNI is ignored"],
    );
    check(
        &["--sni", "pop.shop.example"],
        1,
        &[
            "no matching stream: the connection is closed\n",
            "closed: no stream matches `pop.shop.example`",
        ],
    );
    check(
        &["--listener", "plain"],
        1,
        &[
            "listener `plain`\n",
            "this is an HTTP listener: use ringmain explain FILE METHOD URL",
        ],
    );
    check(
        &["--listener", "mail"],
        1,
        &["no listener `mail`; listeners: ", "database (127.0.0.1:5433)"],
    );
    check(
        &["--sni", "a b"],
        2,
        &["--sni: expected a host such as mail.shop.example, found `a b`"],
    );
    check(&["GET", "http://a/", "--sni", "a"], 2, &["cannot be used with"]);
    check(&[], 2, &["<METHOD>"]);
    let json = run(&["explain", &path, "--sni", "mail.shop.example", "--json"]);
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["taken"]["stream"], "mail");
    let (_directory, path) = written("proxy.yaml", PROXY);
    let output = run(&["explain", &path, "--sni", "a.example"]);
    assert!(
        text(&output.stderr).contains("no passthrough listener"),
        "{output:?}"
    );
}

#[test]
fn invalid_requests_are_refused() {
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
        "no http listener on port 81; http listeners: 0.0.0.0:8080",
    );
}

#[test]
fn the_schema_is_printed() {
    let output = run(&["schema"]);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let checked_in: Value =
        serde_json::from_str(include_str!("../../../../docs/config.schema.json")).unwrap();
    assert!(printed == checked_in);
}
