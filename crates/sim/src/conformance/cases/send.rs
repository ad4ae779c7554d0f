//! Sending, half-close and shutdown.

use ringmain_engine::backend::{Backend, Op, RecvEnd};
use ringmain_engine::limits::{SEND_BYTES, SEND_PIECES};

use super::{Pair, pattern};
use crate::conformance::{FarState, Harness};

/// Far more than the kernel (or a simulated link) takes while nobody reads.
const ROUNDS: usize = 2_000;

/// Sends blocks until one stalls, which is left in flight; the bytes taken so far.
fn send_until_stalled<H: Harness>(pair: &mut Pair<H>, data: &mut Vec<u8>) -> usize {
    let mut taken = 0;
    for _ in 0..ROUNDS {
        let block = pattern(SEND_BYTES - 7);
        pair.driver.send(0, pair.slot, pair.socket, vec![block.clone()]);
        let Some(result) = pair.driver.sent_unless_stalled(0, pair.slot) else {
            data.extend_from_slice(&block);
            return taken;
        };
        let count = result.expect("the peer is there");
        data.extend_from_slice(&block[..count]);
        taken += count;
    }
    panic!("{taken} bytes taken and still no stall");
}

/// Rule S1: the pieces of a send arrive in order, and the count is over all of them.
pub fn pieces_arrive_in_order<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let pieces: Vec<Vec<u8>> = (0..SEND_PIECES).map(|at| vec![b'a' + at as u8; at + 1]).collect();
    let all = pieces.concat();
    pair.driver.send(0, pair.slot, pair.socket, pieces);
    let count = pair.driver.sent(0, pair.slot).expect("the peer is there");
    assert!((1..=all.len()).contains(&count), "{count}");
    pair.driver.send_all(0, pair.slot, pair.socket, &all[count..]);
    assert_eq!(
        pair.driver.peer_read(&mut pair.peer, all.len()),
        (all, FarState::Open)
    );
    pair.finish();
}

/// Rule S2: a send that finds no room waits, and finishes when the peer reads.
pub fn stalled_send_waits_and_goes_on<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let mut data = Vec::new();
    let mut taken = send_until_stalled(&mut pair, &mut data);
    pair.driver.quiet();
    let (mut got, state) = pair.driver.peer_read(&mut pair.peer, taken);
    assert_eq!(state, FarState::Open);
    taken += pair.driver.sent(0, pair.slot).expect("the peer reads");
    if got.len() < taken {
        let missing = taken - got.len();
        got.extend(pair.driver.peer_read(&mut pair.peer, missing).0);
    }
    assert!(got == data[..taken], "bytes differ");
    pair.finish();
}

/// Rule S3: a cancelled send says how much was taken, and the peer gets exactly that.
pub fn cancel_of_a_stalled_send_counts_every_byte<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let mut data = Vec::new();
    let mut taken = send_until_stalled(&mut pair, &mut data);
    pair.driver.cancel(0, Op::Send, pair.slot);
    match pair.driver.sent(0, pair.slot) {
        Ok(count) => taken += count,
        Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ECANCELED), "{error}"),
    }
    pair.driver.harness.worker(0).shutdown_write(pair.socket);
    let (got, state) = pair.driver.peer_read(&mut pair.peer, usize::MAX);
    assert_eq!((got.len(), state), (taken, FarState::Eof));
    assert!(got == data[..taken], "bytes differ");
    pair.finish();
}

/// The two directions of a connection are independent operations of one slot.
pub fn send_and_receive_at_once<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    for round in 0..100_u32 {
        let text = format!("message {round}");
        pair.driver.peer_write(&mut pair.peer, text.as_bytes());
        let got = pair.driver.received(0, pair.slot, pair.socket, text.len());
        pair.driver.send_all(0, pair.slot, pair.socket, &got);
        let (back, _) = pair.driver.peer_read(&mut pair.peer, text.len());
        assert_eq!(back, text.as_bytes());
    }
    pair.finish_receiving();
}

/// Rule S4: after the peer's reset a send fails, and the process gets no signal.
pub fn send_to_a_reset_connection_fails<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
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
    driver.send(0, slot, socket, vec![b"anybody there?".to_vec()]);
    let result = driver.sent(0, slot);
    assert!(result.is_err(), "{result:?}");
    driver.closed(0, slot, socket);
    super::close_listener(&mut driver, listener.0, listener.1);
    driver.finish();
}

/// Rule H1: after `shutdown_write` the peer sees all bytes, then the end; we still receive.
pub fn half_close_keeps_the_other_direction<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.recv();
    pair.driver.send_all(0, pair.slot, pair.socket, b"that is all");
    pair.driver.harness.worker(0).shutdown_write(pair.socket);
    let (got, state) = pair.driver.peer_read(&mut pair.peer, usize::MAX);
    assert_eq!((got.as_slice(), state), (&b"that is all"[..], FarState::Eof));
    pair.driver.peer_write(&mut pair.peer, b"not for me");
    assert_eq!(pair.driver.received(0, pair.slot, pair.socket, 10), b"not for me");
    pair.finish_receiving();
}

/// Rule H1: a send after `shutdown_write` fails.
pub fn nothing_is_sent_after_half_close<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    pair.driver.harness.worker(0).shutdown_write(pair.socket);
    pair.driver.quiet();
    pair.driver
        .send(0, pair.slot, pair.socket, vec![b"too late".to_vec()]);
    let result = pair.driver.sent(0, pair.slot);
    assert!(result.is_err(), "{result:?}");
    pair.finish();
}

/// Rule H2: `shutdown_both` ends what is in flight, without cancel.
pub fn shutdown_both_ends_receive_and_stalled_send<H: Harness>(harness: H) {
    let mut pair = Pair::new(harness);
    let mut data = Vec::new();
    send_until_stalled(&mut pair, &mut data);
    pair.recv();
    pair.driver.quiet();
    pair.driver.harness.worker(0).shutdown_both(pair.socket);
    let result = pair.driver.sent(0, pair.slot);
    assert!(
        result.is_err() || result.as_ref().is_ok_and(|count| *count < SEND_BYTES),
        "{result:?}"
    );
    let end = pair.driver.recv_ended(0, pair.slot);
    assert!(matches!(end, RecvEnd::Eof | RecvEnd::Failed(_)), "{end:?}");
    pair.finish();
}
