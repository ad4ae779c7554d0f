//! The compiled routes of a table, by number and by name.

use std::sync::Arc;

use super::compiled_route::CompiledRoute;
use super::list_diff::ListDiff;
use super::name_index::{HashSlots, hash_text};

/// Routes with distinct names, in their order.
#[derive(Debug)]
pub(super) struct RouteIndex<P> {
    routes: Box<[Arc<CompiledRoute<P>>]>,
    names: Arc<NameSlots>,
}

/// The numbers of routes by the hash of their names.
#[derive(Debug)]
struct NameSlots {
    hashes: Box<[u64]>,
    slots: HashSlots,
}

impl NameSlots {
    fn new(hashes: Box<[u64]>) -> NameSlots {
        let mut slots = HashSlots::with_capacity(hashes.len());
        for (number, hash) in (0..).zip(&hashes) {
            slots.insert(*hash, number);
        }
        NameSlots { hashes, slots }
    }
}

fn hash_name<P>(route: &CompiledRoute<P>) -> u64 {
    hash_text(0, route.route().name.as_bytes())
}

impl<P> RouteIndex<P> {
    pub(super) fn new(routes: Vec<Arc<CompiledRoute<P>>>) -> RouteIndex<P> {
        let hashes = routes.iter().map(|route| hash_name(route));
        RouteIndex {
            names: Arc::new(NameSlots::new(hashes.collect())),
            routes: routes.into(),
        }
    }

    /// Returns these routes with others in place of those in the range of differences.
    pub(super) fn replace(&self, diff: &ListDiff, changed: &[Arc<CompiledRoute<P>>]) -> RouteIndex<P> {
        let mut routes = Vec::with_capacity(self.routes.len() + changed.len());
        routes.extend_from_slice(&self.routes[..diff.old.start]);
        routes.extend_from_slice(changed);
        routes.extend_from_slice(&self.routes[diff.old.end..]);
        let last = &self.routes[diff.old.clone()];
        let mut pairs = last.iter().zip(changed);
        let has_same_names =
            last.len() == changed.len() && pairs.all(|(a, b)| a.route().name == b.route().name);
        let names = if has_same_names {
            Arc::clone(&self.names)
        } else {
            let hashes = &self.names.hashes;
            let changed = changed.iter().map(|route| hash_name(route));
            let before = hashes[..diff.old.start].iter().copied();
            let behind = hashes[diff.old.end..].iter().copied();
            Arc::new(NameSlots::new(before.chain(changed).chain(behind).collect()))
        };
        RouteIndex {
            routes: routes.into(),
            names,
        }
    }

    /// Returns the number of the route with this name.
    pub(super) fn number(&self, name: &str) -> Option<usize> {
        let same = |number: u32| *self.routes[number as usize].route().name == *name;
        let number = self.names.slots.find(hash_text(0, name.as_bytes()), same)?;
        Some(number as usize)
    }

    /// Returns the route with this name.
    pub(super) fn find(&self, name: &str) -> Option<&Arc<CompiledRoute<P>>> {
        self.number(name).map(|number| &self.routes[number])
    }

    /// Returns all routes, in their order.
    pub(super) fn routes(&self) -> &[Arc<CompiledRoute<P>>] {
        &self.routes
    }
}
