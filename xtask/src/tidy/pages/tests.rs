//! Each rule for pages by a table.

use super::super::tests::check;
use super::{Link, Page, length, links, spelling, summary};

fn pages(texts: &[(&str, &str)]) -> Vec<Page> {
    texts.iter().map(|(path, text)| Page::read(path, text)).collect()
}

#[track_caller]
fn check_links(texts: &[(&str, &str)], expect: &[&str]) {
    let exists = |path: &str| path == "src/lib.rs" || texts.iter().any(|(name, _)| *name == path);
    check(links::inspect(&pages(texts), exists), expect);
}

#[test]
fn links_have_line_and_offset_and_none_is_read_from_code() {
    let text = "a [b](c.md#d) `[no](x.md)`\n```\n[no](y.md)\n```\n![i](p.png \"t\") <img src=\"z.svg\">\n[r]: w.md\n";
    let found = super::links(text);
    let expect = [
        (1, 6, "c.md#d"),
        (5, 5, "p.png"),
        (5, 26, "z.svg"),
        (6, 5, "w.md"),
    ];
    let expect: Vec<Link> = expect
        .map(|(line, start, address)| Link {
            line,
            start,
            address: address.into(),
        })
        .into();
    assert_eq!(found, expect);
}

#[test]
fn relative_links_resolve() {
    check_links(
        &[
            (
                "README.md",
                "[a](docs/a.md) [b](docs/a.md#two-words) [c](src/lib.rs#L4) [w](https://x.y/z#q)",
            ),
            (
                "docs/a.md",
                "# Two `words`\n[up](../README.md) [own](#two-words) [no](../../x.md)\n[gone](b.md)",
            ),
        ],
        &[
            "2 link to `../../x.md`: ../x.md does not exist",
            "3 link to `b.md`: docs/b.md does not exist",
        ],
    );
}

#[test]
fn fragments_name_headings() {
    let text = "# A\n## HTTP/2: [limits](x.md) & `rate_bytes`\n## A\n<a id=\"old\"></a>\n```\n# code\n```\n";
    let page = Page::read("docs/x.md", text);
    assert_eq!(page.anchors, ["a", "http2-limits--rate_bytes", "a-1", "old"]);
    check_links(
        &[
            ("docs/x.md", text),
            (
                "docs/y.md",
                "[1](x.md#a-1) [2](x.md#old) [3](x.md#limits) [4](#b)",
            ),
        ],
        &[
            "1 link to `x.md#limits`: docs/x.md has no heading `limits`",
            "1 link to `#b`: docs/y.md has no heading `b`",
        ],
    );
}

#[test]
fn each_page_is_a_chapter_once() {
    let texts = [
        ("docs/SUMMARY.md", "- [A](a.md)\n- [B](b/c.md)\n- [A](a.md)"),
        ("docs/a.md", ""),
        ("docs/b/c.md", ""),
        ("docs/b/d.md", ""),
        ("README.md", ""),
    ];
    check(
        summary::inspect(&pages(&texts)),
        &["3 docs/a.md is listed twice", "1 page is not in docs/SUMMARY.md"],
    );
    check(summary::inspect(&pages(&[("docs/a.md", "")])), &[]);
}

#[test]
fn code_and_tables_are_no_prose() {
    let text = "# One two\n\nthree `four five` six\n\n| not | these |\n|---|---|\n\n```text\nnor these\n```\n\n    nor this\n\n- seven\n";
    assert_eq!(Page::read("docs/a.md", text).words, 8);
}

#[test]
fn ceilings_of_length_only_shrink() {
    let words = |count: usize| "word ".repeat(count);
    let (long, longer, short) = (words(1_501), words(2_000), words(1_500));
    let pages = pages(&[
        ("docs/a.md", &long),
        ("docs/b.md", &longer),
        ("docs/c.md", &short),
    ]);
    check(
        length::compare("", &pages),
        &["1 page has 1501 words", "1 page has 2000 words"],
    );
    let list = "# head\n1600 docs/a.md\n1999 docs/b.md\n1600 docs/c.md\nx docs/d.md\n";
    check(
        length::compare(list, &pages),
        &[
            "1 page has 2000 words",
            "2 `docs/a.md` may have 1600 words but has 1501",
            "4 `docs/c.md` needs no ceiling",
            "5 `docs/d.md` has no number",
        ],
    );
    let lowered = length::lower(list, &pages);
    assert!(
        lowered.ends_with("file.\n1501 docs/a.md\n1999 docs/b.md\n"),
        "{lowered}"
    );
    check(length::compare(&length::start(&pages), &pages), &[]);
}

#[test]
fn spelling_reads_words_of_prose() {
    let mut places = Default::default();
    let text = "The server's WebSocket `tokio`, io_uring, x86 and\n[a lnik](pgae.md) doesn't | a-b http://exmaple.org\n";
    spelling::collect("docs/a.md", text, &mut places);
    let found: Vec<(&str, usize)> = places
        .iter()
        .map(|(word, (_, line))| (word.as_str(), *line))
        .collect();
    assert_eq!(
        found,
        [("The", 1), ("and", 1), ("doesn", 2), ("lnik", 2), ("server", 1)]
    );
    check(spelling::terms_in_order("a\nb\nb\n"), &["3 `b` follows `b`"]);
}
