//! The access log: one line a request, on its way to a file or a standard stream.
//!
//! ```text
//! worker: AccessWriter ── blocks of lines ──▶ bounded queue ──▶ one thread ── file, stdout, stderr
//!              ▲                                                   │
//!              └───────────────── empty blocks ◀───────────────────┘
//! ```
//!
//! No worker ever waits for a disk or a pipe, or takes a lock: lines that find the queue full are dropped and counted, and the
//! count is logged. Knows nothing of requests except the values in a [`Record`].

mod output;
mod record;
mod template;
mod thread;

#[cfg(test)]
mod tests;

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::Thread;
use std::time::Duration;

use crossbeam_queue::ArrayQueue;
use ringmain_engine::blocking::Pool;

use crate::limits;
use crate::logging::redact::{REDACTED_PARAMS, RedactedParams};
use output::Output;
pub use record::{Format, Record};
pub use template::{FIELDS, Template, TemplateFault};

/// The process's access log. Each worker writes to it with an [`AccessWriter`] of its own.
///
/// Dropping it lets its thread write the queued lines in the background; [`finish`](Self::finish) waits for that.
pub struct AccessLog {
    shared: Arc<LogQueue>,
    /// A pool for the writer only, so that the log and other blocking work never wait for each other.
    pool: Pool,
    thread: Thread,
    format: Format,
    hidden: Arc<[Box<str>]>,
}

/// The state shared by the workers and the writer.
struct LogQueue {
    full: ArrayQueue<Block>,
    empty: ArrayQueue<Block>,
    /// Lines that found the queue full or the log finished, since the last report.
    dropped: AtomicU64,
    /// Lines that were dropped, or lost to errors, since the start.
    lost: AtomicU64,
    /// The writer has work that it has not started.
    work: AtomicBool,
    reopen: AtomicBool,
    closing: AtomicBool,
}

/// A block of lines.
#[derive(Default)]
struct Block {
    text: Vec<u8>,
    lines: u64,
}

impl AccessLog {
    /// Appends to a file, which is created with mode 0640 if it does not exist.
    ///
    /// # Errors
    /// The file cannot be opened, or no thread can be started.
    pub fn to_file(path: impl Into<PathBuf>) -> io::Result<AccessLog> {
        AccessLog::start(Output::file(path.into())?)
    }

    /// Writes to standard output.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn to_stdout() -> io::Result<AccessLog> {
        AccessLog::start(Output::Stdout)
    }

    /// Writes to standard error.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn to_stderr() -> io::Result<AccessLog> {
        AccessLog::start(Output::Stderr)
    }

    /// Writes to `out`, which may block: it is called on the log's own thread.
    ///
    /// # Errors
    /// No thread can be started.
    pub fn to_writer(out: impl Write + Send + 'static) -> io::Result<AccessLog> {
        AccessLog::start(Output::Other(Box::new(out)))
    }

    /// Sets the format of lines; default: [`Format::Combined`]. Must be called before [`writer`](Self::writer).
    #[must_use]
    pub fn format(mut self, format: Format) -> AccessLog {
        self.format = format;
        self
    }

    /// Sets the query parameters whose values are written as `***`, in place of [`REDACTED_PARAMS`]: decoded names. Applies
    /// to targets and to `Referer`. Must be called before [`writer`](Self::writer).
    #[must_use]
    pub fn redact<N: Into<Box<str>>>(mut self, names: impl IntoIterator<Item = N>) -> AccessLog {
        self.hidden = names.into_iter().map(Into::into).collect();
        self
    }

    /// Returns a worker's writer.
    #[must_use]
    pub fn writer(&self) -> AccessWriter {
        self.writer_with(&RedactedParams::new())
    }

    /// Returns a worker's writer that also redacts the parameters in `redacted`, as they are when a line is written.
    #[must_use]
    pub fn writer_with(&self, redacted: &RedactedParams) -> AccessWriter {
        let mut writer = AccessWriter {
            shared: Arc::clone(&self.shared),
            thread: self.thread.clone(),
            format: self.format.clone(),
            own: Arc::clone(&self.hidden),
            redacted: redacted.clone(),
            generation: redacted.generation(),
            hidden: Arc::clone(&self.hidden),
            block: Block::default(),
        };
        writer.update_hidden_names();
        writer
    }

    /// Opens the file by its name again, after it was moved. Lines handed over from now on go to the new file; if it cannot be
    /// opened, that is logged and the old one stays in use. No effect on other destinations.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.shared.wake(&self.thread);
    }

    /// Returns the number of lines lost since the start: the destination was too slow, or failed.
    #[must_use]
    pub fn lost_lines(&self) -> u64 {
        self.shared.lost.load(Ordering::Relaxed)
    }

    /// Writes the queued lines and ends the log; later lines are lost. Workers must flush or drop their writers before. Returns
    /// true if everything was written within `timeout`.
    pub fn finish(&self, timeout: Duration) -> bool {
        self.close();
        self.pool.shutdown(timeout).is_ok()
    }

    fn start(output: Output) -> io::Result<AccessLog> {
        let shared = Arc::new(LogQueue {
            full: ArrayQueue::new(limits::ACCESS_LOG_BLOCKS),
            empty: ArrayQueue::new(limits::ACCESS_LOG_BLOCKS),
            dropped: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            work: AtomicBool::new(false),
            reopen: AtomicBool::new(false),
            closing: AtomicBool::new(false),
        });
        let pool = Pool::new(1, 1);
        let thread = thread::start(&pool, Arc::clone(&shared), output)?;
        Ok(AccessLog {
            shared,
            pool,
            thread,
            format: Format::default(),
            hidden: REDACTED_PARAMS.into_iter().map(Into::into).collect(),
        })
    }

    fn close(&self) {
        self.shared.closing.store(true, Ordering::Release);
        self.shared.wake(&self.thread);
    }
}

impl Drop for AccessLog {
    fn drop(&mut self) {
        self.close();
    }
}

impl std::fmt::Debug for AccessLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessLog")
            .field("format", &self.format)
            .field("lost", &self.lost_lines())
            .finish_non_exhaustive()
    }
}

/// Buffers one worker's lines until a block is worth handing over. Allocates nothing once enough blocks are in circulation.
pub struct AccessWriter {
    shared: Arc<LogQueue>,
    thread: Thread,
    format: Format,
    /// The parameter names that the log itself redacts.
    own: Arc<[Box<str>]>,
    redacted: RedactedParams,
    /// The generation of `redacted` that `hidden` contains.
    generation: u64,
    /// The union of `own` and `redacted`.
    hidden: Arc<[Box<str>]>,
    block: Block,
}

impl AccessWriter {
    /// Appends a line. A block of [`limits::ACCESS_LOG_BLOCK_BYTES`] is handed over at once.
    pub fn record(&mut self, record: &Record<'_>) {
        if self.block.text.capacity() == 0 {
            self.block = self.shared.empty_block();
        }
        let generation = self.redacted.generation();
        if generation != self.generation {
            self.generation = generation;
            self.update_hidden_names();
        }
        record.write(&self.format, &self.hidden, &mut self.block.text);
        self.block.lines += 1;
        if self.block.text.len() >= limits::ACCESS_LOG_BLOCK_BYTES {
            self.flush();
        }
    }

    fn update_hidden_names(&mut self) {
        let declared = self.redacted.names();
        self.hidden = self.own.iter().chain(declared.iter()).cloned().collect();
    }

    /// Hands over the buffered lines without waiting. Called at the end of a loop turn, or by a timer where a line may be late:
    /// waking the sleeping writer costs a system call.
    pub fn flush(&mut self) {
        if self.block.lines == 0 {
            return;
        }
        let block = std::mem::take(&mut self.block);
        if self.shared.closing.load(Ordering::Acquire) {
            self.shared.drop_lines(block);
            return;
        }
        if let Err(block) = self.shared.full.push(block) {
            self.shared.drop_lines(block);
        }
        self.shared.wake(&self.thread);
    }
}

impl Drop for AccessWriter {
    fn drop(&mut self) {
        self.flush();
    }
}

impl LogQueue {
    /// Uses a flag besides the thread's park token, which a destination that parks would consume.
    fn wake(&self, thread: &Thread) {
        if !self.work.swap(true, Ordering::AcqRel) {
            thread.unpark();
        }
    }

    fn empty_block(&self) -> Block {
        self.empty.pop().unwrap_or_else(|| Block {
            // Leaves room for the line that fills a block.
            text: Vec::with_capacity(limits::ACCESS_LOG_BLOCK_BYTES + 1024),
            lines: 0,
        })
    }

    fn drop_lines(&self, block: Block) {
        self.dropped.fetch_add(block.lines, Ordering::Relaxed);
        self.lost.fetch_add(block.lines, Ordering::Relaxed);
        self.recycle(block);
    }

    /// Recycles a block for the next lines, unless very long lines have made it large or the pool is full.
    fn recycle(&self, mut block: Block) {
        if block.text.capacity() <= 2 * limits::ACCESS_LOG_BLOCK_BYTES {
            block.text.clear();
            block.lines = 0;
            // A full pool frees the block.
            drop(self.empty.push(block));
        }
    }
}
