//! The tick clock beside the kernel's.

use super::TickClock;
use crate::clock::monotonic;

fn nanoseconds() -> u64 {
    monotonic().as_nanos() as u64
}

/// Clocks of which one must follow: a busy machine can stop this thread between two readings that belong together.
const ATTEMPTS: usize = 50;

#[test]
fn the_tick_clock_follows_the_kernels_clock_or_has_no_rate() {
    let follows = (0..ATTEMPTS).any(|_| follows_or_has_no_rate());
    assert!(
        follows,
        "none of {ATTEMPTS} clocks was within 100 µs of the kernel's"
    );
}

fn follows_or_has_no_rate() -> bool {
    let mut clock = TickClock::new();
    let begun = nanoseconds();
    clock.anchor(begun);
    assert_eq!(clock.read(), None, "one reading gives no rate");
    while nanoseconds() < begun + 2 * super::CALIBRATION_NANOSECONDS {
        std::hint::spin_loop();
    }
    clock.anchor(nanoseconds());
    let before = nanoseconds();
    let Some(read) = clock.read() else {
        // A CPU without a constant counter: the caller reads the kernel's clock.
        return true;
    };
    let after = nanoseconds();
    // The counters of two CPUs, and both conversions, may differ by some microseconds.
    let slack = 100_000;
    read + slack >= before && read <= after + slack
}

#[test]
fn a_reading_that_was_interrupted_does_not_fix_the_rate() {
    const MILLISECOND: u64 = 1_000_000;
    let mut clock = TickClock::new();
    clock.available = true;
    // A tick is a nanosecond, and the thread was stopped for 4 ms between the two clocks of the first reading.
    clock.read_both(4 * MILLISECOND, 0);
    for at in (MILLISECOND..=1_000 * MILLISECOND).step_by(MILLISECOND as usize) {
        clock.read_both(at.max(4 * MILLISECOND), at);
    }
    let exact = 1 << 32;
    let off = clock.rate.abs_diff(exact);
    assert!(off < exact / 100, "{} for {exact}", clock.rate);
}
