//! What of a request's body is kept while it is sent: for another try, and for copies to other upstreams.
//!
//! Bounded: a body that is longer than what it is kept for is forgotten.

use std::cell::{Cell, Ref, RefCell};

use bytes::Bytes;
use ringmain_wire::h1::FieldBlock;

use crate::limits;
use crate::model::Forward;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Kept {
    /// Bytes that are kept at most; 0: none.
    most: usize,
    /// Bytes that another attempt may send again, of those that were sent.
    replayed: usize,
    bytes: RefCell<Vec<u8>>,
    trailers: RefCell<FieldBlock>,
    /// Bytes that were taken from the client are not held any more: more than `most` were sent.
    lost: Cell<bool>,
    /// All of it was taken.
    whole: Cell<bool>,
}

impl Kept {
    /// For what a rule has done with a request. `refusable`: whoever it is for may say that nothing was done for it, when some of its
    /// body was taken already (RFC 9113 §8.7).
    pub(super) fn of(forward: &Forward, refusable: bool) -> Kept {
        let again = forward.retry.as_ref().is_some_and(|retry| retry.attempts > 0);
        let replayed = match again || refusable || forward.hedge.is_some() {
            true => limits::REPLAY_BYTES,
            false => 0,
        };
        let mirrors = forward.mirrors.iter().map(|mirror| mirror.body_bytes);
        let mirrored = mirrors.max().unwrap_or(0).min(limits::MIRROR_BODY_BYTES);
        Kept {
            most: replayed.max(mirrored as usize),
            replayed,
            ..Kept::default()
        }
    }

    /// A piece was taken from the client, to be sent.
    pub(super) fn take(&self, piece: &[u8]) {
        let mut bytes = self.bytes.borrow_mut();
        if self.lost.get() || bytes.len() + piece.len() > self.most {
            self.lost.set(true);
            *bytes = Vec::new();
        } else {
            bytes.extend_from_slice(piece);
        }
    }

    /// A piece was taken from the client before anything of the body is sent. All of these are sent first, so none is forgotten,
    /// and it is time to send when they are more than another try may send: `false`.
    pub(super) fn take_ahead(&self, piece: &[u8]) -> bool {
        let mut bytes = self.bytes.borrow_mut();
        bytes.extend_from_slice(piece);
        bytes.len() <= self.replayed
    }

    /// The same for a request that is not worth a place of its upstream yet.
    pub(super) fn collect(&self, piece: &[u8]) {
        self.take_ahead(piece);
    }

    /// The last piece was taken, and these fields came behind it.
    pub(super) fn end(&self, trailers: FieldBlock) {
        self.whole.set(true);
        // Another try finds none any more.
        if !trailers.is_empty() {
            *self.trailers.borrow_mut() = trailers;
        }
    }

    /// A copy of what was taken so far and is to be sent again.
    pub(super) fn to_bytes(&self) -> Bytes {
        Bytes::copy_from_slice(&self.bytes.borrow())
    }

    /// What was taken so far and is to be sent again.
    pub(super) fn bytes(&self) -> Ref<'_, [u8]> {
        Ref::map(self.bytes.borrow(), Vec::as_slice)
    }

    /// The fields behind the body.
    pub(super) fn trailers(&self) -> Ref<'_, FieldBlock> {
        self.trailers.borrow()
    }

    /// Returns whether another attempt can send all bytes that were taken from the client: each of them is held. A body of any length
    /// is, as long as none of it was sent: an attempt that got no connection can always continue with another endpoint.
    pub(super) fn can_replay(&self) -> bool {
        !self.lost.get()
    }

    /// The whole body for a copy, if it is there and no longer than that.
    pub(super) fn whole(&self, most: u64) -> Option<Ref<'_, [u8]>> {
        let bytes = self.bytes();
        let fits = self.whole.get() && !self.lost.get() && bytes.len() as u64 <= most;
        fits.then_some(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Mirror, Retry};

    fn kept(retry: bool, mirror: Option<u64>) -> Kept {
        let mut forward = Forward::to("x");
        forward.retry = retry.then(Retry::default);
        forward.mirrors = mirror
            .map(|body_bytes| Mirror {
                body_bytes,
                ..Mirror::to("y")
            })
            .into_iter()
            .collect();
        Kept::of(&forward, false)
    }

    #[test]
    fn nothing_is_kept_for_nobody() {
        let none = kept(false, None);
        assert!(none.can_replay());
        none.take(b"x");
        assert!(!none.can_replay() && none.bytes().is_empty());
        none.end(FieldBlock::new());
        assert!(none.whole(10).is_none());
    }

    #[test]
    fn what_may_be_refused_is_kept() {
        let kept = Kept::of(&Forward::to("x"), true);
        kept.take(b"x");
        assert!(kept.can_replay());
        assert_eq!(*kept.bytes(), *b"x");
    }

    #[test]
    fn another_try_has_what_fits() {
        let kept = kept(true, None);
        kept.take(&vec![1; limits::REPLAY_BYTES - 1]);
        kept.take(b"x");
        assert!(kept.can_replay());
        kept.take(b"x");
        assert!(!kept.can_replay() && kept.bytes().is_empty());
    }

    #[test]
    fn a_body_of_any_length_is_held_until_it_is_sent() {
        let forward = Forward {
            hedge: Some(std::time::Duration::from_millis(1)),
            ..Forward::to("x")
        };
        let kept = Kept::of(&forward, false);
        assert!(kept.take_ahead(&vec![1; limits::REPLAY_BYTES]) && kept.can_replay());
        assert!(!kept.take_ahead(b"xy"), "time to send");
        assert!(
            kept.can_replay(),
            "an attempt without a connection has sent nothing"
        );
        assert_eq!(kept.bytes().len(), limits::REPLAY_BYTES + 2);
        // The first try has sent them; what comes then is beyond the limit.
        kept.take(b"z");
        assert!(!kept.can_replay() && kept.bytes().is_empty());
    }

    #[test]
    fn copies_have_the_whole_or_nothing() {
        let kept = kept(true, Some(100_000));
        kept.take(&[1; 100_000]);
        assert!(kept.can_replay(), "all of it is held for the copy");
        assert!(kept.whole(100_000).is_none(), "there may be more");
        kept.end(FieldBlock::new());
        assert_eq!(kept.whole(100_000).map(|bytes| bytes.len()), Some(100_000));
        assert!(kept.whole(99_999).is_none());
    }
}
