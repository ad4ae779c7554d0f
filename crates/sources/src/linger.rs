//! A pause of the thread of sources while records arrive, so that it wakes for many of them at once.
//!
//! Waking for each record costs several times as much as the record: a system call to sleep, one to read, and one to wake each worker.
//! While records arrive, the thread looks at its sockets once in [`limits::LINGER`]. The first record after a pause is not delayed.

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringmain_sys::clock;

use crate::limits;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Linger {
    /// Records have arrived since the thread last slept.
    has_records: AtomicBool,
    /// The time at which the thread last slept after records.
    slept: Mutex<Duration>,
}

impl Linger {
    pub(crate) fn note_record(&self) {
        self.has_records.store(true, Ordering::Relaxed);
    }

    /// Pauses if records have arrived since the thread last slept, and it did so less than [`limits::LINGER`] ago. For the thread of
    /// sources, before it sleeps.
    pub(crate) fn pause(&self) {
        if !self.has_records.load(Ordering::Relaxed) {
            return;
        }
        self.has_records.store(false, Ordering::Relaxed);
        let mut slept = self.slept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(rest) = rest(*slept, clock::monotonic()) {
            #[expect(
                clippy::disallowed_methods,
                reason = "the thread of sources, which no worker waits for, is to do nothing for a moment"
            )]
            std::thread::sleep(rest);
        }
        *slept = clock::monotonic();
    }
}

/// Returns how long a thread that slept at one instant has to pause at another, if it has to.
fn rest(slept: Duration, now: Duration) -> Option<Duration> {
    (slept + limits::LINGER)
        .checked_sub(now)
        .filter(|rest| !rest.is_zero())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::rest;
    use crate::limits::LINGER;

    #[test]
    fn the_first_record_after_a_pause_is_not_delayed() {
        let slept = Duration::from_secs(7);
        assert_eq!(rest(slept, slept), Some(LINGER));
        assert_eq!(rest(slept, slept + LINGER / 4), Some(LINGER - LINGER / 4));
        assert_eq!(rest(slept, slept + LINGER), None);
        assert_eq!(rest(slept, slept + 9 * LINGER), None);
    }
}
