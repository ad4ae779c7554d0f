//! The usual suspects: what hosts are known to spend CPU time on besides the work itself, found by functions in stacks, each with the
//! step that takes it away.
//!
//! Pure: a table over folded stacks. A stack counts once for each suspect that is anywhere in it, so that shares overlap.

mod table;
#[cfg(test)]
mod tests;

pub use self::table::SUSPECTS;
use super::folded::{Folded, Side, frames, shown};
use crate::catalogue::Id;

/// Something that costs, and what to do about it.
#[derive(Debug)]
pub struct Suspect {
    /// Its name in documents, which does not change.
    pub key: &'static str,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What takes it away, or makes it less, and what speaks against that.
    pub remedy: &'static str,
    /// The steps of `ringmain tune` that say more and do it, the nearest first; none where it is not the host that has to change.
    pub steps: &'static [Id],
    /// Whose functions are meant.
    side: Side,
    /// Functions that are it; a `*` at the end stands for anything.
    functions: &'static [&'static str],
    /// If any, one of these has to be one of the [`NEAR`] frames around it.
    within: &'static [&'static str],
    /// None of these may be one of the frames around it.
    outside: &'static [&'static str],
    /// None of these may be in the stack at all.
    without: &'static [&'static str],
}

/// How far out is still around a function: a lock's caller is near, and over loopback a sender's stack holds the receiver's, too.
const NEAR: usize = 3;

/// A suspect that was found.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Which.
    pub suspect: &'static Suspect,
    /// Samples of stacks that it is in.
    pub samples: u64,
    /// Those where the function itself runs.
    pub innermost: u64,
}

/// All that are in these stacks, the costliest first.
#[must_use]
pub fn find(folded: &Folded) -> Vec<Found> {
    let mut found: Vec<Found> = SUSPECTS
        .iter()
        .map(|suspect| Found {
            suspect,
            samples: 0,
            innermost: 0,
        })
        .collect();
    for (stack, count) in folded.iter() {
        // The first is the thread's name.
        let stack: Vec<_> = frames(stack).skip(1).map(shown).collect();
        let stack: Vec<(&str, Side)> = stack.iter().map(|frame| (bare(frame.name), frame.side)).collect();
        for found in &mut found {
            if let Some(at) = found.suspect.place(&stack) {
                found.samples += count;
                found.innermost += if at + 1 == stack.len() { count } else { 0 };
            }
        }
    }
    found.retain(|found| found.samples > 0);
    found.sort_by_key(|found| std::cmp::Reverse(found.samples));
    found
}

impl Suspect {
    /// The innermost place in a stack where it is.
    fn place(&self, stack: &[(&str, Side)]) -> Option<usize> {
        let mut inward = stack.iter().enumerate().rev();
        let (at, _) =
            inward.find(|(_, (name, side))| *side == self.side && is_one_of(name, self.functions))?;
        let holds =
            |part: &[(&str, Side)], names: &[&str]| part.iter().any(|(name, _)| is_one_of(name, names));
        let around = &stack[at.saturating_sub(NEAR)..at];
        let held = self.within.is_empty() || holds(around, self.within);
        (held && !holds(around, self.outside) && !holds(stack, self.without)).then_some(at)
    }
}

/// A function's name without what compilers add to parts and copies of it: `tcp_ack.isra.0`, `f.cold`.
fn bare(name: &str) -> &str {
    let cut = [".isra.", ".part.", ".constprop.", ".cold", ".llvm."];
    let ends = cut.iter().filter_map(|suffix| name.find(suffix));
    &name[..ends.min().unwrap_or(name.len())]
}

fn is_one_of(name: &str, patterns: &[&str]) -> bool {
    patterns.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(beginning) => name.starts_with(beginning),
        None => name == *pattern,
    })
}
