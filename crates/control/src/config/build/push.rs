//! The push server.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    self, Action, KeySet, PushDataFormat, PushKeys, PushListen, PushNamespace, PushProxy, PushTokens, Secret,
};
use ringmain_gateway::table::ConfigPart;
use ringmain_push::{HistoryOptions, Options, SlowConsumerPolicy};

use super::{
    Builder, field_value, list_items, parsed_items, parsed_value, part_names, set_if_some, time_value,
};
use crate::config::document::{self, Field};
use crate::config::fields::{Parsed, Spanned, Switch};
use crate::config::scalars::ByteSize;

/// The default retention of a namespace.
const DEFAULT_RETENTION: HistoryOptions = HistoryOptions {
    publications: 1,
    bytes: 1 << 20,
    ttl: Duration::from_secs(300),
};

/// The minimum size per retained publication without the key `size`: the default limit of a client's message.
const RETAINED_BYTES_EACH: usize = 64 << 10;

/// Removes the word `expected` from a message that the caller begins with it.
pub(super) fn after_expected(text: &str) -> &str {
    text.split_once("expected ").map_or(text, |(_, rest)| rest)
}

fn push_limits(push: &mut model::Push, part: document::PushLimitsSection) {
    let of = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    set_if_some(
        &mut push.limits.subscriptions,
        field_value(part.subscriptions).map(of),
    );
    set_if_some(
        &mut push.connections_per_user,
        field_value(part.connections_per_user),
    );
    set_if_some(&mut push.handshakes, field_value(part.handshakes));
    push.connects_per_second = field_value(part.connects_per_second);
    set_if_some(&mut push.keys_remembered, time_value(part.idempotency));
    let waiting = parsed_value(part.waiting).and_then(|size| usize::try_from(size.0).ok());
    set_if_some(&mut push.limits.queued_bytes, waiting);
    let bytes = |size: Field<Parsed<ByteSize>>| {
        parsed_value(size).map(|size| usize::try_from(size.0).unwrap_or(usize::MAX))
    };
    set_if_some(&mut push.message_bytes, bytes(part.message));
    set_if_some(&mut push.api_body_bytes, bytes(part.api_body));
    set_if_some(&mut push.channels, field_value(part.channels).map(of));
}

impl Builder<'_> {
    pub(super) fn build_push(&mut self, part: Field<document::PushSection>) {
        let Some((part, position)) = part
            .filter(|at| at.is_valid)
            .and_then(|at| Some((at.value?, at.position)))
        else {
            return;
        };
        self.built.positions.insert(ConfigPart::Push, position);
        let before = self.errors.count();
        let mut push = model::Push::default();
        set_if_some(&mut push.anonymous, field_value(part.anonymous));
        for at in list_items(part.origins) {
            let Some(origin) = at.value else { continue };
            let options = Options {
                origins: vec![origin.clone()],
                ..Options::default()
            };
            match options.check() {
                Ok(()) => push.origins.push(Arc::from(origin)),
                Err(error) => {
                    let error = error.to_string();
                    self.errors.report_message(at.position, after_expected(&error));
                }
            }
        }
        push.state_dir = part.state_dir.and_then(|at| self.resolve_state_dir(at));
        push.user_channel = field_value(part.user_channel).map(Arc::from);
        push.tokens = part.tokens.and_then(|at| self.build_push_tokens(at));
        push.api_key = part.api_key.and_then(|at| self.check_api_key(at));
        if let Some(at) = part.proxy {
            push.proxy = self.build_push_proxy(at);
        }
        set_if_some(&mut push.ping_interval, time_value(part.ping_interval));
        set_if_some(&mut push.pong_timeout, time_value(part.pong_timeout));
        if let Some(limits) = field_value(part.limits) {
            push_limits(&mut push, limits);
        }
        if let Some(at) = part.channels {
            push.plain = self.build_namespace(at, &push.proxy);
        }
        self.namespaces = part_names(&part.namespaces);
        for (key, at) in part.namespaces.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.contains([':', '#', '$', ',']) {
                let expected =
                    "a namespace: the part of a channel's name before `:`, without `:`, `#`, `$` and `,`";
                self.errors.report(key.position, expected, format!("`{name}`"));
                continue;
            }
            let namespace = self.build_namespace(at, &push.proxy);
            push.namespaces.insert(Arc::from(name), namespace);
        }
        self.build_nats_consumers(&mut push, part.nats);
        self.add_kafka_sources(&mut push, part.kafka);
        self.add_jetstream_sources(&mut push, part.jetstream);
        self.add_redis_sources(&mut push, part.redis_streams, part.redis_pubsub);
        self.add_postgres_sources(&mut push, part.postgres);
        push.cluster = part.cluster.and_then(|at| self.build_push_cluster(at, &push));
        if self.errors.count() == before
            && let Err(problem) = push.options(None)
        {
            self.errors.report_message(position, after_expected(&problem));
        }
        // An invalid part might admit unintended clients.
        if self.errors.count() == before {
            self.built.config.push = Some(Arc::new(push));
        }
    }

    fn resolve_state_dir(&self, at: Spanned<String>) -> Option<PathBuf> {
        let text = at.value?;
        if text.is_empty() {
            self.errors
                .report(at.position, "the path of a directory", "nothing");
            return None;
        }
        Some(self.resolve_path(&text))
    }

    fn build_push_tokens(&self, at: Spanned<document::PushTokensSection>) -> Option<PushTokens> {
        let position = at.position;
        let mut part = at.value?;
        let keys = match (part.secret.take(), part.keys.take(), part.provider.take()) {
            (Some(secret), None, None) => {
                let (at, secret) = (secret.position, secret.value?);
                if let Err(message) = ringmain_push::KeySet::from_secret(secret.as_bytes()) {
                    self.errors.report_message(at, after_expected(&message));
                    return None;
                }
                PushKeys::Secret(Secret::new(secret.into_bytes()))
            }
            (None, keys @ Some(_), None) => {
                let file = self.read_file(&keys)?;
                match KeySet::parse(&file) {
                    Ok(set) => PushKeys::Set(set),
                    Err(message) => {
                        let at = keys.map_or(position, |at| at.position);
                        self.errors.report_message(at, &message);
                        return None;
                    }
                }
            }
            (None, None, Some(provider)) => PushKeys::Provider(self.resolve_token_provider(provider, &part)?),
            (secret, keys, provider) => {
                let is_any_set = secret.is_some() || keys.is_some() || provider.is_some();
                let found = if is_any_set { "several" } else { "none" };
                let expected = "one of `secret`, `keys` and `provider`";
                self.errors.report(position, expected, found);
                return None;
            }
        };
        Some(PushTokens {
            keys,
            algorithms: parsed_items(part.algorithms),
            issuer: field_value(part.issuer).map(Arc::from),
            audiences: list_items(part.audience)
                .into_iter()
                .filter_map(|at| at.value.map(Arc::from))
                .collect(),
            leeway: time_value(part.leeway).unwrap_or(Duration::from_secs(30)),
        })
    }

    /// Resolves the provider of tokens, beside which `part` must not set its keys.
    fn resolve_token_provider(
        &self,
        name: Spanned<String>,
        part: &document::PushTokensSection,
    ) -> Option<Arc<model::JwtProvider>> {
        let custom = [
            ("algorithms", part.algorithms.is_some()),
            ("issuer", part.issuer.is_some()),
            ("audience", part.audience.is_some()),
            ("leeway", part.leeway.is_some()),
        ];
        if let Some((key, _)) = custom.iter().find(|(_, is_set)| *is_set) {
            let expected = format!("`{key}` at the provider");
            self.errors
                .report(name.position, expected, "it beside `provider`");
            return None;
        }
        let text = name.value?;
        self.resolve_provider(name.position, &text)
    }

    pub(super) fn check_api_key(&self, at: Spanned<String>) -> Option<Secret> {
        let key = at.value?;
        let is_printable = |byte: u8| byte.is_ascii_graphic();
        if key.is_empty() || !key.bytes().all(is_printable) {
            let expected = "a key of visible ASCII characters, at least one";
            let found = if key.is_empty() { "none" } else { "others" };
            self.errors.report(at.position, expected, found);
            return None;
        }
        Some(Secret::new(key.into_bytes()))
    }

    fn build_namespace(
        &self,
        at: Spanned<document::PushNamespaceSection>,
        proxy: &PushProxy,
    ) -> PushNamespace {
        let mut namespace = PushNamespace::default();
        let position = at.position;
        let Some(part) = at.value else {
            return namespace;
        };
        if let Some((retention, meta_time)) = part.retention.and_then(|at| self.build_retention(at)) {
            namespace.channel_options.history = Some(retention);
            set_if_some(&mut namespace.channel_options.position_ttl, meta_time);
        }
        let data_format = field_value(part.data_format).map(|format| match format {
            document::PushDataFormat::Json => PushDataFormat::Json,
            document::PushDataFormat::JsonObject => PushDataFormat::JsonObject,
            document::PushDataFormat::Binary => PushDataFormat::Binary,
        });
        set_if_some(&mut namespace.data_format, data_format);
        let listen = field_value(part.listen).map(|listen| match listen {
            document::PushSubscribePolicy::Anybody => PushListen::Everyone,
            document::PushSubscribePolicy::Users => PushListen::Users,
            document::PushSubscribePolicy::Nobody => PushListen::NoOne,
        });
        set_if_some(&mut namespace.subscribe_access, listen);
        set_if_some(&mut namespace.publish, field_value(part.publish));
        let requested = [part.subscribe_proxy, part.publish_proxy, part.sub_refresh_proxy];
        self.set_proxied_events(&mut namespace, requested, proxy);
        set_if_some(&mut namespace.recovery, field_value(part.recovery));
        set_if_some(&mut namespace.history, field_value(part.history));
        set_if_some(&mut namespace.presence, field_value(part.presence));
        let rules = &mut namespace.channel_options;
        rules.presence = namespace.presence;
        set_if_some(&mut rules.join_leave, field_value(part.join_leave));
        set_if_some(&mut rules.cache_recovery, field_value(part.cache));
        rules.conflation_interval = time_value(part.update_interval);
        if rules.conflation_interval == Some(Duration::ZERO) {
            self.errors
                .report(position, "a time above 0 at `update_interval`", "0");
        }
        rules.delta = !list_items(part.delta).is_empty();
        set_if_some(&mut rules.tags_filter, field_value(part.tags_filter));
        set_if_some(&mut rules.compaction, field_value(part.compaction));
        if rules.tags_filter && rules.conflation_interval.is_some() {
            let expected = "no `update_interval` beside `tags_filter`: the newest publication may not match, and those before it are dropped";
            self.errors.report(position, expected, "both");
        }
        set_if_some(
            &mut rules.slow_consumer,
            field_value(part.slow).map(|slow| match slow {
                document::PushSlowPolicy::Disconnect => SlowConsumerPolicy::Disconnect,
                document::PushSlowPolicy::DropOld => SlowConsumerPolicy::DropOld,
                document::PushSlowPolicy::DropNew => SlowConsumerPolicy::DropNew,
                document::PushSlowPolicy::Conflate => SlowConsumerPolicy::Conflate,
                document::PushSlowPolicy::Resync => SlowConsumerPolicy::Resync,
            }),
        );
        let needed = [
            ("recovery", namespace.recovery),
            ("history", namespace.history),
            ("cache", rules.cache_recovery),
            ("update_interval", rules.conflation_interval.is_some()),
        ];
        if let (Some((key, _)), None) = (needed.iter().find(|(_, needed)| *needed), rules.history) {
            let expected = format!("the key `retention` beside `{key}`");
            self.errors.report(position, expected, "none");
        }
        namespace
    }

    /// Builds the retention of publications, and of offsets (`None`: the default).
    fn build_retention(
        &self,
        at: Spanned<document::PushRetentionSection>,
    ) -> Option<(HistoryOptions, Option<Duration>)> {
        let part = at.value?;
        let mut retention = DEFAULT_RETENTION;
        let publications = field_value(part.publications).and_then(|number| usize::try_from(number).ok());
        set_if_some(&mut retention.publications, publications);
        // The size must not reduce the number of publications, unless it is set.
        retention.bytes = retention
            .bytes
            .max(retention.publications.saturating_mul(RETAINED_BYTES_EACH));
        set_if_some(
            &mut retention.bytes,
            parsed_value(part.size).and_then(|size| usize::try_from(size.0).ok()),
        );
        set_if_some(&mut retention.ttl, time_value(part.time));
        if retention.publications == 0 || retention.bytes == 0 || retention.ttl.is_zero() {
            let expected = "`publications`, `size` and `time` above 0, or no `retention`";
            self.errors.report(at.position, expected, "0");
            return None;
        }
        let meta_time = time_value(part.meta_time);
        if let Some(meta_time) = meta_time.filter(|meta_time| *meta_time < retention.ttl) {
            let expected = format!("`meta_time` of at least `time`, which is {:?}", retention.ttl);
            self.errors
                .report(at.position, expected, format!("{meta_time:?}"));
            return None;
        }
        Some((retention, meta_time))
    }

    /// Builds the action of a rule with the push endpoints.
    pub(super) fn build_push_action(
        &self,
        at: Spanned<Switch<document::PushLocationSection>>,
    ) -> Option<Action> {
        let position = at.position;
        let Some(part) = at.value?.settings() else {
            self.errors.report(
                position,
                "`true`, or the path that clients connect below",
                "`false`",
            );
            return None;
        };
        if !self.has_push {
            let expected = "the key `push` of the file as well";
            self.errors.report(position, expected, "none");
            return None;
        }
        Some(Action::Push(model::PushEndpoints {
            below: parsed_value(part.below),
        }))
    }
}
