//! The clients that a node sends away, so that all nodes have their share.
//!
//! ```text
//! still ── more than `above` x its share ──▶ moving: `share_per_second` of its clients
//!   ▲──────── at most `until` x its share ─────┘
//! ```
//!
//! The share of a node is its part of the clients by weight, among active nodes that accept clients. Between both limits nothing changes,
//! so nodes do not exchange the same clients again and again.

use std::time::Duration;

use super::Node;
use crate::member::{Phase, share_of_clients};

/// The limits and the rate of rebalancing.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Rebalance {
    /// A node with more clients than this multiple of its share starts to send clients away.
    pub above: f64,
    /// It stops at this multiple.
    pub until: f64,
    /// The part of its clients that it sends away in a second.
    pub share_per_second: f64,
}

impl Default for Rebalance {
    fn default() -> Rebalance {
        Rebalance {
            above: 1.2,
            until: 1.05,
            share_per_second: 0.005,
        }
    }
}

/// The load of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Connected clients.
    pub clients: u32,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Rebalancing {
    options: Option<Rebalance>,
    is_moving: bool,
    /// The clients to send away that were not taken yet.
    due: f64,
}

impl Rebalancing {
    /// Adds the clients of a time to those that are due.
    fn advance(&mut self, clients: u32, share: f64, elapsed: Duration) {
        let Some(options) = self.options else { return };
        let clients = f64::from(clients);
        // One client less must still be its share: few clients are never even.
        let has_excess = clients - 1.0 >= share;
        self.is_moving = if self.is_moving {
            has_excess && clients > options.until * share
        } else {
            has_excess && clients > options.above * share
        };
        if !self.is_moving {
            self.due = 0.0;
            return;
        }
        let excess = (clients - options.until * share).max(1.0);
        self.due = (self.due + clients * options.share_per_second * elapsed.as_secs_f64()).min(excess);
    }

    fn take(&mut self) -> u32 {
        let taken = self.due.floor();
        self.due -= taken;
        taken as u32
    }
}

impl Node {
    /// Sets the load of this node, which other nodes receive with the next beat.
    pub fn set_load(&mut self, load: Load) {
        self.status.clients = load.clients;
    }

    /// Sets the limits of rebalancing. `None`: no clients are sent away.
    pub fn set_rebalance(&mut self, options: Option<Rebalance>) {
        self.rebalancing.options = options;
    }

    /// Returns the number of clients that this node should send away now. They are not returned again.
    pub fn take_clients_to_move(&mut self) -> u32 {
        self.rebalancing.take()
    }

    pub(super) fn tick_rebalancing(&mut self, elapsed: Duration) {
        let share = match self.status.phase {
            Phase::Active => self.share_of_clients(),
            // All its clients are sent away, or it has none yet.
            Phase::Joining | Phase::Leaving => None,
        };
        match share {
            Some(share) => self.rebalancing.advance(self.status.clients, share, elapsed),
            None => (self.rebalancing.is_moving, self.rebalancing.due) = (false, 0.0),
        }
    }

    /// Returns this node's share of the clients by weight. `None`: it accepts none.
    fn share_of_clients(&self) -> Option<f64> {
        let own = (self.member.weight, u64::from(self.status.clients));
        let others = self
            .peers
            .values()
            .filter(|peer| peer.member.role.has_clients() && peer.status.phase == Phase::Active);
        let others = others.map(|peer| (peer.member.weight, u64::from(peer.status.clients)));
        let has_clients = self.member.role.has_clients();
        has_clients.then(|| share_of_clients(own, others))
    }
}

#[cfg(test)]
mod tests;
