//! Rate limits that several gateways share through a Redis: one script, run there by the clock of the Redis, decides.
//!
//! A request takes a connection of the Redis' upstream, as one for an origin would (its caps, TLS and endpoints apply), sends its
//! query, and pools the connection. No request waits for longer than the limit's timeout; after a failure of the Redis it is not
//! queried for a while, and then by one request. A cap of the gateway that is reached is no failure of the Redis: it fails that query
//! alone, since clients could otherwise disable a limit by reaching the cap. A limit that does not deny is counted by this process
//! meanwhile ([`super::rate_limit`]), so it never fails open.
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

use crate::fault::{Fault, Side};
use crate::gateway::Worker;
use crate::limits;
use crate::model::{self, Name, Secret};
use crate::rate::resp::{self, Reply};
use crate::rate::{Rate, Verdict};
use crate::upstream::pool::PooledConnection;
use crate::upstream::{AffinityHint, UpstreamState};

/// The script that decides in the Redis.
const SCRIPT: &str = include_str!("../rate/script.lua");

/// The Redis of a limit.
#[derive(Debug)]
pub(super) struct Redis {
    shared: Arc<UpstreamState>,
    prefix: String,
    user: Option<Arc<str>>,
    password: Option<Secret>,
    timeout: Duration,
    /// Requests are refused while the Redis does not respond; else this process counts them alone.
    pub(super) denies: bool,
    /// The SHA-1 by which the Redis caches the script.
    sha: String,
}

/// A worker's view of a Redis.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    /// No queries are sent until this instant.
    until: Time,
    /// Failures in a row.
    failures: u32,
}

/// A worker's view of each Redis, by upstream.
#[derive(Debug, Default)]
pub(crate) struct Standings(std::cell::RefCell<BTreeMap<Name, Rc<Cell<Standing>>>>);

impl Standings {
    fn of(&self, name: &Name) -> Rc<Cell<Standing>> {
        let mut all = self.0.borrow_mut();
        Rc::clone(all.entry(name.clone()).or_default())
    }
}

impl Redis {
    /// Returns the Redis for a limit of that name.
    pub(super) fn of(limit: &Name, redis: &model::Redis, shared: Arc<UpstreamState>) -> Redis {
        let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, SCRIPT.as_bytes());
        Redis {
            shared,
            prefix: format!("{}{limit}:", redis.prefix),
            user: redis.user.clone(),
            password: redis.password.clone(),
            timeout: redis.timeout,
            denies: redis.denies,
            sha: hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect(),
        }
    }

    /// Counts a request of a key in the Redis, if it passes.
    ///
    /// # Errors
    /// The Redis could not be queried, or did not respond in time.
    pub(super) async fn take(&self, worker: &Rc<Worker>, key: &[u8], rate: Rate) -> Result<Verdict, Fault> {
        let standing = worker.standings.of(&self.shared.name);
        let now = worker.cx.now();
        let before = standing.get();
        if now < before.until {
            return Err(Fault::LimiterDown);
        }
        if before.failures > 0 {
            // Concurrent requests do not query meanwhile: this one probes.
            standing.set(Standing {
                until: now.after(self.timeout),
                ..before
            });
        }
        match self.ask(worker, key, rate, now.after(self.timeout)).await {
            Ok(verdict) => {
                standing.set(Standing::default());
                Ok(verdict)
            }
            // The fault is the gateway's own and no evidence about the Redis.
            Err(fault) if fault.side() == Side::Gateway => {
                standing.set(before);
                Err(Fault::LimiterDown)
            }
            Err(fault) => {
                let failures = before.failures.saturating_add(1);
                let span = limits::REDIS_BACKOFF.saturating_mul(1 << before.failures.min(16));
                let until = worker.cx.now().after(span.min(limits::REDIS_BACKOFF_MOST));
                if before.failures == 0 {
                    let name = &self.shared.name;
                    log::warn!("the Redis `{name}` does not count requests: {fault}");
                }
                standing.set(Standing { until, failures });
                Err(Fault::LimiterDown)
            }
        }
    }

    async fn ask(&self, worker: &Rc<Worker>, key: &[u8], rate: Rate, until: Time) -> Result<Verdict, Fault> {
        let local = worker.local(&self.shared);
        let left = || until.since(worker.cx.now());
        local
            .wait_until_resolved(local.connect_timeout().min(left()))
            .await;
        let _admitted = local.admit_request()?;
        let mut tried = Vec::new();
        let mut chosen = local.select(&tried, None, AffinityHint::None)?;
        let mut fresh = false;
        loop {
            let span = local.connect_timeout().min(left());
            if span.is_zero() {
                return Err(Fault::HeadTimeout);
            }
            let link = match local.acquire_exclusive(&chosen.endpoint, fresh, span).await {
                Ok(link) => link,
                Err(fault) if fault.is_connect_failure() => {
                    tried.push(Rc::clone(&chosen.endpoint));
                    if !local.has_untried_endpoint(&tried) {
                        return Err(fault);
                    }
                    chosen = local.select(&tried, None, AffinityHint::None)?;
                    continue;
                }
                Err(fault) => return Err(fault),
            };
            let kept = link.requests > 0;
            match self.converse(worker, &link, key, rate, until).await {
                Ok(verdict) => {
                    local.release(&chosen.endpoint, link);
                    worker.sweep_later();
                    return Ok(verdict);
                }
                // The connection was closed while it was idle.
                Err(Fault::ClosedBeforeHead | Fault::ResetBeforeHead) if kept && !fresh => fresh = true,
                Err(fault) => return Err(fault),
            }
        }
    }

    async fn converse(
        &self,
        worker: &Rc<Worker>,
        link: &PooledConnection,
        key: &[u8],
        rate: Rate,
        until: Time,
    ) -> Result<Verdict, Fault> {
        let mut out = Vec::new();
        let signs_in = link.requests == 0 && self.password.is_some();
        if signs_in && let Some(password) = &self.password {
            match &self.user {
                Some(user) => resp::command(&mut out, &[b"AUTH", user.as_bytes(), password.expose()]),
                None => resp::command(&mut out, &[b"AUTH", password.expose()]),
            }
        }
        let (share, most) = rate.in_micros();
        let [share, most] = [share.to_string(), most.to_string()];
        let key = [self.prefix.as_bytes(), key].concat();
        let eval = |out: &mut Vec<u8>, how: &[u8], what: &str| {
            let words = [
                how,
                what.as_bytes(),
                b"1",
                &key,
                share.as_bytes(),
                most.as_bytes(),
            ];
            resp::command(out, &words);
        };
        eval(&mut out, b"EVALSHA", &self.sha);
        let send = |out: &[u8]| {
            let left = until.since(worker.cx.now()).max(Duration::from_millis(1));
            link.stream.set_deadline(Some(left));
            link.stream
                .write_now(out)
                .map_err(|_closed| Fault::ResetBeforeHead)
        };
        send(&out)?;
        if signs_in && let Reply::Error(why) = read(link).await? {
            log::warn!("the Redis `{}` rejects the credentials: {why}", self.shared.name);
            return Err(Fault::GarbageHead);
        }
        let mut reply = read(link).await?;
        if matches!(&reply, Reply::Error(why) if why == "NOSCRIPT") {
            out.clear();
            eval(&mut out, b"EVAL", SCRIPT);
            send(&out)?;
            reply = read(link).await?;
        }
        match reply {
            Reply::Numbers(numbers) => match numbers[..] {
                [passes @ (0 | 1), owed] if owed >= 0 => Ok(rate.of_micros(passes == 1, owed.unsigned_abs())),
                _ => Err(Fault::GarbageHead),
            },
            Reply::Error(why) => {
                log::warn!("the Redis `{}` does not count: {why}", self.shared.name);
                Err(Fault::GarbageHead)
            }
            Reply::Text | Reply::Number(_) => Err(Fault::GarbageHead),
        }
    }
}

/// Reads the next reply.
async fn read(link: &PooledConnection) -> Result<Reply, Fault> {
    let mut parsed = Ok(None);
    let received = poll_fn(|context| {
        let polled = link.stream.poll_received(context, |bytes| {
            parsed = resp::parse(bytes);
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
