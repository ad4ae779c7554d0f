//! A worker's endpoints and their connections after a change of configuration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::End;
use crate::upstream::h2::Sessions;
use crate::upstream::{Current, Endpoint};

/// Returns whether connections to one endpoint may be used for the other.
pub(super) fn is_same(one: &Endpoint, other: &Endpoint) -> bool {
    one.addr == other.addr && one.peer == other.peer
}

/// Builds the list of endpoints. Those that remain retain their connections if these are made in the same way.
pub(super) fn ends(current: &Current, old: &[Rc<End>], alike: bool) -> Vec<Rc<End>> {
    let end = |endpoint: &Arc<Endpoint>| {
        let same = |end: &&Rc<End>| alike && is_same(&end.endpoint, endpoint);
        match old.iter().find(same) {
            // Its weight may have changed.
            Some(end) if Arc::ptr_eq(&end.endpoint, endpoint) => Rc::clone(end),
            Some(end) => Rc::new(End {
                endpoint: Arc::clone(endpoint),
                idle: RefCell::new(std::mem::take(&mut *end.idle.borrow_mut())),
                sessions: end.sessions.hand_on(),
                gone: Cell::new(false),
            }),
            None => Rc::new(End {
                endpoint: Arc::clone(endpoint),
                idle: RefCell::default(),
                sessions: Sessions::default(),
                gone: Cell::new(false),
            }),
        }
    };
    current.endpoints.iter().map(end).collect()
}
