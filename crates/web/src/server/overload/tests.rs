//! The definition of overload, over time.

use std::time::Duration;

use ringmain_engine::backend::Time;

use super::Overload;

const PATIENCE: Duration = Duration::from_millis(250);

fn at(ms: u64) -> Time {
    Time::default().after(Duration::from_millis(ms))
}

#[test]
fn a_burst_of_late_requests_is_answered() {
    let overload = Overload::default();
    // Queued at once, and answered within a second: the last three quarters of a second they are late.
    for ms in (250..=990).step_by(10) {
        assert!(!overload.refuses(at(ms), true, PATIENCE), "after {ms} ms");
    }
}

#[test]
fn requests_that_stay_late_are_refused_and_those_on_time_answered() {
    let overload = Overload::default();
    let rejected = |ms, late| overload.refuses(at(ms), late, PATIENCE);
    assert!((0..750).step_by(10).all(|ms| !rejected(ms, true)));
    assert!(rejected(750, true));
    assert!(!rejected(751, false), "this one has not waited");
    assert!(rejected(760, true), "one on time is not the end of the overload");
}

#[test]
fn the_end_of_an_overload_is_a_time_without_late_requests() {
    let overload = Overload::default();
    for ms in (0..=1000).step_by(10) {
        overload.refuses(at(ms), true, PATIENCE);
    }
    assert!(overload.refuses(at(1700), true, PATIENCE), "less than that time");
    assert!(!overload.refuses(at(2460), true, PATIENCE), "calm since then");
}

#[test]
fn late_requests_now_and_then_are_no_overload() {
    let overload = Overload::default();
    for second in 0..60 {
        for ms in [0, 100, 200] {
            assert!(!overload.refuses(at(second * 1000 + ms), true, PATIENCE));
        }
    }
}
