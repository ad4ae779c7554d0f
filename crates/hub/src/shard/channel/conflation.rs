//! How often the workers of those who listen get a publication of a channel: the first at once, of those that follow too soon the
//! last.

use std::sync::Arc;
use std::time::Duration;

use crate::protocol::Published;

/// A publication with its number, 0 for none.
type Numbered = (u64, Arc<Published>);

#[derive(Debug, Default)]
pub(super) struct Pace {
    /// From then on another one may go.
    next: Duration,
    /// The last that went.
    shown: Option<Numbered>,
    /// The last that has not gone yet.
    held: Option<Numbered>,
}

/// What becomes of a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::shard) enum Goes {
    /// It goes to the workers.
    Now,
    /// At this time, if no other one takes its place until then; it is the first to wait.
    At(Duration),
    /// It has taken the place of one that waited.
    InPlace,
}

impl Pace {
    /// What becomes of a publication. `every` is `None` where all go, and where nobody listens.
    pub(super) fn goes(
        &mut self,
        every: Option<Duration>,
        (offset, published): (u64, &Arc<Published>),
        now: Duration,
    ) -> Goes {
        let Some(every) = every else {
            // What is newer is gone: what waited must not come behind it.
            *self = Pace::default();
            return Goes::Now;
        };
        let numbered = (offset, Arc::clone(published));
        if now >= self.next && self.held.is_none() {
            self.next = now + every;
            self.shown = Some(numbered);
            return Goes::Now;
        }
        match self.held.replace(numbered) {
            Some(_) => Goes::InPlace,
            None => Goes::At(self.next),
        }
    }

    /// What has waited until now.
    pub(super) fn release(&mut self, every: Option<Duration>, now: Duration) -> Option<Numbered> {
        let held = self.held.take()?;
        self.next = now + every.unwrap_or_default();
        self.shown = Some(held.clone());
        Some(held)
    }

    /// Forgets the last that went: its number is of another epoch.
    pub(super) fn forget_shown(&mut self) {
        self.shown = None;
    }

    pub(super) fn is_holding(&self) -> bool {
        self.held.is_some()
    }

    /// When what is held goes.
    pub(super) fn due(&self) -> Option<Duration> {
        self.held.as_ref().map(|_| self.next)
    }

    pub(super) fn shown(&self) -> Option<Numbered> {
        self.shown.clone()
    }
}
