//! Runs the commands of the pages `docs/how-to/bench-*.md` after a `$`.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Directory, Server, program};

/// The page whose tables have the options of other tools.
const MIGRATION: &str = "bench-from-wrk2-and-k6.md";

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

/// Returns the name and the text of each page, sorted by name.
fn pages() -> Vec<(String, String)> {
    let entries = fs::read_dir(root().join("docs/how-to")).unwrap();
    let mut pages: Vec<_> = entries
        .map(|entry| {
            let path = entry.unwrap().path();
            (path.file_name().unwrap().to_string_lossy().into_owned(), path)
        })
        .filter(|(name, _)| name.starts_with("bench-") && name.ends_with(".md"))
        .map(|(name, path)| (name, fs::read_to_string(path).unwrap()))
        .collect();
    pages.sort();
    pages
}

#[test]
fn the_commands_of_the_pages_work() {
    let mut serve = Command::new(program());
    let (server, addrs) = Server::start(serve.args(["run", "--listen", "127.0.0.1:0"]), 1);
    let directory = Directory::new();
    let path = format!(
        "{}:{}",
        program().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut count = 0;
    for (name, page) in pages() {
        for written in page.lines().filter_map(|line| line.strip_prefix("$ ")) {
            let command = written
                .replace("127.0.0.1:8080", &addrs[0])
                .replace("examples/", &format!("{}/examples/", root().display()));
            // A load is shorter here than for a reader. Of a number of requests a busy machine answers some in any case; thresholds are
            // judged, for which it must answer all but a few.
            let is_load = ["http://", "ws://"].iter().any(|scheme| command.contains(scheme));
            let is_judged = command.contains("--threshold");
            let shorter = match (is_load, is_judged) {
                (true, true) => " -n 400 -w 20ms --rounds 1",
                (true, false) => " -n 100 -w 20ms --rounds 1",
                (false, _) => "",
            };
            let command = command + shorter;
            let output = Command::new("sh")
                .args(["-c", &command])
                .env("PATH", &path)
                .current_dir(directory.path())
                .output()
                .unwrap();
            assert_eq!(output.status.code(), Some(0), "{name}: {written}: {output:?}");
            assert!(!output.stdout.is_empty(), "{name}: {written}: {output:?}");
            count += 1;
        }
    }
    assert!(count >= 12, "the pages have lost their commands: {count}");
    server.terminate();
}

#[test]
fn the_pages_name_only_existing_options() {
    let help = |args: &[&str]| {
        let output = Command::new(program()).args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let known = [
        help(&["bench", "--help"]),
        help(&["bench", "compare", "--help"]),
        help(&["bench", "merge", "--help"]),
        help(&["bench", "push", "--help"]),
        help(&["profile", "--help"]),
        help(&["tune", "--help"]),
        help(&["run", "--help"]),
    ]
    .concat();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-' || c.is_ascii_digit();
    let mut count = 0;
    for (page_name, page) in pages().into_iter().filter(|(name, _)| name != MIGRATION) {
        // Options of other programs.
        let lines = page.lines().filter(|line| {
            !["protoc --", "systemd-run --"]
                .iter()
                .any(|other| line.contains(other))
        });
        let page = lines.collect::<Vec<_>>().join("\n");
        for (place, _) in page.match_indices("--") {
            let before = page[..place].chars().last();
            let rest = &page[place + 2..];
            let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
            let is_option = name.starts_with(|c: char| c.is_ascii_lowercase());
            if !is_option || matches!(before, Some('-' | '|')) {
                continue;
            }
            assert!(
                known.contains(&format!("--{name}")),
                "{page_name}: --{name} is no option"
            );
            count += 1;
        }
    }
    assert!(count > 60, "{count}");
}
