//! A topic of Kafka: the one module here that knows `krafka`.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use krafka::Kafka as Client;
use krafka::consumer::AutoOffsetReset;
use ringmain_load::push::broker::{Record, Reports, Token};
use tokio::sync::oneshot;

use crate::url::KafkaTopic;
use crate::{ACKNOWLEDGE_TIMEOUT, Batches, CONNECT_TIMEOUT, Error, outcome};

/// The time for which a poll waits for records.
const POLL_TIMEOUT: Duration = Duration::from_millis(100);
/// Records that one poll returns at most.
const POLL_RECORDS: i32 = 1000;

async fn connect(topic: &KafkaTopic) -> Result<Client, Error> {
    let connecting = Client::builder(topic.servers.clone())
        .client_id("ringmain-bench")
        .connect();
    Ok(tokio::time::timeout(CONNECT_TIMEOUT, connecting).await??)
}

/// Writes records until there are no more. Acknowledged by all in-sync replicas.
pub(crate) async fn produce(
    topic: &KafkaTopic,
    reports: &Reports,
    mut batches: Batches,
) -> Result<(), Error> {
    let client = connect(topic).await?;
    let producer = client
        .producer()
        .linger(Duration::ZERO)
        .delivery_timeout(ACKNOWLEDGE_TIMEOUT)
        .build()
        .await?;
    let _ = producer.partitions_for(&topic.topic).await?;
    let mut in_flight = FuturesUnordered::new();
    loop {
        tokio::select! {
            batch = batches.recv() => {
                let Some(batch) = batch else { break };
                for Record { token, channel, value } in batch {
                    let record = krafka::Record::new(topic.topic.as_str(), value).key(channel);
                    match producer.enqueue(record).await {
                        Ok(delivery) => in_flight.push(async move { (token, delivery.await) }),
                        Err(error) => reports.acknowledged([outcome(token, Some(error.to_string()))]),
                    }
                }
            }
            Some((token, delivered)) = in_flight.next() => {
                // Those of a batch are acknowledged together.
                let mut done = vec![settled(token, delivered)];
                while let Some(Some((token, delivered))) =
                    futures_util::FutureExt::now_or_never(in_flight.next())
                {
                    done.push(settled(token, delivered));
                }
                reports.acknowledged(done);
            }
        }
    }
    let _ = tokio::time::timeout(CONNECT_TIMEOUT, producer.close()).await;
    Ok(())
}

fn settled<T>(token: Token, delivered: krafka::Result<T>) -> ringmain_load::push::broker::Acknowledgement {
    outcome(token, delivered.err().map(|error| error.to_string()))
}

/// Reads all partitions from their ends.
pub(crate) async fn consume(
    topic: &KafkaTopic,
    reports: &Reports,
    ready: oneshot::Sender<()>,
) -> Result<(), Error> {
    let client = connect(topic).await?;
    let consumer = client
        .consumer_without_group()
        .auto_offset_reset(AutoOffsetReset::Latest)
        .fetch_max_wait(POLL_TIMEOUT)
        .max_poll_records(POLL_RECORDS)
        .max_buffered_records(4 * POLL_RECORDS)
        .build()
        .await?;
    consumer.subscribe([topic.topic.as_str()]).await?;
    let mut ready = Some(ready);
    loop {
        let records = consumer.poll(POLL_TIMEOUT).await?;
        let at = Reports::now();
        let values = records.iter().filter_map(|record| record.value.as_deref());
        reports.consumed(values, at);
        if ready.is_some() && is_positioned(&consumer).await {
            let _ = ready.take().map(|ready| ready.send(()));
        }
    }
}

/// Returns whether every partition has a position.
async fn is_positioned(consumer: &krafka::consumer::Consumer) -> bool {
    let assignment = consumer.assignment().await;
    let mut count = 0;
    for (topic, partitions) in assignment {
        for partition in partitions {
            if consumer.position(&topic, partition).await.is_none() {
                return false;
            }
            count += 1;
        }
    }
    count > 0
}
