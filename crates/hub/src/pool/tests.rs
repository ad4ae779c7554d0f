//! Pooled memory is not reused while it has an owner.

use std::sync::Arc;

use bytes::Bytes;

use super::{ArcPool, BufferPool};
use crate::limits::{POOLED_BUFFERS, POOLED_MAX_BYTES, POOLED_MIN_BYTES};

#[test]
fn a_place_is_used_again_when_nobody_has_what_was_there() {
    let mut buffers = BufferPool::default();
    let first = buffers.copy(b"first");
    let place = first.as_ptr();
    let second = buffers.copy(b"second");
    assert_ne!(place, second.as_ptr());
    assert_eq!((&first[..], &second[..]), (&b"first"[..], &b"second"[..]));
    let other = first.clone();
    drop(first);
    assert_ne!(buffers.copy(b"x").as_ptr(), place, "somebody has it");
    drop(other);
    let places: Vec<_> = (0..3).map(|_| buffers.copy(b"third").as_ptr()).collect();
    assert!(places.contains(&place), "the oldest is tried first");
    assert_eq!(&second[..], b"second");
}

#[test]
fn what_is_copied_is_the_same_whatever_its_length() {
    let mut buffers = BufferPool::default();
    let mut held: Vec<(Bytes, Vec<u8>)> = Vec::new();
    for length in [
        0,
        1,
        255,
        256,
        257,
        1000,
        4095,
        POOLED_MAX_BYTES,
        POOLED_MAX_BYTES + 1,
        100_000,
    ] {
        for round in 0..3 {
            let bytes = vec![(length + round) as u8; length];
            held.push((buffers.copy(&bytes), bytes));
            if round == 1 {
                held.remove(0);
            }
        }
    }
    for (copied, bytes) in held {
        assert_eq!(copied, bytes);
    }
}

#[test]
fn no_more_places_are_kept_than_may_be() {
    let mut buffers = BufferPool::default();
    let held: Vec<Bytes> = (0..2 * POOLED_BUFFERS).map(|_| buffers.copy(b"a")).collect();
    assert_eq!(buffers.by_size[0].len(), POOLED_BUFFERS);
    assert!(buffers.by_size.iter().skip(1).all(|row| row.is_empty()));
    drop(held);
    let place = buffers.copy(&[0; POOLED_MIN_BYTES]);
    assert_eq!(place.len(), POOLED_MIN_BYTES);
    assert_eq!(buffers.by_size[0].len(), POOLED_BUFFERS);
}

#[test]
fn what_is_not_used_is_let_go_of() {
    let mut buffers = BufferPool::default();
    let mut shelf: ArcPool<Vec<u8>> = ArcPool::default();
    let (bytes, value) = (buffers.copy(b"a"), shelf.acquire(|value| value.push(1)));
    for left in [1, 0] {
        buffers.shrink();
        shelf.shrink();
        assert_eq!((buffers.by_size[0].len(), shelf.values.len()), (left, left));
    }
    assert_eq!((&bytes[..], &value[..]), (&b"a"[..], &[1][..]));
}

#[test]
fn a_value_is_as_it_was_left_and_nobody_elses() {
    let mut shelf: ArcPool<Vec<u8>> = ArcPool::default();
    let first = shelf.acquire(|value| value.push(1));
    let second = shelf.acquire(|value| value.push(2));
    assert_eq!((&first[..], &second[..]), (&[1][..], &[2][..]));
    drop(first);
    let third = shelf.acquire(|value| value.push(3));
    assert_eq!(&third[..], [1, 3]);
    assert_eq!(&second[..], [2]);
    let weak = Arc::downgrade(&third);
    drop((second, third));
    let next = shelf.acquire(Vec::clear);
    assert!(next.is_empty());
    assert!(
        weak.upgrade().is_some_and(|third| third[..] == [1, 3]),
        "it may still be asked for"
    );
}
