//! Links as the site has them.

use serde_json::json;

use super::{rewrite, rewrite_chapters};

#[track_caller]
fn check(text: &str, expect: &str) {
    let is_folder = |path: &str| path == "examples" || path == "docs/decisions";
    let found = rewrite("docs/how-to/a.md", text, &is_folder);
    assert_eq!(found, format!("{expect}\n"));
}

#[test]
fn links_that_leave_the_book_lead_to_the_repository() {
    check("[a](../b.md#c) [d](#e)", "[a](../b.md#c) [d](#e)");
    check(
        "[a](../README.md#b) [c](README.md)",
        "[a](../index.md#b) [c](index.md)",
    );
    check(
        "[a](../../examples/b.rs#L2), [c](../../README.md)",
        "[a](https://github.com/ringmain/ringmain/blob/main/examples/b.rs#L2), \
         [c](https://github.com/ringmain/ringmain/blob/main/README.md)",
    );
    check(
        "[a](../../examples)\n`[b](../../examples)` [c](../decisions)",
        "[a](https://github.com/ringmain/ringmain/tree/main/examples)\n\
         `[b](../../examples)` [c](https://github.com/ringmain/ringmain/tree/main/docs/decisions)",
    );
}

#[test]
fn chapters_below_chapters_are_rewritten() {
    let chapter = |content: &str, below: serde_json::Value| json!({ "Chapter": { "content": content, "source_path": "a.md", "sub_items": below } });
    let mut book = json!({ "items": [chapter("[a](../b)", json!([chapter("[a](../c)", json!([]))]))] });
    rewrite_chapters(&mut book, &|_| false);
    let address = |path| format!("[a](https://github.com/ringmain/ringmain/blob/main/{path})\n");
    let expect = json!({ "items": [chapter(&address("b"), json!([chapter(&address("c"), json!([]))]))] });
    assert_eq!(book, expect);
}
