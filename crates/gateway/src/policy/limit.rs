//! How many requests pass in a time: a rule's rate limits, asked together.
//!
//! All of them have to let a request pass: what one has counted is given back if another one behind it refuses.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ringmain_web::Note;
use ringmain_wire::h1::FieldBlock;

use super::{At, Cleared, Outcome, Refusal};
use crate::exchange::client_address;
use crate::fault::Fault;
use crate::limits;
use crate::model::{Name, RateHeaders, RateKey, RateLimit};
use crate::rate::cells::{Cells, KeyHasher};
use crate::rate::counters::Counters;
use crate::rate::{Rate, Verdict};

/// See the module.
#[derive(Debug)]
pub(super) struct Limits(Vec<Limit>);

#[derive(Debug)]
struct Limit {
    name: Name,
    rate: Rate,
    cells: Arc<Cells>,
    by: Box<[RateKey]>,
    log_only: bool,
    shows: RateHeaders,
    requests: u32,
    /// As headers name it.
    quoted: Box<str>,
    /// Its element of `RateLimit-Policy`.
    policy: Box<str>,
}

/// What one limit has said.
#[derive(Clone, Copy, Default)]
struct Said {
    key: u64,
    verdict: Option<Verdict>,
}

/// Whether what a limit counts by is known only when a policy has found out who asks.
pub(super) fn needs_identity(policy: &RateLimit) -> bool {
    policy.by.contains(&RateKey::Identity)
}

impl Limits {
    /// One.
    pub(super) fn of(policy: &RateLimit, counters: &Counters) -> Limits {
        Limits(vec![Limit::of(policy, counters)])
    }

    /// One more.
    pub(super) fn add(&mut self, policy: &RateLimit, counters: &Counters) -> Result<(), String> {
        let most = limits::RATE_LIMITS;
        if self.0.len() == most {
            return Err(format!("more than {most} rate limits"));
        }
        self.0.push(Limit::of(policy, counters));
        Ok(())
    }

    pub(super) fn pass(&self, at: &At<'_, '_>, cleared: &mut Cleared) -> Outcome {
        let now = at.worker.cx.now().0;
        let mut said = [Said::default(); limits::RATE_LIMITS];
        for (index, limit) in self.0.iter().enumerate() {
            let key = limit.key(at, cleared);
            let verdict = limit.cells.take(key, limit.rate, now);
            said[index] = Said {
                key,
                verdict: Some(verdict),
            };
            if verdict.passes {
                continue;
            }
            if limit.log_only {
                at.req.note("over_limit", Note::Text(Arc::clone(&limit.name)));
                continue;
            }
            self.give_back(&said[..index]);
            return Err(self.refusal(&said, verdict.again));
        }
        if self.0.iter().any(|limit| limit.shows != RateHeaders::None) {
            self.tell(&said, &mut cleared.findings().answer);
        }
        Ok(())
    }

    fn give_back(&self, said: &[Said]) {
        for (limit, said) in self.0.iter().zip(said) {
            if said.verdict.is_some_and(|verdict| verdict.passes) {
                limit.cells.give_back(said.key, limit.rate);
            }
        }
    }

    fn refusal(&self, said: &[Said], again: Duration) -> Box<Refusal> {
        let mut fields = FieldBlock::new();
        put(&mut fields, "Retry-After", &seconds(again).max(1).to_string());
        self.tell(said, &mut fields);
        Box::new(Refusal {
            fault: Fault::RateLimited,
            status: None,
            fields,
        })
    }

    /// What clients are told of limits.
    fn tell(&self, said: &[Said], fields: &mut FieldBlock) {
        let (mut policies, mut states) = (String::new(), String::new());
        let mut nearest: Option<(&Limit, Verdict)> = None;
        let asked = self.0.iter().zip(said);
        for (limit, verdict) in asked.filter_map(|(limit, said)| Some((limit, said.verdict?))) {
            // What passes all the same is nobody's business.
            if limit.log_only {
                continue;
            }
            if matches!(limit.shows, RateHeaders::Standard | RateHeaders::Both) {
                let comma = if states.is_empty() { "" } else { ", " };
                let (left, clear) = (verdict.left, seconds(verdict.clear));
                let Limit { quoted, policy, .. } = limit;
                // Writing to memory does not fail.
                let _ = write!(policies, "{comma}{policy}");
                let _ = write!(states, "{comma}\"{quoted}\";r={left};t={clear}");
            }
            if matches!(limit.shows, RateHeaders::Legacy | RateHeaders::Both)
                && nearest.is_none_or(|(_, other)| verdict.left < other.left)
            {
                nearest = Some((limit, verdict));
            }
        }
        if !states.is_empty() {
            put(fields, "RateLimit-Policy", &policies);
            put(fields, "RateLimit", &states);
        }
        if let Some((limit, verdict)) = nearest {
            put(fields, "X-RateLimit-Limit", &limit.requests.to_string());
            put(fields, "X-RateLimit-Remaining", &verdict.left.to_string());
            put(fields, "X-RateLimit-Reset", &seconds(verdict.clear).to_string());
        }
    }
}

impl Limit {
    fn of(policy: &RateLimit, counters: &Counters) -> Limit {
        let keys = if policy.by.is_empty() { 1 } else { policy.keys };
        let visible = |byte: char| matches!(byte, ' '..='~') && !matches!(byte, '"' | '\\');
        let quoted: String = policy
            .name
            .chars()
            .map(|byte| if visible(byte) { byte } else { '_' })
            .collect();
        let (requests, window) = (policy.requests, seconds(policy.per).max(1));
        Limit {
            name: policy.name.clone(),
            rate: Rate::new(policy.requests, policy.per, policy.burst),
            cells: counters.cells(&policy.name, keys),
            by: policy.by.clone().into(),
            log_only: policy.log_only,
            shows: policy.headers,
            requests,
            policy: format!("\"{quoted}\";q={requests};w={window}").into(),
            quoted: quoted.into(),
        }
    }

    /// The hash of what tells this request apart.
    fn key(&self, at: &At<'_, '_>, cleared: &Cleared) -> u64 {
        if self.by.is_empty() {
            return 1;
        }
        let req = at.req;
        let mut hasher = KeyHasher::new(self.cells.secret(|| at.worker.cx.random()));
        for key in &self.by {
            match key {
                RateKey::Source { v4, v6 } => {
                    match client_address(at.found.listener, req) {
                        Some(address) => hasher.part(Some(&network(address, *v4, *v6))),
                        None => hasher.part(None),
                    };
                }
                RateKey::Header(name) => hasher.part(req.head().fields.all(name.as_str()).next()),
                RateKey::Cookie(name) => hasher.part(req.cookies().get(name).map(str::as_bytes)),
                RateKey::Identity => hasher.part(cleared.identity().map(|who| who.as_bytes())),
                RateKey::Host => hasher.part(
                    req.host()
                        .map(str::to_ascii_lowercase)
                        .as_deref()
                        .map(str::as_bytes),
                ),
                RateKey::Path => hasher.part(Some(req.path().as_bytes())),
                RateKey::Method => hasher.part(Some(req.method().as_str().as_bytes())),
            }
        }
        hasher.finish()
    }
}

/// The network that an address is in, as bytes that say which kind it is.
fn network(address: IpAddr, v4: u8, v6: u8) -> [u8; 17] {
    let (kind, number, bits) = match address.to_canonical() {
        IpAddr::V4(address) => (4, u128::from(address.to_bits()) << 96, v4),
        IpAddr::V6(address) => (6, address.to_bits(), v6),
    };
    let mask = u128::MAX.checked_shl(128 - u32::from(bits.min(128))).unwrap_or(0);
    let mut bytes = [kind; 17];
    bytes[1..].copy_from_slice(&(number & mask).to_be_bytes());
    bytes
}

/// Whole seconds, rounded up: whoever comes back then is not too early.
fn seconds(span: Duration) -> u64 {
    span.as_secs() + u64::from(span.subsec_nanos() > 0)
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
    fn networks() {
        let net = |text: &str, v4, v6| network(text.parse().expect("an address"), v4, v6);
        assert_eq!(net("192.0.2.1", 24, 64), net("192.0.2.200", 24, 64));
        assert_ne!(net("192.0.2.1", 32, 64), net("192.0.2.200", 32, 64));
        assert_eq!(net("::ffff:192.0.2.1", 32, 64), net("192.0.2.1", 32, 64));
        assert_eq!(net("2001:db8::1", 32, 64), net("2001:db8::ffff:1", 32, 64));
        assert_ne!(net("2001:db8::1", 32, 128), net("2001:db8::2", 32, 128));
        assert_eq!(net("2001:db8::1", 32, 0), net("::1", 32, 0));
        assert_ne!(net("0.0.0.0", 0, 0), net("::1", 0, 0));
    }

    #[test]
    fn seconds_are_rounded_up() {
        for (millis, expected) in [(0, 0), (1, 1), (1000, 1), (1001, 2)] {
            assert_eq!(seconds(Duration::from_millis(millis)), expected);
        }
    }
}
