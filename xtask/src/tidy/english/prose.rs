//! Splits Markdown and plain text into paragraphs of words, without code, addresses and placeholders.
//!
//! Comments are read as Markdown, like the documents. Knows nothing of Rust and of the expressions.

/// The syntax of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::tidy) enum Syntax {
    /// A document or a comment.
    Markdown,
    /// The value of a string literal: `{…}` is a placeholder.
    Plain,
}

/// A word of a paragraph.
#[derive(Debug)]
pub(in crate::tidy) struct ProseWord<'a> {
    pub(in crate::tidy) text: &'a str,
    /// NumberedLine number in the file.
    pub(in crate::tidy) line: usize,
    /// The character before the word; a line feed at the beginning of a line.
    pub(in crate::tidy) before: char,
    /// The first word of its paragraph, with only punctuation before it.
    pub(in crate::tidy) is_first: bool,
    /// Only white space lies between the previous word and this one.
    pub(in crate::tidy) is_adjacent: bool,
}

/// A line with its number.
pub(in crate::tidy) type NumberedLine<'a> = (usize, &'a str);

/// Calls `report` with the lines of each paragraph, heading, list item and table cell.
pub(in crate::tidy) fn paragraphs<'a>(
    lines: impl Iterator<Item = NumberedLine<'a>>,
    syntax: Syntax,
    mut report: impl FnMut(&[NumberedLine<'a>]),
) {
    let mut state = Paragraphs::default();
    for (number, line) in lines {
        match syntax {
            Syntax::Markdown => state.markdown(number, line, &mut report),
            Syntax::Plain if line.trim().is_empty() => state.flush(&mut report),
            Syntax::Plain => state.open.push((number, line)),
        }
    }
    state.flush(&mut report);
}

#[derive(Default)]
struct Paragraphs<'a> {
    open: Vec<NumberedLine<'a>>,
    /// The fence of the code block that is open.
    fence: Option<&'a str>,
    is_in_list: bool,
    /// The previous line was empty or indented code.
    may_be_code: bool,
}

impl<'a> Paragraphs<'a> {
    fn flush(&mut self, report: &mut impl FnMut(&[NumberedLine<'a>])) {
        if !self.open.is_empty() {
            report(&self.open);
            self.open.clear();
        }
    }

    fn markdown(&mut self, number: usize, line: &'a str, report: &mut impl FnMut(&[NumberedLine<'a>])) {
        let mut text = line.trim_start();
        let indent = line.len() - text.len();
        if let Some(fence) = self.fence {
            if text.starts_with(fence) {
                self.fence = None;
            }
            return;
        }
        if let Some(quoted) = text.strip_prefix('>') {
            text = quoted.trim_start();
        }
        if text.is_empty() {
            self.flush(report);
            self.may_be_code = true;
            return;
        }
        let code_indent = if self.is_in_list { 8 } else { 4 };
        if self.may_be_code && indent >= code_indent {
            return;
        }
        self.may_be_code = false;
        if text.starts_with("```") || text.starts_with("~~~") {
            self.flush(report);
            self.fence = Some(&text[..3]);
        } else if text.starts_with('|') {
            self.flush(report);
            cells(text, |cell| report(&[(number, cell)]));
        } else if text.starts_with('#') {
            self.flush(report);
            self.is_in_list = false;
            report(&[(number, text)]);
        } else if is_reference(text) {
            self.flush(report);
        } else {
            if let Some(item) = list_item(text) {
                self.flush(report);
                self.is_in_list = true;
                text = item;
            } else if self.open.is_empty() && indent == 0 {
                self.is_in_list = false;
            }
            self.open.push((number, text));
        }
    }
}

/// Returns the text of a list item without its marker.
fn list_item(text: &str) -> Option<&str> {
    let after_digits = text.trim_start_matches(|character: char| character.is_ascii_digit());
    if after_digits.len() == text.len() {
        return text.strip_prefix(['-', '*', '+'])?.strip_prefix(' ');
    }
    after_digits.strip_prefix(['.', ')'])?.strip_prefix(' ')
}

/// Returns whether the line defines the address of a link: `[name]: address`.
fn is_reference(text: &str) -> bool {
    text.starts_with('[')
        && text
            .split_once("]: ")
            .is_some_and(|(name, _)| !name.contains(' '))
}

/// Calls `report` for each cell of a row of a table.
fn cells<'a>(row: &'a str, mut report: impl FnMut(&'a str)) {
    let (mut start, mut is_code, mut is_escaped) = (0, false, false);
    for (at, byte) in row.bytes().enumerate() {
        match byte {
            b'|' if !is_code && !is_escaped => {
                report(&row[start..at]);
                start = at + 1;
            }
            b'`' => is_code = !is_code,
            _ => {}
        }
        is_escaped = byte == b'\\';
    }
    report(&row[start..]);
}

/// Returns the words of a paragraph.
pub(in crate::tidy) fn words<'a>(lines: &[NumberedLine<'a>], syntax: Syntax) -> Vec<ProseWord<'a>> {
    let mut scanner = Scanner {
        syntax,
        words: Vec::new(),
        is_first: true,
        is_adjacent: false,
    };
    // The back-ticks that close the code that is open.
    let mut code = None;
    for (index, &(number, line)) in lines.iter().enumerate() {
        let mut at = 0;
        while at < line.len() {
            if let Some(ticks) = code {
                let Some(end) = closing(line, at, ticks) else {
                    break;
                };
                at = end;
                code = None;
                continue;
            }
            let rest = &line[at..];
            let ticks = rest.len() - rest.trim_start_matches('`').len();
            if ticks > 0 {
                at += ticks;
                let closes = |line: &str, at| closing(line, at, ticks).is_some();
                if closes(line, at) || lines[index + 1..].iter().any(|(_, line)| closes(line, 0)) {
                    scanner.code();
                    code = Some(ticks);
                }
            } else {
                at = scanner.step(number, line, at);
            }
        }
    }
    scanner.words
}

/// Returns the end of the first run of exactly `ticks` back-ticks at or behind `at`.
fn closing(line: &str, mut at: usize, ticks: usize) -> Option<usize> {
    loop {
        at += line[at..].find('`')?;
        let run = line[at..].bytes().take_while(|byte| *byte == b'`').count();
        at += run;
        if run == ticks {
            return Some(at);
        }
    }
}

struct Scanner<'a> {
    syntax: Syntax,
    words: Vec<ProseWord<'a>>,
    is_first: bool,
    is_adjacent: bool,
}

impl<'a> Scanner<'a> {
    /// Notes code, an address or a placeholder: no word, but the subject of a sentence all the same.
    fn code(&mut self) {
        self.is_first = false;
        self.is_adjacent = false;
    }

    /// Reads the word, mark or space at `at`; returns its end.
    fn step(&mut self, number: usize, line: &'a str, at: usize) -> usize {
        let rest = &line[at..];
        let length = word_length(rest);
        if length > 0 {
            return self.word(number, line, at, at + length);
        }
        let mark = rest.chars().next().expect("the line does not end here");
        let end = at + mark.len_utf8();
        let skipped = match (self.syntax, mark) {
            (_, ' ' | '\t' | '\n') => return end,
            (Syntax::Plain, '{') => rest.find('}'),
            (Syntax::Markdown, '<') if rest[1..].starts_with(is_tag_start) => rest.find('>'),
            (Syntax::Markdown, '(') if line[..at].ends_with(']') => rest.find(')'),
            _ => {
                self.is_adjacent = false;
                return end;
            }
        };
        match skipped {
            // The address of a link: its text is the subject.
            Some(skipped) => {
                self.code();
                at + skipped + 1
            }
            None => end,
        }
    }

    /// Reads the word from `at` to `end`, or the path or address that begins with it.
    fn word(&mut self, number: usize, line: &'a str, at: usize, end: usize) -> usize {
        let (text, rest) = (&line[at..end], &line[end..]);
        if rest.starts_with("://") {
            self.code();
            let is_end =
                |mark: char| mark.is_whitespace() || matches!(mark, ')' | '>' | ']' | '"' | '|' | '`');
            return end + rest.find(is_end).unwrap_or(rest.len());
        }
        let joins = |marks: &str| rest.starts_with(marks) && word_length(&rest[marks.len()..]) > 0;
        let before = line[..at].chars().next_back().unwrap_or('\n');
        let is_path = matches!(before, '/' | '.')
            || line[..at].ends_with("::")
            || joins(".")
            || joins("::")
            || text.contains('_');
        if is_path {
            self.code();
            return end;
        }
        self.words.push(ProseWord {
            text,
            line: number,
            before,
            is_first: self.is_first,
            is_adjacent: self.is_adjacent,
        });
        self.is_first = false;
        self.is_adjacent = true;
        end
    }
}

fn is_tag_start(character: char) -> bool {
    character.is_ascii_alphabetic() || matches!(character, '/' | '!')
}

/// Returns the length in bytes of the word at the beginning of a text: letters, digits and underscores.
fn word_length(text: &str) -> usize {
    let mut at = 0;
    for byte in text.bytes() {
        if !byte.is_ascii() {
            break;
        }
        if !byte.is_ascii_alphanumeric() && byte != b'_' {
            return at;
        }
        at += 1;
    }
    // Letters beyond ASCII are rare.
    let is_word = |character: char| character.is_alphanumeric() || character == '_';
    at + text[at..]
        .find(|character| !is_word(character))
        .unwrap_or(text.len() - at)
}
