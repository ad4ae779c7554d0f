//! Scratch memory of a worker for steps that do not wait.

use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_web::http_date;
use ringmain_wire::h1::{FieldBlock, FieldTable, Limits};

use crate::limits;

/// Scratch memory for steps that do not wait.
#[derive(Debug)]
pub(crate) struct WorkerScratch {
    pub(crate) limits: Limits,
    pub(crate) table: FieldTable,
    pub(crate) out: Vec<u8>,
    pub(crate) text: Vec<u8>,
    pub(crate) host: String,
    pub(crate) path: String,
    pub(crate) fields: FieldBlock,
    pub(crate) date: DateCache,
    /// Limits log lines about protocol violations of upstreams.
    pub(crate) fault_log: LogLimit,
}

/// A rate limit for log lines of one kind.
#[derive(Debug, Default)]
pub(crate) struct LogLimit {
    /// The end of the current interval.
    ends: Time,
    lines: u32,
    skipped: u64,
}

impl LogLimit {
    /// Admits a line. Returns the number of lines skipped since the last admitted one; `None`: this line is skipped, too.
    pub(crate) fn admit(&mut self, now: Time) -> Option<u64> {
        if now >= self.ends {
            self.ends = now.after(limits::FAULT_LOG_SPAN);
            self.lines = 0;
        }
        if self.lines >= limits::FAULT_LOG_LINES {
            self.skipped += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.skipped))
    }
}

/// The current value of `Date`, formatted once a second.
#[derive(Debug)]
pub(crate) struct DateCache {
    second: u64,
    text: [u8; 29],
}

impl DateCache {
    /// Adds `Date` to a response without one (RFC 9110 §6.6.1). `wall` is the time since the Unix epoch.
    pub(crate) fn add_date(&mut self, wall: Duration, fields: &mut FieldBlock) {
        if self.second != wall.as_secs() {
            self.second = wall.as_secs();
            self.text = http_date(Duration::from_secs(self.second));
        }
        if let Err(misuse) = fields.push("Date", &self.text) {
            log::error!("`Date` cannot be written: {misuse}");
        }
    }
}

impl WorkerScratch {
    pub(crate) fn new() -> WorkerScratch {
        let limits = Limits {
            head_bytes: limits::RESPONSE_HEAD_BYTES,
            fields: limits::RESPONSE_FIELDS,
            ..Limits::INTERNET
        };
        WorkerScratch {
            table: FieldTable::new(&limits),
            limits,
            out: Vec::new(),
            text: Vec::new(),
            host: String::new(),
            path: String::new(),
            fields: FieldBlock::new(),
            date: DateCache {
                second: 0,
                text: http_date(Duration::ZERO),
            },
            fault_log: LogLimit::default(),
        }
    }
}
