//! Requests of one client that stay with one endpoint: what names it, and for how long.
//!
//! The name is a hash of the endpoint's address. It is no secret: whoever knows the addresses can tell which one it is, and
//! whoever sends another name gets another endpoint, which he could have by chance as well.

use ringmain_web::Request;

use crate::model::{Affinity, AffinityBy};
use crate::upstream::Prefer;

/// What a request says of where it belongs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Session {
    /// The endpoint's name, if it says one that holds.
    token: Option<u64>,
    /// When it began, seconds since 1970.
    began: u64,
    /// When it was used last.
    used: u64,
}

impl Session {
    /// Of a request; `now` is seconds since 1970.
    pub(super) fn of(affinity: &Affinity, req: &Request<'_>, now: u64) -> Session {
        let text = match &affinity.by {
            AffinityBy::Cookie(cookie) => req.cookies().get(&cookie.name),
            AffinityBy::Header(name) => req.header(name.as_str()),
            AffinityBy::Source => None,
        };
        let none = Session {
            token: None,
            began: now,
            used: now,
        };
        let session = text.and_then(Session::read).unwrap_or(none);
        let over = |since: u64, span: Option<std::time::Duration>| {
            span.is_some_and(|span| since > now || now - since > span.as_secs())
        };
        // Without times a session says none.
        let timed = affinity.lasts.is_some() || affinity.idle.is_some();
        let untold = timed && session.began == 0;
        if untold || over(session.began, affinity.lasts) || over(session.used, affinity.idle) {
            return none;
        }
        session
    }

    /// `token` or `token.began.used`, hexadecimal.
    fn read(text: &str) -> Option<Session> {
        let mut parts = text.split('.').map(|part| u64::from_str_radix(part, 16).ok());
        let token = parts.next()??;
        let (began, used) = match (parts.next(), parts.next()) {
            (None, _) => (0, 0),
            (began, used) => (began??, used??),
        };
        Some(Session {
            token: Some(token),
            began,
            used,
        })
    }

    /// Which endpoint it is to be.
    pub(super) fn prefers(&self) -> Prefer {
        self.token.map_or(Prefer::Any, Prefer::Named)
    }

    /// The field of the answer that tells the client, if there is anything new to tell.
    pub(super) fn field<'a>(
        &self,
        affinity: &'a Affinity,
        token: u64,
        secure: bool,
        now: u64,
    ) -> Option<(&'a str, String)> {
        let timed = affinity.lasts.is_some() || affinity.idle.is_some();
        let same = self.token == Some(token);
        // What counts idle time has to be told of each request; once in a second is enough.
        if same && !(affinity.idle.is_some() && self.used != now) {
            return None;
        }
        let began = if same { self.began } else { now };
        let value = if timed {
            format!("{token:016x}.{began:x}.{now:x}")
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
