//! Pooled memory is not reused while it has an owner.

use std::sync::Arc;

use bytes::Bytes;

use super::{ArcPool, BufferPool};
use crate::limits::{POOLED_BUFFERS, POOLED_MAX_BYTES, POOLED_MIN_BYTES};

#[test]
fn memory_is_reused_once_it_has_no_owner() {
    let mut buffers = BufferPool::default();
    let first = buffers.copy(b"first");
    let memory = first.as_ptr();
    let second = buffers.copy(b"second");
    assert_ne!(memory, second.as_ptr());
    assert_eq!((&first[..], &second[..]), (&b"first"[..], &b"second"[..]));
    let other = first.clone();
    drop(first);
    assert_ne!(buffers.copy(b"x").as_ptr(), memory, "it has an owner");
    drop(other);
    let reused: Vec<_> = (0..3).map(|_| buffers.copy(b"third").as_ptr()).collect();
    assert!(reused.contains(&memory), "the oldest is tried first");
    assert_eq!(&second[..], b"second");
}

#[test]
fn copies_of_any_length_equal_the_original() {
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
fn the_number_of_pooled_buffers_is_limited() {
    let mut buffers = BufferPool::default();
    let held: Vec<Bytes> = (0..2 * POOLED_BUFFERS).map(|_| buffers.copy(b"a")).collect();
    assert_eq!(buffers.by_size[0].len(), POOLED_BUFFERS);
    assert!(buffers.by_size.iter().skip(1).all(|row| row.is_empty()));
    drop(held);
    let memory = buffers.copy(&[0; POOLED_MIN_BYTES]);
    assert_eq!(memory.len(), POOLED_MIN_BYTES);
    assert_eq!(buffers.by_size[0].len(), POOLED_BUFFERS);
}

#[test]
fn unused_memory_is_released() {
    let mut buffers = BufferPool::default();
    let mut pool: ArcPool<Vec<u8>> = ArcPool::default();
    let (bytes, value) = (buffers.copy(b"a"), pool.acquire(|value| value.push(1)));
    for remaining in [1, 0] {
        buffers.shrink();
        pool.shrink();
        assert_eq!(
            (buffers.by_size[0].len(), pool.values.len()),
            (remaining, remaining)
        );
    }
    assert_eq!((&bytes[..], &value[..]), (&b"a"[..], &[1][..]));
}

#[test]
fn values_are_reused_only_without_other_owners() {
    let mut pool: ArcPool<Vec<u8>> = ArcPool::default();
    let first = pool.acquire(|value| value.push(1));
    let second = pool.acquire(|value| value.push(2));
    assert_eq!((&first[..], &second[..]), (&[1][..], &[2][..]));
    drop(first);
    let third = pool.acquire(|value| value.push(3));
    assert_eq!(&third[..], [1, 3]);
    assert_eq!(&second[..], [2]);
    let weak = Arc::downgrade(&third);
    drop((second, third));
    let next = pool.acquire(Vec::clear);
    assert!(next.is_empty());
    assert!(
        weak.upgrade().is_some_and(|third| third[..] == [1, 3]),
        "a weak reference may still be upgraded"
    );
}
