//! The translated routes in the order of precedence, with lists of their parts that follow each change.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use ringmain_gateway::model::{Route, StreamRoute};

use super::translator::{Memo, Rank, RouteParts};

/// Single changes that are cheaper than building the lists again.
const SINGLE_CHANGES: usize = 64;

/// Routes in the order of precedence.
#[derive(Debug, Default)]
pub(super) struct RouteOrder {
    by_rank: BTreeMap<Rank, Arc<Memo>>,
    /// The parts of every route, in that order.
    routes: Vec<Arc<Route>>,
    streams: Vec<Arc<StreamRoute>>,
    /// Changes since the lists were complete; above [`SINGLE_CHANGES`] the lists are not.
    changes: usize,
}

impl RouteOrder {
    pub(super) fn clear(&mut self) {
        *self = RouteOrder {
            changes: SINGLE_CHANGES + 1,
            ..RouteOrder::default()
        };
    }

    pub(super) fn insert(&mut self, memo: Arc<Memo>) {
        if self.follows_changes() {
            let after = (Bound::Excluded(&memo.rank), Bound::Unbounded);
            let mut later = self.by_rank.range(after).map(|(_, memo)| &memo.parts);
            match &memo.parts {
                RouteParts::Http(parts) => {
                    let next = later.find_map(|parts| match parts {
                        RouteParts::Http(parts) => parts.first(),
                        RouteParts::Stream(_) => None,
                    });
                    insert_before(&mut self.routes, next, parts);
                }
                RouteParts::Stream(parts) => {
                    let next = later.find_map(|parts| match parts {
                        RouteParts::Stream(parts) => parts.first(),
                        RouteParts::Http(_) => None,
                    });
                    insert_before(&mut self.streams, next, parts);
                }
            }
        }
        self.by_rank.insert(memo.rank.clone(), memo);
    }

    pub(super) fn remove(&mut self, memo: &Memo) {
        if self.follows_changes() {
            match &memo.parts {
                RouteParts::Http(parts) => remove_parts(&mut self.routes, parts),
                RouteParts::Stream(parts) => remove_parts(&mut self.streams, parts),
            }
        }
        self.by_rank.remove(&memo.rank);
    }

    /// Returns the parts of every route, in the order of precedence.
    pub(super) fn parts(&mut self) -> (Vec<Arc<Route>>, Vec<Arc<StreamRoute>>) {
        if self.changes > SINGLE_CHANGES {
            self.routes.clear();
            self.streams.clear();
            for memo in self.by_rank.values() {
                match &memo.parts {
                    RouteParts::Http(parts) => self.routes.extend(parts.iter().cloned()),
                    RouteParts::Stream(parts) => self.streams.extend(parts.iter().cloned()),
                }
            }
        }
        self.changes = 0;
        (self.routes.clone(), self.streams.clone())
    }

    /// Returns whether the lists follow one more change.
    fn follows_changes(&mut self) -> bool {
        self.changes = self.changes.saturating_add(1);
        self.changes <= SINGLE_CHANGES
    }
}

/// Compares pointers alone: the parts themselves are not read.
fn position<T>(list: &[Arc<T>], part: &Arc<T>) -> Option<usize> {
    list.iter().position(|other| Arc::ptr_eq(other, part))
}

fn insert_before<T>(list: &mut Vec<Arc<T>>, next: Option<&Arc<T>>, parts: &[Arc<T>]) {
    let at = next.and_then(|next| position(list, next)).unwrap_or(list.len());
    list.splice(at..at, parts.iter().cloned());
}

fn remove_parts<T>(list: &mut Vec<Arc<T>>, parts: &[Arc<T>]) {
    if let Some(at) = parts.first().and_then(|first| position(list, first)) {
        list.drain(at..at + parts.len());
    }
}
