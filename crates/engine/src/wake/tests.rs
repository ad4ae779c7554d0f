//! Wake bits against a plain set, and the sleep protocol under real threads.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::task::{Wake, Waker};
use std::thread;
use std::time::Duration;

use super::{Doorbell, WakeSet};

/// A sleep that, like a back-end's, is ended by a wake during it or before it.
#[derive(Default)]
struct Sleep {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Sleep {
    /// Waits for a wake; false if none came for far longer than any scheduling delay.
    fn wait(&self) -> bool {
        let woken = self.woken.lock().expect("no panic under the lock");
        let limit = Duration::from_secs(30);
        let (mut woken, _) = self
            .changed
            .wait_timeout_while(woken, limit, |woken| !*woken)
            .expect("as above");
        std::mem::take(&mut *woken)
    }
}

impl Wake for Sleep {
    fn wake(self: Arc<Self>) {
        *self.woken.lock().expect("no panic under the lock") = true;
        self.changed.notify_one();
    }
}

/// Counts how often it was woken.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn drained(set: &WakeSet) -> Vec<u32> {
    let mut slots = Vec::new();
    set.drain(|slot| slots.push(slot));
    slots
}

fn check(capacity: u32, wakes: &[u32]) {
    let set = Arc::new(WakeSet::new(capacity, Arc::new(Doorbell::new())));
    assert!(set.is_empty());
    for &slot in wakes {
        set.waker(slot).wake();
        assert!(!set.is_empty());
    }
    let expected: Vec<u32> = wakes
        .iter()
        .copied()
        .collect::<BTreeSet<_>>()
        .into_iter()
        .collect();
    assert_eq!(drained(&set), expected, "capacity {capacity}");
    assert!(set.is_empty());
    assert!(drained(&set).is_empty(), "a second drain finds nothing");
}

#[test]
fn each_woken_slot_is_drained_once_in_order() {
    check(1, &[0]);
    check(64, &[63, 0, 63]);
    check(65, &[64, 3]);
    check(4097, &[4096, 4095, 64, 63, 1]);
    check(1 << 24, &[(1 << 24) - 1, 262_144, 262_143, 4096, 4095, 0]);
    check(200, &(0..200).rev().collect::<Vec<_>>());
    check(0, &[]);
}

#[test]
#[should_panic(expected = "slot 64 is not below the capacity 64")]
fn a_slot_beyond_the_capacity_is_a_bug() {
    let _ = Arc::new(WakeSet::new(64, Arc::new(Doorbell::new()))).waker(64);
}

#[test]
fn a_wake_during_the_drain_is_kept() {
    let set = Arc::new(WakeSet::new(200, Arc::new(Doorbell::new())));
    let (lower, same, higher) = (set.waker(1), set.waker(70), set.waker(190));
    same.wake_by_ref();
    let mut seen = Vec::new();
    set.drain(|slot| {
        seen.push(slot);
        if seen.len() == 1 {
            lower.wake_by_ref();
            same.wake_by_ref();
            higher.wake_by_ref();
        }
    });
    seen.extend(drained(&set));
    seen.sort_unstable();
    assert_eq!(seen, [1, 70, 70, 190]);
}

#[test]
fn only_the_first_ring_of_a_sleep_wakes() {
    let count = Arc::new(Count::default());
    let doorbell = Doorbell::new();
    assert!(doorbell.install(Waker::from(Arc::clone(&count))).is_ok());
    assert!(
        doorbell.install(Waker::noop().clone()).is_err(),
        "the second waker comes back"
    );
    let woken = || count.0.load(Ordering::SeqCst);

    doorbell.ring();
    assert_eq!(woken(), 0, "the worker was awake");
    doorbell.prepare_sleep();
    doorbell.ring();
    doorbell.ring();
    assert_eq!(woken(), 1);
    doorbell.prepare_sleep();
    doorbell.cancel_sleep();
    doorbell.ring();
    assert_eq!(woken(), 1, "the sleep was cancelled");
    doorbell.prepare_sleep();
    assert!(doorbell.take_sleeping());
    assert!(!doorbell.take_sleeping(), "one caller has the duty");
    doorbell.ring();
    assert_eq!(woken(), 1, "the duty was taken");
}

#[test]
#[should_panic(expected = "Doorbell::install comes before the first sleep")]
fn sleeping_without_a_waker_is_a_bug() {
    Doorbell::new().prepare_sleep();
}

/// Distance of the slots in [`hammer`], so that all three levels are contended.
const APART: u32 = 5000;

/// Wakers on several threads count up and wake; the sleeper must see every count.
///
/// With `in_step` each waker awaits the sleeper's answer, so that the sleeper falls asleep over and over.
fn hammer(wakers: u32, rounds: u64, in_step: bool) {
    let sleep = Arc::new(Sleep::default());
    let doorbell = Arc::new(Doorbell::new());
    doorbell
        .install(Waker::from(Arc::clone(&sleep)))
        .expect("the first waker");
    let set = Arc::new(WakeSet::new(wakers * APART, Arc::clone(&doorbell)));
    let posted: Vec<AtomicU64> = (0..wakers).map(|_| AtomicU64::new(0)).collect();
    let seen: Vec<AtomicU64> = (0..wakers).map(|_| AtomicU64::new(0)).collect();
    let failed = AtomicBool::new(false);
    thread::scope(|scope| {
        for i in 0..wakers {
            let (posted, seen, failed) = (&posted[i as usize], &seen[i as usize], &failed);
            let waker = set.waker(i * APART);
            scope.spawn(move || {
                for round in 1..=rounds {
                    // Relaxed: the wake itself must publish it.
                    posted.store(round, Ordering::Relaxed);
                    waker.wake_by_ref();
                    while in_step && seen.load(Ordering::Relaxed) != round {
                        if failed.load(Ordering::Relaxed) {
                            return;
                        }
                        ringmain_testkit::wait::give_way();
                    }
                }
            });
        }
        let mut finished = 0;
        while finished < wakers {
            doorbell.prepare_sleep();
            if set.is_empty() && !sleep.wait() {
                failed.store(true, Ordering::Relaxed);
                panic!("a wake was lost: posted {posted:?}, seen {seen:?}");
            }
            doorbell.cancel_sleep();
            set.drain(|slot| {
                let i = (slot / APART) as usize;
                let now = posted[i].load(Ordering::Relaxed);
                let before = seen[i].swap(now, Ordering::Relaxed);
                assert!(now >= before, "an older count than before");
                finished += u32::from(now == rounds && before < rounds);
            });
        }
    });
}

#[test]
fn no_wake_is_lost_under_a_storm() {
    hammer(4, 50_000, false);
}

#[test]
fn no_wake_is_lost_when_the_worker_sleeps_between() {
    hammer(3, 5_000, true);
}

#[test]
fn the_doorbell_alone_orders_publishing_and_sleeping() {
    const ROUNDS: u64 = 100_000;
    let sleep = Arc::new(Sleep::default());
    let doorbell = Doorbell::new();
    doorbell
        .install(Waker::from(Arc::clone(&sleep)))
        .expect("the first waker");
    // As mail does it: published by a release store, which on its own may pass the look at the flag.
    let (posted, seen) = (AtomicU64::new(0), AtomicU64::new(0));
    thread::scope(|scope| {
        scope.spawn(|| {
            for round in 1..=ROUNDS {
                posted.store(round, Ordering::Release);
                doorbell.ring();
                let mut spins = 0;
                while seen.load(Ordering::Acquire) < round {
                    spins += 1;
                    if spins % 1000 == 0 {
                        // The sleeper may want this very CPU.
                        ringmain_testkit::wait::give_way();
                    }
                    std::hint::spin_loop();
                }
            }
        });
        for round in 1..=ROUNDS {
            // Spinning first lets both sides meet at the flag in every phase.
            for _ in 0..round % 64 {
                std::hint::spin_loop();
            }
            while posted.load(Ordering::Acquire) < round {
                doorbell.prepare_sleep();
                let lost = posted.load(Ordering::Acquire) < round && !sleep.wait();
                doorbell.cancel_sleep();
                if lost {
                    seen.store(ROUNDS, Ordering::Release);
                    panic!("the ring of round {round} was lost");
                }
            }
            seen.store(round, Ordering::Release);
        }
    });
}
