//! SIGKILL to a server at a time of the run, by the thread that conducts it.

use std::time::Duration;

use ringmain_sys::process::{self, Ending, Stat};

use super::error::PushError;
use super::plan::KillServer;

/// A process that is to be killed, or was.
#[derive(Debug, Default)]
pub(super) struct ServerKill {
    /// The process, and when it is killed, by the host's monotonic clock.
    pending: Option<(Stat, Duration)>,
    /// When publications count, by the same clock.
    from: Duration,
    /// When the signal was sent, after `from`.
    sent: Option<Duration>,
}

impl ServerKill {
    /// Finds the process; publications count from `from` on.
    pub(super) fn new(kill: Option<KillServer>, from: Duration) -> Result<ServerKill, PushError> {
        let Some(KillServer { pid, after }) = kill else {
            return Ok(ServerKill::default());
        };
        let process = process::stat(pid).filter(|process| !process.ended);
        let process = process.ok_or_else(|| not_killed(pid, "none of this number"))?;
        Ok(ServerKill {
            pending: Some((process, from + after)),
            from,
            sent: None,
        })
    }

    /// Sends the signal if that is due.
    pub(super) fn poll(&mut self, now: Duration) -> Result<(), PushError> {
        let Some((stat, _)) = self.pending.take_if(|(_, at)| *at <= now) else {
            return Ok(());
        };
        let is_same = |now: Stat| now.start == stat.start && !now.ended;
        if !process::stat(stat.pid).is_some_and(is_same) {
            return Err(not_killed(stat.pid, "that it had exited before"));
        }
        process::end(&stat, Ending::Force).map_err(|error| not_killed(stat.pid, &error.to_string()))?;
        self.sent = Some(now.saturating_sub(self.from));
        Ok(())
    }

    /// Returns the time until the signal is due.
    pub(super) fn left(&self, now: Duration) -> Option<Duration> {
        self.pending.map(|(_, at)| at.saturating_sub(now))
    }

    /// Returns when the signal was sent, from the time at which publications count.
    pub(super) fn sent(&self) -> Option<Duration> {
        self.sent
    }
}

fn not_killed(pid: u32, found: &str) -> PushError {
    PushError::NotKilled {
        pid,
        found: found.to_owned(),
    }
}
