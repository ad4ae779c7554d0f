//! A worker's filters, one for each place where the configuration names one.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ringmain_engine::Cx;

use crate::filter::{Instance, Use};
use crate::plan::Plan;
use crate::table::Table;

/// See the module. By the places' numbers.
#[derive(Default)]
pub(crate) struct Instances(RefCell<BTreeMap<u64, Rc<dyn Instance>>>);

impl Instances {
    /// The filter for a place, made if there is none yet. `None`: it panicked.
    pub(crate) fn get(&self, wanted: &Use, cx: &Cx) -> Option<Rc<dyn Instance>> {
        if let Some(found) = self.0.borrow().get(&wanted.id) {
            return Some(Rc::clone(found));
        }
        let made = wanted.instance(cx)?;
        self.0.borrow_mut().insert(wanted.id, Rc::clone(&made));
        Some(made)
    }

    /// Forgets those whose places are not there any more; requests under way keep theirs.
    pub(super) fn follow(&self, table: &Table<Plan>) {
        if self.0.borrow().is_empty() {
            return;
        }
        let routes = table.routes();
        let plans =
            routes.flat_map(|route| (0..route.route().rules.len()).filter_map(|rule| route.plan(rule).ok()));
        let uses = plans.filter_map(|plan| plan.filters.as_deref()).flatten();
        let there: BTreeSet<u64> = uses.map(|wanted| wanted.id).collect();
        let gone: Vec<_> = {
            let mut all = self.0.borrow_mut();
            all.extract_if(.., |id, _| !there.contains(id)).collect()
        };
        // What a filter does at its end must not find this borrowed.
        drop(gone);
    }
}

impl std::fmt::Debug for Instances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.borrow().keys()).finish()
    }
}
