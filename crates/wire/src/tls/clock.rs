//! Wall time, which the caller sets: certificates and tickets are judged by it. Reads no clock.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

/// A clock that its owner sets, shared by all sessions of a process; a clone shows the same time.
///
/// It goes by seconds: workers set it whenever they begin a session, and write to memory only once a second.
#[derive(Clone, Debug, Default)]
pub struct Clock(Arc<AtomicU64>);

impl Clock {
    /// A clock that says `since_1970`.
    #[must_use]
    pub fn new(since_1970: Duration) -> Self {
        Self(Arc::new(AtomicU64::new(since_1970.as_secs())))
    }

    /// Sets it.
    pub fn set(&self, since_1970: Duration) {
        let seconds = since_1970.as_secs();
        if self.0.load(Ordering::Relaxed) != seconds {
            self.0.store(seconds, Ordering::Relaxed);
        }
    }

    /// Seconds since 1970.
    #[must_use]
    pub fn seconds(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(self.seconds())))
    }
}
