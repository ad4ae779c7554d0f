//! Pages have at most 1,500 words of prose, and longer ones a ceiling that only shrinks.
//!
//! Code blocks and tables are not counted: readers search these instead of reading them. Works on pages and the text of the list.

use std::fmt::Write as _;

use super::super::Finding;
use super::Page;

/// The list of longer pages: `WORDS PATH`.
pub(crate) const PATH: &str = "xtask/pages.ceilings";

/// Longest page, words of prose.
const MAX_WORDS: usize = 1_500;

/// The first lines of the list.
const HEAD: &str = "\
# Pages with more than 1,500 words of prose (code blocks and tables apart): WORDS PATH, sorted by path.
# The numbers only shrink: `cargo xtask tidy --lower` writes this file.
";

/// Compares each page with the limit or its ceiling in `list`.
pub(crate) fn compare(list: &str, pages: &[Page]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for page in pages {
        let limit = ceiling(list, &page.path).map_or(MAX_WORDS, |(_, words)| words);
        if page.words > limit {
            findings.push(Finding::new(
                &page.path,
                1,
                format!("page has {} words", page.words),
                format!("at most {limit} outside code blocks and tables"),
                "split it by task, or shorten it",
            ));
        }
    }
    for (line, words, path) in entries(list) {
        let now = pages
            .iter()
            .find(|page| page.path == path)
            .map_or(0, |page| page.words);
        let what = match words {
            None => format!("`{path}` has no number"),
            Some(_) if now <= MAX_WORDS => format!("`{path}` needs no ceiling"),
            Some(words) if now < words => format!("`{path}` may have {words} words but has {now}"),
            Some(_) => continue,
        };
        findings.push(Finding::new(
            PATH,
            line,
            what,
            "ceilings only shrink",
            "run `cargo xtask tidy --lower`",
        ));
    }
    findings
}

/// Returns the list with each ceiling at the length of its page, none higher, and without lines that are not needed.
pub(crate) fn lower(list: &str, pages: &[Page]) -> String {
    let mut lowered = HEAD.to_owned();
    for page in pages.iter().filter(|page| page.words > MAX_WORDS) {
        if let Some((_, words)) = ceiling(list, &page.path) {
            let _ = writeln!(lowered, "{} {}", words.min(page.words), page.path);
        }
    }
    lowered
}

/// Returns the list for pages that have none yet.
pub(crate) fn start(pages: &[Page]) -> String {
    let list: String = pages
        .iter()
        .map(|page| format!("{} {}\n", page.words, page.path))
        .collect();
    lower(&list, pages)
}

fn ceiling(list: &str, path: &str) -> Option<(usize, usize)> {
    entries(list).find_map(|(line, words, name)| (name == path).then_some((line, words?)))
}

/// Returns line, number and path of each entry.
fn entries(list: &str) -> impl Iterator<Item = (usize, Option<usize>, &str)> {
    (1..)
        .zip(list.lines())
        .filter(|(_, text)| !text.trim().is_empty() && !text.starts_with('#'))
        .map(|(line, text)| {
            let (words, path) = text.split_once(' ').unwrap_or(("", text));
            (line, words.parse().ok(), path)
        })
}
