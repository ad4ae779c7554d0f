//! Partitions: the keys of their streams, the servers that they are at, and the positions up to which they are read.

use std::sync::Arc;
use std::time::Duration;

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
    /// The node that the slot moves to: it has the partition, and all commands for it are behind `ASKING`.
    pub(super) asked: Option<Box<str>>,
}

impl PartitionState {
    pub(super) fn is_asking(&self) -> bool {
        self.asked.is_some()
    }
}

/// A partition whose node is searched.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Search {
    pub(super) partition: Partition,
    pub(super) stream: String,
    /// The node that the slot moves to, and the binding that the partition retains until it has moved.
    pub(super) asked: Option<(String, Binding)>,
}

/// A partition that was found at a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Placement {
    pub(super) partition: Partition,
    pub(super) binding: Binding,
    /// The slot still moves to the node.
    pub(super) is_asking: bool,
}

/// The reading of an open partition.
pub(super) struct Position {
    /// The last entry that was read.
    pub(super) last: EntryId,
    /// The connection for this partition alone. `None`: it is read together with others.
    pub(super) own: Option<MultiplexedConnection>,
    /// A read of this partition alone is active.
    pub(super) is_reading: bool,
    /// The stream was found to have everything behind `last`.
    pub(super) is_verified: bool,
}

/// The meaning of entries that were read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advance {
    /// The partition is not open since this read began.
    Stale,
    /// Entries before may have been deleted: the partition is closed, and is verified when it is opened again.
    Doubtful,
    Read,
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
            asked: None,
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
            is_asking: states[usize::from(opening.partition.0)].is_asking(),
        });
        streams.collect()
    }

    /// Returns the open partitions of a server that are read together, with their positions.
    pub(super) fn open_at(&self, server: ServerId) -> Vec<ReadStream> {
        let open = self.follows.all_open().filter_map(|partition| {
            let state = self
                .state(partition)
                .filter(|state| state.server == Some(server))?;
            let (position, generation) = self
                .follows
                .get(partition)
                .filter(|(position, _)| position.own.is_none())?;
            Some(ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last: position.last,
                is_asking: false,
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
                is_asking: state.is_asking(),
            };
            Some((state.server?, connection, stream))
        });
        unread.collect()
    }

    /// Notes the entries that were read.
    pub(super) fn advance(
        &mut self,
        stream: &ReadStream,
        [first, last]: [EntryId; 2],
        retention: Duration,
    ) -> Advance {
        let Some(position) = self.follows.get_mut(stream.partition, stream.generation) else {
            return Advance::Stale;
        };
        // There is a beat each second: a reader that is so far behind may have missed records that the retention has deleted.
        let silence = Duration::from_millis(first.millis.saturating_sub(position.last.millis));
        if !position.is_verified && silence > retention / 2 {
            self.follows.close(stream.partition, stream.generation);
            return Advance::Doubtful;
        }
        position.last = last;
        position.is_verified = false;
        Advance::Read
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

    /// Returns whether all partitions are at servers.
    pub(super) fn are_placed(&self) -> bool {
        self.states.iter().all(|state| state.server.is_some())
    }

    /// Returns whether the slots of some partitions move.
    pub(super) fn are_moving(&self) -> bool {
        self.states.iter().any(PartitionState::is_asking)
    }

    /// Returns the partitions that are at no server, and those whose slots move.
    pub(super) fn to_search(&self) -> Vec<Search> {
        let states = self.all().zip(&self.states);
        let searched = states.filter(|(_, state)| state.server.is_none() || state.is_asking());
        let searched = searched.map(|(partition, state)| Search {
            partition,
            stream: state.stream.to_string(),
            asked: state.asked.as_deref().map(str::to_owned).zip(state.binding),
        });
        searched.collect()
    }

    /// A partition is at a server. Returns whether it had another binding before.
    pub(super) fn place(&mut self, server: ServerId, placement: Placement) -> bool {
        let Placement {
            partition,
            binding,
            is_asking,
        } = placement;
        let state = &mut self.states[usize::from(partition.0)];
        let has_changed = state.binding.is_some_and(|before| before != binding);
        state.server = Some(server);
        state.binding = Some(binding);
        if !is_asking {
            state.asked = None;
        }
        has_changed
    }

    /// A partition is at its server no more, and at `asked` if its slot moves there. Returns whether it was open, and is closed now.
    pub(super) fn displace(&mut self, partition: Partition, asked: Option<&str>) -> bool {
        let state = &mut self.states[usize::from(partition.0)];
        state.server = None;
        state.asked = asked.map(Box::from);
        !self.follows.interrupt(|each| each == partition).is_empty()
    }

    /// The nodes that slots move to were not found: the partitions are searched by their slots.
    pub(super) fn forget_asked(&mut self) {
        for state in self.states.iter_mut().filter(|state| state.server.is_none()) {
            state.asked = None;
        }
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ringmain_cluster::log::{Binding, FollowFrom, Partition};

    use super::{Advance, Partitions, Placement, Position};
    use crate::log::redis::ServerId;
    use crate::log::redis::jobs::ReadStream;
    use crate::log::redis::number::unpack;
    use crate::redis::EntryId;

    const ONE: Partition = Partition(1);
    const RETENTION: Duration = Duration::from_secs(100);

    fn placement(binding: u64, is_asking: bool) -> Placement {
        Placement {
            partition: ONE,
            binding: Binding(binding),
            is_asking,
        }
    }

    fn open(partitions: &mut Partitions, last: EntryId) -> ReadStream {
        partitions.place(ServerId(0), placement(7, false));
        partitions.follows.follow(ONE, FollowFrom::Number(1));
        let opening = partitions.take_waiting(ServerId(0)).remove(0).opening;
        let position = Position {
            last,
            own: None,
            is_reading: false,
            is_verified: true,
        };
        assert!(partitions.follows.open(&opening, position));
        ReadStream {
            partition: ONE,
            generation: opening.generation,
            name: Arc::from("{p:1}"),
            last,
            is_asking: false,
        }
    }

    #[test]
    fn a_reader_that_is_far_behind_is_verified_again() {
        let at = |seconds: u64| EntryId {
            millis: unpack(0).millis + 1000 * seconds,
            sequence: 0,
        };
        let mut partitions = Partitions::new("p", 3);
        let stream = open(&mut partitions, at(0));
        for (entries, expected) in [
            // It was verified when it was opened.
            ([at(1000), at(1001)], Advance::Read),
            ([at(1051), at(1052)], Advance::Read),
            ([at(1103), at(1104)], Advance::Doubtful),
            ([at(1105), at(1105)], Advance::Stale),
        ] {
            assert_eq!(
                partitions.advance(&stream, entries, RETENTION),
                expected,
                "{entries:?}"
            );
        }
        let again = open(&mut partitions, at(1052));
        assert_eq!(
            partitions.advance(&again, [at(1103), at(1104)], RETENTION),
            Advance::Read
        );
    }

    #[test]
    fn partitions_of_a_server_that_is_gone_have_none() {
        let mut partitions = Partitions::new("p", 3);
        assert_eq!(partitions.to_search().len(), 3);
        open(&mut partitions, unpack(1));
        assert!(!partitions.place(ServerId(0), placement(7, false)));
        assert_eq!(partitions.to_search().len(), 2);
        assert_eq!(partitions.open_at(ServerId(0)).len(), 1);
        assert_eq!(partitions.remove_server(ServerId(1)), []);
        assert_eq!(partitions.remove_server(ServerId(0)), [ONE]);
        assert_eq!(
            (
                partitions.to_search().len(),
                partitions.open_at(ServerId(0)).len()
            ),
            (3, 0)
        );
        assert!(
            partitions.place(ServerId(2), placement(8, false)),
            "it has another binding"
        );
        assert!(!partitions.displace(ONE, None), "it was closed before");
    }

    #[test]
    fn a_partition_whose_slot_moves_is_at_the_other_node_with_its_binding() {
        let mut partitions = Partitions::new("p", 2);
        open(&mut partitions, unpack(1));
        assert!(partitions.displace(ONE, Some("b:1")), "it was open");
        let search = |partitions: &Partitions| {
            let found = partitions.to_search();
            found.into_iter().find(|search| search.partition == ONE)
        };
        let asked = search(&partitions).and_then(|search| search.asked);
        assert_eq!(asked, Some(("b:1".to_owned(), Binding(7))));
        assert!(!partitions.place(ServerId(1), placement(7, true)));
        assert!(partitions.are_moving() && search(&partitions).is_some());
        assert!(!partitions.place(ServerId(1), placement(7, false)));
        assert!(!partitions.are_moving() && search(&partitions).is_none());
        partitions.displace(ONE, Some("c:1"));
        partitions.forget_asked();
        assert_eq!(search(&partitions).and_then(|search| search.asked), None);
    }
}
