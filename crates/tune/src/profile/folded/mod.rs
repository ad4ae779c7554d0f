//! Folded stacks: what flame graphs are drawn from, a line a stack, `thread;outer;inner 12`.
//!
//! The form is that of other tools' files, which can be read and are written; `_[k]` at a frame's end says that it is the kernel's,
//! `_[i]` that it was inlined. Knows nothing of how stacks are taken or drawn.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt::Write;

use super::limits::{FOLDED_BYTES, SAMPLES};
use super::names::{INLINED, KERNEL, UNKNOWN};

/// Stacks with how often each was seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Folded {
    stacks: BTreeMap<String, u64>,
    /// All counts together, at most [`SAMPLES`].
    total: u64,
}

/// Why a text is no folded stacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FoldedError {
    /// A line without a count.
    #[error("line {line}: expected a stack and its count, `frame;frame 12`; found `{found}`")]
    Line {
        /// Its number, from 1.
        line: usize,
        /// As it stands there, cut.
        found: String,
    },
    /// More samples than there can be.
    #[error("line {0}: expected at most {SAMPLES} samples together; found more")]
    TooMany(usize),
    /// Nothing in it.
    #[error("expected folded stacks, such as `ringmain profile --folded` writes; found no line")]
    Empty,
    /// More than a profile can be.
    #[error("expected at most {FOLDED_BYTES} bytes of folded stacks; found {0}")]
    TooLong(u64),
}

/// Whose code a frame is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Side {
    /// The program's, a library's, or the vdso's.
    User,
    /// The kernel's.
    Kernel,
    /// Nobody's that is known: `[unknown]` and other marks in brackets, and a stack's first frame, which is a thread's name.
    Other,
}

/// A frame as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown<'a> {
    /// Its name without marks.
    pub name: &'a str,
    /// Whose code it is.
    pub side: Side,
    /// Part of the function before it.
    pub inlined: bool,
}

/// A frame's marks taken off.
#[must_use]
pub fn shown(frame: &str) -> Shown<'_> {
    let (name, kernel) = without(frame, KERNEL);
    let (name, inlined) = without(name, INLINED);
    let side = match (kernel, is_known(name)) {
        (true, _) => Side::Kernel,
        (false, true) => Side::User,
        (false, false) => Side::Other,
    };
    Shown { name, side, inlined }
}

fn without<'a>(frame: &'a str, mark: &str) -> (&'a str, bool) {
    match frame.strip_suffix(mark) {
        Some(name) => (name, true),
        None => (frame, false),
    }
}

/// Whether a name is a function's, rather than a mark such as `[unknown]`.
#[must_use]
pub fn is_known(name: &str) -> bool {
    !(name.starts_with('[') && name.ends_with(']'))
}

/// The frames of a stack, the thread's name first.
pub fn frames(stack: &str) -> impl DoubleEndedIterator<Item = &str> {
    stack.split(';')
}

/// Whose code runs in a stack: its innermost frame's.
#[must_use]
pub fn side(stack: &str) -> Side {
    let mut inward = frames(stack).rev();
    match (inward.next(), inward.next()) {
        (Some(last), Some(_)) => shown(last).side,
        // The thread's name alone.
        _ => Side::Other,
    }
}

impl Folded {
    /// Counts a stack so many times more; what is beyond [`SAMPLES`] is left out.
    pub fn add(&mut self, stack: &str, count: u64) {
        let count = count.min(SAMPLES - self.total);
        self.total += count;
        if let Some(present) = self.stacks.get_mut(stack) {
            *present += count;
        } else {
            self.stacks.insert(stack.to_owned(), count);
        }
    }

    /// Reads what [`Folded::write`] writes, or another tool has written.
    ///
    /// # Errors
    /// [`FoldedError`].
    pub fn parse(text: &str) -> Result<Folded, FoldedError> {
        if text.len() as u64 > FOLDED_BYTES {
            return Err(FoldedError::TooLong(text.len() as u64));
        }
        let mut folded = Folded::default();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let parts = line.rsplit_once(' ').and_then(|(stack, count)| {
                let stack = stack.trim_end();
                (!stack.is_empty()).then_some((stack, count.parse().ok()?))
            });
            let Some((stack, count)) = parts else {
                let found = line.chars().take(60).collect();
                return Err(FoldedError::Line { line: number, found });
            };
            if count > SAMPLES - folded.total {
                return Err(FoldedError::TooMany(number));
            }
            folded.add(stack, count);
        }
        if folded.stacks.is_empty() {
            return Err(FoldedError::Empty);
        }
        Ok(folded)
    }

    /// The lines, in the order of their text, so that the same stacks give the same file.
    #[must_use]
    pub fn write(&self) -> String {
        let mut out = String::new();
        for (stack, count) in &self.stacks {
            // Writing to a string cannot fail.
            let _ = writeln!(out, "{stack} {count}");
        }
        out
    }

    /// Every stack with its count, in the order of their text.
    pub fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.stacks.iter().map(|(stack, count)| (stack.as_str(), *count))
    }

    /// All counts together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }

    /// Stacks that differ.
    #[must_use]
    pub fn len(&self) -> usize {
        self.stacks.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stacks.is_empty()
    }

    /// Counts of stacks whose innermost function is not known, and of those that have an unknown one anywhere.
    #[must_use]
    pub fn unknown(&self) -> (u64, u64) {
        let unknown = |frame: &str| {
            let name = shown(frame).name;
            name.starts_with(&UNKNOWN[..UNKNOWN.len() - 1]) && !is_known(name)
        };
        let (mut innermost, mut anywhere) = (0, 0);
        for (stack, count) in self.iter() {
            if frames(stack).skip(1).any(unknown) {
                anywhere += count;
            }
            if frames(stack).skip(1).last().is_some_and(unknown) {
                innermost += count;
            }
        }
        (innermost, anywhere)
    }
}
