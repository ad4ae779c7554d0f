//! ReferenceGrants: which references across namespaces are permitted.

use super::Store;
use crate::objects::{Kind, ReferenceGrant};

/// The object that refers to another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Referrer<'a> {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: &'a str,
}

impl Store {
    /// Returns whether an object may refer to another one: it is in the same namespace, or a ReferenceGrant in the other one
    /// permits it.
    #[must_use]
    pub fn permits(&self, from: Referrer<'_>, kind: Kind, namespace: &str, name: &str) -> bool {
        if from.namespace == namespace {
            return true;
        }
        self.in_namespace::<ReferenceGrant>(namespace)
            .any(|grant| grants(grant, from, kind, name))
    }
}

fn grants(grant: &ReferenceGrant, from: Referrer<'_>, kind: Kind, name: &str) -> bool {
    let from_is_listed = grant.spec.from.iter().any(|listed| {
        listed.group == from.kind.group()
            && listed.kind == from.kind.name()
            && listed.namespace == from.namespace
    });
    let to_is_listed = grant.spec.to.iter().any(|listed| {
        let has_name = listed.name.as_deref().unwrap_or_default();
        listed.group == kind.group()
            && listed.kind == kind.name()
            && (has_name.is_empty() || has_name == name)
    });
    from_is_listed && to_is_listed
}
