//! Rate limits that several gateways share through a Redis: one script, run there by the clock of the Redis, decides.
//!
//! A request takes a connection of the Redis' upstream, as one for an origin would (its caps, TLS and endpoints apply), sends its
//! query, and pools the connection. No request waits for longer than the limit's timeout; after a failure of the Redis it is not
//! queried for a while, and then by one request. Reaching a cap of the gateway is no failure of the Redis and fails that query alone:
//! clients could otherwise disable a limit by exhausting the cap. A limit that does not deny is counted by this process meanwhile
//! ([`super::rate_limit`]), so it never fails open.
//!
//! ```text
//! Up ── failure ─▶ Down until now + back-off ── expired: one probe ─┬─ response ─▶ Up
//!                       ▲                                           └─ failure ─▶ twice as long, up to the limit
//!                       └───────────────────────────────────────────────────────────┘
//! ```

use std::cell::Cell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use ringmain_engine::backend::Time;

use crate::fault::{Fault, FaultSide};
use crate::gateway::Worker;
use crate::limits;
use crate::model::{self, Name, Secret};
use crate::rate::resp::{self, RespReply};
use crate::rate::{Rate, RateVerdict};
use crate::upstream::pool::PooledConnection;
use crate::upstream::{AffinityHint, UpstreamState};

/// The script that decides in the Redis.
const SCRIPT: &str = include_str!("../rate/script.lua");

/// The Redis of a limit.
#[derive(Debug)]
pub(super) struct RedisLimiter {
    upstream: Arc<UpstreamState>,
    prefix: String,
    user: Option<Arc<str>>,
    password: Option<Secret>,
    timeout: Duration,
    /// Requests are refused while the Redis does not respond; else this process counts them alone.
    pub(super) fail_closed: bool,
    /// The SHA-1 by which the Redis caches the script.
    sha: String,
}

/// A worker's view of a Redis.
#[derive(Clone, Copy, Debug, Default)]
struct RedisBreaker {
    /// No queries are sent until this instant.
    until: Time,
    /// Failures in a row.
    failures: u32,
}

/// A worker's view of each Redis, by upstream.
#[derive(Debug, Default)]
pub(crate) struct RedisBreakers(std::cell::RefCell<BTreeMap<Name, Rc<Cell<RedisBreaker>>>>);

impl RedisBreakers {
    fn breaker_of(&self, name: &Name) -> Rc<Cell<RedisBreaker>> {
        let mut all = self.0.borrow_mut();
        Rc::clone(all.entry(name.clone()).or_default())
    }
}

impl RedisLimiter {
    /// Returns the Redis for a limit of that name.
    pub(super) fn of(limit: &Name, redis: &model::Redis, upstream: Arc<UpstreamState>) -> RedisLimiter {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, SCRIPT.as_bytes());
        RedisLimiter {
            upstream,
            prefix: format!("{}{limit}:", redis.prefix),
            user: redis.user.clone(),
            password: redis.password.clone(),
            timeout: redis.timeout,
            fail_closed: redis.denies,
            sha: hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Counts a request of a key in the Redis, if it passes.
    ///
    /// # Errors
    /// The Redis could not be queried, or did not respond in time.
    pub(super) async fn count_request(
        &self,
        worker: &Rc<Worker>,
        key: &[u8],
        rate: Rate,
    ) -> Result<RateVerdict, Fault> {
        let breaker = worker.redis_breakers.breaker_of(&self.upstream.name);
        let now = worker.cx.now();
        let before = breaker.get();
        if now < before.until {
            return Err(Fault::LimiterDown);
        }
        if before.failures > 0 {
            // Concurrent requests do not query meanwhile: this one probes.
            breaker.set(RedisBreaker {
                until: now.after(self.timeout),
                ..before
            });
        }
        match self.query_redis(worker, key, rate, now.after(self.timeout)).await {
            Ok(verdict) => {
                breaker.set(RedisBreaker::default());
                Ok(verdict)
            }
            // The fault is the gateway's own and no evidence about the Redis.
            Err(fault) if fault.side() == FaultSide::Gateway => {
                breaker.set(before);
                Err(Fault::LimiterDown)
            }
            Err(fault) => {
                let failures = before.failures.saturating_add(1);
                let span = limits::REDIS_BACKOFF.saturating_mul(1 << before.failures.min(16));
                let until = worker.cx.now().after(span.min(limits::REDIS_BACKOFF_MOST));
                if before.failures == 0 {
                    let name = &self.upstream.name;
                    log::warn!("the Redis `{name}` does not count requests: {fault}");
                }
                breaker.set(RedisBreaker { until, failures });
                Err(Fault::LimiterDown)
            }
        }
    }

    async fn query_redis(
        &self,
        worker: &Rc<Worker>,
        key: &[u8],
        rate: Rate,
        until: Time,
    ) -> Result<RateVerdict, Fault> {
        let pool = worker.pool(&self.upstream);
        let remaining = || until.since(worker.cx.now());
        pool.wait_until_resolved(pool.connect_timeout().min(remaining()))
            .await;
        let _permit = pool.admit_request()?;
        let mut tried = Vec::new();
        let mut selected = pool.select(&tried, None, AffinityHint::None)?;
        let mut fresh = false;
        loop {
            let span = pool.connect_timeout().min(remaining());
            if span.is_zero() {
                return Err(Fault::HeadTimeout);
            }
            pool.count_attempt();
            let conn = match pool.acquire_exclusive(&selected.endpoint, fresh, span).await {
                Ok(conn) => conn,
                Err(fault) if fault.is_connect_failure() => {
                    pool.count_fault(fault);
                    tried.push(Rc::clone(&selected.endpoint));
                    if !pool.has_untried_endpoint(&tried) {
                        return Err(fault);
                    }
                    selected = pool.select(&tried, None, AffinityHint::None)?;
                    continue;
                }
                Err(fault) => {
                    pool.count_fault(fault);
                    return Err(fault);
                }
            };
            let was_pooled = conn.requests > 0;
            match self.run_script(worker, &conn, key, rate, until).await {
                Ok(verdict) => {
                    pool.release(&selected.endpoint, conn);
                    worker.start_sweeping();
                    return Ok(verdict);
                }
                Err(fault) => {
                    pool.count_fault(fault);
                    let is_stale = matches!(fault, Fault::ClosedBeforeHead | Fault::ResetBeforeHead);
                    if !(is_stale && was_pooled && !fresh) {
                        return Err(fault);
                    }
                    // The connection was closed while it was idle.
                    fresh = true;
                }
            }
        }
    }

    async fn run_script(
        &self,
        worker: &Rc<Worker>,
        conn: &PooledConnection,
        key: &[u8],
        rate: Rate,
        until: Time,
    ) -> Result<RateVerdict, Fault> {
        let mut out = Vec::new();
        let signs_in = conn.requests == 0 && self.password.is_some();
        if signs_in && let Some(password) = &self.password {
            match &self.user {
                Some(user) => resp::write_command(&mut out, &[b"AUTH", user.as_bytes(), password.expose()]),
                None => resp::write_command(&mut out, &[b"AUTH", password.expose()]),
            }
        }
        let (share, most) = rate.in_micros();
        let [share, most] = [share.to_string(), most.to_string()];
        let key = [self.prefix.as_bytes(), key].concat();
        let eval = |out: &mut Vec<u8>, command: &[u8], script: &str| {
            let arguments = [
                command,
                script.as_bytes(),
                b"1",
                &key,
                share.as_bytes(),
                most.as_bytes(),
            ];
            resp::write_command(out, &arguments);
        };
        eval(&mut out, b"EVALSHA", &self.sha);
        let send = |out: &[u8]| {
            let remaining = until.since(worker.cx.now()).max(Duration::from_millis(1));
            conn.stream.set_deadline(Some(remaining));
            conn.stream
                .write_now(out)
                .map_err(|_closed| Fault::ResetBeforeHead)
        };
        send(&out)?;
        if signs_in && let RespReply::Error(reason) = read_reply(conn).await? {
            log::warn!(
                "the Redis `{}` rejects the credentials: {reason}",
                self.upstream.name
            );
            return Err(Fault::GarbageHead);
        }
        let mut reply = read_reply(conn).await?;
        if matches!(&reply, RespReply::Error(reason) if reason == "NOSCRIPT") {
            out.clear();
            eval(&mut out, b"EVAL", SCRIPT);
            send(&out)?;
            reply = read_reply(conn).await?;
        }
        match reply {
            RespReply::Numbers(numbers) => match numbers[..] {
                [passes @ (0 | 1), owed] if owed >= 0 => {
                    Ok(rate.verdict_of_micros(passes == 1, owed.unsigned_abs()))
                }
                _ => Err(Fault::GarbageHead),
            },
            RespReply::Error(reason) => {
                log::warn!("the Redis `{}` does not count: {reason}", self.upstream.name);
                Err(Fault::GarbageHead)
            }
            RespReply::Text | RespReply::Number(_) => Err(Fault::GarbageHead),
        }
    }
}

/// Reads the next reply.
async fn read_reply(conn: &PooledConnection) -> Result<RespReply, Fault> {
    let mut parsed = Ok(None);
    let received = poll_fn(|context| {
        let polled = conn.stream.poll_received(context, |bytes| {
            parsed = resp::parse_reply(bytes);
            match &parsed {
                Ok(Some((_, used))) => *used,
                _ => 0,
            }
        });
        match (&parsed, polled) {
            (Err(_) | Ok(Some(_)), _) => Poll::Ready(Ok(1)),
            (Ok(None), polled) => polled,
        }
    });
    match received.await {
        Ok(0) => Err(Fault::ClosedBeforeHead),
        Ok(_) => match parsed {
            Ok(Some((reply, _))) => Ok(reply),
            _ => Err(Fault::GarbageHead),
        },
        Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(Fault::HeadTimeout),
        Err(_) => Err(Fault::ResetBeforeHead),
    }
}
