//! Commands at a server, each with its completion. They end when the server is given up.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, Pipeline, RedisError, Value, cmd};
use ringmain_cluster::log::Partition;
use ringmain_gateway::model::RedisLog;
use tokio::sync::watch;
use tokio::time::sleep;

use super::append::{Outcome, Sent, add_command, add_wait, is_durable, outcome};
use super::cluster::{self, KnownNode, Location};
use super::partitions::{PartitionState, Partitions, Search};
use super::read::{self, Ends, Part};
use super::server::{Durability, READ_RESPONSE_TIME, Server, check_role};
use super::{Connected, ServerId};
use crate::failure::Failure;
use crate::log::follows::Opening;
use crate::log::queue::Queued;
use crate::log::tails::Tail;
use crate::redis::{Access, EntryId, watch_master};

/// The interval at which a server is queried for its role, and Sentinels for the master.
const MASTER_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to end a read, and the time between them.
const UNBLOCK_ATTEMPTS: usize = 3;
const UNBLOCK_INTERVAL: Duration = Duration::from_millis(20);
/// Attempts to append an entry whose identifier has no number.
const NUMBER_ATTEMPTS: usize = 8;

/// The completion of a job.
pub(super) enum Done {
    Connected(Result<Box<Server>, Failure>),
    Located(Location),
    Failed(ServerId, Failure),
    Appended(ServerId, Vec<(Queued, Outcome)>),
    Opened(ServerId, Result<Vec<OpenedStream>, RedisError>),
    Read(ServerId, Vec<ReadStream>, Result<Value, RedisError>),
    /// The end of a read was requested.
    ReadEnded,
    Tail(ServerId, Tail, Result<Part, RedisError>),
}

/// A partition that is to be opened.
pub(super) struct OpeningStream {
    pub(super) opening: Opening,
    pub(super) name: Arc<str>,
    pub(super) is_asking: bool,
}

/// A partition whose ends are known.
pub(super) struct OpenedStream {
    pub(super) opening: Opening,
    pub(super) ends: Result<Ends, RedisError>,
    /// The connection for this partition alone, in a cluster.
    pub(super) own: Option<MultiplexedConnection>,
}

/// A partition that is read.
pub(super) struct ReadStream {
    pub(super) partition: Partition,
    pub(super) generation: u32,
    pub(super) name: Arc<str>,
    pub(super) last: EntryId,
    pub(super) is_asking: bool,
}

type Job<'l> = Pin<Box<dyn Future<Output = Done> + Send + 'l>>;

/// Locates the server and connects to it, after this time.
pub(super) fn connect(redis: &RedisLog, wait: Duration) -> Job<'_> {
    Box::pin(async move {
        sleep(wait).await;
        let open = async {
            let access = Access::resolve(&redis.access).await?;
            Server::open(redis, &access, None).await
        };
        Done::Connected(open.await.map(Box::new))
    })
}

/// Finds the nodes of a cluster that have these partitions, after this time.
pub(super) fn locate(
    redis: &RedisLog,
    wait: Duration,
    partitions: Vec<Search>,
    known: BTreeMap<String, KnownNode>,
) -> Job<'_> {
    Box::pin(async move {
        sleep(wait).await;
        Done::Located(cluster::locate(redis, partitions, known).await)
    })
}

/// Waits until the server is not the master any more: it says so, or Sentinels name another one. `None`: it is a node of a cluster, which
/// refuses commands then.
pub(super) fn watch<'l>(id: ServerId, connected: &Connected, redis: &'l RedisLog) -> Option<Job<'l>> {
    let address = connected.server.address.clone()?;
    let mut control = connected.server.control.clone();
    let mut closed = connected.closed.clone();
    Some(Box::pin(async move {
        let failure = tokio::select! {
            failure = watch_role(&mut control, &address) => failure,
            failure = watch_master(&redis.access, &address, MASTER_INTERVAL) => failure,
            _ = closed.changed() => Failure::Ended("closed".to_owned()),
        };
        Done::Failed(id, failure)
    }))
}

/// Returns once the server is not a master any more, or does not respond.
async fn watch_role(control: &mut MultiplexedConnection, address: &ConnectionAddr) -> Failure {
    loop {
        sleep(MASTER_INTERVAL).await;
        if let Err(failure) = check_role(control, address).await {
            return failure;
        }
    }
}

/// Appends a batch. `oldest`: entries before are deleted from the partitions of the batch.
pub(super) fn append(
    id: ServerId,
    connected: &Connected,
    partitions: &Partitions,
    batch: Vec<Queued>,
    oldest: EntryId,
) -> Job<'static> {
    let sent = batch.into_iter().map(|queued| {
        let state = partitions.state(queued.append.partition);
        Sent {
            stream: state.map(|state| Arc::clone(&state.stream)).unwrap_or_default(),
            queued,
            numberless: None,
            explicit: None,
            is_asking: state.is_some_and(PartitionState::is_asking),
        }
    });
    let pending = sent.collect();
    let batch = Batch {
        control: connected.server.control.clone(),
        durability: connected.server.durability,
        oldest,
        outcomes: Vec::new(),
    };
    let closed = connected.closed.clone();
    Box::pin(async move { Done::Appended(id, batch.run(pending, closed).await) })
}

/// A batch of appends on its way.
struct Batch {
    control: MultiplexedConnection,
    durability: Durability,
    oldest: EntryId,
    outcomes: Vec<(Queued, Outcome)>,
}

impl Batch {
    async fn run(
        mut self,
        mut pending: Vec<Sent>,
        mut closed: watch::Receiver<()>,
    ) -> Vec<(Queued, Outcome)> {
        for _ in 0..NUMBER_ATTEMPTS {
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
                Ok(replies) => pending = self.settle(pending, replies),
                Err(error) => {
                    // The first one has the reason.
                    let mut error = error;
                    for sent in pending.drain(..) {
                        self.outcomes.push((sent.queued, Outcome::Unknown(error.take())));
                    }
                }
            }
        }
        let unfinished = pending
            .into_iter()
            .map(|sent| (sent.queued, Outcome::Unknown(None)));
        self.outcomes.extend(unfinished);
        self.outcomes
    }

    fn pipeline(&self, pending: &[Sent]) -> Pipeline {
        let mut pipeline = Pipeline::with_capacity(pending.len() + 1);
        pipeline.ignore_errors();
        let mut trimmed = BTreeSet::new();
        for sent in pending {
            let trims = trimmed.insert(sent.queued.append.partition);
            add_command(&mut pipeline, sent, trims.then_some(self.oldest));
        }
        add_wait(&mut pipeline, self.durability);
        pipeline
    }

    /// Notes the outcomes. Returns the appends that have to be sent again, since their identifiers have no number.
    fn settle(&mut self, pending: Vec<Sent>, replies: Vec<Result<Value, RedisError>>) -> Vec<Sent> {
        let is_durable = is_durable(self.durability, replies.last());
        let mut replies = replies.into_iter();
        let mut again: Vec<Sent> = Vec::new();
        for mut sent in pending {
            if sent.is_asking {
                replies.next();
            }
            let outcome = replies.next().map_or(Outcome::Unexpected, outcome);
            match outcome {
                Outcome::Numberless(id) => {
                    let partition = sent.queued.append.partition;
                    let is_first = again
                        .iter()
                        .all(|other| other.queued.append.partition != partition);
                    // The first one moves the stream to the next millisecond, the others follow.
                    sent.explicit = is_first.then_some(EntryId {
                        millis: id.millis + 1,
                        sequence: 0,
                    });
                    sent.numberless = Some(id);
                    again.push(sent);
                }
                Outcome::TooLow => {
                    sent.explicit = None;
                    again.push(sent);
                }
                Outcome::Done(..) if !is_durable => self.outcomes.push((sent.queued, Outcome::NotDurable)),
                outcome => self.outcomes.push((sent.queued, outcome)),
            }
        }
        again
    }
}

/// Queries the ends of streams.
pub(super) fn open(id: ServerId, connected: &Connected, streams: Vec<OpeningStream>) -> Job<'static> {
    let mut control = connected.server.control.clone();
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let mut pipeline = Pipeline::with_capacity(streams.len());
        pipeline.ignore_errors();
        for stream in &streams {
            pipeline.add_command(read::ends_command(&stream.name));
        }
        let replies = tokio::select! {
            replies = pipeline.query_async::<Vec<Result<Value, RedisError>>>(&mut control) => replies,
            _ = closed.changed() => Err(is_closed()),
        };
        let opened = replies.map(|replies| {
            let opened = streams.into_iter().zip(replies);
            let opened = opened.map(|(stream, reply)| OpenedStream {
                opening: stream.opening,
                ends: Ends::of(reply),
                own: None,
            });
            opened.collect()
        });
        Done::Opened(id, opened)
    })
}

/// Queries the ends of one stream of a cluster, and opens a connection for it: one read cannot have streams of several slots.
pub(super) fn open_own<'l>(
    id: ServerId,
    connected: &Connected,
    redis: &'l RedisLog,
    stream: OpeningStream,
) -> Job<'l> {
    let mut control = connected.server.control.clone();
    let mut closed = connected.closed.clone();
    let address = connected.address.clone();
    Box::pin(async move {
        let open = async {
            let command = read::ends_command(&stream.name);
            let ends = read::query(&mut control, &command, stream.is_asking).await;
            let ends = Ends::of(ends);
            let access = Access::resolve(&redis.access).await.map_err(unreachable_node)?;
            let own = access
                .open_at(&address, READ_RESPONSE_TIME)
                .await
                .map_err(unreachable_node)?;
            Ok(vec![OpenedStream {
                opening: stream.opening,
                ends,
                own: Some(own),
            }])
        };
        let opened = tokio::select! {
            opened = open => opened,
            _ = closed.changed() => Err(is_closed()),
        };
        Done::Opened(id, opened)
    })
}

fn unreachable_node(failure: Failure) -> RedisError {
    (
        redis::ErrorKind::Io,
        "a node cannot be reached",
        failure.to_string(),
    )
        .into()
}

fn is_closed() -> RedisError {
    (redis::ErrorKind::Client, "closed").into()
}

/// Waits for records of streams.
pub(super) fn read(
    id: ServerId,
    connected: &Connected,
    mut reading: MultiplexedConnection,
    streams: Vec<ReadStream>,
) -> Job<'static> {
    let mut closed = connected.closed.clone();
    let count = connected.reading.size.count(streams.len());
    Box::pin(async move {
        let positions = streams.iter().map(|stream| (&*stream.name, stream.last));
        let command = read::read_command(positions, count);
        let is_asking = streams.iter().any(|stream| stream.is_asking);
        let reply = tokio::select! {
            reply = read::query(&mut reading, &command, is_asking) => reply,
            _ = closed.changed() => Err(is_closed()),
        };
        Done::Read(id, streams, reply)
    })
}

/// Ends a read that waits. `None`: it ends by itself in at most [`BLOCK`](super::server::BLOCK).
pub(super) fn end_read(connected: &Connected) -> Option<Job<'static>> {
    let client = connected.server.reading_id?;
    let mut control = connected.server.control.clone();
    let mut closed = connected.closed.clone();
    Some(Box::pin(async move {
        let mut command = cmd("CLIENT");
        command.arg("UNBLOCK").arg(client);
        let end = async {
            // The server may not have the read yet. A user may not have the permission.
            for _ in 0..UNBLOCK_ATTEMPTS {
                if !matches!(command.query_async(&mut control).await, Ok(Value::Int(0))) {
                    return;
                }
                sleep(UNBLOCK_INTERVAL).await;
            }
        };
        tokio::select! {
            () = end => {}
            _ = closed.changed() => {}
        }
        Done::ReadEnded
    }))
}

/// Reads the part of a partition below a number.
pub(super) fn tail(connected: &Connected, state: &PartitionState, tail: Tail) -> Job<'static> {
    let control = connected.server.control.clone();
    let mut closed = connected.closed.clone();
    let size = connected.reading.size;
    let (stream, server, is_asking) = (Arc::clone(&state.stream), state.server, state.is_asking());
    Box::pin(async move {
        let part = tokio::select! {
            part = read::tail(control, (&stream, is_asking), tail.before, tail.bytes, size) => part,
            _ = closed.changed() => Err(is_closed()),
        };
        Done::Tail(server.unwrap_or(ServerId(u32::MAX)), tail, part)
    })
}
