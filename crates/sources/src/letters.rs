//! Dead letters that wait for their destination: sent one after the other, beside the reading of records.
//!
//! ```text
//! partition ─ add ─▶ queue ─ send ─▶ topic, subject, stream
//!     ▲               ▲ └─ failed: to the end of the queue, after a back-off
//!     └── taken ◀─────┴─ sent
//! ```
//!
//! A destination that does not exist, or cannot be written, must not stop records that can be published. Nothing is lost meanwhile: the
//! position of a dead letter is not committed before it was sent, and a partition with too many of them is not read.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use crate::feed::DeadLetter;
use crate::limits;
use crate::status::Status;

/// The dead letters of one source, across its connections.
#[derive(Debug)]
pub(crate) struct Letters {
    queue: Mutex<Queue>,
    added: Notify,
    status: Arc<Status>,
    /// The source, in log lines.
    label: Box<str>,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Waiting>,
    /// The bytes of the records in `waiting`.
    bytes: usize,
    /// Those that were sent: the partition, and the number of the record there.
    sent: Vec<Owner>,
    partitions: u64,
    tickets: u64,
    /// The time of the last log line about a letter that could not be sent.
    logged: Option<Instant>,
}

/// A partition's number, and a record's number in it.
type Owner = (u64, u64);

#[derive(Debug)]
struct Waiting {
    ticket: u64,
    /// `None`: its partition is read no more, or from another position.
    owner: Option<Owner>,
    letter: DeadLetter,
}

impl Letters {
    pub(crate) fn new(name: &str, kind: &str, status: &Arc<Status>) -> Arc<Letters> {
        Arc::new(Letters {
            queue: Mutex::default(),
            added: Notify::new(),
            status: Arc::clone(status),
            label: format!("source {name} ({kind})").into(),
        })
    }

    /// Starts a connection. Letters of the one before are dropped if their records are read again (`repeats`), or sent by this one.
    pub(crate) fn start_session(&self, repeats: bool) {
        let queue = &mut *self.queue();
        queue.sent.clear();
        if repeats {
            queue.waiting.clear();
            queue.bytes = 0;
        }
        for waiting in &mut queue.waiting {
            waiting.owner = None;
        }
        self.report(queue);
    }

    /// Returns the number of a new partition.
    pub(crate) fn add_partition(&self) -> u64 {
        let mut queue = self.queue();
        queue.partitions += 1;
        queue.partitions
    }

    /// Ends a partition. Its letters are dropped if their records are read again (`repeats`), or sent all the same.
    pub(crate) fn remove_partition(&self, partition: u64, repeats: bool) {
        let queue = &mut *self.queue();
        let is_owned = |owner: Option<Owner>| owner.is_some_and(|(owner, _)| owner == partition);
        queue.sent.retain(|owner| !is_owned(Some(*owner)));
        if repeats {
            queue.waiting.retain(|waiting| !is_owned(waiting.owner));
            queue.bytes = queue.waiting.iter().map(|waiting| waiting.letter.bytes()).sum();
        }
        for waiting in &mut queue.waiting {
            waiting.owner = waiting.owner.filter(|owner| !is_owned(Some(*owner)));
        }
        self.report(queue);
    }

    pub(crate) fn add(&self, owner: Owner, letter: DeadLetter) {
        let queue = &mut *self.queue();
        queue.tickets += 1;
        queue.bytes += letter.bytes();
        queue.waiting.push_back(Waiting {
            ticket: queue.tickets,
            owner: Some(owner),
            letter,
        });
        self.report(queue);
        self.added.notify_one();
    }

    /// Returns whether no more of them may be held: [`limits::DEAD_LETTER_BYTES`].
    pub(crate) fn is_full(&self) -> bool {
        self.queue().bytes >= limits::DEAD_LETTER_BYTES
    }

    /// Returns the numbers of a partition's records whose letters were sent, each once.
    pub(crate) fn take_sent(&self, partition: u64) -> Vec<u64> {
        let mut queue = self.queue();
        let taken = queue.sent.extract_if(.., |(owner, _)| *owner == partition);
        taken.map(|(_, record)| record).collect()
    }

    /// Takes all letters, for a source that sends them by itself.
    #[cfg(feature = "postgres")]
    pub(crate) fn take_all(&self) -> Vec<(Owner, DeadLetter)> {
        let queue = &mut *self.queue();
        queue.bytes = 0;
        let waiting = queue.waiting.drain(..);
        waiting
            .filter_map(|waiting| Some((waiting.owner?, waiting.letter)))
            .collect()
    }

    /// Sends letters as long as it is polled. One that fails is retried behind the others.
    pub(crate) async fn deliver<F>(&self, send: impl Fn(DeadLetter) -> F) -> Infallible
    where
        F: Future<Output = Result<(), String>>,
    {
        let mut wait = limits::BACKOFF[0];
        loop {
            let Some((ticket, letter)) = self.first() else {
                self.added.notified().await;
                continue;
            };
            let outcome = send(letter).await;
            if self.finish_attempt(ticket, outcome) {
                wait = limits::BACKOFF[0];
            } else {
                sleep(wait).await;
                wait = (2 * wait).min(limits::BACKOFF[1]);
            }
        }
    }

    /// Returns the next letter to send, with its ticket.
    fn first(&self) -> Option<(u64, DeadLetter)> {
        let queue = self.queue();
        queue.waiting.front().map(|it| (it.ticket, it.letter.clone()))
    }

    /// Notes the outcome of an attempt. Returns whether the letter was sent.
    fn finish_attempt(&self, ticket: u64, outcome: Result<(), String>) -> bool {
        match outcome {
            Ok(()) => {
                self.remove(ticket);
                self.status.set_letters_fail(false);
                true
            }
            Err(why) => {
                self.note_failure(&why);
                self.defer(ticket);
                false
            }
        }
    }

    /// Counts a letter that could not be sent, and logs it from time to time.
    pub(crate) fn note_failure(&self, why: &str) {
        self.status.letter_failed();
        let mut queue = self.queue();
        if queue.logged.is_none_or(|at| at.elapsed() >= limits::LOG_INTERVAL) {
            queue.logged = Some(Instant::now());
            log::warn!(
                "{}: dead letters cannot be delivered: {why}; they wait, and records behind them are not committed; retrying",
                self.label
            );
        }
    }

    /// Moves the first letter behind the others.
    fn defer(&self, ticket: u64) {
        let mut queue = self.queue();
        if queue.waiting.front().is_some_and(|first| first.ticket == ticket) {
            queue.waiting.rotate_left(1);
        }
    }

    fn remove(&self, ticket: u64) {
        let queue = &mut *self.queue();
        // It may have been dropped meanwhile.
        let index = queue.waiting.iter().position(|waiting| waiting.ticket == ticket);
        if let Some(sent) = index.and_then(|index| queue.waiting.remove(index)) {
            queue.bytes = queue.bytes.saturating_sub(sent.letter.bytes());
            queue.sent.extend(sent.owner);
        }
        self.report(queue);
    }

    fn report(&self, queue: &Queue) {
        self.status.set_letters_waiting(queue.waiting.len() as u64);
        if queue.waiting.is_empty() {
            self.status.set_letters_fail(false);
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
