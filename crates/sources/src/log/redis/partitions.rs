//! Partitions: the keys of their streams, the servers that they are at, and the positions up to which they are read.

use std::sync::Arc;

use redis::aio::MultiplexedConnection;
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

/// The reading of an open partition.
pub(super) struct Position {
    /// The last entry that was read.
    pub(super) last: EntryId,
    /// The connection for this partition alone. `None`: it is read together with others.
    pub(super) own: Option<MultiplexedConnection>,
    /// A read of this partition alone is active.
    pub(super) is_reading: bool,
}

/// All partitions.
pub(super) struct Partitions {
    states: Vec<PartitionState>,
    /// Those that are read.
    pub(super) follows: Follows<Position>,
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

    /// Returns the open partitions of a server that are read together, with their positions.
    pub(super) fn open_at(&self, server: ServerId) -> Vec<ReadStream> {
        let open = self.follows.all_open().filter_map(|partition| {
            let state = self.state(partition).filter(|state| state.server == Some(server))?;
            let (position, generation) = self.follows.get(partition).filter(|(position, _)| position.own.is_none())?;
            Some(ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last: position.last,
            })
        });
        open.collect()
    }

    /// Takes the open partitions that have connections of their own and are not being read.
    pub(super) fn take_unread(&mut self) -> Vec<(ServerId, MultiplexedConnection, ReadStream)> {
        let open: Vec<Partition> = self.follows.all_open().collect();
        let unread = open.into_iter().filter_map(|partition| {
            let generation = self.follows.get(partition)?.1;
            let position = self.follows.get_mut(partition, generation)?;
            let connection = position.own.clone().filter(|_| !position.is_reading)?;
            position.is_reading = true;
            let last = position.last;
            let state = self.state(partition)?;
            let stream = ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last,
            };
            Some((state.server?, connection, stream))
        });
        unread.collect()
    }

    /// Notes the last entry that was read. Returns whether the partition is open since this generation.
    pub(super) fn advance(&mut self, partition: Partition, generation: u32, last: EntryId) -> bool {
        let position = self.follows.get_mut(partition, generation);
        let is_open = position.is_some();
        if let Some(position) = position {
            position.last = last;
        }
        is_open
    }

    /// A read of a partition alone has ended.
    pub(super) fn read_ended(&mut self, partition: Partition, generation: u32) {
        if let Some(position) = self.follows.get_mut(partition, generation) {
            position.is_reading = false;
        }
    }

    /// Returns all partitions.
    pub(super) fn all(&self) -> impl Iterator<Item = Partition> {
        (0..self.states.len()).map(|index| Partition(index as u16))
    }

    /// Returns the partitions that are at no server, with the keys of their streams.
    pub(super) fn unplaced(&self) -> Vec<(Partition, String)> {
        let states = self.all().zip(&self.states);
        let unplaced = states.filter(|(_, state)| state.server.is_none());
        unplaced.map(|(partition, state)| (partition, state.stream.to_string())).collect()
    }

    /// A partition is at a server. Returns whether it had another binding before.
    pub(super) fn place(&mut self, partition: Partition, server: ServerId, binding: Binding) -> bool {
        let state = &mut self.states[usize::from(partition.0)];
        let has_changed = state.binding.is_some_and(|before| before != binding);
        state.server = Some(server);
        state.binding = Some(binding);
        has_changed
    }

    /// A partition is at its server no more. Returns whether it was open, and is closed now.
    pub(super) fn displace(&mut self, partition: Partition) -> bool {
        self.states[usize::from(partition.0)].server = None;
        !self.follows.interrupt(|each| each == partition).is_empty()
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
