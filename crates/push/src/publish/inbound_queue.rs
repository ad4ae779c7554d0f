//! The bounded queue through which other threads reach one worker.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Waker;

use bytes::Bytes;
use crossbeam_queue::ArrayQueue;
use ringmain_hub::mail::{ChannelOptions, Origin};
use ringmain_hub::shard::{LogEvent, LogId};
use ringmain_hub::subscribers::shard_of;

use super::batch::RecordBatch;
use super::interruptions::{Interruptions, Scope};
use super::receipts::Receipt;
use crate::cluster::ClusterEvent;
use crate::limits;
use crate::worker::user_commands::ConnectionCommand;

/// An entry of the queue.
pub(crate) enum Inbound {
    Publication {
        channel: Arc<str>,
        channel_options: ChannelOptions,
        data: Bytes,
        origin: Origin,
    },
    Records(Box<RecordBatch>),
    Log(LogId, LogEvent),
    LogEnded(LogId),
    Expected(Vec<Arc<str>>),
    Command(Box<(ConnectionCommand, Receipt)>),
    Cluster(Box<ClusterEvent>),
    /// Clients to send to other nodes.
    Move(u32),
}

impl Inbound {
    fn bytes(&self) -> usize {
        match self {
            Inbound::Publication { data, .. } => data.len(),
            Inbound::Records(records) => records.bytes(),
            Inbound::Cluster(event) => event.bytes(),
            Inbound::Log(..)
            | Inbound::LogEnded(_)
            | Inbound::Expected(_)
            | Inbound::Command(_)
            | Inbound::Move(_) => 0,
        }
    }

    /// Returns the number of entries that count against [`limits::THREAD_QUEUE`].
    pub(crate) fn count(&self) -> usize {
        match self {
            Inbound::Records(records) => records.len(),
            _ => 1,
        }
    }

    /// Returns whether the entry is passed to the shard directly, and not through the worker's subscribers.
    fn is_for_shard(&self) -> bool {
        !matches!(self, Inbound::Publication { .. })
    }
}

/// See the module.
pub(crate) struct InboundQueue {
    queue: ArrayQueue<Inbound>,
    /// Publications and events in the queue, or with reserved room: never fewer than the queue's entries.
    count: AtomicUsize,
    /// The bytes of these.
    bytes: AtomicUsize,
    /// Entries for the shard, which have to wait while the shard waits for its predecessor's state.
    for_shard: AtomicUsize,
    /// The worker was woken and has not read the queue since.
    is_woken: AtomicBool,
    /// Set when the worker starts.
    waker: OnceLock<Waker>,
    /// Publishers that wait for room.
    waiting: ArrayQueue<Waker>,
    interruptions: Interruptions,
}

impl InboundQueue {
    pub(crate) fn new() -> InboundQueue {
        InboundQueue {
            queue: ArrayQueue::new(limits::THREAD_QUEUE),
            count: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            for_shard: AtomicUsize::new(0),
            is_woken: AtomicBool::new(false),
            waker: OnceLock::new(),
            waiting: ArrayQueue::new(limits::THREAD_QUEUE_WAITERS),
            interruptions: Interruptions::default(),
        }
    }

    /// Stores the waker of the worker, which reads the queue from now on.
    pub(crate) fn register_worker(&self, waker: &Waker) {
        // A worker starts once.
        let _ = self.waker.set(waker.clone());
    }

    /// Returns whether the limit of entries or bytes is reached. One publication may exceed the bytes: it is admitted below the limit.
    pub(crate) fn is_full(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= limits::THREAD_QUEUE
            || self.bytes.load(Ordering::Relaxed) >= limits::THREAD_QUEUE_BYTES
    }

    /// Returns the number of publications and events in the queue.
    pub(crate) fn len(&self) -> usize {
        self.count.load(Ordering::Relaxed)
    }

    /// Reserves capacity for one publication of this size. Returns `false` at the limit.
    pub(crate) fn reserve(&self, bytes: usize) -> bool {
        if self.count.fetch_add(1, Ordering::Relaxed) >= limits::THREAD_QUEUE {
            self.count.fetch_sub(1, Ordering::Relaxed);
            return false;
        }
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        true
    }

    /// Adds an entry and wakes the worker. Returns `false` if there is no room.
    pub(crate) fn enqueue(&self, inbound: Inbound) -> bool {
        let has_room = self.reserve(inbound.bytes());
        if has_room {
            self.enqueue_reserved(inbound);
            self.wake();
        }
        has_room
    }

    /// Adds an entry for which room is reserved. [`InboundQueue::wake`] has to follow.
    pub(crate) fn enqueue_reserved(&self, inbound: Inbound) {
        // Counted before the worker can remove it: the counts never become negative.
        self.for_shard
            .fetch_add(usize::from(inbound.is_for_shard()), Ordering::Relaxed);
        self.interruptions.count_queued(inbound.count());
        let pushed = self.queue.push(inbound);
        // Each entry has at least one of the `THREAD_QUEUE` reservations, and releases it after it has left the queue.
        debug_assert!(pushed.is_ok(), "room was reserved");
    }

    /// Adds an interruption behind the publications that were queued so far.
    pub(crate) fn interrupt(&self, scope: Scope) {
        self.interruptions.add_scope(scope);
        self.wake();
    }

    pub(crate) fn interruptions(&self) -> &Interruptions {
        &self.interruptions
    }

    /// Returns whether its worker has started.
    pub(crate) fn has_worker(&self) -> bool {
        self.waker.get().is_some()
    }

    /// Wakes the worker unless it was woken and has not read the queue since.
    pub(crate) fn wake(&self) {
        if !self.is_woken.swap(true, Ordering::AcqRel)
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
    }

    /// Allows the next wake-up. For the worker, before it reads the queue.
    pub(crate) fn allow_wake(&self) {
        self.is_woken.swap(false, Ordering::AcqRel);
    }

    pub(crate) fn has_shard_entries(&self) -> bool {
        self.for_shard.load(Ordering::Relaxed) > 0
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    pub(crate) fn pop(&self) -> Option<Inbound> {
        let inbound = self.queue.pop()?;
        self.bytes.fetch_sub(inbound.bytes(), Ordering::Relaxed);
        self.count.fetch_sub(inbound.count(), Ordering::Relaxed);
        if inbound.is_for_shard() {
            self.for_shard.fetch_sub(1, Ordering::Relaxed);
        }
        Some(inbound)
    }

    /// Counts the entries that the worker has removed in a turn, and wakes publishers that wait for capacity. Returns whether entries
    /// remain.
    pub(crate) fn finish_turn(&self, removed: usize) -> bool {
        self.interruptions.count_taken(removed);
        while removed > 0
            && let Some(waker) = self.waiting.pop()
        {
            waker.wake();
        }
        !self.queue.is_empty()
    }

    /// Stores the waker of a publisher that waits for room. Returns `false` if [`limits::THREAD_QUEUE_WAITERS`] wait already.
    pub(crate) fn register_waiter(&self, waker: &Waker) -> bool {
        self.waiting.push(waker.clone()).is_ok()
    }
}

/// Returns the worker of a channel.
pub(crate) fn worker_of(queues: &[InboundQueue], channel: &str) -> usize {
    let workers = u16::try_from(queues.len()).unwrap_or(u16::MAX);
    usize::from(shard_of(channel, workers).0)
}
