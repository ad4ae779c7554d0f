//! A worker's copy of the options, refreshed when their generation changes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use crate::options::ValidOptions;
use crate::settings::SharedSettings;

/// See the module.
pub(super) struct OptionsCache {
    generation: Cell<u64>,
    options: RefCell<Rc<ValidOptions>>,
}

impl OptionsCache {
    pub(super) fn new(generation: u64, options: ValidOptions) -> OptionsCache {
        OptionsCache {
            generation: Cell::new(generation),
            options: RefCell::new(Rc::new(options)),
        }
    }

    /// Returns the options; calls `changed` first if they are newer than those that were returned last.
    pub(super) fn current(
        &self,
        settings: &SharedSettings,
        changed: impl FnOnce(&ValidOptions),
    ) -> Rc<ValidOptions> {
        if let Some((generation, options)) = settings.newer_than(self.generation.get()) {
            self.generation.set(generation);
            changed(&options);
            *self.options.borrow_mut() = Rc::new(options);
        }
        Rc::clone(&self.options.borrow())
    }
}
