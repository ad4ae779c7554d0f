//! Requests to the cluster, each with its completion. They end when the connection is given up.

use std::pin::Pin;
use std::sync::PoisonError;
use std::time::Duration;

use async_nats::Event;
use async_nats::jetstream::consumer::pull::{self, Stream as PullStream};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::context::{PublishAckFuture, PublishError, PublishErrorKind};
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::stream::LastRawMessageErrorKind;
use async_nats::jetstream::{self, Context, ErrorCode};
use futures_util::{FutureExt, StreamExt};
use ringmain_cluster::log::{AppendKey, AppendOutcome, FollowFrom, Opened, Partition, Record};
use ringmain_gateway::model::{JetStreamLog, PushLog};
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout, timeout_at};

use super::Connected;
use super::session::{REQUEST_TIMEOUT, Session, StreamState, is_missing};
use crate::failure::Failure;
use crate::limits;
use crate::log::follows::Opening;
use crate::log::older::{NewestRecords, OlderPart};
use crate::log::outbox::{Acknowledgement, AppendFailure};
use crate::log::queue::Queued;
use crate::log::tails::Tail;

/// The interval at which the state of the stream is queried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// The interval of the heartbeats of consumers. After two without one, the partition is closed.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The time for which a request for messages is valid, and the messages of one.
const PULL_EXPIRES: Duration = Duration::from_secs(30);
const PULL_MESSAGES: usize = 1024;
/// The time after which the server removes a consumer that is read no more.
const INACTIVE: Duration = Duration::from_secs(10);
/// Messages that are handed over together.
const READ_TOGETHER: usize = 256;
/// Messages of one request for older ones.
const OLDER_MESSAGES: usize = 512;

/// The completion of a job.
pub(super) enum Done {
    Connected(Result<Box<Session>, Failure>),
    Failed(u32, Failure),
    Sent(u32, Sent),
    Appended(u32, Vec<Acknowledgement>),
    Opened(u32, Opening, Result<OpenedSubject, Failure>),
    Read {
        partition: Partition,
        generation: u32,
        records: Vec<Record>,
        lag: Lag,
        next: Result<Messages, Failure>,
    },
    Older(Tail, Result<OlderPart, Failure>),
    /// `None`: the stream was deleted.
    Checked(u32, Result<Option<StreamState>, Failure>),
}

type Job<'l> = Pin<Box<dyn Future<Output = Done> + Send + 'l>>;

fn closed_failure() -> Failure {
    Failure::Ended("closed".to_owned())
}

/// Connects, after this time.
pub(super) fn connect<'l>(log: &'l PushLog, jetstream: &'l JetStreamLog, wait: Duration) -> Job<'l> {
    Box::pin(async move {
        sleep(wait).await;
        Done::Connected(Session::open(log, jetstream).await.map(Box::new))
    })
}

/// Waits until the connection is lost.
pub(super) fn watch(number: u32, connected: &Connected) -> Job<'static> {
    let events = connected.session.events.lock();
    let events = events.unwrap_or_else(PoisonError::into_inner).take();
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let Some(mut events) = events else {
            return Done::Failed(number, closed_failure());
        };
        loop {
            let event = tokio::select! {
                event = events.recv() => event,
                _ = closed.changed() => return Done::Failed(number, closed_failure()),
            };
            match event {
                Some(event @ (Event::Disconnected | Event::Closed | Event::SlowConsumer(_))) => {
                    return Done::Failed(number, Failure::Ended(event.to_string()));
                }
                Some(_) => {}
                None => return Done::Failed(number, Failure::Ended("disconnected".to_owned())),
            }
        }
    })
}

/// Queries the state of the stream, after an interval.
pub(super) fn check(number: u32, connected: &Connected) -> Job<'static> {
    let (context, stream) = (
        connected.session.context.clone(),
        connected.session.stream.clone(),
    );
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let state = async {
            sleep(CHECK_INTERVAL).await;
            stream_state(&context, &stream).await
        };
        let state = tokio::select! {
            state = state => state,
            _ = closed.changed() => Err(closed_failure()),
        };
        Done::Checked(number, state)
    })
}

async fn stream_state(context: &Context, stream: &str) -> Result<Option<StreamState>, Failure> {
    match timeout(REQUEST_TIMEOUT, context.get_stream(stream)).await {
        Ok(Ok(stream)) => Ok(Some(StreamState::of(stream.cached_info()))),
        Ok(Err(error)) if is_missing(&error) => Ok(None),
        Ok(Err(error)) => Err(Failure::client(error)),
        Err(_) => Err(Failure::Ended(format!(
            "no state of stream {stream} within {REQUEST_TIMEOUT:?}"
        ))),
    }
}

/// Publications whose acknowledgements are awaited.
pub(super) struct Acks {
    sent: Vec<(Queued, PublishAckFuture)>,
    /// The time at which every outcome is reported.
    deadline: Instant,
}

impl Acks {
    pub(super) fn requests(&self) -> impl Iterator<Item = u64> {
        self.sent.iter().map(|(queued, _)| queued.append.id)
    }
}

/// A batch that was sent.
pub(super) struct Sent {
    pub(super) acks: Acks,
    /// Appends that are above a limit of the server.
    pub(super) refused: Vec<(Queued, PublishError)>,
    /// Appends that were not sent: the connection is closed, or accepts nothing.
    pub(super) unsent: Vec<Queued>,
}

/// Publishes a batch. One after the other, so that the stream has their order.
pub(super) fn send(number: u32, connected: &Connected, batch: Vec<Queued>) -> Job<'static> {
    let (publisher, prefix) = (
        connected.session.publisher.clone(),
        connected.session.prefix.clone(),
    );
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let mut acks = Acks {
            sent: Vec::with_capacity(batch.len()),
            deadline: Instant::now() + limits::LOG_RESPONSE_TIME,
        };
        let (mut refused, mut unsent) = (Vec::new(), Vec::new());
        let mut batch = batch.into_iter();
        while let Some(queued) = batch.next() {
            let append = &queued.append;
            let mut message = PublishMessage::build().payload(append.entry.clone());
            if let Some(key) = &append.key {
                message = message.message_id(message_id(append.partition, key));
            }
            let sent = tokio::select! {
                biased;
                sent = publisher.send_publish(format!("{prefix}.{}", append.partition.0), message) => sent.map_err(Some),
                () = sleep_until(acks.deadline) => Err(None),
                _ = closed.changed() => Err(None),
            };
            match sent {
                Ok(ack) => acks.sent.push((queued, ack)),
                // It was not sent.
                Err(Some(error)) if is_of_entry(&error) => refused.push((queued, error)),
                Err(_) => {
                    unsent = std::iter::once(queued).chain(batch).collect();
                    break;
                }
            }
        }
        Done::Sent(
            number,
            Sent {
                acks,
                refused,
                unsent,
            },
        )
    })
}

/// The identity of a message, which the stream recognizes within its window.
fn message_id(partition: Partition, key: &AppendKey) -> String {
    let AppendKey { channel, key, .. } = key;
    format!("{}:{}:{channel}{key}", partition.0, channel.len())
}

/// Waits for acknowledgements.
pub(super) fn acknowledge(number: u32, connected: &Connected, acks: Acks) -> Job<'static> {
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let mut batch = Vec::with_capacity(acks.sent.len());
        for (queued, ack) in acks.sent {
            let (outcome, failure) = tokio::select! {
                biased;
                outcome = timeout_at(acks.deadline, ack.into_future()) => match outcome {
                    Ok(Ok(ack)) if ack.duplicate => (AppendOutcome::Repeated(ack.sequence), None),
                    Ok(Ok(ack)) => (AppendOutcome::Appended(ack.sequence), None),
                    Ok(Err(error)) => (outcome_of(&error), Some(failure_of(&error))),
                    Err(_) => {
                        let reason = format!("no acknowledgement within {:?}", limits::LOG_RESPONSE_TIME);
                        (AppendOutcome::Unknown, Some(AppendFailure::OfPartition(reason)))
                    }
                },
                _ = closed.changed() => (AppendOutcome::Unknown, None),
            };
            batch.push(Acknowledgement {
                id: queued.append.id,
                partition: queued.append.partition,
                outcome,
                failure,
            });
        }
        Done::Appended(number, batch)
    })
}

/// Returns whether a publication failed for a reason of its own: others are accepted.
fn is_of_entry(error: &PublishError) -> bool {
    error.kind() == PublishErrorKind::MaxPayloadExceeded
        || refusal(error)
            .is_some_and(|refusal| refusal.error_code() == ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM)
}

/// Returns the response of the stream, if it has refused a publication.
fn refusal(error: &PublishError) -> Option<&jetstream::Error> {
    std::error::Error::source(error)?.downcast_ref()
}

fn failure_of(error: &PublishError) -> AppendFailure {
    let reason = match refusal(error) {
        Some(refusal) => refusal.to_string(),
        None => error.to_string(),
    };
    if is_of_entry(error) {
        AppendFailure::OfEntry(reason)
    } else {
        AppendFailure::OfPartition(reason)
    }
}

/// Returns whether a publication that failed is certainly not in the stream.
fn outcome_of(error: &PublishError) -> AppendOutcome {
    match error.kind() {
        PublishErrorKind::StreamNotFound | PublishErrorKind::MaxPayloadExceeded => AppendOutcome::Refused,
        _ if refusal(error).is_some() => AppendOutcome::Refused,
        _ => AppendOutcome::Unknown,
    }
}

/// The messages of a consumer, in the order of their delivery.
pub(super) struct Messages {
    stream: PullStream,
    /// The first message, if it was received already.
    first: Option<jetstream::Message>,
    /// The number of the delivery that is next.
    next: u64,
}

impl Messages {
    /// Waits for the first message. Returns its sequence.
    async fn peek(&mut self) -> Result<u64, Failure> {
        let message = match timeout(REQUEST_TIMEOUT, self.stream.next()).await {
            Ok(Some(message)) => message.map_err(Failure::client)?,
            Ok(None) => return Err(Failure::Ended("the consumer has ended".to_owned())),
            Err(_) => {
                return Err(Failure::Ended(
                    "the messages of the stream do not arrive".to_owned(),
                ));
            }
        };
        let sequence = message.info().map_err(Failure::Client)?.stream_sequence;
        self.first = Some(message);
        Ok(sequence)
    }
}

/// A partition whose consumer is created.
pub(super) struct OpenedSubject {
    pub(super) event: Opened,
    pub(super) messages: Messages,
}

/// The position of a partition's reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Lag {
    /// The newest sequence that was read.
    last: u64,
    /// The messages that the stream had behind it then.
    pending: u64,
}

impl Lag {
    /// Returns whether messages were deleted that were not read yet. `first`: the oldest one that the stream retains.
    pub(super) fn is_trimmed(&self, first: u64) -> bool {
        self.pending > 0 && first > self.last + 1
    }
}

/// Opens a partition, after this time.
pub(super) fn open(number: u32, connected: &Connected, opening: Opening, wait: Duration) -> Job<'static> {
    let session = &connected.session;
    let (context, stream, prefix) = (
        session.context.clone(),
        session.stream.clone(),
        session.prefix.clone(),
    );
    let binding = session.binding;
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let open = async {
            sleep(wait).await;
            open_subject(
                &context,
                &stream,
                format!("{prefix}.{}", opening.partition.0),
                &opening,
            )
            .await
        };
        let mut opened = tokio::select! {
            opened = open => opened,
            _ = closed.changed() => Err(closed_failure()),
        };
        if let Ok(opened) = &mut opened {
            opened.event.binding = binding;
        }
        Done::Opened(number, opening, opened)
    })
}

async fn open_subject(
    context: &Context,
    stream: &str,
    subject: String,
    opening: &Opening,
) -> Result<OpenedSubject, Failure> {
    let stream = context.get_stream(stream).await.map_err(Failure::client)?;
    let state = StreamState::of(stream.cached_info());
    let end = match stream.get_last_raw_message_by_subject(&subject).await {
        Ok(message) => Some((message.sequence, message.time.unix_timestamp_nanos())),
        Err(error) if error.kind() == LastRawMessageErrorKind::NoMessageFound => None,
        Err(error) => return Err(Failure::client(error)),
    };
    // The subject may be empty.
    let last = end.map_or(0, |(sequence, _)| sequence).max(state.first - 1);
    let from_sequence = |start_sequence| {
        (
            DeliverPolicy::ByStartSequence { start_sequence },
            Some(start_sequence),
        )
    };
    let (deliver_policy, from) = match opening.from {
        FollowFrom::Number(number) => from_sequence(number.max(state.first)),
        FollowFrom::Recent(time) => {
            let start = clock::realtime().saturating_sub(time);
            if end.is_some_and(|(_, time)| time >= start.as_nanos() as i128) {
                let start_time = (std::time::UNIX_EPOCH + start).into();
                (DeliverPolicy::ByStartTime { start_time }, None)
            } else {
                // By time, the consumer would begin after a message that is appended meanwhile.
                from_sequence(last + 1)
            }
        }
    };
    let config = consumer_config(subject, deliver_policy);
    let consumer = stream.create_consumer(config).await.map_err(Failure::client)?;
    let messages = consumer
        .stream()
        .max_messages_per_batch(PULL_MESSAGES)
        .heartbeat(HEARTBEAT)
        .expires(PULL_EXPIRES)
        .messages();
    let mut messages = Messages {
        stream: messages.await.map_err(Failure::client)?,
        first: None,
        next: 1,
    };
    let from = match from {
        Some(from) => from,
        // A server does not say reliably where a consumer begins: its first message does.
        None => messages.peek().await?,
    };
    Ok(OpenedSubject {
        event: Opened {
            partition: opening.partition,
            binding: ringmain_cluster::log::Binding(0),
            first: state.first,
            end: last,
            from: from.max(state.first),
        },
        messages,
    })
}

fn consumer_config(subject: String, deliver_policy: DeliverPolicy) -> pull::Config {
    pull::Config {
        deliver_policy,
        ack_policy: AckPolicy::None,
        filter_subject: subject,
        inactive_threshold: INACTIVE,
        num_replicas: 1,
        memory_storage: true,
        ..pull::Config::default()
    }
}

/// Reads the next messages of a partition.
pub(super) fn read(
    partition: Partition,
    generation: u32,
    mut messages: Messages,
    mut closed: watch::Receiver<()>,
) -> Job<'static> {
    Box::pin(async move {
        let mut records = Vec::new();
        let mut lag = Lag::default();
        let first = match messages.first.take() {
            Some(message) => Some(Ok(message)),
            None => tokio::select! {
                first = messages.stream.next() => first,
                _ = closed.changed() => None,
            },
        };
        let mut next = first;
        let failure = loop {
            match next {
                None => break Some(Failure::Ended("the consumer has ended".to_owned())),
                Some(Err(error)) => break Some(Failure::client(error)),
                Some(Ok(message)) => match record(&message, &mut messages.next) {
                    Ok((record, pending)) => {
                        lag = Lag {
                            last: record.number,
                            pending,
                        };
                        records.push(record);
                    }
                    Err(failure) => break Some(failure),
                },
            }
            if records.len() == READ_TOGETHER {
                break None;
            }
            match messages.stream.next().now_or_never() {
                Some(message) => next = message,
                None => break None,
            }
        };
        Done::Read {
            partition,
            generation,
            records,
            lag,
            next: failure.map_or(Ok(messages), Err),
        }
    })
}

/// Reads a message. `next`: the number of its delivery, or 0 for any.
fn record(message: &jetstream::Message, next: &mut u64) -> Result<(Record, u64), Failure> {
    let info = message.info().map_err(Failure::Client)?;
    if *next != 0 && info.consumer_sequence != *next {
        return Err(Failure::Ended(format!(
            "expected delivery {next} of the consumer, found {}",
            info.consumer_sequence
        )));
    }
    *next += u64::from(*next != 0);
    let time_ms = (info.published.unix_timestamp_nanos() / 1_000_000) as i64;
    let record = Record::read(info.stream_sequence, time_ms, &message.payload);
    Ok((record, info.pending))
}

/// Reads records of a partition among so many sequences.
pub(super) fn older(connected: &Connected, tail: Tail, sequences: u64) -> Job<'static> {
    let session = &connected.session;
    let (context, stream) = (session.context.clone(), session.stream.clone());
    let subject = format!("{}.{}", session.prefix, tail.partition.0);
    let mut closed = connected.closed.clone();
    Box::pin(async move {
        let outcome = tokio::select! {
            outcome = read_older(&context, &stream, subject, &tail, sequences) => outcome,
            _ = closed.changed() => Err(closed_failure()),
        };
        Done::Older(tail, outcome)
    })
}

async fn read_older(
    context: &Context,
    stream: &str,
    subject: String,
    &Tail { before, bytes, .. }: &Tail,
    sequences: u64,
) -> Result<OlderPart, Failure> {
    let stream = context.get_stream(stream).await.map_err(Failure::client)?;
    let first = StreamState::of(stream.cached_info()).first;
    let start_sequence = before.saturating_sub(sequences).max(first);
    let mut newest = NewestRecords::new(bytes);
    if start_sequence < before {
        let config = consumer_config(subject, DeliverPolicy::ByStartSequence { start_sequence });
        let consumer = stream.create_consumer(config).await.map_err(Failure::client)?;
        let mut pending = consumer.cached_info().num_pending;
        while pending > 0 {
            let fetched = consumer
                .fetch()
                .max_messages(OLDER_MESSAGES)
                .max_bytes(limits::LOG_READ_BYTES)
                .expires(REQUEST_TIMEOUT);
            let mut fetched = fetched.messages().await.map_err(Failure::client)?;
            let mut is_empty = true;
            while let Some(message) = fetched.next().await {
                let message = match message {
                    Ok(message) => message,
                    // The request has reached its bytes.
                    Err(_) if !is_empty => break,
                    Err(error) => return Err(Failure::Client(error)),
                };
                let (record, behind) = record(&message, &mut 0)?;
                is_empty = false;
                pending = if record.number < before { behind } else { 0 };
                if record.number < before {
                    newest.push(record);
                }
            }
            if is_empty {
                return Err(Failure::Ended(format!(
                    "expected {pending} older messages, found none within {REQUEST_TIMEOUT:?}"
                )));
            }
        }
    }
    Ok(OlderPart::new(newest, start_sequence, before, first))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ringmain_cluster::log::{AppendKey, Partition};

    use super::{Lag, message_id};

    #[test]
    fn messages_are_trimmed_if_some_behind_the_newest_that_was_read_are_gone() {
        let lag = |last, pending| Lag { last, pending };
        for (lag, first, expected) in [
            (lag(5, 3), 7, true),
            (lag(5, 3), 6, false),
            // Others than those of this partition.
            (lag(5, 0), 7, false),
            (Lag::default(), 7, false),
        ] {
            assert_eq!(lag.is_trimmed(first), expected, "{lag:?} {first}");
        }
    }

    #[test]
    fn identities_of_messages_do_not_run_into_each_other() {
        let id = |channel: &str, key: &str| {
            let key = AppendKey {
                channel: channel.into(),
                key: key.into(),
                window: Duration::from_secs(1),
            };
            message_id(Partition(3), &key)
        };
        assert_eq!(id("ab", "c"), "3:2:abc");
        assert_ne!(id("ab", "c"), id("a", "bc"));
    }
}
