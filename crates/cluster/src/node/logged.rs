//! The channels whose publications are in a log: the partitions that this node reads, and its appends.
//!
//! ```text
//! publication ─▶ owner ─ Append ─▶ log ─ Records ─▶ owner: history, mirrors, and the outcome for the publisher
//! ```
//!
//! The owner of a partition appends, and answers once it has read its own entry: the offset, the life and the decision about an
//! idempotency key are then those of every reader. Two owners at the same time append to the same log and read the same records.
//! Publications without history have no offsets, and none is in the log.

mod append;
mod events;
mod histories;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::StreamPosition;

use super::Node;
use super::requests::Origin;
use crate::frame::{ChannelSettings, Frame};
use crate::limits;
use crate::log::reader::{Reader, ReaderState};
use crate::log::{
    Append, Entry, EntryId, FollowFrom, Health, Life, LifeEntry, LogRequest, Partition, partition_of,
};
use crate::member::{Phase, Uid, partition_owner};

/// The log of a cluster. Equal on all nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// The number of partitions, at least one.
    pub partitions: u16,
    /// The age of the records that an owner reads before it serves a partition; and the time for which mirrors that need older ones wait.
    pub takeover_time: Duration,
    /// The bytes of older records that an owner of a partition reads in the background.
    pub takeover_bytes: usize,
}

/// Counters of a log since the start of the node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Publications that the log has acknowledged, or that were read.
    pub appended: u64,
    /// Publications that were not appended.
    pub refused: u64,
    /// Publications whose outcome is unknown.
    pub unknown: u64,
    /// Records that were read.
    pub records: u64,
    /// Records that are no entries of this version.
    pub unreadable: u64,
    /// Publications whose key was used before.
    pub repeated: u64,
    /// Lives that have begun.
    pub lives: u64,
    /// Times that records were gone which were read before.
    pub rollbacks: u64,
    /// Times that records were deleted before they were read.
    pub trimmed: u64,
}

/// The state of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogReport {
    /// Entries that are appended to the partitions of this node arrive.
    pub is_ready: bool,
    /// The adapter reaches the broker.
    pub is_connected: bool,
    /// The reason if it does not.
    pub reason: Arc<str>,
    /// The partitions of the log.
    pub partitions: usize,
    /// Those that this node owns.
    pub owned: usize,
    /// Owned partitions whose entries it reads.
    pub live: usize,
    /// The channels with publications in the log that this node has.
    pub channels: usize,
    /// Appends in flight.
    pub appends: usize,
    /// The last time from an append to its reading.
    pub round_trip: Duration,
    /// The longest time since an own beat was read, over the partitions that this node owns.
    pub silent: Duration,
    /// The counters.
    pub counts: LogCounts,
}

/// See the module.
#[derive(Debug)]
pub(super) struct NodeLog {
    options: LogOptions,
    followed: BTreeMap<Partition, Followed>,
    appends: BTreeMap<u64, PendingAppend>,
    append_bytes: usize,
    last_append: u64,
    /// The appends that were not needed, since their key was appended before under this number, which is not read yet.
    repeats: BTreeSet<(Partition, u64, u64)>,
    keys_in_flight: BTreeMap<(Arc<str>, Box<str>), u64>,
    requests: Vec<LogRequest>,
    health: Health,
    /// The start of the node, or the time at which the broker was lost last.
    lost_at: Duration,
    /// Beats that were appended since then have arrived in all partitions that the node owned.
    is_proven: bool,
    reviewed_at: Duration,
    round_trip: Duration,
    counts: LogCounts,
}

/// A partition that this node reads.
#[derive(Debug)]
struct Followed {
    reader: Reader,
    is_owned: bool,
    /// The node has no use for it since then.
    idle_since: Option<Duration>,
    follow_at: Duration,
    beat_sent: Duration,
    /// The time at which the last own beat was read, or at which the node has become the owner.
    beat_read: Duration,
    /// The time at which that beat was appended.
    beat_appended: Option<Duration>,
    /// Records were gone: a new life must begin above this number; `None` until the log is read again.
    rollback: Option<Option<u64>>,
    life_sent: Option<Duration>,
    /// A mirror has a position above the last record since then.
    ahead: Option<(u64, Duration)>,
}

/// An append that is not both acknowledged and read yet.
#[derive(Debug)]
struct PendingAppend {
    partition: Partition,
    kind: AppendKind,
    /// The life of the log at that time.
    life: Option<Life>,
    bytes: usize,
    at: Duration,
    /// The broker has acknowledged it, with the replicas that it waits for.
    is_acknowledged: bool,
    /// Its entry was read: the position of the publication.
    read: Option<Option<StreamPosition>>,
}

#[derive(Debug)]
enum AppendKind {
    Publication {
        channel: Arc<str>,
        key: Option<Box<str>>,
        /// The publisher, and those that have published with the same key meanwhile.
        origins: Vec<Origin>,
    },
    /// A beat that proves the log for a publication whose key was used before: the position of the first one.
    Repetition {
        origin: Origin,
        first: Option<StreamPosition>,
    },
    Beat,
    Life,
}

impl NodeLog {
    pub(super) fn partitions(&self) -> u16 {
        self.options.partitions
    }

    /// Handles a change of the broker's state.
    fn set_health(&mut self, health: Health, now: Duration) {
        if !health.is_connected {
            (self.is_proven, self.lost_at) = (false, now);
        }
        self.health = health;
    }

    /// Notes whether beats that were appended since the broker was lost have arrived in all partitions of this node.
    fn note_proof(&mut self) {
        let mut owned = self.followed.values().filter(|followed| followed.is_owned);
        let lost_at = self.lost_at;
        let has_arrived = owned.all(|followed| followed.beat_appended.is_some_and(|at| at >= lost_at));
        self.is_proven |= has_arrived && self.health.is_connected && self.reviewed_at > Duration::ZERO;
    }
}

impl Followed {
    fn new(fill_bytes: usize, now: Duration) -> Followed {
        Followed {
            reader: Reader::new(fill_bytes, now),
            is_owned: false,
            idle_since: None,
            follow_at: now,
            beat_sent: Duration::ZERO,
            beat_read: now,
            beat_appended: None,
            rollback: None,
            life_sent: None,
            ahead: None,
        }
    }
}

impl Node {
    /// Keeps the publications of channels with history in a log. Called before the node has links.
    pub fn set_log(&mut self, options: LogOptions) {
        let log = NodeLog {
            options,
            followed: BTreeMap::new(),
            appends: BTreeMap::new(),
            append_bytes: 0,
            last_append: 0,
            repeats: BTreeSet::new(),
            keys_in_flight: BTreeMap::new(),
            requests: Vec::new(),
            health: Health {
                is_connected: false,
                reason: "not connected yet".into(),
            },
            lost_at: Duration::ZERO,
            is_proven: false,
            reviewed_at: Duration::ZERO,
            round_trip: Duration::ZERO,
            counts: LogCounts::default(),
        };
        self.mirrors.partitions = options.partitions;
        self.log = Some(Box::new(log));
    }

    /// Returns the requests for the adapter of the log, in order.
    pub fn take_log_requests(&mut self) -> Vec<LogRequest> {
        self.log
            .as_mut()
            .map_or_else(Vec::new, |log| std::mem::take(&mut log.requests))
    }

    /// Returns the partition of a channel that has its history in a log.
    pub(super) fn logged_partition(&self, channel: &str, settings: &ChannelSettings) -> Option<Partition> {
        let log = self.log.as_ref().filter(|_| settings.history.is_some())?;
        Some(partition_of(channel, log.options.partitions))
    }

    /// Returns whether a frame requests something of a channel with its history in a log.
    pub(super) fn needs_log(&self, frame: &Frame) -> bool {
        let (channel, settings) = match frame {
            Frame::Subscribe {
                channel, settings, ..
            }
            | Frame::Query {
                channel, settings, ..
            }
            | Frame::RelayedQuery {
                channel, settings, ..
            } => (channel, settings),
            Frame::Publish { publish, .. } | Frame::RelayedPublish { publish, .. } => {
                (&publish.channel, &publish.settings)
            }
            _ => return false,
        };
        self.logged_partition(channel, settings).is_some()
    }

    fn followed(&self, partition: Partition) -> Option<&Followed> {
        self.log.as_ref()?.followed.get(&partition)
    }

    fn followed_mut(&mut self, partition: Partition) -> Option<&mut Followed> {
        self.log.as_mut()?.followed.get_mut(&partition)
    }

    /// Returns whether publications wait for the log.
    pub(super) fn awaits_appends(&self) -> bool {
        let is_publication = |append: &PendingAppend| matches!(append.kind, AppendKind::Publication { .. });
        let log = self.log.as_ref();
        log.is_some_and(|log| log.appends.values().any(is_publication))
    }

    /// Returns the state of the log, if there is one.
    #[must_use]
    pub fn log_report(&self, now: Duration) -> Option<LogReport> {
        let log = self.log.as_ref()?;
        let owned = || log.followed.values().filter(|followed| followed.is_owned);
        let silent = owned()
            .map(|followed| now.saturating_sub(followed.beat_read))
            .max();
        let silent = silent.unwrap_or_default();
        let readers = log.followed.values().map(|followed| &followed.reader);
        Some(LogReport {
            // A push gateway has no adapter.
            is_ready: !self.member.role.owns_channels()
                || (log.is_proven && log.health.is_connected && silent < limits::LOG_SILENT_AFTER),
            is_connected: log.health.is_connected,
            reason: Arc::clone(&log.health.reason),
            partitions: usize::from(log.options.partitions),
            owned: owned().count(),
            live: owned().filter(|followed| followed.reader.is_live()).count(),
            channels: readers
                .map(|reader| reader.channels() + reader.served().len())
                .sum(),
            appends: log.appends.len(),
            round_trip: log.round_trip,
            silent,
            counts: log.counts,
        })
    }

    /// Returns the owner of a partition: as this node sees it, or as it will be when this node, which joins, owns channels.
    fn owner_of_partition(&self, partition: Partition) -> Option<Uid> {
        let in_phase = |phase| {
            let others = self.peers.values().filter(move |peer| peer.status.phase == phase);
            let own_phase = match self.status.phase {
                Phase::Joining => Phase::Active,
                other => other,
            };
            let own = (own_phase == phase).then_some(&self.member);
            partition_owner(partition.0, others.map(|peer| &peer.member).chain(own))
        };
        in_phase(Phase::Active).or_else(|| in_phase(Phase::Leaving))
    }

    /// Follows the partitions that this node owns, and ends those that it has no use for.
    pub(super) fn review_partitions(&mut self, now: Duration) {
        let Some(options) = self.log.as_ref().map(|log| log.options) else {
            return;
        };
        let all = (0..options.partitions).map(Partition);
        let owners: Vec<_> = all
            .map(|partition| (partition, self.owner_of_partition(partition)))
            .collect();
        let own = self.member.uid;
        let Some(log) = &mut self.log else { return };
        log.reviewed_at = now;
        for (partition, owner) in owners {
            let is_owned = owner == Some(own);
            if is_owned {
                let followed = log.followed.entry(partition);
                let followed = followed.or_insert_with(|| Followed::new(options.takeover_bytes, now));
                if !followed.is_owned {
                    followed.beat_read = now;
                }
                (followed.is_owned, followed.idle_since) = (true, None);
            } else if let Some(followed) = log.followed.get_mut(&partition) {
                followed.is_owned = false;
                let is_idle = followed.reader.served().is_empty();
                followed.idle_since = is_idle.then(|| followed.idle_since.unwrap_or(now));
            }
        }
        let is_unused = |followed: &Followed| {
            let idle = followed.idle_since.map(|since| now.saturating_sub(since));
            idle.is_some_and(|idle| idle >= limits::LOG_LINGER)
        };
        let unused = log.followed.iter().filter(|(_, followed)| is_unused(followed));
        let unused: Vec<Partition> = unused.map(|(partition, _)| *partition).collect();
        for partition in unused {
            log.followed.remove(&partition);
            log.requests.push(LogRequest::Unfollow { partition });
        }
        self.follow_closed(now);
    }

    /// Requests the partitions that are closed.
    fn follow_closed(&mut self, now: Duration) {
        let Some(log) = &mut self.log else { return };
        for (partition, followed) in &mut log.followed {
            if followed.reader.state() != ReaderState::Closed || now < followed.follow_at {
                continue;
            }
            let from = match followed.reader.continues_at() {
                Some(number) => FollowFrom::Number(number),
                None => FollowFrom::Recent(log.options.takeover_time),
            };
            followed.follow_at = now + limits::LOG_FOLLOW_INTERVAL;
            followed.reader.set_requested();
            let partition = *partition;
            log.requests.push(LogRequest::Follow { partition, from });
        }
    }

    /// Handles the passing of time.
    pub(super) fn tick_log(&mut self, now: Duration) {
        let Some(log) = &self.log else { return };
        if now.saturating_sub(log.reviewed_at) >= limits::LOG_BEAT_INTERVAL {
            self.review_partitions(now);
            self.expire_logged(now);
        }
        self.follow_closed(now);
        let Some(log) = &mut self.log else { return };
        log.note_proof();
        let partitions: Vec<Partition> = log.followed.keys().copied().collect();
        for partition in partitions {
            self.tick_partition(partition, now);
        }
        self.expire_appends(now);
        self.install_ready(now);
    }

    fn tick_partition(&mut self, partition: Partition, now: Duration) {
        self.check_ahead(partition, now);
        self.settle_partition(partition, now);
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        let is_due = now.saturating_sub(followed.beat_sent) >= limits::LOG_BEAT_INTERVAL;
        if followed.is_owned
            && is_due
            && followed.reader.is_live()
            && let Some(beat) = followed.reader.beat()
        {
            followed.beat_sent = now;
            self.append(partition, AppendKind::Beat, now, |id| Entry::Beat { id, beat });
        }
    }

    /// Appends a life where one is needed.
    fn append_life(&mut self, partition: Partition, now: Duration) {
        if self.status.phase == Phase::Joining {
            // Other nodes may have begun one.
            return;
        }
        let reuses = self.has_planted(super::Mutation::ReusedLife);
        let drawn = Life(self.draw_epoch().number());
        let Some(followed) = self.followed_mut(partition) else {
            return;
        };
        let is_waiting = |sent: Duration| now.saturating_sub(sent) < limits::LOG_LIFE_INTERVAL;
        if followed.life_sent.is_some_and(is_waiting) {
            return;
        }
        followed.life_sent = Some(now);
        let life = LifeEntry {
            life: followed.reader.life().filter(|_| reuses).unwrap_or(drawn),
            binding: followed.reader.binding(),
        };
        self.append(partition, AppendKind::Life, now, |id| Entry::Life { id, life });
    }
}
