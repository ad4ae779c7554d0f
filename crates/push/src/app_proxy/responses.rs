//! Answers, as applications give them to Centrifugo's proxy. Pure.
//!
//! What is said here and cannot be done is no answer: nothing is half done.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use bytes::Bytes;
use ringmain_hub::protocol::{Disconnect, Error, Fault};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use crate::tokens::claims::{
    Cap, CapSaid, Connecting, Lasts, Overrides, OverridesSaid, Terms, TermsSaid, bytes as either,
};

/// Why something that a client wants is not done.
#[derive(Debug, PartialEq)]
pub(crate) enum Refused {
    /// It may ask again.
    Fault(Fault),
    /// The same in the application's words.
    Error(Error),
    Disconnect(Disconnect),
    /// The application sends it away, for this reason.
    Away(Disconnect, String),
}

impl From<Fault> for Refused {
    fn from(fault: Fault) -> Refused {
        Refused::Fault(fault)
    }
}

/// Why an answer is none, for the owner.
pub(super) type Broken = &'static str;

/// Whether a connection or a subscription goes on.
#[derive(Debug, Default, PartialEq)]
pub(super) struct GoesOn {
    pub(super) is_over: bool,
    pub(super) lasts: Lasts,
    /// `None`: as it was.
    pub(super) info: Option<Bytes>,
    pub(super) caps: Option<Box<[Cap]>>,
    pub(super) meta: Option<Bytes>,
}

/// How a subscription is.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Subscribes {
    pub(super) terms: Terms,
    pub(super) lasts: Lasts,
}

/// What is published.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Publishes {
    /// Empty: what the client has said.
    pub(super) data: Bytes,
    pub(super) tags: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Said<'a> {
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<ErrorSaid>,
    disconnect: Option<DisconnectSaid>,
}

#[derive(Deserialize)]
struct ErrorSaid {
    code: u32,
    message: Option<String>,
    temporary: Option<bool>,
}

#[derive(Deserialize)]
struct DisconnectSaid {
    code: u32,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct ConnectSaid<'a> {
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
    subs: Option<BTreeMap<String, TermsSaid<'a>>>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    caps: Option<Vec<CapSaid>>,
}

#[derive(Deserialize)]
struct GoesOnSaid<'a> {
    expired: Option<bool>,
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    meta: Option<&'a RawValue>,
    caps: Option<Vec<CapSaid>>,
}

#[derive(Deserialize)]
struct SubscribeSaid<'a> {
    expire_at: Option<f64>,
    #[serde(borrow)]
    info: Option<&'a RawValue>,
    b64info: Option<String>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    r#override: Option<OverridesSaid>,
    allow: Option<Vec<IgnoredAny>>,
    server_tags_filter: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct PublishSaid<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
    tags: Option<BTreeMap<String, String>>,
    skip_history: Option<bool>,
    delta: Option<bool>,
    idempotency_key: Option<String>,
    version: Option<u64>,
}

#[derive(Deserialize)]
struct DataSaid<'a> {
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    b64data: Option<String>,
}

/// What an answer gives.
///
/// # Errors
/// It gives nothing, for whatever reason.
pub(super) fn read<T>(
    json: &[u8],
    result: impl FnOnce(&str) -> Result<T, Broken>,
) -> Result<Result<T, Refused>, Broken> {
    let said: Said<'_> = parse(json, "expected JSON with `result`, `error` or `disconnect`")?;
    if let Some(DisconnectSaid { code, reason }) = said.disconnect {
        if !(3000..=4999).contains(&code) {
            return Err("expected a code of 3000 to 4999 at `disconnect`");
        }
        let reason = reason.unwrap_or_default();
        let kept = reason.floor_char_boundary(REASON_BYTES);
        let why = Disconnect {
            code,
            reason: "as the application says",
        };
        return Ok(Err(Refused::Away(why, reason[..kept].to_owned())));
    }
    if let Some(ErrorSaid {
        code,
        message,
        temporary,
    }) = said.error
    {
        if code == 0 {
            return Err("expected a code other than 0 at `error` (400 to 1999 are the application's)");
        }
        return Ok(Err(Refused::Error(Error {
            code,
            message: message.unwrap_or_default(),
            temporary: temporary.unwrap_or(false),
        })));
    }
    let found = said.result.ok_or("expected `result`, `error` or `disconnect`")?;
    result(found.get()).map(Ok)
}

/// Who a client is, and what it is given.
pub(super) fn connect(json: &str) -> Result<Connecting, Broken> {
    let said: ConnectSaid<'_> = parse(json.as_bytes(), RESULT)?;
    let named = said.channels.unwrap_or_default().into_iter();
    let mut channels: BTreeMap<String, Terms> = named.map(|channel| (channel, Terms::default())).collect();
    for (channel, terms) in said.subs.unwrap_or_default() {
        let terms = terms.read().map_err(|_| "expected other options at `subs`")?;
        channels.insert(channel, terms);
    }
    let caps = said.caps.unwrap_or_default();
    Ok(Connecting {
        user: said.user.unwrap_or_default(),
        info: bytes(said.info, said.b64info)?,
        lasts: lasts(said.expire_at),
        channels,
        caps: caps.into_iter().map(Cap::from).collect(),
        data: bytes(said.data, said.b64data)?,
        meta: bytes(said.meta, None)?,
    })
}

/// Whether a connection goes on, or a subscription.
pub(super) fn goes_on(json: &str) -> Result<GoesOn, Broken> {
    let said: GoesOnSaid<'_> = parse(json.as_bytes(), RESULT)?;
    let info = bytes(said.info, said.b64info)?;
    let meta = bytes(said.meta, None)?;
    Ok(GoesOn {
        is_over: said.expired.unwrap_or(false),
        lasts: lasts(said.expire_at),
        info: Some(info).filter(|info| !info.is_empty()),
        caps: said.caps.map(|caps| caps.into_iter().map(Cap::from).collect()),
        meta: Some(meta).filter(|meta| !meta.is_empty()),
    })
}

/// How a client listens.
pub(super) fn subscribe(json: &str) -> Result<Subscribes, Broken> {
    let said: SubscribeSaid<'_> = parse(json.as_bytes(), RESULT)?;
    if said.allow.is_some_and(|allow| !allow.is_empty()) || said.server_tags_filter.is_some() {
        return Err("expected nothing at `allow` and `server_tags_filter`, which cannot be done");
    }
    Ok(Subscribes {
        terms: Terms {
            info: bytes(said.info, said.b64info)?,
            data: bytes(said.data, said.b64data)?,
            overrides: said.r#override.map(Overrides::from).unwrap_or_default(),
        },
        lasts: lasts(said.expire_at),
    })
}

/// What is published.
pub(super) fn publish(json: &str) -> Result<Publishes, Broken> {
    let said: PublishSaid<'_> = parse(json.as_bytes(), RESULT)?;
    if said.skip_history == Some(true) || said.delta == Some(true) {
        return Err("expected no `skip_history` and no `delta`, which cannot be done");
    }
    if said.idempotency_key.is_some_and(|key| !key.is_empty()) || said.version.is_some_and(|it| it > 0) {
        return Err("expected no `idempotency_key` and no `version`, which cannot be done");
    }
    Ok(Publishes {
        data: bytes(said.data, said.b64data)?,
        tags: said.tags.unwrap_or_default(),
    })
}

/// What a call returns.
pub(super) fn rpc(json: &str) -> Result<Bytes, Broken> {
    let said: DataSaid<'_> = parse(json.as_bytes(), RESULT)?;
    bytes(said.data, said.b64data)
}

const RESULT: Broken = "expected other fields in `result`, or of other kinds";

/// What a close of a WebSocket has room for (RFC 6455 §5.5, behind the code).
const REASON_BYTES: usize = 123;

fn parse<'a, T: Deserialize<'a>>(json: &'a [u8], expected: Broken) -> Result<T, Broken> {
    serde_json::from_slice(json).map_err(|why| {
        // Its own words may have a part of the answer in them.
        log::debug!("an answer is not what it should be (column {})", why.column());
        expected
    })
}

fn bytes(json: Option<&RawValue>, base64: Option<String>) -> Result<Bytes, Broken> {
    either(json, base64).map_err(|_| "expected base64 in fields that begin with `b64`")
}

/// 0 is for ever.
fn lasts(expire_at: Option<f64>) -> Lasts {
    let until = expire_at.filter(|at| *at != 0.0);
    Lasts {
        until: until.map(|seconds| seconds.ceil() as u64),
        leeway: 0,
    }
}
