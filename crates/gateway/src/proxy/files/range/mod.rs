//! The part of a file that a `Range` field requests. A request for several ranges is answered with the whole file: few clients send one,
//! and fewer understand the response.

/// The part of a file to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FileRange {
    All,
    /// The bytes `from..to`.
    Part {
        from: u64,
        to: u64,
    },
    /// Outside the file: 416.
    Unsatisfiable,
}

impl FileRange {
    /// Parses `bytes=…` for a file of `length` bytes (RFC 9110 §14.1.2). An invalid value is ignored.
    pub(super) fn from_field(value: &[u8], length: u64) -> FileRange {
        FileRange::parse(value, length).unwrap_or(FileRange::All)
    }

    fn parse(value: &[u8], length: u64) -> Option<FileRange> {
        let (unit, rest) = str::from_utf8(value).ok()?.split_once('=')?;
        let (first, last) = rest.trim().split_once('-')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (from, to) = match (parse_number(first)?, parse_number(last)?) {
            (None, None) => return None,
            (None, Some(0)) => return Some(FileRange::Unsatisfiable),
            (None, Some(count)) => (length.saturating_sub(count), length),
            (Some(from), None) => (from, length),
            (Some(from), Some(last)) if last < from => return None,
            (Some(from), Some(last)) => (from, last.saturating_add(1).min(length)),
        };
        Some(if from < to {
            FileRange::Part { from, to }
        } else {
            FileRange::Unsatisfiable
        })
    }
}

/// Parses a number. `None`: not a number; `Some(None)`: empty.
fn parse_number(text: &str) -> Option<Option<u64>> {
    match text {
        "" => Some(None),
        text if text.bytes().all(|byte| byte.is_ascii_digit()) => text.parse().ok().map(Some),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
