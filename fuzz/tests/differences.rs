//! `h1-differences.md` and `ws-differences.md` show the lists that the targets consult, row by row.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::path::Path;

use ringmain_fuzz::differences::{REQUESTS_REFUSED, REQUESTS_TAKEN, RESPONSES_REFUSED, listed};
use ringmain_fuzz::{h1_request, h1_response, ws_differences, ws_frames};

#[test]
fn the_files_show_the_lists() {
    let tables = [
        (
            "## Requests that we take and another does not",
            shown(REQUESTS_TAKEN),
        ),
        (
            "## Requests that others take and we refuse",
            shown(REQUESTS_REFUSED),
        ),
        (
            "## Responses that others take and we refuse",
            shown(RESPONSES_REFUSED),
        ),
    ];
    check_shown("h1-differences.md", &tables);
    let tables = [
        (
            "## Frames that we take and another reads otherwise",
            shown(ws_differences::TAKEN),
        ),
        (
            "## Frames that others take and we refuse",
            shown(ws_differences::REFUSED),
        ),
    ];
    check_shown("ws-differences.md", &tables);
}

fn shown(list: &[impl ToString]) -> Vec<String> {
    list.iter().map(ToString::to_string).collect()
}

fn check_shown(name: &str, tables: &[(&str, Vec<String>)]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    let file = fs::read_to_string(&path).expect("the file is there");
    for (heading, expected) in tables {
        assert_eq!(
            rows(&file, heading),
            *expected,
            "`{heading}` must read\n\n{}\n",
            expected.join("\n")
        );
        assert_eq!(
            expected.iter().collect::<BTreeSet<_>>().len(),
            expected.len(),
            "no row twice"
        );
    }
}

/// The rows of the table below `heading`, without its two header lines.
fn rows<'f>(file: &'f str, heading: &str) -> Vec<&'f str> {
    let section = file.lines().skip_while(|line| *line != heading).skip(1);
    section
        .take_while(|line| !line.starts_with('#'))
        .filter(|line| line.starts_with('|'))
        .skip(2)
        .collect()
}

/// A difference that nobody can show is none, and the list would hide what comes in its place.
#[test]
fn every_listed_difference_stands_in_the_corpus() {
    check_witnessed(
        "h1_request",
        &listed(REQUESTS_TAKEN, REQUESTS_REFUSED),
        h1_request::differences,
    );
    check_witnessed(
        "h1_response",
        &listed(&[], RESPONSES_REFUSED),
        h1_response::differences,
    );
    check_witnessed("ws_frames", &ws_differences::listed(), ws_frames::differences);
}

fn check_witnessed<D: PartialEq + fmt::Debug>(target: &str, listed: &[D], differences: fn(&[u8]) -> Vec<D>) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    let mut seen = Vec::new();
    for entry in fs::read_dir(&folder).expect("the corpus is there") {
        let input = fs::read(entry.expect("it can be read").path()).expect("it can be read");
        seen.extend(differences(&input));
    }
    let missing: Vec<_> = listed.iter().filter(|row| !seen.contains(row)).collect();
    assert!(
        missing.is_empty(),
        "no input of {} shows {missing:#?}; add one, or take it off the list",
        folder.display()
    );
}
