//! Address allow and deny lists.

use std::net::IpAddr;
use std::sync::Arc;

use super::{At, Outcome};
use crate::fault::Fault;
use crate::model;
use crate::proxy::client_address;

/// The address lists of a rule.
#[derive(Debug)]
pub(super) struct Addresses(Arc<model::Addresses>);

impl Addresses {
    pub(super) fn of(policy: &Arc<model::Addresses>) -> Addresses {
        Addresses(Arc::clone(policy))
    }

    /// Returns the policy with its deny list only: all other addresses are allowed.
    pub(super) fn alone_denied(policy: &model::Addresses) -> Addresses {
        Addresses(Arc::new(model::Addresses {
            allow: Vec::new(),
            deny: policy.deny.clone(),
        }))
    }

    /// Returns the policy with its allow list only; `None`: it has none.
    pub(super) fn alone_allowed(policy: &model::Addresses) -> Option<Addresses> {
        let allow = policy.allow.clone();
        (!allow.is_empty()).then(|| {
            Addresses(Arc::new(model::Addresses {
                allow,
                deny: Vec::new(),
            }))
        })
    }

    pub(super) fn pass(&self, at: &At<'_, '_>) -> Outcome {
        let client = client_address(at.found.listener, at.req);
        // Without an address from its trusted proxy, the client may be one that is denied.
        let may_be_denied = client.is_none() && at.req.remote().is_some() && !self.0.deny.is_empty();
        if !may_be_denied && self.lets_in(client) {
            return Ok(());
        }
        Err(Fault::AddressDenied.into())
    }

    fn lets_in(&self, client: Option<IpAddr>) -> bool {
        let among = |networks: &[model::Network]| {
            client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
        };
        !among(&self.0.deny) && (self.0.allow.is_empty() || among(&self.0.allow))
    }
}
