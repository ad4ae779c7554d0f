//! What channels do and who may do what: by namespaces, which are the part of a channel's name before `:`.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_hub::limits::{CHANNEL_BYTES, CHANNELS_PER_WORKER, MESSAGE_BYTES, QUEUE_BYTES};
use ringmain_hub::mail::{ChannelOptions, SlowConsumerPolicy};
use ringmain_hub::protocol::{Fault, compacted};
use ringmain_hub::subscribers::SubscriberLimits as Limits;
use ringmain_web::Origins;

use crate::asking::{Event, Proxy};
use crate::limits::{
    self, API_BODY_BYTES, CONNECTIONS_PER_USER, HANDSHAKES, KEYS_REMEMBERED, PING_EVERY, PONG_WITHIN,
};
use crate::tokens::Tokens;

/// Settings of push.
#[derive(Clone, Debug)]
pub struct Options {
    /// Of channels without a `:`.
    pub plain: Namespace,
    /// Of others, by what is before it.
    pub namespaces: BTreeMap<String, Namespace>,
    /// Whether clients connect without saying who they are.
    pub anonymous: bool,
    /// By what others say who they are. `None`: nobody can.
    pub tokens: Option<Tokens>,
    /// The namespace in which each user has a channel of its own, `NAMESPACE:#USER`, that the server subscribes its connections
    /// to.
    pub user_channel: Option<String>,
    /// Which pages may connect besides those of the same origin (`https://example.com`); `*` is any.
    pub origins: Vec<String>,
    /// What programs of the owner's say in `X-API-Key`. `None`: there is no `/api/`.
    pub api_key: Option<String>,
    /// How long keys of programs' publications are remembered.
    pub keys_remembered: Duration,
    /// Clients of one worker that are about to say who they are; more are answered 503 and come back.
    pub handshakes: u32,
    /// Clients that one worker lets in within a second, as far as they say who they are; more are answered 503 and come back. `None`:
    /// as many as come.
    pub connects_per_second: Option<u32>,
    /// What the application is asked about.
    pub proxy: Proxy,
    /// Of one connection.
    pub limits: Limits,
    /// Connections of one user, of all workers; of more the new one is refused ([`Disconnect::CONNECTION_LIMIT`]). Those whom we
    /// do not know are not counted: web's limit for an address is for them.
    ///
    /// [`Disconnect::CONNECTION_LIMIT`]: ringmain_hub::protocol::Disconnect::CONNECTION_LIMIT
    pub connections_per_user: u32,
    /// Channels that are at home at one worker.
    pub channels: usize,
    /// Bytes of a client's message, up to [`MESSAGE_BYTES_MOST`](limits::MESSAGE_BYTES_MOST). A WebSocket with a longer one is closed with
    /// 1009, a request is answered 413.
    pub message_bytes: usize,
    /// Bytes of the body of a program's request, up to [`API_BODY_BYTES_MOST`](limits::API_BODY_BYTES_MOST). More: 413.
    pub api_body_bytes: usize,
    /// How often a client is pinged, in whole seconds.
    pub ping_interval: Duration,
    /// How long a client may take to answer a ping, in whole seconds: at least 2, and at least 2 less than the interval.
    pub pong_timeout: Duration,
    /// How long the process drains before it ends. Clients are sent away within half of it, at most
    /// [`SENT_AWAY_WITHIN`](crate::limits::SENT_AWAY_WITHIN).
    pub drain: Duration,
}

/// What the data of publications must be. Anything else is refused with [`Fault::BAD_REQUEST`], whoever publishes it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DataFormat {
    /// One JSON value, so that clients of both formats can be sent it.
    #[default]
    Json,
    /// One JSON object.
    JsonObject,
    /// Any bytes, at least one. Clients of the JSON format cannot be sent what is not JSON: they are disconnected
    /// ([`Disconnect::INAPPROPRIATE_PROTOCOL`]), and their subscription is refused ([`Fault::NOT_AVAILABLE`]) while such bytes would
    /// be in its reply.
    ///
    /// [`Disconnect::INAPPROPRIATE_PROTOCOL`]: ringmain_hub::protocol::Disconnect::INAPPROPRIATE_PROTOCOL
    Binary,
}

impl DataFormat {
    /// Whether data is of this format.
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

    /// The same of data that is JSON.
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

/// What channels of a namespace do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// What they keep and tell.
    pub rules: ChannelOptions,
    /// Who may subscribe without a token for the channel. Whoever may not, may not do anything else there, either, unless it was
    /// subscribed by a token, or by the server.
    pub listen: Listen,
    /// What the data of publications must be.
    pub data_format: DataFormat,
    /// Clients may publish.
    pub publish: bool,
    /// Clients may ask what was published, and recover it from the beginning (offset 0) without an epoch.
    pub history: bool,
    /// Clients may ask who is there.
    pub presence: bool,
    /// Clients recover what they have missed since a position (offset and epoch), whether or not they ask for that beforehand. Without
    /// it those recover that may read the history and ask for a recoverable subscription.
    pub recovery: bool,
    /// The application says who may subscribe without a token for the channel ([`Event::Subscribe`]), whatever `listen` says; but
    /// for channels of named users (`#`) and private ones (`$`), and for who may by a capability.
    pub subscribe_proxy: bool,
    /// The application says what clients publish ([`Event::Publish`]), whatever `publish` says.
    pub publish_proxy: bool,
    /// The application says whether subscriptions go on whose time is over ([`Event::SubRefresh`]).
    pub sub_refresh_proxy: bool,
}

/// Who may subscribe to channels without a token for them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Listen {
    /// Everybody who is connected.
    #[default]
    Anybody,
    /// Users: everybody of whom it is known who it is.
    Users,
    /// Nobody.
    Nobody,
}

impl Listen {
    pub(crate) fn lets_in(self, user: &str) -> bool {
        match self {
            Listen::Anybody => true,
            Listen::Users => !user.is_empty(),
            Listen::Nobody => false,
        }
    }
}

impl Namespace {
    /// Whether who subscribes is given the last publication without asking ([`ChannelOptions::cache_recovery`], [`ChannelOptions::conflation_interval`]).
    pub(crate) fn shows_last(&self) -> bool {
        self.rules.cache_recovery || self.rules.conflation_interval.is_some()
    }

    /// Whether a client of it that has lost a publication is told so at once, so that a subscription can be called positioned:
    /// it is numbered, and none is left out in silence.
    pub(crate) fn tells_gaps(&self) -> bool {
        let ChannelOptions {
            history,
            slow_consumer,
            conflation_interval,
            ..
        } = self.rules;
        history.is_some()
            && conflation_interval.is_none()
            && matches!(
                slow_consumer,
                SlowConsumerPolicy::Disconnect | SlowConsumerPolicy::Resync
            )
    }
}

impl Default for Namespace {
    /// Channels that keep nothing and that clients may only listen to.
    fn default() -> Self {
        Namespace {
            rules: ChannelOptions {
                history: None,
                position_ttl: Duration::from_secs(30 * 24 * 3600),
                presence: false,
                join_leave: false,
                slow_consumer: SlowConsumerPolicy::Disconnect,
                cache_recovery: false,
                conflation_interval: None,
            },
            listen: Listen::Anybody,
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
    /// Channels without a namespace, as [`Namespace::default`]; nobody is let in yet.
    fn default() -> Self {
        Options {
            plain: Namespace::default(),
            namespaces: BTreeMap::new(),
            anonymous: false,
            tokens: None,
            user_channel: None,
            origins: Vec::new(),
            api_key: None,
            keys_remembered: KEYS_REMEMBERED,
            handshakes: HANDSHAKES,
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
            ping_interval: PING_EVERY,
            pong_timeout: PONG_WITHIN,
            drain: Duration::from_secs(30),
        }
    }
}

/// Settings that cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("push: {0}")]
pub struct OptionsError(String);

/// Settings that can be, as they are looked at.
#[derive(Clone, Debug)]
pub(crate) struct Checked {
    options: Options,
    /// Which pages may connect.
    pub(crate) pages: Origins,
}

impl Checked {
    pub(crate) fn new(options: Options) -> Result<Checked, OptionsError> {
        let mut pages = Origins::default();
        for origin in &options.origins {
            match &**origin {
                "*" => pages.allow_any(),
                origin => pages.allow(origin).map_err(OptionsError)?,
            }
        }
        options.fault().map_err(OptionsError)?;
        Ok(Checked { options, pages })
    }
}

impl std::ops::Deref for Checked {
    type Target = Options;

    fn deref(&self) -> &Options {
        &self.options
    }
}

impl Options {
    /// Whether these can be.
    ///
    /// # Errors
    /// [`OptionsError`].
    pub fn check(&self) -> Result<(), OptionsError> {
        Checked::new(self.clone()).map(|_| ())
    }

    /// The namespace of a channel.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`] for what is no name: empty, longer than [`CHANNEL_BYTES`], or with bytes that are not printable
    /// ASCII; [`Fault::UNKNOWN_CHANNEL`] for a namespace that is not there.
    pub fn namespace(&self, channel: &str) -> Result<&Namespace, Fault> {
        let is_printable = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        if channel.is_empty() || channel.len() > CHANNEL_BYTES || !channel.bytes().all(is_printable) {
            return Err(Fault::BAD_REQUEST);
        }
        // A channel may be private (`$`) in any namespace.
        let name = channel.strip_prefix('$').unwrap_or(channel);
        // Nothing before the colon is no namespace.
        match name
            .split_once(':')
            .filter(|(namespace, _)| !namespace.is_empty())
        {
            Some((namespace, _)) => self.namespaces.get(namespace).ok_or(Fault::UNKNOWN_CHANNEL),
            None => Ok(&self.plain),
        }
    }

    /// The channel of a user's own, if users have such.
    ///
    /// # Errors
    /// [`Fault::BAD_REQUEST`]: the user's name cannot be a part of a channel's, or its channel would be another one's, too.
    pub(crate) fn channel_of(&self, user: &str) -> Result<Option<String>, Fault> {
        let Some(namespace) = self.user_channel.as_ref().filter(|_| !user.is_empty()) else {
            return Ok(None);
        };
        let channel = format!("{namespace}:#{user}");
        self.namespace(&channel)?;
        // A comma would part it into two users, and the last `#` is the one that counts.
        match user.contains([',', '#']) {
            true => Err(Fault::BAD_REQUEST),
            false => Ok(Some(channel)),
        }
    }

    /// How long bytes that were sent to a client may stay unacknowledged: as long as one takes to be found out by a ping.
    pub(crate) fn unacknowledged_within(&self) -> Duration {
        self.ping_interval + self.pong_timeout + limits::UNACKNOWLEDGED_BEYOND
    }

    fn pings(&self) -> Result<(), String> {
        let (ping, pong) = (self.ping_interval, self.pong_timeout);
        let is_whole = |time: Duration| time.subsec_nanos() == 0;
        if !is_whole(ping) || !is_whole(pong) || ping > limits::PING_EVERY_MOST {
            let most = limits::PING_EVERY_MOST.as_secs();
            return Err(format!(
                "pings: expected whole seconds, at most {most}, found {ping:?} and {pong:?}"
            ));
        }
        match pong.as_secs() >= 2 && pong.as_secs() + 2 <= ping.as_secs() {
            true => Ok(()),
            false => Err(format!(
                "pings: expected an answer within at least 2 s, and at least 2 s less than the interval of {ping:?}, found {pong:?}"
            )),
        }
    }

    /// What is wrong with them, but for origins.
    fn fault(&self) -> Result<(), String> {
        if let Some(tokens) = &self.tokens {
            tokens.check()?;
        }
        let most = [
            ("handshakes", Some(self.handshakes)),
            ("connects per second", self.connects_per_second),
        ];
        if let Some((what, _)) = most.iter().find(|(_, most)| *most == Some(0)) {
            return Err(format!("{what}: expected at least 1, found 0"));
        }
        for (name, found, most) in [
            (
                "bytes of a message",
                self.message_bytes,
                limits::MESSAGE_BYTES_MOST,
            ),
            (
                "bytes of a body of the API",
                self.api_body_bytes,
                limits::API_BODY_BYTES_MOST,
            ),
        ] {
            if !(limits::LEAST_BYTES..=most).contains(&found) {
                let least = limits::LEAST_BYTES;
                return Err(format!("{name}: expected {least} to {most}, found {found}"));
            }
        }
        self.pings()?;
        self.proxy.fault()?;
        let plain = [("channels without a namespace", &self.plain)];
        let named = self.namespaces.iter().map(|(name, it)| (&**name, it));
        for (name, it) in plain.into_iter().chain(named) {
            let wanted = [
                (it.subscribe_proxy, Event::Subscribe),
                (it.publish_proxy, Event::Publish),
                (it.sub_refresh_proxy, Event::SubRefresh),
            ];
            let mut wanted = wanted.into_iter().filter(|(is_wanted, _)| *is_wanted);
            if let Some((_, event)) = wanted.find(|(_, event)| !self.proxy.is_asked(*event)) {
                let event = event.name();
                return Err(format!(
                    "expected an application that is asked about `{event}`, as `{name}` wants it, found none"
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
