//! Runs the commands of `docs/bench.md` after a `$`.
#![allow(
    clippy::disallowed_methods,
    reason = "tests of the real program have real threads and real time"
)]

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::common::{Directory, Server, program};

/// The repository.
fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

#[test]
fn the_commands_of_the_guide_work() {
    let mut serve = Command::new(program());
    let (server, addrs) = Server::start(serve.args(["run", "--listen", "127.0.0.1:0"]), 1);
    let directory = Directory::new();
    let guide = fs::read_to_string(root().join("docs/bench.md")).unwrap();
    let path = format!(
        "{}:{}",
        program().parent().unwrap().display(),
        std::env::var("PATH").unwrap()
    );
    let mut count = 0;
    for written in guide.lines().filter_map(|line| line.strip_prefix("    $ ")) {
        let command = written
            .replace("127.0.0.1:8080", &addrs[0])
            .replace("examples/", &format!("{}/examples/", root().display()));
        // A load is shorter here than for a reader; thresholds are judged, for which a busy machine must answer all but a few requests.
        let is_load = ["http://", "ws://"].iter().any(|scheme| command.contains(scheme));
        let is_judged = command.contains("--threshold");
        let shorter = match (is_load, is_judged) {
            (true, true) => " -d 2s -w 20ms --rounds 1",
            (true, false) => " -d 100ms -w 20ms --rounds 1",
            (false, _) => "",
        };
        let command = command + shorter;
        let output = Command::new("sh")
            .args(["-c", &command])
            .env("PATH", &path)
            .current_dir(directory.path())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{written}: {output:?}");
        assert!(!output.stdout.is_empty(), "{written}: {output:?}");
        count += 1;
    }
    assert!(count >= 9, "the guide has lost its commands: {count}");
    server.terminate();
}

#[test]
fn the_guide_names_only_existing_options() {
    let help = |args: &[&str]| {
        let output = Command::new(program()).arg("bench").args(args).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let known = [
        help(&["--help"]),
        help(&["compare", "--help"]),
        help(&["merge", "--help"]),
        help(&["push", "--help"]),
    ]
    .concat();
    let guide = fs::read_to_string(root().join("docs/bench.md")).unwrap();
    // The table of other tools has their options.
    let (ours, _) = guide.split_once("## Coming from another tool").unwrap();
    let is_name = |c: char| c.is_ascii_lowercase() || c == '-';
    let mut count = 0;
    for (place, _) in ours.match_indices("--") {
        let before = ours[..place].chars().last();
        let rest = &ours[place + 2..];
        let name = &rest[..rest.find(|c| !is_name(c)).unwrap_or(rest.len())];
        if name.is_empty() || name.starts_with('-') || before == Some('-') {
            continue;
        }
        assert!(known.contains(&format!("--{name}")), "--{name} is no option");
        count += 1;
    }
    assert!(count > 20, "{count}");
}
