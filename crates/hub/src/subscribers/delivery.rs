//! A push, put among what waits for each that listens; and what becomes of those who are too slow for it.

use std::collections::VecDeque;
use std::sync::Arc;

use super::conn::Room;
use super::push_queue::{Table, Waiting};
use super::{ConnId, Counts, Event, Local, Slot};
use crate::limits::TOUCHED_TOGETHER;
use crate::mail::{Course, Frames, Slow, TopicKey};
use crate::protocol::{Disconnect, Unsubscribed};

/// What is to be done to a connection, once all have got theirs.
#[derive(Clone, Copy, Debug)]
pub(super) enum Victim {
    Disconnect(Disconnect),
    /// From this topic.
    Resync(u32),
}

/// Where pushes are put.
pub(super) struct Put<'a> {
    pub(super) budget: usize,
    pub(super) waiting: &'a mut Table,
    pub(super) counts: &'a mut Counts,
    pub(super) victims: &'a mut Vec<(u32, Victim)>,
    pub(super) ready: &'a mut VecDeque<ConnId>,
}

impl Put<'_> {
    /// Whether it waits now, or needs not to since the connection does not go on.
    pub(super) fn push(&mut self, index: u32, slot: &mut Slot, push: Waiting) -> bool {
        let Some(conn) = &mut slot.conn else { return true };
        let (topic, slow) = (push.topic, push.slow);
        let mut is_put = true;
        match conn.add_push(push, self.budget, self.waiting) {
            Room::Enough => {}
            Room::Made(dropped) => self.counts.slow[slow.number()] += dropped,
            Room::Without(dropped) => {
                self.counts.slow[slow.number()] += dropped;
                is_put = false;
            }
            Room::None => {
                self.counts.slow[slow.number()] += 1;
                let victim = match slow {
                    Slow::Resync => Victim::Resync(topic),
                    _ => Victim::Disconnect(Disconnect::SLOW),
                };
                self.victims.push((index, victim));
            }
        }
        if !conn.is_ready && conn.waiting_bytes() > 0 {
            conn.is_ready = true;
            let generation = slot.generation;
            self.ready.push_back(ConnId { index, generation });
        }
        is_put
    }
}

impl Local {
    /// Has a push take its course.
    pub(super) fn deliver(&mut self, key: TopicKey, frames: &Arc<Frames>, course: Course) {
        if !self.is_current(key) {
            return;
        }
        match course {
            Course::Every(every) => return self.show(key.index, every, frames),
            Course::All => self.show_every(key.index, None),
            Course::Beside => {}
        }
        let topic = &self.topics[key.index as usize];
        let slow = topic.rules.slow;
        self.counts.deliveries += topic.subscribers.len() as u64;
        let mut put = Put {
            budget: self.limits.waiting_bytes,
            waiting: &mut self.waiting,
            counts: &mut self.counts,
            victims: &mut self.victims,
            ready: &mut self.ready,
        };
        for together in topic.subscribers.chunks(TOUCHED_TOGETHER) {
            // Most are not in the processor's caches: all are asked for before the first is needed.
            let there = together
                .iter()
                .filter(|index| self.conns[**index as usize].conn.is_some());
            put.ready.reserve(there.count());
            for &index in together {
                let slot = &mut self.conns[index as usize];
                let Some(conn) = &slot.conn else { continue };
                let Some(frame) = frames.get(conn.variant) else {
                    let why = Victim::Disconnect(Disconnect::INAPPROPRIATE_PROTOCOL);
                    put.victims.push((index, why));
                    continue;
                };
                let push = Waiting {
                    topic: key.index,
                    slow,
                    is_state: false,
                    frame: frame.clone(),
                };
                put.push(index, slot, push);
            }
        }
        self.end_victims();
    }

    /// Ends what could not go on.
    pub(super) fn end_victims(&mut self) {
        let mut victims = std::mem::take(&mut self.victims);
        for (index, victim) in victims.drain(..) {
            let id = self.id(index);
            match victim {
                Victim::Resync(topic) => self.tell_unsubscribed(id, topic, Unsubscribed::INSUFFICIENT),
                Victim::Disconnect(why) => {
                    self.close(id);
                    self.events.push_back(Event::Disconnected { conn: id, why });
                }
            }
        }
        self.victims = victims;
    }

    /// Who relies on numbers subscribes again, and finds out what it can have. Others have lost something, as they must expect.
    pub(super) fn lost(&mut self, key: TopicKey) {
        if !self.is_current(key) {
            return;
        }
        let topic = &self.topics[key.index as usize];
        self.counts.lost += topic.subscribers.len() as u64;
        if topic.rules.keep.is_none() {
            for &index in &topic.subscribers {
                if let Some(conn) = &mut self.conns[index as usize].conn {
                    conn.dropped += 1;
                }
            }
            return;
        }
        let subscribers: Vec<u32> = topic.subscribers.clone();
        for index in subscribers {
            self.tell_unsubscribed(self.id(index), key.index, Unsubscribed::INSUFFICIENT);
        }
    }
}
