//! The rule `english`: counts expressions that plain technical English avoids, per file, against ceilings that only shrink.
//!
//! Owns the selection of text by kind of file: comments and texts of Rust files, and whole documents. The parts: [`rust`] reads Rust,
//! [`prose`] splits text into words, [`expressions`] matches, [`ceilings`] compares, [`figures`] prints totals per crate.

pub(super) mod ceilings;
pub(super) mod expressions;
pub(super) mod figures;
pub(in crate::tidy) mod prose;
mod rust;
#[cfg(test)]
mod tests;

use super::test_code;
use expressions::Expression;
use prose::{NumberedLine, ProseWord, Syntax};
use rust::Literal;

/// Names that no type may have, each with a better one.
pub(super) const BANNED_TYPES: &[(&str, &str)] = &[
    ("Asked", "PendingRequest, Query"),
    ("Found", "Actual, Match"),
    ("Kept", "ReplayBuffer, Retained"),
    ("Local", "WorkerContext, UpstreamPool"),
    ("Place", "StreamPosition, Slot, Position"),
    ("Said", "ExternalResponse, LimitResult"),
    ("Seen", "PoolSnapshot, Observed"),
    ("Shared", "Upstream, SharedState with the noun of the state"),
    ("Told", "HandlerEvent, QueryResult"),
];

/// The kind of text that contains an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TextKind {
    /// A comment of a Rust file.
    Comment,
    /// A string literal: help, log lines, errors.
    Text,
    /// A document.
    Document,
}

/// An expression in a file.
#[derive(Clone, Debug)]
pub(super) struct Hit {
    pub(super) expression: Expression,
    pub(super) line: usize,
    pub(super) words: String,
    pub(super) kind: TextKind,
}

/// A type's name and its line.
#[derive(Clone, Debug)]
pub(super) struct TypeName {
    pub(super) line: usize,
    pub(super) name: String,
}

/// The language of one file.
#[derive(Clone, Debug, Default)]
pub(super) struct Language {
    /// The file, relative to the root.
    pub(super) path: String,
    pub(super) hits: Vec<Hit>,
    /// Types outside test code.
    pub(super) types: Vec<TypeName>,
    /// Lines of comments, or of a document, that have words.
    pub(super) lines: usize,
    /// Number of "return" and "returns" in them.
    pub(super) returns: usize,
    /// Functions outside test code.
    pub(super) functions: usize,
    /// Characters of their names.
    pub(super) function_characters: usize,
}

/// Reads the file at `path`; `None` for a kind of file that the rule does not read.
pub(super) fn read(path: &str, text: &str) -> Option<Language> {
    if path.ends_with(".rs") {
        Some(rust_file(path, text))
    } else {
        path.ends_with(".md").then(|| document(path, text))
    }
}

fn rust_file(path: &str, text: &str) -> Language {
    let file = rust::read(text);
    let mut language = Language {
        path: path.into(),
        ..Language::default()
    };
    for comment in &file.comments {
        language.read(comment.iter().copied(), Syntax::Markdown, TextKind::Comment);
    }
    if !test_code::is_test_code(path) {
        for literal in &file.strings {
            language.literal(literal);
        }
        let names = file.types.iter();
        let owned = |&(line, name): &(usize, &str)| TypeName {
            line,
            name: name.into(),
        };
        language.types = names.map(owned).collect();
        language.functions = file.functions.len();
        language.function_characters = file.functions.iter().map(|name| name.chars().count()).sum();
    }
    language
}

fn document(path: &str, text: &str) -> Language {
    let mut language = Language {
        path: path.into(),
        ..Language::default()
    };
    language.read((1..).zip(text.lines()), Syntax::Markdown, TextKind::Document);
    language
}

impl Language {
    fn read<'a>(&mut self, lines: impl Iterator<Item = NumberedLine<'a>>, syntax: Syntax, kind: TextKind) {
        let mut last_line = 0;
        prose::paragraphs(lines, syntax, |lines| {
            // The cells of a row are paragraphs on one line.
            if lines[0].0 != last_line {
                self.lines += lines.len();
            }
            last_line = lines[lines.len() - 1].0;
            let words = prose::words(lines, syntax);
            let returns = words
                .iter()
                .filter(|word| matches!(word.text, "return" | "returns" | "Return" | "Returns"));
            self.returns += returns.count();
            self.find(&words, kind);
        });
    }

    /// Reads a string literal if it is a text for people: it has two words that follow each other, and is no message of a protocol.
    fn literal(&mut self, literal: &Literal<'_>) {
        let is_candidate = literal.source.contains(' ') && !literal.source.contains("\\r\\n");
        if !is_candidate {
            return;
        }
        let lines = unescaped(literal);
        let lines = lines.iter().map(|(line, text)| (*line, text.as_str()));
        prose::paragraphs(lines, Syntax::Plain, |lines| {
            let words = prose::words(lines, Syntax::Plain);
            if words.iter().any(|word| word.is_adjacent) {
                self.find(&words, TextKind::Text);
            }
        });
    }

    fn find(&mut self, words: &[ProseWord<'_>], kind: TextKind) {
        for index in 0..words.len() {
            expressions::at(words, index, |expression, count| {
                let matched: Vec<&str> = words[index..index + count].iter().map(|word| word.text).collect();
                self.hits.push(Hit {
                    expression,
                    line: words[index].line,
                    words: matched.join(" "),
                    kind,
                });
            });
        }
    }
}

/// Returns the lines of a string's value, each with the line of the source that it begins on.
fn unescaped(literal: &Literal<'_>) -> Vec<(usize, String)> {
    let mut lines = vec![(literal.line, String::new())];
    let mut line = literal.line;
    let mut rest = literal.source.chars().peekable();
    while let Some(mut character) = rest.next() {
        if character == '\n' {
            line += 1;
        } else if character == '\\' && !literal.is_raw {
            match rest.next() {
                Some('n') => character = '\n',
                // The value continues with the first word of the next line.
                Some('\n') => {
                    line += 1;
                    while let Some(space) = rest.next_if(|next| next.is_whitespace()) {
                        line += usize::from(space == '\n');
                    }
                    lines.push((line, String::new()));
                    continue;
                }
                Some('u') => {
                    rest.by_ref().find(|character| *character == '}');
                    character = '\u{fffd}';
                }
                Some('t') => character = ' ',
                Some(other) => character = other,
                None => {}
            }
        }
        if character == '\n' {
            lines.push((line, String::new()));
        } else if let Some((_, text)) = lines.last_mut() {
            text.push(character);
        }
    }
    lines
}
