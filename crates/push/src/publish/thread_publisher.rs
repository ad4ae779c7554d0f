//! Publishing from outside the workers: what a broker's consumer has goes in here, from its own thread.
//!
//! ```text
//! any thread ─ ThreadPublisher::publish ─▶ queue of the channel's shard, bounded ─▶ worker of that worker ─▶ shard
//!            ◀─ ThreadPublisher::poll_room ── woken when something was taken ──┘
//! ```
//!
//! RecordBatch of sources go in batches: see [`Batch`].
//!
//! A channel's publications go by one queue, so that they stay in order. Workers take from it without a lock. What a publication
//! may be is looked at by whoever publishes, not by the worker.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};

use bytes::Bytes;
use ringmain_hub::mail::Origin;
use ringmain_hub::protocol::{Fault, compact};
use ringmain_hub::shard::{LogEvent, LogId};

use super::inbound_queue::{Inbound, InboundQueue, worker_of};
use super::interruptions::Scope;
use super::receipts::Receipts;
use crate::api::UserCommand;
use crate::options::ValidOptions;
use crate::settings::Settings;

/// Publishes from any thread. Clones publish into the same queues; each looks at the settings by itself.
#[derive(Clone)]
pub struct ThreadPublisher {
    pub(crate) settings: Arc<Settings>,
    /// The settings that were looked at last.
    seen: u64,
    pub(crate) options: Option<Arc<ValidOptions>>,
    /// Noted by channels, for [`ThreadPublisher::report_interrupted`].
    pub(crate) origin: Origin,
}

/// Why a publication was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The channel cannot be: its name, or its namespace.
    #[error("{}", .0.message)]
    InvalidChannel(Fault),
    /// What is published is not one JSON value, or is not of the namespace's [`DataFormat`](crate::DataFormat).
    #[error("no JSON")]
    InvalidData,
    /// [`THREAD_QUEUE`](crate::limits::THREAD_QUEUE) publications, or [`THREAD_QUEUE_BYTES`](crate::limits::THREAD_QUEUE_BYTES), wait for the channel's worker already.
    /// [`ThreadPublisher::poll_room`] says when there are less.
    #[error("more is being published than can be carried on")]
    Full,
    /// It has more than [`PUBLICATION_BYTES`](crate::limits::PUBLICATION_BYTES).
    #[error("too large")]
    TooLarge,
    /// No worker can publish it: there are no settings yet, or a successor publishes from now on.
    #[error("nothing is pushed yet")]
    NotReady,
}

impl ThreadPublisher {
    pub(crate) fn new(settings: &Arc<Settings>) -> ThreadPublisher {
        ThreadPublisher {
            settings: Arc::clone(settings),
            seen: 0,
            options: None,
            origin: Origin::PROGRAM,
        }
    }

    /// An inlet of another source: channels remember that it has fed them. It publishes into the same queues.
    #[must_use]
    pub fn for_source(&self) -> ThreadPublisher {
        let number = self.settings.sources.fetch_add(1, Ordering::Relaxed);
        ThreadPublisher {
            origin: Origin::source(number),
            ..self.clone()
        }
    }

    /// Whether there are settings and workers. Once there are, there are for good.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.settings.mesh.inbound_queues().is_some() && self.settings.has_options()
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

    /// Hands a publication of JSON to the worker where the channel is at shard, which publishes it soon. Publications of a
    /// channel by one `ThreadPublisher` come out in their order.
    ///
    /// # Errors
    /// [`SubmitError`]: nobody gets it.
    pub fn publish(&mut self, channel: &Arc<str>, json: &[u8]) -> Result<(), SubmitError> {
        if self.settings.hand_over.is_frozen() {
            // The successor has it from its own source.
            return Ok(());
        }
        self.refresh();
        let (Some(options), Some(queues)) = (&self.options, self.settings.mesh.inbound_queues()) else {
            return Err(SubmitError::NotReady);
        };
        let namespace = options.namespace(channel).map_err(SubmitError::InvalidChannel)?;
        let channel_options = namespace.channel_options;
        let queue = queue_of(queues, channel);
        if queue.is_full() {
            return Err(SubmitError::Full);
        }
        let data = compact(&Bytes::copy_from_slice(json)).map_err(|_| SubmitError::InvalidData)?;
        namespace
            .data_format
            .check_json(&data)
            .map_err(|_| SubmitError::InvalidData)?;
        let is_put = queue.enqueue(Inbound::Publication {
            channel: Arc::clone(channel),
            channel_options,
            data,
            origin: self.origin,
        });
        if is_put { Ok(()) } else { Err(SubmitError::Full) }
    }

    /// Hands a command to a worker, which has it done on all of them and then completes the receipt that is issued for it. It may overtake
    /// records that were handed over before and are not done.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was handed over, and no receipt was issued. [`SubmitError::Full`] is also for a window without room
    /// ([`Receipts::has_room`]).
    pub fn submit_command(
        &mut self,
        command: &UserCommand,
        receipts: &mut Receipts,
    ) -> Result<(), SubmitError> {
        if self.settings.hand_over.is_frozen() {
            return Err(SubmitError::NotReady);
        }
        self.refresh();
        let (Some(options), Some(queues)) = (&self.options, self.settings.mesh.inbound_queues()) else {
            return Err(SubmitError::NotReady);
        };
        let order = command
            .to_connection_command(options)
            .map_err(|fault| match fault {
                Fault::LIMIT_EXCEEDED => SubmitError::TooLarge,
                Fault::UNKNOWN_CHANNEL => SubmitError::InvalidChannel(fault),
                _ => SubmitError::InvalidData,
            })?;
        let queue = queue_of(queues, command.user());
        if !receipts.has_room() || !queue.reserve(0) {
            return Err(SubmitError::Full);
        }
        // The window has room.
        let receipt = receipts.issue_one().ok_or(SubmitError::Full)?;
        queue.enqueue_reserved(Inbound::Command(Box::new((order, receipt))));
        queue.wake();
        Ok(())
    }

    /// Reports a change of the records that a source reads to a worker, behind the records that were handed to it. `false`: its queue is full.
    #[must_use]
    pub fn submit_event(&self, worker: usize, id: LogId, event: LogEvent) -> bool {
        self.enqueue_event(worker, Inbound::Log(id, event))
    }

    /// Reports to a worker that a life of a log has ended: records that were delivered are lost, or the log was created again. Its
    /// channels start epochs of their own, and positioned clients are notified. `false`: its queue is full.
    #[must_use]
    pub fn submit_log_ended(&self, worker: usize, id: LogId) -> bool {
        self.enqueue_event(worker, Inbound::LogEnded(id))
    }

    /// Replaces the prefixes of channels that are fed by logs that are not read yet: a client with a position in an unknown log retries.
    /// For workers that have not started yet; [`ThreadPublisher::submit_expected`] is for others.
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
        self.enqueue_event(worker, Inbound::Expected(prefixes.to_vec()))
    }

    fn enqueue_event(&self, worker: usize, arriving: Inbound) -> bool {
        if self.settings.hand_over.is_frozen() {
            // A record before it may not be part of the state, and the successor reads it again.
            return true;
        }
        let queues = self.settings.mesh.inbound_queues().unwrap_or_default();
        queues.get(worker).is_none_or(|queue| queue.enqueue(arriving))
    }

    /// The number of workers; zero until they have started.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.settings
            .mesh
            .inbound_queues()
            .map_or(0, <[InboundQueue]>::len)
    }

    pub(crate) fn refresh(&mut self) {
        if let Some((seen, options)) = self.settings.newer_than(self.seen) {
            self.seen = seen;
            self.options = Some(Arc::new(options));
        }
    }

    /// Ready once something more of this channel may be taken; others may be quicker. At most [`THREAD_QUEUE_WAITERS`] wait at a time
    /// for one worker: beyond that it is ready at once, and whoever publishes finds that there is no room.
    ///
    /// [`THREAD_QUEUE_WAITERS`]: crate::limits::THREAD_QUEUE_WAITERS
    pub fn poll_room(&self, channel: &str, context: &Context<'_>) -> Poll<()> {
        let Some(queues) = self.settings.mesh.inbound_queues() else {
            return Poll::Ready(());
        };
        let queue = queue_of(queues, channel);
        if !queue.is_full() || !queue.register_waiter(context.waker()) {
            return Poll::Ready(());
        }
        // A publication that was taken before the waker was registered has woken no task.
        match queue.is_full() {
            true => Poll::Pending,
            false => Poll::Ready(()),
        }
    }

    /// Reports that a publication of this channel was dropped behind those that were taken: the channel starts a new epoch there, so
    /// that no client recovers across the gap. Positioned clients are notified within a second.
    pub fn report_dropped(&self, channel: &Arc<str>) {
        if let Some(queues) = self.settings.mesh.inbound_queues() {
            queue_of(queues, channel).interrupt(Scope::Channel(Arc::clone(channel)));
        }
    }

    /// Reports that publications may be missing in channels whose names begin with `prefix`, behind those that were taken: a source has
    /// reconnected. Each starts a new epoch, as with [`ThreadPublisher::report_dropped`]. An inlet [of a source](ThreadPublisher::for_source) excepts the channels
    /// that only others have fed.
    pub fn report_interrupted(&self, prefix: &str) {
        let prefix: Arc<str> = Arc::from(prefix);
        let scope = match self.origin {
            Origin::PROGRAM => Scope::Prefix(prefix),
            origin => Scope::Fed(prefix, origin),
        };
        for queue in self.settings.mesh.inbound_queues().unwrap_or_default() {
            queue.interrupt(scope.clone());
        }
    }

    /// Publications that wait for workers, whoever published them.
    #[must_use]
    pub fn waiting(&self) -> usize {
        let queues = self.settings.mesh.inbound_queues().unwrap_or_default();
        queues.iter().map(InboundQueue::len).sum()
    }
}

impl std::fmt::Debug for ThreadPublisher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ThreadPublisher")
    }
}

fn queue_of<'s>(queues: &'s [InboundQueue], channel: &str) -> &'s InboundQueue {
    &queues[worker_of(queues, channel)]
}
