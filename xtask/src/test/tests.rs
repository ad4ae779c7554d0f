//! Reading cargo's messages.

use super::pool::programs;

#[test]
fn only_test_programs_run() {
    let messages = r#"{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml","target":{"name":"a"},"profile":{"test":false},"executable":"/t/a"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml","target":{"name":"it"},"profile":{"test":true},"executable":"/t/it-1"}
{"reason":"compiler-artifact","manifest_path":"/r/crates/a/Cargo.toml","target":{"name":"lib"},"profile":{"test":true},"executable":null}
   Compiling a line that is not a message
{"reason":"build-finished","success":true}
"#;
    let found: Vec<_> = programs(messages)
        .expect("messages of cargo")
        .iter()
        .map(|program| format!("{program:?}"))
        .collect();
    assert_eq!(
        found,
        [r#"Program { folder: "/r/crates/a", target: "it", executable: "/t/it-1" }"#]
    );
}

#[test]
fn a_broken_message_is_an_error() {
    let error = programs("{\"reason\":").expect_err("it is cut");
    assert!(error.contains("expected a message of cargo in JSON"), "{error}");
}
