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

use super::sink::{Sink, Target, Trouble};
use crate::limits::FEED_AGAIN;

/// See the module.
pub(super) enum Line {
    Opening(Receiver<Result<Sink, Trouble>>),
    Open(Sink),
    /// Until so much time has passed.
    Waiting(Duration),
}

impl Line {
    /// Has one opened.
    pub(super) fn open(target: &Arc<Target>) -> io::Result<Line> {
        let (sender, receiver) = sync_channel(1);
        let target = Arc::clone(target);
        let builder = std::thread::Builder::new().name("ringmain-connect".into());
        #[expect(
            clippy::disallowed_methods,
            reason = "connecting may block, which no simulation has"
        )]
        builder.spawn(move || {
            // Nobody waits for it any more once the feed has ended.
            let _ = sender.send(target.open());
        })?;
        Ok(Line::Opening(receiver))
    }

    /// Waits up to so long for what comes of opening. `None`: nothing yet, or it is not being opened.
    pub(super) fn opened(&self, within: Duration) -> Option<Result<Sink, Trouble>> {
        let Line::Opening(receiver) = self else {
            return None;
        };
        match receiver.recv_timeout(within) {
            Ok(outcome) => Some(outcome),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => {
                let why = "the thread that connects has ended".to_owned();
                Some(Err(Trouble::Refused(why)))
            }
        }
    }

    /// For a while there is none.
    pub(super) fn wait(passed: Duration) -> Line {
        Line::Waiting(passed + FEED_AGAIN)
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self, Line::Open(_))
    }

    /// Trades that are on their way.
    pub(super) fn pending(&self) -> u64 {
        match self {
            Line::Open(sink) => sink.pending(),
            _ => 0,
        }
    }
}
