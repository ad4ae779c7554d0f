//! Policies that bound what comes through, and faults that are put in.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::limits;
use ringmain_gateway::model::{self, ClaimPath, Name, Policy, RateHeaders, RateKey, RateLimit, Share};
use ringmain_gateway::table::Place;
use ringmain_web::limits::CLIENT_IPV6_BITS;

use super::{Builder, list, put, text, value};
use crate::config::document::{self, Maybe, Some1};
use crate::config::error::{Position, quoted};
use crate::config::scalars::To;
use crate::config::fields::{At, Either, OneOrMany, Switch, Text};

/// The keys of a rule's policies that are told of here.
pub(super) type Bounds = (
    Maybe<Switch<OneOrMany<document::RateLimit>>>,
    Maybe<Switch<document::Concurrency>>,
    Maybe<Switch<document::Shed>>,
    Maybe<Switch<document::Inject>>,
);

impl Builder<'_> {
    /// Policies that bound what comes through.
    pub(super) fn bounds(&mut self, all: &mut Vec<Policy>, bounds: Bounds, place: &Place) {
        let (rates, concurrency, shed, inject) = bounds;
        let place = match place {
            Place::Route(name, Some(rule)) => format!("{name}/{rule}"),
            Place::Route(name, None) => name.to_string(),
            other => other.to_string(),
        };
        self.rate_limits(all, rates, &place);
        let build = |builder: &mut Self, part, position| builder.concurrency(part, position, place);
        self.policy(all, concurrency, build, |policy| {
            matches!(policy, Policy::Concurrency(_))
        });
        self.policy(all, shed, Self::shed, |policy| matches!(policy, Policy::Shed(_)));
        self.policy(all, inject, Self::inject, |policy| {
            matches!(policy, Policy::Inject(_))
        });
    }

    fn rate_limits(
        &mut self,
        all: &mut Vec<Policy>,
        part: Maybe<Switch<OneOrMany<document::RateLimit>>>,
        place: &str,
    ) {
        let Some(At {
            value,
            position,
            clean,
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
        let limits = At {
            value,
            position,
            clean,
        }
        .into_list();
        let most = limits::RATE_LIMITS;
        if limits.is_empty() || limits.len() > most {
            let found = limits.len().to_string();
            self.errors
                .tell(position, format!("from 1 to {most} limits"), found);
        }
        for (index, at) in limits.into_iter().enumerate() {
            let limit = self.rate_limit(at, format!("{place}/{index}"));
            all.extend(limit.map(|limit| Policy::RateLimit(Arc::new(limit))));
        }
    }

    fn rate_limit(&mut self, at: At<document::RateLimit>, name: String) -> Option<RateLimit> {
        let position = at.position;
        let part = at.value?;
        let Some(requests) = part.requests.as_ref() else {
            self.errors.tell(position, "the key `requests`", "none");
            return None;
        };
        let requests = self.ranged(requests, 1, u32::MAX)?;
        let name = self.counted_name(part.name, name);
        let mut limit = RateLimit::new(name, requests, Duration::from_secs(1));
        let least = Duration::from_millis(1);
        put(
            &mut limit.per,
            self.ranged_time("per", &part.per, least, Duration::MAX),
        );
        if let Some(burst) = &part.burst {
            put(&mut limit.burst, self.ranged(burst, 1, u32::MAX));
        }
        let prefix = |at: &Maybe<u8>, most| {
            at.as_ref()
                .and_then(|at| self.ranged(at, 0, most))
                .unwrap_or(most)
        };
        let v4 = prefix(&part.ipv4_prefix, 32);
        let v6 = match &part.ipv6_prefix {
            None => CLIENT_IPV6_BITS,
            given => prefix(given, 128),
        };
        limit.by = self.rate_keys(part.by, v4, v6);
        let source = limit.by.iter().any(|key| matches!(key, RateKey::Source { .. }));
        for (key, at) in [
            ("ipv4_prefix", &part.ipv4_prefix),
            ("ipv6_prefix", &part.ipv6_prefix),
        ] {
            if let (Some(at), false) = (at, source) {
                let expected = format!("`{key}` only beside `by: source`");
                self.errors.tell(at.position, expected, "it without that");
            }
        }
        if let Some(keys) = &part.keys {
            put(&mut limit.keys, self.ranged(keys, 1, limits::RATE_KEYS_MOST));
        }
        put(&mut limit.log_only, value(part.log_only));
        put(
            &mut limit.headers,
            value(part.headers).map(|headers| match headers {
                document::RateHeaders::Standard => RateHeaders::Standard,
                document::RateHeaders::Legacy => RateHeaders::Legacy,
                document::RateHeaders::Both => RateHeaders::Both,
                document::RateHeaders::None => RateHeaders::None,
            }),
        );
        if let Some(redis) = part.redis {
            limit.redis = self.redis(redis).map(Arc::new);
        }
        Some(limit)
    }

    fn redis(&mut self, at: At<Either<Text<To>, document::Redis>>) -> Option<model::Redis> {
        let position = at.position;
        let part = match at.value? {
            Either::Short(to) => document::Redis {
                to: Some(At {
                    value: Some(to),
                    position,
                    clean: true,
                }),
                ..document::Redis::default()
            },
            Either::Full(part) => part,
        };
        let Some(to) = part.to else {
            self.errors.tell(position, "the key `to`", "none");
            return None;
        };
        let to = At {
            value: to.value.map(|text| text.0),
            position: to.position,
            clean: to.clean,
        };
        let mut redis = model::Redis::of(self.target(to));
        if let (Some(user), None) = (&part.user, &part.password) {
            let expected = "the key `password` beside `user`";
            self.errors.tell(user.position, expected, "none");
        }
        put(&mut redis.prefix, value(part.prefix).map(Into::into));
        redis.user = value(part.user).map(Into::into);
        redis.password = value(part.password).map(|password| model::Secret::new(password.into_bytes()));
        let least = Duration::from_millis(1);
        put(
            &mut redis.timeout,
            self.ranged_time("timeout", &part.timeout, least, Duration::MAX),
        );
        redis.denies = value(part.on_failure) == Some(document::OnFailure::Deny);
        Some(redis)
    }

    fn rate_keys(&mut self, by: Some1<document::RateKey>, v4: u8, v6: u8) -> Vec<RateKey> {
        let keys = list(by)
            .into_iter()
            .filter_map(|at| Some((at.value?, at.position)));
        let keys = keys.map(|(key, position)| match key {
            document::RateKey::Source => RateKey::Source { v4, v6 },
            document::RateKey::Header(Text(name)) => RateKey::Header(name),
            document::RateKey::Cookie(name) => RateKey::Cookie(name.into()),
            document::RateKey::Identity => RateKey::Identity,
            document::RateKey::Claim(path) => {
                if path.is_empty() {
                    self.errors.tell(position, "the name of a claim", "none");
                }
                RateKey::Claim(ClaimPath(path.into()))
            }
            document::RateKey::Host => RateKey::Host,
            document::RateKey::Path => RateKey::Path,
            document::RateKey::Method => RateKey::Method,
        });
        keys.collect()
    }

    fn concurrency(
        &mut self,
        part: document::Concurrency,
        position: Position,
        place: String,
    ) -> Option<Policy> {
        let Some(requests) = part.requests else {
            self.errors.tell(position, "the key `requests`", "none");
            return None;
        };
        Some(Policy::Concurrency(Arc::new(model::Concurrency {
            requests: self.ranged(&requests, 1, u32::MAX)?,
            name: self.counted_name(part.name, place),
            by: self.rate_keys(part.by, 32, 64),
        })))
    }

    fn shed(&mut self, part: document::Shed, _: Position) -> Option<Policy> {
        let late = match &part.late {
            None => Duration::from_millis(50),
            given => self.ranged_time("late", given, Duration::from_millis(1), Duration::MAX)?,
        };
        Some(Policy::Shed(model::Shed { late }))
    }

    fn inject(&mut self, part: document::Inject, position: Position) -> Option<Policy> {
        if part.delay.is_none() && part.abort.is_none() {
            self.errors.tell(
                position,
                "at least one of the keys `delay` and `abort`",
                "neither",
            );
        }
        let share = |share: Maybe<Text<_>>| {
            text(share).map_or(Share::ALL, |crate::config::scalars::Share(share)| share)
        };
        let delay = part.delay.and_then(|at| {
            let part = at.value?;
            if part.time.is_none() {
                self.errors.tell(at.position, "the key `time`", "none");
            }
            let time = self.ranged_time("time", &part.time, Duration::ZERO, limits::DELAY)?;
            Some((time, share(part.share)))
        });
        let abort = part.abort.and_then(|at| {
            let part = at.value?;
            let status = match &part.status {
                Some(status) => self.ranged(status, 400, 599)?,
                None => 503,
            };
            Some((status, share(part.share)))
        });
        Some(Policy::Inject(Arc::new(model::Inject {
            delay,
            abort,
            header: text(part.header),
        })))
    }

    /// The name that something is counted by: its own, or that of its place.
    fn counted_name(&self, name: Maybe<String>, place: String) -> Name {
        let Some(at) = name else { return place.into() };
        let (position, name) = (at.position, at.value.unwrap_or_default());
        let most = limits::NAME_BYTES;
        let visible = |byte: u8| matches!(byte, b' '..=b'~') && !matches!(byte, b'"' | b'\\');
        if at.clean && (name.is_empty() || name.len() > most || !name.bytes().all(visible)) {
            let expected =
                format!("a name of 1 to {most} visible ASCII characters without quotes and backslashes");
            self.errors.tell(position, expected, quoted(&name));
        }
        name.into()
    }

    /// A number that must lie between two others.
    pub(super) fn ranged<T: Copy + PartialOrd + Display>(&self, at: &At<T>, least: T, most: T) -> Option<T> {
        let number = at.value?;
        if least <= number && number <= most {
            return Some(number);
        }
        let expected = format!("a whole number from {least} to {most}");
        self.errors.tell(at.position, expected, format!("`{number}`"));
        None
    }

    /// A time that must lie between two others.
    pub(super) fn ranged_time(
        &self,
        key: &str,
        at: &Maybe<Text<crate::config::scalars::Time>>,
        least: Duration,
        most: Duration,
    ) -> Option<Duration> {
        let at = at.as_ref()?;
        let time = at.value.as_ref()?.0.0;
        if (least..=most).contains(&time) {
            return Some(time);
        }
        let expected = match most {
            Duration::MAX => format!("`{key}` of at least {least:?}"),
            _ => format!("`{key}` of at most {most:?}"),
        };
        self.errors.tell(at.position, expected, format!("{time:?}"));
        None
    }
}
