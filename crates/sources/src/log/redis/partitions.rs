//! Partitions: the keys of their streams, the servers that they are at, and the positions up to which they are read.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use ringmain_cluster::log::{Append, Binding, Partition, Record};

use super::ServerId;
use super::jobs::{OpeningStream, ReadStream};
use super::keys;
use super::number::pack;
use super::sole::{Plan, Sole};
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
    pub(super) asked: Option<AskedNode>,
    /// The last one, until the move is complete: it may be unreachable meanwhile.
    last_asked: Option<AskedNode>,
    /// Appends are in flight: those behind them wait, as they may be executed at another server now.
    pub(super) is_appending: bool,
    /// No server can execute an append with a key at the moment: it waits with those behind it until it is sent again.
    pub(super) is_held: bool,
}

/// The node that a slot moves to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AskedNode {
    pub(super) address: Arc<str>,
    /// Its run ID when it was first connected for the partition: with another one it has lost entries.
    pub(super) run_id: Option<Arc<str>>,
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
    /// The node that the slot moves to, and the binding that the partition retains there.
    pub(super) asked: Option<(AskedNode, Binding)>,
}

impl Search {
    /// Returns whether the partition was appended to and read at the node that its slot moves to.
    pub(super) fn is_followed(&self) -> bool {
        self.asked
            .as_ref()
            .is_some_and(|(asked, _)| asked.run_id.is_some())
    }
}

/// A partition that was found at a node.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Placement {
    pub(super) partition: Partition,
    pub(super) binding: Binding,
    /// The slot still moves to the node, which has this run ID.
    pub(super) asked: Option<Arc<str>>,
}

/// The reading of an open partition.
pub(super) struct Position {
    /// The last entry that was read, or the position before the first one.
    pub(super) last: EntryId,
    /// An entry was read.
    pub(super) has_read: bool,
    pub(super) sole: Sole,
    /// The connection for this partition alone. `None`: it is read together with others.
    pub(super) own: Option<MultiplexedConnection>,
    /// A read of this partition alone is active.
    pub(super) is_reading: bool,
    /// The stream was found to have everything behind `last`.
    pub(super) is_verified: bool,
}

impl Position {
    /// Returns the record of an own entry that directly follows the last one. `None`: it was read meanwhile.
    pub(super) fn follow(&mut self, entry: EntryId, append: &Append) -> Option<Record> {
        let number = pack(entry).filter(|_| entry > self.last)?;
        (self.last, self.is_verified) = (entry, false);
        Some(Record::own(number, entry.millis as i64, append))
    }
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
            last_asked: None,
            is_appending: false,
            is_held: false,
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

    /// Notes that appends to partitions are in flight, or are not any more.
    pub(super) fn set_appending(&mut self, partitions: impl Iterator<Item = Partition>, is_appending: bool) {
        for partition in partitions {
            self.states[usize::from(partition.0)].is_appending = is_appending;
        }
    }

    /// Lets the appends of a partition wait, which are not in the queue of a server, until [`Partitions::release_held`].
    pub(super) fn hold(&mut self, partition: Partition) {
        self.states[usize::from(partition.0)].is_held = true;
    }

    pub(super) fn release_held(&mut self) {
        self.states.iter_mut().for_each(|state| state.is_held = false);
    }

    /// Returns the server whose queue has the appends of a partition. `None`: they wait.
    pub(super) fn queue_of(&self, partition: Partition) -> Option<ServerId> {
        self.state(partition).filter(|state| !state.is_held)?.server
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
                .filter(|(position, _)| position.own.is_none() && !position.sole.is_sole())?;
            Some(ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last: position.last,
                is_asking: false,
                refusal: None,
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
            let must_read = !position.is_reading && !position.sole.is_sole();
            let connection = position.own.clone().filter(|_| must_read)?;
            position.is_reading = true;
            let last = position.last;
            let state = self.state(partition)?;
            let stream = ReadStream {
                partition,
                generation,
                name: Arc::clone(&state.stream),
                last,
                is_asking: state.is_asking(),
                refusal: None,
            };
            Some((state.server?, connection, stream))
        });
        unread.collect()
    }

    /// Returns the way to append so many entries to a partition, with its last entry and its generation if it is open.
    pub(super) fn plan(
        &self,
        partition: Partition,
        count: usize,
        have_keys: bool,
        now: Duration,
    ) -> (Plan, Option<(EntryId, u32)>) {
        let Some((position, generation)) = self.follows.get(partition) else {
            return (Plan::Chosen, None);
        };
        let is_asking = self.state(partition).is_none_or(PartitionState::is_asking);
        let plan = if position.has_read && !is_asking {
            position.sole.plan(position.last, count, have_keys, now)
        } else {
            Plan::Chosen
        };
        (plan, Some((position.last, generation)))
    }

    /// Returns the servers with partitions that are to be read from now on: this node does not append to them any more.
    pub(super) fn expire_sole(&mut self, now: Duration) -> BTreeSet<ServerId> {
        let open: Vec<Partition> = self.follows.all_open().collect();
        let servers = open.into_iter().filter_map(|partition| {
            let generation = self.follows.get(partition)?.1;
            let position = self.follows.get_mut(partition, generation)?;
            let is_over = position.sole.expire(now);
            self.state(partition)?.server.filter(|_| is_over)
        });
        servers.collect()
    }

    /// Notes entries that follow the last one.
    pub(super) fn advance(
        &mut self,
        (partition, generation): (Partition, u32),
        [first, last]: [EntryId; 2],
        retention: Duration,
    ) -> Advance {
        let Some(position) = self.follows.get_mut(partition, generation) else {
            return Advance::Stale;
        };
        // There is a beat each second: a reader that is so far behind may have missed records that the retention has deleted.
        let silence = Duration::from_millis(first.millis.saturating_sub(position.last.millis));
        if !position.is_verified && silence > retention / 2 {
            self.follows.close(partition, generation);
            return Advance::Doubtful;
        }
        (position.last, position.has_read) = (last, true);
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
            asked: state.asked.clone().zip(state.binding),
        });
        searched.collect()
    }

    /// A partition is at a server. Returns whether it had another binding before.
    pub(super) fn place(&mut self, server: ServerId, placement: Placement) -> bool {
        let Placement {
            partition,
            binding,
            asked,
        } = placement;
        let state = &mut self.states[usize::from(partition.0)];
        let has_changed = state.binding.is_some_and(|before| before != binding);
        state.server = Some(server);
        state.binding = Some(binding);
        if let Some(before) = state.asked.take() {
            state.asked = asked.map(|run_id| AskedNode {
                run_id: Some(run_id),
                ..before
            });
            state.last_asked.clone_from(&state.asked);
        }
        has_changed
    }

    /// A partition is at its server no more, and at `asked` if its slot moves there. Returns whether it was open, and is closed now.
    pub(super) fn displace(&mut self, partition: Partition, asked: Option<&str>) -> bool {
        let state = &mut self.states[usize::from(partition.0)];
        (state.server, state.is_held) = (None, false);
        state.asked = asked.map(|address| match &state.last_asked {
            Some(last) if *last.address == *address => last.clone(),
            _ => AskedNode {
                address: address.into(),
                run_id: None,
            },
        });
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
            (state.server, state.is_held) = (None, false);
        }
        self.follows.interrupt(|partition| gone[usize::from(partition.0)])
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use ringmain_cluster::log::{Binding, FollowFrom, Partition};

    use super::{Advance, AskedNode, Partitions, Placement, Position};
    use crate::log::redis::ServerId;
    use crate::log::redis::jobs::ReadStream;
    use crate::log::redis::number::unpack;
    use crate::log::redis::sole::Sole;
    use crate::redis::EntryId;

    const ONE: Partition = Partition(1);
    const RETENTION: Duration = Duration::from_secs(100);

    fn placement(binding: u64, asked: Option<&str>) -> Placement {
        Placement {
            partition: ONE,
            binding: Binding(binding),
            asked: asked.map(Arc::from),
        }
    }

    fn open(partitions: &mut Partitions, last: EntryId) -> ReadStream {
        partitions.place(ServerId(0), placement(7, None));
        partitions.follows.follow(ONE, FollowFrom::Number(1));
        let opening = partitions.take_waiting(ServerId(0)).remove(0).opening;
        let position = Position {
            last,
            has_read: false,
            sole: Sole::default(),
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
            refusal: None,
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
                partitions.advance((ONE, stream.generation), entries, RETENTION),
                expected,
                "{entries:?}"
            );
        }
        let again = open(&mut partitions, at(1052));
        assert_eq!(
            partitions.advance((ONE, again.generation), [at(1103), at(1104)], RETENTION),
            Advance::Read
        );
    }

    #[test]
    fn partitions_of_a_server_that_is_gone_have_none() {
        let mut partitions = Partitions::new("p", 3);
        assert_eq!(partitions.to_search().len(), 3);
        open(&mut partitions, unpack(1));
        assert!(!partitions.place(ServerId(0), placement(7, None)));
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
            partitions.place(ServerId(2), placement(8, None)),
            "it has another binding"
        );
        assert!(!partitions.displace(ONE, None), "it was closed before");
    }

    #[test]
    fn appends_that_are_held_are_in_no_queue() {
        let mut partitions = Partitions::new("p", 2);
        partitions.place(ServerId(0), placement(7, None));
        partitions.hold(ONE);
        assert_eq!(partitions.queue_of(ONE), None);
        partitions.release_held();
        assert_eq!(partitions.queue_of(ONE), Some(ServerId(0)));
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
        let asked = |run_id: Option<&str>| {
            let asked = AskedNode {
                address: "b:1".into(),
                run_id: run_id.map(Arc::from),
            };
            Some((asked, Binding(7)))
        };
        let searched = |partitions: &Partitions| search(partitions).and_then(|search| search.asked);
        assert_eq!(searched(&partitions), asked(None));
        assert!(!partitions.place(ServerId(1), placement(7, Some("r"))));
        assert!(partitions.are_moving());
        assert_eq!(searched(&partitions), asked(Some("r")));
        // It cannot be reached for a time, and is asked again.
        partitions.remove_server(ServerId(1));
        partitions.forget_asked();
        assert_eq!(searched(&partitions), None);
        partitions.place(ServerId(0), placement(7, None));
        partitions.displace(ONE, Some("b:1"));
        assert_eq!(searched(&partitions), asked(Some("r")));
        assert!(!partitions.place(ServerId(1), placement(7, None)));
        assert!(!partitions.are_moving() && search(&partitions).is_none());
        partitions.displace(ONE, Some("b:1"));
        assert_eq!(searched(&partitions), asked(None), "of another move");
        partitions.displace(ONE, Some("c:1"));
        partitions.forget_asked();
        assert_eq!(search(&partitions).and_then(|search| search.asked), None);
    }
}
