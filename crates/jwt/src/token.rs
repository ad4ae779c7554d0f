//! A token: its three parts, and what its claims say.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::Value;

use crate::{Algorithm, limits, strict};

/// A token that was taken apart, and nothing of it checked.
#[derive(Debug)]
pub struct Parsed<'t> {
    /// By what it says to be signed. Whoever checks it knows which ones its issuer uses.
    pub algorithm: Algorithm,
    /// The name of the key that it says to be signed by.
    pub key: Option<String>,
    /// What is signed.
    pub message: &'t [u8],
    /// By which.
    pub signature: Vec<u8>,
    /// What it says.
    pub claims: Claims,
    /// The same as it is written: one JSON object, in which no name comes twice.
    pub json: Vec<u8>,
}

/// What a token says.
#[derive(Debug)]
pub struct Claims {
    all: Value,
    expires: Option<f64>,
    begins: Option<f64>,
    subject: Option<Arc<str>>,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wrong {
    /// For this reason, which says nothing of what is secret.
    Invalid(&'static str),
    /// Its time is over.
    Expired,
    /// Its time has not come.
    NotYet,
}

impl<'t> Parsed<'t> {
    /// Takes a token apart.
    ///
    /// # Errors
    /// [`Wrong::Invalid`]: it is longer than [`TOKEN_BYTES`](limits::TOKEN_BYTES), or none; an algorithm that is not known (`none`
    /// is none), critical extensions, a name that comes twice.
    pub fn of(token: &'t [u8]) -> Result<Parsed<'t>, Wrong> {
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
        let header = object(&decoded(&token[..first])?)?;
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
        let algorithm = name.and_then(Algorithm::of);
        let algorithm = algorithm.ok_or(Wrong::Invalid("the token's algorithm is not allowed"))?;
        let signature = decoded(&token[second + 1..])?;
        let json = decoded(&token[first + 1..second])?;
        Ok(Parsed {
            algorithm,
            key,
            message: &token[..second],
            signature,
            claims: Claims::of(object(&json)?)?,
            json,
        })
    }
}

fn decoded(part: &[u8]) -> Result<Vec<u8>, Wrong> {
    let bytes = URL_SAFE_NO_PAD.decode(part);
    bytes.map_err(|_| Wrong::Invalid("a part of the token is not in base64url"))
}

fn object(json: &[u8]) -> Result<Value, Wrong> {
    match strict::read(json) {
        Ok(value) if value.is_object() => Ok(value),
        Err(error) if error.is_data() => Err(Wrong::Invalid("a name in the token comes twice")),
        _ => Err(Wrong::Invalid("a part of the token is no JSON object")),
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
        let (expires, begins) = (number("exp")?, number("nbf")?);
        let subject = all.get("sub").and_then(Value::as_str).map(Arc::from);
        Ok(Claims {
            expires,
            begins,
            subject,
            all,
        })
    }

    /// Whether they hold at a time since 1970, when clocks may differ by `leeway`. Those that do not say when they expire do for
    /// ever: whoever wants no such token asks [`Claims::expires`].
    ///
    /// # Errors
    /// [`Wrong::Expired`], [`Wrong::NotYet`].
    pub fn hold(&self, now: Duration, leeway: Duration) -> Result<(), Wrong> {
        let (now, leeway) = (now.as_secs_f64(), leeway.as_secs_f64());
        if self.expires.is_some_and(|expires| now >= expires + leeway) {
            return Err(Wrong::Expired);
        }
        if self.begins.is_some_and(|begins| now + leeway < begins) {
            return Err(Wrong::NotYet);
        }
        Ok(())
    }

    /// When they expire, in seconds since 1970 (`exp`).
    #[must_use]
    pub fn expires(&self) -> Option<f64> {
        self.expires
    }

    /// Whose they are (`iss`), if that is a text.
    #[must_use]
    pub fn issuer(&self) -> Option<&str> {
        self.all.get("iss")?.as_str()
    }

    /// Whom they are about (`sub`), if that is a text.
    #[must_use]
    pub fn subject(&self) -> Option<&Arc<str>> {
        self.subject.as_ref()
    }

    /// Whether they are for one of these (`aud`); for whoever asks, if there are none.
    #[must_use]
    pub fn are_for<T: AsRef<str>>(&self, audiences: &[T]) -> bool {
        let wanted = |text: &str| audiences.iter().any(|audience| audience.as_ref() == text);
        let said = match self.all.get("aud") {
            Some(Value::String(text)) => wanted(text),
            Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).any(wanted),
            _ => false,
        };
        said || audiences.is_empty()
    }

    /// A claim, by its whole name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    /// All of them: an object.
    #[must_use]
    pub fn all(&self) -> &Value {
        &self.all
    }
}
