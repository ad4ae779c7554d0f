//! Field lines that are written once and sent many times.

use super::encoder::write_field;
use super::misuse::Misuse;

/// Field lines that were checked once and are sent many times, such as `Server` and `Date`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldBlock {
    lines: Vec<u8>,
}

impl FieldBlock {
    /// No field.
    #[must_use]
    pub const fn new() -> Self {
        Self { lines: Vec::new() }
    }

    /// Appends a field.
    ///
    /// # Errors
    /// `FieldName`, `FieldValue`, `FramingField`.
    pub fn push(&mut self, name: &str, value: &[u8]) -> Result<(), Misuse> {
        write_field(&mut self.lines, name, value)
    }

    /// Appends the fields of another block.
    pub fn append(&mut self, other: &FieldBlock) {
        self.lines.extend_from_slice(&other.lines);
    }

    /// Takes out the fields of that name, in any case. Linear in the bytes of the block.
    pub fn remove(&mut self, name: &str) {
        let mut at = 0;
        while at < self.lines.len() {
            let line = &self.lines[at..];
            let end = line
                .iter()
                .position(|&byte| byte == b'\n')
                .map_or(line.len(), |lf| lf + 1);
            let is_named = line[..end]
                .split(|&byte| byte == b':')
                .next()
                .is_some_and(|found| found.eq_ignore_ascii_case(name.as_bytes()));
            if is_named {
                self.lines.drain(at..at + end);
            } else {
                at += end;
            }
        }
    }

    /// Whether there is no field.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Forgets all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.lines.clear();
    }

    /// Bytes that it has memory for.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.lines.capacity()
    }

    /// The fields, in the order in which they were appended: names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // A value has no line feed, a name no colon; names are tokens.
        let lines = self.lines.split(|&byte| byte == b'\n');
        lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some((
                str::from_utf8(&line[..colon]).ok()?,
                line[colon + 1..].trim_ascii(),
            ))
        })
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.lines
    }
}
