//! Streams of Redis or Valkey as a log, one for each partition.
//!
//! ```text
//! Append ─ queue ─ XADD, pipelined, one batch at a time ─▶ server      numbers: milliseconds since 2026 and sequence, packed
//! Follow ─ XINFO ─ Opened ─ XREAD BLOCK of the open partitions that others may append to ─▶ Records
//! own entries of the other partitions ─ from memory, acknowledged as the next ones ─▶ Records       see `sole`
//! failure: all is closed; located again (Sentinel, Cluster) and connected again; a server with another run ID is another binding
//! ```
//!
//! In a cluster each partition is read by a connection of its own. One whose slot is moved is closed once its stream is at the new node (`ASK`),
//! and opened again there, with `ASKING` before each command until the move is complete. Appends with a key wait for that (`TRYAGAIN`), and
//! those of their partition behind them.
//!
//! Entries older than the retention are deleted by the first append of a batch to their partition, up to whole nodes of the stream.

mod append;
mod batch;
mod cluster;
mod jobs;
mod keys;
mod number;
mod outcomes;
mod partitions;
mod read;
mod server;
mod sole;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use redis::{RedisError, Value};
use ringmain_cluster::log::{Append, AppendOutcome, LogEvent, LogPort, LogRequest, Partition};
use ringmain_gateway::model::{PushLog, RedisDeployment, RedisLog};
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use self::append::{asked_node, is_elsewhere};
use self::cluster::{KnownNode, Located, Location};
use self::jobs::{Done, OpenedStream, ReadStream};
use self::number::pack;
use self::partitions::{Advance, Partitions, Placement, Position};
use self::read::{Part, ReadSize, StreamEntry, before, opened_event};
use self::server::{NODE_OF_CLUSTER, Server};
use self::sole::Sole;
use super::Jobs;
use super::outbox::Outbox;
use super::queue::AppendQueue;
use super::retry::Retry;
use super::tails::{Tail, TailQueue};
use crate::failure::Failure;
use crate::limits;
use crate::redis::EntryId;

/// The number of a connected server, which is not used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ServerId(u32);

/// A server that partitions are at.
struct Connected {
    server: Server,
    /// Its address in a cluster.
    address: String,
    /// Ends the jobs at it when it is dropped.
    _open: watch::Sender<()>,
    closed: watch::Receiver<()>,
    queue: AppendQueue,
    is_appending: bool,
    /// The time of the newest entry that was seen, in milliseconds: retention counts from here.
    newest_ms: u64,
    reading: Reading,
}

/// The read that waits for records of a server's open partitions.
#[derive(Debug, Default)]
struct Reading {
    is_active: bool,
    /// Partitions were opened since it began: it is ended, and begins again with them.
    is_stale: bool,
    is_ending: bool,
    size: ReadSize,
}

/// The adapter.
struct Adapter<'l> {
    log: &'l PushLog,
    redis: &'l RedisLog,
    outbox: Outbox,
    jobs: Jobs<'l, Done>,
    partitions: Partitions,
    servers: BTreeMap<ServerId, Connected>,
    next_server: u32,
    /// Appends to partitions without a server.
    parked: AppendQueue,
    /// A job connects to the server, or searches nodes of a cluster.
    is_connecting: bool,
    /// Requests for older records.
    tails: TailQueue,
    retry: Retry,
}

/// Runs until the node ends.
pub(super) async fn run(log: &PushLog, redis: &RedisLog, port: LogPort) {
    let LogPort { mut requests, events } = port;
    let mut adapter = Adapter::new(log, redis, Outbox::new(events, "redis"));
    let mut check = tokio::time::interval(limits::LOG_CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    adapter.connect(Duration::ZERO);
    loop {
        adapter.start_jobs();
        if adapter.outbox.flush().await.is_err() {
            return;
        }
        tokio::select! {
            batch = requests.recv() => match batch {
                Some(batch) => adapter.handle_requests(batch),
                None => return,
            },
            Some(done) = adapter.jobs.next() => adapter.complete(done),
            _ = check.tick() => adapter.expire(),
        }
        // So that a batch has the appends that are here.
        while let Ok(batch) = requests.try_recv() {
            adapter.handle_requests(batch);
        }
        while let Some(Some(done)) = adapter.jobs.next().now_or_never() {
            adapter.complete(done);
        }
    }
}

impl<'l> Adapter<'l> {
    fn new(log: &'l PushLog, redis: &'l RedisLog, outbox: Outbox) -> Adapter<'l> {
        Adapter {
            log,
            redis,
            outbox,
            jobs: Jobs::new(),
            partitions: Partitions::new(&redis.prefix, log.partitions),
            servers: BTreeMap::new(),
            next_server: 0,
            parked: AppendQueue::default(),
            is_connecting: false,
            tails: TailQueue::default(),
            retry: Retry::default(),
        }
    }

    fn handle_requests(&mut self, requests: Vec<LogRequest>) {
        let now = clock::monotonic();
        for request in requests {
            match request {
                LogRequest::Append(append) => self.request_append(append, now),
                LogRequest::Follow { partition, from } => self.partitions.follows.follow(partition, from),
                LogRequest::Unfollow { partition } => self.partitions.follows.unfollow(partition),
                LogRequest::Tail {
                    partition,
                    before,
                    bytes,
                } => self.tails.request(
                    &self.partitions.follows,
                    &mut self.outbox,
                    partition,
                    before,
                    bytes,
                ),
            }
        }
    }

    fn request_append(&mut self, append: Append, now: Duration) {
        if self.partitions.state(append.partition).is_none() {
            return self.outbox.appended(append.id, AppendOutcome::Refused);
        }
        match self.queue_of(append.partition) {
            Some(queue) => queue.push(append, now),
            None => self.parked.push(append, now),
        }
    }

    /// Returns the queue of the server that a partition is at. `None`: its appends wait.
    fn queue_of(&mut self, partition: Partition) -> Option<&mut AppendQueue> {
        let id = self.partitions.queue_of(partition)?;
        let connected = self.servers.get_mut(&id)?;
        Some(&mut connected.queue)
    }

    /// Starts requests for older records.
    fn start_tails(&mut self) {
        while let Some(tail) = self.tails.take(&self.partitions.follows) {
            let state = self.partitions.state(tail.partition);
            let at = state.and_then(|state| Some((state, self.servers.get(&state.server?)?)));
            match at {
                Some((state, connected)) => self.jobs.push(jobs::tail(connected, state, tail)),
                // An open partition has a server.
                None => self.tails.complete(),
            }
        }
    }

    /// Starts what may be done at each server.
    fn start_jobs(&mut self) {
        self.start_tails();
        for (id, connected) in &mut self.servers {
            if !connected.is_appending && !connected.queue.is_empty() {
                let batch =
                    outcomes::take_batch(&mut connected.queue, &self.partitions, is_cluster(self.redis));
                if !batch.is_empty() {
                    connected.is_appending = true;
                    let partitions = batch.iter().map(|queued| queued.append.partition);
                    self.partitions.set_appending(partitions, true);
                    let retention = self.log.retention.as_millis() as u64;
                    let oldest = EntryId {
                        millis: connected.newest_ms.saturating_sub(retention),
                        sequence: 0,
                    };
                    let groups = batch::group(batch, &self.partitions, clock::monotonic());
                    self.jobs.push(jobs::append(*id, connected, groups, oldest));
                }
            }
            let waiting = self.partitions.take_waiting(*id);
            if is_cluster(self.redis) {
                let jobs = waiting
                    .into_iter()
                    .map(|stream| jobs::open_own(*id, connected, self.redis, stream));
                self.jobs.extend(jobs);
                continue;
            }
            if !waiting.is_empty() {
                self.jobs.push(jobs::open(*id, connected, waiting));
            }
            let reading = &mut connected.reading;
            if !reading.is_active {
                let streams = self.partitions.open_at(*id);
                if !streams.is_empty() {
                    reading.is_active = true;
                    reading.is_stale = false;
                    let connection = connected.server.reading.clone();
                    self.jobs.push(jobs::read(*id, connected, connection, streams));
                }
            } else if reading.is_stale && !reading.is_ending {
                reading.is_ending = true;
                self.jobs.extend(jobs::end_read(connected));
            }
        }
        if is_cluster(self.redis) {
            for (id, connection, stream) in self.partitions.take_unread() {
                if let Some(connected) = self.servers.get(&id) {
                    self.jobs
                        .push(jobs::read(id, connected, connection, vec![stream]));
                }
            }
        }
    }

    fn complete(&mut self, done: Done) {
        match done {
            Done::Connected(outcome) => {
                self.is_connecting = false;
                match outcome {
                    Ok(server) => self.connected(*server),
                    Err(failure) => {
                        self.outbox.disconnected(&failure.to_string());
                        self.reconnect();
                    }
                }
            }
            Done::Located(location) => self.located(location),
            Done::Failed(id, failure) => self.fail(id, &failure),
            Done::Appended(id, groups) => self.appended(id, groups),
            Done::Opened(id, streams) => self.opened(id, streams),
            Done::Read(id, streams, reply) => self.read(id, streams, reply),
            Done::ReadEnded => {}
            Done::Tail(id, tail, part) => self.tail(id, &tail, part),
        }
    }

    /// Connects after this time.
    fn connect(&mut self, wait: Duration) {
        let redis = self.redis;
        self.is_connecting = true;
        if !is_cluster(redis) {
            self.jobs.push(jobs::connect(redis, wait));
        } else {
            let known = self.servers.values().map(|connected| {
                let node = KnownNode {
                    control: connected.server.control.clone(),
                    run_id: connected.server.run_id.clone(),
                };
                (connected.address.clone(), node)
            });
            let known = known.collect();
            self.jobs
                .push(jobs::locate(redis, wait, self.partitions.to_search(), known));
        }
    }

    /// A server that has all partitions is connected.
    fn connected(&mut self, server: Server) {
        let binding = server.binding(self.redis);
        let id = self.add_server(server, String::new());
        let partitions = self.partitions.all().map(|partition| Placement {
            partition,
            binding,
            asked: None,
        });
        let partitions = partitions.collect();
        self.place(id, partitions);
        self.outbox.reachable();
    }

    fn add_server(&mut self, server: Server, address: String) -> ServerId {
        let id = ServerId(self.next_server);
        self.next_server += 1;
        let (open, closed) = watch::channel(());
        let connected = Connected {
            newest_ms: server.now_ms().unsigned_abs(),
            server,
            address,
            _open: open,
            closed,
            queue: AppendQueue::default(),
            is_appending: false,
            reading: Reading::default(),
        };
        self.jobs.extend(jobs::watch(id, &connected, self.redis));
        self.servers.insert(id, connected);
        id
    }

    /// Partitions are at a server.
    fn place(&mut self, id: ServerId, partitions: Vec<Placement>) {
        let mut placed = BTreeMap::new();
        for placement in partitions {
            let partition = placement.partition;
            let has_changed = self.partitions.place(id, placement);
            placed.insert(partition, has_changed);
            // One that was open while its slot moved.
            if has_changed
                && !self
                    .partitions
                    .follows
                    .interrupt(|each| each == partition)
                    .is_empty()
            {
                self.outbox.push(LogEvent::Closed { partition });
            }
        }
        // Entries for another state of the broker may not belong into this one: the node decides again.
        let is_changed = |partition| placed.get(&partition) == Some(&true);
        for queued in self.parked.extract(is_changed) {
            self.outbox.appended(queued.append.id, AppendOutcome::Refused);
        }
        self.release_parked();
    }

    /// Nodes of a cluster were searched.
    fn located(&mut self, location: Location) {
        self.is_connecting = false;
        for Located {
            address,
            server,
            partitions,
        } in location.nodes
        {
            let found = self
                .servers
                .iter()
                .find(|(_, connected)| connected.address == address);
            let id = match (found.map(|(id, _)| *id), server) {
                (Some(id), _) => id,
                (None, Some(server)) => self.add_server(server, address),
                // It has failed since: it is searched again.
                (None, None) => continue,
            };
            self.place(id, partitions);
        }
        if self.partitions.are_placed() {
            return self.outbox.reachable();
        }
        if let Some(failure) = location.failure {
            self.partitions.forget_asked();
            self.outbox.disconnected(&failure.to_string());
        }
        self.reconnect();
    }

    /// A partition of a cluster is at another node, or will be: it is searched again.
    fn displace(&mut self, id: ServerId, partition: Partition, error: &RedisError) {
        if !is_cluster(self.redis) {
            return self.fail(id, &Failure::Settings(NODE_OF_CLUSTER.to_owned()));
        }
        // Otherwise it is a reply of a server that it has left before.
        if self.partitions.state(partition).and_then(|state| state.server) != Some(id) {
            return;
        }
        let asked = asked_node(error);
        self.park(partition);
        if self.partitions.displace(partition, asked) {
            self.outbox.push(LogEvent::Closed { partition });
        }
        match asked {
            // The other node has it.
            Some(_) if !self.is_connecting => self.connect(Duration::ZERO),
            Some(_) => {}
            None => {
                self.outbox.disconnected(&error.to_string());
                self.reconnect();
            }
        }
    }

    fn reconnect(&mut self) {
        if !self.is_connecting {
            let wait = self.retry.next_wait();
            self.connect(wait);
        }
    }

    /// Closes all that is at a server, and connects again.
    fn fail(&mut self, id: ServerId, failure: &Failure) {
        let Some(connected) = self.servers.remove(&id) else {
            return;
        };
        self.outbox.disconnected(&failure.to_string());
        for partition in self.partitions.remove_server(id) {
            self.outbox.push(LogEvent::Closed { partition });
        }
        self.parked.append(connected.queue);
        self.reconnect();
    }

    fn opened(&mut self, id: ServerId, streams: Result<Vec<OpenedStream>, RedisError>) {
        let Some(now_ms) = self.servers.get(&id).map(|connected| connected.server.now_ms()) else {
            return;
        };
        let streams = match streams {
            Ok(streams) => streams,
            Err(error) => return self.fail(id, &error.into()),
        };
        for OpenedStream { opening, ends, own } in streams {
            let partition = opening.partition;
            let binding = self.partitions.state(partition).and_then(|state| state.binding);
            match (ends, binding) {
                (Ok(ends), Some(binding)) => {
                    let opened = opened_event(&opening, binding, &ends, now_ms);
                    let position = Position {
                        last: before(opened.from),
                        has_read: false,
                        sole: Sole::default(),
                        own,
                        is_reading: false,
                        is_verified: true,
                    };
                    if self.partitions.follows.open(&opening, position) {
                        self.outbox.push(LogEvent::Opened(opened));
                        self.set_stale(id);
                    }
                }
                (Err(error), _) if is_elsewhere(&error) => self.displace(id, partition, &error),
                (ends, _) => {
                    if self.partitions.follows.close(partition, opening.generation) {
                        let reason = ends.err().map(|error| error.to_string()).unwrap_or_default();
                        self.warn_closed(partition, &reason);
                        self.outbox.push(LogEvent::Closed { partition });
                    }
                }
            }
        }
    }

    fn set_stale(&mut self, id: ServerId) {
        if let Some(connected) = self.servers.get_mut(&id) {
            connected.reading.is_stale = true;
        }
    }

    fn read(&mut self, id: ServerId, streams: Vec<ReadStream>, reply: Result<Value, RedisError>) {
        for stream in &streams {
            self.partitions.read_ended(stream.partition, stream.generation);
        }
        let Some(connected) = self.servers.get_mut(&id) else {
            return;
        };
        connected.reading.is_active = false;
        connected.reading.is_ending = false;
        let now_ms = connected.server.now_ms();
        let reply = reply.and_then(|reply| read::read_reply(reply).ok_or_else(read::unexpected));
        let read = match (reply, &*streams) {
            (Ok(read), _) => read,
            (Err(error), [stream]) if is_elsewhere(&error) => {
                return self.displace(id, stream.partition, &error);
            }
            (Err(_), _) if self.close_refused(&streams) => return,
            (Err(error), _) => return self.fail(id, &error.into()),
        };
        let mut streams = streams.into_iter();
        for (name, entries) in read {
            // Streams have the order of the command; those without entries are left out.
            let Some(stream) = streams.find(|stream| stream.name.as_bytes() == &*name) else {
                return self.fail(id, &read::unexpected().into());
            };
            let (partition, generation) = (stream.partition, stream.generation);
            let bytes = entries.iter().map(|entry| entry.bytes.len()).sum();
            if let Some(connected) = self.servers.get_mut(&id) {
                connected.reading.size.note(entries.len(), bytes);
            }
            self.add_entries(id, (partition, generation), &entries, now_ms);
        }
    }

    /// Adds entries of a partition, without those that the node has already.
    fn add_entries(
        &mut self,
        id: ServerId,
        (partition, generation): (Partition, u32),
        entries: &[StreamEntry],
        now_ms: i64,
    ) {
        let Some(position) = self.partitions.follows.get_mut(partition, generation) else {
            return;
        };
        let known = entries.partition_point(|entry| entry.id <= position.last);
        let entries = &entries[known..];
        let (Some(connected), [first, ..], [.., last]) = (self.servers.get_mut(&id), entries, entries) else {
            return;
        };
        connected.newest_ms = connected.newest_ms.max(last.id.millis);
        let ends = [first.id, last.id];
        match self
            .partitions
            .advance((partition, generation), ends, self.log.retention)
        {
            Advance::Read => {
                let records = entries.iter().filter_map(StreamEntry::record).collect();
                self.outbox.records(partition, records, now_ms);
            }
            Advance::Doubtful => self.outbox.push(LogEvent::Closed { partition }),
            Advance::Stale => {}
        }
    }

    fn tail(&mut self, id: ServerId, tail: &Tail, part: Result<Part, RedisError>) {
        self.tails.complete();
        let Tail {
            partition,
            generation,
            before,
            ..
        } = *tail;
        if self.partitions.follows.get_mut(partition, generation).is_none() {
            return;
        }
        let Some(connected) = self.servers.get(&id) else {
            return;
        };
        let part = match part {
            Ok(part) => part,
            Err(error) if is_elsewhere(&error) => return self.displace(id, partition, &error),
            Err(error) => return self.close(partition, generation, &error.to_string()),
        };
        let records: Vec<_> = part.entries.iter().filter_map(StreamEntry::record).collect();
        let from = if part.is_first {
            1
        } else {
            let first = part.entries.iter().find_map(|entry| pack(entry.id));
            first.unwrap_or(before)
        };
        self.outbox.push(LogEvent::Older {
            partition,
            from: from.min(before),
            records,
            is_first: part.is_first,
            now_ms: connected.server.now_ms(),
        });
    }

    /// Closes one partition: the others remain open.
    fn close(&mut self, partition: Partition, generation: u32, reason: &str) {
        if self.partitions.follows.close(partition, generation) {
            self.warn_closed(partition, reason);
            self.outbox.push(LogEvent::Closed { partition });
        }
    }

    fn warn_closed(&mut self, partition: Partition, reason: &str) {
        self.outbox
            .warn(&format!("partition {}: {reason}; reading it again", partition.0));
    }
}

fn is_cluster(redis: &RedisLog) -> bool {
    redis.access.deployment == RedisDeployment::Cluster
}
