//! The partitions that a node reads.
//!
//! ```text
//! None ─ Follow ─▶ Waiting ─ job ─▶ Opening ─ ends known ─▶ Open ─ interrupted ─▶ None (Closed is reported)
//!   ▲                 ▲─ interrupted ──┘                      │
//!   └──────────────── Unfollow, in any state ─────────────────┘
//! ```

use std::collections::BTreeSet;

use ringmain_cluster::log::{FollowFrom, Partition};

/// See the module. `O` is the state of an open partition.
#[derive(Debug)]
enum Follow<O> {
    None,
    Waiting(FollowFrom),
    Opening(FollowFrom),
    Open(O),
}

#[derive(Debug)]
struct State<O> {
    follow: Follow<O>,
    /// Counts changes: the completion of a job of before has no effect.
    generation: u32,
}

/// A partition that is to be opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opening {
    pub(super) partition: Partition,
    pub(super) generation: u32,
    pub(super) from: FollowFrom,
}

/// All partitions of a log.
#[derive(Debug)]
pub(super) struct Follows<O> {
    states: Vec<State<O>>,
    waiting: BTreeSet<Partition>,
    open: BTreeSet<Partition>,
}

impl<O> Follows<O> {
    pub(super) fn new(count: u16) -> Follows<O> {
        let states = (0..count).map(|_| State {
            follow: Follow::None,
            generation: 0,
        });
        Follows {
            states: states.collect(),
            waiting: BTreeSet::new(),
            open: BTreeSet::new(),
        }
    }

    /// Returns whether the log has this partition.
    pub(super) fn contains(&self, partition: Partition) -> bool {
        usize::from(partition.0) < self.states.len()
    }

    pub(super) fn follow(&mut self, partition: Partition, from: FollowFrom) {
        self.set(partition, Follow::Waiting(from));
    }

    pub(super) fn unfollow(&mut self, partition: Partition) {
        self.set(partition, Follow::None);
    }

    fn set(&mut self, partition: Partition, follow: Follow<O>) {
        let Some(state) = self.states.get_mut(usize::from(partition.0)) else {
            return;
        };
        self.open.remove(&partition);
        self.waiting.remove(&partition);
        match &follow {
            Follow::Waiting(_) => self.waiting.insert(partition),
            Follow::Open(_) => self.open.insert(partition),
            Follow::None | Follow::Opening(_) => false,
        };
        state.follow = follow;
        state.generation += 1;
    }

    /// Takes the partitions that are to be opened and for which this is true.
    pub(super) fn take_waiting(&mut self, may_open: impl Fn(Partition) -> bool) -> Vec<Opening> {
        let taken: Vec<Partition> = self
            .waiting
            .iter()
            .copied()
            .filter(|each| may_open(*each))
            .collect();
        let openings = taken.into_iter().filter_map(|partition| {
            self.waiting.remove(&partition);
            let state = &mut self.states[usize::from(partition.0)];
            let Follow::Waiting(from) = state.follow else {
                return None;
            };
            state.follow = Follow::Opening(from);
            Some(Opening {
                partition,
                generation: state.generation,
                from,
            })
        });
        openings.collect()
    }

    /// Opens a partition. Returns whether it was to be opened since this generation.
    pub(super) fn open(&mut self, opening: &Opening, open: O) -> bool {
        let partition = opening.partition;
        let state = &mut self.states[usize::from(partition.0)];
        let is_opening = matches!(state.follow, Follow::Opening(_)) && state.generation == opening.generation;
        if is_opening {
            state.follow = Follow::Open(open);
            self.open.insert(partition);
        }
        is_opening
    }

    /// Closes a partition. Returns whether it was followed since this generation.
    pub(super) fn close(&mut self, partition: Partition, generation: u32) -> bool {
        let state = self.states.get(usize::from(partition.0));
        let is_current = state
            .is_some_and(|state| state.generation == generation && !matches!(state.follow, Follow::None));
        if is_current {
            self.unfollow(partition);
        }
        is_current
    }

    /// Returns an open partition, with its generation.
    pub(super) fn get(&self, partition: Partition) -> Option<(&O, u32)> {
        let state = self.states.get(usize::from(partition.0))?;
        match &state.follow {
            Follow::Open(open) => Some((open, state.generation)),
            _ => None,
        }
    }

    /// Returns whether a partition is open since this generation.
    pub(super) fn is_open(&self, partition: Partition, generation: u32) -> bool {
        self.get(partition)
            .is_some_and(|(_, current)| current == generation)
    }

    /// Returns a partition that is open since this generation.
    pub(super) fn get_mut(&mut self, partition: Partition, generation: u32) -> Option<&mut O> {
        let state = self.states.get_mut(usize::from(partition.0))?;
        match &mut state.follow {
            Follow::Open(open) if state.generation == generation => Some(open),
            _ => None,
        }
    }

    /// Returns the open partitions.
    pub(super) fn all_open(&self) -> impl Iterator<Item = Partition> {
        self.open.iter().copied()
    }

    /// The broker is gone for the partitions for which this is true. Returns those that were open, and are closed now; those that were to be
    /// opened are so again.
    pub(super) fn interrupt(&mut self, is_gone: impl Fn(Partition) -> bool) -> Vec<Partition> {
        let mut closed = Vec::new();
        for index in 0..self.states.len() {
            let partition = Partition(index as u16);
            if !is_gone(partition) {
                continue;
            }
            match self.states[index].follow {
                Follow::Open(_) => {
                    closed.push(partition);
                    self.unfollow(partition);
                }
                Follow::Opening(from) => self.follow(partition, from),
                Follow::None | Follow::Waiting(_) => {}
            }
        }
        closed
    }
}

#[cfg(test)]
mod tests {
    use ringmain_cluster::log::{FollowFrom, Partition};

    use super::{Follows, Opening};

    const ONE: Partition = Partition(1);

    fn follows() -> Follows<&'static str> {
        let mut follows = Follows::new(3);
        follows.follow(ONE, FollowFrom::Number(7));
        follows
    }

    fn opening(follows: &mut Follows<&'static str>) -> Opening {
        let taken = follows.take_waiting(|_| true);
        assert_eq!(taken.len(), 1);
        taken[0]
    }

    #[test]
    fn a_partition_is_opened_once_and_closed_once() {
        let mut follows = follows();
        assert_eq!(follows.take_waiting(|partition| partition != ONE), []);
        let one = opening(&mut follows);
        assert_eq!(one.from, FollowFrom::Number(7));
        assert_eq!(follows.take_waiting(|_| true), []);
        assert!(follows.open(&one, "open") && !follows.open(&one, "again"));
        assert_eq!(follows.get(ONE), Some((&"open", one.generation)));
        assert_eq!(follows.get_mut(ONE, one.generation + 1), None);
        assert!(follows.all_open().eq([ONE]));
        assert!(follows.close(ONE, one.generation) && !follows.close(ONE, one.generation));
        assert_eq!((follows.get(ONE), follows.all_open().count()), (None, 0));
    }

    #[test]
    fn jobs_of_before_have_no_effect() {
        let mut follows = follows();
        let before = opening(&mut follows);
        follows.follow(ONE, FollowFrom::Number(9));
        assert!(!follows.open(&before, "open") && !follows.close(ONE, before.generation));
        assert_eq!(opening(&mut follows).from, FollowFrom::Number(9));
        follows.unfollow(ONE);
        assert_eq!(follows.take_waiting(|_| true), []);
    }

    #[test]
    fn an_interruption_closes_what_is_open_and_opens_the_rest_again() {
        let mut follows = follows();
        let one = opening(&mut follows);
        follows.open(&one, "open");
        follows.follow(Partition(2), FollowFrom::Number(0));
        let other = opening(&mut follows);
        assert_eq!(follows.interrupt(|partition| partition == Partition(0)), []);
        assert_eq!(follows.interrupt(|_| true), [ONE]);
        assert!(!follows.open(&other, "late"));
        assert_eq!(opening(&mut follows).partition, Partition(2));
    }

    #[test]
    fn other_partitions_do_not_exist() {
        let mut follows = follows();
        assert!(follows.contains(Partition(2)) && !follows.contains(Partition(3)));
        follows.follow(Partition(3), FollowFrom::Number(0));
        assert_eq!(follows.get(Partition(3)), None);
        assert!(!follows.close(Partition(3), 1));
    }
}
