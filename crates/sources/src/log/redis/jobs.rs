//! Commands at a server, each with its completion. They end when the server is given up.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{ConnectionAddr, Pipeline, RedisError, Value, cmd};
use ringmain_cluster::log::Partition;
use ringmain_gateway::model::RedisLog;
use tokio::time::sleep;

use super::batch::{Batch, Group};
use super::cluster::{self, KnownNode, Location};
use super::partitions::{PartitionState, Search};
use super::read::{self, Ends, Part};
use super::server::{READ_RESPONSE_TIME, Server, check_role};
use super::{Connected, ServerId};
use crate::failure::Failure;
use crate::log::follows::Opening;
use crate::log::tails::Tail;
use crate::redis::{Access, EntryId, watch_master};

/// The interval at which a server is queried for its role, and Sentinels for the master.
const MASTER_INTERVAL: Duration = Duration::from_millis(500);
/// Attempts to end a read, and the time between them.
const UNBLOCK_ATTEMPTS: usize = 3;
const UNBLOCK_INTERVAL: Duration = Duration::from_millis(20);

/// The completion of a job.
pub(super) enum Done {
    Connected(Result<Box<Server>, Failure>),
    Located(Location),
    Failed(ServerId, Failure),
    Appended(ServerId, Vec<Group>),
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
    /// The reason for which the server reads none of the streams, if it is this one.
    pub(super) refusal: Option<RedisError>,
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
    groups: Vec<Group>,
    oldest: EntryId,
) -> Job<'static> {
    let batch = Batch {
        control: connected.server.control.clone(),
        durability: connected.server.durability,
        oldest,
    };
    let closed = connected.closed.clone();
    Box::pin(async move { Done::Appended(id, batch.run(groups, closed).await) })
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
    mut streams: Vec<ReadStream>,
) -> Job<'static> {
    let (control, mut closed) = (connected.server.control.clone(), connected.closed.clone());
    let count = connected.reading.size.count(streams.len());
    Box::pin(async move {
        let positions = streams.iter().map(|stream| (&*stream.name, stream.last));
        let command = read::read_command(positions, count);
        let is_asking = streams.iter().any(|stream| stream.is_asking);
        let reply = tokio::select! {
            reply = read::query(&mut reading, &command, is_asking) => reply,
            _ = closed.changed() => Err(is_closed()),
        };
        if streams.len() > 1
            && let Err(error) = &reply
            && error.code() == Some("WRONGTYPE")
        {
            tokio::select! {
                () = note_refusals(control, &mut streams) => {}
                _ = closed.changed() => {}
            }
        }
        Done::Read(id, streams, reply)
    })
}

/// Finds the streams for which the server has refused a read.
async fn note_refusals(mut control: MultiplexedConnection, streams: &mut [ReadStream]) {
    let mut pipeline = Pipeline::with_capacity(streams.len());
    pipeline.ignore_errors();
    for stream in &*streams {
        pipeline.add_command(read::ends_command(&stream.name));
    }
    // Without replies the server has failed.
    let replies = pipeline.query_async::<Vec<Result<Value, RedisError>>>(&mut control);
    for (stream, reply) in streams.iter_mut().zip(replies.await.unwrap_or_default()) {
        stream.refusal = Ends::of(reply).err();
    }
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
