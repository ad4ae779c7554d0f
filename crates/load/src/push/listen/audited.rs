//! Comparisons across clients: recoveries, positions, and sequences of an external producer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringmain_engine::backend::Time;

use super::Listeners;
use super::link::State;
use crate::push::audit::{Findings, Progress, Receipt};
use crate::push::calendar::Mark;
use crate::push::speak::Standing;

impl Listeners {
    /// A client requests its subscriptions, or some of them.
    pub(super) fn audit_request(&mut self, index: u32) {
        for place in 0..self.layout.places() {
            let track = self.track(index, place);
            if let Some(audit) = &mut self.audit {
                audit.requested(track as u32, self.tracks[track].highest());
            }
        }
    }

    /// A reply to a subscription has been read, with the publications in `answered`.
    pub(super) fn audit_reply(&mut self, index: u32, place: u32, at: &Standing, is_recovery: bool) {
        let track = self.track(index, place);
        let channel = self.layout.channel(self.first + index, place);
        let newest = self.newest(channel, index);
        let (Some(audit), Some(positions)) = (&mut self.audit, &self.positions) else {
            return;
        };
        let highest = self.tracks[track].highest();
        if is_recovery {
            audit.recovered(track as u32, at.recovered, highest, newest);
        }
        let marks = self.answered.iter().filter(|mark| mark.channel == channel);
        // With publications of others in between it is not known which offset belongs to which.
        if marks.clone().count() != at.offsets.len() {
            return;
        }
        for (mark, offset) in marks.zip(&at.offsets) {
            audit.received(Receipt {
                channel,
                epoch: positions.epoch(track),
                offset: *offset,
                sequence: mark.sequence,
                node: self.links[index as usize].node,
            });
        }
    }

    /// A publication has been pushed under this position.
    #[inline]
    pub(super) fn audit_push(&mut self, index: u32, epoch: u32, mark: Mark, offset: u64) {
        let link = &self.links[index as usize];
        // Before the reply to its subscription a client does not know of which epoch an offset is.
        let (Some(audit), State::Live { .. }) = (&mut self.audit, link.state) else {
            return;
        };
        if mark.sequence > 0 {
            audit.received(Receipt {
                channel: mark.channel,
                epoch,
                offset,
                sequence: mark.sequence,
                node: link.node,
            });
        }
    }

    /// Returns the newest sequence number of a channel that was published when a client opened its connection, as far as it is known.
    fn newest(&self, channel: u32, index: u32) -> u32 {
        if let Some(top) = self.tops.get(channel as usize) {
            return top.load(Ordering::Relaxed);
        }
        match self.links[index as usize].state {
            State::Joining { since, .. } => self.calendar.newest(channel, since.since(self.begun)),
            _ => 0,
        }
    }

    /// Notes the sequence number of an external producer's publication while publications count. All of them are counted; none has a place
    /// in the calendar.
    pub(super) fn raise_top(&mut self, mark: Mark) -> Option<usize> {
        let top = self.tops.get(mark.channel as usize)?;
        if !self.has_tops && top.load(Ordering::Relaxed) < mark.sequence {
            top.fetch_max(mark.sequence, Ordering::Relaxed);
        }
        Some(usize::MAX)
    }

    /// Returns the time since a publication was due; `None` if an external producer has not stamped it.
    #[inline]
    pub(super) fn latency(&self, due: Time, now: Time) -> Option<Duration> {
        match (self.plan.listening, due) {
            (None, _) => Some(now.since(due)),
            (Some(_), Time(0)) => None,
            (Some(_), Time(due)) => {
                let now = self.origin + Duration::from_nanos(now.0);
                Some(now.saturating_sub(Duration::from_nanos(due)))
            }
        }
    }

    /// Counts the clients of each node.
    pub(super) fn count_nodes(&mut self) {
        for link in &self.links {
            if let State::Live { .. } = link.state {
                self.figures.node(usize::from(link.node)).at_end += 1;
            }
        }
    }

    /// Returns what the audit has found. After the last run it is not needed any more.
    pub(super) fn findings(&mut self, is_last: bool) -> Option<Findings> {
        let expected = self.count_external();
        let audit = if is_last {
            self.audit.take()
        } else {
            self.audit.clone()
        }?;
        let places = self.layout.places();
        let mut findings = audit.findings(|track| {
            let (index, place) = (track / places, track % places);
            Progress {
                channel: self.layout.channel(self.first + index, place),
                highest: self.tracks[track as usize].highest(),
                is_live: matches!(self.links[index as usize].state, State::Live { .. }),
            }
        });
        findings.expected = expected;
        findings.epochs = self
            .positions
            .as_ref()
            .map_or_else(Vec::new, |positions| positions.epochs().to_vec());
        Some(findings)
    }

    /// Counts the deliveries of an external producer's publications: from the first one that a subscription has received to the newest one
    /// that any client had received when counting ended. Returns how many were expected, of clients without and with a slow pace.
    fn count_external(&mut self) -> [u64; 2] {
        let (Some(audit), Some(_)) = (&self.audit, self.plan.listening) else {
            return [0, 0];
        };
        let (mut expected, mut delivered) = ([0, 0], [0, 0]);
        let places = self.layout.places();
        for (track, state) in self.tracks.iter().enumerate() {
            let (index, place) = (track as u32 / places, track as u32 % places);
            let channel = self.layout.channel(self.first + index, place);
            let top = self.tops[channel as usize].load(Ordering::Relaxed);
            let first = audit.first(track as u32);
            let slow = usize::from(self.links[index as usize].slow);
            // A subscription without any publication lacks the newest one at least.
            let all = match first {
                0 => u64::from(top > 0),
                first => u64::from((top + 1).saturating_sub(first)),
            };
            let missing = match first {
                0 => all,
                _ => audit.missing(track as u32, top, state.highest()).min(all),
            };
            expected[slow] += all;
            delivered[slow] += all - missing;
            if slow == 0 && missing > 0 && state.highest() < top {
                self.figures.counts.behind_at_end += 1;
            }
        }
        let counts = &mut self.figures.counts;
        [counts.delivered, counts.delivered_slow] = delivered;
        expected
    }
}
