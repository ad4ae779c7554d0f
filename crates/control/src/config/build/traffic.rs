//! Policies that limit traffic, and fault injection.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits;
use ringmain_gateway::model::{self, ClaimPath, Name, Policy, RateHeaders, RateKey, RateLimit};
use ringmain_gateway::table::ConfigPart;
use ringmain_web::limits::CLIENT_IPV6_BITS;

use super::{Builder, field_value, list_items, parsed_value, set_if_some};
use crate::config::document::{self, Field, OneOrManyField};
use crate::config::error::{FilePosition, quote};
use crate::config::fields::{OneOrMany, Parsed, ShortOrFull, Spanned, Switch};
use crate::config::scalars::UpstreamTarget;

/// The sections of the policies that this module builds.
pub(super) struct TrafficSections {
    pub(super) rate_limit: Field<Switch<OneOrMany<document::RateLimitSection>>>,
    pub(super) concurrency: Field<Switch<document::ConcurrencySection>>,
    pub(super) shed: Field<Switch<document::ShedSection>>,
    pub(super) inject: Field<Switch<document::InjectSection>>,
}

impl Builder<'_> {
    /// Adds the policies that limit traffic.
    pub(super) fn add_traffic_policies(
        &mut self,
        all: &mut Vec<Policy>,
        sections: TrafficSections,
        place: &ConfigPart,
    ) {
        let place = match place {
            ConfigPart::Route(name, Some(rule)) => format!("{name}/{rule}"),
            ConfigPart::Route(name, None) => name.to_string(),
            other => other.to_string(),
        };
        self.add_rate_limits(all, sections.rate_limit, &place);
        let build = |builder: &mut Self, part, position| builder.build_concurrency(part, position, place);
        self.replace_policy(all, sections.concurrency, build, |policy| {
            matches!(policy, Policy::Concurrency(_))
        });
        self.replace_policy(all, sections.shed, Self::build_shed, |policy| {
            matches!(policy, Policy::Shed(_))
        });
        self.replace_policy(all, sections.inject, Self::build_inject, |policy| {
            matches!(policy, Policy::Inject(_))
        });
    }

    fn add_rate_limits(
        &mut self,
        all: &mut Vec<Policy>,
        part: Field<Switch<OneOrMany<document::RateLimitSection>>>,
        place: &str,
    ) {
        let Some(Spanned {
            value,
            position,
            is_valid,
        }) = part
        else {
            return;
        };
        all.retain(|policy| !matches!(policy, Policy::RateLimit(_)));
        let value = match value {
            Some(Switch::Switch(false)) => return,
            Some(Switch::Switch(true)) => Some(OneOrMany::default()),
            Some(Switch::Full(limits)) => Some(limits),
            None => return,
        };
        let limits = Spanned {
            value,
            position,
            is_valid,
        }
        .into_list();
        let max = limits::RATE_LIMITS;
        if limits.is_empty() || limits.len() > max {
            let found = limits.len().to_string();
            self.errors
                .report(position, format!("from 1 to {max} limits"), found);
        }
        for (index, at) in limits.into_iter().enumerate() {
            let limit = self.build_rate_limit(at, format!("{place}/{index}"));
            all.extend(limit.map(|limit| Policy::RateLimit(Arc::new(limit))));
        }
    }

    fn build_rate_limit(
        &mut self,
        at: Spanned<document::RateLimitSection>,
        name: String,
    ) -> Option<RateLimit> {
        let position = at.position;
        let part = at.value?;
        let Some(requests) = part.requests.as_ref() else {
            self.errors.report(position, "the key `requests`", "none");
            return None;
        };
        let requests = self.check_range(requests, 1, u32::MAX)?;
        let name = self.counter_name(part.name, name);
        let mut limit = RateLimit::new(name, requests, Duration::from_secs(1));
        let min = Duration::from_millis(1);
        set_if_some(
            &mut limit.per,
            self.check_time_range("per", &part.per, min, Duration::MAX),
        );
        if let Some(burst) = &part.burst {
            set_if_some(&mut limit.burst, self.check_range(burst, 1, u32::MAX));
        }
        let prefix = |at: &Field<u8>, max| {
            at.as_ref()
                .and_then(|at| self.check_range(at, 0, max))
                .unwrap_or(max)
        };
        let v4 = prefix(&part.ipv4_prefix, 32);
        let v6 = match &part.ipv6_prefix {
            None => CLIENT_IPV6_BITS,
            given => prefix(given, 128),
        };
        limit.by = self.build_rate_keys(part.by, v4, v6);
        let source = limit.by.iter().any(|key| matches!(key, RateKey::Source { .. }));
        for (key, at) in [
            ("ipv4_prefix", &part.ipv4_prefix),
            ("ipv6_prefix", &part.ipv6_prefix),
        ] {
            if let (Some(at), false) = (at, source) {
                let expected = format!("`{key}` only beside `by: source`");
                self.errors.report(at.position, expected, "it without that");
            }
        }
        if let Some(keys) = &part.keys {
            set_if_some(&mut limit.keys, self.check_range(keys, 1, limits::RATE_KEYS_MOST));
        }
        set_if_some(&mut limit.log_only, field_value(part.log_only));
        set_if_some(
            &mut limit.headers,
            field_value(part.headers).map(|headers| match headers {
                document::RateHeaders::Standard => RateHeaders::Standard,
                document::RateHeaders::Legacy => RateHeaders::Legacy,
                document::RateHeaders::Both => RateHeaders::Both,
                document::RateHeaders::None => RateHeaders::None,
            }),
        );
        if let Some(redis) = part.redis {
            limit.redis = self.build_redis(redis).map(Arc::new);
        }
        Some(limit)
    }

    fn build_redis(
        &mut self,
        at: Spanned<ShortOrFull<Parsed<UpstreamTarget>, document::RedisSection>>,
    ) -> Option<model::Redis> {
        let position = at.position;
        let part = match at.value? {
            ShortOrFull::Short(to) => document::RedisSection {
                to: Some(Spanned {
                    value: Some(to),
                    position,
                    is_valid: true,
                }),
                ..document::RedisSection::default()
            },
            ShortOrFull::Full(part) => part,
        };
        let Some(to) = part.to else {
            self.errors.report(position, "the key `to`", "none");
            return None;
        };
        let to = Spanned {
            value: to.value.map(|text| text.0),
            position: to.position,
            is_valid: to.is_valid,
        };
        let mut redis = model::Redis::of(self.resolve_target(to));
        if let (Some(user), None) = (&part.user, &part.password) {
            let expected = "the key `password` beside `user`";
            self.errors.report(user.position, expected, "none");
        }
        set_if_some(&mut redis.prefix, field_value(part.prefix).map(Into::into));
        redis.user = field_value(part.user).map(Into::into);
        redis.password = field_value(part.password).map(|password| model::Secret::new(password.into_bytes()));
        let min = Duration::from_millis(1);
        set_if_some(
            &mut redis.timeout,
            self.check_time_range("timeout", &part.timeout, min, Duration::MAX),
        );
        redis.denies = field_value(part.on_failure) == Some(document::OnFailure::Deny);
        Some(redis)
    }

    fn build_rate_keys(&mut self, by: OneOrManyField<document::RateKey>, v4: u8, v6: u8) -> Vec<RateKey> {
        let keys = list_items(by)
            .into_iter()
            .filter_map(|at| Some((at.value?, at.position)));
        let keys = keys.map(|(key, position)| match key {
            document::RateKey::Source => RateKey::Source { v4, v6 },
            document::RateKey::Header(Parsed(name)) => RateKey::Header(name),
            document::RateKey::Cookie(name) => RateKey::Cookie(name.into()),
            document::RateKey::Identity => RateKey::Identity,
            document::RateKey::Claim(path) => {
                if path.is_empty() {
                    self.errors.report(position, "the name of a claim", "none");
                }
                RateKey::Claim(ClaimPath(path.into()))
            }
            document::RateKey::Host => RateKey::Host,
            document::RateKey::Path => RateKey::Path,
            document::RateKey::Method => RateKey::Method,
        });
        keys.collect()
    }

    fn build_concurrency(
        &mut self,
        part: document::ConcurrencySection,
        position: FilePosition,
        place: String,
    ) -> Option<Policy> {
        let Some(requests) = part.requests else {
            self.errors.report(position, "the key `requests`", "none");
            return None;
        };
        Some(Policy::Concurrency(Arc::new(model::Concurrency {
            requests: self.check_range(&requests, 1, u32::MAX)?,
            name: self.counter_name(part.name, place),
            by: self.build_rate_keys(part.by, 32, 64),
        })))
    }

    fn build_shed(&mut self, part: document::ShedSection, _: FilePosition) -> Option<Policy> {
        let queue_delay = match &part.late {
            None => Duration::from_millis(50),
            given => self.check_time_range("late", given, Duration::from_millis(1), Duration::MAX)?,
        };
        Some(Policy::Shed(model::LoadShedding {
            max_delay: queue_delay,
        }))
    }

    fn build_inject(&mut self, part: document::InjectSection, position: FilePosition) -> Option<Policy> {
        if part.delay.is_none() && part.abort.is_none() {
            self.errors.report(
                position,
                "at least one of the keys `delay` and `abort`",
                "neither",
            );
        }
        let fraction = |fraction: Field<Parsed<_>>| {
            parsed_value(fraction).map_or(
                model::Fraction::ALL,
                |crate::config::scalars::Fraction(fraction)| fraction,
            )
        };
        let delay = part.delay.and_then(|at| {
            let part = at.value?;
            if part.time.is_none() {
                self.errors.report(at.position, "the key `time`", "none");
            }
            let time = self.check_time_range("time", &part.time, Duration::ZERO, limits::DELAY)?;
            Some((time, fraction(part.share)))
        });
        let abort = part.abort.and_then(|at| {
            let part = at.value?;
            let status = match &part.status {
                Some(status) => self.check_range(status, 400, 599)?,
                None => 503,
            };
            Some((status, fraction(part.share)))
        });
        Some(Policy::Inject(Arc::new(model::FaultInjection {
            delay,
            abort,
            header: parsed_value(part.header),
        })))
    }

    /// Returns the name of a counter: the configured one, or one derived from its position.
    fn counter_name(&self, name: Field<String>, place: String) -> Name {
        let Some(at) = name else { return place.into() };
        let (position, name) = (at.position, at.value.unwrap_or_default());
        let max = limits::NAME_BYTES;
        let visible = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if at.is_valid && (name.is_empty() || name.len() > max || !name.bytes().all(visible)) {
            let expected =
                format!("a name of 1 to {max} visible ASCII characters without quotes and backslashes");
            self.errors.report(position, expected, quote(&name));
        }
        name.into()
    }

    /// Checks that a number is within a range.
    pub(super) fn check_range<T: Copy + PartialOrd + Display>(
        &self,
        at: &Spanned<T>,
        min: T,
        max: T,
    ) -> Option<T> {
        let number = at.value?;
        if min <= number && number <= max {
            return Some(number);
        }
        let expected = format!("a whole number from {min} to {max}");
        self.errors.report(at.position, expected, format!("`{number}`"));
        None
    }

    /// Checks that a time is within a range.
    pub(super) fn check_time_range(
        &self,
        key: &str,
        at: &Field<Parsed<crate::config::scalars::Time>>,
        min: Duration,
        max: Duration,
    ) -> Option<Duration> {
        let at = at.as_ref()?;
        let time = at.value.as_ref()?.0.0;
        if (min..=max).contains(&time) {
            return Some(time);
        }
        let expected = match max {
            Duration::MAX => format!("`{key}` of at least {min:?}"),
            _ => format!("`{key}` of at most {max:?}"),
        };
        self.errors.report(at.position, expected, format!("{time:?}"));
        None
    }
}
