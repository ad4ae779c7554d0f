//! Each rule of `tidy` by a table: what it is given, what it says.

use std::path::Path;

use serde_json::json;

use super::exceptions::{Size, compare};
use super::{Finding, architecture, crates, manifest, source};

/// Compares findings as `line what`.
#[track_caller]
pub(super) fn check(found: impl IntoIterator<Item = Finding>, expect: &[&str]) {
    let found: Vec<String> = found
        .into_iter()
        .map(|finding| format!("{} {}", finding.line, finding.what))
        .collect();
    assert_eq!(found, expect);
}

#[track_caller]
fn check_source(path: &str, text: &str, expect: &[&str]) {
    check(source::inspect(path, text).findings, expect);
}

fn metadata(packages: &[(&str, &[&str])]) -> Vec<crates::Package> {
    let package = |(name, dependencies): &(&str, &[&str])| {
        let dependencies: Vec<_> = dependencies.iter().map(|name| json!({ "name": name })).collect();
        json!({
            "name": name,
            "manifest_path": format!("/tree/{name}/Cargo.toml"),
            "dependencies": dependencies,
            "targets": [
                { "kind": ["lib"], "src_path": format!("/tree/{name}/src/lib.rs") },
                { "kind": ["test"], "src_path": format!("/tree/{name}/tests/all.rs") },
            ],
        })
    };
    let packages: Vec<_> = packages.iter().map(package).collect();
    crates::packages(&json!({ "packages": packages }), Path::new("/tree")).expect("well-formed metadata")
}

#[test]
fn a_finding_says_where_what_and_what_to_do() {
    let finding = Finding::new("a/b.rs", 7, "it is wrong", "it right", "mend it");
    assert_eq!(
        finding.to_string(),
        "a/b.rs:7: it is wrong; expected it right; do: mend it"
    );
}

#[test]
fn metadata_gives_paths_from_the_root_and_only_roots_of_products() {
    let packages = metadata(&[("ringmain-sys", &["libc"])]);
    assert_eq!(packages[0].manifest, "ringmain-sys/Cargo.toml");
    assert_eq!(packages[0].dependencies, ["libc"]);
    assert_eq!(packages[0].roots, ["ringmain-sys/src/lib.rs"]);
    assert!(crates::packages(&json!({}), Path::new("/")).is_err());
}

#[test]
fn dependencies_point_one_way() {
    let right = metadata(&[
        ("ringmain-sys", &["libc", "rustix"]),
        ("ringmain-engine", &["ringmain-sys", "io-uring"]),
        ("ringmain", &["ringmain-engine"]),
        (
            "ringmain-cli",
            &["ringmain", "ringmain-engine", "ringmain-sys", "clap"],
        ),
    ]);
    check(crates::direction(&right), &[]);

    let up = metadata(&[
        ("ringmain-sys", &["ringmain-engine"]),
        ("ringmain-engine", &["ringmain-sys"]),
    ]);
    check(
        crates::direction(&up),
        &["1 `ringmain-sys` depends on `ringmain-engine`"],
    );

    let sideways = metadata(&[("ringmain-wire", &[]), ("ringmain-engine", &["ringmain-wire"])]);
    check(
        crates::direction(&sideways),
        &["1 `ringmain-engine` depends on `ringmain-wire`"],
    );

    // For tests alone: at any place, but not in what is built.
    let of_tests = |kind: &str| {
        let packages = json!({ "packages": [
            { "name": "ringmain-testkit", "manifest_path": "/t/Cargo.toml" },
            {
                "name": "ringmain-sys",
                "manifest_path": "/s/Cargo.toml",
                "dependencies": [{ "name": "ringmain-testkit", "kind": kind }],
            },
        ] });
        crates::packages(&packages, Path::new("/")).expect("well-formed metadata")
    };
    check(crates::direction(&of_tests("dev")), &[]);
    check(
        crates::direction(&of_tests("build")),
        &["1 `ringmain-sys` depends on `ringmain-testkit`"],
    );

    let stranger = metadata(&[("ringmain-utils", &[])]);
    check(
        crates::direction(&stranger),
        &["1 crate `ringmain-utils` has no row in the table of dependencies"],
    );
}

#[test]
fn a_plain_application_stays_lean() {
    check(
        crates::plain_closure("ringmain v0.1.0 (/tree)\nbytes v1.12.1\nclaptrap v1.0.0\n"),
        &[],
    );
    check(
        crates::plain_closure(
            "ringmain v0.1.0\ntokio-util v0.7.0\ntokio v1.54.1\ntokio v1.54.1 (*)\nkube v5.0.0\n",
        ),
        &[
            "1 a plain application pulls in `kube`",
            "1 a plain application pulls in `tokio`",
            "1 a plain application pulls in `tokio-util`",
        ],
    );
    check(
        crates::plain_closure("ringmain v0.1.0\nringmain-sim v0.1.0 (/tree/crates/sim)\n"),
        &["1 `ringmain` is built with `ringmain-sim`"],
    );
}

#[test]
fn the_binary_is_built_without_crates_for_tests() {
    check(
        crates::binary_closure(
            "ringmain-cli v0.1.0 (/tree/crates/cli)\nringmain-engine v0.1.0\nclap v4.6.0\n",
        ),
        &[],
    );
    check(
        crates::binary_closure(
            "ringmain-cli v0.1.0\nringmain-sim v0.1.0\nringmain-testkit v0.1.0\nringmain-sim v0.1.0 (*)\n",
        ),
        &[
            "1 `ringmain-cli` is built with `ringmain-sim`",
            "1 `ringmain-cli` is built with `ringmain-testkit`",
        ],
    );
}

#[test]
fn every_file_begins_with_what_it_owns() {
    check_source("src/a.rs", "//! A.\nfn a() {}\n", &[]);
    check_source(
        "src/a.rs",
        "// A.\nfn a() {}\n",
        &["1 file does not begin with `//!`"],
    );
    check_source("src/a.rs", "\n//! A.\n", &["1 file does not begin with `//!`"]);
}

#[test]
fn what_is_not_rust_is_said() {
    let findings = source::inspect("src/a.rs", "//! A.\nfn a() {\n").findings;
    assert!(findings[0].what.starts_with("not Rust"), "{findings:?}");
}

#[test]
fn unsafe_is_allowed_in_two_crates_of_the_product() {
    let text = "//! A.\nfn a() {\n    unsafe { b() }\n}\n";
    check_source("crates/sys/src/a.rs", text, &[]);
    check_source("crates/engine/tests/a.rs", text, &[]);
    check_source("bench/floor/src/a.rs", text, &[]);
    check_source("crates/sim/src/a.rs", text, &[]);
    check_source("bench/src/a.rs", text, &["3 `unsafe`"]);
    check_source("crates/web/src/a.rs", text, &["3 `unsafe`"]);
    check_source(
        "crates/system/src/a.rs",
        "//! A.\nm!(unsafe fn b());\n",
        &["2 `unsafe`"],
    );
    check_source(
        "crates/web/src/a.rs",
        "//! unsafe\n// unsafe\nconst A: &str = \"unsafe\"; // unsafe_code\n",
        &[],
    );
}

#[test]
fn crate_roots_forbid_unsafe() {
    let missing = ["1 crate root without `#![forbid(unsafe_code)]`"];
    check(
        source::forbids_unsafe("src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"),
        &[],
    );
    check(
        source::forbids_unsafe("src/lib.rs", "//! A.\n#![forbid(missing_docs, unsafe_code)]\n"),
        &[],
    );
    check(
        source::forbids_unsafe("src/lib.rs", "//! A.\n#![deny(unsafe_code)]\n"),
        &missing,
    );
    check(
        source::forbids_unsafe("src/lib.rs", "//! `#![forbid(unsafe_code)]`\nfn a() {}\n"),
        &missing,
    );
    check(source::forbids_unsafe("crates/sys/src/lib.rs", "//! A.\n"), &[]);
}

#[test]
fn unfinished_work_names_a_decision() {
    check_source("src/a.rs", "//! A.\n// TODO(0007): later\n", &[]);
    check_source(
        "src/a.rs",
        "//! A.\n\n// TODO: later\n",
        &["3 TODO without a decision"],
    );
    check_source(
        "src/a.rs",
        "//! A.\n/// FIXME(me)\nfn a() {}\n",
        &["2 FIXME without a decision"],
    );
    check_source(
        "src/a.rs",
        "//! A.\nfn a() {} /* TODO(7) */\n",
        &["2 TODO without a decision"],
    );
    check_source(
        "src/a.rs",
        "//! A.\nconst A: &str = r#\"TODO\"#; // AUTODOC, TODOS\n",
        &[],
    );
    check_source("src/a.rs", "//! Größe: „TODO“\n", &["1 TODO without a decision"]);
    check(
        source::unfinished("a.py", "x = 1\n# FIXME\n", &[]),
        &["2 FIXME without a decision"],
    );
}

#[test]
fn tests_wait_for_events_and_let_the_kernel_choose_ports() {
    let (sleep, yields, port) = (
        "2 `thread::sleep` in a test",
        "2 `yield_now` in a test",
        "2 a test chooses its port",
    );
    let of = |code: &str| format!("//! A.\n{code}\n");
    for (code, expect) in [
        ("fn a() { std::thread::sleep(SOON) }", &[sleep][..]),
        ("fn a() { while !b() { thread::yield_now() } }", &[yields]),
        ("use std::thread::{self, yield_now};", &[yields]),
        ("fn a() { TcpListener::bind(\"127.0.0.1:8080\") }", &[port]),
        ("fn a() { UdpSocket::bind((Ipv4Addr::LOCALHOST, 8080)) }", &[port]),
        (
            "fn a() -> u16 { 10_000 + (std::process::id() % 100) as u16 }",
            &[port],
        ),
        // Virtual time, imports of other things, a free port, a name.
        ("async fn a() { cx.sleep(SOON).await }", &[]),
        ("use std::thread::{self, JoinHandle};", &[]),
        (
            "fn a() { TcpListener::bind(\"127.0.0.1:0\"); bind((host, 0)); bind(&socket, &at) }",
            &[],
        ),
        ("fn a() { format!(\"a-{}\", std::process::id()) }", &[]),
        ("// thread::sleep", &[]),
    ] {
        for path in [
            "crates/web/tests/it/http/fast_path.rs",
            "crates/web/src/http/path/tests.rs",
            "tests/it/examples.rs",
        ] {
            check_source(path, &of(code), expect);
        }
        // What is no test, and the crate that does it for them.
        for path in ["crates/load/src/server/child.rs", "crates/testkit/src/wait.rs"] {
            check_source(path, &of(code), &[]);
        }
    }
}

#[test]
fn tests_measure_no_elapsed_time() {
    let measures = |clock: &str| format!("2 a test measures elapsed time: `{clock}`");
    let (instant, clock) = (measures("Instant"), measures("clock"));
    let of = |code: &str| format!("//! A.\n{code}\n");
    for (code, expect) in [
        (
            "fn a() { let begun = Instant::now(); assert!(begun.elapsed() < LONG) }",
            &[&*instant][..],
        ),
        (
            "fn a() { let end = std::time::Instant::now() + PATIENCE; }",
            &[&instant],
        ),
        (
            "fn a() { let begun = ringmain_sys::clock::monotonic(); }",
            &[&clock],
        ),
        // Virtual time, the time of day, a type, other words, a comment.
        (
            "fn a() { assert!(client.elapsed() < LONG && cx.now() < end) }",
            &[],
        ),
        (
            "fn a() { UNIX_EPOCH.elapsed(); SystemTime::now(); clock::realtime() }",
            &[],
        ),
        ("use std::time::{Duration, Instant};", &[]),
        ("fn a(instant: Instant) -> Time { Time::now() }", &[]),
        ("// Instant::now", &[]),
    ] {
        for path in [
            "crates/web/tests/it/http/fast_path.rs",
            "crates/web/src/http/path/tests.rs",
            "tests/it/examples.rs",
        ] {
            check_source(path, &of(code), expect);
        }
        // No test, a benchmark, the crate that owns the waits, and the one that owns the clock.
        for path in [
            "crates/load/src/server/child.rs",
            "crates/web/src/router/tests/bench.rs",
            "crates/testkit/src/wait.rs",
            "crates/sys/tests/it/kernel.rs",
        ] {
            check_source(path, &of(code), &[]);
        }
    }
}

#[test]
fn an_ignored_test_has_a_reason() {
    let silent = ["2 test ignored without a reason"];
    check_source(
        "src/a.rs",
        "//! A.\n#[ignore = \"slow: run it by hand\"]\nfn a() {}\n",
        &[],
    );
    check_source("src/a.rs", "//! A.\n#[ignore]\nfn a() {}\n", &silent);
    check_source(
        "src/a.rs",
        "//! A.\n#[cfg_attr(miri, ignore)]\nfn a() {}\n",
        &silent,
    );
    check_source(
        "src/a.rs",
        "//! A.\n#[cfg_attr(miri, ignore = \"system calls\")]\nfn a() {}\n",
        &[],
    );
    check_source(
        "src/a.rs",
        "//! A.\n#[cfg_attr(ignore, inline)]\n#[serde(ignore)]\nfn ignore() {}\n",
        &[],
    );
}

/// Sizes of the functions in `text` as `(name, line, lines)`.
#[track_caller]
fn check_sizes(text: &str, expect: &[(&str, usize, usize)]) {
    let sizes = source::inspect("src/a.rs", text).sizes;
    let functions: Vec<_> = sizes
        .iter()
        .filter_map(|size| size.function.as_deref().map(|name| (name, size.line, size.lines)))
        .collect();
    assert_eq!(functions, expect);
}

#[test]
fn functions_are_measured_from_fn_to_brace() {
    check_sizes("//! A.\nfn a() {}\n", &[("a", 2, 1)]);
    check_sizes(
        "//! A.\n/// Long\n/// text.\n#[inline]\npub fn a(\n    b: u8,\n) {\n}\n",
        &[("a", 5, 4)],
    );
    check_sizes(
        "//! A.\ntrait T {\n    fn a();\n    fn b() {\n    }\n}\n",
        &[("b", 4, 2)],
    );
    check_sizes("//! A.\ntype F = fn(u8) -> u8;\nstruct S { f: fn() }\n", &[]);
    check_sizes(
        "//! A.\nfn a() {\n    let x = \"}\"; // }\n    let y = '}';\n    fn b() {}\n}\n",
        &[("a", 2, 5), ("b", 5, 1)],
    );
    check_sizes("//! A.\nm! { fn a() {\n} }\n", &[("a", 2, 2)]);
}

#[test]
fn a_file_is_measured_in_lines() {
    let sizes = source::inspect("src/a.rs", "//! A.\n\nfn a() {}\n").sizes;
    assert_eq!(
        sizes[0],
        Size {
            path: "src/a.rs".into(),
            function: None,
            line: 1,
            lines: 3
        }
    );
}

fn file(lines: usize) -> Size {
    Size {
        path: "a.rs".into(),
        function: None,
        line: 1,
        lines,
    }
}

fn function(lines: usize) -> Size {
    Size {
        path: "a.rs".into(),
        function: Some("f".into()),
        line: 9,
        lines,
    }
}

#[track_caller]
fn check_exceptions(list: &str, sizes: &[Size], expect: &[&str]) {
    check(compare("list.txt", list, sizes), expect);
}

#[test]
fn sizes_have_limits() {
    check_exceptions("# nothing\n\n", &[file(600), function(70)], &[]);
    check_exceptions("", &[file(601)], &["1 file has 601 lines"]);
    check_exceptions("", &[function(71)], &["9 function `f` has 71 lines"]);
}

#[test]
fn exceptions_only_shrink() {
    check_exceptions(
        "700 a.rs a table\n80 a.rs::f one match\n",
        &[file(700), function(80)],
        &[],
    );
    check_exceptions("700 a.rs a table\n", &[file(701)], &["1 file has 701 lines"]);
    check_exceptions(
        "#\n700 a.rs a table\n",
        &[file(699)],
        &["2 `a.rs` may have 700 lines but has 699"],
    );
    check_exceptions(
        "700 a.rs a table\n",
        &[file(600)],
        &["1 `a.rs` needs no exception any more"],
    );
    check_exceptions(
        "80 a.rs::g gone\n",
        &[function(70)],
        &["1 `a.rs::g` needs no exception any more"],
    );
    check_exceptions("80 a.rs::f one match\n", &[function(12), function(80)], &[]);
    check_exceptions(
        "80 a.rs::f\n",
        &[function(80)],
        &["1 `80 a.rs::f` is no exception", "9 function `f` has 80 lines"],
    );
}

#[test]
fn every_dependency_says_why() {
    let right = "\
[workspace.dependencies]
ours = { version = \"0.1.0\", path = \"ours\" }
# Why.
bytes = \"1\"
# Why.
rustix = { version = \"1\", features = [
    \"net\",
] }

[dependencies]
bytes.workspace = true
";
    check(manifest::explained(right), &[]);
    let wrong =
        "[workspace.dependencies]\n# Why.\nbytes = \"1\"\nlibc = \"0.2\"\n[workspace.dependencies.log]\n";
    check(
        manifest::explained(wrong),
        &[
            "4 dependency `libc` does not say why it is here",
            "5 dependency `log` does not say why it is here",
        ],
    );
}

#[test]
fn architecture_is_short_and_names_paths_that_exist() {
    let exists = |path: &str| {
        [
            "crates/web",
            "crates/web/src/a.rs",
            "crates/web/src/b.rs",
            "src/lib.rs",
        ]
        .contains(&path)
    };
    let text = "`crates/web`: `Host`, `crates/web/src/a.rs`, `b.rs`, `layer.rs`\n\n`c.rs` is no path without a folder\n`src/lib.rs`, `src/gone.rs`\n";
    let expect = [
        "1 `crates/web/src/layer.rs` does not exist",
        "4 `src/gone.rs` does not exist",
    ];
    check(architecture::inspect(text, exists), &expect);
    let long = "a".repeat(8_001);
    check(architecture::inspect(&long, exists), &["1 8001 characters"]);
    check(architecture::inspect(&long[1..], exists), &[]);
}
