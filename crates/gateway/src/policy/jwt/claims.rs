//! Requirements of a rule on a token's claims, and headers from claims. Pure.

use std::fmt::Write as _;
use std::ops::Deref;

use ringmain_jwt::{Claims as Said, TokenError};
use serde_json::Value;

use crate::model::{ClaimPath, ClaimRule, JwtProvider};

/// The claims of a token.
#[derive(Debug)]
pub(in crate::policy) struct TokenClaims(Said);

impl Deref for TokenClaims {
    type Target = Said;

    fn deref(&self) -> &Said {
        &self.0
    }
}

impl TokenClaims {
    /// Wraps the claims of a parsed token.
    pub(super) fn from_parsed(claims: Said) -> TokenClaims {
        TokenClaims(claims)
    }

    /// Returns whether a scope is in `scope` or `scp`: strings with scopes separated by spaces, or arrays of such strings.
    pub(super) fn has_scope(&self, scope: &str) -> bool {
        ["scope", "scp"]
            .into_iter()
            .filter_map(|name| self.get(name))
            .any(|value| match value {
                Value::String(text) => text.split(' ').any(|item| item == scope),
                Value::Array(list) => list.iter().any(|item| item == scope),
                _ => false,
            })
    }

    pub(super) fn satisfies(&self, rule: &ClaimRule) -> bool {
        let is = |value: &Value| rule.any_of.iter().any(|wanted| is_text(value, wanted));
        match self.find_claim(&rule.claim) {
            Some(Value::Array(list)) => list.iter().any(is),
            Some(value) => is(value),
            None => false,
        }
    }

    /// Returns a claim as a header value, in `scratch` unless it can be borrowed. An object, and an array with commas in its elements,
    /// cannot be one.
    pub(in crate::policy) fn header_value<'a>(
        &'a self,
        path: &ClaimPath,
        scratch: &'a mut String,
    ) -> Option<&'a str> {
        scratch.clear();
        match self.find_claim(path)? {
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

    fn find_claim(&self, path: &ClaimPath) -> Option<&Value> {
        if let Some(value) = self.get(&path.0) {
            return Some(value);
        }
        path.0
            .split('.')
            .try_fold(self.as_value(), |value, name| value.get(name))
    }
}

/// Appends a scalar; `None`: the value is not one.
fn write_text(value: &Value, out: &mut String) -> Option<()> {
    match value {
        Value::String(text) => out.push_str(text),
        Value::Bool(truth) => out.push_str(if *truth { "true" } else { "false" }),
        // Writing to memory does not fail.
        Value::Number(number) => write!(out, "{number}").ok()?,
        _ => return None,
    }
    Some(())
}

/// Returns whether a value is a scalar with this textual form.
fn is_text(value: &Value, wanted: &str) -> bool {
    match value {
        Value::String(text) => text == wanted,
        Value::Bool(truth) => wanted == if *truth { "true" } else { "false" },
        Value::Number(number) => {
            let mut remaining = ExpectedRest(wanted);
            write!(remaining, "{number}").is_ok() && remaining.0.is_empty()
        }
        _ => false,
    }
}

/// The rest of an expected text; writing a different text is an error.
struct ExpectedRest<'t>(&'t str);

impl std::fmt::Write for ExpectedRest<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = self.0.strip_prefix(text).ok_or(std::fmt::Error)?;
        Ok(())
    }
}

/// Checks that a token is from the provider's issuer and for one of its audiences.
pub(super) fn has_audience(claims: &Said, provider: &JwtProvider) -> Result<(), TokenError> {
    if claims.issuer() != Some(&*provider.issuer) {
        return Err(TokenError::Invalid("the token is of another issuer"));
    }
    if claims.has_audience(&provider.audiences) {
        Ok(())
    } else {
        Err(TokenError::Invalid("the token is for another audience"))
    }
}
