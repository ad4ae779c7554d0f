//! A stream of Redis: the one module here that knows the `redis` crate.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, Value};
use ringmain_load::push::broker::{Record, Reports};
use tokio::sync::oneshot;

use crate::url::RedisStream;
use crate::{ACKNOWLEDGE_TIMEOUT, Batches, CONNECT_TIMEOUT, Error, outcome};

/// The time for which a read waits for entries.
const BLOCK: Duration = Duration::from_secs(1);
/// Entries that one read returns at most.
const READ_ENTRIES: usize = 1000;
/// Entries that are added in one go at most.
const ADD_ENTRIES: usize = 1000;

async fn connect(stream: &RedisStream) -> Result<MultiplexedConnection, Error> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(CONNECT_TIMEOUT))
        .set_response_timeout(Some(ACKNOWLEDGE_TIMEOUT));
    let client = Client::open(&*stream.server)?;
    Ok(client
        .get_multiplexed_async_connection_with_config(&config)
        .await?)
}

/// Adds entries until there are no more, one pipeline after the other: those that are due meanwhile go together.
pub(crate) async fn produce(
    stream: &RedisStream,
    reports: &Reports,
    mut batches: Batches,
) -> Result<(), Error> {
    let mut connection = connect(stream).await?;
    let mut waiting: Vec<Record> = Vec::new();
    while let Some(batch) = batches.recv().await {
        waiting.extend(batch);
        while let Ok(batch) = batches.try_recv() {
            waiting.extend(batch);
        }
        for part in waiting.chunks(ADD_ENTRIES) {
            let mut pipeline = redis::pipe();
            for Record { channel, value, .. } in part {
                pipeline
                    .cmd("XADD")
                    .arg(&stream.stream)
                    .arg("*")
                    .arg("channel")
                    .arg(channel)
                    .arg("data")
                    .arg(value);
            }
            let added = pipeline.query_async::<Vec<Value>>(&mut connection).await;
            let refused = added.err().map(|error| error.to_string());
            let outcomes = part.iter().map(|record| outcome(record.token, refused.clone()));
            reports.acknowledged(outcomes);
        }
        waiting.clear();
    }
    Ok(())
}

/// Reads entries behind the newest one, without a group.
pub(crate) async fn consume(
    stream: &RedisStream,
    reports: &Reports,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    let mut connection = connect(stream).await?;
    let newest = redis::cmd("XREVRANGE")
        .arg(&stream.stream)
        .arg("+")
        .arg("-")
        .arg("COUNT")
        .arg(1)
        .query_async::<Vec<(String, Vec<Vec<u8>>)>>(&mut connection)
        .await?;
    let mut last = newest.into_iter().next().map_or("0-0".to_owned(), |(id, _)| id);
    let _ = ready.send(());
    loop {
        let read = redis::cmd("XREAD")
            .arg("COUNT")
            .arg(READ_ENTRIES)
            .arg("BLOCK")
            .arg(BLOCK.as_millis() as u64)
            .arg("STREAMS")
            .arg(&stream.stream)
            .arg(&last)
            .query_async::<Entries>(&mut connection)
            .await?;
        let at = Reports::now();
        let Some((_, entries)) = read.and_then(|streams| streams.into_iter().next()) else {
            continue;
        };
        reports.consumed(
            entries
                .iter()
                .flat_map(|(_, fields)| fields.iter().map(Vec::as_slice)),
            at,
        );
        if let Some((id, _)) = entries.into_iter().next_back() {
            last = id;
        }
    }
}

/// Streams with their entries; fields and values in turn. Nothing after [`BLOCK`].
type Entries = Option<Vec<(String, Vec<(String, Vec<Vec<u8>>)>)>>;
