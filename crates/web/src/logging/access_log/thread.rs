//! The access log's writer: one thread of its own pool, which waits for the destination so that no worker has to.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};

use ringmain_engine::block_signals;
use ringmain_engine::blocking::Pool;

use super::output::Output;
use super::{Block, LogQueue};
use crate::limits;

/// Starts the writer and returns the thread to be unparked when there is work.
pub(super) fn start(pool: &Pool, shared: Arc<LogQueue>, output: Output) -> io::Result<Thread> {
    let (started, thread) = mpsc::channel();
    let mut writer = Writer {
        shared,
        output,
        batch: Vec::with_capacity(limits::ACCESS_LOG_WRITE_BYTES + 2 * limits::ACCESS_LOG_BLOCK_BYTES),
        lines: 0,
        failing: false,
        torn: false,
    };
    let job = move || {
        // This thread may be older than the engine's hold on signals: SIGTERM must not be delivered to it and end the process. The
        // returned waiter is not needed; the signals are blocked even if it could not be created.
        drop(block_signals());
        // The receiver waits below.
        let _ = started.send(thread::current());
        writer.run();
    };
    let refused =
        || io::Error::other("cannot start the access log's thread: see the limits on threads (ulimit -u)");
    pool.run(Box::new(job)).map_err(|_| refused())?;
    thread.recv().map_err(|_| refused())
}

struct Writer {
    shared: Arc<LogQueue>,
    output: Output,
    /// Lines to be written next, gathered from blocks.
    batch: Vec<u8>,
    lines: u64,
    /// The last write failed, which was logged.
    failing: bool,
    /// A failed write may have left a part of a line.
    torn: bool,
}

impl Writer {
    fn run(&mut self) {
        loop {
            while !self.shared.work.swap(false, Ordering::AcqRel) {
                thread::park();
            }
            // Read first: blocks handed over before are then found below.
            let closing = self.shared.closing.load(Ordering::Acquire);
            while self.gather() {
                self.write();
                self.say_dropped();
            }
            if self.shared.reopen.swap(false, Ordering::AcqRel) {
                self.reopen();
            }
            self.say_dropped();
            if closing {
                return;
            }
        }
    }

    /// Fills the batch; false if there are no lines.
    fn gather(&mut self) -> bool {
        while self.batch.len() < limits::ACCESS_LOG_WRITE_BYTES {
            let Some(block) = self.shared.full.pop() else {
                break;
            };
            self.take(block);
        }
        !self.batch.is_empty()
    }

    fn take(&mut self, block: Block) {
        if self.torn {
            self.batch.push(b'\n');
            self.torn = false;
        }
        self.batch.extend_from_slice(&block.text);
        self.lines += block.lines;
        self.shared.recycle(block);
    }

    fn write(&mut self) {
        // After the batch was gathered: lines handed over after the request go to the new file.
        if self.shared.reopen.swap(false, Ordering::AcqRel) {
            self.reopen();
        }
        let lines = std::mem::take(&mut self.lines);
        match self.output.write(&self.batch) {
            Ok(()) if self.failing => {
                self.failing = false;
                log::info!("access log: writes to {} succeed again", self.output);
            }
            Ok(()) => {}
            Err(error) => {
                self.torn = true;
                self.shared.lost.fetch_add(lines, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    log::error!(
                        "cannot write the access log to {}: {error}; lines are dropped until a write succeeds",
                        self.output
                    );
                }
            }
        }
        self.batch.clear();
    }

    fn say_dropped(&self) {
        let dropped = self.shared.dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            log::warn!("{dropped} access log lines dropped: {} is too slow", self.output);
        }
    }

    fn reopen(&mut self) {
        if let Err(error) = self.output.reopen() {
            log::error!(
                "cannot reopen the access log {}: {error}; continuing with the previous file",
                self.output
            );
        }
    }
}
