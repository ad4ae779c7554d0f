//! Bodies of requests, as in Centrifugo's API.
//!
//! A field that is not set may be absent, `null`, or have the zero value of its type (an empty text or list, 0, `false`), since some
//! libraries send it so. An unknown field is rejected, and so is a value that is not supported: no command is executed partially.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::history::HistoryQuery;
use ringmain_hub::limits::KEY_BYTES;
use ringmain_hub::mail::{ChannelQuery, EpochFilter, Idempotency, PublishOptions};
use ringmain_hub::protocol::{Fault, Published, compact, compacted};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use crate::limits;
use crate::options::Options;
use crate::tokens::claims::{Overrides, OverridesJson, SubscribeOptions};
use crate::worker::ApiPublication;
use crate::worker::user_commands::{ConnectionCommand, UserAction};

/// A command of a program.
pub(super) enum Command {
    Publish(Box<Publish>),
    Broadcast(Box<Broadcast>),
    Subscribe(Box<Subscribe>),
    Unsubscribe(Unsubscribe),
    Disconnect(Box<Disconnect>),
    Refresh(Box<Refresh>),
    Presence(Presence),
    PresenceStats(PresenceStats),
    History(History),
    HistoryRemove(HistoryRemove),
    Channels(Channels),
    Info(Info),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Batch {
    pub(super) commands: Vec<Box<RawValue>>,
    /// Allows the commands to be executed concurrently.
    pub(super) parallel: Option<bool>,
}

/// A publication in one channel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    pub(super) channel: String,
    #[serde(default, deserialize_with = "deserialize_raw")]
    pub(super) data: Option<Box<RawValue>>,
    pub(super) b64data: Option<String>,
    pub(super) skip_history: Option<bool>,
    pub(super) tags: Option<BTreeMap<String, String>>,
    pub(super) idempotency_key: Option<String>,
    /// Accepted and ignored: the namespace decides about deltas.
    #[serde(rename = "delta")]
    pub(super) _delta: Option<bool>,
    pub(super) version: Option<u64>,
    #[serde(rename = "version_epoch")]
    pub(super) _version_epoch: Option<String>,
}

/// A publication in many channels.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Broadcast {
    pub(super) channels: Vec<String>,
    #[serde(default, deserialize_with = "deserialize_raw")]
    pub(super) data: Option<Box<RawValue>>,
    pub(super) b64data: Option<String>,
    pub(super) skip_history: Option<bool>,
    pub(super) tags: Option<BTreeMap<String, String>>,
    pub(super) idempotency_key: Option<String>,
    #[serde(rename = "delta")]
    pub(super) _delta: Option<bool>,
    pub(super) version: Option<u64>,
    #[serde(rename = "version_epoch")]
    pub(super) _version_epoch: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscribe {
    pub(super) user: String,
    pub(super) channel: String,
    pub(super) client: Option<String>,
    pub(super) session: Option<String>,
    pub(super) expire_at: Option<i64>,
    pub(super) info: Option<Box<RawValue>>,
    pub(super) b64info: Option<String>,
    pub(super) data: Option<Box<RawValue>>,
    pub(super) b64data: Option<String>,
    pub(super) recover_since: Option<SincePosition>,
    pub(super) r#override: Option<OverridesJson>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unsubscribe {
    pub(super) user: String,
    pub(super) channel: String,
    pub(super) client: Option<String>,
    pub(super) session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disconnect {
    pub(super) user: String,
    pub(super) client: Option<String>,
    pub(super) session: Option<String>,
    // gocent 3 sends these two with the names of Go's fields.
    #[serde(alias = "ClientWhitelist")]
    pub(super) whitelist: Option<Vec<String>>,
    #[serde(alias = "Disconnect")]
    pub(super) disconnect: Option<DisconnectReason>,
}

/// The disconnect code.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DisconnectReason {
    #[serde(default)]
    pub(super) code: u32,
    #[serde(rename = "reason")]
    pub(super) _reason: Option<String>,
    #[serde(rename = "reconnect")]
    pub(super) _reconnect: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refresh {
    pub(super) user: String,
    pub(super) client: Option<String>,
    pub(super) session: Option<String>,
    pub(super) expired: Option<bool>,
    pub(super) expire_at: Option<i64>,
    pub(super) info: Option<Box<RawValue>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Presence {
    pub(super) channel: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PresenceStats {
    pub(super) channel: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct History {
    pub(super) channel: String,
    pub(super) limit: Option<i64>,
    pub(super) since: Option<SincePosition>,
    pub(super) reverse: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryRemove {
    pub(super) channel: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Channels {
    pub(super) pattern: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Info {}

/// A position in a channel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SincePosition {
    pub(super) offset: Option<u64>,
    pub(super) epoch: Option<String>,
}

macro_rules! commands {
    ($($boxed:ident)*; $($plain:ident)*) => {
        $(impl From<$boxed> for Command {
            fn from(request: $boxed) -> Command {
                Command::$boxed(Box::new(request))
            }
        })*
        $(impl From<$plain> for Command {
            fn from(request: $plain) -> Command {
                Command::$plain(request)
            }
        })*
    };
}

commands!(Publish Broadcast Subscribe Disconnect Refresh;
    Unsubscribe Presence PresenceStats History HistoryRemove Channels Info);

/// A command by its method, as sent by libraries for versions before 6.
#[derive(Deserialize)]
pub(super) struct MethodCall<'c> {
    #[serde(borrow)]
    pub(super) method: Cow<'c, str>,
    #[serde(borrow)]
    pub(super) params: Option<&'c RawValue>,
}

impl Command {
    /// Parses a command of a batch: an object with one key, the method.
    ///
    /// # Errors
    /// [`Fault::METHOD_NOT_FOUND`] for an unknown method, [`Fault::BAD_REQUEST`] for invalid parameters.
    pub(super) fn parse(command: &RawValue) -> Result<Command, Fault> {
        let named: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(command.get()).map_err(|_| Fault::BAD_REQUEST)?;
        let mut named = named.into_iter();
        match (named.next(), named.next()) {
            (Some((method, params)), None) => Command::from_method(&method, Some(params)),
            (None, _) => Err(Fault::METHOD_NOT_FOUND),
            _ => Err(Fault::BAD_REQUEST),
        }
    }

    /// Parses a command by its method.
    ///
    /// # Errors
    /// As [`Command::parse`].
    pub(super) fn from_method(method: &str, params: Option<&RawValue>) -> Result<Command, Fault> {
        fn read<C: DeserializeOwned + Into<Command>>(params: Option<&RawValue>) -> Result<Command, Fault> {
            let params = params.map_or("{}", RawValue::get);
            let params = if params == "null" { "{}" } else { params };
            serde_json::from_str::<C>(params)
                .map(Into::into)
                .map_err(|_| Fault::BAD_REQUEST)
        }
        match method {
            "publish" => read::<Publish>(params),
            "broadcast" => read::<Broadcast>(params),
            "subscribe" => read::<Subscribe>(params),
            "unsubscribe" => read::<Unsubscribe>(params),
            "disconnect" => read::<Disconnect>(params),
            "refresh" => read::<Refresh>(params),
            "presence" => read::<Presence>(params),
            "presence_stats" => read::<PresenceStats>(params),
            "history" => read::<History>(params),
            "history_remove" => read::<HistoryRemove>(params),
            "channels" => read::<Channels>(params),
            "info" => read::<Info>(params),
            _ => Err(Fault::METHOD_NOT_FOUND),
        }
    }

    /// Returns the user whose connections the command addresses. `None`: it addresses no user.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Command::Subscribe(request) => Some(&request.user),
            Command::Unsubscribe(request) => Some(&request.user),
            Command::Disconnect(request) => Some(&request.user),
            Command::Refresh(request) => Some(&request.user),
            _ => None,
        }
    }

    /// Returns the name of the method.
    pub(super) fn method_name(&self) -> &'static str {
        match self {
            Command::Publish(_) => "publish",
            Command::Broadcast(_) => "broadcast",
            Command::Subscribe(_) => "subscribe",
            Command::Unsubscribe(_) => "unsubscribe",
            Command::Disconnect(_) => "disconnect",
            Command::Refresh(_) => "refresh",
            Command::Presence(_) => "presence",
            Command::PresenceStats(_) => "presence_stats",
            Command::History(_) => "history",
            Command::HistoryRemove(_) => "history_remove",
            Command::Channels(_) => "channels",
            Command::Info(_) => "info",
        }
    }
}

impl Publish {
    /// Returns the channel and the publication.
    pub(super) fn read(self, options: &Options) -> Result<(Arc<str>, ApiPublication), Fault> {
        let publish_options = publish_options(self.skip_history, self.idempotency_key, options)?;
        let publication =
            build_publication(self.data, self.b64data, self.tags, self.version, publish_options)?;
        Ok((self.channel.into(), publication))
    }
}

impl Broadcast {
    /// Returns the channels and the publication.
    pub(super) fn read(self, options: &Options) -> Result<(Vec<Arc<str>>, ApiPublication), Fault> {
        if self.channels.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        if self.channels.len() > limits::BROADCAST_CHANNELS {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let publish_options = publish_options(self.skip_history, self.idempotency_key, options)?;
        let publication =
            build_publication(self.data, self.b64data, self.tags, self.version, publish_options)?;
        Ok((self.channels.into_iter().map(Arc::from).collect(), publication))
    }
}

fn publish_options(
    skip_history: Option<bool>,
    key: Option<String>,
    options: &Options,
) -> Result<Option<Box<PublishOptions>>, Fault> {
    let key = key.filter(|key| !key.is_empty());
    if key.as_ref().is_some_and(|key| key.len() > KEY_BYTES) {
        return Err(Fault::BAD_REQUEST);
    }
    let publish_options = PublishOptions {
        transient: skip_history == Some(true),
        idempotency: key.map(|key| Idempotency {
            key: key.into(),
            window: options.idempotency_window,
        }),
    };
    Ok((publish_options != PublishOptions::default()).then(|| Box::new(publish_options)))
}

fn build_publication(
    json: Option<Box<RawValue>>,
    base64: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    version: Option<u64>,
    options: Option<Box<PublishOptions>>,
) -> Result<ApiPublication, Fault> {
    if version.is_some_and(|version| version > 0) {
        // A publication with a lower version than the last must not reach clients.
        return Err(Fault::NOT_AVAILABLE);
    }
    let is_encoded = base64.as_ref().is_some_and(|text| !text.is_empty());
    let data = decode_bytes(json, base64)?;
    if data.is_empty() {
        return Err(Fault::BAD_REQUEST);
    }
    // Checked once for all channels of a broadcast.
    let is_json = !is_encoded || compacted(&data).is_ok();
    let published = Arc::new(Published {
        data,
        tags: tags.unwrap_or_default(),
        ..Published::default()
    });
    Ok(ApiPublication {
        published,
        is_json,
        options,
    })
}

/// Distinguishes `null`, which can be published, from an absent field.
fn deserialize_raw<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// Decodes base64 if there is any; otherwise returns the JSON without line breaks.
fn decode_bytes(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Bytes, Fault> {
    match (json, base64.filter(|text| !text.is_empty())) {
        (_, Some(text)) => STANDARD
            .decode(text)
            .map(Bytes::from)
            .map_err(|_| Fault::BAD_REQUEST),
        (Some(json), None) => {
            let bytes = Bytes::from(Box::<[u8]>::from(Box::<str>::from(json)));
            compact(&bytes).map_err(|_| Fault::BAD_REQUEST)
        }
        (None, None) => Ok(Bytes::new()),
    }
}

/// Creates a command for all connections of a user, or for a single one.
fn user_command(
    user: String,
    client: Option<String>,
    session: Option<&str>,
    action: UserAction,
) -> Result<ConnectionCommand, Fault> {
    if user.is_empty() {
        return Err(Fault::BAD_REQUEST);
    }
    if session.is_some_and(|session| !session.is_empty()) {
        return Err(Fault::NOT_AVAILABLE);
    }
    Ok(ConnectionCommand {
        user: user.into(),
        client: client.filter(|client| !client.is_empty()).map(Into::into),
        action,
        progress: None,
    })
}

impl Subscribe {
    pub(super) fn read(self, options: &Options) -> Result<ConnectionCommand, Fault> {
        let namespace = options.namespace(&self.channel)?;
        let since = self.recover_since;
        if since.is_some_and(|since| since.is_set()) || self.expire_at.is_some_and(|at| at != 0) {
            return Err(Fault::NOT_AVAILABLE);
        }
        let overrides = self.r#override.map(Overrides::from).unwrap_or_default();
        overrides.apply_to(namespace)?;
        let subscribe_options = SubscribeOptions {
            info: decode_bytes(self.info, self.b64info)?,
            data: decode_bytes(self.data, self.b64data)?,
            overrides,
        };
        let action = UserAction::Subscribe(self.channel.into(), subscribe_options);
        user_command(self.user, self.client, self.session.as_deref(), action)
    }
}

impl Unsubscribe {
    pub(super) fn read(self, options: &Options) -> Result<ConnectionCommand, Fault> {
        options.namespace(&self.channel)?;
        let action = UserAction::Unsubscribe(self.channel.into());
        user_command(self.user, self.client, self.session.as_deref(), action)
    }
}

impl Disconnect {
    pub(super) fn read(self) -> Result<ConnectionCommand, Fault> {
        let keeps = self.whitelist.unwrap_or_default();
        if keeps.len() > limits::WHITELIST {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let keeps = keeps.into_iter().map(Arc::from).collect();
        let forced = ringmain_hub::protocol::Disconnect::FORCED.code;
        if self
            .disconnect
            .is_some_and(|disconnect| disconnect.code != 0 && disconnect.code != forced)
        {
            return Err(Fault::NOT_AVAILABLE);
        }
        user_command(
            self.user,
            self.client,
            self.session.as_deref(),
            UserAction::Disconnect(keeps),
        )
    }
}

impl Refresh {
    pub(super) fn read(self) -> Result<ConnectionCommand, Fault> {
        let expires_at = u64::try_from(self.expire_at.unwrap_or(0)).map_err(|_| Fault::BAD_REQUEST)?;
        let info = decode_bytes(self.info, None)?;
        let action = match self.expired {
            Some(true) => UserAction::Expire,
            _ => UserAction::Refresh {
                until: Some(expires_at).filter(|expires_at| *expires_at > 0),
                info,
            },
        };
        user_command(self.user, self.client, self.session.as_deref(), action)
    }
}

impl SincePosition {
    fn is_set(&self) -> bool {
        self.offset.is_some_and(|offset| offset > 0)
            || self.epoch.as_ref().is_some_and(|epoch| !epoch.is_empty())
    }
}

impl History {
    /// Returns the channel and the query.
    pub(super) fn read(self) -> (String, ChannelQuery) {
        let limit = self.limit.unwrap_or(0);
        let since = self.since.as_ref();
        let epoch = since.and_then(|since| since.epoch.as_deref());
        let query = ChannelQuery::History {
            query: HistoryQuery {
                since: since.map(|since| since.offset.unwrap_or(0)),
                // A negative limit returns all.
                limit: usize::try_from(limit)
                    .unwrap_or(usize::MAX)
                    .min(limits::API_HISTORY_PUBLICATIONS),
                reverse: self.reverse == Some(true),
            },
            epoch: EpochFilter::parse(epoch.unwrap_or_default()),
        };
        (self.channel, query)
    }
}
