//! The list of suites is consistent, and names programs that exist.

use std::collections::BTreeSet;
use std::fs;

use super::{SUITES, chosen};
use crate::root;

#[test]
fn suite_names_are_unique_and_every_suite_has_a_command() {
    let names: BTreeSet<&str> = SUITES.iter().map(|suite| suite.name).collect();
    assert_eq!(names.len(), SUITES.len(), "a name occurs twice");
    assert!(!names.contains("all"), "`all` runs every suite");
    for suite in SUITES {
        assert!(!suite.lines.is_empty(), "{} has no command", suite.name);
    }
}

/// A script that was moved or renamed fails here instead of at the next release.
#[test]
fn scripts_of_suites_exist() {
    for suite in SUITES {
        for line in suite.lines {
            for word in line
                .words()
                .filter(|word| word.ends_with(".sh") || word.ends_with(".py"))
            {
                let places = [root().join(word), root().join("bench").join(word)];
                assert!(
                    places.iter().any(|place| place.is_file()),
                    "suite {}: no file `{word}`",
                    suite.name
                );
            }
        }
    }
}

#[test]
fn the_cluster_suite_runs_every_log() {
    let suite = SUITES.iter().find(|suite| suite.name == "cluster");
    let lines = suite.expect("a suite").lines;
    let logs = lines.iter().filter_map(|line| {
        let mut words = line.words().skip_while(|word| *word != "--log");
        words.nth(1)
    });
    assert_eq!(logs.collect::<Vec<_>>(), ["redis", "jetstream", "kafka"]);
}

/// Returns the path that a line of a script sources, relative to the script's folder; `$(dirname "$0")` and the like are that folder.
fn sourced(line: &str) -> Option<&str> {
    let word = line
        .trim_start()
        .strip_prefix("source ")
        .or_else(|| line.trim_start().strip_prefix(". "))?;
    let path = word.rsplit_once(")/").map_or(word, |(_, path)| path);
    let path = path.trim_matches('"');
    (!path.contains('$')).then_some(path)
}

#[test]
fn files_that_scripts_source_exist() {
    let tests = root().join("tests");
    let mut checked = 0;
    for folder in fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().path()) {
        let Ok(files) = fs::read_dir(&folder) else {
            continue;
        };
        for script in files.map(|entry| entry.unwrap().path()) {
            if script.extension().is_none_or(|extension| extension != "sh") {
                continue;
            }
            for path in fs::read_to_string(&script).unwrap().lines().filter_map(sourced) {
                assert!(
                    folder.join(path).is_file(),
                    "{}: no file `{path}`",
                    script.display()
                );
                checked += 1;
            }
        }
    }
    assert!(
        checked >= 5,
        "{checked} sourced files found in {}",
        tests.display()
    );
}

#[test]
fn suites_can_be_left_out_by_name() {
    assert_eq!(chosen(&[]).map(|left| left.len()), Ok(SUITES.len()));
    assert_eq!(
        chosen(&["--except", "hours", "--except", "http"]).map(|left| left.len()),
        Ok(SUITES.len() - 2)
    );
    for (args, part) in [
        (&["--except", "hour"][..], "no such suite: `hour`"),
        (&["--quick"], "`--except NAME`"),
    ] {
        let found = chosen(args).map(|left| left.len());
        assert!(
            found.as_ref().is_err_and(|what| what.contains(part)),
            "{args:?}: {found:?}"
        );
    }
}
