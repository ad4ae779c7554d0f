//! Workers without threads, whose mail the tests deliver.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ringmain_hub::history::HistoryOptions;
use ringmain_hub::mail::{ChannelOptions, QueryResult, ShardRequest, SlowConsumerPolicy, WorkerId};
use ringmain_hub::protocol::{ClientInfo, Format, Published, Variant};
use ringmain_hub::shard::ChannelShard;
use ringmain_hub::subscribers::{ConnId, ProgramReply, SubscriberEvent, SubscriberLimits, SubscriberTable};

pub(crate) const PLAIN: ChannelOptions = ChannelOptions {
    history: None,
    position_ttl: Duration::ZERO,
    presence: false,
    join_leave: false,
    slow_consumer: SlowConsumerPolicy::Disconnect,
    cache_recovery: false,
    conflation_interval: None,
    delta: false,
    tags_filter: false,
    compaction: false,
};

pub(crate) const KEPT: ChannelOptions = ChannelOptions {
    history: Some(HistoryOptions {
        publications: 50,
        bytes: 1 << 20,
        ttl: Duration::from_secs(3600),
    }),
    position_ttl: Duration::from_secs(3600),
    ..PLAIN
};

pub(crate) const JSON: Variant = Variant {
    format: Format::Json,
    unidirectional: false,
    framed: false,
};

pub(crate) const LIMITS: SubscriberLimits = SubscriberLimits {
    subscriptions: 4,
    queued_bytes: 1 << 20,
};

/// Workers whose mail the tests deliver.
pub(crate) struct Workers {
    pub(crate) shards: Vec<ChannelShard>,
    pub(crate) tables: Vec<SubscriberTable>,
    /// The requests in flight, by sender and receiver.
    up: Vec<Vec<VecDeque<ShardRequest>>>,
    pub(crate) now: Duration,
}

impl Workers {
    pub(crate) fn new(count: u16, limits: SubscriberLimits) -> Workers {
        let queues = || (0..count).map(|_| VecDeque::new()).collect();
        Workers {
            shards: (0..count)
                .map(|worker| ChannelShard::new(count, 1000, u64::from(worker)))
                .collect(),
            tables: (0..count).map(|_| SubscriberTable::new(count, limits)).collect(),
            up: (0..count).map(|_| queues()).collect(),
            now: Duration::ZERO,
        }
    }

    /// Queues the requests of a worker for delivery.
    pub(crate) fn post(&mut self, worker: usize) {
        for (shard, queue) in (0..).zip(&mut self.up[worker]) {
            while let Some(message) = self.tables[worker].poll_request(WorkerId(shard)) {
                queue.push_back(message);
            }
        }
    }

    /// Delivers up to `limit` requests of a worker to a shard.
    pub(crate) fn up(&mut self, worker: usize, shard: usize, limit: usize) {
        self.post(worker);
        for _ in 0..limit {
            let Some(message) = self.up[worker][shard].pop_front() else {
                break;
            };
            self.shards[shard].handle(WorkerId(worker as u16), message, self.now);
        }
    }

    /// Delivers up to `limit` messages of a shard to a worker.
    pub(crate) fn down(&mut self, shard: usize, worker: usize, limit: usize) {
        for _ in 0..limit {
            let Some(message) = self.shards[shard].poll(WorkerId(worker as u16), self.now) else {
                break;
            };
            self.tables[worker].handle(message);
        }
    }

    /// Delivers all mail, and sends the updates that are due.
    pub(crate) fn deliver_all(&mut self) {
        for _ in 0..6 {
            for worker in 0..self.tables.len() {
                for shard in 0..self.shards.len() {
                    self.up(worker, shard, usize::MAX);
                    self.down(shard, worker, usize::MAX);
                }
            }
        }
        for worker in 0..self.tables.len() {
            for shard in 0..self.shards.len() as u16 {
                assert!(
                    !self.tables[worker].has_mail(WorkerId(shard)),
                    "all mail is delivered"
                );
            }
            let table = &mut self.tables[worker];
            while table.next_release().is_some_and(|next| next <= self.now) {
                table.release(self.now);
            }
        }
    }

    pub(crate) fn events(&mut self, worker: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(event) = self.tables[worker].poll_event() {
            texts.push(match event {
                SubscriberEvent::Subscribed {
                    channel,
                    position,
                    missed,
                    ..
                } => {
                    let missed =
                        missed.map(|missed| missed.iter().map(|(offset, _)| *offset).collect::<Vec<_>>());
                    format!(
                        "subscribed {channel} at {:?} missed {missed:?}",
                        position.map(|position| position.offset)
                    )
                }
                SubscriberEvent::Rejected { channel, fault, .. } => {
                    format!("rejected {channel}: {}", fault.code)
                }
                SubscriberEvent::Unsubscribed { channel, reason, .. } => {
                    format!("unsubscribed {channel}: {}", reason.code)
                }
                SubscriberEvent::Published { number, position, .. } => {
                    format!(
                        "published {number} at {:?}",
                        position.map(|position| position.offset)
                    )
                }
                SubscriberEvent::QueryResult { number, result, .. } => {
                    format!("result {number} {}", describe(&result))
                }
                SubscriberEvent::Disconnected { reason, .. } => format!("disconnected {}", reason.code),
            });
        }
        texts
    }

    /// Returns the replies of a worker to programs.
    pub(crate) fn replies(&mut self, worker: usize) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some((number, answer)) = self.tables[worker].poll_reply() {
            texts.push(match answer {
                ProgramReply::Published(position) => {
                    format!(
                        "{number} published at {:?}",
                        position.map(|position| position.offset)
                    )
                }
                ProgramReply::QueryResult(result) => format!("{number} result {}", describe(&result)),
            });
        }
        texts
    }

    pub(crate) fn pushes(&mut self, worker: usize, conn: ConnId) -> Vec<String> {
        let mut all = Vec::new();
        while let Some(frame) = self.tables[worker].pop_push(conn) {
            all.push(String::from_utf8(frame.to_vec()).expect("JSON is text"));
        }
        all
    }
}

fn describe(result: &QueryResult) -> String {
    match result {
        QueryResult::History {
            publications,
            position,
        } => {
            let offsets: Vec<u64> = publications.iter().map(|(offset, _)| *offset).collect();
            format!("{offsets:?} at {}", position.offset)
        }
        QueryResult::Unrecoverable => "unrecoverable".to_owned(),
        QueryResult::Presence(present) => {
            let clients: Vec<&str> = present.iter().map(|info| &*info.client).collect();
            format!("{clients:?}")
        }
        QueryResult::PresenceStats { clients, users } => format!("{clients} clients, {users} users"),
        QueryResult::HistoryCleared => "cleared".to_owned(),
        QueryResult::NotAvailable => "not available".to_owned(),
        QueryResult::ChannelLimit => "channel limit".to_owned(),
        QueryResult::Draining => "draining".to_owned(),
        QueryResult::Unreachable => "unreachable".to_owned(),
    }
}

pub(crate) fn name(channel: &str) -> Arc<str> {
    Arc::from(channel)
}

pub(crate) fn number(number: u64) -> Published {
    Published {
        data: Bytes::from(number.to_string()),
        ..Published::default()
    }
}

pub(crate) fn info(client: &str) -> Option<Arc<ClientInfo>> {
    Some(Arc::new(ClientInfo {
        client: client.to_owned(),
        ..ClientInfo::default()
    }))
}
