//! Submission of queued operations in the middle of a turn (rule W5). Worker 0 never waits between `submit` and the check of a case:
//! only worker 1 does, which moves a simulation on.

use std::time::Duration;

use ringmain_engine::Addr;
use ringmain_engine::backend::{Backend, Op, Slot, Socket};
use ringmain_engine::limits::{SEND_BYTES, SEND_PIECES};

use super::{Pair, listen, pattern};
use crate::conformance::{Driver, FarState, Harness};

const STEP: Duration = Duration::from_millis(2);
/// Waits of worker 1 until bytes must have reached the far side.
const STEPS: usize = 5_000;
/// More blocks than the kernel (or a simulated link) takes while the peer does not read.
const BLOCKS: usize = 2_000;

/// Reads at the far side until `count` bytes, while worker 0 does nothing.
fn read_unaided<H: Harness>(driver: &mut Driver<H>, peer: &mut H::Peer, count: usize) -> Vec<u8> {
    let mut got = Vec::new();
    for _ in 0..STEPS {
        assert_eq!(driver.harness.peer_read(peer, &mut got), FarState::Open);
        if got.len() >= count {
            return got;
        }
        driver.turn_for(1, Some(STEP));
    }
    panic!(
        "{} of {count} bytes reached the far side without a wait of the worker",
        got.len()
    );
}

/// Another connection of the pair's worker.
fn another<H: Harness>(pair: &mut Pair<H>, at: &Addr) -> (Slot, Socket, H::Peer) {
    let peer = pair.driver.harness.dial(at);
    let socket = pair.driver.accepted(0, pair.listener.0);
    (pair.driver.slot(), socket, peer)
}

/// Rule W5: a queued operation is submitted without a wait, and its completion follows.
pub fn what_is_submitted_leaves_before_the_next_wait<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let pieces: Vec<Vec<u8>> = (0..SEND_PIECES)
        .map(|at| vec![b'a' + at as u8; 10 + at])
        .collect();
    let all = pieces.concat();
    pair.driver.send(0, pair.slot, pair.socket, pieces);
    pair.driver.harness.worker(0).submit();
    let got = read_unaided(&mut pair.driver, &mut pair.peer, 1);
    let count = pair.driver.sent(0, pair.slot).expect("the peer is connected");
    assert!(
        count >= got.len() && got == all[..got.len()],
        "{count} of {got:?}"
    );
    pair.finish();
}

/// Rules W2 and W5: the clocks of a turn are as before, with and without something to hand over.
pub fn submit_does_not_move_the_clocks<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let before = (pair.driver.now(), pair.driver.harness.worker(0).wall());
    for _ in 0..3 {
        pair.driver.harness.worker(0).submit();
    }
    pair.driver.send(0, pair.slot, pair.socket, vec![b"x".to_vec()]);
    for _ in 0..3 {
        pair.driver.harness.worker(0).submit();
    }
    let after = (pair.driver.now(), pair.driver.harness.worker(0).wall());
    assert_eq!(before, after);
    assert_eq!(pair.driver.sent(0, pair.slot).expect("the peer is connected"), 1);
    assert_eq!(
        pair.driver.peer_read(&mut pair.peer, 1),
        (b"x".to_vec(), FarState::Open)
    );
    pair.finish();
}

/// Rule W5: within a turn, between its completions, submitting loses and doubles none of them.
pub fn submit_between_completions_keeps_each_of_them<H: Harness>(harness: H) {
    const CONNECTIONS: usize = 3;
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let listener_slot = driver.slot();
    driver.accept(0, listener_slot, listener);
    let mut all = Vec::new();
    for _ in 0..CONNECTIONS {
        let peer = driver.harness.dial(&at);
        let socket = driver.accepted(0, listener_slot);
        let slot = driver.slot();
        driver.recv(0, slot, socket);
        all.push((slot, socket, peer));
    }
    for round in 0..30 {
        let text = format!("message {round}");
        for (_, _, peer) in &mut all {
            driver.peer_write(peer, text.as_bytes());
        }
        driver.turn_submitting(0, Some(STEP));
        for (slot, socket, peer) in &mut all {
            let got = driver.received(0, *slot, *socket, text.len());
            assert_eq!(got, text.as_bytes());
            driver.send(0, *slot, *socket, vec![got]);
            driver.harness.worker(0).submit();
            driver.turn_submitting(0, Some(Duration::ZERO));
            let sent = driver.sent(0, *slot).expect("the peer is connected");
            driver.send_all(0, *slot, *socket, &text.as_bytes()[sent..]);
            assert_eq!(driver.peer_read(peer, text.len()).0, text.as_bytes());
        }
    }
    for (slot, socket, _) in &all {
        driver.cancel(0, Op::Recv, *slot);
        driver.recv_ended(0, *slot);
        driver.closed(0, *slot, *socket);
    }
    driver.cancel(0, Op::Accept, listener_slot);
    assert!(listen::accept_ended(&mut driver, listener_slot).is_none());
    driver.closed(0, listener_slot, listener);
    driver.finish();
}

/// Rule W5: a send that waits for its peer keeps its pieces when others are submitted behind it.
pub fn a_stalled_send_keeps_its_pieces_while_others_are_submitted<H: Harness>(harness: H) {
    let mut driver = Driver::new(harness);
    let (listener, at) = driver.harness.listen(0);
    let listener_slot = driver.slot();
    driver.accept(0, listener_slot, listener);
    let peer = driver.harness.dial(&at);
    let socket = driver.accepted(0, listener_slot);
    let slot = driver.slot();
    let mut pair = Pair {
        driver,
        slot,
        socket,
        peer,
        listener: (listener_slot, listener),
    };
    let (other, other_socket, mut other_peer) = another(&mut pair, &at);
    let block = pattern(SEND_BYTES - 7);
    let (mut expected, mut is_stalled) = (Vec::new(), false);
    for _ in 0..BLOCKS {
        let pieces = block
            .chunks(block.len().div_ceil(SEND_PIECES))
            .map(<[u8]>::to_vec)
            .collect();
        pair.driver.send(0, slot, socket, pieces);
        pair.driver.harness.worker(0).submit();
        let Some(result) = pair.driver.sent_unless_stalled(0, slot) else {
            is_stalled = true;
            break;
        };
        expected.extend_from_slice(&block[..result.expect("the peer is connected")]);
    }
    assert!(is_stalled, "{} bytes taken and still no stall", expected.len());
    for round in 0..10_u8 {
        let pieces: Vec<Vec<u8>> = (0..SEND_PIECES).map(|_| vec![round; 3]).collect();
        let text = pieces.concat();
        pair.driver.send(0, other, other_socket, pieces);
        pair.driver.harness.worker(0).submit();
        let sent = pair.driver.sent(0, other).expect("the peer is connected");
        pair.driver.send_all(0, other, other_socket, &text[sent..]);
        assert_eq!(pair.driver.peer_read(&mut other_peer, text.len()).0, text);
    }
    let (mut got, _) = pair.driver.peer_read(&mut pair.peer, expected.len());
    let last = pair.driver.sent(0, slot).expect("the peer reads");
    expected.extend_from_slice(&block[..last]);
    if got.len() < expected.len() {
        let missing = expected.len() - got.len();
        got.extend(pair.driver.peer_read(&mut pair.peer, missing).0);
    }
    assert!(got == expected, "bytes differ");
    pair.driver.closed(0, other, other_socket);
    pair.finish();
}
