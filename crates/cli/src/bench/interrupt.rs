//! Ctrl-C: the current round ends early, measured rounds are reported, and started servers are stopped.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::signal::{Signal, Signals};

use crate::error::CliError;

/// The interrupt state of the process.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    is_set: Arc<AtomicBool>,
    /// Flags to set on the interrupt.
    flags: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Interrupt {
    /// Blocks signals, so that they set this state instead of ending the process. Called before the first thread.
    ///
    /// # Errors
    /// Fails if signals cannot be blocked, or the thread cannot be started.
    pub(crate) fn install() -> Result<Interrupt, CliError> {
        let watched = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
        let signals = Signals::block(&watched).map_err(signal_error)?;
        let interrupt = Interrupt {
            is_set: Arc::default(),
            flags: Arc::default(),
        };
        let forwarder = interrupt.clone();
        let builder = std::thread::Builder::new().name("ringmain-signals".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "a command line's signals: no simulation has them"
        )]
        builder
            .spawn(move || forwarder.forward_signals(&signals))
            .map_err(signal_error)?;
        Ok(interrupt)
    }

    fn forward_signals(&self, signals: &Signals) {
        while let Ok(Some(_)) = signals.wait(None) {
            self.is_set.store(true, Ordering::Relaxed);
            for flag in self.flags.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                flag.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Registers a flag to set on the interrupt; sets it immediately if that has happened.
    pub(crate) fn set_on_interrupt(&self, flag: Arc<AtomicBool>) {
        let mut flags = self.flags.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_interrupted() {
            flag.store(true, Ordering::Relaxed);
        }
        flags.push(flag);
    }

    /// Returns whether a signal was received.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    /// Sleeps for `time`; returns whether to continue.
    #[expect(
        clippy::disallowed_methods,
        reason = "for a real server's start, which no simulation has"
    )]
    pub(crate) fn pause(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        !self.is_interrupted()
    }
}

fn signal_error(error: io::Error) -> CliError {
    CliError::Other(format!("cannot watch for signals: {error}"))
}
