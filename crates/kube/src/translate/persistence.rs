//! Session persistence (GEP-1619): sessions of the backends of a rule.
//!
//! The backend is drawn by weight first, and sessions choose among its endpoints: each backend needs a name of its own for the
//! sessions of a client. Names are generated for each backend unless the object sets one.

use std::collections::BTreeMap;
use std::time::Duration;

use ringmain_gateway::model::{
    Affinity, AffinityBy, Cookie, Forward, HeaderName, Name, Target, WeightedBackend,
};

use super::matches::Faults;
use super::text;
use crate::hash::hash;
use crate::objects::{SessionCookie, SessionPersistence};

/// Adds the sessions of a rule to its backends, in place of those of their policies. `owner`: the key of the route, a part of
/// generated names.
pub(super) fn add_sessions(
    spec: Option<&SessionPersistence>,
    owner: &str,
    forward: &mut Forward,
    faults: &mut Faults,
) {
    for backend in &mut forward.backends {
        if let (Some(spec), Target::Upstream(upstream)) = (spec, &backend.target) {
            backend.affinity = translate(spec, &format!("{owner} {upstream}"), faults).map(Box::new);
        }
    }
    if has_shared_name(&forward.backends) {
        faults.add(
            "sessionPersistence: two backends cannot share the sessions of one name; a cookie without a name gets one for each",
        );
    }
}

/// Returns whether sessions of different upstreams, which requests are spread over, would replace each other.
fn has_shared_name(backends: &[WeightedBackend]) -> bool {
    let mut owners: BTreeMap<&str, &Name> = BTreeMap::new();
    for backend in backends.iter().filter(|backend| backend.weight > 0) {
        let name = match backend.affinity.as_ref().map(|affinity| &affinity.by) {
            Some(AffinityBy::Cookie(cookie)) => &*cookie.name,
            Some(AffinityBy::Header(name)) => name.as_str(),
            Some(AffinityBy::Source) | None => continue,
        };
        if let Target::Upstream(upstream) = &backend.target
            && *owners.entry(name).or_insert(upstream) != upstream
        {
            return true;
        }
    }
    false
}

/// Translates sessions. `scope`: the owner of the sessions, from which the name of a cookie is generated.
pub(super) fn translate(spec: &SessionPersistence, scope: &str, faults: &mut Faults) -> Option<Affinity> {
    let timeout = match spec.absolute_timeout.as_deref() {
        None => None,
        Some(timeout) => match text::duration(timeout) {
            None => {
                faults.add(format!("sessionPersistence: `{timeout}` is not a duration"));
                return None;
            }
            // Sessions have times in whole seconds. Zero: no limit.
            found => found
                .filter(|found| !found.is_zero())
                .map(|found| Duration::from_secs(found.as_secs() + u64::from(found.subsec_nanos() > 0))),
        },
    };
    let by = match spec.kind.as_deref().unwrap_or("Cookie") {
        "Cookie" => {
            let default = SessionCookie::default();
            let cookie = spec.cookie.as_ref().unwrap_or(&default);
            AffinityBy::Cookie(translate_cookie(cookie, timeout, scope, faults)?)
        }
        "Header" => {
            let name = spec.header.as_ref().map_or("", |header| header.name.as_str());
            AffinityBy::Header(faults.read(HeaderName::parse(name))?)
        }
        kind => {
            faults.add(format!("sessionPersistence of type {kind} is not supported"));
            return None;
        }
    };
    Some(Affinity {
        by,
        lasts: timeout,
        idle: None,
    })
}

fn translate_cookie(
    spec: &SessionCookie,
    timeout: Option<Duration>,
    scope: &str,
    faults: &mut Faults,
) -> Option<Cookie> {
    let max_age = match (spec.lifetime_type.as_deref().unwrap_or("Session"), timeout) {
        ("Session", _) => None,
        ("Permanent", Some(timeout)) => Some(timeout),
        ("Permanent", None) => {
            faults.add("sessionPersistence: a permanent cookie needs absoluteTimeout");
            return None;
        }
        (kind, _) => {
            faults.add(format!(
                "sessionPersistence: lifetimeType {kind} is not supported"
            ));
            return None;
        }
    };
    let is_set = |text: &&str| !text.is_empty();
    let name = spec.name.as_deref().filter(is_set);
    let cookie = Cookie {
        name: name.map_or_else(|| format!("ringmain-{:016x}", hash(scope)).into(), Into::into),
        path: spec.path.as_deref().filter(is_set).unwrap_or("/").into(),
        max_age,
    };
    if !cookie.has_valid_name() || !cookie.has_valid_path() {
        faults.add("sessionPersistence: the name or the path of the cookie cannot be used");
        return None;
    }
    Some(cookie)
}
