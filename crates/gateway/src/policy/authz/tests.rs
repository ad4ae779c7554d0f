//! When a service is asked and when not, in times that a test says.

use ringmain_engine::backend::Time;

use super::Breaker;
use crate::limits;

#[test]
fn a_service_that_fails_is_left_alone_and_tried_by_one() {
    let breaker = Breaker::default();
    let open = limits::AUTHZ_OPEN;
    let begun = Time(0).after(open);
    for _ in 1..limits::AUTHZ_FAILURES {
        breaker.note(false, begun);
        assert!(breaker.lets_ask(begun));
    }
    breaker.note(true, begun);
    for _ in 0..limits::AUTHZ_FAILURES {
        assert!(breaker.lets_ask(begun));
        breaker.note(false, begun);
    }
    assert!(!breaker.lets_ask(begun));
    let over = begun.after(open);
    // One, and no other until it is known what has come of it, or it was gone for as long.
    assert!(breaker.lets_ask(over) && !breaker.lets_ask(over));
    breaker.note(false, over);
    assert!(!breaker.lets_ask(over));
    let again = over.after(open);
    assert!(breaker.lets_ask(again) && !breaker.lets_ask(again));
    let later = again.after(open);
    assert!(breaker.lets_ask(later));
    breaker.note(true, later);
    assert!(breaker.lets_ask(later) && breaker.lets_ask(later));
}
