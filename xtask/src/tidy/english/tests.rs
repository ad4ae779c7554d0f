//! The rule `english` by tables: texts with the expressions that are counted, and files of ceilings.

use std::collections::BTreeSet;
use std::fs;

use super::super::CEILINGS;
use super::super::tests::check;
use super::ceilings::{self, compare, lower};
use super::figures::{crate_of, judge, tables};
use super::{BANNED_TYPES, Language, TextKind, document, rust_file};
use crate::root;

/// Compares the hits of a file as `line expression words`.
#[track_caller]
fn check_hits(language: &Language, expect: &[&str]) {
    let hits = language.hits.iter();
    let hits: Vec<String> = hits
        .map(|hit| format!("{} {} {}", hit.line, hit.expression.name(), hit.words))
        .collect();
    assert_eq!(hits, expect);
}

#[track_caller]
fn check_rust(text: &str, expect: &[&str]) {
    check_hits(&rust_file("src/a.rs", text), expect);
}

#[track_caller]
fn check_document(text: &str, expect: &[&str]) {
    check_hits(&document("docs/a.md", text), expect);
}

/// Texts of one line, with the expressions in them.
const TEXTS: &[(&str, &[&str])] = &[
    ("What a client sends.", &["1 what-first What", "1 what What a"]),
    ("What clients send.", &["1 what-first What"]),
    ("It returns what is left", &["1 what what is"]),
    (
        "(what they send), what others do",
        &["1 what what they", "1 what what others"],
    ),
    (
        "what the peer sent: what follows",
        &["1 what what the", "1 what what follows"],
    ),
    ("Who sends it.", &["1 who-first Who", "1 who Who sends"]),
    (
        "the one who sends it, and who cannot",
        &["1 who who sends", "1 who who cannot"],
    ),
    ("a client who sends it, those who may, anyone who can", &[]),
    ("How it ended", &["1 how-first How"]),
    ("How-to guides: gateway", &[]),
    ("How to start", &["1 how-first How"]),
    ("Where", &["1 how-first Where"]),
    ("Whether it ends, when it ends, and why", &["1 how-first Whether"]),
    (
        "it is there, was over, were told",
        &["1 is-there is there", "1 is-over was over", "1 is-told were told"],
    ),
    (
        "half of it, of them, of all",
        &["1 of-it of it", "1 of-it of them", "1 of-it of all"],
    ),
    (
        "goes on, to go on, going on",
        &["1 go-on goes on", "1 go-on go on"],
    ),
    (
        "anew. Nobody, somebody, he and his",
        &[
            "1 anew anew",
            "1 nobody Nobody",
            "1 nobody somebody",
            "1 nobody he",
            "1 nobody his",
        ],
    ),
    ("for ever", &["1 for-ever for ever"]),
    (
        "came, comes, coming, come",
        &["1 come came", "1 come comes", "1 come coming", "1 come come"],
    ),
    (
        "stands, stood, stand",
        &["1 stand stands", "1 stand stood", "1 stand stand"],
    ),
    (
        "by HTTP/2, by WebSockets, by tasks",
        &[
            "1 by-protocol by HTTP",
            "1 by-protocol by WebSockets",
            "1 by-protocol by tasks",
        ],
    ),
    // Other words, other neighbours.
    (
        "standard, outcome, income, hers, the, over there, whatever is",
        &[],
    ),
    ("by default, over HTTP/2, what clients send, \"what is\"", &[]),
    ("of item, is overdue, go online, forever, is, there", &[]),
];

#[test]
fn every_expression_is_found() {
    for (text, expect) in TEXTS {
        check_document(text, expect);
        check_rust(&format!("// {text}\n"), expect);
    }
}

#[test]
fn comments_are_read_as_paragraphs() {
    // A line break neither hides an expression nor makes one.
    check_rust(
        "//! It returns what\n//! is left\n\n// It is\n\n// over\n",
        &["1 what what is"],
    );
    check_rust("/// A text.\n/// What\n/// remains\nfn a() {}\n", &[]);
    check_rust(
        "/// A text.\n///\n/// What remains\nfn a() {}\n",
        &["3 what-first What"],
    );
    check_rust(
        "/// - What remains\n/// - Why\nfn a() {}\n",
        &["1 what-first What", "2 how-first Why"],
    );
    // A comment behind code is a text of its own.
    check_rust(
        "let a = 1; // it is\nlet b = 2; // over\n// Why\nlet c = 3;\n",
        &["3 how-first Why"],
    );
    check_rust(
        "a(); /* it came */ b(); /* /* What */\n * it stands */ c();\n",
        &[
            "1 come came",
            "1 what-first What",
            "1 what What it",
            "2 stand stands",
        ],
    );
    check_rust(
        "/**\n * What is it\n */\nfn a() {}\n//// Who\n",
        &["2 what-first What", "2 what What is", "5 who-first Who"],
    );
}

#[test]
fn code_and_addresses_are_no_text() {
    check_document(
        "`what is` over, ``what ` is`` and `is\nthere` it came",
        &["2 come came"],
    );
    check_document("an open ` what is", &["1 what what is"]);
    check_document("`what` is, the `Client` who sends", &["1 who who sends"]);
    check_document("```sh\n# What is it\n```\n~~~\nhe\n~~~\nhis\n", &["7 nobody his"]);
    check_document(
        "Text:\n\n    he came\n\n    he stands\n\nhis\n",
        &["7 nobody his"],
    );
    check_document(
        "- item\n\n    he came\n\n            code he\n",
        &["3 nobody he", "3 come came"],
    );
    check_document(
        "[the page](docs/come/stand.md) at https://come.example/stand?he=his, <a href=\"he\">",
        &[],
    );
    check_document("[come](he) (he)", &["1 come come", "1 nobody he"]);
    check_document(
        "[name]: come/stand he\nstand.rs, come::he, is_over, src/come\n",
        &[],
    );
    check_document("<!-- he --> text\n", &[]);
    check_document("> What is it\n", &["1 what-first What", "1 what What is"]);
    check_rust("/// ```\n/// // What is it\n/// ```\nfn he() { his(); }\n", &[]);
}

#[test]
fn headings_and_cells_begin_texts() {
    check_document(
        "## What is sampled\ntext\n# Why\n",
        &["1 what-first What", "1 what What is", "3 how-first Why"],
    );
    check_document(
        "| when | What | a \\| What |\n|---|--:|\n| `a|What` | Who | he |\n",
        &["1 what-first What", "3 who-first Who", "3 nobody he"],
    );
    check_document(
        "1. Why\n2) What\n3 What\n",
        &["1 how-first Why", "2 what-first What"],
    );
}

#[test]
fn texts_for_people_are_read_and_other_literals_are_not() {
    let kind = |text: &str| {
        rust_file("src/a.rs", text)
            .hits
            .into_iter()
            .map(|hit| hit.kind)
            .collect::<Vec<_>>()
    };
    assert_eq!(
        kind("fn a() { warn!(\"it is over\") } // it came"),
        [TextKind::Comment, TextKind::Text]
    );
    for (code, expect) in [
        ("\"the {what} is there\"", &["1 is-there is there"][..]),
        ("\"{} is {} there, {a: he} came late\"", &["1 come came"]),
        (
            "\"a line\\n\\nWhat follows\"",
            &["1 what-first What", "1 what What follows"][..],
        ),
        (
            "\"it is \\\n      over \\\"he\\\" \\u{a0}\\n\"",
            &["1 is-over is over", "2 nobody he"],
        ),
        ("r#\"it is \"over\" and\ncame\"#", &["2 come came"]),
        ("\"use `what is` there\"", &[]),
        // One word, a protocol's message, bytes, characters, lifetimes, names.
        ("\"come\"", &[]),
        ("\"come-stand\"", &[]),
        ("\"GET /what is HTTP/1.1\\r\\nwhat is\\r\\n\"", &[]),
        ("b\"he came\", c\"he came\", br#\"he came\"#, cr\"he came\"", &[]),
        (
            "'\"', '\\'', b'\"', '\\u{22}', '\\\\', \"he came\"",
            &["1 nobody he", "1 come came"],
        ),
        (
            "a::<'he, 'a>(b'\\'', \"// it came\"), r#he, 'ü', 1.0e5",
            &["1 come came"],
        ),
        ("\"http://he.came/ he it\"", &["1 nobody he"]),
    ] {
        check_rust(&format!("fn a() {{ b({code}) }}\n"), expect);
        for test in ["crates/web/src/http/path/tests.rs", "crates/web/tests/it/a.rs"] {
            check_hits(&rust_file(test, &format!("fn a() {{ b({code}) }}\n")), &[]);
        }
        check_rust(
            &format!("#[cfg(test)]\nmod tests {{\n fn a() {{ b({code}) }}\n}}\n"),
            &[],
        );
    }
    // An unfinished literal extends to the end: rustc reports it.
    for text in ["\"", "\"\\", "'", "'\\", "r#\"", "/*", "b'\\ü", "r#", "ü\"ü\\ü"] {
        rust_file("src/a.rs", text);
    }
}

#[test]
fn names_of_types_and_functions_are_read() {
    let text = "\
struct Place;
pub(crate) enum Told<'a> { A(&'a str) }
trait Shared { type Local; fn fill(&self); }
impl Shared for Place { type Local = u8; fn fill(&self) { type Kept = u8; } }
impl Iterator for X<{ 1 }> { }
type Seen = fn(u8) -> u8;
union Said { a: u8 }
struct Fields { #[cfg(test)] a: u8 }
fn longer(a: impl Fn()) -> impl Fn() { struct Asked; a }
#[cfg(test)]
mod tests { struct Found; fn tested() {} }
macro_rules! m { () => { struct $name; fn $name() {} } }
// struct Found; fn comment() {}
const A: &str = \"struct Found;\";
a.union(b); r#type; r#fn;
";
    let language = rust_file("src/a.rs", text);
    let names: Vec<String> = language
        .types
        .iter()
        .map(|found| format!("{} {}", found.line, found.name))
        .collect();
    assert_eq!(
        names,
        [
            "1 Place", "2 Told", "3 Shared", "4 Kept", "6 Seen", "7 Said", "8 Fields", "9 Asked"
        ]
    );
    assert_eq!(
        (language.functions, language.function_characters),
        (3, "fillfilllonger".len())
    );
    assert!(rust_file("src/a/tests.rs", text).types.is_empty());
}

const LIST: &str = "list";

/// A tree of Rust files with these comments.
fn tree(files: &[(&str, &str)]) -> Vec<Language> {
    files.iter().map(|(path, text)| rust_file(path, text)).collect()
}

#[test]
fn ceilings_only_shrink() {
    let files = tree(&[("a.rs", "// he\n// his\n"), ("b.rs", "// text\n")]);
    check(compare(LIST, "# text\na.rs\tnobody\t2\n", &files), &[]);
    check(
        compare(LIST, "a.rs\tnobody\t1\n", &files),
        &["1 `nobody`, `somebody`, `he`, `his`: 2 times (lines 1, 2)"],
    );
    check(compare(LIST, "", &files), &["1 \"he\"", "2 \"his\""]);
    check(
        compare(LIST, "a.rs\tnobody\t3\nb.rs\tcome\t1\n", &files),
        &[
            "1 `a.rs` may have `nobody` 3 times and has it 2 times",
            "2 `b.rs` may have `come` 1 times and has it 0 times",
        ],
    );
    check(
        compare(
            LIST,
            "a.rs\tnobody\t2\ngone.rs\tcome\t1\ngone.rs\tstand\t1\n",
            &files,
        ),
        &["2 `gone.rs` does not exist"],
    );
    let finding = &compare(LIST, "", &files)[0];
    assert_eq!(
        finding.to_string(),
        "a.rs:1: \"he\"; expected no `nobody`, `somebody`, `he`, `his`; do: write the client, the caller, the operator; no client, \
         no caller (docs/glossary.md)"
    );
}

#[test]
fn ceilings_are_sorted_and_well_formed() {
    let files = tree(&[("a.rs", "// he came\n"), ("b.rs", "// he\n")]);
    check(
        compare(LIST, "a.rs\tnobody\t1\na.rs\tcome\t1\nb.rs\tnobody\t1\n", &files),
        &["2 `a.rs come` follows `a.rs nobody`"],
    );
    for malformed in [
        "b.rs nobody 1",
        "b.rs\tnobody\t0",
        "b.rs\tit\t1",
        "b.rs\ttype:A\t1",
        "b.rs\tnobody\t1\t1",
        "",
    ] {
        let findings = compare(
            LIST,
            &format!("a.rs\tcome\t1\na.rs\tnobody\t1\n{malformed}\n"),
            &files,
        );
        let malformed = format!("3 `{}` is not a ceiling", malformed.replace('\t', " "));
        check(findings, &[&malformed, "1 \"he\""]);
    }
}

#[test]
fn banned_type_names_fail_at_once() {
    for (name, _) in BANNED_TYPES {
        let files = tree(&[("a.rs", &format!("struct {name};\nstruct {name}s;\n"))]);
        check(compare(LIST, "", &files), &[&format!("1 \"{name}\"")]);
        check(compare(LIST, &format!("a.rs\ttype:{name}\t1\n"), &files), &[]);
    }
    let finding = &compare(LIST, "", &tree(&[("a.rs", "struct Told;")]))[0];
    assert_eq!(
        finding.to_string(),
        "a.rs:1: \"Told\"; expected no type named `Told`; do: write HandlerEvent, QueryResult (docs/glossary.md)"
    );
}

/// Lowers `list` to the counts of `files`; compares the lines without the head.
#[track_caller]
fn check_lower(list: &str, files: &[(&str, &str)], expect: &str) {
    let lowered = lower(list, &tree(files));
    let written = ceilings::write(&lowered.ceilings);
    let lines: String = written
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| format!("{line}\n"))
        .collect();
    assert_eq!(lines, expect);
    assert!(lowered.sums.1 <= lowered.sums.0, "{:?}", lowered.sums);
}

#[test]
fn lowering_never_raises() {
    check_lower(
        "a.rs\tcome\t3\na.rs\tnobody\t1\n",
        &[("a.rs", "// came\n")],
        "a.rs\tcome\t1\n",
    );
    check_lower(
        "a.rs\tcome\t1\n",
        &[("a.rs", "// came, came\n")],
        "a.rs\tcome\t1\n",
    );
    check_lower("", &[("a.rs", "// came\n")], "");
    // Both sides of a merge.
    check_lower(
        "<<<<<<< ours\na.rs\tcome\t1\n=======\na.rs\tcome\t3\n>>>>>>> theirs\n",
        &[("a.rs", "// came, came\n"), ("b.rs", "// came\n")],
        "a.rs\tcome\t1\n",
    );
    // A renamed file keeps its ceilings, but receives no more.
    check_lower(
        "a.rs\tcome\t1\n",
        &[("b.rs", "// came, came\n")],
        "b.rs\tcome\t1\n",
    );
    check_lower(
        "a.rs\tcome\t2\n",
        &[("b.rs", "// came\n"), ("c.rs", "// came\n")],
        "b.rs\tcome\t1\nc.rs\tcome\t1\n",
    );
    // A renamed file has priority over another new one.
    check_lower(
        "a.rs\tcome\t1\na.rs\tnobody\t1\n",
        &[("b.rs", "// came\n"), ("c.rs", "// he came\n")],
        "c.rs\tcome\t1\nc.rs\tnobody\t1\n",
    );
    // So does a part that was cut off, in the same crate, and no file that has ceilings already.
    let split = "crates/a/a.rs\tcome\t2\n";
    check_lower(
        split,
        &[("crates/a/a.rs", "// came\n"), ("crates/a/b.rs", "// came\n")],
        "crates/a/a.rs\tcome\t1\ncrates/a/b.rs\tcome\t1\n",
    );
    check_lower(
        split,
        &[("crates/a/a.rs", ""), ("crates/b/b.rs", "// came\n")],
        "",
    );
    check_lower(
        "a.rs\tcome\t1\nb.rs\tnobody\t1\n",
        &[("b.rs", "// he came\n")],
        "b.rs\tnobody\t1\n",
    );
}

#[test]
fn written_ceilings_pass() {
    let files = tree(&[
        ("b.rs", "// he came\nstruct Told;\n"),
        ("a.rs", "// What he is\n"),
        ("c.rs", ""),
    ]);
    let written = ceilings::write(&ceilings::counts(&files));
    assert!(written.starts_with('#'));
    check(compare(LIST, &written, &files), &[]);
    assert_eq!(ceilings::write(&lower(&written, &files).ceilings), written);
}

/// The file in the repository: sorted, and of files that exist.
#[test]
fn committed_ceilings_name_files_that_exist() {
    let list = fs::read_to_string(root().join(CEILINGS)).expect("the file is in the repository");
    let lines: Vec<&str> = list.lines().filter(|line| !line.starts_with('#')).collect();
    assert!(
        lines.is_sorted(),
        "{CEILINGS} is not sorted: run `{}`",
        ceilings::LOWER
    );
    let paths: BTreeSet<&str> = lines.iter().filter_map(|line| line.split('\t').next()).collect();
    for path in paths {
        assert!(
            root().join(path).is_file(),
            "{CEILINGS} names `{path}`, which does not exist: run `{}`",
            ceilings::LOWER
        );
    }
}

#[test]
fn figures_are_per_crate_and_per_thousand_lines() {
    for (path, expect) in [
        ("crates/web/src/a.rs", "web"),
        ("src/lib.rs", "ringmain"),
        ("tests/it/main.rs", "ringmain"),
        ("fuzz/src/a.rs", "fuzz"),
        ("crates/web/README.md", "documents"),
    ] {
        assert_eq!(crate_of(path), expect);
    }
    let mut files = tree(&[(
        "crates/web/src/a.rs",
        "/// Returns what it is told,\n///\n/// - and came,\n/// - and stands.\nfn name() {}\nstruct A; mod b { struct A; } mod c { struct A; }\n",
    )]);
    files.push(document("docs/a.md", "| he | What is it |\n"));
    let tables = tables(&files.iter().collect::<Vec<_>>());
    let row = |name: &str| {
        tables
            .lines()
            .find(|line| line.starts_with(name))
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
    };
    let web = [
        "web", "3", "333.3", "0.0", "333.3", "333.3", "333.3", "333.3", "1", "4.0",
    ];
    assert_eq!(row("web").expect("a row of the crate"), web);
    assert_eq!(row("all crates").expect("a row of all")[2..], web[1..]);
    let documents = [
        "documents",
        "1",
        "1000.0",
        "0.0",
        "0.0",
        "0.0",
        "0.0",
        "0.0",
        "0",
        "-",
    ];
    assert_eq!(row("documents").expect("a row of the documents"), documents);
    assert_eq!(
        row("nobody").expect("a row of the expression"),
        ["nobody", "0", "0", "1"]
    );
    assert!(
        tables.ends_with("more than 2 times: 1\n   3  A (web)\n"),
        "{tables}"
    );
}

#[test]
fn named_crates_are_judged_together_by_the_limits() {
    let files = tree(&[
        (
            "crates/web/src/a.rs",
            "/// Returns what it is told.\nfn name() {}\n",
        ),
        (
            "crates/hub/src/a.rs",
            "/// Returns the number.\nfn a_longer_function_name() {}\n",
        ),
        (
            "crates/jwt/src/a.rs",
            "/// A key.\nstruct A; mod b { struct A; } mod c { struct A; }\n",
        ),
    ]);
    let exceeded = |crates: &[&str]| judge(&files, crates).map(|(_, exceeded)| exceeded);
    assert_eq!(exceeded(&["hub"]), Ok(Vec::new()));
    let web = [
        "what: 1000.0, at most 2.0",
        "told: 1000.0, at most 2.0",
        "function names: 4.00 characters, at least 9.0",
    ];
    assert_eq!(exceeded(&["web"]), Ok(web.map(String::from).to_vec()));
    // The mean of 4 and 22 characters is sufficient.
    let both = ["what: 500.0, at most 2.0", "told: 500.0, at most 2.0"];
    assert_eq!(exceeded(&["web", "hub"]), Ok(both.map(String::from).to_vec()));
    let jwt = [
        "returns: 0.0, at least 8.0",
        "1 type names are defined more than 2 times",
    ];
    assert_eq!(exceeded(&["jwt"]), Ok(jwt.map(String::from).to_vec()));
    assert_eq!(exceeded(&["web", "nil"]), Err("no such crate: nil".into()));
}
