//! Rules for one Rust file: its head, sizes, `unsafe`, unfinished work, ignored tests, waits and ports of tests.
//!
//! Looks at tokens, not at lines, so that strings and comments cannot fool it. Knows nothing of
//! the file system.

use std::ops::Range;

use proc_macro2::{Delimiter, Group, TokenStream, TokenTree};

use super::Finding;
use super::exceptions::Size;
use super::test_code;

/// The only crates of the product that may contain `unsafe`.
const MAY_BE_UNSAFE: &[&str] = &["crates/sys/", "crates/engine/"];

/// No part of the product: the bare server that it is measured against, which is system calls and nothing else, and the
/// simulation, which lends memory to workers as a back-end does (decision 0026).
const NOT_SHIPPED: &[&str] = &["bench/floor/", "crates/sim/"];

fn may_be_unsafe(path: &str) -> bool {
    let mut folders = MAY_BE_UNSAFE.iter().chain(NOT_SHIPPED);
    folders.any(|folder| path.starts_with(folder))
}

/// What one file showed.
#[derive(Debug)]
pub(crate) struct Facts {
    /// What is to be put right.
    pub(crate) findings: Vec<Finding>,
    /// The file's length and that of each function.
    pub(crate) sizes: Vec<Size>,
}

/// Checks the file at `path` (relative to the root).
pub(crate) fn inspect(path: &str, text: &str) -> Facts {
    let whole = Size {
        path: path.into(),
        function: None,
        line: 1,
        lines: text.lines().count(),
    };
    let mut facts = Facts {
        findings: Vec::new(),
        sizes: vec![whole],
    };
    if !text.starts_with("//!") {
        facts.findings.push(Finding::new(
            path,
            1,
            "file does not begin with `//!`",
            "a first line that says what the file owns",
            "write what it owns and what it must not know",
        ));
    }
    match text.parse::<TokenStream>() {
        Ok(tokens) => {
            let mut walk = Walk {
                path,
                text,
                facts: &mut facts,
                strings: Vec::new(),
            };
            walk.tokens(tokens);
            let strings = walk.strings;
            facts.findings.extend(unfinished(path, text, &strings));
        }
        Err(error) => facts.findings.push(Finding::new(
            path,
            error.span().start().line,
            format!("not Rust: {error}"),
            "tokens that rustc can read",
            "run `cargo check`",
        )),
    }
    facts
}

/// One pass over a file's tokens.
struct Walk<'a> {
    path: &'a str,
    text: &'a str,
    facts: &'a mut Facts,
    /// Where string and character literals lie, in bytes.
    strings: Vec<Range<usize>>,
}

impl Walk<'_> {
    fn tokens(&mut self, tokens: TokenStream) {
        let trees: Vec<TokenTree> = tokens.into_iter().collect();
        for (index, tree) in trees.iter().enumerate() {
            let rest = &trees[index + 1..];
            if test_code::is_test_code(self.path) {
                let finding = test_code::inspect(self.path, &trees[index..]);
                self.facts.findings.extend(finding);
            }
            match tree {
                TokenTree::Ident(word) if word == "unsafe" => self.unsafe_word(word.span().start().line),
                TokenTree::Ident(word) if word == "fn" => self.function(word.span().start().line, rest),
                TokenTree::Punct(mark) if mark.as_char() == '#' => self.attribute(rest),
                TokenTree::Literal(literal) => {
                    let place = literal.span().byte_range();
                    // A doc comment arrives as a literal too, but its source is a comment.
                    if !self
                        .text
                        .get(place.clone())
                        .is_some_and(|source| source.starts_with('/'))
                    {
                        self.strings.push(place);
                    }
                }
                _ => {}
            }
            if let TokenTree::Group(group) = tree {
                self.tokens(group.stream());
            }
        }
    }

    fn unsafe_word(&mut self, line: usize) {
        if may_be_unsafe(self.path) {
            return;
        }
        self.facts.findings.push(Finding::new(
            self.path,
            line,
            "`unsafe`",
            format!("it only under {}", MAY_BE_UNSAFE.join(" and ")),
            "put a safe wrapper there and call it here",
        ));
    }

    /// Measures the function whose `fn` was on `line`; `rest` follows that word.
    fn function(&mut self, line: usize, rest: &[TokenTree]) {
        // `fn(u8) -> u8` is a type, `fn $name` a template: neither has a name of its own here.
        let Some(TokenTree::Ident(name)) = rest.first() else {
            return;
        };
        for tree in rest {
            match tree {
                TokenTree::Punct(mark) if mark.as_char() == ';' => return,
                TokenTree::Group(group) if group.delimiter() == Delimiter::Brace => {
                    let lines = group.span_close().start().line + 1 - line;
                    let function = Some(name.to_string());
                    self.facts.sizes.push(Size {
                        path: self.path.into(),
                        function,
                        line,
                        lines,
                    });
                    return;
                }
                _ => {}
            }
        }
    }

    /// `rest` follows a `#`.
    fn attribute(&mut self, rest: &[TokenTree]) {
        let Some(TokenTree::Group(group)) = rest.first() else {
            return;
        };
        if group.delimiter() == Delimiter::Bracket && ignores_silently(group) {
            self.facts.findings.push(Finding::new(
                self.path,
                group.span_open().start().line,
                "test ignored without a reason",
                "`#[ignore = \"why, and how to run it\"]`",
                "write the reason, or delete the test",
            ));
        }
    }
}

/// Whether an attribute is `ignore` without `= "…"`, also inside `cfg_attr`.
fn ignores_silently(attribute: &Group) -> bool {
    let trees: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let conditional = matches!(trees.first(), Some(TokenTree::Ident(word)) if word == "cfg_attr");
    let inner = match trees.get(1) {
        Some(TokenTree::Group(group)) if conditional => group.stream().into_iter().collect(),
        _ => trees,
    };
    // In `cfg_attr` the condition comes first: an attribute follows a comma.
    let starts = inner
        .iter()
        .enumerate()
        .filter(|(index, _)| match (index.checked_sub(1), conditional) {
            (None, conditional) => !conditional,
            (Some(before), true) => is_mark(inner.get(before), ','),
            (Some(_), false) => false,
        });
    starts.into_iter().any(|(index, tree)| {
        matches!(tree, TokenTree::Ident(word) if word == "ignore") && !is_mark(inner.get(index + 1), '=')
    })
}

fn is_mark(tree: Option<&TokenTree>, mark: char) -> bool {
    matches!(tree, Some(TokenTree::Punct(found)) if found.as_char() == mark)
}

/// Finds marks of unfinished work that name no decision, except inside `strings` (byte ranges).
pub(crate) fn unfinished(path: &str, text: &str, strings: &[Range<usize>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for mark in ["TODO", "FIXME"] {
        for (at, _) in text.match_indices(mark) {
            let after = &text[at + mark.len()..];
            let inside_word = text[..at].ends_with(is_word_character) || after.starts_with(is_word_character);
            if inside_word || names_decision(after) || strings.iter().any(|range| range.contains(&at)) {
                continue;
            }
            findings.push(Finding::new(
                path,
                text[..at].matches('\n').count() + 1,
                format!("{mark} without a decision"),
                format!("none, or `{mark}(0007)` with the number of a file in docs/decisions"),
                "finish it, or write the decision that it waits for",
            ));
        }
    }
    findings
}

fn is_word_character(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

fn names_decision(after: &str) -> bool {
    let number = after
        .strip_prefix('(')
        .and_then(|rest| rest.split_once(')'))
        .map(|(number, _)| number);
    number.is_some_and(|number| number.len() == 4 && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// Every crate root but those that may be unsafe has `#![forbid(unsafe_code)]`.
pub(crate) fn forbids_unsafe(path: &str, text: &str) -> Option<Finding> {
    if may_be_unsafe(path) {
        return None;
    }
    // What is no Rust is reported by `inspect`.
    let trees: Vec<TokenTree> = text.parse::<TokenStream>().ok()?.into_iter().collect();
    let found = trees.windows(3).any(|three| {
        let [hash, bang, TokenTree::Group(attribute)] = three else {
            return false;
        };
        is_mark(Some(hash), '#') && is_mark(Some(bang), '!') && is_forbid(attribute)
    });
    (!found).then(|| {
        Finding::new(
            path,
            1,
            "crate root without `#![forbid(unsafe_code)]`",
            format!("it in every crate but {}", MAY_BE_UNSAFE.join(" and ")),
            "add the line below the `//!` text",
        )
    })
}

fn is_forbid(attribute: &Group) -> bool {
    let trees: Vec<TokenTree> = attribute.stream().into_iter().collect();
    let [TokenTree::Ident(word), TokenTree::Group(lints)] = trees.as_slice() else {
        return false;
    };
    let names_it = |tree: TokenTree| matches!(tree, TokenTree::Ident(lint) if lint == "unsafe_code");
    word == "forbid" && lints.stream().into_iter().any(names_it)
}
