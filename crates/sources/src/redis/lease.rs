//! The lease of a stream: of the members of a group, one reads a stream at a time, so that its entries are published in their order.
//!
//! ```text
//! waiting ─ no owner, expired, released ─▶ held ─ refreshed every LEASE_INTERVAL ─▶ held
//!    ▲                                      │ another owner
//!    └──────────────────────────────────────┘
//! ```
//!
//! It is a hash beside the stream with the process that owns it, its consumer's name, and the end by the clock of Redis. The owner of before
//! remains in it, so a member knows whether another one has published since it last owned the stream: then its clients are notified.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use redis::{Value, cmd};
use ringmain_gateway::model::RedisStreams;
use ringmain_sys::clock;
use tokio::time::{Instant, sleep};

use super::streams::{Reader, StreamState};
use crate::failure::Failure;

/// The time after which another member takes over from one that does not refresh its lease.
const LEASE: Duration = Duration::from_secs(5);
/// The same for the next process of the same consumer: after a kill, its successor does not wait for long.
const LEASE_OF_CONSUMER: Duration = Duration::from_secs(2);
/// The interval at which a lease is refreshed.
const LEASE_INTERVAL: Duration = Duration::from_millis(500);
/// Entries that are claimed by one command.
const CLAIM_ENTRIES: usize = 1000;
/// The interval at which a member that waits tries to become the owner.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// `KEYS`: the lease. `ARGV`: owner, consumer, milliseconds of the lease, milliseconds that it lasts longer for other consumers.
/// Returns whether it is held, and the owner and the consumer of before.
const ACQUIRE: &str = "\
local time = redis.call('TIME') \
local now = time[1] * 1000 + math.floor(time[2] / 1000) \
local lease = redis.call('HMGET', KEYS[1], 'owner', 'consumer', 'until') \
local ends = tonumber(lease[3] or '0') \
if lease[2] == ARGV[2] then ends = ends - ARGV[4] end \
local before = {lease[1] or '', lease[2] or ''} \
if lease[1] and lease[1] ~= ARGV[1] and ends > now then return {0, before[1], before[2]} end \
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'consumer', ARGV[2], 'until', now + ARGV[3]) \
return {1, before[1], before[2]}";

/// `KEYS` and `ARGV` as above: the next member has it at once.
const RELEASE: &str = "\
if redis.call('HGET', KEYS[1], 'owner') == ARGV[1] then redis.call('HSET', KEYS[1], 'until', 0) end \
return 0";

/// The lease of a stream, as one member sees it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseMemory {
    /// This process was the owner last.
    is_owner: bool,
    /// Another process was seen as the owner since this one last was, or since it started.
    has_waited: bool,
}

/// The outcome of an attempt.
enum Attempt {
    /// This process owns it; the consumer is that of another process that owned it before.
    Held {
        other: Option<String>,
    },
    Busy {
        consumer: String,
    },
}

/// Returns a name that no other reader has, in this process or another one.
pub(crate) fn new_owner() -> Box<str> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let seed = clock::realtime().as_nanos() as u64 ^ u64::from(std::process::id()).rotate_left(32);
    let process = fastrand::Rng::with_seed(seed).u64(..);
    format!("{process:016x}/{}", COUNT.fetch_add(1, Ordering::Relaxed)).into()
}

impl Reader<'_> {
    /// Waits until this process owns the stream. Its clients miss the entries that other members publish, and are notified. Returns the
    /// consumer that has read it before, if it is another one.
    pub(super) async fn acquire(&mut self) -> Result<Option<String>, Failure> {
        let other = loop {
            match self.attempt().await? {
                Attempt::Held { other } => break other,
                Attempt::Busy { consumer } => {
                    self.wait_for_owner(&consumer);
                    sleep(RETRY_INTERVAL).await;
                }
            }
        };
        let LeaseMemory { is_owner, has_waited } = self.lease();
        let was_owned = other.is_some();
        let other = other.filter(|other| **other != *self.shared.redis.consumer);
        if is_owner && was_owned || has_waited && other.is_some() {
            self.shared.feed().gap();
        }
        self.set_lease(LeaseMemory {
            is_owner: true,
            has_waited: false,
        });
        self.lease_at = Instant::now() + LEASE_INTERVAL;
        Ok(other)
    }

    /// Claims the entries that the owner of before has not acknowledged: they are read before new ones, in their order.
    pub(super) async fn claim_from(&mut self, consumer: &str) -> Result<(), Failure> {
        let RedisStreams {
            group, consumer: own, ..
        } = self.shared.redis;
        loop {
            let mut pending = cmd("XPENDING");
            pending.arg(&**self.name).arg(&**group).arg("-").arg("+");
            pending.arg(CLAIM_ENTRIES).arg(consumer);
            let found: Vec<(String, Value, Value, Value)> = self.control.query(&pending).await?;
            if found.is_empty() {
                return Ok(());
            }
            let mut claim = cmd("XCLAIM");
            claim.arg(&**self.name).arg(&**group).arg(&**own).arg(0);
            for (id, ..) in &found {
                claim.arg(id);
            }
            self.control.query::<Value>(claim.arg("JUSTID")).await?;
        }
    }

    /// Refreshes the lease.
    ///
    /// # Errors
    /// Another process owns the stream.
    pub(super) async fn refresh_lease(&mut self) -> Result<(), Failure> {
        if Instant::now() < self.lease_at {
            return Ok(());
        }
        self.lease_at = Instant::now() + LEASE_INTERVAL;
        match self.attempt().await? {
            Attempt::Held { .. } => Ok(()),
            Attempt::Busy { consumer } => {
                self.wait_for_owner(&consumer);
                Err(Failure::Ended(format!(
                    "another member of the group reads {} since this one did not respond",
                    self.name
                )))
            }
        }
    }

    /// Lets another member read the stream.
    pub(super) async fn release(&mut self) {
        if !self.lease().is_owner {
            return;
        }
        let mut release = cmd("EVAL");
        release
            .arg(RELEASE)
            .arg(1)
            .arg(self.lease_key())
            .arg(&*self.owner());
        // Otherwise it expires.
        let _ = self.control.query::<Value>(&release).await;
    }

    async fn attempt(&mut self) -> Result<Attempt, Failure> {
        let mut acquire = cmd("EVAL");
        acquire
            .arg(ACQUIRE)
            .arg(1)
            .arg(self.lease_key())
            .arg(&*self.owner());
        acquire.arg(&*self.shared.redis.consumer);
        acquire.arg(LEASE.as_millis() as u64);
        acquire.arg((LEASE - LEASE_OF_CONSUMER).as_millis() as u64);
        let (is_held, owner, consumer): (i64, String, String) = match self.control.query(&acquire).await {
            Ok(found) => found,
            Err(error) if error.code() == Some("NOPERM") => {
                log::warn!(
                    "source {} (redis_streams): allow this user EVAL and the key {}, or let one node read the stream: {error}",
                    self.shared.feed().name,
                    self.lease_key()
                );
                return Ok(Attempt::Held { other: None });
            }
            Err(error) => return Err(error.into()),
        };
        if is_held == 0 {
            return Ok(Attempt::Busy { consumer });
        }
        let is_other = !owner.is_empty() && *owner != *self.owner();
        Ok(Attempt::Held {
            other: is_other.then_some(consumer),
        })
    }

    /// Another member reads the stream: this one is ready without it. The lease of a process that was this same consumer ends soon, and its
    /// entries that were not acknowledged are still to be published here: clients with positions wait for them.
    fn wait_for_owner(&self, consumer: &str) {
        if self.lease().is_owner {
            self.shared.feed().gap();
        }
        self.set_lease(LeaseMemory {
            is_owner: false,
            has_waited: true,
        });
        let is_other = *consumer != *self.shared.redis.consumer;
        self.shared.set_stream(self.index, StreamState::waiting(is_other));
    }

    fn lease(&self) -> LeaseMemory {
        self.memory().lease
    }

    fn set_lease(&self, lease: LeaseMemory) {
        self.set_memory(|memory| memory.lease = lease);
    }

    fn lease_key(&self) -> String {
        format!("ringmain_lease:{}:{}", self.shared.redis.group, self.name)
    }

    fn owner(&self) -> Box<str> {
        self.shared.feed().owner.clone()
    }
}
