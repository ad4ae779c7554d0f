//! One consumer: connects, subscribes, hands messages over, and reconnects.
//!
//! ```text
//! Waiting for workers ─▶ Connecting ── signed in ─▶ Listening
//!                          ▲     │ failure              │ failure
//!                          │     ▼                      ▼
//!                          └─ Backing off (once every server was tried)
//! ```

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use ringmain_gateway::model::{Nats, Subject};
use ringmain_push::{SubmitError, ThreadPublisher};
use ringmain_sources::supervisor::Member;
use ringmain_sys::clock;
use tokio::time::{sleep, timeout};

use super::backoff;
use super::connection::{ConnectOptions, Connection, ConnectionError, server_refusal};
use super::protocol::ServerEvent;
use super::status::{ConsumerStatus, DropReason};
use crate::limits::{
    NATS_DROP_PERIOD, NATS_LOG_INTERVAL, NATS_PING_INTERVAL, NATS_PONG_TIMEOUT, NATS_QUEUE_TIMEOUT,
};

/// See the module.
pub(super) struct Consumer {
    name: Arc<str>,
    nats: Arc<Nats>,
    inlet: ThreadPublisher,
    status: Arc<ConsumerStatus>,
}

/// While it listens.
struct SubscribedSession<'c> {
    consumer: &'c mut Consumer,
    throttle: &'c mut LogThrottle,
    /// The time at which the current data was received.
    received: Duration,
    /// Until then the consumer does not wait for a full worker queue: an earlier wait timed out.
    dropping_until: Duration,
    /// The server has confirmed the subscriptions.
    is_confirmed: bool,
    /// It has rejected one of the subscriptions.
    is_refused: bool,
}

/// The last log messages, so that a lasting fault is not logged repeatedly.
#[derive(Default)]
struct LogThrottle {
    failure: Option<(String, Duration)>,
    /// By reason: the number of dropped messages at the last log message, and its time.
    dropped: [Option<(u64, Duration)>; DropReason::ALL.len()],
}

/// Ends with the connection, also when the task is ended.
struct DisconnectGuard<'s>(&'s ConsumerStatus);

impl Drop for DisconnectGuard<'_> {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

impl Consumer {
    pub(super) fn new(member: Member<Nats, ConsumerStatus>) -> Consumer {
        Consumer {
            name: member.name,
            nats: member.config,
            inlet: member.inlet,
            status: member.status,
        }
    }

    /// Runs until the consumer is stopped.
    pub(super) async fn run(mut self) {
        let mut random = Rng::with_seed(clock::realtime().as_nanos() as u64);
        let mut throttle = LogThrottle::default();
        let (mut failures, mut round) = (0, 0);
        loop {
            let started_at = clock::monotonic();
            let failure = match ConnectOptions::new(&self.nats.access) {
                Ok(access) => self.session(&access, round, &mut throttle).await,
                Err(failure) => failure,
            };
            let text = self.failure_text(round, &failure);
            self.status.failed(&text);
            if clock::monotonic() - started_at >= backoff::STABLE_AFTER {
                failures = 0;
            }
            self.log_failure(&mut throttle, text);
            round += 1;
            if round % self.nats.access.servers.len().max(1) == 0 {
                failures += 1;
                sleep(backoff::next_delay(failures, &mut random)).await;
            }
        }
    }

    /// Connects to a server and receives until the connection fails.
    async fn session(
        &mut self,
        access: &ConnectOptions,
        round: usize,
        throttle: &mut LogThrottle,
    ) -> ConnectionError {
        let nats = Arc::clone(&self.nats);
        let servers = &nats.access.servers;
        let Some(server) = servers.get(round % servers.len().max(1)) else {
            return ConnectionError::Settings("expected a server, found none".to_owned());
        };
        let mut connection = match Connection::open(access, server).await {
            Ok(connection) => connection,
            Err(failure) => return failure,
        };
        for (number, subject) in (1..).zip(&nats.subjects) {
            if let Err(failure) = connection.subscribe(subject, number) {
                return failure;
            }
        }
        // Its pong confirms that the server has all subscriptions: later publications arrive.
        connection.ping();
        let status = Arc::clone(&self.status);
        status.connected();
        let _connected = DisconnectGuard(&status);
        log::info!(
            "NATS {}: subscribed at {}:{}, version {}",
            self.name,
            server.host,
            server.port,
            connection.info().version
        );
        throttle.failure = None;
        let mut session = SubscribedSession {
            consumer: self,
            throttle,
            received: clock::monotonic(),
            dropping_until: Duration::ZERO,
            is_confirmed: false,
            is_refused: false,
        };
        match session.receive(&mut connection).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    /// Returns the reason of a failure, with the address of the server that was tried in this turn.
    fn failure_text(&self, round: usize, failure: &ConnectionError) -> String {
        let servers = &self.nats.access.servers;
        match servers.get(round % servers.len().max(1)) {
            Some(server) => format!("{}:{}: {failure}", server.host, server.port),
            None => failure.to_string(),
        }
    }

    fn log_failure(&self, throttle: &mut LogThrottle, text: String) {
        let now = clock::monotonic();
        let again = throttle
            .failure
            .as_ref()
            .is_some_and(|(last, at)| *last == text && now - *at < NATS_LOG_INTERVAL);
        if !again {
            log::warn!("NATS {}: {text}; retrying", self.name);
            throttle.failure = Some((text, now));
        }
    }
}

impl SubscribedSession<'_> {
    async fn receive(
        &mut self,
        connection: &mut Connection,
    ) -> Result<std::convert::Infallible, ConnectionError> {
        let mut ping_sent = false;
        loop {
            connection.flush().await?;
            let wait = if ping_sent {
                NATS_PONG_TIMEOUT
            } else {
                NATS_PING_INTERVAL
            };
            match timeout(wait, connection.fill()).await {
                Ok(filled) => {
                    filled?;
                    ping_sent = false;
                }
                Err(_) if ping_sent => return Err(ConnectionError::PongTimeout),
                Err(_) => {
                    connection.ping();
                    ping_sent = true;
                    continue;
                }
            }
            self.received = clock::monotonic();
            self.handle_events(connection).await?;
        }
    }

    /// Handles all received events.
    async fn handle_events(&mut self, connection: &mut Connection) -> Result<(), ConnectionError> {
        let mut pongs = 0;
        while let Some(event) = connection.event()? {
            match event {
                ServerEvent::Message { subject, payload, .. } => self.publish_message(subject, payload).await,
                ServerEvent::TooLarge { subject, .. } => {
                    self.consumer.status.message();
                    self.drop_message(DropReason::TooLarge, subject);
                }
                ServerEvent::Ping => pongs += 1,
                ServerEvent::Pong => self.on_confirmed(),
                // Concerns one subscription: the others continue.
                ServerEvent::Error(reason) if reason.starts_with("Permissions Violation") => {
                    self.is_refused = true;
                    self.consumer.status.delivers(false);
                    log::warn!("NATS {}: {}", self.consumer.name, server_refusal(reason));
                }
                ServerEvent::Error(reason) => return Err(server_refusal(reason)),
                ServerEvent::Info(_) | ServerEvent::Ok => {}
            }
        }
        (0..pongs).for_each(|_| connection.pong());
        Ok(())
    }

    /// Handles the confirmation of the subscriptions. Messages since the last connection are lost: the channels start a new epoch, so
    /// that positioned clients are notified.
    fn on_confirmed(&mut self) {
        if !std::mem::replace(&mut self.is_confirmed, true) {
            let Consumer {
                nats, inlet, status, ..
            } = &*self.consumer;
            // The previous process received all messages until now, and its channels are still to be restored: no message is missing.
            if !(inlet.continues() && status.is_first()) {
                nats.bounds().iter().for_each(|bound| bound.interrupt(inlet));
            }
            status.delivers(!self.is_refused);
        }
    }

    /// Publishes a message.
    async fn publish_message(&mut self, subject: &str, payload: &[u8]) {
        let Consumer {
            nats, inlet, status, ..
        } = &mut *self.consumer;
        status.message();
        let Some(channel) = nats.channel.channel_of(&Subject(subject)) else {
            return self.drop_message(DropReason::NoChannel, subject);
        };
        let channel: Arc<str> = channel.into();
        let mut outcome = inlet.publish(&channel, payload);
        if outcome == Err(SubmitError::Full) && self.received >= self.dropping_until {
            status.waits(self.received);
            let capacity = timeout(
                NATS_QUEUE_TIMEOUT,
                poll_fn(|context| inlet.poll_room(&channel, context)),
            );
            if capacity.await.is_err() {
                self.dropping_until = clock::monotonic() + NATS_DROP_PERIOD;
            }
            outcome = inlet.publish(&channel, payload);
        }
        match outcome {
            Ok(()) => status.handed_over(clock::monotonic().saturating_sub(self.received)),
            Err(SubmitError::InvalidChannel(_)) => self.drop_message(DropReason::NoChannel, subject),
            Err(SubmitError::InvalidData) => self.drop_message(DropReason::NotJson, subject),
            Err(SubmitError::TooLarge) => self.drop_message(DropReason::TooLarge, subject),
            Err(SubmitError::Full | SubmitError::NotReady) => {
                inlet.report_dropped(&channel);
                self.drop_message(DropReason::Full, subject);
            }
        }
    }

    /// Counts a dropped message, and logs from time to time.
    fn drop_message(&mut self, reason: DropReason, subject: &str) {
        let dropped = self.consumer.status.dropped(reason);
        let last = &mut self.throttle.dropped[reason as usize];
        let (before, at) = last.unwrap_or((0, Duration::ZERO));
        if last.is_none() || self.received.saturating_sub(at) >= NATS_LOG_INTERVAL {
            let subject: String = subject.chars().take(100).collect();
            log::warn!(
                "NATS {}: dropped messages, {} in total and {} since the last report: {}; last subject: \
                 {subject:?}",
                self.consumer.name,
                dropped,
                dropped - before,
                reason.description()
            );
            *last = Some((dropped, self.received));
        }
    }
}
