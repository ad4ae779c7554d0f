//! What a publication holds: its run, its channel and number, and when it was due, in a JSON object of a given size.
//!
//! `{"b":"RRRRRRRRCCCCCCCCSSSSSSSSTTTTTTTTTTTTTTTTxxx…"}`: digits are hexadecimal, and so written that a reader finds them
//! by the run without parsing what is around. A publication of another run, or of somebody else, is not found.

use memchr::memmem::Finder;
use ringmain_engine::backend::Time;

use super::calendar::Mark;

/// What stands before the run.
const OPEN: &[u8] = b"{\"b\":\"";
/// What stands at the end.
const CLOSE: &[u8] = b"\"}";
/// Digits of the run, and of channel, number and time behind it.
const RUN: usize = 8;
const REST: usize = 8 + 8 + 16;

/// Bytes of the shortest publication.
pub(super) const BYTES: usize = OPEN.len() + RUN + REST + CLOSE.len();

/// A publication as it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) mark: Mark,
    /// When it was due.
    pub(super) due: Time,
}

/// Finds publications of a run.
#[derive(Debug)]
pub(super) struct Reader {
    finder: Finder<'static>,
    size: usize,
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// A publication; what is behind it begins here.
    Whole(Stamp, usize),
    /// One of this run, but not as it was published; what is behind its beginning begins here.
    Changed(usize),
}

/// Appends a publication of `size` bytes, at least [`BYTES`].
pub(super) fn write(out: &mut Vec<u8>, run: u32, stamp: Stamp, size: usize) {
    debug_assert!(size >= BYTES);
    let end = out.len() + size;
    out.extend_from_slice(OPEN);
    digits(out, u64::from(run), RUN);
    digits(out, u64::from(stamp.mark.channel), 8);
    digits(out, u64::from(stamp.mark.sequence), 8);
    digits(out, stamp.due.0, 16);
    out.resize(end - CLOSE.len(), b'x');
    out.extend_from_slice(CLOSE);
}

impl Reader {
    /// Of publications of `run` that have `size` bytes.
    pub(super) fn new(run: u32, size: usize) -> Reader {
        let mut begin = OPEN.to_vec();
        digits(&mut begin, u64::from(run), RUN);
        Reader {
            finder: Finder::new(&begin).into_owned(),
            size,
        }
    }

    /// The first publication in `text`, if there is one.
    #[inline]
    pub(super) fn find(&self, text: &[u8]) -> Option<Found> {
        let start = self.finder.find(text)?;
        let begun = start + OPEN.len() + RUN;
        let whole = text
            .get(start..start + self.size)
            .filter(|whole| whole.ends_with(CLOSE));
        let stamp = whole.and_then(|_| read(&text[begun..begun + REST]));
        Some(match stamp {
            Some(stamp) => Found::Whole(stamp, start + self.size),
            None => Found::Changed(begun),
        })
    }
}

/// Returns the run and the stamp of a publication of any run and size, anywhere in `text`.
pub(super) fn identify(text: &[u8]) -> Option<(u32, Stamp)> {
    let begun = memchr::memmem::find(text, OPEN)? + OPEN.len();
    let digits = text.get(begun..begun + RUN + REST)?;
    let run = number(&digits[..RUN])? as u32;
    Some((run, read(&digits[RUN..])?))
}

fn read(text: &[u8]) -> Option<Stamp> {
    let channel = number(&text[..8])? as u32;
    let sequence = number(&text[8..16])? as u32;
    let due = Time(number(&text[16..32])?);
    Some(Stamp {
        mark: Mark { channel, sequence },
        due,
    })
}

fn digits(out: &mut Vec<u8>, number: u64, count: usize) {
    for place in (0..count).rev() {
        let digit = (number >> (4 * place)) as u8 & 15;
        out.push(if digit < 10 {
            b'0' + digit
        } else {
            b'a' - 10 + digit
        });
    }
}

#[inline]
fn number(text: &[u8]) -> Option<u64> {
    text.iter().try_fold(0u64, |number, byte| {
        let digit = match byte {
            b'0'..=b'9' => byte - b'0',
            b'a'..=b'f' => byte - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u64::from(digit))
    })
}

#[cfg(test)]
mod tests;
