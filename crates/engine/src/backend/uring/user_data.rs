//! Packs an operation's kind and slot into `user_data` and back.
//!
//! Layout: kind in the top 8 bits, slot index in the next 24, generation in the low 32.
//! Knows nothing of what the operations do.

use crate::backend::Slot;

/// Which operation a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    Accept = 1,
    Recv,
    Send,
    Close,
    Connect,
    RecvFrom,
    /// The slot's index names an entry of the table of datagrams in flight.
    SendTo,
    /// The slot's index names an entry of the table of gifts in flight.
    Give,
    /// Posted into this ring by another worker's `Give`; the low half is the tag.
    Adopt,
    /// Posted into this ring by another worker's `wake_peer`.
    Wake,
    /// The poll on this worker's own event descriptor.
    Bell,
    /// A result that somebody waits for at once; see `ring::Ring::call`.
    Call,
    /// Nobody reads the result (cancel, shutdown, close of a given socket).
    Ignored,
}

const KINDS: [Kind; 13] = [
    Kind::Accept,
    Kind::Recv,
    Kind::Send,
    Kind::Close,
    Kind::Connect,
    Kind::RecvFrom,
    Kind::SendTo,
    Kind::Give,
    Kind::Adopt,
    Kind::Wake,
    Kind::Bell,
    Kind::Call,
    Kind::Ignored,
];

pub(super) fn pack(kind: Kind, slot: Slot) -> u64 {
    debug_assert!(slot.index < Slot::LIMIT);
    (kind as u64) << 56 | u64::from(slot.index) << 32 | u64::from(slot.generation)
}

/// `user_data` of an operation that has no slot.
pub(super) fn plain(kind: Kind, low: u32) -> u64 {
    (kind as u64) << 56 | u64::from(low)
}

pub(super) fn unpack(user_data: u64) -> (Kind, Slot) {
    let kind = KINDS[usize::from((user_data >> 56) as u8).wrapping_sub(1)];
    let slot = Slot {
        index: (user_data >> 32) as u32 & (Slot::LIMIT - 1),
        generation: user_data as u32,
    };
    (kind, slot)
}
