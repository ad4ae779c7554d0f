//! Fields after the last chunk (RFC 9110 §6.5). Never merged into the head's fields; what to keep is up to the
//! caller, who should have a list of names.

use super::fields::Field;
use super::grammar;

/// A trailer section that was checked as a head's fields are.
#[derive(Clone, Copy, Debug)]
pub struct Trailers<'a> {
    /// Field lines, each with its CRLF, without the empty line.
    section: &'a [u8],
}

impl<'a> Trailers<'a> {
    pub(super) fn new(section: &'a [u8]) -> Self {
        Self { section }
    }

    /// The fields in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let lines = self.section.split(|&byte| byte == b'\n');
        lines.filter_map(|line| {
            let line = line.strip_suffix(b"\r")?;
            let colon = line.iter().position(|&byte| byte == b':')?;
            Some(Field {
                name: &line[..colon],
                value: grammar::trim(&line[colon + 1..]),
            })
        })
    }
}
