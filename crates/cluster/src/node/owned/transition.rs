//! The time in which the mirrors of a channel follow it to a new owner.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::protocol::Published;

use crate::frame::cost;
use crate::limits;
use crate::member::Uid;

/// The mirrors that a channel had at its previous owner, until they subscribe.
#[derive(Debug, Default)]
pub(in crate::node) struct Transition {
    pub(super) until: Duration,
    /// Their nodes, and those of members, each with the number of the first publication that it has not received.
    pub(super) awaited: BTreeMap<Uid, u64>,
    /// Publications without offsets, which cannot be sent again from the history, the newest last.
    publications: VecDeque<Arc<Published>>,
    bytes: u64,
    /// The number of the next publication.
    next: u64,
}

impl Transition {
    /// Creates a transition. Each mirror has the number of the `missed` publications that it has not received.
    pub(in crate::node) fn new(
        mirrors: impl IntoIterator<Item = (Uid, u32)>,
        missed: Vec<Arc<Published>>,
        now: Duration,
    ) -> Transition {
        let mut transition = Transition {
            until: now + limits::TRANSITION_TIME,
            ..Transition::default()
        };
        missed.iter().for_each(|published| transition.retain(published));
        let next = transition.next;
        for (uid, missed) in mirrors {
            let first = next.saturating_sub(u64::from(missed));
            let known = transition.awaited.entry(uid).or_insert(first);
            *known = first.min(*known);
        }
        transition
    }

    pub(in crate::node) fn until(&self) -> Duration {
        self.until
    }

    pub(in crate::node) fn is_empty(&self) -> bool {
        self.awaited.is_empty()
    }

    /// Returns the mirrors that have not subscribed, each with the number of publications that it has not received.
    pub(in crate::node) fn awaited(&self) -> impl Iterator<Item = (Uid, u32)> {
        self.awaited
            .iter()
            .map(|(uid, first)| (*uid, (self.next - first) as u32))
    }

    pub(in crate::node) fn publications(&self) -> impl Iterator<Item = &Arc<Published>> {
        self.publications.iter()
    }

    /// Ends the wait for a mirror. Returns the publications that it has missed.
    pub(super) fn take_missed(&mut self, uid: Uid) -> Vec<Arc<Published>> {
        let Some(first) = self.awaited.remove(&uid) else {
            return Vec::new();
        };
        let missed = ((self.next - first) as usize).min(self.publications.len());
        let retained = self.publications.range(self.publications.len() - missed..);
        retained.cloned().collect()
    }

    pub(super) fn retain(&mut self, published: &Arc<Published>) {
        self.next += 1;
        self.bytes += cost(published);
        self.publications.push_back(Arc::clone(published));
        while self.bytes > limits::TRANSITION_BYTES
            && let Some(oldest) = self.publications.pop_front()
        {
            self.bytes -= cost(&oldest);
        }
    }
}
