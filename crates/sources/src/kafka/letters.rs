//! Dead letters of a Kafka source, which are produced into a topic.

use std::sync::Arc;

use krafka::Kafka as Client;
use krafka::producer::Producer;

use super::REQUEST_TIMEOUT;
use crate::failure::Failure;
use crate::feed::{DeadLetter, Feed};

/// The topic of dead letters, with its producer.
pub(super) struct Destination {
    producer: Producer,
    topic: Arc<str>,
}

impl Destination {
    /// Opens the producer. `None`: the source has no topic of dead letters.
    pub(super) async fn open(client: &Client, feed: &Feed) -> Result<Option<Destination>, Failure> {
        let Some(topic) = feed.mapping.dead_letters.clone() else {
            return Ok(None);
        };
        let producer = client
            .producer()
            .max_block(REQUEST_TIMEOUT)
            .delivery_timeout(2 * REQUEST_TIMEOUT)
            .build()
            .await?;
        Ok(Some(Destination { producer, topic }))
    }
}

/// Produces a dead letter, and waits until the topic has it.
pub(super) async fn send(
    destination: Option<&Destination>,
    DeadLetter { reason, record }: DeadLetter,
) -> Result<(), String> {
    let Some(Destination { producer, topic }) = destination else {
        return Ok(());
    };
    let mut letter = krafka::Record::new(&**topic, record.value.unwrap_or_default())
        .header("ringmain-reason", reason.label())
        .header("ringmain-topic", record.subject.to_string());
    if let Some(key) = record.key {
        letter = letter.key(key);
    }
    for (name, value) in record.headers {
        letter = letter.header(name, value);
    }
    let sent = producer.send(letter).await;
    sent.map(drop).map_err(|error| format!("topic {topic}: {error}"))
}
