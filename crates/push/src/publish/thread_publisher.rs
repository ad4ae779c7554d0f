//! Publishes from other threads than the workers': for consumers of brokers.
//!
//! ```text
//! any thread ─ ThreadPublisher::publish ─▶ queue of the channel's worker, bounded ─▶ that worker ─▶ shard
//!            ◀─ ThreadPublisher::poll_room ── woken when something was taken ──┘
//! ```
//!
//! Records of sources are submitted in batches: see [`Batch`](super::batch::Batch).
//!
//! A channel's publications use one queue, so that they remain in order. Workers read it without a lock. Publications are checked by the
//! publishing thread, not by the worker.

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
use crate::settings::SharedSettings;

/// Publishes from any thread. Clones publish into the same queues; each checks for newer options by itself.
#[derive(Clone)]
pub struct ThreadPublisher {
    pub(crate) settings: Arc<SharedSettings>,
    /// The generation of `options`.
    generation: u64,
    pub(crate) options: Option<Arc<ValidOptions>>,
    /// Stored by channels, for [`ThreadPublisher::report_interrupted`].
    pub(crate) origin: Origin,
}

/// The reason why a publication was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// The channel's name or namespace is invalid.
    #[error("{}", .0.message)]
    InvalidChannel(Fault),
    /// The data is not one JSON value, or does not have the namespace's [`DataFormat`](crate::DataFormat).
    #[error("not valid JSON for the channel")]
    InvalidData,
    /// The queue of the channel's worker is full: [`THREAD_QUEUE`](crate::limits::THREAD_QUEUE) publications, or
    /// [`THREAD_QUEUE_BYTES`](crate::limits::THREAD_QUEUE_BYTES). [`ThreadPublisher::poll_room`] reports when there is room.
    #[error("overloaded: the queue of the channel's worker is full")]
    Full,
    /// The publication exceeds [`PUBLICATION_BYTES`](crate::limits::PUBLICATION_BYTES).
    #[error("too large")]
    TooLarge,
    /// There are no options yet, or a successor publishes from now on.
    #[error("push is not ready, or has been handed over")]
    NotReady,
}

impl ThreadPublisher {
    pub(crate) fn new(settings: &Arc<SharedSettings>) -> ThreadPublisher {
        ThreadPublisher {
            settings: Arc::clone(settings),
            generation: 0,
            options: None,
            origin: Origin::PROGRAM,
        }
    }

    /// Returns a publisher for another source: channels remember that it has fed them. It publishes into the same queues.
    #[must_use]
    pub fn for_source(&self) -> ThreadPublisher {
        let number = self.settings.sources.fetch_add(1, Ordering::Relaxed);
        ThreadPublisher {
            origin: Origin::source(number),
            ..self.clone()
        }
    }

    /// Returns whether there are options and workers. Once there are, they remain.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.settings.mesh.inbound_queues().is_some() && self.settings.has_options()
    }

    /// Returns whether a successor publishes from now on: nothing is accepted here any more.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.settings.hand_over.is_frozen()
    }

    /// Returns whether the state of a predecessor has not arrived yet. The predecessor has not stopped, so publications from now on follow
    /// its own without a gap, and may duplicate them.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.settings.hand_over.is_awaited()
    }

    /// Publishes JSON through the channel's worker. Publications of a channel by one `ThreadPublisher` remain in their order.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was published.
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
        let is_queued = queue.enqueue(Inbound::Publication {
            channel: Arc::clone(channel),
            channel_options,
            data,
            origin: self.origin,
        });
        if is_queued { Ok(()) } else { Err(SubmitError::Full) }
    }

    /// Submits a command to a worker, which runs it on every worker and then completes the receipt that is issued for it. It may overtake
    /// records that were submitted before.
    ///
    /// # Errors
    /// [`SubmitError`]: nothing was submitted, and no receipt was issued. [`SubmitError::Full`] includes a full window
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

    /// Reports a change of a source's log to a worker, behind the records that were submitted to it. `false`: its queue is full.
    #[must_use]
    pub fn submit_event(&self, worker: usize, id: LogId, event: LogEvent) -> bool {
        self.enqueue_event(worker, Inbound::Log(id, event))
    }

    /// Reports to a worker that an epoch of a log has ended: records that were delivered are lost, or the log was created again. Its
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

    /// Replaces these prefixes on a worker, behind the records that were submitted to it. `false`: its queue is full.
    #[must_use]
    pub fn submit_expected(&self, worker: usize, prefixes: &[Arc<str>]) -> bool {
        self.enqueue_event(worker, Inbound::Expected(prefixes.to_vec()))
    }

    fn enqueue_event(&self, worker: usize, inbound: Inbound) -> bool {
        if self.settings.hand_over.is_frozen() {
            // A record before it may not be part of the state, and the successor reads it again.
            return true;
        }
        let queues = self.settings.mesh.inbound_queues().unwrap_or_default();
        queues.get(worker).is_none_or(|queue| queue.enqueue(inbound))
    }

    /// Returns the number of workers; zero until they have started.
    #[must_use]
    pub fn workers(&self) -> usize {
        self.settings
            .mesh
            .inbound_queues()
            .map_or(0, <[InboundQueue]>::len)
    }

    pub(crate) fn refresh(&mut self) {
        if let Some((generation, options)) = self.settings.newer_than(self.generation) {
            self.generation = generation;
            self.options = Some(Arc::new(options));
        }
    }

    /// Returns `Ready` once the queue of the channel's worker may have room; other publishers may take it first. At most
    /// [`THREAD_QUEUE_WAITERS`] can wait for one worker: a further one is ready at once, and its publication is rejected.
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
        // A publication that was taken before the waker was stored has woken no task.
        if queue.is_full() {
            Poll::Pending
        } else {
            Poll::Ready(())
        }
    }

    /// Reports that a publication of this channel was dropped behind those that were accepted: the channel starts a new epoch there, so
    /// that no client recovers across the gap. Positioned clients are notified within a second.
    pub fn report_dropped(&self, channel: &Arc<str>) {
        if let Some(queues) = self.settings.mesh.inbound_queues() {
            queue_of(queues, channel).interrupt(Scope::Channel(Arc::clone(channel)));
        }
    }

    /// Reports that publications may be missing in channels whose names start with `prefix`, behind those that were accepted: a source has
    /// reconnected. Each channel starts a new epoch, as with [`ThreadPublisher::report_dropped`]. A publisher [of a
    /// source](ThreadPublisher::for_source) excepts the channels that only others have fed.
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

    /// Returns the number of queued publications of every publisher.
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
