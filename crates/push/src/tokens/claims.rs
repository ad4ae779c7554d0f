//! The claims of tokens, as applications sign them for Centrifugo: a client's identity, permissions and subscriptions. Pure; the token has
//! been verified.
//!
//! A token with a claim that is not supported is rejected: no token is applied partially.

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

/// The claims of a connection.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ConnectClaims {
    /// Empty for an anonymous client.
    pub(crate) user: String,
    pub(crate) info: Bytes,
    pub(crate) expiry: Expiry,
    /// Subscriptions by the server.
    pub(crate) channels: BTreeMap<String, SubscribeOptions>,
    /// Permissions beyond those that namespaces give to all clients.
    pub(crate) capabilities: Box<[Capability]>,
    /// Sent to the client.
    pub(crate) data: Bytes,
    /// Opaque data of the application, not sent to clients.
    pub(crate) meta: Bytes,
}

/// The claims of one subscription.
#[derive(Debug)]
pub(crate) struct SubscribeClaims {
    /// The user that the token is for; empty for anonymous clients.
    pub(crate) user: String,
    pub(crate) channel: String,
    /// The connection that the token is for; empty for any of the user's.
    pub(crate) client: String,
    pub(crate) expiry: Expiry,
    pub(crate) options: SubscribeOptions,
}

/// The expiry of a connection or a subscription.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The time by which the client should have sent another token, in seconds since 1970. `None`: never.
    pub(crate) until: Option<u64>,
    /// The tolerated difference of clocks, in seconds.
    pub(crate) leeway: u64,
}

/// The options of a subscription.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct SubscribeOptions {
    /// Sent to other clients in the channel.
    pub(crate) info: Bytes,
    /// Sent to the client.
    pub(crate) data: Bytes,
    pub(crate) overrides: Overrides,
}

/// Options that replace those of the channel's namespace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Overrides {
    pub(crate) presence: Option<bool>,
    pub(crate) join_leave: Option<bool>,
    pub(crate) push_join_leave: Option<bool>,
    pub(crate) recovery: Option<bool>,
    pub(crate) positioning: Option<bool>,
}

/// The resulting flags of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SubscriptionFlags {
    /// Other clients are notified of the subscription, in a channel with presence or join messages.
    pub(crate) is_visible: bool,
    pub(crate) recovery: Option<bool>,
    pub(crate) positioning: Option<bool>,
}

/// Permissions in some channels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Capability {
    channels: Box<[String]>,
    has_wildcards: bool,
    pub(crate) subscribe: bool,
    pub(crate) publish: bool,
    pub(crate) presence: bool,
    pub(crate) history: bool,
}

/// The claims of a connection's token, in JSON.
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

/// The claims of a subscription's token, in JSON.
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
    // Parsed to be rejected: these are not supported.
    expire_at: Option<f64>,
    server_tags_filter: Option<IgnoredAny>,
}

/// An unknown name is rejected, since it would have no effect.
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
            channel: channel.ok_or(TokenError::Invalid("the token has no channel"))?,
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
                "expire_at and server_tags_filter are not supported for subscriptions by the server",
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
    /// Returns the token's expiry, unless another one is given; 0 is never.
    fn from_token(token: &ParsedToken<'_>, expire_at: Option<f64>, leeway: Duration) -> Expiry {
        let until = match expire_at {
            Some(0.0) => None,
            json => json.or(token.claims.expires_at()),
        };
        Expiry {
            // Times before 1970 become 0, and later times than the type allows the largest one.
            until: until.map(|seconds| seconds.ceil() as u64),
            leeway: leeway.as_secs() + u64::from(leeway.subsec_nanos() > 0),
        }
    }

    /// Returns whether it has expired already.
    pub(crate) fn is_expired(self, now: Duration) -> bool {
        let last = self.until.map(|until| until.saturating_add(self.leeway));
        last.is_some_and(|last| now.as_secs() >= last)
    }

    /// Returns the fields for clients: whether it expires, and the seconds until they should send another token.
    pub(crate) fn client_ttl(self, now: Duration) -> (bool, u32) {
        match self.until {
            Some(until) => {
                let remaining = until.saturating_sub(now.as_secs()).max(1);
                (true, u32::try_from(remaining).unwrap_or(u32::MAX))
            }
            None => (false, 0),
        }
    }

    /// Returns the deadline, in seconds since 1970, with the grace period of a client that can send another token.
    pub(crate) fn deadline(self, grace: Duration) -> Option<u64> {
        let until = self.until?;
        Some(until.saturating_add(self.leeway).saturating_add(grace.as_secs()))
    }
}

impl OverridesJson {
    /// Creates the switches from their values; those without a value are absent.
    pub(crate) fn new(
        presence: Option<bool>,
        join_leave: Option<bool>,
        force_push_join_leave: Option<bool>,
        force_recovery: Option<bool>,
        force_positioning: Option<bool>,
    ) -> OverridesJson {
        let switch = |value: Option<bool>| value.map(|value| Switch { value });
        OverridesJson {
            presence: switch(presence),
            join_leave: switch(join_leave),
            force_push_join_leave: switch(force_push_join_leave),
            force_recovery: switch(force_recovery),
            force_positioning: switch(force_positioning),
        }
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
    /// Returns the flags of a subscription in a channel.
    ///
    /// # Errors
    /// [`Fault::NOT_AVAILABLE`] for options that the namespace does not have: presence and join messages are the same for all subscribers
    /// of a channel.
    pub(crate) fn apply_to(self, namespace: &Namespace) -> Result<SubscriptionFlags, Fault> {
        let channel_options = &namespace.channel_options;
        let is_retained = channel_options.history.is_some();
        let presence = self.presence.unwrap_or(channel_options.presence);
        let join_leave = self.join_leave.unwrap_or(channel_options.join_leave);
        let is_unchanged = (presence, join_leave) == (channel_options.presence, channel_options.join_leave);
        let is_hidden = !presence && !join_leave;
        let is_consistent = self
            .push_join_leave
            .is_none_or(|pushed| pushed == channel_options.join_leave);
        let is_satisfied = |required: Option<bool>, is_present: bool| required != Some(true) || is_present;
        let has_positions = is_satisfied(self.recovery, is_retained)
            && is_satisfied(self.positioning, namespace.reports_gaps());
        if !(is_unchanged || is_hidden) || !is_consistent || !has_positions {
            log::debug!("push: subscription options that the namespace does not have: {self:?}");
            return Err(Fault::NOT_AVAILABLE);
        }
        Ok(SubscriptionFlags {
            is_visible: is_unchanged,
            recovery: self.recovery,
            positioning: self.positioning,
        })
    }
}

impl From<CapabilityJson> for Capability {
    fn from(json: CapabilityJson) -> Capability {
        let allows = |operation| json.allow.contains(&operation);
        Capability {
            subscribe: allows(CapabilityAction::Subscribe),
            publish: allows(CapabilityAction::Publish),
            presence: allows(CapabilityAction::Presence),
            history: allows(CapabilityAction::History),
            has_wildcards: json.r#match == Some(CapabilityMatch::Wildcard),
            channels: json.channels.into(),
        }
    }
}

impl Capability {
    pub(crate) fn matches_channel(&self, channel: &str) -> bool {
        let mut names = self.channels.iter();
        names.any(|name| {
            if self.has_wildcards {
                matches_wildcard(channel.as_bytes(), name.as_bytes())
            } else {
                name == channel
            }
        })
    }
}

/// Returns whether a text matches a pattern, in which `*` is any text. Takes at most as many steps as the product of their lengths.
fn matches_wildcard(text: &[u8], pattern: &[u8]) -> bool {
    let (mut at, mut of) = (0, 0);
    // The position behind the last `*`, and the length of the text that it matches.
    let mut star = None;
    while at < text.len() {
        if pattern.get(of) == Some(&b'*') {
            of += 1;
            star = Some((of, at));
        } else if pattern.get(of) == Some(&text[at]) {
            (at, of) = (at + 1, of + 1);
        } else if let Some((after, taken)) = star {
            (at, of) = (taken + 1, after);
            star = Some((after, taken + 1));
        } else {
            return false;
        }
    }
    pattern[of..].iter().all(|byte| *byte == b'*')
}

fn parse_claims<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, TokenError> {
    serde_json::from_slice(json).map_err(|error| {
        // The error's own text may contain a part of the token.
        log::debug!("invalid claim in a token (column {})", error.column());
        TokenError::Invalid("a claim of the token is invalid")
    })
}

/// Returns the user. A number is rejected: as a text it might be another user's name.
fn user_claim(token: &ParsedToken<'_>) -> Result<String, TokenError> {
    match token.claims.get("sub") {
        None => Ok(String::new()),
        Some(Value::String(user)) => Ok(user.clone()),
        Some(_) => Err(TokenError::Invalid("the token's user is not a text")),
    }
}

/// Returns the JSON, or the decoded base64 instead.
pub(crate) fn decode_bytes(json: Option<&RawValue>, base64: Option<String>) -> Result<Bytes, TokenError> {
    if let Some(text) = base64.filter(|text| !text.is_empty()) {
        let decoded = STANDARD.decode(text);
        return decoded
            .map(Bytes::from)
            .map_err(|_| TokenError::Invalid("a claim of the token is not base64"));
    }
    let json = json.map_or_else(Bytes::new, |json| Bytes::copy_from_slice(json.get().as_bytes()));
    if json.is_empty() {
        Ok(json)
    } else {
        compact(&json).map_err(|_| TokenError::Invalid("a claim of the token is not JSON"))
    }
}
