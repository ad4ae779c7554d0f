//! Address allow and deny lists.

use std::net::IpAddr;
use std::sync::Arc;

use super::{PolicyInput, StepResult};
use crate::fault::Fault;
use crate::model;
use crate::proxy::client_address;

/// The address lists of a rule.
#[derive(Debug)]
pub(super) struct IpAccess(Arc<model::Addresses>);

impl IpAccess {
    pub(super) fn compile(policy: &Arc<model::Addresses>) -> IpAccess {
        IpAccess(Arc::clone(policy))
    }

    /// Returns the policy with its deny list only: all other addresses are allowed.
    pub(super) fn deny_list_only(policy: &model::Addresses) -> IpAccess {
        IpAccess(Arc::new(model::Addresses {
            allow: Vec::new(),
            deny: policy.deny.clone(),
        }))
    }

    /// Returns the policy with its allow list only; `None`: it has none.
    pub(super) fn allow_list_only(policy: &model::Addresses) -> Option<IpAccess> {
        let allow = policy.allow.clone();
        (!allow.is_empty()).then(|| {
            IpAccess(Arc::new(model::Addresses {
                allow,
                deny: Vec::new(),
            }))
        })
    }

    pub(super) fn check(&self, at: &PolicyInput<'_, '_>) -> StepResult {
        let client = client_address(at.route.listener, at.req);
        // Without an address from its trusted proxy, the client may be one that is denied.
        let may_be_denied = client.is_none() && at.req.remote().is_some() && !self.0.deny.is_empty();
        if !may_be_denied && self.is_admitted(client) {
            return Ok(());
        }
        Err(Fault::AddressDenied.into())
    }

    fn is_admitted(&self, client: Option<IpAddr>) -> bool {
        let contains = |networks: &[model::Network]| {
            client.is_some_and(|client| networks.iter().any(|network| network.contains(client)))
        };
        !contains(&self.0.deny) && (self.0.allow.is_empty() || contains(&self.0.allow))
    }
}
