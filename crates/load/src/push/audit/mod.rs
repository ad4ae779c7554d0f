//! Exactness beyond counts: recoveries that were reported as complete and were not, and positions under which clients have received
//! different publications.
//!
//! ```text
//! connected ─▶ base ── recovered: true ─▶ claim ── next push ─▶ window (base, push) ── a gap in it ─▶ suspect
//! ```
//!
//! A suspect is a claim with missing sequence numbers. Whether those were published at all is known only when the threads are merged.
//! Knows neither sockets nor the protocol.

mod gaps;
mod judge;
mod ledger;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use self::gaps::Gaps;
pub(super) use self::judge::judge;
pub(super) use self::ledger::{Agreement, Ledger, Receipt};
use super::order::Arrival;

/// The audit of one thread's subscriptions.
#[derive(Clone, Debug)]
pub(super) struct Audit {
    ledger: Ledger,
    gaps: Gaps,
    /// The highest sequence number that each subscription had when its connection was opened.
    bases: Vec<u32>,
    /// The first sequence number of each subscription, where sequences may start anywhere.
    firsts: Option<Vec<u32>>,
    /// Conflated channels skip publications; gaps mean nothing there.
    has_gaps: bool,
    /// Claims after which no publication was pushed yet, by subscription.
    open: BTreeMap<u32, Claim>,
    /// Claims with a gap: the subscription and the window of the claim.
    closed: Vec<(u32, Range<u32>)>,
}

/// A recovery that was reported as complete.
#[derive(Clone, Copy, Debug)]
struct Claim {
    /// The highest sequence number that the client had before.
    base: u32,
    /// The newest sequence number that was published when the connection was opened.
    newest: u32,
}

/// Where a subscription is in its channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) channel: u32,
    /// The highest sequence number received.
    pub(super) highest: u32,
    /// Whether the client is connected and subscribed.
    pub(super) is_live: bool,
}

/// Sequence numbers that a client lacks although its recovery was reported as complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) channel: u32,
    pub(super) missing: Vec<Range<u32>>,
}

/// The findings of one thread's audit.
#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) suspects: Vec<Suspect>,
    pub(super) ledger: Ledger,
    /// Epochs of the ledger, numbered from 1.
    pub(super) epochs: Vec<Arc<str>>,
    /// Deliveries of an external producer's publications that were expected, of clients without and with a slow pace.
    pub(super) expected: [u64; 2],
}

impl Audit {
    /// Of so many subscriptions. With `starts_anywhere` the first sequence number of a subscription is no gap.
    pub(super) fn new(subscriptions: usize, starts_anywhere: bool, is_conflated: bool) -> Audit {
        Audit {
            ledger: Ledger::default(),
            gaps: Gaps::default(),
            bases: vec![0; subscriptions],
            firsts: starts_anywhere.then(|| vec![0; subscriptions]),
            has_gaps: !is_conflated,
            open: BTreeMap::new(),
            closed: Vec::new(),
        }
    }

    /// Forgets all of a former run, whose sequences started from 1 as well.
    pub(super) fn reset(&mut self) {
        *self = Audit::new(self.bases.len(), self.firsts.is_some(), !self.has_gaps);
    }

    /// Records what a subscription has when its connection is opened, or when it is requested again on the same connection.
    pub(super) fn requested(&mut self, track: u32, highest: u32) {
        self.bases[track as usize] = highest;
    }

    /// Records a publication; `before` is the highest sequence number of the subscription until then.
    #[inline]
    pub(super) fn arrived(
        &mut self,
        track: u32,
        sequence: u32,
        before: u32,
        arrival: Arrival,
        is_pushed: bool,
    ) {
        if !self.has_gaps {
            return;
        }
        match arrival {
            Arrival::Late | Arrival::Old => self.gaps.fill(track, sequence),
            Arrival::Double => {}
            Arrival::New => {
                let is_first = before == 0;
                match &mut self.firsts {
                    Some(firsts) if is_first => firsts[track as usize] = sequence,
                    _ => self.gaps.insert(track, before + 1..sequence),
                }
                if is_pushed && !self.open.is_empty() {
                    self.close(track, sequence);
                }
            }
        }
    }

    /// Ends a claim at the first publication that was pushed after it.
    fn close(&mut self, track: u32, until: u32) {
        let Some(Claim { base, .. }) = self.open.remove(&track) else {
            return;
        };
        let window = base + 1..until;
        if self.gaps.within(track, window.clone()).next().is_some() {
            self.closed.push((track, window));
        }
    }

    /// Records the result of a recovery, and the newest sequence number that was published when it was requested.
    pub(super) fn recovered(&mut self, track: u32, is_complete: bool, highest: u32, newest: u32) {
        let base = self.bases[track as usize];
        // Of a subscription that has never received anything the first number is not known.
        let is_unknown = self.firsts.is_some() && base == 0;
        if !self.has_gaps || is_unknown {
            return;
        }
        if is_complete {
            let claim = self.open.entry(track).or_insert(Claim { base, newest });
            claim.newest = claim.newest.max(newest);
        } else {
            self.close(track, highest + 1);
        }
    }

    /// Records which publication was received under which position.
    #[inline]
    pub(super) fn received(&mut self, receipt: Receipt) {
        // Without an offset there is no position, and epoch 0 is none.
        if receipt.offset > 0 && receipt.epoch > 0 {
            self.ledger.record(receipt);
        }
    }

    /// Returns the first sequence number of a subscription; 0 for none.
    pub(super) fn first(&self, track: u32) -> u32 {
        self.firsts.as_ref().map_or(0, |firsts| firsts[track as usize])
    }

    /// Counts the sequence numbers up to `top` that a subscription lacks.
    pub(super) fn missing(&self, track: u32, top: u32, highest: u32) -> u64 {
        let skipped = self.gaps.within(track, 0..top + 1);
        let skipped: u64 = skipped.map(|missing| missing.len() as u64).sum();
        skipped + u64::from(top.saturating_sub(highest))
    }

    /// Returns what was found; `progress` is asked for each subscription with a claim.
    pub(super) fn findings(self, progress: impl Fn(u32) -> Progress) -> Findings {
        let Audit {
            gaps,
            ledger,
            open,
            closed,
            ..
        } = self;
        let mut suspects = Vec::new();
        let mut suspect = |channel: u32, missing: Vec<Range<u32>>| {
            if !missing.is_empty() {
                suspects.push(Suspect { channel, missing });
            }
        };
        for (track, window) in closed {
            suspect(progress(track).channel, gaps.within(track, window).collect());
        }
        for (track, Claim { base, newest }) in open {
            let at = progress(track);
            let mut missing: Vec<_> = gaps.within(track, base + 1..at.highest + 1).collect();
            // A client that was disconnected again cannot have received the rest.
            if at.is_live && at.highest < newest {
                missing.push(at.highest + 1..newest + 1);
            }
            suspect(at.channel, missing);
        }
        Findings {
            suspects,
            ledger,
            ..Findings::default()
        }
    }
}
