//! A token: its three parts and its claims. Must not know keys.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::{Algorithm, limits, strict};

/// A parsed token, not verified yet.
#[derive(Debug)]
pub struct ParsedToken<'t> {
    /// The algorithm in the header. The caller must check that the issuer uses it.
    pub algorithm: Algorithm,
    /// The key ID in the header.
    pub key_id: Option<String>,
    /// The signed part of the token: header and payload as they were encoded.
    pub signing_input: &'t [u8],
    /// The signature.
    pub signature: Vec<u8>,
    /// The claims in the payload.
    pub claims: Claims,
    /// The payload as it was written: a JSON object in which each name occurs once.
    pub payload: Vec<u8>,
}

/// The claims of a token.
#[derive(Debug)]
pub struct Claims {
    all: Value,
    expires_at: Option<f64>,
    not_before: Option<f64>,
    subject: Option<Arc<str>>,
}

/// The reason why a token is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// The token is invalid. The text contains nothing of the token.
    Invalid(&'static str),
    /// The token has expired.
    Expired,
    /// The token is not valid yet.
    NotYetValid,
}

impl<'t> ParsedToken<'t> {
    /// Parses a token without verifying it.
    ///
    /// # Errors
    /// [`TokenError::Invalid`]: the token is longer than [`TOKEN_BYTES`](limits::TOKEN_BYTES) or malformed, has an unknown algorithm
    /// (`none` is one), critical extensions, or a name that occurs twice in an object.
    pub fn parse(token: &'t [u8]) -> Result<ParsedToken<'t>, TokenError> {
        if token.len() > limits::TOKEN_BYTES {
            return Err(TokenError::Invalid("the token is too long"));
        }
        let mut dots = token.iter().enumerate().filter(|(_, byte)| **byte == b'.');
        let part_count = TokenError::Invalid("the token does not have three parts");
        let first = dots.next().ok_or(part_count)?.0;
        let second = dots.next().ok_or(part_count)?.0;
        if dots.next().is_some() {
            return Err(part_count);
        }
        let header = parse_object(&decode_part(&token[..first])?)?;
        // RFC 7515 §4.1.11: no critical extension is supported.
        if header.get("crit").is_some() {
            return Err(TokenError::Invalid("the token has critical extensions"));
        }
        let key_id = match header.get("kid") {
            None => None,
            Some(Value::String(name)) => Some(name.clone()),
            Some(_) => return Err(TokenError::Invalid("the token's key name is not a string")),
        };
        let name = header.get("alg").and_then(Value::as_str);
        let algorithm = name.and_then(Algorithm::from_name);
        let algorithm = algorithm.ok_or(TokenError::Invalid("the token's algorithm is not allowed"))?;
        let signature = decode_part(&token[second + 1..])?;
        let payload = decode_part(&token[first + 1..second])?;
        Ok(ParsedToken {
            algorithm,
            key_id,
            signing_input: &token[..second],
            signature,
            claims: Claims::new(parse_object(&payload)?)?,
            payload,
        })
    }
}

fn decode_part(part: &[u8]) -> Result<Vec<u8>, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part);
    bytes.map_err(|_| TokenError::Invalid("a part of the token is not in base64url"))
}

fn parse_object(json: &[u8]) -> Result<Value, TokenError> {
    match strict::parse(json) {
        Ok(value) if value.is_object() => Ok(value),
        Err(error) if error.is_data() => Err(TokenError::Invalid("a name occurs twice in the token")),
        _ => Err(TokenError::Invalid("a part of the token is not a JSON object")),
    }
}

impl Claims {
    fn new(all: Value) -> Result<Claims, TokenError> {
        let number = |name: &str| match all.get(name) {
            None => Ok(None),
            Some(value) => match value.as_f64().filter(|seconds| seconds.is_finite()) {
                Some(seconds) => Ok(Some(seconds)),
                None => Err(TokenError::Invalid("a time claim of the token is not a number")),
            },
        };
        let (expires_at, not_before) = (number("exp")?, number("nbf")?);
        let subject = all.get("sub").and_then(Value::as_str).map(Arc::from);
        Ok(Claims {
            expires_at,
            not_before,
            subject,
            all,
        })
    }

    /// Checks the validity period (`exp`, `nbf`); `now` is the time since the Unix epoch, and `leeway` is the tolerated difference between
    /// clocks. A token without `exp` does not expire: callers that require it check [`Claims::expires_at`].
    ///
    /// # Errors
    /// [`TokenError::Expired`], [`TokenError::NotYetValid`].
    pub fn check_validity(&self, now: Duration, leeway: Duration) -> Result<(), TokenError> {
        let (now, leeway) = (now.as_secs_f64(), leeway.as_secs_f64());
        if self
            .expires_at
            .is_some_and(|expires_at| now >= expires_at + leeway)
        {
            return Err(TokenError::Expired);
        }
        if self
            .not_before
            .is_some_and(|not_before| now + leeway < not_before)
        {
            return Err(TokenError::NotYetValid);
        }
        Ok(())
    }

    /// Returns the expiration time in seconds since the Unix epoch (`exp`).
    #[must_use]
    pub fn expires_at(&self) -> Option<f64> {
        self.expires_at
    }

    /// Returns the issuer (`iss`) if it is a string.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.all.get("iss")?.as_str()
    }

    /// Returns the subject (`sub`) if it is a string.
    #[must_use]
    pub fn subject(&self) -> Option<&Arc<str>> {
        self.subject.as_ref()
    }

    /// Returns whether one of these audiences is in `aud`; always `true` if `audiences` is empty.
    #[must_use]
    pub fn has_audience<T: AsRef<str>>(&self, audiences: &[T]) -> bool {
        let is_expected = |text: &str| audiences.iter().any(|audience| audience.as_ref() == text);
        let is_intended = match self.all.get("aud") {
            Some(Value::String(text)) => is_expected(text),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).any(is_expected),
            _ => false,
        };
        is_intended || audiences.is_empty()
    }

    /// Returns a top-level claim by its exact name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    /// Returns all claims as a JSON object.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.all
    }
}
