//! Accepting.

use std::io;

use ringmain_engine::backend::{Backend, Op, Slot};

use super::close_listener;
use crate::conformance::{Driver, Event, Harness};

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
    driver.sleeps(0);
    driver.accept(0, slot, listener);
    let socket = driver.accepted(0, slot);
    let own = driver.slot();
    driver.closed(0, own, socket);
    close_listener(&mut driver, slot, listener);
    driver.finish();
    drop(peer);
}

/// Rule A4: `accept_now` empties the queue, oldest first, and says when it is empty instead of waiting.
pub fn accept_now_empties_the_queue<H: Harness>(harness: H) {
    const COUNT: usize = 5;
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let none = driver.harness.worker(0).accept_now(listener).expect("it listens");
    assert_eq!(none, None, "nobody dialled yet");
    let mut peers: Vec<_> = (0..COUNT).map(|_| driver.harness.dial(&at)).collect();
    for (peer, text) in peers.iter_mut().zip(["a", "b", "c", "d", "e"]) {
        driver.peer_write(peer, text.as_bytes());
    }
    let mut heard = Vec::new();
    while let Some(socket) = driver.harness.worker(0).accept_now(listener).expect("it listens") {
        let slot = driver.slot();
        driver.recv(0, slot, socket);
        heard.extend(driver.received(0, slot, socket, 1));
        driver.cancel(0, Op::Recv, slot);
        driver.recv_ended(0, slot);
        driver.closed(0, slot, socket);
    }
    assert_eq!(heard, b"abcde");
    let slot = driver.slot();
    driver.closed(0, slot, listener);
    driver.finish();
}

/// Rule A4: after a cancelled accept what came meanwhile is found by `accept_now`, and accepting may start again.
pub fn accept_now_after_a_cancelled_accept<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let slot = driver.slot();
    driver.accept(0, slot, listener);
    driver.quiet();
    driver.cancel(0, Op::Accept, slot);
    assert!(accept_ended(&mut driver, slot).is_none());
    let _first = driver.harness.dial(&at);
    let first = driver.harness.worker(0).accept_now(listener).expect("it listens");
    let first = first.expect("one is waiting");
    driver.accept(0, slot, listener);
    let _second = driver.harness.dial(&at);
    let second = driver.accepted(0, slot);
    for socket in [first, second] {
        let own = driver.slot();
        driver.closed(0, own, socket);
    }
    close_listener(&mut driver, slot, listener);
    driver.finish();
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

/// Rule A4: what waits when accepting has been cancelled can be taken one by one, to the last.
pub fn a_cancelled_listener_can_be_emptied<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let slot = driver.slot();
    driver.accept(0, slot, listener);
    driver.quiet();
    driver.cancel(0, Op::Accept, slot);
    assert!(accept_ended(&mut driver, slot).is_none());
    let mut peers: Vec<_> = (0..3).map(|_| driver.harness.dial(&at)).collect();
    driver.quiet();
    for peer in &mut peers {
        let socket = driver.harness.worker(0).accept_now(listener).expect("open");
        let socket = socket.expect("one is waiting");
        let own = driver.slot();
        driver.send_all(0, own, socket, b"welcome");
        assert_eq!(driver.peer_read(peer, 7).0, b"welcome");
        driver.closed(0, own, socket);
    }
    assert_eq!(driver.harness.worker(0).accept_now(listener).expect("open"), None);
    driver.closed(0, slot, listener);
    driver.finish();
}
