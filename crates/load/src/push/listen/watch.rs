//! What is done by the clock: slow clients get the bytes that they may read, and of conflated values is seen how fresh they
//! are.

use std::time::Duration;

use ringmain_engine::Conn;
use ringmain_engine::backend::Time;

use super::{Listeners, Phase};
use crate::limits;

/// What is done by the clock.
#[derive(Debug, Default)]
pub(super) struct Watch {
    /// When it is done next.
    next: Option<Time>,
    /// Clients that read slowly, and how many bytes each of them may read until the next time.
    slow: Vec<u32>,
    share: i32,
    /// The subscription that is looked at next.
    looked: usize,
}

impl Listeners {
    /// Publications begin at `at`.
    pub(super) fn start_watching(&mut self, at: Time) {
        let slow = (0..self.links.len() as u32).filter(|index| self.links[*index as usize].slow);
        self.watch.slow = slow.collect();
        let seconds = limits::WATCH_EVERY.as_secs_f64();
        self.watch.share = (self.need() * self.plan.slow_pace * seconds).ceil() as i32;
        let needed = !self.watch.slow.is_empty() || self.plan.conflated.is_some();
        self.watch.next = needed.then_some(at);
    }

    /// Bytes a second that a client is sent if it reads all.
    fn need(&self) -> f64 {
        let plan = &self.plan;
        let most = plan
            .conflated
            .map_or(f64::INFINITY, |span| 1.0 / span.as_secs_f64().max(1e-6));
        let [rate, common] = self.calendar.rates();
        let each = (rate / f64::from(plan.channels)).min(most) * f64::from(plan.each);
        let common = common.min(most);
        (each + common) * f64::from(plan.size + limits::ENVELOPE_BYTES)
    }

    pub(super) fn next_watch(&self) -> Option<Time> {
        self.watch.next.filter(|_| self.phase == Phase::Hearing)
    }

    pub(super) fn watch(&mut self, now: Time) {
        let Some(due) = self.next_watch().filter(|due| *due <= now) else {
            return;
        };
        // What is late is not made up for.
        self.watch.next = Some(due.after(limits::WATCH_EVERY).max(now));
        self.feed_slow();
        if self.plan.conflated.is_some() && self.is_counting() {
            self.look_how_fresh(now);
        }
    }

    fn feed_slow(&mut self) {
        let (share, most) = (
            self.watch.share,
            self.watch.share.saturating_mul(limits::SLOW_SAVES),
        );
        for at in 0..self.watch.slow.len() {
            let index = self.watch.slow[at] as usize;
            let link = &mut self.links[index];
            link.budget = link.budget.saturating_add(share).min(most);
            if link.paused && link.budget > 0 {
                link.paused = false;
                if let Some(id) = link.id() {
                    let cx = self.cx.clone();
                    cx.conn(id).resume();
                }
            }
        }
    }

    /// A client has read so much. One that has read all that it may waits.
    #[inline]
    pub(super) fn spend(&mut self, conn: Conn<'_>, index: u32, bytes: usize) {
        let link = &mut self.links[index as usize];
        if !link.slow || self.phase != Phase::Hearing {
            return;
        }
        link.budget = link.budget.saturating_sub(bytes as i32);
        if link.budget <= 0 && !link.paused {
            link.paused = true;
            conn.pause();
        }
    }

    /// Looks at some subscriptions, at all of them in turn.
    fn look_how_fresh(&mut self, now: Time) {
        let elapsed = now.since(self.begun);
        let places = self.layout.places();
        for _ in 0..self.tracks.len().min(limits::FRESHNESS_LOOKS) {
            let at = self.watch.looked;
            self.watch.looked = (at + 1) % self.tracks.len();
            let (index, place) = (at as u32 / places, at as u32 % places);
            let channel = self.layout.channel(self.first + index, place);
            let newest = self.calendar.newest(channel, elapsed);
            if newest == 0 || !self.links[index as usize].stood {
                continue;
            }
            let held = self.tracks[at].highest();
            let behind = if held >= newest {
                Duration::ZERO
            } else {
                self.calendar.behind(channel, held, newest)
            };
            let fresh = if self.links[index as usize].slow {
                &mut self.figures.fresh_slow
            } else {
                &mut self.figures.fresh
            };
            fresh.record(behind.as_nanos() as u64);
        }
    }
}
