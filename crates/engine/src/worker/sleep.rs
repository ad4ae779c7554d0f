//! Timers of a worker: what a fired key means, and futures that sleep.

use std::task::Waker;

use crate::backend::{Slot, Time};
use crate::limits;
use crate::slab::Slab;
use crate::timer::{TimerId, Wheel};

const DEADLINE: u64 = 1;
const SLEEP: u64 = 2;
const ACCEPT: u64 = 3;
const HANDLER: u64 = 4;

/// What a fired timer was for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fired {
    Deadline(Slot),
    Sleep(Slot),
    Accept,
    Handler(Slot),
}

pub(crate) fn deadline_key(slot: Slot) -> u64 {
    key(DEADLINE, slot)
}

pub(crate) fn accept_key() -> u64 {
    key(
        ACCEPT,
        Slot {
            index: 0,
            generation: 0,
        },
    )
}

fn key(kind: u64, slot: Slot) -> u64 {
    kind << 56 | u64::from(slot.index) << 32 | u64::from(slot.generation)
}

pub(crate) fn fired(key: u64) -> Fired {
    let slot = Slot {
        index: (key >> 32) as u32 & (Slot::LIMIT - 1),
        generation: key as u32,
    };
    match key >> 56 {
        DEADLINE => Fired::Deadline(slot),
        SLEEP => Fired::Sleep(slot),
        ACCEPT => Fired::Accept,
        HANDLER => Fired::Handler(slot),
        kind => unreachable!("no timer has kind {kind}"),
    }
}

/// Sleeping futures and the handler's own timers.
pub(crate) struct Sleepers {
    sleeps: Slab<Sleeper>,
}

pub(crate) struct Sleeper {
    timer: Option<TimerId>,
    pub(crate) fired: bool,
    pub(crate) waker: Option<Waker>,
    pub(crate) handler_key: u64,
}

impl Sleepers {
    pub(crate) fn new() -> Sleepers {
        Sleepers {
            sleeps: Slab::new(limits::TIMERS_PER_WORKER as u32),
        }
    }

    /// `None` when the worker has too many timers.
    pub(crate) fn sleep(&mut self, wheel: &mut Wheel, at: Time, waker: Waker) -> Option<Slot> {
        self.add(wheel, at, SLEEP, Some(waker), 0)
    }

    /// A timer that calls the handler with `handler_key`; `None` when the worker has too many.
    pub(crate) fn handler_timer(&mut self, wheel: &mut Wheel, at: Time, handler_key: u64) -> Option<Slot> {
        self.add(wheel, at, HANDLER, None, handler_key)
    }

    fn add(
        &mut self,
        wheel: &mut Wheel,
        at: Time,
        kind: u64,
        waker: Option<Waker>,
        handler_key: u64,
    ) -> Option<Slot> {
        let slot = self
            .sleeps
            .insert(Sleeper {
                timer: None,
                fired: false,
                waker,
                handler_key,
            })
            .ok()?;
        let timer = wheel.insert(at, key(kind, slot));
        if timer.is_none() {
            self.sleeps.remove(slot);
            return None;
        }
        self.sleeps.get_mut(slot).expect("inserted above").timer = timer;
        Some(slot)
    }

    pub(crate) fn get_mut(&mut self, slot: Slot) -> Option<&mut Sleeper> {
        self.sleeps.get_mut(slot)
    }

    pub(crate) fn fire(&mut self, slot: Slot) {
        if let Some(sleeper) = self.sleeps.get_mut(slot) {
            sleeper.fired = true;
            sleeper.timer = None;
            if let Some(waker) = sleeper.waker.take() {
                waker.wake();
            }
        }
    }

    pub(crate) fn remove(&mut self, wheel: &mut Wheel, slot: Slot) -> Option<Sleeper> {
        let sleeper = self.sleeps.remove(slot)?;
        if let Some(timer) = sleeper.timer {
            wheel.cancel(timer);
        }
        Some(sleeper)
    }
}
