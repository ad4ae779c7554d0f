//! A stream of JetStream as a log, with a subject for each partition.
//!
//! ```text
//! Append ─ queue ─ publish ─▶ stream ─ acknowledgement with its sequence ─▶ Appended     numbers: sequences, of all partitions together
//! Follow ─ a pull consumer of the subject, from a sequence ─▶ Records
//! ```
//!
//! The client connects again by itself; here a lost connection closes everything, so that no record can be missed unnoticed. A stream
//! without a leader accepts nothing and reports no state: the log is disconnected, and open partitions remain open until its consumer's
//! heartbeats are missed.

mod jobs;
mod session;

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt};
use ringmain_cluster::log::{
    Append, AppendOutcome, Binding, LogEvent, LogPort, LogRequest, Partition, Record,
};
use ringmain_gateway::model::{JetStreamLog, PushLog};
use ringmain_sys::clock;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use self::jobs::{Done, Lag, OpenedSubject, Sent};
use self::session::{Session, StreamState};
use super::Jobs;
use super::follows::{Follows, Opening};
use super::older::{FIRST_WINDOW, OlderPart};
use super::outbox::{Acknowledgement, AppendFailure, Outbox};
use super::queue::AppendQueue;
use super::retry::Retry;
use super::tails::{Tail, TailQueue};
use crate::failure::Failure;
use crate::limits;

/// Batches whose acknowledgements are awaited, at most.
const BATCHES: usize = 8;
/// The time between attempts to open a partition.
const OPEN_INTERVAL: Duration = Duration::from_millis(200);

/// An open partition.
struct OpenPartition {
    /// Ends its job when it is dropped.
    _open: watch::Sender<()>,
    lag: Lag,
    /// The number of sequences below a position that are read for older records.
    older_window: u64,
}

/// A connection.
struct Connected {
    session: Session,
    /// Ends its jobs when it is dropped.
    _open: watch::Sender<()>,
    closed: watch::Receiver<()>,
    is_sending: bool,
    batches: usize,
}

/// The adapter.
struct Adapter<'l> {
    log: &'l PushLog,
    jetstream: &'l JetStreamLog,
    outbox: Outbox,
    jobs: Jobs<'l, Done>,
    follows: Follows<OpenPartition>,
    queue: AppendQueue,
    connected: Option<Connected>,
    /// The number of the connection.
    number: u32,
    /// The binding of the last connection.
    binding: Option<Binding>,
    /// Requests for older records.
    tails: TailQueue,
    retry: Retry,
}

/// Runs until the node ends.
pub(super) async fn run(log: &PushLog, jetstream: &JetStreamLog, port: LogPort) {
    let LogPort { mut requests, events } = port;
    let mut adapter = Adapter {
        log,
        jetstream,
        outbox: Outbox::new(events, "jetstream"),
        jobs: Jobs::new(),
        follows: Follows::new(log.partitions),
        queue: AppendQueue::default(),
        connected: None,
        number: 0,
        binding: None,
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
                LogRequest::Unfollow { partition } => self.follows.unfollow(partition),
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

    fn start_jobs(&mut self) {
        let Some(connected) = &mut self.connected else {
            return;
        };
        while let Some(tail) = self.tails.take(&self.follows) {
            let open = self.follows.get(tail.partition);
            let window = open.map_or(FIRST_WINDOW, |(open, _)| open.older_window);
            self.jobs.push(jobs::older(connected, tail, window));
        }
        if !connected.is_sending && connected.batches < BATCHES && !self.queue.is_empty() {
            connected.is_sending = true;
            connected.batches += 1;
            let batch = self.queue.take_batch(|_| true);
            self.jobs.push(jobs::send(self.number, connected, batch));
        }
        for opening in self.follows.take_waiting(|_| true) {
            self.jobs
                .push(jobs::open(self.number, connected, opening, Duration::ZERO));
        }
    }

    fn complete(&mut self, done: Done) {
        // Acknowledgements count, and unsent entries are sent again, also those of an earlier connection.
        match done {
            Done::Connected(Ok(session)) => self.connected(*session),
            Done::Connected(Err(failure)) => {
                self.outbox.disconnected(&failure.to_string());
                let wait = self.retry.next_wait();
                self.connect(wait);
            }
            Done::Failed(number, failure) => self.fail(number, &failure),
            Done::Sent(number, sent) => self.sent(number, sent),
            Done::Appended(number, batch) => self.appended(number, batch),
            Done::Opened(number, opening, outcome) => self.opened(number, opening, outcome),
            Done::Read {
                partition,
                generation,
                records,
                lag,
                next,
            } => self.read(partition, generation, records, lag, next),
            Done::Older(tail, outcome) => self.older(&tail, outcome),
            Done::Checked(number, state) => self.checked(number, state),
        }
    }

    fn connect(&mut self, wait: Duration) {
        self.jobs.push(jobs::connect(self.log, self.jetstream, wait));
    }

    fn connected(&mut self, session: Session) {
        self.number += 1;
        if self.binding.is_some_and(|binding| binding != session.binding) {
            // Entries for another stream may not belong into this one: the node decides again.
            for queued in self.queue.extract(|_| true) {
                self.outbox.appended(queued.append.id, AppendOutcome::Refused);
            }
        }
        self.binding = Some(session.binding);
        self.outbox
            .warn_settings(&format!("stream {}", session.stream), &session.differences);
        let (open, closed) = watch::channel(());
        let connected = Connected {
            session,
            _open: open,
            closed,
            is_sending: false,
            batches: 0,
        };
        self.jobs.push(jobs::watch(self.number, &connected));
        self.jobs.push(jobs::check(self.number, &connected));
        self.connected = Some(connected);
        self.outbox.reachable();
    }

    /// Closes everything, and connects again.
    fn fail(&mut self, number: u32, failure: &Failure) {
        if number != self.number || self.connected.take().is_none() {
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
        let Sent {
            acks,
            refused,
            unsent,
        } = sent;
        for (queued, error) in refused {
            self.outbox.acknowledged(Acknowledgement {
                id: queued.append.id,
                partition: queued.append.partition,
                outcome: AppendOutcome::Refused,
                failure: Some(AppendFailure::OfEntry(error.to_string())),
            });
        }
        let is_failed = !unsent.is_empty();
        self.queue.put_back(unsent);
        match self.current(number) {
            Some(connected) => {
                connected.is_sending = false;
                let job = jobs::acknowledge(number, connected, acks);
                self.jobs.push(job);
            }
            None => {
                for id in acks.requests() {
                    self.outbox.appended(id, AppendOutcome::Unknown);
                }
            }
        }
        if is_failed {
            self.fail(
                number,
                &Failure::Ended("the connection accepts nothing".to_owned()),
            );
        }
    }

    fn appended(&mut self, number: u32, batch: Vec<Acknowledgement>) {
        if let Some(connected) = self.current(number) {
            connected.batches -= 1;
        }
        for acknowledgement in batch {
            if matches!(acknowledgement.outcome, AppendOutcome::Appended(_)) {
                self.retry.reset();
            }
            self.outbox.acknowledged(acknowledgement);
        }
    }

    fn opened(&mut self, number: u32, opening: Opening, outcome: Result<OpenedSubject, Failure>) {
        let Some(connected) = self.connected.as_ref().filter(|_| number == self.number) else {
            return;
        };
        let opened = match outcome {
            Ok(opened) => opened,
            Err(failure) => {
                self.outbox
                    .warn(&format!("partition {}: {failure}; retrying", opening.partition.0));
                self.jobs
                    .push(jobs::open(number, connected, opening, OPEN_INTERVAL));
                return;
            }
        };
        let (open, closed) = watch::channel(());
        let partition = OpenPartition {
            _open: open,
            lag: Lag::default(),
            older_window: FIRST_WINDOW,
        };
        if self.follows.open(&opening, partition) {
            self.outbox.push(LogEvent::Opened(opened.event));
            self.jobs.push(jobs::read(
                opening.partition,
                opening.generation,
                opened.messages,
                closed,
            ));
        }
    }

    fn read(
        &mut self,
        partition: Partition,
        generation: u32,
        records: Vec<Record>,
        lag: Lag,
        next: Result<jobs::Messages, Failure>,
    ) {
        let Some(open) = self.follows.get_mut(partition, generation) else {
            return;
        };
        open.lag = lag;
        let closed = open._open.subscribe();
        self.outbox.records(partition, records, now_ms());
        match next {
            Ok(messages) => self
                .jobs
                .push(jobs::read(partition, generation, messages, closed)),
            Err(failure) => {
                self.outbox
                    .warn(&format!("partition {}: {failure}; reading it again", partition.0));
                self.follows.close(partition, generation);
                self.outbox.push(LogEvent::Closed { partition });
            }
        }
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
                self.follows.close(partition, tail.generation);
                self.outbox.push(LogEvent::Closed { partition });
            }
        }
    }

    /// The state of the stream is known, or is not: then nothing is accepted at the moment.
    fn checked(&mut self, number: u32, state: Result<Option<StreamState>, Failure>) {
        let Some(connected) = self.connected.as_ref().filter(|_| number == self.number) else {
            return;
        };
        match state {
            Ok(None) => return self.fail(number, &Failure::Ended("the stream was deleted".to_owned())),
            Ok(Some(state)) if state.binding != connected.session.binding => {
                return self.fail(number, &Failure::Ended("the stream was created again".to_owned()));
            }
            Ok(Some(state)) => {
                self.outbox.reachable();
                self.report_trimmed(state.first);
            }
            Err(failure) => self.outbox.disconnected(&failure.to_string()),
        }
        if let Some(connected) = &self.connected {
            self.jobs.push(jobs::check(number, connected));
        }
    }

    /// Reports partitions whose messages were deleted before they were read.
    fn report_trimmed(&mut self, first: u64) {
        let open: BTreeSet<Partition> = self.follows.all_open().collect();
        for partition in open {
            let generation = self.follows.get(partition).map(|(_, generation)| generation);
            let open = generation.and_then(|generation| self.follows.get_mut(partition, generation));
            if let Some(open) = open
                && open.lag.is_trimmed(first)
            {
                open.lag = Lag::default();
                self.outbox.push(LogEvent::Trimmed { partition, first });
            }
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
