//! What tokens say and what that claims, as applications sign it for Centrifugo: who a client is, what it may, what the server
//! subscribes it to. Pure; the token has been verified.
//!
//! What is json here and cannot be done is refused: a token is never half a token.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use ringmain_hub::protocol::{Fault, compact};
use ringmain_jwt::{ParsedToken, TokenError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::options::Namespace;

/// What a token claims to a connection.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ConnectClaims {
    /// Empty: nobody knows who it is.
    pub(crate) user: String,
    pub(crate) info: Bytes,
    pub(crate) expiry: Expiry,
    /// What the server subscribes it to.
    pub(crate) channels: BTreeMap<String, SubscribeOptions>,
    /// What it may, besides what namespaces let everybody do.
    pub(crate) capabilities: Box<[Capability]>,
    /// Told to the client.
    pub(crate) data: Bytes,
    /// The application's own, told to nobody else.
    pub(crate) meta: Bytes,
}

/// What a token claims to one subscription.
#[derive(Debug)]
pub(crate) struct SubscribeClaims {
    /// Whose it must be; empty for somebody whom nobody knows.
    pub(crate) user: String,
    pub(crate) channel: String,
    /// The connection that it is for; empty for any of the user's.
    pub(crate) client: String,
    pub(crate) expiry: Expiry,
    pub(crate) options: SubscribeOptions,
}

/// Until when something goes on, in seconds since 1970.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// When the client should have shown another token.
    pub(crate) until: Option<u64>,
    /// How much clocks may differ.
    pub(crate) leeway: u64,
}

/// How a subscription is.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SubscribeOptions {
    /// Told to others in the channel.
    pub(crate) info: Bytes,
    /// Told to the client.
    pub(crate) data: Bytes,
    pub(crate) overrides: Overrides,
}

/// What is otherwise than in the channel's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    pub(crate) presence: Option<bool>,
    pub(crate) join_leave: Option<bool>,
    pub(crate) push_join_leave: Option<bool>,
    pub(crate) recovery: Option<bool>,
    pub(crate) positioning: Option<bool>,
}

/// What comes of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionFlags {
    /// Whether others know of it, where they know of anybody.
    pub(crate) is_visible: bool,
    pub(crate) recovery: Option<bool>,
    pub(crate) positioning: Option<bool>,
}

/// What may be done with some channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    channels: Box<[String]>,
    has_wildcards: bool,
    pub(crate) subscribe: bool,
    pub(crate) publish: bool,
    pub(crate) presence: bool,
    pub(crate) history: bool,
}

/// As a token of a connection has it.
#[derive(Deserialize)]
struct ConnectTokenJson<'a> {
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    channels: Option<Vec<String>>,
    #[serde(borrow)]
    subs: Option<BTreeMap<String, SubscribeOptionsJson<'a>>>,
    caps: Option<Vec<CapabilityJson>>,
    expire_at: Option<f64>,
}

/// As a token of a subscription has it.
#[derive(Deserialize)]
struct SubscribeTokenJson<'a> {
    channel: Option<String>,
    client: Option<String>,
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    r#override: Option<OverridesJson>,
}

#[derive(Deserialize)]
pub(crate) struct SubscribeOptionsJson<'a> {
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    r#override: Option<OverridesJson>,
    // Nothing would be done about these.
    expire_at: Option<f64>,
    server_tags_filter: Option<IgnoredAny>,
}

/// Another name is one that nothing would be done about.
#[derive(Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct OverridesJson {
    presence: Option<Switch>,
    join_leave: Option<Switch>,
    force_push_join_leave: Option<Switch>,
    force_recovery: Option<Switch>,
    force_positioning: Option<Switch>,
}

#[derive(Deserialize)]
struct Switch {
    value: bool,
}

#[derive(Deserialize)]
pub(crate) struct CapabilityJson {
    channels: Vec<String>,
    allow: Vec<CapabilityAction>,
    r#match: Option<CapabilityMatch>,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
enum CapabilityAction {
    #[serde(rename = "sub")]
    Subscribe,
    #[serde(rename = "pub")]
    Publish,
    #[serde(rename = "prs")]
    Presence,
    #[serde(rename = "hst")]
    History,
}

#[derive(Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum CapabilityMatch {
    Wildcard,
}

impl ConnectClaims {
    pub(crate) fn from_token(token: &ParsedToken<'_>, leeway: Duration) -> Result<ConnectClaims, TokenError> {
        if token.claims.get("channel").is_some() {
            return Err(TokenError::Invalid("the token is for a subscription"));
        }
        let json: ConnectTokenJson<'_> = parse_claims(&token.payload)?;
        let named = json.channels.unwrap_or_default().into_iter();
        let mut channels: BTreeMap<String, SubscribeOptions> = named
            .map(|channel| (channel, SubscribeOptions::default()))
            .collect();
        for (channel, options) in json.subs.unwrap_or_default() {
            channels.insert(channel, options.into_options()?);
        }
        let caps = json.caps.unwrap_or_default();
        Ok(ConnectClaims {
            user: user_claim(token)?,
            info: decode_bytes(json.info, json.b64info)?,
            expiry: Expiry::from_token(token, json.expire_at, leeway),
            channels,
            capabilities: caps.into_iter().map(Capability::from).collect(),
            data: Bytes::new(),
            meta: Bytes::new(),
        })
    }
}

impl SubscribeClaims {
    pub(crate) fn from_token(
        token: &ParsedToken<'_>,
        leeway: Duration,
    ) -> Result<SubscribeClaims, TokenError> {
        let json: SubscribeTokenJson<'_> = parse_claims(&token.payload)?;
        let channel = json.channel.filter(|channel| !channel.is_empty());
        Ok(SubscribeClaims {
            user: user_claim(token)?,
            channel: channel.ok_or(TokenError::Invalid("the token is for no channel"))?,
            client: json.client.unwrap_or_default(),
            expiry: Expiry::from_token(token, json.expire_at, leeway),
            options: SubscribeOptions {
                info: decode_bytes(json.info, json.b64info)?,
                data: Bytes::new(),
                overrides: json.r#override.map(Overrides::from).unwrap_or_default(),
            },
        })
    }
}

impl SubscribeOptionsJson<'_> {
    pub(crate) fn into_options(self) -> Result<SubscribeOptions, TokenError> {
        if self.expire_at.is_some_and(|at| at != 0.0) || self.server_tags_filter.is_some() {
            return Err(TokenError::Invalid(
                "a subscription of the server's has no end and no filter of its own",
            ));
        }
        Ok(SubscribeOptions {
            info: decode_bytes(self.info, self.b64info)?,
            data: decode_bytes(self.data, self.b64data)?,
            overrides: self.r#override.map(Overrides::from).unwrap_or_default(),
        })
    }
}

impl Expiry {
    /// As long as the token, unless it says otherwise: 0 is for ever.
    fn from_token(token: &ParsedToken<'_>, expire_at: Option<f64>, leeway: Duration) -> Expiry {
        let until = match expire_at {
            Some(0.0) => None,
            json => json.or(token.claims.expires_at()),
        };
        Expiry {
            // Before 1970 is 0, and what is too large the end of time.
            until: until.map(|seconds| seconds.ceil() as u64),
            leeway: leeway.as_secs() + u64::from(leeway.subsec_nanos() > 0),
        }
    }

    /// Whether it is over before it has begun.
    pub(crate) fn is_expired(self, now: Duration) -> bool {
        let last = self.until.map(|until| until.saturating_add(self.leeway));
        last.is_some_and(|last| now.as_secs() >= last)
    }

    /// What clients are told: whether it ends, and after how many seconds they should show another token.
    pub(crate) fn client_ttl(self, now: Duration) -> (bool, u32) {
        match self.until {
            Some(until) => {
                let left = until.saturating_sub(now.as_secs()).max(1);
                (true, u32::try_from(left).unwrap_or(u32::MAX))
            }
            None => (false, 0),
        }
    }

    /// When it ends, in seconds since 1970, if whoever can show another token has so long for that.
    pub(crate) fn deadline(self, grace: Duration) -> Option<u64> {
        let until = self.until?;
        Some(until.saturating_add(self.leeway).saturating_add(grace.as_secs()))
    }
}

impl From<OverridesJson> for Overrides {
    fn from(json: OverridesJson) -> Overrides {
        let value = |switch: Option<Switch>| switch.map(|switch| switch.value);
        Overrides {
            presence: value(json.presence),
            join_leave: value(json.join_leave),
            push_join_leave: value(json.force_push_join_leave),
            recovery: value(json.force_recovery),
            positioning: value(json.force_positioning),
        }
    }
}

impl Overrides {
    /// What comes of them in a channel.
    ///
    /// # Errors
    /// [`Fault::NOT_AVAILABLE`]: a channel is one for all who listen. What it does not know it knows of nobody, and who comes and
    /// goes is told to all or to none.
    pub(crate) fn apply_to(self, namespace: &Namespace) -> Result<SubscriptionFlags, Fault> {
        let channel_options = &namespace.channel_options;
        let is_kept = channel_options.history.is_some();
        let presence = self.presence.unwrap_or(channel_options.presence);
        let join_leave = self.join_leave.unwrap_or(channel_options.join_leave);
        let is_as_others = (presence, join_leave) == (channel_options.presence, channel_options.join_leave);
        let is_hidden = !presence && !join_leave;
        let is_told = self
            .push_join_leave
            .is_none_or(|told| told == channel_options.join_leave);
        let is_had = |wanted: Option<bool>, there: bool| wanted != Some(true) || there;
        let has_places = is_had(self.recovery, is_kept) && is_had(self.positioning, namespace.reports_gaps());
        if !(is_as_others || is_hidden) || !is_told || !has_places {
            log::debug!("push: a token wants of a subscription what its namespace does not have: {self:?}");
            return Err(Fault::NOT_AVAILABLE);
        }
        Ok(SubscriptionFlags {
            is_visible: is_as_others,
            recovery: self.recovery,
            positioning: self.positioning,
        })
    }
}

impl From<CapabilityJson> for Capability {
    fn from(json: CapabilityJson) -> Capability {
        let may = |what| json.allow.contains(&what);
        Capability {
            subscribe: may(CapabilityAction::Subscribe),
            publish: may(CapabilityAction::Publish),
            presence: may(CapabilityAction::Presence),
            history: may(CapabilityAction::History),
            has_wildcards: json.r#match == Some(CapabilityMatch::Wildcard),
            channels: json.channels.into(),
        }
    }
}

impl Capability {
    pub(crate) fn matches_channel(&self, channel: &str) -> bool {
        let mut names = self.channels.iter();
        names.any(|name| match self.has_wildcards {
            true => matches_wildcard(channel.as_bytes(), name.as_bytes()),
            false => name == channel,
        })
    }
}

/// Whether a text is like a pattern, in which `*` is any text. In at most as many steps as the product of their lengths.
fn matches_wildcard(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // Behind the last `*`, and how much of the text it is taken for.
    let mut star = None;
    while at < text.len() {
        if pattern.get(of) == Some(&b'*') {
            of += 1;
            star = Some((of, at));
        } else if pattern.get(of) == Some(&text[at]) {
            (at, of) = (at + 1, of + 1);
        } else if let Some((behind, taken)) = star {
            (at, of) = (taken + 1, behind);
            star = Some((behind, taken + 1));
        } else {
            return false;
        }
    }
    pattern[of..].iter().all(|byte| *byte == b'*')
}

fn parse_claims<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, TokenError> {
    serde_json::from_slice(json).map_err(|why| {
        // Its own words may have a part of the token in them.
        log::debug!(
            "a token's claim is not what it should be (column {})",
            why.column()
        );
        TokenError::Invalid("a claim of the token is not what it should be")
    })
}

/// A number is no name of a user: it would be another one to whoever reads it as a text.
fn user_claim(token: &ParsedToken<'_>) -> Result<String, TokenError> {
    match token.claims.get("sub") {
        None => Ok(String::new()),
        Some(Value::String(user)) => Ok(user.clone()),
        Some(_) => Err(TokenError::Invalid("the name of the token's user is no text")),
    }
}

/// JSON, or what stands there in base64.
pub(crate) fn decode_bytes(json: Option<&RawValue>, base64: Option<String>) -> Result<Bytes, TokenError> {
    if let Some(text) = base64.filter(|text| !text.is_empty()) {
        let decoded = STANDARD.decode(text);
        return decoded
            .map(Bytes::from)
            .map_err(|_| TokenError::Invalid("a claim of the token is not in base64"));
    }
    let json = json.map_or_else(Bytes::new, |json| Bytes::copy_from_slice(json.get().as_bytes()));
    match json.is_empty() {
        true => Ok(json),
        false => compact(&json).map_err(|_| TokenError::Invalid("a claim of the token is no JSON")),
    }
}
