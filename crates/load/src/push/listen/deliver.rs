//! What becomes of a publication that a client has read.

use std::sync::atomic::Ordering;

use ringmain_engine::backend::Time;

use super::Listeners;
use crate::push::order::Arrival;
use crate::push::plan::Format;
use crate::push::speak;
use crate::push::stamp::{Found, Stamp};

/// What brought a publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Brought {
    /// A push, which has one and says its offset.
    ByPush(Format),
    /// The answer to a subscription: it had been missed. The answer says where the client stands with it.
    ByAnswer,
}

impl Listeners {
    /// Takes the publications of a part; says whether there were any.
    #[inline]
    pub(super) fn publications(&mut self, index: u32, part: &[u8], brought: Brought, now: Time) -> bool {
        let mut at = 0;
        while let Some(found) = self.reader.find(&part[at..]) {
            match found {
                Found::Whole(stamp, end) => {
                    at += end;
                    self.delivered(index, stamp, brought, now);
                    match (brought, &self.positions) {
                        (Brought::ByPush(format), Some(_)) => {
                            self.advance(index, stamp, speak::offset(format, part, at));
                        }
                        (Brought::ByAnswer, Some(_)) => self.answered.push(stamp.mark),
                        (_, None) => {}
                    }
                }
                Found::Changed(end) => {
                    at += end;
                    self.figures.counts.changed += 1;
                }
            }
        }
        at > 0
    }

    /// A publication of this offset has come.
    fn advance(&mut self, index: u32, stamp: Stamp, offset: u64) {
        let place = self.layout.place(self.first + index, stamp.mark.channel);
        let track = place.map(|place| self.track(index, place));
        if let (Some(positions), Some(track)) = (&mut self.positions, track) {
            positions.advance(track, offset);
            let epoch = positions.epoch(track);
            self.audit_push(index, epoch, stamp.mark, offset);
        }
    }

    /// A publication has come.
    #[inline]
    fn delivered(&mut self, index: u32, stamp: Stamp, brought: Brought, now: Time) {
        let Stamp { mark, due } = stamp;
        // What was published to see whether that works.
        if mark.sequence == 0 {
            return;
        }
        let Some(place) = self.layout.place(self.first + index, mark.channel) else {
            self.figures.counts.misdelivered += 1;
            return;
        };
        let track = self.track(index, place);
        let before = self.tracks[track].highest();
        let arrival = self.tracks[track].take(mark.sequence);
        if let Some(audit) = &mut self.audit {
            let is_pushed = brought != Brought::ByAnswer;
            audit.arrived(track as u32, mark.sequence, before, arrival, is_pushed);
        }
        let counted = match self.plan.listening {
            None => self.calendar.place(mark),
            Some(_) => self.raise_top(mark),
        };
        let Some(counted) = counted else {
            return;
        };
        let span = self.latency(due, now);
        let slow = self.links[index as usize].slow;
        let counts = &mut self.figures.counts;
        match arrival {
            Arrival::Double => {
                counts.doubled += 1;
                return;
            }
            Arrival::Old => {
                counts.old += 1;
                return;
            }
            Arrival::Late => counts.reordered += 1,
            Arrival::New => {}
        }
        let latency = match (brought, slow) {
            (Brought::ByAnswer, _) => &mut self.figures.recovered,
            (_, true) => &mut self.figures.slow,
            (_, false) => &mut self.figures.fast,
        };
        if let Some(span) = span {
            latency.record(span.as_nanos() as u64);
        }
        counts.by_recovery += u64::from(brought == Brought::ByAnswer);
        if slow {
            counts.delivered_slow += 1;
        } else {
            counts.delivered += 1;
            if let (Some(spread), Some(span)) = (self.spreads.get_mut(counted), span) {
                spread.take(span);
            }
        }
        let counts = &self.figures.counts;
        self.gauge
            .delivered
            .store(counts.delivered + counts.delivered_slow, Ordering::Relaxed);
    }
}
