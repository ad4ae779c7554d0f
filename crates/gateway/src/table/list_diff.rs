//! The difference of two lists of shared parts, by the identity of the parts alone: none is read.

use std::ops::Range;
use std::sync::Arc;

/// The ranges in which two lists differ: before and behind them both have the same objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListDiff {
    /// The range of the older list.
    pub(crate) old: Range<usize>,
    /// The range of the newer list.
    pub(crate) new: Range<usize>,
}

impl ListDiff {
    pub(crate) fn of<T>(old: &[Arc<T>], new: &[Arc<T>]) -> ListDiff {
        let is_same = |(old, new): &(&Arc<T>, &Arc<T>)| Arc::ptr_eq(old, new);
        let start = old.iter().zip(new).take_while(is_same).count();
        let (old_rest, new_rest) = (&old[start..], &new[start..]);
        let pairs = old_rest.iter().rev().zip(new_rest.iter().rev());
        let end = pairs.take_while(is_same).count();
        ListDiff {
            old: start..old.len() - end,
            new: start..new.len() - end,
        }
    }

    /// Returns the newer position of an object that both lists have, by its older one. `None`: it is within the range of differences.
    pub(crate) fn moved(&self, position: usize) -> Option<usize> {
        if position < self.old.start {
            Some(position)
        } else if position >= self.old.end {
            Some(position - self.old.end + self.new.end)
        } else {
            None
        }
    }
}

/// Returns whether two lists have the same objects.
pub(crate) fn have_same_objects<T>(a: &[Arc<T>], b: &[Arc<T>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}
