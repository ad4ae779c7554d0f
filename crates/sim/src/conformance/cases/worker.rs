//! What concerns the worker as a whole: time, wake-ups, the blocking pool, socket properties.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use ringmain_engine::backend::{Backend, SocketOption};

use super::Pair;
use crate::conformance::{Driver, Harness};

/// Turns of which one must be as quick as the kernel can.
const TURNS: usize = 5_000;

/// Rule W1: with nothing to report a wait may end early, but rarely, and time really passes.
pub fn time_waits_at_least_as_long_as_asked<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    driver.turn_for(0, Some(Duration::ZERO));
    for span in [Duration::from_micros(1500), Duration::from_millis(25)] {
        let start = driver.now();
        let mut waits = 0;
        while driver.now().since(start) < span {
            let left = span - driver.now().since(start);
            driver.turn_for(0, Some(left));
            waits += 1;
        }
        assert!(waits <= 5, "{waits} waits for {span:?}: a busy loop");
    }
    driver.finish();
}

/// Rule W4: what is asked for in microseconds is not kept in milliseconds, and still never ends early for good.
pub fn exact_timeouts_are_exact<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    driver.harness.worker(0).exact_timeouts();
    driver.turn_for(0, Some(Duration::ZERO));
    let span = Duration::from_micros(1250);
    let mut late = || {
        let start = driver.now();
        while driver.now().since(start) < span {
            let left = span - driver.now().since(start);
            driver.turn_for(0, Some(left));
        }
        driver.now().since(start) - span
    };
    // One of them is enough: a busy host makes some late, while rounding to milliseconds would make each of them 750 µs late.
    let is_exact = (0..TURNS).any(|_| late() < Duration::from_micros(500));
    assert!(is_exact, "all of {TURNS} waits were late");
    driver.finish();
}

/// Rule W1: zero does not wait.
pub fn zero_timeout_does_not_wait<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    driver.turn_for(0, Some(Duration::ZERO));
    let mut is_short = || {
        let start = driver.now();
        driver.turn_for(0, Some(Duration::ZERO));
        driver.now().since(start) < Duration::from_millis(1)
    };
    // One of them is enough: a busy host makes some long, while a wait of the kernel's shortest time would make each of them long.
    let is_short = (0..TURNS).any(|_| is_short());
    assert!(is_short, "each of {TURNS} turns of nothing waited");
    driver.finish();
}

/// Rule W2: the clock never goes back and stands still between waits; random numbers differ.
pub fn clocks_and_randomness_move<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let mut last = driver.now();
    for _ in 0..20 {
        driver.turn();
        let now = driver.now();
        assert!(now >= last, "{now:?} after {last:?}");
        assert_eq!(now, driver.now(), "one time for one turn");
        last = now;
    }
    assert!(
        driver.harness.worker(0).wall() > Duration::from_secs(1_500_000_000),
        "a wall clock"
    );
    let (one, two) = (
        driver.harness.worker(0).random(),
        driver.harness.worker(0).random(),
    );
    assert_ne!(one, two);
    driver.finish();
}

/// A wait that somebody's wake has to end, long before its time is over.
fn woken<H: Harness>(driver: &mut Driver<H>) {
    let limit = Duration::from_secs(5);
    let start = driver.now();
    driver.turn_for(0, Some(limit));
    assert!(driver.now().since(start) < limit, "nobody woke the worker");
}

/// Rule K1: a waker ends a wait without end from outside.
pub fn waker_ends_a_wait<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    for _ in 0..20 {
        let waker = driver.harness.worker(0).waker();
        driver.harness.wake_soon(waker);
        woken(&mut driver);
    }
    driver.finish();
}

/// Rule K1: a wake before the wait ends the next one.
pub fn wake_before_the_wait_is_kept<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    for _ in 0..20 {
        driver.harness.worker(0).waker().wake_by_ref();
        woken(&mut driver);
    }
    driver.finish();
}

/// Rule K2: wakes do not add up; after they are seen a wait waits again.
pub fn many_wakes_are_one<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let waker = driver.harness.worker(0).waker();
    for _ in 0..1000 {
        waker.wake_by_ref();
    }
    woken(&mut driver);
    driver.sleeps(0);
    driver.finish();
}

/// Rule K3: a worker wakes another one, which needs no completion for it.
pub fn peer_wakes_peer<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    for _ in 0..20 {
        driver.harness.worker(1).wake_peer(0);
        // Whatever the worker queued for the kernel goes out when it waits.
        driver.turn_for(1, Some(Duration::ZERO));
        woken(&mut driver);
    }
    driver.finish();
}

/// Rule B1: a job runs once, and its waker ends the worker's wait.
pub fn blocking_job_runs_and_wakes<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let ran = Arc::new(AtomicU32::new(0));
    for round in 1..=5 {
        let (waker, count) = (driver.harness.worker(0).waker(), Arc::clone(&ran));
        let job = Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
            waker.wake();
        });
        driver
            .harness
            .worker(0)
            .run_blocking(job)
            .expect("an idle pool takes a job");
        while ran.load(Ordering::SeqCst) < round {
            woken(&mut driver);
        }
    }
    driver.quiet();
    assert_eq!(ran.load(Ordering::SeqCst), 5);
    driver.finish();
}

/// The peer's address is the one that the far side has.
pub fn addresses_are_reported<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let expected = pair.driver.harness.peer_addr(&pair.peer);
    let found = pair
        .driver
        .harness
        .worker(0)
        .peer_addr(pair.socket)
        .expect("connected");
    assert_eq!(found, expected);
    match pair.driver.harness.worker(0).local_addr(pair.socket) {
        Ok(found) => assert!(found.is_some(), "an accepted connection has a local address"),
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::Unsupported, "{error}"),
    }
    pair.finish();
}

/// Every option can be set on an open connection.
pub fn options_are_taken<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let options = [
        SocketOption::NoDelay(true),
        SocketOption::NoDelay(false),
        SocketOption::NotSentLowWater(16 * 1024),
        SocketOption::SendBuffer(32 * 1024),
        SocketOption::ReceiveBuffer(32 * 1024),
        SocketOption::KeepAlive(true),
        SocketOption::UserTimeout(40_000),
    ];
    for option in options {
        let result = pair.driver.harness.worker(0).set_option(pair.socket, option);
        result.unwrap_or_else(|error| panic!("{option:?}: {error}"));
    }
    pair.finish();
}
