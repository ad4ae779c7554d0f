//! The self-tests themselves, where io_uring is there.

use super::*;

/// The thread has 16 places: more rings than that, one after the other, find one only if each gives it back.
#[test]
fn a_ring_gives_its_registration_back() {
    if nop().is_err() {
        println!("SKIPPED: no io_uring here");
        return;
    }
    for _ in 0..40 {
        registered_ring().expect("the place of the ring before is free");
    }
}
