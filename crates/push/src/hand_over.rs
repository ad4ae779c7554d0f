//! Channels that outlive their process: what the workers had is written for a successor, which continues with it.
//!
//! ```text
//! old   freeze ─▶ each worker: queues emptied, numbering ends, section written ─▶ State ─▶ pipe or file
//!                  └▶ publications from then on: 503, clients that send commands about channels: 3001; all clients: 3001, spread over the drain time
//! new   await_state ─▶ workers hold what is asked of channels ─▶ restore ─▶ they continue
//! ```
//!
//! Members of channels are present at the successor until they enter there, or until their client must have been sent away.
//! A publication that was answered is in the state; one that is not was not answered. State that is missing, late or broken means new
//! epochs: clients are notified that they could not recover.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ringmain_engine::backend::Time;
use ringmain_hub::mail::WorkerId;
use ringmain_hub::protocol::Disconnect;
use ringmain_hub::shard::{SavedState, StateRecord};
use ringmain_hub::subscribers::shard_of;

use crate::Push;
use crate::desk::Desk;
use crate::inlet::Slot;
use crate::limits;
use crate::outlet::Outlet;
use crate::settings::Settings;
use crate::state::State;

const NONE: u8 = 0;
const AWAITED: u8 = 1;
const READY: u8 = 2;

/// The process that continues with the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// It serves already: members of channels are present there while their clients are sent away from here.
    Serving,
    /// The next start. All clients have left by then.
    NextStart,
}

/// The part that workers share with the thread that starts and ends the process.
#[derive(Default)]
pub(crate) struct HandOver {
    is_frozen: AtomicBool,
    /// The members of channels are written as well.
    with_members: AtomicBool,
    /// Where workers put their sections.
    sections: Mutex<Option<mpsc::Sender<SavedState>>>,
    /// [`NONE`], or what is with the state of a predecessor.
    incoming: AtomicU8,
    restored: Mutex<(Vec<StateRecord>, Duration)>,
}

impl HandOver {
    /// Whether a successor numbers publications now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Whether a predecessor's state has not arrived yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.incoming.load(Ordering::Acquire) == AWAITED
    }

    /// Whether there is, or will be, state of a predecessor.
    pub(crate) fn has_incoming(&self) -> bool {
        self.incoming.load(Ordering::Acquire) != NONE
    }

    fn sections(&self) -> MutexGuard<'_, Option<mpsc::Sender<SavedState>>> {
        self.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records of channels that are at home at a worker, and how old they are.
    fn take_records(&self, worker: usize, workers: u16) -> (Vec<StateRecord>, Duration) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut restored.0);
        let (mut here, mut elsewhere) = (Vec::new(), Vec::new());
        for record in all {
            match record.channel() {
                Some(channel) if usize::from(shard_of(channel, workers).0) == worker => here.push(record),
                Some(_) => elsewhere.push(record),
                None => {
                    here.push(record.clone());
                    elsewhere.push(record);
                }
            }
        }
        restored.0 = elsewhere;
        (here, restored.1)
    }
}

impl Push {
    /// Ends the numbering of publications, and returns what a successor continues with. Publications are refused from then on, and
    /// all clients are sent away (3001) once the process drains. Workers that have not answered `within` this time have no part in it.
    /// For another thread than the workers'; `now` is wall time since 1970.
    #[must_use]
    pub fn freeze(&self, successor: Successor, within: Duration, now: Duration) -> State {
        self.begin_freeze(successor).collect(within, now)
    }

    /// The first half of [`Push::freeze`]: workers follow in their next turn.
    #[must_use]
    pub fn begin_freeze(&self, successor: Successor) -> Freezing {
        let Settings { mesh, hand_over, .. } = &*self.0;
        let slots = mesh.slots().unwrap_or_default();
        let (sender, receiver) = mpsc::channel();
        *hand_over.sections() = Some(sender);
        let with_members = successor == Successor::Serving;
        hand_over.with_members.store(with_members, Ordering::Release);
        hand_over.is_frozen.store(true, Ordering::Release);
        let mut workers = 0;
        for slot in slots.iter().filter(|slot| slot.has_begun()) {
            slot.wake();
            workers += 1;
        }
        Freezing {
            settings: Arc::clone(&self.0),
            receiver,
            workers,
        }
    }

    /// Has workers hold what is asked of channels until [`Push::restore`]: to be called before they start.
    pub fn await_state(&self) {
        self.0.hand_over.incoming.store(AWAITED, Ordering::Release);
    }

    /// Has workers continue with the state of a predecessor, `elapsed` after it was written; without one they begin with new epochs.
    pub fn restore(&self, records: Vec<StateRecord>, elapsed: Duration) {
        let Settings { mesh, hand_over, .. } = &*self.0;
        *hand_over.restored.lock().unwrap_or_else(PoisonError::into_inner) = (records, elapsed);
        hand_over.incoming.store(READY, Ordering::Release);
        mesh.slots().unwrap_or_default().iter().for_each(Slot::wake);
    }
}

/// Workers that are writing their channels.
pub struct Freezing {
    settings: Arc<Settings>,
    receiver: mpsc::Receiver<SavedState>,
    workers: usize,
}

impl std::fmt::Debug for Freezing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Freezing")
    }
}

impl Freezing {
    /// The other half of [`Push::freeze`]. Not for a worker, which would wait for itself.
    #[must_use]
    pub fn collect(self, within: Duration, now: Duration) -> State {
        let mut state = State::new(now);
        let mut logs = Vec::new();
        let mut missing = self.workers;
        while missing > 0 {
            // Each of them has this long since the one before.
            let Ok(saved) = self.receiver.recv_timeout(within) else {
                log::error!(
                    "push: {missing} workers have not written their channels within {within:?}: those start new epochs"
                );
                break;
            };
            missing -= 1;
            if saved.omitted > 0 {
                let count = saved.omitted;
                log::warn!(
                    "push: {count} channels do not fit into the state for the next process and start new epochs"
                );
            }
            state.add(saved.section);
            logs.push(saved.logs);
        }
        if missing == 0 {
            logs.into_iter().for_each(|section| state.add(section));
        }
        self.settings.hand_over.sections().take();
        state
    }
}

impl Desk {
    /// Whether what is asked of channels here has to wait for a predecessor's state.
    pub(crate) fn is_holding(&self) -> bool {
        self.holds.get()
    }

    /// Whether a successor numbers publications now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.settings.hand_over.is_frozen()
    }

    /// Takes over a predecessor's channels once they are there, and writes those here for a successor once.
    pub(crate) fn follow_hand_over(&self, slots: &[Slot]) {
        let hand_over = &self.settings.hand_over;
        if self.holds.get() && !hand_over.is_awaited() {
            self.take_over();
        }
        if hand_over.is_frozen() && !self.is_saved.replace(true) {
            self.save(slots);
        }
    }

    fn take_over(&self) {
        let workers = u16::try_from(self.cx.workers()).unwrap_or(u16::MAX);
        let (records, elapsed) = self.settings.hand_over.take_records(self.cx.worker(), workers);
        self.holds.set(false);
        let now = self.cx.now().since(Time(0));
        let options = self.options();
        let rules = |channel: &str| options.namespace(channel).ok().map(|namespace| namespace.rules);
        let count = records.len();
        let mut home = self.home.borrow_mut();
        let restored = home.restore(records, now, elapsed, options.keys_remembered, rules);
        log::debug!("push: {restored} channels of {count} records are taken over");
    }

    fn save(&self, slots: &[Slot]) {
        let own = WorkerId(self.cx.worker() as u16);
        // Publications that were taken from a source may be in no other process.
        loop {
            let more = self.take_arrived(slots);
            let (mut local, mut home) = (self.local.borrow_mut(), self.home.borrow_mut());
            let now = self.cx.now().since(Time(0));
            while let Some(message) = local.poll_request(own) {
                home.handle(own, message, now);
            }
            if !more {
                break;
            }
        }
        let with_members = self.settings.hand_over.with_members.load(Ordering::Acquire);
        let away_within = limits::SENT_AWAY_AFTER + self.sent_away_within();
        let present = with_members.then(|| away_within + limits::PRESENT_AFTER);
        let saved = {
            let mut home = self.home.borrow_mut();
            home.freeze();
            home.save(self.cx.now().since(Time(0)), present)
        };
        if let Some(sections) = &*self.settings.hand_over.sections() {
            // It fails when this was late.
            let _ = sections.send(saved);
        }
    }

    fn sent_away_within(&self) -> Duration {
        (self.options().drain / 2).min(limits::SENT_AWAY_WITHIN)
    }

    /// Sends all clients away once the process drains, spread over half of the drain time, so that they do not connect elsewhere at
    /// once.
    pub(crate) async fn send_away(&self) {
        self.cx.draining().await;
        // Until then this process still accepts from a queue that it shares with its successor, and would refuse a client that comes back.
        self.cx.sleep(limits::SENT_AWAY_AFTER).await;
        let spread = self.sent_away_within();
        // Streams and calls end by themselves then.
        let mut seats = self.all_seats();
        seats.retain(|seat| matches!(*seat.outlet.borrow(), Outlet::Ws(_)));
        let slices =
            u32::try_from(spread.as_millis() / limits::SENT_AWAY_EVERY.as_millis()).unwrap_or(u32::MAX);
        let together = seats.len().div_ceil(slices.max(1) as usize).max(1);
        let pause = match seats.len().div_ceil(together) {
            0 => return,
            count => spread / count as u32,
        };
        for slice in seats.chunks(together) {
            for seat in slice {
                // SDKs connect again by themselves.
                seat.disconnect(Disconnect::SHUTDOWN);
            }
            self.cx.sleep(pause).await;
        }
    }
}
