//! Query parameters that no log shows: a page that cannot set headers has no other way to send a token.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::http::query;
use crate::limits;

/// Parameters that are redacted by default: tokens (RFC 6750 §2.3), and the connect command of push clients, which contains one.
pub const REDACTED_PARAMS: [&str; 3] = ["cf_connect", "token", "access_token"];

/// Names of query parameters that no log shows, in addition to [`REDACTED_PARAMS`] or its replacement in the access log: those that a
/// configuration declares to hold secrets. Shared between clones; may change while the application serves.
#[derive(Clone, Debug, Default)]
pub struct RedactedParams(Arc<RedactedNames>);

#[derive(Debug, Default)]
struct RedactedNames {
    /// The generation of `names`; workers check it first.
    generation: AtomicU64,
    names: Mutex<Arc<[Box<str>]>>,
}

impl RedactedParams {
    /// Returns an empty set.
    #[must_use]
    pub fn new() -> RedactedParams {
        RedactedParams::default()
    }

    /// Adds names, decoded. None is removed on reload, because clients continue to send parameters of an earlier configuration;
    /// beyond [`limits::REDACTED_PARAM_NAMES`] names the oldest are dropped.
    pub fn add<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) {
        let mut guard = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = guard.to_vec();
        for name in names {
            if all.iter().all(|known| **known != *name.as_ref()) {
                all.push(name.as_ref().into());
            }
        }
        if all.len() == guard.len() {
            return;
        }
        all.drain(..all.len().saturating_sub(limits::REDACTED_PARAM_NAMES));
        *guard = all.into();
        self.0.generation.fetch_add(1, Ordering::Release);
    }

    /// Returns the current names.
    pub(crate) fn names(&self) -> Arc<[Box<str>]> {
        let names = self.0.names.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&names)
    }

    pub(crate) fn generation(&self) -> u64 {
        self.0.generation.load(Ordering::Acquire)
    }
}

/// Returns a target, or another URL, with `***` as the values of these query parameters. Some servers also separate pairs with `;`,
/// so a name is recognized after either; a value extends to the next `&`.
pub(crate) fn redacted_target<'t, N: AsRef<str>>(target: &'t [u8], names: &[N]) -> Cow<'t, [u8]> {
    let Some(start) = target.iter().position(|byte| *byte == b'?') else {
        return Cow::Borrowed(target);
    };
    let (path, raw) = target.split_at(start + 1);
    let is_hidden = |pair: &[u8]| {
        let (name, _) = query::halves(pair);
        let is_redacted = |hidden: &N| query::bytes(name).eq(hidden.as_ref().bytes());
        name.len() < pair.len() && names.iter().any(is_redacted)
    };
    // Returns the length of the visible prefix of the text between two `&`; `None`: all.
    let redact = |part: &[u8]| {
        let mut from = 0;
        for pair in part.split(|byte| *byte == b';') {
            if is_hidden(pair) {
                return Some(from + query::halves(pair).0.len() + 1);
            }
            from += pair.len() + 1;
        }
        None
    };
    let parts = || raw.split(|byte| *byte == b'&');
    if parts().all(|part| redact(part).is_none()) {
        return Cow::Borrowed(target);
    }
    let mut redacted_target = path.to_vec();
    for (number, part) in parts().enumerate() {
        if number > 0 {
            redacted_target.push(b'&');
        }
        match redact(part) {
            Some(until) => {
                redacted_target.extend_from_slice(&part[..until]);
                redacted_target.extend_from_slice(b"***");
            }
            None => redacted_target.extend_from_slice(part),
        }
    }
    Cow::Owned(redacted_target)
}

#[cfg(test)]
mod tests {
    use super::{REDACTED_PARAMS, RedactedParams, redacted_target};
    use crate::limits;

    #[test]
    fn declared_names_are_added_and_bounded() {
        let params = RedactedParams::new();
        assert_eq!((params.names().len(), params.generation()), (0, 0));
        params.add(["key", "sig"]);
        params.add(["sig", "key"]);
        assert_eq!(params.generation(), 1);
        assert_eq!(
            &*redacted_target(b"/?sig=x&a=b", &params.names()),
            b"/?sig=***&a=b"
        );
        params.add((0..limits::REDACTED_PARAM_NAMES).map(|number| number.to_string()));
        let names = params.names();
        assert_eq!((names.len(), &*names[0]), (limits::REDACTED_PARAM_NAMES, "0"));
    }

    #[test]
    fn values_of_these_names_are_not_shown() {
        for (target, expected) in [
            ("/", "/"),
            ("/token=1", "/token=1"),
            ("/?", "/?"),
            ("/?a=token&b", "/?a=token&b"),
            ("/?token", "/?token"),
            ("/?token=", "/?token=***"),
            ("/?token=secret", "/?token=***"),
            ("/?a=1&token=secret&b=2", "/?a=1&token=***&b=2"),
            ("/?token=one&access_token=two", "/?token=***&access_token=***"),
            ("/?cf_connect=%7B%22token%22:%22x%22%7D", "/?cf_connect=***"),
            // Percent-encoded names, and `;` as a separator.
            ("/?%74oken=secret", "/?%74oken=***"),
            ("/?a=1;token=secret", "/?a=1;token=***"),
            ("/?token=secret;more=secret&b=2", "/?token=***&b=2"),
            ("/?token=a=b?token=c", "/?token=***"),
            ("/?a=?token=x", "/?a=?token=x"),
            ("/?Token=x&tokens=x", "/?Token=x&tokens=x"),
            ("http://a/b?&&token=x#f", "http://a/b?&&token=***"),
        ] {
            let found = redacted_target(target.as_bytes(), &REDACTED_PARAMS);
            assert_eq!(String::from_utf8_lossy(&found), expected, "{target}");
        }
        assert_eq!(&*redacted_target(b"/?token=x", &[""; 0]), b"/?token=x");
        assert_eq!(&*redacted_target(b"/?key=x", &["key"]), b"/?key=***");
    }
}
