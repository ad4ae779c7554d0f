//! Hand-over of channels to a successor: the workers write their state, and the next process continues with it.
//!
//! ```text
//! old   freeze ─▶ each worker: queues emptied, numbering ends, section written ─▶ HandOverState ─▶ pipe or file
//!                  └▶ publications from then on: 503, clients that send commands about channels: 3001; all clients: 3001, spread over `Config::drain_spread`
//! new   await_state ─▶ workers hold requests to channels ─▶ restore ─▶ they continue
//! ```
//!
//! Members of channels are present at the successor until they subscribe there, or until their client must have been disconnected. A
//! publication with a reply is in the state; one that is not in it had no reply. State that is missing, late or invalid means new epochs:
//! clients are notified that they could not recover.

pub(crate) mod state;

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;

use ringmain_hub::shard::{SavedState, StateRecord};
use ringmain_hub::subscribers::shard_of;

use crate::Push;
use crate::hand_over::state::HandOverState;
use crate::publish::inbound_queue::InboundQueue;
use crate::settings::SharedSettings;

const NONE: u8 = 0;
const AWAITED: u8 = 1;
const READY: u8 = 2;

/// The process that continues with the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Successor {
    /// A process that serves already: members of channels are present there while their clients are disconnected here.
    Serving,
    /// The next start. All clients have left by then.
    NextStart,
}

/// State that the workers share with the thread that starts and stops the process.
#[derive(Default)]
pub(crate) struct HandOver {
    is_frozen: AtomicBool,
    /// The members of channels are part of the state.
    with_members: AtomicBool,
    /// The receiver of the workers' sections.
    sections: Mutex<Option<mpsc::Sender<SavedState>>>,
    /// The progress of a predecessor's state: [`NONE`], [`AWAITED`] or [`READY`].
    incoming: AtomicU8,
    restored: Mutex<(Vec<StateRecord>, Duration)>,
}

impl HandOver {
    /// Returns whether a successor numbers publications now.
    pub(crate) fn is_frozen(&self) -> bool {
        self.is_frozen.load(Ordering::Acquire)
    }

    /// Returns whether a predecessor's state has not arrived yet.
    pub(crate) fn is_awaited(&self) -> bool {
        self.incoming.load(Ordering::Acquire) == AWAITED
    }

    /// Returns whether a predecessor has state for this process.
    pub(crate) fn has_incoming(&self) -> bool {
        self.incoming.load(Ordering::Acquire) != NONE
    }

    fn sections(&self) -> MutexGuard<'_, Option<mpsc::Sender<SavedState>>> {
        self.sections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the members of channels are part of the state.
    pub(crate) fn includes_members(&self) -> bool {
        self.with_members.load(Ordering::Acquire)
    }

    /// Sends a worker's section to the thread that collects them.
    pub(crate) fn send_section(&self, section: SavedState) {
        if let Some(sections) = &*self.sections() {
            // Fails if this worker is late.
            let _ = sections.send(section);
        }
    }

    /// Returns the records of a worker's channels, and their age.
    pub(crate) fn take_records(&self, worker: usize, workers: u16) -> (Vec<StateRecord>, Duration) {
        let mut restored = self.restored.lock().unwrap_or_else(PoisonError::into_inner);
        let all = std::mem::take(&mut restored.0);
        let (mut own, mut other_workers) = (Vec::new(), Vec::new());
        for record in all {
            match record.channel() {
                Some(channel) if usize::from(shard_of(channel, workers).0) == worker => own.push(record),
                Some(_) => other_workers.push(record),
                None => {
                    own.push(record.clone());
                    other_workers.push(record);
                }
            }
        }
        restored.0 = other_workers;
        (own, restored.1)
    }
}

impl Push {
    /// Stops the numbering of publications, and returns the state that a successor continues with. Publications are rejected from then on,
    /// and all clients are disconnected (3001) once the process drains. Workers that do not respond within `timeout` have no part in it.
    /// Blocks, and is not for a worker's thread; `now` is wall time since 1970.
    #[must_use]
    pub fn freeze(&self, successor: Successor, timeout: Duration, now: Duration) -> HandOverState {
        self.start_freeze(successor).collect(timeout, now)
    }

    /// Starts [`Push::freeze`]: the workers write their sections in their next turn.
    #[must_use]
    pub fn start_freeze(&self, successor: Successor) -> FreezeHandle {
        let SharedSettings { mesh, hand_over, .. } = &*self.0;
        let queues = mesh.inbound_queues().unwrap_or_default();
        let (sender, receiver) = mpsc::channel();
        *hand_over.sections() = Some(sender);
        let with_members = successor == Successor::Serving;
        hand_over.with_members.store(with_members, Ordering::Release);
        hand_over.is_frozen.store(true, Ordering::Release);
        let mut workers = 0;
        for queue in queues.iter().filter(|queue| queue.has_worker()) {
            queue.wake();
            workers += 1;
        }
        FreezeHandle {
            settings: Arc::clone(&self.0),
            receiver,
            workers,
        }
    }

    /// Makes workers hold requests to channels until [`Push::restore`]. To be called before they start.
    pub fn await_state(&self) {
        self.0.hand_over.incoming.store(AWAITED, Ordering::Release);
    }

    /// Restores the state of a predecessor, `elapsed` after it was written. Without records the channels start new epochs.
    pub fn restore(&self, records: Vec<StateRecord>, elapsed: Duration) {
        let SharedSettings { mesh, hand_over, .. } = &*self.0;
        *hand_over.restored.lock().unwrap_or_else(PoisonError::into_inner) = (records, elapsed);
        hand_over.incoming.store(READY, Ordering::Release);
        mesh.inbound_queues()
            .unwrap_or_default()
            .iter()
            .for_each(InboundQueue::wake);
    }
}

/// The workers that are writing their channels.
pub struct FreezeHandle {
    settings: Arc<SharedSettings>,
    receiver: mpsc::Receiver<SavedState>,
    workers: usize,
}

impl std::fmt::Debug for FreezeHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("FreezeHandle")
    }
}

impl FreezeHandle {
    /// Waits for the section of each worker. Blocks, and is not for a worker's thread, which would wait for itself.
    #[must_use]
    pub fn collect(self, timeout: Duration, now: Duration) -> HandOverState {
        let mut state = HandOverState::new(now);
        let mut logs = Vec::new();
        let mut remaining = self.workers;
        while remaining > 0 {
            // Each worker has this long since the one before.
            let Ok(section) = self.receiver.recv_timeout(timeout) else {
                log::error!(
                    "push: {remaining} workers have not written their channels within {timeout:?}: these start new epochs"
                );
                break;
            };
            remaining -= 1;
            if section.omitted > 0 {
                let count = section.omitted;
                log::warn!(
                    "push: {count} channels do not fit into the state for the next process and start new epochs"
                );
            }
            state.add(section.section);
            logs.push(section.logs);
        }
        if remaining == 0 {
            logs.into_iter().for_each(|section| state.add(section));
        }
        self.settings.hand_over.sections().take();
        state
    }
}
