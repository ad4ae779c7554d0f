//! The access log's writer: one thread of a pool of its own, which waits for the destination so that no worker has to.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, mpsc};
use std::thread::{self, Thread};

use ringmain_engine::block_signals;
use ringmain_engine::blocking::Pool;

use super::output::Output;
use super::{Block, Shared};
use crate::limits;

/// Starts the writer and returns the thread that is to be unparked when there is something to do.
pub(super) fn start(pool: &Pool, shared: Arc<Shared>, output: Output) -> io::Result<Thread> {
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
        // This thread may be older than the engine's hold on signals: SIGTERM must not end the process by it. What is
        // made to wait for them is not needed; they are blocked also if it could not be made.
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
    shared: Arc<Shared>,
    output: Output,
    /// Lines that are written next, gathered from blocks.
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
            // Looked at first: what was handed over before is then found below.
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

    /// Fills the batch; false when there is nothing.
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
        // After the batch was gathered: what was handed over after the request goes to the new file.
        if self.shared.reopen.swap(false, Ordering::AcqRel) {
            self.reopen();
        }
        let lines = std::mem::take(&mut self.lines);
        match self.output.write(&self.batch) {
            Ok(()) if self.failing => {
                self.failing = false;
                log::info!("the access log can be written to {} again", self.output);
            }
            Ok(()) => {}
            Err(error) => {
                self.torn = true;
                self.shared.lost.fetch_add(lines, Ordering::Relaxed);
                if !std::mem::replace(&mut self.failing, true) {
                    log::error!(
                        "cannot write the access log to {}: {error}; lines are lost until it can",
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
            log::warn!(
                "{dropped} lines of the access log were dropped: {} takes them slower than they come",
                self.output
            );
        }
    }

    fn reopen(&mut self) {
        if let Err(error) = self.output.reopen() {
            log::error!(
                "cannot open the access log {} again: {error}; the old file is written on",
                self.output
            );
        }
    }
}
