//! The connection to the receiver, which is opened again if it is lost. Opening may block (DNS, an unresponsive host), so a
//! thread does it while the feed checks the time and Ctrl-C.
//!
//! ```text
//! Opening ── opened ─▶ Open ── lost ─▶ Waiting ── FEED_AGAIN ─▶ Opening
//!    └── failed ─▶ first attempt: exit; later ones ─▶ Waiting
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::sink::{Sink, SinkError, Target};
use crate::limits::FEED_RECONNECT;

/// The state of the connection (diagram in the module).
pub(super) enum SinkConnection {
    Opening(Receiver<Result<Sink, SinkError>>),
    Open(Sink),
    /// Until this time since the start.
    Waiting(Duration),
}

impl SinkConnection {
    /// Starts to open a connection.
    ///
    /// # Errors
    /// Fails if the thread cannot be started.
    pub(super) fn open(target: &Arc<Target>) -> io::Result<SinkConnection> {
        let (sender, receiver) = sync_channel(1);
        let target = Arc::clone(target);
        let builder = std::thread::Builder::new().name("ringmain-connect".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "connecting may block, which no simulation has"
        )]
        builder.spawn(move || {
            // The feed may have finished already.
            let _ = sender.send(target.connect());
        })?;
        Ok(SinkConnection::Opening(receiver))
    }

    /// Waits at most `within` for the result of opening. `None`: still pending, or not opening.
    pub(super) fn poll_opened(&self, within: Duration) -> Option<Result<Sink, SinkError>> {
        let SinkConnection::Opening(receiver) = self else {
            return None;
        };
        match receiver.recv_timeout(within) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the connecting thread has panicked".to_owned();
                Some(Err(SinkError::Refused(why)))
            }
        }
    }

    /// Returns the state between two attempts.
    pub(super) fn back_off(passed: Duration) -> SinkConnection {
        SinkConnection::Waiting(passed + FEED_RECONNECT)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, SinkConnection::Open(_))
    }

    /// Returns the number of trades in flight.
    pub(super) fn unconfirmed(&self) -> u64 {
        match self {
            SinkConnection::Open(sink) => sink.unconfirmed(),
            _ => 0,
        }
    }
}
