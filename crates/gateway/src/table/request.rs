//! Finds the rule of a request from its head: decodes the path by the listener's `escaped_slashes`, and routes a preflight as the
//! request that it announces.
//!
//! Shared by the data plane and explanations, so that both route a request the same way.

use std::rc::Rc;

use ringmain_web::path;

use super::request_facts::{Headers, RequestFacts};
use super::{ListenerId, Matched, Table};
use crate::fault::Fault;
use crate::model::{Cors, EscapedSlashes, Listener, Policy};

impl<P> Table<P> {
    /// Handles escaped slashes in a path, which is in the form of [`ringmain_web::path`], by the listener's `escaped_slashes`. `None`:
    /// the path is matched unchanged.
    ///
    /// # Errors
    /// [`Fault::EscapedSlash`]: the listener rejects it.
    ///
    /// # Panics
    /// `listener` is of another table and beyond this one's listeners.
    pub fn decode_path(&self, listener: ListenerId, path: &str) -> Result<Option<Rc<str>>, Fault> {
        let default = if self.guards_paths(listener) {
            EscapedSlashes::Reject
        } else {
            EscapedSlashes::Keep
        };
        let treatment = self.listener(listener).paths.escaped_slashes.unwrap_or(default);
        if treatment == EscapedSlashes::Keep {
            return Ok(None);
        }
        match (path::with_slashes(path), treatment) {
            (Some(_), EscapedSlashes::Reject) => Err(Fault::EscapedSlash),
            (decoded, _) => Ok(decoded.map(Rc::from)),
        }
    }

    /// Returns the rule that takes a request at a listener; for a preflight, that of the announced request, if CORS applies there.
    ///
    /// # Panics
    /// `listener` is of another table and beyond this one's listeners.
    #[must_use]
    pub fn find_request(&self, listener: ListenerId, facts: &RequestFacts<'_>) -> Option<Matched<'_, P>> {
        let announced = facts
            .announced_request()
            .and_then(|announced| self.find(listener, &announced))
            .filter(|matched| cors_policy(self.listener(listener), matched).is_some());
        announced.or_else(|| self.find(listener, facts))
    }
}

impl<'a> RequestFacts<'a> {
    /// Returns the request that a preflight announces; `None`: it is not a preflight.
    pub(super) fn announced_request(&self) -> Option<RequestFacts<'a>> {
        let method = announced_method(self.method, &self.headers)?;
        Some(RequestFacts { method, ..*self })
    }
}

/// Returns the method that a preflight announces; `None`: it is not a preflight.
pub(crate) fn announced_method<'a>(method: &str, headers: &Headers<'a>) -> Option<&'a str> {
    if method != "OPTIONS" {
        return None;
    }
    headers.first("Origin")?;
    let announced = str::from_utf8(headers.first("Access-Control-Request-Method")?).ok()?;
    is_token(announced).then_some(announced)
}

/// Returns the CORS policy of a rule, or else of its listener.
pub(crate) fn cors_policy<'v, P>(listener: &'v Listener, matched: &Matched<'v, P>) -> Option<&'v Cors> {
    let mut policies = matched.rule().policies.iter().chain(&listener.policies);
    policies.find_map(|policy| match policy {
        Policy::Cors(cors) => Some(&**cors),
        _ => None,
    })
}

/// Returns whether a text is a token (RFC 9110 §5.6.2).
pub(crate) fn is_token(text: &str) -> bool {
    let byte = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(byte)
}
