//! After the services have recovered, every client that may be admitted is, and no other.

use std::time::Duration;

use ringmain_gateway::limits;

use super::{Run, front};
use crate::clients::{Client, Habits};
use crate::policy_services::Asked;

/// The time after which keys can be fetched again in any case: an unknown key may be known then, and no client is refused for good.
const AGAIN: Duration = Duration::from_secs(75);

/// The number of attempts of a client in a world with many faults.
const TRIES: usize = 60;

impl Run {
    /// See the module.
    pub(super) fn recover(&mut self) {
        if !self.asks.is_any() || !self.bounds.lets_one_in() {
            return;
        }
        self.asks.heal();
        self.pass(AGAIN);
        self.let_in();
        if self.asks.has_keys() {
            // Causes a fetch, so that the next clients follow soon after it, with a key that did not exist then.
            self.send_one(Asked::estrange);
            self.serve("asking in vain");
            self.asks.change_keys();
            self.let_in();
            for key in [0, 1] {
                let id = self.send_one(|asks, id| asks.outlaw(id, key));
                self.serve("keeping out");
                assert!(!self.asks.has_arrived(id), "its key is gone");
            }
        }
    }

    /// One more client with one request.
    pub(super) fn send_one(&mut self, as_who: impl Fn(&Asked, u64)) -> u64 {
        let id = self.asked;
        as_who(&self.asks, id);
        self.asked += 1;
        self.wanted += 1;
        let peer = loop {
            match self.world.connect(&front()) {
                Ok(peer) => break peer,
                Err(_) => {
                    self.step();
                }
            }
        };
        let ids = id..id + 1;
        let habits = Habits {
            calm: true,
            live: false,
            ..self.habits()
        };
        self.clients
            .push(Client::new(&self.world, peer, ids, habits, &self.asks));
        id
    }

    /// Checks that a client that may be admitted is in the end: in a calm world as soon as keys can be fetched again.
    fn let_in(&mut self) {
        let tries = if self.calm && !self.bounds.fill() {
            2
        } else {
            TRIES
        };
        for _ in 0..tries {
            let id = self.send_one(Asked::favour);
            self.serve("letting in");
            if self.asks.has_arrived(id) {
                return;
            }
            self.pass(Duration::from_secs(12));
        }
        panic!("nobody is let in again, though all is well");
    }

    fn pass(&mut self, span: Duration) {
        let until = self.world.now().after(span);
        self.drive("letting time pass", |run| run.world.now() >= until);
    }

    /// Of those who wait for keys there are never more than may be.
    pub(super) fn nobody_waits_in_vain(&self) {
        if !self.asks.is_crowd() {
            return;
        }
        let now = self.world.now();
        let waiting = self.clients.iter().filter(|client| {
            let since = client.waits(now);
            since.is_some_and(|(id, span)| span > Duration::from_secs(2) && self.asks.needs_keys(id))
        });
        let count = waiting.count();
        assert!(count <= limits::KEYS_PARKED as usize, "{count} wait for keys");
    }
}
