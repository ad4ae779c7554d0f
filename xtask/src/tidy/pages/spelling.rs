//! `cargo xtask spell`: the words of the pages against hunspell's English dictionaries and the terms in `docs/words.txt`.
//!
//! Reads the prose and the table cells of each page, without code, addresses, names with digits and words with a capital inside
//! (`WebSocket`, `TLS`). Starts hunspell once.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use super::super::english::prose::{Syntax, paragraphs, words};
use super::super::{Finding, read, sources};
use super::is_page;

/// The terms of the field that the dictionaries lack, one a line, sorted.
const TERMS: &str = "docs/words.txt";

/// The dictionaries: a word is correct if it occurs in one.
const DICTIONARIES: &str = "en_US,en_GB";

/// The first place of each word: path and line.
type Places = BTreeMap<String, (String, usize)>;

/// Checks the spelling of every page; prints each unknown word with its place.
pub(crate) fn run(root: &Path) -> ExitCode {
    match check(root) {
        Ok(None) => {
            eprintln!("!! SKIPPED: spelling was NOT checked, `hunspell` or its dictionaries are missing");
            eprintln!("!! on Debian: apt-get install hunspell hunspell-en-us hunspell-en-gb");
            ExitCode::SUCCESS
        }
        Ok(Some(findings)) if findings.is_empty() => {
            println!("spell: clean");
            ExitCode::SUCCESS
        }
        Ok(Some(findings)) => {
            findings.iter().for_each(|finding| println!("{finding}"));
            eprintln!("spell: {} to put right", findings.len());
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("spell: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the findings; `None` without hunspell.
fn check(root: &Path) -> Result<Option<Vec<Finding>>, String> {
    let terms = read(root, TERMS)?;
    let mut findings = terms_in_order(&terms);
    let mut places = Places::new();
    for path in sources(root)?.iter().filter(|path| is_page(path)) {
        collect(path, &read(root, path)?, &mut places);
    }
    let terms: BTreeSet<String> = terms.lines().map(str::to_lowercase).collect();
    places.retain(|word, _| !terms.contains(&word.to_lowercase()));
    let Some(unknown) = unknown_words(places.keys())? else {
        return Ok(None);
    };
    findings.extend(unknown.iter().filter_map(|word| {
        let (path, line) = places.get(word)?;
        Some(Finding::new(
            path,
            *line,
            format!("unknown word `{word}`"),
            format!("a word of the dictionaries {DICTIONARIES}, or of {TERMS}"),
            format!("correct it, or add a term of the field to {TERMS}"),
        ))
    }));
    findings.sort();
    Ok(Some(findings))
}

/// Adds the words of a page in lower case, except those that begin a name.
pub(super) fn collect(path: &str, text: &str, places: &mut Places) {
    let lines = (1..).zip(text.lines());
    paragraphs(lines, Syntax::Markdown, |part| {
        for word in words(part, Syntax::Markdown) {
            let rest = word.text.get(1..).unwrap_or("");
            let is_prose = word.text.chars().all(char::is_alphabetic)
                && word.text.len() > 1
                && !rest.contains(char::is_uppercase)
                // The letters behind an apostrophe: "doesn't", "server's".
                && !matches!(word.before, '\'' | '’' | '@' | '&');
            if is_prose {
                places
                    .entry(word.text.to_owned())
                    .or_insert_with(|| (path.to_owned(), word.line));
            }
        }
    });
}

/// Checks that the list of terms is sorted, without a term twice.
pub(super) fn terms_in_order(terms: &str) -> Vec<Finding> {
    let lines: Vec<&str> = terms.lines().collect();
    (2..)
        .zip(lines.windows(2))
        .filter(|(_, pair)| pair[0] >= pair[1])
        .map(|(line, pair)| {
            Finding::new(
                TERMS,
                line,
                format!("`{}` follows `{}`", pair[1], pair[0]),
                "terms sorted by their bytes, each once",
                "run `LC_ALL=C sort -u -o docs/words.txt docs/words.txt`",
            )
        })
        .collect()
}

/// Returns the words that no dictionary has; `None` if hunspell cannot be started or has no English.
fn unknown_words<'a>(words: impl Iterator<Item = &'a String>) -> Result<Option<Vec<String>>, String> {
    let child = Command::new("hunspell")
        .args(["-l", "-i", "utf-8", "-d", DICTIONARIES])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut child) = child else {
        return Ok(None);
    };
    let text: String = words.map(|word| format!("{word}\n")).collect();
    let mut input = child.stdin.take().expect("standard input is a pipe");
    // hunspell answers while it reads: a thread writes, so that neither pipe fills up.
    let output = std::thread::scope(|scope| {
        scope.spawn(move || input.write_all(text.as_bytes()));
        child.wait_with_output()
    })
    .map_err(|error| format!("hunspell: {error}"))?;
    if !output.status.success() {
        return Ok(None);
    }
    let unknown = String::from_utf8_lossy(&output.stdout);
    Ok(Some(unknown.lines().map(str::to_owned).collect()))
}
