//! A token: its three parts, and what its claims say. Pure.

use std::borrow::Cow;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use super::strict;
use crate::limits;
use crate::model::{ClaimPath, ClaimRule, JwtAlgorithm, JwtProvider};

/// A token that was taken apart, and nothing of it checked.
#[derive(Debug)]
pub(super) struct Parsed<'t> {
    pub(super) algorithm: JwtAlgorithm,
    pub(super) key: Option<String>,
    /// What is signed.
    pub(super) message: &'t [u8],
    pub(super) signature: Vec<u8>,
    pub(super) claims: Claims,
}

/// What a token says.
#[derive(Debug)]
pub(super) struct Claims {
    all: Value,
    expires: f64,
    begins: Option<f64>,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wrong {
    /// For this reason; the client is told.
    Invalid(&'static str),
    Expired,
    NotYet,
}

impl<'t> Parsed<'t> {
    pub(super) fn of(token: &'t [u8]) -> Result<Parsed<'t>, Wrong> {
        if token.len() > limits::TOKEN_BYTES {
            return Err(Wrong::Invalid("the token is too long"));
        }
        let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        let three = Wrong::Invalid("the token has not three parts");
        let first = dots.next().ok_or(three)?.0;
        let second = dots.next().ok_or(three)?.0;
        if dots.next().is_some() {
            return Err(three);
        }
        let decode = |part: &[u8]| {
            URL_SAFE_NO_PAD
                .decode(part)
                .map_err(|_| Wrong::Invalid("a part of the token is not in base64url"))
        };
        let json = |part: &[u8]| -> Result<Value, Wrong> {
            match strict::read(&decode(part)?) {
                Ok(value) if value.is_object() => Ok(value),
                Err(error) if error.is_data() => Err(Wrong::Invalid("a name in the token comes twice")),
                _ => Err(Wrong::Invalid("a part of the token is no JSON object")),
            }
        };
        let header = json(&token[..first])?;
        // RFC 7515 §4.1.11: what must be understood and is not.
        if header.get("crit").is_some() {
            return Err(Wrong::Invalid("the token has critical extensions"));
        }
        let key = match header.get("kid") {
            None => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err(Wrong::Invalid("the name of the token's key is no text")),
        };
        let name = header.get("alg").and_then(Value::as_str);
        let algorithm = name.and_then(JwtAlgorithm::of);
        Ok(Parsed {
            algorithm: algorithm.ok_or(Wrong::Invalid("the token's algorithm is not allowed"))?,
            key,
            message: &token[..second],
            signature: decode(&token[second + 1..])?,
            claims: Claims::of(json(&token[first + 1..second])?)?,
        })
    }
}

impl Claims {
    fn of(all: Value) -> Result<Claims, Wrong> {
        let number = |name: &str| match all.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|seconds| seconds.is_finite()) {
                Some(seconds) => Ok(Some(seconds)),
                None => Err(Wrong::Invalid("a time of the token is no number")),
            },
        };
        let expires = number("exp")?.ok_or(Wrong::Invalid("the token does not say when it expires"))?;
        let begins = number("nbf")?;
        Ok(Claims { expires, begins, all })
    }

    /// Whether they hold at a time since 1970.
    pub(super) fn hold(&self, now: Duration, leeway: Duration) -> Result<(), Wrong> {
        let (now, leeway) = (now.as_secs_f64(), leeway.as_secs_f64());
        if now >= self.expires + leeway {
            return Err(Wrong::Expired);
        }
        if self.begins.is_some_and(|begins| now + leeway < begins) {
            return Err(Wrong::NotYet);
        }
        Ok(())
    }

    pub(super) fn issuer(&self) -> Option<&str> {
        self.all.get("iss")?.as_str()
    }

    pub(super) fn subject(&self) -> Option<&str> {
        self.all.get("sub")?.as_str()
    }

    /// Whether they are of the provider's issuer, and for one of its audiences.
    pub(super) fn are_for(&self, provider: &JwtProvider) -> Result<(), Wrong> {
        if self.issuer() != Some(&*provider.issuer) {
            return Err(Wrong::Invalid("the token is of another issuer"));
        }
        let wanted = |text: &str| provider.audiences.iter().any(|audience| **audience == *text);
        let said = match self.all.get("aud") {
            Some(Value::String(text)) => wanted(text),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).any(wanted),
            _ => false,
        };
        match said || provider.audiences.is_empty() {
            true => Ok(()),
            false => Err(Wrong::Invalid("the token is for another audience")),
        }
    }

    /// Whether a scope is among `scope` and `scp`: texts with spaces between scopes, or lists of them.
    pub(super) fn has_scope(&self, scope: &str) -> bool {
        ["scope", "scp"]
            .into_iter()
            .filter_map(|name| self.all.get(name))
            .any(|value| match value {
                Value::String(text) => text.split(' ').any(|found| found == scope),
                Value::Array(list) => list.iter().any(|found| found == scope),
                _ => false,
            })
    }

    pub(super) fn satisfy(&self, rule: &ClaimRule) -> bool {
        let is = |value: &Value| {
            text(value).is_some_and(|text| rule.any_of.iter().any(|wanted| **wanted == *text))
        };
        match self.find(&rule.claim) {
            Some(Value::Array(list)) => list.iter().any(is),
            Some(value) => is(value),
            None => false,
        }
    }

    /// A claim as a header has it. A list whose elements have commas, and an object, cannot be one.
    pub(super) fn header(&self, path: &ClaimPath) -> Option<Cow<'_, str>> {
        match self.find(path)? {
            Value::Array(list) => {
                let texts: Option<Vec<_>> = list.iter().map(text).collect();
                let texts = texts.filter(|texts| !texts.iter().any(|text| text.contains(',')))?;
                Some(Cow::Owned(texts.join(",")))
            }
            value => text(value),
        }
    }

    fn find(&self, path: &ClaimPath) -> Option<&Value> {
        if let Some(value) = self.all.get(&*path.0) {
            return Some(value);
        }
        path.0
            .split('.')
            .try_fold(&self.all, |value, name| value.get(name))
    }
}

/// A value that is one thing.
fn text(value: &Value) -> Option<Cow<'_, str>> {
    match value {
        Value::String(text) => Some(Cow::Borrowed(text)),
        Value::Number(number) => Some(Cow::Owned(number.to_string())),
        Value::Bool(truth) => Some(Cow::Borrowed(if *truth { "true" } else { "false" })),
        _ => None,
    }
}
