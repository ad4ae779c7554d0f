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
