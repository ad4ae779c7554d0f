//! The outcomes of batches, and appends that wait or are executed again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ringmain_cluster::log::{AppendOutcome, Partition};
use ringmain_sys::clock;

use super::append::Outcome;
use super::{Adapter, ServerId};
use crate::failure::Failure;
use crate::limits;
use crate::log::queue::Queued;

impl Adapter<'_> {
    pub(super) fn appended(&mut self, id: ServerId, outcomes: Vec<(Queued, Outcome)>) {
        let (mut again, mut later) = (Vec::new(), Vec::new());
        let mut elsewhere = BTreeMap::new();
        let mut failure = None;
        let mut is_refused = false;
        let mut newest = 0;
        for (queued, outcome) in outcomes {
            let request = queued.append.id;
            match outcome {
                Outcome::Done(outcome, entry) => {
                    newest = newest.max(entry.millis);
                    self.outbox.appended(request, outcome);
                }
                Outcome::Elsewhere(error) => {
                    elsewhere.insert(queued.append.partition, error);
                    again.push(queued);
                }
                Outcome::TryAgain => later.push(queued),
                Outcome::NotMaster(error) => {
                    again.push(queued);
                    failure = Some(Failure::from(error));
                }
                Outcome::Refused(error) => {
                    is_refused = true;
                    self.outbox.refused(&error.to_string());
                    self.outbox.appended(request, AppendOutcome::Refused);
                }
                Outcome::Unknown(error) => {
                    self.outbox.appended(request, AppendOutcome::Unknown);
                    failure = error.map(Failure::from).or(failure);
                }
                Outcome::NotDurable => {
                    is_refused = true;
                    self.outbox
                        .refused("the file or the replicas did not confirm an append in time");
                    self.outbox.appended(request, AppendOutcome::Unknown);
                }
                Outcome::Numberless(_) | Outcome::TooLow | Outcome::Unexpected => {
                    self.outbox.appended(request, AppendOutcome::Unknown);
                }
            }
        }
        if newest > 0 && elsewhere.is_empty() && failure.is_none() {
            self.retry.reset();
            if !is_refused && self.partitions.are_placed() {
                self.outbox.accepted();
            }
        }
        self.return_to_queue(id, again, newest, elsewhere.keys().copied().collect());
        self.parked.put_back(later);
        for (partition, error) in elsewhere {
            self.displace(partition, &error);
        }
        if let Some(failure) = failure {
            self.outbox.refused(&failure.to_string());
            self.fail(id, &failure);
        }
    }

    /// A batch has ended: appends that were not executed are the next ones, those of partitions that are elsewhere wait for them.
    fn return_to_queue(
        &mut self,
        id: ServerId,
        again: Vec<Queued>,
        newest: u64,
        elsewhere: BTreeSet<Partition>,
    ) {
        let Some(connected) = self.servers.get_mut(&id) else {
            return self.parked.put_back(again);
        };
        connected.is_appending = false;
        connected.newest_ms = connected.newest_ms.max(newest);
        connected.queue.put_back(again);
        if !elsewhere.is_empty() {
            let displaced = connected
                .queue
                .extract(|partition| elsewhere.contains(&partition));
            self.parked.put_back(displaced);
        }
    }

    /// Searches partitions whose slots move, and sends appends again that no server could execute.
    fn retry_moving(&mut self, now: Duration) {
        if self.partitions.are_moving()
            && !self.is_connecting
            && now.saturating_sub(self.searched_at) >= limits::LOG_CHECK_INTERVAL
        {
            self.connect(Duration::ZERO);
        }
        let partitions = &self.partitions;
        let server = |partition| partitions.state(partition).and_then(|state| state.server);
        for queued in self.parked.extract(|partition| server(partition).is_some()) {
            match server(queued.append.partition).and_then(|id| self.servers.get_mut(&id)) {
                Some(connected) => connected.queue.push(queued.append, queued.since),
                None => self.outbox.appended(queued.append.id, AppendOutcome::Refused),
            }
        }
    }

    /// Refuses appends that have waited for too long.
    pub(super) fn expire(&mut self) {
        let now = clock::monotonic();
        if self.partitions.are_placed() {
            self.outbox.reachable();
        }
        self.retry_moving(now);
        let queues = self.servers.values_mut().map(|connected| &mut connected.queue);
        for queue in queues.chain([&mut self.parked]) {
            for append in queue.expire(now) {
                self.outbox.appended(append.id, AppendOutcome::Refused);
            }
        }
    }
}
