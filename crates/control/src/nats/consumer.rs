//! One consumer: connects, listens, hands over, and comes back.
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
use super::connection::{Access, Connection, Failure, refused};
use super::protocol::Event;
use super::status::{Dropped, Status};
use crate::limits::{NATS_IMPATIENT, NATS_PING_EVERY, NATS_PONG_WITHIN, NATS_ROOM_WITHIN, NATS_TELL_EVERY};

/// See the module.
pub(super) struct Consumer {
    name: Arc<str>,
    nats: Arc<Nats>,
    inlet: ThreadPublisher,
    status: Arc<Status>,
}

/// While it listens.
struct Listening<'c> {
    consumer: &'c mut Consumer,
    told: &'c mut Told,
    /// When what is being read came.
    received: Duration,
    /// Until then it does not wait for a worker without room: it has done so in vain.
    impatient_until: Duration,
    /// The server has answered what followed the subscriptions.
    is_confirmed: bool,
    /// It has refused one of them.
    is_refused: bool,
}

/// What was said lately, so that a fault that lasts is not said again and again.
#[derive(Default)]
struct Told {
    failure: Option<(String, Duration)>,
    /// By reason: how many were dropped, and when that was told.
    dropped: [Option<(u64, Duration)>; Dropped::ALL.len()],
}

/// Ends with the connection, also when the task is ended.
struct Connected<'s>(&'s Status);

impl Drop for Connected<'_> {
    fn drop(&mut self) {
        self.0.disconnected();
    }
}

impl Consumer {
    pub(super) fn new(member: Member<Nats, Status>) -> Consumer {
        Consumer {
            name: member.name,
            nats: member.config,
            inlet: member.inlet,
            status: member.status,
        }
    }

    /// For as long as it is wanted.
    pub(super) async fn run(mut self) {
        let mut random = Rng::with_seed(clock::realtime().as_nanos() as u64);
        let mut told = Told::default();
        let (mut failures, mut turn) = (0, 0);
        loop {
            let began = clock::monotonic();
            let failure = match Access::new(&self.nats.access) {
                Ok(access) => self.session(&access, turn, &mut told).await,
                Err(failure) => failure,
            };
            self.status.failed();
            if clock::monotonic() - began >= backoff::LASTED {
                failures = 0;
            }
            self.tell(&mut told, turn, &failure);
            turn += 1;
            if turn % self.nats.access.servers.len().max(1) == 0 {
                failures += 1;
                sleep(backoff::wait(failures, &mut random)).await;
            }
        }
    }

    /// Connects to a server and listens; returns when that is over.
    async fn session(&mut self, access: &Access, turn: usize, told: &mut Told) -> Failure {
        let nats = Arc::clone(&self.nats);
        let servers = &nats.access.servers;
        let Some(server) = servers.get(turn % servers.len().max(1)) else {
            return Failure::Settings("expected a server, found none".to_owned());
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
        // Its answer says that the server has all subscriptions: what is published from then on arrives.
        connection.ping();
        let status = Arc::clone(&self.status);
        status.connected();
        let _connected = Connected(&status);
        log::info!(
            "NATS {}: listens at {}:{}, version {}",
            self.name,
            server.host,
            server.port,
            connection.info().version
        );
        told.failure = None;
        let mut listening = Listening {
            consumer: self,
            told,
            received: clock::monotonic(),
            impatient_until: Duration::ZERO,
            is_confirmed: false,
            is_refused: false,
        };
        match listening.listen(&mut connection).await {
            Ok(never) => match never {},
            Err(failure) => failure,
        }
    }

    fn tell(&self, told: &mut Told, turn: usize, failure: &Failure) {
        let servers = &self.nats.access.servers;
        let Some(server) = servers.get(turn % servers.len().max(1)) else {
            return;
        };
        let text = format!("{}:{}: {failure}", server.host, server.port);
        let now = clock::monotonic();
        let again = told
            .failure
            .as_ref()
            .is_some_and(|(last, at)| *last == text && now - *at < NATS_TELL_EVERY);
        if !again {
            log::warn!("NATS {}: {text}; it tries again", self.name);
            told.failure = Some((text, now));
        }
    }
}

impl Listening<'_> {
    async fn listen(&mut self, connection: &mut Connection) -> Result<std::convert::Infallible, Failure> {
        let mut asked = false;
        loop {
            connection.flush().await?;
            let wait = if asked { NATS_PONG_WITHIN } else { NATS_PING_EVERY };
            match timeout(wait, connection.fill()).await {
                Ok(filled) => {
                    filled?;
                    asked = false;
                }
                Err(_) if asked => return Err(Failure::Silent),
                Err(_) => {
                    connection.ping();
                    asked = true;
                    continue;
                }
            }
            self.received = clock::monotonic();
            self.hear(connection).await?;
        }
    }

    /// All that has come.
    async fn hear(&mut self, connection: &mut Connection) -> Result<(), Failure> {
        let mut pongs = 0;
        while let Some(event) = connection.event()? {
            match event {
                Event::Message { subject, payload, .. } => self.message(subject, payload).await,
                Event::TooLarge { subject, .. } => {
                    self.consumer.status.message();
                    self.leave_out(Dropped::TooLarge, subject);
                }
                Event::Ping => pongs += 1,
                Event::Pong => self.subscribed(),
                // Of one subscription: the others continue.
                Event::Error(why) if why.starts_with("Permissions Violation") => {
                    self.is_refused = true;
                    self.consumer.status.delivers(false);
                    log::warn!("NATS {}: {}", self.consumer.name, refused(why));
                }
                Event::Error(why) => return Err(refused(why)),
                Event::Info(_) | Event::Ok => {}
            }
        }
        (0..pongs).for_each(|_| connection.pong());
        Ok(())
    }

    /// The server has confirmed the subscriptions. What was published since the last connection is missing: the channels start a new
    /// epoch behind it, so that positioned clients are notified.
    fn subscribed(&mut self) {
        if !std::mem::replace(&mut self.is_confirmed, true) {
            let Consumer {
                nats, inlet, status, ..
            } = &*self.consumer;
            // A process before this one had all until now, and its channels are still to arrive: nothing is missing.
            if !(inlet.continues() && status.is_first()) {
                nats.bounds().iter().for_each(|bound| bound.interrupt(inlet));
            }
            status.delivers(!self.is_refused);
        }
    }

    /// One that was published.
    async fn message(&mut self, subject: &str, payload: &[u8]) {
        let Consumer {
            nats, inlet, status, ..
        } = &mut *self.consumer;
        status.message();
        let Some(channel) = nats.channel.channel_of(&Subject(subject)) else {
            return self.leave_out(Dropped::NoChannel, subject);
        };
        let channel: Arc<str> = channel.into();
        let mut outcome = inlet.publish(&channel, payload);
        if outcome == Err(SubmitError::Full) && self.received >= self.impatient_until {
            status.waits(self.received);
            let room = timeout(
                NATS_ROOM_WITHIN,
                poll_fn(|context| inlet.poll_room(&channel, context)),
            );
            if room.await.is_err() {
                self.impatient_until = clock::monotonic() + NATS_IMPATIENT;
            }
            outcome = inlet.publish(&channel, payload);
        }
        match outcome {
            Ok(()) => status.handed_over(clock::monotonic().saturating_sub(self.received)),
            Err(SubmitError::InvalidChannel(_)) => self.leave_out(Dropped::NoChannel, subject),
            Err(SubmitError::InvalidData) => self.leave_out(Dropped::NotJson, subject),
            Err(SubmitError::TooLarge) => self.leave_out(Dropped::TooLarge, subject),
            Err(SubmitError::Full | SubmitError::NotReady) => {
                inlet.report_dropped(&channel);
                self.leave_out(Dropped::Full, subject);
            }
        }
    }

    /// Counts it, and says so now and then.
    fn leave_out(&mut self, why: Dropped, subject: &str) {
        let dropped = self.consumer.status.dropped(why);
        let last = &mut self.told.dropped[why as usize];
        let (before, at) = last.unwrap_or((0, Duration::ZERO));
        if last.is_none() || self.received.saturating_sub(at) >= NATS_TELL_EVERY {
            let subject: String = subject.chars().take(100).collect();
            log::warn!(
                "NATS {}: messages are not published, {} so far and {} of them since this was last said, for {}; the last one's \
                 subject is {subject:?}",
                self.consumer.name,
                dropped,
                dropped - before,
                why.why()
            );
            *last = Some((dropped, self.received));
        }
    }
}
