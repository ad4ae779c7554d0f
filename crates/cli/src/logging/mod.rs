//! The logger: a bounded queue, and a thread that writes it to standard error.
//!
//! Callers never wait for a terminal or a pipe. If the queue is full, a line is dropped and counted, and the count is logged
//! as soon as there is room. Lines are text, or JSON if that is selected. Knows nothing of the messages.

pub(crate) mod format;
mod time;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use log::{Level, LevelFilter, Log, Metadata, Record};
use ringmain_web::process_log::{self, ProcessLogFormat};

use crate::limits;

/// The queue of the program, after [`start_log`].
static LOG: OnceLock<Arc<Queue>> = OnceLock::new();

/// Starts the logger, which writes lines up to `level` to standard error.
///
/// # Errors
/// Fails if the writer's thread cannot be started.
pub(crate) fn start_log(level: LevelFilter) -> io::Result<()> {
    let colour = io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
    let queue = LOG.get_or_init(|| Arc::new(Queue::new(limits::LOG_LINES, colour)));
    let writer = Arc::clone(queue);
    let builder = std::thread::Builder::new().name("ringmain-log".into());
    #[expect(
        clippy::disallowed_methods,
        reason = "the log's writer waits for standard error so that no worker has to"
    )]
    builder.spawn(move || writer.write_loop(&mut io::stderr()))?;
    // No other code sets a logger.
    if log::set_logger(&Facade).is_ok() {
        log::set_max_level(level);
    }
    Ok(())
}

/// Logs a record, or prints it to standard error before [`start_log`].
pub(crate) fn log_or_print(record: &Record<'_>) {
    let Some(queue) = LOG.get() else {
        let line = match process_log::format() {
            ProcessLogFormat::Text => {
                format!(
                    "{}: {}\n",
                    level_name(record.level()).to_lowercase(),
                    record.args()
                )
            }
            ProcessLogFormat::Json => format_json(wall_clock(), record),
        };
        // A broken standard error cannot be reported.
        let _ = io::stderr().write_all(line.as_bytes());
        return;
    };
    // Formatted outside the lock: a slow `Display` must not block other threads.
    queue.push_line(format_record(wall_clock(), record, queue.colour));
}

/// Waits until all lines are written, at most [`limits::LOG_FLUSH`].
pub(crate) fn flush() {
    if let Some(queue) = LOG.get() {
        queue.flush(limits::LOG_FLUSH);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the time in a log line is for people; no simulation runs a command line"
)]
fn wall_clock() -> SystemTime {
    SystemTime::now()
}

/// The logger of the `log` macros.
struct Facade;

impl Log for Facade {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        is_written(metadata.level(), metadata.target(), log::max_level())
    }

    fn log(&self, record: &Record<'_>) {
        if self.enabled(record.metadata()) {
            log_or_print(record);
        }
    }

    fn flush(&self) {
        flush();
    }
}

/// Returns whether a line is written. Lines of libraries are written from level `debug` on: clients of brokers log each
/// request, and our own lines report their failures.
fn is_written(level: Level, target: &str, most: LevelFilter) -> bool {
    level <= most && (target.starts_with("ringmain") || most >= LevelFilter::Debug)
}

/// The queue of lines for the writer.
struct Queue {
    lines: Mutex<QueuedLines>,
    /// Signalled when lines are queued.
    filled: Condvar,
    /// Signalled when all lines are written.
    idle: Condvar,
    limit: usize,
    colour: bool,
}

#[derive(Default)]
struct QueuedLines {
    waiting: VecDeque<String>,
    dropped: u64,
    writing: bool,
}

impl Queue {
    fn new(limit: usize, colour: bool) -> Queue {
        Queue {
            lines: Mutex::default(),
            filled: Condvar::new(),
            idle: Condvar::new(),
            limit,
            colour,
        }
    }

    /// Queues a line, or counts it as dropped; never waits for the writer.
    fn push_line(&self, line: String) {
        let mut lines = self.lock_lines();
        if lines.waiting.len() < self.limit {
            lines.waiting.push_back(line);
        } else {
            lines.dropped += 1;
        }
        drop(lines);
        self.filled.notify_one();
    }

    /// Writes queued lines in an endless loop; lines are lost on errors, which cannot be reported elsewhere.
    fn write_loop(&self, out: &mut dyn Write) -> ! {
        let mut lines = self.lock_lines();
        loop {
            if lines.waiting.is_empty() && lines.dropped == 0 {
                lines.writing = false;
                self.idle.notify_all();
                lines = self.filled.wait(lines).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            lines.writing = true;
            let batch = std::mem::take(&mut lines.waiting);
            let dropped = std::mem::take(&mut lines.dropped);
            drop(lines);
            let mut text: String = batch.into_iter().collect();
            if dropped > 0 {
                text.push_str(&self.format_dropped(dropped));
            }
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
            lines = self.lock_lines();
        }
    }

    /// Formats the line that reports dropped lines.
    fn format_dropped(&self, dropped: u64) -> String {
        let mut record = Record::builder();
        record.level(Level::Warn).target(module_path!());
        let fields = [("lines", dropped)];
        format_record(
            wall_clock(),
            &record
                .key_values(&fields)
                .args(format_args!(
                    "{dropped} log lines were dropped: standard error is too slow"
                ))
                .build(),
            self.colour,
        )
    }

    /// Waits until all lines are written, at most `timeout`; returns whether they are.
    fn flush(&self, timeout: Duration) -> bool {
        let busy = |lines: &mut QueuedLines| lines.writing || !lines.waiting.is_empty() || lines.dropped > 0;
        let (_lines, outcome) = self
            .idle
            .wait_timeout_while(self.lock_lines(), timeout, busy)
            .unwrap_or_else(PoisonError::into_inner);
        !outcome.timed_out()
    }

    fn lock_lines(&self) -> MutexGuard<'_, QueuedLines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Formats a record in the format that is selected, always as one line.
fn format_record(at: SystemTime, record: &Record<'_>, colour: bool) -> String {
    match process_log::format() {
        ProcessLogFormat::Text => format_line(at, record.level(), *record.args(), colour),
        ProcessLogFormat::Json => format_json(at, record),
    }
}

fn format_json(at: SystemTime, record: &Record<'_>) -> String {
    process_log::json_line(record, at.duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Formats `2026-01-31T12:00:00.123Z INFO  message`, always as one line.
fn format_line(at: SystemTime, level: Level, message: fmt::Arguments<'_>, colour: bool) -> String {
    let (on, off) = if colour {
        (level_color(level), "\x1b[0m")
    } else {
        ("", "")
    };
    let mut out = OneLine(String::with_capacity(128));
    let name = level_name(level);
    // Writing to a string fails only if a `Display` fails: then its output so far is shown.
    let _ = write!(out.0, "{} {on}{name:5}{off} ", time::Rfc3339(at));
    let _ = out.write_fmt(message);
    out.0.push('\n');
    out.0
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Error => "ERROR",
        Level::Warn => "WARN",
        Level::Info => "INFO",
        Level::Debug => "DEBUG",
        Level::Trace => "TRACE",
    }
}

fn level_color(level: Level) -> &'static str {
    match level {
        Level::Error => "\x1b[1;31m",
        Level::Warn => "\x1b[33m",
        Level::Info => "\x1b[32m",
        Level::Debug | Level::Trace => "\x1b[2m",
    }
}

/// Escapes control characters, which could forge lines or control a terminal, and truncates long lines.
struct OneLine(String);

impl fmt::Write for OneLine {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for c in text.chars() {
            if self.0.len() >= limits::LOG_LINE_BYTES {
                self.0.push('…');
                return Err(fmt::Error);
            }
            if c.is_control() {
                self.0.extend(c.escape_default());
            } else {
                self.0.push(c);
            }
        }
        Ok(())
    }
}
