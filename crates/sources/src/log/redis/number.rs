//! Identifiers of entries as numbers below 2^53, which clients written in JavaScript represent exactly.

use crate::redis::EntryId;

/// The first millisecond that has a number: 2026-01-01T00:00:00Z.
const BASE_MILLIS: u64 = 1_767_225_600_000;
/// Bits of a number that are the sequence within a millisecond.
const SEQUENCE_BITS: u32 = 12;
/// Entries of one millisecond that have numbers. Redis gives further ones to a server whose clock was set back: those have none.
pub(super) const SEQUENCES: u64 = 1 << SEQUENCE_BITS;
const NUMBERS: u64 = 1 << 53;

/// The number of an entry. `None`: it has none, and no reader delivers it; its writer appends it again.
pub(super) fn pack(id: EntryId) -> Option<u64> {
    let millis = id.millis.checked_sub(BASE_MILLIS)?;
    let is_valid = id.sequence < SEQUENCES && millis < NUMBERS >> SEQUENCE_BITS;
    is_valid.then_some(millis << SEQUENCE_BITS | id.sequence)
}

/// The identifier with a number.
pub(super) fn unpack(number: u64) -> EntryId {
    EntryId {
        millis: BASE_MILLIS + (number >> SEQUENCE_BITS),
        sequence: number % SEQUENCES,
    }
}

#[cfg(test)]
mod tests {
    use super::{BASE_MILLIS, NUMBERS, SEQUENCES, pack, unpack};
    use crate::redis::EntryId;

    fn id(millis: u64, sequence: u64) -> EntryId {
        EntryId { millis, sequence }
    }

    #[test]
    fn numbers_have_the_order_of_identifiers_and_return_to_them() {
        let ids = [
            id(BASE_MILLIS, 0),
            id(BASE_MILLIS, SEQUENCES - 1),
            id(BASE_MILLIS + 1, 0),
            id(BASE_MILLIS + (NUMBERS / SEQUENCES) - 1, SEQUENCES - 1),
        ];
        let numbers: Vec<u64> = ids.iter().filter_map(|id| pack(*id)).collect();
        assert_eq!(numbers, [0, 4095, 4096, NUMBERS - 1]);
        assert!(numbers.iter().map(|number| unpack(*number)).eq(ids));
    }

    #[test]
    fn identifiers_without_a_number() {
        for (what, id) in [
            ("before 2026", id(BASE_MILLIS - 1, 0)),
            ("too many in a millisecond", id(BASE_MILLIS, SEQUENCES)),
            ("after 2095", id(BASE_MILLIS + NUMBERS / SEQUENCES, 0)),
        ] {
            assert_eq!(pack(id), None, "{what}");
        }
    }
}
