//! The methods of a route, and the response of a path to each method.
//!
//! Owns the fallback of HEAD to GET and the text of `Allow` (RFC 9110 §10.2.1). Knows nothing of paths.

use ringmain_wire::h1::Method;

use super::Lookup;

/// The methods of a route.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Methods<'a> {
    /// Every method that no other route of the same pattern names.
    Any,
    /// These, at least one.
    Only(&'a [Method<'a>]),
}

/// The methods with a name of their own, in the order of `Allow`.
const REGISTERED: [Method<'static>; 9] = [
    Method::Get,
    Method::Head,
    Method::Post,
    Method::Put,
    Method::Delete,
    Method::Connect,
    Method::Options,
    Method::Trace,
    Method::Patch,
];

/// Returns the index of a method in [`REGISTERED`].
#[inline]
fn slot(method: Method<'_>) -> Option<usize> {
    Some(match method {
        Method::Get => 0,
        Method::Head => 1,
        Method::Post => 2,
        Method::Put => 3,
        Method::Delete => 4,
        Method::Connect => 5,
        Method::Options => 6,
        Method::Trace => 7,
        Method::Patch => 8,
        Method::Other(_) => return None,
    })
}

/// Returns true if a name is a token (RFC 9110 §5.6.2).
pub(super) fn is_token(name: &str) -> bool {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !name.is_empty() && name.bytes().all(is_token)
}

/// The routes of one pattern under construction.
#[derive(Clone, Debug, Default)]
pub(super) struct EndpointBuilder {
    /// Routes by method name.
    routes: Vec<(Box<str>, u32)>,
    any: Option<u32>,
}

impl EndpointBuilder {
    /// Returns the route for exactly this method; `None` selects the route for any method.
    pub(super) fn route(&self, method: Option<&str>) -> Option<u32> {
        let Some(method) = method else {
            return self.any;
        };
        let found = self.routes.iter().find(|(name, _)| **name == *method);
        found.map(|&(_, route)| route)
    }

    /// Adds a route under the key of [`EndpointBuilder::route`].
    pub(super) fn add(&mut self, method: Option<&str>, route: u32) {
        match method {
            Some(method) => self.routes.push((method.into(), route)),
            None => self.any = Some(route),
        }
    }
}

/// The routes of one pattern.
#[derive(Debug)]
pub(super) struct MethodTable {
    /// The route for each of [`REGISTERED`], after the fallbacks of HEAD to GET and to any method.
    registered: [Option<u32>; REGISTERED.len()],
    /// Routes of other methods.
    others: Box<[(Box<str>, u32)]>,
    any: Option<u32>,
    allow: Box<str>,
}

impl MethodTable {
    pub(super) fn new(draft: EndpointBuilder) -> MethodTable {
        let own = REGISTERED.map(|method| draft.route(Some(method.as_str())));
        let registered = REGISTERED.map(|method| {
            let route = draft.route(Some(method.as_str()));
            let by_get = (method == Method::Head)
                .then(|| draft.route(Some("GET")))
                .flatten();
            route.or(by_get).or(draft.any)
        });
        let mut others = draft.routes;
        others.retain(|(name, _)| matches!(Method::new(name), Method::Other(_)));
        others.sort();
        let allowed = REGISTERED
            .iter()
            .zip(own)
            .filter(|&(method, route)| match method {
                Method::Head => route.is_some() || own[0].is_some(),
                Method::Options => true,
                _ => route.is_some(),
            });
        let names = allowed.map(|(method, _)| method.as_str());
        let names: Vec<&str> = names.chain(others.iter().map(|(name, _)| &**name)).collect();
        MethodTable {
            registered,
            allow: names.join(", ").into(),
            others: others.into(),
            any: draft.any,
        }
    }

    /// Returns the number of the route for `method`, or the response without one.
    #[inline]
    pub(super) fn choose<T>(&self, method: Method<'_>) -> Result<u32, Lookup<'_, T>> {
        let route = match slot(method) {
            Some(slot) => self.registered[slot],
            None => self.other(method.as_str()),
        };
        route.ok_or_else(|| {
            let allow = &*self.allow;
            if method == Method::Options {
                Lookup::Options { allow }
            } else {
                Lookup::MethodNotAllowed { allow }
            }
        })
    }

    fn other(&self, name: &str) -> Option<u32> {
        let found = self.others.binary_search_by(|(known, _)| (**known).cmp(name));
        found.map_or(self.any, |index| Some(self.others[index].1))
    }
}
