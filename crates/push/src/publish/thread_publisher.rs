//! Publishing from outside the workers: what a broker's consumer has goes in here, from its own thread.
//!
//! ```text
//! any thread ─ Inlet::publish ─▶ queue of the channel's home, bounded ─▶ desk of that worker ─▶ home
//!            ◀─ Inlet::poll_room ── woken when something was taken ──┘
//! ```
//!
//! Records of sources go in batches: see [`Batch`].
//!
//! A channel's publications go by one queue, so that they stay in order. Workers take from it without a lock. What a publication
//! may be is looked at by whoever publishes, not by the worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use ringmain_engine::backend::Time;
use ringmain_hub::mail::{ChannelOptions, Origin, WorkerId};
use ringmain_hub::protocol::{Fault, compact};
use ringmain_hub::shard::{LogEvent, LogId};
use ringmain_hub::subscribers::shard_of;

use crate::api::UserCommand;
use crate::limits;
use crate::options::Checked;
use crate::publish::batch::Records;
use crate::publish::interruptions::{Interruptions, Scope};
use crate::publish::receipts::{Receipt, Receipts};
use crate::settings::Settings;
use crate::worker::Desk;
use crate::worker::user_commands::{Order, Reached};

/// Publishes from any thread. Clones publish into the same queues; each looks at the settings by itself.
#[derive(Clone)]
pub struct Inlet {
    pub(crate) settings: Arc<Settings>,
    /// The settings that were looked at last.
    seen: u64,
    pub(crate) options: Option<Arc<Checked>>,
    /// Noted by channels, for [`Inlet::interrupted`].
    pub(crate) origin: Origin,
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
    /// It has more than [`PUBLICATION_BYTES`](limits::PUBLICATION_BYTES).
    #[error("too large")]
    TooLarge,
    /// No worker can publish it: there are no settings yet, or a successor publishes from now on.
    #[error("nothing is pushed yet")]
    NotYet,
}

/// On its way to the channel's home.
pub(crate) enum Arriving {
    Publication {
        channel: Arc<str>,
        rules: ChannelOptions,
        data: Bytes,
        origin: Origin,
    },
    Records(Box<Records>),
    Log(LogId, LogEvent),
    LogEnded(LogId),
    Expected(Vec<Arc<str>>),
    Command(Box<(Order, Receipt)>),
}

impl Arriving {
    fn bytes(&self) -> usize {
        match self {
            Arriving::Publication { data, .. } => data.len(),
            Arriving::Records(records) => records.bytes(),
            Arriving::Log(..) | Arriving::LogEnded(_) | Arriving::Expected(_) | Arriving::Command(_) => 0,
        }
    }

    /// Returns how much of [`limits::INLET`] it takes.
    fn count(&self) -> usize {
        match self {
            Arriving::Records(records) => records.len(),
            _ => 1,
        }
    }
}

/// What waits for one worker.
pub(crate) struct Slot {
    queue: ArrayQueue<Arriving>,
    /// Publications and events that are in the queue, or for which room is reserved: never less than the queue's entries.
    count: AtomicUsize,
    /// The bytes of those.
    bytes: AtomicUsize,
    /// Records and events of logs in the queue: they go to the home directly, which they cannot while it waits for its predecessor's.
    for_home: AtomicUsize,
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
            origin: Origin::PROGRAM,
        }
    }

    /// An inlet of another source: channels remember that it has fed them. It publishes into the same queues.
    #[must_use]
    pub fn for_source(&self) -> Inlet {
        let number = self.settings.sources.fetch_add(1, Ordering::Relaxed);
        Inlet {
            origin: Origin::source(number),
            ..self.clone()
        }
    }

    /// Whether there are settings and workers. Once there are, there are for good.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.settings.mesh.slots().is_some() && self.settings.is_there()
    }

    /// Returns whether a successor publishes from now on: nothing is taken any more.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.settings.hand_over.is_frozen()
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
        self.refresh();
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
        let is_put = slot.put(Arriving::Publication {
            channel: Arc::clone(channel),
            rules,
            data,
            origin: self.origin,
        });
        if is_put { Ok(()) } else { Err(NotTaken::Full) }
    }

    /// Hands a command to a worker, which has it done on all of them and then completes the receipt that is issued for it. It may overtake
    /// records that were handed over before and are not done.
    ///
    /// # Errors
    /// [`NotTaken`]: nothing was handed over, and no receipt was issued. [`NotTaken::Full`] is also for a window without room
    /// ([`Receipts::has_room`]).
    pub fn submit_command(&mut self, command: &UserCommand, receipts: &mut Receipts) -> Result<(), NotTaken> {
        if self.settings.hand_over.is_frozen() {
            return Err(NotTaken::NotYet);
        }
        self.refresh();
        let (Some(options), Some(slots)) = (&self.options, self.settings.mesh.slots()) else {
            return Err(NotTaken::NotYet);
        };
        let order = command.order(options).map_err(|fault| match fault {
            Fault::LIMIT_EXCEEDED => NotTaken::TooLarge,
            Fault::UNKNOWN_CHANNEL => NotTaken::NoChannel(fault),
            _ => NotTaken::NotJson,
        })?;
        let slot = slot_of(slots, command.user());
        if !receipts.has_room() || !slot.reserve(0) {
            return Err(NotTaken::Full);
        }
        // The window has room.
        let receipt = receipts.issue_one().ok_or(NotTaken::Full)?;
        slot.put_reserved(Arriving::Command(Box::new((order, receipt))));
        slot.wake();
        Ok(())
    }

    /// Reports a change of the records that a source reads to a worker, behind the records that were handed to it. `false`: its queue is full.
    #[must_use]
    pub fn submit_event(&self, worker: usize, id: LogId, event: LogEvent) -> bool {
        self.put_event(worker, Arriving::Log(id, event))
    }

    /// Reports to a worker that a life of a log has ended: records that were delivered are lost, or the log was created again. Its
    /// channels start epochs of their own, and positioned clients are notified. `false`: its queue is full.
    #[must_use]
    pub fn submit_log_ended(&self, worker: usize, id: LogId) -> bool {
        self.put_event(worker, Arriving::LogEnded(id))
    }

    /// Replaces the prefixes of channels that are fed by logs that are not read yet: a client with a position in an unknown log retries.
    /// For workers that have not started yet; [`Inlet::submit_expected`] is for others.
    pub fn expect_logs(&self, prefixes: Vec<Arc<str>>) {
        *self
            .settings
            .expected
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = prefixes;
    }

    /// The same for a worker, behind the records that were handed to it. `false`: its queue is full.
    #[must_use]
    pub fn submit_expected(&self, worker: usize, prefixes: &[Arc<str>]) -> bool {
        self.put_event(worker, Arriving::Expected(prefixes.to_vec()))
    }

    fn put_event(&self, worker: usize, arriving: Arriving) -> bool {
        if self.settings.hand_over.is_frozen() {
            // A record before it may not be part of the state, and the successor reads it again.
            return true;
        }
        let slots = self.settings.mesh.slots().unwrap_or_default();
        slots.get(worker).is_none_or(|slot| slot.put(arriving))
    }

    /// The number of workers; zero until they have started.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.settings.mesh.slots().map_or(0, <[Slot]>::len)
    }

    pub(crate) fn refresh(&mut self) {
        if let Some((seen, options)) = self.settings.newer(self.seen) {
            self.seen = seen;
            self.options = Some(Arc::new(options));
        }
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
        // A publication that was taken before the waker was registered has woken no task.
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

    /// Reports that publications may be missing in channels whose names begin with `prefix`, behind those that were taken: a source has
    /// reconnected. Each starts a new epoch, as with [`Inlet::dropped`]. An inlet [of a source](Inlet::for_source) excepts the channels
    /// that only others have fed.
    pub fn interrupted(&self, prefix: &str) {
        let prefix: Arc<str> = Arc::from(prefix);
        let scope = match self.origin {
            Origin::PROGRAM => Scope::Prefix(prefix),
            origin => Scope::Fed(prefix, origin),
        };
        for slot in self.settings.mesh.slots().unwrap_or_default() {
            slot.interrupt(scope.clone());
        }
    }

    /// Publications that wait for workers, whoever published them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let slots = self.settings.mesh.slots().unwrap_or_default();
        slots.iter().map(|slot| slot.count.load(Ordering::Relaxed)).sum()
    }
}

impl std::fmt::Debug for Inlet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Inlet")
    }
}

fn slot_of<'s>(slots: &'s [Slot], channel: &str) -> &'s Slot {
    &slots[worker_of(slots, channel)]
}

/// Returns the worker where a channel is at home.
pub(crate) fn worker_of(slots: &[Slot], channel: &str) -> usize {
    let workers = u16::try_from(slots.len()).unwrap_or(u16::MAX);
    usize::from(shard_of(channel, workers).0)
}

impl Slot {
    pub(crate) fn new() -> Slot {
        Slot {
            queue: ArrayQueue::new(limits::INLET),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            for_home: AtomicUsize::new(0),
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
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= limits::INLET
            || self.bytes.load(Ordering::Relaxed) >= limits::INLET_BYTES
    }

    /// Reserves room for one publication of so many bytes. `false`: there is none.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        if self.count.fetch_add(1, Ordering::Relaxed) >= limits::INLET {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// `false`: there is no room.
    fn put(&self, arriving: Arriving) -> bool {
        let has_room = self.reserve(arriving.bytes());
        if has_room {
            self.put_reserved(arriving);
            self.wake();
        }
        has_room
    }

    /// Puts publications into the queue for which room is reserved. [`Slot::wake`] has to follow.
    pub(crate) fn put_reserved(&self, arriving: Arriving) {
        let is_for_home = usize::from(!matches!(arriving, Arriving::Publication { .. }));
        // Counted before the worker can take it, or the counts would be negative for a moment.
        self.for_home.fetch_add(is_for_home, Ordering::Relaxed);
        self.interruptions.before_put(arriving.count());
        let put = self.queue.push(arriving);
        // Each entry has at least one of the `INLET` places that are reserved, and gives it back after it has left the queue.
        debug_assert!(put.is_ok(), "room was reserved");
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
        self.bytes.fetch_sub(arriving.bytes(), Ordering::Relaxed);
        self.count.fetch_sub(arriving.count(), Ordering::Relaxed);
        if !matches!(arriving, Arriving::Publication { .. }) {
            self.for_home.fetch_sub(1, Ordering::Relaxed);
        }
        Some(arriving)
    }
}

impl Desk {
    /// Publishes what has come from outside, as much as a turn takes. Whether there is more.
    pub(crate) fn take_arrived(&self, slots: &[Slot]) -> bool {
        let slot = &slots[self.cx.worker()];
        // Before it is looked at: whoever adds to it from now on rings again.
        slot.rung.swap(false, Ordering::AcqRel);
        if self.is_holding() && slot.for_home.load(Ordering::Relaxed) > 0 {
            // The predecessor's state is restored first.
            return false;
        }
        let (mut local, mut places) = (self.local.borrow_mut(), self.places.borrow_mut());
        let mut home = self.home.borrow_mut();
        let now = self.cx.now().since(Time(0));
        let own = WorkerId(self.cx.worker() as u16);
        let mut taken = 0;
        while taken < limits::TAKEN_A_TURN && local.backlog() <= limits::BACKLOG {
            let Some(arriving) = slot.take() else {
                break;
            };
            taken += arriving.count();
            match arriving {
                Arriving::Publication {
                    channel,
                    rules,
                    data,
                    origin,
                } => {
                    let published = places.with_data(&rules, data);
                    local.publish_from_source(&channel, rules, published, origin);
                }
                Arriving::Records(records) => {
                    // Publications that were queued before them go first.
                    while let Some(message) = local.poll_request(own) {
                        home.handle(own, message, now);
                    }
                    records.publish(&mut home, now);
                }
                Arriving::Log(id, event) => home.handle_log_event(id, event),
                Arriving::LogEnded(id) => home.end_log(id.epoch),
                Arriving::Expected(prefixes) => home.expect_logs(prefixes),
                Arriving::Command(command) => {
                    let (mut order, receipt) = *command;
                    order.reached = Some(Reached::with_receipt(self.cx.workers(), Some(receipt)));
                    self.commands.borrow_mut().push_back(order);
                }
            }
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
