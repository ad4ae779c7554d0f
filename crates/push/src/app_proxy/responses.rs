//! Responses of applications, as in Centrifugo's proxy. Pure.
//!
//! A response with a field that is not supported is invalid: no response is applied partially.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_hub::protocol::{Disconnect, Error, Fault};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::tokens::claims::{
    Capability, CapabilityJson, ConnectClaims, Expiry, Overrides, OverridesJson, SubscribeOptions,
    SubscribeOptionsJson, decode_bytes as decode_field,
};

/// The reason why a client's command is rejected.
#[derive(Debug, PartialEq)]
pub(crate) enum Rejection {
    /// The client may retry.
    Fault(Fault),
    /// An error of the application.
    Error(Error),
    Disconnect(Disconnect),
    /// A disconnect of the application, with its reason.
    Custom(Disconnect, String),
}

impl From<Fault> for Rejection {
    fn from(fault: Fault) -> Rejection {
        Rejection::Fault(fault)
    }
}

/// The reason why a response is invalid, for the log.
pub(super) type InvalidResponse = &'static str;

/// The renewal of a connection or a subscription.
#[derive(Debug, Default, PartialEq)]
pub(super) struct RefreshResponse {
    pub(super) is_expired: bool,
    pub(super) expiry: Expiry,
    /// `None`: unchanged.
    pub(super) info: Option<Bytes>,
    pub(super) capabilities: Option<Box<[Capability]>>,
    pub(super) meta: Option<Bytes>,
}

/// The options of a subscription.
#[derive(Debug, Default, PartialEq)]
pub(super) struct SubscribeResponse {
    pub(super) options: SubscribeOptions,
    pub(super) expiry: Expiry,
}

/// The publication to be published.
#[derive(Debug, Default, PartialEq)]
pub(super) struct PublishResponse {
    /// Empty: the client's data.
    pub(super) data: Bytes,
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct ResponseJson<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorJson>,
    disconnect: Option<DisconnectJson>,
}

#[derive(Deserialize)]
struct ErrorJson {
    code: u32,
    message: Option<String>,
    temporary: Option<bool>,
}

#[derive(Deserialize)]
struct DisconnectJson {
    code: u32,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct ConnectJson<'a> {
    user: Option<String>,
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    channels: Option<Vec<String>>,
    #[serde(borrow)]
    subs: Option<BTreeMap<String, SubscribeOptionsJson<'a>>>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    caps: Option<Vec<CapabilityJson>>,
}

#[derive(Deserialize)]
struct RefreshJson<'a> {
    expired: Option<bool>,
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    caps: Option<Vec<CapabilityJson>>,
}

#[derive(Deserialize)]
struct SubscribeJson<'a> {
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    r#override: Option<OverridesJson>,
    allow: Option<Vec<IgnoredAny>>,
    server_tags_filter: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PublishJson<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    skip_history: Option<bool>,
    /// Accepted and ignored: the namespace decides about deltas.
    #[serde(rename = "delta")]
    _delta: Option<bool>,
    idempotency_key: Option<String>,
    version: Option<u64>,
}

#[derive(Deserialize)]
struct DataJson<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
}

/// Parses a response.
///
/// # Errors
/// The reason why it is invalid.
pub(super) fn parse<T>(
    json: &[u8],
    result: impl FnOnce(&str) -> Result<T, InvalidResponse>,
) -> Result<Result<T, Rejection>, InvalidResponse> {
    let json: ResponseJson<'_> = parse_json(json, "expected JSON with `result`, `error` or `disconnect`")?;
    if let Some(DisconnectJson { code, reason }) = json.disconnect {
        if !(3000..=4999).contains(&code) {
            return Err("expected a code of 3000 to 4999 at `disconnect`");
        }
        let reason = reason.unwrap_or_default();
        let end = reason.floor_char_boundary(REASON_BYTES);
        let disconnect = Disconnect {
            code,
            reason: "closed by the application",
        };
        return Ok(Err(Rejection::Custom(disconnect, reason[..end].to_owned())));
    }
    if let Some(ErrorJson {
        code,
        message,
        temporary,
    }) = json.error
    {
        if code == 0 {
            return Err("expected a code other than 0 at `error` (400 to 1999 are the application's)");
        }
        return Ok(Err(Rejection::Error(Error {
            code,
            message: message.unwrap_or_default(),
            temporary: temporary.unwrap_or(false),
        })));
    }
    let result_json = json.result.ok_or("expected `result`, `error` or `disconnect`")?;
    result(result_json.get()).map(Ok)
}

/// Parses the identity of a client, and its permissions and subscriptions.
pub(super) fn parse_connect(json: &str) -> Result<ConnectClaims, InvalidResponse> {
    let json: ConnectJson<'_> = parse_json(json.as_bytes(), RESULT)?;
    let named = json.channels.unwrap_or_default().into_iter();
    let mut channels: BTreeMap<String, SubscribeOptions> = named
        .map(|channel| (channel, SubscribeOptions::default()))
        .collect();
    for (channel, options) in json.subs.unwrap_or_default() {
        let options = options
            .into_options()
            .map_err(|_| "expected supported options at `subs`")?;
        channels.insert(channel, options);
    }
    let caps = json.caps.unwrap_or_default();
    Ok(ConnectClaims {
        user: json.user.unwrap_or_default(),
        info: decode_bytes(json.info, json.b64info)?,
        expiry: expiry_at(json.expire_at),
        channels,
        capabilities: caps.into_iter().map(Capability::from).collect(),
        data: decode_bytes(json.data, json.b64data)?,
        meta: decode_bytes(json.meta, None)?,
    })
}

/// Parses the renewal of a connection or a subscription.
pub(super) fn parse_refresh(json: &str) -> Result<RefreshResponse, InvalidResponse> {
    let json: RefreshJson<'_> = parse_json(json.as_bytes(), RESULT)?;
    let info = decode_bytes(json.info, json.b64info)?;
    let meta = decode_bytes(json.meta, None)?;
    Ok(RefreshResponse {
        is_expired: json.expired.unwrap_or(false),
        expiry: expiry_at(json.expire_at),
        info: Some(info).filter(|info| !info.is_empty()),
        capabilities: json
            .caps
            .map(|caps| caps.into_iter().map(Capability::from).collect()),
        meta: Some(meta).filter(|meta| !meta.is_empty()),
    })
}

/// Parses the options of a subscription.
pub(super) fn parse_subscribe(json: &str) -> Result<SubscribeResponse, InvalidResponse> {
    let json: SubscribeJson<'_> = parse_json(json.as_bytes(), RESULT)?;
    if json.allow.is_some_and(|allow| !allow.is_empty()) || json.server_tags_filter.is_some() {
        return Err("expected no `allow` and no `server_tags_filter`, which are not supported");
    }
    Ok(SubscribeResponse {
        options: SubscribeOptions {
            info: decode_bytes(json.info, json.b64info)?,
            data: decode_bytes(json.data, json.b64data)?,
            overrides: json.r#override.map(Overrides::from).unwrap_or_default(),
        },
        expiry: expiry_at(json.expire_at),
    })
}

/// Parses the publication to be published.
pub(super) fn parse_publish(json: &str) -> Result<PublishResponse, InvalidResponse> {
    let json: PublishJson<'_> = parse_json(json.as_bytes(), RESULT)?;
    if json.skip_history == Some(true) {
        return Err("expected no `skip_history`, which is not supported");
    }
    if json.idempotency_key.is_some_and(|key| !key.is_empty())
        || json.version.is_some_and(|version| version > 0)
    {
        return Err("expected no `idempotency_key` and no `version`, which are not supported");
    }
    Ok(PublishResponse {
        data: decode_bytes(json.data, json.b64data)?,
        tags: json.tags.unwrap_or_default(),
    })
}

/// Parses the result of an RPC.
pub(super) fn parse_rpc(json: &str) -> Result<Bytes, InvalidResponse> {
    let json: DataJson<'_> = parse_json(json.as_bytes(), RESULT)?;
    decode_bytes(json.data, json.b64data)
}

const RESULT: InvalidResponse = "expected the fields of the method in `result`, with their types";

/// The space for a reason in a WebSocket close frame, behind the code (RFC 6455 §5.5).
const REASON_BYTES: usize = 123;

fn parse_json<'a, T: Deserialize<'a>>(
    json: &'a [u8],
    expected: InvalidResponse,
) -> Result<T, InvalidResponse> {
    serde_json::from_slice(json).map_err(|error| {
        // The error's own text may contain a part of the response.
        log::debug!("invalid response of the application (column {})", error.column());
        expected
    })
}

fn decode_bytes(json: Option<&RawValue>, base64: Option<String>) -> Result<Bytes, InvalidResponse> {
    decode_field(json, base64).map_err(|_| "expected base64 in fields that start with `b64`")
}

/// Returns when a response's grant expires; 0 is never.
fn expiry_at(expire_at: Option<f64>) -> Expiry {
    let expires_at = expire_at.filter(|at| *at != 0.0);
    Expiry {
        until: expires_at.map(|seconds| seconds.ceil() as u64),
        leeway: 0,
    }
}
