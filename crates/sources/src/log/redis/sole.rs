//! Partitions that this node alone appends to: their entries are not read from the server.
//!
//! ```text
//! Reading ─ own appends for SOLE_AFTER, then a check that ends with the own entry ─▶ Sole
//!    ▲── another entry (then for OTHERS_TIME at least), no append for SOLE_SILENCE, a failure ──┘
//! ```
//!
//! In `Sole` an append requests the identifier directly behind the last one. The server refuses it if there is that one or a larger one: an
//! acknowledgement proves that nothing lies between the two entries, and the node receives its own from memory. After
//! [`CHECK_INTERVAL`] the server chooses the identifier, so that it has the time, and all that is behind the last entry is read with it, and
//! that one itself: so that entries which are gone are noticed. An entry of another node arrives with the next own one: owners append a beat
//! each second.

use std::time::Duration;

use super::number::{SEQUENCES, pack};
use crate::redis::EntryId;

/// The time for which a node appends to a partition without a pause before it is taken for the only one. The owner of before may still append
/// for a short time.
const SOLE_AFTER: Duration = Duration::from_secs(3);
/// The time after which a partition that is not appended to is read. More than the interval of beats.
const SOLE_SILENCE: Duration = Duration::from_secs(2);
/// The time for which a partition is read after another node has appended to it.
const OTHERS_TIME: Duration = Duration::from_secs(30);
/// The interval of checks. The time of an entry in the log may be so much before that of its append.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(500);

/// The way to append entries to a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Plan {
    /// The server chooses identifiers. The partition is read.
    Chosen,
    /// The server chooses identifiers, and the entries behind the last one are read with those of the batch.
    Checked,
    /// The first one has this identifier, and the others those behind it.
    Behind(EntryId),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sole {
    is_sole: bool,
    /// The first append, and the last one, of those without a pause.
    appends: Option<[Duration; 2]>,
    checked_at: Option<Duration>,
    /// Another node has appended: the partition is read until then.
    others_until: Duration,
}

impl Sole {
    pub(super) fn is_sole(&self) -> bool {
        self.is_sole
    }

    /// Returns the way to append so many entries behind the last one. `have_keys`: some may be in the log already.
    pub(super) fn plan(&self, last: EntryId, count: usize, have_keys: bool, now: Duration) -> Plan {
        let is_check_due = self
            .checked_at
            .is_none_or(|at| now.saturating_sub(at) >= CHECK_INTERVAL);
        if !self.is_sole {
            let is_alone = self
                .appends
                .is_some_and(|[first, _]| now.saturating_sub(first) >= SOLE_AFTER);
            let may_check = is_alone && is_check_due && now >= self.others_until;
            return if may_check { Plan::Checked } else { Plan::Chosen };
        }
        let next = EntryId {
            sequence: last.sequence.saturating_add(1),
            ..last
        };
        let have_numbers = pack(last).is_some() && last.sequence + (count as u64) < SEQUENCES;
        if is_check_due || !have_numbers || (have_keys && count > 1) {
            Plan::Checked
        } else {
            Plan::Behind(next)
        }
    }

    /// Notes an append that the server has acknowledged.
    pub(super) fn appended(&mut self, now: Duration) {
        let first = match self.appends {
            Some([first, last]) if now.saturating_sub(last) < SOLE_SILENCE => first,
            _ => now,
        };
        self.appends = Some([first, now]);
    }

    /// Notes a check. `is_complete`: it ends with an own entry. `has_others`: it has entries that were not of its batch.
    pub(super) fn checked(&mut self, is_complete: bool, has_others: bool, now: Duration) {
        self.checked_at = Some(now);
        if self.is_sole && has_others {
            self.meet_others(now);
        } else {
            self.is_sole = is_complete;
        }
    }

    /// Notes that another node has appended.
    pub(super) fn meet_others(&mut self, now: Duration) {
        self.is_sole = false;
        self.others_until = now + OTHERS_TIME;
    }

    /// Returns whether the partition is to be read from now on, since there was no append for some time.
    pub(super) fn expire(&mut self, now: Duration) -> bool {
        let is_silent = self
            .appends
            .is_none_or(|[_, last]| now.saturating_sub(last) >= SOLE_SILENCE);
        let was_sole = self.is_sole;
        self.is_sole &= !is_silent;
        was_sole && is_silent
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{CHECK_INTERVAL, OTHERS_TIME, Plan, SOLE_AFTER, SOLE_SILENCE, Sole};
    use crate::log::redis::number::{SEQUENCES, unpack};
    use crate::redis::EntryId;

    const LAST: u64 = 5 * SEQUENCES;

    fn plan(sole: &Sole, now: Duration) -> Plan {
        sole.plan(unpack(LAST), 1, false, now)
    }

    /// A partition that only this node appends to, at a time.
    fn sole() -> (Sole, Duration) {
        let mut sole = Sole::default();
        let mut now = Duration::from_secs(100);
        sole.appended(now);
        for _ in 0..4 {
            assert_eq!(plan(&sole, now), Plan::Chosen);
            now += SOLE_AFTER / 4;
            sole.appended(now);
        }
        assert_eq!(plan(&sole, now), Plan::Checked);
        sole.checked(true, true, now);
        assert!(sole.is_sole(), "own entries of before are among them");
        (sole, now)
    }

    #[test]
    fn appends_that_no_other_interrupts_are_behind_the_last_one() {
        let (mut sole, mut now) = sole();
        let next = unpack(LAST + 1);
        assert_eq!(plan(&sole, now), Plan::Behind(next));
        assert_eq!(sole.plan(unpack(LAST), 9, false, now), Plan::Behind(next));
        now += CHECK_INTERVAL;
        assert_eq!(plan(&sole, now), Plan::Checked);
        sole.checked(true, false, now);
        assert_eq!(plan(&sole, now), Plan::Behind(next));
        assert_eq!(sole.plan(unpack(LAST), 1, true, now), Plan::Behind(next));
    }

    #[test]
    fn appends_that_have_no_identifier_of_their_own_are_checked() {
        let (sole, now) = sole();
        let full = |number, count| sole.plan(unpack(number), count, false, now);
        assert_eq!(
            full(LAST + SEQUENCES - 2, 2),
            Plan::Checked,
            "of the next millisecond"
        );
        assert_eq!(full(LAST + SEQUENCES - 1, 1), Plan::Checked);
        let numberless = EntryId {
            sequence: SEQUENCES + 7,
            ..unpack(LAST)
        };
        assert_eq!(sole.plan(numberless, 1, false, now), Plan::Checked);
        assert_eq!(sole.plan(EntryId::default(), 1, false, now), Plan::Checked);
        assert_eq!(
            sole.plan(unpack(LAST), 2, true, now),
            Plan::Checked,
            "a key may be there"
        );
    }

    #[test]
    fn a_partition_that_another_node_appends_to_is_read() {
        let (mut met, now) = sole();
        met.checked(true, true, now);
        assert!(!met.is_sole());
        let (mut refused, _) = sole();
        refused.meet_others(now);
        for mut other in [met, refused] {
            for second in 0..OTHERS_TIME.as_secs() {
                let now = now + Duration::from_secs(second);
                assert_eq!(plan(&other, now), Plan::Chosen);
                other.appended(now);
            }
            assert_eq!(plan(&other, now + OTHERS_TIME), Plan::Checked);
        }
        let (mut behind, now) = sole();
        behind.checked(false, false, now);
        assert!(!behind.is_sole(), "the check was not complete");
        assert_eq!(plan(&behind, now), Plan::Chosen);
        assert_eq!(plan(&behind, now + CHECK_INTERVAL), Plan::Checked);
    }

    #[test]
    fn a_partition_that_is_not_appended_to_is_read() {
        let (mut sole, now) = sole();
        assert!(!sole.expire(now + SOLE_SILENCE / 2) && sole.is_sole());
        assert!(sole.expire(now + SOLE_SILENCE) && !sole.is_sole());
        assert!(!sole.expire(now + SOLE_SILENCE), "once");
        sole.appended(now + SOLE_SILENCE);
        assert_eq!(plan(&sole, now + SOLE_SILENCE), Plan::Chosen);
    }
}
