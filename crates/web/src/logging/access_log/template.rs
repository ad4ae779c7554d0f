//! A custom line of the access log: text with fields in it as `{name}`.
//!
//! Knows the names of fields; their values are the record's.

use std::fmt;
use std::sync::Arc;

/// Fields of every record. Absent values are written as `-`.
pub const FIELDS: [&str; 11] = [
    "time",
    "remote",
    "method",
    "target",
    "version",
    "status",
    "bytes",
    "duration_us",
    "referer",
    "user_agent",
    "request_id",
];

/// A parsed template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template(Arc<[Piece]>);

/// A part of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(Box<str>),
    /// A number in [`FIELDS`].
    Field(usize),
    /// A field added by a handler.
    LogField(Box<str>),
}

/// The reason why a text is not a template.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateFault {
    /// A brace that nothing closes or opens.
    #[error("a single `{0}`: write `{0}{0}` for a literal one")]
    Brace(char),
    /// No field has this name.
    #[error("the field `{{{name}}}`; there are {known}")]
    Unknown {
        /// The name.
        name: String,
        /// The known names.
        known: String,
    },
    /// A control character, which would end or hide lines.
    #[error("a control character")]
    Control,
}

impl Template {
    /// Parses a template: `{name}` is a field, `{{` and `}}` are braces. `notes` are the names of log fields that handlers add to
    /// [`FIELDS`].
    ///
    /// # Errors
    /// An unknown field, a single brace, a control character.
    pub fn parse(text: &str, notes: &[&str]) -> Result<Template, TemplateFault> {
        if text.chars().any(char::is_control) {
            return Err(TemplateFault::Control);
        }
        let mut pieces = Vec::new();
        let mut plain = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            plain += &rest[..at];
            let (brace, after) = (rest.as_bytes()[at] as char, &rest[at + 1..]);
            if let Some(after) = after.strip_prefix(brace) {
                plain.push(brace);
                rest = after;
                continue;
            }
            let field = after.split_once('}').filter(|_| brace == '{');
            let (name, after) = field.ok_or(TemplateFault::Brace(brace))?;
            if !plain.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut plain).into()));
            }
            pieces.push(piece(name, notes)?);
            rest = after;
        }
        plain += rest;
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain.into()));
        }
        Ok(Template(pieces.into()))
    }

    pub(super) fn pieces(&self) -> &[Piece] {
        &self.0
    }
}

fn piece(name: &str, notes: &[&str]) -> Result<Piece, TemplateFault> {
    if let Some(number) = FIELDS.iter().position(|field| *field == name) {
        return Ok(Piece::Field(number));
    }
    if notes.contains(&name) {
        return Ok(Piece::LogField(name.into()));
    }
    let known: Vec<&str> = FIELDS.iter().chain(notes).copied().collect();
    Err(TemplateFault::Unknown {
        name: name.chars().take(64).collect(),
        known: known.join(", "),
    })
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for piece in self.pieces() {
            match piece {
                Piece::Text(text) => f.write_str(&text.replace('{', "{{").replace('}', "}}"))?,
                Piece::Field(number) => write!(f, "{{{}}}", FIELDS[*number])?,
                Piece::LogField(name) => write!(f, "{{{name}}}")?,
            }
        }
        Ok(())
    }
}
