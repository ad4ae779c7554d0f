//! The format of the process log: text for people, or one JSON object per line.
//!
//! ```text
//! command line, environment ── select ──▶ ┐
//!                                         ├─ format ─▶ the program's logger
//! configuration file ──────── configure ▶ ┘
//! ```
//!
//! Owns the choice of the format and the form of JSON lines. Knows no destination and no queue: those are the logger's.

#[cfg(test)]
mod tests;

use std::fmt::{self, Display, Write as _};
use std::io::Write as _;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, SystemTime};

use log::kv::{Error, Key, Value, VisitSource, VisitValue};
use log::{Level, Record};

use super::json_text;
use crate::http::date;
use crate::limits::{PROCESS_LOG_FIELDS, PROCESS_LOG_TEXT_BYTES};

/// Bit of [`CHOICE`]: lines are JSON.
const JSON: u8 = 1;
/// Bit of [`CHOICE`]: the program has selected the format.
const SELECTED: u8 = 2;

static CHOICE: AtomicU8 = AtomicU8::new(0);

/// Names of members that every line has; fields with these names are omitted.
const MEMBERS: [&str; 4] = ["time", "level", "logger", "message"];

/// The format of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProcessLogFormat {
    /// Text for people.
    #[default]
    Text,
    /// A JSON object per line: `time` (RFC 3339, UTC), `level`, `logger` (the module), `message`, and the fields of the message.
    Json,
}

impl ProcessLogFormat {
    fn bits(self) -> u8 {
        match self {
            ProcessLogFormat::Text => 0,
            ProcessLogFormat::Json => JSON,
        }
    }
}

/// Returns the format of lines.
#[must_use]
pub fn format() -> ProcessLogFormat {
    match CHOICE.load(Ordering::Relaxed) & JSON {
        0 => ProcessLogFormat::Text,
        _ => ProcessLogFormat::Json,
    }
}

/// Sets the format for the program, by its command line or environment: takes precedence over [`configure`], earlier or later.
pub fn select(format: ProcessLogFormat) {
    CHOICE.store(format.bits() | SELECTED, Ordering::Relaxed);
}

/// Sets the format by a configuration file. No effect after [`select`].
pub fn configure(format: ProcessLogFormat) {
    let unselected = |choice: u8| (choice & SELECTED == 0).then_some(format.bits());
    // An error is a format that was selected.
    let _ = CHOICE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, unselected);
}

/// Formats a record as a line of JSON. `since_epoch`: the time since 1970-01-01.
///
/// Texts longer than [`PROCESS_LOG_TEXT_BYTES`] are cut; control characters are escaped.
#[must_use]
pub fn json_line(record: &Record<'_>, since_epoch: Duration) -> String {
    let mut out = Vec::with_capacity(256);
    out.extend_from_slice(b"{\"time\":\"");
    out.extend_from_slice(&date::timestamp(since_epoch));
    out.push(b'"');
    push_member(&mut out, "level", level_name(record.level()));
    push_member(&mut out, "logger", record.target());
    push_member(&mut out, "message", record.args());
    let mut fields = Fields {
        out: &mut out,
        count: 0,
    };
    // The visitor returns no error; a source that does has fewer fields.
    let _ = record.key_values().visit(&mut fields);
    out.extend_from_slice(b"}\n");
    // Characters only were appended.
    String::from_utf8(out).unwrap_or_default()
}

/// Returns the line, with its end, that reports the error that ends a program: `error: MESSAGE`, or JSON.
#[must_use]
pub fn error_line(message: &str) -> String {
    match format() {
        ProcessLogFormat::Text => format!("error: {message}\n"),
        ProcessLogFormat::Json => {
            let args = format_args!("{message}");
            let record = Record::builder()
                .level(Level::Error)
                .target("ringmain")
                .args(args)
                .build();
            json_line(&record, wall_clock())
        }
    }
}

/// Returns the time since 1970-01-01.
#[expect(
    clippy::disallowed_methods,
    reason = "the time in a log line is for people; no simulation writes to standard error"
)]
pub(super) fn wall_clock() -> Duration {
    let now = SystemTime::now();
    now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "error",
        Level::Warn => "warn",
        Level::Info => "info",
        Level::Debug => "debug",
        Level::Trace => "trace",
    }
}

/// Appends `,"NAME":"VALUE"`.
fn push_member(out: &mut Vec<u8>, name: &str, value: impl Display) {
    push_name(out, name);
    out.push(b'"');
    // An error is a value that was cut, or a `Display` that failed: its output so far is shown.
    let _ = write!(JsonText::new(out), "{value}");
    out.push(b'"');
}

/// Appends `,"NAME":`.
fn push_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b",\"");
    let _ = JsonText::new(out).write_str(name);
    out.extend_from_slice(b"\":");
}

/// The inside of a JSON string, with a limited length.
struct JsonText<'o> {
    out: &'o mut Vec<u8>,
    /// Bytes that may still be appended.
    remaining: usize,
    is_cut: bool,
}

impl JsonText<'_> {
    fn new(out: &mut Vec<u8>) -> JsonText<'_> {
        JsonText {
            out,
            remaining: PROCESS_LOG_TEXT_BYTES,
            is_cut: false,
        }
    }
}

impl fmt::Write for JsonText<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.is_cut {
                return Err(fmt::Error);
            }
            let before = self.out.len();
            json_text::push_escaped(self.out, character);
            let length = self.out.len() - before;
            if length > self.remaining {
                self.out.truncate(before);
                self.out.extend_from_slice("…".as_bytes());
                self.is_cut = true;
                return Err(fmt::Error);
            }
            self.remaining -= length;
        }
        Ok(())
    }
}

/// Appends the fields of a record as members.
struct Fields<'o> {
    out: &'o mut Vec<u8>,
    count: usize,
}

impl<'kvs> VisitSource<'kvs> for Fields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        if self.count < PROCESS_LOG_FIELDS && !MEMBERS.contains(&key.as_str()) {
            self.count += 1;
            push_name(self.out, key.as_str());
            value.visit(FieldValue(self.out))?;
        }
        Ok(())
    }
}

/// Appends the value of a field: a number, a boolean, `null`, or a string.
struct FieldValue<'o>(&'o mut Vec<u8>);

impl FieldValue<'_> {
    fn push_string(&mut self, value: impl Display) {
        self.0.push(b'"');
        let _ = write!(JsonText::new(self.0), "{value}");
        self.0.push(b'"');
    }

    fn push_plain(&mut self, value: impl Display) {
        // Memory accepts every byte.
        let _ = write!(self.0, "{value}");
    }
}

impl<'v> VisitValue<'v> for FieldValue<'_> {
    fn visit_any(&mut self, value: Value<'_>) -> Result<(), Error> {
        self.push_string(value);
        Ok(())
    }

    fn visit_null(&mut self) -> Result<(), Error> {
        self.push_plain("null");
        Ok(())
    }

    fn visit_u64(&mut self, value: u64) -> Result<(), Error> {
        self.push_plain(value);
        Ok(())
    }

    fn visit_i64(&mut self, value: i64) -> Result<(), Error> {
        self.push_plain(value);
        Ok(())
    }

    fn visit_f64(&mut self, value: f64) -> Result<(), Error> {
        if value.is_finite() {
            self.push_plain(value);
        } else {
            self.push_plain("null");
        }
        Ok(())
    }

    fn visit_bool(&mut self, value: bool) -> Result<(), Error> {
        self.push_plain(value);
        Ok(())
    }
}
