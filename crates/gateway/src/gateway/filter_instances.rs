//! The filter instances of a worker, one for each use in the configuration.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ringmain_engine::Cx;

use crate::compile::plan::Plan;
use crate::filter::{Factory, Instance, Use, create_instance};
use crate::table::Table;

/// Filter instances by the number of their use.
#[derive(Default)]
pub(crate) struct FilterInstances(RefCell<BTreeMap<u64, Rc<dyn Instance>>>);

impl FilterInstances {
    /// Returns the instance for a use, creating it if necessary. `None`: its constructor panicked.
    pub(crate) fn get_or_create(&self, id: u64, factory: &Factory, cx: &Cx) -> Option<Rc<dyn Instance>> {
        if let Some(found) = self.0.borrow().get(&id) {
            return Some(Rc::clone(found));
        }
        let instance = create_instance(factory, cx)?;
        self.0.borrow_mut().insert(id, Rc::clone(&instance));
        Some(instance)
    }

    /// Drops the instances whose uses no longer exist; requests in flight keep theirs.
    pub(super) fn drop_unused(&self, table: &Table<Plan>) {
        if self.0.borrow().is_empty() {
            return;
        }
        let routes = table.routes();
        let plans =
            routes.flat_map(|route| (0..route.route().rules.len()).filter_map(|rule| route.plan(rule).ok()));
        let uses = plans.filter_map(|plan| plan.filters.as_deref()).flatten();
        let ids: BTreeSet<u64> = uses.filter_map(Use::custom_id).collect();
        let removed: Vec<_> = {
            let mut all = self.0.borrow_mut();
            all.extract_if(.., |id, _| !ids.contains(id)).collect()
        };
        // The destructor of a filter must not find the table borrowed.
        drop(removed);
    }
}

impl std::fmt::Debug for FilterInstances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.borrow().keys()).finish()
    }
}
