//! A head that may arrive in pieces: a start line, field lines, an empty line. Both roles share it.
//!
//! Knows no start line and no field by its meaning.

use super::fault::{FaultKind, Found, PeerFault};
use super::fields::FieldTable;
use super::limits::Limits;
use super::lines::{Caps, Cursor, Step};

/// Whether a head is there.
#[derive(Debug)]
pub enum Parsed<H> {
    /// All of it. The body begins `bytes` after the input's start.
    Complete {
        /// The head.
        head: H,
        /// Its length, with the empty line at its end (and the one skipped before it).
        bytes: usize,
    },
    /// Not yet. Call again with the same bytes and more behind them.
    Partial,
}

/// How far the head of a connection has been read while it arrives in pieces: 48 bytes, so that each
/// connection can have its own while all share a [`FieldTable`].
///
/// Every byte is looked at a fixed number of times, however many pieces it came in. A scanner is as new after
/// a complete head. After a fault it returns that fault for ever.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadScanner {
    cursor: Cursor,
    fault: Option<PeerFault>,
}

const _: () = assert!(
    size_of::<HeadScanner>() <= 48,
    "an idle connection is a small record"
);

/// How far a scanner is that has found no fault: all that is kept of it while more of the head is waited for.
#[derive(Clone, Copy, Debug, Default)]
pub struct HeadProgress(Cursor);

const _: () = assert!(
    size_of::<HeadProgress>() <= 12,
    "an idle connection is a small record"
);

impl HeadScanner {
    /// For a head of which so much has been read.
    #[must_use]
    pub const fn resume(progress: HeadProgress) -> Self {
        Self {
            cursor: progress.0,
            fault: None,
        }
    }

    /// How far it is. After a fault nothing is to be read that this would say.
    #[must_use]
    pub const fn progress(&self) -> HeadProgress {
        HeadProgress(self.cursor)
    }

    /// For a head of which nothing has arrived.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            cursor: Cursor {
                line: 0,
                seen: 0,
                fields: 0,
            },
            fault: None,
        }
    }

    /// The fault that ended reading, if one did.
    #[must_use]
    pub const fn fault(&self) -> Option<PeerFault> {
        self.fault
    }

    /// What comes of a head is final: the next one begins afresh, or there is none.
    #[inline]
    pub(super) fn settle<H>(&mut self, result: &Result<Parsed<H>, PeerFault>) {
        match result {
            Ok(Parsed::Partial) => {}
            Ok(Parsed::Complete { .. }) => self.cursor = Cursor::default(),
            Err(fault) => self.fault = Some(*fault),
        }
    }
}

/// How a role's start line is read.
pub(super) trait StartLine {
    /// RFC 9112 §2.2: a server skips one empty line before the request line; a client skips none.
    const SKIPS_EMPTY_LINE: bool;

    /// Reads the line at `at` into itself; returns where the next one begins. A fault is true only if the
    /// line's LF is in `input`.
    fn parse(&mut self, input: &[u8], at: usize) -> Result<usize, PeerFault>;
}

/// Reads start line and fields, into `start` and `table`. Returns the head's length; `None` when there is more
/// to come.
#[inline]
pub(super) fn read<S: StartLine>(
    input: &[u8],
    limits: &Limits,
    scanner: &mut HeadScanner,
    start: &mut S,
    table: &mut FieldTable,
) -> Result<Option<usize>, PeerFault> {
    if let Some(fault) = scanner.fault {
        return Err(fault);
    }
    // A head in pieces is read twice: line by line as it arrives, with the table in others' use in between,
    // and once more when it is whole.
    let resumed = scanner.cursor.line > 0;
    let read = lines(input, limits, &mut scanner.cursor, start, table)?;
    if resumed && read.is_some() {
        scanner.cursor = Cursor::default();
        return lines(input, limits, &mut scanner.cursor, start, table);
    }
    Ok(read)
}

/// Reads from where `cursor` is.
#[inline]
fn lines<S: StartLine>(
    input: &[u8],
    limits: &Limits,
    cursor: &mut Cursor,
    start: &mut S,
    table: &mut FieldTable,
) -> Result<Option<usize>, PeerFault> {
    let window = &input[..input.len().min(limits.head_bytes as usize)];
    let caps = Caps {
        bytes: limits.head_bytes,
        fields: limits.fields,
        too_large: FaultKind::HeadTooLarge,
        too_many: FaultKind::TooManyFields,
    };
    table.clear();
    if cursor.line == 0 && !start_line(window, limits, cursor, start)? {
        return Ok(None);
    }
    // In registers while it runs; only a cut needs it afterwards.
    let mut local = *cursor;
    loop {
        match local.next(window, &caps, &mut |record| table.push(record))? {
            Step::Field => {}
            Step::End(end) => return Ok(Some(end)),
            Step::Cut => {
                *cursor = local;
                return Ok(None);
            }
        }
    }
}

/// Whether the start line is there.
#[inline]
fn start_line<S: StartLine>(
    window: &[u8],
    limits: &Limits,
    cursor: &mut Cursor,
    start: &mut S,
) -> Result<bool, PeerFault> {
    let skipped = S::SKIPS_EMPTY_LINE && window.starts_with(b"\r\n");
    let at = if skipped { 2 } else { 0 };
    cursor.seen = cursor.seen.max(at as u32);
    let limit = at + limits.start_line_bytes as usize;
    let line = &window[..window.len().min(limit)];
    let resumed = cursor.seen as usize > at;
    if !resumed || cursor.ends(line) {
        match start.parse(line, at) {
            Ok(end) => {
                cursor.begin(end);
                return Ok(true);
            }
            Err(fault) if cursor.ends(line) => return Err(fault),
            Err(_) => {}
        }
    }
    let (kind, limit_bytes) = if line.len() == limit {
        (FaultKind::StartLineTooLong, limits.start_line_bytes)
    } else if window.len() == limits.head_bytes as usize {
        (FaultKind::HeadTooLarge, limits.head_bytes)
    } else {
        return Ok(false);
    };
    let found = Found::MoreThan(u64::from(limit_bytes));
    Err(PeerFault::new(kind, line.len(), found))
}
