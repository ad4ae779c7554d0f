//! What programs say: bodies of requests, as Centrifugo's API has them.
//!
//! What is not set may be left out, be `null`, or have the first value of its kind (an empty text, 0, `false`, nothing in it), since
//! there are libraries that say it so. A name that is none is refused, and what is asked for and cannot be done is, too: nothing is
//! done by half.

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

use super::Pattern;
use crate::client::reply_queue::publication_weight;
use crate::limits;
use crate::options::Options;
use crate::publish::publisher::Publishing;
use crate::tokens::claims::{Overrides, OverridesSaid, Terms};
use crate::worker::user_commands::{Order, What};

/// What a program wants done, by the name that a batch has for it.
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
    /// They may be carried out beside each other.
    pub(super) parallel: Option<bool>,
}

/// What is published, in one channel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Publish {
    pub(super) channel: String,
    #[serde(default, deserialize_with = "said")]
    data: Option<Box<RawValue>>,
    b64data: Option<String>,
    skip_history: Option<bool>,
    tags: Option<BTreeMap<String, String>>,
    idempotency_key: Option<String>,
    /// A difference would be made if it can be: it cannot.
    #[serde(rename = "delta")]
    _delta: Option<bool>,
    version: Option<u64>,
    #[serde(rename = "version_epoch")]
    _version_epoch: Option<String>,
}

/// The same in many.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Broadcast {
    pub(super) channels: Vec<String>,
    #[serde(default, deserialize_with = "said")]
    data: Option<Box<RawValue>>,
    b64data: Option<String>,
    skip_history: Option<bool>,
    tags: Option<BTreeMap<String, String>>,
    idempotency_key: Option<String>,
    #[serde(rename = "delta")]
    _delta: Option<bool>,
    version: Option<u64>,
    #[serde(rename = "version_epoch")]
    _version_epoch: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Subscribe {
    user: String,
    channel: String,
    client: Option<String>,
    session: Option<String>,
    expire_at: Option<i64>,
    info: Option<Box<RawValue>>,
    b64info: Option<String>,
    data: Option<Box<RawValue>>,
    b64data: Option<String>,
    recover_since: Option<Position>,
    r#override: Option<OverridesSaid>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Unsubscribe {
    user: String,
    channel: String,
    client: Option<String>,
    session: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Disconnect {
    user: String,
    client: Option<String>,
    session: Option<String>,
    // gocent 3 sends these two with the names of Go's fields.
    #[serde(alias = "ClientWhitelist")]
    whitelist: Option<Vec<String>>,
    #[serde(alias = "Disconnect")]
    disconnect: Option<Why>,
}

/// How a connection is to end.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Why {
    #[serde(default)]
    code: u32,
    #[serde(rename = "reason")]
    _reason: Option<String>,
    #[serde(rename = "reconnect")]
    _reconnect: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Refresh {
    user: String,
    client: Option<String>,
    session: Option<String>,
    expired: Option<bool>,
    expire_at: Option<i64>,
    info: Option<Box<RawValue>>,
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
    limit: Option<i64>,
    since: Option<Position>,
    reverse: Option<bool>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HistoryRemove {
    pub(super) channel: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Channels {
    pattern: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Info {}

/// A place in a channel.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Position {
    offset: Option<u64>,
    epoch: Option<String>,
}

macro_rules! commands {
    ($($boxed:ident)*; $($plain:ident)*) => {
        $(impl From<$boxed> for Command {
            fn from(said: $boxed) -> Command {
                Command::$boxed(Box::new(said))
            }
        })*
        $(impl From<$plain> for Command {
            fn from(said: $plain) -> Command {
                Command::$plain(said)
            }
        })*
    };
}

commands!(Publish Broadcast Subscribe Disconnect Refresh;
    Unsubscribe Presence PresenceStats History HistoryRemove Channels Info);

/// A command by its method, as libraries for versions before 6 say it.
#[derive(Deserialize)]
pub(super) struct Called<'c> {
    #[serde(borrow)]
    pub(super) method: Cow<'c, str>,
    #[serde(borrow)]
    pub(super) params: Option<&'c RawValue>,
}

impl Command {
    /// Reads one of a batch: an object with one name, which is the method's.
    ///
    /// # Errors
    /// [`Fault::METHOD_NOT_FOUND`] for a method that is none, [`Fault::BAD_REQUEST`] for what it does not take.
    pub(super) fn parse(command: &RawValue) -> Result<Command, Fault> {
        let named: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(command.get()).map_err(|_| Fault::BAD_REQUEST)?;
        let mut named = named.into_iter();
        match (named.next(), named.next()) {
            (Some((method, params)), None) => Command::of_method(&method, Some(params)),
            (None, _) => Err(Fault::METHOD_NOT_FOUND),
            _ => Err(Fault::BAD_REQUEST),
        }
    }

    /// Reads one by its method.
    ///
    /// # Errors
    /// As [`Command::parse`].
    pub(super) fn of_method(method: &str, params: Option<&RawValue>) -> Result<Command, Fault> {
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

    /// The user whose connections it is for. `None`: it is for no user.
    pub(super) fn user(&self) -> Option<&str> {
        match self {
            Command::Subscribe(said) => Some(&said.user),
            Command::Unsubscribe(said) => Some(&said.user),
            Command::Disconnect(said) => Some(&said.user),
            Command::Refresh(said) => Some(&said.user),
            _ => None,
        }
    }

    /// What it is called.
    pub(super) fn name(&self) -> &'static str {
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
    /// Where, and what.
    pub(super) fn read(self, options: &Options) -> Result<(Arc<str>, Publishing), Fault> {
        let manner = manner(self.skip_history, self.idempotency_key, options)?;
        let what = publishing((self.data, self.b64data), self.tags, self.version, manner)?;
        Ok((self.channel.into(), what))
    }
}

impl Broadcast {
    /// Where, and what.
    pub(super) fn read(self, options: &Options) -> Result<(Vec<Arc<str>>, Publishing), Fault> {
        if self.channels.is_empty() {
            return Err(Fault::BAD_REQUEST);
        }
        if self.channels.len() > limits::BROADCAST_CHANNELS {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let manner = manner(self.skip_history, self.idempotency_key, options)?;
        let what = publishing((self.data, self.b64data), self.tags, self.version, manner)?;
        Ok((self.channels.into_iter().map(Arc::from).collect(), what))
    }
}

fn manner(
    skip_history: Option<bool>,
    key: Option<String>,
    options: &Options,
) -> Result<Option<Box<PublishOptions>>, Fault> {
    let key = key.filter(|key| !key.is_empty());
    if key.as_ref().is_some_and(|key| key.len() > KEY_BYTES) {
        return Err(Fault::BAD_REQUEST);
    }
    let manner = PublishOptions {
        transient: skip_history == Some(true),
        idempotency: key.map(|key| Idempotency {
            key: key.into(),
            window: options.keys_remembered,
        }),
    };
    Ok((manner != PublishOptions::default()).then(|| Box::new(manner)))
}

fn publishing(
    (json, base64): (Option<Box<RawValue>>, Option<String>),
    tags: Option<BTreeMap<String, String>>,
    version: Option<u64>,
    manner: Option<Box<PublishOptions>>,
) -> Result<Publishing, Fault> {
    if version.is_some_and(|version| version > 0) {
        // It might be an older one, which nobody is to get.
        return Err(Fault::NOT_AVAILABLE);
    }
    let is_encoded = base64.as_ref().is_some_and(|text| !text.is_empty());
    let data = bytes(json, base64)?;
    if data.is_empty() {
        return Err(Fault::BAD_REQUEST);
    }
    // Once for all channels of a broadcast.
    let is_json = !is_encoded || compacted(&data).is_ok();
    let published = Arc::new(Published {
        data,
        tags: tags.unwrap_or_default(),
        ..Published::default()
    });
    if publication_weight(&published) > limits::PUBLICATION_BYTES {
        return Err(Fault::LIMIT_EXCEEDED);
    }
    Ok(Publishing {
        published,
        is_json,
        manner,
    })
}

/// `null` is something to publish.
fn said<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

/// What is said in base64 counts, if anything is; else the JSON, without line breaks.
fn bytes(json: Option<Box<RawValue>>, base64: Option<String>) -> Result<Bytes, Fault> {
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

/// To all connections of a user, or to one of them.
fn order(user: String, client: Option<String>, session: Option<&str>, what: What) -> Result<Order, Fault> {
    if user.is_empty() {
        return Err(Fault::BAD_REQUEST);
    }
    if session.is_some_and(|session| !session.is_empty()) {
        return Err(Fault::NOT_AVAILABLE);
    }
    Ok(Order {
        user: user.into(),
        client: client.filter(|client| !client.is_empty()).map(Into::into),
        what,
        reached: None,
    })
}

impl Subscribe {
    pub(super) fn read(self, options: &Options) -> Result<Order, Fault> {
        let namespace = options.namespace(&self.channel)?;
        let since = self.recover_since;
        if since.is_some_and(|since| since.is_said()) || self.expire_at.is_some_and(|at| at != 0) {
            return Err(Fault::NOT_AVAILABLE);
        }
        let overrides = self.r#override.map(Overrides::from).unwrap_or_default();
        overrides.over(namespace)?;
        let terms = Terms {
            info: bytes(self.info, self.b64info)?,
            data: bytes(self.data, self.b64data)?,
            overrides,
        };
        let what = What::Subscribe(self.channel.into(), terms);
        order(self.user, self.client, self.session.as_deref(), what)
    }
}

impl Unsubscribe {
    pub(super) fn read(self, options: &Options) -> Result<Order, Fault> {
        options.namespace(&self.channel)?;
        let what = What::Unsubscribe(self.channel.into());
        order(self.user, self.client, self.session.as_deref(), what)
    }
}

impl Disconnect {
    pub(super) fn read(self) -> Result<Order, Fault> {
        let keeps = self.whitelist.unwrap_or_default();
        if keeps.len() > limits::WHITELIST {
            return Err(Fault::LIMIT_EXCEEDED);
        }
        let keeps = keeps.into_iter().map(Arc::from).collect();
        let forced = ringmain_hub::protocol::Disconnect::FORCED.code;
        if self
            .disconnect
            .is_some_and(|why| why.code != 0 && why.code != forced)
        {
            return Err(Fault::NOT_AVAILABLE);
        }
        order(
            self.user,
            self.client,
            self.session.as_deref(),
            What::Disconnect(keeps),
        )
    }
}

impl Refresh {
    pub(super) fn read(self) -> Result<Order, Fault> {
        let until = u64::try_from(self.expire_at.unwrap_or(0)).map_err(|_| Fault::BAD_REQUEST)?;
        let info = bytes(self.info, None)?;
        let what = match self.expired {
            Some(true) => What::Expire,
            _ => What::Refresh {
                until: Some(until).filter(|until| *until > 0),
                info,
            },
        };
        order(self.user, self.client, self.session.as_deref(), what)
    }
}

impl Position {
    fn is_said(&self) -> bool {
        self.offset.is_some_and(|offset| offset > 0)
            || self.epoch.as_ref().is_some_and(|epoch| !epoch.is_empty())
    }
}

impl History {
    /// Which channel, and what of it.
    pub(super) fn read(self) -> (String, ChannelQuery) {
        let limit = self.limit.unwrap_or(0);
        let since = self.since.as_ref();
        let epoch = since.and_then(|since| since.epoch.as_deref());
        let question = ChannelQuery::History {
            query: HistoryQuery {
                since: since.map(|since| since.offset.unwrap_or(0)),
                // Below 0: all of it.
                limit: usize::try_from(limit)
                    .unwrap_or(usize::MAX)
                    .min(limits::HISTORY_TOLD),
                reverse: self.reverse == Some(true),
            },
            epoch: EpochFilter::parse(epoch.unwrap_or_default()),
        };
        (self.channel, question)
    }
}

impl Channels {
    /// `None`: all.
    pub(super) fn read(self) -> Result<Option<Pattern>, Fault> {
        let Some(text) = self.pattern.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        let pattern = Some(text).filter(|text| text.len() <= limits::PATTERN_BYTES);
        let pattern = pattern.and_then(|text| Pattern::parse(&text));
        pattern.map(Some).ok_or(Fault::BAD_REQUEST)
    }
}
