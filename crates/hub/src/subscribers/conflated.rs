//! Channels that show states: of each the newest is kept, and connections that have an older one are given it at their moments,
//! all that a connection waits for together.
//!
//! A publication in a channel whose subscribers are all due costs the same for one of them and for thousands: each looks for
//! itself what is new, when its moment has come.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use super::Local;
use super::conflation_schedule::Shown;
use super::delivery::{Put, Victim};
use super::push_queue::Waiting;
use crate::limits::{LOOKED_AT, MOMENTS_TOGETHER};
use crate::mail::Frames;
use crate::protocol::Disconnect;

/// What a topic shows.
#[derive(Debug, Default)]
pub(super) struct Show {
    /// `None`: all publications go as they come.
    pub(super) every: Option<Duration>,
    newest: Option<Arc<Frames>>,
    /// Of the newest; it begins anew when it must.
    version: u32,
    /// None of its subscribers is quiet.
    is_roused: bool,
}

impl Local {
    /// When the next connections are to be given what is new: [`Local::release`] is to be called then.
    #[must_use]
    pub fn next_release(&self) -> Option<Duration> {
        self.moments.next()
    }

    /// Puts what is new among what waits for connections whose moment has come, [`MOMENTS_TOGETHER`] of them at most. To be called
    /// when messages were [taken](Local::handle), too. `now` never goes back.
    pub fn release(&mut self, now: Duration) {
        for _ in 0..MOMENTS_TOGETHER {
            let Some((watch, due)) = self.moments.take(now) else {
                break;
            };
            if self.give(watch) {
                // What was roused was not due before.
                let due = if due == 0 { now.as_nanos() as u64 } else { due };
                self.moments.again(watch, due, now);
            }
            self.end_victims();
        }
    }

    /// A publication of a topic whose clients get one in `every`.
    pub(super) fn show(&mut self, topic: u32, every: Duration, frames: &Arc<Frames>) {
        self.show_every(topic, Some(every));
        let place = &mut self.topics[topic as usize];
        place.show.newest = Some(Arc::clone(frames));
        place.show.version = place.show.version.wrapping_add(1);
        if std::mem::replace(&mut place.show.is_roused, true) {
            return;
        }
        for &conn in &place.subscribers {
            let first = self.conns[conn as usize].conn.as_ref().map(|conn| conn.watch);
            if let Some(watch) = first.and_then(|first| self.moments.find(first, every)) {
                self.moments.rouse(watch);
            }
        }
    }

    /// Clients get a publication of a topic in this time from now on. Who was behind is so no more: what comes next is newer.
    pub(super) fn show_every(&mut self, topic: u32, every: Option<Duration>) {
        let place = &mut self.topics[topic as usize];
        if place.show.every == every {
            return;
        }
        let subscribers = std::mem::take(&mut place.subscribers);
        for &conn in &subscribers {
            self.unwatch(conn, topic);
        }
        self.topics[topic as usize].show = Show {
            every,
            ..Show::default()
        };
        for &conn in &subscribers {
            self.watch(conn, topic);
        }
        self.topics[topic as usize].subscribers = subscribers;
    }

    /// A connection listens to a topic, and has what that shows.
    pub(super) fn watch(&mut self, index: u32, topic: u32) {
        let show = &mut self.topics[topic as usize].show;
        let (Some(every), Some(conn)) = (show.every, &mut self.conns[index as usize].conn) else {
            return;
        };
        let watch = match self.moments.find(conn.watch, every) {
            Some(watch) => watch,
            None => self.moments.add(&mut conn.watch, index, every),
        };
        let version = show.version;
        self.moments.get(watch).shown.push(Shown { topic, version });
        // It may be quiet.
        show.is_roused = false;
    }

    /// A connection does not any more.
    pub(super) fn unwatch(&mut self, conn: u32, topic: u32) {
        let every = self.topics[topic as usize].show.every;
        let (Some(every), Some(conn)) = (every, &mut self.conns[conn as usize].conn) else {
            return;
        };
        let Some(at) = self.moments.find(conn.watch, every) else {
            return;
        };
        let watch = self.moments.get(at);
        if let Some(place) = watch.shown.iter().position(|shown| shown.topic == topic) {
            watch.shown.swap_remove(place);
        }
        if watch.shown.is_empty() {
            self.moments.remove(&mut conn.watch, at);
        }
    }

    /// Gives a connection what is new. Whether there was something, given or not; if not, it is quiet.
    fn give(&mut self, watch: u32) -> bool {
        let watch = self.moments.get(watch);
        let slot = &mut self.conns[watch.conn as usize];
        let Some(conn) = &slot.conn else { return false };
        let topics = &mut self.topics;
        let is_slow = conn.waits(&self.waiting, LOOKED_AT, |waiting| {
            waiting.is_state && topics[waiting.topic as usize].show.every == Some(watch.every)
        });
        let variant = conn.variant;
        // Most of it is not in the processor's caches: all is asked for before the first is needed.
        let there = watch.shown.iter().filter(|shown| {
            let newest = topics[shown.topic as usize].show.newest.as_ref();
            newest
                .and_then(|newest| newest.get(variant))
                .is_some_and(|frame| frame[0] != 0)
        });
        black_box(there.count());
        let mut put = Put {
            budget: self.limits.waiting_bytes,
            waiting: &mut self.waiting,
            counts: &mut self.counts,
            victims: &mut self.victims,
            ready: &mut self.ready,
        };
        let (mut is_behind, mut without) = (false, None);
        for (at, shown) in watch.shown.iter_mut().enumerate() {
            let topic = &topics[shown.topic as usize];
            if shown.version == topic.show.version {
                continue;
            }
            is_behind = true;
            let slow = topic.rules.slow;
            if is_slow {
                put.counts.slow[slow.number()] += 1;
                continue;
            }
            let newest = topic.show.newest.as_ref();
            let Some(frame) = newest.and_then(|newest| newest.get(variant)) else {
                let why = Disconnect::INAPPROPRIATE_PROTOCOL;
                put.victims.push((watch.conn, Victim::Disconnect(why)));
                break;
            };
            let push = Waiting {
                topic: shown.topic,
                slow,
                is_state: true,
                frame: frame.clone(),
            };
            put.counts.deliveries += 1;
            if put.push(watch.conn, slot, push) {
                shown.version = topic.show.version;
            } else {
                without.get_or_insert(at);
            }
            if let Some((_, Victim::Disconnect(_))) = put.victims.last() {
                break;
            }
        }
        if let Some(at) = without {
            // There was no room for it: it is the first for whom there is some again.
            watch.shown.rotate_left(at);
        }
        if !is_behind {
            for shown in &watch.shown {
                topics[shown.topic as usize].show.is_roused = false;
            }
        }
        is_behind
    }
}
