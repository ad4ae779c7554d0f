//! Session affinity: the token that identifies an endpoint, and its expiry.
//!
//! The token is a hash of the endpoint's address and not a secret: a client that knows the addresses can identify the endpoint, and a
//! client that sends another token only selects another endpoint.

use ringmain_web::Request;

use crate::model::{Affinity, AffinityBy};
use crate::upstream::AffinityHint;

/// The session of a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AffinitySession {
    /// The token of the endpoint, if the request has a valid one.
    token: Option<u64>,
    /// Its start, seconds since the Unix epoch.
    started: u64,
    /// Its last use, seconds since the Unix epoch.
    last_used: u64,
}

impl AffinitySession {
    /// Reads the session of a request; `now` is in seconds since the Unix epoch.
    pub(super) fn from_request(affinity: &Affinity, req: &Request<'_>, now: u64) -> AffinitySession {
        let text = match &affinity.by {
            AffinityBy::Cookie(cookie) => req.cookies().get(&cookie.name),
            AffinityBy::Header(name) => req.header(name.as_str()),
            AffinityBy::Source => None,
        };
        let none = AffinitySession {
            token: None,
            started: now,
            last_used: now,
        };
        let session = text.and_then(AffinitySession::parse).unwrap_or(none);
        let is_expired = |since: u64, span: Option<std::time::Duration>| {
            span.is_some_and(|span| since > now || now - since > span.as_secs())
        };
        // A session without limits of its lifetime has no time stamps.
        let timed = affinity.lasts.is_some() || affinity.idle.is_some();
        let lacks_start = timed && session.started == 0;
        if lacks_start
            || is_expired(session.started, affinity.lasts)
            || is_expired(session.last_used, affinity.idle)
        {
            return none;
        }
        session
    }

    /// Parses `token` or `token.started.used`, hexadecimal.
    fn parse(text: &str) -> Option<AffinitySession> {
        let mut parts = text.split('.').map(|part| u64::from_str_radix(part, 16).ok());
        let token = parts.next()??;
        let (started_at, used) = match (parts.next(), parts.next()) {
            (None, _) => (0, 0),
            (started_at, used) => (started_at??, used??),
        };
        Some(AffinitySession {
            token: Some(token),
            started: started_at,
            last_used: used,
        })
    }

    /// Returns the preferred endpoint.
    pub(super) fn hint(&self) -> AffinityHint {
        self.token.map_or(AffinityHint::None, AffinityHint::Token)
    }

    /// Returns the response field that updates the client's session, if it has changed.
    pub(super) fn response_field<'a>(
        &self,
        affinity: &'a Affinity,
        token: u64,
        secure: bool,
        now: u64,
    ) -> Option<(&'a str, String)> {
        let timed = affinity.lasts.is_some() || affinity.idle.is_some();
        let is_same = self.token == Some(token);
        // Idle time requires an update for each request; one per second suffices.
        if is_same && !(affinity.idle.is_some() && self.last_used != now) {
            return None;
        }
        let started_at = if is_same { self.started } else { now };
        let value = if timed {
            format!("{token:016x}.{started_at:x}.{now:x}")
        } else {
            format!("{token:016x}")
        };
        match &affinity.by {
            AffinityBy::Source => None,
            AffinityBy::Header(name) => Some((name.as_str(), value)),
            AffinityBy::Cookie(cookie) => {
                let secure = if secure { "; Secure" } else { "" };
                let age = cookie
                    .max_age
                    .map_or_else(String::new, |age| format!("; Max-Age={}", age.as_secs()));
                let (name, path) = (&cookie.name, &cookie.path);
                Some((
                    "Set-Cookie",
                    format!("{name}={value}; Path={path}; HttpOnly; SameSite=Lax{secure}{age}"),
                ))
            }
        }
    }
}
