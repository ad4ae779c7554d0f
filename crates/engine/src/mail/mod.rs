//! Typed mail: from worker to worker and from foreign threads to workers.
//!
//! Owns the bounded queues and tells when a sleeping receiver has to be woken. Knows nothing of what a
//! message means nor of back-ends: a full queue gives the message back, and its sender decides.
//!
//! ```text
//! worker i  Mailbox::post(j)  -> one wait-free queue for each pair (i, j) -+
//! worker j  Mailbox::post(j)  -> (j, j)                                   -+-> Mailbox::pop, worker j
//! any thread  Inbox::post     -> one lock-free queue for each worker j    -+
//! ```

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam_queue::ArrayQueue;

use crate::limits;
use crate::wake::Doorbell;

#[cfg(test)]
mod tests;

/// Why a message was not taken, with the message.
#[derive(Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PostError<M> {
    /// The receiver has too many messages waiting; it may take one later.
    #[error("the receiving worker's mail queue is full; it works too slowly for what is sent to it")]
    Full(M),
    /// The receiver has ended; it takes no message ever again.
    #[error("the receiving worker has ended")]
    Gone(M),
}

impl<M> PostError<M> {
    /// The message that was not taken.
    #[must_use]
    pub fn into_message(self) -> M {
        match self {
            PostError::Full(message) | PostError::Gone(message) => message,
        }
    }
}

// By hand, so that messages need not be Debug.
impl<M> fmt::Debug for PostError<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PostError::Full(_) => "Full(..)",
            PostError::Gone(_) => "Gone(..)",
        })
    }
}

/// The mailboxes of as many workers as there are doorbells, in their order, all connected.
///
/// `per_pair` is the capacity from one worker to another (normally [`limits::MAIL_PER_PAIR`]), `inbox`
/// that from all foreign threads to one worker (normally [`limits::INBOX`]). The memory
/// is workers² × `per_pair` messages, touched as it is used: box what is large.
///
/// # Panics
/// If a capacity is zero.
#[must_use]
pub fn grid<M: Send>(doorbells: &[Arc<Doorbell>], per_pair: usize, inbox: usize) -> Vec<Mailbox<M>> {
    assert!(per_pair > 0, "mail between workers needs a capacity");
    let mut mailboxes: Vec<Mailbox<M>> = doorbells
        .iter()
        .enumerate()
        .map(|(worker, doorbell)| Mailbox {
            worker,
            peers: Vec::with_capacity(doorbells.len()),
            queues: Vec::with_capacity(doorbells.len()),
            inbox: Inbox(Arc::new(Shared {
                queue: ArrayQueue::new(inbox),
                closed: AtomicBool::new(false),
                doorbell: Arc::clone(doorbell),
            })),
            source: 0,
            in_a_row: 0,
        })
        .collect();
    for from in 0..doorbells.len() {
        for (to, doorbell) in doorbells.iter().enumerate() {
            let (producer, consumer) = rtrb::RingBuffer::new(per_pair);
            mailboxes[from].peers.push(Peer {
                queue: producer,
                doorbell: Arc::clone(doorbell),
            });
            mailboxes[to].queues.push(consumer);
        }
    }
    mailboxes
}

/// One worker's end of the mail: what it sends by and what it receives from.
///
/// When it is dropped, what waits in it is dropped too and senders see [`PostError::Gone`]. What a worker
/// posts in that very moment is dropped with the sender's own end.
pub struct Mailbox<M> {
    worker: usize,
    peers: Vec<Peer<M>>,
    /// One for each worker, by number.
    queues: Vec<rtrb::Consumer<M>>,
    inbox: Inbox<M>,
    /// Whose turn it is: a position in `queues`, or its length for the inbox.
    source: usize,
    /// Messages taken in this turn.
    in_a_row: usize,
}

struct Peer<M> {
    queue: rtrb::Producer<M>,
    doorbell: Arc<Doorbell>,
}

impl<M: Send> Mailbox<M> {
    /// The number of the worker that owns this end.
    #[must_use]
    pub fn worker(&self) -> usize {
        self.worker
    }

    /// What foreign threads post to this worker by.
    #[must_use]
    pub fn inbox(&self) -> Inbox<M> {
        self.inbox.clone()
    }

    /// Sends `message` to a worker, which may be this one. Messages of one pair keep their order.
    ///
    /// `true` means that the receiver sleeps and the caller alone must now wake it, by
    /// `Backend::wake_peer(to)`; with `false` there is nothing to do. A message that was taken
    /// is dropped unread if the receiver ends first.
    ///
    /// # Errors
    /// The message, if the pair's queue is full or the receiver has ended.
    ///
    /// # Panics
    /// If there is no worker `to`.
    pub fn post(&mut self, to: usize, message: M) -> Result<bool, PostError<M>> {
        let peer = &mut self.peers[to];
        if peer.queue.is_abandoned() {
            return Err(PostError::Gone(message));
        }
        match peer.queue.push(message) {
            Ok(()) => Ok(to != self.worker && peer.doorbell.take_sleeping()),
            Err(rtrb::PushError::Full(message)) => Err(PostError::Full(message)),
        }
    }

    /// The next message. Senders take turns of at most [`limits::MAIL_IN_A_ROW`] messages,
    /// the foreign threads together being one sender.
    pub fn pop(&mut self) -> Option<M> {
        // One more than there are sources: the first may be left only because its turn was over.
        for _ in 0..=self.queues.len() + 1 {
            if self.in_a_row < limits::MAIL_IN_A_ROW {
                let message = match self.queues.get_mut(self.source) {
                    Some(queue) => queue.pop().ok(),
                    None => self.inbox.0.queue.pop(),
                };
                if message.is_some() {
                    self.in_a_row += 1;
                    return message;
                }
            }
            self.source = if self.source == self.queues.len() {
                0
            } else {
                self.source + 1
            };
            self.in_a_row = 0;
        }
        None
    }

    /// Gives up to `budget` messages to `f`, as [`Mailbox::pop`] yields them. True if more wait.
    ///
    /// Where handling a message needs the mailbox itself, call `pop` in a loop instead.
    pub fn drain(&mut self, budget: usize, mut f: impl FnMut(M)) -> bool {
        for _ in 0..budget {
            match self.pop() {
                Some(message) => f(message),
                None => return false,
            }
        }
        !self.is_empty()
    }

    /// Whether no message waits. After [`Doorbell::prepare_sleep`] this is the sleeper's look at its mail.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inbox.0.queue.is_empty() && self.queues.iter().all(rtrb::Consumer::is_empty)
    }
}

impl<M> Drop for Mailbox<M> {
    fn drop(&mut self) {
        let shared = &self.inbox.0;
        shared.closed.store(true, Ordering::SeqCst);
        shared.clear();
        // The other ends keep the queues themselves alive.
        for queue in &mut self.queues {
            while queue.pop().is_ok() {}
        }
    }
}

/// The way from any thread to one worker.
pub struct Inbox<M>(Arc<Shared<M>>);

struct Shared<M> {
    queue: ArrayQueue<M>,
    closed: AtomicBool,
    doorbell: Arc<Doorbell>,
}

impl<M> Shared<M> {
    fn clear(&self) {
        while self.queue.pop().is_some() {}
    }
}

impl<M> Clone for Inbox<M> {
    fn clone(&self) -> Self {
        Inbox(Arc::clone(&self.0))
    }
}

impl<M: Send> Inbox<M> {
    /// Sends `message` and wakes the worker if it sleeps. Messages of one thread keep their order.
    /// A message that was taken is dropped unread if the worker ends first.
    ///
    /// # Errors
    /// The message, if the inbox is full or the worker has ended.
    pub fn post(&self, message: M) -> Result<(), PostError<M>> {
        let shared = &*self.0;
        if shared.closed.load(Ordering::SeqCst) {
            return Err(PostError::Gone(message));
        }
        shared.queue.push(message).map_err(PostError::Full)?;
        if shared.closed.load(Ordering::SeqCst) {
            // The worker ended in between and may have cleared the queue before our push.
            shared.clear();
        }
        shared.doorbell.ring();
        Ok(())
    }
}
