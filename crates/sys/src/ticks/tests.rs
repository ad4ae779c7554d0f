//! The tick clock beside the kernel's.

use super::TickClock;
use crate::clock::monotonic;

fn nanoseconds() -> u64 {
    monotonic().as_nanos() as u64
}

#[test]
fn the_tick_clock_follows_the_kernels_clock_or_has_no_rate() {
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
        return;
    };
    let after = nanoseconds();
    // The counters of two CPUs, and both conversions, may differ by some microseconds.
    let slack = 100_000;
    assert!(
        read + slack >= before && read <= after + slack,
        "{before} <= {read} <= {after}"
    );
}
