//! The rate limits of a rule, evaluated together.
//!
//! A request must pass every limit: if one refuses, the counts of the others are reverted.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use ringmain_web::Note;
use ringmain_wire::h1::FieldBlock;

use super::redis::Redis;
use super::{At, Cleared, Findings, Outcome, Refusal, limit_key};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Name, RateHeaders, RateKey, RateLimit, Target};
use crate::rate::key_table::Cells;
use crate::rate::{Rate, Verdict};
use crate::upstream::registry::UpstreamRegistry;

/// The rate limits of a rule.
#[derive(Debug)]
pub(super) struct Limits {
    all: Vec<Limit>,
    /// `RateLimit-Policy` for responses when every limit was evaluated.
    policies: FieldBlock,
}

#[derive(Debug)]
struct Limit {
    name: Name,
    rate: Rate,
    cells: Arc<Cells>,
    by: Box<[RateKey]>,
    /// The Redis that counts, if the limit is shared.
    redis: Option<Redis>,
    log_only: bool,
    shows: RateHeaders,
    requests: u32,
    /// The name, quoted for headers.
    quoted: Box<str>,
    /// The element of `RateLimit-Policy`.
    policy: Box<str>,
}

/// The result of a limit for a request.
#[derive(Clone, Copy, Default)]
struct LimitResult {
    key: u64,
    verdict: Option<Verdict>,
    /// The verdict is from this process's own count.
    counted_here: bool,
}

impl Limits {
    /// Builds the limits with a first one.
    pub(super) fn of(
        policy: &RateLimit,
        missing: &[Name],
        registry: &UpstreamRegistry,
    ) -> Result<Limits, String> {
        let mut limits = Limits {
            all: Vec::new(),
            policies: FieldBlock::new(),
        };
        limits.add(policy, missing, registry)?;
        Ok(limits)
    }

    /// Adds a limit.
    pub(super) fn add(
        &mut self,
        policy: &RateLimit,
        missing: &[Name],
        registry: &UpstreamRegistry,
    ) -> Result<(), String> {
        let most = limits::RATE_LIMITS;
        if self.all.len() == most {
            return Err(format!("more than {most} rate limits"));
        }
        self.all.push(Limit::of(policy, missing, registry)?);
        self.policies.clear();
        let mut text = String::new();
        join(&mut text, self.all.iter());
        if !text.is_empty() {
            put(&mut self.policies, "RateLimit-Policy", &text);
        }
        Ok(())
    }

    /// Returns whether a limit is counted in a Redis.
    pub(super) fn wait(&self) -> bool {
        self.all.iter().any(|limit| limit.redis.is_some())
    }

    pub(super) fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let mut said = [LimitResult::default(); limits::RATE_LIMITS];
        self.count_here(at, cleared, &mut said)?;
        self.passed(&said, cleared);
        Ok(())
    }

    /// Evaluates limits of this process first: a request that they refuse causes no query.
    pub(super) async fn pass_waiting(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let mut said = [LimitResult::default(); limits::RATE_LIMITS];
        self.count_here(at, cleared, &mut said)?;
        for (index, limit) in self.all.iter().enumerate() {
            let Some(redis) = &limit.redis else { continue };
            let key = limit.digest(at, cleared);
            let taken = redis.take(at.worker, key.as_bytes(), limit.rate).await;
            let mut count_here = || {
                said[index].key = limit.key(at, cleared);
                limit
                    .cells
                    .take(said[index].key, limit.rate, at.worker.cx.now().0)
            };
            match taken {
                Ok(verdict) => {
                    if verdict.passes && !redis.denies {
                        // So that a key has no second budget when the Redis fails.
                        count_here();
                    }
                    self.judge(at, index, verdict, &mut said)?;
                }
                Err(fault) if redis.denies && !limit.log_only => {
                    self.give_back(&said);
                    return Err(fault.into());
                }
                Err(fault) if redis.denies => at.worker.counting.fault(fault),
                Err(fault) => {
                    at.worker.counting.fault(fault);
                    let verdict = count_here();
                    said[index].counted_here = true;
                    self.judge(at, index, verdict, &mut said)?;
                }
            }
        }
        self.passed(&said, cleared);
        Ok(())
    }

    fn count_here(&self, at: &At<'_, '_>, cleared: &Cleared, said: &mut [LimitResult]) -> Outcome {
        let now = at.worker.cx.now().0;
        for (index, limit) in self.all.iter().enumerate() {
            if limit.redis.is_none() {
                said[index].key = limit.key(at, cleared);
                let verdict = limit.cells.take(said[index].key, limit.rate, now);
                said[index].counted_here = true;
                self.judge(at, index, verdict, said)?;
            }
        }
        Ok(())
    }

    /// Stores the verdict of a limit; refuses the request if the verdict does.
    fn judge(&self, at: &At<'_, '_>, index: usize, verdict: Verdict, said: &mut [LimitResult]) -> Outcome {
        let limit = &self.all[index];
        said[index].verdict = Some(verdict);
        if verdict.passes {
            return Ok(());
        }
        if limit.log_only {
            at.req.note("over_limit", Note::Text(Arc::clone(&limit.name)));
            return Ok(());
        }
        self.give_back(said);
        Err(self.refusal(said, verdict.again))
    }

    fn passed(&self, said: &[LimitResult], cleared: &mut Cleared) {
        if self.all.iter().any(|limit| limit.shows != RateHeaders::None) {
            let Findings { answer, text, .. } = cleared.findings();
            self.tell(said, answer, text);
        }
    }

    fn give_back(&self, said: &[LimitResult]) {
        for (limit, said) in self.all.iter().zip(said) {
            let counted = said.verdict.is_some_and(|verdict| verdict.passes);
            if counted && said.counted_here {
                limit.cells.give_back(said.key, limit.rate);
            }
        }
    }

    fn refusal(&self, said: &[LimitResult], again: Duration) -> Box<Refusal> {
        let mut fields = FieldBlock::new();
        put(&mut fields, "Retry-After", &seconds(again).max(1).to_string());
        self.tell(said, &mut fields, &mut String::new());
        Box::new(Refusal {
            fault: Fault::RateLimited,
            status: None,
            fields,
            answer: None,
        })
    }

    /// Writes the rate limit headers for clients.
    fn tell(&self, said: &[LimitResult], fields: &mut FieldBlock, text: &mut String) {
        // Limits that only log are not shown.
        let asked = self.all.iter().zip(said).filter(|(limit, _)| !limit.log_only);
        let told = || {
            asked
                .clone()
                .filter_map(|(limit, said)| Some((limit, said.verdict?)))
        };
        if told().count() == asked.clone().count() {
            fields.append(&self.policies);
        } else {
            join(text, told().map(|(limit, _)| limit));
            if !text.is_empty() {
                put(fields, "RateLimit-Policy", text);
            }
        }
        text.clear();
        for (limit, verdict) in told().filter(|(limit, _)| limit.is_standard()) {
            text.push_str(if text.is_empty() { "\"" } else { ", \"" });
            text.push_str(&limit.quoted);
            text.push_str("\";r=");
            write_number(text, verdict.left);
            text.push_str(";t=");
            write_number(text, seconds(verdict.clear));
        }
        if !text.is_empty() {
            put(fields, "RateLimit", text);
        }
        let legacy =
            told().filter(|(limit, _)| matches!(limit.shows, RateHeaders::Legacy | RateHeaders::Both));
        // Of several with the same remainder, the first.
        if let Some((limit, verdict)) = legacy.min_by_key(|(_, verdict)| verdict.left) {
            let mut number = |name, number| {
                text.clear();
                write_number(text, number);
                put(fields, name, text);
            };
            number("X-RateLimit-Limit", u64::from(limit.requests));
            number("X-RateLimit-Remaining", verdict.left);
            number("X-RateLimit-Reset", seconds(verdict.clear));
        }
    }
}

impl Limit {
    fn of(policy: &RateLimit, missing: &[Name], registry: &UpstreamRegistry) -> Result<Limit, String> {
        let redis = policy.redis.as_ref().map(|redis| {
            let shared = match &redis.upstream {
                Target::Upstream(name) if !missing.contains(name) => registry.find(name),
                Target::Upstream(_) | Target::Broken { .. } => None,
            };
            let shared = shared.ok_or("its Redis is no upstream that is there")?;
            Ok(Redis::of(&policy.name, redis, Arc::clone(shared)))
        });
        let redis = redis
            .transpose()
            .map_err(|why: &str| format!("rate limit `{}`: {why}", policy.name))?;
        let keys = if policy.by.is_empty() { 1 } else { policy.keys };
        let cells = match &redis {
            // Nothing is counted here.
            Some(redis) if redis.denies => Arc::new(Cells::new(1)),
            _ => registry.counters().cells(&policy.name, keys),
        };
        let visible = |byte: char| matches!(byte, ' '..='~') && !matches!(byte, '"' | '\\');
        let quoted: String = policy
            .name
            .chars()
            .map(|byte| if visible(byte) { byte } else { '_' })
            .collect();
        let (requests, window) = (policy.requests, seconds(policy.per).max(1));
        Ok(Limit {
            redis,
            name: policy.name.clone(),
            rate: Rate::new(policy.requests, policy.per, policy.burst),
            cells,
            by: policy.by.clone().into(),
            log_only: policy.log_only,
            shows: policy.headers,
            requests,
            policy: format!("\"{quoted}\";q={requests};w={window}").into(),
            quoted: quoted.into(),
        })
    }

    /// Returns whether responses have the standard's headers for this limit.
    fn is_standard(&self) -> bool {
        matches!(self.shows, RateHeaders::Standard | RateHeaders::Both)
    }

    /// Returns the hash of this request's key.
    fn key(&self, at: &At<'_, '_>, cleared: &Cleared) -> u64 {
        if self.by.is_empty() {
            return 1;
        }
        let secret = self.cells.secret(|| at.worker.cx.random());
        limit_key::hash(&self.by, secret, at, cleared)
    }

    /// Returns the key for a shared store: a SHA-256 over all parts, so that the store does not learn the identity of clients.
    fn digest(&self, at: &At<'_, '_>, cleared: &Cleared) -> String {
        let mut context = Context::new(&SHA256);
        limit_key::parts(&self.by, at, cleared, &mut |part| {
            let length = part.map_or(0, |part| part.len() as u64 + 1);
            context.update(&length.to_be_bytes());
            context.update(part.unwrap_or_default());
        });
        let bytes = context.finish();
        bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Rounds up to whole seconds: a client that retries then is not too early.
fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// Joins the elements of `RateLimit-Policy`.
fn join<'l>(text: &mut String, limits: impl Iterator<Item = &'l Limit>) {
    text.clear();
    for limit in limits.filter(|limit| !limit.log_only && limit.is_standard()) {
        text.push_str(if text.is_empty() { "" } else { ", " });
        text.push_str(&limit.policy);
    }
}

/// Writes a number without the formatting machinery, which would cost more than all other output here.
fn write_number(text: &mut String, number: u64) {
    let mut digits = [0; 20];
    let (mut at, mut rest) = (digits.len(), number);
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    // Digits.
    text.push_str(str::from_utf8(&digits[at..]).unwrap_or_default());
}

fn put(fields: &mut FieldBlock, name: &str, value: &str) {
    // Names and values are visible characters.
    if let Err(misuse) = fields.push(name, value.as_bytes()) {
        log::error!("{name}: {misuse}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for number in [0, 1, 9, 10, 99, 100, 4_294_967_296, u64::MAX] {
            let mut text = "a".to_owned();
            write_number(&mut text, number);
            assert_eq!(text, format!("a{number}"));
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, expected) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected);
        }
    }
}
