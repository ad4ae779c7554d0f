//! Query parameters that a configuration declares to hold secrets.

use std::sync::Arc;

use super::{CredentialSource, Listener, Policy, Route};

/// Returns the query parameters from which policies of these listeners and routes read keys and tokens.
pub(crate) fn secret_params<'c>(
    listeners: &[Arc<Listener>],
    routes: impl Iterator<Item = &'c Arc<Route>>,
) -> Vec<Arc<str>> {
    let listeners = listeners.iter().flat_map(|listener| &listener.policies);
    let rules = routes.flat_map(|route| &route.rules);
    let policies = listeners.chain(rules.flat_map(|rule| &rule.policies));
    let mut params = Vec::new();
    for policy in policies {
        match policy {
            Policy::ApiKeys(keys) => params.extend(keys.from.iter().filter_map(param)),
            Policy::Jwt(jwt) => {
                let sources = jwt.providers.iter().flat_map(|provider| &provider.from);
                params.extend(sources.filter_map(param));
            }
            _ => {}
        }
    }
    params
}

fn param(source: &CredentialSource) -> Option<Arc<str>> {
    match source {
        CredentialSource::Query(name) => Some(Arc::clone(name)),
        CredentialSource::Header(_) | CredentialSource::Cookie(_) => None,
    }
}
