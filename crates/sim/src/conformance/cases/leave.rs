//! How sockets leave a worker: close and give.

use ringmain_engine::backend::{Backend, Op, RecvEnd, Slot, Socket, SocketOption};

use super::{Pair, close_listener};
use crate::conformance::{Driver, Event, FarState, Harness};

/// Rule L1: `Closed` comes once, and the peer sees the end after all bytes.
pub fn close_shows_end_of_file<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.send_all(0, pair.slot, pair.socket, b"bye");
    let Pair {
        mut driver,
        slot,
        socket,
        mut peer,
        listener,
    } = pair;
    driver.closed(0, slot, socket);
    let (got, state) = driver.peer_read(&mut peer, usize::MAX);
    assert_eq!((got.as_slice(), state), (&b"bye"[..], FarState::Eof));
    close_listener(&mut driver, listener.0, listener.1);
    driver.finish();
}

/// `SocketOption::ResetOnClose` turns the close into a reset.
pub fn close_with_reset_option_resets<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let set = pair
        .driver
        .harness
        .worker(0)
        .set_option(pair.socket, SocketOption::ResetOnClose);
    set.expect("the option is always there");
    let Pair {
        mut driver,
        slot,
        socket,
        mut peer,
        listener,
    } = pair;
    driver.closed(0, slot, socket);
    let (_, state) = driver.peer_read(&mut peer, usize::MAX);
    assert_eq!(state, FarState::Reset);
    close_listener(&mut driver, listener.0, listener.1);
    driver.finish();
}

/// Rule L2: slots and sockets are reused for ever; no completion of a former life comes.
pub fn slots_live_many_lives<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let listener_slot = driver.slot();
    driver.accept(0, listener_slot, listener);
    let mut slot = driver.slot();
    let mut peer = driver.harness.dial(&at);
    for life in 0..60_u8 {
        let socket = driver.accepted(0, listener_slot);
        slot = Slot {
            generation: u32::from(life) + 2,
            ..slot
        };
        driver.recv(0, slot, socket);
        driver.peer_write(&mut peer, &[life; 9]);
        if life % 3 != 0 {
            assert_eq!(driver.received(0, slot, socket, 9), [life; 9]);
        }
        driver.cancel(0, Op::Recv, slot);
        finish_recv(&mut driver, slot);
        // Every other time the next connection waits already and meets the close in one turn.
        if life % 2 == 0 {
            peer = driver.harness.dial(&at);
            driver.closed(0, slot, socket);
        } else {
            driver.closed(0, slot, socket);
            peer = driver.harness.dial(&at);
        }
    }
    let last = driver.accepted(0, listener_slot);
    driver.closed(0, slot, last);
    close_listener(&mut driver, listener_slot, listener);
    driver.finish();
}

/// Waits for the final completion of a cancelled receive; bytes may come before or as it.
fn finish_recv<H: Harness>(driver: &mut Driver<H>, slot: Slot) {
    loop {
        let is = |event: &Event| match event {
            Event::Received { slot: of, .. } | Event::RecvEnded { slot: of, .. } => *of == slot,
            _ => false,
        };
        match driver.take(0, "the end of a cancelled receive", is) {
            Event::Received { more: true, .. } => {}
            Event::Received { .. }
            | Event::RecvEnded {
                end: RecvEnd::Cancelled | RecvEnd::NoBuffers,
                ..
            } => return,
            other => panic!("{other:?}"),
        }
    }
}

fn given<H: Harness>(driver: &mut Driver<H>, slot: Slot) -> std::io::Result<()> {
    let is = |event: &Event| matches!(event, Event::Given { slot: of, .. } if *of == slot);
    match driver.take(0, "Given", is) {
        Event::Given { result, .. } => result,
        other => unreachable!("{other:?}"),
    }
}

fn adopted<H: Harness>(driver: &mut Driver<H>, worker: usize, tag: u32) -> Socket {
    match driver.take(worker, "Adopted", |event| matches!(event, Event::Adopted { .. })) {
        Event::Adopted { tag: of, socket } => {
            assert_eq!(of, tag);
            socket
        }
        other => unreachable!("{other:?}"),
    }
}

/// Rule G1: the other worker gets the connection, its tag and every byte that waits in it.
pub fn given_connection_moves_to_the_other_worker<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    // It has been received on before, so the giver's side has to let go of it.
    pair.recv();
    pair.driver.cancel(0, Op::Recv, pair.slot);
    pair.driver.recv_ended(0, pair.slot);
    pair.driver.peer_write(&mut pair.peer, b"before");
    pair.driver.give(0, pair.slot, pair.socket, 1, 77);
    let Pair {
        mut driver,
        slot,
        mut peer,
        listener,
        ..
    } = pair;
    given(&mut driver, slot).expect("the other worker's mail is empty");
    let socket = adopted(&mut driver, 1, 77);
    let new = driver.slot();
    driver.recv(1, new, socket);
    assert_eq!(driver.received(1, new, socket, 6), b"before");
    driver.peer_write(&mut peer, b"after");
    assert_eq!(driver.received(1, new, socket, 5), b"after");
    driver.send_all(1, new, socket, b"hello from there");
    assert_eq!(driver.peer_read(&mut peer, 16).0, b"hello from there");
    driver.harness.peer_shutdown(&mut peer);
    let end = driver.recv_ended(1, new);
    assert!(matches!(end, RecvEnd::Eof), "{end:?}");
    driver.closed(1, new, socket);
    close_listener(&mut driver, listener.0, listener.1);
    driver.finish();
}

/// Rule G2: a give that fails leaves the socket with the giver, as it was.
pub fn give_to_a_missing_worker_fails<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.give(0, pair.slot, pair.socket, 999, 1);
    let result = given(&mut pair.driver, pair.slot);
    assert!(result.is_err(), "there is no worker 999");
    pair.recv();
    pair.driver.peer_write(&mut pair.peer, b"still yours");
    assert_eq!(
        pair.driver.received(0, pair.slot, pair.socket, 11),
        b"still yours"
    );
    pair.finish_receiving();
}

/// Rule G1 holds for a worker that gives to itself.
pub fn give_to_oneself<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.give(0, pair.slot, pair.socket, 0, 5);
    given(&mut pair.driver, pair.slot).expect("the worker's own mail is empty");
    pair.socket = adopted(&mut pair.driver, 0, 5);
    pair.slot = pair.driver.slot();
    pair.recv();
    pair.driver.peer_write(&mut pair.peer, b"round trip");
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 10), b"round trip");
    pair.finish_receiving();
}
