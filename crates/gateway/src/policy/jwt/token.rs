//! A token: its three parts, and what its claims say. Pure.

use std::fmt::Write as _;
use std::sync::Arc;
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
pub(in crate::policy) struct Claims {
    all: Value,
    expires: f64,
    begins: Option<f64>,
    subject: Option<Arc<str>>,
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
        let subject = all.get("sub").and_then(Value::as_str).map(Arc::from);
        Ok(Claims {
            expires,
            begins,
            subject,
            all,
        })
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

    pub(super) fn subject(&self) -> Option<&Arc<str>> {
        self.subject.as_ref()
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
        let is = |value: &Value| rule.any_of.iter().any(|wanted| is_text(value, wanted));
        match self.find(&rule.claim) {
            Some(Value::Array(list)) => list.iter().any(is),
            Some(value) => is(value),
            None => false,
        }
    }

    /// A claim as a header has it, in `scratch` unless it lies somewhere so. A list whose elements have commas, and an object,
    /// cannot be one.
    pub(in crate::policy) fn header<'a>(
        &'a self,
        path: &ClaimPath,
        scratch: &'a mut String,
    ) -> Option<&'a str> {
        scratch.clear();
        match self.find(path)? {
            Value::Array(list) => {
                for (index, value) in list.iter().enumerate() {
                    scratch.push_str(if index > 0 { "," } else { "" });
                    let before = scratch.len();
                    write_text(value, scratch)?;
                    if scratch[before..].contains(',') {
                        return None;
                    }
                }
                Some(scratch)
            }
            Value::String(text) => Some(text),
            value => {
                write_text(value, scratch)?;
                Some(scratch)
            }
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

/// Appends a value that is one thing; `None`: it is none.
fn write_text(value: &Value, into: &mut String) -> Option<()> {
    match value {
        Value::String(text) => into.push_str(text),
        Value::Bool(truth) => into.push_str(if *truth { "true" } else { "false" }),
        // Writing to memory does not fail.
        Value::Number(number) => write!(into, "{number}").ok()?,
        _ => return None,
    }
    Some(())
}

/// Whether a value is one thing, which is written so.
fn is_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(truth) => wanted == if *truth { "true" } else { "false" },
        Value::Number(number) => {
            let mut left = Left(wanted);
            write!(left, "{number}").is_ok() && left.0.is_empty()
        }
        _ => false,
    }
}

/// What is left of a text behind what was written; an error if that is another.
struct Left<'t>(&'t str);

impl std::fmt::Write for Left<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(std::fmt::Error)?;
        Ok(())
    }
}
