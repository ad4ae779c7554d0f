//! Publishing from outside the workers: what a broker's consumer has goes in here, from its own thread.
//!
//! ```text
//! any thread ─ Inlet::publish ─▶ queue of the channel's home, bounded ─▶ desk of that worker ─▶ home
//!            ◀─ Inlet::poll_room ── woken when something was taken ──┘
//! ```
//!
//! A channel's publications go by one queue, so that they stay in order. Workers take from it without a lock. What a publication
//! may be is looked at by whoever publishes, not by the worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use ringmain_hub::local::home_of;
use ringmain_hub::mail::Rules;
use ringmain_hub::protocol::{Fault, compact};

use crate::desk::Desk;
use crate::interruptions::{Interruptions, Scope};
use crate::limits;
use crate::options::Checked;
use crate::settings::Settings;

/// Publishes from any thread. Clones publish into the same queues; each looks at the settings by itself.
#[derive(Clone)]
pub struct Inlet {
    settings: Arc<Settings>,
    /// The settings that were looked at last.
    seen: u64,
    options: Option<Arc<Checked>>,
}

/// Why a publication was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// The channel cannot be: its name, or its namespace.
    #[error("{}", .0.message)]
    NoChannel(Fault),
    /// What is published is not one JSON value, or is not of the namespace's [`DataFormat`](crate::DataFormat).
    #[error("no JSON")]
    NotJson,
    /// [`INLET`](limits::INLET) publications, or [`INLET_BYTES`](limits::INLET_BYTES), wait for the channel's worker already.
    /// [`Inlet::poll_room`] says when there are less.
    #[error("more is being published than can be carried on")]
    Full,
    /// There is nobody yet who could carry it on: no settings, or no worker.
    #[error("nothing is pushed yet")]
    NotYet,
}

/// On its way to the channel's home.
pub(crate) struct Arriving {
    channel: Arc<str>,
    rules: Rules,
    data: Bytes,
}

/// What waits for one worker.
pub(crate) struct Slot {
    queue: ArrayQueue<Arriving>,
    /// Of what is in the queue.
    bytes: AtomicUsize,
    /// It was rung for and has not looked since.
    rung: AtomicBool,
    /// Of the worker's desk, which sets it when it begins.
    bell: OnceLock<Waker>,
    /// Of those who wait for room.
    waiting: ArrayQueue<Waker>,
    pub(crate) interruptions: Interruptions,
}

impl Inlet {
    pub(crate) fn new(settings: &Arc<Settings>) -> Inlet {
        Inlet {
            settings: Arc::clone(settings),
            seen: 0,
            options: None,
        }
    }

    /// Whether there are settings and workers. Once there are, there are for good.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.settings.mesh.slots().is_some() && self.settings.is_there()
    }

    /// Whether the state of a predecessor is still to arrive: it has not stopped yet, so what arrives here from now on follows what it
    /// had without a gap. Such publications may be doubled.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.settings.hand_over.is_awaited()
    }

    /// Hands a publication of JSON to the worker where the channel is at home, which publishes it soon. Publications of a
    /// channel by one `Inlet` come out in their order.
    ///
    /// # Errors
    /// [`NotTaken`]: nobody gets it.
    pub fn publish(&mut self, channel: &Arc<str>, json: &[u8]) -> Result<(), NotTaken> {
        if self.settings.hand_over.is_frozen() {
            // The successor has it from its own source.
            return Ok(());
        }
        if let Some((seen, options)) = self.settings.newer(self.seen) {
            self.seen = seen;
            self.options = Some(Arc::new(options));
        }
        let (Some(options), Some(slots)) = (&self.options, self.settings.mesh.slots()) else {
            return Err(NotTaken::NotYet);
        };
        let namespace = options.namespace(channel).map_err(NotTaken::NoChannel)?;
        let rules = namespace.rules;
        let slot = slot_of(slots, channel);
        if slot.is_full() {
            return Err(NotTaken::Full);
        }
        let data = compact(&Bytes::copy_from_slice(json)).map_err(|_| NotTaken::NotJson)?;
        namespace
            .data_format
            .check_json(&data)
            .map_err(|_| NotTaken::NotJson)?;
        slot.put(Arriving {
            channel: Arc::clone(channel),
            rules,
            data,
        })
    }

    /// Ready once something more of this channel may be taken; others may be quicker. At most [`INLET_WAITING`] wait at a time
    /// for one worker: beyond that it is ready at once, and whoever publishes finds that there is no room.
    ///
    /// [`INLET_WAITING`]: limits::INLET_WAITING
    pub fn poll_room(&self, channel: &str, context: &Context<'_>) -> Poll<()> {
        let Some(slots) = self.settings.mesh.slots() else {
            return Poll::Ready(());
        };
        let slot = slot_of(slots, channel);
        if !slot.is_full() || slot.waiting.push(context.waker().clone()).is_err() {
            return Poll::Ready(());
        }
        // What was taken before the waker was there woke nobody.
        match slot.is_full() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// Reports that a publication of this channel was dropped behind those that were taken: the channel starts a new epoch there, so
    /// that no client recovers across the gap. Positioned clients are notified within a second.
    pub fn dropped(&self, channel: &Arc<str>) {
        if let Some(slots) = self.settings.mesh.slots() {
            slot_of(slots, channel).interrupt(Scope::Channel(Arc::clone(channel)));
        }
    }

    /// Reports that publications may be missing in all channels whose names begin with `prefix`, behind those that were taken: a
    /// source has reconnected. Each starts a new epoch, as with [`Inlet::dropped`].
    pub fn interrupted(&self, prefix: &str) {
        let prefix: Arc<str> = Arc::from(prefix);
        for slot in self.settings.mesh.slots().unwrap_or_default() {
            slot.interrupt(Scope::Prefix(Arc::clone(&prefix)));
        }
    }

    /// Publications that wait for workers, whoever published them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let slots = self.settings.mesh.slots().unwrap_or_default();
        slots.iter().map(|slot| slot.queue.len()).sum()
    }
}

impl std::fmt::Debug for Inlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inlet")
    }
}

fn slot_of<'s>(slots: &'s [Slot], channel: &str) -> &'s Slot {
    let workers = u16::try_from(slots.len()).unwrap_or(u16::MAX);
    &slots[usize::from(home_of(channel, workers).0)]
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot {
            queue: ArrayQueue::new(limits::INLET),
            bytes: AtomicUsize::new(0),
            rung: AtomicBool::new(false),
            bell: OnceLock::new(),
            waiting: ArrayQueue::new(limits::INLET_WAITING),
            interruptions: Interruptions::default(),
        }
    }

    /// The worker begins to take.
    pub(crate) fn begin(&self, bell: &Waker) {
        // A worker begins once.
        let _ = self.bell.set(bell.clone());
    }

    /// One publication may be larger than all of the bytes: it goes when nothing else waits.
    fn is_full(&self) -> bool {
        self.queue.is_full() || self.bytes.load(Ordering::Relaxed) >= limits::INLET_BYTES
    }

    fn put(&self, arriving: Arriving) -> Result<(), NotTaken> {
        let bytes = arriving.data.len();
        // Before it can be taken, else they would be less than nothing.
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.interruptions.before_put();
        if self.queue.push(arriving).is_err() {
            self.bytes.fetch_sub(bytes, Ordering::Relaxed);
            self.interruptions.not_put();
            return Err(NotTaken::Full);
        }
        self.wake();
        Ok(())
    }

    fn interrupt(&self, scope: Scope) {
        self.interruptions.add(scope);
        self.wake();
    }

    /// Whether its worker takes.
    pub(crate) fn has_begun(&self) -> bool {
        self.bell.get().is_some()
    }

    /// Has its worker look.
    pub(crate) fn wake(&self) {
        if !self.rung.swap(true, Ordering::AcqRel)
            && let Some(bell) = self.bell.get()
        {
            bell.wake_by_ref();
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    fn take(&self) -> Option<Arriving> {
        let arriving = self.queue.pop()?;
        self.bytes.fetch_sub(arriving.data.len(), Ordering::Relaxed);
        Some(arriving)
    }
}

impl Desk {
    /// Publishes what has come from outside, as much as a turn takes. Whether there is more.
    pub(crate) fn take_arrived(&self, slots: &[Slot]) -> bool {
        let slot = &slots[self.cx.worker()];
        // Before it is looked at: whoever adds to it from now on rings again.
        slot.rung.swap(false, Ordering::AcqRel);
        let (mut local, mut places) = (self.local.borrow_mut(), self.places.borrow_mut());
        let mut taken = 0;
        while taken < limits::TAKEN_A_TURN && local.backlog() <= limits::BACKLOG {
            let Some(Arriving { channel, rules, data }) = slot.take() else {
                break;
            };
            let published = places.with_data(&rules, data);
            local.publish_for(&channel, rules, &published, None, None);
            taken += 1;
        }
        slot.interruptions.count_taken(taken);
        while taken > 0
            && let Some(waker) = slot.waiting.pop()
        {
            waker.wake();
        }
        !slot.queue.is_empty()
    }
}
