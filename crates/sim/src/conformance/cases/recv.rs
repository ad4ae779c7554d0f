//! Receiving.

use ringmain_engine::backend::{Op, RecvEnd, Slot};

use super::{Pair, pattern};
use crate::conformance::{Event, Harness};

/// Rule R1: every byte once, in order, however it is cut.
pub fn bytes_come_whole_and_in_order<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    let data = pattern(700_001);
    let (mut written, mut got) = (0, Vec::new());
    while got.len() < data.len() {
        written += pair.driver.harness.peer_write(&mut pair.peer, &data[written..]);
        let some = pair.driver.received(0, pair.slot, pair.socket, 1);
        got.extend_from_slice(&some);
    }
    assert!(got == data, "bytes differ");
    pair.finish_receiving();
}

/// Rule R2: what arrived before the operation started is received by it.
pub fn bytes_there_before_the_receive_are_found<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.peer_write(&mut pair.peer, b"early");
    pair.driver.quiet();
    pair.driver.sleeps(0);
    pair.recv();
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 5), b"early");
    pair.finish_receiving();
}

/// Rule R2: `poll_first` is a hint about the first try, not a change of meaning.
pub fn poll_first_finds_bytes_that_are_already_there<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.peer_write(&mut pair.peer, b"early");
    pair.driver.quiet();
    pair.driver.recv_how(0, pair.slot, pair.socket, true);
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 5), b"early");
    pair.driver.peer_write(&mut pair.peer, b"late");
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 4), b"late");
    pair.finish_receiving();
}

/// Rule R3: bytes first, then `Eof`, once.
pub fn end_of_file_follows_the_last_byte<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    pair.driver.peer_write(&mut pair.peer, b"last words");
    pair.driver.harness.peer_shutdown(&mut pair.peer);
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 10), b"last words");
    let end = pair.driver.recv_ended(0, pair.slot);
    assert!(matches!(end, RecvEnd::Eof), "{end:?}");
    pair.driver.quiet();
    pair.recv();
    let again = pair.driver.recv_ended(0, pair.slot);
    assert!(
        matches!(again, RecvEnd::Eof),
        "a later receive finds the end again: {again:?}"
    );
    pair.finish();
}

/// Rule R3, without bytes and with the receive already waiting.
pub fn end_of_file_without_bytes<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    pair.driver.quiet();
    pair.driver.harness.peer_shutdown(&mut pair.peer);
    let end = pair.driver.recv_ended(0, pair.slot);
    assert!(matches!(end, RecvEnd::Eof), "{end:?}");
    pair.finish();
}

/// Rule R3, when all of it happened before the receive.
pub fn bytes_and_fin_waiting_before_the_receive<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.peer_write(&mut pair.peer, b"gone already");
    pair.driver.harness.peer_shutdown(&mut pair.peer);
    pair.driver.quiet();
    pair.recv();
    assert_eq!(
        pair.driver.received(0, pair.slot, pair.socket, 12),
        b"gone already"
    );
    let end = pair.driver.recv_ended(0, pair.slot);
    assert!(matches!(end, RecvEnd::Eof), "{end:?}");
    pair.finish();
}

/// Rule R4: a reset ends the receive with its error.
pub fn reset_ends_receiving<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    pair.driver.quiet();
    let Pair {
        mut driver,
        slot,
        socket,
        peer,
        listener,
    } = pair;
    driver.harness.peer_reset(peer);
    let end = driver.recv_ended(0, slot);
    assert!(matches!(end, RecvEnd::Failed(_)), "{end:?}");
    driver.closed(0, slot, socket);
    super::close_listener(&mut driver, listener.0, listener.1);
    driver.finish();
}

/// Rule R5: after the cancelled end nothing comes, and a later receive gets every byte.
pub fn cancel_ends_receiving_and_loses_no_byte<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let data = pattern(64);
    let mut got = Vec::new();
    for (round, byte) in data.iter().enumerate() {
        pair.recv();
        if round % 2 == 0 {
            pair.driver.turn();
        }
        pair.driver.peer_write(&mut pair.peer, &[*byte]);
        pair.driver.cancel(0, Op::Recv, pair.slot);
        got.extend(drain_to_end(&mut pair));
    }
    pair.driver.quiet();
    pair.recv();
    let rest = data.len() - got.len();
    got.extend(pair.driver.received(0, pair.slot, pair.socket, rest));
    assert_eq!(got, data);
    pair.finish_receiving();
}

/// The bytes up to the end of a cancelled receive, whichever way it ends.
fn drain_to_end<H: Harness>(pair: &mut Pair<H>) -> Vec<u8> {
    let slot = pair.slot;
    let mut got = Vec::new();
    loop {
        let is = |event: &Event| match event {
            Event::Received { slot: of, .. } | Event::RecvEnded { slot: of, .. } => *of == slot,
            _ => false,
        };
        match pair.driver.take(0, "the end of a cancelled receive", is) {
            Event::Received { bytes, more, .. } => {
                got.extend_from_slice(&bytes);
                if !more {
                    return got;
                }
            }
            Event::RecvEnded {
                end: RecvEnd::Cancelled | RecvEnd::NoBuffers,
                ..
            } => return got,
            other => panic!("{other:?}"),
        }
    }
}

/// Rule C1: naming an operation that is not in flight does nothing.
pub fn cancel_of_nothing_does_nothing<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    for op in [Op::Recv, Op::Send, Op::Connect, Op::RecvFrom, Op::Accept] {
        pair.driver.cancel(0, op, pair.slot);
    }
    pair.driver.cancel(
        0,
        Op::Recv,
        Slot {
            index: 4_000,
            generation: 9,
        },
    );
    pair.driver.quiet();
    pair.recv();
    pair.driver.cancel(0, Op::Send, pair.slot);
    pair.driver.peer_write(&mut pair.peer, b"still armed");
    assert_eq!(
        pair.driver.received(0, pair.slot, pair.socket, 11),
        b"still armed"
    );
    pair.finish_receiving();
}

/// Rule C1: a cancel that names another life of the slot does nothing.
pub fn cancel_of_a_former_life_does_nothing<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.slot.generation = 7;
    pair.recv();
    pair.driver.cancel(
        0,
        Op::Recv,
        Slot {
            generation: 6,
            ..pair.slot
        },
    );
    pair.driver.quiet();
    pair.driver.peer_write(&mut pair.peer, b"still armed");
    assert_eq!(
        pair.driver.received(0, pair.slot, pair.socket, 11),
        b"still armed"
    );
    pair.finish_receiving();
}

/// Rule W3: a socket that always has bytes does not keep another one's from coming.
pub fn a_flood_on_one_socket_does_not_starve_another<H: Harness>(harness: H) {
    let mut flooded = Pair::new(harness);
    let (other_at, other_slot) = (flooded.driver.harness.listen(0), flooded.driver.slot());
    flooded.driver.accept(0, other_slot, other_at.0);
    let mut other_peer = flooded.driver.harness.dial(&other_at.1);
    let other = flooded.driver.accepted(0, other_slot);
    let slot = flooded.driver.slot();
    flooded.recv();
    flooded.driver.recv(0, slot, other);
    let block = pattern(256 * 1024);
    let mut written = flooded.driver.harness.peer_write(&mut flooded.peer, &block);
    flooded.driver.peer_write(&mut other_peer, b"me too");
    let mut seen = 0;
    let mut heard = Vec::new();
    for _ in 0..50 {
        flooded.driver.turn();
        seen += flooded.driver.received(0, flooded.slot, flooded.socket, 1).len();
        let more = flooded.driver.harness.peer_write(&mut flooded.peer, &block);
        written += more;
        heard.extend(flooded.driver.received_so_far(0, slot, other));
        if heard.len() == 6 {
            break;
        }
    }
    assert_eq!(
        heard, b"me too",
        "starved while the other socket got {seen} bytes"
    );
    flooded
        .driver
        .received(0, flooded.slot, flooded.socket, written - seen);
    flooded.driver.cancel(0, Op::Recv, slot);
    flooded.driver.recv_ended(0, slot);
    flooded.driver.closed(0, slot, other);
    super::close_listener(&mut flooded.driver, other_slot, other_at.0);
    flooded.finish_receiving();
}
