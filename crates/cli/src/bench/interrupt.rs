//! Ctrl-C: a round that runs ends early, what was measured is shown, servers that were started are ended.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringmain_sys::signal::{Signal, Signals};

use crate::error::Failure;

/// Whether the user wants an end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt {
    came: Arc<AtomicBool>,
    /// What ends early then.
    told: Arc<Mutex<Vec<Arc<AtomicBool>>>>,
}

impl Interrupt {
    /// Signals end no more the process but what it does. Before the first thread.
    pub(crate) fn listen() -> Result<Interrupt, Failure> {
        let watched = [Signal::Interrupt, Signal::Terminate, Signal::Hangup, Signal::Quit];
        let signals = Signals::block(&watched).map_err(failed)?;
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
        builder.spawn(move || teller.tell(&signals)).map_err(failed)?;
        Ok(interrupt)
    }

    fn tell(&self, signals: &Signals) {
        while let Ok(Some(_)) = signals.wait(None) {
            self.came.store(true, Ordering::Relaxed);
            for flag in self.told.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                flag.store(true, Ordering::Relaxed);
            }
        }
    }

    /// Sets this too, at once if it has come already.
    pub(crate) fn tells(&self, flag: Arc<AtomicBool>) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if self.came() {
            flag.store(true, Ordering::Relaxed);
        }
        told.push(flag);
    }

    /// Whether it has come.
    pub(crate) fn came(&self) -> bool {
        self.came.load(Ordering::Relaxed)
    }

    /// Waits for so long; whether to go on.
    #[expect(
        clippy::disallowed_methods,
        reason = "for a real server's start, which no simulation has"
    )]
    pub(crate) fn pause(&self, time: Duration) -> bool {
        std::thread::sleep(time);
        !self.came()
    }
}

fn failed(error: io::Error) -> Failure {
    Failure::Other(format!("cannot watch for signals: {error}"))
}
