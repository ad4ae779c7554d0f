//! Lines and paths of positions.

use std::sync::Arc;

use super::super::{ConfigSource, FilePosition};

fn source(text: &str) -> ConfigSource {
    ConfigSource::new(&Arc::from(text))
}

fn at(line: u64, column: u64) -> FilePosition {
    FilePosition { line, column }
}

/// The line of a position, and a caret below it.
fn excerpt(text: &str, line: u64, column: u64) -> String {
    source(text)
        .excerpt(at(line, column))
        .map_or_else(String::new, |excerpt| {
            format!("{}\n{}^", excerpt.line, " ".repeat(excerpt.offset))
        })
}

#[test]
fn lines_have_their_position() {
    let text = "listen: ':80'\nto:\thttp://a  \n# é\n";
    assert_eq!(excerpt(text, 1, 9), "listen: ':80'\n        ^");
    assert_eq!(excerpt(text, 2, 5), "to: http://a\n    ^");
    assert_eq!(excerpt(text, 3, 9), "# é\n   ^");
    assert_eq!(excerpt(text, 4, 1), "");
    let long = format!("to: {}X{}", "a".repeat(96), "b".repeat(100));
    let line = format!("…{}X{}…\n", "a".repeat(39), "b".repeat(59));
    assert_eq!(excerpt(&long, 1, 101), format!("{line}{}^", " ".repeat(40)));
}

#[test]
fn secrets_are_not_shown() {
    let check = |text: &str, line: u64, column: u64| {
        let shown = excerpt(text, line, column);
        assert!(
            !shown.contains("hunter2") && shown.contains("(not shown)"),
            "{shown}"
        );
        shown
    };
    let shown = check("push: {anonymous: yes, api_key: hunter2, x: 1}\n", 1, 42);
    assert_eq!(
        shown,
        format!(
            "push: {{anonymous: yes, api_key: (not shown)\n{}^",
            " ".repeat(32)
        )
    );
    check("push:\n  tokens: {secret: hunter2}\n", 2, 3);
    check("push:\n  api_key: [hunter2]\n", 2, 12);
    check("push:\n  api_kee: hunter2\n", 2, 3);
    check("push:\n  api_key: |\n    hunter2\nlisten: 1\n", 3, 5);
    check(
        "routes: {r: {rules: [{respond: 200, request_headers: {set: {Authorization: hunter2}}}]}}\n",
        1,
        1,
    );
    // Not YAML: the keys decide.
    check("listen: [\n  \"api_key\" : hunter2\n", 2, 1);
    check("listen: [\nAuthorization: Bearer hunter2\n", 2, 1);
}

#[test]
fn references_to_secrets_are_shown() {
    let text = "push:\n  api_key: '${env:API_KEY}'\n";
    assert_eq!(excerpt(text, 2, 12), "  api_key: '${env:API_KEY}'\n           ^");
    let text = "listen: [\n  api_key: '${env:API_KEY}'\n";
    assert_eq!(excerpt(text, 2, 3), "  api_key: '${env:API_KEY}'\n  ^");
}

#[test]
fn positions_have_paths() {
    let source =
        source("listen: ':80'\nroutes:\n  a/b:\n    rules:\n      - match: /x\n        respond: {body: x}\n");
    for (line, column, expected) in [
        (1, 1, "/listen"),
        (1, 9, "/listen"),
        (3, 3, "/routes/a~1b"),
        (5, 9, "/routes/a~1b/rules/0/match"),
        (5, 12, "/routes/a~1b/rules/0/match"),
        (6, 18, "/routes/a~1b/rules/0/respond"),
        (6, 19, "/routes/a~1b/rules/0/respond/body"),
    ] {
        assert_eq!(
            source.pointer(at(line, column), true),
            expected,
            "{line}:{column}"
        );
    }
    assert_eq!(source.pointer(at(5, 9), false), "/routes/a~1b/rules/0");
    assert_eq!(super::source::source("listen: [").pointer(at(1, 1), true), "");
}
