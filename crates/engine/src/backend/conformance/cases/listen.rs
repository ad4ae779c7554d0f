//! Accepting.

use std::io;

use super::close_listener;
use crate::backend::conformance::{Driver, Event, Harness};
use crate::backend::{Backend, Op, Slot};

/// Takes the end of the accept on worker 0.
pub(super) fn accept_ended<H: Harness>(driver: &mut Driver<H>, slot: Slot) -> Option<io::Error> {
    let is = |event: &Event| matches!(event, Event::AcceptEnded { slot: of, .. } if *of == slot);
    match driver.take(0, "AcceptEnded", is) {
        Event::AcceptEnded { error, .. } => error,
        other => unreachable!("{other:?}"),
    }
}

/// Rule A1: one `Accepted` for each connection, under different names.
pub fn every_connection_is_accepted_once<H: Harness>(harness: H) {
    const COUNT: usize = 40;
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let slot = driver.slot();
    driver.accept(0, slot, listener);
    let peers: Vec<_> = (0..COUNT).map(|_| driver.harness.dial(&at)).collect();
    let sockets: Vec<_> = peers.iter().map(|_| driver.accepted(0, slot)).collect();
    for (at, socket) in sockets.iter().enumerate() {
        assert!(!sockets[..at].contains(socket), "{socket:?} given out twice");
    }
    for socket in sockets {
        let own = driver.slot();
        driver.closed(0, own, socket);
    }
    close_listener(&mut driver, slot, listener);
    driver.finish();
}

/// Rule A2: cancel is final and without error; what dials meanwhile is accepted later.
pub fn accepting_ends_by_cancel_and_can_start_again<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let slot = driver.slot();
    driver.accept(0, slot, listener);
    driver.quiet();
    driver.cancel(0, Op::Accept, slot);
    let error = accept_ended(&mut driver, slot);
    assert!(error.is_none(), "{error:?}");
    let peer = driver.harness.dial(&at);
    driver.quiet();
    driver.accept(0, slot, listener);
    let socket = driver.accepted(0, slot);
    let own = driver.slot();
    driver.closed(0, own, socket);
    close_listener(&mut driver, slot, listener);
    driver.finish();
    drop(peer);
}

/// Rule A3: an accept on a listener that was shut down ends with an error.
pub fn shutdown_of_a_listener_ends_accepting<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, _) = driver.harness.listen(0);
    let slot = driver.slot();
    driver.accept(0, slot, listener);
    driver.quiet();
    driver.harness.worker(0).shutdown_both(listener);
    let error = accept_ended(&mut driver, slot);
    assert!(error.is_some(), "not cancelled, so there is an error");
    driver.closed(0, slot, listener);
    driver.finish();
}
