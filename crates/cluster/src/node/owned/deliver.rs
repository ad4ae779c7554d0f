//! Publications and states for the mirrors of owned channels, as far as there is credit.

use std::sync::Arc;
use std::time::Duration;

use ringmain_hub::history::StreamPosition;
use ringmain_hub::protocol::Published;

use crate::frame::{Frame, cost};
use crate::member::Uid;
use crate::node::Node;

impl Node {
    /// Sends a publication to all mirrors of a channel.
    pub(in crate::node) fn fan_out(
        &mut self,
        channel: &Arc<str>,
        offset: u64,
        published: &Arc<Published>,
        is_transient: bool,
        now: Duration,
    ) {
        let Some(owned) = self.owned.channels.get(channel) else {
            return;
        };
        let interests: Vec<_> = owned
            .interests
            .iter()
            .map(|interest| (interest.node, interest.number, interest.marked))
            .collect();
        for (node, number, marked) in interests {
            if marked.is_none() && self.take_credit(node, cost(published)) {
                let published = Arc::clone(published);
                self.send(
                    node,
                    Frame::Publication {
                        number,
                        offset,
                        published,
                    },
                );
            } else if marked.is_none() && !is_transient {
                self.mark_interest(node, channel, offset, now);
            }
        }
    }

    pub(super) fn mark_interest(&mut self, node: Uid, channel: &Arc<str>, offset: u64, now: Duration) {
        if let Some(owned) = self.owned.channels.get_mut(channel)
            && let Some(interest) = owned.interests.iter_mut().find(|interest| interest.node == node)
        {
            interest.marked = Some(offset);
            self.mark(node, Arc::clone(channel), now);
        }
    }

    /// Sends a node the publications that it has missed for want of credit, or the state with a gap.
    pub(in crate::node) fn send_missed(&mut self, to: Uid, channel: &Arc<str>, now: Duration) {
        self.refresh_history(channel);
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        let Some(interest) = owned.interests.iter_mut().find(|interest| interest.node == to) else {
            return;
        };
        let Some(first) = interest.marked.take() else {
            return;
        };
        let number = interest.number;
        let from = owned
            .position()
            .filter(|_| first > 0)
            .map(|position| StreamPosition {
                offset: first - 1,
                ..position
            });
        let state = owned.state(from, now);
        self.charge(to, state.cost());
        self.send(to, Frame::State { number, state });
    }

    /// Sends all mirrors the state, without the publications that they have missed.
    pub(in crate::node) fn send_state_to_all(&mut self, channel: &Arc<str>, now: Duration) {
        self.refresh_history(channel);
        self.send_present_state_to_all(channel, now);
    }

    /// As [`Node::send_state_to_all`], before the record of the log that is being read has its place in the history.
    pub(in crate::node) fn send_present_state_to_all(&mut self, channel: &Arc<str>, now: Duration) {
        let Some(owned) = self.owned.channels.get_mut(channel) else {
            return;
        };
        let state = owned.state(None, now);
        owned
            .interests
            .iter_mut()
            .for_each(|interest| interest.marked = None);
        let interests: Vec<_> = owned
            .interests
            .iter()
            .map(|interest| (interest.node, interest.number))
            .collect();
        for (node, number) in interests {
            if state.position.is_some() && !self.has_credit(node) {
                self.mark_interest(node, channel, 0, now);
                continue;
            }
            self.charge(node, state.cost());
            let state = state.clone();
            self.send(node, Frame::State { number, state });
        }
    }
}
