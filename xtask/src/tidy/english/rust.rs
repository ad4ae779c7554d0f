//! Reads a Rust file as far as the rule needs it: comments, texts, and names of functions and types.
//!
//! Works on bytes, because the rule reads the whole tree in each run of `tidy`: tokens of proc-macro2 cost ten times as much and
//! have no comments. Knows nothing of the expressions.

/// Comments and names of a Rust file.
#[derive(Debug, Default)]
pub(super) struct RustFile<'a> {
    /// Comments, each with the lines that follow each other.
    pub(super) comments: Vec<Vec<(usize, &'a str)>>,
    /// String literals outside test code: the line of the quote, and the source between the quotes.
    pub(super) strings: Vec<Literal<'a>>,
    /// Functions outside test code.
    pub(super) functions: Vec<&'a str>,
    /// Types outside test code, with their lines; no associated types.
    pub(super) types: Vec<(usize, &'a str)>,
}

/// A string literal.
#[derive(Debug)]
pub(super) struct Literal<'a> {
    pub(super) line: usize,
    /// The source between the quotes.
    pub(super) source: &'a str,
    pub(super) is_raw: bool,
}

/// The kinds of braces that matter.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Brace {
    /// Of an `impl` or a trait: its types are associated.
    Associated,
    /// Of an item with `#[cfg(test)]`.
    Test,
    Other,
}

/// The keyword before a name.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Defines {
    Function,
    Type,
    Nothing,
}

/// Reads a file; unfinished literals and comments extend to its end.
pub(super) fn read(text: &str) -> RustFile<'_> {
    let mut reader = RustReader {
        text,
        at: 0,
        line: 1,
        file: RustFile::default(),
        blocks: Vec::new(),
        test_depth: 0,
        pending: Brace::Other,
        defines: Defines::Nothing,
        may_begin_item: true,
        code_line: 0,
        last_comment: None,
    };
    reader.run();
    reader.file
}

struct RustReader<'a> {
    text: &'a str,
    at: usize,
    line: usize,
    file: RustFile<'a>,
    blocks: Vec<Brace>,
    /// Number of [`Brace::Test`] in `blocks`.
    test_depth: usize,
    /// Kind of the next block.
    pending: Brace,
    defines: Defines,
    /// The previous token ends an item or an attribute.
    may_begin_item: bool,
    /// The line of the last token.
    code_line: usize,
    /// Line and marker of the last line comment without code before it.
    last_comment: Option<(usize, &'a str)>,
}

impl<'a> RustReader<'a> {
    fn run(&mut self) {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if bytes.get(self.at + 1) == Some(&b'/') => self.line_comment(),
                b'/' if bytes.get(self.at + 1) == Some(&b'*') => self.block_comment(),
                _ => {
                    self.code_line = self.line;
                    self.token(byte);
                }
            }
        }
    }

    fn token(&mut self, byte: u8) {
        match byte {
            b'"' => self.string(true),
            b'\'' => self.quote(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' | 0x80.. => self.word(),
            b'0'..=b'9' => self.at += word_length(&self.text[self.at..]),
            _ => self.mark(byte),
        }
        if !matches!(byte, b'_' | b'a'..=b'z' | b'A'..=b'Z' | 0x80..) {
            self.defines = Defines::Nothing;
            self.may_begin_item = matches!(byte, b'{' | b'}' | b';' | b']');
        }
    }

    fn mark(&mut self, byte: u8) {
        match byte {
            b'#' if self.text[self.at..].starts_with("#[cfg(test)]") => self.pending = Brace::Test,
            b'{' => {
                self.test_depth += usize::from(self.pending == Brace::Test);
                self.blocks.push(self.pending);
                self.pending = Brace::Other;
            }
            b'}' => {
                self.test_depth -= usize::from(self.blocks.pop() == Some(Brace::Test));
                // The attribute belonged to a field.
                self.pending = Brace::Other;
            }
            b';' => self.pending = Brace::Other,
            _ => {}
        }
        self.at += 1;
    }

    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let word = &rest[..word_length(rest)];
        let after = &rest[word.len()..];
        if word.is_empty() {
            // A character that Rust does not know: its compiler reports it.
            self.at += rest.chars().next().map_or(1, char::len_utf8);
            return;
        }
        self.at += word.len();
        match word {
            "r" | "br" | "cr" if after.starts_with(['"', '#']) => return self.raw(word == "r"),
            "b" | "c" if after.starts_with('"') => return self.string(false),
            "b" if after.starts_with('\'') => return self.quote(),
            _ => {}
        }
        let is_test = self.test_depth > 0;
        match std::mem::replace(&mut self.defines, Defines::Nothing) {
            Defines::Function if !is_test => self.file.functions.push(word),
            Defines::Type if !is_test => self.file.types.push((self.line, word)),
            Defines::Nothing => self.keyword(word),
            _ => {}
        }
        self.may_begin_item = matches!(word, "unsafe" | "default");
    }

    fn keyword(&mut self, word: &str) {
        match word {
            "fn" => self.defines = Defines::Function,
            "struct" | "enum" | "union" => self.defines = Defines::Type,
            "type" if self.blocks.last() != Some(&Brace::Associated) => self.defines = Defines::Type,
            "trait" => {
                self.defines = Defines::Type;
                self.begin_associated();
            }
            "impl" if self.may_begin_item => self.begin_associated(),
            _ => {}
        }
    }

    fn begin_associated(&mut self) {
        if self.pending == Brace::Other {
            self.pending = Brace::Associated;
        }
    }

    /// Reads a lifetime or a character; `at` is at the quote.
    fn quote(&mut self) {
        self.at += 1;
        let rest = &self.text[self.at..];
        let Some(first) = rest.chars().next() else { return };
        if first == '\\' {
            // The escaped character may be a quote.
            let end = rest.get(2..).and_then(|rest| rest.find('\''));
            self.at += end.map_or(rest.len(), |end| end + 3);
        } else if rest[first.len_utf8()..].starts_with('\'') {
            self.line += usize::from(first == '\n');
            self.at += first.len_utf8() + 1;
        } else {
            self.at += word_length(rest);
        }
    }

    /// Reads a string with escapes; `at` is at the quote.
    fn string(&mut self, is_text: bool) {
        let start = self.at + 1;
        let mut end = start;
        loop {
            match self.text[end..].find(['"', '\\']) {
                Some(offset) if self.text.as_bytes()[end + offset] == b'\\' => end += offset + 2,
                Some(offset) => {
                    end += offset;
                    break;
                }
                None => {
                    end = self.text.len();
                    break;
                }
            }
            if !self.text.is_char_boundary(end) {
                end = self.text.ceil_char_boundary(end);
            }
        }
        self.literal(start, end, is_text, false);
        self.at = (end + 1).min(self.text.len());
    }

    /// Reads a raw string or a raw name; `at` is behind the prefix.
    fn raw(&mut self, is_text: bool) {
        let rest = &self.text[self.at..];
        let hashes = rest.bytes().take_while(|byte| *byte == b'#').count();
        if !rest[hashes..].starts_with('"') {
            self.at += hashes + word_length(&rest[hashes..]);
            return;
        }
        let start = self.at + hashes + 1;
        let closing = format!("\"{}", "#".repeat(hashes));
        let end = self.text[start..]
            .find(&closing)
            .map_or(self.text.len(), |end| start + end);
        self.literal(start, end, is_text, true);
        self.at = (end + closing.len()).min(self.text.len());
    }

    fn literal(&mut self, start: usize, end: usize, is_text: bool, is_raw: bool) {
        let end = end.min(self.text.len());
        let source = &self.text[start..end];
        let line = self.line;
        if is_text && self.test_depth == 0 {
            self.file.strings.push(Literal { line, source, is_raw });
        }
        self.line += source.matches('\n').count();
    }

    fn line_comment(&mut self) {
        let rest = &self.text[self.at..];
        let length = rest.find('\n').unwrap_or(rest.len());
        let comment = rest[..length].trim_end();
        let marker = ["//!", "////", "///", "//"]
            .into_iter()
            .find(|marker| comment.starts_with(marker));
        let marker = marker.expect("it begins with two slashes");
        let text = &comment[marker.len()..];
        let line = (self.line, text.strip_prefix(' ').unwrap_or(text));
        let is_alone = self.code_line != self.line;
        match (self.last_comment, self.file.comments.last_mut()) {
            (Some((before, same)), Some(comment))
                if is_alone && before + 1 == self.line && same == marker =>
            {
                comment.push(line);
            }
            _ => self.file.comments.push(vec![line]),
        }
        self.last_comment = is_alone.then_some((self.line, marker));
        self.at += length;
    }

    /// Reads a block comment, which may contain others.
    fn block_comment(&mut self) {
        let rest = &self.text[self.at..];
        let (mut depth, mut length) = (0, 0);
        while let Some(offset) = rest[length..].find(['/', '*']) {
            length += offset;
            match &rest.as_bytes()[length..(length + 2).min(rest.len())] {
                b"/*" => depth += 1,
                b"*/" => depth -= 1,
                _ => {
                    length += 1;
                    continue;
                }
            }
            length += 2;
            if depth == 0 {
                break;
            }
        }
        if depth != 0 {
            length = rest.len();
        }
        let mut lines = Vec::new();
        for text in rest[..length].split('\n') {
            let text = text
                .trim()
                .trim_start_matches(['/', '*', '!'])
                .trim_end_matches(['*', '/']);
            lines.push((self.line + lines.len(), text.strip_prefix(' ').unwrap_or(text)));
        }
        self.line += lines.len() - 1;
        self.file.comments.push(lines);
        self.last_comment = None;
        self.at += length;
    }
}

/// Returns the length in bytes of the word at the beginning of a text.
fn word_length(text: &str) -> usize {
    let is_word = |character: char| character == '_' || character.is_alphanumeric();
    let ascii = text
        .bytes()
        .take_while(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        .count();
    match text.as_bytes().get(ascii) {
        Some(0x80..) => text.find(|character| !is_word(character)).unwrap_or(text.len()),
        _ => ascii,
    }
}
