//! The changes of a store since the last translation.

use std::collections::BTreeSet;

use crate::objects::{Id, Key, Kind};

/// Changes of a [`Store`](super::Store), which [`Store::take_changes`](super::Store::take_changes) returns. There is at most one entry
/// for each object, so that limits of objects limit them, too.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Objects that were added, removed, or updated in a way that matters to the translation; without EndpointSlices.
    pub objects: BTreeSet<Key>,
    /// Services whose EndpointSlices have changed.
    pub endpoints: BTreeSet<Id>,
    /// Objects with a status of which anything has changed.
    pub statuses: BTreeSet<Key>,
}

impl Changes {
    /// Returns whether objects have changed that others than single routes depend on, such as Gateways, policies and grants.
    #[must_use]
    pub fn affect_all(&self) -> bool {
        let is_narrow = |key: &Key| key.kind.is_route() || key.kind == Kind::Service;
        !self.objects.iter().all(is_narrow)
    }
}
