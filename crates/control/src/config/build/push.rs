//! What is pushed.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ringmain_gateway::model::{
    self, Action, KeySet, PushDataFormat, PushKeys, PushListen, PushNamespace, PushProxy, PushTokens, Secret,
};
use ringmain_gateway::table::Place;
use ringmain_push::{HistoryOptions, Options, SlowConsumerPolicy};

use super::{Builder, list, names, put, text, texts, value};
use crate::config::document::{self, Maybe};
use crate::config::scalars::Size;
use crate::config::fields::{At, Switch, Text};

/// Of a namespace that keeps something and does not say how much, or how long.
const KEPT: HistoryOptions = HistoryOptions {
    publications: 1,
    bytes: 1 << 20,
    ttl: Duration::from_secs(300),
};

/// Bytes that each of the publications may have where the size is not said: the default of a client's message.
const KEPT_EACH: usize = 64 << 10;

/// What was expected and found: the message says the word itself.
pub(super) fn after_expected(text: &str) -> &str {
    text.split_once("expected ").map_or(text, |(_, rest)| rest)
}

fn push_limits(push: &mut model::Push, part: document::PushLimits) {
    let of = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    put(&mut push.limits.subscriptions, value(part.subscriptions).map(of));
    put(&mut push.connections_per_user, value(part.connections_per_user));
    put(&mut push.handshakes, value(part.handshakes));
    push.connects_per_second = value(part.connects_per_second);
    put(
        &mut push.keys_remembered,
        text(part.idempotency).map(|time| time.0),
    );
    let waiting = text(part.waiting).and_then(|size| usize::try_from(size.0).ok());
    put(&mut push.limits.queued_bytes, waiting);
    let bytes =
        |size: Maybe<Text<Size>>| text(size).map(|size| usize::try_from(size.0).unwrap_or(usize::MAX));
    put(&mut push.message_bytes, bytes(part.message));
    put(&mut push.api_body_bytes, bytes(part.api_body));
    put(&mut push.channels, value(part.channels).map(of));
}

impl Builder<'_> {
    pub(super) fn push(&mut self, part: Maybe<document::Push>) {
        let Some((part, position)) = part
            .filter(|at| at.clean)
            .and_then(|at| Some((at.value?, at.position)))
        else {
            return;
        };
        self.built.places.insert(Place::Push, position);
        let before = self.errors.count();
        let mut push = model::Push::default();
        put(&mut push.anonymous, value(part.anonymous));
        for at in list(part.origins) {
            let Some(origin) = at.value else { continue };
            let options = Options {
                origins: vec![origin.clone()],
                ..Options::default()
            };
            match options.check() {
                Ok(()) => push.origins.push(Arc::from(origin)),
                Err(error) => {
                    let error = error.to_string();
                    self.errors.tell_message(at.position, after_expected(&error));
                }
            }
        }
        push.state_dir = part.state_dir.and_then(|at| self.push_folder(at));
        push.user_channel = value(part.user_channel).map(Arc::from);
        push.tokens = part.tokens.and_then(|at| self.push_tokens(at));
        push.api_key = part.api_key.and_then(|at| self.api_key(at));
        if let Some(at) = part.proxy {
            push.proxy = self.push_proxy(at);
        }
        put(
            &mut push.ping_interval,
            text(part.ping_interval).map(|time| time.0),
        );
        put(&mut push.pong_timeout, text(part.pong_timeout).map(|time| time.0));
        if let Some(limits) = value(part.limits) {
            push_limits(&mut push, limits);
        }
        if let Some(at) = part.channels {
            push.plain = self.push_namespace(at, &push.proxy);
        }
        self.namespaces = names(&part.namespaces);
        for (key, at) in part.namespaces.0 {
            let Some(name) = key.value else { continue };
            if name.is_empty() || name.contains([':', '#', '$', ',']) {
                let expected =
                    "a namespace: the part of a channel's name before `:`, without `:`, `#`, `$` and `,`";
                self.errors.tell(key.position, expected, format!("`{name}`"));
                continue;
            }
            let namespace = self.push_namespace(at, &push.proxy);
            push.namespaces.insert(Arc::from(name), namespace);
        }
        self.push_nats(&mut push, part.nats);
        self.push_kafka(&mut push, part.kafka);
        self.push_jetstream(&mut push, part.jetstream);
        self.push_redis(&mut push, part.redis_streams, part.redis_pubsub);
        self.push_postgres(&mut push, part.postgres);
        if self.errors.count() == before
            && let Err(why) = push.options(None)
        {
            self.errors.tell_message(position, after_expected(&why));
        }
        // Wrong in part, it might let somebody in who is not to be.
        if self.errors.count() == before {
            self.built.config.push = Some(Arc::new(push));
        }
    }

    fn push_folder(&self, at: At<String>) -> Option<PathBuf> {
        let text = at.value?;
        if text.is_empty() {
            self.errors.tell(at.position, "the path of a folder", "nothing");
            return None;
        }
        Some(self.path(&text))
    }

    fn push_tokens(&self, at: At<document::PushTokens>) -> Option<PushTokens> {
        let position = at.position;
        let mut part = at.value?;
        let keys = match (part.secret.take(), part.keys.take(), part.provider.take()) {
            (Some(secret), None, None) => {
                let (at, secret) = (secret.position, secret.value?);
                if let Err(message) = ringmain_push::KeySet::from_secret(secret.as_bytes()) {
                    self.errors.tell_message(at, after_expected(&message));
                    return None;
                }
                PushKeys::Secret(Secret::new(secret.into_bytes()))
            }
            (None, keys @ Some(_), None) => {
                let file = self.file(&keys)?;
                match KeySet::parse(&file) {
                    Ok(set) => PushKeys::Set(set),
                    Err(message) => {
                        let at = keys.map_or(position, |at| at.position);
                        self.errors.tell_message(at, &message);
                        return None;
                    }
                }
            }
            (None, None, Some(provider)) => PushKeys::Provider(self.push_provider(provider, &part)?),
            (secret, keys, provider) => {
                let said = [secret.is_some(), keys.is_some(), provider.is_some()];
                let found = match said.contains(&true) {
                    true => "more than one of them",
                    false => "none of them",
                };
                let expected = "one of `secret`, `keys` and `provider`";
                self.errors.tell(position, expected, found);
                return None;
            }
        };
        Some(PushTokens {
            keys,
            algorithms: texts(part.algorithms),
            issuer: value(part.issuer).map(Arc::from),
            audiences: list(part.audience)
                .into_iter()
                .filter_map(|at| at.value.map(Arc::from))
                .collect(),
            leeway: text(part.leeway).map_or(Duration::from_secs(30), |time| time.0),
        })
    }

    /// The provider of this name, beside which `part` says nothing of its own.
    fn push_provider(
        &self,
        name: At<String>,
        part: &document::PushTokens,
    ) -> Option<Arc<model::JwtProvider>> {
        let own = [
            ("algorithms", part.algorithms.is_some()),
            ("issuer", part.issuer.is_some()),
            ("audience", part.audience.is_some()),
            ("leeway", part.leeway.is_some()),
        ];
        if let Some((key, _)) = own.iter().find(|(_, is_said)| *is_said) {
            let expected = format!("`{key}` at the provider, whose it is");
            self.errors.tell(name.position, expected, "it beside `provider`");
            return None;
        }
        let text = name.value?;
        self.provider(name.position, &text)
    }

    pub(super) fn api_key(&self, at: At<String>) -> Option<Secret> {
        let key = at.value?;
        let is_said = |byte: u8| byte.is_ascii_graphic();
        if key.is_empty() || !key.bytes().all(is_said) {
            let expected = "a key of visible ASCII characters, at least one";
            let found = if key.is_empty() { "none" } else { "others" };
            self.errors.tell(at.position, expected, found);
            return None;
        }
        Some(Secret::new(key.into_bytes()))
    }

    fn push_namespace(&self, at: At<document::PushNamespace>, proxy: &PushProxy) -> PushNamespace {
        let mut namespace = PushNamespace::default();
        let position = at.position;
        let Some(part) = at.value else {
            return namespace;
        };
        if let Some((keep, meta_time)) = part.keep.and_then(|at| self.push_keep(at)) {
            namespace.rules.history = Some(keep);
            put(&mut namespace.rules.position_ttl, meta_time);
        }
        let data_format = value(part.data_format).map(|format| match format {
            document::PushDataFormat::Json => PushDataFormat::Json,
            document::PushDataFormat::JsonObject => PushDataFormat::JsonObject,
            document::PushDataFormat::Binary => PushDataFormat::Binary,
        });
        put(&mut namespace.data_format, data_format);
        let listen = value(part.listen).map(|listen| match listen {
            document::PushListen::Anybody => PushListen::Anybody,
            document::PushListen::Users => PushListen::Users,
            document::PushListen::Nobody => PushListen::Nobody,
        });
        put(&mut namespace.listen, listen);
        put(&mut namespace.publish, value(part.publish));
        let wanted = [part.subscribe_proxy, part.publish_proxy, part.sub_refresh_proxy];
        self.asks_about(&mut namespace, wanted, proxy);
        put(&mut namespace.recovery, value(part.recovery));
        put(&mut namespace.history, value(part.history));
        put(&mut namespace.presence, value(part.presence));
        let rules = &mut namespace.rules;
        rules.presence = namespace.presence;
        put(&mut rules.join_leave, value(part.join_leave));
        put(&mut rules.cache_recovery, value(part.cache));
        rules.conflation_interval = text(part.every).map(|time| time.0);
        if rules.conflation_interval == Some(Duration::ZERO) {
            self.errors
                .tell(position, "a time of more than nothing at `every`", "0");
        }
        put(
            &mut rules.slow_consumer,
            value(part.slow).map(|slow| match slow {
                document::PushSlow::Disconnect => SlowConsumerPolicy::Disconnect,
                document::PushSlow::DropOld => SlowConsumerPolicy::DropOld,
                document::PushSlow::DropNew => SlowConsumerPolicy::DropNew,
                document::PushSlow::Conflate => SlowConsumerPolicy::Conflate,
                document::PushSlow::Resync => SlowConsumerPolicy::Resync,
            }),
        );
        let wants = [
            ("recovery", namespace.recovery),
            ("history", namespace.history),
            ("cache", rules.cache_recovery),
            ("every", rules.conflation_interval.is_some()),
        ];
        if let (Some((key, _)), None) = (wants.iter().find(|(_, wants)| *wants), rules.history) {
            let expected = format!("the key `keep` beside `{key}`: it is of what is kept");
            self.errors.tell(position, expected, "none");
        }
        namespace
    }

    /// How much is retained, and for how long offsets are (`None`: the default).
    fn push_keep(&self, at: At<document::PushKeep>) -> Option<(HistoryOptions, Option<Duration>)> {
        let part = at.value?;
        let mut keep = KEPT;
        let publications = value(part.publications).and_then(|number| usize::try_from(number).ok());
        put(&mut keep.publications, publications);
        // As many as are wanted are not to be fewer for their size, unless that is said.
        keep.bytes = keep.bytes.max(keep.publications.saturating_mul(KEPT_EACH));
        put(
            &mut keep.bytes,
            text(part.size).and_then(|size| usize::try_from(size.0).ok()),
        );
        put(&mut keep.ttl, text(part.time).map(|time| time.0));
        if keep.publications == 0 || keep.bytes == 0 || keep.ttl.is_zero() {
            let expected = "`publications`, `size` and `time` of more than nothing, or no `keep`";
            self.errors.tell(at.position, expected, "0");
            return None;
        }
        let meta_time = text(part.meta_time).map(|time| time.0);
        if let Some(meta_time) = meta_time.filter(|meta_time| *meta_time < keep.ttl) {
            let expected = format!("`meta_time` of at least `time`, which is {:?}", keep.ttl);
            self.errors.tell(at.position, expected, format!("{meta_time:?}"));
            return None;
        }
        Some((keep, meta_time))
    }

    /// A rule by which clients connect.
    pub(super) fn push_at(&self, at: At<Switch<document::PushAt>>) -> Option<Action> {
        let position = at.position;
        let Some(part) = at.value?.settings() else {
            self.errors.tell(
                position,
                "`true`, or the path that clients connect below",
                "`false`",
            );
            return None;
        };
        if !self.pushes {
            let expected = "the key `push` of the file as well: what is pushed";
            self.errors.tell(position, expected, "none");
            return None;
        }
        Some(Action::Push(model::PushAt {
            below: text(part.below),
        }))
    }
}
