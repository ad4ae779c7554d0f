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
    /// Returns whether objects have changed that listeners depend on.
    #[must_use]
    pub fn affect_listeners(&self) -> bool {
        !self.objects.iter().all(is_narrow)
    }
}

/// Returns whether no listener depends on an object.
fn is_narrow(key: &Key) -> bool {
    key.kind.is_route() || key.kind == Kind::Service
}
