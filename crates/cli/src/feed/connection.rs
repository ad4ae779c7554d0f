//! The way to the receiver: made, lost, made again. Opening one may take long (a name, a host that does not answer), so a thread does
//! it, and the feed looks at its clock and at Ctrl-C meanwhile.
//!
//! ```text
//! Opening ── opened ─▶ Open ── lost ─▶ Waiting ── FEED_AGAIN ─▶ Opening
//!    └── failed ─▶ the first one: the end; a later one ─▶ Waiting
//! ```

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::Duration;

use super::sink::{Sink, SinkError, Target};
use crate::limits::FEED_RECONNECT;

/// See the module.
pub(super) enum SinkConnection {
    Opening(Receiver<Result<Sink, SinkError>>),
    Open(Sink),
    /// Until so much time has passed.
    Waiting(Duration),
}

impl SinkConnection {
    /// Has one opened.
    pub(super) fn open(target: &Arc<Target>) -> io::Result<SinkConnection> {
        let (sender, receiver) = sync_channel(1);
        let target = Arc::clone(target);
        let builder = std::thread::Builder::new().name("ringmain-connect".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "connecting may block, which no simulation has"
        )]
        builder.spawn(move || {
            // Nobody waits for it any more once the feed has ended.
            let _ = sender.send(target.connect());
        })?;
        Ok(SinkConnection::Opening(receiver))
    }

    /// Waits up to so long for what comes of opening. `None`: nothing yet, or it is not being opened.
    pub(super) fn poll_opened(&self, within: Duration) -> Option<Result<Sink, SinkError>> {
        let SinkConnection::Opening(receiver) = self else {
            return None;
        };
        match receiver.recv_timeout(within) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the thread that connects has ended".to_owned();
                Some(Err(SinkError::Refused(why)))
            }
        }
    }

    /// For a while there is none.
    pub(super) fn back_off(passed: Duration) -> SinkConnection {
        SinkConnection::Waiting(passed + FEED_RECONNECT)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, SinkConnection::Open(_))
    }

    /// Trades that are on their way.
    pub(super) fn unconfirmed(&self) -> u64 {
        match self {
            SinkConnection::Open(sink) => sink.unconfirmed(),
            _ => 0,
        }
    }
}
