//! Completion scripts and the manual page, as a shell and `man` would take them.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::process::{Command, Output, Stdio};

use crate::common::{Directory, program};

fn output(args: &[&str]) -> String {
    let output = Command::new(program()).args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn bash(args: &[&str]) -> Output {
    Command::new("bash")
        .args(["--norc", "--noprofile"])
        .args(args)
        .output()
        .unwrap()
}

/// Returns the completions of bash for the last word.
fn completed(script: &str, words: &[&str]) -> Vec<String> {
    let last = words.len() - 1;
    let code = format!(
        "source {script}\nCOMP_WORDS=({})\nCOMP_CWORD={last}\n_ringmain ringmain '{}' '{}'\necho \"${{COMPREPLY[@]}}\"",
        words.join(" "),
        words[last],
        words[last - 1],
    );
    let output = bash(&["-c", &code]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    let offered = String::from_utf8(output.stdout).unwrap();
    offered.split_whitespace().map(str::to_owned).collect()
}

#[test]
fn bash_completes_with_its_script() {
    let directory = Directory::new();
    let script = directory.join("ringmain.bash").display().to_string();
    fs::write(&script, output(&["completions", "bash"])).unwrap();
    let parsed = bash(&["-n", &script]);
    assert!(parsed.status.success() && parsed.stderr.is_empty(), "{parsed:?}");

    assert_eq!(completed(&script, &["ringmain", "ru"]), ["run"]);
    assert_eq!(
        completed(&script, &["ringmain", "--header"]),
        ["--header-timeout"]
    );
    assert_eq!(
        completed(&script, &["ringmain", "run", "--header"]),
        ["--header-timeout"]
    );
    assert_eq!(completed(&script, &["ringmain", "--engine", "e"]), ["epoll"]);
    assert_eq!(completed(&script, &["ringmain", "completions", "z"]), ["zsh"]);
    assert_eq!(completed(&script, &["ringmain", "bench", "comp"]), ["compare"]);
    assert_eq!(
        completed(&script, &["ringmain", "bench", "--pois"]),
        ["--poisson"]
    );
    assert_eq!(
        completed(&script, &["ringmain", "bench", "compare", "--server-p"]),
        ["--server-pid"]
    );
    assert_eq!(completed(&script, &["ringmain", "tune", "loc"]), ["locality"]);
    assert_eq!(
        completed(&script, &["ringmain", "tune", "plan", "--accept", "noq"]),
        ["noqueue"]
    );
    assert_eq!(
        completed(&script, &["ringmain", "feed", "--distribution", "z"]),
        ["zipf"]
    );
    assert_eq!(
        completed(&script, &["ringmain", "profile", "--stacks", "c"]),
        ["copy"]
    );
}

#[test]
fn every_shell_has_a_script_with_the_commands() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let script = output(&["completions", shell]);
        for word in [
            "completions",
            "max-connections",
            "uring",
            "bench",
            "find-max",
            "compare",
            "feed",
            "symbols",
            "stack-bytes",
            "tune",
        ] {
            assert!(script.contains(word), "{word} is missing for {shell}");
        }
    }
}

/// Macros of roff's `man` package.
const MACROS: [&str; 15] = [
    ".ie", ".el", ".TH", ".SH", ".SS", ".TP", ".PP", ".RS", ".RE", ".IP", ".br", ".nf", ".fi", ".B", ".sp",
];

#[test]
fn the_manual_page_is_valid_and_has_every_option() {
    let page = output(&["man"]);
    for line in page.lines() {
        if line.starts_with(['.', '\'']) {
            let name = line.split(' ').next().unwrap();
            assert!(MACROS.contains(&name), "no macro of man: {line}");
        }
        assert!(!line.contains('\x1b'), "a terminal's escape: {line}");
    }
    for title in [
        "NAME",
        "SYNOPSIS",
        "COMMANDS",
        "LISTENING",
        "PATHS SERVED",
        "SIGNALS",
        "EXIT CODES",
        "EXAMPLES",
    ] {
        assert!(
            page.lines().any(|line| line
                .strip_prefix(".SH ")
                .is_some_and(|rest| rest.trim_matches('"') == title)),
            "no section {title}"
        );
    }
    check_options(&page, &["--help"], 25);
    let (_, bench) = page.split_once("\n.SH \"RINGMAIN BENCH\"").unwrap();
    check_options(bench, &["bench", "--help"], 30);
    let (_, compare) = page.split_once("\n.SH \"RINGMAIN BENCH COMPARE\"").unwrap();
    check_options(compare, &["bench", "compare", "--help"], 25);
    let (_, merge) = page.split_once("\n.SH \"RINGMAIN BENCH MERGE\"").unwrap();
    check_options(merge, &["bench", "merge", "--help"], 1);
    let (_, feed) = page.split_once("\n.SH \"RINGMAIN FEED\"").unwrap();
    check_options(feed, &["feed", "--help"], 10);
    let (_, profile) = page.split_once("\n.SH \"RINGMAIN PROFILE\"").unwrap();
    check_options(profile, &["profile", "--help"], 7);
    let (_, diff) = page.split_once("\n.SH \"RINGMAIN PROFILE DIFF\"").unwrap();
    check_options(diff, &["profile", "diff", "--help"], 1);
    let (_, tune) = page.split_once("\n.SH \"RINGMAIN TUNE\"").unwrap();
    check_options(tune, &["tune", "--help"], 7);
    let (_, measure) = page.split_once("\n.SH \"RINGMAIN TUNE MEASURE\"").unwrap();
    check_options(measure, &["tune", "measure", "--help"], 30);
}

#[test]
fn each_command_has_a_manual_page_with_its_options() {
    let directory = Directory::new();
    let folder = directory.path().join("man1");
    assert_eq!(output(&["man", "--dir", folder.to_str().unwrap()]), "");
    let page = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
    assert_eq!(page("ringmain.1"), output(&["man"]));
    for (name, words, least) in [
        ("ringmain-run.1", &["run", "--help"][..], 25),
        ("ringmain-bench.1", &["bench", "--help"], 30),
        ("ringmain-bench-compare.1", &["bench", "compare", "--help"], 25),
        ("ringmain-profile-diff.1", &["profile", "diff", "--help"], 1),
        ("ringmain-tune-apply.1", &["tune", "apply", "--help"], 3),
        ("ringmain-man.1", &["man", "--help"], 0),
    ] {
        let page = page(name);
        let command = name.trim_end_matches(".1");
        let title = format!(".TH {command} 1");
        assert!(page.replace("\\-", "-").contains(&title), "{name}: {page}");
        assert!(page.contains("\n.SH SYNOPSIS\n"), "{name}: {page}");
        check_options(&page, words, least);
    }
    let names: Vec<String> = fs::read_dir(&folder)
        .unwrap()
        .map(|page| page.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(!names.iter().any(|name| name.contains("help")), "{names:?}");
}

/// Checks that the page describes every option of the long help, and that there are more than `least`.
fn check_options(page: &str, help: &[&str], least: usize) {
    let help = output(help);
    let options = help.lines().filter_map(|line| {
        let line = line.trim_start();
        let line = line
            .split_once(", ")
            .filter(|(short, _)| short.len() == 2)
            .map_or(line, |(_, long)| long);
        line.strip_prefix("--")
            .map(|rest| rest.split([' ', '[', '.']).next().unwrap())
    });
    let mut count = 0;
    let lines: Vec<&str> = page.lines().collect();
    // The page has `--help` once, with the options of the program.
    for name in options.filter(|name| *name != "help") {
        let written = format!("\\fB\\-\\-{}\\fR", name.replace('-', "\\-"));
        let place = lines.iter().position(|line| line.contains(&written));
        let place = place.unwrap_or_else(|| panic!("--{name} is missing"));
        assert!(
            !lines[place + 1].is_empty() && !lines[place + 1].starts_with('.'),
            "--{name} says nothing"
        );
        count += 1;
    }
    assert!(count > least, "the help has lost its options: {count}");
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let mut child = Command::new(program())
        .args(["completions", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(output.stderr.is_empty(), "{output:?}");
}
