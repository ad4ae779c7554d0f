//! Each page below `docs/` is a chapter of the book.
//!
//! Works on the pages alone.

use super::super::Finding;
use super::Page;
use super::links::resolve;

/// The list of chapters, as mdBook reads it.
pub(crate) const PATH: &str = "docs/SUMMARY.md";

/// Compares the pages with the list: a page outside it cannot be reached in the book, and a chapter that occurs twice breaks "next".
pub(crate) fn inspect(pages: &[Page]) -> Vec<Finding> {
    let Some(summary) = pages.iter().find(|page| page.path == PATH) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let mut chapters: Vec<String> = Vec::new();
    for link in &summary.links {
        let Some(target) = resolve(PATH, &link.address) else {
            continue;
        };
        if chapters.contains(&target.path) {
            findings.push(Finding::new(
                PATH,
                link.line,
                format!("{} is listed twice", target.path),
                "each chapter once",
                "delete one of the lines",
            ));
        }
        chapters.push(target.path);
    }
    for page in pages {
        if page.path.starts_with("docs/") && page.path != PATH && !chapters.contains(&page.path) {
            findings.push(Finding::new(
                &page.path,
                1,
                format!("page is not in {PATH}"),
                "each page below docs/ is a chapter of the book",
                format!("add a line to {PATH}"),
            ));
        }
    }
    findings
}
