//! Waking: which tasks of a worker want to run, and ending the worker's sleep.
//!
//! Owns the wake bits of one worker ([`WakeSet`]) and its sleep flag ([`Doorbell`]). Knows nothing of
//! tasks, mail or back-ends; it meets a back-end only as a [`Waker`].
//!
//! # Why no wake-up is lost
//!
//! ```text
//! sleeper (the worker)                    waker (any thread)
//! S1  sleeping = true                     W1  publish (bit, mail)
//!     fence(SeqCst)                           fence(SeqCst)
//! S2  look at every queue                 W2  look at sleeping
//!     all empty: wait                         true: swap to false, end the wait
//! ```
//!
//! Sequentially consistent fences are totally ordered. If the sleeper's comes first, W2 sees S1 and the
//! wait is ended. If the waker's comes first, S2 sees W1 and there is no wait. A waker that swaps the flag
//! before the wait has begun is not lost either: [`crate::backend::Backend::waker`] ends a present *or the
//! next* wait. The only other outcome is one wait that ends early for no reason, which is allowed.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use std::sync::{Arc, OnceLock};
use std::task::{Wake, Waker};

use crate::limits;

#[cfg(test)]
mod tests;

/// A worker's sleep flag and the means to end its sleep.
///
/// The worker calls [`Doorbell::prepare_sleep`], looks at all its queues, waits only if they are empty,
/// and calls [`Doorbell::cancel_sleep`] afterwards in either case. Everyone else publishes first
/// and rings then. While the worker is busy a ring costs one fence and one load.
// Padded: peers read the flag on each post, so it must not share a line with anything that changes.
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct Doorbell {
    sleeping: AtomicBool,
    waker: OnceLock<Waker>,
}

impl Doorbell {
    /// A doorbell of a worker that is awake and has no waker yet.
    #[must_use]
    pub fn new() -> Doorbell {
        Doorbell::default()
    }

    /// Installs what ends the worker's sleep; once, from the worker's thread, before its first sleep.
    ///
    /// # Errors
    /// Gives `waker` back if one was installed before; that one stays.
    pub fn install(&self, waker: Waker) -> Result<(), Waker> {
        self.waker.set(waker)
    }

    /// Announces that the worker is about to sleep. Look at every queue after this call, not before.
    ///
    /// # Panics
    /// If no waker was installed: nobody could end that sleep.
    pub fn prepare_sleep(&self) {
        assert!(
            self.waker.get().is_some(),
            "Doorbell::install comes before the first sleep"
        );
        self.sleeping.store(true, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }

    /// The worker is awake: after a wait, or instead of one because a queue was not empty.
    pub fn cancel_sleep(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Ends the worker's sleep if it sleeps. Publish before this call.
    pub fn ring(&self) {
        if self.take_sleeping()
            && let Some(waker) = self.waker.get()
        {
            waker.wake_by_ref();
        }
    }

    /// Whether the worker sleeps, claiming the duty to wake it: after `true` the caller must end the
    /// sleep by a means of its own (`Backend::wake_peer`), for nobody else will. Publish before this call.
    #[must_use = "after `true` the caller has to wake the worker"]
    pub fn take_sleeping(&self) -> bool {
        fence(Ordering::SeqCst);
        // The load keeps the line shared among posters while the worker is busy.
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::SeqCst)
    }
}

/// Bits in a word, and words that one bit of the level above stands for.
const FAN: usize = 64;

/// One bit for each task slot of a worker: set by wakers on any thread, drained by the worker.
///
/// A wake cannot be refused and waking twice before a drain is one wake. Two levels of summary lie
/// above the bits, so a drain costs what is set and not what could be. The memory (one bit a slot) is zeroed
/// by the kernel and touched only where slots are in use.
///
/// Invariant: a set bit whose waker has finished is reachable from the top, or a drain is about to read it.
/// Wakers set from the bit upwards, drains clear from the top downwards, all sequentially consistent: a waker
/// that finds a summary bit set did so before the drain cleared it, hence before the drain read below.
#[derive(Debug)]
pub struct WakeSet {
    top: Box<[AtomicU64]>,
    middle: Box<[AtomicU64]>,
    bits: Box<[AtomicU64]>,
    capacity: u32,
    doorbell: Arc<Doorbell>,
}

impl WakeSet {
    /// A set for slots below `capacity`, ringing `doorbell` on each wake.
    ///
    /// # Panics
    /// If `capacity` exceeds [`limits::WAKE_SLOTS`].
    #[must_use]
    pub fn new(capacity: u32, doorbell: Arc<Doorbell>) -> WakeSet {
        assert!(
            capacity <= limits::WAKE_SLOTS,
            "capacity {capacity} is above limits::WAKE_SLOTS"
        );
        let bits = (capacity as usize).div_ceil(FAN);
        let middle = bits.div_ceil(FAN);
        let top = middle.div_ceil(FAN);
        WakeSet {
            top: zeroed(top),
            middle: zeroed(middle),
            bits: zeroed(bits),
            capacity,
            doorbell,
        }
    }

    /// The waker of `slot`. Make it once and keep it for all tasks that use the slot: a clone is one
    /// count, a new one is one allocation. A waker that outlives its task wakes the slot's next task
    /// for no reason, which futures must bear anyway.
    ///
    /// # Panics
    /// If `slot` is not below the capacity.
    #[must_use]
    pub fn waker(self: &Arc<Self>, slot: u32) -> Waker {
        assert!(
            slot < self.capacity,
            "slot {slot} is not below the capacity {}",
            self.capacity
        );
        Waker::from(Arc::new(SlotWaker {
            set: Arc::clone(self),
            slot,
        }))
    }

    /// Hands every woken slot to `f` once, lowest first, and clears its bit before.
    ///
    /// Slots that `f` itself wakes come in this drain or in the next. `f` must not panic: wakes
    /// taken but not yet handed over would be lost. One thread drains at a time.
    pub fn drain(&self, mut f: impl FnMut(u32)) {
        for (t, word) in self.top.iter().enumerate() {
            for m in take(word) {
                let m = t * FAN + m;
                for b in take(&self.middle[m]) {
                    let b = m * FAN + b;
                    for slot in take(&self.bits[b]) {
                        f(u32::try_from(b * FAN + slot).expect("slots are below 2^24"));
                    }
                }
            }
        }
    }

    /// Whether nothing is set. Reads one word for each 262,144 slots.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.top.iter().all(|word| word.load(Ordering::SeqCst) == 0)
    }

    /// Sets the slot's bit and the summary bits above it, then rings.
    fn wake(&self, slot: u32) {
        let b = slot as usize / FAN;
        set(&self.bits[b], slot as usize);
        set(&self.middle[b / FAN], b);
        set(&self.top[b / FAN / FAN], b / FAN);
        self.doorbell.ring();
    }
}

struct SlotWaker {
    set: Arc<WakeSet>,
    slot: u32,
}

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.set.wake(self.slot);
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.set.wake(self.slot);
    }
}

/// Sets bit `index % 64`, without writing if it is set already.
fn set(word: &AtomicU64, index: usize) {
    let bit = 1 << (index % FAN);
    if word.load(Ordering::SeqCst) & bit == 0 {
        word.fetch_or(bit, Ordering::SeqCst);
    }
}

/// Clears the word and yields the positions that were set, lowest first.
fn take(word: &AtomicU64) -> impl Iterator<Item = usize> {
    // Most words of a scan are empty; a load leaves their line shared.
    let mut left = if word.load(Ordering::SeqCst) == 0 {
        0
    } else {
        word.swap(0, Ordering::SeqCst)
    };
    std::iter::from_fn(move || {
        let position = left.trailing_zeros() as usize;
        left &= left.wrapping_sub(1);
        (position < FAN).then_some(position)
    })
}

/// `words` zero words that the allocator got zeroed, so that untouched pages take no memory.
fn zeroed(words: usize) -> Box<[AtomicU64]> {
    let memory = Box::<[AtomicU64]>::new_zeroed_slice(words);
    // SAFETY: AtomicU64 has the layout of u64, of which all zeroes is a value.
    unsafe { memory.assume_init() }
}
