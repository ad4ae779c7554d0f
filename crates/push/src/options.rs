//! Options of push. Those of channels are set by namespace: the part of a channel's name before `:`.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::limits::{CHANNEL_BYTES, CHANNELS_PER_WORKER, MESSAGE_BYTES, QUEUE_BYTES};
use ringmain_hub::mail::{ChannelOptions, SlowConsumerPolicy};
use ringmain_hub::protocol::{Fault, compacted};
use ringmain_hub::subscribers::SubscriberLimits as Limits;
use ringmain_web::Origins;

use crate::app_proxy::{Proxy, ProxyEvent};
use crate::limits::{
    self, API_BODY_BYTES, CONNECTIONS_PER_USER, IDEMPOTENCY_WINDOW, PENDING_CONNECTS, PING_INTERVAL,
    PONG_TIMEOUT,
};
use crate::tokens::Tokens;

/// The options of push.
#[derive(Clone, Debug)]
pub struct Options {
    /// Channels without a `:`.
    pub default_namespace: Namespace,
    /// Other channels, by the part of the name before it.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Allows clients to connect without a token.
    pub anonymous: bool,
    /// The tokens that identify clients. `None`: tokens are rejected.
    pub tokens: Option<Tokens>,
    /// The namespace in which each user has a channel of its own, `NAMESPACE:#USER`, that the server subscribes the user's connections to.
    pub user_channel: Option<String>,
    /// Allowed origins of pages besides the server's own (`https://example.com`); `*` is any.
    pub origins: Vec<String>,
    /// The key of programs, sent as `X-API-Key`. `None`: `/api/` is not served.
    pub api_key: Option<String>,
    /// The time for which idempotency keys of publications are stored.
    pub idempotency_window: Duration,
    /// The limit of a worker's connections that are not identified; more receive 503 and retry.
    pub pending_connects: u32,
    /// The limit of a worker's connections within a second, as far as they are identified; more receive 503 and retry. `None`: no limit.
    pub connects_per_second: Option<u32>,
    /// The requests to the application.
    pub proxy: Proxy,
    /// The limits of one connection.
    pub limits: Limits,
    /// Connections of one user, across all workers; a further one is refused ([`Disconnect::CONNECTION_LIMIT`]). Anonymous clients are not
    /// counted: they are limited by web's limit of connections per address.
    ///
    /// [`Disconnect::CONNECTION_LIMIT`]: ringmain_hub::protocol::Disconnect::CONNECTION_LIMIT
    pub connections_per_user: u32,
    /// Channels of one worker.
    pub channels: usize,
    /// Bytes of a client's message, up to [`MESSAGE_BYTES_MAX`](limits::MESSAGE_BYTES_MAX). A WebSocket with a longer one is closed with
    /// 1009, a request receives 413.
    pub message_bytes: usize,
    /// Bytes of the body of an API request, up to [`API_BODY_BYTES_MAX`](limits::API_BODY_BYTES_MAX). More: 413.
    pub api_body_bytes: usize,
    /// The interval between pings, in whole seconds.
    pub ping_interval: Duration,
    /// The time that a client has for a pong, in whole seconds: at least 2, and at least 2 less than the interval.
    pub pong_timeout: Duration,
}

/// The format of publications' data. Other data is rejected with [`Fault::BAD_REQUEST`], also from the server API.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// One JSON value, which clients of both protocol formats can receive.
    #[default]
    Json,
    /// One JSON object.
    JsonObject,
    /// Any bytes, at least one. Clients of the JSON format cannot receive bytes that are not JSON: they are disconnected
    /// ([`Disconnect::INAPPROPRIATE_PROTOCOL`]), and their subscription is rejected ([`Fault::NOT_AVAILABLE`]) while such bytes would be in
    /// its reply.
    ///
    /// [`Disconnect::INAPPROPRIATE_PROTOCOL`]: ringmain_hub::protocol::Disconnect::INAPPROPRIATE_PROTOCOL
    Binary,
}

impl DataFormat {
    /// Checks data.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`].
    pub(crate) fn check(self, data: &[u8]) -> Result<(), Fault> {
        let is_json = || compacted(data).is_ok();
        let is_valid = match self {
            DataFormat::Json => is_json(),
            DataFormat::JsonObject => data.trim_ascii_start().starts_with(b"{") && is_json(),
            DataFormat::Binary => !data.is_empty(),
        };
        is_valid.then_some(()).ok_or(Fault::BAD_REQUEST)
    }

    /// Checks data that is known to be JSON.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`].
    pub(crate) fn check_json(self, json: &[u8]) -> Result<(), Fault> {
        match self {
            DataFormat::JsonObject if !json.trim_ascii_start().starts_with(b"{") => Err(Fault::BAD_REQUEST),
            _ => Ok(()),
        }
    }
}

/// The options of a namespace's channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Retention, presence, and the policy for slow consumers.
    pub channel_options: ChannelOptions,
    /// The clients that may subscribe without a token for the channel. Other clients have no permission in the channel at all, unless they
    /// were subscribed by a token or by the server.
    pub subscribe_access: SubscribeAccess,
    /// The format of publications' data.
    pub data_format: DataFormat,
    /// Allows clients to publish.
    pub publish: bool,
    /// Allows clients to query the history, and to recover it from the beginning (offset 0) without an epoch.
    pub history: bool,
    /// Allows clients to query the presence.
    pub presence: bool,
    /// Makes all clients recover missed publications from a position (offset and epoch). Otherwise those recover that may read the
    /// history and request a recoverable subscription.
    pub recovery: bool,
    /// Lets the application decide about subscriptions without a token for the channel ([`ProxyEvent::Subscribe`]), whatever
    /// `subscribe_access` is; except for channels of named users (`#`), private ones (`$`), and clients with a capability.
    pub subscribe_proxy: bool,
    /// Lets the application decide about publications of clients ([`ProxyEvent::Publish`]), whatever `publish` is.
    pub publish_proxy: bool,
    /// Lets the application renew expired subscriptions ([`ProxyEvent::SubRefresh`]).
    pub sub_refresh_proxy: bool,
}

/// The clients that may subscribe to channels without a token for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SubscribeAccess {
    /// All connected clients.
    #[default]
    Everyone,
    /// Clients with a user.
    Users,
    /// No client.
    NoOne,
}

impl SubscribeAccess {
    pub(crate) fn allows_user(self, user: &str) -> bool {
        match self {
            SubscribeAccess::Everyone => true,
            SubscribeAccess::Users => !user.is_empty(),
            SubscribeAccess::NoOne => false,
        }
    }
}

/// Returns the limit of bytes of a publication in a channel.
pub(crate) fn publication_limit(channel_options: &ChannelOptions) -> usize {
    if channel_options.delta {
        limits::DELTA_PUBLICATION_BYTES
    } else {
        limits::PUBLICATION_BYTES
    }
}

impl Namespace {
    /// Returns whether a subscriber receives the last publication without a request ([`ChannelOptions::cache_recovery`],
    /// [`ChannelOptions::conflation_interval`]).
    pub(crate) fn sends_latest(&self) -> bool {
        self.channel_options.cache_recovery || self.channel_options.conflation_interval.is_some()
    }

    /// Returns whether a client that has lost a publication is notified at once, so that a subscription can be positioned: publications are
    /// numbered, and none is dropped silently.
    pub(crate) fn reports_gaps(&self) -> bool {
        let ChannelOptions {
            history,
            slow_consumer,
            conflation_interval,
            ..
        } = self.channel_options;
        history.is_some()
            && conflation_interval.is_none()
            && matches!(
                slow_consumer,
                SlowConsumerPolicy::Disconnect | SlowConsumerPolicy::Resync
            )
    }
}

impl Default for Namespace {
    /// Returns channels without retention, in which clients may only subscribe.
    fn default() -> Self {
        Namespace {
            channel_options: ChannelOptions {
                history: None,
                position_ttl: Duration::from_secs(30 * 24 * 3600),
                presence: false,
                join_leave: false,
                slow_consumer: SlowConsumerPolicy::Disconnect,
                cache_recovery: false,
                conflation_interval: None,
                delta: false,
                tags_filter: false,
                compaction: false,
            },
            subscribe_access: SubscribeAccess::Everyone,
            data_format: DataFormat::Json,
            publish: false,
            history: false,
            presence: false,
            recovery: false,
            subscribe_proxy: false,
            publish_proxy: false,
            sub_refresh_proxy: false,
        }
    }
}

impl Default for Options {
    /// Returns channels without a namespace, as [`Namespace::default`], that no client may connect to yet.
    fn default() -> Self {
        Options {
            default_namespace: Namespace::default(),
            namespaces: BTreeMap::new(),
            anonymous: false,
            tokens: None,
            user_channel: None,
            origins: Vec::new(),
            api_key: None,
            idempotency_window: IDEMPOTENCY_WINDOW,
            pending_connects: PENDING_CONNECTS,
            connects_per_second: None,
            proxy: Proxy::default(),
            limits: Limits {
                subscriptions: 128,
                queued_bytes: QUEUE_BYTES,
            },
            connections_per_user: CONNECTIONS_PER_USER,
            channels: CHANNELS_PER_WORKER,
            message_bytes: MESSAGE_BYTES,
            api_body_bytes: API_BODY_BYTES,
            ping_interval: PING_INTERVAL,
            pong_timeout: PONG_TIMEOUT,
        }
    }
}

/// The reason why options are invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("push: {0}")]
pub struct OptionsError(String);

/// Valid options.
#[derive(Clone, Debug)]
pub(crate) struct ValidOptions {
    options: Options,
    /// The origins that may connect.
    pub(crate) pages: Origins,
}

impl ValidOptions {
    pub(crate) fn new(options: Options) -> Result<ValidOptions, OptionsError> {
        let mut pages = Origins::default();
        for origin in &options.origins {
            match &**origin {
                "*" => pages.allow_any(),
                origin => pages.allow(origin).map_err(OptionsError)?,
            }
        }
        options.validate().map_err(OptionsError)?;
        Ok(ValidOptions { options, pages })
    }
}

impl std::ops::Deref for ValidOptions {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Options {
    /// Checks the options.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn check(&self) -> Result<(), OptionsError> {
        ValidOptions::new(self.clone()).map(|_| ())
    }

    /// Returns the namespace of a channel.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`] for an invalid name: empty, longer than [`CHANNEL_BYTES`], or with bytes that are not printable ASCII;
    /// [`Fault::UNKNOWN_CHANNEL`] for an unknown namespace.
    pub fn namespace(&self, channel: &str) -> Result<&Namespace, Fault> {
        let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if channel.is_empty() || channel.len() > CHANNEL_BYTES || !channel.bytes().all(is_printable) {
            return Err(Fault::BAD_REQUEST);
        }
        // A channel may be private (`$`) in any namespace.
        let name = channel.strip_prefix('$').unwrap_or(channel);
        // An empty namespace is none.
        match name
            .split_once(':')
            .filter(|(namespace, _)| !namespace.is_empty())
        {
            Some((namespace, _)) => self.namespaces.get(namespace).ok_or(Fault::UNKNOWN_CHANNEL),
            None => Ok(&self.default_namespace),
        }
    }

    /// Returns the user's own channel, if users have such.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`]: the user's name cannot be part of a channel's name, or would name another user's channel as well.
    pub(crate) fn user_channel_name(&self, user: &str) -> Result<Option<String>, Fault> {
        let Some(namespace) = self.user_channel.as_ref().filter(|_| !user.is_empty()) else {
            return Ok(None);
        };
        let channel = format!("{namespace}:#{user}");
        self.namespace(&channel)?;
        // A comma would separate two users, and the last `#` starts the list of users.
        if user.contains([',', '#']) {
            Err(Fault::BAD_REQUEST)
        } else {
            Ok(Some(channel))
        }
    }

    /// Returns the time that bytes to a client may remain unacknowledged: as long as a ping takes to detect a dead client.
    pub(crate) fn unacknowledged_within(&self) -> Duration {
        self.ping_interval + self.pong_timeout + limits::UNACKNOWLEDGED_GRACE
    }

    fn validate_pings(&self) -> Result<(), String> {
        let (ping, pong) = (self.ping_interval, self.pong_timeout);
        let is_whole_seconds = |time: Duration| time.subsec_nanos() == 0;
        if !is_whole_seconds(ping) || !is_whole_seconds(pong) || ping > limits::PING_INTERVAL_MAX {
            let limit = limits::PING_INTERVAL_MAX.as_secs();
            return Err(format!(
                "pings: expected whole seconds, at most {limit}, found {ping:?} and {pong:?}"
            ));
        }
        if pong.as_secs() >= 2 && pong.as_secs() + 2 <= ping.as_secs() {
            Ok(())
        } else {
            Err(format!(
                "pings: expected a pong timeout of at least 2 s, and at least 2 s less than the interval of {ping:?}, found {pong:?}"
            ))
        }
    }

    /// Checks all but the origins.
    fn validate(&self) -> Result<(), String> {
        if let Some(tokens) = &self.tokens {
            tokens.check()?;
        }
        let limit = [
            ("handshakes", Some(self.pending_connects)),
            ("connects per second", self.connects_per_second),
        ];
        if let Some((limit_name, _)) = limit.iter().find(|(_, limit)| *limit == Some(0)) {
            return Err(format!("{limit_name}: expected at least 1, found 0"));
        }
        for (name, value, limit) in [
            (
                "bytes of a message",
                self.message_bytes,
                limits::MESSAGE_BYTES_MAX,
            ),
            (
                "bytes of a body of the API",
                self.api_body_bytes,
                limits::API_BODY_BYTES_MAX,
            ),
        ] {
            if !(limits::MIN_BYTES..=limit).contains(&value) {
                let min = limits::MIN_BYTES;
                return Err(format!("{name}: expected {min} to {limit}, found {value}"));
            }
        }
        self.validate_pings()?;
        self.proxy.validate()?;
        let plain = [("channels without a namespace", &self.default_namespace)];
        let named = self.namespaces.iter().map(|(name, options)| (&**name, options));
        for (name, options) in plain.into_iter().chain(named) {
            let required = [
                (options.subscribe_proxy, ProxyEvent::Subscribe),
                (options.publish_proxy, ProxyEvent::Publish),
                (options.sub_refresh_proxy, ProxyEvent::SubRefresh),
            ];
            let mut required = required.into_iter().filter(|(is_required, _)| *is_required);
            if let Some((_, event)) = required.find(|(_, event)| !self.proxy.is_enabled(*event)) {
                let event = event.name();
                return Err(format!(
                    "expected an endpoint of the application for `{event}`, which `{name}` requires, found none"
                ));
            }
        }
        match &self.user_channel {
            Some(name) if !self.namespaces.contains_key(name) => Err(format!(
                "users' own channels: expected the name of a namespace, found `{name}`"
            )),
            _ => Ok(()),
        }
    }
}
