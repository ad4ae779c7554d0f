//! A JetStream stream: this module and `log/jetstream` alone know `async-nats`.
//!
//! ```text
//! durable   pull consumer, explicit acknowledgement once a message is done; messages before its floor fill the history
//! none      ordered consumer from a start; resumed behind the newest message after a reconnect; also in the place of a durable one
//!           that other processes read
//! ```
//!
//! A stream is a log: the offset of a publication is its message's sequence number, and its epoch follows from the stream's name, the
//! time of its creation, and its life. A stream that was restored from an older copy assigns numbers again: the first node that notices draws another
//! life and stores it in the key-value bucket [`LIVES`], where all nodes find it.

mod company;
mod connect;
mod life;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::pull::{self, OrderedConfig};
use async_nats::jetstream::consumer::{AckPolicy, DeliverPolicy};
use async_nats::jetstream::message::Acker;
use async_nats::jetstream::stream::{Info, Stream};
use async_nats::jetstream::{self, Message};
use async_nats::{Client, Event};
use futures_util::{FutureExt, StreamExt};
use ringmain_gateway::model::{JetStream, RecordFormat, StartPosition, SubjectPattern};
use ringmain_push::{LogEvent, LogId};
use ringmain_sys::clock;
use tokio::sync::{mpsc, watch};
use tokio::time::interval;

use self::company::{Deliveries, Strays};
pub(crate) use self::connect::connect;
use self::life::follow_life;
use crate::failure::Failure;
use crate::feed::{DeadLetter, Feed, Partition, Record};
use crate::limits;

/// The bucket with the lives of streams that were restored from an older copy. It is created when the first one is.
const LIVES: &str = "ringmain_lives";
/// Messages of which the numbers and times are remembered, to tell whether the stream still has them.
const SAMPLES: usize = 64;
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Messages that are added before they are handed to workers.
const TAKEN_AT_ONCE: usize = 256;
/// Connections whose events are not handled yet.
const EVENTS: usize = 16;

/// The state of a stream between two connections.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    log: Option<LogId>,
    created: i128,
    /// Lives that were seen, the present one last.
    lives: Vec<u64>,
    /// The newest message that was read.
    newest: u64,
    /// Numbers and times of messages that were read lately.
    samples: VecDeque<(u64, i128)>,
    /// Messages of the durable consumer that were delivered elsewhere.
    strays: Strays,
    /// Messages that were read and may be delivered again; bounded by [`limits::IN_FLIGHT_MOST`].
    handled: Handled,
}

/// Numbers of messages, in ascending order. Nearly all arrive in it.
#[derive(Debug, Default)]
struct Handled(VecDeque<u64>);

impl Handled {
    /// Returns whether it was not there.
    fn insert(&mut self, sequence: u64) -> bool {
        if self.0.back().is_none_or(|last| *last < sequence) {
            self.0.push_back(sequence);
        } else {
            match self.0.binary_search(&sequence) {
                Ok(_) => return false,
                Err(index) => self.0.insert(index, sequence),
            }
        }
        if self.0.len() > 2 * limits::IN_FLIGHT_MOST {
            self.0.pop_front();
        }
        true
    }

    fn remove(&mut self, sequence: u64) {
        if let Ok(index) = self.0.binary_search(&sequence) {
            self.0.remove(index);
        }
    }

    fn remove_above(&mut self, sequence: u64) {
        self.0
            .truncate(self.0.partition_point(|number| *number <= sequence));
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}

/// Reads until something fails, or until it is to end: then `None`.
pub(crate) async fn run(
    settings: &JetStream,
    feed: &mut Feed,
    stopped: &mut watch::Receiver<()>,
) -> Option<Failure> {
    let (events, mut heard) = mpsc::channel(EVENTS);
    let client = match connect(&settings.access, events).await {
        Ok(client) => client,
        Err(failure) => return Some(failure),
    };
    let letters = Arc::clone(&feed.letters);
    // Without a durable consumer, what was read is not read again.
    letters.start_session(settings.durable.is_some());
    let destination = feed.mapping.dead_letters.clone();
    let context = jetstream::new(client.clone());
    tokio::select! {
        biased;
        _ = stopped.changed() => {}
        never = letters.deliver(|letter| send_letter(&context, destination.as_deref(), letter)) => match never {},
        outcome = read(settings, feed, &client, &mut heard) => return outcome.err(),
    }
    // Acknowledgements are on their way.
    let _ = tokio::time::timeout(REQUEST_TIMEOUT, client.flush()).await;
    None
}

/// Returns whether a source reads a subject from a stream with these subjects.
fn reads(settings: &JetStream, subjects: &[String], subject: &str) -> bool {
    let is_of = |filter: &str| SubjectPattern::nats(filter).matches(subject);
    subjects.iter().any(|filter| is_of(filter))
        && (settings.subjects.is_empty() || settings.subjects.iter().any(|filter| is_of(filter)))
}

/// Publishes a dead letter, and waits until a stream has it.
async fn send_letter(
    context: &jetstream::Context,
    subject: Option<&str>,
    letter: DeadLetter,
) -> Result<(), String> {
    let Some(subject) = subject else {
        return Ok(());
    };
    let mut headers = async_nats::HeaderMap::new();
    headers.insert("Ringmain-Reason", letter.reason.label());
    headers.insert("Ringmain-Subject", &*letter.record.subject);
    let payload = letter.record.value.unwrap_or_default();
    let named = |error: &dyn std::fmt::Display| format!("subject {subject}: {error}");
    let sent = context.publish_with_headers(subject.to_owned(), headers, payload);
    let sent = sent.await.map_err(|error| named(&error))?;
    sent.await.map(drop).map_err(|error| named(&error))
}

async fn read(
    settings: &JetStream,
    feed: &mut Feed,
    client: &Client,
    events: &mut mpsc::Receiver<Event>,
) -> Result<(), Failure> {
    let context = jetstream::new(client.clone());
    let mut stream = context.get_stream(&*settings.stream).await.map_err(|error| {
        Failure::Settings(format!(
            "stream {} cannot be read: {error}; create it, or correct the key `stream`",
            settings.stream
        ))
    })?;
    let info = stream.info().await.map_err(Failure::client)?.clone();
    if let Some(subject) = feed.mapping.dead_letters.as_deref()
        && reads(settings, &info.config.subjects, subject)
    {
        return Err(Failure::Settings(format!(
            "dead letters for {subject} would be read from stream {} again; set `dead_letters` to a subject of another stream",
            settings.stream
        )));
    }
    let is_known = feed.jetstream.log.is_some();
    let ended = follow_life(settings, feed, &context, &stream, &info).await?;
    if let Some(log) = ended {
        log::warn!(
            "source {} (jetstream): stream {} was created again, or restored from an older copy",
            feed.name,
            settings.stream
        );
        feed.log_ended(log).await;
    }
    let is_resumed = is_known && ended.is_none();
    feed.status.connected();
    log::info!(
        "source {} (jetstream): reading stream {}",
        feed.name,
        settings.stream
    );
    let durable = settings
        .durable
        .as_ref()
        .filter(|_| !feed.jetstream.strays.is_shared());
    let mut reader = Reader {
        partition: Partition::new(feed, feed.jetstream.log.map(|log| log.epoch)),
        subject: Arc::clone(&settings.stream),
        ackers: VecDeque::new(),
        parked: Vec::new(),
        count: 0,
        is_durable: durable.is_some(),
        deliveries: None,
        pending: None,
        has_begun: false,
    };
    let outcome = match durable {
        None => {
            reader
                .run_ordered(settings, feed, &stream, events, is_resumed, ended.is_some())
                .await
        }
        Some(durable) => {
            reader
                .run_durable(settings, durable, feed, &stream, events, is_resumed)
                .await
        }
    };
    reader.finish(feed).await;
    outcome
}

impl Reader {
    /// Completes what was read before the connection ends.
    async fn finish(&mut self, feed: &mut Feed) {
        feed.status.disconnected();
        // Messages that were read and could not be handed over are read again.
        let drained = tokio::time::timeout(limits::STOP_TIMEOUT, self.partition.settle(feed));
        if drained.await.is_err() {
            let reached = self.partition.reached();
            feed.jetstream.newest = feed.jetstream.newest.min(reached);
            feed.jetstream.handled.remove_above(reached);
        }
        // The client takes no acknowledgements while it reconnects: those messages are delivered again, and recognized.
        let _ = tokio::time::timeout(limits::COMMIT_INTERVAL, self.tick(feed)).await;
        // Dead letters that wait are delivered again, and are then no repeats.
        for (_, sequence, _) in &self.parked {
            feed.jetstream.handled.remove(*sequence);
        }
    }

    async fn run_ordered(
        &mut self,
        settings: &JetStream,
        feed: &mut Feed,
        stream: &Stream<Info>,
        events: &mut mpsc::Receiver<Event>,
        is_resumed: bool,
        has_ended: bool,
    ) -> Result<(), Failure> {
        let info = stream.cached_info();
        let policy = match (is_resumed, settings.start) {
            (true, _) => from(feed.jetstream.newest + 1),
            // Another life: all messages are new.
            (false, StartPosition::Back(_) | StartPosition::Latest) if has_ended => DeliverPolicy::All,
            (false, StartPosition::Earliest) => DeliverPolicy::All,
            (false, StartPosition::Latest) => from(info.state.last_sequence + 1),
            (false, StartPosition::Back(time)) => since(time),
        };
        let is_live = is_resumed || has_ended;
        let live = (!is_live).then_some(info.state.last_sequence);
        let resumed = is_resumed.then_some(feed.jetstream.newest);
        let mut messages = ordered(settings, stream, policy).await?;
        self.begin(feed, info, messages.pending, resumed, live).await;
        self.read(feed, &mut messages.stream, events, None).await
    }

    async fn run_durable(
        &mut self,
        settings: &JetStream,
        durable: &str,
        feed: &mut Feed,
        stream: &Stream<Info>,
        events: &mut mpsc::Receiver<Event>,
        is_resumed: bool,
    ) -> Result<(), Failure> {
        let info = stream.cached_info();
        let config = pull::Config {
            durable_name: Some(durable.to_owned()),
            ack_policy: AckPolicy::Explicit,
            max_ack_pending: i64::try_from(feed.mapping.in_flight).unwrap_or(i64::MAX),
            deliver_policy: match settings.start {
                StartPosition::Earliest => DeliverPolicy::All,
                StartPosition::Latest | StartPosition::Back(_) => DeliverPolicy::New,
            },
            filter_subjects: subjects(settings),
            ..pull::Config::default()
        };
        let consumer = stream.get_or_create_consumer(durable, config).await;
        let consumer = consumer.map_err(Failure::client)?;
        let found = consumer.cached_info();
        let (floor, delivered) = (found.ack_floor.stream_sequence, found.delivered.stream_sequence);
        // Clients of a process that was killed may lack messages that it had acknowledged; others would be delivered again behind newer
        // messages. Both are read from the stream, in order.
        let is_first = !is_resumed && self.partition.log().is_some() && floor > 0;
        let start = if is_resumed { feed.jetstream.newest } else { floor };
        let policy = match (is_first, settings.start) {
            (true, StartPosition::Back(time)) => since_or(time, stream, floor).await,
            _ => from(start + 1),
        };
        if is_first || delivered > start {
            let mut messages = ordered(settings, stream, policy).await?;
            let pending = messages.pending;
            if is_first {
                self.begin(feed, info, pending, None, Some(floor)).await
            } else {
                self.begin(feed, info, 0, Some(start), None).await
            }
            if pending > 0 {
                self.read(feed, &mut messages.stream, events, Some(delivered))
                    .await?;
            }
        } else {
            self.begin(feed, info, 0, Some(start), None).await;
        }
        let mut messages = consumer.messages().await.map_err(Failure::client)?;
        self.deliveries = Some(Deliveries::new(consumer));
        let messages = messages.by_ref().map(|message| message.map_err(Failure::client));
        self.read(feed, &mut Box::pin(messages), events, None).await
    }
}

fn bytes_of(text: &str) -> bytes::Bytes {
    bytes::Bytes::copy_from_slice(text.as_bytes())
}

fn from(start_sequence: u64) -> DeliverPolicy {
    DeliverPolicy::ByStartSequence { start_sequence }
}

fn subjects(settings: &JetStream) -> Vec<String> {
    settings.subjects.iter().map(ToString::to_string).collect()
}

fn since(time: Duration) -> DeliverPolicy {
    let start = std::time::UNIX_EPOCH + clock::realtime().saturating_sub(time);
    DeliverPolicy::ByStartTime {
        start_time: start.into(),
    }
}

/// The earlier of a time so far back and the message behind the floor.
async fn since_or(time: Duration, stream: &Stream<Info>, floor: u64) -> DeliverPolicy {
    let start = clock::realtime().saturating_sub(time).as_nanos() as i128;
    match stream.get_raw_message(floor + 1).await {
        Ok(next) if next.time.unix_timestamp_nanos() < start => from(floor + 1),
        _ => since(time),
    }
}

type Messages<'m> = std::pin::Pin<Box<dyn futures_util::Stream<Item = Result<Message, Failure>> + Send + 'm>>;

struct OrderedMessages {
    stream: Messages<'static>,
    /// Messages that the stream had for it at the start.
    pending: u64,
}

async fn ordered(
    settings: &JetStream,
    stream: &Stream<Info>,
    deliver_policy: DeliverPolicy,
) -> Result<OrderedMessages, Failure> {
    let config = OrderedConfig {
        deliver_policy,
        filter_subjects: subjects(settings),
        ..OrderedConfig::default()
    };
    let consumer = stream.create_consumer(config).await.map_err(Failure::client)?;
    let pending = consumer.cached_info().num_pending;
    let messages = consumer.messages().await.map_err(Failure::client)?;
    Ok(OrderedMessages {
        stream: Box::pin(messages.map(|message| message.map_err(Failure::client))),
        pending,
    })
}

struct Reader {
    partition: Partition<u64>,
    subject: Arc<str>,
    /// Of messages that are not acknowledged, by their place in the order of reading.
    ackers: VecDeque<(u64, u64, Acker)>,
    /// The acknowledgements of messages before them whose dead letters wait.
    parked: Vec<(u64, u64, Acker)>,
    /// Messages that were read.
    count: u64,
    /// Messages of a durable consumer are acknowledged.
    is_durable: bool,
    /// While messages of a durable consumer are read.
    deliveries: Option<Deliveries>,
    /// Messages that the stream has behind the newest.
    pending: Option<u64>,
    has_begun: bool,
}

impl Reader {
    /// Reports where reading begins: behind `resumed`, or with the first message if there are `pending` ones.
    async fn begin(
        &mut self,
        feed: &mut Feed,
        info: &Info,
        pending: u64,
        resumed: Option<u64>,
        live: Option<u64>,
    ) {
        // The stream may have deleted what follows the last message that was read.
        let oldest = info.state.first_sequence.saturating_sub(1);
        let start = match resumed {
            Some(newest) => Some(newest.max(oldest)),
            None if pending == 0 => Some(info.state.last_sequence),
            None => None,
        };
        if let Some(start) = start {
            self.has_begun = true;
            self.partition.begins(feed, start).await;
            feed.jetstream.newest = feed.jetstream.newest.max(start);
        }
        if let (Some(live), Some(log)) = (live, self.partition.log()) {
            if !self.has_begun {
                // The first message says where it begins; until then nothing is recovered.
                feed.report(log, LogEvent::Started(oldest)).await;
            }
            feed.report(log, LogEvent::Live(live)).await;
        }
        feed.has_begun().await;
    }

    /// Reads until something fails, or until the message `until`.
    async fn read<S>(
        &mut self,
        feed: &mut Feed,
        messages: &mut S,
        events: &mut mpsc::Receiver<Event>,
        until: Option<u64>,
    ) -> Result<(), Failure>
    where
        S: futures_util::Stream<Item = Result<Message, Failure>> + Unpin,
    {
        let mut ticks = interval(limits::COMMIT_INTERVAL);
        feed.status.responded(Duration::ZERO);
        loop {
            let is_drained = self.partition.pump(feed);
            tokio::select! {
                biased;
                event = events.recv() => match event {
                    Some(Event::Connected | Event::SlowConsumer(_)) => {}
                    Some(event) => return Err(Failure::Ended(event.to_string())),
                    None => return Err(Failure::Ended("the client has ended".to_owned())),
                },
                _ = ticks.tick() => {
                    self.tick(feed).await?;
                    if let Some(deliveries) = &mut self.deliveries {
                        if !is_drained {
                            deliveries.paused();
                        } else if !deliveries.are_complete().await? {
                            return Err(feed.jetstream.strays.add(&self.subject));
                        }
                    }
                    // The client ends a connection whose pings are not answered: an event.
                    feed.status.responded(Duration::ZERO);
                }
                () = self.partition.wait_for_room(feed), if !is_drained => {}
                message = messages.next(), if is_drained => {
                    let mut next = message;
                    for taken in 1.. {
                        let Some(message) = next else {
                            return Err(Failure::Ended("the consumer has ended".to_owned()));
                        };
                        let sequence = self.take(feed, message?).await?;
                        if until.is_some_and(|until| sequence >= until || self.pending == Some(0)) {
                            self.partition.drain(feed).await;
                            return Ok(());
                        }
                        let ready = (taken < TAKEN_AT_ONCE).then(|| messages.next().now_or_never());
                        let Some(message) = ready.flatten() else { break };
                        next = message;
                    }
                }
            }
        }
    }

    async fn take(&mut self, feed: &mut Feed, message: Message) -> Result<u64, Failure> {
        let info = message
            .info()
            .map_err(|error| Failure::Ended(error.to_string()))?;
        let (sequence, published) = (info.stream_sequence, info.published.unix_timestamp_nanos());
        let number = info.consumer_sequence;
        if let Some(deliveries) = &mut self.deliveries
            && !deliveries.arrived(number)
        {
            return Err(feed.jetstream.strays.add(&self.subject));
        }
        self.pending = Some(info.pending);
        if !self.has_begun {
            self.has_begun = true;
            self.partition.begins(feed, sequence - 1).await;
        }
        let memory = &mut feed.jetstream;
        let is_new = sequence > memory.newest;
        let is_handled = !memory.handled.insert(sequence);
        if is_new {
            memory.newest = sequence;
            memory.samples.push_back((sequence, published));
            if memory.samples.len() > SAMPLES {
                memory.samples.pop_front();
            }
        }
        let age = clock::realtime().as_nanos() as i128 - published;
        feed.status
            .set_age(Duration::from_nanos(u64::try_from(age).unwrap_or(0)));
        let (message, acker) = message.split();
        if is_handled {
            // Delivered again: it is done, or in flight and will be delivered once more.
            let mut open = self.ackers.iter().chain(&self.parked);
            let is_done = !open.any(|(_, other, _)| *other == sequence);
            if is_done && self.is_durable {
                let acked = acker.ack().await;
                acked.map_err(|error| Failure::Ended(error.to_string()))?;
            }
            return Ok(sequence);
        }
        self.count += 1;
        if self.is_durable {
            self.ackers.push_back((self.count, sequence, acker));
        }
        let record = self.record(message, sequence, feed);
        if is_new {
            self.partition.push(feed, record, sequence, self.count)
        } else {
            // It was delivered to another node, which has not acknowledged it.
            self.partition.push_late(feed, record, self.count)
        }
        Ok(sequence)
    }

    fn record(&self, message: async_nats::Message, sequence: u64, feed: &Feed) -> Record {
        let headers = message.headers.as_ref();
        let key = headers.and_then(|headers| headers.get(async_nats::header::NATS_MESSAGE_ID));
        let read = headers.filter(|_| feed.needs_headers);
        let read = read.into_iter().flat_map(|headers| headers.iter());
        let read =
            read.filter_map(|(name, values)| Some((name.to_string(), bytes_of(values.first()?.as_str()))));
        Record {
            subject: message.subject.as_str().into(),
            key: key.map(|key| bytes_of(key.as_str())),
            headers: read.collect(),
            value: Some(message.payload),
            id: match feed.mapping.format {
                RecordFormat::Data => None,
                RecordFormat::Commands => Some(format!("{}/{sequence}", self.subject).into()),
            },
        }
    }

    async fn tick(&mut self, feed: &mut Feed) -> Result<(), Failure> {
        let passed = self.partition.passed(feed).unwrap_or(0);
        let is_parked = |(count, _, _): &(u64, u64, Acker)| self.partition.is_parked(count - 1);
        let (parked, sent): (Vec<_>, Vec<_>) = self.parked.drain(..).partition(is_parked);
        self.parked = parked;
        let passed = std::iter::from_fn(|| self.ackers.pop_front_if(|(count, _, _)| *count <= passed));
        let (parked, done): (Vec<_>, Vec<_>) = passed.partition(is_parked);
        self.parked.extend(parked);
        for (_, _, acker) in sent.into_iter().chain(done).filter(|_| self.is_durable) {
            acker
                .ack()
                .await
                .map_err(|error| Failure::Ended(error.to_string()))?;
            feed.status.committed();
        }
        self.partition.report_reached(feed);
        feed.status.set_lag(self.pending);
        let paused = usize::from(!self.partition.is_drained() || self.partition.is_held(feed));
        feed.status.set_partitions(1, paused, self.partition.in_flight());
        Ok(())
    }
}
