//! The outcomes of batches, and appends that wait or are executed again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringmain_cluster::log::{AppendOutcome, Partition};
use ringmain_sys::clock;

use super::append::Outcome;
use super::batch::{Delivery, Group};
use super::jobs::ReadStream;
use super::partitions::Partitions;
use super::read::StreamEntry;
use super::{Adapter, ServerId};
use crate::failure::Failure;
use crate::log::queue::{AppendQueue, Queued};
use crate::redis::EntryId;

/// Takes the next batch for a server. In a cluster an append with a key may have to wait for the move of its slot, and those of its partition
/// behind it with it: it is the last one of its partition in a batch.
pub(super) fn take_batch(queue: &mut AppendQueue, partitions: &Partitions, is_cluster: bool) -> Vec<Queued> {
    let mut keyed = BTreeSet::new();
    queue.take_batch(|append| {
        let is_appending = partitions
            .state(append.partition)
            .is_some_and(|state| state.is_appending);
        let may_send = !is_appending && !keyed.contains(&append.partition);
        if may_send && is_cluster && append.key.is_some() {
            keyed.insert(append.partition);
        }
        may_send
    })
}

impl Adapter<'_> {
    /// Closes the partitions for which the server has refused a read of several. Returns whether there are any.
    pub(super) fn close_refused(&mut self, streams: &[ReadStream]) -> bool {
        for stream in streams {
            if let Some(error) = &stream.refusal {
                self.close(stream.partition, stream.generation, &error.to_string());
            }
        }
        streams.iter().any(|stream| stream.refusal.is_some())
    }

    pub(super) fn appended(&mut self, id: ServerId, mut groups: Vec<Group>) {
        self.partitions
            .set_appending(groups.iter().map(|group| group.partition), false);
        groups.iter_mut().for_each(|group| self.deliver(id, group));
        let outcomes = groups.into_iter().flat_map(|group| group.done);
        let mut again = Vec::new();
        let mut elsewhere = BTreeMap::new();
        let mut failure = None;
        let mut newest = 0;
        for (queued, outcome) in outcomes {
            let (request, partition) = (queued.append.id, queued.append.partition);
            match outcome {
                Outcome::Done(outcome, entry) => {
                    newest = newest.max(entry.millis);
                    self.outbox.accepted(partition);
                    self.outbox.appended(request, outcome);
                }
                Outcome::Elsewhere(error) => {
                    elsewhere.insert(partition, error);
                    again.push(queued);
                }
                Outcome::TryAgain => {
                    self.park(partition);
                    self.partitions.hold(partition);
                    again.push(queued);
                }
                Outcome::NotMaster(error) => {
                    again.push(queued);
                    failure = Some(Failure::from(error));
                }
                Outcome::Refused(error) => {
                    self.outbox.refused(partition, &error.to_string());
                    self.outbox.appended(request, AppendOutcome::Refused);
                }
                Outcome::Unknown(error) => {
                    self.outbox.appended(request, AppendOutcome::Unknown);
                    if let Some(error) = error {
                        self.outbox.refused(partition, &error.to_string());
                        failure = Some(Failure::from(error));
                    }
                }
                Outcome::NotDurable(_) => {
                    let reason = "the file or the replicas did not confirm an append in time";
                    self.outbox.refused(partition, reason);
                    self.outbox.appended(request, AppendOutcome::Unknown);
                }
                Outcome::Numberless(_) | Outcome::TooLow | Outcome::Unexpected => {
                    self.outbox.appended(request, AppendOutcome::Unknown);
                }
            }
        }
        if newest > 0 && elsewhere.is_empty() && failure.is_none() {
            self.retry.reset();
        }
        if let Some(connected) = self.servers.get_mut(&id) {
            connected.is_appending = false;
            connected.newest_ms = connected.newest_ms.max(newest);
        }
        for (partition, error) in elsewhere {
            self.displace(id, partition, &error);
        }
        self.return_to_queues(again);
        if let Some(failure) = failure {
            self.fail(id, &failure);
        }
    }

    /// Delivers the entries of a group that the server has acknowledged, if they need not be read.
    fn deliver(&mut self, id: ServerId, group: &mut Group) {
        let partition = group.partition;
        let (Some((generation, delivery)), Some(connected)) = (group.delivery(), self.servers.get(&id))
        else {
            return;
        };
        let now_ms = connected.server.now_ms();
        let Some(position) = self.partitions.follows.get_mut(partition, generation) else {
            return;
        };
        let now = clock::monotonic();
        let was_sole = position.sole.is_sole();
        if group.own().next().is_some() {
            position.sole.appended(now);
        }
        let entries = match delivery {
            Delivery::Read => return,
            Delivery::Proven => {
                let own = group
                    .own()
                    .filter_map(|(entry, queued)| position.follow(entry, &queued.append));
                let records = own.collect();
                return self.outbox.records(partition, records, now_ms);
            }
            Delivery::Checked(found) => {
                let mut own: Vec<EntryId> = group.own().map(|(entry, _)| entry).collect();
                own.sort_unstable();
                let is_own = |entry: &StreamEntry| own.binary_search(&entry.id).is_ok();
                let found = found.unwrap_or_default();
                let is_complete = found.last().is_some_and(is_own);
                let has_others = found.iter().skip(1).any(|entry| !is_own(entry));
                position.sole.checked(is_complete, has_others, now);
                found
            }
            Delivery::Gone => {
                let reason = "the last entry that was read is gone";
                return self.close(partition, generation, reason);
            }
        };
        if group.has_met_others {
            position.sole.meet_others(now);
        }
        let must_read = was_sole && !position.sole.is_sole();
        self.add_entries(id, (partition, generation), &entries, now_ms);
        if must_read {
            self.set_stale(id);
        }
    }

    /// Appends that were not executed are the next ones of their partitions, which may be at other servers now.
    fn return_to_queues(&mut self, again: Vec<Queued>) {
        for queued in again.into_iter().rev() {
            let partition = queued.append.partition;
            match self.queue_of(partition) {
                Some(queue) => queue.put_back(vec![queued]),
                None => self.parked.put_back(vec![queued]),
            }
        }
    }

    /// Lets the appends of a partition wait that are in the queue of its server.
    pub(super) fn park(&mut self, partition: Partition) {
        if let Some(queue) = self.queue_of(partition) {
            let queued = queue.extract(|each| each == partition);
            queued
                .into_iter()
                .for_each(|queued| self.parked.push(queued.append, queued.since));
        }
    }

    /// Moves appends that wait to the servers that their partitions are at.
    pub(super) fn release_parked(&mut self) {
        let Adapter {
            servers,
            partitions,
            parked,
            ..
        } = self;
        let is_ready = |partition| {
            let id = partitions.queue_of(partition);
            id.is_some_and(|id| servers.contains_key(&id))
        };
        for queued in parked.extract(is_ready) {
            if let Some(queue) = self.queue_of(queued.append.partition) {
                queue.push(queued.append, queued.since);
            }
        }
    }

    /// Refuses appends that have waited for too long, searches partitions whose slots move, and sends appends again that no server could
    /// execute. Called at an interval.
    pub(super) fn expire(&mut self) {
        let now = clock::monotonic();
        self.outbox.expire();
        if self.partitions.are_placed() {
            self.outbox.reachable();
        }
        if self.partitions.are_moving() && !self.is_connecting {
            self.connect(Duration::ZERO);
        }
        self.partitions.release_held();
        self.release_parked();
        for id in self.partitions.expire_sole(now) {
            self.set_stale(id);
        }
        let queues = self.servers.values_mut().map(|connected| &mut connected.queue);
        for queue in queues.chain([&mut self.parked]) {
            for append in queue.expire(now) {
                self.outbox.appended(append.id, AppendOutcome::Refused);
            }
        }
    }
}
