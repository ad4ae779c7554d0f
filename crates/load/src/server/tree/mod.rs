//! A tree of processes and the CPU time that it has used, that of processes that have ended included.
//!
//! The time of a process that ends goes to the parent that waits for it, so that the sum over the tree loses nothing.
//! It is lost if nobody waits (`SIGCHLD` ignored) or the parent has ended before: what was last seen of such a process
//! is kept. Reads `/proc`; knows neither who started the tree nor why.

use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use ringmain_sys::process::{self, Stat};

#[cfg(test)]
mod tests;

/// Looks at the tree until no process ends meanwhile; at most so often.
const TRIES: usize = 3;

/// A process is known by its number and its start.
type Key = (u32, u64);

/// The processes and what they have used.
#[derive(Debug)]
pub(super) struct Tree {
    root: Stat,
    /// All of the root's process group belong to it too.
    by_group: bool,
    /// As last seen.
    seen: BTreeMap<Key, Stat>,
    /// CPU time of processes that have ended, and of which no other process shows it.
    lost: Duration,
}

impl Tree {
    /// The process and all that descend from it.
    pub(super) fn below(root: Stat) -> Tree {
        Tree {
            root,
            by_group: false,
            seen: BTreeMap::from([(key(&root), root)]),
            lost: Duration::ZERO,
        }
    }

    /// As [`Tree::below`], with all of its process group, of which it is the first.
    pub(super) fn group(root: Stat) -> Tree {
        Tree {
            by_group: true,
            ..Tree::below(root)
        }
    }

    pub(super) fn root(&self) -> &Stat {
        &self.root
    }

    /// CPU time that is known to have been used; comparing two is what makes sense.
    pub(super) fn cpu(&self) -> Duration {
        let used = self.seen.values().map(|stat| stat.own + stat.reaped);
        self.lost + used.sum::<Duration>()
    }

    /// Memory of all processes, bytes.
    pub(super) fn memory(&self) -> u64 {
        self.running().iter().map(|stat| process::memory(stat.pid)).sum()
    }

    pub(super) fn processes(&self) -> u32 {
        u32::try_from(self.running().len()).unwrap_or(u32::MAX)
    }

    /// Those that have not ended.
    pub(super) fn running(&self) -> Vec<Stat> {
        self.seen.values().filter(|stat| !stat.ended).copied().collect()
    }

    /// Looks at all processes.
    pub(super) fn look(&mut self) -> io::Result<()> {
        let mut now = BTreeMap::new();
        for left in (0..TRIES).rev() {
            let members = members(
                &process::all()?,
                &self.seen,
                self.by_group.then_some(self.root.group),
            );
            now.clear();
            let mut complete = true;
            // Parents before their children: a child that is there after its parent was looked at is not in its parent's
            // figures, so that nothing counts twice.
            for member in members {
                match process::stat(member.pid).filter(|stat| stat.start == member.start) {
                    Some(stat) => {
                        now.insert(key(&stat), exact(stat));
                    }
                    None if left > 0 => complete = false,
                    // Its time may not be in its parent's yet: as if it were there until the next look.
                    None => {
                        let last = self.seen.get(&key(&member)).copied();
                        now.insert(key(&member), last.unwrap_or(member));
                    }
                }
            }
            if complete {
                break;
            }
        }
        self.lost += lost(&self.seen, &now);
        self.seen = now;
        Ok(())
    }
}

fn key(stat: &Stat) -> Key {
    (stat.pid, stat.start)
}

/// The same with its own CPU time as exact as the kernel has it.
fn exact(stat: Stat) -> Stat {
    Stat {
        // One that ends at this moment keeps what was read with the rest.
        own: process::cpu_time(stat.pid).unwrap_or(stat.own),
        ..stat
    }
}

/// Out of `all`, those that were members or descend from one or are of this process group; parents before their children.
fn members(all: &[Stat], known: &BTreeMap<Key, Stat>, group: Option<u32>) -> Vec<Stat> {
    let mut children: BTreeMap<u32, Vec<&Stat>> = BTreeMap::new();
    for stat in all {
        children.entry(stat.parent).or_default().push(stat);
    }
    let is_first = |stat: &&Stat| known.contains_key(&key(stat)) || group == Some(stat.group);
    let first: Vec<&Stat> = all.iter().filter(is_first).collect();
    let mut taken: BTreeMap<u32, bool> = first.iter().map(|stat| (stat.pid, false)).collect();
    let mut members = Vec::new();
    // Those whose parent is no member come first, and each is followed by what descends from it.
    let mut tops: Vec<&Stat> = first
        .iter()
        .filter(|stat| !taken.contains_key(&stat.parent))
        .copied()
        .collect();
    while let Some(stat) = tops.pop() {
        if taken.insert(stat.pid, true) != Some(true) {
            members.push(*stat);
            tops.extend(children.get(&stat.pid).into_iter().flatten());
        }
    }
    members
}

/// CPU time of the processes that have ended between two looks and that did not go to a process that is left.
fn lost(before: &BTreeMap<Key, Stat>, now: &BTreeMap<Key, Stat>) -> Duration {
    let by_pid: BTreeMap<u32, Key> = before.keys().map(|key| (key.0, *key)).collect();
    // What should have gone to whom: the nearest process up the tree that is left, if any.
    let mut due: BTreeMap<Option<Key>, Duration> = BTreeMap::new();
    for ended in before.values().filter(|stat| !now.contains_key(&key(stat))) {
        let mut heir = by_pid.get(&ended.parent);
        // A number may have been used again meanwhile, which could close a circle.
        let mut steps = before.len();
        while let Some(at) = heir.filter(|at| !now.contains_key(*at) && steps > 0) {
            heir = by_pid.get(&before[at].parent);
            steps -= 1;
        }
        let heir = heir.filter(|at| now.contains_key(*at)).copied();
        *due.entry(heir).or_default() += ended.own + ended.reaped;
    }
    let lost = due.into_iter().map(|(heir, due)| {
        let Some(heir) = heir else { return due };
        let came = now[&heir].reaped.saturating_sub(before[&heir].reaped);
        // What came is told in whole ticks, of user and of system time.
        let missing = due.saturating_sub(came);
        if missing > process::tick() * 2 {
            missing
        } else {
            Duration::ZERO
        }
    });
    lost.sum()
}
