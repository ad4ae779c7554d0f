//! What a profile says in figures: whose code runs, which functions take the time, which suspects are among them.
//!
//! Pure; the text and the document are made of the same figures.

mod json;
#[cfg(test)]
mod tests;
mod text;

use std::collections::{BTreeMap, BTreeSet};

use super::folded::{Folded, Side, frames, shown, side};
use super::suspects::{self, Found};

pub use self::json::{VERSION, difference as difference_json, profile as profile_json};
pub use self::text::{difference as difference_text, profile as profile_text};

/// A function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whose code it is.
    pub side: Side,
    /// Samples in which it runs itself; what was inlined into it counts for itself.
    pub own: u64,
    /// Samples in which it is anywhere in the stack.
    pub all: u64,
}

/// The figures.
#[derive(Clone, Debug)]
pub struct Summary {
    /// All samples.
    pub total: u64,
    /// Samples in user code, in the kernel, and in neither that is known.
    pub user: u64,
    /// As above.
    pub kernel: u64,
    /// As above.
    pub other: u64,
    /// Samples whose innermost function has no name, and those with one such anywhere.
    pub unknown: (u64, u64),
    /// Every function, the one with the most samples of its own first.
    pub functions: Vec<Function>,
    /// The suspects that are there, the costliest first.
    pub suspects: Vec<Found>,
}

impl Summary {
    /// Of a profile's stacks.
    #[must_use]
    pub fn of(folded: &Folded) -> Summary {
        let mut sides = BTreeMap::from([(Side::User, 0), (Side::Kernel, 0), (Side::Other, 0)]);
        let mut functions: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for (stack, count) in folded.iter() {
            *sides.entry(side(stack)).or_default() += count;
            // A recursive function is in a stack once.
            let once: BTreeSet<&str> = frames(stack).skip(1).collect();
            for frame in once {
                functions.entry(frame).or_default().1 += count;
            }
            if let Some(last) = frames(stack).skip(1).last() {
                functions.entry(last).or_default().0 += count;
            }
        }
        Summary {
            total: folded.total(),
            user: sides[&Side::User],
            kernel: sides[&Side::Kernel],
            other: sides[&Side::Other],
            unknown: folded.unknown(),
            functions: merged(functions),
            suspects: suspects::find(folded),
        }
    }

    /// The functions of one side with the most samples of their own.
    pub fn top(&self, side: Side, most: usize) -> impl Iterator<Item = &Function> {
        let own = self
            .functions
            .iter()
            .filter(move |function| function.side == side && function.own > 0);
        own.take(most)
    }
}

/// Functions by name, inlined or not; in order.
fn merged(frames: BTreeMap<&str, (u64, u64)>) -> Vec<Function> {
    let mut merged: BTreeMap<(&str, Side), (u64, u64)> = BTreeMap::new();
    for (frame, (own, all)) in frames {
        let frame = shown(frame);
        let sum = merged.entry((frame.name, frame.side)).or_default();
        sum.0 += own;
        // A stack with both is counted twice at most; it is rare, and never more than everything.
        sum.1 += all;
    }
    let mut functions: Vec<Function> = merged
        .into_iter()
        .map(|((name, side), (own, all))| Function {
            name: name.to_owned(),
            side,
            own,
            all,
        })
        .collect();
    functions.sort_by(|a, b| {
        b.own
            .cmp(&a.own)
            .then_with(|| b.all.cmp(&a.all))
            .then_with(|| a.name.cmp(&b.name))
    });
    functions
}
