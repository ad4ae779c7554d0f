//! Requests to the cluster, each with its completion. They end when the connection is given up.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use krafka::KrafkaError;
use krafka::consumer::{Consumer, ConsumerRecord};
use krafka::error::ErrorCode;
use krafka::producer::DeliveryHandle;
use ringmain_cluster::log::{AppendOutcome, Binding, FollowFrom, Opened, Partition, Record};
use ringmain_gateway::model::{KafkaLog, PushLog};
use ringmain_sys::clock;
use tokio::time::{sleep, timeout};

use super::Connected;
use super::session::{REQUEST_TIMEOUT, Session, consumer};
use crate::failure::Failure;
use crate::log::follows::Opening;
use crate::log::older::{NewestRecords, OlderPart};
use crate::log::outbox::{Acknowledgement, AppendFailure};
use crate::log::queue::Queued;
use crate::log::tails::Tail;

/// The time for which a poll waits for records.
const POLL_TIMEOUT: Duration = Duration::from_millis(500);
/// The time between polls that fail.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The interval at which the topic and a partition are queried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The completion of a job.
pub(super) enum Done {
    Connected(Result<Box<Session>, Failure>),
    Sent(u32, Sent),
    Appended(Vec<Acknowledgement>),
    Opened(u32, Opening, Result<Opened, Failure>),
    Polled(u32, Result<Vec<ConsumerRecord>, Failure>),
    Older(Tail, Result<OlderPart, Failure>),
    Checked(u32, Checked),
    /// A partition was paused or resumed.
    Set,
}

type Job<'l> = Pin<Box<dyn Future<Output = Done> + Send + 'l>>;

fn closed_failure() -> Failure {
    Failure::Ended("closed".to_owned())
}

/// The number of the record at an offset.
pub(super) fn number(offset: i64) -> u64 {
    u64::try_from(offset).unwrap_or(0) + 1
}

/// The offset of the record with a number.
pub(super) fn offset(number: u64) -> i64 {
    i64::try_from(number.saturating_sub(1)).unwrap_or(i64::MAX)
}

fn index(partition: Partition) -> i32 {
    i32::from(partition.0)
}

/// Connects, after this time.
pub(super) fn connect<'l>(log: &'l PushLog, kafka: &'l KafkaLog, wait: Duration) -> Job<'l> {
    Box::pin(async move {
        sleep(wait).await;
        Done::Connected(Session::open(log, kafka).await.map(Box::new))
    })
}

/// Records whose acknowledgements are awaited.
pub(super) struct Acks(Vec<(u64, Partition, DeliveryHandle)>);

/// A batch that was handed to the producer.
pub(super) struct Sent {
    pub(super) acks: Acks,
    /// Appends that were refused by the client.
    pub(super) refused: Vec<(Queued, KrafkaError)>,
    /// Appends that the producer has not accepted.
    pub(super) unsent: Vec<Queued>,
}

/// Hands a batch to the producer. One after the other, so that the partitions have their order.
pub(super) fn send(number: u32, connected: &Connected, batch: Vec<Queued>) -> Job<'static> {
    let (producer, topic) = (
        Arc::clone(&connected.session.producer),
        Arc::clone(&connected.session.topic),
    );
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let mut sent = Sent {
            acks: Acks(Vec::with_capacity(batch.len())),
            refused: Vec::new(),
            unsent: Vec::new(),
        };
        let mut batch = batch.into_iter();
        while let Some(queued) = batch.next() {
            let append = &queued.append;
            let record =
                krafka::Record::new(&*topic, append.entry.clone()).partition(index(append.partition));
            let enqueued = tokio::select! {
                biased;
                enqueued = producer.enqueue(record) => enqueued,
                // The producer's queue is full, and its connection was given up. One that waits was not accepted.
                _ = closed.changed() => {
                    sent.unsent = std::iter::once(queued).chain(batch).collect();
                    break;
                }
            };
            match enqueued {
                Ok(ack) => sent.acks.0.push((append.id, append.partition, ack)),
                Err(error) => sent.refused.push((queued, error)),
            }
        }
        Done::Sent(number, sent)
    })
}

/// Waits for acknowledgements: the producer has a time limit.
pub(super) fn acknowledge(acks: Acks) -> Job<'static> {
    Box::pin(async move {
        let mut batch = Vec::with_capacity(acks.0.len());
        for (id, partition, ack) in acks.0 {
            let (outcome, failure) = match ack.await {
                Ok(metadata) if metadata.is_success() => {
                    (AppendOutcome::Appended(number(metadata.offset)), None)
                }
                // It is in the log, at an offset that the broker does not say.
                Ok(_) => (AppendOutcome::Unknown, None),
                Err(error) => {
                    let failure = if is_of_entry(&error) {
                        AppendFailure::OfEntry(error.to_string())
                    } else {
                        AppendFailure::OfPartition(error.to_string())
                    };
                    (outcome_of(&error), Some(failure))
                }
            };
            batch.push(Acknowledgement {
                id,
                partition,
                outcome,
                failure,
            });
        }
        Done::Appended(batch)
    })
}

/// Returns whether a record was refused for a reason of its own: others are accepted.
fn is_of_entry(error: &KrafkaError) -> bool {
    let KrafkaError::Broker { code, .. } = error else {
        return false;
    };
    matches!(code, ErrorCode::InvalidRecord | ErrorCode::MessageTooLarge)
}

/// Returns whether a record that was not acknowledged is certainly not in the log.
fn outcome_of(error: &KrafkaError) -> AppendOutcome {
    use ErrorCode::{
        InvalidRecord, MessageTooLarge, NotEnoughReplicas, RecordListTooLarge, TopicAuthorizationFailed,
    };
    match error {
        KrafkaError::DeliveryTimeout {
            possibly_written: false,
            ..
        }
        | KrafkaError::Config { .. }
        | KrafkaError::UnknownTopic { .. }
        | KrafkaError::Broker {
            code:
                InvalidRecord
                | MessageTooLarge
                | NotEnoughReplicas
                | RecordListTooLarge
                | TopicAuthorizationFailed,
            ..
        } => AppendOutcome::Refused,
        _ => AppendOutcome::Unknown,
    }
}

/// Opens a partition, after this time.
pub(super) fn open(generation: u32, connected: &Connected, opening: Opening, wait: Duration) -> Job<'static> {
    let session = connected.session.clone();
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let open = async {
            sleep(wait).await;
            open_partition(&session, &opening).await
        };
        let opened = tokio::select! {
            opened = open => opened,
            _ = closed.changed() => Err(closed_failure()),
        };
        Done::Opened(generation, opening, opened)
    })
}

async fn open_partition(session: &Session, opening: &Opening) -> Result<Opened, Failure> {
    let Session { consumer, topic, .. } = session;
    let partition = index(opening.partition);
    let (low, high) = consumer.fetch_watermarks(topic, partition).await?;
    let requested = match opening.from {
        FollowFrom::Number(number) => offset(number.max(1)),
        FollowFrom::Recent(time) => {
            let since = clock::realtime().saturating_sub(time).as_millis() as i64;
            let found = consumer.offsets_for_times(&[(topic, partition)], since).await;
            match found.into_values().next() {
                Some(Ok(found)) if found >= 0 => found,
                Some(Err(error)) => return Err(error.into()),
                // No record is that recent.
                _ => high,
            }
        }
    };
    let from = requested.max(low);
    consumer.seek(topic, partition, from).await?;
    Ok(Opened {
        partition: opening.partition,
        binding: session.binding,
        first: number(low),
        end: u64::try_from(high).unwrap_or(0),
        from: number(from),
    })
}

/// Reads a partition from its position on. Only once it is open: records of another one are dropped.
pub(super) fn resume(connected: &Connected, partition: Partition) -> Job<'static> {
    let session = connected.session.clone();
    Box::pin(async move {
        session.consumer.resume(&session.topic, &[index(partition)]).await;
        Done::Set
    })
}

/// Reads a partition no more.
pub(super) fn pause(connected: &Connected, partition: Partition, next: u64) -> Job<'static> {
    let session = connected.session.clone();
    Box::pin(async move {
        let Session { consumer, topic, .. } = &session;
        consumer.pause(topic, &[index(partition)]).await;
        // Drops the records that it has read ahead.
        let _ = consumer.seek(topic, index(partition), offset(next)).await;
        Done::Set
    })
}

/// Waits for records of the partitions that are read.
pub(super) fn poll(generation: u32, connected: &Connected, has_failed: bool) -> Job<'static> {
    let consumer = Arc::clone(&connected.session.consumer);
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let poll = async {
            if has_failed {
                sleep(POLL_INTERVAL).await;
            }
            consumer.poll(POLL_TIMEOUT).await
        };
        let polled = tokio::select! {
            polled = poll => polled.map_err(Failure::from),
            _ = closed.changed() => Err(closed_failure()),
        };
        Done::Polled(generation, polled)
    })
}

/// The outcome of a check.
pub(super) struct Checked {
    pub(super) partition: Partition,
    /// `None`: the topic was deleted.
    pub(super) binding: Result<Option<Binding>, Failure>,
    /// The response of the partition's leader.
    pub(super) leader: Result<(), Failure>,
}

/// Queries the topic and the leader of a partition, after an interval.
pub(super) fn check(generation: u32, connected: &Connected, partition: Partition) -> Job<'static> {
    let session = connected.session.clone();
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let check = async {
            sleep(CHECK_INTERVAL).await;
            let binding = timeout(REQUEST_TIMEOUT, session.current_binding());
            let leader = session
                .consumer
                .fetch_watermarks(&session.topic, index(partition));
            let (binding, leader) = tokio::join!(binding, timeout(REQUEST_TIMEOUT, leader));
            let is_late = |name| Failure::Ended(format!("{name} has responded within {REQUEST_TIMEOUT:?}"));
            Checked {
                partition,
                binding: binding.unwrap_or_else(|_| Err(is_late("no broker"))),
                leader: match leader {
                    Ok(outcome) => outcome.map(|_| ()).map_err(Failure::from),
                    Err(_) => Err(is_late("no leader")),
                },
            }
        };
        let checked = tokio::select! {
            checked = check => checked,
            _ = closed.changed() => Checked {
                partition,
                binding: Err(closed_failure()),
                leader: Err(closed_failure()),
            },
        };
        Done::Checked(generation, checked)
    })
}

/// Reads records of a partition among so many offsets.
pub(super) fn older(connected: &Connected, tail: Tail, window: u64) -> Job<'static> {
    let session = connected.session.clone();
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let outcome = tokio::select! {
            outcome = read_older(&session, &tail, window) => outcome,
            _ = closed.changed() => Err(closed_failure()),
        };
        Done::Older(tail, outcome)
    })
}

async fn read_older(session: &Session, tail: &Tail, window: u64) -> Result<OlderPart, Failure> {
    let (topic, partition, before) = (&session.topic, index(tail.partition), tail.before);
    let (low, high) = session.consumer.fetch_watermarks(topic, partition).await?;
    let first = number(low);
    let start = before.saturating_sub(window).max(first);
    let end = before.min(number(high));
    let mut newest = NewestRecords::new(tail.bytes);
    if start < end {
        let reader = consumer(&session.client).await?;
        reader.assign(topic, vec![partition]).await?;
        reader.seek(topic, partition, offset(start)).await?;
        read_until(&reader, end, &mut newest).await?;
    }
    Ok(OlderPart::new(newest, start, before, first))
}

/// Reads records up to a number, which it does not include.
async fn read_until(reader: &Consumer, end: u64, newest: &mut NewestRecords) -> Result<(), Failure> {
    loop {
        let polled = reader.poll(REQUEST_TIMEOUT).await?;
        let Some(last) = polled.last().map(|record| number(record.offset)) else {
            return Err(Failure::Ended("older records did not arrive".to_owned()));
        };
        let below = polled.iter().filter(|record| number(record.offset) < end);
        below.for_each(|found| newest.push(record(found)));
        if last + 1 >= end {
            return Ok(());
        }
    }
}

/// Reads a record.
pub(super) fn record(record: &ConsumerRecord) -> Record {
    let value = record.value.as_deref().unwrap_or_default();
    Record::read(number(record.offset), record.timestamp, value)
}

#[cfg(test)]
mod tests {
    use krafka::KrafkaError;
    use krafka::error::ErrorCode;
    use ringmain_cluster::log::AppendOutcome;

    use super::{number, offset, outcome_of};

    #[test]
    fn numbers_are_one_more_than_offsets() {
        assert_eq!((number(0), number(7), offset(1), offset(0)), (1, 8, 0, 0));
    }

    #[test]
    fn records_that_were_not_written_are_refused() {
        let broker = |code| KrafkaError::broker(code, "");
        for (error, expected) in [
            (KrafkaError::delivery_timeout(false, ""), AppendOutcome::Refused),
            (KrafkaError::delivery_timeout(true, ""), AppendOutcome::Unknown),
            (broker(ErrorCode::NotEnoughReplicas), AppendOutcome::Refused),
            (
                broker(ErrorCode::NotEnoughReplicasAfterAppend),
                AppendOutcome::Unknown,
            ),
        ] {
            assert_eq!(outcome_of(&error), expected, "{error}");
        }
    }
}
