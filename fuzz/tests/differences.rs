//! `h1-differences.md` shows the lists that the targets consult, row by row.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use ringmain_fuzz::differences::{Difference, REQUESTS_REFUSED, REQUESTS_TAKEN, RESPONSES_REFUSED, listed};
use ringmain_fuzz::{h1_request, h1_response};

#[test]
fn the_file_shows_the_lists() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("h1-differences.md");
    let file = fs::read_to_string(&path).expect("the file is there");
    let taken = REQUESTS_TAKEN.iter().map(ToString::to_string).collect();
    let refused = REQUESTS_REFUSED.iter().map(ToString::to_string).collect();
    let responses = RESPONSES_REFUSED.iter().map(ToString::to_string).collect();
    for (heading, expected) in [
        ("## Requests that we take and another does not", taken),
        ("## Requests that others take and we refuse", refused),
        ("## Responses that others take and we refuse", responses),
    ] {
        let expected: Vec<String> = expected;
        assert_eq!(
            rows(&file, heading),
            expected,
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
}

fn check_witnessed(target: &str, listed: &[Difference], differences: fn(&[u8]) -> Vec<Difference>) {
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
