//! The trailers of gRPC-Web: lines in the last frame of the body.

use super::fault::{FaultKind, Found, PeerFault};
use super::messages::{Slot, TRAILERS};
use super::misuse::Misuse;
use crate::h1::{Field, FieldBlock, grammar};

/// Appends the last frame of an answer. Names should be in lower case.
///
/// # Errors
/// `MessageTooLong`; nothing was appended.
pub fn write_web_trailers(out: &mut Vec<u8>, fields: &FieldBlock) -> Result<(), Misuse> {
    let slot = Slot::open(out);
    out.extend_from_slice(fields.as_bytes());
    slot.close_as(out, TRAILERS)
}

/// The payload of a frame of trailers, which was checked.
#[derive(Clone, Copy, Debug)]
pub struct WebTrailers<'a> {
    lines: &'a [u8],
}

impl<'a> WebTrailers<'a> {
    /// Checks a payload.
    ///
    /// # Errors
    /// `TrailerLine`: where the line begins that is none.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PeerFault> {
        let mut at = 0;
        while at < payload.len() {
            let rest = &payload[at..];
            let end = rest.windows(2).position(|pair| pair == b"\r\n");
            let good = end.filter(|&end| field(&rest[..end]).is_some());
            let Some(end) = good else {
                return Err(PeerFault {
                    kind: FaultKind::TrailerLine,
                    at: at as u64,
                    found: Found::This,
                });
            };
            at += end + 2;
        }
        Ok(Self { lines: payload })
    }

    /// The fields in the order of their lines.
    pub fn iter(&self) -> impl Iterator<Item = Field<'a>> + use<'a> {
        let lines = self.lines.split(|&byte| byte == b'\n');
        lines.filter_map(|line| field(line.strip_suffix(b"\r")?))
    }
}

/// A line without its end.
fn field(line: &[u8]) -> Option<Field<'_>> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], grammar::trim(&line[colon + 1..]));
    let is_token = !name.is_empty() && grammar::class_end(name, 0, grammar::TOKEN) == name.len();
    let is_value = value
        .iter()
        .all(|&byte| byte == b'\t' || byte >= b' ' && byte != 0x7F);
    (is_token && is_value).then_some(Field { name, value })
}
