//! The rate limits of a rule, evaluated together.
//!
//! A request must pass every limit: if one refuses, the counts of the others are reverted.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::digest::{Context, SHA256};
use ringmain_wire::h1::FieldBlock;

use super::redis::RedisLimiter;
use super::{Cleared, PolicyContext, PolicyInput, PolicyRecord, Refusal, StepResult, limit_key};
use crate::fault::Fault;
use crate::limits;
use crate::model::{Name, RateHeaders, RateKey, RateLimit, Target};
use crate::rate::key_table::KeyTable;
use crate::rate::{Rate, RateVerdict};
use crate::upstream::registry::UpstreamRegistry;

/// The rate limits of a rule.
#[derive(Debug)]
pub(super) struct RateLimits {
    all: Vec<CompiledLimit>,
    /// `RateLimit-Policy` for responses when every limit was evaluated.
    policies: FieldBlock,
}

#[derive(Debug)]
struct CompiledLimit {
    name: Name,
    rate: Rate,
    cells: Arc<KeyTable>,
    by: Box<[RateKey]>,
    /// The Redis that counts, if the limit is shared.
    redis: Option<RedisLimiter>,
    log_only: bool,
    headers: RateHeaders,
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
    verdict: Option<RateVerdict>,
    /// The verdict is from this process's own count.
    counted_here: bool,
}

impl RateLimits {
    /// Builds the limits with a first one.
    pub(super) fn compile(
        policy: &RateLimit,
        missing: &[Name],
        registry: &UpstreamRegistry,
    ) -> Result<RateLimits, String> {
        let mut limits = RateLimits {
            all: Vec::new(),
            policies: FieldBlock::new(),
        };
        limits.add_limit(policy, missing, registry)?;
        Ok(limits)
    }

    /// Adds a limit.
    pub(super) fn add_limit(
        &mut self,
        policy: &RateLimit,
        missing: &[Name],
        registry: &UpstreamRegistry,
    ) -> Result<(), String> {
        let max = limits::RATE_LIMITS;
        if self.all.len() == max {
            return Err(format!("more than {max} rate limits"));
        }
        self.all.push(CompiledLimit::of(policy, missing, registry)?);
        self.policies.clear();
        let mut text = String::new();
        join_policies(&mut text, self.all.iter());
        if !text.is_empty() {
            push_field(&mut self.policies, "RateLimit-Policy", &text);
        }
        Ok(())
    }

    /// Returns whether a limit is counted in a Redis.
    pub(super) fn needs_redis(&self) -> bool {
        self.all.iter().any(|limit| limit.redis.is_some())
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let mut results = [LimitResult::default(); limits::RATE_LIMITS];
        self.count_locally(at, cleared, &mut results)?;
        self.finish_admitted(&results, cleared);
        Ok(())
    }

    /// Evaluates limits of this process first: a request that they refuse causes no query.
    pub(super) async fn check_async(&self, at: &PolicyInput<'_, '_>, cleared: &mut Cleared) -> StepResult {
        let mut results = [LimitResult::default(); limits::RATE_LIMITS];
        self.count_locally(at, cleared, &mut results)?;
        for (index, limit) in self.all.iter().enumerate() {
            let Some(redis) = &limit.redis else { continue };
            let key = limit.shared_key(at, cleared);
            let count = redis.count_request(at.worker, key.as_bytes(), limit.rate).await;
            let mut count_here = || {
                results[index].key = limit.key_hash(at, cleared);
                limit
                    .cells
                    .count_request(results[index].key, limit.rate, at.worker.cx.now().0)
            };
            match count {
                Ok(verdict) => {
                    if verdict.passes && !redis.fail_closed {
                        // So that a key has no second budget when the Redis fails.
                        count_here();
                    }
                    self.store_verdict(index, verdict, &mut results, cleared)?;
                }
                Err(fault) if redis.fail_closed && !limit.log_only => {
                    self.revert(&results);
                    return Err(fault.into());
                }
                Err(fault) if redis.fail_closed => at.worker.counters.count_fault(fault),
                Err(fault) => {
                    at.worker.counters.count_fault(fault);
                    let verdict = count_here();
                    results[index].counted_here = true;
                    self.store_verdict(index, verdict, &mut results, cleared)?;
                }
            }
        }
        self.finish_admitted(&results, cleared);
        Ok(())
    }

    fn count_locally(
        &self,
        at: &PolicyInput<'_, '_>,
        cleared: &mut Cleared,
        results: &mut [LimitResult],
    ) -> StepResult {
        let now = at.worker.cx.now().0;
        for (index, limit) in self.all.iter().enumerate() {
            if limit.redis.is_none() {
                results[index].key = limit.key_hash(at, cleared);
                let verdict = limit.cells.count_request(results[index].key, limit.rate, now);
                results[index].counted_here = true;
                self.store_verdict(index, verdict, results, cleared)?;
            }
        }
        Ok(())
    }

    /// Stores the verdict of a limit; refuses the request if the verdict does.
    fn store_verdict(
        &self,
        index: usize,
        verdict: RateVerdict,
        results: &mut [LimitResult],
        cleared: &mut Cleared,
    ) -> StepResult {
        let limit = &self.all[index];
        results[index].verdict = Some(verdict);
        if verdict.passes {
            return Ok(());
        }
        if limit.log_only {
            cleared.set_over_limit(&limit.name);
            return Ok(());
        }
        self.revert(results);
        Err(self.refusal_after(results, verdict.retry_after))
    }

    fn finish_admitted(&self, results: &[LimitResult], cleared: &mut Cleared) {
        if self.all.iter().any(|limit| limit.headers != RateHeaders::None) {
            let PolicyContext {
                response: answer,
                text,
                ..
            } = cleared.context_mut();
            self.write_headers(results, answer, text);
        }
    }

    fn revert(&self, results: &[LimitResult]) {
        for (limit, results) in self.all.iter().zip(results) {
            let counted = results.verdict.is_some_and(|verdict| verdict.passes);
            if counted && results.counted_here {
                limit.cells.revert_request(results.key, limit.rate);
            }
        }
    }

    fn refusal_after(&self, results: &[LimitResult], again: Duration) -> Box<Refusal> {
        let mut fields = FieldBlock::new();
        push_field(
            &mut fields,
            "Retry-After",
            &ceil_seconds(again).max(1).to_string(),
        );
        self.write_headers(results, &mut fields, &mut String::new());
        Box::new(Refusal {
            fault: Fault::RateLimited,
            status: None,
            fields,
            response: None,
            record: PolicyRecord::default(),
        })
    }

    /// Writes the rate limit headers for clients.
    fn write_headers(&self, results: &[LimitResult], fields: &mut FieldBlock, text: &mut String) {
        // Limits that only log are not shown.
        let checked = self.all.iter().zip(results).filter(|(limit, _)| !limit.log_only);
        let reported = || {
            checked
                .clone()
                .filter_map(|(limit, result)| Some((limit, result.verdict?)))
        };
        if reported().count() == checked.clone().count() {
            fields.append(&self.policies);
        } else {
            join_policies(text, reported().map(|(limit, _)| limit));
            if !text.is_empty() {
                push_field(fields, "RateLimit-Policy", text);
            }
        }
        text.clear();
        for (limit, verdict) in reported().filter(|(limit, _)| limit.is_standard()) {
            text.push_str(if text.is_empty() { "\"" } else { ", \"" });
            text.push_str(&limit.quoted);
            text.push_str("\";r=");
            write_number(text, verdict.remaining);
            text.push_str(";t=");
            write_number(text, ceil_seconds(verdict.clear));
        }
        if !text.is_empty() {
            push_field(fields, "RateLimit", text);
        }
        let legacy =
            reported().filter(|(limit, _)| matches!(limit.headers, RateHeaders::Legacy | RateHeaders::Both));
        // Of several with the same remainder, the first.
        if let Some((limit, verdict)) = legacy.min_by_key(|(_, verdict)| verdict.remaining) {
            let mut number = |name, number| {
                text.clear();
                write_number(text, number);
                push_field(fields, name, text);
            };
            number("X-RateLimit-Limit", u64::from(limit.requests));
            number("X-RateLimit-Remaining", verdict.remaining);
            number("X-RateLimit-Reset", ceil_seconds(verdict.clear));
        }
    }
}

impl CompiledLimit {
    fn of(
        policy: &RateLimit,
        missing: &[Name],
        registry: &UpstreamRegistry,
    ) -> Result<CompiledLimit, String> {
        let redis = policy.redis.as_ref().map(|redis| {
            let upstream = match &redis.upstream {
                Target::Upstream(name) if !missing.contains(name) => registry.find(name),
                Target::Upstream(_) | Target::Broken { .. } => None,
            };
            let upstream = upstream.ok_or("its Redis is not a configured upstream")?;
            Ok(RedisLimiter::of(&policy.name, redis, Arc::clone(upstream)))
        });
        let redis = redis
            .transpose()
            .map_err(|reason: &str| format!("rate limit `{}`: {reason}", policy.name))?;
        let keys = if policy.by.is_empty() { 1 } else { policy.keys };
        let cells = match &redis {
            // Nothing is counted here.
            Some(redis) if redis.fail_closed => Arc::new(KeyTable::new(1)),
            _ => registry.counters().key_table(&policy.name, keys),
        };
        let visible = |byte: char| matches!(byte, ' '..='~') && !matches!(byte, '"' | '\\');
        let quoted: String = policy
            .name
            .chars()
            .map(|byte| if visible(byte) { byte } else { '_' })
            .collect();
        let (requests, window) = (policy.requests, ceil_seconds(policy.per).max(1));
        Ok(CompiledLimit {
            redis,
            name: policy.name.clone(),
            rate: Rate::new(policy.requests, policy.per, policy.burst),
            cells,
            by: policy.by.clone().into(),
            log_only: policy.log_only,
            headers: policy.headers,
            requests,
            policy: format!("\"{quoted}\";q={requests};w={window}").into(),
            quoted: quoted.into(),
        })
    }

    /// Returns whether responses have the standard's headers for this limit.
    fn is_standard(&self) -> bool {
        matches!(self.headers, RateHeaders::Standard | RateHeaders::Both)
    }

    /// Returns the hash of this request's key.
    fn key_hash(&self, at: &PolicyInput<'_, '_>, cleared: &Cleared) -> u64 {
        if self.by.is_empty() {
            return 1;
        }
        let secret = self.cells.secret(|| at.worker.cx.random());
        limit_key::hash_key(&self.by, secret, at, cleared)
    }

    /// Returns the key for a shared store: a SHA-256 over all parts, so that the store does not learn the identity of clients.
    fn shared_key(&self, at: &PolicyInput<'_, '_>, cleared: &Cleared) -> String {
        let mut context = Context::new(&SHA256);
        limit_key::visit_parts(&self.by, at, cleared, &mut |part| {
            let length = part.map_or(0, |part| part.len() as u64 + 1);
            context.update(&length.to_be_bytes());
            context.update(part.unwrap_or_default());
        });
        let bytes = context.finish();
        bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

/// Rounds up to whole seconds: a client that retries then is not too early.
fn ceil_seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
}

/// Joins the elements of `RateLimit-Policy`.
fn join_policies<'l>(text: &mut String, limits: impl Iterator<Item = &'l CompiledLimit>) {
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

fn push_field(fields: &mut FieldBlock, name: &str, value: &str) {
    // Names and values are visible characters.
    if let Err(misuse) = fields.push(name, value.as_bytes()) {
        log::error!("{name}: {misuse}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_in_decimal() {
        for number in [0, 1, 9, 10, 99, 100, 4_294_967_296, u64::MAX] {
            let mut text = "a".to_owned();
            write_number(&mut text, number);
            assert_eq!(text, format!("a{number}"));
        }
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, expected) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(ceil_seconds(Duration::from_millis(millis)), expected);
        }
    }
}
