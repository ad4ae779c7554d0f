//! The objects of a cluster by key, with the indexes that the translation needs.
//!
//! Owns the tables of objects and the limits of their number, the slices of each Service, grants (`grants`) and the Secrets
//! and ConfigMaps that are referred to (`references`). Knows neither the model nor where objects originate.

mod changes;
mod grants;
mod references;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::limits;
use crate::objects::{
    BackendTlsPolicy, ConfigMap, EndpointSlice, Gateway, GatewayClass, GrpcRoute, HttpRoute, Id, Key, Kind,
    ListenerSet, Namespace, Object, ReferenceGrant, Resource, Secret, Service, TcpRoute, TlsRoute, UdpRoute,
    XBackendTrafficPolicy,
};

pub use changes::Changes;
pub use grants::Referrer;
pub use references::References;

/// The objects of one kind.
pub type Objects<T> = BTreeMap<Id, Arc<T>>;

/// An object that the store does not accept.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The kind is at its limit.
    #[error("{key}: there are {limit} objects of this kind, which is the limit; this one is not used")]
    TooMany {
        /// The object.
        key: Key,
        /// The limit.
        limit: usize,
    },
}

/// The outcome of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The object was not in the store.
    Added,
    /// Another version of the object was replaced.
    Updated,
    /// The store had this object already, apart from its resource version and status.
    Unchanged,
}

macro_rules! tables {
    ($($field:ident: $name:ident),* $(,)?) => {
        /// The objects of a cluster.
        #[derive(Clone, Debug, Default)]
        pub struct Store {
            $($field: Objects<$name>,)*
            /// The slices of each Service.
            slices_of: BTreeMap<Id, BTreeSet<Id>>,
            changes: Changes,
        }

        /// A type of object that a [`Store`] has a table for.
        pub trait Stored: Resource + 'static {
            /// The table.
            fn table(store: &Store) -> &Objects<Self>;
        }

        $(impl Stored for $name {
            fn table(store: &Store) -> &Objects<$name> {
                &store.$field
            }
        })*

        impl Store {
            /// Returns an object of any kind.
            #[must_use]
            pub fn object(&self, key: &Key) -> Option<Object> {
                let id = key.id();
                match key.kind {
                    $(Kind::$name => self.$field.get(&id).cloned().map(Object::$name),)*
                }
            }

            /// Returns the number of objects of a kind.
            #[must_use]
            pub fn count(&self, kind: Kind) -> usize {
                match kind {
                    $(Kind::$name => self.$field.len(),)*
                }
            }

            /// Returns the keys of the objects of a kind, sorted.
            #[must_use]
            pub fn keys(&self, kind: Kind) -> Vec<Key> {
                let key = |id: &Id| Key::new(kind, Arc::clone(&id.namespace), Arc::clone(&id.name));
                match kind {
                    $(Kind::$name => self.$field.keys().map(key).collect(),)*
                }
            }

            fn insert(&mut self, object: Object) -> Change {
                match object {
                    $(Object::$name(object) => {
                        let id = object.metadata.id();
                        match self.$field.insert(id, Arc::clone(&object)) {
                            None => Change::Added,
                            Some(old) if is_same(&*old, &*object) => Change::Unchanged,
                            Some(_) => Change::Updated,
                        }
                    })*
                }
            }

            fn take(&mut self, key: &Key) -> Option<Object> {
                let id = key.id();
                match key.kind {
                    $(Kind::$name => self.$field.remove(&id).map(Object::$name),)*
                }
            }
        }
    };
}

tables! {
    classes: GatewayClass,
    gateways: Gateway,
    listener_sets: ListenerSet,
    http_routes: HttpRoute,
    grpc_routes: GrpcRoute,
    tls_routes: TlsRoute,
    tcp_routes: TcpRoute,
    udp_routes: UdpRoute,
    grants: ReferenceGrant,
    backend_policies: BackendTlsPolicy,
    traffic_policies: XBackendTrafficPolicy,
    services: Service,
    slices: EndpointSlice,
    secrets: Secret,
    config_maps: ConfigMap,
    namespaces: Namespace,
}

/// Returns whether two versions are translated alike: the generation counts changes of specifications, but not every kind
/// has one.
fn is_same<T: Resource + PartialEq>(old: &T, new: &T) -> bool {
    let (before, after) = (old.meta(), new.meta());
    if T::KIND.has_status() {
        // The status alone has changed: it is our own, or does not matter to the translation.

        before.generation == after.generation
            && before.generation != 0
            && before.uid == after.uid
            && before.deletion_timestamp == after.deletion_timestamp
    } else {
        before.resource_version == after.resource_version && old == new
    }
}

impl Store {
    /// Creates an empty store.
    #[must_use]
    pub fn new() -> Store {
        Store::default()
    }

    /// Adds an object, or replaces the version that the store has.
    ///
    /// # Errors
    /// It would be one more of its kind than the limit. The store has not changed.
    pub fn apply(&mut self, object: Object) -> Result<Change, StoreError> {
        let key = object.key();
        let limit = match key.kind {
            Kind::EndpointSlice => limits::ENDPOINT_SLICES,
            _ => limits::OBJECTS_PER_KIND,
        };
        if self.count(key.kind) >= limit && self.object(&key).is_none() {
            return Err(StoreError::TooMany { key, limit });
        }
        if key.kind.has_status() {
            self.changes.statuses.insert(key.clone());
        }
        if let Object::EndpointSlice(slice) = &object {
            let last = self.forget_slice(&key.id());
            let service = slice.service();
            let service = service.map(|service| Id::new(Arc::clone(&key.namespace), service));
            if let Some(service) = &service {
                let slices = self.slices_of.entry(service.clone()).or_default();
                slices.insert(key.id());
            }
            let change = self.insert(object);
            if change != Change::Unchanged {
                self.changes.endpoints.extend(last.into_iter().chain(service));
            }
            return Ok(change);
        }
        let change = self.insert(object);
        if change != Change::Unchanged {
            self.changes.objects.insert(key);
        }
        Ok(change)
    }

    /// Returns the changes since the last call.
    pub fn take_changes(&mut self) -> Changes {
        std::mem::take(&mut self.changes)
    }

    /// Returns the changes since the last [`Store::take_changes`].
    #[must_use]
    pub fn changes(&self) -> &Changes {
        &self.changes
    }

    /// Removes an object and returns it.
    pub fn remove(&mut self, key: &Key) -> Option<Object> {
        if key.kind == Kind::EndpointSlice {
            let service = self.forget_slice(&key.id());
            self.changes.endpoints.extend(service);
            return self.take(key);
        }
        let removed = self.take(key)?;
        if key.kind.has_status() {
            self.changes.statuses.insert(key.clone());
        }
        self.changes.objects.insert(key.clone());
        Some(removed)
    }

    /// Removes a slice from those of its Service, which is returned.
    fn forget_slice(&mut self, id: &Id) -> Option<Id> {
        let service = self.slices.get(id)?.service()?;
        let service = Id::new(Arc::clone(&id.namespace), service);
        if let Some(slices) = self.slices_of.get_mut(&service) {
            slices.remove(id);
            if slices.is_empty() {
                self.slices_of.remove(&service);
            }
        }
        Some(service)
    }

    /// Returns an object of a type.
    #[must_use]
    pub fn get<T: Stored>(&self, namespace: &str, name: &str) -> Option<&Arc<T>> {
        T::table(self).get(&Id::new(namespace, name))
    }

    /// Returns all objects of a type, by namespace and name.
    pub fn all<T: Stored>(&self) -> impl Iterator<Item = &Arc<T>> {
        T::table(self).values()
    }

    /// Returns the objects of a type in a namespace, by name.
    pub fn in_namespace<'s, T: Stored>(&'s self, namespace: &'s str) -> impl Iterator<Item = &'s Arc<T>> {
        let objects = T::table(self).range(Id::new(namespace, "")..);
        let objects = objects.take_while(move |(id, _)| *id.namespace == *namespace);
        objects.map(|(_, object)| object)
    }

    /// Returns all objects of a type in the order of precedence: older ones first, then by namespace and name.
    #[must_use]
    pub fn by_precedence<T: Stored>(&self) -> Vec<&Arc<T>> {
        let mut all: Vec<&Arc<T>> = self.all::<T>().collect();
        all.sort_by(|a, b| a.meta().precedence().cmp(&b.meta().precedence()));
        all
    }

    /// Returns the EndpointSlices of a Service, by name.
    pub fn slices_of(&self, service: &Id) -> impl Iterator<Item = &Arc<EndpointSlice>> {
        let slices = self.slices_of.get(service).into_iter().flatten();
        slices.filter_map(|id| self.slices.get(id))
    }

    /// Returns the labels of a namespace; none if it is not known.
    #[must_use]
    pub fn namespace_labels(&self, namespace: &str) -> Option<&BTreeMap<String, String>> {
        let found = self.namespaces.get(&Id::new("", namespace))?;
        Some(&found.metadata.labels)
    }
}
