//! Rules for the documents: links resolve, each page is in the book, pages are short, words are spelt right.
//!
//! Owns the reading of a page: headings with their anchors, links, words of prose. The parts: [`mod@links`] resolves, [`mod@summary`] compares with
//! the list of chapters, [`length`] compares with the ceilings, [`spelling`] asks hunspell. Only [`spelling`] starts a program.

pub(crate) mod length;
pub(crate) mod links;
pub(crate) mod spelling;
pub(crate) mod summary;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::english::prose::{Syntax, paragraphs};

/// A link or image of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    /// Line in the page.
    pub(crate) line: usize,
    /// Byte offset of the address in that line.
    pub(crate) start: usize,
    /// The address, with its fragment.
    pub(crate) address: String,
}

/// A document as the rules see it.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    /// The file, relative to the root.
    pub(crate) path: String,
    /// Identifiers of headings and of HTML elements.
    pub(crate) anchors: Vec<String>,
    pub(crate) links: Vec<Link>,
    /// Words of prose, without code blocks and tables.
    pub(crate) words: usize,
}

/// Returns whether the rules apply to the file: documentation for readers, at the root and below `docs/` and `.github/`.
pub(crate) fn is_page(path: &str) -> bool {
    path.ends_with(".md")
        && path != "CHANGELOG.md"
        && (!path.contains('/') || path.starts_with("docs/") || path.starts_with(".github/"))
}

impl Page {
    /// Reads a page.
    pub(crate) fn read(path: &str, text: &str) -> Page {
        let lines: Vec<&str> = text.lines().collect();
        let is_table = |number: usize| lines[number - 1].trim_start().starts_with('|');
        let mut words = 0;
        paragraphs((1..).zip(lines.iter().copied()), Syntax::Markdown, |part| {
            words += part
                .iter()
                .filter(|(number, _)| !is_table(*number))
                .map(|(_, line)| line.split_whitespace().count())
                .sum::<usize>();
        });
        Page {
            path: path.to_owned(),
            anchors: anchors(text),
            links: links(text),
            words,
        }
    }
}

/// Calls `report` with each line outside code blocks, its code spans replaced by spaces of the same length.
fn lines_without_code(text: &str, mut report: impl FnMut(usize, &str)) {
    let mut fence: Option<&str> = None;
    for (number, line) in (1..).zip(text.lines()) {
        let start = line.trim_start();
        if let Some(mark) = fence {
            if start.starts_with(mark) {
                fence = None;
            }
        } else if start.starts_with("```") || start.starts_with("~~~") {
            fence = Some(&start[..3]);
        } else {
            report(number, &mask_code(line));
        }
    }
}

/// Replaces each code span of a line by spaces. A span that continues on the next line is left.
fn mask_code(line: &str) -> String {
    let mut masked = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find('`') {
        let ticks = rest[at..].len() - rest[at..].trim_start_matches('`').len();
        let mark = &rest[at..at + ticks];
        let behind = &rest[at + ticks..];
        let Some(end) = behind.find(mark) else {
            break;
        };
        masked.push_str(&rest[..at]);
        let span = 2 * ticks + end;
        masked.extend(std::iter::repeat_n(' ', span));
        rest = &rest[at + span..];
    }
    masked.push_str(rest);
    masked
}

/// Returns the links of a page in the order of its lines.
pub(crate) fn links(text: &str) -> Vec<Link> {
    let mut links = Vec::new();
    lines_without_code(text, |number, line| {
        let mut add = |start: usize, address: &str| {
            links.push(Link {
                line: number,
                start,
                address: address.to_owned(),
            });
        };
        for (at, _) in line.match_indices("](") {
            let start = at + 2;
            add(start, address(&line[start..]));
        }
        if line.starts_with('[')
            && let Some(at) = line.find("]: ")
        {
            add(at + 3, line[at + 3..].split_whitespace().next().unwrap_or(""));
        }
        for attribute in ["src=\"", "srcset=\"", "href=\""] {
            for (at, _) in line.match_indices(attribute) {
                let start = at + attribute.len();
                add(start, line[start..].split('"').next().unwrap_or(""));
            }
        }
    });
    links.sort_by_key(|link| (link.line, link.start));
    links
}

/// Returns the address at the beginning of a text that continues until its closing parenthesis.
fn address(text: &str) -> &str {
    let mut depth = 0;
    let end = text.find(|character: char| {
        match character {
            '(' => depth += 1,
            ')' if depth == 0 => return true,
            ')' => depth -= 1,
            _ => return character.is_whitespace(),
        }
        false
    });
    &text[..end.unwrap_or(text.len())]
}

/// Returns the identifiers that a fragment can name: of headings as GitHub and mdBook make them, and explicit ones.
fn anchors(text: &str) -> Vec<String> {
    let mut anchors = Vec::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        if let Some(mark) = fence {
            if start.starts_with(mark) {
                fence = None;
            }
            continue;
        }
        if start.starts_with("```") || start.starts_with("~~~") {
            fence = Some(&start[..3]);
            continue;
        }
        for (at, _) in line.match_indices(" id=\"") {
            anchors.push(line[at + 5..].split('"').next().unwrap_or("").to_owned());
        }
        let title = line.trim_start_matches('#');
        if (1..=6).contains(&(line.len() - title.len())) && title.starts_with(' ') {
            let slug = slug(title.trim());
            let count = counts.entry(slug.clone()).or_default();
            anchors.push(match *count {
                0 => slug,
                count => format!("{slug}-{count}"),
            });
            *count += 1;
        }
    }
    anchors
}

/// Returns the identifier of a heading.
fn slug(title: &str) -> String {
    let mut text = String::new();
    let mut rest = title;
    // The address of a link is no part of the title.
    while let Some(at) = rest.find("](") {
        text.push_str(&rest[..at]);
        let behind = &rest[at + 2..];
        rest = &behind[address(behind).len()..];
    }
    text.push_str(rest);
    text.to_lowercase()
        .chars()
        .filter_map(|character| match character {
            ' ' => Some('-'),
            '-' | '_' => Some(character),
            _ => character.is_alphanumeric().then_some(character),
        })
        .collect()
}
