//! Partitions: the keys of their streams, the servers that they are at, and the positions up to which they are read.

use std::collections::BTreeSet;
use std::sync::Arc;

use ringmain_cluster::log::{Binding, Partition};

use super::ServerId;
use super::jobs::{OpeningStream, ReadStream};
use super::keys;
use crate::log::follows::Follows;
use crate::redis::EntryId;

/// A partition.
#[derive(Debug)]
pub(super) struct PartitionState {
    /// The key of its stream.
    pub(super) stream: Arc<str>,
    pub(super) server: Option<ServerId>,
    /// The binding that it had at its last server.
    pub(super) binding: Option<Binding>,
}

/// All partitions.
#[derive(Debug)]
pub(super) struct Partitions {
    states: Vec<PartitionState>,
    /// Those that are read, with the last entry that was read.
    pub(super) follows: Follows<EntryId>,
}

impl Partitions {
    pub(super) fn new(prefix: &str, count: u16) -> Partitions {
        let states = (0..count).map(|partition| PartitionState {
            stream: keys::stream(prefix, partition).into(),
            server: None,
            binding: None,
        });
        Partitions {
            states: states.collect(),
            follows: Follows::new(count),
        }
    }

    /// Returns the state of a partition that exists.
    pub(super) fn state(&self, partition: Partition) -> Option<&PartitionState> {
        self.states.get(usize::from(partition.0))
    }

    /// Takes the partitions of a server that are to be opened.
    pub(super) fn take_waiting(&mut self, server: ServerId) -> Vec<OpeningStream> {
        let states = &self.states;
        let taken = self
            .follows
            .take_waiting(|partition| states[usize::from(partition.0)].server == Some(server));
        let streams = taken.into_iter().map(|opening| OpeningStream {
            opening,
            name: Arc::clone(&states[usize::from(opening.partition.0)].stream),
        });
        streams.collect()
    }

    /// Returns the open partitions of a server, with their positions.
    pub(super) fn open_at(&self, server: ServerId) -> Vec<ReadStream> {
        let open = self.follows.all_open().filter_map(|partition| {
            let state = self.state(partition).filter(|state| state.server == Some(server))?;
            let (last, generation) = self.follows.get(partition)?;
            Some(ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last: *last,
            })
        });
        open.collect()
    }

    /// Notes the last entry that was read. Returns whether the partition is open since this generation.
    pub(super) fn advance(&mut self, partition: Partition, generation: u32, last: EntryId) -> bool {
        let position = self.follows.get_mut(partition, generation);
        let is_open = position.is_some();
        if let Some(position) = position {
            *position = last;
        }
        is_open
    }

    /// All partitions are at a server. Returns those that had another binding before.
    pub(super) fn place_all(&mut self, server: ServerId, binding: Binding) -> BTreeSet<Partition> {
        let mut changed = BTreeSet::new();
        for (index, state) in (0..).zip(&mut self.states) {
            if state.binding.is_some_and(|before| before != binding) {
                changed.insert(Partition(index));
            }
            state.server = Some(server);
            state.binding = Some(binding);
        }
        changed
    }

    /// A server is gone. Returns the partitions that were open, and are closed now.
    pub(super) fn remove_server(&mut self, server: ServerId) -> Vec<Partition> {
        let is_at = |state: &PartitionState| state.server == Some(server);
        let gone: Vec<bool> = self.states.iter().map(is_at).collect();
        for state in self.states.iter_mut().filter(|state| is_at(state)) {
            state.server = None;
        }
        self.follows.interrupt(|partition| gone[usize::from(partition.0)])
    }
}
