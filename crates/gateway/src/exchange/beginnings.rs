//! A worker's requests that were begun without a task: those that are to be used again, those that tasks go on from, and those whose
//! time is looked at here.
//!
//! A whole connection has a deadline that the engine keeps. A stream of a shared one has none: whoever waits for it is looked at every
//! [`EARLY_TICK`](limits::EARLY_TICK), and is left to a task, which keeps its time, when it has waited for as long.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ringmain_engine::backend::Time;
use ringmain_web::TicketId;

use super::early::{Ahead, Underway};
use crate::gateway::Worker;
use crate::limits;

/// See the module.
#[derive(Default)]
pub(crate) struct Beginnings {
    /// Left to tasks that have not begun.
    handed: RefCell<Vec<(TicketId, Rc<Underway>)>>,
    /// To be used again.
    idle: RefCell<Vec<Rc<Underway>>>,
    /// Those that wait for a stream, each with since when.
    waiting: RefCell<Vec<(Time, Rc<Underway>)>>,
    /// A task looks at them.
    is_ticking: Cell<bool>,
}

impl std::fmt::Debug for Beginnings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Beginnings")
    }
}

impl Beginnings {
    /// What a task goes on from: there if its request was begun before it.
    pub(super) fn take(&self, id: Option<TicketId>) -> Option<Ahead> {
        let underway = self.unhand(id?)?;
        let ahead = underway.take();
        self.put(underway);
        ahead
    }

    /// Leaves one to a task.
    pub(super) fn hand(&self, id: TicketId, underway: Rc<Underway>) {
        self.handed.borrow_mut().push((id, underway));
    }

    /// Takes it from what is left to tasks.
    pub(super) fn unhand(&self, id: TicketId) -> Option<Rc<Underway>> {
        let mut handed = self.handed.borrow_mut();
        let found = handed.iter().position(|(whose, _)| *whose == id)?;
        Some(handed.swap_remove(found).1)
    }

    /// One that was used before.
    pub(super) fn idle(&self) -> Option<Rc<Underway>> {
        self.idle.borrow_mut().pop()
    }

    pub(super) fn put(&self, underway: Rc<Underway>) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < limits::IDLE_BEGINNINGS {
            idle.push(underway);
        }
    }

    /// One waits for a stream from now on.
    pub(super) fn wait(&self, now: Time, underway: &Rc<Underway>) {
        let mut waiting = self.waiting.borrow_mut();
        underway.place.set(Some(waiting.len()));
        waiting.push((now, Rc::clone(underway)));
    }

    /// It does so no more.
    pub(super) fn leave(&self, underway: &Underway) {
        let Some(place) = underway.place.take() else {
            return;
        };
        let mut waiting = self.waiting.borrow_mut();
        waiting.swap_remove(place);
        if let Some((_, moved)) = waiting.get(place) {
            moved.place.set(Some(place));
        }
    }

    /// Those that have waited for a tick or longer.
    fn overdue(&self, now: Time) -> Vec<Rc<Underway>> {
        let waiting = self.waiting.borrow();
        let overdue = waiting
            .iter()
            .filter(|(since, _)| now.since(*since) >= limits::EARLY_TICK);
        overdue.map(|(_, underway)| Rc::clone(underway)).collect()
    }
}

impl Worker {
    /// Has those that wait for streams looked at, as long as there are any. Whether that is done: the worker may have as many
    /// tasks as it may.
    pub(super) fn look_at_waiting(self: &Rc<Self>) -> bool {
        if self.beginnings.is_ticking.replace(true) {
            return true;
        }
        let worker = Rc::clone(self);
        let looking = async move {
            let beginnings = &worker.beginnings;
            while !beginnings.waiting.borrow().is_empty() {
                worker.cx.sleep(limits::EARLY_TICK).await;
                for underway in beginnings.overdue(worker.cx.now()) {
                    underway.hand_over();
                }
            }
            beginnings.is_ticking.set(false);
        };
        let looks = self.cx.spawn(looking).is_ok();
        self.beginnings.is_ticking.set(looks);
        looks
    }
}
