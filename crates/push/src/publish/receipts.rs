//! Receipts of publications from other threads: a source commits a record once its channel has it.
//!
//! ```text
//! source ── issue ─▶ number ── with the publication ─▶ worker ── complete ─▶ window
//!        ◀─ advance: outcomes in the order of issue, up to the first unknown one ──┘
//! ```
//!
//! Records of one partition are for channels of several workers, so they complete out of order. The window bounds the number in flight.
//! Publications travel in batches, with one [`Completion`] each.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The outcome of a publication that a worker received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReceiptOutcome {
    /// The channel has it.
    Published,
    /// The channel had it before.
    Duplicate,
    /// The limit of channels is reached, and no channel can be removed.
    ChannelLimit,
}

const PENDING: u8 = 0;
const PUBLISHED: u8 = 1;
const DUPLICATE: u8 = 2;
const CHANNEL_LIMIT: u8 = 3;

/// The receipts of one source's partition.
#[derive(Debug)]
pub struct Receipts {
    window: Arc<Window>,
    issued: u64,
    advanced: u64,
}

#[derive(Debug)]
struct Window {
    outcomes: Box<[AtomicU8]>,
    is_awaited: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

/// Completes the receipts of a batch. One that is dropped completes no further receipt: records in flight when a worker stops are not
/// committed.
#[derive(Debug)]
pub(crate) struct Completion {
    window: Arc<Window>,
}

/// The receipt of one command. One that is dropped is never completed.
#[derive(Debug)]
pub(crate) struct Receipt {
    completion: Completion,
    number: u32,
}

impl Receipts {
    /// Creates a window of at most `limit` receipts in flight, at least one.
    #[must_use]
    pub fn new(limit: usize) -> Receipts {
        let outcomes = (0..limit.max(1)).map(|_| AtomicU8::new(PENDING)).collect();
        Receipts {
            window: Arc::new(Window {
                outcomes,
                is_awaited: AtomicBool::new(false),
                waker: Mutex::new(None),
            }),
            issued: 0,
            advanced: 0,
        }
    }

    /// Returns whether another receipt can be issued. `false`: the window is full; see [`Receipts::poll_progress`].
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.in_flight() < self.window.outcomes.len() as u64
    }

    /// Issues the next receipt: its number in the window. `None`: the window is full.
    pub(crate) fn issue(&mut self) -> Option<u32> {
        if !self.has_room() {
            return None;
        }
        self.issued += 1;
        Some(self.index(self.issued - 1) as u32)
    }

    /// Issues the next receipt, for a command. `None`: the window is full.
    pub(crate) fn issue_one(&mut self) -> Option<Receipt> {
        let number = self.issue()?;
        Some(Receipt {
            completion: self.completion(),
            number,
        })
    }

    /// Returns the part that completes receipts.
    pub(crate) fn completion(&self) -> Completion {
        Completion {
            window: Arc::clone(&self.window),
        }
    }

    fn index(&self, receipt: u64) -> usize {
        (receipt % self.window.outcomes.len() as u64) as usize
    }

    /// Returns the number of receipts in flight: issued, and not advanced past.
    #[must_use]
    pub fn in_flight(&self) -> u64 {
        self.issued - self.advanced
    }

    /// Removes the oldest receipt in flight and returns its outcome. `None`: it is not known yet, or none is in flight.
    pub fn advance(&mut self) -> Option<ReceiptOutcome> {
        if self.in_flight() == 0 {
            return None;
        }
        let outcome = &self.window.outcomes[self.index(self.advanced)];
        let receipted = match outcome.load(Ordering::Acquire) {
            PUBLISHED => ReceiptOutcome::Published,
            DUPLICATE => ReceiptOutcome::Duplicate,
            CHANNEL_LIMIT => ReceiptOutcome::ChannelLimit,
            _ => return None,
        };
        // A worker stores into it again only after it was issued again, by a queue that orders the two.
        outcome.store(PENDING, Ordering::Relaxed);
        self.advanced += 1;
        Some(receipted)
    }

    /// Returns `Ready` once the outcome of the oldest receipt in flight is known, or none is in flight.
    pub fn poll_progress(&self, context: &Context<'_>) -> Poll<()> {
        if self.in_flight() == 0 {
            return Poll::Ready(());
        }
        let oldest = &self.window.outcomes[self.index(self.advanced)];
        if oldest.load(Ordering::Acquire) != PENDING {
            return Poll::Ready(());
        }
        let mut waker = self.window.waker.lock().unwrap_or_else(PoisonError::into_inner);
        *waker = Some(context.waker().clone());
        drop(waker);
        self.window.is_awaited.store(true, Ordering::SeqCst);
        // Either the worker reads the flag, or this thread the outcome: see `Completion::wake`.
        fence(Ordering::SeqCst);
        match oldest.load(Ordering::Acquire) {
            PENDING => Poll::Pending,
            _ => Poll::Ready(()),
        }
    }
}

impl Receipt {
    /// Reports the outcome.
    pub(crate) fn complete(self, receipted: ReceiptOutcome) {
        self.completion.complete(self.number, receipted);
        self.completion.wake();
    }
}

impl Completion {
    /// Reports the outcome of a receipt. [`Completion::wake`] has to follow.
    pub(crate) fn complete(&self, receipt: u32, receipted: ReceiptOutcome) {
        let outcome = match receipted {
            ReceiptOutcome::Published => PUBLISHED,
            ReceiptOutcome::Duplicate => DUPLICATE,
            ReceiptOutcome::ChannelLimit => CHANNEL_LIMIT,
        };
        self.window.outcomes[receipt as usize].store(outcome, Ordering::Release);
    }

    /// Wakes the source if it waits for progress.
    pub(crate) fn wake(&self) {
        fence(Ordering::SeqCst);
        if self.window.is_awaited.load(Ordering::SeqCst)
            && self.window.is_awaited.swap(false, Ordering::SeqCst)
        {
            let mut waker = self.window.waker.lock().unwrap_or_else(PoisonError::into_inner);
            let waker = waker.take();
            if let Some(waker) = waker {
                waker.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ReceiptOutcome, Receipts};

    fn complete(receipts: &Receipts, receipt: u32, receipted: ReceiptOutcome) {
        let completion = receipts.completion();
        completion.complete(receipt, receipted);
        completion.wake();
    }

    #[test]
    fn outcomes_advance_in_the_order_of_issue() {
        let mut receipts = Receipts::new(3);
        let [first, second, third] = [(); 3].map(|()| receipts.issue().expect("room"));
        assert!(receipts.issue().is_none(), "the window is full");
        complete(&receipts, third, ReceiptOutcome::Duplicate);
        complete(&receipts, second, ReceiptOutcome::ChannelLimit);
        assert_eq!(receipts.advance(), None);
        complete(&receipts, first, ReceiptOutcome::Published);
        let outcomes = [(); 4].map(|()| receipts.advance());
        let expected = [
            ReceiptOutcome::Published,
            ReceiptOutcome::ChannelLimit,
            ReceiptOutcome::Duplicate,
        ]
        .map(Some);
        assert_eq!((&outcomes[..3], outcomes[3]), (&expected[..], None));
        assert_eq!(receipts.in_flight(), 0);
        assert!(receipts.issue().is_some());
    }

    #[test]
    fn a_lost_receipt_is_not_advanced_past() {
        let mut receipts = Receipts::new(2);
        let first = receipts.issue().expect("room");
        assert!(receipts.issue().is_some());
        assert!(!receipts.has_room());
        complete(&receipts, first, ReceiptOutcome::Published);
        assert_eq!(receipts.advance(), Some(ReceiptOutcome::Published));
        assert_eq!((receipts.advance(), receipts.in_flight()), (None, 1));
    }

    #[test]
    fn progress_wakes_the_source() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};
        use std::task::{Context, Poll, Wake, Waker};

        struct Count(AtomicUsize);
        impl Wake for Count {
            fn wake(self: Arc<Self>) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let count = Arc::new(Count(AtomicUsize::new(0)));
        let waker = Waker::from(Arc::clone(&count));
        let context = Context::from_waker(&waker);
        let mut receipts = Receipts::new(1);
        assert_eq!(receipts.poll_progress(&context), Poll::Ready(()));
        let receipt = receipts.issue().expect("room");
        assert_eq!(receipts.poll_progress(&context), Poll::Pending);
        complete(&receipts, receipt, ReceiptOutcome::Published);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert_eq!(receipts.poll_progress(&context), Poll::Ready(()));
    }
}
