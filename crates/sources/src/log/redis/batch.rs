//! A batch of appends on its way, in groups of one partition.
//!
//! Appends are sent again where the identifier that they got has no number, or where the one that they requested is taken.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Pipeline, RedisError, Value};
use ringmain_cluster::log::Partition;
use tokio::sync::watch;

use super::append::{Outcome, Sent, add_chain, add_command, add_wait, chain_outcomes, is_durable, outcome};
use super::partitions::{PartitionState, Partitions};
use super::read::{self, StreamEntry};
use super::server::Durability;
use super::sole::Plan;
use crate::log::queue::Queued;
use crate::redis::EntryId;

/// Attempts to append an entry whose identifier has no number, or is taken.
const ATTEMPTS: usize = 8;
/// The entries beside those of a batch that a check may find: those of batches before that are being read. With more it is not complete.
const CHECK_ENTRIES: usize = 64;

type Replies = std::vec::IntoIter<Result<Value, RedisError>>;

/// The appends of one partition.
pub(super) struct Group {
    pub(super) partition: Partition,
    /// The key of its stream.
    stream: Arc<str>,
    /// The slot moves to the server: it executes commands behind `ASKING` only.
    is_asking: bool,
    plan: Plan,
    /// The last entry that was read when the batch was made, and the generation of the open partition.
    base: Option<(EntryId, u32)>,
    pending: Vec<Sent>,
    pub(super) done: Vec<(Queued, Outcome)>,
    /// The entries from `base` on. `None`: there are more, or they could not be read.
    check: Option<Vec<StreamEntry>>,
    /// An identifier was taken by another node.
    pub(super) has_met_others: bool,
}

/// The way in which the node receives the entries of a group.
pub(super) enum Delivery {
    /// They are read from the server.
    Read,
    /// From memory: nothing lies between the last entry that was read and the own ones.
    Proven,
    /// From this check, which begins with the last entry that was read. `None`: it is not complete.
    Checked(Option<Vec<StreamEntry>>),
    /// The last entry that was read is gone.
    Gone,
}

/// Groups a batch by partition.
pub(super) fn group(batch: Vec<Queued>, partitions: &Partitions, now: Duration) -> Vec<Group> {
    let mut by_partition: BTreeMap<Partition, Vec<Queued>> = BTreeMap::new();
    for queued in batch {
        by_partition
            .entry(queued.append.partition)
            .or_default()
            .push(queued);
    }
    let groups = by_partition.into_iter().map(|(partition, batch)| {
        let state = partitions.state(partition);
        let have_keys = batch.iter().any(|queued| queued.append.key.is_some());
        let (plan, base) = partitions.plan(partition, batch.len(), have_keys, now);
        let explicit = match plan {
            Plan::Behind(id) => Some(id),
            Plan::Chosen | Plan::Checked => None,
        };
        let pending = batch.into_iter().map(|queued| Sent {
            queued,
            numberless: None,
            explicit,
        });
        Group {
            partition,
            stream: state.map(|state| Arc::clone(&state.stream)).unwrap_or_default(),
            is_asking: state.is_some_and(PartitionState::is_asking),
            plan,
            base,
            pending: pending.collect(),
            done: Vec::new(),
            check: None,
            has_met_others: false,
        }
    });
    groups.collect()
}

impl Group {
    /// Returns the generation of the open partition, and the way in which the node receives the entries. `None`: it was not open.
    pub(super) fn delivery(&mut self) -> Option<(u32, Delivery)> {
        let (base, generation) = self.base?;
        let delivery = match self.plan {
            Plan::Chosen => Delivery::Read,
            Plan::Behind(_) => Delivery::Proven,
            Plan::Checked => match self.check.take() {
                Some(found) if found.first().is_none_or(|first| first.id != base) => Delivery::Gone,
                found => Delivery::Checked(found),
            },
        };
        Some((generation, delivery))
    }

    /// Returns the own entries that are in the log.
    pub(super) fn own(&self) -> impl Iterator<Item = (EntryId, &Queued)> + Clone {
        self.done
            .iter()
            .filter_map(|(queued, outcome)| Some((outcome.appended_id()?, queued)))
    }

    /// The number of entries that a check reads.
    fn check_count(&self) -> usize {
        1 + self.pending.len() + self.done.len() + CHECK_ENTRIES
    }

    /// Adds the commands. `oldest`: entries before are deleted where the server chooses an identifier.
    fn add_commands(&self, pipeline: &mut Pipeline, oldest: EntryId) {
        let add_asking = |pipeline: &mut Pipeline| {
            if self.is_asking {
                pipeline.cmd("ASKING");
            }
        };
        if let Plan::Behind(first) = self.plan
            && self.pending.len() > 1
        {
            add_asking(pipeline);
            return add_chain(pipeline, &self.stream, first, &self.pending);
        }
        for (index, sent) in self.pending.iter().enumerate() {
            add_asking(pipeline);
            let trims = index == 0 && sent.explicit.is_none();
            add_command(pipeline, &self.stream, sent, trims.then_some(oldest));
        }
        if self.plan == Plan::Checked
            && let Some((base, _)) = self.base
        {
            add_asking(pipeline);
            pipeline.add_command(read::check_command(&self.stream, base, self.check_count()));
        }
    }

    /// Notes the replies. Appends that have to be sent again remain pending.
    fn settle(&mut self, replies: &mut Replies, is_durable: bool) {
        let is_asking = self.is_asking;
        let mut next = || {
            if is_asking {
                replies.next();
            }
            replies.next()
        };
        let pending = std::mem::take(&mut self.pending);
        let count = self.check_count() + pending.len();
        let outcomes: Vec<Outcome> = match self.plan {
            Plan::Behind(first) if pending.len() > 1 => chain_outcomes(next(), first, pending.len()),
            _ => {
                let outcomes = pending
                    .iter()
                    .map(|_| next().map_or(Outcome::Unexpected, outcome));
                outcomes.collect()
            }
        };
        if self.plan == Plan::Checked && self.base.is_some() {
            let found = next().and_then(|reply| read::check_reply(reply.ok()?));
            self.check = found.filter(|found| found.len() < count);
        }
        for (mut sent, outcome) in pending.into_iter().zip(outcomes) {
            match outcome {
                Outcome::Numberless(id) => {
                    // The first one moves the stream to the next millisecond, the others follow.
                    sent.explicit = self.pending.is_empty().then_some(EntryId {
                        millis: id.millis + 1,
                        sequence: 0,
                    });
                    sent.numberless = Some(id);
                    self.pending.push(sent);
                }
                Outcome::TooLow => {
                    if matches!(self.plan, Plan::Behind(_)) {
                        self.has_met_others = true;
                    }
                    sent.explicit = None;
                    self.pending.push(sent);
                }
                Outcome::Done(_, id) if !is_durable => self.done.push((sent.queued, Outcome::NotDurable(id))),
                outcome => self.done.push((sent.queued, outcome)),
            }
        }
        if self.has_met_others {
            self.plan = Plan::Checked;
        }
    }

    /// There are no replies, for this reason.
    fn fail(&mut self, error: &mut Option<RedisError>) {
        // The first one has the reason.
        for sent in self.pending.drain(..) {
            self.done.push((sent.queued, Outcome::Unknown(error.take())));
        }
    }
}

/// The way of a batch to its server.
pub(super) struct Batch {
    pub(super) control: MultiplexedConnection,
    pub(super) durability: Durability,
    /// Entries before are deleted from the partitions of the batch.
    pub(super) oldest: EntryId,
}

impl Batch {
    pub(super) async fn run(mut self, mut groups: Vec<Group>, mut closed: watch::Receiver<()>) -> Vec<Group> {
        for _ in 0..ATTEMPTS {
            let mut pending: Vec<&mut Group> = groups
                .iter_mut()
                .filter(|group| !group.pending.is_empty())
                .collect();
            if pending.is_empty() {
                break;
            }
            let pipeline = self.pipeline(&pending);
            let replies = tokio::select! {
                biased;
                replies = pipeline.query_async::<Vec<Result<Value, RedisError>>>(&mut self.control) => replies.map_err(Some),
                _ = closed.changed() => Err(None),
            };
            match replies {
                Ok(replies) => {
                    let is_durable = is_durable(self.durability, replies.last());
                    let mut replies = replies.into_iter();
                    for group in pending {
                        group.settle(&mut replies, is_durable);
                    }
                }
                Err(mut error) => pending.iter_mut().for_each(|group| group.fail(&mut error)),
            }
        }
        groups.iter_mut().for_each(|group| group.fail(&mut None));
        groups
    }

    fn pipeline(&self, groups: &[&mut Group]) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(groups.len() + 1);
        pipeline.ignore_errors();
        for group in groups {
            group.add_commands(&mut pipeline, self.oldest);
        }
        add_wait(&mut pipeline, self.durability);
        pipeline
    }
}
