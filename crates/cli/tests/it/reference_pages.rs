//! The reference pages of the command line and of metrics name the options and metrics of the program, and no others.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::program;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the words of a text that begin with `start` and continue with lower-case letters, digits, `_` and `-`.
fn words(text: &str, start: &str) -> BTreeSet<String> {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_' || c == '-';
    text.match_indices(start)
        .map(|(at, _)| {
            let rest = &text[at + start.len()..];
            let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
            format!("{start}{}", &rest[..end])
        })
        .collect()
}

fn read_sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            read_sources(&path, text);
        } else if path.file_name().is_some_and(|name| name != "tests.rs") {
            text.push_str(&fs::read_to_string(path).unwrap());
        }
    }
}

fn help(args: &[&str]) -> String {
    let output = Command::new(program()).args(args).output().unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn every_metric_is_on_the_page_of_metrics() {
    let mut sources = String::new();
    read_sources(&root().join("crates/control/src/admin"), &mut sources);
    let page = fs::read_to_string(root().join("docs/reference/metrics.md")).unwrap();
    let exported: BTreeSet<String> = words(&sources, "\"ringmain_")
        .into_iter()
        .map(|name| name.replace('"', "`"))
        // docs/reference/push-metrics.md and push-sources.md.
        .filter(|name| !name.starts_with("`ringmain_push_"))
        .collect();
    assert!(exported.len() > 50, "{exported:?}");
    assert_eq!(words(&page, "`ringmain_"), exported);
}

#[test]
fn every_command_and_option_of_run_is_on_the_page_of_the_command_line() {
    let page = fs::read_to_string(root().join("docs/reference/cli.md")).unwrap();
    let help_text = help(&["--help"]);
    let commands = help_text.split("Commands:\n").nth(1).unwrap();
    let commands: Vec<&str> = commands
        .lines()
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.contains(&"run") && commands.len() > 8, "{commands:?}");
    for command in commands {
        assert!(page.contains(&format!("`{command}")), "the command {command}");
    }
    let options = page.split("## Options of `run`").nth(1).unwrap();
    let options = words(options.split("## Exit codes").next().unwrap(), "`--");
    let run = help(&["run", "--help"]);
    for option in &options {
        assert!(
            run.contains(option.trim_start_matches('`')),
            "no such option: {option}"
        );
    }
    // Lines that begin with an option.
    let defined = run
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with('-'));
    for option in defined.flat_map(|line| words(line.split("  ").next().unwrap(), "--")) {
        let exempt = ["--help", "--version", "--verbose", "--quiet"];
        let listed = options.contains(&format!("`{option}"));
        assert!(
            listed || exempt.contains(&option.as_str()),
            "{option} is not on the page"
        );
    }
}
