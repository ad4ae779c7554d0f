//! The default logger: writes to standard error in a program that has set no logger, so that a failing handler is not silent on the
//! first day.
//!
//! Knows nothing of the content of lines.

use std::io::Write;

use log::{LevelFilter, Log, Metadata, Record};

use super::process_log::{self, ProcessLogFormat};

struct StderrLogger;

/// Logs lines from level `info` to standard error, unless the program has set a logger of its own (any of the `log` facade's).
pub fn init_stderr_logger() {
    if log::set_logger(&StderrLogger).is_ok() {
        log::set_max_level(LevelFilter::Info);
    }
}

impl Log for StderrLogger {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let line = match process_log::format() {
            ProcessLogFormat::Text => {
                let level = record.level().as_str().to_ascii_lowercase();
                format!("{level}: {}\n", record.args())
            }
            ProcessLogFormat::Json => process_log::json_line(record, process_log::wall_clock()),
        };
        // In one write: a process that takes over writes to the same standard error. A failure cannot be reported.
        let _ = std::io::stderr().write_all(line.as_bytes());
    }

    fn flush(&self) {}
}
