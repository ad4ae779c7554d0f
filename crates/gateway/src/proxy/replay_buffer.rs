//! The buffer of a request body that is being sent: for another attempt, and for mirrored requests.
//!
//! Bounded: a body that exceeds the limits of its uses is discarded.

use std::cell::{Cell, Ref, RefCell};

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;

use crate::limits;
use crate::model::Forward;

/// The replay buffer of one request.
#[derive(Debug, Default)]
pub(super) struct ReplayBuffer {
    /// Limit of buffered bytes; 0: none.
    limit: usize,
    /// Limit of bytes, of those already sent, that another attempt may send again.
    replayed: usize,
    bytes: RefCell<Vec<u8>>,
    trailers: RefCell<FieldBlock>,
    /// Set once bytes taken from the client have been discarded, since more than `limit` were sent.
    is_incomplete: Cell<bool>,
    /// Set once the whole body was taken.
    is_complete: Cell<bool>,
}

impl ReplayBuffer {
    /// Creates a buffer for a request of a rule. `may_refuse`: the upstream may report that it has not processed the request after a part of
    /// the body was taken (RFC 9113 §8.7).
    pub(super) fn for_request(forward: &Forward, may_refuse: bool) -> ReplayBuffer {
        let again = forward.retry.as_ref().is_some_and(|retry| retry.attempts > 0);
        let replayed = if again || may_refuse || forward.hedge.is_some() {
            limits::REPLAY_BYTES
        } else {
            0
        };
        let mirrors = forward.mirrors.iter().map(|mirror| mirror.body_bytes);
        let mirrored = mirrors.max().unwrap_or(0).min(limits::MIRROR_BODY_BYTES);
        ReplayBuffer {
            limit: replayed.max(mirrored as usize),
            replayed,
            ..ReplayBuffer::default()
        }
    }

    /// Buffers a piece that was taken from the client and is being sent.
    pub(super) fn push(&self, piece: &[u8]) {
        let mut bytes = self.bytes.borrow_mut();
        if self.is_incomplete.get() || bytes.len() + piece.len() > self.limit {
            self.is_incomplete.set(true);
            *bytes = Vec::new();
        } else {
            bytes.extend_from_slice(piece);
        }
    }

    /// Buffers a piece that was taken from the client before any byte of the body is sent. Every such piece is retained, since all are sent
    /// first. Returns `false` once it is time to send: there are more bytes than another attempt may send.
    pub(super) fn buffer_unsent(&self, piece: &[u8]) -> bool {
        let mut bytes = self.bytes.borrow_mut();
        bytes.extend_from_slice(piece);
        bytes.len() <= self.replayed
    }

    /// Buffers a piece for a request that is not entitled to a slot of its upstream yet.
    pub(super) fn push_unadmitted(&self, piece: &[u8]) {
        self.buffer_unsent(piece);
    }

    /// Records the end of the body, with its trailers.
    pub(super) fn finish(&self, trailers: FieldBlock) {
        self.is_complete.set(true);
        // Another attempt receives no trailers from the client.
        if !trailers.is_empty() {
            *self.trailers.borrow_mut() = trailers;
        }
    }

    /// Copies the bytes that must be sent again.
    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes.borrow())
    }

    /// Returns the bytes that must be sent again.
    pub(super) fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), Vec::as_slice)
    }

    /// Returns the trailers.
    pub(super) fn trailers(&self) -> Ref<'_, FieldBlock> {
        self.trailers.borrow()
    }

    /// Returns whether another attempt can send all bytes that were taken from the client. A body of any length can be, until a byte was
    /// sent: an attempt that got no connection can always continue with another endpoint.
    pub(super) fn can_replay(&self) -> bool {
        !self.is_incomplete.get()
    }

    /// Returns the whole body for a mirrored request, if it is complete and no longer than `limit` bytes.
    pub(super) fn complete_body(&self, limit: u64) -> Option<Ref<'_, [u8]>> {
        let bytes = self.bytes();
        let is_usable = self.is_complete.get() && !self.is_incomplete.get() && bytes.len() as u64 <= limit;
        is_usable.then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Mirror, Retry};

    fn buffer(retry: bool, mirror: Option<u64>) -> ReplayBuffer {
        let mut forward = Forward::to("x");
        forward.retry = retry.then(Retry::default);
        forward.mirrors = mirror
            .map(|body_bytes| Mirror {
                body_bytes,
                ..Mirror::to("y")
            })
            .into_iter()
            .collect();
        ReplayBuffer::for_request(&forward, false)
    }

    #[test]
    fn nothing_is_buffered_without_a_use() {
        let none = buffer(false, None);
        assert!(none.can_replay());
        none.push(b"x");
        assert!(!none.can_replay() && none.bytes().is_empty());
        none.finish(FieldBlock::new());
        assert!(none.complete_body(10).is_none());
    }

    #[test]
    fn a_body_that_may_be_refused_is_buffered() {
        let kept = ReplayBuffer::for_request(&Forward::to("x"), true);
        kept.push(b"x");
        assert!(kept.can_replay());
        assert_eq!(*kept.bytes(), *b"x");
    }

    #[test]
    fn another_attempt_has_the_bytes_up_to_the_limit() {
        let kept = buffer(true, None);
        kept.push(&vec![1; limits::REPLAY_BYTES - 1]);
        kept.push(b"x");
        assert!(kept.can_replay());
        kept.push(b"x");
        assert!(!kept.can_replay() && kept.bytes().is_empty());
    }

    #[test]
    fn a_body_of_any_length_is_held_until_it_is_sent() {
        let forward = Forward {
            hedge: Some(std::time::Duration::from_millis(1)),
            ..Forward::to("x")
        };
        let kept = ReplayBuffer::for_request(&forward, false);
        assert!(kept.buffer_unsent(&vec![1; limits::REPLAY_BYTES]) && kept.can_replay());
        assert!(!kept.buffer_unsent(b"xy"), "time to send");
        assert!(
            kept.can_replay(),
            "an attempt without a connection has sent nothing"
        );
        assert_eq!(kept.bytes().len(), limits::REPLAY_BYTES + 2);
        // The first attempt has sent them; further bytes exceed the limit.
        kept.push(b"z");
        assert!(!kept.can_replay() && kept.bytes().is_empty());
    }

    #[test]
    fn mirrored_requests_have_the_whole_body_or_none() {
        let kept = buffer(true, Some(100_000));
        kept.push(&[1; 100_000]);
        assert!(
            kept.can_replay(),
            "the whole body is buffered for the mirrored request"
        );
        assert!(kept.complete_body(100_000).is_none(), "there may be more");
        kept.finish(FieldBlock::new());
        assert_eq!(
            kept.complete_body(100_000).map(|bytes| bytes.len()),
            Some(100_000)
        );
        assert!(kept.complete_body(99_999).is_none());
    }
}
