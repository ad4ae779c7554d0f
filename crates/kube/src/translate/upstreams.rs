//! The upstreams of a translation, with a list that follows each change.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ringmain_gateway::model::{Name, Upstream};

use super::backend::KnownUpstream;

/// The upstreams of a translation.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    pub(super) by_name: BTreeMap<Name, KnownUpstream>,
    /// The same, sorted by name.
    list: Vec<Arc<Upstream>>,
    /// Names whose entries in the list are to be compared.
    pub(super) changed: BTreeSet<Name>,
}

impl Upstreams {
    /// Removes an upstream.
    pub(super) fn remove(&mut self, name: &Name) {
        self.by_name.remove(name);
        self.changed.insert(Arc::clone(name));
    }

    /// Replaces upstreams that equal those of `last` by those, and builds the list.
    pub(super) fn reuse_equal(&mut self, mut last: Upstreams) {
        for (name, known) in &mut self.by_name {
            if let Some(last) = last.by_name.remove(name)
                && last.upstream == known.upstream
            {
                known.upstream = last.upstream;
            }
        }
        let all = self.by_name.values();
        self.list = all.map(|known| Arc::clone(&known.upstream)).collect();
        self.changed.clear();
    }

    /// Returns all upstreams, sorted by name.
    pub(super) fn list(&mut self) -> Vec<Arc<Upstream>> {
        for name in std::mem::take(&mut self.changed) {
            let found = self.list.binary_search_by(|upstream| upstream.name.cmp(&name));
            match (found, self.by_name.get(&name)) {
                (Ok(at), Some(known)) => {
                    if self.list[at] != known.upstream {
                        self.list[at] = Arc::clone(&known.upstream);
                    }
                }
                (Ok(at), None) => drop(self.list.remove(at)),
                (Err(at), Some(known)) => self.list.insert(at, Arc::clone(&known.upstream)),
                (Err(_), None) => {}
            }
        }
        self.list.clone()
    }
}
