//! A worker's endpoints and their connections after a change of configuration.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use super::PoolEndpoint;
use crate::upstream::h2::SessionList;
use crate::upstream::{UpstreamEndpoint, UpstreamSnapshot};

/// Returns whether connections to one endpoint may be used for the other.
pub(super) fn has_same_connections(a: &UpstreamEndpoint, b: &UpstreamEndpoint) -> bool {
    a.addr == b.addr && a.tls_name == b.tls_name
}

/// Builds the list of endpoints. Remaining endpoints retain their connections if the transport has not changed.
pub(in crate::upstream) fn build_endpoints(
    current: &UpstreamSnapshot,
    previous: &[Rc<PoolEndpoint>],
    same_transport: bool,
) -> Vec<Rc<PoolEndpoint>> {
    let end = |endpoint: &Arc<UpstreamEndpoint>| {
        let is_same =
            |end: &&Rc<PoolEndpoint>| same_transport && has_same_connections(&end.endpoint, endpoint);
        match previous.iter().find(is_same) {
            // Its weight may have changed.
            Some(end) if Arc::ptr_eq(&end.endpoint, endpoint) => Rc::clone(end),
            Some(end) => Rc::new(PoolEndpoint {
                endpoint: Arc::clone(endpoint),
                idle: RefCell::new(std::mem::take(&mut *end.idle.borrow_mut())),
                sessions: end.sessions.move_to_successor(),
                is_removed: Cell::new(false),
            }),
            None => Rc::new(PoolEndpoint {
                endpoint: Arc::clone(endpoint),
                idle: RefCell::default(),
                sessions: SessionList::default(),
                is_removed: Cell::new(false),
            }),
        }
    };
    current.endpoints.iter().map(end).collect()
}
