//! A topic of Kafka as a log, with its partitions.
//!
//! ```text
//! Append ─ queue ─ idempotent producer, acks=all ─▶ partition ─ acknowledgement with its offset ─▶ Appended     numbers: offset + 1
//! Follow ─ seek, resume ─ poll of all partitions that are read ─▶ Records
//! ```
//!
//! The client finds leaders by itself and loses no position, so that a partition remains open while its leader is elected. Where a log was
//! truncated, the client asks the leader (`OffsetForLeaderEpoch`, KIP-320) and returns to the end of the common part: an offset that is lower
//! than expected closes the partition, and the node compares the records when it reads it again. Keys of publications are
//! recognized by the readers: a topic knows none.

mod jobs;
mod session;

use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use krafka::consumer::ConsumerRecord;
use ringmain_cluster::log::{
    Append, AppendOutcome, Binding, LogEvent, LogPort, LogRequest, Opened, Partition,
};
use ringmain_gateway::model::{KafkaLog, PushLog};
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use self::jobs::{Checked, Done, Sent, number};
use self::session::Session;
use super::Jobs;
use super::follows::{Follows, Opening};
use super::older::{FIRST_WINDOW, OlderPart};
use super::outbox::{Acknowledgement, AppendFailure, Outbox};
use super::queue::AppendQueue;
use super::retry::Retry;
use super::tails::{Tail, TailQueue};
use crate::failure::Failure;
use crate::limits;

/// The time between attempts to open a partition.
const OPEN_INTERVAL: Duration = Duration::from_millis(200);

/// Checks of the topic after whose failure the client is replaced: at least so many seconds.
const FAILED_CHECKS: u32 = 4;

/// An open partition.
struct OpenPartition {
    /// The number of the next record.
    next: u64,
    /// The number of offsets below a position that are read for older records.
    older_window: u64,
}

/// A connection.
struct Connected {
    session: Session,
    /// Ends its jobs when it is dropped.
    _open: watch::Sender<()>,
    closed: watch::Receiver<()>,
    is_sending: bool,
    is_polling: bool,
    has_failed: bool,
    /// Checks of the topic that have failed one after the other.
    failed_checks: u32,
}

/// The adapter.
struct Adapter<'l> {
    log: &'l PushLog,
    kafka: &'l KafkaLog,
    outbox: Outbox,
    jobs: Jobs<'l, Done>,
    follows: Follows<OpenPartition>,
    queue: AppendQueue,
    connected: Option<Connected>,
    /// The number of the connection.
    number: u32,
    /// The binding of the last connection.
    binding: Option<Binding>,
    /// The partition whose leader is queried next.
    next_check: Partition,
    /// Requests for older records.
    tails: TailQueue,
    retry: Retry,
}

/// Runs until the node ends.
pub(super) async fn run(log: &PushLog, kafka: &KafkaLog, port: LogPort) {
    let LogPort { mut requests, events } = port;
    let mut adapter = Adapter {
        log,
        kafka,
        outbox: Outbox::new(events, "kafka"),
        jobs: Jobs::new(),
        follows: Follows::new(log.partitions),
        queue: AppendQueue::default(),
        connected: None,
        number: 0,
        binding: None,
        next_check: Partition(0),
        tails: TailQueue::default(),
        retry: Retry::default(),
    };
    let mut check = tokio::time::interval(limits::LOG_CHECK_INTERVAL);
    check.set_missed_tick_behavior(MissedTickBehavior::Delay);
    adapter.connect(Duration::ZERO);
    loop {
        adapter.start_jobs();
        if adapter.outbox.flush().await.is_err() {
            return;
        }
        tokio::select! {
            batch = requests.recv() => match batch {
                Some(batch) => adapter.handle_requests(batch),
                None => return,
            },
            Some(done) = adapter.jobs.next() => adapter.complete(done),
            _ = check.tick() => adapter.expire(),
        }
        while let Ok(batch) = requests.try_recv() {
            adapter.handle_requests(batch);
        }
        while let Some(Some(done)) = adapter.jobs.next().now_or_never() {
            adapter.complete(done);
        }
    }
}

impl Adapter<'_> {
    fn handle_requests(&mut self, requests: Vec<LogRequest>) {
        let now = clock::monotonic();
        for request in requests {
            match request {
                LogRequest::Append(append) => self.request_append(append, now),
                LogRequest::Follow { partition, from } => self.follows.follow(partition, from),
                LogRequest::Unfollow { partition } => self.unfollow(partition),
                LogRequest::Tail {
                    partition,
                    before,
                    bytes,
                } => self
                    .tails
                    .request(&self.follows, &mut self.outbox, partition, before, bytes),
            }
        }
    }

    fn request_append(&mut self, append: Append, now: Duration) {
        if self.follows.contains(append.partition) {
            self.queue.push(append, now);
        } else {
            self.outbox.appended(append.id, AppendOutcome::Refused);
        }
    }

    fn unfollow(&mut self, partition: Partition) {
        let next = self.follows.get(partition).map_or(1, |(open, _)| open.next);
        self.follows.unfollow(partition);
        if let Some(connected) = self
            .connected
            .as_ref()
            .filter(|_| self.follows.contains(partition))
        {
            self.jobs.push(jobs::pause(connected, partition, next));
        }
    }

    fn start_jobs(&mut self) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        while let Some(tail) = self.tails.take(&self.follows) {
            let open = self.follows.get(tail.partition);
            let window = open.map_or(FIRST_WINDOW, |(open, _)| open.older_window);
            self.jobs.push(jobs::older(connected, tail, window));
        }
        if !connected.is_sending && !self.queue.is_empty() {
            connected.is_sending = true;
            self.jobs.push(jobs::send(
                self.number,
                connected,
                self.queue.take_batch(|_| true),
            ));
        }
        for opening in self.follows.take_waiting(|_| true) {
            self.jobs
                .push(jobs::open(self.number, connected, opening, Duration::ZERO));
        }
        if !connected.is_polling && self.follows.all_open().next().is_some() {
            connected.is_polling = true;
            self.jobs
                .push(jobs::poll(self.number, connected, connected.has_failed));
        }
    }

    fn complete(&mut self, done: Done) {
        // Acknowledgements of a connection of before count as well.
        match done {
            Done::Connected(Ok(session)) => self.connected(*session),
            Done::Connected(Err(failure)) => {
                self.outbox.disconnected(&failure.to_string());
                let wait = self.retry.next_wait();
                self.connect(wait);
            }
            Done::Sent(number, sent) => self.sent(number, sent),
            Done::Appended(batch) => self.appended(batch),
            Done::Opened(number, opening, opened) => self.opened(number, opening, opened),
            Done::Polled(number, records) => self.polled(number, records),
            Done::Older(tail, outcome) => self.older(&tail, outcome),
            Done::Checked(number, checked) => self.checked(number, checked),
            Done::Set => {}
        }
    }

    fn connect(&mut self, wait: Duration) {
        self.jobs.push(jobs::connect(self.log, self.kafka, wait));
    }

    fn connected(&mut self, session: Session) {
        self.number += 1;
        if self.binding.is_some_and(|binding| binding != session.binding) {
            // Entries for another topic may not belong into this one: the node decides again.
            for queued in self.queue.extract(|_| true) {
                self.outbox.appended(queued.append.id, AppendOutcome::Refused);
            }
        }
        self.binding = Some(session.binding);
        self.outbox
            .warn_settings(&format!("topic {}", session.topic), &session.differences);
        let (open, closed) = watch::channel(());
        let connected = Connected {
            session,
            _open: open,
            closed,
            is_sending: false,
            is_polling: false,
            has_failed: false,
            failed_checks: 0,
        };
        self.jobs
            .push(jobs::check(self.number, &connected, self.next_check));
        self.connected = Some(connected);
        self.outbox.reachable();
    }

    /// Closes everything, and connects again.
    fn fail(&mut self, failure: &Failure) {
        if self.connected.take().is_none() {
            return;
        }
        self.outbox.disconnected(&failure.to_string());
        for partition in self.follows.interrupt(|_| true) {
            self.outbox.push(LogEvent::Closed { partition });
        }
        let wait = self.retry.next_wait();
        self.connect(wait);
    }

    fn current(&mut self, number: u32) -> Option<&mut Connected> {
        self.connected.as_mut().filter(|_| number == self.number)
    }

    fn sent(&mut self, number: u32, sent: Sent) {
        if let Some(connected) = self.current(number) {
            connected.is_sending = false;
        }
        let Sent {
            acks,
            refused,
            unsent,
        } = sent;
        self.queue.put_back(unsent);
        self.jobs.push(jobs::acknowledge(acks));
        let mut fatal = None;
        for (queued, error) in refused {
            self.outbox.acknowledged(Acknowledgement {
                id: queued.append.id,
                partition: queued.append.partition,
                outcome: AppendOutcome::Refused,
                failure: Some(AppendFailure::OfPartition(error.to_string())),
            });
            fatal = Some(error).filter(krafka::KrafkaError::is_fatal).or(fatal);
        }
        // The producer can send nothing more.
        if let Some(error) = fatal
            && self.current(number).is_some()
        {
            self.fail(&error.into());
        }
    }

    fn appended(&mut self, batch: Vec<Acknowledgement>) {
        for acknowledgement in batch {
            if matches!(acknowledgement.outcome, AppendOutcome::Appended(_)) {
                self.retry.reset();
            }
            self.outbox.acknowledged(acknowledgement);
        }
    }

    fn opened(&mut self, number: u32, opening: Opening, opened: Result<Opened, Failure>) {
        let Some(connected) = self.connected.as_ref().filter(|_| number == self.number) else {
            return;
        };
        match opened {
            Ok(opened) => {
                let open = OpenPartition {
                    next: opened.from,
                    older_window: FIRST_WINDOW,
                };
                if self.follows.open(&opening, open) {
                    self.jobs.push(jobs::resume(connected, opening.partition));
                    self.outbox.push(LogEvent::Opened(opened));
                }
            }
            Err(failure) => {
                self.outbox
                    .warn(&format!("partition {}: {failure}; retrying", opening.partition.0));
                self.jobs
                    .push(jobs::open(number, connected, opening, OPEN_INTERVAL));
            }
        }
    }

    fn polled(&mut self, number: u32, records: Result<Vec<ConsumerRecord>, Failure>) {
        let Some(connected) = self.current(number) else {
            return;
        };
        connected.is_polling = false;
        connected.has_failed = records.is_err();
        match records {
            Ok(records) => self.add_records(records),
            Err(failure) => self.outbox.warn(&format!("{failure}; retrying")),
        }
    }

    fn add_records(&mut self, records: Vec<ConsumerRecord>) {
        // Those of a partition follow each other.
        for run in records.chunk_by(|one, other| one.partition == other.partition) {
            let Some(partition) = run
                .first()
                .and_then(|first| u16::try_from(first.partition).ok())
                .map(Partition)
            else {
                continue;
            };
            let Some(generation) = self.follows.get(partition).map(|(_, generation)| generation) else {
                continue;
            };
            self.add_run(partition, generation, run);
        }
    }

    /// Adds records of one partition.
    fn add_run(&mut self, partition: Partition, generation: u32, run: &[ConsumerRecord]) {
        let Some(open) = self.follows.get_mut(partition, generation) else {
            return;
        };
        let (first, next) = (run.first(), open.next);
        let Some(first) = first.map(|record| number(record.offset)) else {
            return;
        };
        if first < next {
            self.outbox.warn(&format!(
                "partition {} continues at offset {}, before {}: the broker has lost records",
                partition.0,
                first - 1,
                next - 1
            ));
            self.unfollow(partition);
            return self.outbox.push(LogEvent::Closed { partition });
        }
        // Offsets are left out by the retention alone: there are no transactions.
        if first > next {
            self.outbox.push(LogEvent::Trimmed { partition, first });
        }
        open.next = run.last().map_or(next, |last| number(last.offset) + 1);
        let records = run.iter().map(jobs::record).collect();
        self.outbox.records(partition, records, now_ms());
    }

    fn older(&mut self, tail: &Tail, outcome: Result<OlderPart, Failure>) {
        self.tails.complete();
        let partition = tail.partition;
        let Some(open) = self.follows.get_mut(partition, tail.generation) else {
            return;
        };
        match outcome {
            Ok(part) => {
                open.older_window = part.next_window;
                self.outbox.push(part.event(partition, now_ms()));
            }
            Err(failure) => {
                self.outbox
                    .warn(&format!("partition {}: {failure}; reading it again", partition.0));
                self.unfollow(partition);
                self.outbox.push(LogEvent::Closed { partition });
            }
        }
    }

    /// A broker has responded about the topic, and the leader of a partition about that, or they have not.
    fn checked(&mut self, number: u32, checked: Checked) {
        let Some(connected) = self.connected.as_mut().filter(|_| number == self.number) else {
            return;
        };
        let Checked {
            partition,
            binding,
            leader,
        } = checked;
        match binding {
            Ok(binding) if binding != Some(connected.session.binding) => {
                return self.fail(&Failure::Ended("the topic was deleted".to_owned()));
            }
            Ok(_) => {
                connected.failed_checks = 0;
                self.outbox.reachable();
            }
            Err(failure) => {
                connected.failed_checks += 1;
                // The metadata of the client retain a topic that was deleted; those of a new one do not have it.
                if connected.failed_checks == FAILED_CHECKS {
                    return self.fail(&failure);
                }
                self.outbox.disconnected(&failure.to_string());
            }
        }
        // The other partitions remain open while one has no leader.
        match leader {
            Ok(()) => self.outbox.accepted(partition),
            Err(failure) => self.outbox.refused(partition, &failure.to_string()),
        }
        self.next_check = Partition((partition.0 + 1) % self.log.partitions);
        if let Some(connected) = &self.connected {
            self.jobs.push(jobs::check(number, connected, self.next_check));
        }
    }

    fn expire(&mut self) {
        self.outbox.expire();
        for append in self.queue.expire(clock::monotonic()) {
            self.outbox.appended(append.id, AppendOutcome::Refused);
        }
    }
}

fn now_ms() -> i64 {
    clock::realtime().as_millis() as i64
}
