//! A connection to the cluster, and the topic, which is created if it does not exist.

use std::sync::Arc;
use std::time::Duration;

use krafka::admin::{
    ConfigResource, CreateTopicsOptions, DescribeConfigsOptions, DescribeTopicsOptions, NewTopic,
};
use krafka::consumer::{AutoOffsetReset, Consumer};
use krafka::error::ErrorCode;
use krafka::producer::Producer;
use krafka::{Kafka as Client, KrafkaError};
use ringmain_cluster::limits::LOG_APPEND_BYTES;
use ringmain_cluster::log::Binding;
use ringmain_gateway::model::{KafkaLog, PushLog};
use tokio::time::timeout;

use crate::failure::Failure;
use crate::kafka::security;
use crate::limits;
use crate::log::binding;

/// The setting of a topic for the time for which it retains records, in milliseconds.
const RETENTION: &str = "retention.ms";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// The time within which a broker responds.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_millis(1500);
/// The time within which the cluster is reached and the topic is found.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);
/// The maximum age of the metadata of topics.
const METADATA_AGE: Duration = Duration::from_secs(5);
/// The time for which a request for records waits for some.
const FETCH_WAIT: Duration = Duration::from_millis(100);
/// Records that one poll returns at most.
const POLL_RECORDS: i32 = 1000;
/// Attempts to find a topic that was created.
const TOPIC_ATTEMPTS: usize = 20;
const TOPIC_INTERVAL: Duration = Duration::from_millis(100);

/// See the module.
#[derive(Clone)]
pub(super) struct Session {
    pub(super) client: Client,
    pub(super) producer: Arc<Producer>,
    /// The consumer of the partitions that are read; the others are paused.
    pub(super) consumer: Arc<Consumer>,
    pub(super) topic: Arc<str>,
    pub(super) binding: Binding,
    /// Settings of the topic that are not the configured ones; empty for none.
    pub(super) differences: Arc<str>,
}

impl Session {
    /// Connects, and finds or creates the topic.
    pub(super) async fn open(log: &PushLog, kafka: &KafkaLog) -> Result<Session, Failure> {
        match timeout(OPEN_TIMEOUT, Session::connect(log, kafka)).await {
            Ok(outcome) => outcome,
            Err(_) => Err(Failure::Ended(format!("no topic within {OPEN_TIMEOUT:?}"))),
        }
    }

    async fn connect(log: &PushLog, kafka: &KafkaLog) -> Result<Session, Failure> {
        let mut builder = Client::builder(kafka.servers.join(","))
            .client_id("ringmain")
            .connect_timeout(CONNECT_TIMEOUT)
            .request_timeout(REQUEST_TIMEOUT)
            .metadata_max_age(METADATA_AGE);
        if let Some(security) = security(kafka.tls.as_ref(), kafka.sasl.as_ref()) {
            builder = builder.security(security);
        }
        let client = builder.connect().await?;
        let consumer = consumer(&client).await?;
        let topic = match find_topic(&client, &kafka.topic).await? {
            Some(topic) => topic,
            None => create(&client, log, kafka).await?,
        };
        if topic.partitions != usize::from(log.partitions) {
            return Err(Failure::Settings(format!(
                "topic {} has {} partitions, and the key `partitions` is {}; make them equal",
                kafka.topic, topic.partitions, log.partitions
            )));
        }
        let retention_ms = retention_ms(&client, &kafka.topic).await;
        let differences = differences(topic.replicas, retention_ms, log, kafka);
        let producer = client
            .producer()
            .linger(Duration::ZERO)
            .max_block(limits::LOG_QUEUE_TIME)
            .buffer_memory(2 * LOG_APPEND_BYTES)
            .delivery_timeout(limits::LOG_RESPONSE_TIME)
            .build()
            .await?;
        let partitions: Vec<i32> = (0..i32::from(log.partitions)).collect();
        consumer.assign(&kafka.topic, partitions.clone()).await?;
        consumer.pause(&kafka.topic, &partitions).await;
        Ok(Session {
            client,
            producer: Arc::new(producer),
            consumer: Arc::new(consumer),
            topic: Arc::clone(&kafka.topic),
            binding: topic.binding,
            differences: differences.into(),
        })
    }

    /// Returns the binding of the topic that has the name now. `None`: it was deleted.
    pub(super) async fn current_binding(&self) -> Result<Option<Binding>, Failure> {
        let found = find_topic(&self.client, &self.topic).await?;
        Ok(found.map(|topic| topic.binding))
    }
}

/// Returns a consumer that commits nothing.
pub(super) async fn consumer(client: &Client) -> Result<Consumer, KrafkaError> {
    client
        .consumer_without_group()
        // If the log has lost records, the adapter notices that offsets are lower than expected.
        .auto_offset_reset(AutoOffsetReset::Earliest)
        .fetch_max_wait(FETCH_WAIT)
        .max_poll_records(POLL_RECORDS)
        .max_buffered_records(4 * POLL_RECORDS)
        .build()
        .await
}

/// A topic that exists.
struct Topic {
    binding: Binding,
    partitions: usize,
    /// The replicas of its first partition.
    replicas: usize,
}

/// Asks a broker for the topic: the client's own metadata may be older.
async fn find_topic(client: &Client, name: &str) -> Result<Option<Topic>, Failure> {
    let options = DescribeTopicsOptions::default().timeout(REQUEST_TIMEOUT);
    let described = client.admin().describe_topics([name], options).await?;
    match described.into_values().next() {
        Some(Ok(topic)) => Ok(Some(Topic {
            binding: binding(&[b"kafka", name.as_bytes(), &topic.topic_id]),
            partitions: topic.partitions.len(),
            replicas: topic
                .partitions
                .first()
                .map_or(0, |partition| partition.replicas.len()),
        })),
        Some(Err(KrafkaError::Broker {
            code: ErrorCode::UnknownTopicOrPartition,
            ..
        }))
        | None => Ok(None),
        Some(Err(error)) => Err(error.into()),
    }
}

/// Returns the retention of a topic, in milliseconds. `None`: the user may not read it.
async fn retention_ms(client: &Client, name: &str) -> Option<String> {
    let topic = ConfigResource::topic(name);
    let options = DescribeConfigsOptions::default().timeout(REQUEST_TIMEOUT);
    let configs = client.admin().describe_configs([topic], options).await.ok()?;
    let entries = configs.into_values().next()?.ok()?;
    entries.into_iter().find(|entry| entry.name == RETENTION)?.value
}

/// Returns the settings of a topic that are not the configured ones, for the log.
fn differences(replicas: usize, retention_ms: Option<String>, log: &PushLog, kafka: &KafkaLog) -> String {
    let expected = log.retention.as_millis().to_string();
    let all = [
        (replicas != usize::from(kafka.replicas))
            .then(|| format!("{replicas} replicas, expected {} (`replicas`)", kafka.replicas)),
        retention_ms
            .filter(|found| *found != expected)
            .map(|found| format!("{RETENTION} {found}, expected {expected} (`retention`)")),
    ];
    all.into_iter().flatten().collect::<Vec<_>>().join("; ")
}

/// Creates the topic. Another node may do so at the same time, with the same settings.
async fn create(client: &Client, log: &PushLog, kafka: &KafkaLog) -> Result<Topic, Failure> {
    let replicas = i16::try_from(kafka.replicas).unwrap_or(i16::MAX);
    let topic = NewTopic::new(&*kafka.topic, i32::from(log.partitions), replicas)?
        .with_config(RETENTION, log.retention.as_millis().to_string())
        .with_config("cleanup.policy", "delete")
        .with_config("min.insync.replicas", (kafka.replicas / 2 + 1).to_string());
    let created = client
        .admin()
        .create_topics([topic], CreateTopicsOptions::default().timeout(REQUEST_TIMEOUT))
        .await?;
    for outcome in created.into_values() {
        match outcome {
            Ok(()) => log::info!(
                "push log (kafka): topic {} was created with {} partitions of {} replicas",
                kafka.topic,
                log.partitions,
                kafka.replicas
            ),
            Err(KrafkaError::Broker {
                code: ErrorCode::TopicAlreadyExists,
                ..
            }) => {}
            Err(error) => return Err(error.into()),
        }
    }
    // Brokers receive the topic one after the other.
    for _ in 0..TOPIC_ATTEMPTS {
        match find_topic(client, &kafka.topic).await? {
            Some(topic) if topic.partitions > 0 => return Ok(topic),
            _ => tokio::time::sleep(TOPIC_INTERVAL).await,
        }
    }
    Err(Failure::Ended(format!(
        "topic {} was created and is not known yet",
        kafka.topic
    )))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_gateway::model::{KafkaLog, PushLog, PushLogEngine, PushTakeover};

    use super::differences;

    #[test]
    fn settings_of_a_topic_that_differ_are_named() {
        let kafka = KafkaLog {
            servers: [].into(),
            topic: "t".into(),
            replicas: 3,
            sasl: None,
            tls: None,
        };
        let log = PushLog {
            engine: PushLogEngine::Kafka(kafka.clone()),
            partitions: 4,
            retention: Duration::from_secs(600),
            takeover: PushTakeover {
                time: Duration::from_secs(2),
                bytes: 1,
            },
        };
        let found = |replicas, retention: Option<&str>| {
            differences(replicas, retention.map(str::to_owned), &log, &kafka)
        };
        assert_eq!(found(3, Some("600000")), "");
        assert_eq!(found(3, None), "");
        assert_eq!(
            found(1, Some("1000")),
            "1 replicas, expected 3 (`replicas`); retention.ms 1000, expected 600000 (`retention`)"
        );
    }
}
