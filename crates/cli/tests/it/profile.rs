//! `ringmain profile`: of this very binary, where the kernel gives samples; two profiles compared; wrong command lines.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::process::{Command, Output};

use crate::common::{Directory, fails, program, skipped};
use serde_json::Value;

const BEFORE: &str = "w;main;f 500\nw;main;g;nf_hook_slow_[k] 500\n";
const AFTER: &str = "w;main;f 1900\nw;main;h 100\n";

fn profile(args: &[&str]) -> Output {
    Command::new(program())
        .arg("profile")
        .args(args)
        .output()
        .unwrap()
}

fn succeeds(args: &[&str]) -> String {
    let output = profile(args);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_command_is_profiled_into_files_and_a_summary() {
    let directory = Directory::new();
    let [svg, folded, json] =
        ["p.svg", "p.folded", "p.json"].map(|name| directory.join(name).display().to_string());
    // Trades made up as fast as they can be: CPU time of our own.
    let feed = [program().to_str().unwrap(), "feed", "-r", "10m", "-d", "1s", "-q"];
    let mut args = vec!["--svg", &svg, "--folded", &folded, "--json", &json, "--"];
    let shell = format!("{} > {}", feed.join(" "), directory.join("trades").display());
    args.extend(["sh", "-c", &shell]);
    let output = profile(&args);
    let said = String::from_utf8_lossy(&output.stderr);
    if said.contains("the kernel refuses to sample") {
        skipped(&format!("a profile of a real program: {said}"));
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let summary = String::from_utf8(output.stdout).unwrap();
    for text in ["samples in", "user ", "Known costs", "Functions of user code"] {
        assert!(summary.contains(text), "{text}: {summary}");
    }
    let stacks = fs::read_to_string(&folded).unwrap();
    assert!(
        stacks
            .lines()
            .any(|line| line.starts_with("ringmain;") && line.contains(";ringmain::feed::run;")),
        "{stacks}"
    );
    let document: Value = serde_json::from_str(&fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(
        (&document["format"], &document["kind"]),
        (&"ringmain-profile".into(), &"profile".into())
    );
    let counted: u64 = stacks
        .lines()
        .map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap())
        .sum();
    assert_eq!(document["samples"], counted);
    let drawn = fs::read_to_string(&svg).unwrap();
    assert!(drawn.starts_with("<svg ") && drawn.contains("data-n=\"ringmain::feed::run\""));
    // It compares with itself, and is the same.
    let same = succeeds(&["diff", &folded, &folded]);
    assert!(
        !same.contains('+') && same.contains("has changed by more than chance"),
        "{same}"
    );
}

#[test]
fn two_profiles_are_compared() {
    let directory = Directory::new();
    let [before, after, svg] =
        ["a.folded", "b.folded", "d.svg"].map(|name| directory.join(name).display().to_string());
    fs::write(&before, BEFORE).unwrap();
    fs::write(&after, AFTER).unwrap();
    let text = succeeds(&["diff", &before, &after, "--svg", &svg]);
    assert!(
        text.contains("-50.00  nf_hook_slow (kernel)") && text.contains("-50.00  netfilter"),
        "{text}"
    );
    assert!(fs::read_to_string(&svg).unwrap().contains("95.00% after"));
    // Data alone on standard output, where it goes there.
    let document: Value = serde_json::from_str(&succeeds(&["diff", &before, &after, "--json", "-"])).unwrap();
    assert_eq!(document["functions"][0]["name"], "nf_hook_slow");
    assert!(succeeds(&["diff", &before, &after, "--svg", "-"]).starts_with("<svg "));
}

#[test]
fn wrong_command_lines_are_reported() {
    let directory = Directory::new();
    let broken = directory.join("broken").display().to_string();
    fs::write(&broken, "a;b 1\na;b\n").unwrap();
    let table: &[(&[&str], i32, &str)] = &[
        (
            &[],
            2,
            "expected a process to sample: --pid PID, or a command after --",
        ),
        (&["--pid", "1", "--", "true"], 2, "drop one"),
        (&["ls", "-l"], 2, "`ringmain profile -- COMMAND`"),
        (
            &["-p", "1", "--svg", "-", "--json", "-"],
            2,
            "--svg and --json both write to standard output",
        ),
        (
            &["-p", "1", "--stacks", "fp", "--stack-bytes", "8k"],
            2,
            "drop --stacks fp",
        ),
        (
            &["-p", "1", "-F", "0"],
            2,
            "expected a whole number from 1 to 10000",
        ),
        (
            &["-p", "1", "--stack-bytes", "1m"],
            2,
            "expected bytes from 1KiB to 60KiB",
        ),
        (&["-p", "2147483647"], 1, "found no process 2147483647"),
        (
            &["-p", "1", "--svg", "/no/such/folder/x.svg"],
            2,
            "cannot write /no/such/folder/x.svg",
        ),
        (
            &["diff", &broken, &broken],
            2,
            "line 2: expected a stack and its count",
        ),
        (
            &["diff", "/no/such/file", &broken],
            2,
            "/no/such/file: No such file",
        ),
    ];
    for (args, code, expected) in table {
        let args: Vec<&str> = std::iter::once("profile").chain(args.iter().copied()).collect();
        let mut command = Command::new(program());
        let said = fails(command.args(&args), *code);
        assert!(said.contains(expected), "{args:?}: {said}");
    }
}
