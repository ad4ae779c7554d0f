//! Ctrl-C: a round that runs ends early, what was measured is shown, servers that were started are ended.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::signal::{Signal, Signals};

use crate::error::CliError;

/// Whether the user wants an end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    /// What ends early then.
    told: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Interrupt {
    /// Signals end no more the process but what it does. Before the first thread.
    pub(crate) fn install() -> Result<Interrupt, CliError> {
        let watched = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
        let signals = Signals::block(&watched).map_err(signal_error)?;
        let interrupt = Interrupt {
            came: Arc::default(),
            told: Arc::default(),
        };
        let teller = interrupt.clone();
        let builder = std::thread::Builder::new().name("ringmain-signals".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "a command line's signals: no simulation has them"
        )]
        builder
            .spawn(move || teller.forward_signals(&signals))
            .map_err(signal_error)?;
        Ok(interrupt)
    }

    fn forward_signals(&self, signals: &Signals) {
        while let Ok(Some(_)) = signals.wait(None) {
            self.came.store(true, Ordering::Relaxed);
            for flag in self.told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                flag.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sets this too, at once if it has come already.
    pub(crate) fn set_on_interrupt(&self, flag: Arc<AtomicBool>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_interrupted() {
            flag.store(true, Ordering::Relaxed);
        }
        told.push(flag);
    }

    /// Whether it has come.
    pub(crate) fn is_interrupted(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Waits for so long; whether to go on.
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
