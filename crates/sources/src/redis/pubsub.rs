//! Channels of Redis: messages that are published without a connection are missing.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use redis::Msg;
use redis::aio::PubSubSink;
use ringmain_gateway::model::RedisPubSub;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};

use super::access::{Access, MASTER_INTERVAL, RESPONSE_TIMEOUT};
use crate::failure::Failure;
use crate::feed::{Feed, Partition, Record};
use crate::limits;

/// The interval at which the connection is pinged.
const PING_INTERVAL: Duration = Duration::from_secs(1);
/// The time for which a message waits for room with its worker.
const ROOM_WITHIN: Duration = Duration::from_millis(250);
/// So long no message waits after one has waited in vain.
const IMPATIENT: Duration = Duration::from_secs(5);

/// Messages that are handed over together, besides the first, if they have arrived.
const TAKEN_AT_ONCE: usize = 255;

/// Reads until something fails, or until it is to end: then `None`.
pub(crate) async fn run(
    redis: &RedisPubSub,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    tokio::select! {
        failure = listen(redis, feed) => Some(failure),
        _ = stopped.changed() => None,
    }
}

async fn listen(redis: &RedisPubSub, feed: &mut Feed) -> Failure {
    match try_listen(redis, feed).await {
        Ok(failure) | Err(failure) => failure,
    }
}

async fn try_listen(redis: &RedisPubSub, feed: &mut Feed) -> Result<Failure, Failure> {
    let access = Access::resolve(&redis.access).await?;
    let (mut sink, mut messages) = access.open_pubsub().await?.split();
    let subscribe = async {
        for channel in &redis.channels {
            sink.subscribe(&**channel).await?;
        }
        for pattern in &redis.patterns {
            sink.psubscribe(&**pattern).await?;
        }
        Ok::<(), redis::RedisError>(())
    };
    match timeout(RESPONSE_TIMEOUT, subscribe).await {
        Ok(subscribed) => subscribed?,
        Err(_) => return Err(silent()),
    }
    // Messages that were published since the last connection are missing.
    if feed.status.connects() > 0 {
        feed.gap();
    }
    feed.status.connected();
    feed.status.set_delivers(true);
    feed.status.set_partitions(1, 0, 0);
    log::info!(
        "source {} (redis_pubsub): subscribed to {} channels and {} patterns",
        feed.name,
        redis.channels.len(),
        redis.patterns.len()
    );
    let mut partition = Partition::new(feed, None);
    let mut impatient_until = Instant::now();
    let receive = async {
        loop {
            tokio::select! {
                message = messages.next() => match message {
                    Some(message) => {
                        partition.push(feed, record(&message), 0, ());
                        // Those that have arrived as well.
                        let mut ready = std::iter::from_fn(|| messages.next().now_or_never().flatten());
                        for message in ready.by_ref().take(TAKEN_AT_ONCE) {
                            partition.push(feed, record(&message), 0, ());
                        }
                        publish(feed, &mut partition, &mut impatient_until).await;
                    }
                    None => return Failure::Ended("the connection was closed".to_owned()),
                },
                () = sleep(limits::COMMIT_INTERVAL) => {}
            }
            let _ = partition.done(feed);
            feed.status.set_partitions(1, 0, partition.in_flight());
        }
    };
    Ok(tokio::select! {
        failure = receive => failure,
        failure = ping(&mut sink) => failure,
        failure = access.watch_master(MASTER_INTERVAL) => failure,
    })
}

fn silent() -> Failure {
    Failure::Ended(format!("no response within {RESPONSE_TIMEOUT:?}"))
}

/// Pings until there is no response.
async fn ping(sink: &mut PubSubSink) -> Failure {
    loop {
        sleep(PING_INTERVAL).await;
        match timeout(RESPONSE_TIMEOUT, sink.ping::<redis::Value>()).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return error.into(),
            Err(_) => return silent(),
        }
    }
}

fn record(message: &Msg) -> Record {
    Record {
        subject: Arc::from(message.get_channel_name()),
        value: Some(bytes::Bytes::copy_from_slice(message.get_payload_bytes())),
        ..Record::default()
    }
}

/// Hands over what was read.
async fn publish(feed: &mut Feed, partition: &mut Partition<()>, impatient_until: &mut Instant) {
    if !partition.pump(feed) {
        let is_patient = Instant::now() >= *impatient_until;
        if is_patient && timeout(ROOM_WITHIN, partition.drain(feed)).await.is_err() {
            *impatient_until = Instant::now() + IMPATIENT;
        }
        partition.drop_backlog(feed);
    }
}
